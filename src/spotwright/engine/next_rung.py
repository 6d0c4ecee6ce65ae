"""Chooses the rung on which a task's next attempt waits for a node: by ``pending_timeout``, or by the deadline if set.

These are rows 6 to 8 of the design's table, applied to the state of the run and to the snapshot: the world's answers for one
round of decisions. Under a deadline the cost of each action decides: launch on a spot pool, wait, or use on-demand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spotwright.engine.attempt_history import history_of, past_of
from spotwright.engine.events import SnapshotTaken
from spotwright.engine.io_resolution import inputs_of
from spotwright.engine.observations import reached_before
from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.errors import InputError
from spotwright.model.attempts import Cause
from spotwright.model.quantities import format_duration
from spotwright.scheduling import budgets, deadline, estimates
from spotwright.scheduling.budgets import AttemptLife, BudgetUse, Decision, LadderPosition, Useless
from spotwright.scheduling.deadline import Advice, Choice, Outlook
from spotwright.scheduling.estimates import Pace
from spotwright.scheduling.ladder import Ladder
from spotwright.scheduling.next_attempt import next_rung

if TYPE_CHECKING:
    from spotwright.deadlines.choice import Chooser, Limits, Pool, Situation
    from spotwright.deadlines.hazards import HazardTable
    from spotwright.deadlines.jobs import Job
    from spotwright.deadlines.solver import RestartTable


__all__ = [
    "PARTS",
    "Answers",
    "Snapshot",
    "advise",
    "effective_plan",
    "end_of_longer_wait",
    "expected_rung",
    "first_choice",
    "following",
    "needs_of",
    "next_choice",
    "outlook_without_advice",
    "rung_after",
]


PARTS = 5000
"""A last moment nearer than this fraction of the work counts as now."""

_LOOK = 300.0  # simulated seconds between two decisions about a task with a deadline, at most
_SHORTEST_LOOK = 0.2  # real seconds between them, at least
_LEAST = 0.01  # the share of the work that an attempt has to do, even if all of it was reported
_PARTS = 20  # of the stated work; if less is measured, the table is for a whole number of them
_RELATIVE = {True: 1.0, False: 3.0}  # prices without a pool's price: spot costs a third, as in a forecast
_NEVER = 1e8  # the cost above which an action is impossible


class _Market(NamedTuple):
    """The current knowledge of a spot pool, in simulated seconds.

    ``age`` is how long spot has been available (``up``) or not. ``before`` has earlier runs' counts, ``table`` all runs'.
    """

    name: str
    rung: int
    price: float
    up: bool
    age: float
    before: HazardTable
    table: HazardTable


class _Place(NamedTuple):
    """A task's place: its mode (:class:`~spotwright.deadlines.jobs.Action`), its pool, and the rest of its launch.

    ``pool`` is the index of its current or last spot pool; -1: none. ``starting`` is in real seconds.
    """

    mode: int
    pool: int
    starting: float


def advise(
    state: RunState,
    task: TaskState,
    planned: PlannedTask,
    outlook: Outlook,
    snapshot: Snapshot,
    lost: str | None = None,
) -> Advice | None:
    """The cheapest safe action of a task now; ``None`` if only on-demand or only spot is left.

    ``lost`` is a pool that has just reclaimed a node.
    """
    ladder = planned.ladder
    if not outlook.work or not ladder.on_demand or outlook.only_on_demand:
        return None
    prices, currency = _prices(state, ladder)
    markets = _markets(state, task, planned, prices, outlook.now, snapshot, lost)
    whole = (outlook.deadline - state.started_at) * state.time_scale
    if not markets or outlook.overhead * state.time_scale >= whole:
        return None
    from spotwright.deadlines.jobs import Job

    on_demand = prices[ladder.rungs[ladder.on_demand[0]].pools[0]]
    needs, stated = outlook.needs, outlook.work
    if outlook.saves:  # few tables: for the stated work, or for a fraction of it if less is measured
        launch, parts = (
            needs.launch.expected,
            math.ceil(min(1.0, needs.whole.expected / stated) * _PARTS - 1e-9) / _PARTS,
        )
        work = stated * parts
    else:
        work, launch = needs.whole.at_most, needs.launch.at_most
    launch = _in_steps(launch) * state.time_scale
    work = min(work * state.time_scale, whole - launch)
    job = Job(work, whole, launch, min(each.price for each in markets), on_demand)
    words = _Words(outlook, currency, state.time_scale)
    if outlook.saves:
        return _saving(state, task, job, markets, outlook, words, snapshot)
    return _restarting(state, task, job, markets, outlook, words)


def _saving(
    state: RunState,
    task: TaskState,
    job: Job,
    markets: Sequence[_Market],
    outlook: Outlook,
    words: _Words,
    snapshot: Snapshot,
) -> Advice:
    """The action of a job that saves its work, by :mod:`spotwright.deadlines.choice`."""
    from spotwright.deadlines.choice import Limits, Pool
    from spotwright.deadlines.jobs import Action

    scale, work = state.time_scale, outlook.work or 0.0
    pools = tuple(Pool(each.price, each.table.up, state.plan.config.pools[each.name].region) for each in markets)
    unsaved = next((each.between_reports for each in reversed(task.attempts) if each.reported_at is not None), 0.0)
    look = min(1.0, work / PARTS)
    limits = Limits(*(each * scale for each in (outlook.needs.launch.at_most, outlook.drain, look, unsaved)))
    chooser = _chooser(job, pools, limits, _known_before(markets))
    place = _place(state, task, markets, outlook, snapshot)
    found = chooser.choose(_situation(state, markets, outlook, place))
    action, best, safe = int(found.action[0]), int(found.pool[0]), float(found.until[0]) / scale
    costs = (float(found.wait[0]), float(found.on_demand[0]), [float(each[0]) for each in found.spot])
    until = outlook.now + min(safe, max(min(_LOOK, chooser.table.grid.tick) / scale, _SHORTEST_LOOK))
    here = costs[1] if place.mode == Action.ON_DEMAND else costs[2][place.pool]
    waits = _to_wait_for(task, markets) if action == Action.WAIT else None
    if waits is not None:
        return Advice(waits, False, until, words.better(costs[1] - costs[0]))
    if action == Action.ON_DEMAND or (action == Action.WAIT and costs[1] < costs[2][best]):
        gain = here - costs[1] if place.mode == Action.SPOT else 0.0
        gain = gain if 0.0 < gain < _NEVER else 0.0
        return Advice(None, False, until, words.on_demand(min(costs[0], *costs[2]) - costs[1]), *words.gain(gain))
    name, gain = markets[best].name, here - costs[2][best]
    if place.mode == Action.WAIT:
        gain = 0.0
    return Advice(markets[best].rung, True, until, words.better(costs[1] - costs[2][best], name), *words.gain(gain))


def _in_steps(seconds: float) -> float:
    """A duration rounded to steps of a tenth: measurements change slightly at every look, and each table takes time."""
    return 1.1 ** round(math.log(seconds, 1.1)) if seconds > 0.0 else 0.0


def _situation(state: RunState, markets: Sequence[_Market], outlook: Outlook, place: _Place) -> Situation:
    import numpy as np

    from spotwright.deadlines.choice import Situation
    from spotwright.deadlines.jobs import Action

    scale, work = state.time_scale, outlook.work or 0.0
    here = place.pool if place.mode == Action.SPOT else -1  # a pool whose last node boots for the task has room
    needs = outlook.needs
    return Situation(
        remaining=np.array([(outlook.deadline - outlook.now) * scale]),
        left=np.array([max(_LEAST * work, needs.left.expected) * scale]),
        at_most=np.array([needs.left.at_most * scale]),
        mode=np.array([place.mode]),
        pool=np.array([place.pool]),
        starting=np.array([place.starting * scale]),
        up=np.array([[each.up or index == here] for index, each in enumerate(markets)]),
        age=np.array([[each.age] for each in markets]),
    )


def _place(
    state: RunState, task: TaskState, markets: Sequence[_Market], outlook: Outlook, snapshot: Snapshot
) -> _Place:
    """The current place of a task. An attempt whose node boots is launching; any other one without a node waits."""
    from spotwright.deadlines.jobs import Action

    names = {each.name: index for index, each in enumerate(markets)}
    last = next((names[each.pool] for each in reversed(task.attempts) if each.pool in names), -1)
    attempt = task.last if task.attempts else None
    if attempt is None or not attempt.is_live:
        return _Place(Action.WAIT, last, 0.0)
    pool, starting = attempt.pool, 0.0
    if pool is None:
        coming = state.nodes.get(snapshot.node_on_its_way(task))
        if coming is None or coming.state != "booting":
            return _Place(Action.WAIT, last, 0.0)
        pool, starting = coming.pool, max(0.0, outlook.overhead - (outlook.now - coming.booted_at))
    if pool in names:
        return _Place(Action.SPOT, names[pool], starting)
    return _Place(Action.ON_DEMAND, last, starting)


def _to_wait_for(task: TaskState, markets: Sequence[_Market]) -> int | None:
    """The rung of the cheapest spot pool without room; ``None`` if all have room: waiting there would be a launch."""
    rung = task.last.rung if task.attempts and task.last.is_live else None
    without = [each for each in markets if not each.up]
    best = min(without, key=lambda each: (each.price, each.rung != rung, each.rung), default=None)
    return None if best is None else best.rung


def _restarting(
    state: RunState, task: TaskState, job: Job, markets: Sequence[_Market], outlook: Outlook, words: _Words
) -> Advice:
    """The action of a job that does not save: the cheapest of a launch or a wait for each spot pool, and of on-demand."""
    from spotwright.deadlines.jobs import Action

    scale = state.time_scale
    remaining, drain = (outlook.deadline - outlook.now) * scale, outlook.drain * scale
    found: list[tuple[float, bool, bool, int, _Market]] = []
    tick, rung = _LOOK, task.last.rung if task.attempts and task.last.is_live else None
    for each in markets:
        table = _solved_restarts(job._replace(spot_price=each.price), each.before, drain)
        tick = min(tick, table.tick)
        if table.action(remaining, up=each.up, age=each.age) is not Action.ON_DEMAND:
            cost = table.cost(remaining, up=each.up, age=each.age)
            found.append((cost, not each.up, each.rung != rung, each.rung, each))
    until = outlook.now + max(tick / scale, _SHORTEST_LOOK)
    until = until if outlook.spot_ends is None else min(until, outlook.spot_ends)
    on_demand = (job.work + job.overhead) * job.on_demand_price / 3600.0
    if not found:
        return Advice(None, False, until, words.on_demand(_NEVER))
    cost, waits, _, _, best = min(found)
    why = words.better(on_demand - cost, "" if waits else best.name)
    return Advice(best.rung, not waits, until, why)


def _markets(
    state: RunState,
    task: TaskState,
    planned: PlannedTask,
    prices: Mapping[str, float],
    now: float,
    snapshot: Snapshot,
    lost: str | None,
) -> list[_Market]:
    """The observations of a ladder's spot pools by this run and earlier ones; for an unseen pool, the shipped figures.

    The pool on which the task runs is up, even if the run uses all of its nodes.
    """
    pools, rungs = state.plan.config.pools, enumerate(planned.ladder.rungs)
    named = [(name, index) for index, rung in rungs if rung.spot is not False for name in rung.pools]
    here = task.last.pool if task.attempts and task.last.is_live else None
    return [
        _market(state, name, index, prices[name], now, up=snapshot.has_room(name) or name == here, lost=name == lost)
        for name, index in named
        if pools[name].is_spot
    ]


def _market(state: RunState, name: str, rung: int, price: float, now: float, *, up: bool, lost: bool) -> _Market:
    from spotwright.deadlines.hazards import NOTHING, SHIPPED, Sightings, learned

    seen = state.sightings.get(name) or Sightings()
    moment = now * state.time_scale
    age = 0.0 if lost else seen.age(moment, up=up)
    before = SHIPPED if seen.before == NOTHING else learned(seen.before)
    return _Market(name, rung, price, up, age, before, seen.table)


def _known_before(markets: Sequence[_Market]) -> HazardTable:
    """The counts of spells in these pools by earlier runs, else the shipped ones."""
    from spotwright.deadlines.hazards import SHIPPED, added

    return reduce(added, [each.before for each in markets if each.before != SHIPPED] or [SHIPPED])


def _prices(state: RunState, ladder: Ladder) -> tuple[dict[str, float], str]:
    """The prices of a ladder's pools, and their currency; relative prices without a currency if a pool has no price."""
    config = state.plan.config
    pools = [config.pools[name] for rung in ladder.rungs for name in rung.pools]
    stated = {pool.name: float(pool.price) for pool in pools if pool.price is not None}
    if all(pool.name in stated for pool in pools):
        return stated, config.currency
    return {pool.name: _RELATIVE[pool.is_spot] for pool in pools}, ""


