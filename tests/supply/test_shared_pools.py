"""Runs that share the nodes of one supply."""

from __future__ import annotations

import pytest
from tests.engine.builders import a_pool
from tests.supply.builders import ONE_CPU, Lab, key

from spotwright.supply.node_fit import NodeBooting, NodeGone, NodeRequest, draw_interruption

WHOLE_NODE = NodeRequest(("spot",), {"cpu": 4000})


def test_attempts_of_two_runs_stand_on_one_node() -> None:
    lab = Lab(a_pool(max_nodes=1)).submit("a", run="one").submit("a", run="two").until(5)
    assert lab.bound == [(2, "a", "spot-1"), (2, "a", "spot-1")]


def test_a_run_waits_for_the_room_of_another() -> None:
    lab = Lab(a_pool(max_nodes=1)).submit("a", WHOLE_NODE, run="one").submit("b", WHOLE_NODE, run="two").until(5)
    assert lab.release("a", run="one").bound == [(2, "a", "spot-1"), (5, "b", "spot-1")]


def test_a_booting_node_names_the_run_that_needs_it() -> None:
    lab = Lab(a_pool(min_nodes=1)).submit("a", WHOLE_NODE, run="one").submit("b", WHOLE_NODE, run="two").until(5)
    assert [(e.node, e.run) for _, e in lab.log if isinstance(e, NodeBooting)] == [("spot-1", ""), ("spot-2", "two")]


def test_a_run_that_leaves_frees_its_room_and_its_places_in_the_queue() -> None:
    lab = Lab(a_pool(max_nodes=1))
    for run in ("one", "two"):
        lab.submit("a", WHOLE_NODE, run=run).submit("b", WHOLE_NODE, run=run)
    lab.until(5).supply.leave("one", lab.now)
    assert lab.until(6).bound == [(2, "a", "spot-1"), (6, "a", "spot-1")]
    assert lab.release("a", run="two").bound[-1] == (6, "b", "spot-1")


def test_nodes_outlive_the_run_that_asked_for_them() -> None:
    lab = Lab().submit("a", run="one").until(5)
    lab.supply.leave("one", lab.now)
    assert lab.until(60).seen(NodeGone) == []


def test_a_run_has_its_own_seed_for_interruptions() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    drawn = draw_interruption(pool.simulate, 99, "a", 1)
    assert drawn is not None
    lab = Lab(pool, seed=7)
    lab.supply.join("one", 99)
    assert lab.submit("a", run="one").until(500).notices[0][0] == pytest.approx(2 + drawn.age, abs=0.002)


def test_requests_of_one_shape_are_one_object_across_runs() -> None:
    supply = Lab().supply
    first, second = (NodeRequest(("spot",), {"cpu": 1, "memory": 2}), NodeRequest(("spot",), {"memory": 2, "cpu": 1}))
    assert supply.shared(first) is supply.shared(second) is first


def test_another_grace_period_is_another_shape() -> None:
    supply = Lab().supply
    assert supply.shared(ONE_CPU) is not supply.shared(NodeRequest(("spot",), {"cpu": 1000}, grace=1.0))


def test_an_attempt_of_one_run_is_not_withdrawn_with_that_of_another() -> None:
    lab = Lab().submit("a", run="one").submit("a", run="two").until(1)
    assert lab.supply.withdraw(key("a", run="one"))
    assert lab.until(5).bound == [(2, "a", "spot-1")]
