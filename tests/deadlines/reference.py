"""Simulates one job over one window in plain Python: the readable definition of what the fast simulation computes.

It also tells the history of a job, decision by decision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from spotwright.deadlines.job_policies import Policy, decide
from spotwright.deadlines.jobs import DUST, Action, Job, Moment, after

__all__ = ["OneResult", "Step", "simulate_one"]


class Step(NamedTuple):
    """One decision of a simulated job: what it was about, what was chosen, and on which pool."""

    moment: Moment
    action: Action
    pool: int


class OneResult(NamedTuple):
    """What became of one job. ``finish`` is in seconds from the start."""

    cost: float
    finish: float
    late: bool
    steps: tuple[Step, ...] = ()


def simulate_one(
    policy: Policy,
    job: Job,
    up: Sequence[Sequence[bool]],
    ages: Sequence[Sequence[float]],
    tick: float,
    prices: Sequence[Sequence[float]] | None = None,
) -> OneResult:
    """Simulate one job: ``up[pool][tick]``, the ages of the spells likewise, and the prices of spot where they change.

    With several pools a launch goes to the pool that has been up the longest, the first of equals. Every tick that a node is used
    in is paid as a whole. A job that even on-demand cannot finish in time runs on on-demand from the start.
    """
    left, starting, mode, pool, cost = job.work, 0.0, Action.WAIT, 0, 0.0
    steps: list[Step] = []
    index = 0
    while left > DUST:
        remaining = job.deadline - index * tick
        if job.is_possible and index < len(up[0]):
            if mode is Action.SPOT and not up[pool][index]:
                mode, starting = Action.WAIT, 0.0
            if mode is not Action.SPOT:
                pool = _oldest(up, ages, index)
            moment = Moment(remaining, left, mode, starting, bool(up[pool][index]), float(ages[pool][index]))
            action = decide(policy, job, moment, tick)
        else:
            moment, action = Moment(remaining, left, mode, starting, up=False, age=0.0), Action.ON_DEMAND
        steps.append(Step(moment, action, pool))
        left, starting = after(job, moment, action, tick)
        mode = action
        spot = job.spot_price if prices is None or index >= len(up[0]) else prices[pool][index]
        cost += (0.0, spot, job.on_demand_price)[action] * tick / 3600.0
        index += 1
    finish = index * tick + left if steps else 0.0
    return OneResult(cost, finish, finish > job.deadline + DUST, tuple(steps))


def _oldest(up: Sequence[Sequence[bool]], ages: Sequence[Sequence[float]], index: int) -> int:
    """The pool that has been up the longest, or, where none is up, has been down the shortest."""
    best, key = 0, (False, -math.inf)
    for pool in range(len(up)):
        age = float(ages[pool][index])
        mine = (bool(up[pool][index]), age if up[pool][index] else -age)
        if mine > key:
            best, key = pool, mine
    return best
