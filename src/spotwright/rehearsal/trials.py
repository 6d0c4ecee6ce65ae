"""Trial runs: each executes a single task of the pipeline and interrupts it at an injection point.

Every trial is an ordinary run with journal, attempts and logs, so ``spotwright show`` and ``logs`` work on it. All other tasks
get their results from the undisturbed run, as facts that hold from the trial's start. Simulated nodes boot immediately, and
only the :class:`~spotwright.rehearsal.fault_injector.FaultInjector` reclaims them.
"""

from __future__ import annotations

import selectors
import shutil
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spotwright.engine.decide import judged_signals
from spotwright.engine.events import (
    AttemptDecided,
    AttemptEnded,
    Event,
    RunStatus,
    TaskCached,
    TaskCompleted,
    TaskSkipped,
    TasksUnfolded,
)
from spotwright.engine.loop import Observer
from spotwright.engine.plan import Plan
from spotwright.engine.ports import Clock
from spotwright.engine.state import RunState, TaskState
from spotwright.local.backend import LocalHooks
from spotwright.local.ends import last_line
from spotwright.local.fork_server_client import EarlyServer
from spotwright.local.protocol import LOG, OUT, WORK, StartOrder
from spotwright.model.pools import Simulate
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.fault_injector import FaultInjector, InjectionResult
from spotwright.rehearsal.injection_points import Injection, InjectionKind, is_save
from spotwright.rehearsal.persisted_paths import KEPT
from spotwright.rehearsal.trial_timing import TrialTiming
from spotwright.runs.runner import Prepared, start
from spotwright.scheduling.budgets import FollowUp
from spotwright.scheduling.cause import ended_early

__all__ = ["TaskResults", "TrialAttempt", "TrialRun", "TrialRunner"]


_POLICY = {"interruptions": {"max": 1000, "backoff": "1ms"}, "errors": {"backoff": "1ms"}}
"""The policy of every task in a rehearsal: many interruptions are allowed, and no time is spent between attempts."""

TaskResults = Mapping[str, Mapping[str, Any]]
"""Parameters and artifacts of tasks, by task path."""

_GRAPH_EVENTS = (TasksUnfolded, TaskSkipped, TaskCached, TaskCompleted)


@dataclass(frozen=True, slots=True)
class TrialAttempt:
    """One attempt of a trial: its own time in seconds, why it ended, and the progress that it reported first and last."""

    number: int
    seconds: float
    cause: str
    why: str
    first_progress: float | None
    progress: float | None
    last_line: str
    folder: Path
    cpu_seconds: float = 0.0
    max_rss: int = 0  # bytes
    accepted_by_kfp: bool = False  # it exited with 0 without its outputs, which KFP accepts as a success
    ended_early: bool = False  # it exited with 0 after its notice, with work left
    outlived_notice: bool = False  # it still ran when its notice ended, and was killed
    ended_by_itself: bool = False  # before its notice ended


@dataclass(frozen=True, slots=True)
class TrialRun:
    """The facts of a trial: ``results`` of every task, ``executed`` attempts by task, and what was injected and traced."""

    run: RunFolder
    status: RunStatus
    why: str
    executed: Mapping[str, tuple[TrialAttempt, ...]]
    task: str | None
    results: TaskResults
    pools: Mapping[str, tuple[str, ...]]  # the pools of each task's ladder
    graph_events: tuple[Event, ...] = ()
    injected: tuple[InjectionResult, ...] = ()
    traces: Mapping[str, tuple[AttemptTrace, ...]] = field(default_factory=dict)  # of the traced attempts, by task
    timed_out: bool = False
    is_cut: bool = False  # the budget ended first
    missing_ranks: str = ""  # why the nodes of some ranks could not be reclaimed

    @property
    def attempts(self) -> tuple[TrialAttempt, ...]:
        """The attempts of the trial's task."""
        return self.executed.get(self.task or "", ())

    @property
    def operations(self) -> tuple[tuple[FileOperation, ...], ...]:
        """The file operations of each traced attempt of the trial's task."""
        return tuple(trace.operations for trace in self.traces.get(self.task or "", ()))

    @property
    def save_counts(self) -> tuple[int, ...]:
        """The number of operations on saves of each traced attempt of the trial's task."""
        return tuple(sum(map(is_save, operations)) for operations in self.operations)

    @property
    def tracing_failure(self) -> str:
        """Why an attempt of the trial's task could not be traced; empty if all could."""
        return next((trace.failure for trace in self.traces.get(self.task or "", ()) if trace.failure), "")

    def last_attempt(self, task: str) -> TrialAttempt:
        """The last attempt of a task."""
        return self.executed[task][-1]

    @property
    def seconds(self) -> float:
        """The total time of its attempts."""
        return sum(attempt.seconds for attempt in self.attempts)

    def remove_files(self) -> None:
        """Remove checkpoints, outputs and working folders; logs and records stay. Successful trials need no more."""
        for name in ("checkpoints", KEPT):
            shutil.rmtree(self.run.path / name, ignore_errors=True)
        for attempt in self.attempts:
            for name in (WORK, OUT):
                shutil.rmtree(attempt.folder / name, ignore_errors=True)


