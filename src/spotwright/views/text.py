"""The words for causes, durations and stored values, the same in every view.

Plain tables for terminals, logs and pipes: aligned columns, no colour, no trailing blanks.

Says why a task waits: for upstream tasks, its Python environment, a node, the end of a backoff, or nothing any more.
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

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.state import RunState, TaskState
from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_duration

__all__ = [
    "Rows",
    "Waiting",
    "after_cause",
    "age_text",
    "booting_nodes",
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
    "waiting_for",
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
    if cause in (Cause.SUCCEEDED, Cause.CANCELLED):
        return _ENDED[cause]  # the reason says the same
    share = f" (at {progress:.0%} of its work)" if progress is not None else ""
    return f"{_ENDED[cause]}: {why.removeprefix(f'it {_ENDED[cause]}: ')}{share}"


def after_cause(cause: Cause, following: str) -> str:
    """The decision after an attempt, for a place that has just named the cause: the cause is not repeated."""
    return following.removeprefix(f"{cause}, and ")


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
    """A duration for people, to a tenth of a second at most: 9.97 seconds are ``10s``."""
    return format_duration(round(float(seconds), 1))


def readable(value: Any) -> Any:
    """A stored value with ``@env:TOKEN`` instead of the marker of a secret."""
    if isinstance(value, str):
        return _SECRET.sub(lambda match: re.sub(r"\\(.)", r"\1", match[1]), value)
    if isinstance(value, Mapping):
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    return value


def value_text(value: Any) -> str:
    """A value as text: strings unchanged, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


_WIDTH = 100
"""Most columns of a paragraph."""
_NARROWEST = 20


class Rows(NamedTuple):
    """The cells of a table. ``align`` has a letter per column: ``l`` left, ``r`` right, ``.`` on the decimal point."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str

    def used(self) -> Rows:
        """The same table without empty columns."""
        kept = [index for index in range(len(self.headers)) if any(row[index] for row in self.rows)]
        return Rows(
            [self.headers[index] for index in kept],
            [[row[index] for index in kept] for row in self.rows],
            "".join(self.align[index] for index in kept),
        )


def table(whole: Rows) -> list[str]:
    """The lines of a table without its empty columns; none for a table without rows. Paragraphs where it does not fit."""
    headers, rows, align = whole.used()
    columns = [_column(headers[index], [row[index] for row in rows], align[index]) for index in range(len(headers))]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    width = terminal_width()
    if width is None or all(len(line) <= width for line in lines):
        return lines
    return [line for row in rows for line in _paragraph(headers, row)]


def hanging_table(whole: Rows, *, indent: str) -> Iterator[str]:
    """The lines of a table whose last column is wrapped where the terminal is too narrow for it; paragraphs if it is narrower.

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
    """The line, wrapped between words where it is wider than the terminal; ``hang`` is the indent of its continuation."""
    width = terminal_width()
    if width is None or len(line) <= width:
        yield line
        return
    words = line.lstrip()
    yield from wrapped(words, indent=line[: len(line) - len(words)], hang=hang, width=width)


def _column(header: str, cells: Sequence[str], align: str) -> list[str]:
    if align == ".":
        cells = _on_the_point(cells)
    width = max(len(header), *map(len, cells), 0)
    if align == "l":
        return [cell.ljust(width) for cell in (header, *cells)]
    return [cell.rjust(width) for cell in (header, *cells)]


def _on_the_point(cells: Sequence[str]) -> list[str]:
    """Pad on the right, so that the points of right-aligned numbers are below each other."""
    tails = [len(cell) - cell.rindex(".") if "." in cell else 0 for cell in cells]
    return [cell + " " * (max(tails) - tail) if cell else "" for cell, tail in zip(cells, tails, strict=True)]


