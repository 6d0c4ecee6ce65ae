"""Plain tables for terminals, logs and pipes: aligned columns, no colour, no trailing blanks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Rows", "shorten", "table", "wrapped"]

_WIDTH = 100
"""How wide text is where no terminal says otherwise."""


class Rows(NamedTuple):
    """A table before it is laid out. ``align`` has a letter per column: ``l`` left, ``r`` right, ``.`` on the decimal point."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str

    def used(self) -> Rows:
        """Without the columns whose cells are all empty."""
        kept = [index for index in range(len(self.headers)) if any(row[index] for row in self.rows)]
        return Rows(
            [self.headers[index] for index in kept],
            [[row[index] for index in kept] for row in self.rows],
            "".join(self.align[index] for index in kept),
        )


def table(whole: Rows) -> list[str]:
    """The lines of a table; none where it has no rows. Empty columns are left out."""
    headers, rows, align = whole.used()
    columns = [_column(headers[index], [row[index] for row in rows], align[index]) for index in range(len(headers))]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _column(header: str, cells: Sequence[str], align: str) -> list[str]:
    if align == ".":
        cells = _on_the_point(cells)
    width = max(len(header), *map(len, cells), 0)
    if align == "l":
        return [cell.ljust(width) for cell in (header, *cells)]
    return [cell.rjust(width) for cell in (header, *cells)]


def _on_the_point(cells: Sequence[str]) -> list[str]:
    """Fill up with blanks on the right, so that right-aligned numbers have their points below each other."""
    tails = [len(cell) - cell.rindex(".") if "." in cell else 0 for cell in cells]
    return [cell + " " * (max(tails) - tail) if cell else "" for cell, tail in zip(cells, tails, strict=True)]


def wrapped(text: str, *, indent: str = "", hang: str = "", width: int = _WIDTH) -> Iterator[str]:
    """A sentence as lines of at most ``width``; long names are never cut. ``hang`` stands before all lines but the first."""
    yield from textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=hang or indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shorten(text: str, width: int) -> str:
    """The text on one line, cut at the end with an ellipsis where it is longer than ``width``."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."