class _Words:
    """Puts the figures of a decision into words: the slack, and mean costs until the end of the work.

    Both are in real time, as in the account of the run.
    """

    def __init__(self, outlook: Outlook, currency: str, time_scale: float) -> None:
        needs = outlook.needs.left.expected + outlook.overhead
        slack = max(0.0, outlook.deadline - outlook.now - needs)
        self._slack = f"{format_duration(slack)} of slack"
        self._currency, self._time_scale = currency, time_scale

    def better(self, saved: float, pool: str = "") -> str:
        """Why a task goes to a spot pool, stays there or waits for it."""
        if saved >= _NEVER:
            return f"{self._slack}, and no other choice is possible"
        what = f"{pool} is expected" if pool else "expected"
        return f"{self._slack}, {what} to save {self._amount(saved)} over going to on-demand now"

    def on_demand(self, saved: float) -> str:
        """Why a task goes to on-demand, or stays there."""
        if saved >= _NEVER:
            return f"{self._slack}, and no other choice is possible"
        return f"{self._slack}, expected to save {self._amount(saved)} over the best use of spot"

    def gain(self, gain: float) -> tuple[float, str]:
        """A gain, and the sentence of a move for it."""
        if gain <= 0.0:
            return 0.0, ""
        return gain, f"{self._slack}, expected to save {self._amount(gain)}"

    def _amount(self, amount: float) -> str:
        """An amount of money, from simulated time; without prices as time on on-demand."""
        amount = max(0.0, amount) / self._time_scale
        if not self._currency:
            return f"the price of {format_duration(amount * 3600.0 / _RELATIVE[False])} on on-demand"
        if amount < 0.0001:
            return f"less than 0.0001 {self._currency}"
        return f"{amount:.2f} {self._currency}" if amount >= 0.1 else f"{amount:.4f} {self._currency}"


