"""Chooses the rung on which a task's next attempt waits for a node: by ``pending_timeout``, or by the deadline where one is set.

These are rows 6 to 8 of the design's table, applied to the state of the run and to the snapshot: the answers of the world that
one round of decisions uses. Under a deadline the solved policies say what to do: launch on which spot pool, wait until when,
or pay on-demand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spotwright.engine.events import SnapshotTaken
from spotwright.engine.fold import reached_before, spent_before
from spotwright.engine.io_resolution import inputs_of
from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import InputError
from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_duration
from spotwright.scheduling import budgets, deadline, estimates
from spotwright.scheduling.budgets import Decision, LadderPosition
from spotwright.scheduling.deadline import Choice, Outlook, RungAdvice
from spotwright.scheduling.estimates import Pace

if TYPE_CHECKING:
    from spotwright.deadlines.hazards import HazardTable
    from spotwright.deadlines.job_policies import Learned
    from spotwright.deadlines.jobs import Job
    from spotwright.deadlines.solver import RestartTable


__all__ = [
    "Answers",
    "Snapshot",
    "advise",
    "effective_plan",
    "first_choice",
    "needs_of",
    "next_choice",
    "outlook_without_advice",
    "under_deadline",
]


_TICKS = 150  # decisions in the time to a deadline
_LEAST = 0.01  # the share of the work that an attempt has to do, also where all of it was reported
_PARTS = 20  # of the stated work; where it is measured to be less, the table is that of a whole number of them
_SPOT, _ON_DEMAND = 1.0, 3.0  # prices where the pools name none: spot costs a third


class _Market(NamedTuple):
    """What is known of a spot pool now: its hazards, and how long spot is there, or is gone, if it is. Seconds of the tables."""

    hazards: HazardTable
    up_for: float
    down_for: float


def advise(state: RunState, planned: PlannedTask, outlook: Outlook, lost: str | None = None) -> tuple[RungAdvice, ...]:
    """The advice for each spot rung, the best one first; empty where nothing but on-demand is left, or nothing but spot.

    The cheapest pool comes first; of equal prices the one whose spot has lasted longest. ``lost`` is a pool that has just taken a
    node.
    """
    ladder = planned.ladder
    spot = [index for index, rung in enumerate(ladder.rungs) if rung.spot is not False]
    if not outlook.work or not spot or not ladder.on_demand or outlook.only_on_demand:
        return ()
    pools = {index: ladder.rungs[index].pools[0] for index in spot}
    markets = {index: _market(state, pool, outlook.now, lost=pool == lost) for index, pool in pools.items()}
    spot.sort(key=lambda index: (_price(state, pools[index], _SPOT), -markets[index].up_for, index))
    on_demand = _price(state, ladder.rungs[ladder.on_demand[0]].pools[0], _ON_DEMAND)
    prices = {index: (_price(state, pool, _SPOT), on_demand) for index, pool in pools.items()}
    return tuple(_of_rung(state, index, markets[index], prices[index], outlook) for index in spot)


def _of_rung(state: RunState, rung: int, market: _Market, prices: tuple[float, float], outlook: Outlook) -> RungAdvice:
    from spotwright.deadlines.jobs import Job

    scale, needs = state.time_scale, outlook.needs
    whole, remaining = outlook.deadline - state.started_at, outlook.deadline - outlook.now
    if outlook.saves:  # few tables, of the stated work or less: margins and what turns out slower shorten the time
        launch, stated = needs.launch.expected, outlook.work or 0.0
        parts = math.ceil(min(1.0, needs.whole.expected / stated) * _PARTS - 1e-9) / _PARTS if stated else 0.0
        work = min(stated * parts, max(0.0, whole - launch))
        left = min(work, max(_LEAST * work, needs.left.expected))
        remaining -= needs.left.at_most - left + needs.launch.at_most - launch
    else:
        work = left = needs.whole.at_most
        launch = needs.launch.at_most
    job = Job(work * scale, whole * scale, launch * scale, *prices)
    remaining, left = remaining * scale, left * scale
    if not job.is_possible:
        launches, waits = False, 0.0
    elif outlook.saves:
        launches, waits = _saving(job, market, remaining, left)
    else:
        launches, waits = _restarting(job, market, remaining, outlook.drain * scale)
    return RungAdvice(rung, launches, outlook.now + waits / scale, _numbers(job, market, outlook))


def _saving(job: Job, market: _Market, remaining: float, left: float) -> tuple[bool, float]:
    """Whether a launch on spot pays for a job that saves its work, and for how many seconds it pays to wait for one.

    Where the table would wait although spot is there (for an older spell, or because it costs the same) the job launches: in the
    queue of a pool with room it gets a node at once.
    """
    from spotwright.deadlines.job_policies import decide
    from spotwright.deadlines.jobs import Action, Moment

    policy = _solved(job, market.hazards)
    tick = policy.table.grid.tick
    moment = Moment(remaining, left, Action.WAIT, 0.0, up=True, age=market.up_for + tick)
    launches = decide(policy, job, moment, tick) is not Action.ON_DEMAND
    waiting = moment._replace(up=False, age=market.down_for + tick)
    steps = 0
    while decide(policy, job, waiting, tick) is Action.WAIT:
        steps += 1
        waiting = waiting._replace(remaining=waiting.remaining - tick, age=waiting.age + tick)
    return launches, steps * tick


def _restarting(job: Job, market: _Market, remaining: float, drain: float) -> tuple[bool, float]:
    """The same for a job that does not save its work."""
    from spotwright.deadlines.jobs import Action
    from spotwright.deadlines.solver import spot_ends

    table = _solved_restarts(job, market.hazards, drain)
    launches = table.action(remaining, up=True, age=market.up_for) is Action.SPOT
    waited, latest = 0.0, remaining - spot_ends(job, drain)
    while waited < latest and table.action(remaining - waited, up=False, age=market.down_for + waited) is Action.WAIT:
        waited += table.tick
    return launches, max(0.0, min(waited, latest))


def _market(state: RunState, pool: str, now: float, *, lost: bool) -> _Market:
    """What the run and earlier ones have seen of a pool; of one that nobody has seen, what is shipped."""
    sightings = state.sightings.get(pool)
    if sightings is None:
        from spotwright.deadlines.hazards import SHIPPED

        return _Market(SHIPPED, SHIPPED.up.first_age(), SHIPPED.down.first_age())
    if lost:
        return _Market(sightings.table, 0.0, 0.0)
    moment = now * state.time_scale
    return _Market(sightings.table, sightings.age(moment, up=True), sightings.age(moment, up=False))


def _price(state: RunState, pool: str, default: float) -> float:
    price = state.plan.config.pools[pool].price
    return default if price is None else float(price)


def _numbers(job: Job, market: _Market, outlook: Outlook) -> str:
    """The figures of a decision, in words. Work and slack are in real time, spells in the time of the simulated world."""
    from spotwright.deadlines.hazards import bucket

    ratio = job.on_demand_price / job.spot_price if job.spot_price > 0 else 0.0
    price = f"on-demand costs {ratio:.2g} times as much" if ratio else "spot costs nothing"
    needs = outlook.needs
    left = needs.left if outlook.saves else needs.whole
    slack = format_duration(outlook.deadline - outlook.now - left.at_most - needs.launch.at_most)
    work, launch = format_duration(left.expected), format_duration(needs.launch.expected)
    lost = market.hazards.up.chance(bucket(market.up_for))
    back = market.hazards.down.chance(bucket(market.down_for))
    return (
        f"{work} of work and {slack} of slack are left, a launch takes {launch}, {price}; within ten minutes spot that has "
        f"lasted {format_duration(market.up_for)} is lost in {lost:.0%} of cases, and spot that has been gone for "
        f"{format_duration(market.down_for)} comes back in {back:.0%}"
    )


@lru_cache(maxsize=16)
def _solved(job: Job, hazards: HazardTable) -> Learned:
    """The policy of a job; tasks with the same figures share it."""
    from spotwright.deadlines.job_policies import Learned
    from spotwright.deadlines.solver import solve

    return Learned(solve(job, hazards, tick=max(job.deadline / _TICKS, job.overhead / 4), per_tick=5))


@lru_cache(maxsize=64)
def _solved_restarts(job: Job, hazards: HazardTable, drain: float) -> RestartTable:
    from spotwright.deadlines.solver import solve_restarts

    return solve_restarts(job, hazards, drain)


class Answers(Protocol):
    """The questions of decisions; the world answers them."""

    def has_room(self, pool: str) -> bool:
        """Whether the pool has or could add a node with room now, as far as the body knows."""

    def why_pending(self, task: TaskState) -> str:
        """Why the task's newest attempt has no node yet, as text for the user."""


