"""The events about deadlines: a running attempt stays where it is for now, and what earlier runs have seen of the pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from spotwright.engine.events import Event

__all__ = ["AttemptKept", "MarketKnown"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptKept(Event):
    """Decision: an attempt that runs on spot under a deadline stays there, at least ``until`` the next look at it.

    Without ``until`` it stays to its end.
    """

    kind: ClassVar[str] = "kept"

    until: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class MarketKnown(Event):
    """Fact: what runs have counted of spells with and without spot, by pool.

    Of each pool four numbers for each age bucket of :mod:`spotwright.deadlines.hazards`, kind by kind: looks at spells with spot,
    their ends, looks at spells without, their ends. ``runs`` is how many
    runs that were. ``own``: counted by this run, for later ones; ``kinds`` then says what each pool was.
    """

    kind: ClassVar[str] = "market"

    pools: Mapping[str, Sequence[float]] = field(default_factory=dict)
    runs: int = 0
    own: bool = False
    kinds: Mapping[str, str] = field(default_factory=dict)
