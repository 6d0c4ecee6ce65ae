"""How the tasks of a run hang together: they become known, ready and done, and what an earlier try came to counts or not.

These are the steps of the fold (:mod:`spotwright.engine.fold`) that touch more than one task. Each costs as much as it has
neighbours, never as much as the run has tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.engine.state import RunState, TaskState, TaskStatus

__all__ = ["add_tasks", "fail", "make_ready", "open_pipeline", "succeed"]


def open_pipeline(state: RunState, task: TaskState, counting: Mapping[str, TaskState]) -> None:
    """Make the tasks of a pipeline known. It needs a decision at once where all of them have succeeded already."""
    task.status = TaskStatus.OPEN
    task.open_tasks = add_tasks(state, task.path, counting)
    if task.open_tasks == 0:
        state.todo[task.path] = None


def add_tasks(state: RunState, scope: str, counting: Mapping[str, TaskState]) -> int:
    """Add the tasks of a pipeline; the number of those that have not succeeded. ``counting``: what an earlier try came to.

    Attempts of an earlier try stay with the task whatever becomes of it: their numbers, logs and costs go on. Its success
    counts only where that of every task before it does, so what follows a task that runs again runs again too.
    """
    unfinished = 0
    for planned in state.plan.unfold(scope):
        task = state.tasks[planned.path] = TaskState(planned.path, scope, planned, missing=len(planned.spec.after))
        for name in planned.spec.after:
            upstream = state.tasks[f"{scope}/{name}" if scope else name]
            upstream.consumers.append(task)
            task.missing -= upstream.status is TaskStatus.SUCCEEDED
        retired, before = state.retired.pop(planned.path, None), counting.get(planned.path)
        if retired is not None:
            task.attempts = retired.attempts
        if before is not None and not task.missing:
            _carry_over(state, task, before, counting)
        if task.status is TaskStatus.WAITING and not task.missing:
            make_ready(state, task)
        unfinished += task.status is not TaskStatus.SUCCEEDED
    return unfinished


def _carry_over(state: RunState, task: TaskState, before: TaskState, counting: Mapping[str, TaskState]) -> None:
    if task.plan.spec.dag is not None and before.status in (TaskStatus.OPEN, TaskStatus.SUCCEEDED):
        open_pipeline(state, task, counting)
        if task.open_tasks:
            return
    if before.status is TaskStatus.SUCCEEDED:
        task.status, task.cached_from = before.status, before.cached_from
        task.parameters, task.artifacts = before.parameters, before.artifacts
        state.todo.pop(task.path, None)


def make_ready(state: RunState, task: TaskState) -> None:
    """The task may start; after a failure nothing new does, so there is nothing to decide about it."""
    task.status = TaskStatus.READY
    if not state.failed:
        state.todo[task.path] = None


def succeed(state: RunState, task: TaskState, data: Mapping[str, Any]) -> None:
    """The task has its outputs: what follows it may become ready, and its pipeline complete."""
    task.status, task.why = TaskStatus.SUCCEEDED, ""
    task.parameters, task.artifacts = data.get("parameters", {}), data.get("artifacts", {})
    state.todo.pop(task.path, None)
    for consumer in task.consumers:
        consumer.missing -= 1
        if consumer.missing == 0 and consumer.status is TaskStatus.WAITING:
            make_ready(state, consumer)
    if not task.scope:
        state.unfinished -= 1
        return
    parent = state.tasks[task.scope]
    parent.open_tasks -= 1
    if parent.open_tasks == 0:
        state.todo[parent.path] = None


def fail(state: RunState, task: TaskState, why: str) -> None:
    """The task has failed, and with it the run: no decision is due any more about what was ready to start."""
    task.status, task.why = TaskStatus.FAILED, why
    if not state.failed:
        state.todo = {path: None for path in state.todo if state.tasks[path].status is not TaskStatus.READY}
    state.failed.append(task.path)
