"""Fold events into the state: one function applies one event and updates the indexes, so no decision scans all tasks.

:func:`fold` guesses nothing: an event that does not fit the state (such as the end of an attempt that was never placed) raises
:class:`StateError`. Nothing here reads a clock or does IO; facts about the graph and the configuration come from the
:class:`~spotwright.engine.plan.Plan` of the state.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from spotwright.engine import events as ev
from spotwright.engine.dag_transitions import (
    close_if_done,
    fail,
    make_ready,
    open_dag,
    open_root,
    reset,
    set_active,
    skip,
    succeed,
)
from spotwright.engine.deadline import transitions as deadline
from spotwright.engine.deadline.events import AttemptKept, MarketKnown
from spotwright.engine.environment_events import EnvironmentAsked, EnvironmentChanged
from spotwright.engine.environment_transitions import ask_again, environment_asked, environment_changed
from spotwright.engine.events import Event
from spotwright.engine.plan import Plan
from spotwright.engine.state import AttemptState, NodeState, RunState, TaskState
from spotwright.engine.status import RunStatus, TaskStatus
from spotwright.engine.workload.transitions import HANDLERS, charge
from spotwright.errors import StateError
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import FollowUp

__all__ = ["HANDLED", "fold", "rare_collections", "replay"]


def replay(plans: Sequence[Plan], events: Iterable[Event]) -> RunState:
    """Fold a whole journal from the start. ``plans`` are the versions of the run's plan, oldest first."""
    state = RunState(plans)
    collecting = gc.isenabled()
    gc.disable()  # all objects made here stay: searching them for garbage would double the time
    try:
        for event in events:
            fold(state, event)
    finally:
        if collecting:
            gc.enable()
    return state


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run less often while a state grows.

    Nearly all objects stay, and searching them again and again is a third of the engine's time at 10,000 tasks.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def fold(state: RunState, event: Event) -> None:
    """Apply one event to the state. Raises :class:`StateError` for an event that does not fit the state."""
    try:
        _HANDLERS[type(event)](state, event)
    except (KeyError, IndexError, ValueError) as error:
        about = f"{event.kind} of {event.task or 'the run'}" + (f", attempt {event.attempt}" if event.attempt else "")
        raise StateError(
            f"event {state.events + 1} of the journal ({about}) does not fit the events before it: {error!r}"
        ) from error
    state.events += 1
    state.last_at = event.at


def _attempt(state: RunState, event: Event) -> tuple[TaskState, AttemptState]:
    task = state.tasks[event.task]
    return task, task.attempts[event.attempt - 1]


# The run


def _created(state: RunState, event: ev.RunCreated) -> None:
    state.meta = event.meta
    state.started_at = state.begun_at = event.at


def _engine(state: RunState, event: ev.EngineStarted) -> None:
    """An engine takes the run. The time without an engine does not count as waiting for a node."""
    gap = max(0.0, event.at - state.last_at) if state.epoch else 0.0
    state.epoch, state.caching, state.prepares, state.detached = event.epoch, event.caching, event.environments, False
    ask_again(state)
    deadline.run_taken_up(state)
    state.begun_at += gap
    state.status, state.finished_at, state.stopping = RunStatus.RUNNING, None, ""
    for path in state.under_way:
        task = state.tasks[path]
        task.last.halted = False
        if task.last.bound_at is None and task.last.until is not None and task.plan.policy.deadline is None:
            task.last.rung_at += gap
            _wait_until(state, task, task.last.until + gap)


def _cancel(state: RunState, _event: ev.CancelRequested) -> None:
    state.cancelling = True


def _stop(state: RunState, event: ev.StopRequested) -> None:
    state.stopping = event.why


def _expired(state: RunState, event: ev.RunExpired) -> None:
    state.expired = event.why
    for task in state.tasks.values():
        if task.status in (TaskStatus.BACKOFF, TaskStatus.PREPARING) and state.is_over(task):
            state.todo[task.path] = None  # to fail at once


def _finished(state: RunState, event: ev.RunFinished) -> None:
    state.status, state.why, state.finished_at = event.status, event.why, event.at


def _note(state: RunState, event: ev.NoteAdded) -> None:
    state.notes.append(event.text)


def _detached(state: RunState, _event: ev.EngineDetached) -> None:
    state.detached = True


# The graph


def _unfolded(state: RunState, event: ev.TasksUnfolded) -> None:
    if not event.task:
        open_root(state, {})
        return
    state.todo.pop(event.task, None)
    open_dag(state, state.tasks[event.task], event.items, {})


