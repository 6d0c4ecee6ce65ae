"""The events about deadlines: a running attempt stays where it is for now, and what earlier runs have seen of the pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotwright.engine.events import Event

__all__ = ["AttemptKept", "MarketKnown"]


class AttemptKept(Event, kw_only=True):
    """Decision: an attempt that runs on spot under a deadline stays there, at least ``until`` the next look at it.

    Without ``until`` it stays to its end.
    """

    kind = "kept"

    until: float | None = None
    why: str = ""


class MarketKnown(Event, kw_only=True):
    """Fact: what runs have counted of spells with and without spot, by pool.

    Of each pool four numbers for each age bucket of :mod:`spotwright.deadlines.hazards`, kind by kind: looks at spells with spot,
    their ends, looks at spells without, their ends. ``runs`` is how many
    runs that were. ``own``: counted by this run, for later ones; ``kinds`` then says what each pool was.
    """

    kind = "market"

    pools: Mapping[str, Sequence[float]] = {}
    runs: int = 0
    own: bool = False
    kinds: Mapping[str, str] = {}
