"""Charges ended attempts to their tasks' budgets; a restart of a set of tasks is charged once for all members."""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse

__all__ = ["budgets_begin", "charge", "is_own_move", "members", "spent_around", "spent_by_restarts"]


def charge(state: RunState, task: TaskState, attempt: AttemptState, cause: Cause) -> None:
    """Charge a task's budgets for an ended attempt; a set of tasks is charged once per restart."""
    if not attempt.gang:
        task.spent = task.spent.after(cause)
        return
    name = attempt.gang.partition("/")[0]
    restarts = state.gangs.setdefault(name, {})
    restarts[attempt.gang] = _worse(restarts.get(attempt.gang, cause), cause)
    spent = spent_by_restarts(state, attempt.gang)
    for member in members(state, attempt.gang):
        member.spent = spent


def members(state: RunState, gang: str) -> Iterator[TaskState]:
    """The tasks of the set in ``gang`` (SET/RESTART); none without a set."""
    name = gang.partition("/")[0]
    for task in state.tasks.values() if name else ():
        if task.attempts and task.last.gang.partition("/")[0] == name:
            yield task


def spent_by_restarts(state: RunState, gang: str) -> BudgetUse:
    """The budget that a set's restarts have spent so far."""
    spent = BudgetUse()
    for cause in state.gangs.get(gang.partition("/")[0], {}).values():
        spent = spent.after(cause)
    return spent


def budgets_begin(task: TaskState, attempt: AttemptState) -> int:
    """The number of a task's attempts when this attempt's budgets were last reset."""
    return max((count for count in task.resets if count < attempt.number), default=0)


def spent_around(state: RunState, task: TaskState, attempt: AttemptState) -> tuple[BudgetUse, BudgetUse]:
    """The budget that a task had spent before and after the end of one of its attempts."""
    if attempt.gang:
        before = BudgetUse()
        for restart, cause in state.gangs.get(attempt.gang.partition("/")[0], {}).items():
            if restart == attempt.gang:
                return before, before.after(cause)
            before = before.after(cause)
        return before, before
    before = after = BudgetUse()
    for each in task.attempts[budgets_begin(task, attempt) : attempt.number]:
        before = after
        if each.cause is not None and not is_own_move(each, each.cause):
            after = after.after(each.cause)
    return before, after


def is_own_move(attempt: AttemptState, cause: Cause) -> bool:
    """Whether a deadline moved the attempt elsewhere, which spends no budget."""
    return bool(attempt.moving) and cause is Cause.DISRUPTED


def _worse(one: Cause, other: Cause) -> Cause:
    """The cause charged for a restart: an interruption explains the errors and the moves of the other members.

    A member that waited in vain explains the moves of the others, and is not charged.
    """
    return max(one, other, key=_weight)


def _weight(cause: Cause) -> int:
    if cause.is_interruption or cause.is_error:
        return 4 if cause.is_interruption else 3
    return 2 if cause is Cause.UNSCHEDULABLE else int(cause is Cause.DISRUPTED)
