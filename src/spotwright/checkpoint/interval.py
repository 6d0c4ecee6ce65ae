"""How much work to do between two checkpoints: the exact optimum, as pure arithmetic.

Saving too often costs time, saving too seldom costs work that is lost. With losses at a constant rate ``h`` and a save that
costs ``C`` seconds, the time that a long job takes is least for work of ``T = (1 + W(-exp(-C h - 1))) / h`` between saves, with
``W`` Lambert's function (J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22,
2006, whose closed forms approximate it; Young's ``sqrt(2 C / h)`` of 1974 is its first term). What a restart costs does not
move the optimum: it is paid once a loss, however often was saved.

The rate is not constant on spot: a node that has lived long is likely to live on. The optimum is taken for the rate at the
attempt's present age.
"""

from __future__ import annotations

import math

__all__ = ["CRASHES", "USABLE", "Hazard", "expected_time", "optimum", "unannounced"]

USABLE = 0.95
"""The share of interruptions whose notice arrives and is acted on, where it is long enough. Never all: notices get lost."""

CRASHES = 1 / (30 * 86400)
"""A second's chance that a node goes for reasons of its own, wherever it is: once in thirty days."""

_PRIOR = 2.0
"""How many interruptions of experience what was known before is worth, against what this work's own attempts have seen."""

# Chance that spot capacity is lost within the next ten minutes, by the age of the node in minutes: measured on recordings of
# several pools and zones of 2023, for use where nothing better is known. The first value continues the others.
_BY_AGE = ((0, 0.30), (10, 0.27), (30, 0.15), (60, 0.06), (120, 0.035), (240, 0.023), (480, 0.015), (960, 0.009))
_RATES = tuple((60.0 * age, -math.log1p(-chance) / 600) for age, chance in _BY_AGE)


def optimum(cost: float, rate: float) -> float:
    """Seconds of work between two saves, for saves of ``cost`` seconds and losses at ``rate`` a second."""
    if rate <= 0:
        return math.inf
    if cost <= 0:
        return 0.0
    # With y = 1 + W(-exp(-x - 1)), x = C h: y solves exp(-y) = (1 - y) exp(x), so y + log1p(-y) = -x. Newton from Young's term.
    x = cost * rate
    if x > 30:
        return 1 / rate  # y differs from 1 by less than a float can say
    y = min(math.sqrt(2 * x), 1 - 0.5 * math.exp(-x - 1))
    for _ in range(60):
        step = (y + math.log1p(-y) + x) * (1 - y) / y
        y += step
        if abs(step) <= 1e-14 * y:
            break
    return y / rate


def expected_time(work: float, every: float, cost: float, restart: float, rate: float) -> float:
    """Seconds that ``work`` seconds of work take with a save each ``every`` seconds of work; all losses unannounced."""
    if rate <= 0:
        return work * (1 + cost / every)
    return work / every * math.exp(restart * rate) * math.expm1((every + cost) * rate) / rate


def unannounced(rate: float, *, notice_fits: bool) -> float:
    """The rate of losses that a save has to be ready for: all, or few where the notice is long enough to save in."""
    return (rate * (1 - USABLE) if notice_fits else rate) + CRASHES


class Hazard:
    """How often nodes are taken, by what is known before and what earlier attempts have seen.

    ``taken_every`` are the mean seconds between interruptions as the pool states them; ``inf``: never; ``None``: not known.
    ``taken`` is how many earlier attempts of this work were taken after their first save, and ``lived`` how many interruptions
    were to be expected in the time that they lived, by what was known before.
    """

    __slots__ = ("lived", "taken", "taken_every")

    def __init__(self, taken_every: float | None, taken: int = 0, lived: float = 0.0) -> None:
        self.taken_every, self.taken, self.lived = taken_every, taken, lived

    def rate(self, age: float) -> float:
        """Losses a second at this age of the attempt, in seconds."""
        return self._before(age) * (_PRIOR + self.taken) / (_PRIOR + self.lived)

    def exposure(self, age: float) -> float:
        """How many interruptions were to be expected up to this age, by what was known before."""
        if self.taken_every is not None:
            return age / self.taken_every
        total = 0.0
        for (start, rate), (end, _) in zip(_RATES, (*_RATES[1:], (math.inf, 0.0)), strict=True):
            total += max(0.0, min(age, end) - start) * rate
        return total

    def _before(self, age: float) -> float:
        if self.taken_every is not None:
            return 1 / self.taken_every
        return next(rate for start, rate in reversed(_RATES) if age >= start)
