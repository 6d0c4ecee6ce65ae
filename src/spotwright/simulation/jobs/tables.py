"""Turns a policy for one job into tables of transitions, one a tick, with which thousands of windows are simulated at once.

A state is a mode (with the stage of its launch) and the work lost so far, counted in *grains*: the largest unit of which a tick
and the overhead are whole multiples, so that the simulation is exact. A table gives for every observation and state the
*transition*: the action and the mode that it comes from, as one small number. The safety rule is in the tables already.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import BUCKETS
from spotwright.deadlines.job_policies import Eager, Greedy, Learned, OnDemandOnly, Policy, UniformProgress
from spotwright.deadlines.jobs import DUST, Action, Job
from spotwright.errors import InputError

__all__ = ["ON_DEMAND_COUNT", "SPOT_COUNT", "STATE_BITS", "Grid", "Tables", "compiled", "grid_of"]

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