def wrapped(text: str, *, indent: str = "", hang: str = "", width: int | None = None) -> Iterator[str]:
    """A sentence as lines of at most ``width``: by default 100 columns, or those of a narrower terminal.

    Names are not broken. ``hang`` is the indent of all lines but the first.
    """
    yield from textwrap.wrap(
        text,
        width or min(_WIDTH, terminal_width() or _WIDTH),
        initial_indent=indent,
        subsequent_indent=hang or indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shorten(text: str, width: int) -> str:
    """The text on one line of at most ``width``, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."


_BEFORE_AN_ATTEMPT = (TaskStatus.WAITING, TaskStatus.READY, TaskStatus.PREPARING, TaskStatus.BACKOFF)
_NAMED = 3  # most upstream tasks that are named; more are counted


class Waiting(NamedTuple):
    """The reason why a task waits.

    ``kind``: ``tasks``, ``environment``, ``node``, ``start`` (it has a node), ``backoff``, ``turn``, or ``nothing`` once the run
    is over.

    ``tasks`` are the unfinished upstream tasks, ``pools`` the pools of the rung; ``until`` (Unix seconds) is the end of the
    backoff or of the wait for these pools. ``text`` is a phrase without that moment.
    """

    kind: str
    text: str
    tasks: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    until: float | None = None


def booting_nodes(state: RunState) -> Mapping[str, int]:
    """The number of booting nodes by pool."""
    booting: dict[str, int] = {}
    for node in state.nodes.values():
        if node.state == "booting":
            booting[node.pool] = booting.get(node.pool, 0) + 1
    return booting


def waiting_for(state: RunState, task: TaskState, booting: Mapping[str, int]) -> Waiting | None:
    """Why a task waits; ``None`` if it runs or has ended. ``booting`` is the result of :func:`booting_nodes`."""
    if task.status is TaskStatus.RUNNING and task.last.waits and state.status is RunStatus.RUNNING:
        return Waiting("start", f"has a node and does not start: {task.last.waits}")
    if task.status.is_final or task.status in (TaskStatus.RUNNING, TaskStatus.OPEN):
        return None
    if state.status is not RunStatus.RUNNING:
        after = "when the run is resumed" if state.status is RunStatus.STOPPED else "any more: the run has ended"
        begun = "goes on" if task.attempts else "starts"
        return Waiting(
            "nothing", f"{begun} {after}" if state.status is RunStatus.STOPPED else f"does not start {after}"
        )
    if not task.may_start and task.status in _BEFORE_AN_ATTEMPT:
        return Waiting("nothing", f"does not start any more: {task.scope.failed} failed")
    if task.status is TaskStatus.WAITING:
        return _for_tasks(state, task)
    if task.status is TaskStatus.PREPARING:
        packages = task.environment.packages if task.environment is not None else ()
        return Waiting("environment", f"builds its Python environment{_listed(packages)}")
    if task.status is TaskStatus.PENDING:
        return _for_node(task, booting)
    if state.meta.orchestrator and task.attempts:
        return Waiting("turn", _for_successor(state.meta.orchestrator, task))
    if task.status is TaskStatus.BACKOFF:
        return Waiting("backoff", f"waits before attempt {len(task.attempts) + 1}", until=task.due)
    return Waiting("turn", "is about to start")


def _for_tasks(state: RunState, task: TaskState) -> Waiting:
    paths = [task.scope.place.child(name) for name in task.plan.spec.after]
    open_paths = tuple(path for path in paths if not state.tasks[path].status.is_good)
    more = f" and {len(open_paths) - _NAMED} more" if len(open_paths) > _NAMED else ""
    return Waiting("tasks", f"waits for {', '.join(open_paths[:_NAMED])}{more}", tasks=open_paths)


def _for_successor(orchestrator: str, task: TaskState) -> str:
    """Whose turn it is to make the next attempt; and what to do about a silent node that holds the pod of the last one."""
    text = f"waits until its {orchestrator} makes attempt {len(task.attempts) + 1}"
    held = task.last.held
    if held is None:
        return text
    since = "" if held.since is None else f" since {time_of_day(held.since)}"
    from spotwright.clouds.providers import commands_to_free  # here: for runs in a cluster alone

    taint, delete = commands_to_free(held.node)
    return (
        f"{text}; node {held.node}, which holds the pod of attempt {task.last.number}, does not report{since}: "
        f"if its machine is gone, free it: {taint}, or {delete}"
    )


def _listed(packages: Sequence[str]) -> str:
    more = f" and {len(packages) - _NAMED} more" if len(packages) > _NAMED else ""
    return f" ({', '.join(packages[:_NAMED])}{more})" if packages else ""


def _for_node(task: TaskState, booting: Mapping[str, int]) -> Waiting:
    attempt = task.last
    if attempt.taken_back is not None:
        return Waiting("node", f"is taken back: {attempt.taken_back.why}", pools=attempt.pools)
    count = sum(booting.get(pool, 0) for pool in attempt.pools)
    text = f"waits for a node of {' or '.join(attempt.pools)}" if attempt.pools else "waits for a node"
    if count:
        text += f" ({plural(count, 'node')} booting)"
    if attempt.waits:
        text += f"; {attempt.waits}"
    return Waiting("node", text, pools=attempt.pools, until=attempt.until)
