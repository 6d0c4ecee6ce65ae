"""Decides what a job with a deadline does now: it waits, it runs on a spot pool, or it runs on on-demand. The one form of it.

The engine, the simulation, the forecast and the comparison ask :meth:`Chooser.choose`, with arrays of jobs; the engine's have one
element. Three things come together:

- a table of what each action costs on average from now on (:mod:`spotwright.deadlines.cost_table`), for spot at one price;
- what makes a pool differ from that: its price, how long its nodes last, and what it costs to bring the checkpoint there;
- the safety rule, which does not depend on any of them: an attempt runs on spot, or waits, only while on-demand could still do
  the work that may be left, after the longest launch that is reckoned with and after the time that spot needs to be left.

The rule holds from the decision to ``until``, whatever happens before, so it does not matter how often somebody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.cost_table import CostTable, lifetimes, solve
from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED, STEP, HazardTable, Spells, of_several
from spotwright.deadlines.jobs import DUST, Action, Job

__all__ = ["Choices", "Chooser", "Limits", "Pool", "Situation", "chooser", "safe"]


class Pool(NamedTuple):
    """A spot pool that a job may use. ``price`` is per hour; ``up`` are the counts of how long its spot lasts.

    ``place`` is where its nodes are: between two places a checkpoint costs :attr:`Limits.egress` to move.
    """

    price: float
    up: Spells = SHIPPED.up
    place: str = ""


class Limits(NamedTuple):
    """What the safety rule reckons with, in seconds: the longest launch, and the time that an attempt needs to leave spot.

    ``look`` is the shortest time between two decisions: a last moment that is nearer is now. ``egress`` is the price of moving
    the checkpoint to another place.
    """

    launch: float
    drain: float = 0.0
    look: float = 1.0
    egress: float = 0.0


class Situation(NamedTuple):
    """Jobs when a decision is due, as arrays of one length; times in seconds.

    ``remaining`` is the time to the deadline, ``left`` the expected work left, ``at_most`` what it may be at most. ``mode`` is
    what each job runs on (a number of :class:`~spotwright.deadlines.jobs.Action`; one whose node was just taken waits), ``pool``
    the spot pool that it runs on or ran on last (-1: none yet), ``starting`` what is left of its launch. ``up`` and ``age`` are
    ``[pool, job]``: whether spot can be had, and how long that has been so. ``gone`` is how long no pool has been up.
    """

    remaining: Any
    left: Any
    at_most: Any
    mode: Any
    pool: Any
    starting: Any
    up: Any
    age: Any
    gone: Any


class Choices(NamedTuple):
    """What jobs do next, as arrays: the action, the pool of it (for spot), and for how many seconds that is safe.

    The costs are those from now on, on average, in the currency of the prices: of waiting, of on-demand, and ``[pool, job]`` of
    spot; infinite where an action is not possible.
    """

    action: Any
    pool: Any
    until: Any
    wait: Any
    on_demand: Any
    spot: Any


def safe(now: Situation, wish: Any, limits: Limits) -> tuple[Any, Any]:
    """The safety rule: the actions that jobs may take where they wish these, and for how many seconds they may.

    A job that waits, or that runs on spot and has to leave it first, must be able to do all of its work on on-demand afterwards.
    """
    spare = now.remaining - now.at_most - limits.launch - np.where(wish == Action.SPOT, limits.drain, 0.0)
    action = np.where(spare > limits.look, wish, Action.ON_DEMAND).astype(np.int8)
    return action, np.where(action == Action.ON_DEMAND, np.inf, spare)


_BOUNDS = np.array(AGES)
_FIRST = (
    STEP / 2.0
)  # a spell that is seen for the first time has begun so long ago on average: looks are ten minutes apart


class Chooser(NamedTuple):
    """The policy of one job on its pools: it is made once, and asked at every decision."""

    job: Job
    pools: tuple[Pool, ...]
    limits: Limits
    table: CostTable
    cheap: Any  # of each pool: whether it is one of those at whose price the table is solved

    def choose(self, now: Situation) -> Choices:
        """The cheapest safe action of each job; where nothing but on-demand is safe, on-demand."""
        costs = self._costs(now)
        wait, spot, on_demand = costs
        best = spot.argmin(axis=0)
        every = np.arange(len(best))
        stays = (now.mode == Action.SPOT) & (now.pool >= 0)
        here = np.where(stays, now.pool, 0)
        best = np.where(stays & (spot[here, every] <= spot[best, every] + DUST), here, best)
        cheapest = spot[best, every]
        action = np.where(cheapest <= wait, Action.SPOT, Action.WAIT)
        least = np.minimum(cheapest, wait)
        prefers = np.where(now.mode == Action.ON_DEMAND, on_demand <= least, on_demand < least)
        action, until = safe(now, np.where(prefers, Action.ON_DEMAND, action), self.limits)
        return Choices(action, best, until, wait, on_demand, spot)

    def _costs(self, now: Situation) -> tuple[Any, Any, Any]:
        """What waiting, spot by pool and on-demand cost from now on."""
        table = self.table
        row, lost, known = table.place(now.remaining, now.left)
        bucket = np.searchsorted(_BOUNDS, now.age + _FIRST)
        cheap = now.up & self.cheap[:, None]
        is_up = cheap.any(axis=0)
        oldest = np.where(cheap, bucket, 0).max(axis=0)
        seen = np.where(is_up, oldest, BUCKETS + np.searchsorted(_BOUNDS, now.gone + _FIRST))
        way = self._ways(now)
        wait = np.where(known, table.wait[row, seen, lost], np.inf)
        on_demand = np.where(
            known, table.on_demand[row, np.where(now.mode == Action.ON_DEMAND, way, 0), seen, lost], np.inf
        )
        on_demand = np.where(known, on_demand, 0.0)
        spot = np.full(now.up.shape, np.inf)
        for index, pool in enumerate(self.pools):
            here = (now.mode == Action.SPOT) & (now.pool == index)
            there = np.flatnonzero(now.up[index] & known)
            if not there.size:
                continue
            at, ages = here[there], bucket[index][there]
            cost = table.spot[row[there], np.where(at, way[there], 0), ages, lost[there]].astype(float)
            to_go = now.left[there] + np.where(at, now.starting[there], self.job.overhead)
            cost += self._dearer(pool, ages, to_go)
            if self.limits.egress:
                before = now.pool[there]
                places = np.array([each.place for each in self.pools])
                cost += np.where((before >= 0) & (places[before] != pool.place), self.limits.egress, 0.0)
            spot[index, there] = cost
        return wait, spot, on_demand

    def _ways(self, now: Situation) -> Any:
        """The way of each job's mode in the table: 1 works, later ones are in a launch."""
        grid = self.table.grid
        if not grid.stages:
            return np.ones(len(now.left), np.intp)
        gone = np.round((self.job.overhead - now.starting) / grid.tick)
        stage = np.clip(gone, 1, grid.stages).astype(np.intp)
        return np.where(now.starting > DUST, 1 + stage, 1)

    def _dearer(self, pool: Pool, ages: Any, to_go: Any) -> Any:
        """By how much a pool costs more than the spot that the table knows, until it is lost or the work is done."""
        grid = self.table.grid
        ticks = np.minimum(np.ceil(to_go / grid.tick - 1e-9), grid.ticks).astype(np.intp)
        lasts = lifetimes(pool.up, grid.tick, grid.ticks)[ticks, ages]
        return (pool.price - self.table.job.spot_price) * lasts / 3600.0