class TrialRunner:
    """Runs the trials of a pipeline with its arguments and pools.

    ``prepare`` readies an attempt's folders and returns the ones to watch. ``collect`` receives each ended run and its task, if
    that was executed. ``readable`` are paths of this machine that attempts read. ``passes_on_sigterm``: an attempt's main
    process is Spotwright's, and only passes SIGTERM on. ``ranks``: the number of the step's ranks.
    """

    def __init__(
        self,
        prepared: Prepared,
        prepare: Callable[[StartOrder], Mapping[Path, str]],
        collect: Callable[[Path, str | None], None],
        readable: Sequence[str] = (),
        *,
        passes_on_sigterm: bool = False,
        ranks: int = 0,
    ) -> None:
        stored = prepared.stored
        pools = {
            name: replace(pool, simulate=Simulate(boot=0.0, drain=pool.simulate.drain), max_lifetime=None, min_nodes=0)
            for name, pool in stored.config.pools.items()
        }
        calm = replace(
            stored, config=replace(stored.config, pools=pools), interrupt_every=None, traces={}, policy=_POLICY
        )
        options = replace(prepared.options, cache="off")  # a trial must execute its task
        self._prepared = prepared._replace(planned=prepared.planned._replace(stored=calm), options=options, notes=())
        self._prepare, self._collect, self._readable = prepare, collect, readable
        self._passes_on_sigterm, self._ranks = passes_on_sigterm, ranks
        self._state = StateFolder(prepared.options.state)

    @property
    def plan(self) -> Plan:
        """The plan of every trial."""
        return self._prepared.stored.plan

    @property
    def state(self) -> Path:
        """The state folder of the trials."""
        return self._state.path

    def run_undisturbed(self, name: str, task: str | None, limit: float | None = None) -> TrialRun:
        """Execute a task and everything it needs; without a task the whole pipeline. The task, or every one, is traced.

        An attempt is given up after ``limit`` seconds.
        """
        not_needed = _tasks_not_needed(self.plan, task)
        timing = TrialTiming(0.0, limit=limit, last_limit=limit) if limit is not None else None
        return self._run(name, task, lambda state: _facts_to_skip(state, not_needed), (), timing)

    def run_again(self, name: str, task: str, undisturbed: TrialRun, timing: TrialTiming) -> TrialRun:
        """Execute a task alone and undisturbed."""
        return self.run_interrupted(name, task, undisturbed, (), timing)

    def run_interrupted(
        self, name: str, task: str, undisturbed: TrialRun, injections: Sequence[Injection], timing: TrialTiming
    ) -> TrialRun:
        """Execute a task alone and inject these interruptions."""
        return self._run(name, task, lambda state: _facts_beside(state, task, undisturbed), injections, timing)

    def run_without_variables(self, name: str, task: str, undisturbed: TrialRun, timing: TrialTiming) -> TrialRun:
        """Execute a task alone and undisturbed, without any of the variables that code reads."""
        return self._run(
            name, task, lambda state: _facts_beside(state, task, undisturbed), (), timing, has_variables=False
        )

    def _run(
        self,
        name: str,
        task: str | None,
        initial_facts: Callable[[RunState], Sequence[Event]],
        injections: Sequence[Injection],
        timing: TrialTiming | None,
        *,
        has_variables: bool = True,
    ) -> TrialRun:
        injectors: list[FaultInjector] = []
        graph_events: list[Event] = []

        def make_injector(selector: selectors.BaseSelector, clock: Clock) -> FaultInjector:
            injectors.append(
                FaultInjector(
                    selector,
                    clock,
                    injections=injections,
                    timing=timing,
                    prepare=self._prepare,
                    readable=self._readable,
                    passes_on_sigterm=self._passes_on_sigterm,
                    is_traced=lambda path: task in (None, path),
                    ranks=self._ranks,
                    has_variables=has_variables,
                )
            )
            return injectors[0]

        prepared = self._prepared._replace(options=replace(self._prepared.options, name=name))
        observers = (_collect_graph_events(graph_events),)
        try:
            with EarlyServer(self._state.run(name).path) as server:
                hooks = LocalHooks(server, make_injector)
                folder, state = start(prepared, observers, hooks, given=initial_facts)
        finally:
            for injector in injectors:
                injector.close()
        if state.status is RunStatus.STOPPED:
            raise KeyboardInterrupt
        self._collect(folder.path, task if task in state.tasks and state.tasks[task].attempts else None)
        return _trial_run(folder, state, task, injectors[0], graph_events)


