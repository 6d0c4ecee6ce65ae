"""The verdict on a step: one phrase for all its trials, with the evidence for it. Pure.

*Not safe*: an interruption changed an output, or the step failed after one. *Never finishes*: left alone after an interruption,
the step takes many times its undisturbed time. Every other step is safe; whether it *resumes* or *starts over* depends on how
much of the interrupted work was redone, see :mod:`.interruption_cost`. A step that keeps work only if it gets a notice *resumes
only with a notice*: some interruptions come without one. Of a step whose redone work nothing could measure, no more is said than
that it is *safe*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from spotwright.rehearsal.tracing.attempt_trace import OnSigterm
from spotwright.rehearsal.trials.injection_points import SAVES, FileActivity, InjectionPoint
from spotwright.rehearsal.trials.trial_runs import TrialRun
from spotwright.rehearsal.verdicts.interruption_cost import InterruptionCost, MeasuredBy, most_reliable
from spotwright.rehearsal.verdicts.output_comparison import Difference

__all__ = ["MIN_KEPT_SHARE", "PointOutcome", "StepReport", "Verdict", "verdict_of"]

MIN_KEPT_SHARE = 0.25
"""The share of the interrupted work that a step must keep to count as resuming: more than chance on a busy machine."""


class Verdict(StrEnum):
    """What to expect of a step when its node is taken."""

    RESUMES = "safe and resumes"
    RESUMES_WITH_NOTICE = "safe and resumes only with a notice"
    STARTS_OVER = "safe but starts over"
    SAFE = "safe"  # nothing could measure whether it resumes
    UNSAFE = "not safe"
    NEVER_FINISHES = "never finishes"
    FAILS = "fails without any interruption"

    @property
    def is_safe(self) -> bool:
        """Whether interruptions change nothing except the time that the step takes."""
        return self in (Verdict.RESUMES, Verdict.RESUMES_WITH_NOTICE, Verdict.STARTS_OVER, Verdict.SAFE)


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """The outcome of one injection point. ``problem`` says in one sentence what the interruption broke; empty: nothing."""

    point: InjectionPoint
    trial: TrialRun | None = None
    problem: str = ""
    never_finishes: bool = False
    differences: tuple[Difference, ...] = ()
    output_paths: tuple[Path, ...] = ()  # the first differing output, undisturbed and interrupted
    cost: InterruptionCost | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether an interruption took place; the step may have finished before."""
        return self.trial is not None and bool(self.trial.injected)


