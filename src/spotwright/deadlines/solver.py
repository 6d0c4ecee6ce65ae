"""Works out the cheapest safe policy for one job: backward dynamic programming over time, work, mode and the age of the spell.

The state is (ticks left, work lost so far, mode with the stage of its overhead, spot up or down with its age bucket). From the
last tick back, each state takes the action with the smallest expected cost; not being done at the deadline costs more than
anything else can, so the deadline is a hard constraint. Work and overhead are counted in units of about two minutes, rounded up,
so that rounding costs money and never the deadline; the exact safety rule at run time (:mod:`spotwright.deadlines.jobs`) uses the
exact durations.

"Work lost so far" stands for the work left: after t ticks, work left = work - t ticks + lost. It only grows, by a tick while the
job waits and by the overhead of each launch, so the table has as many columns as the deadline leaves slack, not as the job has
work.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import BUCKETS, SHIPPED, HazardTable, chance_of_leaving
from spotwright.deadlines.jobs import Job

__all__ = ["Geometry", "PolicyTable", "Relief", "solve"]

_UNIT = 120.0
_NEVER = np.float32(1e9)  # more than any job costs; finite, because infinity times a chance of zero is no number


class Geometry(NamedTuple):
    """The grid of a table: ``ticks`` decisions ``tick`` seconds apart, ``per_tick`` units of work in each.

    ``work``, ``overhead`` and ``slack`` (the work that may be lost at most) are in units. There is one mode for waiting, and for
    spot and on-demand each one that works and ``stages`` in which a launch is not over yet.
    """

    tick: float
    ticks: int
    per_tick: int
    work: int
    overhead: int
    slack: int

    @property
    def unit(self) -> float:
        """The seconds of one unit of work."""
        return self.tick / self.per_tick

    @property
    def stages(self) -> int:
        """The number of ticks that end with some overhead of a launch still to go."""
        return max(0, -(-self.overhead // self.per_tick) - 1)

    @property
    def modes(self) -> int:
        """The number of modes."""
        return 1 + 2 * (1 + self.stages)

    def mode(self, action: int, stage: int = 0) -> int:
        """The index of a mode: ``stage`` 0 works, others have had that many ticks of their launch."""
        return 0 if action == 0 else 1 + (action - 1) * (1 + self.stages) + stage

    def following(self, stage: int) -> int:
        """The stage after a tick in ``stage``."""
        return 0 if stage in {0, self.stages} else stage + 1

    def starting(self, stage: int) -> int:
        """The units of overhead that are left in a stage."""
        return self.overhead - stage * self.per_tick if stage else 0


class Relief(NamedTuple):
    """What several pools do for a job: where spot is when its own pool is lost, and when all of them are.

    ``other`` is the chance that another pool has spot at the moment of a loss, ``ages`` the shares of the age buckets of the pool
    that is then taken, ``back`` the hazard table of "no pool has spot".
    """

    other: float
    ages: tuple[float, ...]
    back: HazardTable


class PolicyTable(NamedTuple):
    """A solved policy: ``actions[t, observation, mode, lost]``, and the cost that it expects at the start, in each observation.

    An observation is an age bucket, with :data:`BUCKETS` added where spot is down.
    """

    job: Job
    grid: Geometry
    actions: Any
    expected: tuple[float, ...]


def geometry(job: Job, tick: float) -> Geometry:
    """The grid of a job for decisions ``tick`` seconds apart, with units of about two minutes, or a whole tick if shorter."""
    per_tick = max(1, round(tick / _UNIT))
    unit = tick / per_tick
    ticks = math.floor(job.deadline / tick + 1e-9)
    work, overhead = math.ceil(job.work / unit - 1e-9), math.ceil(job.overhead / unit - 1e-9)
    return Geometry(tick, ticks, per_tick, work, overhead, max(0, ticks * per_tick - work))


def transitions(hazards: HazardTable, tick: float, relief: Relief | None = None) -> Any:
    """The chances of the next observation (columns) after each observation (rows)."""
    matrix = np.zeros((2 * BUCKETS, 2 * BUCKETS), np.float32)
    down = hazards.down if relief is None else relief.back.down
    for index in range(BUCKETS):
        later = min(index + 1, BUCKETS - 1)
        leaves = chance_of_leaving(index, tick)
        for first, spells in ((0, hazards.up), (BUCKETS, down)):
            ends = spells.chance(index, tick)
            matrix[first + index, first + index] += (1.0 - ends) * (1.0 - leaves)
            matrix[first + index, first + later] += (1.0 - ends) * leaves
            matrix[first + index, BUCKETS - first] += ends
    return matrix


def solve(job: Job, hazards: HazardTable = SHIPPED, tick: float = 600.0, relief: Relief | None = None) -> PolicyTable:
    """Return the policy with the smallest expected cost for a job, for decisions ``tick`` seconds apart.

    A job whose deadline on-demand cannot meet gets a table that always says on-demand.
    """
    grid = geometry(job.checked(), tick)
    actions = np.full((grid.ticks, 2 * BUCKETS, grid.modes, grid.slack + 1), 2, np.int8)
    values = _Values(job, grid, hazards, relief)
    if grid.work + grid.overhead <= grid.ticks * grid.per_tick:
        for tick_index in range(grid.ticks - 1, -1, -1):
            values.step(tick_index, actions[tick_index])
    return PolicyTable(job, grid, actions, tuple(float(cost) for cost in values.now[:, 0, 0]))


class _Values:
    """The smallest expected cost of each state, one tick after the other from the end back."""

    def __init__(self, job: Job, grid: Geometry, hazards: HazardTable, relief: Relief | None) -> None:
        self.grid, self._chances = grid, transitions(hazards, grid.tick, relief)
        self._relief = relief
        self._price = (0.0, job.spot_price * grid.tick / 3600.0, job.on_demand_price * grid.tick / 3600.0)
        self._width = grid.slack + 1
        self.now = np.full((2 * BUCKETS, grid.modes, self._width + grid.per_tick), _NEVER, np.float32)
        self.now[:, :, : self._width] = 0.0
        self._next = np.empty_like(self.now)
        self._hop: Any = None
        if relief is not None:
            lost = [hazards.up.chance(index, grid.tick) * relief.other for index in range(BUCKETS)]
            self._hop = np.outer(np.array(lost, np.float32), np.array(relief.ages, np.float32))

    def step(self, tick_index: int, actions: Any) -> None:
        """Go back one tick and write what is best in it to ``actions``."""
        grid, now, width = self.grid, self.now, self._width
        now[BUCKETS:, 1 : 2 + grid.stages] = now[BUCKETS:, :1]  # a spot node that was taken: the job waits
        flat = self._next.reshape(2 * BUCKETS, -1)
        np.matmul(self._chances, now.reshape(2 * BUCKETS, -1), out=flat)
        if self._hop is not None:
            self._add_hops()
        wait = self._next[:, 0, grid.per_tick : grid.per_tick + width]
        spot, on_demand = self._outcome(1, None)[:BUCKETS], self._outcome(2, None)
        lesser, choice = wait.copy(), np.zeros((2 * BUCKETS, width), np.int8)
        np.less(spot, lesser[:BUCKETS], out=choice[:BUCKETS].view(np.bool_))
        np.minimum(spot, lesser[:BUCKETS], out=lesser[:BUCKETS])
        self._keep(actions, 0, lesser, choice, on_demand, 2)
        for stage in range(grid.stages + 1):
            self._keep(actions, grid.mode(2, stage), lesser, choice, self._outcome(2, stage), 2)
        lesser = np.minimum(wait[:BUCKETS], on_demand[:BUCKETS])
        choice = (on_demand[:BUCKETS] < wait[:BUCKETS]).astype(np.int8) * np.int8(2)
        for stage in range(grid.stages + 1):
            self._keep(actions, grid.mode(1, stage), lesser, choice, self._outcome(1, stage)[:BUCKETS], 1)
        done = tick_index * grid.per_tick - grid.work + 1
        if done > 0:
            now[:, :, : min(done, width)] = 0.0

    def _outcome(self, action: int, stage: int | None) -> Any:
        """The cost of an action from now on, by observation and lost work; ``stage`` is None for a launch."""
        grid = self.grid
        starting = grid.overhead if stage is None else grid.starting(stage)
        following = (1 if grid.stages else 0) if stage is None else grid.following(stage)
        lost = min(grid.per_tick, starting)
        return self._next[:, grid.mode(action, following), lost : lost + self._width] + np.float32(self._price[action])

    def _keep(self, actions: Any, mode: int, lesser: Any, choice: Any, other: Any, action: int) -> None:
        """Keep the better of ``choice`` at the cost ``lesser`` and ``action`` at the cost ``other``."""
        rows = slice(0, len(lesser))
        actions[rows, mode] = np.where(other <= lesser, np.int8(action), choice)
        np.minimum(other, lesser, out=self.now[rows, mode, : self._width])

    def _add_hops(self) -> None:
        """Where other pools are up at a loss, the job goes on there, after a launch, and is not without spot."""
        spots = 2 + self.grid.stages
        self._next[:BUCKETS, :spots] += self._hops(self.now[:, :1])
        self._next[:BUCKETS, spots:] += self._hops(self.now[:, spots:])

    def _hops(self, values: Any) -> Any:
        others = self._hop @ values[:BUCKETS].reshape(BUCKETS, -1)
        nothing = self._hop.sum(axis=1, keepdims=True) * values[BUCKETS].reshape(1, -1)
        return (others - nothing).reshape(BUCKETS, *values.shape[1:])
