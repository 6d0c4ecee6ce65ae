"""The verdict on a step: one phrase for all its trials, with the evidence for it. Pure.

*Not safe*: an interruption changed an output, lost every save, or the step failed after one; or the library itself changed an
output. *Never finishes*: left alone after an interruption, the step takes many times its undisturbed time. *Undecided*: no
output could be compared, the work is too short, or too few trials were interrupted while the step was at work. Every other step
is safe, and its lives decide whether it resumes (:mod:`spotwright.rehearsal.lives`): it *resumes* if it ends although no attempt
lives long enough to do all of the work, *resumes only with a notice* if it does so only where each interruption had one, *goes
back* if its lives keep a part but get no further, and *starts over* if they keep no work.

Saves and loads explain a verdict, but are never evidence that the step resumes. An attempt that loads an older save than the
newest whole one makes it *go back*. A step whose lives end and that redoes more than three quarters of the interrupted work is
*undecided*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from spotwright.rehearsal.attempt_trace import FileOperation, OnSigterm, Untold
from spotwright.rehearsal.fault_injector import InjectionResult
from spotwright.rehearsal.injection_points import FileActivity, InjectionKind, InjectionPoint
from spotwright.rehearsal.lives import INTERRUPTED, Lives, resumes, work_of
from spotwright.rehearsal.loaded_saves import Origin, Resume, SaveCounts, resume_of
from spotwright.rehearsal.output_comparison import Difference
from spotwright.rehearsal.own_work import MeasuredBy, OwnWork
from spotwright.rehearsal.trials import TrialRun
from spotwright.rehearsal.work_phase import WorkPhase

__all__ = [
    "MIN_INTERRUPTED",
    "MIN_KEPT_SHARE",
    "Baseline",
    "InterruptionCost",
    "PointOutcome",
    "StepReport",
    "Verdict",
    "cost_of",
    "resumes_of",
    "verdict_of",
]


MIN_INTERRUPTED = 3
"""The minimum number of trials that are interrupted after the first step of the work."""

_SHORTEST_WORK = 0.1
"""Seconds of work, without waits for a processor, that can be interrupted in parts: starting a process takes about as long."""


@dataclass(frozen=True, slots=True)
class InterruptionCost:
    """The cost of a trial's interruptions, by the step's own measure, so that a busy machine does not change it.

    ``extra_seconds`` are the seconds beyond the undisturbed time, with the new starts, without waits for a processor;
    ``interrupted_work`` and ``redone_work`` are shares of the work.
    """

    interruptions: int
    extra_seconds: float
    interrupted_work: float
    redone_work: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """The undisturbed step: its shortest time, and its time without waits for a processor.

    ``own`` measures its work, and ``last_progress`` is what it reported last. ``None``: not known.
    """

    seconds: float
    own_seconds: float | None = None
    own: OwnWork | None = None
    last_progress: float | None = None


def cost_of(trial: TrialRun, baseline: Baseline) -> InterruptionCost | None:
    """The cost of the interruptions of a trial that succeeded; ``None`` if there were none, or if it was not measured."""
    interrupted = [number for number, attempt in enumerate(trial.attempts) if attempt.cause in INTERRUPTED]
    work = work_of(trial, baseline.own)
    seconds = [trace.own_seconds for trace in trial.traces.get(trial.task or "", ()) if trace.own_seconds is not None]
    if not interrupted or not work or baseline.own_seconds is None or len(seconds) != len(work):
        return None
    extra = max(0.0, sum(seconds) - baseline.own_seconds)
    done = sum(work[number] for number in interrupted)
    return InterruptionCost(len(interrupted), extra, done, min(done, max(0.0, sum(work) - 1.0)))


def resumes_of(trial: TrialRun, undisturbed: Sequence[FileOperation], counts: SaveCounts) -> tuple[Resume, ...]:
    """What each attempt after an interruption resumed from; empty if some operations were missed."""
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


MIN_KEPT_SHARE = 0.25
"""The share of the interrupted work that a step must keep to count as resuming."""


class Verdict(StrEnum):
    """The expected behaviour of a step when its node is reclaimed."""

    RESUMES = "safe and resumes"
    RESUMES_WITH_NOTICE = "safe and resumes only with a notice"
    GOES_BACK = "safe but goes back to an older save"
    STARTS_OVER = "safe but starts over"
    UNDECIDED = "undecided"
    UNSAFE = "not safe"
    NEVER_FINISHES = "never finishes"
    FAILS = "fails without any interruption"

    @property
    def is_safe(self) -> bool:
        """Whether interruptions change only the time that the step takes."""
        return self in (
            Verdict.RESUMES,
            Verdict.RESUMES_WITH_NOTICE,
            Verdict.GOES_BACK,
            Verdict.STARTS_OVER,
        )


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """The outcome of one injection point. ``problem`` says in one sentence what the interruption broke; empty: no problem.

    ``inconclusive`` says why a trial that the budget cut short has no result; ``trial`` is ``None`` then, as for a point that
    was not tried.
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
    lives: Lives | None = None  # of a point of lives: what they show
    repeated: tuple[str, str] | None = (
        None  # a file of the step's state, and a row that is in it more often than undisturbed
    )
    changed: tuple[tuple[str, str], ...] = ()  # files of its state that end differently: in which state, and where
    generators: tuple[str, ...] | None = None  # random generators that ended in another state; None: not known

    @property
    def is_interrupted(self) -> bool:
        """Whether an interruption took place; the step may have finished before."""
        return self.trial is not None and bool(self.trial.injected)

    @property
    def is_informative(self) -> bool:
        """Whether an interruption came after the first step of the work; before it, there is no work to resume."""
        return self.trial is not None and any(result.at_work for result in self.trial.injected)

    def had_notice(self, resume: Resume) -> bool:
        """Whether the attempt before this resume had a usable notice."""
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
    stray_files: tuple[str, ...] = ()  # written outside the step's folders and volumes: lost with the attempt
    rewritten: tuple[
        str, ...
    ] = ()  # areas that do not outlive an attempt, where the step writes one file again and again
    connections: tuple[str, ...] = ()  # addresses that the step connected to; what it changed there is not compared
    undisturbed_failure: str = ""  # why the step fails without any interruption; then it cannot be rehearsed
    failed_trial: TrialRun | None = None
    changed_results: tuple[str, ...] = ()  # files of its state that end differently, and that no attempt reads
    saved_at: tuple[tuple[str, str], ...] = ()  # files of its saves, each with the line of its code that writes it
    shares_processes: str = ""  # why the command of an attempt was not process 1, as in a container
    not_comparable: str = ""  # why no output could be compared
    budget_advice: str = ""  # which budget would suffice, if this one had no room for all trials
    changed_by_library: tuple[Difference, ...] = ()  # to the outputs of an execution without our variables
    not_compared_without: str = ""  # why there was no such execution, or no output of it could be compared
    phase: WorkPhase = field(default_factory=lambda: WorkPhase(0.0, 0.0))  # when the step is at work, undisturbed
    own: OwnWork | None = None  # what measures its work, if anything

    @property
    def verdict(self) -> Verdict:
        """The verdict on the step."""
        if self.undisturbed_failure:
            return Verdict.FAILS
        if self.changed_by_library:
            return Verdict.UNSAFE
        verdict = verdict_of(self.outcomes)
        is_undecided = verdict.is_safe and (self._too_few or (verdict is Verdict.RESUMES and self._contradiction))
        return Verdict.UNDECIDED if is_undecided else verdict

    @property
    def undecided(self) -> str:
        """Why the trials do not suffice for a verdict, even if no trial went wrong; empty if they do."""
        return self._too_few or self._without_lives or self._contradiction

    @property
    def lives(self) -> tuple[Lives, ...]:
        """The trials in which every attempt was interrupted, evaluated."""
        return tuple(outcome.lives for outcome in self.outcomes if outcome.lives is not None)

    @property
    def gets_further(self) -> bool | None:
        """Whether the step keeps its work through more than one interruption without notice; ``None``: unknown."""
        return resumes([lives for lives in self.lives if not lives.notice])

    @property
    def _without_lives(self) -> str:
        if self.gets_further or (self.gets_further is False and not _lacks_lives(self.outcomes)):
            return ""
        return f"whether it ends although no attempt lives long is not known: {self.budget_advice or _GIVE_MORE}"

    @property
    def _contradiction(self) -> str:
        """Why a step whose lives end may still not resume; empty without such evidence."""
        if self.redone_share is None or self.redone_share <= 1.0 - MIN_KEPT_SHARE:
            return ""
        return (
            f"it ended within its lives, and still {self.redone_share:.0%} of the interrupted work was redone in all trials: "
            "give it more work, or let it report its progress"
        )

    @property
    def _too_few(self) -> str:
        fewest, count = min(MIN_INTERRUPTED, len(self.outcomes)), len(self.outcomes)
        interrupted = sum(outcome.is_interrupted for outcome in self.outcomes)
        informative = sum(outcome.is_informative for outcome in self.outcomes)
        if self.own is not None and self.own.seconds < _SHORTEST_WORK and not self.not_comparable:
            return f"its work takes only {self.own.seconds * 1000:.0f}ms, too short to be interrupted: {_GIVE_MORE}"
        if self.not_comparable or informative >= fewest:
            return self.not_comparable
        advice = self.budget_advice or _GIVE_MORE
        if interrupted < fewest:
            return f"only {interrupted} of {count} trials were interrupted: {advice}"
        return (
            f"only {informative} of {count} trials were interrupted after the first step of its work, which begins after "
            f"{self.phase.begin:.2g}s: {advice}"
        )

    @property
    def orphans(self) -> tuple[InjectionResult, ...]:
        """The injections that killed a launcher alone and that some of its ranks outlived."""
        results = (each for outcome in self.outcomes if outcome.trial is not None for each in outcome.trial.injected)
        return tuple(each for each in results if each.orphans)

    @property
    def answers_to_sigterm(self) -> frozenset[OnSigterm]:
        """The reactions to SIGTERM of processes that outlived their notice."""
        return frozenset(answer for outcome in self.outcomes for answer in _answers(outcome))

    @property
    def untold(self) -> tuple[Untold, ...]:
        """The programs that handle SIGTERM but never got it, each with the launcher that did not pass it on."""
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
        """The share of the interrupted work that was redone, from 0 (none) to 1 (the step started over)."""
        work = sum(cost.interrupted_work for cost in self._costs())
        return min(1.0, sum(cost.redone_work for cost in self._costs()) / work) if work > 0 else None

    @property
    def redone_per_interruption(self) -> float | None:
        """The share of the whole step that one interruption makes it redo, on average; ``None`` if it was not measured."""
        return sum(cost.redone_work for cost in self._costs()) / self.interruptions if self.interruptions else None

    @property
    def measured_by(self) -> MeasuredBy | None:
        """What measured :attr:`redone_share`; ``None`` if it was not measured."""
        return self.own.measured_by if self.own is not None and self.redone_share is not None else None

    def _costs(self) -> list[InterruptionCost]:
        return [outcome.cost for outcome in self.outcomes if outcome.cost is not None]


