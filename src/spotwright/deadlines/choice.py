"""Decides whether a job with a deadline waits, runs on a spot pool or runs on on-demand. The only implementation.

The engine, the simulation, the forecast and the comparison call :meth:`Chooser.choose` with arrays of jobs; the engine's arrays
have one element. It combines:

- a table of each action's mean cost from now on (:mod:`spotwright.deadlines.cost_table`), for spot at one price;
- each pool's differences: its price, its nodes' lifetimes, and the cost of moving the checkpoint there;
- the safety rule, independent of both: an attempt runs on spot, or waits, only while on-demand could still do the work that may
  be left, after the longest assumed launch and after the time to leave spot.

The rule holds from the decision to ``until`` in every case, so it does not matter how often it is checked.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.cost_table import CostTable, lifetimes, solve
from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED, STEP, HazardTable, Spells, of_several
from spotwright.deadlines.jobs import DUST, Action, Job

__all__ = ["Choices", "Chooser", "Limits", "Pool", "Situation", "chooser", "safe"]


class Pool(NamedTuple):
    """A spot pool that a job may use. ``price`` is per hour; ``up`` counts the spells in which it had spot.

    ``place`` is its nodes' location: moving a checkpoint to another one costs :attr:`Limits.egress`.
    """

    price: float
    up: Spells = SHIPPED.up
    place: str = ""


class Limits(NamedTuple):
    """The assumptions of the safety rule, in seconds: the longest launch, and the time an attempt needs to leave spot.

    ``look`` is the shortest time between two decisions: a nearer last moment counts as now. ``unsaved`` is the time between two
    saves: with less than that left after a launch on spot, no save would happen there. ``egress`` is the price of moving the
    checkpoint to another location.
    """

    launch: float
    drain: float = 0.0
    look: float = 1.0
    unsaved: float = 0.0
    egress: float = 0.0


class Situation(NamedTuple):
    """Jobs when a decision is due, as arrays of one length; times in seconds.

    ``remaining`` is the time to the deadline, ``left`` the expected work left, ``at_most`` its upper bound. ``mode`` is each
    job's :class:`~spotwright.deadlines.jobs.Action` (a job whose node was just reclaimed waits), ``pool`` its current or last
    spot pool (-1: none yet), ``starting`` the rest of its launch. ``up`` and ``age`` are ``[pool, job]``: whether spot is
    available, and for how long it has or has not been.
    """

    remaining: Any
    left: Any
    at_most: Any
    mode: Any
    pool: Any
    starting: Any
    up: Any
    age: Any


class Choices(NamedTuple):
    """The next actions of jobs, as arrays: the action, its pool (for spot), and for how many seconds it is safe.

    The costs are means from now on, in the currency of the prices: of waiting, of on-demand, and ``[pool, job]`` of spot;
    infinite for an impossible action. Only their differences have a meaning: they are computed for a job with the same slack
    and somewhat more work and time.
    """

    action: Any
    pool: Any
    until: Any
    wait: Any
    on_demand: Any
    spot: Any


_TYPICAL = bisect_left(AGES, SHIPPED.up.first_age())
_DAY = 86400.0


def safe(now: Situation, wish: Any, limits: Limits, leaves: Any = None) -> tuple[Any, Any]:
    """Apply the safety rule: the wished actions where they are safe, else on-demand, and for how many seconds they are safe.

    A job that waits, or that must leave spot first, must be able to do all of its work on on-demand afterwards; so must a job
    whose wish first ends its running attempt (``leaves``).
    """
    spare = now.remaining - now.at_most - limits.launch - np.where(wish == Action.SPOT, limits.drain, 0.0)
    spare -= np.where(leaves, limits.drain, 0.0)
    action = np.where(spare > limits.look, wish, Action.ON_DEMAND).astype(np.int8)
    return action, np.where(action == Action.ON_DEMAND, np.inf, spare)


_LEAST_GAIN = 60.0  # seconds on on-demand whose price a move must save, at least
_BOUNDS = np.array(AGES)
_FIRST = STEP / 2.0  # mean age of a spell in the table when first seen


class Chooser(NamedTuple):
    """The policy of one job on its pools, made once for all its decisions."""

    job: Job
    pools: tuple[Pool, ...]
    limits: Limits
    table: CostTable

    def choose(self, now: Situation) -> Choices:
        """The cheapest safe action of each job; if only on-demand is safe, on-demand."""
        wait, spot, on_demand = self._costs(now)
        wait = np.where(now.mode == Action.WAIT, wait, np.inf)  # a job never gives up a node to wait
        every = np.arange(len(wait))
        on_spot = (now.mode == Action.SPOT) & (now.pool >= 0)
        here = np.where(on_spot, now.pool, 0)
        best = spot.argmin(axis=0)
        spare = now.remaining - now.at_most - self.limits.launch
        leaves = (now.mode != Action.WAIT) & ~(on_spot & (best == here))  # the running attempt must end first
        useful = self.job.overhead + max(self.limits.look, self.limits.unsaved)
        worth = _LEAST_GAIN * self.job.on_demand_price / 3600.0
        stays = on_spot & (
            (spot[here, every] <= spot[best, every] + worth) | (spare - 2.0 * self.limits.drain <= useful)
        )
        best, leaves = np.where(stays, here, best), leaves & ~stays
        launches = ~on_spot | (best != here)
        is_useful = ~launches | (spare - self.limits.drain * (1.0 + leaves) > useful)
        cheapest = np.where(is_useful, spot[best, every], np.inf)
        action = np.where(cheapest <= wait, Action.SPOT, Action.WAIT)
        least = np.minimum(cheapest, wait)
        prefers = np.where(now.mode == Action.ON_DEMAND, on_demand <= least + worth, on_demand < least)
        action, until = safe(now, np.where(prefers, Action.ON_DEMAND, action), self.limits, leaves)
        return Choices(action, best, until, wait, on_demand, spot)

    def _costs(self, now: Situation) -> tuple[Any, Any, Any]:
        """The costs from now on of waiting, of spot by pool and of on-demand."""
        table = self.table
        row, lost, known = table.place(now.remaining, now.left)
        bucket = np.searchsorted(_BOUNDS, now.age + _FIRST)
        way, every = self._ways(now), np.arange(len(row))
        here = (now.mode == Action.SPOT) & (now.pool == np.arange(len(self.pools))[:, None])
        more = self._more(now, bucket, np.broadcast_to(now.left + self.job.overhead, here.shape))
        alike = np.array(
            [_alike(pool.up, table.hazards.up, table.grid.tick)[bucket[i]] for i, pool in enumerate(self.pools)]
        )
        spot = table.spot[row, 0, alike, lost] + more
        if here.any():  # steps of the table and of lifetimes are coarse: going on never costs more than a launch there
            goes_on = self._more(now, bucket, now.left + np.where(here, now.starting, self.job.overhead))
            goes_on += table.spot[row, np.where(here, way, 0), alike, lost]
            spot = np.where(here, np.minimum(spot, goes_on), spot)
        spot = np.where(now.up & known, spot, np.inf)
        best = spot.argmin(axis=0)
        is_up = now.up.any(axis=0)
        youngest = np.where(now.up, BUCKETS - 1, bucket).min(axis=0)  # since the last one became unavailable
        seen = np.where(is_up, alike[best, every], BUCKETS + youngest)
        later = np.where(is_up, more[best, every], 0.0)
        down = table.hazards.down
        back = np.array([down.chance(index, table.grid.tick) for index in range(BUCKETS)])[bucket]
        later *= 1.0 - np.where(~now.up & (more < later), back, 0.0).max(axis=0)
        wait = table.wait[row, seen, lost] + later
        on_demand = table.on_demand[row, np.where(now.mode == Action.ON_DEMAND, way, 0), seen, lost] + later
        return np.where(known, wait, np.inf), spot, np.where(known, on_demand, 0.0)

    def _more(self, now: Situation, bucket: Any, to_go: Any) -> Any:
        """The extra cost of each pool over the table's spot, ``[pool, job]``.

        A pool's price counts until its node is lost or the work is done, or until a cheaper pool comes back if none is up now;
        moving the checkpoint is added.
        """
        grid, prices = self.table.grid, np.array([pool.price for pool in self.pools])
        ticks = np.minimum(np.ceil(to_go / grid.tick - 1e-9), grid.ticks).astype(np.intp)
        ages = np.where(now.up, bucket, _TYPICAL)
        lasts = np.array([lifetimes(p.up, grid.tick, grid.ticks)[ticks[i], ages[i]] for i, p in enumerate(self.pools)])
        comes = np.where(now.up, np.inf, lifetimes(self.table.hazards.down, grid.tick, grid.ticks)[ticks, bucket])
        for index, price in enumerate(prices):
            if price > self.table.job.spot_price:
                comes_cheaper = comes[prices < price].min(axis=0, initial=np.inf)
                is_cheaper_up = now.up[prices < price].any(axis=0)
                lasts[index] = np.where(is_cheaper_up, lasts[index], np.minimum(lasts[index], comes_cheaper))
        more = (prices - self.table.job.spot_price)[:, None] * lasts / 3600.0
        if self.limits.egress:
            places = np.array([pool.place for pool in self.pools])
            more += ((now.pool >= 0) & (places[:, None] != places[now.pool])) * self.limits.egress
        return more

    def _ways(self, now: Situation) -> Any:
        """The index of each job's mode in the table: 1 works, higher ones are launching."""
        grid = self.table.grid
        if not grid.stages:
            return np.ones(len(now.left), np.intp)
        gone = np.round((self.job.overhead - now.starting) / grid.tick)
        stage = np.clip(gone, 1, grid.stages).astype(np.intp)
        return np.where(now.starting > DUST, 1 + stage, 1)