@dataclass(frozen=True, slots=True)
class StepReport:
    """The results of rehearsing one step."""

    task: str
    undisturbed_seconds: tuple[float, ...]  # of each undisturbed execution
    activity: FileActivity = field(default_factory=FileActivity)
    noise: tuple[Difference, ...] = ()
    outcomes: tuple[PointOutcome, ...] = ()
    pool_notices: tuple[tuple[str, float], ...] = ()  # name of each spot pool, and its notice in seconds
    notice: float = 0.0  # seconds that points with notice had
    stray_files: tuple[str, ...] = ()  # written outside of the step's own folders and volumes: they go with the attempt
    rewritten: tuple[
        str, ...
    ] = ()  # areas that do not outlive an attempt, where the step writes one file again and again
    connections: tuple[str, ...] = ()  # addresses that the step connected to; what it changed there is not compared
    undisturbed_failure: str = ""  # why the step fails without any interruption; then it cannot be rehearsed
    failed_trial: TrialRun | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the step."""
        return Verdict.FAILS if self.undisturbed_failure else verdict_of(self.outcomes)

    @property
    def answers_to_sigterm(self) -> frozenset[OnSigterm]:
        """What the processes of attempts that outlived their notice did with SIGTERM."""
        return frozenset(answer for outcome in self.outcomes for answer in _answers(outcome))

    @property
    def interruptions(self) -> int:
        """The number of interruptions in all trials with a known cost."""
        return sum(cost.interruptions for cost in self._costs())

    @property
    def cost_per_interruption(self) -> float | None:
        """The mean of the seconds beyond the undisturbed time; ``None`` without interruptions."""
        return sum(cost.extra_seconds for cost in self._costs()) / self.interruptions if self.interruptions else None

    @property
    def redone_share(self) -> float | None:
        """The share of the interrupted work that was redone, from 0 (nothing) to 1 (the step started over)."""
        return _redone_share(self._costs())

    @property
    def measured_by(self) -> MeasuredBy | None:
        """The source of :attr:`redone_share`; ``None`` if nothing measured it."""
        sources = (cost.measured_by for cost in most_reliable(self._costs()))
        return next((source for source in sources if source is not MeasuredBy.NOTHING), None)

    def _costs(self) -> list[InterruptionCost]:
        return [outcome.cost for outcome in self.outcomes if outcome.cost is not None]


def _answers(outcome: PointOutcome) -> Iterator[OnSigterm]:
    trial = outcome.trial
    if trial is None or _is_cut_short(outcome):
        return
    for attempt, trace in zip(trial.attempts, trial.traces.get(trial.task or "", ()), strict=False):
        if attempt.outlived_notice:
            yield from trace.on_sigterm


def verdict_of(outcomes: Sequence[PointOutcome]) -> Verdict:
    """The worst outcome of all points; without problems, whether the step resumes."""
    if any(outcome.problem and not outcome.never_finishes and outcome.is_interrupted for outcome in outcomes):
        return Verdict.UNSAFE
    if any(outcome.problem and not outcome.is_interrupted for outcome in outcomes):
        return Verdict.FAILS
    if any(outcome.never_finishes for outcome in outcomes):
        return Verdict.NEVER_FINISHES
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    if costs and all(cost.measured_by is MeasuredBy.NOTHING for cost in costs):
        return Verdict.SAFE
    if _keeps_enough(outcome for outcome in outcomes if not _has_notice(outcome)):
        return Verdict.RESUMES
    return Verdict.RESUMES_WITH_NOTICE if _resumes_after_notice(outcomes) else Verdict.STARTS_OVER


def _keeps_enough(outcomes: Iterable[PointOutcome]) -> bool:
    """Whether at least :data:`MIN_KEPT_SHARE` of the interrupted work was kept."""
    redone = _redone_share([outcome.cost for outcome in outcomes if outcome.cost is not None])
    return redone is not None and redone <= 1.0 - MIN_KEPT_SHARE


def _resumes_after_notice(outcomes: Sequence[PointOutcome]) -> bool:
    """Whether a notice after a good part of the work was enough to save it.

    One such trial is enough: a busy machine makes attempts longer, and never shorter. But a step that saved nothing after its
    notice has nothing to resume from, and time is asked only where no trial was measured by anything else.
    """
    measured = [
        outcome.cost
        for outcome in outcomes
        if outcome.cost is not None and _has_notice(outcome) and not _is_cut_short(outcome)
        if outcome.cost.measured_by is MeasuredBy.PROGRESS or _has_saved(outcome)
    ]
    costs = most_reliable(measured)
    most = max((cost.interrupted_work for cost in costs), default=0.0)
    return any(
        cost.interrupted_work >= MIN_KEPT_SHARE * most > 0
        and cost.redone_work <= (1.0 - MIN_KEPT_SHARE) * cost.interrupted_work
        for cost in costs
    )


def _has_saved(outcome: PointOutcome) -> bool:
    """Whether the interrupted attempt changed a file that outlives it, or could not be traced."""
    trial = outcome.trial
    if trial is None or not trial.operations or trial.tracing_failure:
        return True
    return any(operation.area == SAVES for operation in trial.operations[0])


def _has_notice(outcome: PointOutcome) -> bool:
    return any(injection.notice for injection in outcome.point.injections)


def _is_cut_short(outcome: PointOutcome) -> bool:
    """Whether the node went inside the save that followed the notice: then the notice had no effect."""
    return outcome.trial is not None and any(result.in_save for result in outcome.trial.injected)


def _redone_share(costs: Sequence[InterruptionCost]) -> float | None:
    reliable = most_reliable(costs)
    work = sum(cost.interrupted_work for cost in reliable)
    return min(1.0, sum(cost.redone_work for cost in reliable) / work) if work > 0 else None
