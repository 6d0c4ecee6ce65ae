"""The verdict on a step: one phrase for all its trials, with the evidence for it. Pure.

*Not safe*: an interruption changed an output, lost every save, or the step failed after one; or the library itself changed an
output. *Never finishes*: left alone after
an interruption, the step takes many times its undisturbed time. *Undecided*: nothing could be compared, or too few trials were
interrupted while the step was at work. Every other step is safe. It *resumes* if every attempt loaded the newest whole save,
and *starts over* if it loaded none. A step that keeps work only if it gets a notice *resumes only with a notice*: some
interruptions come without one. Of a step of which nothing shows whether it resumes, no more is said than that it is *safe*.

None of this depends on how long something took: what is kept is seen in the step's progress, in the saves that it loads and
makes, or in its processor time. The cost of an interruption is the extra time, and the share of the interrupted work that was
redone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from spotwright.model.attempts import Cause
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation, OnSigterm, Untold
from spotwright.rehearsal.fault_injector import InjectionResult
from spotwright.rehearsal.injection_points import SAVES, FileActivity, InjectionPoint, is_save
from spotwright.rehearsal.loaded_saves import Origin, Resume, SaveCounts, resume_of, with_databases
from spotwright.rehearsal.output_comparison import Difference
from spotwright.rehearsal.trials import TrialAttempt, TrialRun
from spotwright.rehearsal.work_phase import WorkPhase

__all__ = [
    "MIN_INTERRUPTED",
    "MIN_KEPT_SHARE",
    "Baseline",
    "InterruptionCost",
    "MeasuredBy",
    "PointOutcome",
    "StepReport",
    "Verdict",
    "cost_of",
    "gets_further",
    "most_reliable",
    "resumes_of",
    "verdict_of",
]


_INTERRUPTED = (Cause.INTERRUPTED.value, Cause.LOST.value)


_MEASURABLE = 1.0  # seconds of a processor: of a step that takes less, most goes into its start
MIN_INTERRUPTED = 3
"""So many trials must be interrupted after the first step of the work: fewer show too little of a step."""


class MeasuredBy(StrEnum):
    """The source of a measurement of work, the most reliable first."""

    PROGRESS = "its own progress"
    SAVES = "its saves"
    TIME = "processor time"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class InterruptionCost:
    """The cost of a trial's interruptions: seconds beyond the undisturbed time, and interrupted and redone work.

    Work is measured in seconds of the undisturbed step; both are 0 where nothing measured it. ``saved`` and ``saved_again`` count
    operations on saves, of the interrupted attempts and those that were made again: they decide the verdict, because seconds
    depend on how busy the machine is.
    """

    interruptions: int
    extra_seconds: float
    interrupted_work: float
    redone_work: float
    measured_by: MeasuredBy
    saved: int = 0
    saved_again: int = 0


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
    cpu_seconds: float = 0.0

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
        used = min(undisturbed.cpu_seconds, traced.cpu_seconds)
        whole = cls(seconds, undisturbed.first_progress, undisturbed.progress, (), traced.seconds, used)
        return whole.with_saves(trace)

    def with_saves(self, trace: AttemptTrace) -> Baseline:
        """The baseline with the times of the saves in this trace of the undisturbed step."""
        is_mapped = any(area == SAVES for area, _ in trace.mapped)
        return replace(
            self, save_times=() if is_mapped else tuple(each.at for each in trace.operations if is_save(each))
        )


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
        saved, again = _saved_again(trial, baseline)
        return InterruptionCost(1, extra, work, redone, MeasuredBy.SAVES, saved, again)
    if _has_saved_nothing(trial) and not _has_connected(trial):
        work = sum(attempt.seconds for attempt in interrupted)
        return InterruptionCost(len(interrupted), extra, work, work, MeasuredBy.SAVES, 1, 1)
    if baseline.cpu_seconds < _MEASURABLE:
        return InterruptionCost(len(interrupted), extra, 0.0, 0.0, MeasuredBy.NOTHING)
    work = sum(attempt.cpu_seconds for attempt in interrupted)
    redone = max(0.0, sum(attempt.cpu_seconds for attempt in trial.attempts) - baseline.cpu_seconds)
    return InterruptionCost(len(interrupted), extra, work, min(work, redone), MeasuredBy.TIME)


def _has_saved_nothing(trial: TrialRun) -> bool:
    """Whether the traces show that no file which outlives an attempt was changed: there is nothing to resume from."""
    if not trial.operations or trial.tracing_failure:
        return False
    return not any(trial.save_counts)


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
    before, after = trial.save_counts
    times = baseline.save_times
    bounds = (0.0, *times, max(baseline.traced_seconds, times[-1]))
    reached = min(before, len(times))
    done = min(max(trial.attempts[0].seconds, bounds[reached]), bounds[reached + 1])
    resumed_at = bounds[max(0, len(times) - after)]
    return done, max(0.0, done - resumed_at)


def _saved_again(trial: TrialRun, baseline: Baseline) -> tuple[int, int]:
    """How many operations on saves the interrupted attempt of a single interruption made, and how many were made again."""
    before, after = trial.save_counts
    return before, min(before, max(0, before + after - len(baseline.save_times)))


def gets_further(trial: TrialRun, baseline: Baseline, *, counts_saves: bool) -> bool | None:
    """Whether the third attempt of two lives kept at least :data:`MIN_KEPT_SHARE` of what the second had done.

    By the step's own progress; else by the number of its saves, where that tells where it was; else by the files that the third
    attempt read: where the second has changed none of them, it did nothing that the third could know. ``None``: not known.
    """
    if len(trial.attempts) != 3 or len(trial.injected) != 2:
        return None
    if baseline.reports_progress:
        return _further_by_progress(trial.attempts)
    if trial.tracing_failure or len(trial.operations) != 3:
        return None
    first, second, third = trial.save_counts
    if not second:
        return None
    if counts_saves and baseline.save_times:
        return len(baseline.save_times) - third - first >= MIN_KEPT_SHARE * second
    loads = trial.traces[trial.task or ""][-1].loads
    written, changed = ({each.path for each in operations if is_save(each)} for operations in trial.operations[:2])
    known = set(with_databases(loads or ())) & (written | changed)
    return bool(known & changed) if known else None


def _further_by_progress(attempts: Sequence[TrialAttempt]) -> bool | None:
    _, second, third = attempts
    if second.first_progress is None or second.progress is None or third.first_progress is None:
        return None
    done = second.progress - second.first_progress
    return third.first_progress - second.first_progress >= MIN_KEPT_SHARE * done if done > 0 else None


def resumes_of(trial: TrialRun, undisturbed: Sequence[FileOperation], counts: SaveCounts) -> tuple[Resume, ...]:
    """What each attempt that followed an interruption went on from; nothing where not all was seen."""
    traces = trial.traces.get(trial.task or "", ())
    if trial.tracing_failure or len(traces) != len(trial.attempts):
        return ()
    before: list[tuple[Sequence[FileOperation], bool]] = []
    resumes = []
    for attempt, trace in zip(trial.attempts, traces, strict=True):
        operations, is_last = trace.operations, attempt is trial.attempts[-1]
        if before and trace.loads is not None:
            number, loads = attempt.number, trace.loads
            resumes.append(resume_of(number, before, operations, loads, undisturbed, counts, is_last=is_last))
        before.append((operations, attempt.ended_by_itself))
    return tuple(resume for resume in resumes if resume is not None)


_NEARLY_ALL = 0.9  # of the undisturbed time: "resumes" never stands beside such a cost
MIN_KEPT_SHARE = 0.25
"""The share of the interrupted work that a step must keep to count as resuming."""


class Verdict(StrEnum):
    """What to expect of a step when its node is taken."""

    RESUMES = "safe and resumes"
    RESUMES_WITH_NOTICE = "safe and resumes only with a notice"
    GOES_BACK = "safe but goes back to an older save"
    STARTS_OVER = "safe but starts over"
    SAFE = "safe"  # nothing could measure whether it resumes
    UNDECIDED = "undecided"
    UNSAFE = "not safe"
    NEVER_FINISHES = "never finishes"
    FAILS = "fails without any interruption"

    @property
    def is_safe(self) -> bool:
        """Whether interruptions change nothing except the time that the step takes."""
        return self in (
            Verdict.RESUMES,
            Verdict.RESUMES_WITH_NOTICE,
            Verdict.GOES_BACK,
            Verdict.STARTS_OVER,
            Verdict.SAFE,
        )


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """The outcome of one injection point. ``problem`` says in one sentence what the interruption broke; empty: nothing.

    ``inconclusive`` says why a trial that the budget cut short says nothing; ``trial`` is ``None`` then, as for a point that was
    not tried.
    """

    point: InjectionPoint
    trial: TrialRun | None = None
    problem: str = ""
    inconclusive: str = ""
    never_finishes: bool = False
    ended_early: bool = False  # an attempt exited with 0 after its notice, with work left
    differences: tuple[Difference, ...] = ()
    output_paths: tuple[Path, ...] = ()  # the first differing output, undisturbed and interrupted
    cost: InterruptionCost | None = None
    resumes: tuple[Resume, ...] = ()
    lost_by: FileOperation | None = None  # the operation after which every save was lost
    gets_further: bool | None = None  # of two lives: whether attempt 3 got further than attempt 2; None: not known
    repeated: tuple[str, str] | None = (
        None  # a file of the step's state, and a row that is in it more often than undisturbed
    )
    generators: tuple[str, ...] | None = None  # random generators that ended in another state; None: not known

    @property
    def is_interrupted(self) -> bool:
        """Whether an interruption took place; the step may have finished before."""
        return self.trial is not None and bool(self.trial.injected)

    @property
    def is_informative(self) -> bool:
        """Whether an interruption came after the first step of the work: before, there is nothing to resume."""
        return self.trial is not None and any(result.at_work for result in self.trial.injected)

    def had_notice(self, resume: Resume) -> bool:
        """Whether the attempt before this resume had a notice that it could use."""
        results = self.trial.injected if self.trial is not None else ()
        return any(each.attempt < resume.attempt and each.injection.notice and not each.in_save for each in results)


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
    not_comparable: str = ""  # why nothing of its outputs could be compared
    budget_advice: str = ""  # which budget would do, where this one had no room for all trials
    changed_by_library: tuple[Difference, ...] = ()  # to the outputs of an execution without our variables
    not_compared_without: str = ""  # why there was no such execution, or nothing of it could be compared
    phase: WorkPhase = field(default_factory=lambda: WorkPhase(0.0, 0.0))  # when the step is at work, undisturbed
    counts_saves: bool = (
        True  # it makes as many saves in each undisturbed execution, so that their number tells where it was
    )

    @property
    def verdict(self) -> Verdict:
        """The verdict on the step."""
        if self.undisturbed_failure:
            return Verdict.FAILS
        if self.changed_by_library:
            return Verdict.UNSAFE
        verdict = verdict_of(self.outcomes, self.activity, counts_saves=self.counts_saves)
        is_undecided = verdict.is_safe and (self._too_few or (verdict is Verdict.RESUMES and self._contradiction))
        return Verdict.UNDECIDED if is_undecided else verdict

    @property
    def undecided(self) -> str:
        """Why the trials do not suffice for a verdict, even if nothing went wrong; empty if they do."""
        return self._too_few or self._contradiction

    @property
    def gets_further(self) -> bool | None:
        """Whether the step keeps its work through a second interruption too; ``None``: not known."""
        return next((each.gets_further for each in self.outcomes if each.gets_further is not None), None)

    @property
    def costs_nearly_all(self) -> bool:
        """Whether one interruption costs about as much as the whole step, by the time that passed."""
        undisturbed = min(self.undisturbed_seconds, default=0.0)
        return self.cost_per_interruption is not None and self.cost_per_interruption > _NEARLY_ALL * undisturbed

    @property
    def _contradiction(self) -> str:
        """Why a step that seems to resume perhaps does not; empty if nothing says so."""
        if not self.costs_nearly_all or self.gets_further:
            return ""
        return (
            "by its files it resumes, and by its time an interruption costs nearly all of the step: report progress, or "
            "rehearse it on a machine that is less busy"
        )

    @property
    def _too_few(self) -> str:
        fewest, count = min(MIN_INTERRUPTED, len(self.outcomes)), len(self.outcomes)
        interrupted = sum(outcome.is_interrupted for outcome in self.outcomes)
        informative = sum(outcome.is_informative for outcome in self.outcomes)
        if self.not_comparable or informative >= fewest:
            return self.not_comparable
        advice = self.budget_advice or "give the step more work"
        if interrupted < fewest:
            return f"only {interrupted} of {count} trials were interrupted: {advice}"
        return (
            f"only {informative} of {count} trials were interrupted after the first step of its work, which begins after "
            f"{self.phase.begin:.2g}s: {advice}"
        )

    @property
    def orphans(self) -> tuple[InjectionResult, ...]:
        """The trials' kills of a launcher alone that some of its ranks outlived."""
        results = (each for outcome in self.outcomes if outcome.trial is not None for each in outcome.trial.injected)
        return tuple(each for each in results if each.orphans)

    @property
    def answers_to_sigterm(self) -> frozenset[OnSigterm]:
        """What the processes of attempts that outlived their notice did with SIGTERM."""
        return frozenset(answer for outcome in self.outcomes for answer in _answers(outcome))

    @property
    def untold(self) -> tuple[Untold, ...]:
        """The programs that handle SIGTERM and never got it, each with the one that did not pass it on."""
        trials = (outcome.trial for outcome in self.outcomes if outcome.trial is not None)
        traces = (trace for trial in trials for trace in trial.traces.get(trial.task or "", ()))
        return tuple(dict.fromkeys(each for trace in traces for each in trace.untold))

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


