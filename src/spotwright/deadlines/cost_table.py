"""Computes the cost of each action of a job with a deadline: backward dynamic programming over time, work, mode and age.

The state is (ticks left, work lost so far, mode with the stage of its launch, spot up or down with its age bucket). From the
last tick back, each state takes the action with the smallest expected cost; a missed deadline costs more than anything else.
Work is counted in units of a few minutes, rounded up, so that rounding costs money and never the deadline; the safety rule at
run time (:mod:`spotwright.deadlines.choice`) uses the exact durations.

"Work lost so far" stands for the work left: after t ticks, work left = work - t ticks + lost. It only grows, by a tick while the
job waits and by the overhead of each launch, so the number of columns grows with the slack, not with the work. The best action
depends on the slack far more than on the time, so the costs of only a few moments are kept.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import BUCKETS, SHIPPED, HazardTable, Spells, chance_of_leaving
from spotwright.deadlines.jobs import DUST, Job

__all__ = [
    "CostTable",
    "Geometry",
    "geometry",
    "lifetimes",
    "solve",
]


_DECISIONS = 280  # decisions in the time to a deadline, at most
_PER_TICK = 4  # units of work between two of them
_LEAST_TICK = 600.0  # seconds, if the deadline leaves time for 60 of them
_ROWS = 22  # moments whose costs are kept
_NEVER = np.float32(1e9)  # more than any job costs; finite, because infinity times a zero probability is NaN


class Geometry(NamedTuple):
    """The grid of a table: ``ticks`` decisions ``tick`` seconds apart, ``per_tick`` units of work in each.

    ``work``, ``overhead`` (not rounded) and ``slack`` (the most work that may be lost) are in units. There is one mode for
    waiting, and for spot and on-demand each one that works and ``stages`` of an unfinished launch.
    """

    tick: float
    ticks: int
    per_tick: int
    work: int
    overhead: float
    slack: int

    @property
    def unit(self) -> float:
        """The seconds of one unit of work."""
        return self.tick / self.per_tick

    @property
    def stages(self) -> int:
        """The number of ticks that end before a launch is over."""
        return max(0, math.ceil(self.overhead / self.per_tick - 1e-9) - 1)

    @property
    def modes(self) -> int:
        """The number of modes."""
        return 1 + 2 * (1 + self.stages)

    def mode(self, action: int, stage: int = 0) -> int:
        """The index of a mode: ``stage`` 0 works, others are that many ticks into their launch."""
        return 0 if action == 0 else 1 + (action - 1) * (1 + self.stages) + stage

    def following(self, stage: int) -> int:
        """The stage after a tick in ``stage``."""
        return 0 if stage in {0, self.stages} else stage + 1

    def starting(self, stage: int) -> float:
        """The units of overhead that are left in a stage."""
        return self.overhead - stage * self.per_tick if stage else 0.0


class CostTable(NamedTuple):
    """The mean cost of a job from now on, by its action now, with the best actions after that.

    ``remaining`` are the moments of the first index, in seconds to the deadline; the last index is the work lost so far, in
    units of the grid. ``wait[moment, observation, lost]`` is waiting; ``spot`` and ``on_demand`` are ``[moment, way,
    observation, lost]``: way 0 launches, way 1 works already, higher ones are ``way - 1`` ticks into their launch. An
    observation is an age bucket, for on-demand and waiting with :data:`BUCKETS` added if spot is down.
    """

    job: Job
    grid: Geometry
    hazards: HazardTable
    remaining: Any
    wait: Any
    spot: Any
    on_demand: Any

    @property
    def size(self) -> int:
        """The bytes of all costs."""
        return int(self.wait.nbytes + self.spot.nbytes + self.on_demand.nbytes)

    def place(self, remaining: Any, left: Any) -> tuple[Any, Any, Any]:
        """The moment and the lost work of jobs, as indexes, and whether the table covers them: whether they have slack left."""
        row = np.searchsorted(-self.remaining, -np.asarray(remaining, float) + DUST, side="right") - 1
        slack = np.floor((remaining - left) / self.grid.unit + 1e-9)
        lost = self.grid.slack - slack
        return np.maximum(row, 0), np.clip(lost, 0, self.grid.slack).astype(np.intp), lost <= self.grid.slack


def geometry(job: Job) -> Geometry:
    """The grid for about 280 decisions to the deadline."""
    tick = max(job.deadline / _DECISIONS, min(_LEAST_TICK, job.deadline / 60.0), job.overhead / 4.0, DUST)
    unit = tick / _PER_TICK
    ticks = math.floor(job.deadline / tick + 1e-9)
    work = math.ceil(job.work / unit - 1e-9)
    return Geometry(tick, ticks, _PER_TICK, work, job.overhead / unit, max(0, ticks * _PER_TICK - work))


def _chances(hazards: HazardTable, tick: float) -> tuple[Any, Any]:
    """By observation, the probabilities that the spell ends within a tick, and that a continuing one enters the next bucket."""
    spells = (hazards.up, hazards.down)
    ends = [kind.chance(index, tick) for kind in spells for index in range(BUCKETS)]
    ages = [chance_of_leaving(index, tick) for _ in spells for index in range(BUCKETS)]
    shape = (2 * BUCKETS, 1, 1)
    return np.array(ends, np.float32).reshape(shape), np.array(ages, np.float32).reshape(shape)


def solve(job: Job, hazards: HazardTable = SHIPPED) -> CostTable:
    """Return the mean cost of every action of a job, with about 280 decisions until the deadline.

    If on-demand cannot meet the deadline, the table is empty.
    """
    grid = geometry(job.checked())
    if grid.work + grid.overhead > grid.ticks * grid.per_tick:
        grid = grid._replace(ticks=0, slack=0)
    kept = _kept(grid)
    width, ways = grid.slack + 1, 2 + grid.stages
    table = CostTable(
        job,
        grid,
        hazards,
        (grid.ticks - np.array(kept, float)) * grid.tick,
        np.full((len(kept), 2 * BUCKETS, width), _NEVER, np.float32),
        np.full((len(kept), ways, BUCKETS, width), _NEVER, np.float32),
        np.full((len(kept), ways, 2 * BUCKETS, width), _NEVER, np.float32),
    )
    values = _Values(job, grid, hazards)
    rows = {index: row for row, index in enumerate(kept)}
    for index in range(grid.ticks - 1, -1, -1):
        values.step(index, table, rows.get(index))
    return table


def _kept(grid: Geometry) -> list[int]:
    """The ticks whose costs are kept: evenly spread, and denser near the end."""
    if grid.ticks <= _ROWS:
        return list(range(max(1, grid.ticks)))
    shares = np.linspace(0.0, 1.0, _ROWS)
    left = np.unique(np.round(grid.ticks * (0.35 * shares + 0.65 * shares**3)).astype(int))
    return sorted({grid.ticks - max(1, int(each)) for each in left})


class _Values:
    """The smallest expected cost of each state, tick by tick from the end back."""

    def __init__(self, job: Job, grid: Geometry, hazards: HazardTable) -> None:
        self.grid = grid
        ends, ages = _chances(hazards, grid.tick)
        self._flips, self._ages, self._stays = ends, (1 - ends) * ages, (1 - ends) * (1 - ages)
        self._price = (0.0, job.spot_price * grid.tick / 3600.0, job.on_demand_price * grid.tick / 3600.0)
        width = grid.slack + 1
        self.now = np.full((2 * BUCKETS, grid.modes, width + grid.per_tick), _NEVER, np.float32)
        self.now[:, :, :width] = 0.0
        self._columns = slice(0, width)
        self._next, self._part = np.empty_like(self.now), np.empty_like(self.now)

    def step(self, tick_index: int, table: CostTable, row: int | None) -> None:
        """Go back one tick, and keep its costs in a row of the table.

        All columns of an unfinished job are computed: a job whose stated work was too small has lost more than the time so far.
        """
        grid, now = self.grid, self.now
        done = max(0, tick_index * grid.per_tick - grid.work + 1)
        first, last = min(done, grid.slack), grid.slack + 1
        columns = self._columns = slice(first, last)
        now[BUCKETS:, 1 : 2 + grid.stages] = now[BUCKETS:, :1]  # a reclaimed spot node: the job waits
        self._expect(slice(first, last + grid.per_tick))
        wait, spot, on_demand = self._outcome(0, None), self._outcome(1, None)[:BUCKETS], self._outcome(2, None)
        if row is not None:
            table.wait[row][:, columns] = wait
            table.spot[row, 0][:, columns], table.on_demand[row, 0][:, columns] = spot, on_demand
        least = wait.copy()
        np.minimum(spot, least[:BUCKETS], out=least[:BUCKETS])
        np.minimum(on_demand, least, out=now[:, 0, columns])
        for stage in range(grid.stages + 1):
            going_on = self._outcome(2, stage)
            np.minimum(going_on, least, out=now[:, grid.mode(2, stage), columns])
            if row is not None:
                table.on_demand[row, 1 + stage][:, columns] = going_on
        least = np.minimum(wait[:BUCKETS], on_demand[:BUCKETS])
        for stage in range(grid.stages + 1):
            going_on = self._outcome(1, stage)[:BUCKETS]
            np.minimum(going_on, least, out=now[:BUCKETS, grid.mode(1, stage), columns])
            if row is not None:
                table.spot[row, 1 + stage][:, columns] = going_on
        now[:, :, :done] = 0.0

    def _expect(self, columns: slice) -> None:
        """The cost of the next tick by this tick's observation: the spell continues, possibly in the next bucket, or ends.

        Plain products and sums instead of a matrix product, so that every processor rounds the same way and gets the same
        table.
        """
        now, later, part = self.now[:, :, columns], self._next[:, :, columns], self._part[:, :, columns]
        np.multiply(now, self._stays, out=later)
        for first in (0, BUCKETS):
            rows, following = slice(first, first + BUCKETS - 1), slice(first + 1, first + BUCKETS)
            later[rows] += np.multiply(now[following], self._ages[rows], out=part[rows])
            rows = slice(first, first + BUCKETS)
            later[rows] += np.multiply(now[BUCKETS - first], self._flips[rows], out=part[rows])

    def _outcome(self, action: int, stage: int | None) -> Any:
        """The cost of an action from now on, by observation and lost work; ``stage`` is None for a new launch."""
        grid, columns = self.grid, self._columns
        if action == 0:
            return self._next[:, 0, columns.start + grid.per_tick : columns.stop + grid.per_tick]
        starting = grid.overhead if stage is None else grid.starting(stage)
        following = (1 if grid.stages else 0) if stage is None else grid.following(stage)
        whole, part = divmod(min(float(grid.per_tick), starting), 1.0)
        costs = self._next[:, grid.mode(action, following), columns.start + int(whole) : columns.stop + int(whole) + 1]
        price = np.float32(self._price[action])
        if part < 1e-6:
            return costs[:, : columns.stop - columns.start] + price
        return costs[:, :-1] * np.float32(1.0 - part) + costs[:, 1:] * np.float32(part) + price


@lru_cache(maxsize=64)
def lifetimes(up: Spells, tick: float, ticks: int) -> Any:
    """The mean seconds for which a job pays a spot node, ``[ticks to go, age bucket]``, with launch and work in ticks.

    It pays until the node is reclaimed or the work is done.
    """
    goes_on = 1.0 - np.array([up.chance(index, tick) for index in range(BUCKETS)])
    ages = np.array([chance_of_leaving(index, tick) for index in range(BUCKETS)])
    same, older = goes_on * (1.0 - ages), (goes_on * ages)[:-1]
    found = np.zeros((ticks + 1, BUCKETS))
    for left in range(ticks):
        before, row = found[left], found[left + 1]
        np.multiply(same, before, out=row)
        row[:-1] += older * before[1:]
        row += tick
    return found
