"""Trial runs: each executes a single task of the pipeline, and interrupts it as an injection point says.

Every trial is an ordinary run with journal, attempts and logs, so ``spotwright show`` and ``logs`` tell what happened in it.
All other tasks get their results from the undisturbed run, as facts that hold from the trial's start. Simulated nodes boot
immediately, and only the :class:`~spotwright.rehearsal.fault_injector.FaultInjector` takes them.

Trials run side by side, each in a forked process, as far as the processor has room for them. Paths outside its own folders to
which a step writes by itself (a mounted volume, a shared folder) are copies for each trial.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import selectors
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

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
from spotwright.errors import InputError, StateError
from spotwright.interrupts import interrupts_held, release_interrupts
from spotwright.local.ends import last_line
from spotwright.local.fork_server_client import EarlyServer
from spotwright.local.protocol import LOG, OUT, WORK, StartOrder
from spotwright.local.supervisor import kernel
from spotwright.local.world import LocalHooks
from spotwright.model.pools import Simulate
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.fault_injector import FaultInjector, InjectionResult
from spotwright.rehearsal.injection_points import SAVES, Injection, InjectionKind
from spotwright.rehearsal.trial_timing import TrialTiming
from spotwright.runs.runner import Prepared, start
from spotwright.scheduling.budgets import FollowUp
from spotwright.scheduling.cause import ended_early

__all__ = [
    "KEPT",
    "PersistedPaths",
    "TaskResults",
    "TrialAttempt",
    "TrialRun",
    "TrialRunner",
    "copy_path",
    "remove_path",
    "room_for",
    "run_side_by_side",
]


_PDEATHSIG = 1  # of prctl(2)
_OWN_CPU_SECONDS = 0.3  # of a trial beside the step: its engine, fork server and shim
_MOST = 32
_SHORT = 1.0  # seconds: in a shorter step, starting its processes takes a core for a large part of the time


def room_for(seconds: float, cpu_seconds: float, max_rss: int) -> int:
    """How many trials of a step run at the same time, from what an undisturbed execution took. ``max_rss`` is in bytes.

    ``seconds`` are without those in which it waited for a processor: on a busy machine it seems idle, and no core is.
    On a machine with a GPU it is one, because the trials would share its memory.
    """
    if Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists():
        return 1
    cores = len(os.sched_getaffinity(0))
    share = 1.0 if seconds < _SHORT else (cpu_seconds + _OWN_CPU_SECONDS) / seconds
    return max(1, min(round(cores / share), _MOST, _available_memory() // 2 // max(max_rss, 1)))


def _available_memory() -> int:
    """Bytes, as the kernel estimates them."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


T = TypeVar("T")


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int
    data: bytearray = field(default_factory=bytearray)


def _never() -> bool:
    return False


def run_side_by_side(
    trials: Sequence[Callable[[], T]],
    room: int,
    may_start: Callable[[int], bool],
    is_over: Callable[[], bool] = _never,
) -> Iterator[T | None]:
    """The results of the trials in their order; None for one that ``may_start``, asked with its number, has refused.

    At most ``room`` of them run at the same time. Once ``is_over``, asked after each result that the caller took, the trials that
    still run are ended and have no result. A trial that raises ends the others, and its error is raised here; after Ctrl-C every
    trial ends its own run first.
    """
    if room == 1:
        for number, trial in enumerate(trials):
            yield trial() if may_start(number) else None
        return
    with contextlib.closing(_Workers(room)) as workers:
        results: dict[int, T | None] = {}
        waiting = list(enumerate(trials))
        for number in range(len(trials)):
            while number not in results and not is_over():
                while waiting and workers.has_room:
                    following, trial = waiting.pop(0)
                    if may_start(following):
                        workers.start(following, trial)
                    else:
                        results[following] = None
                if number not in results:
                    results.update(workers.wait())
            yield results.pop(number, None)


