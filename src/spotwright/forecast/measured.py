"""Takes the durations of tasks from the journal of an earlier run.

The work of a task is the time of its successful attempt on its node. Where that attempt went on from saved progress, its time is
that of the rest: an attempt that began at 0.4 of the work and took six minutes means ten minutes of work. The seconds are those
of the processes, also in a run whose simulated waits passed faster: the time scale does not change how long code runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from spotwright.engine.events import TaskStatus
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.errors import InputError
from spotwright.forecast.durations import Durations, Given
from spotwright.model.attempts import Cause

__all__ = ["measured"]

_LEAST = 0.05  # the part of the work that the last attempt must have done for its time to tell the whole


def measured(state: RunState, run: str) -> Durations:
    """The durations of the tasks of a run that succeeded there; of a task in a loop also the mean over its iterations.

    Raises :class:`InputError` for a run in which no task succeeded.
    """
    works: dict[str, list[float]] = {}
    own: list[tuple[str, Given]] = []
    saving: set[str] = set()
    for task in state.tasks.values():
        work = _work(task)
        if work is None:
            continue
        saves = any(attempt.first_progress for attempt in task.attempts[1:])
        works.setdefault(task.plan.spec_path or task.path, []).append(work)
        saving.update({task.plan.spec_path or task.path} if saves else ())
        own.append((task.path, Given(work)))
    if not works:
        raise InputError(f"run {run}: no task of it ran and succeeded, so it has no durations to plan with")
    means = [(path, Given(sum(each) / len(each), saves=path in saving)) for path, each in works.items()]
    loops = [
        (task.path, Given(iterations=len(task.loop.items))) for task in state.tasks.values() if task.loop is not None
    ]
    return Durations(f"measured in {run}", list(chain(means, own, loops)), tuple(_remarks(state, run)))


def _work(task: TaskState) -> float | None:
    """The seconds of work of a task that succeeded on a node; ``None`` for others."""
    if task.status is not TaskStatus.SUCCEEDED or task.cached_from is not None or not task.attempts:
        return None
    last = task.last
    seconds = _seconds(last)
    if last.cause is not Cause.SUCCEEDED or seconds is None or seconds <= 0:
        return None
    began = last.first_progress if len(task.attempts) > 1 else None
    return seconds / max(_LEAST, 1.0 - (began or 0.0))


def _seconds(attempt: AttemptState) -> float | None:
    """The time of an attempt on its node, by its exit record where there is one."""
    if attempt.bound_at is None or attempt.ended_at is None:
        return None
    recorded = attempt.ended.ended_at if attempt.ended is not None else None
    return (attempt.ended_at if recorded is None else min(recorded, attempt.ended_at)) - attempt.bound_at


def _remarks(state: RunState, run: str) -> Iterator[str]:
    cached = sum(task.cached_from is not None for task in state.tasks.values())
    if cached:
        yield f"{cached} tasks of {run} used earlier results, so it did not measure them"
