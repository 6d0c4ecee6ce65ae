"""Simulates a job over all windows of a market at once: the loop goes over ticks, numpy over windows.

Each window is one 64-bit number (see :mod:`spotwright.simulation.jobs.tables`); a tick looks up its transition and adds what that
changes. Nothing is drawn, so the same windows give the same answer, and two policies on the same windows are compared on the same
luck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import SHIPPED, HazardTable
from spotwright.deadlines.job_policies import Policy
from spotwright.deadlines.jobs import DUST, Job
from spotwright.market import Windows
from spotwright.simulation.jobs.tables import ON_DEMAND_COUNT, SPOT_COUNT, STATE_BITS, Tables, compiled

__all__ = ["Results", "run", "simulate"]

_STATE = np.int64((1 << STATE_BITS) - 1)
_COUNT = np.int64((1 << (ON_DEMAND_COUNT - SPOT_COUNT)) - 1)


class Results(NamedTuple):
    """What became of a job in each window, as arrays. Costs are in the currency of the job's prices, times in seconds.

    ``finish`` is the time from the start to the end, ``late`` whether that is after the deadline; ``spot`` and ``on_demand`` are
    the times that were paid for.
    """

    cost: Any
    finish: Any
    late: Any
    spot: Any
    on_demand: Any


def simulate(
    policy: Policy, job: Job, windows: Windows, hazards: HazardTable = SHIPPED, observations: Any = None
) -> Results:
    """Simulate a job under a policy in every window. ``hazards`` gives the ages of spells that began before the windows.

    ``observations`` spares computing ``windows.observations(hazards)`` again for every job and policy. A job that on-demand
    cannot finish in time runs on on-demand from the start, and is late.
    """
    if not job.checked().is_possible or job.work <= DUST:
        return _on_demand(job, windows)
    tables = compiled(policy, job, windows.tick)
    windows.checked(tables.grid.ticks)
    seen = windows.observations(hazards) if observations is None else observations
    return run(tables, windows, seen, windows.ages(hazards) if windows.pools > 1 else None)


def run(tables: Tables, windows: Windows, observations: Any, ages: Any = None) -> Results:
    """Simulate with tables that were compiled before; ``ages`` are needed where there are several pools."""
    spent = None if windows.prices is None else np.zeros(windows.size)
    if windows.pools == 1:
        on_tick = None if spent is None else _pays(tables, windows.prices[0], spent)
        jobs = _one_pool(tables, observations[0], on_tick)
    else:
        jobs = _several_pools(tables, windows, observations, ages, spent)
    return _results(tables, jobs, spent)


def _one_pool(tables: Tables, observations: Any, on_tick: Callable[[int, Any], None] | None) -> Any:
    grid, count = tables.grid, observations.shape[1]
    stride = np.int64(grid.modes * grid.width)
    jobs, cells = np.zeros(count, np.int64), np.empty(count, np.int64)
    state, change = np.empty(count, np.int64), np.empty(count, np.int64)
    found, chosen = np.empty(count, np.uint8), np.empty(count, np.intp)
    for index in range(grid.ticks):
        np.multiply(observations[index], stride, out=cells)
        np.bitwise_and(jobs, _STATE, out=state)
        cells += state
        tables.transitions[index].take(cells, out=found, mode="clip")
        if on_tick is not None:
            on_tick(index, found)
        chosen[:] = found
        tables.steps.take(chosen, out=change, mode="clip")
        jobs += change
    return jobs


def _pays(tables: Tables, prices: Any, spent: Any) -> Callable[[int, Any], None]:
    """Adds up spot at the price of each tick."""
    modes = tables.grid.modes

    def pay(index: int, found: Any) -> None:
        spent[:] += np.where((found >= modes) & (found < 2 * modes), prices[index], 0.0)

    return pay


def _several_pools(tables: Tables, windows: Windows, observations: Any, ages: Any, spent: Any) -> Any:
    """A job stays on its pool until it is lost there; a launch goes to the pool that has been up the longest."""
    grid, count = tables.grid, windows.size
    every = np.arange(count)
    jobs, pool = np.zeros(count, np.int64), np.zeros(count, np.intp)
    spots = 1 + grid.stages
    for index in range(grid.ticks):
        up = windows.up[:, index]
        best = np.where(up, ages[:, index] + 1e9, -ages[:, index]).argmax(axis=0)
        state = jobs & _STATE
        mode = state // grid.width
        stays = (mode >= 1) & (mode <= spots) & up[pool, every]
        lost = (mode >= 1) & (mode <= spots) & ~stays
        jobs -= np.where(lost, mode * grid.width, 0)
        state = jobs & _STATE
        pool = np.where(stays, pool, best)
        cells = observations[pool, index, every].astype(np.int64) * (grid.modes * grid.width) + state
        found = tables.transitions[index].take(cells)
        if spent is not None:
            on_spot = (found >= grid.modes) & (found < 2 * grid.modes)
            spent += np.where(on_spot, windows.prices[pool, index, every], 0.0)
        jobs += tables.steps[found]
    return jobs


def _results(tables: Tables, jobs: Any, spent: Any) -> Results:
    job, grid = tables.job, tables.grid
    hours = grid.tick / 3600.0
    spot, on_demand = (jobs >> SPOT_COUNT) & _COUNT, jobs >> ON_DEMAND_COUNT
    lost = (jobs & _STATE) % grid.width
    cost = on_demand * (job.on_demand_price * hours) + (spot * job.spot_price if spent is None else spent) * hours
    finish = job.work + lost * grid.grain
    return Results(cost, finish, finish > job.deadline + DUST, spot * grid.tick, on_demand * grid.tick)


def _on_demand(job: Job, windows: Windows) -> Results:
    """All on on-demand, from the start."""
    windows.checked(0)
    length = job.work + job.overhead if job.work > DUST else 0.0
    paid = np.ceil(length / windows.tick - 1e-9) * windows.tick
    count = windows.size
    return Results(
        np.full(count, paid * job.on_demand_price / 3600.0),
        np.full(count, length),
        np.full(count, length > job.deadline + DUST),
        np.zeros(count),
        np.full(count, paid),
    )
