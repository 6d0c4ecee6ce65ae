"""Simulates one job with a deadline in thousands of windows at once, and computes the lower bound of its cost.

A policy is called as by the engine (:meth:`spotwright.deadlines.choice.Chooser.choose`), with an array of jobs: at every look
at the market and whenever its last decision expires. Between decisions all jobs run on as arrays. A node is paid by the second,
from its request on. A look is due at every tick of the windows; :class:`Conditions` vary the looks, launches and work from
those that the policy assumes.

The lower bound is the cheapest way through a window known in advance: exact, by backward dynamic programming.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.choice import Situation
from spotwright.deadlines.hazards import SHIPPED, HazardTable
from spotwright.deadlines.job_policies import Decides
from spotwright.deadlines.jobs import DUST, Action, Job
from spotwright.errors import InputError
from spotwright.market import Windows

__all__ = ["AS_STATED", "Conditions", "Results", "cheapest", "simulate"]


class Conditions(NamedTuple):
    """A job's conditions besides the market. Durations in seconds; ``None``: as the job states.

    ``launch`` is the actual time of a launch, known to a job once a launch has lasted as long as stated. ``work`` is the actual
    work, known once the job has done ``shown`` of it. Looks are ``every`` seconds apart (``None``: one per tick), the second
    one ``phase`` after the start (``None``: one such interval).
    """

    launch: float | None = None
    work: float | None = None
    shown: float = 0.0
    every: float | None = None
    phase: float | None = None


AS_STATED = Conditions()
"""The conditions that the job states."""


class Results(NamedTuple):
    """A job's results in each window, as arrays. Costs are in the currency of the prices, times in seconds.

    ``finish`` is the time from the start to the end, ``late`` whether that is after the deadline; ``spot`` and ``on_demand``
    are the paid times. ``launches`` and ``moves`` are counts; a move leaves a node that was not reclaimed. ``hopeless``: when
    the job was first seen to differ from its statement, on-demand could no longer meet its deadline.
    """

    cost: Any
    finish: Any
    late: Any
    spot: Any
    on_demand: Any
    launches: Any
    moves: Any
    hopeless: Any


def simulate(
    policy: Decides,
    job: Job,
    windows: Windows,
    conditions: Conditions = AS_STATED,
    hazards: HazardTable = SHIPPED,
) -> Results:
    """Simulate a job under a policy in every window, whose pools are the policy's.

    Spot is paid at the windows' prices, if any, else at the prices of the policy's pools. ``hazards`` gives the ages of spells
    that began before the windows. After the end of a window its market no longer changes. Raises :class:`InputError` for
    windows that are shorter than the deadline or have another number of pools.
    """
    windows.checked(math.ceil(job.checked().deadline / windows.tick - 1e-9) if job.is_possible else 0)
    if windows.pools != len(policy.pools):
        raise InputError(f"the windows have {windows.pools} pools, and the policy decides for {len(policy.pools)}")
    every = windows.tick if conditions.every is None else conditions.every
    look = every if conditions.phase is None else conditions.phase
    jobs = _Jobs(policy, job, windows, conditions, hazards)
    index, now = 0, 0.0
    while True:
        border = (index + 1) * windows.tick
        until = min(border, look)
        jobs.run(until)
        if not jobs.is_open().any():
            return jobs.results()
        now = until
        if now >= border - DUST:
            index += 1
            jobs.meet(index)
        if now >= look - DUST:
            look += every
            jobs.look()


class _Jobs:
    """The job in all windows: one element of each array is one window."""

    def __init__(
        self, policy: Decides, job: Job, windows: Windows, conditions: Conditions, hazards: HazardTable
    ) -> None:
        self._policy, self._job, self._windows = policy, job, windows
        self._launch = job.overhead if conditions.launch is None else conditions.launch
        self._work = job.work if conditions.work is None else conditions.work
        self._told = min(job.overhead, self._launch)  # the time after which a longer launch is noticed
        self._shown = min(conditions.shown, job.work)
        count = windows.size
        self._at, self._until = np.zeros(count), np.zeros(count)  # each job's clock, and its next decision
        self._left, self._starting = np.full(count, self._work), np.zeros(count)
        self._mode, self._pool = np.full(count, Action.WAIT, np.int8), np.full(count, -1)
        self._knows_launch = np.full(count, self._launch == job.overhead)
        self._knows_work = np.full(count, self._work == job.work)
        self._finish = np.where(self._left > DUST, np.inf, 0.0)
        self._cost, self._spot, self._on_demand = np.zeros(count), np.zeros(count), np.zeros(count)
        self._launches, self._moves = np.zeros(count, int), np.zeros(count, int)
        self._hopeless = np.zeros(count, bool)
        self._up, self._border = windows.up[:, 0], 0.0
        fixed = np.array([pool.price for pool in policy.pools])
        self._prices = (
            np.broadcast_to(fixed[:, None], self._up.shape) if windows.prices is None else windows.prices[:, 0]
        )
        self._places = np.array([pool.place for pool in policy.pools])
        first = hazards.up.first_age(), hazards.down.first_age()
        self._age = np.where(self._up, *first)

    def is_open(self) -> Any:
        """Which jobs have not ended yet."""
        return np.isinf(self._finish)

    def meet(self, index: int) -> None:
        """Apply the market at a tick; nodes of pools without spot are lost."""
        tick = self._windows.tick
        before, up = self._up, self._windows.up[:, min(index, self._windows.ticks - 1)]
        self._age = np.where(up == before, self._age + tick, 0.0)
        self._up, self._border = up, index * tick
        lost = (self._mode == Action.SPOT) & ~up[self._pool, np.arange(len(self._pool))]
        self._mode[lost], self._starting[lost] = Action.WAIT, 0.0
        if self._windows.prices is not None:
            self._prices = self._windows.prices[:, min(index, self._windows.ticks - 1)]

    def look(self) -> None:
        """Let all jobs decide again now."""
        self._until[:] = self._at

    def run(self, until: float) -> None:
        """Let all jobs run on to this moment."""
        due = np.flatnonzero(self.is_open())
        while due.size:
            asked = due[self._until[due] <= self._at[due] + DUST]
            if asked.size:
                self._ask(asked)
            self._step(due, until)
            due = due[np.isinf(self._finish[due]) & (self._at[due] < until - DUST)]

    def _ask(self, asked: Any) -> None:
        job, mode, pool = self._job, self._mode[asked], self._pool[asked]
        elapsed = self._at[asked] - self._border
        knows = self._knows_launch[asked]
        starting = np.where(knows, self._starting[asked], self._starting[asked] - self._launch + job.overhead)
        starting = np.where(self._starting[asked] > DUST, np.maximum(starting, 0.0), 0.0)
        left = np.where(self._knows_work[asked], self._left[asked], self._left[asked] - self._work + job.work)
        longer = np.where(knows, max(0.0, self._launch - self._policy.limits.launch), 0.0)
        up = self._up[:, asked]
        now = Situation(
            job.deadline - self._at[asked], left, left + longer, mode, pool, starting, up, self._age[:, asked] + elapsed,
        )  # fmt: skip
        choices = self._policy.choose(now)
        action, to = choices.action, np.where(choices.action == Action.SPOT, choices.pool, pool)
        launches = (action != Action.WAIT) & ((action != mode) | ((action == Action.SPOT) & (to != pool)))
        self._launches[asked] += launches
        self._moves[asked] += (mode != Action.WAIT) & (launches | (action == Action.WAIT))
        carried = launches & (action == Action.SPOT) & (pool >= 0) & (self._places[to] != self._places[pool])
        self._cost[asked] += carried * self._policy.limits.egress
        self._starting[asked] = np.where(launches, self._launch, self._starting[asked] * (action != Action.WAIT))
        self._mode[asked], self._pool[asked] = action, to
        self._until[asked] = self._at[asked] + choices.until

    def _step(self, due: Any, until: float) -> None:
        """Advance to the next event: a decision, the end, something to learn, or ``until``."""
        at, mode, starting, left = self._at[due], self._mode[due], self._starting[due], self._left[due]
        runs = mode != Action.WAIT
        needs = np.where(runs, starting + left, np.inf)
        learns = self._learns(due, runs)
        length = np.minimum(np.minimum(until, self._until[due]) - at, np.minimum(needs, learns.min(axis=0)))
        length = np.maximum(length, 0.0)
        self._pay(due, mode, length)
        worked = np.where(runs, np.maximum(0.0, length - starting), 0.0)
        self._left[due], self._starting[due] = left - worked, np.where(runs, np.maximum(0.0, starting - length), 0.0)
        self._at[due] = at + length
        done = needs <= length + DUST
        self._finish[due[done]] = at[done] + needs[done]
        if np.isfinite(learns).any():
            self._learn(due, learns <= length + DUST)

    def _pay(self, due: Any, mode: Any, length: Any) -> None:
        spot, on_demand = length * (mode == Action.SPOT), length * (mode == Action.ON_DEMAND)
        price = self._prices[np.maximum(self._pool[due], 0), due]
        self._spot[due] += spot
        self._on_demand[due] += on_demand
        self._cost[due] += (spot * price + on_demand * self._job.on_demand_price) / 3600.0

    def _learns(self, due: Any, runs: Any) -> Any:
        """The seconds until each job learns the actual launch time and the actual work; infinite: never."""
        starting = self._starting[due]
        launch = np.where(self._knows_launch[due] | (starting <= DUST), np.inf, starting - self._launch + self._told)
        work = np.where(self._knows_work[due], np.inf, starting + self._left[due] - self._work + self._shown)
        return np.where(runs, np.stack([launch, work]), np.inf)

    def _learn(self, due: Any, learned: Any) -> None:
        """Reveal the actual launch times and work, and let the jobs decide at once."""
        self._knows_launch[due] |= learned[0]
        self._knows_work[due] |= learned[1]
        some = due[learned.any(axis=0) & np.isinf(self._finish[due])]
        self._until[some] = self._at[some]
        launch = np.where(self._mode[some] == Action.ON_DEMAND, self._starting[some], self._launch)
        self._hopeless[some] |= self._at[some] + launch + self._left[some] > self._job.deadline + DUST

    def results(self) -> Results:
        """The results of the jobs."""
        return Results(
            self._cost, self._finish, self._finish > self._job.deadline + 1e-3, self._spot, self._on_demand, self._launches,
            self._moves, self._hopeless,
        )  # fmt: skip


_NEVER = 1e30
_AT_A_TIME = 8  # windows; more do not fit into the processor's cache
_MOST_GRAINS = 60  # per tick: with 10-minute ticks an overhead may be any multiple of 10 seconds


class _Grid(NamedTuple):
    """The states of a job: ``ticks`` decisions, ``grains`` per tick, ``overhead`` in grains, ``width`` amounts of lost work.

    A grain is the largest unit that divides both a tick and the overhead.
    """

    tick: float
    ticks: int
    grains: int
    overhead: int
    width: int

    @property
    def grain(self) -> float:
        """The seconds of a grain."""
        return self.tick / self.grains

    @property
    def stages(self) -> int:
        """The number of ticks that end before a launch is over."""
        return max(0, -(-self.overhead // self.grains) - 1)


def _grid(job: Job, tick: float) -> _Grid:
    for grains in range(1, _MOST_GRAINS + 1):
        overhead = job.overhead * grains / tick
        if abs(overhead - round(overhead)) < 1e-9:
            slack = math.floor((job.deadline - job.work) * grains / tick + 1e-9)
            return _Grid(tick, math.ceil(job.deadline / tick - 1e-9), grains, round(overhead), slack + grains + 1)
    raise InputError(
        f"overhead: {job.overhead:g} s is not a multiple of {tick / _MOST_GRAINS:g} s (a sixtieth of a tick); round it up, "
        f"for example to {math.ceil(job.overhead * 10 / tick) * tick / 10:g} s"
    )


def cheapest(job: Job, windows: Windows, prices: Sequence[float] = ()) -> Any:
    """The smallest possible cost of a job in each window, paid by the second.

    Decisions are at ticks, with the window known; no policy that looks at the market at ticks, and leaves spot or a wait in
    between only at the last moment, costs less. ``prices`` are spot's by pool, if the windows have none; by default the job's.
    Moving a checkpoint is free. A job that on-demand cannot finish in time costs as much as on-demand alone.

    Raises :class:`InputError` for an overhead that shares no unit of at least a sixtieth of a tick with the tick.
    """
    if not job.checked().is_possible or job.work <= DUST:
        length = job.work + job.overhead if job.work > DUST else 0.0
        return np.full(windows.size, length * job.on_demand_price / 3600.0)
    grid = _grid(job, windows.tick)
    windows.checked(grid.ticks)
    paid = np.array(prices or [job.spot_price] * windows.pools, float)[:, None, None]
    paid = np.broadcast_to(paid, windows.up.shape) if windows.prices is None else windows.prices
    few = [slice(first, first + _AT_A_TIME) for first in range(0, windows.size, _AT_A_TIME)]
    return np.concatenate([_few(job, grid, windows.up[:, : grid.ticks, some], paid[:, :, some]) for some in few])


def _few(job: Job, grid: _Grid, up: Any, paid: Any) -> Any:
    """The smallest costs of a few windows at once, a batch large enough for numpy."""
    stages, width = 1 + grid.stages, grid.width
    prices = np.where(up, paid[:, : grid.ticks] / 3600.0, _NEVER)
    late = np.arange(width) * grid.grain + job.work > job.deadline + DUST
    # waiting, on-demand by stage, spot by pool and stage; windows; work lost, with room for the costliest tick
    now = np.full((1 + stages * (1 + len(up)), up.shape[2], width + grid.grains), _NEVER)
    now[:, :, :width][:, :, ~late] = 0.0
    later = now.copy()
    lost = [0] + [min(grid.grains, grid.overhead - stage * grid.grains) for stage in range(1, stages)]
    launch = min(grid.grains, grid.overhead)
    on_demand = np.full(up.shape[2], job.on_demand_price / 3600.0)
    for tick in range(grid.ticks - 1, -1, -1):
        now, later = later, now
        over = tick * grid.tick - job.work + DUST
        done = min(width, int(over / grid.grain) + 1) if over >= 0 else 0
        # the work that an unfinished job can have lost
        first, last = min(done, width - 1), min(width, tick * grid.grains + 1)
        left = job.work - tick * grid.tick + np.arange(first, last) * grid.grain
        lasts = np.clip(left[None, :] + _overheads(grid)[:, None], 0.0, grid.tick)  # by stage, the launch last
        best = later[0, :, first + grid.grains : last + grid.grains]
        offers = [(1, on_demand[:, None])]
        offers += [(1 + stages * (1 + pool), prices[pool, tick][:, None]) for pool in range(len(up))]
        for row, price in offers:
            launched = later[row + min(1, stages - 1), :, first + launch : last + launch]
            best = np.minimum(best, launched + price * lasts[-1])
        now[0, :, first:last] = best
        for row, price in offers:
            for stage in range(stages):
                following = row + (0 if stage in {0, stages - 1} else stage + 1)
                goes_on = later[following, :, first + lost[stage] : last + lost[stage]] + price * lasts[stage]
                np.minimum(goes_on, best, out=now[row + stage, :, first:last])
        now[:, :, :done] = 0.0
    return now[0, :, 0]


def _overheads(grid: _Grid) -> Any:
    """The seconds of a launch left in each stage; the last value is a new launch."""
    stages = [0] + [grid.overhead - stage * grid.grains for stage in range(1, 1 + grid.stages)]
    return np.array([*stages, grid.overhead]) * grid.grain