def _answers(outcome: PointOutcome) -> Iterator[OnSigterm]:
    trial = outcome.trial
    if trial is None or _is_cut_short(outcome):
        return
    for attempt, trace in zip(trial.attempts, trial.traces.get(trial.task or "", ()), strict=False):
        if attempt.outlived_notice:
            yield from trace.on_sigterm


_GIVE_MORE = "give the step more work"


def verdict_of(outcomes: Sequence[PointOutcome]) -> Verdict:
    """The worst outcome of all points; without problems, what the lives of the step show."""
    if any(outcome.problem and not outcome.never_finishes and outcome.is_interrupted for outcome in outcomes):
        return Verdict.UNSAFE
    if any(outcome.problem and not outcome.is_interrupted for outcome in outcomes):
        return Verdict.FAILS
    if any(outcome.never_finishes for outcome in outcomes):
        return Verdict.NEVER_FINISHES
    lives = [outcome.lives for outcome in outcomes if outcome.lives is not None]
    suddenly = [each for each in lives if not each.notice]
    ends = resumes(suddenly)
    if ends is None or (not ends and _lacks_lives(outcomes)):
        return Verdict.UNDECIDED
    if any(_is_older(outcome, resume) for outcome in outcomes for resume in outcome.resumes):
        return Verdict.GOES_BACK  # whatever it costs: the cost depends on when the node is reclaimed
    if ends:
        return Verdict.RESUMES
    is_stuck = any(each.is_stuck for each in suddenly)
    if any(_ends_after_notices(outcome, is_stuck=is_stuck) for outcome in outcomes):
        return Verdict.RESUMES_WITH_NOTICE
    return Verdict.GOES_BACK if any(each.kept_something for each in suddenly) else Verdict.STARTS_OVER


