"""Read a run without driving it: its plans, its state, and whether an engine drives it now.

Listing, showing, following and reporting need no backend, so this module imports none. A reader folds each event once: it keeps
the state and the last sequence number, so a look costs only the new events.

The journal is opened for each look and closed again: the last connection to close removes SQLite's log file, which a reader
must not do.

Logs of attempts and of builds of Python environments are listed, and followed while they are written.
"""

from __future__ import annotations

import codecs
import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spotwright.engine.events import Event, RunStatus
from spotwright.engine.fold import fold
from spotwright.engine.ports import Liveness
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import InputError, UnknownRun
from spotwright.model.task_names import matches, no_such_task
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import PlanVersions, RunFiles, RunSource

__all__ = ["ENVIRONMENT", "AttemptLog", "RunReader", "follow_logs", "list_logs", "require_tasks"]


class RunReader:
    """The state of one run, read from its journal. It never writes.

    ``source``: the run's source, or, for a run in a state folder here, whether the holder of a lease is alive.

    ``state`` and ``is_driven`` come from the last :meth:`refresh`; the constructor makes the first one. ``seq`` is the
    sequence number of the last folded event, ``made_at`` the run's
    :meth:`~spotwright.records.stored_plan.RunSource.made_at`.
    Raises :class:`StateError` for an unreadable run.
    """

    def __init__(self, folder: RunFolder, source: Liveness | RunSource) -> None:
        self.folder = folder
        self.source: RunSource = RunFiles(folder, source) if callable(source) else source
        self._begin()
        for _ in self._fold():
            continue  # without holding all events: a large run has hundreds of thousands

    def _begin(self) -> None:
        self.made_at = self.source.made_at()
        self.seq = 0
        self.state = RunState(PlanVersions(self.folder, self.source))
        self.is_driven = False

    def refresh(self) -> list[Event]:
        """Fold and return the events since the last look.

        A run that was deleted and started again under the same name is read from its start.
        """
        if self.source.made_at() != self.made_at:
            self._begin()
        return list(self._fold())

    def _fold(self) -> Iterator[Event]:
        with self.source.look(self.seq) as look, _no_collection():
            self.is_driven = look.is_driven
            for number, event in look.events:
                fold(self.state, event)
                self.seq = number
                yield event

    def follow(self, pause: float) -> Iterator[list[Event]]:
        """Yield the events of each further look, one every ``pause`` seconds, while an engine drives the run."""
        while self.is_driven and self.state.status is RunStatus.RUNNING:
            self.source.pause(pause)
            yield self.refresh()

    @property
    def now(self) -> float | None:
        """The present while an engine drives the run; else ``None``, so that views count until the last event."""
        return self.source.now() if self.is_driven else None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch the garbage collector off: a fold's objects all stay, and checking them would double the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


ENVIRONMENT = 0
"""The attempt number that means the build of a task's Python environment."""

_POLL = 0.2  # seconds between two looks at followed logs, for a person who reads along


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """One attempt's log, in the folder of the run that made it. ``placed_at`` is Unix seconds.

    With the number :data:`ENVIRONMENT` it is the log of a build, in the file ``environment``, which tasks with the same packages
    share. Its ``placed_at`` is the begin of the build.
    """

    run: RunFolder
    task: str
    attempt: int
    has_node: bool
    ended: bool
    placed_at: float
    source: RunSource
    environment: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the log in its state folder."""
        return self.run.name, self.environment or self.task, self.attempt

    @property
    def path(self) -> Path:
        """The file, which is missing for an attempt without a node."""
        return self.run.environment_log(self.environment) if self.environment else self.run.log(self.task, self.attempt)

    @property
    def heading(self) -> str:
        """The line above the log if several are printed."""
        return f"==> {self.task} {'environment' if self.environment else f'attempt {self.attempt}'} <=="

    def text(self) -> str:
        """The text so far. Bytes that are not UTF-8 become replacement characters."""
        return self.read(0).decode("utf-8", "replace")

    def read(self, offset: int, at_most: int = -1) -> bytes:
        """The log's bytes from an offset, at most ``at_most``; -1: all."""
        return self.source.read_log(self.task, self.attempt, self.environment, offset, at_most)