class _Workers:
    """The processes of trials that are under way."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, _Worker] = {}  # by the descriptor of the result

    @property
    def has_room(self) -> bool:
        return len(self._workers) < self._room

    def start(self, number: int, trial: Callable[[], Any]) -> None:
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with interrupts_held():  # until this trial is among those that close() interrupts
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                _run_and_report(trial, writer, parent)
            os.close(writer)
            self._workers[reader] = _Worker(number, pid)
            self._selector.register(reader, selectors.EVENT_READ)

    def wait(self) -> dict[int, Any]:
        """Wait until trials end. Returns their results by number."""
        results = {}
        for key, _ in self._selector.select():
            worker = self._workers[key.fd]
            data = os.read(key.fd, 1 << 20)
            worker.data += data
            if not data:
                self._remove(key.fd, worker)
                results[worker.number] = _result_of(worker)
        return results

    def close(self) -> None:
        """Interrupt what is still under way, as Ctrl-C does, and wait until it has ended its run."""
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        for descriptor, worker in list(self._workers.items()):
            while os.read(descriptor, 1 << 20):
                continue  # a full pipe would keep the trial from ending
            self._remove(descriptor, worker)
        self._selector.close()

    def _remove(self, descriptor: int, worker: _Worker) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        os.waitpid(worker.pid, 0)
        del self._workers[descriptor]


def _run_and_report(trial: Callable[[], Any], writer: int, parent: int) -> NoReturn:
    """Run a trial in its own process and send its result. Never returns."""
    code = 130
    try:
        try:
            code = _run(trial, writer, parent)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    finally:  # also where a second Ctrl-C interrupts the lines above: the code of the parent must not run twice
        os._exit(code)


def _run(trial: Callable[[], Any], writer: int, parent: int) -> int:
    try:
        # A shell starts background jobs with SIGINT ignored, and a trial must end at it all the same.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        release_interrupts()
        kernel.prctl(_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            return 1
        with open(writer, "wb") as result:
            pickle.dump(trial(), result)
    except KeyboardInterrupt:
        return 130
    except BaseException:  # noqa: BLE001 (top level of a process)
        traceback.print_exc()
        return 1
    return 0


def _result_of(worker: _Worker) -> Any:
    if not worker.data:
        raise StateError("the process of a trial ended without a result; its messages stand above")
    return pickle.loads(bytes(worker.data))  # noqa: S301 (written by our own fork)


KEPT = "kept"
"""The folder of a run with the final content of the persisted paths."""


class PersistedPaths:
    """Copies, below ``folder``, of the absolute ``paths`` that outlive an attempt.

    ``outputs`` are paths in them whose content is stored after each trial.
    """

    def __init__(self, paths: Sequence[str], folder: Path, outputs: Sequence[str] = ()) -> None:
        self._folder = folder.absolute()
        self._copies = {
            path: self._folder / "live" / f"{number}-{Path(path).name}" for number, path in enumerate(paths, start=1)
        }
        self._outputs = tuple(outputs)
        self._named_paths: set[str] = set()

    def copy(self) -> None:
        """Make the copies, which may take long. Raises :class:`InputError` where the disk has no room for them."""
        for path, copy in self._copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                copy_path(Path(path), copy)
            except (OSError, shutil.Error) as error:
                raise InputError(f"--keep {path}: cannot be copied for the rehearsal: {error}") from error

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._copies)

    def replace_in(self, value: Any) -> Any:
        """An argument with each persisted path in it, or the beginning of a longer path, replaced by its copy."""
        if isinstance(value, str):
            for path, copy in self._copies.items():
                if path in value:
                    self._named_paths.add(path)
                    value = value.replace(path, str(copy))
            return value
        if isinstance(value, list | tuple):
            return type(value)(self.replace_in(item) for item in value)
        if isinstance(value, Mapping):
            return {key: self.replace_in(item) for key, item in value.items()}
        return value

    def require_all_named(self) -> None:
        """Raise :class:`InputError` for a path in no argument: the step could not be redirected to its copy."""
        for path in self._copies.keys() - self._named_paths:
            raise InputError(
                f"--keep {path}: no argument names this path, so the step cannot be given a copy of it; "
                "make the path an argument"
            )

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Reset the copies before the first attempt of a trial; return the paths to watch with their area."""
        initial = self._folder / "begun"
        if order.attempt == 1:
            for copy in self._copies.values():
                if initial.exists():
                    remove_path(copy)
                    copy_path(initial / copy.name, copy)
                else:
                    copy_path(copy, initial / copy.name)
            initial.mkdir(parents=True, exist_ok=True)
        return dict.fromkeys(self._copies.values(), SAVES)

    def collect(self, run: Path) -> None:
        """Store the outputs in it after a trial beside its attempts: the rest is state, and not compared."""
        for output in self._outputs:
            for path, copy in self._copies.items():
                if Path(output).is_relative_to(path):
                    inside = Path(output).relative_to(path)
                    copy_path(copy / inside, run / KEPT / copy.name / inside)

    def content(self, run: Path) -> dict[str, Path]:
        """The content after a trial, by the real paths."""
        return {path: run / KEPT / copy.name for path, copy in self._copies.items()}