_LONG = 0.5  # of the work: a longer life holds most of it, together with the notice after it


def _ends_after_notices(outcome: PointOutcome, *, is_stuck: bool) -> bool:
    """Whether a step ended within lives with a notice, and its last attempt did not redo the work within its notice.

    The notice helped if it ended attempts. Attempts that ran until they were killed may just have had longer lives: if the step
    goes back to the same save each time without notice (``is_stuck``), or most of the work fits into a life and the step does
    not handle SIGTERM.
    """
    lives, trial = outcome.lives, outcome.trial
    if lives is None or trial is None or not (lives.notice and lives.is_ended and lives.has_loaded):
        return False
    answered = all(attempt.ended_by_itself for attempt in trial.attempts[:-1])
    handles = any(OnSigterm.HANDLES in trace.on_sigterm for trace in trial.traces.get(trial.task or "", ()))
    is_long = lives.share > _LONG
    return lives.attempts[-1].work <= 1.0 - MIN_KEPT_SHARE and (answered or not (is_stuck or (is_long and not handles)))


def _lacks_lives(outcomes: Iterable[PointOutcome]) -> bool:
    """Whether the budget lacked room for the lives that decide whether a step that saves rarely resumes."""
    return any(
        outcome.trial is None and outcome.point.kind is InjectionKind.LIVES and not outcome.point.injections[0].notice
        for outcome in outcomes
    )


def _is_older(outcome: PointOutcome, resume: Resume) -> bool:
    """Whether an attempt loaded an older save than the newest whole one, after an interruption without notice."""
    return resume.origin is Origin.OLDER and not outcome.had_notice(resume)


def _is_cut_short(outcome: PointOutcome) -> bool:
    """Whether the node was reclaimed inside the save after the notice: then the notice had no effect."""
    return outcome.trial is not None and any(result.in_save for result in outcome.trial.injected)
