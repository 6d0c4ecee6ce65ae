"""What a run, and runs before it, have seen of a pool decides: all of it follows from the journal."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import ON_DEMAND, START, a_chain, a_config, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import TAKEN, Behavior, always, scripted

from spotwright.deadlines.hazards import BUCKETS, SHIPPED
from spotwright.engine.events import Event, MarketKnown
from spotwright.engine.loop import replay_decisions
from spotwright.model.pools import Trace

OFTEN_LOST = (1e6,) * BUCKETS + (4e5,) * BUCKETS + (1e6,) * BUCKETS + (4e5,) * BUCKETS
HARDLY_LOST = (1e6,) * BUCKETS + (1.0,) * BUCKETS + (1e6,) * BUCKETS + (4e5,) * BUCKETS


class Informed(Run):
    """A run that begins with what earlier runs have counted."""

    known: tuple[float, ...] = ()

    def first_facts(self) -> list[Event]:
        return [*super().first_facts(), MarketKnown(START, pools={"spot": self.known}, runs=1)]


@pytest.mark.parametrize(("known", "pool"), [(OFTEN_LOST, "on-demand"), (HARDLY_LOST, "spot")])
@pytest.mark.parametrize("saves", [True, False])
def test_counts_of_earlier_runs_decide_between_spot_and_on_demand(
    known: tuple[float, ...], pool: str, saves: bool
) -> None:
    """Spot costs nearly as much as on-demand here, so it pays only where it is hardly lost."""
    prices: dict[str, Any] = {"deadline": "20h", "expected_duration": "4h", "grace_period": "30s"}
    if saves:
        prices["checkpoint"] = "pvc://ckpt"
    spot = a_pool(price=2, boot=600.0, simulate={"boot": 600.0})
    dear = a_pool("on-demand", spot=False, price=3, boot=600.0, simulate={"boot": 600.0})
    run = Informed(a_plan([a_task("a")], a_config(spot, dear, policy=prices)), always(Behavior(4 * 3600.0)))
    run.known = known
    run.start()
    assert run.pools("a")[0] == pool
    replay_decisions(run.plans, run.events)


def test_a_loss_of_the_run_itself_is_counted() -> None:
    config = a_config(
        a_pool(), ON_DEMAND, policy={"deadline": "10h", "expected_duration": "1000s", "checkpoint": "pvc://c"}
    )
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Behavior(900, TAKEN)]}, Behavior(100)))
    run.start()
    assert sum(run.state.sightings["spot"].counts().up.ended) == 1.0
    assert run.state.sightings["spot"].table != SHIPPED


def test_waits_are_counted_too() -> None:
    config = a_config(policy={"deadline": "10h", "expected_duration": "100s", "checkpoint": "pvc://c"})
    trace = Trace(1500.0, (0, 1, 1, 1))
    run = Run(a_plan(a_chain(2), config), always(Behavior(100)), traces={"spot": trace})
    run.start()
    down = run.state.sightings["spot"].counts().down
    assert (round(sum(down.seen), 2), sum(down.ended)) == (2.5, 1.0)


def test_a_pool_that_is_full_of_the_runs_own_nodes_is_not_down() -> None:
    config = a_config(
        a_pool(max_nodes=1, node=None),
        ON_DEMAND,
        policy={"deadline": "10h", "expected_duration": "100s", "checkpoint": "pvc://c"},
    )
    run = Run(a_plan([a_task("a"), a_task("b")], config), always(Behavior(100)))
    run.start()
    assert sum(run.state.sightings["spot"].counts().down.seen) == 0.0
