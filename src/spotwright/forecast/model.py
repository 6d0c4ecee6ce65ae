"""The result of a forecast: distributions of cost and finish by policy, and what follows from them for each task."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Distribution", "Forecast", "Market", "PolicyForecast", "TaskForecast", "distribution"]


class Distribution(NamedTuple):
    """A figure over all markets: its mean, and the values that it stays within in 10, 50, 90 and 99 % of them.

    Infinite where the run does not end in so many markets.
    """

    mean: float
    p10: float
    p50: float
    p90: float
    p99: float


class PolicyForecast(NamedTuple):
    """One policy. ``finish`` is in seconds from the start, ``late`` the share of markets in which the deadline is missed.

    ``late`` is ``None`` without a deadline; ``fails`` is the share of markets in which the run does not end. ``spot`` is the
    share of the money that goes to spot. ``points`` are costs and ends of some markets, for a picture.
    """

    name: str
    cost: Distribution
    finish: Distribution
    late: float | None
    fails: float
    interruptions: float
    spot: float
    points: tuple[tuple[float, float], ...]


class TaskForecast(NamedTuple):
    """One task, or all iterations of one in a loop (``times``); durations in seconds, costs are means of one iteration.

    ``every`` is the work between two saves (``None``: it saves nothing, infinite: a save costs more than it spares). ``budget``
    is the number of interruptions that it stays within for the chosen certainty, on spot alone.
    """

    path: str
    times: int
    work: float
    source: str
    every: float | None
    save: float
    budget: int
    on_demand_cost: float | None
    spot_cost: float | None

    @property
    def cheaper_on_demand(self) -> bool:
        """Whether on-demand costs less than spot with its interruptions."""
        return self.on_demand_cost is not None and self.spot_cost is not None and self.on_demand_cost < self.spot_cost


class Market(NamedTuple):
    """The supply of one spot pool over all markets: the share of time with spot, and losses an hour with spot."""

    pool: str
    availability: float
    losses_an_hour: float


class Forecast(NamedTuple):
    """A whole forecast. Costs are in ``currency``; empty: relative to an hour on on-demand, because a pool has no price.

    ``best`` is the name of the policy to take and ``why`` the reason. ``budget`` is the needed ``interruptions.max`` for
    ``certainty``. ``nearest`` is the shortest deadline that can be promised, in seconds. ``deadline_costs`` is by how much the
    mean cost with the deadline is above that of the cheapest policy without one. ``prices`` say where each price is from.
    """

    pipeline: str
    currency: str
    price_source: str
    deadline: float | None
    seed: int
    markets: int
    supply: str
    pools: tuple[Market, ...]
    policies: tuple[PolicyForecast, ...]
    best: str
    why: str
    certainty: float
    budget: int
    nearest: float
    without_deadline: float | None
    deadline_costs: float | None
    tasks: tuple[TaskForecast, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    prices: tuple[str, ...]

    def policy(self, name: str) -> PolicyForecast:
        """A policy by name."""
        return next(policy for policy in self.policies if policy.name == name)


def distribution(values: Any) -> Distribution:
    """The distribution of an array. A quantile is a value that was met, so that an infinite one spoils no other."""
    found = np.quantile(values, (0.1, 0.5, 0.9, 0.99), method="higher")
    return Distribution(float(np.mean(values)), *(float(value) for value in found))
