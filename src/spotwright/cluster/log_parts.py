"""The parts of logs in an object store: their names, format and access, and how a log is read from them.

A log is a folder ``NAMESPACE/RUN/TASK/ATTEMPT`` below the address, with write-once objects:

| object | holds |
|---|---|
| ``00000001``, ``00000002``, ... | a part: text, behind it a line of JSON: where the text begins, what its writer knew |
| ``end`` | empty: the log is complete |
| ``dropped`` | the line in the place of a log that was dropped |

Beside them ``NAMESPACE/RUN/+owner`` names the release that has recorded the run, and ``+open/OWNER/...`` each log that is not
complete. Every name is quoted, and no quoted name has a plus sign there or is a dot, so no name leads elsewhere.

A log above its limit has a first half and a last part, with a line about the omitted middle between them. An incomplete log is
shown up to its first half, so that it only grows for its readers.

The store is reached by obstore (https://developmentseed.org/obstore/), which finds credentials in the environment: variables,
a workload's identity, or the machine's role. It is imported only here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import msgspec

from spotwright.cluster.log_place import LogName, PlaceAway
from spotwright.errors import InputError
from spotwright.model.quantities import format_bytes

__all__ = [
    "DROPPED",
    "END",
    "OPEN",
    "OWNER",
    "Folder",
    "Objects",
    "Part",
    "Room",
    "StoredLogs",
    "StoredObject",
    "log_key",
    "name_of_key",
    "part_key",
    "require_url",
    "run_key",
    "segment",
]


END, DROPPED, OWNER, OPEN = "end", "dropped", "+owner", "+open"
"""Names of objects; see above."""

_SCHEMES = ("s3", "gs", "az", "azure", "abfs", "abfss", "file")
_TIMEOUT = timedelta(seconds=10)  # of one request, with its repetitions
_AT_ONCE = 16  # requests
_DELETED_AT_ONCE = 1000  # objects
_DIGITS = 8  # of the number of a part, and of the length of what is behind its text
_TRAILER = 4096  # bytes read from the end of a part: usually more than its trailer
_RESERVED = 20  # the part of a volume that logs leave free
_WHOLE = 256 << 10  # bytes of an object that is read whole
_FRESH = 2.0  # seconds for which a listing is reused: parts are not written more often
_KEPT_PARTS, _KEPT_FOLDERS = 50_000, 200  # that are remembered
_LOG = logging.getLogger(__name__)


def require_url(url: str) -> str:
    """A valid and printable address of a store. Raises :class:`InputError`."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not (parts.netloc or (parts.scheme == "file" and parts.path.strip("/"))):
        raise InputError(
            f"{_shown(url)!r} is not an object store address; use s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER or file:///FOLDER"
        )
    is_azure = parts.scheme in ("abfs", "abfss")  # its container is in place of the user
    if parts.query or parts.fragment or parts.password is not None or (parts.username is not None and not is_azure):
        raise InputError(
            f"{_shown(url)}: the address has a user, a password or a query: leave them out, credentials come from the environment"
        )
    return url.rstrip("/")


def _shown(url: str) -> str:
    """An address without possible secrets."""
    scheme, colon, rest = url.partition("://")
    plain = re.split(r"[?#]", rest, maxsplit=1)[0]
    place, slash, path = plain.partition("/")
    return f"{scheme}{colon}{place.rpartition('@')[2]}{slash}{path}" if colon else plain or scheme[:60]


def log_key(name: LogName) -> str:
    """The folder of a log."""
    return f"{run_key(name)}/{name.task}/{name.attempt}"


def run_key(name: LogName) -> str:
    """The folder of the logs of its run."""
    return f"{segment(name.namespace)}/{segment(name.run)}"


def segment(text: str) -> str:
    """A name as a single folder name, without a plus sign."""
    quoted = quote(text, safe="", errors="surrogatepass")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted or "+none"


def name_of_key(key: str) -> tuple[LogName, str] | None:
    """The log that an object belongs to, and the object's name; None for an object of another kind."""
    names = key.split("/")
    if len(names) != 5 or not names[3].isdecimal() or names[0] == OPEN:
        return None
    return LogName(unquote(names[1]), names[2], int(names[3])), names[4]


