"""The live display of a run in a terminal: the node of every task, the last interruptions, and the reasons of waits.

It draws after events, at most ten times a second, and when a shown time changes: each second while a task or a wait is younger
than a minute, then each minute. So a display of long work is free. Its content is updated event by event, so that ten thousand
tasks cost no more than ten. A separate thread draws; it reads only the :class:`LiveState`, under the lock.

This is the only module that needs rich; it is imported only for terminals.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from spotwright.engine.events import AttemptDecided, Event, NodeChanged, NoticeGiven, RunReset, TaskStatus
from spotwright.engine.state import RunState, TaskState
from spotwright.views.narration import Narrator, Sentence
from spotwright.views.text import plural, span, wrapped
from spotwright.views.waiting import waiting_for
from spotwright.visible_text import visible

__all__ = ["LiveProgress", "LiveState", "Row"]


_SMALL = 50  # up to this many tasks, waiting ones are listed with their upstream tasks
_TROUBLES = 4  # sentences about trouble that are kept

_UNDER_WAY = frozenset({TaskStatus.RUNNING, TaskStatus.PREPARING, TaskStatus.PENDING, TaskStatus.BACKOFF})


@dataclass(frozen=True, slots=True)
class Row:
    """One task. ``since`` and ``until`` are Unix seconds: the begin or the end of the activity in ``text``."""

    path: str
    status: TaskStatus
    text: str
    pools: tuple[str, ...] = ()
    progress: float | None = None
    since: float | None = None
    until: float | None = None


class LiveState:
    """The running tasks in order of their begin, the number of tasks by status, and the last troubles."""

    def __init__(self) -> None:
        self.run = ""
        self.started_at = 0.0
        self.total = 0
        self.rows: dict[str, Row] = {}
        self.waiting: list[Row] = []
        self.troubles: deque[Sentence] = deque(maxlen=_TROUBLES)
        self.interruptions = 0
        self.booting: dict[str, str] = {}  # booting nodes, with their pools
        self.ending = ""  # why everything is being stopped
        self._statuses: dict[str, TaskStatus] = {}
        self._counts: Counter[TaskStatus] = Counter()
        self._narrator = Narrator()
        self._begun = False

    def count(self, *statuses: TaskStatus) -> int:
        """How many tasks have one of these statuses."""
        return sum(self._counts[status] for status in statuses)

    @property
    def later(self) -> int:
        """The number of tasks that wait for others, including tasks without an event."""
        begun = sum(
            count for status, count in self._counts.items() if status not in (TaskStatus.WAITING, TaskStatus.READY)
        )
        return self.total - begun

    def join(self, state: RunState) -> None:
        """Begin with a run that is under way."""
        self._narrator.join(state)
        self._begin(state, state.started_at)
        tasks = (*state.tasks.values(), *state.retired.values())
        causes = (attempt.cause for task in tasks for attempt in task.attempts)
        self.interruptions = sum(cause is not None and cause.is_interruption for cause in causes)
        self.booting = {node.name: node.pool for node in state.nodes.values() if node.state == "booting"}
        self.rows = {path: _row(state, task) for path, task in state.tasks.items() if task.status in _UNDER_WAY}
        self._update_rest(state)

    def update(self, state: RunState, events: Sequence[Event]) -> None:
        """Apply a batch of events, at a cost that depends on the batch alone, except for small pipelines and resets."""
        if not events:
            return
        self.troubles.extend(sentence for sentence in self._narrator.narrate(state, events) if sentence.is_trouble)
        if not self._begun:
            self._begin(state, events[0].at)
        elif any(isinstance(event, RunReset) for event in events):
            self._count_all(state)
        for event in events:
            self._take(state, event)
        self._update_rest(state)

    def _begin(self, state: RunState, started_at: float) -> None:
        self._begun, self.started_at, self.run = True, started_at, visible(state.meta.run)
        self._count_all(state)

    def _count_all(self, state: RunState) -> None:
        self.rows, self._statuses = {}, {path: task.status for path, task in state.tasks.items()}
        self._counts = Counter(self._statuses.values())

    def _update_rest(self, state: RunState) -> None:
        self.total = len(state.tasks)
        waiting = state.tasks.values() if self.total <= _SMALL else ()
        self.waiting = [_row(state, task) for task in waiting if task.status is TaskStatus.WAITING]
        self.ending = visible("the run is being cancelled" if state.cancelling else state.stopping or state.expired)

    def _take(self, state: RunState, event: Event) -> None:
        if isinstance(event, NodeChanged):
            self._take_node(event)
        elif isinstance(event, AttemptDecided):
            self.interruptions += event.cause.is_interruption
        paths = [path for path, _ in event.attempts] if isinstance(event, NoticeGiven) else [event.task]
        for path in paths:
            if path in state.tasks:
                self._take_task(state, state.tasks[path])

    def _take_task(self, state: RunState, task: TaskState) -> None:
        before = self._statuses.get(task.path)
        if before is not None:
            self._counts[before] -= 1
        self._counts[task.status] += 1
        self._statuses[task.path] = task.status
        if task.status in _UNDER_WAY:
            self.rows[task.path] = _row(state, task)
        else:
            self.rows.pop(task.path, None)

    def _take_node(self, event: NodeChanged) -> None:
        if event.state == "booting":
            self.booting[event.node] = event.pool
        else:
            self.booting.pop(event.node, None)


def _row(state: RunState, task: TaskState) -> Row:
    row = _row_as_named(state, task)
    return replace(row, path=visible(row.path), text=visible(row.text))


def _row_as_named(state: RunState, task: TaskState) -> Row:
    if task.status is not TaskStatus.RUNNING:
        return _waiting_row(state, task, {})
    attempt = task.last
    text = f"attempt {attempt.number} on {attempt.node or 'an unknown node'}"
    if attempt.halted:
        text += ", stopping"
    elif attempt.goes_at is not None:
        return Row(task.path, task.status, f"{text}, to be reclaimed", (), attempt.progress, until=attempt.goes_at)
    return Row(task.path, task.status, text, (), attempt.progress, since=attempt.runs_since)


def _waiting_row(state: RunState, task: TaskState, booting: Mapping[str, int]) -> Row:
    waiting = waiting_for(state, task, booting)
    if waiting is None:
        return Row(task.path, task.status, "")
    if waiting.kind == "environment" and task.environment is not None:
        return Row(task.path, task.status, waiting.text, since=task.environment.began_at)
    if waiting.kind == "node":
        return Row(task.path, task.status, waiting.text, waiting.pools, since=task.last.placed_at)
    return Row(task.path, task.status, waiting.text, until=waiting.until)


_PAUSE = 0.1  # seconds between two drawings after events
_TICK = 1.0  # seconds between two drawings without events
_MOST_ROWS = 12
_MOST_TROUBLE = 6
_BAR = 20
_MARKS = {
    TaskStatus.RUNNING: ("\N{BLACK CIRCLE}", "*", "green"),
    TaskStatus.PREPARING: ("\N{WHITE DIAMOND}", "+", "cyan"),
    TaskStatus.PENDING: ("\N{WHITE CIRCLE}", "o", "yellow"),
    TaskStatus.BACKOFF: ("\N{CLOCKWISE OPEN CIRCLE ARROW}", "~", "magenta"),
}


class LiveProgress:
    """An observer of a run with a display at the bottom of a terminal, which is cleared at the end."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        self._console = Console(file=stream)
        self._clock = clock
        self._content = LiveState()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._changed = threading.Condition()
        self._dirty = self._closed = False
        self._thread = threading.Thread(target=self._draw_on, name="spotwright-progress", daemon=True)

    def join(self, state: RunState, /) -> None:
        """Begin with a run that is under way."""
        with self._changed:
            self._content.join(state)
            self._draw_soon()

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Apply a batch of events, which is drawn soon."""
        with self._changed:
            self._content.update(state, events)
            self._draw_soon()

    def _draw_soon(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._changed.notify()

    def __enter__(self) -> Self:
        self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing and clear the display."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        with suppress(OSError):  # the terminal itself may be gone
            self._live.stop()

    def tick(self) -> float | None:
        """Draw the display now. Returns the seconds until a shown time changes; ``None``: never."""
        now = self._clock()
        with self._changed:
            self._dirty = False
            picture = Picture(self._content, now, self._console)
            lines = list(picture.lines())
        self._live.update(Group(*lines), refresh=True)
        return picture.changes_in

    def _draw_on(self) -> None:
        changes_in: float | None = None
        while True:
            with self._changed:
                if not self._dirty and not self._closed:
                    self._changed.wait(changes_in)
                if self._closed:
                    return
            try:
                following = self.tick()
            except OSError:  # the terminal is gone: the run continues unwatched
                return
            changes_in = None if following is None else max(following, _TICK)
            with self._changed:
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, _PAUSE)


class Picture:
    """The lines of one drawing. ``changes_in`` is set after the last of :meth:`lines`."""

    def __init__(self, content: LiveState, now: float, console: Console) -> None:
        self._content, self._now = content, now
        self._width, self._height = console.size
        self._plain = console.options.ascii_only
        self.changes_in: float | None = None

    def lines(self) -> Iterator[Text]:
        """The lines from top to bottom, as many and as wide as the terminal allows."""
        content = self._content
        yield self._head()
        most = max(3, min(_MOST_ROWS, self._height - _MOST_TROUBLE - 4))
        rows = list(content.rows.values())
        waiting = content.waiting[: max(0, most - len(rows))]
        name_width = min(max((len(row.path) for row in [*rows[:most], *waiting]), default=0), self._width // 3)
        for row in [*rows[:most], *waiting]:
            yield self._row(row, name_width)
        rest = len(rows) - len(rows[:most])
        counted = [f"{rest:,} more under way"] if rest else []
        counted += [f"{later:,} wait for others"] if (later := content.later - len(waiting)) > 0 else []
        if counted:
            yield _line(f"   {', '.join(counted)}", "dim")
        yield from self._troubles()
        if content.ending:
            yield _line(f" {content.ending}", "bold red")

    def _head(self) -> Text:
        content = self._content
        done = content.count(TaskStatus.SUCCEEDED)
        counts = [f"{done:,} of {plural(content.total, 'task')} done", f"{content.count(TaskStatus.RUNNING):,} running"]
        if content.count(TaskStatus.FAILED):
            counts.append(f"{content.count(TaskStatus.FAILED):,} failed")
        if content.interruptions:
            counts.append(plural(content.interruptions, "interruption"))
        head = _line(f" {content.run}", "bold")
        head.append(f"  {self._age(content.started_at)}  {', '.join(counts)}")
        return head

    def _troubles(self) -> Iterator[Text]:
        """The last troubles, the newest last. They are wrapped, not cut, because the reason comes last."""
        wide = max(self._width, 30)
        texts = [f"+{span(trouble.offset)} {trouble.text}" for trouble in self._content.troubles]
        lines = [line for text in texts for line in wrapped(text, indent=" " * 3, hang=" " * 6, width=wide)]
        for line in lines[-_MOST_TROUBLE:]:
            yield _line(line, "yellow")

    def _row(self, row: Row, name_width: int) -> Text:
        mark, plain, style = _MARKS.get(row.status, ("\N{MIDDLE DOT}", ".", "dim"))
        name = row.path if len(row.path) <= name_width else f"...{row.path[-(name_width - 3) :]}"
        line = _line(f" {plain if self._plain else mark} ", style)
        line.append(f"{name:<{name_width}}  ", "bold" if row.status is TaskStatus.RUNNING else "")
        line.append(row.text, "dim" if row.status is TaskStatus.WAITING else "")
        booting = sum(pool in row.pools for pool in self._content.booting.values())
        if booting:
            line.append(f" ({plural(booting, 'node')} booting)")
        if row.progress is not None:
            line.append(f"  {row.progress:4.0%}")
            if self._width >= 90:
                line.append(f" {self._bar(row.progress)}", "green")
        if row.until is not None:
            line.append(f"  {self._left(row.until)} left")
        elif row.since is not None:
            line.append(f"  {self._age(row.since)}", "dim")
        return line

    def _bar(self, progress: float) -> str:
        full, empty = (
            ("#", "-") if self._plain else ("\N{BOX DRAWINGS HEAVY HORIZONTAL}", "\N{BOX DRAWINGS LIGHT HORIZONTAL}")
        )
        count = round(min(max(progress, 0.0), 1.0) * _BAR)
        return full * count + empty * (_BAR - count)

    def _age(self, since: float) -> str:
        """How long ago, in whole seconds below a minute, then in whole minutes."""
        age = max(0.0, self._now - since)
        unit = 1.0 if age < 60 else 60.0
        self._changes(unit - age % unit)
        return _coarse(age)

    def _left(self, until: float) -> str:
        """How long from now, rounded up: 0s is over."""
        left = max(0.0, until - self._now)
        if left:
            self._changes(left % 1.0 or 1.0 if left <= 60 else left % 60 or 60.0)
        return _coarse(math.ceil(left))

    def _changes(self, seconds: float) -> None:
        self.changes_in = seconds if self.changes_in is None else min(self.changes_in, seconds)


def _coarse(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m" if whole < 3600 else span(whole)


def _line(text: str, style: str = "") -> Text:
    """The beginning of a line, cut with an ellipsis at the terminal's edge."""
    line = Text(no_wrap=True, overflow="ellipsis")
    return line.append(text, style)