def _collect_graph_events(events: list[Event]) -> Observer:
    """An observer that collects decisions about the graph: tasks unfolded, skipped, or succeeded."""

    def observe(_state: RunState, new: Sequence[Event]) -> None:
        events.extend(event for event in new if _changes_graph(event))

    return observe


def _changes_graph(event: Event) -> bool:
    return isinstance(event, _GRAPH_EVENTS) or (isinstance(event, AttemptDecided) and event.then is FollowUp.SUCCEED)


def _trial_run(
    folder: RunFolder, state: RunState, task: str | None, injector: FaultInjector, graph_events: Sequence[Event]
) -> TrialRun:
    failed = state.tasks[state.failed[0]] if state.failed else None
    lost_a_rank = {each.attempt for each in injector.results if each.injection.kind is InjectionKind.RANK}
    return TrialRun(
        run=folder,
        status=state.status,
        why=f"task {failed.path} fails: {failed.why}" if failed is not None else state.why,
        executed={
            path: tuple(_attempts(folder, each, lost_a_rank)) for path, each in state.tasks.items() if each.attempts
        },
        task=task,
        results={path: _result(each) for path, each in state.tasks.items()},
        pools={path: _pools(each) for path, each in state.tasks.items()},
        graph_events=tuple(graph_events),
        injected=tuple(injector.results),
        traces={path: tuple(traces) for path, traces in injector.traces.items()},
        timed_out=injector.timed_out,
        is_cut=injector.is_cut,
        missing_ranks=injector.missing_ranks,
    )


def _pools(task: TaskState) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for rung in task.plan.ladder.rungs for name in rung.pools))


def _attempts(folder: RunFolder, task: TaskState, lost_a_rank: Collection[int]) -> Iterator[TrialAttempt]:
    for attempt in task.attempts:
        ended = attempt.ended or AttemptEnded(0.0)
        yield TrialAttempt(
            number=attempt.number,
            seconds=ended.seconds or 0.0,
            cause=attempt.cause.value if attempt.cause is not None else "",
            why=attempt.cause_why,
            first_progress=attempt.first_progress,
            progress=attempt.progress,
            last_line=ended.last_line or last_line(folder.attempt(task.path, attempt.number) / LOG),
            folder=folder.attempt(task.path, attempt.number),
            cpu_seconds=ended.cpu_seconds or 0.0,
            max_rss=ended.max_rss or 0,
            accepted_by_kfp=ended.signals.accepted_by_kfp,
            ended_early=ended_early(judged_signals(task, attempt)),
            outlived_notice=ended.signals.noticed and ended.signals.signal == signal.SIGKILL,
            ended_by_itself=ended.signals.noticed
            and ended.signals.signal != signal.SIGKILL
            and attempt.number not in lost_a_rank,
        )


def _result(task: TaskState) -> dict[str, Any]:
    return {"parameters": dict(task.parameters), "artifacts": dict(task.artifacts)}


def _facts_beside(state: RunState, task: str, undisturbed: TrialRun) -> list[Event]:
    """The results of the undisturbed run beside the task, as facts in the order in which they became known there.

    Pipelines around the task are unfolded. Every task beside it or beside one of these pipelines has its result; a neighbour's
    inner tasks do not matter.
    """
    facts: list[Event] = []
    for event in undisturbed.graph_events:
        path, at = event.task, state.last_at
        parent, _, _ = path.rpartition("/")
        if path == task or (parent and not task.startswith(f"{parent}/")):
            continue
        holds_task = not path or task.startswith(f"{path}/")
        if isinstance(event, TasksUnfolded):
            if holds_task:
                facts.append(event.replaced(at=at))
        elif isinstance(event, TaskSkipped):
            facts.append(event.replaced(at=at))
        elif not holds_task:
            facts.append(_cached(state, path, undisturbed.results[path]))
    return facts


def _tasks_not_needed(plan: Plan, task: str | None) -> list[str]:
    """The top-level tasks that a task does not need."""
    if task is None:
        return []
    planned = {each.path: each for each in plan.unfold("")}
    first = task.split("/", 1)[0]
    needed, left = set(), [first]
    while left:
        path = left.pop()
        if path not in needed:
            needed.add(path)
            left += planned[path].spec.after
    return [path for path in planned if path not in needed]


def _facts_to_skip(state: RunState, not_needed: Sequence[str]) -> list[Event]:
    """Facts that mark tasks as done without an execution; other tasks do not read their results."""
    if not not_needed:
        return []
    return [TasksUnfolded(state.last_at), *(_cached(state, path, {}) for path in not_needed)]


def _cached(state: RunState, path: str, result: Mapping[str, Any]) -> Event:
    return TaskCached(
        state.last_at,
        path,
        run=state.meta.run,
        of_task=path,
        parameters=result.get("parameters", {}),
        artifacts=result.get("artifacts", {}),
    )
