"""Simulates one job over one window in plain Python: the readable definition of what the fast simulation computes.

It steps from one moment at which anything happens to the next one, with numbers instead of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spotwright.deadlines.choice import Situation
from spotwright.deadlines.hazards import SHIPPED
from spotwright.deadlines.job_policies import Decides
from spotwright.deadlines.jobs import DUST, Action, Job
from spotwright.forecast.deadline_jobs import AS_STATED, Conditions

__all__ = ["OneResult", "simulate_one"]


class OneResult(NamedTuple):
    """What became of one job. ``finish`` is in seconds from the start, ``moves`` counts nodes that were left, not taken."""

    cost: float
    finish: float
    launches: int
    moves: int


def simulate_one(
    policy: Decides,
    job: Job,
    up: Sequence[Sequence[bool]],
    tick: float,
    conditions: Conditions = AS_STATED,
    prices: Sequence[Sequence[float]] | None = None,
) -> OneResult:
    """Simulate one job: ``up[pool][tick]``, and the prices of spot likewise where they change."""
    one = _Job(policy, job, conditions, _Market(up, tick), prices)
    while one.left > DUST:
        one.meet_market()
        if one.asks <= one.now + DUST:
            one.ask()
        one.run_on()
    return OneResult(one.cost, one.now, one.launches, one.moves)


class _Job:
    """The job now: what it runs on, what is left, and what it knows."""

    def __init__(
        self,
        policy: Decides,
        job: Job,
        conditions: Conditions,
        market: _Market,
        prices: Sequence[Sequence[float]] | None,
    ) -> None:
        self._policy, self._job, self._market, self._prices = policy, job, market, prices
        self._every = conditions.every or market.tick
        self._look = self._every if conditions.phase is None else conditions.phase
        self._launch = job.overhead if conditions.launch is None else conditions.launch
        self._work = job.work if conditions.work is None else conditions.work
        self._shown = min(conditions.shown, job.work)
        self._knows_launch, self._knows_work = self._launch == job.overhead, self._work == job.work
        self._mode, self._pool, self._starting = Action.WAIT, -1, 0.0
        self.now, self.asks, self.left, self.cost = 0.0, 0.0, self._work, 0.0
        self.launches, self.moves = 0, 0

    def meet_market(self) -> None:
        """Lose the node where its pool is gone, and see whether a look is due."""
        self._market.at(self.now)
        if self._mode is Action.SPOT and not self._market.up[self._pool]:
            self._mode, self._starting = Action.WAIT, 0.0
        while self._look <= self.now + DUST:
            self._look, self.asks = self._look + self._every, self.now

    def ask(self) -> None:
        """Do what the policy says."""
        choices = self._policy.choose(self._situation())
        action = Action(int(choices.action[0]))
        pool = int(choices.pool[0]) if action is Action.SPOT else self._pool
        if action is not self._mode or pool != self._pool:
            self.moves += self._mode is not Action.WAIT
            self.launches += action is not Action.WAIT
            if action is Action.SPOT and self._pool >= 0:
                places = [self._policy.pools[each].place for each in (pool, self._pool)]
                self.cost += self._policy.limits.egress if places[0] != places[1] else 0.0
            self._starting = self._launch if action is not Action.WAIT else 0.0
        self._mode, self._pool, self.asks = action, pool, self.now + float(choices.until[0])

    def _situation(self) -> Situation:
        starting, left, longer = self._starting, self.left, 0.0
        if self._knows_launch:
            longer = max(0.0, self._launch - self._policy.limits.launch)
        elif starting:
            starting = max(0.0, starting - self._launch + self._job.overhead)
        if not self._knows_work:
            left = left - self._work + self._job.work
        market, now = self._market, self.now
        return Situation(
            remaining=np.array([self._job.deadline - now]),
            left=np.array([left]),
            at_most=np.array([left + longer]),
            mode=np.array([self._mode]),
            pool=np.array([self._pool]),
            starting=np.array([starting]),
            up=np.array(market.up)[:, None],
            age=np.array(market.ages(now))[:, None],
        )

    def run_on(self) -> None:
        """Until anything happens."""
        length = max(0.0, min(self._following()) - self.now)
        self.cost += self._price() * length / 3600.0
        if self._mode is not Action.WAIT:
            self.left -= max(0.0, length - self._starting)
            self._starting = max(0.0, self._starting - length)
            self._learn(self.now + length)
        self.now += length

    def _following(self) -> list[float]:
        found = [self._market.next(self.now), self._look, self.asks]
        if self._mode is not Action.WAIT:
            works = self.now + self._starting
            found.append(works + self.left)
            if not self._knows_launch and self._starting:
                found.append(works - self._launch + min(self._launch, self._job.overhead))
            if not self._knows_work:
                found.append(works + self.left - self._work + self._shown)
        return found

    def _price(self) -> float:
        if self._mode is not Action.SPOT:
            return self._job.on_demand_price if self._mode is Action.ON_DEMAND else 0.0
        return (
            self._policy.pools[self._pool].price
            if self._prices is None
            else self._prices[self._pool][self._market.index]
        )

    def _learn(self, now: float) -> None:
        """A launch that has lasted as long as stated tells how long one takes; so does some work."""
        if not self._knows_launch and self._launch - self._starting >= min(self._launch, self._job.overhead) - DUST:
            self._knows_launch, self.asks = True, now
        if not self._knows_work and not self._starting and self._work - self.left >= self._shown - DUST:
            self._knows_work, self.asks = True, now


class _Market:
    """The pools at a moment, with how long each spell has lasted."""

    def __init__(self, up: Sequence[Sequence[bool]], tick: float) -> None:
        self._states, self.tick = up, tick
        self.index = 0
        self.up = [states[0] for states in up]

    def at(self, now: float) -> None:
        """Go to this moment."""
        self.index = min(len(self._states[0]) - 1, math.floor(now / self.tick + 1e-9))
        self.up = [states[self.index] for states in self._states]

    def next(self, now: float) -> float:
        """The next tick after this moment."""
        return (math.floor(now / self.tick + 1e-9) + 1) * self.tick

    def ages(self, now: float) -> list[float]:
        """How long each pool has been as it is; it was so before the window if it always was in it."""
        return [self._age(states, now) for states in self._states]

    def _age(self, states: Sequence[bool], now: float) -> float:
        first = self.index
        while first and states[first - 1] == states[self.index]:
            first -= 1
        before = (SHIPPED.up if states[0] else SHIPPED.down).first_age() if first == 0 else 0.0
        return now - first * self.tick + before
