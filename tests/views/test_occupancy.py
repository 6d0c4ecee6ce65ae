"""Whose node time a second is: shares, boot, idle and unfilled time."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.views.account import Stay, occupy, share_of

HALF = Fraction(1, 2)
NODE = {"cpu": 4000, "memory": 16 * 2**30, "nvidia.com/gpu": 2}


def test_the_largest_of_the_shares_counts() -> None:
    assert share_of({"cpu": 1000, "memory": 8 * 2**30}, NODE) == HALF
    assert share_of({"cpu": 3000, "memory": 2**30}, NODE) == Fraction(3, 4)
    assert share_of({"cpu": 100, "nvidia.com/gpu": 1}, NODE) == HALF


def test_work_without_requests_has_the_whole_node() -> None:
    assert share_of({}, NODE) == share_of({"cpu": 0}, NODE) == 1


def test_a_node_of_unknown_size_is_one_attempts_whole_node() -> None:
    assert share_of({"cpu": 100}, None) == 1


def test_no_share_is_more_than_one_node() -> None:
    assert share_of({"cpu": 6000}, NODE) == 1  # the pool's nodes were larger when it was bound


def test_storage_does_not_decide_the_share() -> None:
    assert share_of({"cpu": 1000, "ephemeral-storage": 90}, {**NODE, "ephemeral-storage": 100}) == Fraction(1, 4)


def test_a_node_boots_then_is_idle_then_is_filled_in_part() -> None:
    use = occupy(10.0, 13.0, 30.0, [Stay("a", HALF, 15.0, 25.0)])
    assert [use.whole, use.boot, use.idle, use.unfilled, use.used["a"]] == [20, 3, 7, 5, 5]


def test_attempts_side_by_side_fill_the_node_together() -> None:
    use = occupy(0.0, 0.0, 10.0, [Stay("a", HALF, 0.0, 10.0), Stay("b", HALF, 0.0, 4.0)])
    assert [use.used["a"], use.used["b"], use.unfilled] == [5, 2, 3]


def test_shares_above_one_node_pay_their_part_of_one() -> None:
    use = occupy(0.0, 0.0, 9.0, [Stay("cpu", Fraction(1), 0.0, 9.0), Stay("memory", HALF, 0.0, 9.0)])
    assert float(use.used["cpu"]) == pytest.approx(6, abs=1e-9)
    assert float(use.used["memory"]) == pytest.approx(3, abs=1e-9)


def test_two_attempts_without_requests_pay_half_each_while_both_run() -> None:
    use = occupy(0.0, 0.0, 10.0, [Stay("a", Fraction(1), 0.0, 10.0), Stay("b", Fraction(1), 6.0, 10.0)])
    assert use.used == {"a": 8, "b": 2}


def test_a_node_that_was_never_ready_only_booted() -> None:
    use = occupy(0.0, None, 4.0, [])
    assert use.whole == use.boot == 4


def test_an_attempt_pays_only_until_its_node_is_gone() -> None:
    use = occupy(0.0, 1.0, 5.0, [Stay("a", Fraction(1), 2.0, 5.4)])
    assert use.used == {"a": 3}


moments = st.floats(0, 1e6, allow_nan=False)
stays = st.lists(st.tuples(st.fractions(Fraction(1, 1000), 1), moments, moments), max_size=12)


@given(booted=moments, boot=st.none() | moments, life=moments, given_stays=stays)
def test_the_lines_of_a_node_add_up_to_its_time_exactly(
    booted: float, boot: float | None, life: float, given_stays: list[tuple[Fraction, float, float]]
) -> None:
    all_stays = [Stay(index, share, start, start + length) for index, (share, start, length) in enumerate(given_stays)]
    use = occupy(booted, None if boot is None else booted + boot, booted + life, all_stays)
    parts = [use.boot, use.idle, use.unfilled, *use.used.values()]
    assert sum(parts) == use.whole == Fraction(booted + life) - Fraction(booted)
    assert min(parts) >= 0
    assert use.used.keys() == {stay.key for stay in all_stays}
