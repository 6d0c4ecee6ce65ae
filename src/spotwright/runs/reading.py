"""Looking at runs without driving them: the state folded from the journal, and the logs of every attempt."""

from __future__ import annotations

import codecs
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spotwright.engine.fold import replay
from spotwright.engine.state import RunState, RunStatus, TaskState
from spotwright.errors import InputError, UnknownRun
from spotwright.local.identity import Identity, open_process
from spotwright.local.orders import LOG
from spotwright.records.folders import RunFolder, StateFolder
from spotwright.records.journal import Journal
from spotwright.runs.engine import is_alive
from spotwright.runs.plans import load_plans
from spotwright.runs.resume import cancel_dead
from spotwright.runs.wakes import REQUEST_SIGNAL

__all__ = ["AttemptLog", "cancel", "find_run", "follow", "is_driven", "list_runs", "logs", "now_of", "read_state"]

_POLL = 0.2  # seconds between two looks at a log that is followed: a person reads along


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """One attempt's log. ``path`` may not exist: an attempt that never started has none."""

    task: str
    attempt: int
    path: Path
    ended: bool

    def text(self) -> str:
        """What the attempt has written so far; bytes that are no UTF-8 are shown as replacement characters."""
        try:
            return self.path.read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


def find_run(state_path: Path, name: str) -> RunFolder:
    """A run by name, unique beginning, or ``last``. Raises :class:`UnknownRun`."""
    return StateFolder.existing(state_path).find(name)


def list_runs(state_path: Path) -> list[RunFolder]:
    """Every run of a state folder, oldest first."""
    return StateFolder.existing(state_path).runs()


def read_state(folder: RunFolder) -> RunState:
    """Fold a run's journal as it stands; nothing is written."""
    plans = [stored.plan for stored in load_plans(folder)]
    journal = Journal.read(folder.journal)
    try:
        return replay(plans, (event for _, event in journal.events()))
    finally:
        journal.close()


def is_driven(folder: RunFolder) -> bool:
    """Whether an engine drives the run right now."""
    journal = Journal.read(folder.journal)
    try:
        holder = journal.holder()
    finally:
        journal.close()
    return holder is not None and is_alive(holder)


def now_of(folder: RunFolder) -> float | None:
    """Until when a run is counted, for :mod:`spotwright.views`: now while an engine drives it, else to its last event."""
    return time.time() if is_driven(folder) else None


def logs(folder: RunFolder, state: RunState, task: str | None = None, attempt: int | None = None) -> list[AttemptLog]:
    """The logs of a run, a task or one attempt, in the order in which the attempts were placed.

    A task is a path or a name (see :func:`_called`), and a loop or pipeline stands for what is in it. A task whose result came
    from an earlier run has the logs of the attempt that made it. Raises :class:`UnknownRun`.
    """
    tasks = list(state.tasks.values() if task is None else _called(folder, state, task))
    if attempt is not None and len(tasks) > 1:
        raise UnknownRun(f"{task} is more than one task: {', '.join(each.path for each in tasks)}; name one of them")
    found = [item for each in tasks for item in _logs_of(folder, each)]
    if attempt is not None:
        found = [(at, log) for at, log in found if log.attempt == attempt]
        if not found:
            count = len(tasks[0].attempts)
            raise UnknownRun(
                f"task {tasks[0].path} of run {folder.name} has {count} attempt{'s' * (count != 1)}, not an attempt {attempt}"
            )
    return [log for _, log in sorted(found, key=lambda item: item[0])]


def _called(folder: RunFolder, state: RunState, called: str) -> Iterator[TaskState]:
    """The tasks of this path, else of this name wherever they are, with what is inside them. Raises :class:`UnknownRun`."""
    names = {path for path, task in state.tasks.items() if called in (path.rpartition("/")[2], task.plan.spec.name)}
    tops = {called} if called in state.tasks else names
    if not tops:
        known = ", ".join(state.tasks) or "not known yet"
        raise UnknownRun(f"run {folder.name} has no task {called!r}; its tasks are {known}")
    for path, task in state.tasks.items():
        if path in tops or any(path.startswith(f"{top}/") for top in tops):
            yield task


def _logs_of(folder: RunFolder, task: TaskState) -> Iterator[tuple[float, AttemptLog]]:
    for attempt in task.attempts:
        path = folder.attempt(task.path, attempt.number) / LOG
        yield attempt.placed_at, AttemptLog(task.path, attempt.number, path, not attempt.is_live)
    if task.cached_from is not None:
        run, path_there = task.cached_from
        there = RunFolder(folder.path.parent / run)
        if there.journal.exists():  # else somebody has deleted that run: its results stay, its logs do not
            yield from _logs_of(there, read_state(there).tasks[path_there])


def follow(folder: RunFolder, task: str | None, attempt: int | None) -> Iterator[tuple[AttemptLog, str]]:
    """Pieces of the logs as they are written, until the run (or the attempt) has ended."""
    readers: defaultdict[tuple[str, int], _Reader] = defaultdict(_Reader)
    while True:
        driven = is_driven(folder)
        state = read_state(folder)
        try:
            current = logs(folder, state, task, attempt)
        except UnknownRun:
            if not driven:
                raise
            current = []
        over = state.status is not RunStatus.RUNNING or not driven
        for log in current:
            text = readers[log.task, log.attempt].read(log.path, ended=over or log.ended)
            if text:
                yield log, text
        if over or (attempt is not None and current and current[0].ended):
            return
        time.sleep(_POLL)


class _Reader:
    """Reads a log on from where it was. Bytes of a letter that is not complete yet wait for the others."""

    def __init__(self) -> None:
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, path: Path, *, ended: bool) -> str:
        """What is new; ``ended`` says that nothing more will come."""
        try:
            with path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return ""
        self._position += len(data)
        return self._decoder.decode(data, final=ended)


def cancel(folder: RunFolder, timeout: float = 60.0) -> RunState:
    """Cancel a run, whoever drives it, and wait until it has ended.

    Raises :class:`InputError` where it has ended already, or does not end within ``timeout`` seconds.
    """
    journal = Journal.open(folder.journal)
    try:
        holder = journal.holder()
        descriptor = None
        if holder is not None:
            descriptor = open_process(Identity(holder["pid"], holder["starttime"], holder["boot_id"]))
        if descriptor is None:
            return cancel_dead(folder)
        journal.request("cancel", time.time())
        try:
            signal.pidfd_send_signal(descriptor, REQUEST_SIGNAL)
        finally:
            os.close(descriptor)
    finally:
        journal.close()
    return _wait_for_end(folder, timeout)


def _wait_for_end(folder: RunFolder, timeout: float) -> RunState:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if not is_driven(folder):
            state = read_state(folder)
            return state if state.status is not RunStatus.RUNNING else cancel_dead(folder)
        time.sleep(_POLL)
    raise InputError(
        f"run {folder.name} was asked to cancel and has not ended within {timeout:g}s; look at 'spotwright show'"
    )