def _skipped(state: RunState, event: ev.TaskSkipped) -> None:
    skip(state, state.tasks[event.task], event.why)


def _cached(state: RunState, event: ev.TaskCached) -> None:
    task = state.tasks[event.task]
    task.cached_from = (event.run, event.of_task)
    succeed(state, task, event)


def _cache_asked(state: RunState, event: ev.CacheAsked) -> None:
    task = state.tasks[event.task]
    task.cache_asked = True
    state.todo.pop(task.path, None)


def _cache_missed(state: RunState, event: ev.CacheMissed) -> None:
    make_ready(state, state.tasks[event.task])


def _completed(state: RunState, event: ev.TaskCompleted) -> None:
    succeed(state, state.tasks[event.task], event)


def _failed(state: RunState, event: ev.TaskFailed) -> None:
    fail(state, state.tasks[event.task], event.why)


# Attempts


def _placed(state: RunState, event: ev.AttemptPlaced) -> None:
    task = state.tasks[event.task]
    if event.attempt != len(task.attempts) + 1 or (task.attempts and task.last.is_live):
        raise ValueError(f"{task.path} has {len(task.attempts)} attempts, the last of which may live")
    attempt = AttemptState(event.attempt, event.rung, event.rung, tuple(event.pools), event.at, event.at)
    attempt.why = event.why
    task.attempts.append(attempt)
    task.status = TaskStatus.PENDING
    task.due = None
    state.under_way[task.path] = None
    set_active(task, active=True)
    state.todo.pop(task.path, None)
    deadline.pools_asked(state, event.pools, event.at)
    _wait_until(state, task, event.until)


def _moved(state: RunState, event: ev.AttemptMoved) -> None:
    task, attempt = _attempt(state, event)
    if event.rung > attempt.rung:
        attempt.tried.append(event.why)
    else:  # back to the first rung
        attempt.tried.clear()
    deadline.pools_left(state, attempt.pools, event.at)
    deadline.pools_asked(state, event.pools, event.at)
    attempt.rung, attempt.pools, attempt.rung_at = event.rung, tuple(event.pools), event.at
    _wait_until(state, task, event.until)


def _wait_until(state: RunState, task: TaskState, until: float | None) -> None:
    task.last.until = until
    if until is not None:
        heapq.heappush(state.timers, (until, task.path))


def _bound(state: RunState, event: ev.AttemptBound) -> None:
    task, attempt = _attempt(state, event)
    attempt.node, attempt.pool, attempt.bound_at = event.node, event.pool, event.at
    attempt.taken_back = None
    state.holding[event.pool] = state.holding.get(event.pool, 0) + 1
    task.status = TaskStatus.RUNNING
    deadline.spot_bound(state, task, event)


def _progress(state: RunState, event: ev.ProgressReported) -> None:
    _, attempt = _attempt(state, event)
    attempt.progress = event.value
    if attempt.first_progress is None:
        attempt.first_progress = attempt.progress


def _notice(state: RunState, event: ev.NoticeGiven) -> None:
    node = state.nodes[event.node]
    node.noticed_at = event.at
    if event.id:
        node.notices = (*node.notices, event.id)
    for path, number in event.attempts:
        attempt = state.tasks[path].attempts[number - 1]
        if attempt.is_live:
            attempt.noticed_at, attempt.goes_at = event.at, event.goes_at


def _node(state: RunState, event: ev.NodeChanged) -> None:
    node = state.nodes.get(event.node)
    if node is not None and node.state == "gone" and event.state != "gone":  # another machine has its name
        state.former_nodes.append(node)
        node = None
    if node is None:
        node = state.nodes[event.node] = NodeState(event.node, event.pool, "booting", event.at, state.version)
    node.state, node.why, node.offers = event.state, event.why, event.offers or node.offers
    if node.state == "ready":
        node.ready_at = event.at
        if event.at > node.booted_at:  # not of a node that was ready when it was first seen
            state.slowest_boot[node.pool] = max(state.slowest_boot.get(node.pool, 0.0), event.at - node.booted_at)
    elif node.state == "gone":
        node.gone_at = event.at


