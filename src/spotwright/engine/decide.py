"""The decisions of a run: ``decide(state, snapshot, now)`` is pure and answers with events.

It looks only at what needs a decision: the tasks in ``state.todo`` and the timers that are due. The loop folds the answer,
asks again until no decision follows, commits everything in one transaction and then performs it. The table of what follows an
attempt is in :mod:`spotwright.scheduling.budgets`, the choice of the next rung in
:mod:`spotwright.engine.next_rung`; this module turns both into events.

Attempts that have ended are closed before anything else is decided, and alone. So an engine that takes a run up can commit the
ends of earlier attempts before anything new starts.

Beside the ends of attempts, time decides: timers that are due; a running attempt that moves between spot and on-demand under its
deadline, because that costs less or because the last safe moment has come; and an attempt that an orchestrator made and that
waits in vain for a node (row 7 of the table).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from spotwright.engine.events import (
    AttemptDecided,
    AttemptHalted,
    AttemptKept,
    AttemptMoved,
    AttemptPlaced,
    AttemptRecalled,
    CacheAsked,
    EnvironmentAsked,
    Event,
    RunExpired,
    RunFinished,
    RunStatus,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStatus,
    TasksUnfolded,
)
from spotwright.engine.io_resolution import check_inputs, computed_outputs, condition_inputs, dag_outputs, loop_items
from spotwright.engine.next_rung import (
    PARTS,
    Snapshot,
    advise,
    effective_plan,
    end_of_longer_wait,
    first_choice,
    following,
    next_choice,
    outlook_without_advice,
)
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.engine.waits import CANNOT_GROW, NO_SCALE_UP, in_vain_at, is_ruled_out, never_came, waited_in_vain
from spotwright.errors import InputError
from spotwright.graph import RunsNowhere
from spotwright.model.attempts import Cause, Ending, Signals
from spotwright.model.quantities import format_duration
from spotwright.scheduling.budgets import (
    Decision,
    FollowUp,
    Pause,
    left_out,
    pause_after,
    pauses_of,
    rung_after_waiting,
)
from spotwright.scheduling.cause import classify
from spotwright.scheduling.deadline import Outlook, any_room, countdown, without_on_demand

__all__ = [
    "after_move",
    "after_waiting",
    "close_ended",
    "decide",
    "due_tasks",
    "judged_signals",
    "look",
    "next_moment",
    "next_pools",
    "take_back",
    "why_it_stays",
]


def next_moment(state: RunState) -> float | None:
    """When the next timer is due (Unix seconds); ``None`` where no decision waits for time to pass."""
    if state.halting:
        return None
    while state.timers and not _is_current(state, *state.timers[0]):
        heapq.heappop(state.timers)
    moments = [state.timers[0][0]] if state.timers else []
    if state.ends_by is not None:
        moments.append(state.ends_by)
    return min(moments, default=None)


def due_tasks(state: RunState, now: float) -> list[TaskState]:
    """The tasks whose backoff, wait on a rung or time until the next look is over; in the order of their moments."""
    due = sorted(_timers_until(state, now))
    paths = dict.fromkeys(path for at, path in due if _is_current(state, at, path))
    return [state.tasks[path] for path in paths]


def _timers_until(state: RunState, now: float) -> Iterator[tuple[float, str]]:
    """The entries of the heap that are due, without changing it: below an entry that is not, none is."""
    heap, stack = state.timers, [0]
    while stack:
        index = stack.pop()
        if index < len(heap) and heap[index][0] <= now:
            yield heap[index]
            stack += (2 * index + 1, 2 * index + 2)


def _is_current(state: RunState, at: float, path: str) -> bool:
    """Whether a timer still counts: its task may have moved on since it was set."""
    task = state.tasks.get(path)
    if task is None:
        return False
    if task.status is TaskStatus.BACKOFF:
        return task.due == at and task.may_start and not state.is_over(task)
    waits_or_runs = task.status in (TaskStatus.PENDING, TaskStatus.RUNNING)
    return waits_or_runs and task.last.until == at and not task.last.halted


_LATER = 300.0  # seconds of the simulated world to the next look at an attempt that allows no decision now
_LOOKS = 5  # for room on on-demand, in the time of one ``pending_timeout``


def look(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """The decision about a task with a deadline whose attempt runs: it stays until the next look, or is moved."""
    attempt = task.last
    pool = state.plan.config.pools[attempt.pool or ""]
    try:
        planned = effective_plan(state, task)
    except InputError as error:
        return AttemptKept(now, task.path, attempt.number, why=f"stays on {pool.capacity.value}: {error}")
    outlook = outlook_without_advice(state, task, planned, now)
    if pool.is_spot:
        stays = _until_last_moment(task, outlook, now)
    else:
        until = now + _LATER / state.time_scale
        stays = AttemptKept(now, task.path, attempt.number, until=until, why="stays on on-demand")
    if not isinstance(stays, AttemptKept) or stays.until is None or not outlook.saves:
        return stays
    advice = advise(state, task, planned, outlook, snapshot)
    if advice is None:
        return stays
    if advice.gain > 0.0 and (advice.launches or advice.rung is None):
        rung = planned.ladder.on_demand[0] if advice.rung is None else advice.rung
        to = planned.ladder.rungs[rung].pools[0]
        why = f"to {to}: {advice.move}"
        return AttemptHalted(now, task.path, attempt.number, why=why, moves=True, rung=rung)
    if pool.is_spot:
        return stays.replaced(until=min(stays.until, advice.until))
    return stays.replaced(until=advice.until, why=f"stays on on-demand: {advice.why}")


def _until_last_moment(task: TaskState, outlook: Outlook, now: float) -> Event:
    """What the last safe moment says about an attempt on spot: it stays until then, or is moved to on-demand."""
    attempt, last = task.last, outlook.last_moment
    if last is None:
        return AttemptKept(now, task.path, attempt.number, why="stays on spot: no 'work' is stated")
    needs = outlook.needs
    work = format_duration(needs.left.at_most)
    numbers = (
        f"{work} of work {'is left' if outlook.saves else 'would be lost with the node'}, on-demand needs "
        f"{format_duration(needs.launch.at_most)} more to launch and spot {format_duration(outlook.drain)} to be left, and "
        f"{countdown(outlook.deadline - now)}"
    )
    if last - outlook.drain - now > (outlook.work or 0.0) / PARTS:
        return AttemptKept(now, task.path, attempt.number, until=last - outlook.drain, why=f"stays on spot: {numbers}")
    if now <= last:
        return AttemptHalted(
            now, task.path, attempt.number, why=f"to on-demand, at the last safe moment: {numbers}", moves=True
        )
    why = f"stays on spot: on-demand could not finish in time any more; {numbers}"
    return AttemptKept(now, task.path, attempt.number, why=why)


def _look(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """As :func:`look`; but an attempt leaves spot for on-demand only if on-demand is available, and gets a notice before."""
    decided, ladder = look(state, task, snapshot, now), task.plan.ladder
    ends = decided.until if isinstance(decided, AttemptKept) else now
    goes_to_spot = (
        isinstance(decided, AttemptHalted) and decided.rung is not None and decided.rung not in ladder.on_demand
    )
    on_spot = state.plan.config.pools[task.last.pool or ""].is_spot
    if ends is None or goes_to_spot or not on_spot or any_room(ladder, ladder.on_demand, snapshot.has_room):
        return decided
    planned = effective_plan(state, task)
    outlook = outlook_without_advice(state, task, planned, now)
    why = f"stays on spot: {without_on_demand(outlook)}"
    soon = now + outlook.patience / _LOOKS
    until = min(soon, ends) if ends > now else soon
    return AttemptKept(now, task.path, task.last.number, until=until, why=why)


def after_move(task: TaskState, ending: Ending, on_demand: tuple[int, ...]) -> Decision | None:
    """What follows an attempt that was moved: the next one, where it was to go. ``None`` for one that ended otherwise."""
    if not task.last.moving or ending.cause is not Cause.DISRUPTED or not on_demand:
        return None
    rung = on_demand[0] if task.last.target is None else task.last.target
    where = "on-demand" if rung in on_demand else ", ".join(task.plan.ladder.rungs[rung].pools)
    return Decision(FollowUp.RETRY, f"goes on on {where}; the move spends no budget", rung)


def why_it_stays(
    state: RunState, task: TaskState, attempt: AttemptState, pauses: Mapping[str, Pause], now: float
) -> str:
    """Why an attempt that waits is not sent to another rung now; empty if it is, once it has waited for long enough."""
    if attempt.is_open and not never_came(attempt):
        return "it may run on every pool of its ladder already"
    if len(task.plan.ladder.rungs) < 2:
        return "its ladder has no other rung"
    if _next_rung(state, task, attempt, pauses, now) is None:
        return "the pools of every other rung that it may use are left out, because they had no node"
    return ""


def next_pools(
    state: RunState, task: TaskState, attempt: AttemptState, pauses: Mapping[str, Pause], now: float
) -> Sequence[str]:
    """The pools for which the next attempt would wait; none if there is no other rung to try now."""
    rung = _next_rung(state, task, attempt, pauses, now)
    return () if rung is None else task.plan.ladder.rungs[rung].pools


def take_back(
    state: RunState,
    task: TaskState,
    attempt: AttemptState,
    pauses: Mapping[str, Pause],
    taken: Mapping[str, float],
    now: float,
    own: Mapping[str, Pause] | None = None,
) -> list[Event]:
    """The decision to take an attempt back, if it waits in vain and there is a rung to try; of a set one is enough.

    ``pauses`` are the last pauses of pools, and ``own`` the pauses that set the length of the next one, by default all.
    ``taken`` are the moments at which an attempt last got a node of a pool: one that gave
    a node to another attempt meanwhile is not without capacity. Nor is one that holds other members of the set: its nodes are
    too few for the whole set, and free for others once the set has left. An autoscaler's status of a single pod does not count
    for its pools: whoever may write in the pod's namespace can forge it.
    """
    due = in_vain_at(task, attempt)
    if due is None or now < due or attempt.taken_back is not None:
        return []
    peers = [other.last for other in _begun(state) if attempt.gang and other.last.gang == attempt.gang]
    if any(peer.taken_back for peer in peers) or why_it_stays(state, task, attempt, pauses, now):
        return []
    rung = _next_rung(state, task, attempt, pauses, now)
    if rung is None:
        return []
    since = max(attempt.waits_since or 0.0, attempt.rung_at)
    too_small = {peer.pool for peer in peers if peer.is_live and peer.bound_at is not None}
    empty = [pool for pool in attempt.pools if taken.get(pool, 0.0) < since and pool not in too_small]
    kind, _, words = attempt.waits.partition(": ")
    known = pauses if own is None else own
    paused = {pool: pause_after(known.get(pool), now) for pool in empty if kind != NO_SCALE_UP and not attempt.is_open}
    waited = format_duration(round(waited_in_vain(attempt, now)))
    where = ", ".join(attempt.pools)
    why = (
        f"no node can come on {where}"
        if is_ruled_out(attempt)
        else f"no node on {where} for {waited}, and none on its way"
    )
    return [
        AttemptRecalled(
            now,
            task.path,
            attempt.number,
            rung=rung,
            pools=task.plan.ladder.rungs[rung].pools,
            why=f"{why}: {words}" if words else why,
            left_out={pool: (pause.until, pause.times) for pool, pause in paused.items()},
            is_said=kind == CANNOT_GROW,
        )
    ]


def after_waiting(attempt: AttemptState) -> Ending | None:
    """The cause of the end of an attempt that was recalled; ``None`` for any other attempt."""
    decided = attempt.taken_back
    if decided is None or attempt.bound_at is not None:
        return None
    if attempt.ended is not None and attempt.ended.signals.cancelled:
        return None
    return Ending(Cause.UNSCHEDULABLE, decided.why)


def _next_rung(
    state: RunState, task: TaskState, attempt: AttemptState, pauses: Mapping[str, Pause], now: float
) -> int | None:
    """The rung to try next.

    A pool for which this task, or another one of its set, has waited in vain is left out for it, even if others got a node there
    since.
    """
    without = left_out(pauses, now) | left_out(pauses_of(sorted(_waited_in_vain(state, task, attempt))), now)
    return rung_after_waiting(attempt.rung, task.spent, task.plan.policy, task.plan.ladder, without)


def _waited_in_vain(state: RunState, task: TaskState, attempt: AttemptState) -> Iterator[tuple[float, tuple[str, ...]]]:
    """When an attempt of this task, or of a set that it belongs to, was recalled, and the pools for which it had waited."""
    gang_set = attempt.gang.partition("/")[0]
    for one in state.tasks.values() if gang_set else (task,):
        for each in one.attempts:
            if each.taken_back is not None and each.gang.partition("/")[0] == gang_set:
                yield each.taken_back.at, tuple(each.pools)


def _begun(state: RunState) -> list[TaskState]:
    return [task for task in state.tasks.values() if task.attempts]


_NOT_PLACED = (TaskStatus.READY, TaskStatus.PREPARING, TaskStatus.BACKOFF)


def decide(state: RunState, snapshot: Snapshot, now: float) -> list[Event]:
    """All decisions that follow from this state at ``now`` (Unix seconds). Empty: the engine waits for facts or timers."""
    if state.status is not RunStatus.RUNNING or state.detached:
        return []
    closed = close_ended(state, snapshot, now)
    if closed:
        return closed
    todo = [state.tasks[path] for path in state.todo]
    if _is_late(state, now):
        return [RunExpired(now, why=_late(state))]
    if state.halting:
        return _halt(state, now)
    if not state.unfolded:
        return [TasksUnfolded(now)]
    decisions = [event for task in todo for event in _decide_task(state, task, snapshot, now)]
    failed: list[Event] = [event for event in decisions if isinstance(event, TaskFailed)]
    if failed:
        return failed  # alone: after a failure, other tasks of the same DAG may not start
    if state.expired:
        decisions += [_halt_attempt(task, state.expired, now) for task in _not_halted(state) if state.is_over(task)]
    decisions += _due(state, snapshot, now)
    return decisions or _finish(state, now)


def close_ended(state: RunState, snapshot: Snapshot, now: float) -> list[Event]:
    """The decisions that close attempts which have ended, and no others: what an engine commits after it recovered a run."""
    return [_close(state, task, snapshot, now) for path in state.todo if (task := state.tasks[path]).is_unjudged]


# A task may start


def _decide_task(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Iterator[Event]:
    if task.status in _NOT_PLACED and state.is_over(task):
        yield TaskFailed(now, task.path, why=state.expired)
    elif task.status is TaskStatus.OPEN:
        yield _close_pipeline(state, task, now)
    elif task.status is TaskStatus.READY:
        yield _start(state, task, snapshot, now)
    elif task.status is TaskStatus.WAITING:
        yield TaskSkipped(now, task.path, why=f"it follows {task.skipped}, which was skipped")
    elif task.status is TaskStatus.RUNNING:
        yield _look(state, task, snapshot, now)
    elif task.status is TaskStatus.PENDING and not task.last.halted and not state.is_over(task):
        yield _halt_attempt(task, "another task failed", now)


def _close_pipeline(state: RunState, task: TaskState, now: float) -> Event:
    opened = task.loop or task.inside
    failed = opened.failed if opened is not None else ""
    if failed:
        first = state.tasks[failed]
        why = first.why if first.plan.spec.dag is not None else f"{failed} failed: {first.why}"
        return TaskFailed(now, task.path, why=why)
    return TaskCompleted(now, task.path, **dag_outputs(state, task))


def _start(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    spec = task.plan.spec
    try:
        if spec.condition is not None and not task.attempts and not spec.condition.holds(condition_inputs(state, task)):
            return TaskSkipped(now, task.path, why=f"its condition does not hold: {spec.condition}")
        items = loop_items(state, task)
        check_inputs(state, task)
    except ValueError as error:
        return TaskFailed(now, task.path, why=str(error))
    if items is not None:
        return TasksUnfolded(now, task.path, items=items)
    if spec.dag is not None:
        return TasksUnfolded(now, task.path)
    if isinstance(spec.executor, RunsNowhere):
        return _without_attempt(state, task, spec.executor, now)
    if state.caching and spec.caching and not task.attempts and not task.cache_asked:
        return CacheAsked(now, task.path)
    return _place(state, task, snapshot, now)


def _without_attempt(state: RunState, task: TaskState, step: RunsNowhere, now: float) -> Event:
    try:
        outputs = computed_outputs(state, task, step)
    except ValueError as error:
        return TaskFailed(now, task.path, why=str(error))
    return TaskCompleted(now, task.path, **outputs)


def _place(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """Place the next attempt. Before the first under each engine its Python environment is prepared, so no node waits for that.

    An environment that cannot be built fails the task: the same packages would fail again, whatever its budgets are.
    """
    if _lacks_environment(state, task):
        failed = task.environment is not None and task.environment.why
        if failed:
            return TaskFailed(now, task.path, why=f"its Python environment cannot be built: {failed}")
        return EnvironmentAsked(now, task.path)
    try:
        planned = effective_plan(state, task)
    except InputError as error:  # a value from an upstream task asks for something impossible
        return TaskFailed(now, task.path, why=str(error))
    choice = first_choice(state, task, planned, snapshot, now)
    pools = planned.ladder.rungs[choice.rung].pools
    number = len(task.attempts) + 1
    return AttemptPlaced(now, task.path, number, rung=choice.rung, pools=pools, until=choice.until, why=choice.why)


def _lacks_environment(state: RunState, task: TaskState) -> bool:
    if not state.prepares or task.plan.spec.executor is None:
        return False
    key = task.plan.spec.executor.environment
    return key is not None and key not in state.environments


# An attempt has ended


def _close(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """Decide the cause of an ended attempt and what follows."""
    attempt = task.last
    ending = after_waiting(attempt) or classify(judged_signals(task, attempt))
    planned = effective_plan(state, task)
    decided = after_move(task, ending, planned.ladder.on_demand)
    if decided is None:
        decided = following(state, task, planned, ending.cause, snapshot, now)
    return _decided(state, task, attempt, ending, decided, now)


def judged_signals(task: TaskState, attempt: AttemptState) -> Signals:
    """The signals by which the end of an attempt is judged: its end's, with the progress that it reported last.

    A task without declared outputs misses none, so its exit code decides together with its progress.
    """
    signals = attempt.ended.signals if attempt.ended is not None else Signals()
    signals = signals._replace(progress=attempt.progress)
    if task.plan.spec.outputs or signals.outputs_complete is not None:
        return signals
    return signals._replace(outputs_complete=True)


def _decided(
    state: RunState, task: TaskState, attempt: AttemptState, ending: Ending, decided: Decision, now: float
) -> Event:
    return AttemptDecided(
        now,
        task.path,
        attempt.number,
        cause=ending.cause,
        why=ending.why,
        then=decided.then,
        following=decided.why,
        rung=decided.rung if decided.then is FollowUp.RETRY else None,
        due=now + decided.wait / state.time_scale if decided.wait else None,
        wait=decided.wait,
        evidence=ending.evidence,
    )


# Time has passed


def _due(state: RunState, snapshot: Snapshot, now: float) -> list[Event]:
    """Decisions for timers that are due: the end of a backoff, of the wait on a rung, or of the time until the next look."""
    return [_timer(state, task, snapshot, now) for task in due_tasks(state, now)]


def _timer(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    if task.status is TaskStatus.RUNNING:
        return _look(state, task, snapshot, now)
    return (_place if task.status is TaskStatus.BACKOFF else _climb)(state, task, snapshot, now)


def _climb(state: RunState, task: TaskState, snapshot: Snapshot, now: float) -> Event:
    """Move an attempt that had no node for ``pending_timeout`` to the next allowed rung; after the last it is unschedulable.

    An attempt whose pools are in use by other attempts of the run begins at the first rung again (row 7 of the table). While a
    node is on its way for it, it does not wait in vain.
    """
    planned, attempt = effective_plan(state, task), task.last
    node = snapshot.node_on_its_way(task)
    until = end_of_longer_wait(state, task, planned, now) if node else None
    if until is not None:
        why = f"waits on for {', '.join(attempt.pools)}: {node} is on its way"
        return AttemptKept(now, task.path, attempt.number, until=until, why=why)
    why = f"no node on {', '.join(attempt.pools)} for {now - attempt.rung_at:.3g}s: {snapshot.why_pending(task)}"
    why += f", and {node} is not waited for any longer" if node else ""
    choice = next_choice(state, task, planned, snapshot, now)
    if choice is not None and choice.rung == attempt.rung and planned.policy.deadline is not None:
        return AttemptKept(now, task.path, attempt.number, until=choice.until, why=choice.why)
    if choice is not None:
        pools = planned.ladder.rungs[choice.rung].pools
        why = f"{why}; {choice.why}" if choice.why else why
        return AttemptMoved(now, task.path, attempt.number, rung=choice.rung, pools=pools, until=choice.until, why=why)
    why = "; ".join([*attempt.tried, why])
    ending = Ending(Cause.UNSCHEDULABLE, why)
    return _decided(state, task, attempt, ending, Decision(FollowUp.FAIL, f"unschedulable: {why}"), now)


# The end of a run


def _is_late(state: RunState, now: float) -> bool:
    """Whether the time of the whole run is over before all of its tasks have ended."""
    done = state.root is not None and state.root.ended
    return state.ends_by is not None and now >= state.ends_by and not state.halting and not done


def _late(state: RunState) -> str:
    seconds = state.plan.graph.active_deadline or 0.0
    return f"the run took longer than the {seconds:g}s that its pipeline allows (active_deadline_seconds)"


def _halt(state: RunState, now: float) -> list[Event]:
    """Stop the run: ask live attempts to end; finish once none is live."""
    why = "the run was cancelled" if state.cancelling else state.stopping
    if state.under_way:
        return [_halt_attempt(task, why, now) for task in _not_halted(state)]
    status = RunStatus.CANCELLED if state.cancelling else RunStatus.STOPPED
    return [RunFinished(now, status=status, why=why)]


def _finish(state: RunState, now: float) -> list[Event]:
    """The end of the run, once all tasks of the root DAG are done."""
    if state.root is None or not state.root.ended:
        return []
    if not state.root.failed:
        return [RunFinished(now, status=RunStatus.SUCCEEDED)]
    first = state.tasks[state.failed[0]]
    why = state.expired or f"task {first.path} failed: {first.why}"
    return [RunFinished(now, status=RunStatus.FAILED, why=why)]


def _not_halted(state: RunState) -> Iterator[TaskState]:
    return (task for task in map(state.tasks.__getitem__, state.under_way) if not task.last.halted)


def _halt_attempt(task: TaskState, why: str, now: float) -> Event:
    return AttemptHalted(now, task.path, task.last.number, why=why)
