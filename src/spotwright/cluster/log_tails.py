"""Keeps the last bytes of each attempt's log in its SpotAttempt, if no store keeps whole logs.

Whole logs would fill etcd, and each write sends a whole object to all watchers. So the last :data:`TAIL` bytes stay in memory,
and are written first at once, then every minute if they have grown, without delay once the pod was notified of its end, and at
the end. They are stored with the read position, so that the next recorder continues there. Another process's later writes are
never overwritten.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.log_place import KeptLog, LogName, Overtaken, PlaceAway, drop_note, owner_notes
from spotwright.cluster.run_objects import ATTEMPT, ENDED_LABEL, RUN, TAIL, Home, object_name, records_path
from spotwright.errors import Fenced
from spotwright.model.quantities import format_bytes
from spotwright.records.state_folder import RunFolder

__all__ = ["LogTails"]


_LOG = logging.getLogger(__name__)
_FIRST, _PAUSE, _SEALED = (
    1.0,
    60.0,
    1.0,
)  # seconds until the first write, between later ones, and once its pod was notified of its end
_A_SECOND = 10.0  # writes of all logs together due to growth
_AGAIN = 10.0  # seconds until a failed write is retried
_AT_ONCE = 8  # requests
_LAST = 5.0  # seconds in which what waits is written when this process ends
_NAMESPACE = 16 << 20  # bytes of the tails of one namespace: of 4,096 attempts
_GONE, _CONFLICT, _INVALID = 404, 409, 422  # a failed patch test has the status of an invalid object
_POSITION = 8192  # characters that an attempt's logPosition may have (spotattempt.yaml)
_PAGE = 100  # objects
_LISTED, _LEFT = 50_000, 5_000  # attempts searched for unfinished logs, and such logs
_LOOK = 300.0  # seconds between checks of active runs


class LogTails:
    """The ends of logs in the API. It is a :class:`~spotwright.cluster.log_place.LogPlace`.

    ``require`` raises :class:`~spotwright.errors.Fenced` once another process records. ``namespaces`` are the recorded ones;
    if empty, all.
    """

    about = "the SpotAttempts of the cluster"

    def __init__(self, api: Api, require: Callable[[], None] = lambda: None, namespaces: Sequence[str] = ()) -> None:
        self.api, self.require, self._namespaces = api, require, namespaces
        self.gate = asyncio.Semaphore(_AT_ONCE)
        self._open: dict[LogName, _TailLog] = {}
        self._kept: dict[LogName, KeptLog] = {}
        self._paths: dict[LogName, str] = {}  # of open, kept or earlier unfinished logs
        self._looked_at = 0.0

    @property
    def pause(self) -> float:
        """The seconds between writes of a growing log: more if very many grow."""
        return max(_PAUSE, len(self._open) / _A_SECOND)

    def log(self, name: LogName, task: str) -> _TailLog:
        """See :class:`LogPlace`."""
        path = self._paths.get(name) or records_path(
            ATTEMPT, name.namespace, object_name(name.run, Home(task, name.attempt))
        )
        self._paths[name] = path
        made = self._open[name] = _TailLog(self, name, path)
        return made

    async def unfinished(self) -> Sequence[tuple[LogName, Mapping[str, Any]]]:
        """See :class:`LogPlace`. Of very many attempts only the first are searched."""
        found, seen = list[tuple[LogName, Mapping[str, Any]]](), 0
        try:
            async for each in self._listed(ATTEMPT, {}):
                seen += 1
                left = _left(each)
                if left is not None:
                    self._paths[left[0]] = records_path(ATTEMPT, each.metadata.namespace, each.metadata.name)
                    found.append(left)
                if seen >= _LISTED or len(found) >= _LEFT:
                    _LOG.warning("%s: cannot look for some unfinished logs", self.about)
                    break
        except ApiFailed as error:
            raise PlaceAway(str(error)) from error
        return found

    async def kept(self) -> Mapping[str, Sequence[KeptLog]]:
        """See :class:`LogPlace`: this process's logs of active runs. Others are deleted with their records."""
        if self._kept and time.monotonic() >= self._looked_at + _LOOK:
            self._looked_at = time.monotonic()
            await self._forget_ended()
        found: dict[str, list[KeptLog]] = {}
        for kept in self._kept.values():
            found.setdefault(kept.name.namespace, []).append(kept)
        return found

    def limit(self, wanted: int, found: Mapping[str, Sequence[KeptLog]]) -> int:  # noqa: ARG002
        """See :class:`LogPlace`: etcd has little room."""
        return min(wanted, _NAMESPACE)

    async def _forget_ended(self) -> None:
        """Forget the logs of runs that have ended or are deleted."""
        known = set(self._kept)  # first: a run exists before its logs do
        try:
            going = {each.metadata.name async for each in self._listed(RUN, {"labelSelector": f"{ENDED_LABEL}!=true"})}
        except ApiFailed as error:
            _LOG.debug("cannot tell which runs are active: %s", error)
            return
        for name in known:
            if name.run not in going:
                self.forget(name)

    async def _listed(self, kind: str, params: Mapping[str, str]) -> AsyncIterator[_Listed]:
        """The objects of a kind, page by page. Raises :class:`ApiFailed`."""
        for namespace in self._namespaces or ("",):
            following = ""
            while True:
                asked = {**params, "limit": str(_PAGE)} | ({"continue": following} if following else {})
                page = await self.api.get_page(records_path(kind, namespace), asked)
                for text in page.items or ():
                    try:
                        yield msgspec.json.decode(text, type=_Listed)
                    except msgspec.DecodeError as error:
                        _LOG.warning("ignoring a %s that Spotwright did not write (%s)", kind, error)
                following = "" if page.metadata is None else page.metadata.continue_ or ""
                if not following:
                    break

    async def drop(self, logs: Collection[KeptLog], why: str) -> list[KeptLog]:
        """See :class:`LogPlace`. If the API server fails now, the next look retries."""
        dropped = []
        for log in logs:
            note = drop_note(format_bytes(log.size), why)
            fields = {"logTail": note, "logBytes": len(note), "logComplete": True, "logPosition": ""}
            try:
                await self.write(self._paths[log.name], fields, None)
            except ApiFailed as error:
                if error.status == _GONE:
                    self.forget(log.name)
                else:
                    _LOG.warning("cannot drop the end of log %s now: %s", log.name.title, error)
                continue
            self.note(log._replace(size=0, is_complete=True))
            dropped.append(log)
        return dropped

    async def close(self) -> None:
        """See :class:`LogPlace`."""
        writing = [task for log in self._open.values() if (task := log.hurry()) is not None]
        if writing:
            await asyncio.wait(writing, timeout=_LAST)

    # For the logs

    async def read(self, path: str) -> Mapping[str, Any]:
        """The fields of an attempt's status; empty if the attempt does not exist. Raises :class:`PlaceAway`."""
        try:
            async with self.gate:
                found = await self.api.get_or_none(path)
        except ApiFailed as error:
            raise PlaceAway(str(error)) from error
        return (found or {}).get("status") or {}

    async def write(self, path: str, fields: Mapping[str, Any], before: int | None) -> None:
        """Write these fields of a status. ``before`` is its current number of bytes; None: none, or any.

        Raises :class:`ApiFailed`, and :class:`Fenced` once another process records.
        """
        operations: list[dict[str, Any]] = []
        if before is not None:
            operations.append({"op": "test", "path": "/status/logBytes", "value": before})
        operations += [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in fields.items()]
        async with self.gate:
            self.require()
            await self.api.send("PATCH", path, operations)

    def note(self, kept: KeptLog) -> None:
        """Remember the stored state of a log."""
        self._kept[kept.name] = kept

    def forget(self, name: LogName) -> None:
        """Stop counting a log: its attempt is deleted, or its run has ended."""
        self._kept.pop(name, None)
        if name not in self._open:
            self._paths.pop(name, None)

    def closed(self, log: _TailLog) -> None:
        """A log is written no more."""
        if self._open.get(log.name) is log:
            del self._open[log.name]
            if log.name not in self._kept:
                self.forget(log.name)


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct, frozen=True):
    run: str = ""
    task: str = ""
    attempt: int = 0


