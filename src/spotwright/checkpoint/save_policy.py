"""Decides when the next save pays, from measurements of this attempt: the duration of saves and steps, and its age.

The work between two saves is the exact optimum. All times are passed in from the monotonic clock, so that jumps of the wall
clock do not affect decisions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

__all__ = ["CRASHES", "USABLE", "Hazard", "SavePolicy", "expected_time", "optimum", "unannounced"]


USABLE = 0.95
"""Share of interruptions whose notice arrives in time to save, if it is long enough. Not 1, because notices get lost."""

CRASHES = 1 / (30 * 86400)
"""Rate, per second, of node failures of any kind of node: one in thirty days."""

_PRIOR = 2.0
"""Weight of the prior rate, as a number of interruptions, against the interruptions of this work's own attempts."""

# Probability of losing spot capacity within the next ten minutes, by the age of the node in minutes: measured on recordings of
# several pools and zones of 2023, and used without a better estimate. The first value is extrapolated.
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
        return 1 / rate  # y differs from 1 by less than a float's precision
    y = min(math.sqrt(2 * x), 1 - 0.5 * math.exp(-x - 1))
    for _ in range(60):
        step = (y + math.log1p(-y) + x) * (1 - y) / y
        y += step
        if abs(step) <= 1e-14 * y:
            break
    return y / rate


def expected_time(work: float, every: float, cost: float, restart: float, rate: float) -> float:
    """Return the expected duration of ``work`` seconds of work with a save every ``every`` seconds, without notices."""
    if rate <= 0:
        return work * (1 + cost / every)
    return work / every * math.exp(restart * rate) * math.expm1((every + cost) * rate) / rate


def unannounced(rate: float, *, notice_fits: bool) -> float:
    """Return the rate of losses without a usable notice: all losses, or few if the notice is long enough for a save."""
    return (rate * (1 - USABLE) if notice_fits else rate) + CRASHES


class Hazard:
    """The rate of interruptions: a prior rate, corrected by the interruptions of earlier attempts.

    ``interrupt_every`` is the pool's mean time between interruptions (s); ``inf``: never; ``None``: unknown. ``taken`` is the
    number of earlier attempts of this work interrupted after their first save, ``lived`` the number that the prior rate
    predicts for their lifetimes.
    """

    __slots__ = ("interrupt_every", "lived", "taken")

    def __init__(self, interrupt_every: float | None, taken: int = 0, lived: float = 0.0) -> None:
        self.interrupt_every, self.taken, self.lived = interrupt_every, taken, lived

    def rate(self, age: float) -> float:
        """Return the losses per second at this age of the attempt, in seconds."""
        return self._prior_rate(age) * (_PRIOR + self.taken) / (_PRIOR + self.lived)

    def exposure(self, age: float) -> float:
        """Return the number of interruptions that the prior rate predicts up to this age."""
        if self.interrupt_every is not None:
            return age / self.interrupt_every
        total = 0.0
        for (start, rate), (end, _) in zip(_RATES, (*_RATES[1:], (math.inf, 0.0)), strict=True):
            total += max(0.0, min(age, end) - start) * rate
        return total

    def _prior_rate(self, age: float) -> float:
        if self.interrupt_every is not None:
            return 1 / self.interrupt_every
        return next(rate for start, rate in reversed(_RATES) if age >= start)


_SLACK = 0.2
"""Seconds added to the expected duration of a save that must fit before the end."""


