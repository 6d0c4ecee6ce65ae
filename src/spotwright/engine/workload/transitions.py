"""The steps of the fold for runs that an orchestrator drives; :mod:`spotwright.engine.workload.events` has their events.

An orchestrator may make the next attempt while the last one still ends, and it may try a task again that has failed by our
budgets. Both are facts, so the state follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spotwright.engine.dag_transitions import set_active
from spotwright.engine.events import Event
from spotwright.engine.state import AttemptState, RunState, ScopeState, TaskState
from spotwright.engine.status import TaskStatus
from spotwright.engine.workload.events import (
    AttemptAdopted,
    AttemptHeld,
    AttemptReleased,
    AttemptTakenBack,
    AttemptWaits,
    NoticeWithdrawn,
    OutputsRead,
    PlanExtended,
)
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

__all__ = ["HANDLERS", "cause_to_charge", "charge", "spent_before"]


def _outputs_read(state: RunState, event: OutputsRead) -> None:
    """Add output parameters to those of a task."""
    task = state.tasks[event.task]
    task.parameters = {**task.parameters, **event.parameters}


def _plan_extended(state: RunState, event: PlanExtended) -> None:
    """Put the next version of the plan in force."""
    if event.version != state.version + 1:
        raise ValueError(f"version {event.version} of the plan does not follow version {state.version}")
    state.version = event.version
    templates = state.plan.graph.root.tasks
    for task in state.tasks.values():
        template = templates.get(task.plan.spec.name)
        if template is not None and template.retry != task.plan.spec.retry:
            task.plan = state.plan.instance(template.name, task.path)


def _attempt_waits(state: RunState, event: AttemptWaits) -> None:
    """Note why an attempt waits, and since when."""
    attempt = state.tasks[event.task].attempts[event.attempt - 1]
    attempt.waits, attempt.waits_since = event.why, event.at if event.why else None


def _attempt_taken_back(state: RunState, event: AttemptTakenBack) -> None:
    """Note that an attempt without a node is taken back; its end follows."""
    attempt = state.tasks[event.task].attempts[event.attempt - 1]
    if not attempt.is_live or attempt.bound_at is not None:
        raise ValueError("the attempt does not wait for a node")
    attempt.taken_back = event


def _attempt_held(state: RunState, event: AttemptHeld) -> None:
    """Note that a node which does not report holds the pod of an attempt, or that it does no more."""
    state.tasks[event.task].attempts[event.attempt - 1].held = event if event.node else None


def _attempt_released(state: RunState, event: AttemptReleased) -> None:
    """Note that the pod of an attempt is deleted, because its machine is gone."""
    attempt = state.tasks[event.task].attempts[event.attempt - 1]
    attempt.released, attempt.held = event.why, None


def _attempt_adopted(state: RunState, event: AttemptAdopted) -> None:
    """Add an attempt, and its task if that is new."""
    task = state.tasks.get(event.task) or _add_task(state, event)
    if event.attempt != len(task.attempts) + 1:
        raise ValueError(f"{task.path} has {len(task.attempts)} attempts")
    _reopen(state, task)
    attempt = AttemptState(event.attempt, event.rung, event.rung, tuple(event.pools), event.at, event.at)
    attempt.key, attempt.gang = event.key, event.gang
    if event.gang:
        task.spent = _charged(state, event.gang)
    task.attempts.append(attempt)
    task.status, task.due = TaskStatus.PENDING, None
    state.under_way[task.path] = None
    state.todo.pop(task.path, None)
    set_active(task, active=True)


def charge(state: RunState, task: TaskState, attempt: AttemptState, cause: Cause) -> None:
    """Charge a task's budgets for an ended attempt; those of a set of tasks once for each of its restarts."""
    if not attempt.gang:
        task.spent = task.spent.after(cause)
        return
    name = attempt.gang.partition("/")[0]
    restarts = state.gangs.setdefault(name, {})
    restarts[attempt.gang] = _worse(restarts.get(attempt.gang, cause), cause)
    spent = _charged(state, attempt.gang)
    for member in state.tasks.values():
        if member.attempts and member.last.gang.partition("/")[0] == name:
            member.spent = spent


def _charged(state: RunState, gang: str, *, without: str = "") -> BudgetUse:
    """What the restarts of a set have spent so far, except the restart ``without``."""
    spent = BudgetUse()
    for restart, cause in state.gangs.get(gang.partition("/")[0], {}).items():
        spent = spent if restart == without else spent.after(cause)
    return spent


def spent_before(state: RunState, task: TaskState) -> BudgetUse:
    """What a task had spent before its newest attempt, whose cause is being decided."""
    return _charged(state, task.last.gang, without=task.last.gang) if task.last.gang else task.spent


def cause_to_charge(state: RunState, attempt: AttemptState, cause: Cause) -> Cause:
    """The cause that counts for an attempt: of a set's restart another member may have said already why it ended."""
    return _worse(cause, state.gangs.get(attempt.gang.partition("/")[0], {}).get(attempt.gang, cause))


def _worse(one: Cause, other: Cause) -> Cause:
    """The cause that a restart is charged for: an interruption explains the errors and the moves of the other members.

    A member that waited in vain explains the moves of the others, and is charged nothing.
    """
    return max(one, other, key=_weight)


def _weight(cause: Cause) -> int:
    if cause.is_interruption or cause.is_error:
        return 4 if cause.is_interruption else 3
    return 2 if cause is Cause.UNSCHEDULABLE else int(cause is Cause.DISRUPTED)


def _add_task(state: RunState, event: AttemptAdopted) -> TaskState:
    if state.root is None:
        state.root = ScopeState(state.plan.root)
    planned = state.plan.instance(event.template, event.task)
    task = state.tasks[event.task] = TaskState(event.task, state.root, planned, missing=0)
    state.root.unfinished += 1
    state.root.ended = False
    return task


def _reopen(state: RunState, task: TaskState) -> None:
    """Undo the end of a task that the orchestrator tries again."""
    if not task.status.is_final:
        return
    scope = task.scope
    scope.unfinished += task.status.is_good
    scope.ended, task.why = False, ""
    if task.path in state.failed:
        state.failed.remove(task.path)
        scope.failed = next((path for path in state.failed if state.tasks[path].scope is scope), "")


def _notice_withdrawn(state: RunState, event: NoticeWithdrawn) -> None:
    """Take a notice back from its node and from the attempts on it that go on. Its id is kept: it is told once."""
    state.nodes[event.node].noticed_at = None
    for task in state.tasks.values():
        for attempt in task.attempts:
            if attempt.is_live and attempt.node == event.node:
                attempt.noticed_at = attempt.goes_at = None


HANDLERS: Mapping[type[Event], Callable[[RunState, Any], None]] = {
    AttemptAdopted: _attempt_adopted,
    AttemptHeld: _attempt_held,
    AttemptReleased: _attempt_released,
    AttemptTakenBack: _attempt_taken_back,
    AttemptWaits: _attempt_waits,
    NoticeWithdrawn: _notice_withdrawn,
    PlanExtended: _plan_extended,
    OutputsRead: _outputs_read,
}
"""The step of the fold for each kind of event."""
