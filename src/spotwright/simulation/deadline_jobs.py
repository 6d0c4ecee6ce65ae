"""Simulates one job with a deadline over thousands of windows at once, and finds the floor that no policy can beat.

A policy becomes tables of transitions, one a tick; the loop goes over ticks, numpy over windows. A state is a mode (with the
stage of its launch) and the work lost so far, counted in *grains*: the largest unit of which a tick and the overhead are whole
multiples, so that the simulation is exact. A table gives for every observation and state the *transition*: the action and the
mode that it comes from, as one small number. The safety rule is in the tables already.

The floor is the cheapest way through a window for somebody who knows it: exact, by backward dynamic programming.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED, HazardTable
from spotwright.deadlines.job_policies import Eager, Greedy, Learned, OnDemandOnly, Policy, UniformProgress
from spotwright.deadlines.jobs import DUST, Action, Job
from spotwright.errors import InputError
from spotwright.market import Windows

__all__ = [
    "ON_DEMAND_COUNT",
    "SPOT_COUNT",
    "STATE_BITS",
    "Grid",
    "Results",
    "Tables",
    "Waiting",
    "cheapest",
    "choices",
    "compiled",
    "grid_of",
    "run",
    "simulate",
]


_MOST_GRAINS = 60  # of a tick: with 10-minute ticks an overhead may be any number of whole 10 seconds

STATE_BITS, SPOT_COUNT, ON_DEMAND_COUNT = 32, 32, 48
"""A simulated job is one 64-bit number: its state in the lowest bits, above it the ticks that it paid for spot and on-demand."""


class Grid(NamedTuple):
    """The states of a job: ``ticks`` decisions, ``grains`` a tick, ``overhead`` in grains, ``width`` amounts of lost work."""

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
        """The number of ticks that end with some overhead of a launch still to go."""
        return max(0, -(-self.overhead // self.grains) - 1)

    @property
    def modes(self) -> int:
        """The number of modes: waiting, and spot and on-demand working or in a stage of their launch."""
        return 1 + 2 * (1 + self.stages)

    @property
    def done(self) -> int:
        """The transition of a job that is done."""
        return 3 * self.modes

    def split(self, mode: int) -> tuple[Action, int]:
        """The action and the stage of a mode."""
        if mode == 0:
            return Action.WAIT, 0
        action, stage = divmod(mode - 1, 1 + self.stages)
        return Action(action + 1), stage

    def starting(self, mode: int) -> int:
        """The grains of overhead that are left in a mode."""
        _, stage = self.split(mode)
        return self.overhead - stage * self.grains if stage else 0

    def transition(self, action: Action, mode: int) -> tuple[int, int]:
        """The mode after a tick of ``action`` in ``mode``, and the grains of work that the tick loses."""
        if action is Action.WAIT:
            return 0, self.grains
        before, stage = self.split(mode)
        if before is not action:
            starting, following = self.overhead, 1 if self.stages else 0
        else:
            starting, following = self.starting(mode), 0 if stage in {0, self.stages} else stage + 1
        return 1 + (action - 1) * (1 + self.stages) + following, min(self.grains, starting)


class Tables(NamedTuple):
    """A policy for one job: ``transitions[t]`` is flat, by observation, mode and lost work; ``steps`` what each adds to a job."""

    job: Job
    grid: Grid
    transitions: Any
    steps: Any


def grid_of(job: Job, tick: float) -> Grid:
    """The states of a possible job.

    Raises :class:`InputError` for an overhead that is no whole multiple of a sixtieth of a tick or of a larger part of one.
    """
    for grains in range(1, _MOST_GRAINS + 1):
        overhead = job.overhead * grains / tick
        if abs(overhead - round(overhead)) < 1e-9:
            slack = math.floor((job.deadline - job.work) * grains / tick + 1e-9)
            return Grid(tick, math.ceil(job.deadline / tick - 1e-9), grains, round(overhead), slack + grains + 1)
    raise InputError(
        f"overhead: {job.overhead:g} s is no multiple of {tick / _MOST_GRAINS:g} s (a sixtieth of a tick); round it up, "
        f"for example to {math.ceil(job.overhead * 10 / tick) * tick / 10:g} s"
    )


def compiled(policy: Policy, job: Job, tick: float) -> Tables:
    """The tables of a policy for a job that is possible."""
    grid = grid_of(job, tick)
    wishes, lock = _wishes(policy, job, grid), _Lock(job, grid)
    numbers = (np.arange(3)[:, None] * grid.modes + np.arange(grid.modes)[None, :]).astype(np.uint8)
    size = 2 * BUCKETS * grid.modes * grid.width
    transitions = np.empty((grid.ticks, size), np.uint8)
    for index in range(grid.ticks):
        actions = lock.apply(index, wishes(index))
        cells = transitions[index].reshape(2 * BUCKETS, grid.modes, grid.width)
        cells[:] = actions * np.uint8(grid.modes) + numbers[0][:, None]
        over = _done(job, grid, index)
        if over:
            cells[:, :, :over] = grid.done
    return Tables(job, grid, transitions, _steps(grid))


def _steps(grid: Grid) -> Any:
    steps = np.zeros(3 * grid.modes + 1, np.int64)
    for action in Action:
        paid = (0, 1 << SPOT_COUNT, 1 << ON_DEMAND_COUNT)[action]
        for mode in range(grid.modes):
            following, lost = grid.transition(action, mode)
            steps[action * grid.modes + mode] = (following - mode) * grid.width + lost + paid
    return steps


def _done(job: Job, grid: Grid, index: int) -> int:
    """How many amounts of lost work, from zero on, mean that the job is done after ``index`` ticks."""
    spare = index * grid.tick - job.work + DUST
    return 0 if spare < 0 else min(grid.width, math.floor(spare / grid.grain) + 1)


class _Lock:
    """The safety rule for all states at once: wishes that are not safe become on-demand."""

    def __init__(self, job: Job, grid: Grid) -> None:
        self._job, self._grid = job, grid
        lost = np.arange(grid.width)
        self._after = np.empty((2, grid.modes, grid.width))  # work lost after waiting or spot, in seconds
        for action in (Action.WAIT, Action.SPOT):
            for mode in range(grid.modes):
                self._after[action, mode] = (lost + grid.transition(action, mode)[1]) * grid.grain
        self._forbidden = job.work + self._after + job.overhead > job.deadline + DUST
        self._late = job.work + self._after > job.deadline + DUST  # of a job that this tick ends

    def apply(self, index: int, wishes: Any) -> Any:
        """The actions of a tick: [observation, mode, lost]. A lost spot node leaves a job that waits."""
        grid = self._grid
        actions = np.array(np.broadcast_to(wishes, (2 * BUCKETS, grid.modes, grid.width)))
        forbidden = self._forbidden
        left = self._job.work - (index + 1) * grid.tick + self._after
        if (left <= DUST).any():
            forbidden = np.where(left > DUST, forbidden, self._late)
        actions[(actions == 0) & forbidden[0]] = 2
        actions[:BUCKETS][(actions[:BUCKETS] == 1) & forbidden[1]] = 2
        actions[BUCKETS:, 1 : 2 + grid.stages] = actions[BUCKETS:, :1]
        return actions


def _wishes(policy: Policy, job: Job, grid: Grid) -> Any:
    """The wishes of a policy as a function of the tick: an array that can be spread over [observation, mode, lost]."""
    spot = np.zeros((2 * BUCKETS, 1, 1), np.uint8)
    spot[:BUCKETS] = 1
    if isinstance(policy, Learned):
        return _learned(policy, job, grid)
    if isinstance(policy, UniformProgress):
        return lambda index: _uniform_progress(policy, job, grid, index)
    if isinstance(policy, Greedy):
        return lambda _: spot
    if isinstance(policy, Eager):
        return lambda _: 2 - spot
    if isinstance(policy, OnDemandOnly):
        return lambda _: np.full((1, 1, 1), 2, np.uint8)
    raise InputError(f"policy {policy.name!r} cannot be simulated in batches")


def _learned(policy: Learned, job: Job, grid: Grid) -> Any:
    solved = policy.table.grid
    work = job.work + np.arange(grid.width) * grid.grain
    columns = np.ceil(work / solved.unit - 1e-9).astype(int) - solved.work
    beyond = columns > solved.slack
    columns[beyond] = solved.slack
    columns = np.maximum(columns, 0)

    def wishes(index: int) -> Any:
        if index >= solved.ticks:
            return np.full((1, 1, 1), 2, np.uint8)
        found = policy.table.actions[index][:, :, columns].astype(np.uint8)
        found[:, :, beyond] = 2
        return found

    return wishes


def _uniform_progress(policy: UniformProgress, job: Job, grid: Grid, index: int) -> Any:
    elapsed = job.deadline - (job.deadline - index * grid.tick)
    done = index * grid.tick - np.arange(grid.width) * grid.grain
    behind = done < job.work * elapsed / job.deadline
    keeps = done < job.work * (elapsed + policy.ahead * job.overhead) / job.deadline
    wishes = np.empty((2 * BUCKETS, grid.modes, grid.width), np.uint8)
    first = 2 + grid.stages
    wishes[:BUCKETS] = 1
    wishes[BUCKETS:] = np.where(behind, 2, 0)
    wishes[BUCKETS:, first:] = np.where(keeps, 2, 0)
    if policy.ahead > 0:
        wishes[:BUCKETS, first:] = np.where(keeps, 2, 1)
    return wishes


class Waiting(NamedTuple):
    """Jobs without a node, as arrays of one length; durations in seconds. The fields are those of ``Job`` and ``Moment``."""

    work: Any
    deadline: Any
    overhead: Any
    remaining: Any
    left: Any
    up: Any
    age: Any


def choices(policy: Policy, jobs: Waiting, tick: float) -> Any:
    """What each job does for the next ``tick`` seconds, as numbers of :class:`Action`: its wish where that is safe.

    Raises :class:`InputError` for a policy that has no rule for arrays.
    """
    wish = _launches_wanted(policy, jobs)
    later = jobs.remaining - tick + DUST
    worked = jobs.left - np.maximum(0.0, tick - jobs.overhead)
    in_time = jobs.overhead + jobs.left <= jobs.remaining + DUST  # where it is done within the tick
    spot_is_safe = jobs.up & np.where((worked <= DUST) & (jobs.left > DUST), in_time, worked + jobs.overhead <= later)
    spot_is_safe |= jobs.up & (jobs.left <= DUST)
    wait_is_safe = (jobs.left <= DUST) | (jobs.left + jobs.overhead <= later)
    safe = np.where(wish == Action.SPOT, spot_is_safe, wait_is_safe)
    return np.where(safe, wish, np.int8(Action.ON_DEMAND))


def _launches_wanted(policy: Policy, jobs: Waiting) -> Any:
    if isinstance(policy, Learned):
        return _learned_launches(policy, jobs)
    if isinstance(policy, UniformProgress):
        elapsed = jobs.deadline - jobs.remaining
        behind = jobs.work - jobs.left < jobs.work * elapsed / jobs.deadline
        return _either(jobs.up, np.where(behind, Action.ON_DEMAND, Action.WAIT))
    if isinstance(policy, Greedy):
        return _either(jobs.up, Action.WAIT)
    if isinstance(policy, Eager):
        return _either(jobs.up, Action.ON_DEMAND)
    if isinstance(policy, OnDemandOnly):
        return np.full(len(jobs.up), Action.ON_DEMAND, np.int8)
    raise InputError(f"policy {policy.name!r} cannot be asked about many jobs at once")


def _either(up: Any, otherwise: Any) -> Any:
    return np.where(up, Action.SPOT, otherwise).astype(np.int8)


def _learned_launches(policy: Learned, jobs: Waiting) -> Any:
    grid = policy.table.grid
    index = grid.ticks - np.floor(jobs.remaining / grid.tick + 1e-9).astype(int)
    lost = np.ceil(jobs.left / grid.unit - 1e-9).astype(int) - grid.work + index * grid.per_tick
    known = (index >= 0) & (index < grid.ticks) & (lost <= grid.slack)
    seen = np.searchsorted(np.array(AGES), jobs.age - 1e-6, side="left") + np.where(jobs.up, 0, BUCKETS)
    clipped = np.clip(index, 0, max(0, grid.ticks - 1)), seen, 0, np.clip(lost, 0, grid.slack)
    found = policy.table.actions[clipped] if grid.ticks else np.full(len(jobs.up), 2, np.int8)
    return np.where(known, found, np.int8(Action.ON_DEMAND))


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
