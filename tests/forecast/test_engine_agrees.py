"""The rules of a forecast are the engine's: on the same market both end a run at the same moment, at the same cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.engine.builders import a_config, a_plan, a_pool, a_task
from tests.forecast.builders import run as forecast_run
from tests.simulation.builders import Simulation
from tests.simulation.simulated_attempts import TaskWork, WorkModel

from spotwright.forecast.markets import supply_from
from spotwright.forecast.rules import Rule, SpotFirst, UnderDeadline
from spotwright.forecast.tasks import Offer, TaskToCome
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Trace
from spotwright.views.account import account

BOOT, TICK, TICKS = 180.0, 600.0, 600
WORK = {"first": 2400.0, "second": 3600.0}
PRICES = {"spot": 1.0, "spot-1": 2.0, "od": 3.0}


def market(seed: int) -> list[int]:
    """Spells of very different lengths, one state every ten minutes."""
    chances = Random(seed)  # noqa: S311 - a market, not a secret
    states: list[int] = []
    while len(states) < TICKS:
        states += [1] * chances.choice([1, 2, 4, 9, 30]) + [0] * chances.choice([1, 2, 5, 14])
    return states[:TICKS]


def by_the_engine(markets: list[list[int]], policy: Mapping[str, Any], every: float) -> tuple[float, float]:
    """When the run ends under the production engine on virtual time, and the money for attempts and boots.

    There is a spot pool for each market.
    """
    names = [*list(PRICES)[: len(markets)], "od"]
    pools = [
        a_pool(name, spot=name != "od", simulate={"boot": BOOT}, notice=0.0, max_nodes=4, node=None, price=PRICES[name])
        for name in names
    ]
    traces = {
        name: Trace(TICK, tuple(4 * state for state in states)) for name, states in zip(names, markets, strict=False)
    }
    work = {
        name: TaskWork(work, reports=50 if every else 0, checkpoint_every=every or None) for name, work in WORK.items()
    }
    stated = {
        name: {"expected_duration": f"{work}s", **({"checkpoint": "ckpt"} if every else {})}
        for name, work in WORK.items()
    }
    plan = a_plan([a_task("first"), a_task("second", "first")], a_config(*pools, policy=policy, tasks=stated))
    simulation = Simulation(pools, policy, traces=traces)
    [state] = simulation.add(WorkModel(work, 0), plan=plan).drive()
    costs = account(state)
    money = float((costs.attempts.money or 0) + (costs.boot.money or 0))
    return (state.finished_at or 0.0) - state.started_at, money


def by_the_forecast(
    markets: list[list[int]], rule_of: Callable[[list[TaskToCome]], Rule], every: float, **policy: Any
) -> tuple[float, float]:
    """The same by the forecast."""
    spot = tuple(Offer(name, PRICES[name], BOOT) for name in list(PRICES)[: len(markets)])
    offers = spot, Offer("od", PRICES["od"], BOOT)
    chosen = Policy(spot=Spot.PREFER, **policy)
    tasks = [
        TaskToCome(name, name, (index - 1,) if index else (), work, "given", bool(every), 0.0, *offers, chosen)
        for index, (name, work) in enumerate(WORK.items())
    ]
    supply = supply_from(TICK, np.array(markets, bool)[:, :, None], np.zeros(1))
    found = forecast_run(rule_of(tasks), supply, *tasks, every=every or np.inf)
    return float(found.finish[0]), float(found.total[0])


POLICY = {"spot": "prefer", "interruptions": {"max": 5, "backoff": "1s"}, "grace_period": "0s"}


@pytest.mark.parametrize(
    ("deadline", "every"),
    [
        pytest.param(None, 0.0, id="no deadline, saves nothing"),
        pytest.param(None, 300.0, id="no deadline, saves"),
        pytest.param(3, 0.0, id="a tight deadline, saves nothing"),
        pytest.param(3, 300.0, id="a tight deadline, saves"),
        pytest.param(5, 0.0, id="a loose deadline, saves nothing"),
        pytest.param(5, 300.0, id="a loose deadline, saves"),
    ],
)
def test_both_end_a_run_at_the_same_moment_and_at_the_same_cost(deadline: int | None, every: float) -> None:
    """In nine of ten markets, for work that is saved in eight, to the tick of a decision; near a tie it may fall the other way.

    Then the whole rest of a run may go another way, so the totals of ten markets are only near each other.
    """
    own = {"pending_timeout": "25m"} if deadline is None else {"deadline": f"{deadline}h"}
    apart, engine_total, forecast_total = 0, 0.0, 0.0

    def rule(tasks: list[TaskToCome]) -> Rule:
        return SpotFirst(tasks) if deadline is None else UnderDeadline(tasks, deadline * 3600.0)

    for seed in range(10):
        states = market(seed)
        end, cost = by_the_engine([states], {**POLICY, **own}, every)
        planned_end, planned_cost = by_the_forecast(
            [states], rule, every, pending_timeout=1500.0, max_interruptions=5, fall_back_after=5, grace_period=0.0
        )
        apart += abs(end - planned_end) > 200.0 or abs(cost - planned_cost) > 0.05
        engine_total, forecast_total = engine_total + cost, forecast_total + planned_cost
    assert apart <= (2 if every else 1)
    assert forecast_total == pytest.approx(engine_total, rel=0.15 if every else 0.03)


@pytest.mark.parametrize("every", [0.0, 300.0], ids=["saves nothing", "saves"])
def test_both_climb_the_same_rungs(every: float) -> None:
    """With two spot pools, in eight of ten markets; the engine also takes over nodes that earlier attempts have left."""
    apart = 0
    for seed in range(10):
        markets = [market(seed), market(seed + 100)]
        end, cost = by_the_engine(markets, {**POLICY, "pending_timeout": "25m"}, every)
        planned_end, planned_cost = by_the_forecast(
            markets, SpotFirst, every, pending_timeout=1500.0, max_interruptions=5, fall_back_after=5
        )
        apart += abs(end - planned_end) > 200.0 or abs(cost - planned_cost) > 0.05
    assert apart <= 2