def chooser(job: Job, pools: Sequence[Pool], limits: Limits, down: Spells = SHIPPED.down) -> Chooser:
    """The policy of a job on these spot pools; ``down`` are the counts of how long no pool has spot.

    ``job.spot_price`` is not read: each pool has its own. The table is solved for the pools up to the price with which the job is
    cheapest on average, at their mean price; dearer pools are used where that pays.
    """
    prices = sorted({pool.price for pool in pools})
    tables = [
        (_solved(job._replace(spot_price=price), hazards), limit)
        for limit, price, hazards in _levels(pools, prices, down)
    ]
    best, limit = min(tables, key=lambda each: _at_start(each[0]))
    return Chooser(job, tuple(pools), limits, best, np.array([pool.price <= limit for pool in pools]))


def _levels(pools: Sequence[Pool], prices: Sequence[float], down: Spells) -> Any:
    few = prices if len(prices) <= 3 else [prices[0], prices[len(prices) // 2], prices[-1]]
    for limit in few:
        cheap = [pool for pool in pools if pool.price <= limit]
        price = sum(pool.price for pool in cheap) / len(cheap)
        yield limit, price, HazardTable(SHIPPED.up, of_several(down, len(cheap)))


def _at_start(table: CostTable) -> float:
    """What the job costs on average before anything is known of the market but its mean."""
    hazards, lost = table.hazards, 0
    up, down = hazards.up.mean_chance(), hazards.down.mean_chance()
    share = down / (up + down) if up + down > 0 else 0.5
    least = np.minimum(table.wait[0, :, lost], table.on_demand[0, 0, :, lost])
    least[:BUCKETS] = np.minimum(least[:BUCKETS], table.spot[0, 0, :, lost])
    return float(
        share * np.average(least[:BUCKETS], weights=hazards.up.seen)
        + (1 - share) * np.average(least[BUCKETS:], weights=hazards.down.seen)
    )


@lru_cache(maxsize=16)
def _solved(job: Job, hazards: HazardTable) -> CostTable:
    """The table of a job; tasks with the same figures share it."""
    return solve(job, hazards)