def verdict_of(
    outcomes: Sequence[PointOutcome], activity: FileActivity | None = None, *, counts_saves: bool = True
) -> Verdict:
    """The worst outcome of all points; without problems, whether the step resumes."""
    if any(outcome.problem and not outcome.never_finishes and outcome.is_interrupted for outcome in outcomes):
        return Verdict.UNSAFE
    if any(outcome.problem and not outcome.is_interrupted for outcome in outcomes):
        return Verdict.FAILS
    if any(outcome.never_finishes for outcome in outcomes):
        return Verdict.NEVER_FINISHES
    suddenly = [
        (outcome, resume) for outcome in outcomes for resume in outcome.resumes if not outcome.had_notice(resume)
    ]
    resumes = [resume for _, resume in suddenly if resume.origin is not None]
    origins = {resume.origin for resume in resumes}
    if Origin.OLDER in origins:  # however much of the work that costs: it depends on when the node goes
        return Verdict.GOES_BACK
    keeps = _keeps_by_progress(outcome for outcome in outcomes if not _has_notice(outcome))
    if keeps is None and origins:
        keeps = Origin.NOTHING not in origins or len(origins) > 1
        is_redone = counts_saves and sum(each.redone for each in resumes) > (1 - MIN_KEPT_SHARE) * sum(
            each.saved for each in resumes
        )
        keeps = keeps and not is_redone and not (activity is not None and activity.saves_only_early)
    if keeps and origins <= {Origin.NEWEST}:
        return _after_lives(outcomes)
    if keeps:
        return Verdict.GOES_BACK
    if _resumes_after_notice(outcomes):
        return Verdict.RESUMES_WITH_NOTICE
    if keeps is not None:
        return Verdict.STARTS_OVER
    verdict = _by_cost(outcomes, saves_only_early=activity is not None and activity.saves_only_early)
    return _after_lives(outcomes) if verdict is Verdict.RESUMES else verdict


