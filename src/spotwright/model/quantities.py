"""Read and write exact quantities: CPU, memory, durations and money.

Numbers are parsed without binary floating point, so that ``0.1`` means one tenth. CPU becomes whole millicores, memory whole
bytes (fractions are rounded up, as the Kubernetes API does), money and prices become :class:`fractions.Fraction`. Durations
become seconds as ``float``, like clocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

__all__ = [
    "canonical_quantity",
    "format_bytes",
    "format_duration",
    "format_money",
    "parse_cpu",
    "parse_duration",
    "parse_memory",
    "parse_price",
    "parse_quantity",
    "parse_resource",
]

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)"
_QUANTITY = re.compile(rf"^({_NUMBER})(?:(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE]([+-]?\d{{1,2}}))?$")
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d|w)")
_LONGEST = 64  # characters of a quantity; limits the cost of the regular expressions and numbers
_MOST_DECIMALS = 8  # of money
_LONGEST_DURATION = 100 * 365 * 86400  # seconds; clocks and timers overflow far above it
_SUFFIX = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_BINARY = {"": 0, "Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SECONDS = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
    "w": Fraction(604800),
}


def parse_quantity(value: str | float) -> Fraction:
    """Read a Kubernetes quantity (``500m``, ``2``, ``1.5Gi``, ``100k``, ``1e3``) as an exact number.

    Raises ``ValueError`` with the expected form. Source of the grammar: the Kubernetes API reference, ``Quantity``.
    """
    text = str(value).strip()
    match = _QUANTITY.match(text) if len(text) <= _LONGEST else None
    if isinstance(value, bool) or match is None:
        raise ValueError(f"{text!r} is not a quantity: expected a number with a suffix such as m, k, M, Ki, Mi or Gi")
    number, suffix, exponent = match.groups()
    quantity = Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _SUFFIX[suffix or ""])
    if quantity < 0:
        raise ValueError(f"{text!r} is negative: a quantity is zero or more")
    return quantity


def canonical_quantity(text: str) -> str:
    """Write a Kubernetes quantity as its API does: ``0.5`` as ``500m``, ``1024Mi`` as ``1Gi``, ``2000`` as ``2k``.

    Raises ``ValueError`` as :func:`parse_quantity` does. Source: ``CanonicalizeBytes`` in ``apimachinery/pkg/api/resource``.
    """
    amount = parse_quantity(text)
    if amount == 0:
        return "0"
    match = _QUANTITY.match(text.strip())
    exponent = match is not None and match[3] is not None
    if text.strip().endswith("i") and amount >= 1024 and amount.denominator == 1:
        return _largest(amount, _BINARY, 1024)
    units = {f"e{3 * power}" if power else "": power for power in range(-3, 7)} if exponent else _DECIMAL
    return _largest(Fraction(math.ceil(amount * 10**9), 10**9), units, 1000)


def _largest(amount: Fraction, units: Mapping[str, int], base: int) -> str:
    """Write the amount in the largest unit that leaves it a whole number."""
    whole = {power: suffix for suffix, power in units.items() if (amount / Fraction(base) ** power).denominator == 1}
    power = max(whole)
    return f"{amount / Fraction(base) ** power}{whole[power]}"


def parse_cpu(value: str | float) -> int:
    """Read CPU as whole millicores, rounded up: ``"0.5"`` and ``"500m"`` are 500."""
    return math.ceil(parse_quantity(value) * 1000)


def parse_memory(value: str | float) -> int:
    """Read memory (or storage) as whole bytes, rounded up: ``"1Ki"`` is 1024, ``"1k"`` is 1000."""
    return math.ceil(parse_quantity(value))


def parse_resource(name: str, value: str | float) -> int:
    """Read the amount of a named resource in its unit: millicores for ``cpu``, bytes for memory and storage, else a count."""
    if name == "cpu":
        return parse_cpu(value)
    return parse_memory(value)


def parse_duration(value: str | float) -> float:
    """Read a duration as seconds: ``30s``, ``1h30m``, ``500ms``, ``2d``; a bare number is seconds.

    Raises ``ValueError`` with the expected form.
    """
    text = str(value).strip()
    if isinstance(value, bool) or not text or len(text) > _LONGEST:
        raise ValueError(f"{value!r} is not a duration: expected for example 30s, 5m, 1h30m or 2d")
    if re.fullmatch(_NUMBER, text):
        seconds = Fraction(text)
    else:
        parts = _DURATION_PART.findall(text)
        if "".join(number + unit for number, unit in parts) != text:
            raise ValueError(f"{text!r} is not a duration: expected for example 30s, 5m, 1h30m or 2d")
        seconds = sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))
    if "-" in text:  # in any part
        raise ValueError(f"{text!r} is negative: a duration is zero or more")
    if seconds > _LONGEST_DURATION:
        raise ValueError(f"{text!r} is longer than 100 years")
    return float(seconds)


def parse_price(value: str | float) -> Fraction:
    """Read a price per node hour: ``0.97/h``; a bare number is per hour too.

    Raises ``ValueError`` with the expected form.
    """
    text = str(value).strip().removesuffix("/h").strip()
    if isinstance(value, bool) or len(text) > _LONGEST or not re.fullmatch(_NUMBER, text):
        raise ValueError(f"{value!r} is not a price: expected an amount per hour such as 0.97/h")
    price = Fraction(text)
    if price < 0:
        raise ValueError(f"{value!r} is negative: a price is zero or more")
    return price


def format_duration(seconds: float) -> str:
    """Write seconds for people: ``0.4s``, ``12s``, ``3m20s``, ``2h05m``."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if round(seconds, 1) < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def format_bytes(amount: int) -> str:
    """Write bytes with the largest binary suffix that keeps the number at least one: ``1.5Gi``."""
    for suffix in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if amount >= _SUFFIX[suffix]:
            return f"{float(amount / _SUFFIX[suffix]):.4g}{suffix}"
    return str(amount)


def format_money(amount: Fraction, currency: str = "", *, beside: Fraction = Fraction(0)) -> str:
    """Write money with at least two decimals and at least two significant digits, so that a small amount is not 0.00.

    ``beside`` is the total shown with the amount. An amount below its third digit, and below a cent, is written as a limit:
    ``<0.01`` beside 5.20, ``<0.0001`` beside 0.052. Amounts have at most 8 decimals.
    """
    value = float(amount)
    finest = _decimals(float(beside), 3) if beside else _MOST_DECIMALS
    if value and abs(amount) < Fraction(1, 10**finest):
        limit = f"{10.0**-finest:.{finest}f}"
        return f"{f'<{limit}' if value > 0 else f'>-{limit}'} {currency}".rstrip()
    return f"{value:.{_decimals(value, 2)}f} {currency}".rstrip()


def _decimals(value: float, digits: int) -> int:
    """The decimals for this many significant digits: 2 at least, 8 at most."""
    if not value:
        return 2
    return min(_MOST_DECIMALS, max(2, digits - 1 - math.floor(math.log10(abs(value)))))
