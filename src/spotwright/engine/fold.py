"""Folds events into the state: one function applies one event and updates the indexes, so no decision scans all tasks.

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
from spotwright.engine.dags import (
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
from spotwright.engine.events import (
    AttemptAdopted,
    AttemptBound,
    AttemptDecided,
    AttemptHalted,
    AttemptHeld,
    AttemptKept,
    AttemptReleased,
    AttemptTakenBack,
    AttemptWaits,
    EnvironmentAsked,
    EnvironmentChanged,
    Event,
    MarketKnown,
    NoticeWithdrawn,
    OutputsRead,
    PlanExtended,
    ProgressReported,
    RunStatus,
    SnapshotTaken,
    TaskStatus,
)
from spotwright.engine.plan import Plan
from spotwright.engine.state import AttemptState, EnvironmentState, NodeState, RunState, ScopeState, TaskState
from spotwright.engine.waits import ordered_for, waited_in_vain
from spotwright.errors import StateError
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse, FollowUp
from spotwright.scheduling.estimates import newest_boots, next_mark

__all__ = [
    "HANDLED",
    "HANDLERS",
    "ask_again",
    "attempt_kept",
    "cause_to_charge",
    "charge",
    "environment_asked",
    "environment_changed",
    "fold",
    "halted_to_move",
    "market_known",
    "pools_asked",
    "pools_changed",
    "pools_left",
    "rare_collections",
    "reached_before",
    "replay",
    "room_seen",
    "run_taken_up",
    "spent_around",
    "spent_before",
    "spot_bound",
    "work_measured",
]


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
    attempt.waited, attempt.ordered = waited_in_vain(attempt, event.at), ordered_for(attempt, event.at)
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
    first = _first_rung(task, event.rung)
    attempt = AttemptState(event.attempt, first, event.rung, tuple(event.pools), event.at, event.at)
    attempt.key, attempt.gang, attempt.is_open, attempt.why = event.key, event.gang, event.is_open, event.why
    if event.gang:
        task.spent = _charged(state, event.gang)
    task.attempts.append(attempt)
    task.status, task.due = TaskStatus.PENDING, None
    state.under_way[task.path] = None
    state.todo.pop(task.path, None)
    set_active(task, active=True)


def _first_rung(task: TaskState, rung: int) -> int:
    """The rung on which a wait began: an attempt that follows one which waited in vain goes on with its wait."""
    before = task.attempts[-1] if task.attempts else None
    decided = None if before is None or before.bound_at is not None else before.taken_back
    return before.first if before is not None and decided is not None and decided.rung == rung else rung


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


def spent_around(state: RunState, task: TaskState, attempt: AttemptState, since: float) -> tuple[BudgetUse, BudgetUse]:
    """What a task had spent before the end of one of its attempts, and after it. ``since``: when its budgets last began anew."""
    if attempt.gang:
        before = BudgetUse()
        for restart, cause in state.gangs.get(attempt.gang.partition("/")[0], {}).items():
            if restart == attempt.gang:
                return before, before.after(cause)
            before = before.after(cause)
        return before, before
    before = after = BudgetUse()
    for each in task.attempts[: attempt.number]:
        if each.placed_at >= since and each.cause is not None:
            before, after = after, after if _is_own_move(each, each.cause) else after.after(each.cause)
        else:
            before = after
    return before, after


def _is_own_move(attempt: AttemptState, cause: Cause) -> bool:
    """Whether a deadline ended the attempt to go on elsewhere, which spends nothing."""
    return bool(attempt.moving) and cause is Cause.DISRUPTED


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


_LOOKS = 200  # at a running attempt because of its reports, in the time of its stated work, at most
_SOMETHING = 1e-9
_RESTORED = 2.0  # times as fast as known: what an attempt reports first beyond that, an earlier one had saved


def attempt_kept(state: RunState, event: AttemptKept) -> None:
    """Note why an attempt stays where it runs or waits, and set the timer of the next look."""
    task = state.tasks[event.task]
    attempt = task.attempts[event.attempt - 1]
    if task.status not in (TaskStatus.RUNNING, TaskStatus.PENDING) or attempt is not task.last:
        raise ValueError(f"attempt {event.attempt} of {event.task} neither runs nor waits")
    attempt.kept, attempt.until, attempt.looked_at = event.why, event.until, event.at
    state.todo.pop(task.path, None)
    if event.until is not None:
        heapq.heappush(state.timers, (event.until, task.path))


def halted_to_move(attempt: AttemptState, event: AttemptHalted) -> None:
    """Note that an attempt is stopped to go on elsewhere, which its end will say too."""
    if event.moves:
        attempt.moving, attempt.moved_at, attempt.target = event.why, event.at, event.rung


def spot_bound(state: RunState, task: TaskState, event: AttemptBound) -> None:
    """An attempt has a node: under a deadline a decision says how long it stays there."""
    task.last.until, task.last.kept = None, ""
    sightings = state.sightings.get(event.pool)
    if sightings is not None:
        node = state.nodes.get(event.node)
        granted = event.at if node is None else min(event.at, max(node.booted_at, task.last.rung_at))
        sightings.see(max(granted * state.time_scale, sightings.counted), up=True)
        sightings.watch(event.at * state.time_scale)
    if _is_watched(state, task):
        state.todo[task.path] = None


def run_taken_up(state: RunState) -> None:
    """An engine takes the run: nobody saw the pools meanwhile, and running attempts are looked at again."""
    for sightings in state.sightings.values():
        sightings.leave(state.last_at * state.time_scale)
    for path in state.under_way:
        if _is_watched(state, state.tasks[path]):
            state.todo[path] = None


def market_known(state: RunState, event: MarketKnown) -> None:
    """Take over what earlier runs have counted."""
    if event.own:
        return
    from spotwright.deadlines.hazards import Sightings, unlisted  # other runs never need it, and each start would pay

    for pool, counts in event.pools.items():
        state.sightings[pool] = Sightings(unlisted(counts))
    state.earlier_boots = {pool: tuple(seen) for pool, seen in event.boots.items()}


def room_seen(state: RunState, event: SnapshotTaken) -> None:
    """The world said which pools have room. A pool that is full of the run's own nodes tells nothing."""
    if not event.room:
        return
    from spotwright.deadlines.hazards import Sightings

    for name, room in event.room.items():
        pool = state.plan.config.pools.get(name)
        if pool is None or not pool.is_spot:
            continue
        sightings = state.sightings.setdefault(name, Sightings())
        if room or not any(node.pool == name and node.gone_at is None for node in state.nodes.values()):
            sightings.see(event.at * state.time_scale, up=room)