@lru_cache(maxsize=64)
def _chooser(job: Job, pools: tuple[Pool, ...], limits: Limits, before: HazardTable) -> Chooser:
    """The policy of a job, shared by tasks with the same figures."""
    from spotwright.deadlines.choice import chooser

    return chooser(job, pools, limits, before.down, before.up)


@lru_cache(maxsize=64)
def _solved_restarts(job: Job, hazards: HazardTable, drain: float) -> RestartTable:
    from spotwright.deadlines.solver import solve_restarts

    return solve_restarts(job, hazards, drain)


class Answers(Protocol):
    """The questions of decisions to the world."""

    def has_room(self, pool: str) -> bool:
        """Whether the pool has or could add a node with room now, to the body's knowledge."""

    def why_pending(self, task: TaskState) -> str:
        """Why the task's newest attempt has no node yet, for the user."""

    def node_on_its_way(self, task: TaskState) -> str:
        """The name of the booting node for the task's newest attempt; empty without one."""


class Snapshot:
    """The answers of one round of decisions.

    Without a world (in replays, and when a run is recovered) the answers are ``room``, ``waiting`` and ``coming``; by default
    every pool has room, an attempt waits because of "no node", and no node is on its way.
    """

    def __init__(
        self,
        world: Answers | None = None,
        *,
        room: Mapping[str, bool] | None = None,
        waiting: Mapping[str, str] | None = None,
        coming: Mapping[str, str] | None = None,
    ) -> None:
        self._world = world
        self._room, self._waiting, self._coming = dict(room or {}), dict(waiting or {}), dict(coming or {})

    def has_room(self, pool: str) -> bool:
        """Whether the pool had or could add a node with room when the round began."""
        if pool not in self._room:
            self._room[pool] = True if self._world is None else self._world.has_room(pool)
        return self._room[pool]

    def why_pending(self, task: TaskState) -> str:
        """Why the task's newest attempt had no node when the round began, for the user."""
        if task.path not in self._waiting:
            self._waiting[task.path] = "no node" if self._world is None else self._world.why_pending(task)
        return self._waiting[task.path]

    def node_on_its_way(self, task: TaskState) -> str:
        """The booting node for the task's newest attempt when the round began; empty without one."""
        if task.path not in self._coming:
            self._coming[task.path] = "" if self._world is None else self._world.node_on_its_way(task)
        return self._coming[task.path]

    def as_event(self, at: float) -> SnapshotTaken | None:
        """The used answers as an event for the journal; ``None`` if no question was asked."""
        coming = {path: node for path, node in self._coming.items() if node}
        if not self._room and not self._waiting and not coming:
            return None
        return SnapshotTaken(at, room=self._room, waiting=self._waiting, coming=coming)


