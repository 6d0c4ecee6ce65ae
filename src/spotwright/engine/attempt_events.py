"""Folds the events of attempts into the state: placement, waits, nodes, notices, the end and the decision after it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from spotwright.engine import events as ev
from spotwright.engine.charges import charge, is_own_move, members, spent_by_restarts
from spotwright.engine.dags import close_if_done, fail, make_ready, set_active, succeed
from spotwright.engine.events import Event, TaskStatus
from spotwright.engine.observations import (
    has_gone_on,
    pools_asked,
    pools_changed,
    pools_left,
    spot_bound,
    work_measured,
)
from spotwright.engine.state import AttemptState, RunState, ScopeState, TaskState
from spotwright.engine.waits import ordered_for, waited_in_vain
from spotwright.scheduling.budgets import FollowUp

__all__ = ["ATTEMPT_HANDLERS", "wait_until"]


def _attempt(state: RunState, event: Event) -> tuple[TaskState, AttemptState]:
    task = state.tasks[event.task]
    return task, task.attempts[event.attempt - 1]


# Placement


def _placed(state: RunState, event: ev.AttemptPlaced) -> None:
    task = state.tasks[event.task]
    if event.attempt != len(task.attempts) + 1 or (task.attempts and task.last.is_live):
        raise ValueError(f"{task.path} has {len(task.attempts)} attempts, the last of which may live")
    first = _first_rung(task, event.rung)
    attempt = AttemptState(event.attempt, first, event.rung, tuple(event.pools), event.at, event.at)
    attempt.why = event.why
    task.attempts.append(attempt)
    task.status = TaskStatus.PENDING
    task.due = None
    state.under_way[task.path] = None
    set_active(task, active=True)
    state.todo.pop(task.path, None)
    pools_asked(state, event.pools, event.at)
    wait_until(state, task, event.until)


def _adopted(state: RunState, event: ev.AttemptAdopted) -> None:
    """Add an attempt, and its task if it is new."""
    task = state.tasks.get(event.task) or _add_task(state, event)
    if event.attempt != len(task.attempts) + 1:
        raise ValueError(f"{task.path} has {len(task.attempts)} attempts")
    _reopen(state, task)
    first = _first_rung(task, event.rung)
    attempt = AttemptState(event.attempt, first, event.rung, tuple(event.pools), event.at, event.at)
    attempt.key, attempt.pod, attempt.gang = event.key, event.pod, event.gang
    attempt.is_open, attempt.why = event.is_open, event.why
    if event.gang:
        task.spent = spent_by_restarts(state, event.gang)
    task.attempts.append(attempt)
    task.status, task.due = TaskStatus.PENDING, None
    state.under_way[task.path] = None
    state.todo.pop(task.path, None)
    set_active(task, active=True)


def _first_rung(task: TaskState, rung: int) -> int:
    """The rung on which a wait began: the successor of an attempt that waited in vain continues its wait."""
    before = task.attempts[-1] if task.attempts else None
    decided = None if before is None or before.bound_at is not None else before.taken_back
    return before.first if before is not None and decided is not None and decided.rung == rung else rung


def _add_task(state: RunState, event: ev.AttemptAdopted) -> TaskState:
    if state.root is None:
        state.root = ScopeState(state.plan.root)
    planned = state.plan.instance(event.template, event.task)
    task = state.tasks[event.task] = TaskState(event.task, state.root, planned, missing=0)
    state.root.unfinished += 1
    state.root.ended = False
    return task


def _reopen(state: RunState, task: TaskState) -> None:
    """Undo the end of a task that the orchestrator retries."""
    if not task.status.is_final:
        return
    scope = task.scope
    scope.unfinished += task.status.is_good
    scope.ended, task.why = False, ""
    if task.path in state.failed:
        state.failed.remove(task.path)
        scope.failed = next((path for path in state.failed if state.tasks[path].scope is scope), "")


def _moved(state: RunState, event: ev.AttemptMoved) -> None:
    task, attempt = _attempt(state, event)
    if event.rung > attempt.rung:
        attempt.tried.append(event.why)
    else:  # back to the first rung
        attempt.tried.clear()
    pools_left(state, attempt.pools, event.at)
    pools_asked(state, event.pools, event.at)
    attempt.rung, attempt.pools, attempt.rung_at = event.rung, tuple(event.pools), event.at
    attempt.moves = (*attempt.moves, event.at)
    wait_until(state, task, event.until)


def wait_until(state: RunState, task: TaskState, until: float | None) -> None:
    """Set the next look at a task's newest attempt; None: at the next event."""
    task.last.until = until
    if until is not None:
        heapq.heappush(state.timers, (until, task.path))


