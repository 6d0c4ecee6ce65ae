"""From events to state: one function that applies one event, incrementally, so that a decision never scans all tasks.

:func:`fold` is total: an event that does not fit what came before it (an unknown kind, an attempt that nobody placed) raises
:class:`StateError` instead of being guessed at. Nothing here reads a clock or does IO; what only the graph and the
configuration know comes from the :class:`~spotwright.engine.plan.Plan` that the state was made with.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from spotwright.engine.events import Event
from spotwright.engine.plan import Plan
from spotwright.engine.state import AttemptState, NodeState, RunState, RunStatus, ScopeState, TaskState, TaskStatus
from spotwright.engine.tasks import add_tasks, fail, make_ready, open_pipeline, set_active, settle, skip, succeed
from spotwright.errors import StateError
from spotwright.model.attempts import Cause

__all__ = ["fold", "rare_collections", "replay"]


def replay(plans: Sequence[Plan], events: Iterable[Event]) -> RunState:
    """Fold a whole journal from the start. ``plans`` are the versions of the run's plan, oldest first."""
    state = RunState(plans)
    collecting = gc.isenabled()
    gc.disable()  # all that is made here stays: looking for garbage in it would double the time
    try:
        for event in events:
            fold(state, event)
    finally:
        if collecting:
            gc.enable()
    return state


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector look less often while a state grows.

    It keeps nearly everything, and going through all of it again and again is a third of the engine's time at 10,000 tasks.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def fold(state: RunState, event: Event) -> None:
    """Apply one event to the state. Raises :class:`StateError` for one that does not fit."""
    handler = _HANDLERS.get(event.kind)
    if handler is None:
        raise StateError(
            f"the journal holds an event of the unknown kind {event.kind!r}: it was written by a newer version"
        )
    try:
        handler(state, event)
    except (KeyError, IndexError, ValueError) as error:
        about = f"{event.kind} of {event.task or 'the run'}" + (f", attempt {event.attempt}" if event.attempt else "")
        raise StateError(
            f"event {state.events + 1} of the journal ({about}) does not fit what came before it: {error!r}"
        ) from error
    state.events += 1
    state.last_at = event.at


def _attempt(state: RunState, event: Event) -> tuple[TaskState, AttemptState]:
    task = state.tasks[event.task]
    return task, task.attempts[event.attempt - 1]


# The run


def _created(state: RunState, event: Event) -> None:
    state.meta = event.data
    state.started_at = state.begun_at = event.at


def _engine(state: RunState, event: Event) -> None:
    """An engine takes the run. What waits for a node is as patient as before: nobody looked for one in the meantime."""
    gap = max(0.0, event.at - state.last_at) if state.epoch else 0.0
    state.epoch = event.data["epoch"]
    state.begun_at += gap
    state.status, state.finished_at, state.stopping = RunStatus.RUNNING, None, ""
    for path in state.under_way:
        task = state.tasks[path]
        task.last.halted = False
        if task.last.bound_at is None and task.last.until is not None and task.plan.policy.deadline is None:
            task.last.rung_at += gap
            _wait_until(state, task, task.last.until + gap)


def _cancel(state: RunState, _event: Event) -> None:
    state.cancelling = True


def _stop(state: RunState, event: Event) -> None:
    state.stopping = event.data["why"]


def _expired(state: RunState, event: Event) -> None:
    state.expired = event.data["why"]
    for task in state.tasks.values():
        if task.status is TaskStatus.BACKOFF and state.is_over(task):
            state.todo[task.path] = None  # it fails at once


def _finished(state: RunState, event: Event) -> None:
    state.status, state.why, state.finished_at = RunStatus(event.data["status"]), event.data.get("why", ""), event.at


