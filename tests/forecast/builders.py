"""Builders of tasks to come and of markets that are written out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from spotwright.forecast.forecast import Forecast, Question, make
from spotwright.forecast.markets import Outcomes, Source, Supply, simulate, supply_from
from spotwright.forecast.rules import Rule
from spotwright.forecast.tasks import Offer, Tasks, TaskToCome
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Capacity, Pool

__all__ = ["HOUR", "POOLS", "forecast", "run", "supply", "task"]

HOUR = 3600.0
POOLS = {
    "spot": Pool("spot", Capacity.SPOT, price=Fraction(1)),
    "od": Pool("od", Capacity.ON_DEMAND, price=Fraction(3)),
}


def task(
    name: str = "train",
    work: float = HOUR,
    after: Sequence[int] = (),
    *,
    saves: bool = False,
    save: float = 30.0,
    boot: float = 0.0,
    spot: Sequence[str] = ("spot",),
    on_demand: bool = True,
    **policy: float | None,
) -> TaskToCome:
    """A task; durations in seconds, an hour costs 1 on spot and 3 on on-demand."""
    offers = tuple(Offer(pool, 1.0, boot) for pool in spot)
    other = Offer("od", 3.0, boot) if on_demand else None
    chosen = Policy(spot=Spot.PREFER, **policy)  # type: ignore[arg-type]
    return TaskToCome(name, name, tuple(after), work, "given", saves, save, offers, other, chosen)


def supply(*pools: str, tick: float = 600.0) -> Supply:
    """One market that is not shifted: a text per pool, ``#`` where spot is up."""
    return supply_from(tick, np.array([[[state == "#"] for state in pool] for pool in pools]), np.zeros(1))


def run(rule: Rule, market: Supply, *tasks: TaskToCome, every: float = np.inf, lifetime: float = np.inf) -> Outcomes:
    """The outcomes of tasks in a market whose pools are called spot, spot-1 and so on."""
    names = ["spot", *(f"spot-{number}" for number in range(1, len(market.up)))]
    saving = np.array([every if each.saves else np.inf for each in tasks])
    return simulate(tasks, market, names, rule, saving, np.full(len(names), lifetime))


def forecast(
    *tasks: TaskToCome,
    deadline: float | None = None,
    source: Source | None = None,
    markets: int = 300,
    certainty: float = 0.99,
    pools: dict[str, Pool] | None = None,
) -> Forecast:
    """The forecast of tasks."""
    question = Question("tested", deadline, source or Source(), markets, 1, certainty)
    return make(question, Tasks(tasks, (), ()), pools or POOLS, "USD", 0.0)