_REACTION = 0.5
"""Real seconds from the end of an attempt to the work of the next, without a boot: the engine's turn, two processes."""


def effective_plan(state: RunState, task: TaskState) -> PlannedTask:
    """The task's plan, with the settings that depend on its inputs filled in.

    Raises :class:`InputError` for unusable values.
    """
    if not task.plan.spec.deferred:
        return task.plan
    return state.plan.read_deferred(task.plan, inputs_of(state, task).parameters)


def first_choice(state: RunState, task: TaskState, planned: PlannedTask, snapshot: Snapshot, now: float) -> Choice:
    """The rung on which the next attempt of a task is placed."""
    if planned.policy.deadline is None:
        return _until_patience_ends(state, planned, expected_rung(task, planned), now)
    moved = bool(task.attempts) and bool(task.last.moving) and task.last.cause is Cause.DISRUPTED
    if moved and task.next_rung in planned.ladder.on_demand:
        outlook = outlook_without_advice(state, task, planned, now)
        why = "on-demand: the attempt before was moved here"
        return deadline.choose_on_demand(outlook, planned.ladder, snapshot.has_room, why)
    outlook = _outlook(state, task, planned, now, snapshot)
    kept = _kept_rung(task)
    if not moved:
        return deadline.choose(outlook, planned.ladder, snapshot.has_room, kept)
    if kept is None or not deadline.any_room(planned.ladder, [kept], snapshot.has_room):
        return deadline.choose(outlook, planned.ladder, snapshot.has_room)
    choice = deadline.choose(outlook, planned.ladder, snapshot.has_room, kept)  # the earlier choice
    if choice.rung != kept or outlook.advice is None:
        return choice
    return Choice(kept, "spot: the attempt before was moved here", outlook.advice.until)


