"""Choose the rung on which a task's next attempt waits for a node: by ``pending_timeout``, or by the deadline where one is set.

These are rows 6 to 8 of the design's table, applied to the state of the run.
"""

from __future__ import annotations

from spotwright.engine.decisions.snapshot import Snapshot
from spotwright.engine.io_resolution import inputs_of
from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.workload.transitions import spent_before
from spotwright.model.attempts import Cause
from spotwright.scheduling import budgets, deadline
from spotwright.scheduling.budgets import Decision, LadderPosition
from spotwright.scheduling.deadline import Choice

__all__ = ["effective_plan", "first_choice", "next_choice", "outlook_without_advice", "under_deadline"]


_REACTION = 0.5
"""Real seconds between the end of one attempt and the work of the next beside a node's boot: the engine's turn, two processes."""


def effective_plan(state: RunState, task: TaskState) -> PlannedTask:
    """The task's plan, with the settings that depend on its inputs filled in.

    Raises :class:`InputError` for values that cannot be used.
    """
    if not task.plan.spec.deferred:
        return task.plan
    return state.plan.read_deferred(task.plan, inputs_of(state, task).parameters)


def first_choice(state: RunState, task: TaskState, planned: PlannedTask, snapshot: Snapshot, now: float) -> Choice:
    """The rung on which the next attempt of a task is placed."""
    if planned.policy.deadline is None:
        return _until_patience_ends(state, planned, _rung(task, planned), now)
    if task.next_rung is not None and task.attempts and task.last.moving and task.last.cause is Cause.DISRUPTED:
        patience_ends = now + planned.policy.pending_timeout / state.time_scale
        return Choice(task.next_rung, "on-demand: the attempt before was moved here", patience_ends)
    outlook = _outlook(state, task, planned, task.spent.interruptions, now)
    return deadline.choose(outlook, planned.ladder, snapshot.has_room, _kept_rung(task))


def next_choice(
    state: RunState, task: TaskState, planned: PlannedTask, snapshot: Snapshot, now: float
) -> Choice | None:
    """The next rung for an attempt that had no node for ``pending_timeout``; ``None`` after the last rung."""
    ladder, rung = planned.ladder, task.last.rung
    waits_its_turn = _waits_its_turn(state, task, planned)
    if planned.policy.deadline is not None:
        outlook = _outlook(state, task, planned, task.spent.interruptions, now)
        choice = deadline.choose_while_pending(outlook, ladder, snapshot.has_room, rung)
        return deadline.choose(outlook, ladder, snapshot.has_room) if choice is None and waits_its_turn else choice
    below = budgets.next_rung_while_pending(rung, task.spent, planned.policy, ladder)
    if below is None and waits_its_turn:
        below = budgets.first_rung(task.spent, planned.policy, ladder)
    return None if below is None else _until_patience_ends(state, planned, below, now)


def under_deadline(
    state: RunState,
    task: TaskState,
    planned: PlannedTask,
    cause: Cause,
    following: Decision,
    snapshot: Snapshot,
    now: float,
    position: LadderPosition,
) -> Decision:
    """What follows an attempt under a deadline: its rung by the deadline, and a backoff that ends before the last moment.

    Row 8 of the table, in place of row 6.
    """
    spent = spent_before(state, task).after(cause)
    lost = task.last.pool if cause.is_interruption else None
    outlook = _outlook(state, task, planned, spent.interruptions, now, lost)
    ladder, wait, rung = planned.ladder, following.wait, following.rung
    if cause.is_interruption:
        rung = deadline.choose(outlook, ladder, snapshot.has_room).rung
        wait = budgets.backoff(spent, position, ladder.rungs[rung].pools, planned.policy)
    if ladder.on_demand and outlook.spot_ends is not None:
        wait = max(0.0, min(wait, (outlook.spot_ends - now) * state.time_scale))
    if ladder.on_demand and outlook.only_on_demand:
        wait = 0.0
    return Decision(following.then, following.why, rung, wait)


def _until_patience_ends(state: RunState, planned: PlannedTask, rung: int, now: float) -> Choice:
    return Choice(rung, "", now + planned.policy.pending_timeout / state.time_scale)


def _rung(task: TaskState, planned: PlannedTask) -> int:
    if task.next_rung is not None:
        return task.next_rung
    return budgets.first_rung(task.spent, planned.policy, planned.ladder)


def _kept_rung(task: TaskState) -> int | None:
    """The rung that rows 4 and 5 keep the task on, also under a deadline."""
    cause = task.last.cause if task.attempts else None
    return task.next_rung if cause is Cause.DISRUPTED or (cause is not None and cause.is_error) else None


def _outlook(
    state: RunState, task: TaskState, planned: PlannedTask, interruptions: int, now: float, lost: str | None = None
) -> deadline.Outlook:
    from spotwright.engine.decisions.deadline_advice import advise  # here, because few runs have a deadline

    outlook = outlook_without_advice(state, task, planned, interruptions, now)
    return outlook._replace(rungs=advise(state, planned, outlook, lost))


def outlook_without_advice(
    state: RunState, task: TaskState, planned: PlannedTask, interruptions: int, now: float
) -> deadline.Outlook:
    """What is known of a task with a deadline now, without what a solved policy says."""
    policy = planned.policy
    if policy.deadline is None:
        raise ValueError(f"task {task.path} has no deadline")
    overhead = max(state.expected_boot(name) for rung in planned.ladder.rungs for name in rung.pools)
    launches = planned.steps_after * overhead
    return deadline.Outlook(
        now=now,
        deadline=policy.deadline.moment(state.started_at) - planned.downstream - launches,
        work=policy.work,
        progress=_saved_share(task, planned),
        overhead=overhead,
        interruptions=interruptions,
        max_interruptions=policy.max_interruptions,
        patience=policy.pending_timeout / state.time_scale,
        saves=_saves(task, planned),
        drain=policy.grace_period / state.time_scale + _REACTION,
    )


def _saves(task: TaskState, planned: PlannedTask) -> bool:
    """Whether the work of a task is saved: the policy names a checkpoint, or an earlier attempt went on from one."""
    return planned.policy.checkpoint is not None or any(attempt.first_progress for attempt in task.attempts[1:])


def _saved_share(task: TaskState, planned: PlannedTask) -> float:
    """The share of the work that the next attempt need not do again.

    Reported progress counts as saved only where the work is saved at all.
    """
    reported = (attempt.progress for attempt in reversed(task.attempts) if attempt.progress is not None)
    return next(reported, 0.0) if _saves(task, planned) else 0.0


def _waits_its_turn(state: RunState, task: TaskState, planned: PlannedTask) -> bool:
    """Whether other attempts of the run hold nodes of its pools, or have given them back since it began to wait on its rung."""
    pools = [pool for rung in planned.ladder.rungs for pool in rung.pools]
    return any(state.holding.get(pool) or state.freed.get(pool, 0.0) > task.last.rung_at for pool in pools)