def pools_asked(state: RunState, pools: Iterable[str], at: float) -> None:
    """An attempt waits for a node of these pools from now on."""
    for pool in pools:
        if pool in state.sightings:
            state.sightings[pool].watch(at * state.time_scale)


def pools_left(state: RunState, pools: Iterable[str], at: float) -> None:
    """An attempt waits for these pools no longer."""
    for pool in pools:
        if pool in state.sightings and not state.holding.get(pool):
            state.sightings[pool].leave(at * state.time_scale)


def pools_changed(state: RunState, attempt: AttemptState, event: AttemptDecided) -> None:
    """The cause of an attempt's end is known: the pool has lost a node, or the run has given one back."""
    sightings = state.sightings.get(attempt.pool or "")
    if sightings is None:
        if attempt.pool is None:
            pools_left(state, attempt.pools, event.at)
        return
    at = attempt.ended_at if attempt.noticed_at is None else attempt.noticed_at
    if event.cause is Cause.INTERRUPTED and at is not None:
        sightings.lose(at * state.time_scale)
    if not state.holding.get(attempt.pool or ""):
        sightings.leave(event.at * state.time_scale)


def work_measured(state: RunState, task: TaskState, attempt: AttemptState, event: ProgressReported) -> None:
    """A report under a deadline: it measures the pace of the work, and a running attempt on spot is looked at again."""
    stated, reached = task.plan.policy.work or 0.0, reached_before(task, attempt)
    task.pace, attempt.measured = next_mark(task.pace, attempt.measured, event.at, event.value, reached, stated)
    kept = reached if task.plan.policy.checkpoint is not None else 0.0
    if attempt.started_in is None and attempt.bound_at is not None and kept <= event.value < 1.0:
        attempt.started_in = max(0.0, event.at - attempt.bound_at), event.value - kept
    due = attempt.looked_at is None or event.at - attempt.looked_at >= stated / _LOOKS
    if due and attempt is task.last and attempt.is_live and not attempt.halted and _is_watched(state, task):
        state.todo[task.path] = None


def reached_before(task: TaskState, attempt: AttemptState) -> float:
    """The share of the work that earlier attempts of the task had reported; after one without a report just above nothing."""
    earlier = task.attempts[: attempt.number - 1]
    return max((each.progress or _SOMETHING for each in earlier), default=0.0)


def _went_on(task: TaskState, attempt: AttemptState, at: float) -> bool:
    """Whether an attempt has not done alone what it reports first, at this moment: it would have been twice as fast as known.

    Without a stated ``work`` nobody asks.
    """
    stated = task.plan.policy.work or 0.0
    if attempt.number == 1 or attempt.bound_at is None or at < attempt.bound_at:
        return False
    whole = task.pace.whole if task.pace.is_seen(stated) else stated
    return (attempt.first_progress or 0.0) * whole > _RESTORED * (at - attempt.bound_at)


