"""Keeps the logs of all attempts of a cluster: one stream an attempt, as many at once as there are running attempts.

The watcher tells it of each attempt whenever it has recorded something of it. What an earlier keeper did not finish is found by
the file beside each log that is not complete, so a kill loses nothing that Kubernetes still has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.log_file import POSITION, LogFile, free_and_reserve, saved_states
from spotwright.cluster.log_follower import Follower
from spotwright.cluster.workloads import attempts_of, uid_of
from spotwright.engine.state import RunState
from spotwright.model.quantities import format_bytes
from spotwright.records.state_folder import RunFolder, StateFolder

__all__ = ["DEFAULT_LIMIT", "NAMESPACE_LIMIT", "KeptLog", "LogKeeper", "SeenAttempt"]


DEFAULT_LIMIT = 64 << 20
"""Bytes of one attempt's log: of a longer one the first half and the last quarter or more are kept."""

_LOG = logging.getLogger(__name__)
_OPENING = 32  # streams that are opened at once
_UNTOLD = 5.0  # seconds between two looks at a pod of which the watcher says nothing


NAMESPACE_LIMIT = 5 << 30
"""Bytes of all logs of one namespace: of more the oldest are dropped."""

_MEASURED = 30.0  # seconds between two measurements, at least
_SHARE = 0.05  # of the time that measurements may take
_SMALL = 8192  # bytes: what is no longer is not worth a line that says that it was dropped
_NAMED = 20  # logs that one note names


class SeenAttempt(NamedTuple):
    """An attempt as the watcher sees it. ``log`` is its file, ``is_lost``: its pod is gone, or its node does not report."""

    key: str
    log: Path
    pod: Mapping[str, Any]
    restart: int
    is_lost: bool = False


class KeptLog(NamedTuple):
    """A log on the disk with what belongs to it. ``at`` is when it was last written, ``size`` the bytes that it takes."""

    at: float
    size: int
    path: Path
    is_complete: bool

    @property
    def run(self) -> str:
        """The name of its run."""
        return self.path.parents[3].name

    @property
    def name(self) -> str:
        """Its task and attempt, for people."""
        return f"{unquote(self.path.parents[1].name.replace('+', '/'))} {self.path.parent.name.replace('-', ' ')}"