def _after_lives(outcomes: Iterable[PointOutcome]) -> Verdict:
    """The verdict on a step that keeps its work through one interruption: it resumes if it does so through a second one too."""
    return Verdict.GOES_BACK if any(outcome.gets_further is False for outcome in outcomes) else Verdict.RESUMES


def _by_cost(outcomes: Sequence[PointOutcome], *, saves_only_early: bool) -> Verdict:
    """Whether a step resumes of which no progress is seen, and of which no file that it saves is read."""
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    if costs and all(cost.measured_by is MeasuredBy.NOTHING for cost in costs):
        return Verdict.SAFE
    suddenly = [outcome.cost for outcome in outcomes if outcome.cost is not None and not _has_notice(outcome)]
    saved = sum(cost.saved for cost in suddenly if cost.measured_by is MeasuredBy.SAVES)
    again = sum(cost.saved_again for cost in suddenly if cost.measured_by is MeasuredBy.SAVES)
    if saved and saves_only_early:
        return Verdict.STARTS_OVER
    redone = again / saved if saved else _redone_share(suddenly)
    return Verdict.RESUMES if redone is not None and redone <= 1.0 - MIN_KEPT_SHARE else Verdict.STARTS_OVER


def _keeps_by_progress(outcomes: Iterable[PointOutcome]) -> bool | None:
    """Whether at least :data:`MIN_KEPT_SHARE` of the work was kept, by the step's own progress; None where it reports none."""
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    redone = _redone_share([cost for cost in costs if cost.measured_by is MeasuredBy.PROGRESS])
    return None if redone is None else redone <= 1.0 - MIN_KEPT_SHARE


