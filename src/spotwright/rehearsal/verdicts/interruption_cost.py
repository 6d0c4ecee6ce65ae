"""The cost of interruptions: the extra time, and the share of the interrupted work that was redone. Pure.

Time is what is paid for, but on a busy machine it says little about redone work: a first execution, for instance, reads
everything from a cold disk. So redone work is measured by the most reliable source that the step offers. First, the *progress*
that it reports. Second, its *saves*: a resumed attempt makes only the remaining ones, and the undisturbed execution shows when
each comes. *Time* is the last resort: it says nothing of a short step, and then what was redone stays unknown where the step
could not be traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from spotwright.model.attempts import Cause
from spotwright.rehearsal.tracing.attempt_trace import AttemptTrace
from spotwright.rehearsal.trials.injection_points import SAVES
from spotwright.rehearsal.trials.trial_runs import TrialAttempt, TrialRun

__all__ = ["Baseline", "InterruptionCost", "MeasuredBy", "cost_of", "most_reliable"]

_INTERRUPTED = (Cause.INTERRUPTED.value, Cause.LOST.value)


_MEASURABLE = 1.0  # seconds: the time of a shorter step varies by as much as a part of its work


class MeasuredBy(StrEnum):
    """The source of a measurement of work, the most reliable first."""

    PROGRESS = "its own progress"
    SAVES = "its saves"
    TIME = "time"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class InterruptionCost:
    """The cost of a trial's interruptions: seconds beyond the undisturbed time, and interrupted and redone work.

    Work is measured in seconds of the undisturbed step; both are 0 where nothing measured it.
    """

    interruptions: int
    extra_seconds: float
    interrupted_work: float
    redone_work: float
    measured_by: MeasuredBy


@dataclass(frozen=True, slots=True)
class Baseline:
    """The undisturbed step: its time, its first and last progress, and when each operation on its saves came.

    ``traced_seconds`` is the time of the traced execution, from which ``save_times`` come. ``save_times`` are empty where memory
    maps hide them.
    """

    seconds: float
    first_progress: float | None = None
    last_progress: float | None = None
    save_times: tuple[float, ...] = ()
    traced_seconds: float = 0.0

    @property
    def reports_progress(self) -> bool:
        """Whether the step's progress reports can measure its work."""
        return (
            self.first_progress is not None
            and self.last_progress is not None
            and self.last_progress > self.first_progress
        )

    @classmethod
    def of(cls, seconds: float, undisturbed: TrialAttempt, traced: TrialAttempt, trace: AttemptTrace) -> Baseline:
        """Build the baseline from the first undisturbed execution and the traced one."""
        is_mapped = any(area == SAVES for area, _ in trace.mapped)
        save_times = tuple(operation.at for operation in trace.operations if operation.area == SAVES)
        visible = () if is_mapped else save_times
        return cls(seconds, undisturbed.first_progress, undisturbed.progress, visible, traced.seconds)


def cost_of(trial: TrialRun, baseline: Baseline) -> InterruptionCost | None:
    """The cost of the interruptions of a trial that succeeded; ``None`` if there were none."""
    interrupted = [attempt for attempt in trial.attempts if attempt.cause in _INTERRUPTED]
    if not interrupted:
        return None
    extra = max(0.0, trial.seconds - baseline.seconds)
    parts = list(_work_by_progress(trial.attempts, baseline))
    if parts:
        work, redone = sum(part[0] for part in parts), sum(part[1] for part in parts)
        return InterruptionCost(len(interrupted), extra, work, redone, MeasuredBy.PROGRESS)
    is_traced = not trial.tracing_failure
    if baseline.save_times and is_traced and len(trial.attempts) == len(trial.operations) == 2:
        work, redone = _work_by_saves(trial, baseline)
        return InterruptionCost(1, extra, work, redone, MeasuredBy.SAVES)
    if not is_traced and baseline.seconds < _MEASURABLE:
        return InterruptionCost(len(interrupted), extra, 0.0, 0.0, MeasuredBy.NOTHING)
    work = sum(attempt.seconds for attempt in interrupted)
    has_nothing = _has_saved_nothing(trial) and (baseline.seconds < _MEASURABLE or not _has_connected(trial))
    redone = max(work, extra) if has_nothing else extra
    return InterruptionCost(len(interrupted), extra, work, redone, MeasuredBy.TIME)


def _has_saved_nothing(trial: TrialRun) -> bool:
    """Whether the traces show that no file which outlives an attempt was changed: there is nothing to resume from."""
    if not trial.operations or trial.tracing_failure:
        return False
    return not any(operation.area == SAVES for operations in trial.operations for operation in operations)


def _has_connected(trial: TrialRun) -> bool:
    """Whether the step connected to another process or machine, and may keep its work there."""
    return any(trace.connections for traces in trial.traces.values() for trace in traces)


def most_reliable(costs: Sequence[InterruptionCost]) -> list[InterruptionCost]:
    """The costs that were measured by the most reliable source among them."""
    for source in MeasuredBy:
        measured = [cost for cost in costs if cost.measured_by is source]
        if measured:
            return measured
    return []


def _work_by_progress(attempts: Sequence[TrialAttempt], baseline: Baseline) -> Iterator[tuple[float, float]]:
    """For each interrupted attempt the work it had done, and how much of that its successor redid."""
    if not baseline.reports_progress or baseline.first_progress is None or baseline.last_progress is None:
        return
    whole = baseline.last_progress - baseline.first_progress
    for attempt, following in pairwise(attempts):
        is_interrupted = attempt.cause in _INTERRUPTED
        if is_interrupted and attempt.progress is not None and following.first_progress is not None:
            done = attempt.progress - baseline.first_progress
            resumed_at = following.first_progress - baseline.first_progress
            yield done / whole * baseline.seconds, max(0.0, done - resumed_at) / whole * baseline.seconds


def _work_by_saves(trial: TrialRun, baseline: Baseline) -> tuple[float, float]:
    """Interrupted and redone work of a single interruption, from the operations of both attempts on the step's saves.

    The interrupted attempt had reached its last operation and not yet the next one. The second attempt made the final
    operations, so it resumed after those that it did not make.
    """
    before, after = (sum(each.area == SAVES for each in operations) for operations in trial.operations)
    times = baseline.save_times
    bounds = (0.0, *times, max(baseline.traced_seconds, times[-1]))
    reached = min(before, len(times))
    done = min(max(trial.attempts[0].seconds, bounds[reached]), bounds[reached + 1])
    resumed_at = bounds[max(0, len(times) - after)]
    return done, max(0.0, done - resumed_at)