class _Status(msgspec.Struct, rename="camel", frozen=True):
    log_position: str = ""
    log_complete: bool = False


class _Listed(msgspec.Struct, frozen=True):
    """The fields of a listed object that are read."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


def _left(attempt: _Listed) -> tuple[LogName, Mapping[str, Any]] | None:
    """The unfinished log of an attempt, with its owner's notes; None without one."""
    spec, status = attempt.spec, attempt.status
    notes = owner_notes(status.log_position) if status.log_position and not status.log_complete else None
    if notes is None or notes["namespace"] != attempt.metadata.namespace:
        return None
    return LogName.of(RunFolder(Path(spec.run)), spec.task, spec.attempt), notes


class _TailLog:
    """A :class:`~spotwright.cluster.log_place.WrittenLog` of which only the end is stored."""

    def __init__(self, tails: LogTails, name: LogName, path: str) -> None:
        self.name, self.notes = name, dict[str, Any]()
        self._tails, self._path = tails, path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail, self._bytes = b"", 0
        self._written: int | None = None  # bytes of the whole log according to the API; None: not written yet
        self._is_new = False  # something came since the last write
        self._pause, self._due = 0.0, 0.0  # a pause of 0: the common one
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._overtaken = ""
        self._is_refused = False  # the API server refuses the pending write

    async def is_complete(self) -> bool:
        """See :class:`WrittenLog`."""
        return bool((await self._tails.read(self._path)).get("logComplete"))

    async def open(self) -> bool:
        """See :class:`WrittenLog`."""
        status = await self._tails.read(self._path)
        notes = _notes(str(status.get("logPosition", "")))
        self._written = status.get("logBytes")
        if notes is None:
            return False
        self.notes, self._tail = notes, str(status.get("logTail", "")).encode()
        self._bytes = int(self._written or len(self._tail))
        return True

    async def append(self, data: bytes, notes: Mapping[str, Any]) -> None:
        """See :class:`WrittenLog`. Raises :class:`Overtaken`."""
        self._require_own()
        self._add(self._decoder.decode(data))
        self.notes = dict(notes)
        if not self._is_new:
            pause = self._pause or (_FIRST if self._written is None else self._tails.pause)
            self._is_new, self._due = True, time.monotonic() + pause
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send(), name=f"tail {self.name.title}")

    def seal(self) -> None:
        """See :class:`WrittenLog`."""
        if not self._pause:
            self._pause, self._due = _SEALED, 0.0
            self._wake.set()

    async def finish(self) -> None:
        """See :class:`WrittenLog`. Raises :class:`PlaceAway` and :class:`Overtaken`."""
        self._add(self._decoder.decode(b"", final=True))
        await self._stop()
        self._require_own()
        try:
            await self._write(is_complete=True)
        except ApiFailed as error:
            raise PlaceAway(str(error)) from error
        self._require_own()

    async def close(self) -> None:
        """See :class:`WrittenLog`."""
        await self._stop()
        self._tails.closed(self)

    def hurry(self) -> asyncio.Task[None] | None:
        """Write what waits now; the task that does it, if there is something."""
        self._due = 0.0
        self._wake.set()
        return self._task

    def _add(self, text: str) -> None:
        data = text.encode()
        self._bytes += len(data)
        self._tail = (self._tail + data)[-TAIL:]

    def _require_own(self) -> None:
        if self._overtaken:
            raise Overtaken(self._overtaken)

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _send(self) -> None:
        """Write new text whenever it is due, until all is written."""
        try:
            while self._is_new and not self._overtaken:
                await self._until_due()
                try:
                    await self._write(is_complete=False)
                except ApiFailed as error:
                    _LOG.debug("the end of log %s waits: %s", self.name.title, error)
                    self._due = time.monotonic() + _AGAIN
        finally:
            self._task = None

    async def _until_due(self) -> None:
        while (left := self._due - time.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    async def _write(self, *, is_complete: bool) -> None:
        """Write the current end. Raises :class:`ApiFailed` for errors that may be temporary."""
        tail, size = _whole_characters(self._tail), self._bytes
        position = "" if is_complete else msgspec.json.encode(self.notes).decode()
        if len(position) > _POSITION:  # a successor starts over
            position = ""
        fields = {"logTail": tail, "logBytes": size, "logPosition": position, "logComplete": is_complete}
        self._is_new = False
        try:
            await self._tails.write(self._path, fields, self._written)
        except ApiFailed as error:
            if error.status == _GONE:  # the run was deleted, and its logs with it
                self._tails.forget(self.name)
                return
            self._is_new = True
            if error.status not in (_CONFLICT, _INVALID):
                self._written = None  # it may have succeeded
                raise
            await self._refuse(error)
            return
        except Fenced as error:
            self._overtaken = str(error)
            return
        except asyncio.CancelledError:
            self._is_new, self._written = True, None
            raise
        self._written = size
        self._tails.note(KeptLog(time.time(), len(self._tail), self.name, is_complete))

    async def _refuse(self, error: ApiFailed) -> None:
        """Find out why a write was refused. Raises :class:`ApiFailed` if that may be temporary."""
        found = await self._tails.api.get_or_none(self._path)
        there = ((found or {}).get("status") or {}).get("logBytes")
        if self._written is not None and there != self._written:
            self._overtaken = f"the end of log {self.name.title} is written by another process: {error}"
            return
        if error.status == _CONFLICT:
            raise error
        self._is_new = False
        if not self._is_refused:
            self._is_refused = True
            _LOG.warning("cannot store the end of log %s: %s", self.name.title, error)


def _whole_characters(data: bytes) -> str:
    """The text of bytes that may begin inside a character."""
    begin = 0
    while begin < len(data) and data[begin] & 0xC0 == 0x80:
        begin += 1
    return data[begin:].decode()


def _notes(text: str) -> dict[str, Any] | None:
    """The owner's notes; None if they are unreadable."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else None
    except ValueError:
        return None
