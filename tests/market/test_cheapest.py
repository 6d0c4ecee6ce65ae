"""The cheapest possible cost is that of the best of all ways through a window."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from tests.market.builders import decider, job, random_market

from spotwright.deadlines.choice import Pool
from spotwright.deadlines.job_policies import FORMULAS
from spotwright.deadlines.jobs import DUST, Action, Job
from spotwright.forecast.deadline_jobs import cheapest, simulate
from spotwright.market import Windows

SMALL = {
    "an overhead shorter than a tick": Job(2400.0, 4800.0, 200.0, 1.0, 3.0),
    "an overhead longer than a tick": Job(2100.0, 4800.0, 900.0, 1.0, 3.0),
    "spot that costs more": Job(2400.0, 4800.0, 200.0, 4.0, 3.0),
    "no overhead": Job(3000.0, 4200.0, 0.0, 1.0, 3.0),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("pools", [1, 2])
def test_the_cheapest_cost_is_that_of_the_best_of_all_ways(name: str, pools: int) -> None:
    windows = random_market(ticks=8, size=6, pools=pools)
    found = cheapest(SMALL[name], windows)
    assert found == pytest.approx([_by_trying_everything(SMALL[name], windows, index) for index in range(6)], abs=1e-9)


def test_the_cheapest_cost_follows_the_prices_of_each_tick() -> None:
    windows = random_market(ticks=8, size=6)
    windows = windows._replace(prices=np.random.default_rng(2).uniform(0.5, 4.0, windows.up.shape))
    given = SMALL["no overhead"]
    found = cheapest(given, windows)
    assert found == pytest.approx([_by_trying_everything(given, windows, index) for index in range(6)], abs=1e-9)


@pytest.mark.parametrize("name", [*FORMULAS, "spotwright"])
@pytest.mark.parametrize("prices", [[1.0], [1.0, 1.0, 1.0], [0.5, 1.4]])
def test_no_policy_beats_the_cheapest_possible(name: str, prices: list[float]) -> None:
    given = job()
    windows = random_market(ticks=54, size=30, pools=len(prices))
    results = simulate(decider(name, given, [Pool(price) for price in prices]), given, windows)
    assert (results.cost >= cheapest(given, windows, prices) - 1e-9).all()


def test_the_last_tick_is_paid_for_its_share() -> None:
    """25 minutes of work and 200 s of launch, on spot that is always there."""
    given = Job(1500.0, 4800.0, 200.0, 1.0, 3.0)
    windows = random_market(ticks=8, size=1)
    always = windows._replace(up=np.ones_like(windows.up))
    assert cheapest(given, always) == pytest.approx([1700.0 / 3600.0])


def test_a_job_that_cannot_be_in_time_costs_what_on_demand_costs() -> None:
    given = job(work=6.0, deadline=6.1)
    windows = random_market(ticks=54, size=3)
    assert cheapest(given, windows) == pytest.approx(simulate(decider("greedy", given), given, windows).cost)


def _by_trying_everything(given: Job, windows: Windows, window: int) -> float:
    """Every sequence of actions, and of pools, that is in time."""
    ticks = int(-(-given.deadline // windows.tick))
    up = windows.up[:, :, window]

    @cache
    def best(index: int, left: float, mode: Action, pool: int, starting: float) -> float:
        if left <= DUST:
            return 0.0 if index * windows.tick + left <= given.deadline + DUST else float("inf")
        if index == ticks:
            return float("inf")
        if mode is Action.SPOT and not up[pool, index]:
            mode, starting = Action.WAIT, 0.0
        costs = []
        for action, new in product(Action, range(windows.pools)):
            if (action is not Action.SPOT and new) or (action is Action.SPOT and not up[new, index]):
                continue
            same = mode is action and (action is not Action.SPOT or new == pool)
            begins = 0.0 if action is Action.WAIT else starting if same else given.overhead
            still = left if action is Action.WAIT else left - max(0.0, windows.tick - begins)
            spot = given.spot_price if windows.prices is None else float(windows.prices[new, index, window])
            lasts = min(windows.tick, begins + left) / 3600.0
            price = (0.0, spot, given.on_demand_price)[action] * lasts
            costs.append(price + best(index + 1, still, action, new, max(0.0, begins - windows.tick)))
        return min(costs)

    return best(0, given.work, Action.WAIT, 0, 0.0)
