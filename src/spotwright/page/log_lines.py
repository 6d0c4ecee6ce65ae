"""Lines of logs for the page: any part of a log of any length, with its colours and without other terminal control.

A log is read in pieces. A worker keeps the number of line ends before each block of 64 KiB, 8 bytes a block, so a line is found
by its number with one read.

A line is shown in its final state on a terminal: carriage returns and backspaces of progress bars have overwritten earlier
text, SGR sequences become names of styles, other escape sequences are dropped, and control and invisible characters become
marks, see :mod:`spotwright.visible_text`. Each line begins without a style.
"""

from __future__ import annotations

import re
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from spotwright.engine.events import ON_KFP
from spotwright.records.reader import AttemptLog, RunReader, list_logs
from spotwright.visible_text import ESCAPES, visible

__all__ = ["Hits", "Line", "LogLines", "LogsInOrder", "RunLogs", "shown_parts"]

MOST_LINES = 2000
"""Most lines of one page."""

LONGEST_LINE = 8192
"""Most bytes of a line that are shown; a longer one shows its length."""

MOST_HITS = 1000
"""Most lines that one search finds."""

_BLOCK = 65_536  # bytes
_PIECE = 1 << 20  # bytes that are read at once
_ORDINARY = 200  # typical bytes of a line
_MOST_BYTES = 4 << 20  # of the lines of one page
_SEARCH = 1.0  # seconds after which a search returns its position

Read = Callable[[int, int], bytes]
"""Reads a log from a byte, at most this many."""


class Line(NamedTuple):
    """A line by its number from 0. ``parts`` are strings with the names of their styles; ``cut``: the bytes of a cut line."""

    number: int
    parts: list[tuple[str, str]]
    cut: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The line as the page receives it."""
        return {"n": self.number, "parts": [list(part) for part in self.parts], "cut": self.cut}


class Hits(NamedTuple):
    """The numbers of matching lines, and the line at which an incomplete search continues."""

    lines: list[int]
    more: int | None


class LogLines:
    """The lines of one log, numbered from 0. The log may grow."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._ends = array("Q", [0])  # line ends before each block of the log
        self._size = 0  # bytes examined ...
        self._ended = 0  # ... and the line ends in them
        self._is_complete = True  # they end with a line end, or are empty

    def count(self) -> int:
        """The present number of lines; the last one may be incomplete."""
        self._look()
        return self._count

    @property
    def _count(self) -> int:
        return self._ended + (not self._is_complete)

    def _look(self) -> None:
        """Count new line ends."""
        while piece := self._read(self._size, _PIECE):
            position = 0
            while position < len(piece):
                to = position + _BLOCK - self._size % _BLOCK  # where the block ends in this piece
                self._ended += piece.count(b"\n", position, to)
                self._size += min(to, len(piece)) - position
                if self._size % _BLOCK == 0:
                    self._ends.append(self._ended)
                position = to
            self._is_complete = piece.endswith(b"\n")
            if len(piece) < _PIECE:
                return

    def _start(self, line: int) -> int:
        """The byte at which a line begins; the end of the log for a missing line."""
        if line <= 0:
            return 0
        if line > self._ended:
            return self._size
        block = bisect_right(self._ends, line - 1) - 1  # the last block before which fewer lines end
        data = self._read(block * _BLOCK, _BLOCK)
        position = -1
        for _ in range(line - self._ends[block]):
            position = data.find(b"\n", position + 1)
            if position < 0:  # the log was deleted
                return self._size
        return block * _BLOCK + position + 1

    def page(self, first: int, count: int) -> list[Line]:
        """Lines from a number on: at most ``count``, and at most :data:`MOST_LINES`.

        Long lines may reduce the number, down to one.
        """
        self._look()
        first = max(0, first)
        last = min(self._count, first + min(count, MOST_LINES))  # the line after them
        lines: list[Line] = []
        start, shown = self._start(first), 0
        while first < last and shown < _MOST_BYTES:
            some = min(
                _PIECE, max(_BLOCK, _ORDINARY * (last - first))
            )  # a cluster should not send more than is likely needed
            data = self._read(start, min(some, self._size - start))
            texts = data.split(b"\n", last - first)
            rest = texts.pop()
            lines += (_line(first + index, text, text, len(text)) for index, text in enumerate(texts))
            first, shown = first + len(texts), shown + sum(min(len(text), LONGEST_LINE) for text in texts)
            start += len(data) - len(rest)
            if first >= last:
                break
            if not data:  # the log was deleted
                break
            if not texts or start + len(rest) >= self._size:  # a long line, or the last one without its end
                end = self._start(first + 1) - (first < self._ended)
                lines.append(self._line_between(first, start, end, rest))
                first, start, shown = first + 1, end + 1, shown + LONGEST_LINE
        return lines

    def _line_between(self, number: int, start: int, end: int, begun: bytes) -> Line:
        """A line from one byte to another. ``begun`` are the bytes read from its start."""
        if start + len(begun) >= end:
            return _line(number, begun[: end - start], begun[: end - start], end - start)
        tail = max(start, end - LONGEST_LINE)
        return _line(number, begun, self._read(tail, end - tail), end - start)

    def find(self, query: str, first: int, *, most: int = MOST_HITS, seconds: float = _SEARCH) -> Hits:
        """The lines from one on that contain a text, ignoring case: at most ``most``, within about ``seconds``."""
        self._look()
        until = time.monotonic() + seconds
        search = _Search(query)
        line = first = max(0, first)
        position, held, hits = self._start(line), b"", list[int]()
        while search.wanted and position < self._size:
            piece = self._read(position, min(_PIECE, self._size - position))
            if not piece:
                break
            position += len(piece)
            data = held + piece
            whole = data if position >= self._size else data[: data.rfind(b"\n") + 1]
            held = data[len(whole) :]
            if not whole and len(held) > _PIECE:  # the middle of a long line
                whole, held = held, held[-4 * len(query) :]
            for number in search.lines(whole):
                if not hits or hits[-1] < line + number:
                    hits.append(line + number)
                    if len(hits) == most:
                        return Hits(hits, hits[-1] + 1 if hits[-1] + 1 < self._count else None)
            line += whole.count(b"\n")
            if time.monotonic() >= until and line > first and position < self._size:
                return Hits(hits, max(line, hits[-1] + 1 if hits else 0))
        return Hits(hits, None)

    def raw(self) -> Iterator[bytes]:
        """The bytes, in pieces."""
        position = 0
        while piece := self._read(position, _PIECE):
            yield piece
            position += len(piece)


