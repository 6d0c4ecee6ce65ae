"""Exact amounts of node time and money, and ranges of them: the numbers of an account.

All are :class:`fractions.Fraction`, so that the lines of an account add up to the node time to the last digit. Moments are floats
in the journal; every float is a fraction, so nothing is lost by the conversion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["NOTHING", "Amount", "Range", "total"]


@dataclass(frozen=True, slots=True)
class Amount:
    """Node time in seconds and its cost. ``money`` is ``None`` if a price is missing.

    An attempt that pays half of its node for ten seconds has used five seconds of node time.
    """

    seconds: Fraction = Fraction(0)
    money: Fraction | None = Fraction(0)

    @classmethod
    def of(cls, seconds: Fraction, price: Fraction | None) -> Amount:
        """``seconds`` of a node with this price per hour."""
        return cls(seconds, None if price is None else seconds * price / 3600)

    def __add__(self, other: Amount) -> Amount:
        money = None if self.money is None or other.money is None else self.money + other.money
        return Amount(self.seconds + other.seconds, money)

    def __sub__(self, other: Amount) -> Amount:
        return self + other * Fraction(-1)

    def __mul__(self, part: Fraction) -> Amount:
        return Amount(self.seconds * part, None if self.money is None else self.money * part)

    def __bool__(self) -> bool:
        return bool(self.seconds or self.money)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Range:
    """An amount between two ends, both included. The ends of an exact amount are equal."""

    low: Amount = NOTHING
    high: Amount = NOTHING

    @property
    def is_exact(self) -> bool:
        """Whether both ends are the same."""
        return self.low == self.high

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __bool__(self) -> bool:
        return bool(self.low or self.high)


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum. Terms are added in pairs of equal weight, which keeps the fractions of a long sum small."""
    level = list(amounts)
    while len(level) > 1:
        level = [
            first + second
            for first, second in zip(level[::2], [*level[1::2], *[NOTHING] * (len(level) % 2)], strict=True)
        ]
    return level[0] if level else NOTHING
