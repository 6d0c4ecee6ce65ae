"""The steps of the fold for runs that an orchestrator drives; :mod:`spotwright.engine.workload.events` has their events.

An orchestrator may make the next attempt while the last one still ends, and it may try a task again that has failed by our
budgets. Both are facts, so the state follows.
"""

from __future__ import annotations

from spotwright.engine.dag_transitions import set_active
from spotwright.engine.state import AttemptState, RunState, ScopeState, TaskState
from spotwright.engine.status import TaskStatus
from spotwright.engine.workload.events import AttemptAdopted, AttemptWaits, PlanExtended
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

__all__ = ["attempt_adopted", "attempt_waits", "cause_to_charge", "charge", "plan_extended", "spent_before"]


def plan_extended(state: RunState, event: PlanExtended) -> None:
    """Put the next version of the plan in force."""
    if event.version != state.version + 1:
        raise ValueError(f"version {event.version} of the plan does not follow version {state.version}")
    state.version = event.version
    templates = state.plan.graph.root.tasks
    for task in state.tasks.values():
        template = templates.get(task.plan.spec.name)
        if template is not None and template.retry != task.plan.spec.retry:
            task.plan = state.plan.instance(template.name, task.path)


def attempt_waits(state: RunState, event: AttemptWaits) -> None:
    """Note why an attempt waits."""
    state.tasks[event.task].attempts[event.attempt - 1].waits = event.why


def attempt_adopted(state: RunState, event: AttemptAdopted) -> None:
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
    """The cause that a restart is charged for: an interruption explains the errors and the moves of the other members."""
    return max(one, other, key=_weight)


def _weight(cause: Cause) -> int:
    return 3 * cause.is_interruption or 2 * cause.is_error or int(cause is Cause.DISRUPTED)


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