def _is_watched(state: RunState, task: TaskState) -> bool:
    """Whether a deadline may move the running attempt of a task: from spot, or to spot where its work is saved."""
    policy, attempt, ladder = task.plan.policy, task.last, task.plan.ladder
    if policy.deadline is None or not policy.work or attempt.bound_at is None or attempt.key or not ladder.on_demand:
        return False
    pool = state.plan.config.pools.get(attempt.pool or "")
    if pool is None or pool.is_spot:
        return pool is not None
    has_spot = any(rung.spot is not False for rung in ladder.rungs)
    return has_spot and (policy.checkpoint is not None or task.goes_on)


def ask_again(state: RunState) -> None:
    """Forget the environments of an earlier engine, and let the tasks that waited for them ask again."""
    state.environments.clear()
    for path in list(state.preparing):
        del state.preparing[path]
        make_ready(state, state.tasks[path])


def environment_asked(state: RunState, event: EnvironmentAsked) -> None:
    """Let a task wait for its environment. A build whose engine ended may have finished without it, so its begin stays."""
    task = state.tasks[event.task]
    task.status, task.due = TaskStatus.PREPARING, None
    if task.environment is None or task.environment.ended_at is not None:
        task.environment = EnvironmentState()
    state.preparing[task.path] = None
    state.todo.pop(task.path, None)


def environment_changed(state: RunState, event: EnvironmentChanged) -> None:
    """Note a build, or its end: then a task that still waits for it needs a decision. Ready also for other tasks."""
    task = state.tasks[event.task]
    environment = task.environment
    if environment is None:
        raise ValueError("no environment was asked for")
    if event.state == "building":
        environment.began_at, environment.packages, environment.log = event.at, tuple(event.packages), event.log
        return
    environment.ended_at, environment.why, environment.last_lines = event.at, event.why, tuple(event.last_lines)
    executor = task.plan.spec.executor
    if event.state == "ready" and executor is not None:
        state.environments.add(executor.environment)
    if task.status is TaskStatus.PREPARING:
        del state.preparing[task.path]
        make_ready(state, task)


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
    """An engine takes the run. The time without an engine does not count as waiting for a node.

    Under a deadline a wait for spot is decided anew at once: its last moment may have come.
    """
    gap = max(0.0, event.at - state.last_at) if state.epoch else 0.0
    if gap:
        state.undriven.append((state.last_at, event.at))
    state.epoch, state.caching, state.prepares, state.detached = event.epoch, event.caching, event.environments, False
    ask_again(state)
    run_taken_up(state)
    state.begun_at += gap
    state.status, state.finished_at, state.stopping = RunStatus.RUNNING, None, ""
    for path in state.under_way:
        task = state.tasks[path]
        task.last.halted = False
        is_urgent = task.plan.policy.deadline is not None and task.last.rung not in task.plan.ladder.on_demand
        if task.last.bound_at is None and task.last.until is not None and not is_urgent:
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
    _wait_until(state, task, event.until)


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
    _wait_until(state, task, event.until)


def _wait_until(state: RunState, task: TaskState, until: float | None) -> None:
    task.last.until = until
    if until is not None:
        heapq.heappush(state.timers, (until, task.path))


def _bound(state: RunState, event: ev.AttemptBound) -> None:
    task, attempt = _attempt(state, event)
    attempt.node, attempt.pool, attempt.bound_at = event.node, event.pool, event.at
    attempt.taken_back = None
    if attempt.is_open:
        attempt.first = attempt.rung = _rung_of_pool(task, event.pool)
    state.holding[event.pool] = state.holding.get(event.pool, 0) + 1
    task.status = TaskStatus.RUNNING
    spot_bound(state, task, event)


def _rung_of_pool(task: TaskState, pool: str) -> int:
    """The rung of the pool that took an attempt which was open to all; the first one for a pool that is none of them."""
    rungs = task.plan.ladder.rungs
    return next((index for index, rung in enumerate(rungs) if pool in rung.pools), 0)


def _progress(state: RunState, event: ev.ProgressReported) -> None:
    task, attempt = _attempt(state, event)
    attempt.progress = event.value
    since = attempt.bound_at if attempt.reported_at is None else attempt.reported_at
    attempt.reported_at = event.at
    attempt.between_reports = 0.0 if since is None else max(0.0, event.at - since)
    if attempt.first_progress is None:
        attempt.first_progress = attempt.progress
        attempt.went_on = _went_on(task, attempt, event.at)
    if task.plan.policy.deadline is not None:
        work_measured(state, task, attempt, event)


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
            boot = (event.at - node.booted_at) * state.time_scale
            state.boots[node.pool] = newest_boots(state.boots.get(node.pool, ()), (boot,))
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
        attempt.went_on = _went_on(task, attempt, event.at)
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
    attempt.due = event.due
    pools_changed(state, attempt, event)
    if not _is_own_move(attempt, event.cause):
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
    halted_to_move(attempt, event)
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
    AttemptKept: attempt_kept,
    MarketKnown: market_known,
    ev.SnapshotTaken: room_seen,
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