def next_choice(
    state: RunState, task: TaskState, planned: PlannedTask, snapshot: Snapshot, now: float
) -> Choice | None:
    """The next rung for an attempt that had no node for ``pending_timeout``; ``None`` after the last rung."""
    ladder, rung = planned.ladder, task.last.rung
    waits_its_turn = _waits_its_turn(state, task, planned)
    if planned.policy.deadline is not None:
        outlook = _outlook(state, task, planned, now, snapshot)
        choice = deadline.choose_while_pending(outlook, ladder, snapshot.has_room, rung)
        return deadline.choose(outlook, ladder, snapshot.has_room) if choice is None and waits_its_turn else choice
    below = budgets.next_rung_while_pending(rung, task.spent, planned.policy, ladder)
    if below is None and waits_its_turn:
        below = budgets.first_rung(task.spent, planned.policy, ladder)
    return None if below is None else _until_patience_ends(state, planned, below, now)


_LONGEST_ORDER = 900.0
"""The least seconds to wait for a node on its way: ``--max-node-provision-time`` of the cluster autoscaler."""

_LOOKS = 16  # at an attempt whose node is on its way, at most


def end_of_longer_wait(state: RunState, task: TaskState, planned: PlannedTask, now: float) -> float | None:
    """The extended end of an attempt's wait on its rung, because a node is on its way for it (row 7).

    It waits for ``pending_timeout`` again, so that the next rung is not far if the node is lost meanwhile. ``None``: no
    extension, because nodes have been on their way for more than twice the expected boot time, and for more than fifteen
    minutes; or because the task must leave spot.
    """
    attempt, ladder = task.last, planned.ladder
    patience = planned.policy.pending_timeout / state.time_scale
    boot = max(state.launches(pool).boot.expected for pool in attempt.pools)
    longest = max(2.0 * boot, _LONGEST_ORDER / state.time_scale)
    last = attempt.rung_at + patience + longest
    if planned.policy.deadline is not None and ladder.on_demand and attempt.rung not in ladder.on_demand:
        outlook = outlook_without_advice(state, task, planned, now)
        last = now if outlook.only_on_demand or outlook.spot_ends is None else min(last, outlook.spot_ends)
    until = min(last, now + max(patience, longest / _LOOKS))
    return until if until > now else None


