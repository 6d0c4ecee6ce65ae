"""Prices that were read from a price sheet, with their origin: a figure made of a price is only as good as the price is new."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import NamedTuple

__all__ = ["Quote"]

_DAY = 86400


class Quote(NamedTuple):
    """The price of a node hour in a price sheet, and where it was found.

    ``sheet`` is the file, ``kind`` what the file is (``Azure retail prices``). ``region`` and ``zone`` are those of the offer; an
    empty zone means that the price holds in the whole region. ``since`` is the moment from which the price holds as the sheet
    says, ``dated`` the moment of the sheet itself: its publication if it names one, else the last change of the file. Both are
    Unix seconds; ``since`` is ``None`` where the sheet does not say it. ``remark`` says which of several prices was taken.
    """

    price: Fraction
    currency: str
    region: str
    zone: str
    since: float | None
    dated: float
    sheet: str
    kind: str
    remark: str = ""

    def age(self, now: float) -> float:
        """Seconds since the sheet was published or saved, 0 or more."""
        return max(0.0, now - self.dated)

    def origin(self, now: float) -> str:
        """Words for people: ``Azure retail prices in prices.json of 2026-11-01 (21 days old), eastus``."""
        days = int(self.age(now) // _DAY)
        old = "of today" if days == 0 else f"of {_date(self.dated)} ({days} day{'s' if days > 1 else ''} old)"
        parts = [f"{self.kind} in {self.sheet} {old}", self.zone or self.region]
        if self.since is not None:
            parts.append(f"in effect since {_date(self.since)}")
        return ", ".join(filter(None, [*parts, self.remark]))


def _date(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()
