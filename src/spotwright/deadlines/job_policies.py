"""The published policies with which ours is compared: formulas, which need no table.

They implement the interface of :class:`~spotwright.deadlines.choice.Chooser` and pass the same safety rule, so they meet every
deadline that was feasible at the start, and differ only in cost.

``uniform-progress`` is the policy of "Can't Be Late" (Wu et al., NSDI 2024), as in its published code: it keeps progress in
step with time and takes spot whenever it is up. It stays on on-demand while spot is down, even when ahead, and leaves for spot
only when its progress is ahead of where it must be two overheads from now. ``uniform-progress-0`` is the same without this
hysteresis: it leaves on-demand as soon as spot is up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from spotwright.deadlines.choice import Choices, Limits, Pool, Situation, safe
from spotwright.deadlines.jobs import Action, Job
from spotwright.errors import InputError

__all__ = ["FORMULAS", "Decides", "Formula", "cheapest_pool", "formula", "uniform_progress"]


class Decides(Protocol):
    """A policy of one job on its pools: a :class:`~spotwright.deadlines.choice.Chooser` or a :class:`Formula`."""

    @property
    def limits(self) -> Limits:
        """The assumptions of its safety rule."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The spot pools of the job."""

    def choose(self, now: Situation) -> Choices:
        """The actions of jobs now."""


def _on_demand(job: Job, now: Situation) -> Any:
    """On-demand, always."""
    del job
    return np.full(now.up.shape[1], Action.ON_DEMAND)


def _greedy(job: Job, now: Situation) -> Any:
    """Spot whenever it is up, and waiting otherwise."""
    del job
    return np.where(now.up.any(axis=0), Action.SPOT, Action.WAIT)


def _eager(job: Job, now: Situation) -> Any:
    """Spot whenever it is up, and on-demand otherwise."""
    del job
    return np.where(now.up.any(axis=0), Action.SPOT, Action.ON_DEMAND)


def _uniform_progress(job: Job, now: Situation) -> Any:
    """As published: with the hysteresis of two overheads."""
    return uniform_progress(now, job.work, job.deadline, job.overhead, keeps=True)


def _without_hysteresis(job: Job, now: Situation) -> Any:
    return uniform_progress(now, job.work, job.deadline, job.overhead, keeps=False)


_AHEAD = 2.0  # overheads


def uniform_progress(now: Situation, work: Any, deadline: Any, overhead: Any, *, keeps: bool) -> Any:
    """Uniform Progress's choice for jobs with these figures, numbers or arrays; ``keeps``: with its hysteresis."""
    elapsed, done = deadline - now.remaining, work - now.left
    up, on_demand = now.up.any(axis=0), now.mode == Action.ON_DEMAND
    wish = np.where(up, Action.SPOT, np.where(done < work * elapsed / deadline, Action.ON_DEMAND, Action.WAIT))
    close = keeps & (done < work * (elapsed + _AHEAD * overhead) / deadline)
    return np.where(on_demand & (~up | close), Action.ON_DEMAND, wish)


FORMULAS: dict[str, Callable[[Job, Situation], Any]] = {
    "on-demand": _on_demand,
    "greedy": _greedy,
    "eager": _eager,
    "uniform-progress": _uniform_progress,
    "uniform-progress-0": _without_hysteresis,
}
"""Each formula's wish, by its name for users; SPOT only where a pool is up."""


class Formula(NamedTuple):
    """A formula for one job on its pools."""

    name: str
    job: Job
    pools: tuple[Pool, ...]
    limits: Limits

    def choose(self, now: Situation) -> Choices:
        """The formula's wish if safe, otherwise on-demand. The costs are ``None``."""
        action, until = safe(now, FORMULAS[self.name](self.job, now), self.limits)
        return Choices(action, cheapest_pool(self.pools, now), until, None, None, None)


def cheapest_pool(pools: Sequence[Pool], now: Situation) -> Any:
    """The current pool of each job, else the cheapest available one, and at equal prices the one that has been up longest."""
    prices = sorted({pool.price for pool in pools})
    rank = np.array([prices.index(pool.price) for pool in pools])[:, None]
    best = np.where(now.up, now.age - 1e12 * rank, -np.inf).argmax(axis=0)
    here = np.maximum(now.pool, 0)
    stays = (now.mode == Action.SPOT) & (now.pool >= 0) & now.up[here, np.arange(len(here))]
    return np.where(stays, here, best)


def formula(name: str, job: Job, pools: Sequence[Pool], limits: Limits) -> Formula:
    """The formula of this name for a job. Raises :class:`InputError` for a name outside :data:`FORMULAS`."""
    if name not in FORMULAS:
        raise InputError(f"policy {name!r} is not known; the formulas are {', '.join(FORMULAS)}")
    return Formula(name, job, tuple(pools), limits)
