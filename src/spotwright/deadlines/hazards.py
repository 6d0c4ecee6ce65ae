"""Knows how long spells of spot capacity last: the chance that one ends within the next minutes, by its age.

Supply is heavy-tailed: the longer spot has been up, the longer it stays up, and the longer it has been gone, the longer it stays
gone. A :class:`HazardTable` holds that as counts: how many times a spell of an age was seen, and how many of those ended within
the next ten minutes. Counts add up, so a pool's own history is added to what is shipped (:func:`learned`).

The shipped table, :data:`SHIPPED`, was fitted by us on nine recordings of 2023: the availability of one V100 in nine AWS zones
(us-east-1a, c, d and f, us-east-2a and b, us-west-2a, b and c), 45 days from 2023-02-15, in the format and from the data set
of "Can't Be Late" (Wu et al., NSDI 2024). Of each recording the first 60 % of its samples were taken, looked at every ten
minutes (the sample at or before each multiple of 600 s). A spell whose begin was not seen was left out. For every ten minutes
of every other spell, its age at their end was put into a bucket, and it was counted whether the next look found it ended. All
zones were added up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = [
    "AGES",
    "BUCKETS",
    "SHIPPED",
    "STEP",
    "HazardTable",
    "Spells",
    "bucket",
    "chance_of_leaving",
    "counted",
    "learned",
]

AGES = (600.0, 1200.0, 1800.0, 2400.0, 3600.0, 5400.0, 7800.0, 15000.0, 29400.0, 58200.0)
"""The upper bounds of the age buckets in seconds, inclusive; the last bucket has none."""

BUCKETS = len(AGES) + 1

STEP = 600.0
"""The seconds in which a spell of a table ends or goes on."""

_WORTH = 20.0


class Spells(NamedTuple):
    """Counts of spells of one kind by age bucket: times seen, and times ended within the next :data:`STEP` seconds."""

    seen: tuple[float, ...]
    ended: tuple[float, ...]

    def chance(self, index: int, tick: float = STEP) -> float:
        """The chance that a spell in this age bucket ends within ``tick`` seconds.

        A bucket that was never seen has the chance of all buckets together; where nothing was seen at all that is a half.
        """
        seen, ended = self.seen[index], self.ended[index]
        if seen <= 0:
            seen, ended = sum(self.seen), sum(self.ended)
        share = min(1.0, ended / seen) if seen > 0 else 0.5
        return share if tick == STEP else 1.0 - (1.0 - share) ** (tick / STEP)

    def mean_chance(self) -> float:
        """The chance that a spell ends within the next :data:`STEP` seconds if its age is not known."""
        return sum(self.ended) / sum(self.seen) if sum(self.seen) > 0 else 0.5

    def first_age(self) -> float:
        """The age, in seconds, to assume for a spell that had begun before anybody looked.

        It is the age from which on a spell ends as rarely as one of unknown age does.
        """
        mean = self.mean_chance()
        index = next((index for index in range(BUCKETS) if self.chance(index) <= mean), BUCKETS - 1)
        return AGES[index - 1] if index else 0.0


class HazardTable(NamedTuple):
    """How spells with spot (``up``) and without (``down``) last."""

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
    """Count the spells of recordings with a state every ``tick`` seconds. Spells whose begin was not seen are left out.

    A step of another length than :data:`STEP` counts for its share of one.
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
    """The table of a pool after what was seen of it: its counts, and the prior's worth ``worth`` looks for every bucket."""
    return HazardTable(_learned(seen.up, prior.up, worth), _learned(seen.down, prior.down, worth))


def _learned(seen: Spells, prior: Spells, worth: float) -> Spells:
    chances = [prior.chance(index) for index in range(BUCKETS)]
    return Spells(
        tuple(count + worth for count in seen.seen),
        tuple(count + worth * chance for count, chance in zip(seen.ended, chances, strict=True)),
    )


def chance_of_leaving(index: int, tick: float) -> float:
    """The chance that a spell which goes on is in the next bucket ``tick`` seconds later, its age in the bucket unknown."""
    if index >= len(AGES):
        return 0.0
    width = AGES[index] - (AGES[index - 1] if index else 0.0)
    return min(1.0, tick / width) if math.isfinite(width) else 0.0
