"""The rehearsal of one step: its undisturbed executions, one trial for every injection point, and their evaluation.

The first execution is undisturbed. It is the reference: its outputs, its time, its file operations, and the results of all
other tasks in every trial. Then follow one trial for every injection point, and a second undisturbed execution: outputs that
differ between the two are noise, which every comparison ignores. All of these run side by side on idle cores, so the verdict on
a step that mostly waits takes three times the step's own time if it resumes (one execution, then lives of hardly more), and
five times if it starts over. A short step is executed a second time before the trials, because a cold start distorts the times
of the first.
"""

from __future__ import annotations

import filecmp
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from spotwright.engine.events import RunStatus
from spotwright.model.attempts import Cause
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.fault_injector import NOT_PROCESS_1
from spotwright.rehearsal.generator_states import changed_generators, writing_lines
from spotwright.rehearsal.injection_points import (
    SAVES,
    UNREAD,
    FileActivity,
    InjectionKind,
    InjectionPoint,
    draw_points,
    happened,
    is_save,
    longer_lives,
    rewritten_areas,
    summarize_activity,
)
from spotwright.rehearsal.lives import lives_of
from spotwright.rehearsal.loaded_saves import Origin, Resume, SaveCounts, kind_of, settled
from spotwright.rehearsal.output_comparison import (
    UNEXPECTED,
    Difference,
    compare_outputs,
    compared_names,
    repeated_row,
    without_noise,
)
from spotwright.rehearsal.own_work import own_work
from spotwright.rehearsal.ranks import require_ranks
from spotwright.rehearsal.rehearsal_settings import RehearsalSettings, TrialBudget
from spotwright.rehearsal.side_by_side import room_for, run_side_by_side
from spotwright.rehearsal.trial_timing import BUSY_LIMIT_FACTOR, LIMIT_FACTOR, LIMIT_SECONDS, TrialTiming
from spotwright.rehearsal.trials import TrialAttempt, TrialRun, TrialRunner
from spotwright.rehearsal.verdict import (
    MIN_INTERRUPTED,
    Baseline,
    PointOutcome,
    StepReport,
    cost_of,
    resumes_of,
)
from spotwright.rehearsal.work_phase import WorkPhase, work_phase
from spotwright.rehearsal.workspaces import STANDARD_OUTPUT, Workspace

__all__ = ["ProgressCallback", "StepRehearsal"]

ProgressCallback = Callable[[str | PointOutcome], None]
"""Receives a line for each stage of the rehearsal, and the outcome of each point."""

_NOTICE_SHARE = 0.25  # of the undisturbed time: a notice longer than the work left would not interrupt it
_HALF_AN_OUTPUT = (
    "exited with 0 on SIGTERM before its function had returned: KFP takes this for a success, "
    "and the next task reads the outputs as they are"
)
_COUNTS_AS_DONE = ": a Job, Argo and KFP count that as done, so the rest is never done"
_MOST_INFORMATIVE = (
    InjectionKind.LIVES,
    InjectionKind.RANK,
    InjectionKind.MIDDLE,
    InjectionKind.SAVE,
    InjectionKind.END,
    InjectionKind.OUTPUTS,
    InjectionKind.SEVERAL,
    InjectionKind.START,
)
"""The order of points under a time budget: first the lives, which decide whether it resumes, then what breaks most steps."""

_SHORT_STEP = (
    2.0  # seconds: a shorter step is executed a second time alone, because its first time is mostly a cold start
)
_SHORT_LIMIT = 30.0  # seconds: with a limit up to this one, a point that exceeds it is tried again
_ONLY_ONCE = "it succeeded once, and then "
_NEEDS_THE_MACHINE = "Address already in use"  # in a problem: the step needs a resource that only one trial can have
_VARIES_PERHAPS = "the budget ended before it was known whether it differs undisturbed too"
_ROOM_FOR_LONGER = 4  # trials at the same time: then longer lives run beside the others, not after them
_MOST_STATES = 200  # files of the state that are compared
_LONGEST_WITHOUT = 0.6  # of the work, without a save: then the number of saves measures it
_MOST_REPEATS = 4  # of one point: a step that takes an eighth of its first time is still interrupted in the middle
_EXTRA_EXECUTIONS = 2  # undisturbed, before a difference is first attributed to an interruption