def _resumes_after_notice(outcomes: Sequence[PointOutcome]) -> bool:
    """Whether a notice was enough to save the work: one attempt that loaded what was saved then shows it."""
    with_notice = [outcome for outcome in outcomes if _has_notice(outcome) and not _is_cut_short(outcome)]
    costs = [
        each.cost for each in with_notice if each.cost is not None and each.cost.measured_by is MeasuredBy.PROGRESS
    ]
    most = max((cost.interrupted_work for cost in costs), default=0.0)
    if costs:
        return any(
            cost.interrupted_work >= MIN_KEPT_SHARE * most > 0
            and cost.redone_work <= (1.0 - MIN_KEPT_SHARE) * cost.interrupted_work
            for cost in costs
        )
    resumes = [resume for outcome in with_notice for resume in outcome.resumes]
    return any(
        each.origin is Origin.NEWEST and each.redone <= (1 - MIN_KEPT_SHARE) * each.saved
        for each in resumes
        if each.saved
    )


def _has_notice(outcome: PointOutcome) -> bool:
    return any(injection.notice for injection in outcome.point.injections)


def _is_cut_short(outcome: PointOutcome) -> bool:
    """Whether the node went inside the save that followed the notice: then the notice had no effect."""
    return outcome.trial is not None and any(result.in_save for result in outcome.trial.injected)


def _redone_share(costs: Sequence[InterruptionCost]) -> float | None:
    reliable = most_reliable(costs)
    work = sum(cost.interrupted_work for cost in reliable)
    return min(1.0, sum(cost.redone_work for cost in reliable) / work) if work > 0 else None