class SavePolicy:
    """The measurements of one attempt, and the decisions from them.

    ``every`` fixes the seconds of work between saves; by default they are optimal, but at most ``within``, unless saves would
    then take more than half of the time. ``notice`` is the length of the pool's notice in seconds; 0 without one.
    """

    def __init__(
        self, hazard: Hazard, *, notice: float = 0.0, every: float | None = None, within: float = math.inf
    ) -> None:
        self.hazard, self.notice, self.every, self.within = hazard, notice, every, within
        self.restart = 0.0
        self._saves: deque[float] = deque(maxlen=7)
        self._stalls: deque[float] = deque(maxlen=7)
        self._steps: deque[float] = deque(maxlen=15)

    def remember(self, saves: Iterable[float], step: float | None) -> None:
        """Use earlier attempts' measurements until this attempt has its own."""
        self._saves.extend(seconds for seconds in saves if seconds >= 0)
        if step is not None:
            self._steps.append(step)

    def record_save(self, seconds: float) -> None:
        """Record the duration of a save, in seconds."""
        self._saves.append(seconds)

    def record_stall(self, seconds: float) -> None:
        """Record the seconds for which a save in a thread has blocked the work."""
        self._stalls.append(seconds)

    def record_step(self, seconds: float) -> None:
        """Record the duration of a step without its save, in seconds."""
        self._steps.append(seconds)

    @property
    def cost(self) -> float | None:
        """Seconds for which a save blocks the work; ``None``: not measured.

        It is the median of the last few, so that a single slow one is ignored.
        """
        return _median(self._stalls or self._saves)

    @property
    def step(self) -> float | None:
        """Seconds of a step, the median of the last few; ``None``: not measured."""
        return _median(self._steps)

    @property
    def needed(self) -> float:
        """Seconds to reserve for a save before the end."""
        return (max(self._saves) if self._saves else 0.0) * 1.25 + _SLACK

    @property
    def notice_fits(self) -> bool:
        """True if the pool's notice is long enough for the current step and a save."""
        return self.cost is not None and self.notice >= self.needed + (self.step or 0.0) > 0

    def interval(self, age: float) -> float:
        """Return the seconds of work between two saves, at this age of the attempt."""
        if self.every is not None:
            return self.every
        rate = unannounced(self.hazard.rate(age), notice_fits=self.notice_fits)
        cost = self.cost or 0.0
        return min(optimum(cost, rate), max(self.within, cost))

    def is_due(self, since: float, age: float) -> bool:
        """True if the end of this step, ``since`` seconds of work after the last save, is the closest to the optimum."""
        if self.cost is None:
            return True  # the first save shows its cost, and that the place is writable
        return since + (self.step or 0.0) / 2 >= self.interval(age)

    def is_last_chance(self, left: float) -> bool:
        """True if, with ``left`` seconds to the end, a save after one more step would come too late."""
        return left < (self.step or 0.0) * 1.25 + 2 * self.needed

    def explain(self, age: float) -> str:
        """Return the reason for the interval between saves, with the numbers, in a sentence or two for people."""
        if self.every is not None:
            return f"Saves after every {_seconds(self.every)} of work, as set by `every`."
        if self.cost is None:
            return "Saves after the first step, to measure the cost of a save; not measured yet."
        rate, left = self.hazard.rate(age), unannounced(self.hazard.rate(age), notice_fits=self.notice_fits)
        every = optimum(self.cost, left)
        if self.interval(age) < every:
            return f"Saves after every {_seconds(self.interval(age))} of work, as often as a rehearsal needs."
        text = (
            f"Saves after every {_seconds(every)} of work: a save costs {_seconds(self.cost)} and nodes are reclaimed "
            f"{_how_often(rate)} ({self._source(age)})"
        )
        if self.notice_fits:
            text += (
                f", with a notice of {_seconds(self.notice)}, enough for the step under way and a save; "
                f"{USABLE:.0%} of the notices are expected to arrive"
            )
        elif self.notice:
            text += f"; the notice of {_seconds(self.notice)} is too short for the step under way and a save"
        if math.isfinite(every) and every > 0:
            waste = expected_time(1.0, every, self.cost, self.restart, left) - 1
            announced = max(0.0, rate + CRASHES - left) * (self.cost + self.restart)
            text += f". Saves, lost work and loading are expected to add {waste + announced:.1%}"
        return text + "."

    def _source(self, age: float) -> str:
        if self.hazard.interrupt_every is not None:
            source = (
                "as the pool's configuration says"
                if math.isfinite(self.hazard.interrupt_every)
                else "this pool's nodes are not"
            )
        else:
            source = f"typical for a spot node after {_seconds(age)}"
        taken = self.hazard.taken
        return (
            f"{source}, and {taken} earlier attempt{'s were' if taken != 1 else ' was'} interrupted"
            if taken
            else source
        )


def _median(values: deque[float]) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _how_often(rate: float) -> str:
    return f"every {_seconds(1 / rate)}" if rate > 0 else "never"


def _seconds(seconds: float) -> str:
    """Write a duration for people, with three significant digits."""
    if not math.isfinite(seconds):
        return "for ever"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= size * (2 if unit != "s" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms"
