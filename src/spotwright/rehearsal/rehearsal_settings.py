"""The checked options of the command and the Python API for rehearsals, and the time budget.

A budget of a minute gives no verdict on a step of a minute. The sufficient budget follows from the step's undisturbed time and
the trials so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spotwright.errors import InputError
from spotwright.model.quantities import format_duration
from spotwright.rehearsal.output_comparison import CompareFunction
from spotwright.rehearsal.verdict import MIN_INTERRUPTED

__all__ = ["RehearsalSettings", "TrialBudget"]

_MAX_RANKS = 1000
_TIMES_OF_A_TRIAL = 2.0  # the undisturbed time: reclaimed at the end, with all work redone
_TIMES_OF_LIVES = 3.0  # five lives of a third, and then all work again
_RESERVE = 1.2  # in an advised budget
_MORE = 2.0  # times a budget that was too short although the trials so far say that it suffices


@dataclass(frozen=True, slots=True)
class RehearsalSettings:
    """How to rehearse. ``notice`` is in seconds; ``None``: the pools' notice, at most a quarter of the undisturbed time.

    ``budget``: seconds after which a step's first execution is given up, and its trials are cut; ``None``: all points are
    tried. ``ranks``: the number of the step's ranks, whose nodes are also reclaimed one by one; ``None``: not a distributed
    training.
    """

    seed: int
    interruptions: int = 5
    tolerance: float = 0.0
    compare: CompareFunction | None = None
    notice: float | None = None
    budget: float | None = None
    ranks: int | None = None

    def __post_init__(self) -> None:
        """Raise :class:`InputError` for values out of range."""
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: expected a number from 0")
        if self.ranks is not None and not 2 <= self.ranks <= _MAX_RANKS:
            raise InputError(f"--ranks {self.ranks}: expected a number from 2 to {_MAX_RANKS}")
        if not 1 <= self.interruptions <= 100:
            raise InputError(f"--interruptions {self.interruptions}: expected a number from 1 to 100")
        if not 0 <= self.tolerance < math.inf:
            raise InputError(f"--tolerance {self.tolerance:g}: expected a number from 0")
        if self.budget is not None and not 0 < self.budget < math.inf:
            raise InputError(f"--budget {self.budget:g}s: expected a duration above 0")
        if self.notice is not None and not 0 < self.notice < math.inf:
            raise InputError(
                f"--notice {self.notice:g}s: expected a duration above 0; points without notice are always included"
            )


@dataclass(slots=True)
class TrialBudget:
    """The budget of one step. All times are seconds; ``seconds`` ``None``: all points are tried.

    ``undisturbed`` is the time of one undisturbed execution, ``executions`` that of all so far. ``room``: the parallel trials.
    ``longest_trial``: the longest so far; 0: none yet.
    """

    seconds: float | None
    undisturbed: float = 0.0
    executions: float = 0.0
    room: int = 1
    longest_trial: float = 0.0

    @property
    def trial(self) -> float:
        """The expected time of a trial: the longest so far, at first twice the undisturbed time."""
        return self.longest_trial or _TIMES_OF_A_TRIAL * self.undisturbed

    @property
    def lives(self) -> float:
        """The expected time of a trial in which every attempt is interrupted."""
        return _TIMES_OF_LIVES * self.undisturbed

    @property
    def needed(self) -> float:
        """The time to a verdict: the undisturbed executions so far, lives with and without notice, and one trial more."""
        last = self.trial if self.room < MIN_INTERRUPTED else 0.0
        return self.executions + math.ceil(2 / self.room) * self.lives + last

    @property
    def is_tight(self) -> bool:
        """Whether it will hardly have room for a verdict."""
        return self.seconds is not None and self.needed > self.seconds

    def left(self, elapsed: float) -> float:
        """The seconds of the budget that are left after this time."""
        return math.inf if self.seconds is None else max(0.0, self.seconds - elapsed)

    def has_room(self, elapsed: float, expected: float) -> bool:
        """Whether a trial that starts after this time and takes the expected one ends within the budget."""
        return self.seconds is None or elapsed + expected <= self.seconds

    @property
    def advice(self) -> str:
        """Describe the use of the budget, and the budget that suffices for a verdict."""
        budget = self.seconds or 0.0
        needed, longest = self.needed if self.is_tight else _MORE * budget, max(self.trial, self.lives)
        return (
            f"undisturbed it takes {format_duration(self.executions)} of the budget of {format_duration(budget)}, and a verdict "
            f"needs {MIN_INTERRUPTED} trials of up to {format_duration(longest)}: --budget {_minutes(_RESERVE * needed)} has "
            "room for them"
        )

    def given_up(self, progress: float | None) -> str:
        """Explain why a step whose first execution was given up at this progress has no verdict."""
        budget = self.seconds or 0.0
        over = f"the undisturbed execution was given up when the budget of {format_duration(budget)} was used up"
        times = round(1 + 2 * _TIMES_OF_LIVES + _TIMES_OF_A_TRIAL)
        if not progress:
            return f"{over}: a verdict takes up to {times} times as long as the step; give it less work, or a larger --budget"
        needed = _minutes(times * budget / progress)
        return f"{over}, at {progress:.0%} of its work: give it less work, or --budget {needed}"


def _minutes(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds / 60))}m"