class _Search:
    """Finds a text in pieces of a log, ignoring case and colours."""

    def __init__(self, query: str) -> None:
        lowered = query.replace("\n", "").replace("\r", "").lower()
        self.wanted = lowered.encode("utf-8", "replace")
        self._is_ascii = lowered.isascii()

    def lines(self, data: bytes) -> Iterator[int]:
        """The numbers of the matching lines in these bytes, each once."""
        if not self._is_ascii and data.isascii():
            return
        if b"\x1b" in data:
            data = _ESCAPES_IN_BYTES.sub(b"", data)
        lowered = data.lower() if self._is_ascii else data.decode("utf-8", "replace").lower().encode()
        number, counted, position = 0, 0, lowered.find(self.wanted)
        while position >= 0:
            number += lowered.count(b"\n", counted, position)
            yield number
            counted = lowered.find(b"\n", position)
            if counted < 0:
                return
            position = lowered.find(self.wanted, counted)


_ESCAPES_IN_BYTES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")


def _line(number: int, head: bytes, tail: bytes, length: int) -> Line:
    """A line from its first and last bytes only: a long progress bar ends with its last state."""
    if length <= LONGEST_LINE:
        return Line(number, shown_parts(head))
    if b"\r" in tail[-LONGEST_LINE:].rstrip(b"\r"):
        last = tail[-LONGEST_LINE:]
        return Line(number, shown_parts(last[last.index(b"\r") :]), length)
    return Line(number, shown_parts(_whole_characters(head[:LONGEST_LINE])), length)


def _whole_characters(data: bytes) -> bytes:
    """The bytes without an incomplete character at the end."""
    for count in range(1, 4):
        byte = data[-count]
        if byte >= 0xC0:
            return data if (byte >= 0xF0) + (byte >= 0xE0) + 2 <= count else data[:-count]
        if byte < 0x80:
            break
    return data


_MOVES = re.compile(r"[\r\b]")


