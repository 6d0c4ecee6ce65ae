"""Quantities have exactly the meaning that they have in Kubernetes."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.quantities import (
    canonical_quantity,
    format_bytes,
    format_duration,
    format_money,
    parse_cpu,
    parse_duration,
    parse_memory,
    parse_price,
    parse_quantity,
    parse_resource,
)

CENTURY = 100 * 365 * 86400
SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

decimals = st.decimals(min_value=0, max_value=10**9, places=4, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("2", 2),
        ("+2", 2),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        ("500m", Fraction(1, 2)),
        ("100k", 100_000),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("5e-1", Fraction(1, 2)),
        ("  2Gi ", 2**31),
        (2, 2),
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
    ],
)
def test_a_kubernetes_quantity_is_read_exactly(text: str | float, expected: Fraction | int) -> None:
    assert parse_quantity(text) == expected


@given(decimals, st.sampled_from(sorted(SUFFIXES)))
def test_a_decimal_suffix_is_a_power_of_ten(number: object, suffix: str) -> None:
    assert parse_quantity(f"{number}{suffix}") == Fraction(str(number)) * Fraction(10) ** SUFFIXES[suffix]


@given(decimals, st.sampled_from(sorted(BINARY)))
def test_a_binary_suffix_is_a_power_of_two(number: object, suffix: str) -> None:
    assert parse_quantity(f"{number}{suffix}") == Fraction(str(number)) * 2 ** BINARY[suffix]


@pytest.mark.parametrize(
    "text",
    ["", " ", "Gi", "1 Gi", "1gi", "1K", "1GB", "1e", "e3", "0x10", "1,5", "1..5", "nan", "inf", "1h", True, False],
)
def test_a_malformed_quantity_is_refused_with_the_expected_form(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not a quantity: expected a number with a suffix"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["-1", "-0.5Gi", "-1e3"])
def test_a_negative_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{re.escape(text)}' is negative"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999", "9" * 10_000, "0." + "0" * 10_000])
def test_no_text_makes_a_quantity_costly_to_read(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "millicores"), [("0.5", 500), ("500m", 500), (2, 2000), (0.1, 100), ("1u", 1), ("0.0001", 1), ("0", 0)]
)
def test_cpu_is_whole_millicores_rounded_up(text: str | float, millicores: int) -> None:
    assert parse_cpu(text) == millicores


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1Ki", 1024), ("1k", 1000), ("1.5Gi", 1_610_612_736), ("100m", 1), ("0.1Ki", 103), (4096, 4096)],
)
def test_memory_is_whole_bytes_rounded_up(text: str | float, amount: int) -> None:
    assert parse_memory(text) == amount


@given(decimals)
def test_rounding_up_never_asks_for_less_than_was_written_nor_for_a_unit_more(number: object) -> None:
    exact = Fraction(str(number))
    assert 0 <= parse_memory(str(number)) - exact < 1
    assert 0 <= parse_cpu(str(number)) - 1000 * exact < 1


@pytest.mark.parametrize(
    ("name", "text", "amount"),
    [("cpu", "2", 2000), ("memory", "1Ki", 1024), ("ephemeral-storage", "1k", 1000), ("nvidia.com/gpu", 4, 4)],
)
def test_each_resource_is_read_in_its_own_unit(name: str, text: str | float, amount: int) -> None:
    assert parse_resource(name, text) == amount


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("0.1s", 0.1),
        ("1m30s500ms", 90.5),
        ("90", 90),
        (" 10s ", 10),
        (90, 90),
        (0.25, 0.25),
        ("0", 0),
    ],
)
def test_a_duration_is_read_as_seconds(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "5x", "5 m", "1h 30m", "1:30", "5mm", "5mins", "nan", "inf", "1e3", True, False]
)
def test_a_malformed_duration_is_refused_with_examples(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not a duration: expected for example 30s, 5m, 1h30m or 2d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["-1s", "-5", "1m-2h", "2h-1m"])
def test_a_negative_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is negative: a duration is zero or more"):
        parse_duration(text)


def test_a_duration_ends_at_a_century() -> None:
    assert parse_duration(f"{CENTURY}s") == CENTURY
    with pytest.raises(ValueError, match="is longer than 100 years"):
        parse_duration(f"{CENTURY + 1}s")


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "s", "1s" * 10_000])
def test_no_text_makes_a_duration_costly_to_read_or_overflow(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 999), st.integers(0, 59), st.integers(0, 59))
def test_the_parts_of_a_duration_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("0.97/h", Fraction(97, 100)),
        ("3.06", Fraction(306, 100)),
        (0.1, Fraction(1, 10)),
        (" 1 /h", 1),
        ("0/h", 0),
        (2, 2),
    ],
)
def test_a_price_is_exact_and_per_hour(text: str | float, price: Fraction | int) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["", "/h", "$1/h", "1/d", "1/h/h", "1e3", "1 USD", "9" * 10_000, True])
def test_a_malformed_price_is_refused_with_an_example(text: str | float) -> None:
    with pytest.raises(ValueError, match=r"is not a price: expected an amount per hour such as 0\.97/h"):
        parse_price(text)


def test_a_negative_price_is_refused() -> None:
    with pytest.raises(ValueError, match="'-1/h' is negative: a price is zero or more"):
        parse_price("-1/h")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.4, "0.4s"),
        (9, "9s"),
        (12.3, "12s"),
        (59.6, "1m00s"),
        (200, "3m20s"),
        (3599.7, "1h00m"),
        (7500, "2h05m"),
        (360_000, "100h00m"),
        (-0.5, "-0.5s"),
        (-200, "-3m20s"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(0, 10**8))
def test_a_written_duration_reads_back_within_its_rounding(seconds: float) -> None:
    left_out = 0.05 if seconds < 10 else 0.5 if seconds < 3600 else 60
    assert math.isclose(parse_duration(format_duration(seconds)), seconds, abs_tol=left_out + 1e-9, rel_tol=0)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1Ki"), (1536, "1.5Ki"), (3 * 2**29, "1.5Gi"), (2**50, "1Pi"), (2**60, "1024Pi")],
)
def test_bytes_are_written_with_the_largest_suffix_that_fits(amount: int, text: str) -> None:
    assert format_bytes(amount) == text


@given(st.integers(0, 2**60))
def test_written_bytes_read_back_to_four_digits(amount: int) -> None:
    assert math.isclose(parse_memory(format_bytes(amount)), amount, rel_tol=0.001, abs_tol=1)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Fraction(0), "0.00"),
        (Fraction(1), "1.00"),
        (Fraction(12345, 100), "123.45"),
        (Fraction(1, 4), "0.25"),
        (Fraction(1234, 10**6), "0.0012"),
        (Fraction(-1234, 10**6), "-0.0012"),
        (Fraction(1, 10**12), "<0.00000001"),
    ],
)
def test_money_has_two_decimals_and_two_significant_digits(amount: Fraction, text: str) -> None:
    assert format_money(amount) == text


@pytest.mark.parametrize(
    ("amount", "beside", "text"),
    [
        (Fraction(59, 10**8), Fraction(5), "<0.01"),
        (Fraction(-59, 10**8), Fraction(5), ">-0.01"),
        (Fraction(59, 10**8), Fraction(5, 100), "<0.0001"),
        (Fraction(59, 10**8), Fraction(1, 10**6), "0.00000059"),
        (Fraction(0), Fraction(5), "0.00"),
        (Fraction(1, 100), Fraction(5), "0.010"),
        (Fraction(12, 10**4), Fraction(5, 100), "0.0012"),
    ],
)
def test_money_far_below_the_total_beside_it_is_a_limit(amount: Fraction, beside: Fraction, text: str) -> None:
    assert format_money(amount, beside=beside) == text


def test_money_names_its_currency() -> None:
    assert format_money(Fraction(3, 2), "USD") == "1.50 USD"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("0.5", "500m"), ("1000m", "1"), ("2000", "2k"), ("1500", "1500"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"), ("0.1Gi", "107374182400m"), ("2.0G", "2G"), ("1.07G", "1070M"), ("12E2", "1200"), ("1e3", "1e3"),
        ("0Mi", "0"),
    ],
)  # fmt: skip
def test_a_quantity_is_written_as_the_api_of_kubernetes_does(written: str, canonical: str) -> None:
    assert canonical_quantity(written) == canonical
    assert parse_quantity(canonical) == parse_quantity(written)
