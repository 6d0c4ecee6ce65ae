"""The state of a run: a fold over its events, kept incrementally so that a decision never scans all tasks.

:func:`fold` applies one event. It is total: events it cannot place (an older engine's, say) raise :class:`StateError` instead
of being guessed at. Nothing here reads a clock or does IO; what only the graph and the configuration know comes from the
:class:`~spotwright.engine.plan.Plan` that the state was made with.

Three indexes make decisions cheap: ``todo`` (tasks that need a decision), ``timers`` (a heap of moments at which one will)
and ``missing`` on every task (how many of its upstream tasks have not succeeded).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from spotwright.engine.events import Event
from spotwright.engine.plan import Plan, Planned
from spotwright.errors import StateError
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import Place, Spent

__all__ = ["AttemptState", "NodeState", "RunState", "RunStatus", "TaskState", "TaskStatus", "fold", "replay"]


class TaskStatus(Enum):
    """Where a task stands."""

    WAITING = "waiting"  # upstream tasks have not succeeded yet
    READY = "ready"  # may start; a decision is due
    PENDING = "pending"  # its attempt waits for a node
    RUNNING = "running"  # its attempt has a node
    BACKOFF = "backoff"  # waits before its next attempt
    OPEN = "open"  # a pipeline whose tasks are under way
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to it in this run, short of a resume."""
        return self in (TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED)


class RunStatus(Enum):
    """Where a run stands. ``STOPPED`` is unfinished: ``resume`` goes on."""

    RUNNING = "running"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class AttemptState:
    """One try of a task. Moments are Unix seconds; ``None`` until they happen."""

    number: int
    first: int  # the rung it was first placed on
    rung: int
    pools: tuple[str, ...]
    placed_at: float
    rung_at: float  # since when it waits on this rung
    until: float | None = None  # until when it may wait there
    why: str = ""
    tried: list[str] = field(default_factory=list)  # why it left the rungs above
    node: str | None = None
    pool: str | None = None
    bound_at: float | None = None
    noticed_at: float | None = None
    goes_at: float | None = None
    progress: float | None = None
    first_progress: float | None = None
    halted: bool = False
    ended_at: float | None = None
    ended: Mapping[str, Any] | None = None  # the data of its ``ended`` event
    cause: Cause | None = None
    cause_why: str = ""
    then: str = ""  # what the decision after it was: "retry", ...
    next_why: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it waits for a node or runs."""
        return self.ended_at is None

    @property
    def place(self) -> Place:
        """Where it ran, as the budgets see it."""
        return Place(self.first, self.rung, self.pool)


@dataclass(slots=True)
class TaskState:
    """One task of the run with everything that happened to it."""

    path: str
    scope: str  # path of the pipeline it belongs to, "" for the root
    plan: Planned
    missing: int
    status: TaskStatus = TaskStatus.WAITING
    attempts: list[AttemptState] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    next_rung: int | None = None
    due: float | None = None  # end of the backoff
    why: str = ""  # why it failed or was cancelled, or what it waits for
    parameters: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    cached_from: tuple[str, str] | None = None  # run and task whose result was used
    consumers: list[TaskState] = field(default_factory=list)
    open_tasks: int = 0  # of a pipeline: tasks below it that have not succeeded

    @property
    def last(self) -> AttemptState:
        """The newest attempt."""
        return self.attempts[-1]


@dataclass(slots=True)
class NodeState:
    """One node of the run's pools."""

    name: str
    pool: str
    state: str  # booting | ready | gone
    booted_at: float
    ready_at: float | None = None
    gone_at: float | None = None
    noticed_at: float | None = None
    why: str = ""


@dataclass(slots=True)
class RunState:
    """A whole run, folded. Read it freely; only :func:`fold` changes it."""

    plans: Sequence[Plan]
    version: int = 1  # of the plan, from one
    meta: Mapping[str, Any] = field(default_factory=dict)
    status: RunStatus = RunStatus.RUNNING
    why: str = ""
    started_at: float = 0.0
    finished_at: float | None = None
    last_at: float = 0.0
    epoch: int = 0
    tasks: dict[str, TaskState] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    todo: dict[str, None] = field(default_factory=dict)
    timers: list[tuple[float, str]] = field(default_factory=list)
    under_way: dict[str, None] = field(default_factory=dict)  # tasks whose attempt waits for a node or runs
    unfinished: int = 0  # tasks of the root that have not succeeded
    failed: list[str] = field(default_factory=list)
    unfolded: bool = False
    cancelling: bool = False
    stopping: str = ""
    notes: list[str] = field(default_factory=list)
    events: int = 0
    retired: dict[str, TaskState] = field(default_factory=dict)  # what an earlier version or try of the run left behind

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.plans[self.version - 1]

    @property
    def time_scale(self) -> float:
        """How many times faster the waits of the simulated world pass."""
        return float(self.meta.get("time_scale", 1.0))

    @property
    def halting(self) -> bool:
        """Whether everything that runs is to be stopped."""
        return self.cancelling or bool(self.stopping)