def copy_path(source: Path, target: Path) -> None:
    """Copy a file or folder; do nothing if it does not exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=_copy_file)
    elif source.exists():
        _copy_file(str(source), str(target))


_CLONE = 0x40049409  # FICLONE of ioctl_ficlone(2)


def _copy_file(source: str, target: str) -> None:
    """Copy a file with its times; where the file system can (Btrfs, XFS), both share their blocks until one is changed."""
    if not Path(source).is_file():
        return  # a socket or a pipe: nothing to copy
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        try:
            fcntl.ioctl(new.fileno(), _CLONE, old.fileno())
        except OSError:  # the file system cannot, or the two are not on one
            shutil.copyfileobj(old, new, 1 << 20)
    shutil.copystat(source, target)


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; 0 if there is none."""
    if not path.is_dir():
        return path.lstat().st_size if path.exists() else 0
    return sum(os.lstat(Path(here, name)).st_size for here, _, names in os.walk(path) for name in names)


def remove_path(path: Path) -> None:
    """Remove a file or folder; do nothing if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
    accepted_by_kfp: bool = False  # it exited with 0 without its outputs, which KFP takes for a success
    ended_early: bool = False  # it exited with 0 with work left because it was told to stop
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
    is_cut: bool = False  # the budget ended before it did
    missing_ranks: str = ""  # why the nodes of some ranks could not be taken

    @property
    def attempts(self) -> tuple[TrialAttempt, ...]:
        """The attempts of the trial's task."""
        return self.executed.get(self.task or "", ())

    @property
    def operations(self) -> tuple[tuple[FileOperation, ...], ...]:
        """The file operations of each traced attempt of the trial's task."""
        return tuple(trace.operations for trace in self.traces.get(self.task or "", ()))

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

    ``prepare`` readies an attempt's folders and returns those to watch. ``collect`` receives each run that has ended and the
    task that the run was for, if it executed exactly one of that name. ``readable`` are paths of this machine that attempts read.
    ``passes_on_sigterm``: the main process of an attempt is ours, and only passes SIGTERM on. ``ranks``: how many ranks the
    step has.
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
            name: replace(pool, simulate=Simulate(boot=0.0, drain=pool.simulate.drain), lifetime=None, min_nodes=0)
            for name, pool in stored.config.pools.items()
        }
        calm = replace(stored, config=replace(stored.config, pools=pools), taken_every=None, traces={}, policy=_POLICY)
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

    def _run(
        self,
        name: str,
        task: str | None,
        initial_facts: Callable[[RunState], Sequence[Event]],
        injections: Sequence[Injection],
        timing: TrialTiming | None,
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
                    is_traced=lambda path: task is None or _names(task, path),
                    ranks=self._ranks,
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
        executed = [path for path, each in state.tasks.items() if each.attempts]
        named = [path for path in executed if task is not None and _names(task, path)]
        self._collect(folder.path, named[0] if len(named) == 1 else None)
        return _trial_run(folder, state, task, injectors[0], graph_events)


def _names(task: str, path: str) -> bool:
    """Whether a task's path is the given one or ends with it."""
    return path == task or path.endswith(f"/{task}")


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

    Pipelines around the task are unfolded. Every task beside it or beside one of these pipelines has its result; what lies
    inside such a neighbour does not matter.
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
    """The top-level tasks that a task does not need; none if it may lie inside a pipeline or loop.

    Raises :class:`InputError` for a task that does not exist.
    """
    if task is None:
        return []
    planned = {each.path: each for each in plan.unfold("")}
    first = task.split("/", 1)[0]
    if first not in planned and any(each.spec.dag for each in planned.values()):
        return []
    if first not in planned:
        raise InputError(f"--task {task}: the pipeline has no such task; its tasks are {', '.join(planned)}")
    needed, left = set(), [first]
    while left:
        path = left.pop()
        if path not in needed:
            needed.add(path)
            left += planned[path].spec.after
    return [path for path in planned if path not in needed]


def _facts_to_skip(state: RunState, not_needed: Sequence[str]) -> list[Event]:
    """Facts that make tasks count as done without being executed; no other task reads their results."""
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
