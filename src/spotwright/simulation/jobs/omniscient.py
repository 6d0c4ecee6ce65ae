"""Finds the cheapest way through a window for somebody who knows it: the floor that no policy can beat. Exact, by backward DP.

The state is (tick, mode with the stage of its launch and its pool, work lost so far in grains); the grid is that of the
simulation, so the result is exact. Being late is not allowed: a job that is possible on on-demand always has a way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spotwright.deadlines.jobs import DUST, Job
from spotwright.market.windows import Windows
from spotwright.simulation.jobs.tables import Grid, grid_of

__all__ = ["cheapest"]

_NEVER = 1e30


def cheapest(job: Job, windows: Windows) -> Any:
    """The smallest possible cost of a job in each window, one number a window.

    The cost of a job that on-demand cannot finish in time is that of on-demand alone, as in the simulation.
    """
    if not job.checked().is_possible or job.work <= DUST:
        length = job.work + job.overhead if job.work > DUST else 0.0
        paid = np.ceil(length / windows.tick - 1e-9) * windows.tick
        return np.full(windows.size, paid * job.on_demand_price / 3600.0)
    grid = grid_of(job, windows.tick)
    windows.checked(grid.ticks)
    return np.array([_one(job, grid, windows, index) for index in range(windows.size)])


def _one(job: Job, grid: Grid, windows: Windows, window: int) -> float:
    stages, width, hours = 1 + grid.stages, grid.width, grid.tick / 3600.0
    up = windows.up[:, : grid.ticks, window]
    prices = np.full(up.shape, job.spot_price) if windows.prices is None else windows.prices[:, : grid.ticks, window]
    limit = np.arange(width) * grid.grain + job.work > job.deadline + DUST  # too much lost to be in time
    # rows: waiting, on-demand by stage, spot by pool and stage; columns: work lost, with room for the tick that loses most
    now = np.full((1 + stages * (1 + len(up)), width + grid.grains), _NEVER)
    now[:, :width][:, ~limit] = 0.0
    later = now.copy()
    lost = [min(grid.grains, grid.overhead)] + [
        min(grid.grains, grid.overhead - stage * grid.grains) for stage in range(1, stages)
    ]
    for tick in range(grid.ticks - 1, -1, -1):
        now, later = later, now
        wait = later[0, grid.grains : grid.grains + width]
        launches = [later[1 + (1 if stages > 1 else 0), lost[0] : lost[0] + width] + job.on_demand_price * hours]
        _go_on(now, later, 1, lost, job.on_demand_price * hours, width)
        for pool in np.flatnonzero(up[:, tick]):
            row, price = 1 + stages * (1 + int(pool)), float(prices[pool, tick]) * hours
            launches.append(later[row + (1 if stages > 1 else 0), lost[0] : lost[0] + width] + price)
            _go_on(now, later, row, lost, price, width)
        best = wait.copy()
        for launch in launches:
            np.minimum(best, launch, out=best)
        now[0, :width] = best
        now[1 : 1 + stages, :width] = np.minimum(now[1 : 1 + stages, :width], best)
        for pool in range(len(up)):
            rows = slice(1 + stages * (1 + pool), 1 + stages * (2 + pool))
            now[rows, :width] = np.minimum(now[rows, :width], best) if up[pool, tick] else best
        over = tick * grid.tick - job.work + DUST
        if over >= 0:
            now[:, : min(width, int(over / grid.grain) + 1)] = 0.0
    return float(now[0, 0])


def _go_on(now: Any, later: Any, row: int, lost: list[int], price: float, width: int) -> None:
    """The cost of going on in each stage of a kind of node, before it is compared with a change."""
    np.add(later[row, :width], price, out=now[row, :width])
    for stage in range(1, len(lost)):
        following = 0 if stage == len(lost) - 1 else stage + 1
        np.add(later[row + following, lost[stage] : lost[stage] + width], price, out=now[row + stage, :width])
