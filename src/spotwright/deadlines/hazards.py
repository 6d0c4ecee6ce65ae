"""Hazard rates of spells of spot capacity: the probability that a spell ends within the next minutes, by its age.

Supply is heavy-tailed: the longer spot has been up (or down), the longer it stays so. A :class:`HazardTable` holds counts: how
many times a spell of an age was seen, and how many ended within the next ten minutes. Counts add up, so a run's observations of
a pool (launches, losses, waits) are added to the shipped counts (:func:`learned`).

The shipped table, :data:`SHIPPED`, was fitted by us on nine recordings of 2023: the availability of one V100 in nine AWS zones
(us-east-1a, c, d and f, us-east-2a and b, us-west-2a, b and c), 45 days from 2023-02-15, in the format and from the data set
of "Can't Be Late" (Wu et al., NSDI 2024). The first 60 % of each recording's samples were used, one every ten minutes (the
sample at or before each multiple of 600 s). Spells whose start was not seen were omitted. Every ten minutes of each other
spell, its age was put into a bucket, and it was counted whether the spell had ended by the next sample. All zones were added
up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

__all__ = [
    "AGES",
    "BUCKETS",
    "NOTHING",
    "SHIPPED",
    "STEP",
    "HazardTable",
    "Sightings",
    "Spells",
    "added",
    "bucket",
    "chance_of_leaving",
    "counted",
    "learned",
    "listed",
    "of_several",
    "unlisted",
]


AGES = (600.0, 1200.0, 1800.0, 2400.0, 3600.0, 5400.0, 7800.0, 15000.0, 29400.0, 58200.0)
"""The upper bounds of the age buckets in seconds, inclusive; the last bucket has none."""

BUCKETS = len(AGES) + 1

STEP = 600.0
"""The step of a table, in seconds: a spell ends within it or continues."""

_WORTH = 60.0  # looks: with fewer, four weeks of a pool made jobs dearer; with more, a flapping pool is recognized late


class Spells(NamedTuple):
    """Counts of spells of one kind by age bucket: times seen, and times ended within the next :data:`STEP` seconds."""

    seen: tuple[float, ...]
    ended: tuple[float, ...]

    def chance(self, index: int, tick: float = STEP) -> float:
        """The probability that a spell in this age bucket ends within ``tick`` seconds.

        A bucket without observations uses all buckets together; without any observation it is 0.5.
        """
        seen, ended = self.seen[index], self.ended[index]
        if seen <= 0:
            seen, ended = sum(self.seen), sum(self.ended)
        share = min(1.0, ended / seen) if seen > 0 else 0.5
        return share if tick == STEP else 1.0 - (1.0 - share) ** (tick / STEP)

    def mean_chance(self) -> float:
        """The probability that a spell of unknown age ends within the next :data:`STEP` seconds."""
        return sum(self.ended) / sum(self.seen) if sum(self.seen) > 0 else 0.5

    def first_age(self) -> float:
        """The age, in seconds, to assume for a spell that had begun before the first look.

        It is the first age at which a spell ends as rarely as one of unknown age.
        """
        mean = self.mean_chance()
        index = next((index for index in range(BUCKETS) if self.chance(index) <= mean), BUCKETS - 1)
        return AGES[index - 1] if index else 0.0


class HazardTable(NamedTuple):
    """The counts of spells with spot (``up``) and without (``down``)."""

    up: Spells
    down: Spells

    def of(self, *, up: bool) -> Spells:
        """The counts of one kind of spells."""
        return self.up if up else self.down


SHIPPED = HazardTable(
    up=Spells(
        seen=(1104, 794, 631, 537, 860, 1042, 1149, 2575, 2995, 3062, 6604),
        ended=(310, 163, 94, 86, 82, 59, 51, 87, 69, 54, 41),
    ),
    down=Spells(
        seen=(1099, 805, 609, 526, 899, 1113, 1179, 2433, 2049, 1338, 1193),
        ended=(294, 196, 83, 53, 67, 83, 63, 119, 87, 40, 14),
    ),
)
"""The default table; the docstring of the module says how it was fitted."""


def bucket(age: float) -> int:
    """The index of the bucket of an age in seconds."""
    return bisect_left(AGES, age - 1e-6)


def counted(series: Iterable[Sequence[bool]], tick: float) -> HazardTable:
    """Count the spells of recordings with a state every ``tick`` seconds, except spells whose start was not seen.

    A step of another length than :data:`STEP` counts proportionally.
    """
    seen = {True: [0.0] * BUCKETS, False: [0.0] * BUCKETS}
    ended = {True: [0.0] * BUCKETS, False: [0.0] * BUCKETS}
    for states in series:
        length: int | None = None
        for now, following in pairwise(states):
            ends = bool(now) is not bool(following)
            if length is not None:
                index = bucket(length * tick)
                seen[bool(now)][index] += tick / STEP
                ended[bool(now)][index] += ends
            if ends:
                length = 1
            elif length is not None:
                length += 1
    return HazardTable(Spells(tuple(seen[True]), tuple(ended[True])), Spells(tuple(seen[False]), tuple(ended[False])))


def learned(seen: HazardTable, prior: HazardTable = SHIPPED, worth: float = _WORTH) -> HazardTable:
    """The table of a pool from its observations: its counts, plus the prior with a weight of ``worth`` looks per bucket."""
    return HazardTable(_learned(seen.up, prior.up, worth), _learned(seen.down, prior.down, worth))


def _learned(seen: Spells, prior: Spells, worth: float) -> Spells:
    chances = [prior.chance(index) for index in range(BUCKETS)]
    return Spells(
        tuple(count + worth for count in seen.seen),
        tuple(count + worth * chance for count, chance in zip(seen.ended, chances, strict=True)),
    )


_MORE = 0.35


def of_several(down: Spells, pools: int) -> Spells:
    """The spells in which none of several pools has spot, from the spells of one pool.

    Zones of a region lose spot together, so it comes back sooner than from one pool, and later than from independent pools: the
    hazard is multiplied by the number of pools to the power of 0.35. Fitted on the recordings of the shipped table.
    """
    if pools < 2:
        return down
    ended = (seen * (1.0 - (1.0 - down.chance(index)) ** pools**_MORE) for index, seen in enumerate(down.seen))
    return Spells(down.seen, tuple(ended))


def chance_of_leaving(index: int, tick: float) -> float:
    """The probability that a continuing spell is in the next bucket ``tick`` seconds later, its age in the bucket unknown."""
    if index >= len(AGES):
        return 0.0
    width = AGES[index] - (AGES[index - 1] if index else 0.0)
    return min(1.0, tick / width) if math.isfinite(width) else 0.0


NOTHING = HazardTable(Spells((0.0,) * BUCKETS, (0.0,) * BUCKETS), Spells((0.0,) * BUCKETS, (0.0,) * BUCKETS))
"""The counts of an unseen pool."""

_GROWTH = 1.25  # a table is rebuilt after an end, or after this factor of looks
_FIRST = 6.0  # looks, an hour


def listed(table: HazardTable) -> tuple[float, ...]:
    """The counts of a table as one tuple: looks and ends with spot, looks and ends without, each by age bucket."""
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

    def count(self, begin: float, end: float, *, ends: bool, seen_from: float) -> None:
        """Count the time of a spell between two ages, and its end. A spell seen to end counts at least one look.

        ``seen_from`` is its age when it was first seen.
        """
        at, low = begin, bucket(begin)
        for index in range(low, BUCKETS):
            bound = min(end, AGES[index]) if index < len(AGES) else end
            self.seen[index] += max(0.0, bound - at) / STEP
            at = max(at, bound)
        if ends:
            index = bucket(end)
            self.seen[index] += max(0.0, STEP - (end - seen_from)) / STEP
            self.ended[index] += 1.0

    def spells(self) -> Spells:
        return Spells(tuple(self.seen), tuple(self.ended))


@dataclass(slots=True)
class Sightings:
    """One run's observations of a pool. ``before``: counts of earlier runs; ``table``: both and the shipped counts combined.

    ``up``: whether spot was available when last seen (``None``: unknown); ``began``: the assumed start of that spell;
    ``counted``: the time up to which it was counted. ``watched``: the run has a node of the pool or waits for one, so a change
    is seen at once. ``looks``: the looks counted when the table was made; ``seen_from``: when the current spell was first seen.
    """

    before: HazardTable = NOTHING
    up: bool | None = None
    began: float = 0.0
    counted: float = 0.0
    seen_from: float = 0.0
    watched: bool = False
    table: HazardTable = SHIPPED
    looks: float = 0.0
    ups: _Counts = field(default_factory=_Counts)
    downs: _Counts = field(default_factory=_Counts)

    def __post_init__(self) -> None:
        if self.before != NOTHING:
            self.table = learned(self.before)

    def watch(self, at: float) -> None:
        """Note that the run now has a node of the pool, or waits for one."""
        self._forget(at)
        self.watched = True

    def leave(self, at: float) -> None:
        """Note that the run no longer has a node of the pool, nor waits for one."""
        self._count(at, ends=False)
        self.watched = False

    def see(self, at: float, *, up: bool) -> None:
        """Note whether spot is available now."""
        self._forget(at)
        if self.up is up:
            self._count(at, ends=False)
        elif self.up is None:
            self._begin(at, up=up, age=self.table.of(up=up).first_age())
        else:
            self._count(at, ends=True)
            self._begin(at, up=up, age=0.0)

    def lose(self, at: float) -> None:
        """Note that the provider reclaims a node. Of several in a row, the first one counts."""
        if self.up is not False:
            self.see(at, up=True)
            self.see(at, up=False)

    def age(self, now: float, *, up: bool) -> float:
        """For how many seconds spot has been available (``up``) or unavailable."""
        if self._is_stale(now) or self.up is None:
            return self.table.of(up=up).first_age()
        return max(0.0, now - self.began) if self.up is up else 0.0

    def counts(self) -> HazardTable:
        """This run's counts, without earlier runs."""
        return HazardTable(self.ups.spells(), self.downs.spells())

    def _is_stale(self, now: float) -> bool:
        """Whether the last look is so old that the spell may have changed."""
        return not self.watched and now - self.counted > STEP

    def _forget(self, at: float) -> None:
        if self._is_stale(at):
            self.up = None

    def _begin(self, at: float, *, up: bool, age: float) -> None:
        self.up, self.began, self.counted, self.seen_from = up, at - age, at, at

    def _count(self, at: float, *, ends: bool) -> None:
        if self.up is None:
            return
        counts, at = self.ups if self.up else self.downs, max(at, self.counted)
        seen_from = self.seen_from - self.began
        counts.count(self.counted - self.began, at - self.began, ends=ends, seen_from=seen_from)
        self.counted = at
        looks = sum(self.ups.seen) + sum(self.downs.seen)
        if ends or looks > self.looks * _GROWTH + _FIRST:
            self.looks, self.table = looks, learned(added(self.before, self.counts()))
