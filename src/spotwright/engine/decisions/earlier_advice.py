"""The advice of version 1 of the decision functions for tasks with a deadline, kept so that its journals replay.

It advised tasks whose work is saved, from the shipped hazards alone, and assumed the age of spot. The other tasks kept the plain
rule of :mod:`spotwright.scheduling.deadline`. Its successor is :mod:`spotwright.engine.decisions.deadline_advice`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from spotwright.engine.plan import PlannedTask
from spotwright.engine.state import RunState, TaskState
from spotwright.scheduling.deadline import Advice, Outlook

if TYPE_CHECKING:
    from spotwright.deadlines.jobs import Job
    from spotwright.deadlines.policies import Learned

__all__ = ["advise"]

_TICKS = 150  # decisions in the time to a deadline
_LEAST = 0.01  # the share of the work that an attempt has to do, also where all of it was reported
_SPOT, _ON_DEMAND = 1.0, 3.0  # prices where the pools name none: spot costs a third


def advise(state: RunState, task: TaskState, planned: PlannedTask, outlook: Outlook) -> Advice | None:
    """The advice for a task at the moment of the outlook; ``None`` where the plain rule decides."""
    goes_on = planned.policy.checkpoint is not None or any(attempt.first_progress for attempt in task.attempts[1:])
    spot = [pool for rung in planned.ladder.rungs if rung.spot is not False for pool in rung.pools]
    on_demand = [pool for index in planned.ladder.on_demand for pool in planned.ladder.rungs[index].pools]
    if not outlook.work or not goes_on or not spot or not on_demand or outlook.only_on_demand:
        return None
    from spotwright.deadlines.hazards import SHIPPED
    from spotwright.deadlines.jobs import Action, Job, Moment
    from spotwright.deadlines.policies import decide

    scale = state.time_scale
    job = Job(
        outlook.work * scale,
        (outlook.deadline - state.started_at) * scale,
        outlook.overhead * scale,
        _price(state, spot[0], _SPOT),
        _price(state, on_demand[0], _ON_DEMAND),
    )
    if not job.is_possible:
        return None
    policy = _solved(job)
    tick = policy.table.grid.tick
    moment = Moment(
        (outlook.deadline - outlook.now) * scale,
        outlook.work * max(_LEAST, 1.0 - outlook.progress) * scale,
        Action.WAIT,
        0.0,
        up=True,
        age=SHIPPED.up.first_age() + tick,
    )
    launches = decide(policy, job, moment, tick) is Action.SPOT
    lost = [attempt.ended_at for attempt in task.attempts if attempt.ended_at is not None and attempt.pool in spot]
    waits = outlook.now - (lost[-1] if lost else task.attempts[0].placed_at if task.attempts else outlook.now)
    age = (0.0 if lost else SHIPPED.down.first_age()) + max(0.0, waits) * scale
    waiting = moment._replace(up=False, age=age + tick)
    steps = 0
    while decide(policy, job, waiting, tick) is Action.WAIT:
        steps += 1
        waiting = waiting._replace(remaining=waiting.remaining - tick, age=waiting.age + tick)
    slack = moment.remaining - moment.left - job.overhead
    return Advice(launches, outlook.now + steps * tick / scale, _numbers(job, slack, moment.left))


def _price(state: RunState, pool: str, default: float) -> float:
    price = state.plan.config.pools[pool].price
    return default if price is None else float(price)


def _numbers(job: Job, slack: float, left: float) -> str:
    ratio = job.on_demand_price / job.spot_price if job.spot_price > 0 else 0.0
    price = f"on-demand costs {ratio:.2g} times as much" if ratio else "spot costs nothing"
    return f"{left:.4g}s of work and {slack:.4g}s of slack are left, a launch takes {job.overhead:.4g}s, {price}"


@lru_cache(maxsize=64)
def _solved(job: Job) -> Learned:
    """The policy of a job; tasks with the same figures share it."""
    from spotwright.deadlines.policies import Learned
    from spotwright.deadlines.solver import solve

    return Learned(solve(job, tick=max(job.deadline / _TICKS, job.overhead / 4), per_tick=5))
