"""Keeps logs in an object store, so that they survive the keeper's machine.

An archived run (:mod:`spotwright.cluster.run_archives`) keeps its logs as long as its archive: both are deleted together and
count together towards the namespace's limit, with a minimum size that bounds their number.

New text of a log waits in memory for at most five seconds, less once its pod was notified of its end; then it is written as a
part with a unique name. So if two processes act as the keeper, one finds the other's part in its place, and stops. A part holds
the read position in the pod's log, from which a successor continues.

While the store refuses writes, logs are still followed: new text waits in bounded memory; beyond the bound the oldest lines are
omitted, with a note in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from spotwright.cluster.log_parts import (
    DROPPED,
    END,
    OPEN,
    OWNER,
    Objects,
    Part,
    StoredLogs,
    log_key,
    name_of_key,
    part_key,
    run_key,
)
from spotwright.cluster.log_place import SMALL, KeptLog, LogName, Overtaken, PlaceAway, drop_note, owner_notes
from spotwright.cluster.run_archives import Archive, archives_in
from spotwright.model.quantities import format_bytes

__all__ = ["LogRuns", "LogStore"]


_LOG = logging.getLogger(__name__)
_PAUSE, _SEALED = 5.0, 0.5  # seconds that new text of a log waits: normally, and once its pod was notified of its end
_FULL = 1 << 20  # bytes of a part that is written at once
_MOST_OF_LOG, _MOST = 2 << 20, 32 << 20  # queued bytes: of one log, and of all while the store refuses writes
_WRITERS = 16  # concurrently written parts
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0  # seconds until a write is retried after a refusal
_SAID_AGAIN = 600.0  # seconds until a lasting refusal of the store is reported again
_LISTED = 3600.0  # seconds between listings of all objects: in between, sizes are those written here
_LAST = 5.0  # seconds to write the queue when this process ends
_LEAST_OBJECT, _LEAST_ARCHIVED = 4 << 10, 256 << 10  # least counted bytes of an archived run's object, and of the run
_TRIED = "+tried"  # an object written twice, to check whether the store keeps the first one


class LogRuns(Protocol):
    """The runs with logs in a possibly shared store."""

    @property
    def owner(self) -> str:
        """The owner name that distinguishes their logs from others'. Raises :class:`OSError`."""

    async def existing(self, runs: Collection[str]) -> Collection[str]:
        """The existing ones of these runs, by name; if in doubt all, because the others' logs are deleted."""

    async def is_gone(self, namespace: str, uid: str) -> bool:
        """Whether the namespace with this name and UID is gone; in doubt it exists."""