def _tasks_named(state: RunState, name: str, among: Iterable[str]) -> Iterator[str]:
    """The paths among these of the tasks that a name means, including those inside a loop or pipeline."""
    for path in among:
        above = [path[: index or None] for index in (*_slashes(path), 0)]
        if any(each == name if name in state.tasks else matches(name, *_paths_of(state, each)) for each in above):
            yield path


def require_tasks(reader: RunReader, name: str) -> list[str]:
    """The paths of the tasks that a name means, and of the tasks inside them. Raises :class:`UnknownRun` if no task matches."""
    found = list(_tasks_named(reader.state, name, reader.state.tasks))
    if not found:
        raise UnknownRun(f"run {reader.folder.name} has no task {name!r}{no_such_task(name, reader.state.tasks)}")
    return found


def _slashes(path: str) -> Iterator[int]:
    return (index for index, letter in enumerate(path) if letter == "/")


def _paths_of(state: RunState, path: str) -> tuple[str, ...]:
    """The paths of a task in the run and in the pipeline."""
    task = state.tasks.get(path)
    return (path,) if task is None else (path, task.plan.spec_path or path)


def list_logs(reader: RunReader, task: str | None = None, attempt: int | None = None) -> list[AttemptLog]:
    """The logs of a run, a task or one attempt, in the order in which the attempts were placed.

    A name or pattern of tasks (:mod:`spotwright.model.task_names`) may mean several; a loop or pipeline means the tasks in it.
    Raises :class:`UnknownRun` for a task or attempt that the run does not have, :class:`InputError` for an attempt of several.
    """
    return _Selection(reader, task, attempt).logs()


def follow_logs(
    reader: RunReader, task: str | None = None, attempt: int | None = None
) -> Iterator[tuple[AttemptLog, str]]:
    """Pieces of the logs as they are written, until the run or the one attempt has ended. Arguments as for :func:`list_logs`.

    Waits for a task or attempt that a running run does not have yet.
    """
    selection, tails = _Selection(reader, task, attempt), _Tails()
    logs = selection.logs_so_far()
    while True:
        is_over = reader.state.status is not RunStatus.RUNNING or not reader.is_driven
        if is_over:
            logs = selection.logs()
        yield from tails.read(logs, is_over=is_over)
        if is_over or (attempt is not None and tails.have_ended):
            return
        reader.source.pause(_POLL)
        changed = {event.task for event in reader.refresh()}
        logs = selection.logs_so_far(changed)


