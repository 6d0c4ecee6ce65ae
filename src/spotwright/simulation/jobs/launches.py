"""Decides for many jobs at once that have no node: the decision of :func:`spotwright.deadlines.job_policies.decide`, for arrays.

A forecast asks thousands of times what a task does that waits, at moments that lie on no common grid. The tables of
:mod:`spotwright.simulation.jobs.tables` are of one job that begins at a tick; here every element is a job of its own, which began
when it could. A test compares each choice with that of :func:`~spotwright.deadlines.job_policies.decide`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import AGES, BUCKETS
from spotwright.deadlines.job_policies import Eager, Greedy, Learned, OnDemandOnly, Policy, UniformProgress
from spotwright.deadlines.jobs import DUST, Action
from spotwright.errors import InputError

__all__ = ["Waiting", "choices"]


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
    wish = _wishes(policy, jobs)
    later = jobs.remaining - tick + DUST
    worked = jobs.left - np.maximum(0.0, tick - jobs.overhead)
    in_time = jobs.overhead + jobs.left <= jobs.remaining + DUST  # where it is done within the tick
    spot_is_safe = jobs.up & np.where((worked <= DUST) & (jobs.left > DUST), in_time, worked + jobs.overhead <= later)
    spot_is_safe |= jobs.up & (jobs.left <= DUST)
    wait_is_safe = (jobs.left <= DUST) | (jobs.left + jobs.overhead <= later)
    safe = np.where(wish == Action.SPOT, spot_is_safe, wait_is_safe)
    return np.where(safe, wish, np.int8(Action.ON_DEMAND))


def _wishes(policy: Policy, jobs: Waiting) -> Any:
    if isinstance(policy, Learned):
        return _learned(policy, jobs)
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


def _learned(policy: Learned, jobs: Waiting) -> Any:
    grid = policy.table.grid
    index = grid.ticks - np.floor(jobs.remaining / grid.tick + 1e-9).astype(int)
    lost = np.ceil(jobs.left / grid.unit - 1e-9).astype(int) - grid.work + index * grid.per_tick
    known = (index >= 0) & (index < grid.ticks) & (lost <= grid.slack)
    seen = np.searchsorted(np.array(AGES), jobs.age - 1e-6, side="left") + np.where(jobs.up, 0, BUCKETS)
    clipped = np.clip(index, 0, max(0, grid.ticks - 1)), seen, 0, np.clip(lost, 0, grid.slack)
    found = policy.table.actions[clipped] if grid.ticks else np.full(len(jobs.up), 2, np.int8)
    return np.where(known, found, np.int8(Action.ON_DEMAND))
