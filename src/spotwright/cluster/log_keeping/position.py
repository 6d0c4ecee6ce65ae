"""Says how far a container's log was read, and finds that place again in a new answer: without gaps, without repeats.

The endpoint takes a time to begin at, in whole seconds, and the kubelet leaves out what is older (``sinceTime``; read in
k8s.io/api 0.35.4 and k8s.io/cri-client 0.35.4). So a new answer begins with lines that were read before. They are known by their
number and by the time of the first one: as long as that is the same, exactly so many lines are left out, whatever they hold, also
where several have the same time. Where it is another, the kubelet has begun a new file meanwhile (at 10 MiB), and the place is
found by the times of the last lines. If those are gone as well, something is missing, and the log says so.

Lines of standard output and error are stamped by two threads of the runtime, so times may go back a little: the window begins one
second earlier than the last line. Where a node's clock was set back, the whole file is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from spotwright.cluster.log_keeping.stamped_lines import Piece

__all__ = ["Overlap", "Position", "Window"]

_BILLION = 1_000_000_000
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
