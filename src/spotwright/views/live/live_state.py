"""The content of the live display, updated event by event, so that ten thousand tasks cost no more than ten.

The engine's thread updates it and the drawing thread reads it, both under the display's lock. It holds plain values only: the
drawing thread never reads the state of the run, which changes meanwhile.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotwright.engine.events import AttemptDecided, Event, NodeChanged, NoticeGiven, RunReset, TaskStatus
from spotwright.engine.state import RunState, TaskState
from spotwright.views.live.narration import Narrator, Sentence
from spotwright.views.waiting import waiting_for

__all__ = ["LiveState", "Row"]

_SMALL = 50  # up to so many tasks in the run, waiting tasks are listed with their upstream tasks
_TROUBLES = 4  # how many sentences about trouble are kept

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
    """The tasks under way in order of their begin, the number of tasks by status, and the last troubles."""

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
        """How many tasks wait for others, with those that no event was about yet."""
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
        """Take in one batch of events, at a cost that grows with the batch only, except for small pipelines and resets."""
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
        self._begun, self.started_at, self.run = True, started_at, state.meta.run
        self._count_all(state)

    def _count_all(self, state: RunState) -> None:
        self.rows, self._statuses = {}, {path: task.status for path, task in state.tasks.items()}
        self._counts = Counter(self._statuses.values())

    def _update_rest(self, state: RunState) -> None:
        self.total = len(state.tasks)
        waiting = state.tasks.values() if self.total <= _SMALL else ()
        self.waiting = [_row(state, task) for task in waiting if task.status is TaskStatus.WAITING]
        self.ending = "the run is being cancelled" if state.cancelling else state.stopping or state.expired

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
    if task.status is not TaskStatus.RUNNING:
        return _waiting_row(state, task, {})
    attempt = task.last
    text = f"attempt {attempt.number} on {attempt.node or 'a node that is not told'}"
    if attempt.halted:
        text += ", told to stop"
    elif attempt.goes_at is not None:
        return Row(task.path, task.status, f"{text}, to be taken", (), attempt.progress, until=attempt.goes_at)
    return Row(task.path, task.status, text, (), attempt.progress, since=attempt.bound_at)


def _waiting_row(state: RunState, task: TaskState, booting: Mapping[str, int]) -> Row:
    waiting = waiting_for(state, task, booting)
    if waiting is None:
        return Row(task.path, task.status, "")
    if waiting.kind == "environment" and task.environment is not None:
        return Row(task.path, task.status, waiting.text, since=task.environment.began_at)
    if waiting.kind == "node":
        return Row(task.path, task.status, waiting.text, waiting.pools, since=task.last.placed_at)
    return Row(task.path, task.status, waiting.text, until=waiting.until)