def replay(plans: Sequence[Plan], events: Iterable[Event]) -> RunState:
    """Fold a whole journal from the start. ``plans`` are the versions of the run's plan, oldest first."""
    state = RunState(plans)
    for event in events:
        fold(state, event)
    return state


def fold(state: RunState, event: Event) -> None:
    """Apply one event to the state."""
    handler = _HANDLERS.get(event.kind)
    if handler is None:
        raise StateError(
            f"the journal holds an event of the unknown kind {event.kind!r}: it was written by a newer version"
        )
    state.events += 1
    state.last_at = event.at
    handler(state, event)


def _attempt(state: RunState, event: Event) -> tuple[TaskState, AttemptState]:
    task = state.tasks[event.task]
    return task, task.attempts[event.attempt - 1]


def _created(state: RunState, event: Event) -> None:
    state.meta = event.data
    state.started_at = event.at


def _engine(state: RunState, event: Event) -> None:
    state.epoch = event.data["epoch"]
    state.status = RunStatus.RUNNING
    state.stopping = ""
    state.finished_at = None


def _unfolded(state: RunState, event: Event) -> None:
    scope = event.task
    count = _add_tasks(state, scope)
    if not scope:
        state.unfolded = True
        return
    state.tasks[scope].status = TaskStatus.OPEN
    state.todo.pop(scope, None)
    if count == 0:
        state.todo[scope] = None


def _add_tasks(state: RunState, scope: str, again: Set[str] | None = None) -> int:
    """Add the tasks of a pipeline; with ``again`` (a reset) carry over what succeeded before and is not in it.

    Attempts of an earlier try stay with the task whatever becomes of it: their numbers, logs and costs go on.
    """
    planned_tasks = state.plan.unfold(scope)
    if scope:
        state.tasks[scope].open_tasks = len(planned_tasks)
    else:
        state.unfinished = len(planned_tasks)
    for planned in planned_tasks:
        task = TaskState(planned.path, scope, planned, missing=len(planned.spec.after))
        state.tasks[planned.path] = task
        before = state.retired.pop(planned.path, None)
        if before is not None:
            task.attempts = before.attempts
        for name in planned.spec.after:
            upstream = state.tasks[f"{scope}/{name}" if scope else name]
            upstream.consumers.append(task)
            task.missing -= upstream.status is TaskStatus.SUCCEEDED
        _carry_over(state, task, before, again)
    return len(planned_tasks)


def _carry_over(state: RunState, task: TaskState, before: TaskState | None, again: Set[str] | None) -> None:
    keep = before is not None and again is not None and task.path not in again
    if keep and before is not None and before.status is TaskStatus.SUCCEEDED:
        task.cached_from = before.cached_from
        _succeed(state, task, {"parameters": before.parameters, "artifacts": before.artifacts})
    elif keep and before is not None and before.status is TaskStatus.OPEN:
        task.status = TaskStatus.OPEN
        if _add_tasks(state, task.path, again) == 0 or task.open_tasks == 0:
            state.todo[task.path] = None
    elif task.missing == 0:
        _make_ready(state, task)


def _make_ready(state: RunState, task: TaskState) -> None:
    task.status = TaskStatus.READY
    state.todo[task.path] = None


def _succeed(state: RunState, task: TaskState, data: Mapping[str, Any]) -> None:
    task.status = TaskStatus.SUCCEEDED
    task.parameters = data.get("parameters", {})
    task.artifacts = data.get("artifacts", {})
    task.why = ""
    state.todo.pop(task.path, None)
    for consumer in task.consumers:
        consumer.missing -= 1
        if consumer.missing == 0 and consumer.status is TaskStatus.WAITING:
            _make_ready(state, consumer)
    if not task.scope:
        state.unfinished -= 1
        return
    parent = state.tasks[task.scope]
    parent.open_tasks -= 1
    if parent.open_tasks == 0:
        state.todo[parent.path] = None


def _cached(state: RunState, event: Event) -> None:
    task = state.tasks[event.task]
    task.cached_from = (event.data["run"], event.data["task"])
    _succeed(state, task, event.data)


def _completed(state: RunState, event: Event) -> None:
    _succeed(state, state.tasks[event.task], event.data)


def _placed(state: RunState, event: Event) -> None:
    task, data = state.tasks[event.task], event.data
    attempt = AttemptState(event.attempt, data["rung"], data["rung"], tuple(data["pools"]), event.at, event.at)
    attempt.why = data.get("why", "")
    task.attempts.append(attempt)
    task.status = TaskStatus.PENDING
    task.due = None
    state.under_way[task.path] = None
    state.todo.pop(task.path, None)
    _wait_until(state, task, data["until"])


