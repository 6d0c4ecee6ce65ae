"""Finds the cheapest way through a window for somebody who knows it: the floor that no policy can beat. Exact, by backward DP.

The state is (tick, mode with the stage of its launch and its pool, work lost so far in grains); the grid is that of the
simulation, so the result is exact. Being late is not allowed: a job that is possible on on-demand always has a way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spotwright.deadlines.jobs import DUST, Job
from spotwright.market import Windows
from spotwright.simulation.jobs.tables import Grid, grid_of

__all__ = ["cheapest"]

_NEVER = 1e30
_AT_A_TIME = 8  # windows; more do not fit into a processor's cache


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
    few = [slice(first, first + _AT_A_TIME) for first in range(0, windows.size, _AT_A_TIME)]
    return np.concatenate([_few(job, grid, windows, some) for some in few])


def _few(job: Job, grid: Grid, windows: Windows, some: slice) -> Any:
    """The cheapest ways through a few windows at once, so that numpy has enough to do at a time."""
    stages, width, hours = 1 + grid.stages, grid.width, grid.tick / 3600.0
    up = windows.up[:, : grid.ticks, some]
    paid = job.spot_price if windows.prices is None else windows.prices[:, : grid.ticks, some]
    prices = np.where(up, paid * hours, _NEVER)
    late = np.arange(width) * grid.grain + job.work > job.deadline + DUST
    # waiting, on-demand by stage, spot by pool and stage; windows; work lost, with room for the tick that loses most
    now = np.full((1 + stages * (1 + len(up)), up.shape[2], width + grid.grains), _NEVER)
    now[:, :, :width][:, :, ~late] = 0.0
    later = now.copy()
    launch = min(grid.grains, grid.overhead)
    lost = [0] + [min(grid.grains, grid.overhead - stage * grid.grains) for stage in range(1, stages)]
    on_demand = np.full(up.shape[2], job.on_demand_price * hours)
    for tick in range(grid.ticks - 1, -1, -1):
        now, later = later, now
        over = tick * grid.tick - job.work + DUST
        done = min(width, int(over / grid.grain) + 1) if over >= 0 else 0
        first, last = (
            min(done, width - 1),
            min(width, tick * grid.grains + 1),
        )  # what a job can have lost, and is not done
        best = later[0, :, first + grid.grains : last + grid.grains]
        offers = [(1, on_demand[:, None])]
        offers += [(1 + stages * (1 + pool), prices[pool, tick][:, None]) for pool in range(len(up))]
        for row, price in offers:
            best = np.minimum(best, later[row + min(1, stages - 1), :, first + launch : last + launch] + price)
        now[0, :, first:last] = best
        for row, price in offers:
            for stage in range(stages):
                following = row + (0 if stage in {0, stages - 1} else stage + 1)
                goes_on = later[following, :, first + lost[stage] : last + lost[stage]] + price
                np.minimum(goes_on, best, out=now[row + stage, :, first:last])
        now[:, :, :done] = 0.0
    return now[0, :, 0]
