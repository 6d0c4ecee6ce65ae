"""Keeps the logs of all attempts of a cluster, with one stream per running attempt.

The watcher calls it whenever it has recorded a change of an attempt. :mod:`spotwright.cluster.log_place` stores the logs and
lists an earlier keeper's unfinished ones, so a kill does not lose lines that Kubernetes still has.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.log_follower import Follower, Pace
from spotwright.cluster.log_place import LogName, LogPlace, Overtaken, PlaceAway, logs_to_drop
from spotwright.cluster.workloads import attempts_of
from spotwright.engine.state import AttemptState, TaskState
from spotwright.kube.object_fields import uid_of
from spotwright.model.quantities import format_bytes
from spotwright.records.state_folder import RunFolder

__all__ = ["DEFAULT_LIMIT", "NAMESPACE_LIMIT", "LogKeeper", "SeenAttempt"]


DEFAULT_LIMIT = 64 << 20
"""Bytes of an attempt's log; longer ones keep their first half and at least their last quarter."""

_LOG = logging.getLogger(__name__)
_OPENING = 32  # streams opened concurrently
_UNTOLD = 5.0  # seconds between checks of pods without news from the watcher
_ASKED = 200  # of these read at each check


NAMESPACE_LIMIT = 5 << 30
"""Bytes of all logs of a namespace; beyond it, the oldest are dropped."""

_MEASURED = 30.0  # seconds between two measurements, at least
_SHARE = 0.05  # of the time, for measurements
_NAMED = 20  # logs that one note names


class SeenAttempt(NamedTuple):
    """An attempt as the watcher sees it.

    ``is_lost``: its pod is gone, or its node does not report. ``is_noticed``: it was notified of an interruption. ``task`` is its
    task's path.
    """

    key: str
    log: LogName
    pod: Mapping[str, Any]
    restart: int
    is_lost: bool = False
    is_noticed: bool = False
    task: str = ""


