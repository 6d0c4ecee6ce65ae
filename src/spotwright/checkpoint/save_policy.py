"""Decides when the next save pays, from measurements of this attempt: the duration of saves and steps, and its age.

All times are passed in, from the monotonic clock, so that a wall clock that jumps changes no decision.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from spotwright.checkpoint import interval
from spotwright.checkpoint.interval import Hazard

__all__ = ["SavePolicy"]

_SLACK = 0.2
"""Seconds added to the expected duration of a save that must fit before the end."""


class SavePolicy:
    """The measurements of one attempt, and the decisions that follow from them.

    ``every`` fixes the seconds of work between saves; by default they are optimal. ``notice`` is the length of the pool's notice
    in seconds; 0 without one.
    """

    def __init__(self, hazard: Hazard, *, notice: float = 0.0, every: float | None = None) -> None:
        self.hazard, self.notice, self.every = hazard, notice, every
        self.restart = 0.0
        self._saves: deque[float] = deque(maxlen=7)
        self._steps: deque[float] = deque(maxlen=15)

    def remember(self, saves: Iterable[float], step: float | None) -> None:
        """Use measurements of earlier attempts, until this attempt has its own."""
        self._saves.extend(seconds for seconds in saves if seconds >= 0)
        if step is not None:
            self._steps.append(step)

    def record_save(self, seconds: float) -> None:
        """Record the duration of a save, in seconds."""
        self._saves.append(seconds)

    def record_step(self, seconds: float) -> None:
        """Record the duration of a step without its save, in seconds."""
        self._steps.append(seconds)

    @property
    def cost(self) -> float | None:
        """Seconds of a save: the median of the last few, so that a single slow one does not count; ``None``: not measured."""
        return _median(self._saves)

    @property
    def step(self) -> float | None:
        """Seconds of a step, the median of the last few; ``None``: not measured."""
        return _median(self._steps)

    @property
    def needed(self) -> float:
        """Seconds to reserve for a save that must be done before the end."""
        return (max(self._saves) if self._saves else 0.0) * 1.25 + _SLACK

    @property
    def notice_fits(self) -> bool:
        """True if the pool's notice is long enough for the step under way and a save after it."""
        return self.cost is not None and self.notice >= self.needed + (self.step or 0.0) > 0

    def interval(self, age: float) -> float:
        """Return the seconds of work between two saves, at this age of the attempt."""
        if self.every is not None:
            return self.every
        rate = interval.unannounced(self.hazard.rate(age), notice_fits=self.notice_fits)
        return interval.optimum(self.cost or 0.0, rate)

    def is_due(self, since: float, age: float) -> bool:
        """True if the end of this step, ``since`` seconds of work after the last save, is the one nearest to the optimum."""
        if self.cost is None:
            return True  # the first save shows its cost, and that the place can be written
        return since + (self.step or 0.0) / 2 >= self.interval(age)

    def is_last_chance(self, left: float) -> bool:
        """True if, with ``left`` seconds to the end, a save after one more step would come too late."""
        return left < (self.step or 0.0) * 1.25 + 2 * self.needed

    def explain(self, age: float) -> str:
        """Return the reason for the interval between saves, with the numbers, in a sentence or two for people."""
        if self.every is not None:
            return f"Saves after every {_seconds(self.every)} of work, as set by `every`."
        if self.cost is None:
            return "Saves after the first step, to measure the cost of a save; nothing has been measured yet."
        rate, left = self.hazard.rate(age), interval.unannounced(self.hazard.rate(age), notice_fits=self.notice_fits)
        every = interval.optimum(self.cost, left)
        text = (
            f"Saves after every {_seconds(every)} of work: a save costs {_seconds(self.cost)} and nodes are taken "
            f"{_how_often(rate)} ({self._source(age)})"
        )
        if self.notice_fits:
            text += (
                f", with a notice of {_seconds(self.notice)}, enough for the step under way and a save; "
                f"{interval.USABLE:.0%} of the notices are expected to arrive"
            )
        elif self.notice:
            text += f"; the notice of {_seconds(self.notice)} is too short for the step under way and a save"
        if math.isfinite(every) and every > 0:
            waste = interval.expected_time(1.0, every, self.cost, self.restart, left) - 1
            announced = max(0.0, rate + interval.CRASHES - left) * (self.cost + self.restart)
            text += f". Saves, lost work and loading are expected to add {waste + announced:.1%}"
        return text + "."

    def _source(self, age: float) -> str:
        if self.hazard.taken_every is not None:
            source = "as the pool states" if math.isfinite(self.hazard.taken_every) else "this pool's nodes are not"
        else:
            source = f"the usual for a spot node after {_seconds(age)}"
        taken = self.hazard.taken
        return f"{source}, and {taken} earlier attempt{'s were' if taken != 1 else ' was'} taken" if taken else source


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
