"""Keeps the logs of all attempts of a cluster: one stream an attempt, as many at once as there are running attempts.

The watcher tells it of each attempt whenever it has recorded something of it. What an earlier keeper did not finish is found by
the file beside each log that is not complete, so a kill loses nothing that Kubernetes still has.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.log_file import POSITION, LogFile
from spotwright.cluster.log_follower import Follower
from spotwright.cluster.workloads import attempts_of, uid_of
from spotwright.engine.state import RunState
from spotwright.records.state_folder import RunFolder, StateFolder

__all__ = ["DEFAULT_LIMIT", "LogKeeper", "SeenAttempt"]


DEFAULT_LIMIT = 64 << 20
"""Bytes of one attempt's log: of a longer one the first half and the last quarter or more are kept."""

_LOG = logging.getLogger(__name__)
_OPENING = 32  # streams that are opened at once
_UNTOLD = 5.0  # seconds between two looks at a pod of which the watcher says nothing


class SeenAttempt(NamedTuple):
    """An attempt as the watcher sees it. ``log`` is its file, ``is_lost``: its pod is gone, or its node does not report."""

    key: str
    log: Path
    pod: Mapping[str, Any]
    restart: int
    is_lost: bool = False


class LogKeeper:
    """Follows every attempt that it is told of. ``limit`` is in bytes, for each log."""

    def __init__(self, api: Api, limit: int = DEFAULT_LIMIT) -> None:
        self._api, self._limit = api, limit
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
            while True:
                await asyncio.sleep(_UNTOLD)
                await self._look_at_untold()
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
        states = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Any] | None])
    except (OSError, msgspec.DecodeError) as error:
        _LOG.warning("%s cannot be read: %s", path, error)
        return None
    return next(
        (state["notes"] for state in (states.get("before"), states.get("after")) if state and state["notes"]), None
    )


def _allow_many_files() -> None:
    """Lift this process's limit of open files, which is often 1024, as far as it may."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