def _reset(state: RunState, event: Event) -> None:
    """Start again what did not succeed, with fresh budgets; ``again`` names what succeeded and must run again all the same.

    ``version`` is the plan from now on: the tasks are those of the new graph. Attempts must have been settled and closed
    before; one that only waited for a node is withdrawn.
    """
    for path in (*state.under_way, *state.todo):
        _close_for_reset(state.tasks[path], event.at)
    state.version = event.data.get("version", state.version)
    said = {key: event.data[key] for key in ("time_scale", "arguments") if key in event.data}
    state.meta = {**state.meta, **said}
    again = frozenset(event.data.get("again", ()))
    counting = {path: task for path, task in state.tasks.items() if path not in again}
    state.retired.update(state.tasks)
    state.tasks, state.todo, state.under_way, state.timers, state.failed = {}, {}, {}, [], []
    state.holding, state.freed = {}, {}
    state.cancelling, state.status, state.finished_at, state.why = False, RunStatus.RUNNING, None, ""
    state.begun_at, state.expired = event.at, ""
    if state.unfolded:
        _open_root(state, counting)


def _close_for_reset(task: TaskState, at: float) -> None:
    if task.is_unjudged or (task.attempts and task.last.is_live and task.last.bound_at is not None):
        raise ValueError(f"attempt {task.last.number} of {task.path} has not been closed")
    if task.attempts and task.last.is_live:
        task.last.ended_at, task.last.cause = at, Cause.CANCELLED
        task.last.cause_why = "it was withdrawn before it had a node: the run began afresh"


def _note(state: RunState, event: Event) -> None:
    state.notes.append(event.data["text"])


# The graph


def _unfolded(state: RunState, event: Event) -> None:
    if not event.task:
        _open_root(state, {})
        return
    state.todo.pop(event.task, None)
    open_pipeline(state, state.tasks[event.task], event.data.get("items"), {})


def _open_root(state: RunState, counting: Mapping[str, TaskState]) -> None:
    state.root = ScopeState(state.plan.root)
    add_tasks(state, state.root, counting)


def _skipped(state: RunState, event: Event) -> None:
    skip(state, state.tasks[event.task], event.data["why"])


def _cached(state: RunState, event: Event) -> None:
    task = state.tasks[event.task]
    task.cached_from = (event.data["run"], event.data["task"])
    succeed(state, task, event.data)


def _completed(state: RunState, event: Event) -> None:
    succeed(state, state.tasks[event.task], event.data)


def _failed(state: RunState, event: Event) -> None:
    fail(state, state.tasks[event.task], event.data["why"])


# Attempts


def _placed(state: RunState, event: Event) -> None:
    task, data = state.tasks[event.task], event.data
    if event.attempt != len(task.attempts) + 1 or (task.attempts and task.last.is_live):
        raise ValueError(f"{task.path} has {len(task.attempts)} attempts, the last of which may live")
    attempt = AttemptState(event.attempt, data["rung"], data["rung"], tuple(data["pools"]), event.at, event.at)
    attempt.why = data.get("why", "")
    task.attempts.append(attempt)
    task.status = TaskStatus.PENDING
    task.due = None
    state.under_way[task.path] = None
    set_active(task, active=True)
    state.todo.pop(task.path, None)
    _wait_until(state, task, data["until"])