def shown_parts(data: bytes) -> list[tuple[str, str]]:
    """A line as texts, each with the names of its styles, separated by spaces.

    Names: ``bold``, ``dim``, ``italic``, ``underline``, ``strike``, ``fg-0`` to ``fg-15`` and ``bg-0`` to ``bg-15``, the 16
    colours of a terminal (0 black, 1 red, 2 green, 3 yellow, 4 blue, 5 magenta, 6 cyan, 7 white, then the bright ones); colours
    of larger palettes are the nearest of them.
    """
    text = data.decode("utf-8", "replace").removesuffix("\r")
    if text.isascii() and text.isprintable():
        return [(text, "")] if text else []
    runs = list(_runs(text))
    if any(run.moves or _MOVES.search(run.text) for run in runs):
        runs = _as_drawn(runs)
    joined: list[tuple[str, str]] = []
    for text, style, _ in runs:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        elif text:
            joined.append((text, style))
    return [(visible(text, block=True), style) for text, style in joined]


class _Run(NamedTuple):
    """A text in one style, and the erasure before it: ``K`` with 0 (to the end), 1 (to the begin) or 2 (all), or empty."""

    text: str
    style: str
    moves: str = ""


def _runs(text: str) -> Iterator[_Run]:
    position, style, moves = 0, _Style(), ""
    for match in ESCAPES.finditer(text):
        if match.start() > position or moves:
            yield _Run(text[position : match.start()], style.names, moves)
            moves = ""
        position = match.end()
        if match["final"] == "m" and not match["between"]:
            style.take(match["values"])
        elif match["final"] == "K" and match["values"] in ("", "0", "1", "2"):
            moves = f"K{match['values'] or '0'}"
    yield _Run(text[position:], style.names, moves)


def _as_drawn(runs: Iterable[_Run]) -> list[_Run]:
    """The final state of a terminal line: a later character overwrites an earlier one."""
    cells: list[tuple[str, str]] = []
    cursor = 0
    for text, style, moves in runs:
        if moves == "K0":
            del cells[cursor:]
        elif moves:
            cells = [(" ", "")] * len(cells[:cursor]) + (cells[cursor:] if moves == "K1" else [])
        for piece in re.split(r"([\r\b])", text):
            if piece == "\r":
                cursor = 0
            elif piece == "\b":
                cursor = max(0, cursor - 1)
            elif piece:
                cells += [(" ", "")] * (cursor - len(cells))
                cells[cursor : cursor + len(piece)] = [(letter, style) for letter in piece]
                cursor += len(piece)
    while cells and cells[-1] == (" ", ""):
        cells.pop()
    return [_Run(letter, style) for letter, style in cells]


_FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 9: "strike"}
_ENDS = {21: ("underline",), 22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 29: ("strike",)}


class _Style:
    """The style after some SGR sequences. Unknown values, such as those that hide text, have no effect."""

    def __init__(self) -> None:
        self._flags: dict[str, None] = {}
        self._colours: dict[str, int] = {}

    @property
    def names(self) -> str:
        """The names, in a fixed order."""
        flags = [name for name in _FLAGS.values() if name in self._flags]
        return " ".join(
            [*flags, *(f"{ground}-{self._colours[ground]}" for ground in ("fg", "bg") if ground in self._colours)]
        )

    def take(self, values: str) -> None:
        """Take the values of one sequence, such as ``1;31`` or ``38:2::255:0:0``."""
        groups = [
            [int(each) if each.isdecimal() and len(each) < 4 else 0 for each in group.split(":")]
            for group in values.split(";")
        ]
        while groups:
            code, *inside = groups.pop(0)
            if code in (38, 48):
                ground = "fg" if code == 38 else "bg"
                colour = _palette_colour(inside) if inside else _palette_colour(_following(groups))
                if colour is not None:
                    self._colours[ground] = colour
            else:
                self._take_one(code, inside)

    def _take_one(self, code: int, inside: Sequence[int]) -> None:
        if code == 0:
            self._flags, self._colours = {}, {}
        elif code in _FLAGS and inside[:1] != [0]:
            self._flags[_FLAGS[code]] = None
        elif code in _FLAGS:  # 4:0 ends underlining
            self._flags.pop(_FLAGS[code], None)
        elif code in _ENDS:
            for name in _ENDS[code]:
                self._flags.pop(name, None)
        elif code in (39, 49):
            self._colours.pop("fg" if code == 39 else "bg", None)
        else:
            for base, ground, first in ((30, "fg", 0), (40, "bg", 0), (90, "fg", 8), (100, "bg", 8)):
                if base <= code < base + 8:
                    self._colours[ground] = first + code - base


