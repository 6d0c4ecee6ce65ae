"""The fold steps that change several tasks: unfold a DAG, make tasks ready, end them, keep results across a reset.

The cost of a step (called by :mod:`spotwright.engine.fold`) depends on the number of the task's neighbours, never on the number
of tasks in the run. Only the first failure in a DAG visits all of its tasks.

After a failure no more tasks start in the same DAG, loop or iteration. Its running tasks run to their end, then the DAG fails.
Other DAGs continue. This is Argo's ``failFast``, which the KFP backend uses for every DAG. Exit handlers and tasks with
``ignore_upstream_failure`` start in any case, once every upstream task has ended or can no longer start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotwright.engine.events import AttemptEnded, RunReset, RunStatus, TaskCached, TaskCompleted, TaskStatus
from spotwright.engine.state import LoopState, RunState, ScopeState, TaskState
from spotwright.model.attempts import Cause

__all__ = ["close_if_done", "fail", "make_ready", "open_dag", "open_root", "reset", "set_active", "skip", "succeed"]


_ABOUT_TO_RUN = (TaskStatus.READY, TaskStatus.PREPARING, TaskStatus.BACKOFF)
_OPENED = (TaskStatus.OPEN, TaskStatus.SUCCEEDED, TaskStatus.FAILED)


def open_root(state: RunState, earlier: Mapping[str, TaskState]) -> None:
    """Unfold the root DAG."""
    state.root = ScopeState(state.plan.root)
    add_tasks(state, state.root, earlier)


def reset(state: RunState, event: RunReset) -> None:
    """Let unsuccessful tasks, and the tasks that the event names, run again with fresh budgets, on the event's plan.

    Attempts with a node must already be settled and closed; an attempt without a node is withdrawn.
    """
    for path in (*state.under_way, *state.todo):
        _close_for_reset(state.tasks[path], event.at)
    if event.version and event.version != state.version:
        state.version, state.grown = event.version, None
    if event.time_scale is not None:
        state.meta = replace(state.meta, time_scale=event.time_scale)
    if event.arguments is not None:
        state.meta = replace(state.meta, arguments=event.arguments)
    again = frozenset(event.again)
    earlier = {path: task for path, task in state.tasks.items() if path not in again}
    state.retired.update(state.tasks)
    state.tasks, state.todo, state.under_way, state.timers, state.failed = {}, {}, {}, [], []
    state.preparing, state.holding, state.freed = {}, {}, {}
    state.cancelling, state.status, state.finished_at, state.why = False, RunStatus.RUNNING, None, ""
    state.begun_at, state.expired = event.at, ""
    if state.unfolded:
        open_root(state, earlier)


def _close_for_reset(task: TaskState, at: float) -> None:
    if task.is_unjudged or (task.attempts and task.last.is_live and task.last.bound_at is not None):
        raise ValueError(f"attempt {task.last.number} of {task.path} has not been closed")
    if task.attempts and task.last.is_live:
        task.last.ended_at, task.last.cause = at, Cause.CANCELLED
        task.last.cause_why = "it was withdrawn before it had a node, because the run was reset"


def open_dag(state: RunState, task: TaskState, items: Sequence[Any] | None, earlier: Mapping[str, TaskState]) -> None:
    """Unfold a DAG task; of a loop over ``items``, the first iterations.

    A DAG without unfinished tasks needs a decision at once.
    """
    task.status = TaskStatus.OPEN
    set_active(task, active=True)
    if items is not None:
        task.loop = LoopState(items, earlier=earlier)
        _open_iterations(state, task, task.loop)
        return
    task.inside = ScopeState(state.plan.inside(task.plan), task)
    add_tasks(state, task.inside, earlier)
    if task.inside.ended:
        state.todo[task.path] = None


def _open_iterations(state: RunState, task: TaskState, loop: LoopState) -> None:
    """Open iterations up to the limit. An iteration whose results all survive a reset ends at once."""
    limit = (task.plan.spec.loop.limit if task.plan.spec.loop is not None else 0) or len(loop.items)
    while not loop.failed and len(loop.scopes) < len(loop.items) and loop.open < limit:
        scope = ScopeState(state.plan.inside(task.plan, len(loop.scopes), len(loop.items)), task)
        loop.scopes.append(scope)
        add_tasks(state, scope, loop.earlier)
        loop.open += not scope.ended
    if loop.open == 0:
        state.todo[task.path] = None


def add_tasks(state: RunState, scope: ScopeState, earlier: Mapping[str, TaskState]) -> None:
    """Add the tasks of a scope. ``earlier`` are tasks from before the last reset whose success may count.

    A task always keeps its earlier attempts, because their numbers, logs and costs continue. Its earlier success counts only if
    that of every upstream task counts, so the tasks downstream of a rerun task run again too.
    """
    for planned in state.plan.unfold(scope.place):
        task = state.tasks[planned.path] = TaskState(planned.path, scope, planned, missing=len(planned.spec.after))
        for name in planned.spec.after:
            upstream = state.tasks[scope.place.child(name)]
            upstream.consumers.append(task)
            _count_upstream(task, upstream)
        retired, before = state.retired.pop(planned.path, None), earlier.get(planned.path)
        if retired is not None:
            task.attempts, task.resets = retired.attempts, (*retired.resets, len(retired.attempts))
        if before is not None and not task.missing:
            _carry_over(state, task, before, earlier)
        if task.status is TaskStatus.WAITING:
            _advance(state, task)
        scope.unfinished += not task.status.is_good
    scope.ended = scope.unfinished == 0


def _count_upstream(task: TaskState, upstream: TaskState) -> None:
    """Update a task by the end of one upstream task."""
    if upstream.status is TaskStatus.SUCCEEDED or (task.plan.spec.after_all and upstream.status.is_final):
        task.missing -= 1
    elif upstream.status is TaskStatus.SKIPPED:
        task.skipped = task.skipped or upstream.path


def _advance(state: RunState, task: TaskState) -> None:
    """Make a waiting task ready or skip it, if its upstream tasks allow it."""
    if not task.missing:
        make_ready(state, task)
    elif task.skipped and task.may_start:
        state.todo[task.path] = None


def _carry_over(state: RunState, task: TaskState, before: TaskState, earlier: Mapping[str, TaskState]) -> None:
    if task.plan.spec.dag is not None and before.status in _OPENED and (before.inside or before.loop):
        items = before.loop.items if before.loop is not None else None
        open_dag(state, task, items, earlier)
        if task.path not in state.todo or before.status is not TaskStatus.SUCCEEDED:
            return
        set_active(task, active=False)
    if before.status is TaskStatus.SUCCEEDED:
        task.status, task.cached_from = before.status, before.cached_from
        task.parameters, task.artifacts = before.parameters, before.artifacts
        state.todo.pop(task.path, None)


def set_active(task: TaskState, *, active: bool) -> None:
    """Count a task as one that its scope waits for after a failure, or stop counting it."""
    task.scope.active += active - task.active
    task.active = active


def make_ready(state: RunState, task: TaskState) -> None:
    """Mark a task as ready. It needs a decision only if it may start: not after a failure in its scope."""
    task.status = TaskStatus.READY
    if task.may_start:
        state.todo[task.path] = None


def succeed(state: RunState, task: TaskState, result: AttemptEnded | TaskCached | TaskCompleted) -> None:
    """End a task with its outputs. Downstream tasks may become ready, and its scope may end."""
    task.parameters, task.artifacts = result.parameters, result.artifacts
    _end(state, task, TaskStatus.SUCCEEDED, "")


def skip(state: RunState, task: TaskState, why: str) -> None:
    """Skip a task and its downstream tasks."""
    _end(state, task, TaskStatus.SKIPPED, why)


def fail(state: RunState, task: TaskState, why: str) -> None:
    """Fail a task. No more tasks of its scope start, and its attempts without a node are withdrawn."""
    state.failed.append(task.path)
    if not task.scope.failed:
        task.scope.failed = task.path
        _withdraw(state, task.scope)
    _end(state, task, TaskStatus.FAILED, why)


def _end(state: RunState, task: TaskState, status: TaskStatus, why: str) -> None:
    scope = task.scope
    set_active(task, active=False)
    task.status, task.why = status, why
    state.todo.pop(task.path, None)
    state.preparing.pop(task.path, None)
    scope.unfinished -= status.is_good
    for consumer in task.consumers:
        if consumer.status is TaskStatus.WAITING:
            _count_upstream(consumer, task)
            _advance(state, consumer)
    close_if_done(state, scope)


def _tasks_of(state: RunState, scope: ScopeState) -> Iterator[TaskState]:
    """The current tasks of a scope: a workload's tasks appear one by one, under their own names."""
    if any(scope.place.child(name) not in state.tasks for name in scope.place.dag.tasks):
        return (task for task in state.tasks.values() if task.scope is scope)
    return (state.tasks[scope.place.child(name)] for name in scope.place.dag.tasks)


def _withdraw(state: RunState, scope: ScopeState) -> None:
    for task in _tasks_of(state, scope):
        if task.status is TaskStatus.PENDING and not task.has_begun and not task.plan.spec.after_all:
            state.todo[task.path] = None  # to be withdrawn
        elif task.status in (TaskStatus.READY, TaskStatus.WAITING) and not task.may_start:
            state.todo.pop(task.path, None)


def close_if_done(state: RunState, scope: ScopeState) -> None:
    """End a scope if all of its tasks are done, or if no more can start after a failure."""
    if scope.ended or (scope.unfinished and (not scope.failed or scope.active or _start_exit_handlers(state, scope))):
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


def _start_exit_handlers(state: RunState, scope: ScopeState) -> bool:
    """After a failure, start the exit handlers whose upstream tasks can no longer start. Returns whether one will run."""
    handlers = [task for task in _tasks_of(state, scope) if task.plan.spec.after_all and not task.status.is_final]
    if any(task.status in _ABOUT_TO_RUN for task in handlers):
        return True
    pending = {task.plan.spec.name for task in handlers}
    free = [task for task in handlers if pending.isdisjoint(task.plan.spec.after)]
    for task in free:
        make_ready(state, task)
    return bool(free)