class LogKeeper:
    """Follows every attempt that it is told of. ``limit`` is in bytes, for each log; ``namespace_limit`` for all of a namespace.

    ``on_dropped`` hears of logs that were dropped because their namespace had more: the name of their run, and a sentence.
    """

    def __init__(
        self,
        api: Api,
        limit: int = DEFAULT_LIMIT,
        namespace_limit: int = NAMESPACE_LIMIT,
        on_dropped: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._api, self._limit, self._namespace_limit = api, limit, namespace_limit
        self._on_dropped = on_dropped
        self._followers: dict[str, Follower] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._complete: set[str] = set()
        self._untold: set[str] = set()  # keys of logs that were found, and of which the watcher says nothing
        self._places = asyncio.Semaphore(_OPENING)

    def follow(self, attempt: SeenAttempt) -> None:
        """Keep this attempt's log; again with each new state of its pod. Call it in the loop of :meth:`run`."""
        self._untold.discard(attempt.key)
        follower = self._followers.get(attempt.key) or self._begin(attempt)
        if follower is not None:
            follower.put(attempt.pod, is_lost=attempt.is_lost)

    def look(
        self, folder: RunFolder, state: RunState, pod: Mapping[str, Any], *, is_gone: bool, is_cut_off: bool
    ) -> None:
        """Keep the logs of a pod's attempts, which the journal of their run has. Call it with each new state of the pod."""
        for attempt in attempts_of(pod):
            if attempt.key in self._complete:
                continue
            known = self._followers.get(attempt.key)
            log = known.log if known is not None else _log_of(folder, state, attempt.key)
            if log is not None:
                self.follow(SeenAttempt(attempt.key, log, pod, attempt.restart, is_gone or is_cut_off))

    async def run(self, state: StateFolder) -> None:
        """Work until cancelled. Logs that an earlier keeper did not finish are looked for in all runs of the folder."""
        _allow_many_files()
        try:
            await self._take_up(state.path / "runs")
            measured_at = 0.0
            while True:
                await asyncio.sleep(_UNTOLD)
                await self._look_at_untold()
                if time.monotonic() >= measured_at:
                    began = time.monotonic()
                    await self.drop_too_much(state)
                    took = time.monotonic() - began
                    measured_at = began + max(_MEASURED, took / _SHARE)
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def open_logs(self) -> int:
        """The number of attempts that are followed now."""
        return len(self._tasks)

    def _begin(self, attempt: SeenAttempt) -> Follower | None:
        if attempt.key in self._complete:
            return None
        file = LogFile(attempt.log, self._limit)
        if file.is_complete:
            self._complete.add(attempt.key)
            return None
        follower = Follower(self._api, attempt.pod, attempt.restart, file, self._places, attempt.key)
        self._followers[attempt.key] = follower
        task = asyncio.get_running_loop().create_task(follower.run(), name=f"log {attempt.key}")
        self._tasks[attempt.key] = task
        task.add_done_callback(lambda task: self._ended(attempt.key, task))
        return follower

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        self._followers.pop(key, None)
        self._tasks.pop(key, None)
        self._untold.discard(key)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._complete.add(key)
        else:  # the watcher's next word begins it again, where it was
            _LOG.warning("the log of attempt %s is not followed: %s", key, error, exc_info=error)

    # Quotas

    async def drop_too_much(self, state: StateFolder) -> None:
        """Drop logs of namespaces that have more than their limit: the oldest ones first, and what is followed last."""
        runs = state.path / "runs"
        try:
            found = await asyncio.to_thread(_measured, runs)
            limit = _fair_limit(self._namespace_limit, found, *free_and_reserve(runs))
        except OSError as error:
            _LOG.warning("%s: the sizes of logs are not known (%s)", runs, error.strerror)
            return
        for namespace, logs in found.items():
            dropped = _too_much(logs, limit)
            if dropped:
                await self._forget({log.path for log in dropped if not log.is_complete})
                why = f"the logs of namespace {namespace} had more than {format_bytes(limit)}"
                await asyncio.to_thread(_drop, dropped, why)
                for run in dict.fromkeys(log.run for log in dropped):
                    of_run = [log for log in dropped if log.run == run]
                    named = ", ".join(f"{log.name} ({format_bytes(log.size)})" for log in of_run[:_NAMED])
                    more = f" and {len(of_run) - _NAMED} more" if len(of_run) > _NAMED else ""
                    _LOG.warning("run %s: logs were dropped, because %s: %s%s", run, why, named, more)
                    self._on_dropped(run, f"logs were dropped, because {why}: {named}{more}")

    async def _forget(self, paths: Collection[Path]) -> None:
        """Follow these logs no more; then nothing is written to them."""
        keys = [key for key, follower in self._followers.items() if follower.log in paths]
        self._complete.update(keys)
        tasks = [self._tasks[key] for key in keys if key in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What an earlier keeper left

    async def _take_up(self, runs: Path) -> None:
        for path in await asyncio.to_thread(lambda: sorted(runs.glob(f"*/tasks/*/attempt-*/{POSITION}"))):
            notes = _notes(path)
            if notes is None:
                continue
            key = f"{notes['uid']}/{notes['restart']}"
            if key not in self._followers:
                meta = {"namespace": notes["namespace"], "name": notes["pod"], "uid": notes["uid"]}
                attempt = SeenAttempt(key, path.with_name("log.txt"), {"metadata": meta}, int(notes["restart"]))
                self._begin(attempt)
                self._untold.add(key)
        await self._look_at_untold()

    async def _look_at_untold(self) -> None:
        """Ask for the pods of logs of which the watcher says nothing, because their runs have ended."""
        for key in tuple(self._untold):
            follower = self._followers.get(key)
            if follower is None:
                continue
            try:
                pod = await self._api.get_or_none(follower.path)
            except ApiFailed as error:
                _LOG.debug("%s", error)
                continue
            is_there = pod is not None and uid_of(pod) == uid_of(follower.pod)
            if key in self._untold:  # the watcher has not spoken in the meantime
                follower.put(pod if is_there and pod is not None else follower.pod, is_lost=not is_there)


def _log_of(folder: RunFolder, state: RunState, key: str) -> Path | None:
    for task in state.tasks.values():
        for attempt in reversed(task.attempts):
            if attempt.key == key:
                return folder.log(task.path, attempt.number)
    return None


def _notes(path: Path) -> Mapping[str, Any] | None:
    """Whose log it is; None if that was never written in full."""
    try:
        states = saved_states(path.read_bytes())
    except OSError as error:
        _LOG.warning("%s cannot be read: %s", path, error)
        return None
    both = (state["notes"] for state in (states.get("before"), states.get("after")) if state)
    wanted = {"uid", "restart", "namespace", "pod"}
    return next((notes for notes in both if wanted <= notes.keys() and str(notes["restart"]).isdecimal()), None)


def _measured(runs: Path) -> dict[str, list[KeptLog]]:
    """All logs on the disk by namespace: the name of a run begins with it, and no namespace's name has a dot."""
    found: dict[str, list[KeptLog]] = {}
    for run in os.scandir(runs):
        namespace, dot, _ = run.name.partition(".")
        for attempt in Path(run.path).glob("tasks/*/attempt-*") if dot else ():
            with contextlib.suppress(OSError):  # its run is deleted
                files = {each.name: each.stat() for each in os.scandir(attempt) if each.name.startswith("log.")}
                if "log.txt" in files:
                    size = sum(status.st_blocks * 512 for status in files.values())
                    at = max(status.st_mtime for status in files.values())
                    kept = KeptLog(at, size, attempt / "log.txt", POSITION not in files)
                    found.setdefault(namespace, []).append(kept)
    return found


def _fair_limit(limit: int, found: Mapping[str, Sequence[KeptLog]], free: int, reserve: int) -> int:
    """The limit of each namespace: less where the disk is nearly full, so that none takes the room of the others."""
    if not found or free >= 2 * reserve:
        return limit
    used = sum(log.size for logs in found.values() for log in logs)
    return min(limit, max(0, used + free - 2 * reserve) // len(found))


def _too_much(logs: Sequence[KeptLog], limit: int) -> list[KeptLog]:
    """The logs that are dropped, oldest first: those that say what they were, then short ones, then those that go on."""
    left, dropped = sum(log.size for log in logs) - limit, list[KeptLog]()
    for log in sorted(logs, key=lambda log: (not log.is_complete, log.size <= _SMALL, log.at)):
        if left <= 0:
            break
        if log.size:
            dropped.append(log)
            left -= log.size
    return dropped


def _drop(logs: Iterable[KeptLog], why: str) -> None:
    """Put a line in the place of each log that says why it was dropped; nothing in the place of a short one."""
    for log in logs:
        text = "" if log.size <= _SMALL else f"[spotwright: this log of {format_bytes(log.size)} was dropped: {why}]\n"
        new = log.path.with_name("log.dropped")
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(log.path)
            for beside in log.path.parent.glob("log.tail-*"):
                beside.unlink(missing_ok=True)
            log.path.with_name(POSITION).unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("%s: cannot be dropped (%s)", log.path, error.strerror)


def _allow_many_files() -> None:
    """Lift this process's limit of open files, which is often 1024, as far as it may."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
