"""Works out the cheapest safe policy for one job: backward dynamic programming over time, work, mode and the age of the spell.

The state is (ticks left, work lost so far, mode with the stage of its overhead, spot up or down with its age bucket). From the
last tick back, each state takes the action with the smallest expected cost; not being done at the deadline costs more than
anything else can, so the deadline is a hard constraint. Work and overhead are counted in units of about two minutes, rounded up,
so that rounding costs money and never the deadline; the exact safety rule at run time (:mod:`spotwright.deadlines.jobs`) uses the
exact durations.

"Work lost so far" stands for the work left: after t ticks, work left = work - t ticks + lost. It only grows, by a tick while the
job waits and by the overhead of each launch, so the table has as many columns as the deadline leaves slack, not as the job has
work.

A job that cannot save its work is decided apart: an attempt that is lost starts again from nothing, so only a whole attempt
counts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import BUCKETS, SHIPPED, HazardTable, bucket, chance_of_leaving
from spotwright.deadlines.jobs import DUST, Action, Job

__all__ = ["Geometry", "PolicyTable", "RestartTable", "geometry", "may_launch", "solve", "solve_restarts", "spot_ends"]


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


class PolicyTable(NamedTuple):
    """A solved policy: ``actions[t, observation, mode, lost]``, and the cost that it expects at the start, in each observation.

    An observation is an age bucket, with :data:`BUCKETS` added where spot is down.
    """

    job: Job
    grid: Geometry
    actions: Any
    expected: tuple[float, ...]


def geometry(job: Job, tick: float, per_tick: int | None = None) -> Geometry:
    """The grid for decisions ``tick`` seconds apart with ``per_tick`` units of work, by default of about two minutes."""
    per_tick = per_tick or max(1, round(tick / _UNIT))
    unit = tick / per_tick
    ticks = math.floor(job.deadline / tick + 1e-9)
    work, overhead = math.ceil(job.work / unit - 1e-9), math.ceil(job.overhead / unit - 1e-9)
    return Geometry(tick, ticks, per_tick, work, overhead, max(0, ticks * per_tick - work))


def _chances(hazards: HazardTable, tick: float) -> tuple[Any, Any]:
    """For each observation the chance that the spell ends within a tick, and that one which goes on enters the next bucket."""
    spells = (hazards.up, hazards.down)
    ends = [kind.chance(index, tick) for kind in spells for index in range(BUCKETS)]
    ages = [chance_of_leaving(index, tick) for _ in spells for index in range(BUCKETS)]
    return np.array(ends, np.float32)[:, None, None], np.array(ages, np.float32)[:, None, None]


def solve(job: Job, hazards: HazardTable = SHIPPED, tick: float = 600.0, per_tick: int | None = None) -> PolicyTable:
    """Return the policy with the smallest expected cost for a job, for decisions ``tick`` seconds apart.

    A job whose deadline on-demand cannot meet gets a table that always says on-demand.
    """
    grid = geometry(job.checked(), tick, per_tick)
    actions = np.full((grid.ticks, 2 * BUCKETS, grid.modes, grid.slack + 1), 2, np.int8)
    values = _Values(job, grid, hazards)
    if grid.work + grid.overhead <= grid.ticks * grid.per_tick:
        for tick_index in range(grid.ticks - 1, -1, -1):
            values.step(tick_index, actions[tick_index])
        return PolicyTable(job, grid, actions, tuple(float(cost) for cost in values.now[:, 0, 0]))
    paid = math.ceil((job.work + job.overhead) / tick - 1e-9) * tick / 3600.0 * job.on_demand_price
    return PolicyTable(job, grid, actions, (paid,) * (2 * BUCKETS))


class _Values:
    """The smallest expected cost of each state, one tick after the other from the end back."""

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

    def step(self, tick_index: int, actions: Any) -> None:
        """Go back one tick and write what is best in it to ``actions``.

        Only the columns that a job can have reached are worked out: it has lost no more than all time so far, and is not done.
        """
        grid, now = self.grid, self.now
        done = max(0, tick_index * grid.per_tick - grid.work + 1)
        first, last = min(done, grid.slack), min(grid.slack, tick_index * grid.per_tick) + 1
        self._columns = slice(first, last)
        now[BUCKETS:, 1 : 2 + grid.stages] = now[BUCKETS:, :1]  # a spot node that was taken: the job waits
        self._expect(slice(first, last + grid.per_tick))
        wait, spot, on_demand = self._outcome(0, None), self._outcome(1, None)[:BUCKETS], self._outcome(2, None)
        lesser, choice = wait.copy(), np.zeros(wait.shape, np.int8)
        np.less(spot, lesser[:BUCKETS], out=choice[:BUCKETS].view(np.bool_))
        np.minimum(spot, lesser[:BUCKETS], out=lesser[:BUCKETS])
        self._keep(actions, 0, lesser, choice, on_demand)
        for stage in range(grid.stages + 1):
            self._keep(actions, grid.mode(2, stage), lesser, choice, self._outcome(2, stage))
        lesser = np.minimum(wait[:BUCKETS], on_demand[:BUCKETS])
        choice = (on_demand[:BUCKETS] < wait[:BUCKETS]).astype(np.int8) * np.int8(2)
        for stage in range(grid.stages + 1):
            self._keep(actions, grid.mode(1, stage), lesser, choice, self._outcome(1, stage)[:BUCKETS])
        now[:, :, :done] = 0.0

    def _expect(self, columns: slice) -> None:
        """What the next tick costs, by the observation of this one: the spell goes on, at an age that may grow, or it ends.

        Plain products and sums, no matrix product: so every processor rounds the same way, and the table is the same everywhere.
        """
        now, later, part = self.now[:, :, columns], self._next[:, :, columns], self._part[:, :, columns]
        np.multiply(now, self._stays, out=later)
        for first in (0, BUCKETS):
            rows, following = slice(first, first + BUCKETS - 1), slice(first + 1, first + BUCKETS)
            later[rows] += np.multiply(now[following], self._ages[rows], out=part[rows])
            rows = slice(first, first + BUCKETS)
            later[rows] += np.multiply(now[BUCKETS - first], self._flips[rows], out=part[rows])

    def _outcome(self, action: int, stage: int | None) -> Any:
        """The cost of an action from now on, by observation and lost work; ``stage`` is None for a launch."""
        grid, columns = self.grid, self._columns
        if action == 0:
            return self._next[:, 0, columns.start + grid.per_tick : columns.stop + grid.per_tick]
        starting = grid.overhead if stage is None else grid.starting(stage)
        following = (1 if grid.stages else 0) if stage is None else grid.following(stage)
        lost = min(grid.per_tick, starting)
        costs = self._next[:, grid.mode(action, following), columns.start + lost : columns.stop + lost]
        return costs + np.float32(self._price[action])

    def _keep(self, actions: Any, mode: int, lesser: Any, choice: Any, other: Any) -> None:
        """Keep the better of ``choice`` at the cost ``lesser`` and ``other``: going on in the mode, or launching on-demand."""
        rows, action = slice(0, len(lesser)), 1 if 0 < mode < self.grid.mode(2) else 2
        actions[rows, mode, self._columns] = np.where(other <= lesser, np.int8(action), choice)
        np.minimum(other, lesser, out=self.now[rows, mode, self._columns])


_TICKS = 200  # decisions in the time to a deadline, at least
_MOST_TICKS = 2000
_PARTS = 10  # parts of an attempt, where that needs no more ticks


def spot_ends(job: Job, drain: float = 0.0) -> float:
    """The time to the deadline, in seconds, from which no attempt on spot may be launched any more.

    ``drain`` is what a running attempt needs to end when it is told to.
    """
    return 2.0 * (job.work + job.overhead) + drain


def may_launch(job: Job, remaining: float, drain: float = 0.0) -> bool:
    """Whether an attempt on spot may begin: on-demand could do all of the work again if it were lost at its end."""
    return remaining + DUST >= spot_ends(job, drain)


class RestartTable(NamedTuple):
    """A solved policy: ``actions[t, observation]`` with ``t`` ticks left, and what it costs from there on average.

    An observation is an age bucket, with :data:`~spotwright.deadlines.hazards.BUCKETS` added where spot is down.
    """

    job: Job
    drain: float
    tick: float
    actions: Any
    expected: Any

    def action(self, remaining: float, *, up: bool, age: float) -> Action:
        """What to do now with ``remaining`` seconds to the deadline: SPOT only where spot is up and a launch is safe."""
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

    A job whose deadline leaves no room for a second attempt gets a table that always says on-demand.
    """
    attempt = max(job.checked().work + job.overhead, DUST)
    tick = max(min(job.deadline / _TICKS, attempt / _PARTS), job.deadline / _MOST_TICKS, DUST)
    ticks, parts = math.floor(job.deadline / tick + 1e-9), math.ceil(attempt / tick - 1e-9)
    ends, ages = _by_bucket(hazards, tick)
    paid = attempt * job.on_demand_price / 3600.0
    spot = attempt / parts * job.spot_price / 3600.0
    actions = np.full((ticks + 1, 2 * BUCKETS), int(Action.ON_DEMAND), np.int8)
    expected = np.full((ticks + 1, 2 * BUCKETS), paid)
    running = np.full((parts + 1, BUCKETS), paid)  # what is still to pay, by the parts that are left and the age
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
    """The chances that a spell with and without spot ends within a tick, and that one which goes on enters the next bucket."""
    ends = [np.array([kind.chance(index, tick) for index in range(BUCKETS)]) for kind in (hazards.up, hazards.down)]
    return (ends[0], ends[1]), np.array([chance_of_leaving(index, tick) for index in range(BUCKETS)])


def _aged(values: Any, ages: Any) -> Any:
    """The values a tick later of spells that go on: in the same bucket, or in the next one."""
    later = values.copy()
    later[:, :-1] = (1.0 - ages[:-1]) * values[:, :-1] + ages[:-1] * values[:, 1:]
    return later


def _observation(*, up: bool, age: float) -> int:
    return bucket(age) + (0 if up else BUCKETS)
