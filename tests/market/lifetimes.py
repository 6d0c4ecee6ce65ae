"""Knows how machines that live a day at most are taken: often when they are young, rarely after that, all at the end.

Google's preemptible machines are stopped after 24 hours, and are taken along a "bathtub" before (Kadupitiya, Jadhao and Sharma,
HPDC 2020). The share of machines that are gone at age t is ``A (1 - exp(-t / young) + exp((t - end) / old))``. The figures here
are round ones in the middle of those that we know of that paper; they are no fit of ours, and a pool's own counts replace them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import AGES, BUCKETS, HazardTable, Spells
from spotwright.errors import InputError
from spotwright.market import Windows

__all__ = ["Bathtub", "drawn_lives"]


class Bathtub(NamedTuple):
    """The lifetimes of machines that are ended at ``limit`` seconds. ``young`` and ``old`` are the lengths of both ends of it."""

    limit: float = 86_400.0
    share: float = 0.45
    young: float = 3_600.0
    old: float = 2_880.0

    def gone(self, age: float) -> float:
        """The share of machines that are gone at an age in seconds."""
        if age >= self.limit:
            return 1.0
        grown = 1.0 - math.exp(-age / self.young) + math.exp((age - self.limit) / self.old)
        return min(1.0, max(0.0, self.share * (grown - math.exp(-self.limit / self.old))))

    def chance(self, age: float, tick: float) -> float:
        """The chance that a machine of this age is gone within ``tick`` seconds."""
        alive = 1.0 - self.gone(age)
        return 1.0 if alive <= 0.0 else (self.gone(age + tick) - self.gone(age)) / alive

    def hazards(self, down: Spells, looks: float = 1000.0) -> HazardTable:
        """A table for the policy: the chances of losing a machine in the middle of each bucket, worth ``looks`` each."""
        bounds = (0.0, *AGES, self.limit)
        middles = [(bounds[index] + max(bounds[index + 1], bounds[index])) / 2 for index in range(BUCKETS)]
        ended = tuple(looks * self.chance(middle, 600.0) for middle in middles)
        return HazardTable(Spells((looks,) * BUCKETS, ended), down)


def drawn_lives(
    length: float, size: int, *, seed: int, bathtub: Bathtub | None = None, back: float = 600.0, tick: float = 600.0
) -> Windows:
    """Windows of a pool whose machines live as the bathtub says; a new one can be had ``back`` seconds after a loss.

    A spell with spot is the life of one machine, launched at its begin.
    """
    if size < 1 or not 0 < tick <= length or back < 0:
        raise InputError("drawn lives need a window and a tick or more, and a time until a new machine of 0 or more")
    tub = bathtub or Bathtub()
    rng = np.random.default_rng(seed)
    ticks = int(np.ceil(length / tick - 1e-9))
    grid = np.arange(1, int(tub.limit / tick) + 2) * tick
    shares = np.array([tub.gone(float(age)) for age in grid])
    up = np.zeros((1, ticks, size), bool)
    gap = round(back / tick)
    for window in range(size):
        up[0, :, window] = _lives(ticks, gap, shares, rng)
    return Windows(tick, up)


def _lives(ticks: int, gap: int, shares: Any, rng: Any) -> Any:
    states = np.zeros(ticks, bool)
    at = -int(rng.integers(0, len(shares)))
    while at < ticks:
        life = int(np.searchsorted(shares, rng.uniform())) + 1
        states[max(0, at) : max(0, at + life)] = True
        at += life + gap
    return states
