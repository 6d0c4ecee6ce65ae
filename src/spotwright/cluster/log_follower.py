"""Follows the log of one attempt, container by container, until its pod has ended and everything is read.

A stream ends in many ways: the container has ended, the API server or the kubelet was restarted, the connection is cut or dead.
These look the same, so a log counts as read only after a request sent when the container had already ended. This module also
decides which containers belong to an attempt, and their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from spotwright.cluster.api_client import Api, ApiFailed, StreamSilent, object_path, wait_before
from spotwright.cluster.katib_trials import redirected_to
from spotwright.cluster.log_place import PlaceAway, WrittenLog
from spotwright.cluster.log_position import (
    Overlap,
    Piece,
    Position,
    Redaction,
    StampedLines,
    secret_values,
    stamp_text,
)
from spotwright.cluster.workloads import main_container
from spotwright.kube.object_fields import metadata, uid_of
from spotwright.model.quantities import format_duration

__all__ = ["Follower", "Pace", "Readable", "Reading", "has_finished", "next_readable"]


class Reading:
    """One answer, requested from ``position`` on. ``secrets`` are values by name."""

    def __init__(self, position: Position, secrets: Mapping[str, str]) -> None:
        self._lines, self._overlap = StampedLines(), Overlap(position)
        self._redaction = Redaction(secrets)
        self._position = position

    @property
    def words(self) -> str:
        """The kubelet's own message instead of a line, or empty."""
        return self._lines.words

    def feed(self, data: bytes) -> tuple[bytes, Position]:
        """The new text in these bytes of the answer, and the position after it."""
        return self._new(self._lines.feed(data))

    def flush(self, *, is_over: bool = False) -> tuple[bytes, Position]:
        """The rest, after the answer ended normally. ``is_over``: the container had already ended at the request."""
        text, position = self._new(self._lines.flush())
        if is_over and self._overlap.is_gone and not self.words:
            text += _end(position.last, is_open=position.opened >= 0)
            position = Position(tail=position.tail)  # reported only once
        return text, position

    def _new(self, pieces: Iterable[Piece]) -> tuple[bytes, Position]:
        position, texts = self._position.copy(), []
        for piece in pieces:
            part = self._overlap.new_part(piece)
            if self._overlap.missing_from:
                texts.append(_gap(self._overlap.missing_from, piece.stamp, is_open=position.opened >= 0))
                self._overlap.missing_from, position.opened = 0, -1
            if part:
                text, length = self._redaction.hide(part, ends=piece.ends)
                texts.append(text)
                position.add(piece, length)
        self._position = position
        return b"".join(texts), position


def _end(last: int, *, is_open: bool) -> bytes:
    """The line about possibly missing lines, if neither the previous lines nor new ones arrived."""
    line_end = "\n" if is_open else ""
    why = "the kubelet rotated its log"
    return f"{line_end}[spotwright: lines may be missing here, after {stamp_text(last)}: {why}]\n".encode()


def _gap(missing_from: int, until: int, *, is_open: bool) -> bytes:
    """The line about missing lines."""
    line_end = "\n" if is_open else ""
    span = f"between {stamp_text(missing_from)} and {stamp_text(until)}"
    lasted = format_duration(max(0.0, (until - missing_from) / 1e9))
    return f"{line_end}[spotwright: lines are missing here, {span} ({lasted}): the kubelet rotated its log]\n".encode()


_ADDED = frozenset(
    (
        "init",  # Argo: fetches artifacts
        "kfp-launcher",  # KFP: copies the launcher
        "istio-init",
        "istio-validation",
        "linkerd-init",
        "vault-agent-init",
    )
)


class Readable(NamedTuple):
    """A container whose log can be read now. ``is_over``: the log is final."""

    container: str
    is_main: bool
    is_previous: bool = False  # it was restarted since
    is_over: bool = False
    is_lost: bool = False  # it restarted twice: its log can no longer be read
    exit_code: int | None = None
    about: str = ""  # a clause for its heading


def next_readable(pod: Mapping[str, Any], restart: int, done: Iterable[str]) -> Readable | None:
    """The attempt's next container to read; None: none now. ``done`` are the names of finished ones."""
    done = frozenset(done)
    main = main_container(pod)
    if main not in done:
        if restart == 0:
            for status in _first(pod):
                if status["name"] not in done and (found := _ended_or_running(status)) is not None:
                    return found
        printer = _printer(pod)
        if printer and printer not in done:
            found = _main(pod, printer, restart)
            return found and found._replace(
                is_main=False, about=f", which prints what {main} writes: Katib redirects it"
            )
        found = _main(pod, main, restart)
        return found and found._replace(about=", the output that Katib does not redirect" if printer else "")
    return next((each for each in _failed_beside(pod, main) if each.container not in done), None)