def _following(groups: list[list[int]]) -> list[int]:
    """Take the values of a colour in the form with semicolons."""
    count = {5: 2, 2: 4}.get(groups[0][0] if groups else 0, 1)
    taken = [group[0] for group in groups[:count]]
    del groups[:count]
    return taken


_STEPS = (0, 95, 135, 175, 215, 255)
_SIXTEEN = (  # the colours of xterm
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255),
)  # fmt: skip


def _palette_colour(values: Sequence[int]) -> int | None:
    """The nearest of the 16 colours: of ``5`` and a number of 256, or of ``2``, a colour space if any, red, green and blue."""
    if values[:1] == [5] and len(values) > 1 and values[1] < 256:
        number = values[1]
        if number < 16:
            return number
        if number >= 232:
            return _nearest(*[8 + 10 * (number - 232)] * 3)
        red, rest = divmod(number - 16, 36)
        return _nearest(_STEPS[red], _STEPS[rest // 6], _STEPS[rest % 6])
    if values[:1] == [2] and len(values) >= 4:
        return _nearest(*values[-3:] if len(values) < 6 else values[2:5])
    return None


@lru_cache(maxsize=4096)
def _nearest(red: int, green: int, blue: int) -> int:
    def distance(number: int) -> int:
        return sum((one - other) ** 2 for one, other in zip(_SIXTEEN[number], (red, green, blue), strict=True))

    return min(range(16), key=distance)


class Part(NamedTuple):
    """One of several logs: the line above it, and the lines of the log."""

    heading: str
    lines: LogLines


class LogsInOrder:
    """The lines of several logs in order, each below its heading, with the methods of :class:`LogLines`.

    All of them may grow, which increases the numbers of later lines.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def starts(self) -> list[int]:
        """The numbers of the headings, and behind them the number of all lines."""
        return list(accumulate((1 + part.lines.count() for part in self._parts), initial=0))

    def count(self) -> int:
        """See :meth:`LogLines.count`."""
        return self.starts()[-1]

    def page(self, first: int, count: int) -> list[Line]:
        """See :meth:`LogLines.page`."""
        starts = self.starts()
        first = max(0, first)
        last = min(starts[-1], first + min(count, MOST_LINES))
        lines: list[Line] = []
        while first + len(lines) < last:
            line = first + len(lines)
            number = bisect_right(starts, line) - 1
            begin = starts[number]
            if line == begin:
                lines.append(Line(line, [(visible(self._parts[number].heading), "bold")]))
                continue
            wanted = min(last, starts[number + 1]) - line
            found = self._parts[number].lines.page(line - begin - 1, wanted)
            lines += (each._replace(number=each.number + begin + 1) for each in found)
            if len(found) < wanted:
                break
        return lines

    def find(self, query: str, first: int, *, most: int = MOST_HITS, seconds: float = _SEARCH) -> Hits:
        """See :meth:`LogLines.find`. Headings are searched too."""
        starts, until = self.starts(), time.monotonic() + seconds
        hits: list[int] = []
        for number, part in enumerate(self._parts):
            begin = starts[number]
            if starts[number + 1] <= first:
                continue
            if begin >= first and query and query.lower() in part.heading.lower():
                hits.append(begin)
            left = max(0.0, until - time.monotonic())
            found = part.lines.find(query, max(0, first - begin - 1), most=max(1, most - len(hits)), seconds=left)
            hits += (begin + 1 + line for line in found.lines)
            if found.more is not None:
                return Hits(hits, begin + 1 + found.more)
            if (len(hits) >= most or time.monotonic() >= until) and number + 1 < len(self._parts):
                return Hits(hits, starts[number + 1])
        return Hits(hits, None)

    def raw(self) -> Iterator[bytes]:
        """See :meth:`LogLines.raw`."""
        for part in self._parts:
            yield f"{part.heading}\n".encode("utf-8", "replace")
            last = b"\n"
            for piece in part.lines.raw():
                yield piece
                last = piece
            if not last.endswith(b"\n"):
                yield b"\n"


_MOST_LOGS = 200  # shown one after the other
_MOST_KEPT = 1000  # logs whose blocks are known
_LISTED_FOR = 1.0  # seconds: an active run may have new attempts by then


class RunLogs:
    """The logs of one run for the page. It keeps their lines' positions, so create one for each run and keep it.

    A log belongs to a task's attempt, from 1; to the build of its Python environment,
    :data:`~spotwright.records.reader.ENVIRONMENT`; or to all attempts of the task, ``None``. Every method raises
    :class:`~spotwright.errors.UnknownRun` for a missing task or attempt.
    """

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._made_at = reader.source.made_at()
        self._lines: dict[tuple[str, str, int], LogLines] = {}
        self._listed: dict[tuple[str, int | None], tuple[float, list[AttemptLog]]] = {}

    def page(self, task: str, attempt: int | None, line: int, count: int) -> dict[str, Any]:
        """Lines from one on; a negative number counts from the end, so -100 gives the last hundred.

        ``lines`` (``n``, ``parts``: pairs of a text and its styles, ``cut``: the length in bytes of a line that is cut, else
        null), ``first`` (the number of the first one), ``total``, ``ended`` (the log does not grow any more), ``left_out`` (why
        something or all is not here, or empty), ``logs`` (``task``, ``attempt``, ``line``: where each log begins).
        """
        logs = self._logs(task, attempt)
        lines = self._of(logs, attempt)
        total = lines.count()
        first = max(0, total + line) if line < 0 else min(line, total)
        starts = lines.starts() if isinstance(lines, LogsInOrder) else [0]
        shown = logs[:_MOST_LOGS]
        return {
            "lines": [each.to_json() for each in lines.page(first, max(1, count))],
            "first": first,
            "total": total,
            "ended": all(log.ended for log in logs) or not self._reader.is_driven,
            "left_out": self._left_out(logs, attempt),
            "logs": [
                {"task": log.task, "attempt": log.attempt, "line": start}
                for log, start in zip(shown, starts, strict=False)
            ],
        }

    def find(self, task: str, attempt: int | None, query: str, first: int) -> dict[str, Any]:
        """``hits``: the numbers of the lines with a text; ``more``: where the search continues, or null."""
        found = self._of(self._logs(task, attempt), attempt).find(query, max(0, first))
        return {"hits": found.lines, "more": found.more}

    def raw(self, task: str, attempt: int | None) -> Iterator[bytes]:
        """The bytes in pieces, as ``spotwright logs`` prints them."""
        return self._of(self._logs(task, attempt), attempt).raw()

    def _logs(self, task: str, attempt: int | None) -> list[AttemptLog]:
        """The logs, listed at most once a second: cached results' logs are in other runs, which have to be read."""
        made_at = self._reader.source.made_at()
        if made_at != self._made_at:  # another run has the name now
            self._made_at = made_at
            self._lines, self._listed = {}, {}
        at, logs = self._listed.get((task, attempt), (0.0, []))
        if not logs or (self._reader.is_driven and time.monotonic() - at > _LISTED_FOR):
            logs = list_logs(self._reader, task, attempt)
            if len(self._listed) >= _MOST_KEPT:
                self._listed.clear()
            self._listed[task, attempt] = time.monotonic(), logs
        return logs

    def _of(self, logs: Sequence[AttemptLog], attempt: int | None) -> LogLines | LogsInOrder:
        if attempt is not None:
            return self._of_one(logs[0])
        return LogsInOrder([Part(log.heading, self._of_one(log)) for log in logs[:_MOST_LOGS]])

    def _of_one(self, log: AttemptLog) -> LogLines:
        lines = self._lines.pop(log.key, None) or LogLines(log.read)
        self._lines[log.key] = lines  # moves it behind those used before
        if len(self._lines) > _MOST_KEPT:
            del self._lines[next(iter(self._lines))]
        return lines

    def _left_out(self, logs: Sequence[AttemptLog], attempt: int | None) -> str:
        if self._reader.state.meta.orchestrator == ON_KFP:
            return "this run's logs are on Kubeflow Pipelines"
        if len(logs) > _MOST_LOGS:
            return f"showing the first {_MOST_LOGS} of {len(logs):,} logs"
        if attempt is not None and not logs[0].has_node:
            return "this attempt never had a node" if logs[0].ended else "this attempt has no node yet"
        return ""
