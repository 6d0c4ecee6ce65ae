"""Plain text of every view: words for causes, durations and stored values, and aligned tables without colour.

Cells and sentences go through :func:`visible`, so that names can neither shift a column nor control the terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, NamedTuple

from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_duration
from spotwright.visible_text import visible

__all__ = [
    "Rows",
    "after_cause",
    "age_text",
    "ended",
    "fitted",
    "hanging_table",
    "plural",
    "readable",
    "shorten",
    "span",
    "table",
    "terminal_width",
    "time_of_day",
    "value_text",
    "wrapped",
]


_ENDED: Mapping[Cause, str] = {
    Cause.SUCCEEDED: "succeeded",
    Cause.FAILED: "failed",
    Cause.INTERRUPTED: "was interrupted",
    Cause.LOST: "was lost",
    Cause.DISRUPTED: "was moved",
    Cause.OUT_OF_MEMORY: "ran out of memory",
    Cause.TIMED_OUT: "timed out",
    Cause.START_UP: "could not start",
    Cause.UNSCHEDULABLE: "found no node",
    Cause.CANCELLED: "was stopped",
}
"""Verbs for the end of an attempt, by cause: "attempt 2 was interrupted"."""


_SECRET = re.compile(r"\{\{\$\.secret\['((?:[^'\\]|\\.)*)'\]\}\}", re.DOTALL)


def ended(cause: Cause, why: str, progress: float | None) -> str:
    """How an attempt ended: ``was interrupted: its node is gone (at 41% of its work)``."""
    if cause is Cause.SUCCEEDED or (cause is Cause.CANCELLED and why in ("", "it was cancelled")):
        return _ENDED[cause]  # the reason says the same
    if cause is Cause.CANCELLED:
        return f"{_ENDED[cause]}: {why.removeprefix('it was cancelled: ')}"
    share = f" (at {progress:.0%} of its work)" if progress is not None else ""
    return f"{_ENDED[cause]}: {why.removeprefix(f'it {_ENDED[cause]}: ')}{share}"


def after_cause(cause: Cause, following: str) -> str:
    """The decision after an attempt, without the cause that was just named."""
    return following.removeprefix(f"{cause}, and ")


_NAME_ERROR = re.compile(r"NameError: name '\w{1,99}' is not defined")


def last_words(line: str, width: int | None = None) -> str:
    """The last line of a log, cut to ``width``, with its meaning in a component of KFP."""
    said = line if width is None else shorten(line, width)
    if _NAME_ERROR.search(line[:300]) is None:
        return said
    return f"{said} (KFP runs the function of a component alone: import and define what it uses inside it)"


def plural(count: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def age_text(seconds: float) -> str:
    """A length of time in its largest unit: ``30d``, ``5h``, ``12min``, ``40s``."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f}{name}"
    return f"{max(0.0, seconds):.0f}s"


def time_of_day(at: float) -> str:
    """A moment (Unix seconds) as a local time of day, to the second."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def span(seconds: Fraction | float) -> str:
    """A duration for people, to a tenth of a second at most: 9.97 seconds are ``10s``.

    A negative duration, from a clock set back, is ``0s``.
    """
    return format_duration(max(0.0, round(float(seconds), 1)))


_DEEPEST = 200
"""Levels of a value that are shown: a task may return lists nested as deep as Python allows."""


def readable(value: Any, level: int = 0) -> Any:
    """A stored value with ``@env:TOKEN`` instead of the marker of a secret, and ``...`` below the deepest level."""
    if isinstance(value, str):
        return _SECRET.sub(lambda match: re.sub(r"\\(.)", r"\1", match[1]), value)
    if isinstance(value, Mapping):
        return {key: readable(item, level + 1) for key, item in value.items()} if level < _DEEPEST else "..."
    if isinstance(value, list | tuple):
        return [readable(item, level + 1) for item in value] if level < _DEEPEST else "..."
    return value


def value_text(value: Any) -> str:
    """A value as text: strings unchanged, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_WIDTH = 100
"""Most columns of a paragraph."""
_NARROWEST = 20