def has_finished(pod: Mapping[str, Any], restart: int) -> bool:
    """Whether an attempt's pod has ended for good, or its container was restarted."""
    status = pod.get("status") or {}
    main = main_container(pod)
    count = next((_count(each) for each in status.get("containerStatuses") or () if each.get("name") == main), 0)
    return status.get("phase") in ("Succeeded", "Failed") or count > restart


def _printer(pod: Mapping[str, Any]) -> str:
    """The container whose log has the main container's lines; empty if it has its own, or they do not start together."""
    return redirected_to(pod) if (pod.get("spec") or {}).get("restartPolicy") == "Never" else ""


def _first(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The init containers whose output belongs to the log."""
    specs = (pod.get("spec") or {}).get("initContainers") or ()
    beside = {each.get("name") for each in specs if each.get("restartPolicy") == "Always"}
    for status in (pod.get("status") or {}).get("initContainerStatuses") or ():
        code = _ended(status).get("exitCode")
        if status.get("name") not in beside and (status.get("name") not in _ADDED or code):
            yield status


def _main(pod: Mapping[str, Any], name: str, restart: int) -> Readable | None:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") != name:
            continue
        count = _count(status)
        if count > restart + 1:
            return Readable(name, is_main=True, is_lost=True)
        if count == restart + 1:
            return Readable(name, is_main=True, is_previous=True, is_over=True)
        last = (status.get("lastState") or {}).get("terminated")
        if count == restart and last and "waiting" in (status.get("state") or {}):
            return Readable(name, is_main=True, is_over=True)  # it waits for its next start
        return _ended_or_running(status, is_main=True) if count == restart else None
    return None


def _ended_or_running(status: Mapping[str, Any], *, is_main: bool = False) -> Readable | None:
    state = status.get("state") or {}
    if state.get("terminated"):
        return Readable(
            str(status["name"]), is_main=is_main, is_over=True, exit_code=state["terminated"].get("exitCode")
        )
    return Readable(str(status["name"]), is_main=is_main) if state.get("running") else None


def _failed_beside(pod: Mapping[str, Any], main: str) -> Iterator[Readable]:
    """The containers beside the main one that failed."""
    status = pod.get("status") or {}
    for each in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        found = _ended_or_running(each)
        if found is not None and found.container != main and found.is_over and found.exit_code not in (0, 137, 143):
            yield found


def _ended(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (status.get("state") or {}).get("terminated") or {}
    return found


def _count(status: Mapping[str, Any]) -> int:
    return int(status.get("restartCount") or 0)


_LOG = logging.getLogger(__name__)
_SILENCE, _LONGEST_SILENCE = 60.0, 600.0  # seconds without a byte until a stream is reopened: it may be dead
_LAST_WORDS = 3.0  # seconds without a byte after a pod is gone; its node's earlier output is read
_AWAY = 5.0  # seconds until a refusing place is retried
_SHORT = 0.5  # seconds: a stream that ends sooner is reopened with growing delays
_RESTLESS = 3  # such streams in a row: the container has ended without a report
_A_SECOND, _ALL = 4 << 20, 8 << 20  # bytes per second of one namespace's logs, and of all namespaces that print more
_BURST = 2.0  # seconds of it in one burst
_TRIES = 20  # of an ended container whose log is refused


class Pace:
    """Slows the logs of a namespace that prints without end: reading them would take the whole recording thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}  # by namespace: the time by which its received bytes were allowed

    def wait_after(self, namespace: str, size: int) -> float:
        """Count received bytes. Returns the seconds until more of this namespace may be read."""
        now = self._clock()
        self._until = {each: until for each, until in self._until.items() if until > now}
        slowed = sum(until > now + _BURST for until in self._until.values())
        until = self._until.get(namespace, now) + size / min(_A_SECOND, _ALL / max(1, slowed))
        self._until[namespace] = until
        return max(0.0, until - now - _BURST)


class Answer(Enum):
    """How an answer of the endpoint ended."""

    WHOLE = auto()  # everything is read, and the log is final
    AGAIN = auto()  # it ended, and the container may continue
    CUT = auto()  # it broke off, or did not come
    REFUSED = auto()  # no such log now


