"""Learns how long spells of spot last in one pool, from what a run sees of it: launches, losses, waits.

A pool is one signal, up or down, as in :mod:`spotwright.deadlines.hazards`: when it takes one node it hardly has others. A run
sees the signal only while it asks for nodes or has some, so a spell may begin or end unseen. Time that was seen counts as looks;
an end counts where it was seen. A spell whose begin was not seen is given the age that such spells have
(:meth:`Spells.first_age`).

Moments are seconds of the market's time. The same calls give the same table, so a table follows from the journal of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED, STEP, HazardTable, Spells, bucket, learned

__all__ = ["NOTHING", "Sightings", "added", "listed", "unlisted"]

NOTHING = HazardTable(Spells((0.0,) * BUCKETS, (0.0,) * BUCKETS), Spells((0.0,) * BUCKETS, (0.0,) * BUCKETS))
"""The counts of a pool that nobody has seen."""

_GROWTH = 1.25  # a table is made again after an end, or once there are this many times more looks
_FIRST = 6.0  # looks, an hour


def listed(table: HazardTable) -> tuple[float, ...]:
    """The counts of a table in a row: looks and ends with spot, looks and ends without, each by age bucket."""
    return (*table.up.seen, *table.up.ended, *table.down.seen, *table.down.ended)


def unlisted(counts: Sequence[float]) -> HazardTable:
    """The table of :func:`listed` counts. Raises :class:`ValueError` for another number of them."""
    if len(counts) != 4 * BUCKETS:
        raise ValueError(f"{len(counts)} counts of a pool, expected {4 * BUCKETS}")
    parts = [tuple(map(float, counts[at : at + BUCKETS])) for at in range(0, 4 * BUCKETS, BUCKETS)]
    return HazardTable(Spells(parts[0], parts[1]), Spells(parts[2], parts[3]))


def added(one: HazardTable, other: HazardTable) -> HazardTable:
    """The counts of both."""
    return HazardTable(_added(one.up, other.up), _added(one.down, other.down))


def _added(one: Spells, other: Spells) -> Spells:
    seen = tuple(a + b for a, b in zip(one.seen, other.seen, strict=True))
    return Spells(seen, tuple(a + b for a, b in zip(one.ended, other.ended, strict=True)))


def _zeros() -> list[float]:
    return [0.0] * BUCKETS


@dataclass(slots=True)
class _Counts:
    seen: list[float] = field(default_factory=_zeros)
    ended: list[float] = field(default_factory=_zeros)

    def count(self, begin: float, end: float, *, ends: bool) -> None:
        """Count the time of a spell between two ages, and its end. A spell that was seen to end was looked at once at least."""
        at, low = begin, bucket(begin)
        for index in range(low, BUCKETS):
            bound = min(end, AGES[index]) if index < len(AGES) else end
            self.seen[index] += max(0.0, bound - at) / STEP
            at = max(at, bound)
        if ends:
            index = bucket(end)
            self.seen[index] += max(0.0, STEP - (end - begin)) / STEP
            self.ended[index] += 1.0

    def spells(self) -> Spells:
        return Spells(tuple(self.seen), tuple(self.ended))


@dataclass(slots=True)
class Sightings:
    """What one run has seen of one pool. ``before`` are counts of earlier runs, ``table`` what both and the shipped counts say.

    ``up`` tells whether spot could be had when it was last seen (``None``: not known), ``began`` when that spell began, as far
    as is known, ``counted`` up to when its time was counted. ``watched``: the run has a node of the pool or waits for one, so
    a change is seen at once. ``looks`` were counted when the table was made.
    """

    before: HazardTable = NOTHING
    up: bool | None = None
    began: float = 0.0
    counted: float = 0.0
    watched: bool = False
    table: HazardTable = SHIPPED
    looks: float = 0.0
    ups: _Counts = field(default_factory=_Counts)
    downs: _Counts = field(default_factory=_Counts)

    def __post_init__(self) -> None:
        if self.before != NOTHING:
            self.table = learned(self.before)

    def watch(self, at: float) -> None:
        """From now on the run has a node of the pool, or waits for one."""
        self._forget(at)
        self.watched = True

    def leave(self, at: float) -> None:
        """The run has no node of the pool any more, and waits for none."""
        self._count(at, ends=False)
        self.watched = False

    def see(self, at: float, *, up: bool) -> None:
        """Spot can be had at this moment, or cannot."""
        self._forget(at)
        if self.up is up:
            self._count(at, ends=False)
        elif self.up is None:
            self._begin(at, up=up, age=self.table.of(up=up).first_age())
        else:
            self._count(at, ends=True)
            self._begin(at, up=up, age=0.0)

    def lose(self, at: float) -> None:
        """The provider takes a node. Of several that go one after another the first one counts."""
        if self.up is not False:
            self.see(at, up=True)
            self.see(at, up=False)

    def age(self, now: float, *, up: bool) -> float:
        """How long spot can be had by now (``up``), or cannot, in seconds."""
        if self._is_stale(now) or self.up is None:
            return self.table.of(up=up).first_age()
        return max(0.0, now - self.began) if self.up is up else 0.0

    def counts(self) -> HazardTable:
        """What this run has counted, without earlier runs."""
        return HazardTable(self.ups.spells(), self.downs.spells())

    def _is_stale(self, now: float) -> bool:
        """Whether nobody has looked for so long that the spell may be another one."""
        return not self.watched and now - self.counted > STEP

    def _forget(self, at: float) -> None:
        if self._is_stale(at):
            self.up = None

    def _begin(self, at: float, *, up: bool, age: float) -> None:
        self.up, self.began, self.counted = up, at - age, at

    def _count(self, at: float, *, ends: bool) -> None:
        if self.up is None:
            return
        counts, at = self.ups if self.up else self.downs, max(at, self.counted)
        counts.count(self.counted - self.began, at - self.began, ends=ends)
        self.counted = at
        looks = sum(self.ups.seen) + sum(self.downs.seen)
        if ends or looks > self.looks * _GROWTH + _FIRST:
            self.looks, self.table = looks, learned(added(self.before, self.counts()))