class Snapshot:
    """The answers of one round of decisions.

    Without a world (in replays, and when a run is recovered) the answers are those of ``room`` and ``waiting``; by default every
    pool has room, and an attempt waits because there is "no node".
    """

    def __init__(
        self,
        world: Answers | None = None,
        *,
        room: Mapping[str, bool] | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> None:
        self._world = world
        self._room, self._waiting = dict(room or {}), dict(waiting or {})

    def has_room(self, pool: str) -> bool:
        """Whether the pool had or could add a node with room when the round began."""
        if pool not in self._room:
            self._room[pool] = True if self._world is None else self._world.has_room(pool)
        return self._room[pool]

    def why_pending(self, task: TaskState) -> str:
        """Why the task's newest attempt had no node when the round began, as text for the user."""
        if task.path not in self._waiting:
            self._waiting[task.path] = "no node" if self._world is None else self._world.why_pending(task)
        return self._waiting[task.path]

    def as_event(self, at: float) -> SnapshotTaken | None:
        """The answers that were used, as an event for the journal; ``None`` if no question was asked."""
        if not self._room and not self._waiting:
            return None
        return SnapshotTaken(at, room=self._room, waiting=self._waiting)


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

    outlook = outlook_without_advice(state, task, planned, interruptions, now)
    return outlook._replace(rungs=advise(state, planned, outlook, lost))


def outlook_without_advice(
    state: RunState, task: TaskState, planned: PlannedTask, interruptions: int, now: float
) -> deadline.Outlook:
    """What is known of a task with a deadline now, without what a solved policy says."""
    policy = planned.policy
    if policy.deadline is None:
        raise ValueError(f"task {task.path} has no deadline")
    pools = [state.launches(name) for name in dict.fromkeys(n for rung in planned.ladder.rungs for n in rung.pools)]
    later = planned.downstream + planned.steps_after * max(each.boot.expected for each in pools)
    deadline_at = policy.deadline.moment(state.started_at) - later
    progress, pace, stated = _saved_share(task, planned), _pace(task, policy.work or 0.0), policy.work or 0.0
    starts = _starts(task, pace) if pace.is_seen(stated) else []
    needs = estimates.needs(stated, progress, pace, pools, starts, deadline_at - state.started_at)
    return deadline.Outlook(
        now=now,
        deadline=deadline_at,
        work=policy.work,
        progress=progress,
        overhead=needs.launch.expected,
        interruptions=interruptions,
        max_interruptions=policy.max_interruptions,
        patience=policy.pending_timeout / state.time_scale,
        saves=_saves(task, planned),
        drain=policy.grace_period / state.time_scale + _REACTION,
        estimated=needs,
    )


def needs_of(state: RunState, task: TaskState) -> estimates.Needs | None:
    """What a task with a deadline and stated work needs, as the next decision about it reckons; ``None`` for any other task.

    Nor is there a figure before its first attempt.
    """
    if not task.attempts:
        return None
    try:
        planned = effective_plan(state, task)
    except InputError:  # its decisions say so
        return None
    if planned.policy.deadline is None or not planned.policy.work or not planned.ladder.rungs:
        return None
    return outlook_without_advice(state, task, planned, 0, state.last_at).needs


def _pace(task: TaskState, stated: float) -> Pace:
    """The pace of a task's work, by the reports of all its attempts."""
    if not task.attempts:
        return task.pace
    return estimates.pace_now(task.pace, task.last.measured, reached_before(task, task.last), stated)


def _starts(task: TaskState, pace: Pace) -> list[float]:
    """The seconds that attempts of a task took on their nodes until its work went on."""
    seen = (attempt.started_in for attempt in task.attempts)
    return [estimates.start_of(pace, *each) for each in seen if each is not None]


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