def _waits(state: RunState, event: ev.AttemptWaits) -> None:
    """Note why an attempt waits, and since when. An attempt that has not started on its node waits too."""
    task, attempt = _attempt(state, event)
    was_held_up = attempt.is_held_up
    attempt.waited, attempt.ordered = waited_in_vain(attempt, event.at), ordered_for(attempt, event.at)
    attempt.waits, attempt.waits_since = event.why, event.at if event.why else None
    if was_held_up and not event.why:
        attempt.started_at = event.at
    if attempt.bound_at is not None and attempt.is_live and attempt is task.last:
        task.status = TaskStatus.PENDING if attempt.is_held_up else TaskStatus.RUNNING


def _taken_back(state: RunState, event: ev.AttemptRecalled) -> None:
    """Note that an attempt without a node is recalled; its end follows."""
    attempt = state.tasks[event.task].attempts[event.attempt - 1]
    if not attempt.is_live or attempt.bound_at is not None:
        raise ValueError("the attempt does not wait for a node")
    attempt.taken_back = event


# On a node


def _bound(state: RunState, event: ev.AttemptBound) -> None:
    task, attempt = _attempt(state, event)
    attempt.node, attempt.pool, attempt.bound_at, attempt.requests = event.node, event.pool, event.at, event.requests
    attempt.boot, attempt.taken_back = event.boot, None
    node = state.nodes.get(event.node)
    if node is not None and event.at < node.booted_at and not _was_on_former(state, event):
        node.booted_at = node.ready_at = event.at  # of a node first seen with an attempt that began later
    if attempt.is_open:
        attempt.first = attempt.rung = _rung_of_pool(task, event.pool, attempt.rung)
    state.holding[event.pool] = state.holding.get(event.pool, 0) + 1
    task.status = TaskStatus.RUNNING
    spot_bound(state, task, event)


def _was_on_former(state: RunState, event: ev.AttemptBound) -> bool:
    """Whether an attempt was bound to a machine that is gone and whose name was reused."""
    return any(node.name == event.node and event.at <= (node.gone_at or 0.0) for node in state.former_nodes)


def _rung_of_pool(task: TaskState, pool: str, expected: int) -> int:
    """The rung of the pool that took an open attempt; for an unknown pool, the expected one."""
    rungs = task.plan.ladder.rungs
    return next((index for index, rung in enumerate(rungs) if pool in rung.pools), expected)


def _progress(state: RunState, event: ev.ProgressReported) -> None:
    task, attempt = _attempt(state, event)
    attempt.progress = event.value
    since = attempt.bound_at if attempt.reported_at is None else attempt.reported_at
    attempt.reported_at = event.at
    attempt.between_reports = 0.0 if since is None else max(0.0, event.at - since)
    if attempt.first_progress is None:
        attempt.first_progress = attempt.progress
        attempt.went_on = has_gone_on(task, attempt, event.at)
    if task.plan.policy.deadline is not None:
        work_measured(state, task, attempt, event)


def _kept(state: RunState, event: ev.AttemptKept) -> None:
    """Note why an attempt stays where it runs or waits, and set the timer for the next look."""
    task = state.tasks[event.task]
    attempt = task.attempts[event.attempt - 1]
    if task.status not in (TaskStatus.RUNNING, TaskStatus.PENDING) or attempt is not task.last:
        raise ValueError(f"attempt {event.attempt} of {event.task} neither runs nor waits")
    attempt.kept, attempt.looked_at = event.why, event.at
    state.todo.pop(task.path, None)
    wait_until(state, task, event.until)


def _notice(state: RunState, event: ev.NoticeGiven) -> None:
    node = state.nodes[event.node]
    node.noticed_at = event.at
    if event.id:
        node.notices = (*node.notices, event.id)
    for path, number in event.attempts:
        attempt = state.tasks[path].attempts[number - 1]
        if attempt.is_live:
            attempt.noticed_at, attempt.goes_at = event.at, event.goes_at


def _notice_withdrawn(state: RunState, event: ev.NoticeWithdrawn) -> None:
    """Withdraw a notice from its node and from the live attempts on it. Its id is kept: it is posted once."""
    state.nodes[event.node].noticed_at = None
    for task in state.tasks.values():
        for attempt in task.attempts:
            if attempt.is_live and attempt.node == event.node:
                attempt.noticed_at = attempt.goes_at = None


def _held(state: RunState, event: ev.PodStuckTerminating) -> None:
    """Note that an unresponsive node holds an attempt's pod, or no longer does."""
    state.tasks[event.task].attempts[event.attempt - 1].held = event if event.node else None


def _released(state: RunState, event: ev.AttemptReleased) -> None:
    """Note that an attempt's pod is deleted, because its machine is gone."""
    attempt = state.tasks[event.task].attempts[event.attempt - 1]
    attempt.released, attempt.held = event.why, None


