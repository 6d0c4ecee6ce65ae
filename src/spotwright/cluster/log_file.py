"""Writes one attempt's log, and beside it how far it is, so that a kill at any moment leaves both in agreement.

The file ``log.position`` is written before each piece goes to the log, and names the state before and after it. Whoever opens
the log again sees by its size which of the two holds. A piece that was written in part is written again, but not taken away
before it comes again, because its pod may be gone. A log whose ``log.position`` is missing is complete.

A log above its limit keeps its first half; of the rest, files ``log.tail-N`` hold the last part. They are put behind
the first half when the log is complete, with a line that names how much was left out. So a log only grows for its followers.

What goes in are lines of the pod log endpoint, each with the time at which its node received it, which is how a new answer is
continued without gaps and repeats. The values of variables whose names say that they are secrets are hidden.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from spotwright.kfp.secrets import Secrets
from spotwright.model.quantities import format_bytes

__all__ = [
    "POSITION",
    "RESERVE",
    "LogFile",
    "Overlap",
    "Piece",
    "Position",
    "Redaction",
    "StampedLines",
    "Window",
    "free_and_reserve",
    "saved_states",
    "secret_values",
    "stamp_text",
]


POSITION = "log.position"
"""The file beside a log that is not complete."""

RESERVE = 256 << 20
"""Bytes of a disk that logs leave free, so that journals can be written; of a small disk a tenth."""

_BLOCK = 8192  # bytes of the position: more than it ever has, so that nothing old stays behind it


class LogFile:
    """One log. ``limit`` is in bytes. ``notes`` are the words of its owner that were saved with the last piece."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._position = path.with_name(POSITION)
        self._limit = limit
        self._sizes = {0: 0}  # bytes of the log, and of each tail by its number
        self._dropped = 0  # bytes
        self._is_checked = True  # the files have the sizes that are expected here
        self._saved = b"null"
        self._folder: Path | None = None  # one that is there
        self.notes: dict[str, Any] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the log was finished, by this process or another."""
        return self.path.exists() and not self._position.exists()

    def open(self) -> bool:
        """Take up a log that an earlier process left; False if there is none. Raises :class:`OSError`."""
        try:
            states = saved_states(self._position.read_bytes())
        except FileNotFoundError:
            return False
        before, after = states.get("before"), states.get("after")
        self._is_checked = False
        for state in (after, before):
            if state is not None and self._fits(state):
                self._take(state)
                return True
        if before is not None:  # shorter than it was: so was the machine's power
            self._take(before)
            self._sizes = {number: min(size, self._real_size(number)) for number, size in self._sizes.items()}
        return before is not None

    def append(self, data: bytes, notes: Mapping[str, Any]) -> None:
        """Write a piece together with its owner's notes. Raises :class:`OSError`; then nothing has changed."""
        self._require_room(len(data))
        self._check()
        sizes, dropped, saved, before = dict(self._sizes), self._dropped, self._saved, self.notes
        try:
            target = self._choose(len(data))
            start = self._sizes[target]
            self._sizes[target] += len(data)
            self.notes = dict(notes)
            self._save()
            self._write(target, data, start)
        except OSError:
            self._sizes, self._dropped, self._saved, self.notes = sizes, dropped, saved, before
            self._is_checked = False
            raise
        for number in sizes.keys() - self._sizes.keys():
            self._file(number).unlink(missing_ok=True)

    def finish(self) -> None:
        """Put the tails behind the log, and mark it complete. Raises :class:`OSError`."""
        tails = sorted(self._sizes.keys() - {0})
        if tails:
            self._require_room(sum(self._sizes[number] for number in tails))
            self._check()
            with self.path.open("r+b") as log:
                log.seek(self._sizes[0])
                if self._dropped:
                    log.write(f"[spotwright: {format_bytes(self._dropped)} are left out here]\n".encode())
                for number in tails:
                    with self._file(number).open("rb") as tail:
                        shutil.copyfileobj(tail, log, 1 << 20)
        self._position.unlink(missing_ok=True)
        for path in self.path.parent.glob("log.tail-*"):
            path.unlink(missing_ok=True)

    def _require_room(self, length: int) -> None:
        """Raise :class:`OSError` where so many bytes more would leave too little of the disk to journals."""
        if self._folder is None or not self._folder.exists():
            self._folder = next(folder for folder in self.path.parents if folder.exists())
        free, reserve = free_and_reserve(self._folder)
        if free < reserve + length:
            raise OSError(errno.ENOSPC, f"logs leave the last {format_bytes(reserve)} of the disk to journals")

    def _file(self, number: int) -> Path:
        return self.path.with_name(f"log.tail-{number}") if number else self.path

    def _choose(self, length: int) -> int:
        """The number of the file that gets the next piece. Of the tails the last two are kept."""
        newest = max(self._sizes)
        limit = self._limit // 4 if newest else self._limit // 2
        if not self._sizes[newest] or self._sizes[newest] + length <= limit:
            return newest
        if not newest:
            announcement = self._announcement()
            self._write(0, announcement, self._sizes[0])
            self._sizes[0] += len(announcement)
        elif newest > 1:
            self._dropped += self._sizes.pop(newest - 1)
        self._sizes[newest + 1] = 0
        return newest + 1

    def _announcement(self) -> bytes:
        kept, last = format_bytes(self._limit // 2), format_bytes(self._limit // 4)
        return (
            f"[spotwright: this log is longer than {kept}; of the rest, at least the last {last} follow when it has ended]\n"
        ).encode()

    def _save(self) -> None:
        after = msgspec.json.encode({"sizes": self._sizes, "dropped": self._dropped, "notes": self.notes})
        if self._saved == b"null":
            self.path.parent.mkdir(parents=True, exist_ok=True)
        text = b'{"before":' + self._saved + b',"after":' + after + b"}"
        file = os.open(self._position, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.pwrite(file, text.ljust(_BLOCK), 0)  # a kill in the middle of it takes spaces away, at most
        finally:
            os.close(file)
        self._saved = after

    def _write(self, number: int, data: bytes, start: int) -> None:
        file = os.open(self._file(number), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            while data:
                written = os.pwrite(file, data, start)
                data, start = data[written:], start + written
        finally:
            os.close(file)

    def _check(self) -> None:
        """Cut off what an interrupted write left behind."""
        if self._is_checked:
            return
        for number, size in self._sizes.items():
            real = self._real_size(number)
            if real > size:
                os.truncate(self._file(number), size)
            self._sizes[number] = min(size, real)
        self._is_checked = True

    def _fits(self, state: Mapping[str, Any]) -> bool:
        return all(self._real_size(int(number)) >= size for number, size in state["sizes"].items())

    def _real_size(self, number: int) -> int:
        path = self._file(number)
        return path.stat().st_size if path.exists() else 0

    def _take(self, state: Mapping[str, Any]) -> None:
        self._sizes = {int(number): int(size) for number, size in state["sizes"].items()}
        self._dropped, self.notes = int(state["dropped"]), dict(state["notes"])
        self._saved = msgspec.json.encode(state)


def saved_states(data: bytes) -> Mapping[str, dict[str, Any] | None]:
    """What a file ``log.position`` holds; nothing of a damaged one, as a power loss leaves it: then the log begins again."""
    try:
        states = msgspec.json.decode(data, type=dict[str, dict[str, Any] | None])
        for state in [each for each in states.values() if each is not None]:
            are_whole = [int(number) >= 0 and int(size) >= 0 for number, size in state["sizes"].items()]
            notes = dict(state["notes"])
            if "position" in notes:
                Position.from_json(notes["position"])
            if not all(are_whole) or int(state["dropped"]) < 0:
                return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return states


def free_and_reserve(folder: Path) -> tuple[int, int]:
    """The bytes that are free on the disk of a folder, and those that logs leave free. Raises :class:`OSError`."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, min(RESERVE, disk.f_blocks * disk.f_frsize // 10)


_LONG = 65_536  # bytes of a line that are held until its end comes; a longer one is handed on in pieces
_STAMP = 40  # bytes: longer than any time
_BILLION = 1_000_000_000


class Piece(NamedTuple):
    """A line, or a piece of a long one. ``stamp`` is the time of its line, in Unix nanoseconds."""

    stamp: int
    data: bytes
    begins: bool
    ends: bool


class StampedLines:
    """Cuts one answer of the endpoint into pieces. ``words`` are the kubelet's own, which the answer held instead of a line."""

    def __init__(self) -> None:
        self._held = b""
        self._stamp = 0  # of the line that has begun; 0: none has
        self.words = ""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Add bytes of the answer; yield all lines that are complete, and long ones as far as they are there."""
        lines = (self._held + data).split(b"\n")
        self._held = lines.pop()
        for line in lines:
            yield from self._piece(line + b"\n", ends=True)
        if len(self._held) >= _LONG:
            held, self._held = self._held, b""
            yield from self._piece(held, ends=False)

    def flush(self) -> Iterator[Piece]:
        """The line that was not complete when the container ended."""
        held, self._held = self._held, b""
        if held:
            yield from self._piece(held, ends=False)

    def _piece(self, data: bytes, *, ends: bool) -> Iterator[Piece]:
        begins = not self._stamp
        if begins:
            text, space, rest = data.partition(b" ")
            self._stamp = _nanoseconds(text) if space and len(text) < _STAMP else 0
            data = rest if self._stamp else data
        stamp = self._stamp
        if ends:
            self._stamp = 0
        if stamp:
            yield Piece(stamp, data, begins, ends)
        else:
            self.words = data[:500].decode("utf-8", "replace").strip()


def stamp_text(stamp: int) -> str:
    """A time as people read it, with milliseconds: ``2026-11-22T21:44:31.123Z``."""
    whole = datetime.fromtimestamp(stamp // _BILLION, tz=UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{stamp % _BILLION // 1_000_000:03d}Z"


def _nanoseconds(text: bytes) -> int:
    """A time such as ``2026-11-22T21:44:31.123456789Z`` in Unix nanoseconds; 0 if it is none."""
    rest = text[19:]
    digits, zone = b"", rest
    if rest[:1] == b".":
        digits = rest[1:10] if rest[1:10].isdigit() else rest[1:].rstrip(b"Z").partition(b"+")[0].partition(b"-")[0]
        zone = rest[1 + len(digits) :]
    seconds = _seconds(text[:19], zone)
    if seconds is None or (digits and not digits.isdigit()):
        return 0
    return seconds * _BILLION + int(digits.ljust(9, b"0")[:9] or b"0")


@lru_cache(maxsize=1024)
def _seconds(text: bytes, zone: bytes) -> int | None:
    """The whole seconds of a time; many lines share them."""
    try:
        return int(datetime.fromisoformat(text.decode("ascii") + zone.decode("ascii")).timestamp()) if zone else None
    except ValueError:
        return None


_TAIL = 32  # times of last lines


@dataclass(slots=True)
class Window:
    """The lines since a whole second: the time of the first one in nanoseconds, and their number."""

    since: int
    first: int
    count: int


@dataclass(slots=True)
class Position:
    """How far the log of one container was read.

    ``whole`` has all lines, ``earlier`` and ``latest`` those since the last two seconds in which a line came. ``tail`` are the
    times of the last lines. ``opened`` is the number of bytes of the last line while its end has not come, else -1.
    """

    whole: Window | None = None
    earlier: Window | None = None
    latest: Window | None = None
    tail: list[int] = field(default_factory=list)
    opened: int = -1
    went_back: bool = False  # the node's clock was set back

    def copy(self) -> Position:
        """A position that does not change with this one."""
        whole, earlier, latest = (None if each is None else replace(each) for each in self._windows)
        return Position(whole, earlier, latest, list(self.tail), self.opened, self.went_back)

    @property
    def _windows(self) -> tuple[Window | None, Window | None, Window | None]:
        return self.whole, self.earlier, self.latest

    @property
    def window(self) -> Window | None:
        """The lines with which a new answer begins."""
        return self.whole if self.went_back else self.earlier

    @property
    def since_time(self) -> str:
        """The time to ask for; empty: all lines."""
        window = self.window
        if window is None or not window.since:
            return ""
        return datetime.fromtimestamp(window.since, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def last(self) -> int:
        """The time of the last line, in nanoseconds; 0 without one."""
        return self.tail[-1] if self.tail else 0

    def add(self, piece: Piece, length: int) -> None:
        """Count a piece, of which ``length`` bytes were new."""
        if piece.begins and (self.opened < 0 or not self.tail):
            self._begin(piece.stamp)
            self.opened = 0
        self.opened = -1 if piece.ends else self.opened + length

    def _begin(self, stamp: int) -> None:
        second = stamp // _BILLION
        if self.whole is None or self.latest is None or self.earlier is None:
            self.whole = Window(0, stamp, 0)
            self.earlier, self.latest = Window(second - 1, stamp, 0), Window(second, stamp, 0)
        elif second > self.latest.since:
            self.earlier, self.latest = self.latest, Window(second, stamp, 0)
        elif second < self.earlier.since:
            self.went_back = True
        for window in (self.whole, self.earlier, self.latest):
            if second >= window.since:
                window.count += 1
        self.tail = [*self.tail[1 - _TAIL :], stamp]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        windows = [None if each is None else [each.since, each.first, each.count] for each in self._windows]
        return {"windows": windows, "tail": self.tail, "opened": self.opened, "went_back": self.went_back}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Position:
        """From plain data."""
        whole, earlier, latest = (None if each is None else Window(*each) for each in data["windows"])
        return cls(whole, earlier, latest, list(data["tail"]), int(data["opened"]), bool(data["went_back"]))


class Overlap:
    """Leaves out of a new answer what was read before. ``missing_from``: something is missing since that time."""

    def __init__(self, position: Position) -> None:
        self._opened = position.opened
        window = position.window
        self._first, self._count = (0, 0) if window is None else (window.first, window.count)
        self._tail = list(position.tail)
        self._left = -1  # lines that are still left out; -1: no line has come
        self._seeking = False  # lines are left out until the first of ``_tail`` comes
        self._skip = 0  # bytes of the line that are left out
        self._is_known = False  # whether the line was read before, to its end
        self.missing_from = 0

    @property
    def is_gone(self) -> bool:
        """Whether no line has come, though some were read before: the kubelet has begun a new file, which is empty."""
        return self._left < 0 and self._count > 0

    def new_part(self, piece: Piece) -> bytes:
        """The part of a piece that is new."""
        if piece.begins:
            self._begin(piece.stamp)
        if self._is_known:
            return b""
        skipped = min(self._skip, len(piece.data))
        self._skip -= skipped
        return piece.data[skipped:]

    def _begin(self, stamp: int) -> None:
        if self._left < 0:
            self._left = self._find(stamp)
        if self._seeking and stamp == self._tail[0]:
            self._seeking, self._left = False, len(self._tail)
        self._is_known = self._seeking or self._left > 1 or (self._left == 1 and self._opened < 0)
        self._skip = self._opened if self._left == 1 and self._opened > 0 and not self._seeking else 0
        if self._left > 0 and not self._seeking:
            self._left -= 1

    def _find(self, stamp: int) -> int:
        """The number of lines from this one on that were read before."""
        if not self._count or stamp == self._first:
            return self._count
        if stamp in self._tail:
            return len(self._tail) - self._tail.index(stamp)
        if stamp < self._tail[0] and self._count > len(self._tail):
            self._seeking = True
            return 0
        self.missing_from = self._tail[-1]
        return 0


_SECRET = re.compile(
    r"pass(word|wd|phrase)?(_|$)|secret|token|credential|(api|access|private|signing|encryption|account)_?key|conn(ection)?_str",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(path|file|dir|folder|url|uri|host|name|id|type|enabled|mode|ttl|timeout|expiry)$", re.IGNORECASE
)
_WORDS = frozenset(("true", "false", "none", "null", "default", "enabled", "disabled", "required"))
_MIN_LINE = 8  # bytes of a line of a multi-line secret: shorter ones ("}", "----") occur in ordinary text


def secret_values(pod: Mapping[str, Any]) -> dict[str, str]:
    """The values of variables of a pod that are secrets by their names; those that come from Secrets are not known."""
    spec = pod.get("spec") or {}
    found: dict[str, str] = {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for variable in container.get("env") or ():
            name, value = str(variable.get("name", "")), str(variable.get("value") or "")
            if value.lower() not in _WORDS and _SECRET.search(name) and not _NO_SECRET.search(name):
                found[f"{container.get('name')}/{name}"] = value
    return found


class Redaction:
    """Replaces secrets in the lines of one log by ``***``."""

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {part for form in Secrets(values).patterns() for part in _parts(form)}
        self._longest = max(map(len, forms), default=0)
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        self._held = b""

    def hide(self, data: bytes, *, ends: bool) -> tuple[bytes, int]:
        """A piece of a line with its secrets hidden, and how many of the line's bytes that is. ``ends``: it is the last piece."""
        if self._pattern is None:
            return data, len(data)
        text = self._held + data
        cut = len(text) if ends else max(0, len(text) - self._longest + 1)
        pieces: list[bytes] = []
        position = 0
        for match in self._pattern.finditer(text):
            if match.start() >= cut:
                break
            pieces += (text[position : match.start()], b"***")
            position = match.end()
        cut = max(cut, position)
        pieces.append(text[position:cut])
        self._held = text[cut:]
        return b"".join(pieces), cut

    def reset(self) -> None:
        """Forget what is held back: the line comes again."""
        self._held = b""


def _parts(form: bytes) -> Iterator[bytes]:
    lines: Iterable[bytes] = (line.strip() for line in form.splitlines())
    if b"\n" in form:
        lines = (line for line in lines if len(line) >= _MIN_LINE)
    yield from (line for line in lines if line)