def _are_spread(saves: Sequence[float], phase: WorkPhase) -> bool:
    """Whether a step makes operations on saves, at these moments, in all parts of its work."""
    gaps = (after - before for before, after in pairwise([phase.begin, *saves, phase.end]))
    return max(gaps) <= _LONGEST_WITHOUT * phase.seconds


def _slug(task: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", task)[:60]


class _FailsUndisturbedError(Exception):
    """A later undisturbed execution failed."""

    def __init__(self, trial: TrialRun) -> None:
        super().__init__(trial.why)
        self.trial = trial


class StepRehearsal:
    """Executes and evaluates one step. :meth:`perform` does all of it."""

    def __init__(
        self,
        runner: TrialRunner,
        workspace: Workspace,
        settings: RehearsalSettings,
        task: str,
        first: TrialRun,
        report: ProgressCallback,
    ) -> None:
        self._runner, self._settings, self._task, self._first, self._report = runner, settings, task, first, report
        self._workspace, self._outputs = workspace, workspace.outputs
        self._began = time.monotonic() - (first.last_attempt(task).seconds if task in first.executed else 0.0)
        self._is_given_up = False
        self._longest_trial = 0.0
        self._room = 1
        self._baseline = Baseline(0.0)
        self._phase, self._are_spread = WorkPhase(0.0, 0.0), False
        self._traced_seconds = 0.0
        self._undisturbed_seconds: list[float] = []
        self._undisturbed_operations: list[Sequence[FileOperation]] = []
        self._undisturbed_folders: list[Path] = []
        self._noise: list[Difference] = []
        self._second: TrialRun | None = None  # an undisturbed execution
        self._noise_is_checked = False
        alike = [path for path in first.executed if _slug(path) == _slug(task)]
        self._slug = _slug(task) if alike[:1] in ([], [task]) else f"{_slug(task)}-{alike.index(task) + 1}"

    def perform(self) -> StepReport:
        """Execute and evaluate all trials, and return the report."""
        if self._first.timed_out:
            return self._over_budget()
        if self._first.status is not RunStatus.SUCCEEDED:
            return self._undisturbed_failure(self._first, "")
        self._undisturbed_seconds = [self._first.last_attempt(self._task).seconds]
        self._undisturbed_operations = [_trace_of(self._first, self._task).operations]
        self._undisturbed_folders = [self._first.last_attempt(self._task).folder]
        traced = self._first
        self._measure(traced)
        if self._baseline.seconds < _SHORT_STEP:
            traced = self._run_again(2)
            if traced.is_cut:
                return self._over_budget()
            if traced.status is not RunStatus.SUCCEEDED:
                return self._undisturbed_failure(traced, _ONLY_ONCE)
            self._add_undisturbed(traced)
            self._measure(traced)
        trace = _trace_of(traced, self._task)
        require_ranks(self._settings.ranks or 0, trace)
        activity = _activity(trace)
        self._room = self._measure_room()
        settings = self._settings
        points = draw_points(settings.seed, self._task, activity, settings.interruptions, settings.ranks or 0)
        if self._room >= _ROOM_FOR_LONGER and points:
            short = next(each for each in points if each.kind is InjectionKind.LIVES)
            points += filter(None, [longer_lives(short, kept=False)])
        self._report(f"{self._task}: undisturbed in {_seconds(self._undisturbed_seconds)}; interrupted:")
        if self._budget.is_tight:
            self._report(f"note: {self._budget.advice}")
        try:
            tried = {outcome.point.name: outcome for outcome in self._outcomes(points)}
        except _FailsUndisturbedError as failure:
            return self._undisturbed_failure(failure.trial, _ONLY_ONCE)
        outcomes = [tried.pop(point.name) for point in points] + list(tried.values())
        counts = SaveCounts(trace.operations, self._loads(outcomes))
        unread = self._unread(counts, activity, outcomes)
        if unread:
            kinds = frozenset(map(kind_of, unread))
            trace = _without_unread(trace, kinds)
            activity = replace(_activity(trace), unread=unread)
            outcomes = [_outcome_without_unread(outcome, kinds) for outcome in outcomes]
        changed, not_compared = self._compare_without_variables(trace, outcomes)
        return StepReport(
            task=self._task,
            changed_by_library=changed,
            not_compared_without=not_compared,
            undisturbed_seconds=tuple(self._undisturbed_seconds),
            activity=activity,
            noise=tuple(self._noise),
            outcomes=tuple(self._judged(outcomes, trace.operations, counts)),
            changed_results=_results(outcomes, counts),
            saved_at=tuple(_saved_at(trace, traced.last_attempt(self._task).folder)),
            shares_processes=_shares_processes(traced.last_attempt(self._task).folder),
            not_comparable=self._not_comparable(),
            own=self._baseline.own,
            phase=self._phase,
            pool_notices=tuple(self._pool_notices()),
            notice=self._timing.notice,
            stray_files=trace.stray_files,
            rewritten=rewritten_areas(trace.operations),
            connections=trace.connections,
            budget_advice=self._budget.advice if any(each.trial is None for each in outcomes) else "",
        )

    def _over_budget(self) -> StepReport:
        """The report on a step whose first execution took longer than the budget."""
        self._first.remove_files()
        attempts = self._first.executed.get(self._task, ())
        progress = attempts[-1].progress if attempts else None
        return StepReport(self._task, (), not_comparable=TrialBudget(self._settings.budget).given_up(progress))

    @property
    def _budget(self) -> TrialBudget:
        """The time budget, after all executions so far."""
        undisturbed, executions = self._baseline.seconds, sum(self._undisturbed_seconds)
        return TrialBudget(self._settings.budget, undisturbed, executions, self._room, self._longest_trial)

    def _measure(self, trial: TrialRun) -> None:
        """Find the work phase and the measure of work in an undisturbed execution."""
        trace, attempt = _trace_of(trial, self._task), trial.last_attempt(self._task)
        self._traced_seconds = attempt.seconds
        self._phase = work_phase(trace, attempt.seconds)
        self._are_spread = _are_spread([each.at for each in trace.operations if is_save(each)], self._phase)
        own, before = (
            own_work(trace, self._phase, attempt.cpu_seconds, attempt.first_progress, attempt.progress),
            self._baseline,
        )
        if before.own is not None and (own is None or before.own.start + before.own.seconds < own.start + own.seconds):
            own = before.own  # a cold start is not work
        own_seconds = own.start + own.seconds if own is not None else None
        self._baseline = Baseline(min(self._undisturbed_seconds), own_seconds, own, attempt.progress)

    def _run_again(self, number: int, delay: float = 0.0) -> TrialRun:
        """Execute the step undisturbed once more, after a delay in seconds."""
        time.sleep(delay)
        name = f"{self._slug}-undisturbed{f'-{number}' if number > 2 else ''}"
        timing = TrialTiming(self._baseline.seconds, left=self._left)
        return self._runner.run_again(name, self._task, self._first, timing)

    def _add_undisturbed(self, trial: TrialRun) -> None:
        """Use the second execution: its differences are noise, and its time counts if it is shorter."""
        self._second = trial
        self._undisturbed_seconds.append(trial.attempts[-1].seconds)
        self._undisturbed_operations.append(_trace_of(trial, self._task).operations)
        self._undisturbed_folders.append(trial.attempts[-1].folder)
        self._noise += without_noise(self._differences(trial), self._noise)
        self._baseline = replace(self._baseline, seconds=min(self._undisturbed_seconds))

    @property
    def _timing(self) -> TrialTiming:
        undisturbed = self._baseline.seconds
        limit = LIMIT_FACTOR * undisturbed + LIMIT_SECONDS
        last_limit = BUSY_LIMIT_FACTOR * undisturbed + LIMIT_SECONDS
        notice, own = self._notice(undisturbed), self._baseline.own
        return TrialTiming(undisturbed, notice, limit, last_limit, self._left, self._phase_now, own)

    @property
    def _phase_now(self) -> WorkPhase:
        """The work phase, scaled to the shortest time that the step has taken so far."""
        traced = self._traced_seconds or self._baseline.seconds or 1.0
        return self._phase.within(min(1.0, self._baseline.seconds / traced))

    def _undisturbed_failure(self, trial: TrialRun, prefix: str) -> StepReport:
        """The report on a step that fails by itself, or whose upstream tasks fail: it cannot be rehearsed."""
        for task, attempts in trial.executed.items():
            last = attempts[-1]
            if last.cause != Cause.SUCCEEDED:
                failure = f"{prefix}task {task} {_ending(last)}"
                return StepReport(self._task, (), undisturbed_failure=failure, failed_trial=trial)
        return StepReport(self._task, (), undisturbed_failure=f"{prefix}{trial.why}", failed_trial=trial)

    def _outcomes(self, points: Sequence[InjectionPoint]) -> Iterator[PointOutcome]:
        """Run the trials of the points, side by side where the machine has room, and report their outcomes.

        The undisturbed executions that are still due run beside them. Raises :class:`_FailsUndisturbedError` if one fails.
        """
        is_limited = self._settings.budget is not None
        ordered = sorted(points, key=lambda point: _MOST_INFORMATIVE.index(point.kind)) if is_limited else points
        trials: list[tuple[InjectionPoint | None, Callable[[], TrialRun]]] = [
            (point, partial(self._run_point, points.index(point) + 1, point)) for point in ordered
        ]
        decisive = MIN_INTERRUPTED if is_limited else 0  # these trials first: without them there is no verdict
        trials[decisive:decisive] = [(None, execution) for execution in self._executions_beside(len(points))]
        results = run_side_by_side(
            [run for _, run in trials],
            self._room,
            lambda number: number == 0 or self._may_start(trials[number][0]),
            lambda: self._is_given_up,
        )
        for (point, _), trial in zip(trials, results, strict=True):
            if point is None:
                self._add_execution(trial)
                continue
            outcome = PointOutcome(point) if trial is None else self._concluded(point, trial)
            for repeat in range(_MOST_REPEATS):
                repeated = self._point_to_repeat(outcome, repeat)
                if repeated is None:
                    break
                number = (repeat + 1) * len(points) + points.index(point) + 1
                outcome = self._concluded(repeated, self._run_point(number, repeated))
            self._is_given_up = self._is_given_up or outcome.never_finishes
            self._report(outcome)
            yield outcome
            longer = self._longer(outcome)
            if longer is not None and longer not in points:
                number = len(points) + points.index(point) + 1
                outcome = PointOutcome(longer)
                if self._may_start(longer):
                    outcome = self._concluded(longer, self._run_point(number, longer))
                self._report(outcome)
                yield outcome

    def _longer(self, outcome: PointOutcome) -> InjectionPoint | None:
        """The point of longer lives that decides if the lives of a point have not."""
        lives = outcome.lives
        if lives is None or lives.is_ended or not lives.has_saved or lives.is_stuck:
            return None
        return longer_lives(outcome.point, kept=lives.kept_something)

    def _point_to_repeat(self, outcome: PointOutcome, repeats: int) -> InjectionPoint | None:
        """The point to repeat alone because its trials so far do not show an interruption; else ``None``.

        A trial may have lacked an exclusive resource: it is repeated once. A short step's attempt that takes too long may have
        waited for a busy disk, which is not measured: it counts only the second time. Or the step ended before its interruption
        because it became faster: then the interruption comes earlier each time.
        """
        if outcome.never_finishes:
            return outcome.point if self._timing.limit <= _SHORT_LIMIT and not repeats else None
        if outcome.problem:
            needs_machine = self._room > 1 and _NEEDS_THE_MACHINE in outcome.problem and not repeats
            return outcome.point if needs_machine else None
        is_missed = outcome.trial is not None and not outcome.is_interrupted
        return outcome.point.earlier() if is_missed and self._may_start(outcome.point) else None

    def _executions_beside(self, points: int) -> list[Callable[[], TrialRun]]:
        """The undisturbed executions that run beside the trials of this many points.

        These are the second one, if still due, and the checks of noise, if all trials run in parallel anyway. The last one
        begins when the interrupted steps restart, and so ends with them: it shows the effects of time.
        """
        if len(self._undisturbed_seconds) > 1:
            return []
        executions: list[Callable[[], TrialRun]] = [partial(self._run_again, 2)]
        if self._settings.budget is None and self._room > points + _EXTRA_EXECUTIONS:
            executions += [partial(self._run_again, 3), partial(self._run_again, 4, self._baseline.seconds)]
            self._noise_is_checked = True
        return executions

    def _add_execution(self, trial: TrialRun | None) -> None:
        """Use an undisturbed execution that ran beside the trials, unless the budget ended first."""
        if trial is None or trial.is_cut:
            return
        if trial.status is not RunStatus.SUCCEEDED:
            raise _FailsUndisturbedError(trial)
        if len(self._undisturbed_seconds) == 1:
            self._add_undisturbed(trial)
        else:
            self._add_noise(trial)

    def _may_start(self, point: InjectionPoint | None) -> bool:
        """Whether to start one more trial, or an undisturbed execution.

        Not if it would end after the budget, or once the step never finishes.
        """
        if self._is_given_up:  # further points would take as long, with the same result
            return False
        budget = self._budget
        expected = budget.undisturbed if point is None else budget.trial
        if point is not None and point.kind is InjectionKind.LIVES:
            expected = budget.lives
        return budget.has_room(time.monotonic() - self._began, expected)

    @property
    def _left(self) -> float:
        """The seconds until the budget ends."""
        return self._budget.left(time.monotonic() - self._began)

    def _measure_room(self) -> int:
        """The number of parallel trials: one if they would share claims or kept paths."""
        first = self._first.last_attempt(self._task)
        if self._workspace.is_shared(self._task):
            return 1
        waited = _trace_of(self._first, self._task).waited
        return room_for(first.seconds - waited, first.cpu_seconds, first.max_rss)

    def _run_point(self, number: int, point: InjectionPoint) -> TrialRun:
        name = f"{self._slug}-{number:02d}-{re.sub('[^a-z0-9]+', '-', point.name)}"
        return self._runner.run_interrupted(name, self._task, self._first, point.injections, self._timing)

    def _concluded(self, point: InjectionPoint, trial: TrialRun) -> PointOutcome:
        """Evaluate a trial that has ended; remove its files if they show no problem."""
        if point.kind not in (
            InjectionKind.START,
            InjectionKind.LIVES,
            InjectionKind.SEVERAL,
        ):  # of one attempt, and of many
            self._longest_trial = max(self._longest_trial, trial.seconds)
        if trial.is_cut:
            trial.remove_files()
            return PointOutcome(point, inconclusive=f"cut after {trial.seconds:.2g}s, when the budget ended")
        outcome = self._evaluate(point, trial)
        if outcome.differences and not self._noise_is_checked:
            if not self._check_noise():
                return PointOutcome(point, inconclusive=f"{outcome.problem}; {_VARIES_PERHAPS}")
            outcome = self._evaluate(point, trial)
        if not outcome.problem:
            outcome = replace(outcome, repeated=self._repeated(trial), changed=tuple(self._changed(trial)))
            trial.remove_files()
        is_whole = trial.status is RunStatus.SUCCEEDED and not trial.injected  # an undisturbed execution
        if is_whole or (point.kind is InjectionKind.START and not outcome.problem):  # or nearly
            seconds = min(self._baseline.seconds, trial.attempts[-1].seconds)
            self._baseline = replace(self._baseline, seconds=seconds)
        return self._measured(outcome)

    def _changed(self, trial: TrialRun) -> Iterator[tuple[str, str]]:
        """The files of the step's state that differ from two undisturbed executions: the state, and the place."""
        if self._second is None or not trial.injected:
            return
        first, second = (dict(self._workspace.states(each, self._task)) for each in (self._first, self._second))
        written = {each.path for operations in self._undisturbed_operations for each in operations if is_save(each)}
        for name, state in self._workspace.states(trial, self._task):
            for path in sorted(written)[:_MOST_STATES]:
                files = [each / path for each in (first[name], second[name], state)]
                if all(each.is_file() for each in files) and _same(*files[:2]) and not _same(*files[1:]):
                    yield name, path

    def _repeated(self, trial: TrialRun) -> tuple[str, str] | None:
        """The first file of the step's state with rows that occur more often than undisturbed, and the first such row."""
        appended = {each.path for operations in trial.operations for each in operations if each.appends}
        undisturbed = dict(self._workspace.states(self._first, self._task))
        for name, state in self._workspace.states(trial, self._task) if trial.injected else ():
            for path in sorted(appended):
                inside = path if state.is_dir() else ""
                row = repeated_row(undisturbed[name] / inside, state / inside)
                if row:
                    return str(Path(name, inside)), row
        return None

    def _measured(self, outcome: PointOutcome) -> PointOutcome:
        """Add the cost of an outcome's interruptions, and its lives."""
        trial, baseline = outcome.trial, self._baseline
        if trial is None or outcome.problem:
            return outcome
        lives = lives_of(outcome.point, trial, baseline.own, self._saves)
        return replace(outcome, cost=cost_of(trial, baseline), lives=lives)

    @property
    def _saves(self) -> int:
        """The undisturbed step's number of operations on saves; 0 if they do not measure its work.

        Their number varies, a database decides it, or a large part of the work has none.
        """
        numbers = {sum(map(is_save, operations)) for operations in self._undisturbed_operations}
        is_mapped = any(area == SAVES for area, _ in _trace_of(self._first, self._task).mapped)
        if len(numbers) != 1 or self._has_database or is_mapped or not self._are_spread:
            return 0
        return numbers.pop()

    def _check_noise(self) -> bool:
        """Execute the step undisturbed again before the first difference counts, because outputs may vary only sometimes.

        Returns whether they were compared at all; the budget may be too short for it.
        """
        executions = [partial(self._run_again, number) for number in range(3, 3 + _EXTRA_EXECUTIONS)]
        for again in run_side_by_side(executions, self._room, lambda _: True):
            if again is not None and again.status is RunStatus.SUCCEEDED:
                self._add_noise(again)
        self._noise_is_checked = len(self._undisturbed_folders) > 1
        return self._noise_is_checked

    def _add_noise(self, trial: TrialRun) -> None:
        self._noise += without_noise(self._differences(trial), self._noise)
        self._undisturbed_folders.append(trial.attempts[-1].folder)
        trial.remove_files()

    def _evaluate(self, point: InjectionPoint, trial: TrialRun) -> PointOutcome:
        last = trial.attempts[-1] if trial.attempts else None
        if trial.timed_out and not trial.injected:  # the machine was too busy: not evidence about interruptions
            return PointOutcome(point, trial)
        if trial.timed_out and last is not None:
            problem = (
                f"attempt {last.number} was given up after {last.seconds:.3g}s; "
                f"undisturbed it takes {self._baseline.seconds:.3g}s"
            )
            return PointOutcome(point, trial, problem, never_finishes=True)
        if trial.status is not RunStatus.SUCCEEDED:
            problem = f"attempt {last.number} {_ending(last)}" if last is not None else trial.why
            return PointOutcome(point, trial, problem)
        for attempt in trial.attempts:
            if attempt.accepted_by_kfp:
                return PointOutcome(point, trial, f"attempt {attempt.number} {_HALF_AN_OUTPUT}")
            if attempt.ended_early and (attempt.progress or 0.0) < (self._baseline.last_progress or 1.0):
                problem = (
                    f"attempt {attempt.number} exited with 0 at {attempt.progress:.0%} of its work{_COUNTS_AS_DONE}"
                )
                return PointOutcome(point, trial, problem, ended_early=True)
        differences = without_noise(self._differences(trial), self._noise)
        if differences and trial.injected:  # without an interruption, a difference is noise
            more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
            paths = self._output_paths(trial, differences[0].output)
            return PointOutcome(
                point, trial, f"{differences[0]}{more}", differences=tuple(differences), output_paths=paths
            )
        return PointOutcome(point, trial)

    def _compare_without_variables(
        self, trace: AttemptTrace, outcomes: Sequence[PointOutcome]
    ) -> tuple[tuple[Difference, ...], str]:
        """The differences of outputs in an execution without Spotwright's variables, or why they are unknown.

        Only a step that uses the checkpoint folder can change. Files of this execution alone do not count: without that folder,
        a library saves beside the outputs. Nor does standard output, where the library reports its folder.
        """
        uses_place = trace.failure or any(each.area == SAVES for each in trace.operations)
        if not uses_place or any(outcome.problem for outcome in outcomes):
            return (), ""
        if not self._may_start(None):
            return (), "the time budget was spent"
        limits = self._timing
        timing = TrialTiming(limits.undisturbed, limit=limits.limit, last_limit=limits.last_limit, left=self._left)
        trial = self._runner.run_without_variables(f"{self._slug}-without", self._task, self._first, timing)
        if trial.is_cut:
            return (), "the time budget ended before it did"
        if trial.timed_out:
            return (), "without them it does not end"
        if trial.status is not RunStatus.SUCCEEDED:
            return (), f"without them it fails: {_ending(trial.attempts[-1]) if trial.attempts else trial.why}"
        found = self._changes(trial)
        if found and not self._noise_is_checked and not self._check_noise():
            return (), _VARIES_PERHAPS
        found = self._changes(trial)
        if not found:
            trial.remove_files()
        return tuple(found), ""

    def _changes(self, trial: TrialRun) -> list[Difference]:
        differences = without_noise(self._differences(trial), self._noise)
        return [each for each in differences if each.text != UNEXPECTED and each.output != STANDARD_OUTPUT]

    def _loads(self, outcomes: Sequence[PointOutcome]) -> Iterator[Collection[str]]:
        """The files that each attempt of all trials has read."""
        for trial in (each.trial for each in outcomes if each.trial is not None):
            yield from (trace.loads or () for trace in trial.traces.get(self._task, ()))

    def _unread(self, counts: SaveCounts, activity: FileActivity, outcomes: Sequence[PointOutcome]) -> tuple[str, ...]:
        """The files that are not saves because no attempt reads them; empty if some reads were missed."""
        trials = [each.trial for each in outcomes if each.trial is not None]
        loads = [trace.loads for trial in trials for trace in trial.traces.get(self._task, ())]
        return () if None in loads else tuple(path for path in counts.unread if path not in activity.mapped)

    def _judged(
        self, outcomes: Sequence[PointOutcome], undisturbed: Sequence[FileOperation], counts: SaveCounts
    ) -> Iterator[PointOutcome]:
        """The outcomes with what the attempts resumed from."""
        found = [() if each.trial is None else resumes_of(each.trial, undisturbed, counts) for each in outcomes]
        told = settled(found)
        loads = any(resume.origin is Origin.NEWEST for resumes in told for resume in resumes)
        is_counted, has_database = self._counts_saves(counts), self._has_database
        for outcome, resumes in zip(outcomes, told, strict=True):
            lost = [
                each
                for each in resumes
                if each.is_all_lost
                and (each.origin is None or (loads and len(outcome.point.injections) == 1))
                and (is_counted or not (each.loaded or has_database))
            ]
            judged = replace(outcome, resumes=resumes, generators=self._generators(outcome))
            yield _without_saves(judged, lost[0]) if lost and not outcome.problem else judged

    def _generators(self, outcome: PointOutcome) -> tuple[str, ...] | None:
        """The random generators whose final state differs from undisturbed, for an outcome whose outputs differ."""
        if outcome.trial is None or not outcome.differences:
            return None
        return changed_generators(self._undisturbed_folders, outcome.trial.attempts[-1].folder)

    def _counts_saves(self, counts: SaveCounts) -> bool:
        """Whether each undisturbed execution makes the same number of saves, which then shows where an attempt resumed.

        A single execution does not show it.
        """
        numbers = [counts.count(each) for each in self._undisturbed_operations]
        return not self._has_database and len(numbers) > 1 and len(set(numbers)) == 1

    @property
    def _has_database(self) -> bool:
        """Whether the step writes an SQLite database, whose writes are not saves: it decides when to make them."""
        every = self._undisturbed_operations
        return any(re.search(r"-(?:journal|wal)$", each.path) for operations in every for each in operations)

    def _not_comparable(self) -> str:
        """Why outputs cannot be compared; empty if one can."""
        outputs = self._outputs(self._first, self._task)
        if compared_names(outputs, self._noise):
            return ""
        if not outputs:
            return "it has no output that could be compared: name one with --output"
        return f"what it writes differs without any interruption: nothing of {', '.join(outputs)} could be compared"

    def _differences(self, trial: TrialRun) -> list[Difference]:
        old, new = self._outputs(self._first, self._task), self._outputs(trial, self._task)
        return compare_outputs(old, new, self._settings.tolerance, self._settings.compare)

    def _output_paths(self, trial: TrialRun, output: str) -> tuple[Path, ...]:
        both = (self._outputs(each, self._task).get(output) for each in (self._first, trial))
        return tuple(each for each in both if isinstance(each, Path))

    def _pool_notices(self) -> Iterator[tuple[str, float]]:
        pools = self._runner.plan.config.pools
        for name in self._first.pools[self._task]:
            if pools[name].is_spot:
                yield name, pools[name].notice

    def _notice(self, undisturbed: float) -> float:
        """Seconds of notice: as set, else the shortest of the pools' notices and a quarter of the undisturbed time.

        A quarter of the time at work would be milliseconds for steps that mostly import, too short for a rank to save.
        """
        if self._settings.notice is not None:
            return self._settings.notice
        of_pools = [notice for _, notice in self._pool_notices() if notice > 0]
        own = self._baseline.own_seconds or undisturbed  # each notice is stretched by the current load
        return min([max(0.05, min(own, undisturbed) * _NOTICE_SHARE), *of_pools])


def _seconds(durations: Sequence[float]) -> str:
    return " and ".join(f"{seconds:.2g}s" for seconds in durations)


_same = partial(filecmp.cmp, shallow=False)


def _results(outcomes: Sequence[PointOutcome], counts: SaveCounts) -> tuple[str, ...]:
    """The files of the state that differ after an interruption and that only a user may read."""
    twice = {each.repeated[0] for each in outcomes if each.repeated is not None}
    found = (pair for outcome in outcomes for pair in outcome.changed if pair[1] not in counts)
    return tuple(dict.fromkeys(str(Path(*pair)) for pair in found if str(Path(*pair)) not in twice))


def _saved_at(trace: AttemptTrace, folder: Path) -> Iterator[tuple[str, str]]:
    """The files that the undisturbed step saves last, each with the line of its Python code that opens it for writing."""
    lines = writing_lines(folder)
    for path in dict.fromkeys(each.path for each in reversed(trace.operations) if is_save(each)):
        line = next((line for written, line in lines.items() if written.endswith(f"/{path}")), "")
        if line:
            yield path, line


def _shares_processes(folder: Path) -> str:
    """Why an attempt's command was not process 1 of a new namespace; empty if it was, or for a task."""
    try:
        return Path(folder, NOT_PROCESS_1).read_text("utf-8")
    except FileNotFoundError:
        return ""


def _trace_of(trial: TrialRun, task: str) -> AttemptTrace:
    """The trace of a task's first attempt."""
    return next(iter(trial.traces.get(task, ())), AttemptTrace(failure="no attempt of it was traced"))


def _activity(trace: AttemptTrace) -> FileActivity:
    if trace.failure:
        return FileActivity(tracing_failure=trace.failure)
    activity = summarize_activity(trace.operations)
    return replace(activity, mapped=tuple(path for area, path in trace.mapped if area == SAVES))


def _without_unread(trace: AttemptTrace, kinds: Collection[str]) -> AttemptTrace:
    """A trace with files of these kinds in a separate area, so that they do not count as saves."""
    operations = (
        replace(each, area=UNREAD) if each.area == SAVES and kind_of(each.path) in kinds else each
        for each in trace.operations
    )
    return replace(trace, operations=tuple(operations))


def _outcome_without_unread(outcome: PointOutcome, kinds: Collection[str]) -> PointOutcome:
    if outcome.trial is None:
        return outcome
    every = outcome.trial.traces.items()
    traces = {task: tuple(_without_unread(trace, kinds) for trace in of_task) for task, of_task in every}
    return replace(outcome, trial=replace(outcome.trial, traces=traces))


def _without_saves(outcome: PointOutcome, lost: Resume) -> PointOutcome:
    """The outcome of a trial in which every save was lost."""
    if lost.lost_by is None:
        return outcome
    if lost.origin is None and lost.lost_until in (None, lost.lost_by):
        what = "no whole save was left"
    elif lost.origin is None and lost.lost_until is not None:
        what = f"no whole save was left until {happened(lost.lost_until)}"
    else:
        what = f"the whole save {', '.join(lost.newest)} was no longer found"
    problem = f"when {happened(lost.lost_by)}, {what}, and attempt {lost.attempt} began from the start"
    return replace(outcome, problem=problem, cost=None, lost_by=lost.lost_by)


def _ending(attempt: TrialAttempt) -> str:
    """The cause of an attempt's end, the reason, and the last line of its log, if any."""
    last_line = f": {attempt.last_line}" if attempt.last_line else ""
    return f"{attempt.cause}, {attempt.why}{last_line}"
