"""The timers of a run: a heap of moments and tasks. Entries stay when a task moves on; a check on reading skips them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from spotwright.engine.state import RunState, TaskState
from spotwright.engine.status import TaskStatus

__all__ = ["due_tasks", "next_moment"]


def next_moment(state: RunState) -> float | None:
    """When the next timer is due (Unix seconds); ``None`` where no decision waits for time to pass."""
    if state.halting:
        return None
    while state.timers and not _is_current(state, *state.timers[0]):
        heapq.heappop(state.timers)
    moments = [state.timers[0][0]] if state.timers else []
    if state.ends_by is not None:
        moments.append(state.ends_by)
    return min(moments, default=None)


def due_tasks(state: RunState, now: float) -> list[TaskState]:
    """The tasks whose backoff, wait on a rung or time until the next look is over; in the order of their moments."""
    due = sorted(_timers_until(state, now))
    paths = dict.fromkeys(path for at, path in due if _is_current(state, at, path))
    return [state.tasks[path] for path in paths]


def _timers_until(state: RunState, now: float) -> Iterator[tuple[float, str]]:
    """The entries of the heap that are due, without changing it: below an entry that is not, none is."""
    heap, stack = state.timers, [0]
    while stack:
        index = stack.pop()
        if index < len(heap) and heap[index][0] <= now:
            yield heap[index]
            stack += (2 * index + 1, 2 * index + 2)


def _is_current(state: RunState, at: float, path: str) -> bool:
    """Whether a timer still counts: its task may have moved on since it was set."""
    task = state.tasks.get(path)
    if task is None:
        return False
    if task.status is TaskStatus.BACKOFF:
        return task.due == at and task.may_start and not state.is_over(task)
    waits_or_runs = task.status in (TaskStatus.PENDING, TaskStatus.RUNNING)
    return waits_or_runs and task.last.until == at and not task.last.halted
