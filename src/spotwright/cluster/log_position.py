"""Reads the pod log endpoint: lines with their node's timestamps, and the read position.

With these timestamps a new answer continues without gaps or repeats. Values of variables with secret-like names are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from spotwright.kfp.secrets import Secrets

__all__ = [
    "Overlap",
    "Piece",
    "Position",
    "Redaction",
    "StampedLines",
    "Window",
    "secret_values",
    "stamp_text",
]


_LONG = 65_536  # bytes of a line held until its end arrives; longer lines are passed on in pieces
_STAMP = 40  # bytes: longer than any time
_BILLION = 1_000_000_000


class Piece(NamedTuple):
    """A line, or a piece of a long one. ``stamp`` is the time of its line, in Unix nanoseconds."""

    stamp: int
    data: bytes
    begins: bool
    ends: bool


class StampedLines:
    """Cuts one answer of the endpoint into pieces. ``words`` is a kubelet message in place of a line."""

    def __init__(self) -> None:
        self._held = b""
        self._stamp = 0  # of the line that has begun; 0: none has
        self.words = ""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Add bytes of the answer; yield complete lines, and the arrived parts of long lines."""
        lines = (self._held + data).split(b"\n")
        self._held = lines.pop()
        for line in lines:
            yield from self._piece(line + b"\n", ends=True)
        if len(self._held) >= _LONG:
            held, self._held = self._held, b""
            yield from self._piece(held, ends=False)

    def flush(self) -> Iterator[Piece]:
        """The incomplete line at the container's end."""
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
    """A time for people, with milliseconds: ``2026-11-22T21:44:31.123Z``."""
    whole = datetime.fromtimestamp(stamp // _BILLION, tz=UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{stamp % _BILLION // 1_000_000:03d}Z"


def _nanoseconds(text: bytes) -> int:
    """A time such as ``2026-11-22T21:44:31.123456789Z`` in Unix nanoseconds; 0 if invalid."""
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
    """The read position in the log of one container.

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
        """An independent copy."""
        whole, earlier, latest = (None if each is None else replace(each) for each in self._windows)
        return Position(whole, earlier, latest, list(self.tail), self.opened, self.went_back)

    @property
    def _windows(self) -> tuple[Window | None, Window | None, Window | None]:
        return self.whole, self.earlier, self.latest

    @property
    def window(self) -> Window | None:
        """The first lines of a new answer."""
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
        """Count a piece with ``length`` new bytes."""
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
    """Drops already read lines of a new answer. ``missing_from``: lines are missing since that time."""

    def __init__(self, position: Position) -> None:
        self._opened = position.opened
        window = position.window
        self._first, self._count = (0, 0) if window is None else (window.first, window.count)
        self._tail = list(position.tail)
        self._left = -1  # lines still to drop; -1: no line yet
        self._seeking = False  # lines are dropped until the first of ``_tail``
        self._skip = 0  # bytes of the line to drop
        self._is_known = False  # whether the line was read before, to its end
        self.missing_from = 0

    @property
    def is_gone(self) -> bool:
        """Whether no line came although some were read before: the kubelet has started a new, empty file."""
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
    """The values of a pod's variables whose names suggest secrets; values that come from Secrets are unknown."""
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
        """A piece of a line with its secrets hidden, and its number of bytes in the line. ``ends``: it is the last piece."""
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
        """Forget the held-back line: it will come again."""
        self._held = b""


def _parts(form: bytes) -> Iterator[bytes]:
    lines: Iterable[bytes] = (line.strip() for line in form.splitlines())
    if b"\n" in form:
        lines = (line for line in lines if len(line) >= _MIN_LINE)
    yield from (line for line in lines if line)