class Part(NamedTuple):
    """The line of JSON behind the text of a part.

    ``start`` is the text's position in the whole log, ``length`` its bytes. ``head`` are the bytes of the first half, known to
    its last part and later ones; -1: not known yet. ``writer`` is random, ``notes`` come from the log's owner.
    """

    start: int
    length: int
    head: int
    writer: str
    notes: dict[str, Any]

    @property
    def is_behind(self) -> bool:
        """Whether it is after the first half."""
        return 0 <= self.head <= self.start

    def with_text(self, text: bytes) -> bytes:
        """The object."""
        behind = b"\n" + msgspec.json.encode(self)
        return b"".join((text, behind, b"%0*d" % (_DIGITS, len(behind))))


class StoredObject(NamedTuple):
    """An object of the store. ``at`` is when it was written, in Unix seconds by the store's clock."""

    key: str
    size: int
    at: float


class Room(NamedTuple):
    """The free bytes of a volume, and the bytes that logs leave free."""

    free: int
    reserve: int


@dataclass
class Objects:
    """The objects below an address accepted by :func:`require_url`. Every call may raise :class:`PlaceAway`.

    ``on_state`` is called after each request with the store's problem, or an empty text.
    """

    url: str
    on_state: Callable[[str], None] = lambda _: None
    _store: Any = None
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    @property
    def shown(self) -> str:
        """The address for people."""
        return _shown(self.url)

    def room(self) -> Room | None:
        """Free bytes on the volume of a folder; None for a store, which does not report it, or a missing folder."""
        parts = urlsplit(self.url)
        try:
            disk = os.statvfs(unquote(parts.path)) if parts.scheme == "file" else None
        except OSError as error:
            _LOG.debug("%s: cannot tell its free space (%s)", self.shown, error.strerror)
            return None
        if disk is None:
            return None
        return Room(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize // _RESERVED)

    async def put_new(self, key: str, data: bytes) -> bool:
        """Create an object; False if it already exists, possibly by our own first try."""
        from obstore.exceptions import AlreadyExistsError

        async with self._asking() as store:
            try:
                await store.put_async(key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    async def get(self, key: str, start: int = 0, end: int = -1) -> bytes | None:
        """The bytes of an object, ``end`` exclusive; -1: to its end.

        None if it does not exist. ``start`` below 0: the last bytes.
        """
        wanted: Any = {"suffix": -start} if start < 0 else {"offset": start} if end < 0 else (start, end)
        async with self._asking() as store:
            try:
                found = await store.get_async(key, options={"range": wanted} if start or end >= 0 else None)
                return bytes(await found.bytes_async())
            except FileNotFoundError:
                return None

    async def list(self, folder: str = "", after: str = "") -> AsyncIterator[Sequence[StoredObject]]:
        """The objects below a folder, in any order; with ``after``, only those after a key."""
        stream: Any = None
        while True:
            async with self._asking() as store:
                if stream is None:
                    stream = store.list(folder or None, offset=after or None, chunk_size=1000)
                try:
                    chunk = await anext(stream)
                except (StopAsyncIteration, FileNotFoundError):
                    return
            yield [StoredObject(each["path"], each["size"], each["last_modified"].timestamp()) for each in chunk]

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects if they exist: with S3, a thousand in one request."""
        for begin in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[begin : begin + _DELETED_AT_ONCE]
            async with self._asking() as store:
                try:
                    await store.delete_async(some)
                except FileNotFoundError:  # a folder stops at missing ones
                    for key in some:
                        with suppress(FileNotFoundError):
                            await store.delete_async(key)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Any]:
        """The store for one request; a failure becomes a sentence."""
        from obstore.exceptions import BaseError

        try:
            async with self._gate:
                self._store = self._store or _opened(self.url)
                yield self._store
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, PlaceAway):
                raise
            why = f"{self.shown}: {_reason(error)}"
            _LOG.debug("%s (%s)", why, type(error).__name__)
            self.on_state(why)
            raise PlaceAway(why) from None  # the store's answer may quote the request
        self.on_state("")


def _opened(url: str) -> Any:
    from obstore.store import from_url

    if url.startswith("file:"):
        return from_url(url, mkdir=True)
    named = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    plain = any(os.environ.get(name, "").startswith("http://") for name in named)
    return from_url(
        url,
        client_options={"timeout": _TIMEOUT, "connect_timeout": _TIMEOUT / 2, "allow_http": plain},
        retry_config={"max_retries": 1, "retry_timeout": _TIMEOUT},
    )


def _reason(error: Exception) -> str:
    """Why a request failed, without secrets: an error's own text may quote addresses and keys."""
    text, kind = str(error), type(error).__name__
    code = re.search(r"<Code>(\w{1,60})</Code>", text)
    status = re.search(r"status code: (\d{3}[A-Za-z ]{0,40})", text)
    answer = ", ".join(each[1].strip() for each in (status, code) if each is not None)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or (status and status[1][:3] in ("401", "403")):
        return f"the credentials do not allow this ({answer or kind})"
    if isinstance(error, FileNotFoundError):
        return f"bucket or folder not found ({answer or 'not found'})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if answer:
        return f"the store answers {answer}"
    system = re.search(r"([A-Z][\w ]{3,60}) \(os error \d+\)", text)
    if system is not None:
        return system[1]
    missing = re.search(r"\b(Account must be specified|Missing \w+|Could not find \w+)\b", text)
    if missing is not None:
        return f"it cannot be opened ({missing[1]})"
    return "it does not answer" if "HTTP error" in text or "imed out" in text else f"the request failed ({kind})"


class _GoneError(PlaceAway):
    """A listed object is gone."""

    def __init__(self) -> None:
        super().__init__("a part of the log is missing")


@dataclass
class Folder:
    """The listed objects of one log. ``sizes`` are the parts' sizes, by their numbers."""

    sizes: dict[int, int] = field(default_factory=dict)
    is_over: bool = False
    is_dropped: bool = False
    looked_at: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the log is final."""
        return self.is_over or self.is_dropped

    def add(self, found: Iterable[StoredObject]) -> None:
        """Add the listed objects."""
        names = [(each.key.rpartition("/")[2], each.size) for each in found]
        new = {int(name): size for name, size in names if name.isdecimal()}
        self.sizes = dict(sorted({**self.sizes, **new}.items()))
        self.is_over = self.is_over or any(name == END for name, _ in names)
        self.is_dropped = self.is_dropped or any(name == DROPPED for name, _ in names)


class StoredLogs:
    """Reads logs from their parts, for people and for a writer that continues one."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._parts = OrderedDict[tuple[LogName, int], Part]()
        self._folders = OrderedDict[LogName, Folder]()

    async def read(self, name: LogName, offset: int, at_most: int) -> bytes | None:
        """At most ``at_most`` bytes of a log from an offset; None: the store has no such log.

        Raises :class:`PlaceAway`.
        """
        for is_again in (False, True):
            folder = await self.look(name, anew=is_again)
            try:
                return await self._read(name, folder, offset, at_most)
            except _GoneError:  # it was dropped, or its middle was omitted meanwhile
                continue
        return b""

    async def size(self, name: LogName) -> int:
        """The bytes that readers find. Raises :class:`PlaceAway`."""
        folder = await self.look(name, anew=True)
        numbers = list(folder.sizes)
        if folder.is_dropped or not numbers:
            return len(await self.read(name, 0, 1 << 16) or b"")
        last = await self.part(name, numbers[-1])
        end = last.start + last.length
        if not last.is_behind:
            return end
        note, start = await self._behind_head(name, numbers, last)
        return last.head + (len(note) + end - start if folder.is_over else 0)

    async def part(self, name: LogName, number: int, *, with_notes: bool = False) -> Part:
        """The line of JSON behind a part's text. Raises :class:`PlaceAway` if it is missing."""
        known = self._parts.get((name, number))
        if known is not None and not with_notes:
            return known
        length = _TRAILER
        while True:
            data = await self._objects.get(part_key(name, number), -length)
            if data is None:
                raise _GoneError
            found, needed = _behind(data, part_key(name, number))
            if found is not None:
                self.remember(name, number, found)
                return found
            if len(data) < length:
                raise PlaceAway(f"{part_key(name, number)}: not a part of a log")
            length = needed

    def remember(self, name: LogName, number: int, part: Part) -> None:
        """Cache a part, which never changes."""
        self._parts[name, number] = part._replace(notes={}, writer="")
        if len(self._parts) > _KEPT_PARTS:
            self._parts.popitem(last=False)

    async def first(self, name: LogName, numbers: Sequence[int], is_wanted: Callable[[Part], bool]) -> int:
        """The position of the first wanted part; all later ones are wanted too. The number of parts if none is."""
        low, high = 0, len(numbers)
        while low < high:
            middle = (low + high) // 2
            if is_wanted(await self.part(name, numbers[middle])):
                high = middle
            else:
                low = middle + 1
        return low

    async def look(self, name: LogName, *, anew: bool) -> Folder:
        """The objects of a log; for an active one, only the possibly new ones are requested. Raises :class:`PlaceAway`."""
        known = self._folders.pop(name, None)
        folder = Folder() if known is None or anew else known
        now = time.monotonic()
        if not folder.is_complete and (not folder.looked_at or now >= folder.looked_at + _FRESH):
            last = max(folder.sizes, default=0)
            after = part_key(name, last) if last else ""
            async for found in self._objects.list(log_key(name), after):
                folder.add(found)
            if last and folder.is_over:
                return await self.look(name, anew=True)  # its middle may be omitted
            folder.looked_at = now
        self._folders[name] = folder
        if len(self._folders) > _KEPT_FOLDERS:
            self._folders.popitem(last=False)
        return folder

    async def _read(self, name: LogName, folder: Folder, offset: int, at_most: int) -> bytes | None:
        if folder.is_dropped:
            data = await self._objects.get(f"{log_key(name)}/{DROPPED}")
            return (data or b"")[offset : offset + at_most]
        numbers = list(folder.sizes)
        if not numbers:  # if it is over, it may be where logs were kept before
            return None
        last = await self.part(name, numbers[-1])
        end = last.start + last.length
        if not last.is_behind:
            return await self._text(name, folder, offset, min(offset + at_most, end))
        head = await self._text(name, folder, offset, min(offset + at_most, last.head))
        if not folder.is_over or len(head) >= at_most:
            return head
        note, start = await self._behind_head(name, numbers, last)
        at, left = max(0, offset - last.head), at_most - len(head)
        said = note[at : at + left]
        begin = start + max(0, at - len(note))
        return head + said + await self._text(name, folder, begin, min(begin + left - len(said), end))

    async def _behind_head(self, name: LogName, numbers: Sequence[int], last: Part) -> tuple[bytes, int]:
        """The line that replaces the omitted middle of a log, and where the text continues."""
        first = await self.part(name, numbers[await self.first(name, numbers, lambda part: part.is_behind)])
        missing = first.start - last.head
        return f"[spotwright: {format_bytes(missing)} are missing here]\n".encode() if missing else b"", first.start

    async def _text(self, name: LogName, folder: Folder, begin: int, end: int) -> bytes:
        """The text between two positions, from all parts."""
        if begin >= end:
            return b""
        numbers = list(folder.sizes)
        at = await self.first(name, numbers, lambda part: part.start + part.length > begin)
        texts, position = list[bytes](), begin
        while position < end and at < len(numbers):
            wanted, size = list[int](), 0
            for number in numbers[at : at + _AT_ONCE]:
                wanted.append(number)
                size += folder.sizes[number]
                if size >= end - position:
                    break
            for text in await asyncio.gather(
                *(self._text_of(name, number, folder.sizes[number], begin, end) for number in wanted)
            ):
                texts.append(text)
                position += len(text)
            at += len(wanted)
        return b"".join(texts)[: end - begin]

    async def _text_of(self, name: LogName, number: int, size: int, begin: int, end: int) -> bytes:
        """The text of one part between two positions."""
        key = part_key(name, number)
        if (name, number) not in self._parts and size <= _WHOLE:
            data = await self._objects.get(key)
            if data is None:
                raise _GoneError
            part, _ = _behind(data, key)
            if part is None:
                raise PlaceAway(f"{key}: not a part of a log")
            self.remember(name, number, part)
            return data[max(0, begin - part.start) : max(0, min(part.length, end - part.start))]
        part = await self.part(name, number)
        first, last = max(0, begin - part.start), min(part.length, end - part.start)
        if first >= last:
            return b""
        found = await self._objects.get(key, first, last)
        if found is None:
            raise _GoneError
        return found


def part_key(name: LogName, number: int) -> str:
    """The object of a part, from 1 on."""
    return f"{log_key(name)}/{number:0{_DIGITS}d}"


def _behind(data: bytes, key: str) -> tuple[Part | None, int]:
    """The record after the text of an object, from its last bytes, or the number of bytes needed to read it.

    Raises :class:`PlaceAway` for an object that is not a part.
    """
    digits = data[-_DIGITS:]
    length = int(digits) if digits.isdigit() and len(digits) == _DIGITS else 0
    if length + _DIGITS > len(data) and 0 < length <= _TRAILER << 8:
        return None, length + _DIGITS
    try:
        part = msgspec.json.decode(data[-length - _DIGITS : -_DIGITS], type=Part)
    except (ValueError, TypeError):
        raise PlaceAway(f"{key}: not a part of a log") from None
    return part, 0
