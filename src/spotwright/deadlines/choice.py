"""Decides what a job with a deadline does now: it waits, it runs on a spot pool, or it runs on on-demand. The one form of it.

The engine, the simulation, the forecast and the comparison ask :meth:`Chooser.choose`, with arrays of jobs; the engine's have one
element. Three things come together:

- a table of what each action costs on average from now on (:mod:`spotwright.deadlines.cost_table`), for spot at one price;
- what makes a pool differ from that: its price, how long its nodes last, and what it costs to bring the checkpoint there;
- the safety rule, which does not depend on any of them: an attempt runs on spot, or waits, only while on-demand could still do
  the work that may be left, after the longest launch that is reckoned with and after the time that spot needs to be left.

The rule holds from the decision to ``until``, whatever happens before, so it does not matter how often it is checked.
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
    """A spot pool that a job may use. ``price`` is per hour; ``up`` are the counts of how long its spot lasts.

    ``place`` is where its nodes are: between two places a checkpoint costs :attr:`Limits.egress` to move.
    """

    price: float
    up: Spells = SHIPPED.up
    place: str = ""


class Limits(NamedTuple):
    """What the safety rule reckons with, in seconds: the longest launch, and the time that an attempt needs to leave spot.

    ``look`` is the shortest time between two decisions: a last moment that is nearer is now. ``unsaved`` is the time between two
    saves: with less than that left after a launch on spot, no save would happen there. ``egress`` is the price of moving
    the checkpoint to another place.
    """

    launch: float
    drain: float = 0.0
    look: float = 1.0
    unsaved: float = 0.0
    egress: float = 0.0


class Situation(NamedTuple):
    """Jobs when a decision is due, as arrays of one length; times in seconds.

    ``remaining`` is the time to the deadline, ``left`` the expected work left, ``at_most`` what it may be at most. ``mode`` is
    what each job runs on (a number of :class:`~spotwright.deadlines.jobs.Action`; one whose node was just reclaimed waits),
    ``pool`` the spot pool that it runs on or ran on last (-1: none yet), ``starting`` what is left of its launch. ``up`` and
    ``age`` are ``[pool, job]``: whether spot can be had, and how long that has been so.
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
    """What jobs do next, as arrays: the action, the pool of it (for spot), and for how many seconds that is safe.

    The costs are those from now on, on average, in the currency of the prices: of waiting, of on-demand, and ``[pool, job]`` of
    spot; infinite where an action is not possible. Only their differences have a meaning: they belong to a job with the same
    slack and somewhat more work and time.
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
    """The safety rule: the actions that jobs may take where they wish these, and for how many seconds they may.

    A job that waits, or that runs on spot and has to leave it first, must be able to do all of its work on on-demand afterwards;
    so must one for whose wish what runs has to end before (``leaves``).
    """
    spare = now.remaining - now.at_most - limits.launch - np.where(wish == Action.SPOT, limits.drain, 0.0)
    spare -= np.where(leaves, limits.drain, 0.0)
    action = np.where(spare > limits.look, wish, Action.ON_DEMAND).astype(np.int8)
    return action, np.where(action == Action.ON_DEMAND, np.inf, spare)


_LEAST_GAIN = 60.0  # seconds on on-demand whose price a move must save: less is not worth its trouble
_BOUNDS = np.array(AGES)
_FIRST = STEP / 2.0  # what a spell of the table had lasted on average when it was first seen


class Chooser(NamedTuple):
    """The policy of one job on its pools: it is made once, and asked at every decision."""

    job: Job
    pools: tuple[Pool, ...]
    limits: Limits
    table: CostTable

    def choose(self, now: Situation) -> Choices:
        """The cheapest safe action of each job; if only on-demand is safe, on-demand."""
        wait, spot, on_demand = self._costs(now)
        wait = np.where(now.mode == Action.WAIT, wait, np.inf)  # no node is left in order to wait
        every = np.arange(len(wait))
        on_spot = (now.mode == Action.SPOT) & (now.pool >= 0)
        here = np.where(on_spot, now.pool, 0)
        best = spot.argmin(axis=0)
        spare = now.remaining - now.at_most - self.limits.launch
        leaves = (now.mode != Action.WAIT) & ~(on_spot & (best == here))  # what runs has to end first
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
        """What waiting, spot by pool and on-demand cost from now on."""
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
        if here.any():  # steps of the table and of lifetimes are coarse: to go on never costs more than to launch there
            goes_on = self._more(now, bucket, now.left + np.where(here, now.starting, self.job.overhead))
            goes_on += table.spot[row, np.where(here, way, 0), alike, lost]
            spot = np.where(here, np.minimum(spot, goes_on), spot)
        spot = np.where(now.up & known, spot, np.inf)
        best = spot.argmin(axis=0)
        is_up = now.up.any(axis=0)
        youngest = np.where(now.up, BUCKETS - 1, bucket).min(axis=0)  # since the last of them went
        seen = np.where(is_up, alike[best, every], BUCKETS + youngest)
        later = np.where(is_up, more[best, every], 0.0)
        down = table.hazards.down
        back = np.array([down.chance(index, table.grid.tick) for index in range(BUCKETS)])[bucket]
        later *= 1.0 - np.where(~now.up & (more < later), back, 0.0).max(axis=0)
        wait = table.wait[row, seen, lost] + later
        on_demand = table.on_demand[row, np.where(now.mode == Action.ON_DEMAND, way, 0), seen, lost] + later
        return np.where(known, wait, np.inf), spot, np.where(known, on_demand, 0.0)

    def _more(self, now: Situation, bucket: Any, to_go: Any) -> Any:
        """By how much each pool costs more than the spot that the table knows, ``[pool, job]``.

        Its price counts until it is lost or the work is done. That of a dear pool counts only until a cheaper one comes back,
        if none is up now. The checkpoint has to be brought there.
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
        """The way of each job's mode in the table: 1 works, later ones are in a launch."""
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
    """For each age bucket of a pool, the bucket in which spot of the table lasts as long: a pool's own history counts so."""
    if own == known:
        return np.arange(BUCKETS)
    ticks = max(1, math.ceil(_DAY / tick))
    mine, table = lifetimes(own, tick, ticks)[-1], lifetimes(known, tick, ticks)[-1]
    return np.abs(mine[:, None] - table[None, :]).argmin(axis=1)


@lru_cache(maxsize=16)
def _solved(job: Job, hazards: HazardTable) -> CostTable:
    """The table of a job; tasks with the same figures share it."""
    return solve(job, hazards)
