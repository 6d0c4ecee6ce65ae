"""Plain tables for terminals, logs and pipes: aligned columns, no colour, no trailing blanks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

__all__ = ["WIDTH", "shorten", "table", "wrapped"]

WIDTH = 100
"""How wide text is where no terminal says otherwise."""


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str, *, indent: str = "") -> list[str]:
    """The lines of a table. ``align`` has a letter for each column: ``l`` left, ``r`` right, ``.`` on the decimal point.

    A column whose cells are all empty is left out, so that an account without boot time has no column for it.
    """
    used = [index for index in range(len(headers)) if any(row[index] for row in rows)]
    columns = [_column(headers[index], [row[index] for row in rows], align[index]) for index in used]
    return [f"{indent}{'  '.join(cells)}".rstrip() for cells in zip(*columns, strict=True)]


def _column(header: str, cells: Sequence[str], align: str) -> list[str]:
    if align == ".":
        cells = _on_the_point(cells)
    width = max(len(header), *map(len, cells), 0)
    if align == "l":
        return [cell.ljust(width) for cell in (header, *cells)]
    return [cell.rjust(width) for cell in (header, *cells)]


def _on_the_point(cells: Sequence[str]) -> list[str]:
    """Fill up with blanks on the right, so that right-aligned numbers have their points below each other."""
    tails = [len(cell) - cell.index(".") if "." in cell else 0 for cell in cells]
    return [cell + " " * (max(tails) - tail) if cell else "" for cell, tail in zip(cells, tails, strict=True)]


def wrapped(text: str, *, indent: str = "", hang: str = "", width: int = WIDTH) -> Iterator[str]:
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