class LogKeeper:
    """Follows every attempt that :meth:`put` names. ``namespace_limit`` is in bytes, for all logs of a namespace.

    ``on_dropped`` is called for logs dropped for their namespace's limit: the name of their run, and a sentence.
    """

    def __init__(
        self,
        api: Api,
        place: LogPlace,
        namespace_limit: int = NAMESPACE_LIMIT,
        on_dropped: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._api, self._place, self._namespace_limit = api, place, namespace_limit
        self._on_dropped = on_dropped
        self._followers: dict[str, Follower] = {}
        self._names: dict[str, LogName] = {}  # of the followed logs, by key
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._complete: dict[str, float] = {}
        """By key: when the last line was written; 0: no line, or unknown."""
        self._of_pod: dict[str, set[str]] = {}  # keys by the UID of their pod, which the watcher knows
        self._untold: dict[str, None] = {}  # keys of logs without news from the watcher, the next to ask for first
        self._places, self._pace = asyncio.Semaphore(_OPENING), Pace()

    def follow(self, attempt: SeenAttempt) -> None:
        """Keep this attempt's log. Call it with each new state of its pod, in the loop of :meth:`run`."""
        self._untold.pop(attempt.key, None)
        self._of_pod.setdefault(attempt.key.partition("/")[0], set()).add(attempt.key)
        follower = self._followers.get(attempt.key) or self._begin(attempt)
        if follower is not None:
            follower.put(attempt.pod, is_lost=attempt.is_lost, is_ending=attempt.is_noticed)

    def look(
        self,
        folder: RunFolder,
        attempts: Mapping[str, tuple[TaskState, AttemptState]],
        pod: Mapping[str, Any],
        *,
        is_gone: bool,
        is_cut_off: bool,
    ) -> None:
        """Keep the logs of a pod's recorded attempts. Call it with each new state of the pod.

        ``attempts`` are the run's attempts by their keys, with their tasks.
        """
        for attempt in attempts_of(pod):
            known = attempts.get(attempt.key)
            if attempt.key in self._complete or known is None:
                continue
            task, recorded = known
            log = self._names.get(attempt.key) or LogName.of(folder, task.path, recorded.number)
            is_noticed = recorded.noticed_at is not None
            is_lost = is_gone or is_cut_off
            self.follow(SeenAttempt(attempt.key, log, pod, attempt.restart, is_lost, is_noticed, task.path))

    def leave(self, keys: Iterable[str]) -> None:
        """Take over attempts that the watcher no longer reports: from now on the keeper asks for their pods itself."""
        self._untold.update(dict.fromkeys(key for key in keys if key in self._followers))

    def forget(self, pod: str) -> None:
        """Drop a pod that the watcher has forgotten, by its UID: its complete logs leave the memory."""
        keys = self._of_pod.pop(pod, set())
        self.leave(keys)
        for key in keys:
            self._complete.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled. Resumes logs that an earlier keeper did not finish."""
        _allow_many_files()
        has_taken_up = False
        try:
            measured_at = 0.0
            while True:
                has_taken_up = has_taken_up or await self._take_up()
                await asyncio.sleep(_UNTOLD)
                await self._look_at_untold()
                if time.monotonic() >= measured_at:
                    began = time.monotonic()
                    await self.drop_too_much()
                    took = time.monotonic() - began
                    measured_at = began + max(_MEASURED, took / _SHARE)
        finally:
            await self._place.close()
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def last_line(self, key: str) -> float | None:
        """When the last line of an attempt's log was written, in Unix seconds by its node's clock; None: unknown."""
        follower = self._followers.get(key)
        return (self._complete.get(key, 0.0) if follower is None else follower.last_line_at) or None

    @property
    def open_logs(self) -> int:
        """The number of followed attempts."""
        return len(self._tasks)

    def _begin(self, attempt: SeenAttempt) -> Follower | None:
        if attempt.key in self._complete:
            return None
        log = self._place.log(attempt.log, attempt.task)
        follower = Follower(self._api, attempt.pod, attempt.restart, log, self._places, self._pace, attempt.key)
        self._followers[attempt.key], self._names[attempt.key] = follower, attempt.log
        task = asyncio.get_running_loop().create_task(follower.run(), name=f"log {attempt.key}")
        self._tasks[attempt.key] = task
        task.add_done_callback(lambda task: self._ended(attempt.key, task))
        return follower

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        follower = self._followers.pop(key, None)
        self._tasks.pop(key, None)
        self._names.pop(key, None)
        self._untold.pop(key, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:  # the watcher's next call resumes it
            trace = None if isinstance(error, Overtaken) else error
            _LOG.warning("cannot follow the log of attempt %s: %s", key, error, exc_info=trace)
        elif key in self._of_pod.get(key.partition("/")[0], ()):
            self._complete[key] = 0.0 if follower is None else follower.last_line_at

    # Quotas

    async def drop_too_much(self) -> None:
        """Drop logs of namespaces above their limit: the oldest first, and followed ones last."""
        try:
            found = await self._place.kept()
            limit = self._place.limit(self._namespace_limit, found)
        except PlaceAway:
            return
        except OSError as error:
            _LOG.warning("%s: cannot read the sizes of logs (%s)", self._place.about, error.strerror)
            return
        for namespace, logs in found.items():
            dropped = logs_to_drop(logs, limit)
            if dropped:
                await self._forget({log.name for log in dropped if not log.is_complete})
                why = f"the logs of namespace {namespace} had more than {format_bytes(limit)}"
                dropped = await self._place.drop(dropped, why)
                for run in dict.fromkeys(log.name.run for log in dropped):
                    of_run = [log for log in dropped if log.name.run == run]
                    named = ", ".join(f"{log.name.title} ({format_bytes(log.size)})" for log in of_run[:_NAMED])
                    more = f" and {len(of_run) - _NAMED} more" if len(of_run) > _NAMED else ""
                    _LOG.warning("run %s: logs were dropped, because %s: %s%s", run, why, named, more)
                    self._on_dropped(run, f"logs were dropped, because {why}: {named}{more}")

    async def _forget(self, names: Collection[LogName]) -> None:
        """Stop following these logs; no write to them comes later."""
        keys = [key for key, name in self._names.items() if name in names]
        self._complete.update((key, 0.0) for key in keys if key in self._of_pod.get(key.partition("/")[0], ()))
        tasks = [self._tasks[key] for key in keys if key in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What an earlier keeper left

    async def _take_up(self) -> bool:
        """Follow an earlier keeper's unfinished logs; False if the place is unreachable now."""
        try:
            left = await self._place.unfinished()
        except OSError as error:
            level = logging.DEBUG if isinstance(error, PlaceAway) else logging.WARNING
            _LOG.log(level, "%s: cannot list unfinished logs: %s", self._place.about, error)
            return False
        for name, notes in left:
            key = f"{notes['uid']}/{notes['restart']}"
            if key not in self._followers and key not in self._complete:
                meta = {"namespace": notes["namespace"], "name": notes["pod"], "uid": notes["uid"]}
                self._begin(SeenAttempt(key, name, {"metadata": meta}, int(notes["restart"])))
                self._untold[key] = None
        await self._look_at_untold()
        return True

    async def _look_at_untold(self) -> None:
        """Ask for the pods of logs without news from the watcher, because their runs have ended or are not recorded."""
        self.leave([key for key, follower in self._followers.items() if follower.is_restless])
        for key in tuple(self._untold)[:_ASKED]:
            self._untold.pop(key, None)
            self._untold[key] = None  # the others come first next time
            follower = self._followers.get(key)
            if follower is None:
                continue
            try:
                pod = await self._api.get_or_none(follower.path)
            except ApiFailed as error:
                _LOG.debug("%s", error)
                continue
            is_there = pod is not None and uid_of(pod) == uid_of(follower.pod)
            if key in self._untold:  # no news from the watcher meanwhile
                follower.put(pod if is_there and pod is not None else follower.pod, is_lost=not is_there)


def _allow_many_files() -> None:
    """Raise this process's limit of open files, often 1024, to the hard limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
