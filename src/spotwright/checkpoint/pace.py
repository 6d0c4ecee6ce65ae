"""When the next save pays, from what this attempt measures: what saves cost, how long steps take, how long it has lived.

Only the monotonic clock is used, and it is passed in: a wall clock that jumps changes nothing here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from spotwright.checkpoint import interval
from spotwright.checkpoint.interval import Hazard

__all__ = ["Pace"]

_SLACK = 0.2
"""Seconds that are added to what a save is expected to take when it has to fit before an end."""


class Pace:
    """The measures of one attempt, and the decision that rests on them.

    ``every`` fixes the seconds of work between saves; otherwise they follow the optimum. ``notice``: how long before its end a
    node says so, in seconds; 0 where it does not.
    """

    def __init__(self, hazard: Hazard, *, notice: float = 0.0, every: float | None = None) -> None:
        self.hazard, self.notice, self.every = hazard, notice, every
        self.restart = 0.0
        self._saves: deque[float] = deque(maxlen=7)
        self._steps: deque[float] = deque(maxlen=15)

    def remember(self, saves: Iterable[float], step: float | None) -> None:
        """Take over what earlier attempts measured, until this one has measures of its own."""
        self._saves.extend(seconds for seconds in saves if seconds >= 0)
        if step is not None:
            self._steps.append(step)

    def saved(self, seconds: float) -> None:
        """A save took this long."""
        self._saves.append(seconds)

    def stepped(self, seconds: float) -> None:
        """A step took this long, saves not counted."""
        self._steps.append(seconds)

    @property
    def cost(self) -> float | None:
        """Seconds that a save takes: the median of the last few, so that one slow disk does not count; ``None``: not known."""
        return _median(self._saves)

    @property
    def step(self) -> float | None:
        """Seconds that a step takes, the median of the last few; ``None``: not known."""
        return _median(self._steps)

    @property
    def needed(self) -> float:
        """Seconds that are to be left for a save that has to be done before an end."""
        return (max(self._saves) if self._saves else 0.0) * 1.25 + _SLACK

    @property
    def notice_fits(self) -> bool:
        """Whether a notice is long enough for the step in hand and a save after it."""
        return self.cost is not None and self.notice >= self.needed + (self.step or 0.0) > 0

    def interval(self, age: float) -> float:
        """Seconds of work between two saves, at this age of the attempt."""
        if self.every is not None:
            return self.every
        rate = interval.unannounced(self.hazard.rate(age), notice_fits=self.notice_fits)
        return interval.optimum(self.cost or 0.0, rate)

    def is_due(self, since: float, age: float) -> bool:
        """Whether to save at the end of a step, ``since`` seconds of work after the last save: the end next to the optimum."""
        if self.cost is None:
            return True  # the first one tells what it costs, and whether it can be done at all
        return since + (self.step or 0.0) / 2 >= self.interval(age)

    def is_last_chance(self, left: float) -> bool:
        """Whether, with ``left`` seconds to go, a save after one step more would come too late."""
        return left < (self.step or 0.0) * 1.25 + 2 * self.needed

    def explain(self, age: float) -> str:
        """Why saves come as often as they do, with the numbers, in a sentence or two for people."""
        if self.every is not None:
            return f"Saves after every {_seconds(self.every)} of work, as it was told."
        if self.cost is None:
            return "Saves after the first step, to learn what a save costs; nothing has been measured yet."
        rate, left = self.hazard.rate(age), interval.unannounced(self.hazard.rate(age), notice_fits=self.notice_fits)
        every = interval.optimum(self.cost, left)
        text = (
            f"Saves after every {_seconds(every)} of work: a save costs {_seconds(self.cost)} and nodes are taken "
            f"{_how_often(rate)} ({self._source(age)})"
        )
        if self.notice_fits:
            text += (
                f", with a notice of {_seconds(self.notice)}, in which the step in hand and a save fit; it is counted on for "
                f"{interval.USABLE:.0%} of them"
            )
        elif self.notice:
            text += f"; the notice of {_seconds(self.notice)} is too short for the step in hand and a save"
        if math.isfinite(every) and every > 0:
            waste = interval.expected_time(1.0, every, self.cost, self.restart, left) - 1
            announced = max(0.0, rate + interval.CRASHES - left) * (self.cost + self.restart)
            text += f". Saves, lost work and loading are expected to add {waste + announced:.1%}"
        return text + "."

    def _source(self, age: float) -> str:
        if self.hazard.taken_every is not None:
            known = "as the pool states" if math.isfinite(self.hazard.taken_every) else "this pool's nodes are not"
        else:
            known = f"the usual for a spot node after {_seconds(age)}"
        seen = self.hazard.taken
        return f"{known}, and {seen} earlier attempt{'s were' if seen != 1 else ' was'} taken" if seen else known


def _median(values: deque[float]) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _how_often(rate: float) -> str:
    return f"every {_seconds(1 / rate)}" if rate > 0 else "never"


def _seconds(seconds: float) -> str:
    """A duration for people, to two digits or so."""
    if not math.isfinite(seconds):
        return "for ever"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= size * (2 if unit != "s" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1000:.3g} ms"