class _Selection:
    """The tasks and attempts whose logs are wanted. Another run with used results is read once for all tasks."""

    def __init__(self, reader: RunReader, task: str | None, attempt: int | None) -> None:
        self._reader, self._task, self._attempt = reader, task, attempt
        self._other_runs: dict[str, RunReader | None] = {}

    def logs(self) -> list[AttemptLog]:
        """All wanted logs. Raises :class:`UnknownRun` if the run has no such task or attempt."""
        tasks, run = self._reader.state.tasks, self._reader.folder.name
        if self._task is not None:
            require_tasks(self._reader, self._task)
        paths = self._paths(tasks)
        logs = self._of_tasks(paths)
        if self._attempt == ENVIRONMENT and not logs:
            raise UnknownRun(f"run {run} did not build a Python environment for task {paths[0]}")
        if self._attempt is not None and not logs:
            count = len(tasks[paths[0]].attempts)
            raise UnknownRun(
                f"task {paths[0]} of run {run} has {count} attempt{'s' * (count != 1)}, not an attempt {self._attempt}"
            )
        return logs

    def logs_so_far(self, changed: Iterable[str] | None = None) -> list[AttemptLog]:
        """The wanted logs that exist so far; with ``changed``, only these tasks' logs."""
        tasks = self._reader.state.tasks
        return self._of_tasks(self._paths(tasks if changed is None else changed))

    def _paths(self, candidates: Iterable[str]) -> list[str]:
        tasks = self._reader.state.tasks
        known = (path for path in candidates if path in tasks)
        paths = list(known if self._task is None else _tasks_named(self._reader.state, self._task, known))
        if self._attempt is not None and len(paths) > 1:
            raise InputError(f"{self._task} matches several tasks: {', '.join(paths)}; name one of them")
        return paths

    def _of_tasks(self, paths: Iterable[str]) -> list[AttemptLog]:
        """The wanted logs of these tasks."""
        tasks = self._reader.state.tasks
        logs = [log for path in paths for log in self._of_task(self._reader, tasks[path])]
        wanted = sorted((log for log in logs if self._attempt in (None, log.attempt)), key=lambda log: log.placed_at)
        return list({log.key: log for log in reversed(wanted)}.values())[::-1]  # of a shared build the first task's

    def _of_task(
        self, reader: RunReader, task: TaskState, seen: frozenset[tuple[str, str]] = frozenset()
    ) -> Iterator[AttemptLog]:
        """The logs of a task, also in the run that computed its cached result. ``seen``: the tasks whose results it has."""
        folder, source = reader.folder, reader.source
        built = task.environment
        if built is not None and built.began_at is not None:
            ended = built.ended_at is not None
            yield AttemptLog(folder, task.path, ENVIRONMENT, True, ended, built.began_at, source, built.log)
        for attempt in task.attempts:
            has_node, ended = attempt.bound_at is not None, not attempt.is_live
            yield AttemptLog(folder, task.path, attempt.number, has_node, ended, attempt.placed_at, source)
        if task.cached_from is not None and task.cached_from not in seen:
            run, path_there = task.cached_from
            other = self._other_run(run)
            origin = None
            if other is not None:  # a resume with changed code may have retired the task
                origin = other.state.tasks.get(path_there) or other.state.retired.get(path_there)
            if other is not None and origin is not None:
                yield from self._of_task(other, origin, seen | {task.cached_from})

    def _other_run(self, name: str) -> RunReader | None:
        """The run that computed a cached result; ``None`` if it was deleted: its results remain, its logs do not."""
        if name not in self._other_runs:
            folder = RunFolder(self._reader.folder.path.parent / Path(name).name)
            source = self._reader.source.other_run(name)
            self._other_runs[name] = RunReader(folder, source) if source is not None else None
        return self._other_runs[name]


class _Tails:
    """Logs that may still grow, each with the position read so far."""

    def __init__(self) -> None:
        self._growing: dict[tuple[str, str, int], tuple[AttemptLog, _Tail]] = {}
        self._ended: set[tuple[str, str, int]] = set()

    @property
    def have_ended(self) -> bool:
        """Whether there were logs, and all of them have been read to their ends."""
        return bool(self._ended) and not self._growing

    def read(self, logs: Iterable[AttemptLog], *, is_over: bool) -> Iterator[tuple[AttemptLog, str]]:
        """The new text of these logs and of earlier ones; ``is_over``: logs no longer grow."""
        for log in logs:
            if log.key not in self._ended and (log.has_node or log.ended):  # thousands may wait for a node
                _, tail = self._growing.get(log.key) or (log, _Tail(log))
                self._growing[log.key] = (log, tail)
        for key, (log, tail) in list(self._growing.items()):
            ends_here = is_over or log.ended
            text = tail.read(ends_here=ends_here)
            if text:
                yield log, text
            if ends_here:
                del self._growing[key]
                self._ended.add(key)


class _Tail:
    """Reads the new text of a log. An incomplete character is kept until it is complete."""

    def __init__(self, log: AttemptLog) -> None:
        self._log = log
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, *, ends_here: bool) -> str:
        """The new text; ``ends_here``: the log no longer grows."""
        data = self._log.read(self._position)
        self._position += len(data)
        return self._decoder.decode(data, final=ends_here)