def following(
    state: RunState, task: TaskState, planned: PlannedTask, cause: Cause, snapshot: Snapshot, now: float
) -> Decision:
    """The decision after a task's newest attempt, which ended with ``cause``, not folded yet."""
    attempt, in_vain = task.last, cause is Cause.UNSCHEDULABLE
    ended = past_of(attempt)._replace(cause=cause, rung=attempt.rung, pool=attempt.taken_by, waited_in_vain=in_vain)
    if cause.is_interruption:
        stalled = budgets.count_stalled(
            list(lives(state, task, cause)), planned.policy.interruption_backoff.max_backoff
        )
        ended = ended._replace(stalled=stalled, useless=useless_attempts(state, task, planned, cause))
    history = history_of(state, task, attempt, ended)

    def by_deadline(decided: Decision, position: LadderPosition) -> Decision:
        return _under_deadline(state, task, planned, cause, decided, snapshot, now, position)

    deadline_counts = planned.policy.deadline is not None
    found = next_rung(history, planned.policy, planned.ladder, deadline=by_deadline if deadline_counts else None)
    decided = found.following
    if decided is None:
        raise ValueError(f"attempt {attempt.number} of {task.path} has not ended")
    if not history[-1].waited_in_vain:
        return decided
    where = ", ".join(planned.ladder.rungs[found.rung].pools)
    return decided._replace(why=f"the next attempt waits on {where}" if in_vain else "with its set")


def rung_after(state: RunState, task: TaskState, attempt: AttemptState, cause: Cause) -> int:
    """The rung after an attempt that ended with ``cause`` after the next one had been made, without a deadline."""
    ended = past_of(attempt)._replace(cause=cause, rung=attempt.rung)
    return next_rung(history_of(state, task, attempt, ended), task.plan.policy, task.plan.ladder).rung


def _under_deadline(
    state: RunState,
    task: TaskState,
    planned: PlannedTask,
    cause: Cause,
    decided: Decision,
    snapshot: Snapshot,
    now: float,
    position: LadderPosition,
) -> Decision:
    """The decision after an attempt under a deadline: its rung by the deadline, and a backoff that ends before the last moment.

    Row 8 of the table, instead of row 6.
    """
    spent = task.spent.after(cause)
    lost = task.last.pool if cause.is_interruption else None
    outlook = _outlook(state, task, planned, now, snapshot, cause, lost)
    ladder, wait, rung = planned.ladder, decided.wait, decided.rung
    if cause.is_interruption:
        rung = deadline.choose(outlook, ladder, snapshot.has_room).rung
        wait = budgets.backoff(spent, position, ladder.rungs[rung].pools, planned.policy)
    if ladder.on_demand and outlook.spot_ends is not None:
        wait = max(0.0, min(wait, (outlook.spot_ends - now) * state.time_scale))
    if ladder.on_demand and outlook.only_on_demand:
        wait = 0.0
    return Decision(decided.then, decided.why, rung, wait)


def _until_patience_ends(state: RunState, planned: PlannedTask, rung: int, now: float) -> Choice:
    return Choice(rung, "", now + planned.policy.pending_timeout / state.time_scale)


def expected_rung(task: TaskState | None, planned: PlannedTask) -> int:
    """The rung decided for a task's next attempt; by default the first one."""
    if task is not None and task.next_rung is not None:
        return task.next_rung
    return budgets.first_rung(BudgetUse() if task is None else task.spent, planned.policy, planned.ladder)


def _kept_rung(task: TaskState) -> int | None:
    """The rung on which rows 4 and 5 keep the task, also under a deadline."""
    cause = task.last.cause if task.attempts else None
    return task.next_rung if cause is Cause.DISRUPTED or (cause is not None and cause.is_error) else None


def _outlook(
    state: RunState,
    task: TaskState,
    planned: PlannedTask,
    now: float,
    snapshot: Snapshot,
    cause: Cause | None = None,
    lost: str | None = None,
) -> Outlook:
    outlook = outlook_without_advice(state, task, planned, now, cause)
    return outlook._replace(advice=advise(state, task, planned, outlook, snapshot, lost))