class Rows(NamedTuple):
    """The cells of a table. ``align`` has a letter per column: ``l`` left, ``r`` right, ``.`` on the decimal point.

    ``spare`` are the headers of columns that a narrow terminal leaves out, the first one first.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str
    spare: Sequence[str] = ()

    def used(self) -> Rows:
        """The same table without empty columns."""
        return self._only([index for index in range(len(self.headers)) if any(row[index] for row in self.rows)])

    def without(self, header: str) -> Rows:
        """The same table without the columns of this header."""
        return self._only([index for index, other in enumerate(self.headers) if other != header])

    def _only(self, kept: Sequence[int]) -> Rows:
        return self._replace(
            headers=[self.headers[index] for index in kept],
            rows=[[row[index] for index in kept] for row in self.rows],
            align="".join(self.align[index] for index in kept),
        )


def table(whole: Rows) -> list[str]:
    """The lines of a table without its empty columns; none for a table without rows.

    On a narrow terminal the spare columns are omitted, and named below the table; if that does not suffice, each row is a
    paragraph.
    """
    used, width = whole.used(), terminal_width()
    lines = _lines(used)
    if width is None or _fits(lines, width):
        return lines
    narrower, left_out = used, list[str]()
    for header in used.spare:
        if header in narrower.headers:
            narrower, left_out = narrower.without(header), [*left_out, header]
            lines = _lines(narrower)
            if _fits(lines, width):
                return [*lines, *wrapped(f"left out in {width} columns: {', '.join(left_out)}")]
    return [line for row in used.rows for line in _paragraph(used.headers, row)]


def _lines(rows: Rows) -> list[str]:
    columns = [
        _column(header, [row[index] for row in rows.rows], rows.align[index])
        for index, header in enumerate(rows.headers)
    ]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _fits(lines: Sequence[str], width: int) -> bool:
    return all(len(line) <= width for line in lines)


def hanging_table(whole: Rows, *, indent: str) -> Iterator[str]:
    """The lines of a table whose last column is wrapped on a narrow terminal; on a very narrow one, paragraphs.

    All columns are left-aligned.
    """
    *columns, last = [_column(head, cells, "l") for head, *cells in zip(whole.headers, *whole.rows, strict=True)]
    width, room = terminal_width(), len(indent) + sum(len(column[0]) + 2 for column in columns)
    if width is not None and width < room + _NARROWEST + 4:
        for row in whole.rows:
            yield from _paragraph(whole.headers, row, indent)
        return
    for *cells, text in zip(*columns, last, strict=True):
        line = f"{indent}{'  '.join([*cells, text])}".rstrip()
        if width is None or len(line) <= width:
            yield line
            continue
        first, *rest = wrapped(text.strip(), width=width - room)
        yield f"{indent}{'  '.join([*cells, first])}"
        yield from (f"{' ' * room}{part}" for part in rest)


def _paragraph(headers: Sequence[str], row: Sequence[str], indent: str = "") -> Iterator[str]:
    """A row as text: its first cell, then the others, each after its header. Empty cells are left out."""
    if row[0]:
        yield from wrapped(row[0], indent=indent, hang=f"{indent}    ")
    named = ", ".join(f"{header} {cell}".strip() for header, cell in zip(headers[1:], row[1:], strict=True) if cell)
    yield from wrapped(named, indent=f"{indent}  ")


def terminal_width() -> int | None:
    """The columns of the terminal, or those that ``COLUMNS`` names; ``None`` for a file or pipe."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(_NARROWEST, int(columns))
    try:
        return max(_NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError, AttributeError):  # not a terminal, closed, or replaced by a notebook
        return None


def fitted(line: str, *, hang: str = "") -> Iterator[str]:
    """The line, wrapped between words to the terminal's width; ``hang`` is the indent of continuations."""
    width, line = terminal_width(), visible(line)
    if width is None or len(line) <= width:
        yield line
        return
    words = line.lstrip()
    yield from wrapped(words, indent=line[: len(line) - len(words)], hang=hang, width=width)


def _column(header: str, cells: Sequence[str], align: str) -> list[str]:
    cells = [visible(cell) for cell in cells]
    if align == ".":
        cells = _on_the_point(cells)
    width = max(len(header), *map(len, cells), 0)
    if align == "l":
        return [cell.ljust(width) for cell in (header, *cells)]
    return [cell.rjust(width) for cell in (header, *cells)]


def _on_the_point(cells: Sequence[str]) -> list[str]:
    """Pad on the right, so that the decimal points of right-aligned numbers align."""
    tails = [len(cell) - cell.rindex(".") if "." in cell else 0 for cell in cells]
    return [cell + " " * (max(tails) - tail) if cell else "" for cell, tail in zip(cells, tails, strict=True)]


def wrapped(text: str, *, indent: str = "", hang: str = "", width: int | None = None) -> Iterator[str]:
    """A sentence as lines of at most ``width``: by default 100 columns, or as narrow as the terminal.

    Names are not broken. ``hang`` is the indent of all lines but the first.
    """
    yield from textwrap.wrap(
        visible(text, block=True),  # line ends become spaces
        width or min(_WIDTH, terminal_width() or _WIDTH),
        initial_indent=indent,
        subsequent_indent=hang or indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shorten(text: str, width: int) -> str:
    """The text on one line of at most ``width``, cut with an ellipsis."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."
