"""Builders of small markets and jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spotwright.deadlines.choice import Limits, Pool, chooser
from spotwright.deadlines.job_policies import Decides, formula
from spotwright.deadlines.jobs import Job
from spotwright.market import Windows

__all__ = ["decider", "hours", "job", "market", "random_market"]


def hours(count: float) -> float:
    return count * 3600.0


def job(
    work: float = 6.0, deadline: float = 9.0, overhead: float = 0.2, spot: float = 1.0, on_demand: float = 3.0
) -> Job:
    """A job; durations in hours."""
    return Job(hours(work), hours(deadline), hours(overhead), spot, on_demand)


def decider(
    name: str,
    given: Job,
    pools: Sequence[Pool] | None = None,
    *,
    launch: float | None = None,
    egress: float = 0.0,
    drain: float = 0.0,
) -> Decides:
    """A formula or, as ``spotwright``, the engine's function, for one pool at the price of the job or for these pools.

    ``launch`` is the longest one that it reckons with, if that is another than the job states.
    """
    pools = pools or [Pool(given.spot_price)]
    limits = Limits(given.overhead if launch is None else launch, drain, egress=egress)
    return chooser(given, pools, limits) if name == "spotwright" else formula(name, given, pools, limits)


def market(*pools: str, tick: float = 600.0) -> Windows:
    """One window: a text per pool, ``#`` where spot is up."""
    up = np.array([[[state == "#"] for state in pool] for pool in pools])
    return Windows(tick, up, None, tuple(f"pool-{index}" for index in range(len(pools))))


def random_market(ticks: int, size: int = 40, pools: int = 1, tick: float = 600.0, seed: int = 1) -> Windows:
    """Windows of random spells of very different lengths and shares of time with spot."""
    rng = np.random.default_rng(seed)
    chance = rng.uniform(0.02, 0.5, (pools, 1, size))
    share = rng.uniform(0.0, 1.0, (pools, 1, size))
    flips = rng.uniform(size=(pools, ticks, size)) < chance
    states = rng.uniform(size=(pools, ticks, size)) < share
    up = np.empty((pools, ticks, size), bool)
    up[:, 0] = states[:, 0]
    for index in range(1, ticks):
        up[:, index] = np.where(flips[:, index], states[:, index], up[:, index - 1])
    return Windows(tick, up, None, tuple(f"pool-{index}" for index in range(pools)))