def _halt(state: RunState, event: ev.AttemptHalted) -> None:
    task, attempt = _attempt(state, event)
    attempt.halted = True
    if event.moves:  # stopped to go on elsewhere, as its end will show too
        attempt.moving, attempt.moved_at, attempt.target = event.why, event.at, event.rung
    state.todo.pop(task.path, None)


# The end


def _ended(state: RunState, event: ev.AttemptEnded) -> None:
    task, attempt = _attempt(state, event)
    if not attempt.is_live:
        raise ValueError("the attempt has ended already")
    attempt.ended_at, attempt.ended = event.at, event
    if event.progress is not None:
        attempt.progress = event.progress
    if attempt.first_progress is None:
        attempt.first_progress = attempt.progress if event.first_progress is None else event.first_progress
        attempt.went_on = has_gone_on(task, attempt, event.at)
    if attempt.pool is not None:
        state.holding[attempt.pool] -= 1
        state.freed[attempt.pool] = event.at
    if attempt is task.last:  # an orchestrator may already have made the next one
        state.under_way.pop(task.path, None)
        state.todo[task.path] = None


def _decided(state: RunState, event: ev.AttemptDecided) -> None:
    task, attempt = _attempt(state, event)
    if attempt.is_live:  # it never had a node
        attempt.ended_at = event.at
        state.under_way.pop(task.path, None)
    attempt.cause, attempt.cause_why, attempt.following = event.cause, event.why, event.following
    attempt.due, attempt.then = event.due, tuple(event.pools)
    pools_changed(state, attempt, event)
    if not is_own_move(attempt, event.cause):
        charge(state, task, attempt, event.cause)
    if attempt is not task.last:  # the existing next attempt decides the task
        if task.last.cause is None and event.rung is not None:
            task.next_rung = event.rung
        return
    set_active(task, active=event.then is FollowUp.RETRY)
    state.todo.pop(task.path, None)
    _FOLLOW[event.then](state, task, event)
    close_if_done(state, task.scope)


def _follow_succeed(state: RunState, task: TaskState, _event: ev.AttemptDecided) -> None:
    if task.last.ended is None:
        raise ValueError("the attempt has not ended")
    succeed(state, task, task.last.ended)


def _follow_retry(state: RunState, task: TaskState, event: ev.AttemptDecided) -> None:
    """Let a task be retried; members of its set that wait for the same decision follow it."""
    task.next_rung = event.rung
    for peer in members(state, task.last.gang):
        if not peer.last.is_live and peer.plan.ladder.rungs == task.plan.ladder.rungs:
            peer.next_rung = event.rung
    task.due = event.due
    if task.due is None or state.is_over(task):
        make_ready(state, task)
        return
    task.status = TaskStatus.BACKOFF
    heapq.heappush(state.timers, (task.due, task.path))


def _follow_fail(state: RunState, task: TaskState, event: ev.AttemptDecided) -> None:
    fail(state, task, event.following)


def _follow_cancel(state: RunState, task: TaskState, event: ev.AttemptDecided) -> None:
    if task.last.taken_back is not None:  # its wait in vain is over, whatever ended it
        task.next_rung = task.last.taken_back.rung
    if state.cancelling:
        task.status = TaskStatus.CANCELLED
        task.why = event.following
    elif state.is_over(task):
        fail(state, task, state.expired)
    else:  # the engine stops, or another task failed: a resume restarts this task
        make_ready(state, task)


_FOLLOW: Mapping[FollowUp, Callable[[RunState, TaskState, ev.AttemptDecided], None]] = {
    FollowUp.SUCCEED: _follow_succeed,
    FollowUp.RETRY: _follow_retry,
    FollowUp.FAIL: _follow_fail,
    FollowUp.CANCEL: _follow_cancel,
}

ATTEMPT_HANDLERS: Mapping[type[Event], Callable[[RunState, Any], None]] = {
    ev.AttemptPlaced: _placed,
    ev.AttemptAdopted: _adopted,
    ev.AttemptMoved: _moved,
    ev.AttemptWaits: _waits,
    ev.AttemptRecalled: _taken_back,
    ev.AttemptBound: _bound,
    ev.ProgressReported: _progress,
    ev.AttemptKept: _kept,
    ev.NoticeGiven: _notice,
    ev.NoticeWithdrawn: _notice_withdrawn,
    ev.PodStuckTerminating: _held,
    ev.AttemptReleased: _released,
    ev.AttemptHalted: _halt,
    ev.AttemptEnded: _ended,
    ev.AttemptDecided: _decided,
}
"""The fold step for each kind of attempt event; each takes the event of its key."""
