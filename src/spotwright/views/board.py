"""What the live display shows, kept up to date event by event, so that ten thousand tasks cost no more than ten.

The engine's thread writes the board, the thread that draws reads it; whoever does either holds the display's lock. It is
made of plain values: whoever draws never looks at the state, which changes meanwhile.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotwright.engine.events import Event
from spotwright.engine.state import RunState, TaskState, TaskStatus
from spotwright.model.attempts import Cause
from spotwright.views.narration import Narrator, Said
from spotwright.views.waiting import waiting_for

__all__ = ["Board", "Row"]

_SMALL = 50  # up to so many tasks, those that wait for others are listed with what they wait for
_LAST = 4  # how many of the last troubles are kept

_UNDER_WAY = frozenset({TaskStatus.RUNNING, TaskStatus.PENDING, TaskStatus.BACKOFF})


@dataclass(frozen=True, slots=True)
class Row:
    """One task that is under way. ``since`` and ``until`` are Unix seconds: how long it has been so, or how long it will be."""

    path: str
    status: TaskStatus
    text: str
    pools: tuple[str, ...] = ()
    progress: float | None = None
    since: float | None = None
    until: float | None = None


class Board:
    """The tasks under way in the order in which they began, how many there are of each status, and the last troubles."""

    def __init__(self) -> None:
        self.run = ""
        self.started_at = 0.0
        self.total = 0
        self.rows: dict[str, Row] = {}
        self.waiting: list[Row] = []
        self.troubles: deque[Said] = deque(maxlen=_LAST)
        self.interruptions = 0
        self.booting: dict[str, str] = {}  # nodes that boot, with their pools
        self.ending = ""  # why everything is being stopped
        self._known: dict[str, TaskStatus] = {}
        self._counts: Counter[TaskStatus] = Counter()
        self._narrator = Narrator()
        self._begun = False

    def count(self, *statuses: TaskStatus) -> int:
        """How many tasks have one of these statuses."""
        return sum(self._counts[status] for status in statuses)

    @property
    def later(self) -> int:
        """How many tasks wait for others; those that nothing was heard of are among them."""
        heard = sum(
            count for status, count in self._counts.items() if status not in (TaskStatus.WAITING, TaskStatus.READY)
        )
        return self.total - heard

    def update(self, state: RunState, events: Sequence[Event]) -> None:
        """Take in one batch of events. Costs as much as the batch is long, but for small pipelines and resets."""
        if not events:
            return
        self.troubles.extend(said for said in self._narrator.tell(state, events) if said.is_trouble)
        if not self._begun:
            self._begun, self.started_at, self.run = True, events[0].at, str(state.meta.get("run", ""))
            self._rebuild(state)
        elif any(event.kind == "reset" for event in events):
            self._rebuild(state)
        self.total = len(state.tasks)
        for event in events:
            self._take(state, event)
        small = self.total <= _SMALL
        self.waiting = (
            [_row(state, task) for task in state.tasks.values() if task.status is TaskStatus.WAITING] if small else []
        )
        self.ending = "the run is being cancelled" if state.cancelling else state.stopping or state.expired

    def _rebuild(self, state: RunState) -> None:
        self.rows, self._known = {}, {path: task.status for path, task in state.tasks.items()}
        self._counts = Counter(self._known.values())

    def _take(self, state: RunState, event: Event) -> None:
        if event.kind == "node":
            self._take_node(event)
        elif event.kind == "decided":
            self.interruptions += Cause(event.data["cause"]).is_interruption
        about = [path for path, _ in event.data["attempts"]] if event.kind == "notice" else [event.task]
        for path in about:
            if path in state.tasks:
                self._take_task(state, state.tasks[path])

    def _take_task(self, state: RunState, task: TaskState) -> None:
        before = self._known.get(task.path)
        if before is not None:
            self._counts[before] -= 1
        self._counts[task.status] += 1
        self._known[task.path] = task.status
        if task.status in _UNDER_WAY:
            self.rows[task.path] = _row(state, task)
        else:
            self.rows.pop(task.path, None)

    def _take_node(self, event: Event) -> None:
        if event.data["state"] == "booting":
            self.booting[event.data["node"]] = event.data["pool"]
        else:
            self.booting.pop(event.data["node"], None)


def _row(state: RunState, task: TaskState) -> Row:
    if task.status is not TaskStatus.RUNNING:
        return _waiting_row(state, task, {})
    attempt = task.last
    text = f"attempt {attempt.number} on {attempt.node}"
    if attempt.halted:
        text += ", told to stop"
    elif attempt.goes_at is not None:
        return Row(task.path, task.status, f"{text}, to be taken", (), attempt.progress, until=attempt.goes_at)
    return Row(task.path, task.status, text, (), attempt.progress, since=attempt.bound_at)


def _waiting_row(state: RunState, task: TaskState, booting: Mapping[str, int]) -> Row:
    waiting = waiting_for(state, task, booting)
    if waiting is None:
        return Row(task.path, task.status, "")
    if waiting.kind == "node":
        return Row(task.path, task.status, waiting.text, waiting.pools, since=task.last.placed_at)
    return Row(task.path, task.status, waiting.text, until=waiting.until)
