"""What an interruption costs: the time it adds, and how much of the interrupted work was done again. Pure.

Time is what is paid for, and on a busy machine it says little: a first execution reads everything from a cold disk. So how
much work was done again is measured by the surest sign there is. The step's own *progress*, where it reports any. Else its
*saves*: an attempt that goes on makes only those that are left, and when each comes is known from the undisturbed execution.
Only where there is neither, *time*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from spotwright.model.attempts import Cause
from spotwright.rehearsal.points import SAVES
from spotwright.rehearsal.tracer import Op
from spotwright.rehearsal.trials import Attempt, Trial

__all__ = ["By", "Loss", "Measure", "best", "loss_of"]

_INTERRUPTED = (Cause.INTERRUPTED.value, Cause.LOST.value)


class By(StrEnum):
    """How work was measured, the surest first."""

    PROGRESS = "its own progress"
    SAVES = "its saves"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Loss:
    """What interruptions cost: seconds beyond the usual time; the work that was interrupted, and how much of it was done again.

    Work is in seconds of the undisturbed step.
    """

    interruptions: int
    seconds: float
    work: float
    again: float
    by: By


@dataclass(frozen=True, slots=True)
class Measure:
    """The undisturbed step. ``usual`` is its time; ``moments`` when each operation on its saves came, in ``watched`` seconds."""

    usual: float
    first: float | None = None
    last: float | None = None
    moments: tuple[float, ...] = ()
    watched: float = 0.0

    @property
    def reports(self) -> bool:
        """Whether its reports of progress can measure its work."""
        return self.first is not None and self.last is not None and self.last > self.first

    @classmethod
    def of(cls, usual: float, undisturbed: Attempt, watched: Attempt, ops: Sequence[Op]) -> Measure:
        """From the two undisturbed executions."""
        moments = tuple(op.at for op in ops if op.place == SAVES)
        return cls(usual, undisturbed.first, undisturbed.progress, moments, watched.seconds)


def loss_of(trial: Trial, measure: Measure) -> Loss | None:
    """What the interruptions of a trial that succeeded cost; ``None`` where there was none."""
    interrupted = [attempt for attempt in trial.attempts if attempt.cause in _INTERRUPTED]
    if not interrupted:
        return None
    beyond = max(0.0, trial.seconds - measure.usual)
    parts = list(_by_progress(trial.attempts, measure))
    if parts:
        return Loss(
            len(interrupted), beyond, sum(part[0] for part in parts), sum(part[1] for part in parts), By.PROGRESS
        )
    if measure.moments and len(trial.attempts) == len(trial.ops) == 2:
        work, again = _by_saves(trial, measure)
        return Loss(1, beyond, work, again, By.SAVES)
    return Loss(len(interrupted), beyond, sum(attempt.seconds for attempt in interrupted), beyond, By.TIME)


def best(losses: Sequence[Loss]) -> list[Loss]:
    """Those that were measured by the surest sign there is."""
    return next((found for by in By if (found := [loss for loss in losses if loss.by is by])), [])


def _by_progress(attempts: Sequence[Attempt], measure: Measure) -> Iterator[tuple[float, float]]:
    """For each interrupted attempt the work that was done when it ended, and what of that its successor did again."""
    if not measure.reports or measure.first is None or measure.last is None:
        return
    whole = measure.last - measure.first
    for attempt, following in pairwise(attempts):
        if attempt.cause in _INTERRUPTED and attempt.progress is not None and following.first is not None:
            done, begun = attempt.progress - measure.first, following.first - measure.first
            yield done / whole * measure.usual, max(0.0, done - begun) / whole * measure.usual


def _by_saves(trial: Trial, measure: Measure) -> tuple[float, float]:
    """The same of one interruption, by what the two attempts did to the step's saves.

    The attempt that was interrupted had come to its last operation and not to the next one. The other one did the last ones
    of all: it began after those that it did not do.
    """
    before, after = (sum(op.place == SAVES for op in ops) for ops in trial.ops)
    bounds = (0.0, *measure.moments, max(measure.watched, measure.moments[-1]))
    at = min(before, len(measure.moments))
    done = min(max(trial.attempts[0].seconds, bounds[at]), bounds[at + 1])
    begun = bounds[max(0, len(measure.moments) - after)]
    return done, max(0.0, done - begun)