def _ended(state: RunState, event: ev.AttemptEnded) -> None:
    task, attempt = _attempt(state, event)
    if not attempt.is_live:
        raise ValueError("the attempt has ended already")
    attempt.ended_at, attempt.ended = event.at, event
    if event.progress is not None:
        attempt.progress = event.progress
    if attempt.first_progress is None:
        attempt.first_progress = attempt.progress if event.first_progress is None else event.first_progress
    if attempt.pool is not None:
        state.holding[attempt.pool] -= 1
        state.freed[attempt.pool] = event.at
    if attempt is task.last:  # an orchestrator may have made the next one already
        state.under_way.pop(task.path, None)
        state.todo[task.path] = None


def _decided(state: RunState, event: ev.AttemptDecided) -> None:
    task, attempt = _attempt(state, event)
    if attempt.is_live:  # it never had a node
        attempt.ended_at = event.at
        state.under_way.pop(task.path, None)
    attempt.cause, attempt.cause_why, attempt.following = event.cause, event.why, event.following
    deadline.pools_changed(state, attempt, event)
    if not (attempt.moving and event.cause is Cause.DISRUPTED):  # our own move spends nothing
        charge(state, task, attempt, event.cause)
    if attempt is not task.last:
        return  # the next attempt, which is there already, decides what becomes of the task
    set_active(task, active=event.then is FollowUp.RETRY)
    state.todo.pop(task.path, None)
    _FOLLOW[event.then](state, task, event)
    close_if_done(state, task.scope)


def _follow_succeed(state: RunState, task: TaskState, _event: ev.AttemptDecided) -> None:
    if task.last.ended is None:
        raise ValueError("the attempt has not ended")
    succeed(state, task, task.last.ended)


def _follow_retry(state: RunState, task: TaskState, event: ev.AttemptDecided) -> None:
    task.next_rung = event.rung
    task.due = event.due
    if task.due is None or state.is_over(task):
        make_ready(state, task)
        return
    task.status = TaskStatus.BACKOFF
    heapq.heappush(state.timers, (task.due, task.path))


def _follow_fail(state: RunState, task: TaskState, event: ev.AttemptDecided) -> None:
    fail(state, task, event.following)


def _follow_cancel(state: RunState, task: TaskState, event: ev.AttemptDecided) -> None:
    if state.cancelling:
        task.status = TaskStatus.CANCELLED
        task.why = event.following
    elif state.is_over(task):
        fail(state, task, state.expired)
    else:  # the engine stops, or another task failed: a resume starts this task again
        make_ready(state, task)


def _halt(state: RunState, event: ev.AttemptHalted) -> None:
    task, attempt = _attempt(state, event)
    attempt.halted = True
    deadline.halted_to_move(attempt, event)
    state.todo.pop(task.path, None)


_FOLLOW: Mapping[FollowUp, Callable[[RunState, TaskState, ev.AttemptDecided], None]] = {
    FollowUp.SUCCEED: _follow_succeed,
    FollowUp.RETRY: _follow_retry,
    FollowUp.FAIL: _follow_fail,
    FollowUp.CANCEL: _follow_cancel,
}
_HANDLERS: Mapping[type[Event], Callable[[RunState, Any], None]] = {  # each handler takes the event of its key
    ev.EngineDetached: _detached,
    ev.CacheAsked: _cache_asked,
    ev.CacheMissed: _cache_missed,
    EnvironmentAsked: environment_asked,
    EnvironmentChanged: environment_changed,
    **HANDLERS,
    AttemptKept: deadline.attempt_kept,
    MarketKnown: deadline.market_known,
    ev.SnapshotTaken: deadline.room_seen,
    ev.RunCreated: _created,
    ev.EngineStarted: _engine,
    ev.TasksUnfolded: _unfolded,
    ev.TaskSkipped: _skipped,
    ev.TaskCached: _cached,
    ev.AttemptPlaced: _placed,
    ev.AttemptMoved: _moved,
    ev.AttemptBound: _bound,
    ev.ProgressReported: _progress,
    ev.NoticeGiven: _notice,
    ev.NodeChanged: _node,
    ev.AttemptEnded: _ended,
    ev.AttemptDecided: _decided,
    ev.TaskFailed: _failed,
    ev.AttemptHalted: _halt,
    ev.TaskCompleted: _completed,
    ev.CancelRequested: _cancel,
    ev.StopRequested: _stop,
    ev.RunExpired: _expired,
    ev.RunFinished: _finished,
    ev.RunReset: reset,
    ev.NoteAdded: _note,
}

HANDLED = frozenset(_HANDLERS)
"""The kinds of event that :func:`fold` handles: all of them, as a test holds."""
