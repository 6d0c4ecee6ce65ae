"""How the tasks of a run hang together: they become known, ready and done, and what an earlier try came to counts or not.

These are the steps of the fold (:mod:`spotwright.engine.fold`) that touch more than one task. Each costs as much as it has
neighbours, never as much as the run has tasks; only the first failure in a pipeline looks at all of that pipeline's own tasks.

After a failure nothing new starts among the tasks of the same pipeline, loop or iteration; what runs there comes to its end, and
with it the pipeline, which fails. What has begun elsewhere goes on. This is Argo's ``failFast``, under which the KFP backend
runs every DAG. Exit handlers and tasks with ``ignore_upstream_failure`` start in any case, once what they come after has ended
or cannot start any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.engine.state import LoopState, RunState, ScopeState, TaskState, TaskStatus

__all__ = ["add_tasks", "fail", "make_ready", "open_pipeline", "set_active", "settle", "skip", "succeed"]

_TO_COME = (TaskStatus.READY, TaskStatus.BACKOFF)
_OPENED = (TaskStatus.OPEN, TaskStatus.SUCCEEDED, TaskStatus.FAILED)


def open_pipeline(
    state: RunState, task: TaskState, items: Sequence[Any] | None, counting: Mapping[str, TaskState]
) -> None:
    """Make the tasks of a pipeline known, or of a loop over these items those of its first iterations.

    It needs a decision at once where there is nothing left to do in it.
    """
    task.status = TaskStatus.OPEN
    set_active(task, active=True)
    if items is not None:
        task.loop = LoopState(items, counting=counting)
        _open_iterations(state, task, task.loop)
        return
    task.inside = ScopeState(state.plan.inside(task.plan), task)
    add_tasks(state, task.inside, counting)
    if task.inside.ended:
        state.todo[task.path] = None


def _open_iterations(state: RunState, task: TaskState, loop: LoopState) -> None:
    """Open iterations up to the limit; those in which everything counts from an earlier try have ended at once."""
    limit = (task.plan.spec.loop.limit if task.plan.spec.loop is not None else 0) or len(loop.items)
    while not loop.failed and len(loop.scopes) < len(loop.items) and loop.open < limit:
        scope = ScopeState(state.plan.inside(task.plan, len(loop.scopes)), task)
        loop.scopes.append(scope)
        add_tasks(state, scope, loop.counting)
        loop.open += not scope.ended
    if loop.open == 0:
        state.todo[task.path] = None


def add_tasks(state: RunState, scope: ScopeState, counting: Mapping[str, TaskState]) -> None:
    """Add the tasks of a pipeline. ``counting``: what an earlier try of the run came to.

    Attempts of an earlier try stay with the task whatever becomes of it: their numbers, logs and costs go on. Its success
    counts only where that of every task before it does, so what follows a task that runs again runs again too.
    """
    for planned in state.plan.unfold(scope.place):
        task = state.tasks[planned.path] = TaskState(planned.path, scope, planned, missing=len(planned.spec.after))
        for name in planned.spec.after:
            upstream = state.tasks[scope.place.child(name)]
            upstream.consumers.append(task)
            _count(task, upstream)
        retired, before = state.retired.pop(planned.path, None), counting.get(planned.path)
        if retired is not None:
            task.attempts = retired.attempts
        if before is not None and not task.missing:
            _carry_over(state, task, before, counting)
        if task.status is TaskStatus.WAITING:
            _look_at(state, task)
        scope.unfinished += not task.status.is_good
    scope.ended = scope.unfinished == 0


def _count(task: TaskState, upstream: TaskState) -> None:
    """Take note of how an upstream task has ended."""
    if upstream.status is TaskStatus.SUCCEEDED or (task.plan.spec.after_all and upstream.status.is_final):
        task.missing -= 1
    elif upstream.status is TaskStatus.SKIPPED:
        task.skipped = task.skipped or upstream.path


def _look_at(state: RunState, task: TaskState) -> None:
    """Let a task that waits go on, where it can."""
    if not task.missing:
        make_ready(state, task)
    elif task.skipped and task.may_start:
        state.todo[task.path] = None


def _carry_over(state: RunState, task: TaskState, before: TaskState, counting: Mapping[str, TaskState]) -> None:
    if task.plan.spec.dag is not None and before.status in _OPENED and (before.inside or before.loop):
        items = before.loop.items if before.loop is not None else None
        open_pipeline(state, task, items, counting)
        if task.path not in state.todo or before.status is not TaskStatus.SUCCEEDED:
            return
        set_active(task, active=False)
    if before.status is TaskStatus.SUCCEEDED:
        task.status, task.cached_from = before.status, before.cached_from
        task.parameters, task.artifacts = before.parameters, before.artifacts
        state.todo.pop(task.path, None)


def set_active(task: TaskState, *, active: bool) -> None:
    """Count a task among those that its pipeline waits for after a failure, or no longer."""
    task.scope.active += active - task.active
    task.active = active


def make_ready(state: RunState, task: TaskState) -> None:
    """The task may start; after a failure beside it nothing new does, so there is nothing to decide about it."""
    task.status = TaskStatus.READY
    if task.may_start:
        state.todo[task.path] = None


def succeed(state: RunState, task: TaskState, data: Mapping[str, Any]) -> None:
    """The task has its outputs: what follows it may become ready, and its pipeline complete."""
    task.parameters, task.artifacts = data.get("parameters", {}), data.get("artifacts", {})
    _end(state, task, TaskStatus.SUCCEEDED, "")


def skip(state: RunState, task: TaskState, why: str) -> None:
    """The task does not run: what follows it does not either."""
    _end(state, task, TaskStatus.SKIPPED, why)


def fail(state: RunState, task: TaskState, why: str) -> None:
    """The task has failed: nothing new starts beside it, and what waits for a node there is withdrawn."""
    state.failed.append(task.path)
    if not task.scope.failed:
        task.scope.failed = task.path
        _stop(state, task.scope)
    _end(state, task, TaskStatus.FAILED, why)


def _end(state: RunState, task: TaskState, status: TaskStatus, why: str) -> None:
    scope = task.scope
    set_active(task, active=False)
    task.status, task.why = status, why
    state.todo.pop(task.path, None)
    scope.unfinished -= status.is_good
    for consumer in task.consumers:
        if consumer.status is TaskStatus.WAITING:
            _count(consumer, task)
            _look_at(state, consumer)
    settle(state, scope)


def _tasks_of(state: RunState, scope: ScopeState) -> Iterator[TaskState]:
    return (state.tasks[scope.place.child(name)] for name in scope.place.dag.tasks)


def _stop(state: RunState, scope: ScopeState) -> None:
    for task in _tasks_of(state, scope):
        if task.status is TaskStatus.PENDING and not task.has_begun and not task.plan.spec.after_all:
            state.todo[task.path] = None  # to be withdrawn
        elif task.status in (TaskStatus.READY, TaskStatus.WAITING) and not task.may_start:
            state.todo.pop(task.path, None)


def settle(state: RunState, scope: ScopeState) -> None:
    """See whether a pipeline has come to its end: everything in it is done, or after a failure nothing more can start."""
    if scope.ended or (scope.unfinished and (not scope.failed or scope.active or _release(state, scope))):
        return
    scope.ended = True
    owner = scope.owner
    if owner is None:
        return
    if owner.loop is None:
        state.todo[owner.path] = None
        return
    owner.loop.open -= 1
    owner.loop.failed = owner.loop.failed or scope.failed
    _open_iterations(state, owner, owner.loop)


def _release(state: RunState, scope: ScopeState) -> bool:
    """After a failure: start the exit handlers that wait for tasks which cannot start any more. Whether one is to come."""
    handlers = [task for task in _tasks_of(state, scope) if task.plan.spec.after_all and not task.status.is_final]
    if any(task.status in _TO_COME for task in handlers):
        return True
    pending = {task.plan.spec.name for task in handlers}
    free = [task for task in handlers if pending.isdisjoint(task.plan.spec.after)]
    for task in free:
        make_ready(state, task)
    return bool(free)