def outlook_without_advice(
    state: RunState, task: TaskState, planned: PlannedTask, now: float, cause: Cause | None = None
) -> deadline.Outlook:
    """The outlook of a task with a deadline, without the advice by costs.

    ``cause`` is the cause of its newest attempt's end, if not folded yet.
    """
    policy = planned.policy
    if policy.deadline is None:
        raise ValueError(f"task {task.path} has no deadline")
    pools = [state.launches(name) for name in dict.fromkeys(n for rung in planned.ladder.rungs for n in rung.pools)]
    later = planned.downstream + planned.steps_after * max(each.boot.expected for each in pools)
    deadline_at = policy.deadline.moment(state.started_at) - later
    progress, pace, stated = (
        _saved_share(task, planned),
        _pace(task, policy.expected_duration or 0.0),
        policy.expected_duration or 0.0,
    )
    starts = _starts(task, pace) if pace.is_seen(stated) else []
    needs = estimates.needs(stated, progress, pace, pools, starts, deadline_at - state.started_at)
    return deadline.Outlook(
        now=now,
        deadline=deadline_at,
        work=policy.expected_duration,
        progress=progress,
        overhead=needs.launch.expected,
        useless=useless_attempts(state, task, planned, cause).spot,
        max_interruptions=policy.max_interruptions,
        patience=policy.pending_timeout / state.time_scale,
        saves=_saves(task, planned),
        drain=policy.grace_period / state.time_scale + _REACTION,
        estimated=needs,
    )


def useless_attempts(state: RunState, task: TaskState, planned: PlannedTask, cause: Cause | None = None) -> Useless:
    """The number of consecutive no-progress attempts. ``cause`` is the newest one's, if not folded yet."""
    ceiling = planned.policy.interruption_backoff.max_backoff
    return budgets.count_useless(list(lives(state, task, cause)), ceiling, saves=_saves(task, planned))


def lives(state: RunState, task: TaskState, cause: Cause | None = None) -> Iterator[AttemptLife]:
    """The progress of each ended attempt of a task. ``cause`` is the newest one's, if not folded yet."""
    for attempt in task.attempts:
        if attempt.runs_since is None or attempt.ended_at is None:
            continue
        ended_by = cause if attempt.cause is None else attempt.cause
        lived = (attempt.ended_at - attempt.runs_since) * state.time_scale
        on_demand = attempt.rung in task.plan.ladder.on_demand
        yield AttemptLife(ended_by is not None and ended_by.is_interruption, attempt.progress, lived, on_demand)


def needs_of(state: RunState, task: TaskState) -> estimates.Needs | None:
    """The needs of a task with a deadline and stated work, as in its next decision; ``None`` for any other task.

    Also ``None`` before its first attempt.
    """
    if not task.attempts:
        return None
    try:
        planned = effective_plan(state, task)
    except InputError:  # its decisions report it
        return None
    if planned.policy.deadline is None or not planned.policy.expected_duration or not planned.ladder.rungs:
        return None
    return outlook_without_advice(state, task, planned, state.last_at).needs


def _pace(task: TaskState, stated: float) -> Pace:
    """The pace of a task's work, from the reports of all its attempts."""
    if not task.attempts:
        return task.pace
    return estimates.pace_now(task.pace, task.last.measured, reached_before(task, task.last), stated)


def _starts(task: TaskState, pace: Pace) -> list[float]:
    """The seconds that a task's attempts took on their nodes until the work continued."""
    seen = (attempt.started_in for attempt in task.attempts)
    return [estimates.start_of(pace, *each) for each in seen if each is not None]


def _saves(task: TaskState, planned: PlannedTask) -> bool:
    """Whether a task saves its work: the policy names a checkpoint, or an earlier attempt resumed from one."""
    return planned.policy.checkpoint is not None or task.goes_on


def _saved_share(task: TaskState, planned: PlannedTask) -> float:
    """The share of the work that the next attempt need not redo.

    Reported progress counts as saved only if the task saves its work.
    """
    reported = (attempt.progress for attempt in reversed(task.attempts) if attempt.progress is not None)
    return next(reported, 0.0) if _saves(task, planned) else 0.0


def _waits_its_turn(state: RunState, task: TaskState, planned: PlannedTask) -> bool:
    """Whether other attempts of the run hold nodes of its pools, or returned some since its wait on its rung began."""
    pools = [pool for rung in planned.ladder.rungs for pool in rung.pools]
    return any(state.holding.get(pool) or state.freed.get(pool, 0.0) > task.last.rung_at for pool in pools)