def _moved(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    rung = event.data["rung"]
    if rung > attempt.rung:
        attempt.tried.append(event.data["why"])
    else:  # it begins at the top again
        attempt.tried.clear()
    attempt.rung, attempt.pools, attempt.rung_at = rung, tuple(event.data["pools"]), event.at
    _wait_until(state, task, event.data["until"])


def _wait_until(state: RunState, task: TaskState, until: float | None) -> None:
    task.last.until = until
    if until is not None:
        heapq.heappush(state.timers, (until, task.path))


def _bound(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    attempt.node, attempt.pool, attempt.bound_at = event.data["node"], event.data["pool"], event.at
    state.holding[event.data["pool"]] = state.holding.get(event.data["pool"], 0) + 1
    task.status = TaskStatus.RUNNING


def _progress(state: RunState, event: Event) -> None:
    _, attempt = _attempt(state, event)
    attempt.progress = event.data["value"]
    if attempt.first_progress is None:
        attempt.first_progress = attempt.progress


def _notice(state: RunState, event: Event) -> None:
    node = state.nodes[event.data["node"]]
    node.noticed_at = event.at
    for path, number in event.data["attempts"]:
        attempt = state.tasks[path].attempts[number - 1]
        if attempt.is_live:
            attempt.noticed_at, attempt.goes_at = event.at, event.data["goes_at"]


def _node(state: RunState, event: Event) -> None:
    data = event.data
    node = state.nodes.get(data["node"])
    if node is None:
        node = state.nodes[data["node"]] = NodeState(data["node"], data["pool"], "booting", event.at, state.version)
    node.state = data["state"]
    node.why = data.get("why", "")
    if node.state == "ready":
        node.ready_at = event.at
    elif node.state == "gone":
        node.gone_at = event.at


def _ended(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    if not attempt.is_live:
        raise ValueError("it has ended before")
    attempt.ended_at, attempt.ended = event.at, event.data
    attempt.progress = event.data.get("progress", attempt.progress)
    if attempt.first_progress is None:
        attempt.first_progress = event.data.get("first_progress", attempt.progress)
    if attempt.pool is not None:
        state.holding[attempt.pool] -= 1
        state.freed[attempt.pool] = event.at
    state.under_way.pop(task.path, None)
    state.todo[task.path] = None


def _decided(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    data = event.data
    if attempt.is_live:  # it never had a node: nothing ended but the waiting
        attempt.ended_at = event.at
        state.under_way.pop(task.path, None)
    attempt.cause, attempt.cause_why = Cause(data["cause"]), data["why"]
    attempt.then, attempt.next_why = data["then"], data["next"]
    task.spent = task.spent.after(attempt.cause)
    set_active(task, active=data["then"] == "retry")
    state.todo.pop(task.path, None)
    _FOLLOW[data["then"]](state, task, event)
    settle(state, task.scope)


def _follow_succeed(state: RunState, task: TaskState, _event: Event) -> None:
    succeed(state, task, task.last.ended or {})


def _follow_retry(state: RunState, task: TaskState, event: Event) -> None:
    task.next_rung = event.data["rung"]
    task.due = event.data.get("due")
    if task.due is None or state.is_over(task):
        make_ready(state, task)
        return
    task.status = TaskStatus.BACKOFF
    heapq.heappush(state.timers, (task.due, task.path))


def _follow_fail(state: RunState, task: TaskState, event: Event) -> None:
    fail(state, task, event.data["next"])


def _follow_cancel(state: RunState, task: TaskState, event: Event) -> None:
    if state.cancelling:
        task.status = TaskStatus.CANCELLED
        task.why = event.data["next"]
    elif state.is_over(task):
        fail(state, task, state.expired)
    else:  # the engine was told to stop, or another task failed: this one starts again when the run is resumed
        make_ready(state, task)


def _halt(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    attempt.halted = True
    state.todo.pop(task.path, None)


_FOLLOW: Mapping[str, Callable[[RunState, TaskState, Event], None]] = {
    "succeed": _follow_succeed,
    "retry": _follow_retry,
    "fail": _follow_fail,
    "cancel": _follow_cancel,
}
_HANDLERS: Mapping[str, Callable[[RunState, Event], None]] = {
    "created": _created,
    "engine": _engine,
    "unfolded": _unfolded,
    "skipped": _skipped,
    "cached": _cached,
    "placed": _placed,
    "moved": _moved,
    "bound": _bound,
    "progress": _progress,
    "notice": _notice,
    "node": _node,
    "ended": _ended,
    "decided": _decided,
    "failed": _failed,
    "halt": _halt,
    "completed": _completed,
    "cancel": _cancel,
    "stop": _stop,
    "expired": _expired,
    "finished": _finished,
    "reset": _reset,
    "note": _note,
}