class LogStore:
    """The logs below an address. It is a :class:`~spotwright.cluster.log_place.LogPlace`.

    ``log_limit`` is in bytes, for each log. The logs of a run that is deleted from ``runs`` are deleted too, unless it is
    archived. ``on_trouble`` gets a sentence when the store refuses writes, repeated at most every ten minutes.
    """

    def __init__(
        self, url: str, log_limit: int, runs: LogRuns, on_trouble: Callable[[str], None] = lambda _: None
    ) -> None:
        self.objects = Objects(url, self._heard)
        self.logs = StoredLogs(self.objects)
        self.log_limit, self._runs, self._on_trouble = log_limit, runs, on_trouble
        self.trouble = ""  # why the store refuses writes; empty if it accepts them
        self._said, self._said_at = "", 0.0
        self._wait, self._retry_at = _FIRST_WAIT, 0.0
        self._is_back = asyncio.Event()
        self.gate = asyncio.Semaphore(_WRITERS)
        self.waiting = 0  # bytes of text in memory
        self._open: dict[LogName, _PartsLog] = {}
        self._kept: dict[LogName, KeptLog] = {}
        self._changed: dict[LogName, KeptLog | None] = {}  # since the listing of all objects began
        self._list_at = 0.0
        self._archives: defaultdict[str, set[str]] = defaultdict(set)  # their names, by run
        self._owned: set[str] = set()  # folders of runs with their owner's object

    @property
    def about(self) -> str:
        """See :class:`LogPlace`."""
        return self.objects.shown

    @property
    def owner(self) -> str:
        """See :attr:`LogRuns.owner`."""
        return self._runs.owner

    def log(self, name: LogName, task: str = "") -> _PartsLog:  # noqa: ARG002  # the name is enough
        """See :class:`LogPlace`."""
        made = self._open[name] = _PartsLog(self, name)
        return made

    async def unfinished(self) -> Sequence[tuple[LogName, Mapping[str, Any]]]:
        """See :class:`LogPlace`: only its own runs."""
        await self._try_to_overwrite()
        found = list[tuple[LogName, Mapping[str, Any]] | None]()
        async for objects in self.objects.list(f"{OPEN}/{self.owner}"):
            found += await asyncio.gather(*(self._unfinished(each.key) for each in objects))
        return [each for each in found if each is not None]

    async def _unfinished(self, key: str) -> tuple[LogName, Mapping[str, Any]] | None:
        """The log that an object marks as incomplete."""
        known = name_of_key(f"{key.split('/', 2)[2]}/{END}")
        notes = None if known is None else owner_notes(await self.objects.get(key) or b"")
        if known is None or notes is None or not await self._runs.existing([known[0].run]):
            return None
        if (await self.logs.look(known[0], anew=True)).is_complete:  # it was just finished
            await self.objects.delete([key])
            return None
        return known[0], notes

    async def kept(self) -> Mapping[str, Sequence[KeptLog]]:
        """See :class:`LogPlace`. Each hour it lists all objects, and deletes the logs whose runs are deleted."""
        if time.monotonic() >= self._list_at:
            await self._list()
            self._list_at = time.monotonic() + _LISTED
        found: dict[str, list[KeptLog]] = {}
        going = {name: log.kept for name, log in self._open.items() if log.size}
        for name, kept in {**self._kept, **going}.items():
            found.setdefault(name.namespace, []).append(kept)
        return found

    def is_complete(self, name: LogName) -> bool:
        """Whether the log is known to be complete, without asking the store."""
        kept = self._kept.get(name)
        return kept is not None and kept.is_complete

    def limit(self, wanted: int, found: Mapping[str, Sequence[KeptLog]]) -> int:
        """See :class:`LogPlace`: less on a nearly full volume, so that namespaces leave space for each other."""
        room = self.objects.room()
        if room is None or not found or room.free >= 2 * room.reserve:
            return wanted
        used = sum(log.size for logs in found.values() for log in logs)
        return min(wanted, max(0, used + room.free - 2 * room.reserve) // len(found))

    async def drop(self, logs: Collection[KeptLog], why: str) -> list[KeptLog]:
        """See :class:`LogPlace`. If the store fails now, the next look retries."""
        dropped = []
        with contextlib.suppress(PlaceAway):
            for log in logs:
                if log.name.is_archive:
                    await self._drop_archived(log.name)
                    dropped.append(log)
                    continue
                folder, note = log_key(log.name), drop_note(format_bytes(log.size), why).encode()
                is_noted = log.size > SMALL and await self._note_drop(folder, note)
                kept = {f"{folder}/{DROPPED}"} if is_noted else set()
                await self._delete(folder, kept)
                await self.objects.delete([self.open_key(log.name)])
                self.note(log.name, KeptLog(log.at, len(note), log.name, is_complete=True) if is_noted else None)
                dropped.append(log)
        return dropped

    async def _drop_archived(self, name: LogName) -> None:
        """Delete the archives of a run, and its logs unless it is recorded again. Raises :class:`PlaceAway`."""
        await self.objects.delete([*self._archives.pop(name.run, ())])
        self.note(name, None)
        if not await self._runs.existing([name.run]):
            await self._delete_run(name)

    def archived(self, made: Archive) -> None:
        """Note an archived run."""
        self._archives[made.run].add(made.key)
        name = LogName(made.run, "", 0)
        self.note(name, KeptLog(made.ended_at, max(made.size, _LEAST_ARCHIVED), name, is_complete=True))

    async def _note_drop(self, folder: str, note: bytes) -> bool:
        """Write the note about a dropped log; False: a full volume has no room for it. Raises :class:`PlaceAway`."""
        try:
            await self.objects.put_new(f"{folder}/{DROPPED}", note)
        except PlaceAway:
            if self.objects.room() is None:
                raise
            return False
        return True

    async def close(self) -> None:
        """See :class:`LogPlace`."""
        writing = [task for log in self._open.values() if (task := log.hurry()) is not None]
        if writing and not self.trouble:
            await asyncio.wait(writing, timeout=_LAST)

    # For the logs

    async def own(self, name: LogName) -> None:
        """Record the owner of a log's run, once per run. Raises :class:`PlaceAway`."""
        folder = run_key(name)
        if folder not in self._owned:
            await self.objects.put_new(f"{folder}/{OWNER}", self.owner.encode())
            self._owned.add(folder)

    def open_key(self, name: LogName) -> str:
        """The object that marks a log as incomplete."""
        return f"{OPEN}/{self.owner}/{log_key(name)}"

    def note(self, name: LogName, kept: KeptLog | None) -> None:
        """Store the state of a log, or None."""
        self._changed[name] = kept
        if kept is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = kept

    def closed(self, log: _PartsLog) -> None:
        """A log is written no more."""
        if self._open.get(log.name) is log:
            del self._open[log.name]
            if log.size:
                self.note(log.name, log.kept)

    async def turn(self) -> None:
        """Wait until the store accepts writes, or until a retry is due, which one log at a time makes."""
        while self.trouble:
            left = self._retry_at - time.monotonic()
            if left <= 0:
                self._wait = min(2 * self._wait, _LONGEST_WAIT)
                self._retry_at = time.monotonic() + self._wait
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._is_back.wait()

    def keep_bounds(self) -> None:
        """Omit the excess over the memory bound while the store refuses writes, from the log with the most queued text."""
        while self.waiting > _MOST:
            if not max(self._open.values(), key=lambda log: log.buffered).leave_out():
                return

    def failed(self, why: str) -> PlaceAway:
        """Record a request's error as a failure of the store."""
        self._heard(why)
        return PlaceAway(why)

    def _heard(self, why: str) -> None:
        now = time.monotonic()
        if not why:
            if self.trouble:
                _LOG.info("%s: accepts logs again", self.about)
            self.trouble, self._wait = "", _FIRST_WAIT
            self._is_back.set()
            return
        if not self.trouble:
            self._retry_at = now + self._wait
        self.trouble = why
        self._is_back.clear()
        for log in self._open.values():
            log.moved.set()
        if why != self._said or now >= self._said_at + _SAID_AGAIN:
            self._said, self._said_at = why, now
            text = (
                f"logs cannot be stored: {why}. They wait in memory; when that is full, their oldest lines are dropped. Ended"
                " runs stay in the API until they can be archived; see --logs (in the chart: logs.url and logs.secret)"
            )
            _LOG.warning("%s", text)
            self._on_trouble(text)

    # All logs

    async def _try_to_overwrite(self) -> None:
        """Report a store that overwrites objects despite the condition not to.

        SeaweedFS did until 3.97 (https://github.com/seaweedfs/seaweedfs/issues/7153), and with concurrent writers for longer
        (https://github.com/seaweedfs/seaweedfs/issues/8800).
        """
        key = f"{OPEN}/{self.owner}/{_TRIED}"
        if await self.objects.put_new(key, b"") and await self.objects.put_new(key, b""):
            _LOG.warning(
                "%s: this store ignores conditional writes: if two processes store logs at once, one may overwrite the other's",
                self.about,
            )

    async def _list(self) -> None:
        """List all objects, and delete the logs of this release's runs that are neither active nor archived."""
        self._changed = {}
        archived, beside = await self._list_archives(), Counter[str]()
        sizes: dict[LogName, tuple[int, float, bool]] = {}
        async for objects in self.objects.list():
            for each in objects:
                known = name_of_key(each.key)
                if known is not None and known[0].run in archived:
                    beside[known[0].run] += max(each.size, _LEAST_OBJECT)
                elif known is not None:
                    size, at, is_over = sizes.get(known[0], (0, 0.0, False))
                    is_over = is_over or known[1] in (END, DROPPED)
                    sizes[known[0]] = size + each.size, max(at, each.at), is_over
        found = {name: KeptLog(at, size, name, is_over) for name, (size, at, is_over) in sizes.items()}
        existing = await self._runs.existing(
            {name.run for name in found}
        )  # afterwards: a run exists before its logs do
        gone = {name.run: name for name in found if name.run not in existing}
        if gone:  # list again: a run is archived before it is deleted
            now = await self._list_archives()
            gone = {run: name for run, name in gone.items() if run not in now}
        for run, log in archived.items():
            found[log.name] = log._replace(size=max(log.size + beside[run], _LEAST_ARCHIVED))
        kept = {name: log for name, log in {**found, **self._changed}.items() if log is not None}
        self._kept = {name: log for name, log in kept.items() if name.run not in gone}
        for name in gone.values():
            await self._delete_run(name)

    async def _list_archives(self) -> dict[str, KeptLog]:
        """The archives of this release's runs, by run. Delete the archives of deleted namespaces."""
        self._archives = defaultdict(set)
        found: dict[str, KeptLog] = {}
        is_gone: dict[tuple[str, str], bool] = {}
        gone: list[str] = []
        async for each in archives_in(self.objects):
            where = each.namespace, each.namespace_uid
            if each.owner != self.owner:
                continue
            if where not in is_gone:
                is_gone[where] = await self._runs.is_gone(*where)
            if is_gone[where]:
                gone.append(each.key)
            else:
                self._archives[each.run].add(each.key)
                name = LogName(each.run, "", 0)
                before = found.get(each.run) or KeptLog(0.0, 0, name, is_complete=True)
                found[each.run] = before._replace(at=max(before.at, each.ended_at), size=before.size + each.size)
        await self.objects.delete(gone)
        return found

    async def _delete_run(self, name: LogName) -> None:
        """Delete all logs of the run of this log, unless it belongs to another release."""
        folder = run_key(name)
        if await self.objects.get(f"{folder}/{OWNER}") != self.owner.encode():
            return
        _LOG.info("run %s was deleted: deleting its logs", name.run)
        await self._delete(f"{OPEN}/{self.owner}/{folder}")
        await self._delete(folder, {f"{folder}/{OWNER}"})
        await self.objects.delete([f"{folder}/{OWNER}"])  # last: it permits the deletion of the rest
        self._owned.discard(folder)

    async def _delete(self, folder: str, kept: Collection[str] = ()) -> None:
        """Delete the objects below a folder except ``kept``."""
        keys = [each.key async for objects in self.objects.list(folder) for each in objects if each.key not in kept]
        await self.objects.delete(keys)


class _PartsLog:
    """A :class:`~spotwright.cluster.log_place.WrittenLog` in parts. New text waits in memory until it is written."""

    def __init__(self, store: LogStore, name: LogName) -> None:
        self.name, self.notes = name, dict[str, Any]()
        self.size, self.at = 0, 0.0  # stored bytes, and when they were last written
        self.moved = asyncio.Event()  # a write succeeded, or none can succeed
        self._store, self._writer = store, secrets.token_hex(8)
        self._number, self._start, self._head = 1, 0, -1  # of the next part
        self._tail = deque[tuple[int, int]]()  # the parts behind the first half, with their sizes
        self._buffer, self._due, self._pause = bytearray(), 0.0, _PAUSE
        self._frozen = deque[tuple[Part, bytes, int]]()  # parts being sent, each with its bytes of queued text
        self._frozen_notes = dict[str, Any]()
        self._left_out = self._left_out_lines = 0
        self._is_mid_line = self._has_begun = self._is_over = False
        self._full = min(_FULL, store.log_limit // 8)
        self._most = min(_MOST_OF_LOG, store.log_limit // 4)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._overtaken = ""

    @property
    def kept(self) -> KeptLog:
        """The stored part of the log."""
        return KeptLog(self.at, self.size, self.name, self._is_over)

    @property
    def buffered(self) -> int:
        """The bytes that can still be omitted."""
        return len(self._buffer)

    async def is_complete(self) -> bool:
        """See :class:`WrittenLog`."""
        if self._store.is_complete(self.name):
            return True
        return (await self._store.logs.look(self.name, anew=True)).is_complete

    async def open(self) -> bool:
        """See :class:`WrittenLog`."""
        logs = self._store.logs
        sizes = (await logs.look(self.name, anew=True)).sizes
        if not sizes:
            return False
        numbers = list(sizes)
        last = await logs.part(self.name, numbers[-1], with_notes=True)
        behind = await logs.first(self.name, numbers, lambda part: part.is_behind)
        self._number, self._start, self._head = numbers[-1] + 1, last.start + last.length, last.head
        self._tail = deque((number, sizes[number]) for number in numbers[behind:])
        self.notes, self._frozen_notes = dict(last.notes), dict(last.notes)
        self.size, self.at = sum(sizes.values()), time.time()
        return True

    async def append(self, data: bytes, notes: Mapping[str, Any]) -> None:
        """See :class:`WrittenLog`. If the store is slow, it waits. Raises :class:`Overtaken`."""
        self._require_own()
        while len(self._buffer) >= self._most and not self._store.trouble:
            self._wake.set()
            self.moved.clear()
            await self.moved.wait()
            self._require_own()
        if data and not self._buffer:
            self._due = time.monotonic() + self._pause
        self._buffer += data
        self._store.waiting += len(data)
        self.notes = dict(notes)
        if self._store.trouble:
            if len(self._buffer) > self._most:
                self.leave_out()
            self._store.keep_bounds()
        if len(self._buffer) >= self._full:
            self._wake.set()
        self._begin_to_send()

    def seal(self) -> None:
        """See :class:`WrittenLog`."""
        if self._pause > _SEALED:
            self._pause, self._due = _SEALED, 0.0
            self._wake.set()

    async def finish(self) -> None:
        """See :class:`WrittenLog`. It waits until everything is written. Raises :class:`Overtaken`."""
        task = self.hurry()
        if task is not None:
            await asyncio.shield(task)
        self._require_own()
        await self._leave_out_middle()
        await self._store.own(self.name)
        await self._store.objects.put_new(f"{log_key(self.name)}/{END}", b"")
        self._is_over = True
        self._store.note(self.name, self.kept)
        await self._store.objects.delete([self._store.open_key(self.name)])

    async def close(self) -> None:
        """See :class:`WrittenLog`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._store.waiting -= len(self._buffer) + sum(taken for _, _, taken in self._frozen)
        self._buffer.clear()
        self._frozen.clear()
        self._store.closed(self)

    def hurry(self) -> asyncio.Task[None] | None:
        """Write the queued text now; returns the task that does it, if there is any text."""
        self._pause = self._due = 0.0
        self._wake.set()
        if self._buffer or self._frozen or self._left_out:
            self._begin_to_send()
        return self._task

    def leave_out(self) -> bool:
        """Drop the older half of the queued text; False if the queue is empty."""
        if not self._buffer:
            return False
        cut = self._buffer.find(b"\n", len(self._buffer) // 2) + 1 or len(self._buffer)
        self._left_out += cut
        self._left_out_lines += self._buffer.count(b"\n", 0, cut)
        self._store.waiting -= cut
        del self._buffer[:cut]
        return True

    # Parts

    def _require_own(self) -> None:
        if self._overtaken:
            raise Overtaken(f"{self._overtaken}: another process writes this log")

    def _begin_to_send(self) -> None:
        if self._task is None and (self._buffer or self._frozen or self._left_out or not self._has_begun):
            self._task = asyncio.get_running_loop().create_task(self._send(), name=f"parts of {log_key(self.name)}")

    async def _send(self) -> None:
        """Write parts until the queue is empty."""
        try:
            while not self._overtaken and (self._buffer or self._frozen or self._left_out or not self._has_begun):
                if self._has_begun and not self._frozen:
                    await self._until_due()
                await self._store.turn()
                async with self._store.gate:
                    with contextlib.suppress(PlaceAway):  # the store has recorded it, and schedules the retry
                        await (self._send_parts() if self._has_begun else self._begin())
                self.moved.set()
        except OSError as error:  # from the owner's name
            _LOG.warning("log %s waits: %s", log_key(self.name), error)
        finally:
            self._task = None
            self.moved.set()

    async def _until_due(self) -> None:
        while (left := self._due - time.monotonic()) > 0 and not self._wake.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
        self._wake.clear()

    async def _begin(self) -> None:
        """Record the log's owner, and that it is incomplete. Raises :class:`PlaceAway`."""
        await self._store.own(self.name)
        await self._store.objects.put_new(self._store.open_key(self.name), msgspec.json.encode(self.notes))
        self._has_begun = True

    async def _send_parts(self) -> None:
        """Write the queued text now. Raises :class:`PlaceAway`; unwritten text stays in the queue."""
        if not self._frozen:
            self._freeze()
        while self._frozen:
            part, data, taken = self._frozen[0]
            if not await self._put(part, data):
                return
            self._frozen.popleft()
            self._store.waiting -= taken
        await self._leave_out_middle()

    def _freeze(self) -> None:
        """Form parts from the queued text. They stay unchanged until written, so that our own are recognized by their content."""
        taken, text = len(self._buffer), bytes(self._buffer)
        if self._left_out:
            line_end = "\n" if self._is_mid_line else ""
            lines = f"{self._left_out_lines:,} lines"
            why = "they arrived while the log store refused writes"
            gap = f"{line_end}[spotwright: {format_bytes(self._left_out)} ({lines}) are missing here: {why}]\n"
            text = gap.encode() + text
            self._left_out = self._left_out_lines = 0
        self._buffer.clear()
        half = self._store.log_limit // 2
        if self._head < 0 < self._start and self._start + len(text) > half:
            last = format_bytes(self._store.log_limit // 4)
            said = f"this log is longer than {format_bytes(half)}; at least its last {last} follow when it has ended"
            line_end = "\n" if self._is_mid_line else ""
            announcement = f"{line_end}[spotwright: {said}]\n".encode()
            self._head = self._start + len(announcement)
            self._freeze_text(announcement, self._frozen_notes, 0)
        if text:
            self._freeze_text(text, self.notes, taken)
            self._frozen_notes = self.notes

    def _freeze_text(self, text: bytes, notes: dict[str, Any], taken: int) -> None:
        part = Part(self._start, len(text), self._head, self._writer, notes)
        self._frozen.append((part, part.with_text(text), taken))
        self._start += len(text)
        self._is_mid_line = not text.endswith(b"\n")

    async def _put(self, part: Part, data: bytes) -> bool:
        """Write a part; False: another process has written one in its place."""
        key = part_key(self.name, self._number)
        if not await self._store.objects.put_new(key, data):
            there = await self._store.objects.get(key)
            if there is None:  # S3 also refuses a write beside another one that finally fails
                raise self._store.failed(f"{self._store.about}: {key} was refused and does not exist")
            if there != data:
                self._overtaken = key
                return False
        self._store.logs.remember(self.name, self._number, part)
        if part.is_behind:
            self._tail.append((self._number, len(data)))
        self._number, self.size, self.at = self._number + 1, self.size + len(data), time.time()
        return True

    async def _leave_out_middle(self) -> None:
        """Delete the oldest parts after the first half, keeping the last quarter of the limit."""
        while len(self._tail) > 1:
            second = await self._store.logs.part(self.name, self._tail[1][0])
            if second.start > self._start - self._store.log_limit // 4:
                return
            number, size = self._tail[0]
            await self._store.objects.delete([part_key(self.name, number)])
            self._tail.popleft()
            self.size -= size