class Follower:
    """Keeps the log of one attempt. ``places`` limits how many streams are opened at once."""

    def __init__(  # all followers share some of it
        self,
        api: Api,
        pod: Mapping[str, Any],
        restart: int,
        log: WrittenLog,
        places: asyncio.Semaphore,
        pace: Pace,
        key: str,
    ) -> None:
        self._api, self._log, self._places, self._pace, self._key = api, log, places, pace, key
        self.pod, self._restart = pod, restart
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._done: list[str] = []
        self._container = ""
        self._position = Position()
        self._came_at = 0.0  # when the last bytes came or the next may be read, by the monotonic clock
        self._short = 0  # streams in a row that ended at once
        self.last_line_at = 0.0  # when the last line was written, in Unix seconds by its node's clock; 0: unknown
        self._trouble = ""  # why the last stream broke off; empty if it did not
        self._silence = _SILENCE
        self._retry_after: float | None = None
        self._is_complete = False

    def put(self, pod: Mapping[str, Any], *, is_lost: bool, is_ending: bool = False) -> None:
        """Store a changed pod. ``is_lost``: it is gone, or its node no longer reports.

        ``is_ending``: it was notified of an interruption, or is being deleted.
        """
        self.pod = pod
        if is_ending or metadata(pod).get("deletionTimestamp"):
            self._log.seal()
        if is_lost:
            self._lost.set()
        self._changed.set()

    @property
    def is_restless(self) -> bool:
        """Whether its streams end at once: its pod then changed without an update."""
        return self._short >= _RESTLESS

    async def run(self) -> None:
        """Follow until the log is complete."""
        try:
            await self._write_surely(self._take_up)
            if not self._is_complete:
                await self._follow()
                await self._write_surely(self._say_why_it_ends)
                await self._write_surely(self._log.finish)
        finally:
            await self._log.close()

    async def _follow(self) -> None:
        """Read until the log ends."""
        passing = refused = 0
        while True:
            self._changed.clear()
            target = next_readable(self.pod, self._restart, self._done)
            if target is not None and target.is_lost:
                await self._write_surely(
                    lambda: self._say("this attempt's log is missing: its container restarted twice before it was read")
                )
                self._done.append(target.container)
            elif target is None or refused > _TRIES:
                if self._lost.is_set() or has_finished(self.pod, self._restart):
                    break
                await self._changed.wait()
                refused = 0
            else:
                began = time.monotonic()
                answer = await self._read(target)
                passing = passing + 1 if answer is Answer.CUT else 0
                refused = refused + 1 if answer is Answer.REFUSED else 0
                if self._lost.is_set() and answer is not Answer.WHOLE:
                    break
                if passing or refused:
                    await asyncio.sleep(wait_before(min(passing + refused, 6), self._retry_after))
                else:
                    await self._wait_for_a_change(answer, began)

    async def _wait_for_a_change(self, answer: Answer, began: float) -> None:
        """Wait after a stream that ended at once: usually the container has ended, and its pod shows it soon."""
        is_short = answer is Answer.AGAIN and time.monotonic() - began < _SHORT
        self._short = self._short + 1 if is_short else 0
        if is_short:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SHORT * 2.0 ** min(self._short - 1, 5)):
                    await self._changed.wait()

    async def _take_up(self) -> None:
        """Continue where an earlier process was killed."""
        self._is_complete = await self._log.is_complete()
        if not self._is_complete and await self._log.open() and self._log.notes:
            notes = self._log.notes
            self._done, self._container = list(notes["done"]), str(notes["container"])
            self._position = Position.from_json(notes["position"])
            self.last_line_at = self._position.last / 1e9

    async def _say_why_it_ends(self) -> None:
        """Log that its end was not read, or none of it because Katib redirects it."""
        printer = redirected_to(self.pod)
        if printer and (not self._log.notes or not _printer(self.pod)):
            await self._say(
                f"Katib redirects what {main_container(self.pod)} writes, and container {printer} prints it, whose log was "
                "not read"
            )
        if self._trouble and self._log.notes:
            last = f"; its last line is from {stamp_text(self._position.last)}" if self._position.last else ""
            await self._say(f"the log ends here: {self._trouble}{last}")

    async def _write_surely(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write this attempt's last record, retrying until the place accepts it: it cannot be reproduced later."""
        while True:
            try:
                await write()
            except OSError as error:
                self._waits(error)
                await asyncio.sleep(_AWAY)
            else:
                return

    def _waits(self, error: OSError) -> None:
        level = logging.DEBUG if isinstance(error, PlaceAway) else logging.WARNING
        _LOG.log(level, "log of %s waits: %s", self._key, error)

    # A stream

    async def _read(self, target: Readable) -> Answer:
        """Read a container's log to its end, but not forever if its pod is lost."""
        reading = asyncio.ensure_future(self._session(target))
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait((reading, lost), return_when=asyncio.FIRST_COMPLETED)
            self._came_at = max(self._came_at, time.monotonic())
            while not reading.done() and (left := self._came_at + _LAST_WORDS - time.monotonic()) > 0:
                await asyncio.wait((reading,), timeout=left)
        finally:
            lost.cancel()
            reading.cancel()
            await asyncio.wait((reading, lost))
        if reading.cancelled():
            self._trouble = "its node no longer reports"
            return Answer.CUT
        answer = reading.result()
        if answer is Answer.WHOLE and target.is_over:
            self._done.append(target.container)
        return answer

    async def _session(self, target: Readable) -> Answer:
        self._retry_after = None
        try:
            if target.container != self._container:
                await self._begin(target)
            return await self._stream(target)
        except StreamSilent:
            self._silence = min(2 * self._silence, _LONGEST_SILENCE)
            return Answer.AGAIN
        except ApiFailed as error:
            _LOG.debug("log of %s: %s", self._key, error)
            self._retry_after = error.retry_after
            if error.may_pass:
                self._trouble = self._trouble or "the connection to its node was lost"
                return Answer.CUT
            return Answer.REFUSED

    async def _stream(self, target: Readable) -> Answer:
        reading = Reading(self._position, secret_values(self.pod))
        async with contextlib.AsyncExitStack() as stack:
            async with self._places:
                opened = self._api.chunks(f"{self.path}/log", self._parameters(target), silence=self._silence)
                chunks = await stack.enter_async_context(opened)
            if not await self._is_meant(target):
                return Answer.AGAIN
            async for chunk in chunks:
                self._came_at = time.monotonic()
                await self._take(*reading.feed(chunk))
                wait = self._pace.wait_after(str(metadata(self.pod).get("namespace", "")), len(chunk))
                self._came_at = time.monotonic() + wait
                await asyncio.sleep(wait)
        await self._take(*reading.flush(is_over=target.is_over))
        if reading.words:
            _LOG.debug("log of %s: %s", self._key, reading.words)
            return Answer.CUT
        self._trouble = ""
        return Answer.WHOLE if target.is_over else Answer.AGAIN

    async def _is_meant(self, target: Readable) -> bool:
        """Whether the opened stream is this attempt's: the container may have been restarted meanwhile."""
        if (self.pod.get("spec") or {}).get("restartPolicy") == "Never":
            return True
        pod = await self._api.get_or_none(self.path)
        if pod is None or uid_of(pod) != uid_of(self.pod):
            return True  # it was just deleted, after the stream was opened
        self.pod = pod
        return next_readable(pod, self._restart, self._done) == target

    async def _take(self, text: bytes, position: Position) -> None:
        """Write the new part of a stream."""
        if text:
            self._silence = _SILENCE
            await self._write(text, position)
            self._came_at = time.monotonic()

    # The log

    async def _begin(self, target: Readable) -> None:
        """Begin a container; each of several has a heading, the main one only after others."""
        heading = ""
        if not target.is_main or self._log.notes:
            code = "" if target.is_main or not target.exit_code else f", which exited with {target.exit_code}"
            heading = f"==> container {target.container}{code}{target.about} <==\n"
        before, self._container = self._container, target.container
        try:
            await self._write(heading.encode(), Position())
        except asyncio.CancelledError:
            self._container = before
            raise

    async def _say(self, text: str) -> None:
        """Write Spotwright's own line into the log."""
        position = self._position.copy()
        line_end = "\n" if position.opened > 0 else ""
        position.opened = -1
        await self._write(f"{line_end}[spotwright: {text}]\n".encode(), position)

    async def _write(self, data: bytes, position: Position) -> None:
        notes = {
            "namespace": metadata(self.pod).get("namespace", ""),
            "pod": metadata(self.pod).get("name", ""),
            "uid": uid_of(self.pod),
            "restart": self._restart,
            "container": self._container,
            "done": [*self._done],
            "position": position.to_json(),
        }
        await self._log.append(data, notes)
        self._position = position
        self.last_line_at = max(self.last_line_at, position.last / 1e9)

    @property
    def path(self) -> str:
        """The path of the pod. Raises :class:`ApiFailed` for a name that no pod has."""
        meta = metadata(self.pod)
        return object_path("v1", "Pod", str(meta.get("name", "")), str(meta.get("namespace", "")))

    def _parameters(self, target: Readable) -> dict[str, str]:
        since = self._position.since_time
        return {
            "container": target.container,
            "timestamps": "true",
            **({} if target.is_over else {"follow": "true"}),
            **({"previous": "true"} if target.is_previous else {}),
            **({"sinceTime": since} if since else {}),
        }
