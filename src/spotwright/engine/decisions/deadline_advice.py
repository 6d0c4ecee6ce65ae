"""Asks the solved policies what a task with a deadline should do: launch on which spot pool, wait until when, or pay on-demand.

A task that saves its work (a checkpoint) has the table of :mod:`spotwright.deadlines.solver`, one that does not the table of
:mod:`spotwright.deadlines.solver`; each spot pool has its own, with its price, the hazards that were learned of it, and the age
of its present spell. numpy is imported here when the first such task is decided, not before. Times of the simulated world are
those of the tables, so a run with a time scale decides as the real one would.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import RunState
from spotwright.model.quantities import format_duration
from spotwright.scheduling.deadline import Outlook, RungAdvice

if TYPE_CHECKING:
    from spotwright.deadlines.hazards import HazardTable
    from spotwright.deadlines.job_policies import Learned
    from spotwright.deadlines.jobs import Job
    from spotwright.deadlines.solver import RestartTable

__all__ = ["advise"]

_TICKS = 150  # decisions in the time to a deadline
_LEAST = 0.01  # the share of the work that an attempt has to do, also where all of it was reported
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

    scale, work = state.time_scale, outlook.work or 0.0
    whole = outlook.deadline - state.started_at
    job = Job(work * scale, whole * scale, outlook.overhead * scale, *prices)
    remaining = (outlook.deadline - outlook.now) * scale
    left = work * max(_LEAST, 1.0 - outlook.progress) * scale if outlook.saves else job.work
    if not job.is_possible:
        launches, waits = False, 0.0
    elif outlook.saves:
        launches, waits = _saving(job, market, remaining, left)
    else:
        launches, waits = _restarting(job, market, remaining, outlook.drain * scale)
    return RungAdvice(rung, launches, outlook.now + waits / scale, _numbers(job, market, remaining, left, scale))


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


def _numbers(job: Job, market: _Market, remaining: float, left: float, scale: float) -> str:
    """The figures of a decision, in words. Work and slack are in real time, spells in the time of the simulated world."""
    from spotwright.deadlines.hazards import bucket

    ratio = job.on_demand_price / job.spot_price if job.spot_price > 0 else 0.0
    price = f"on-demand costs {ratio:.2g} times as much" if ratio else "spot costs nothing"
    work, slack, launch = (
        format_duration(seconds / scale) for seconds in (left, remaining - left - job.overhead, job.overhead)
    )
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
