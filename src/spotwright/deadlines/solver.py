"""Computes the cheapest safe policy for a job that cannot save its work: backward dynamic programming over time and age.

A lost attempt starts again from zero, so only a whole attempt counts. An attempt is launched on spot only while on-demand could
redo all of the work if it were lost at its end. The table takes the safe action with the smallest expected cost; the rule uses
exact durations, the table rounds them up.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import BUCKETS, SHIPPED, HazardTable, bucket, chance_of_leaving
from spotwright.deadlines.jobs import DUST, Action, Job

__all__ = ["RestartTable", "may_launch", "solve_restarts", "spot_ends"]


_TICKS = 200  # decisions in the time to a deadline, at least
_MOST_TICKS = 2000
_PARTS = 10  # parts of an attempt, where that needs no more ticks


def spot_ends(job: Job, drain: float = 0.0) -> float:
    """The time to the deadline, in seconds, below which no attempt may be launched on spot.

    ``drain`` is the time that a running attempt needs to end after SIGTERM.
    """
    return 2.0 * (job.work + job.overhead) + drain


def may_launch(job: Job, remaining: float, drain: float = 0.0) -> bool:
    """Whether an attempt on spot may begin: whether on-demand could redo all of the work if it were lost at its end."""
    return remaining + DUST >= spot_ends(job, drain)


class RestartTable(NamedTuple):
    """A solved policy: ``actions[t, observation]`` with ``t`` ticks left, and its mean cost from there.

    An observation is an age bucket, with :data:`~spotwright.deadlines.hazards.BUCKETS` added where spot is down.
    """

    job: Job
    drain: float
    tick: float
    actions: Any
    expected: Any

    def action(self, remaining: float, *, up: bool, age: float) -> Action:
        """The action now with ``remaining`` seconds to the deadline: SPOT only if spot is up and a launch is safe."""
        if not may_launch(self.job, remaining, self.drain):
            return Action.ON_DEMAND
        return Action(int(self.actions[self._row(remaining), _observation(up=up, age=age)]))

    def cost(self, remaining: float, *, up: bool, age: float) -> float:
        """The expected cost of the job from now on, in the currency of its prices."""
        return float(self.expected[self._row(remaining), _observation(up=up, age=age)])

    def _row(self, remaining: float) -> int:
        return min(len(self.actions) - 1, max(0, math.floor(remaining / self.tick + 1e-9)))


def solve_restarts(job: Job, hazards: HazardTable = SHIPPED, drain: float = 0.0) -> RestartTable:
    """Return the cheapest safe policy of a job that cannot save its work.

    If the deadline leaves no time for a second attempt, the table always says on-demand.
    """
    attempt = max(job.checked().work + job.overhead, DUST)
    tick = max(min(job.deadline / _TICKS, attempt / _PARTS), job.deadline / _MOST_TICKS, DUST)
    ticks, parts = math.floor(job.deadline / tick + 1e-9), math.ceil(attempt / tick - 1e-9)
    ends, ages = _by_bucket(hazards, tick)
    paid = attempt * job.on_demand_price / 3600.0
    spot = attempt / parts * job.spot_price / 3600.0
    actions = np.full((ticks + 1, 2 * BUCKETS), int(Action.ON_DEMAND), np.int8)
    expected = np.full((ticks + 1, 2 * BUCKETS), paid)
    running = np.full((parts + 1, BUCKETS), paid)  # cost still to pay, by parts left and age
    running[0] = 0.0
    up_ends, down_ends = ends
    for left in range(1, ticks + 1):
        before = expected[left - 1]
        going_on = _aged(running[:-1], ages)
        running[1:] = spot + up_ends * before[BUCKETS] + (1.0 - up_ends) * going_on
        if not may_launch(job, left * tick, drain):
            continue
        launched = running[parts]
        waited = down_ends * before[0] + (1.0 - down_ends) * _aged(before[None, BUCKETS:], ages)[0]
        expected[left, :BUCKETS] = np.minimum(launched, paid)
        actions[left, :BUCKETS] = np.where(launched < paid, int(Action.SPOT), int(Action.ON_DEMAND))
        expected[left, BUCKETS:] = np.minimum(waited, paid)
        actions[left, BUCKETS:] = np.where(waited < paid, int(Action.WAIT), int(Action.ON_DEMAND))
    return RestartTable(job, drain, tick, actions, expected)


def _by_bucket(hazards: HazardTable, tick: float) -> tuple[tuple[Any, Any], Any]:
    """The probabilities that a spell (up, down) ends within a tick, and that a continuing one enters the next bucket."""
    ends = [np.array([kind.chance(index, tick) for index in range(BUCKETS)]) for kind in (hazards.up, hazards.down)]
    return (ends[0], ends[1]), np.array([chance_of_leaving(index, tick) for index in range(BUCKETS)])


def _aged(values: Any, ages: Any) -> Any:
    """The values a tick later of continuing spells: in the same bucket, or in the next one."""
    later = values.copy()
    later[:, :-1] = (1.0 - ages[:-1]) * values[:, :-1] + ages[:-1] * values[:, 1:]
    return later


def _observation(*, up: bool, age: float) -> int:
    return bucket(age) + (0 if up else BUCKETS)