def chooser(
    job: Job, pools: Sequence[Pool], limits: Limits, down: Spells = SHIPPED.down, up: Spells = SHIPPED.up
) -> Chooser:
    """The policy of a job on these spot pools; ``down`` counts how long no pool has spot, ``up`` how long a pool has it.

    ``job.spot_price`` is not read: each pool has its own, and the table is solved at their mean.
    """
    mean = sum(pool.price for pool in pools) / len(pools)
    hazards = HazardTable(up, of_several(down, len(pools)))
    return Chooser(job, tuple(pools), limits, _solved(job._replace(spot_price=mean), hazards))


@lru_cache(maxsize=64)
def _alike(own: Spells, known: Spells, tick: float) -> Any:
    """For each age bucket of a pool, the table's bucket with the same remaining lifetime: this applies the pool's history."""
    if own == known:
        return np.arange(BUCKETS)
    ticks = max(1, math.ceil(_DAY / tick))
    mine, table = lifetimes(own, tick, ticks)[-1], lifetimes(known, tick, ticks)[-1]
    return np.abs(mine[:, None] - table[None, :]).argmin(axis=1)


@lru_cache(maxsize=16)
def _solved(job: Job, hazards: HazardTable) -> CostTable:
    """The table of a job, shared by tasks with the same figures."""
    return solve(job, hazards)
