"""The tasks of a forecast: loops, nested graphs and conditions unfolded, with pools and prices of each task."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from tests.engine.builders import (
    a_body,
    a_chain,
    a_config,
    a_dag,
    a_fan,
    a_loop,
    a_plan,
    a_pool,
    a_task,
)

from spotwright.engine.plan import Plan
from spotwright.errors import InputError
from spotwright.forecast.tasks import ASSUMED, Durations, Given, Tasks, tasks_of

SPOT = a_pool(price=Fraction(1), boot=60.0)
SPOT_B = a_pool("spot-b", price=Fraction(1, 2))
ON_DEMAND = a_pool("on-demand", spot=False, price=Fraction(3))


def unfolded(plan: Plan, *given: tuple[str, Given], arguments: dict[str, Any] | None = None) -> Tasks:
    return tasks_of(plan, Durations("given", given), arguments or {})


def config(**policy: Any) -> Any:
    return a_config(SPOT, SPOT_B, ON_DEMAND, policy={"spot": "prefer", **policy})


def edges(tasks: Tasks) -> dict[str, list[str]]:
    return {task.path: [tasks.tasks[index].path for index in task.after] for task in tasks.tasks}


def test_a_chain_keeps_its_order_and_what_each_task_waits_for() -> None:
    assert edges(unfolded(a_plan(a_chain(3), config()))) == {"t0": [], "t1": ["t0"], "t2": ["t1"]}


def test_a_loop_is_unfolded_and_what_follows_waits_for_all_iterations() -> None:
    plan = a_plan([a_loop("loop"), a_task("after", "loop")], config(), body=a_body(a_task("train"), out="train"))
    found = edges(unfolded(plan))
    assert found["after"] == ["loop/train-0", "loop/train-1", "loop/train-2"]


def test_a_limit_lets_an_iteration_wait_for_an_earlier_one() -> None:
    plan = a_plan([a_loop("loop", limit=2, items=(1, 2, 3, 4))], config(), body=a_body(a_task("train")))
    assert edges(unfolded(plan))["loop/train-3"] == ["loop/train-1"]


def test_a_graph_inside_a_graph_begins_and_ends_with_its_task() -> None:
    tasks = [a_task("load"), a_task("inner", "load", dag="body"), a_task("after", "inner")]
    found = edges(unfolded(a_plan(tasks, config(), body=a_dag(*a_chain(2), out="t1"))))
    assert found == {"load": [], "inner/t0": ["load"], "inner/t1": ["inner/t0"], "after": ["inner/t1"]}


def test_pools_stand_in_the_order_of_the_ladder_with_the_price_of_the_share() -> None:
    [task] = unfolded(a_plan([a_task("t", requests={"cpu": 1000})], config())).tasks
    assert [(offer.pool, offer.price) for offer in task.spot] == [("spot-b", 0.125), ("spot", 0.25)]
    assert task.on_demand is not None
    assert (task.on_demand.pool, task.on_demand.price) == ("on-demand", 0.75)
    assert (task.work, task.source, task.overhead) == (ASSUMED, "assumed", 60.0)


def test_a_task_that_requires_spot_has_no_on_demand_and_one_that_never_takes_it_no_spot() -> None:
    [required] = unfolded(a_plan([a_task("t")], config(spot="require"))).tasks
    [never] = unfolded(a_plan([a_task("t")], config(spot="never"))).tasks
    assert required.on_demand is None
    assert never.spot == ()


LARGE = a_task("t", requests={"cpu": 8000})


@pytest.mark.parametrize(
    ("task", "pools", "policy", "why"),
    [
        (a_task("t"), [SPOT, ON_DEMAND], {"spot": "require"}, "must run on spot (spot: require)"),
        (a_task("t"), [SPOT], {"spot": "prefer"}, "has no on-demand pool, because none is configured"),
        (
            a_task("t"),
            [SPOT, ON_DEMAND],
            {"spot": "prefer", "ladder": ["spot"]},
            "has no on-demand pool in its ladder",
        ),
        (
            LARGE,
            [a_pool(node={"cpu": 16000}), ON_DEMAND],
            {"spot": "prefer"},
            "fits no on-demand pool (on-demand: it asks for 8 cpu, a node has 4 cpu)",
        ),
        (
            LARGE,
            [a_pool(node={"cpu": 16000}), ON_DEMAND],
            {"spot": "prefer", "ladder": ["spot", "on-demand"]},
            "fits no on-demand pool (on-demand: it asks for 8 cpu, a node has 4 cpu)",
        ),
    ],
)
def test_why_a_task_runs_on_spot_alone_is_told(task: Any, pools: Any, policy: dict[str, Any], why: str) -> None:
    [found] = unfolded(a_plan([task], a_config(*pools, policy=policy))).tasks
    assert found.needs_spot == why


def test_a_task_that_may_run_on_demand_needs_no_spot() -> None:
    assert [task.needs_spot for task in unfolded(a_plan(a_chain(1), config())).tasks] == [""]


def test_a_task_without_a_spot_policy_is_planned_as_one_that_prefers_it_and_that_is_said() -> None:
    found = unfolded(a_plan([a_task("t")], a_config(SPOT, ON_DEMAND)))
    assert [offer.pool for offer in found.tasks[0].spot] == ["spot"]
    assert any("planned with spot: prefer" in note for note in found.notes)


def test_pools_without_a_price_are_named_and_all_prices_become_relative() -> None:
    found = unfolded(a_plan([a_task("t")], a_config(SPOT, a_pool("od", spot=False), policy={"spot": "prefer"})))
    assert found.unpriced == ("od",)
    assert found.tasks[0].spot[0].price == pytest.approx(1 / 3)


def test_too_many_tasks_are_refused() -> None:
    loop = a_loop("loop", items=tuple(range(7000)))
    with pytest.raises(InputError, match="more than 20000 tasks"):
        unfolded(a_plan([loop], config(), body=a_body(*a_fan(3))))
