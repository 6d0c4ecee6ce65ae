"""Computes the optimal amount of work between two saves, exactly.

Frequent saves cost time, rare saves cost lost work. With losses at a constant rate ``h`` and saves of ``C`` seconds, the time of
a long job is least for ``T = (1 + W(-exp(-C h - 1))) / h`` seconds of work between saves, with Lambert's function ``W`` (J. T.
Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22, 2006, whose closed forms
approximate it; Young's ``sqrt(2 C / h)`` of 1974 is its first term). The cost of a restart does not change the optimum: it is
paid once for each loss, whatever the number of saves.

On spot the rate is not constant: a node that has lived long is likely to live on. So the optimum is computed for the rate at the
attempt's present age.
"""

from __future__ import annotations

import math

__all__ = ["CRASHES", "USABLE", "Hazard", "expected_time", "optimum", "unannounced"]

USABLE = 0.95
"""Share of interruptions whose notice arrives in time to save, where it is long enough. Not 1, because notices get lost."""

CRASHES = 1 / (30 * 86400)
"""Rate, per second, at which nodes of every kind fail by themselves: once in thirty days."""

_PRIOR = 2.0
"""Weight of the prior rate, as a number of interruptions, against the interruptions of this work's own attempts."""

# Probability of losing spot capacity within the next ten minutes, by the age of the node in minutes: measured on recordings of
# several pools and zones of 2023, used without a better estimate. The first value extrapolates the others.
_BY_AGE = ((0, 0.30), (10, 0.27), (30, 0.15), (60, 0.06), (120, 0.035), (240, 0.023), (480, 0.015), (960, 0.009))
_RATES = tuple((60.0 * age, -math.log1p(-chance) / 600) for age, chance in _BY_AGE)


def optimum(cost: float, rate: float) -> float:
    """Return the seconds of work between two saves, for saves of ``cost`` seconds and ``rate`` losses per second."""
    if rate <= 0:
        return math.inf
    if cost <= 0:
        return 0.0
    # With y = 1 + W(-exp(-x - 1)), x = C h: y solves exp(-y) = (1 - y) exp(x), so y + log1p(-y) = -x. Newton from Young's term.
    x = cost * rate
    if x > 30:
        return 1 / rate  # y differs from 1 by less than the precision of a float
    y = min(math.sqrt(2 * x), 1 - 0.5 * math.exp(-x - 1))
    for _ in range(60):
        step = (y + math.log1p(-y) + x) * (1 - y) / y
        y += step
        if abs(step) <= 1e-14 * y:
            break
    return y / rate


def expected_time(work: float, every: float, cost: float, restart: float, rate: float) -> float:
    """Return the expected duration of ``work`` seconds of work with a save after each ``every`` seconds, without notices."""
    if rate <= 0:
        return work * (1 + cost / every)
    return work / every * math.exp(restart * rate) * math.expm1((every + cost) * rate) / rate


def unannounced(rate: float, *, notice_fits: bool) -> float:
    """Return the rate of losses without a usable notice: of all losses, or of few if the notice is long enough for a save."""
    return (rate * (1 - USABLE) if notice_fits else rate) + CRASHES


class Hazard:
    """The rate of interruptions: a prior rate, corrected by the interruptions of earlier attempts.

    ``taken_every`` is the pool's mean time between interruptions in seconds; ``inf``: never; ``None``: not known. ``taken`` is
    the number of earlier attempts of this work that were taken after their first save, ``lived`` the number that the prior rate
    predicts for the time that they lived.
    """

    __slots__ = ("lived", "taken", "taken_every")

    def __init__(self, taken_every: float | None, taken: int = 0, lived: float = 0.0) -> None:
        self.taken_every, self.taken, self.lived = taken_every, taken, lived

    def rate(self, age: float) -> float:
        """Return the losses per second at this age of the attempt, in seconds."""
        return self._prior_rate(age) * (_PRIOR + self.taken) / (_PRIOR + self.lived)

    def exposure(self, age: float) -> float:
        """Return the number of interruptions that the prior rate predicts up to this age."""
        if self.taken_every is not None:
            return age / self.taken_every
        total = 0.0
        for (start, rate), (end, _) in zip(_RATES, (*_RATES[1:], (math.inf, 0.0)), strict=True):
            total += max(0.0, min(age, end) - start) * rate
        return total

    def _prior_rate(self, age: float) -> float:
        if self.taken_every is not None:
            return 1 / self.taken_every
        return next(rate for start, rate in reversed(_RATES) if age >= start)