def _moved(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    attempt.rung, attempt.pools, attempt.rung_at = event.data["rung"], tuple(event.data["pools"]), event.at
    attempt.tried.append(event.data["why"])
    _wait_until(state, task, event.data["until"])


def _wait_until(state: RunState, task: TaskState, until: float | None) -> None:
    task.last.until = until
    if until is not None:
        heapq.heappush(state.timers, (until, task.path))


def _bound(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    attempt.node, attempt.pool, attempt.bound_at = event.data["node"], event.data["pool"], event.at
    task.status = TaskStatus.RUNNING


def _progress(state: RunState, event: Event) -> None:
    _, attempt = _attempt(state, event)
    attempt.progress = event.data["value"]
    if attempt.first_progress is None:
        attempt.first_progress = attempt.progress


def _notice(state: RunState, event: Event) -> None:
    node = state.nodes[event.data["node"]]
    node.noticed_at = event.at
    for key in event.data["attempts"]:
        attempt = state.tasks[key[0]].attempts[key[1] - 1]
        attempt.noticed_at, attempt.goes_at = event.at, event.data["goes_at"]


def _node(state: RunState, event: Event) -> None:
    data = event.data
    node = state.nodes.get(data["node"])
    if node is None:
        node = state.nodes[data["node"]] = NodeState(data["node"], data["pool"], "booting", event.at)
    node.state = data["state"]
    node.why = data.get("why", "")
    if node.state == "ready":
        node.ready_at = event.at
    elif node.state == "gone":
        node.gone_at = event.at


def _ended(state: RunState, event: Event) -> None:
    task, attempt = _attempt(state, event)
    attempt.ended_at, attempt.ended = event.at, event.data
    attempt.progress = event.data.get("progress", attempt.progress)
    if attempt.first_progress is None:
        attempt.first_progress = event.data.get("first_progress", attempt.progress)
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
    state.todo.pop(task.path, None)
    _FOLLOW[data["then"]](state, task, event)


def _follow_succeed(state: RunState, task: TaskState, _event: Event) -> None:
    _succeed(state, task, task.last.ended or {})


def _follow_retry(state: RunState, task: TaskState, event: Event) -> None:
    task.next_rung = event.data["rung"]
    task.due = event.data.get("due")
    if task.due is None:
        _make_ready(state, task)
        return
    task.status = TaskStatus.BACKOFF
    heapq.heappush(state.timers, (task.due, task.path))


def _follow_fail(state: RunState, task: TaskState, event: Event) -> None:
    _fail(state, task, event.data["next"])


def _follow_cancel(state: RunState, task: TaskState, event: Event) -> None:
    if state.cancelling:
        task.status = TaskStatus.CANCELLED
        task.why = event.data["next"]
    else:  # the engine was told to stop: the task starts again when the run is resumed
        _make_ready(state, task)


def _failed(state: RunState, event: Event) -> None:
    task = state.tasks[event.task]
    state.todo.pop(task.path, None)
    _fail(state, task, event.data["why"])


def _fail(state: RunState, task: TaskState, why: str) -> None:
    task.status, task.why = TaskStatus.FAILED, why
    state.failed.append(task.path)


def _halt(state: RunState, event: Event) -> None:
    _, attempt = _attempt(state, event)
    attempt.halted = True


def _cancel(state: RunState, _event: Event) -> None:
    state.cancelling = True


def _stop(state: RunState, event: Event) -> None:
    state.stopping = event.data["why"]


def _finished(state: RunState, event: Event) -> None:
    state.status, state.why, state.finished_at = RunStatus(event.data["status"]), event.data.get("why", ""), event.at


def _reset(state: RunState, event: Event) -> None:
    """Start again what did not succeed, with fresh budgets; ``again`` names what succeeded and must run again all the same.

    ``version`` is the plan from now on: the tasks are those of the new graph.
    """
    state.version = event.data.get("version", state.version)
    if "time_scale" in event.data:
        state.meta = {**state.meta, "time_scale": event.data["time_scale"]}
    state.retired = {**state.retired, **state.tasks}
    state.tasks, state.todo, state.under_way, state.timers, state.failed = {}, {}, {}, [], []
    state.cancelling, state.status, state.finished_at, state.why = False, RunStatus.RUNNING, None, ""
    if state.unfolded:
        _add_tasks(state, "", frozenset(event.data.get("again", ())))


def _note(state: RunState, event: Event) -> None:
    state.notes.append(event.data["text"])


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
    "finished": _finished,
    "reset": _reset,
    "note": _note,
}
