"""Nodes that are drained: attempts are evicted, the node goes when it is empty, and nothing new is bound to it."""

from __future__ import annotations

from tests.engine.builders import START, a_pool
from tests.supply.builders import Lab, key

from spotwright.supply.node_fit import Evicted, NodeBooting, NodeGone, NodeRequest, Noticed

WHOLE_NODE = NodeRequest(("spot",), {"cpu": 4000}, grace=3.0)


def test_a_drain_evicts_every_attempt_of_the_node_with_its_grace_period() -> None:
    lab = (
        Lab()
        .submit("a", NodeRequest(("spot",), {}, grace=3.0))
        .submit("b", NodeRequest(("spot",), {}, grace=5.0))
        .until(10)
    )
    evicted = [event for _, event in lab.drain("spot-1").log if isinstance(event, Evicted)]
    assert [(e.key.task, e.node, e.ends_by - START, e.why) for e in evicted] == [
        ("a", "spot-1", 13, "drained"),
        ("b", "spot-1", 15, "drained"),
    ]


def test_the_time_scale_divides_the_grace_period_of_an_eviction() -> None:
    lab = Lab(scale=10.0).submit("a", WHOLE_NODE).until(10).drain("spot-1")
    assert [round(e.ends_by - START, 3) for _, e in lab.log if isinstance(e, Evicted)] == [10.3]


def test_a_drained_node_goes_when_its_last_attempt_has_ended() -> None:
    lab = Lab().submit("a").submit("b").until(10).drain("spot-1", "consolidated").until(11).release("a").until(12)
    assert lab.seen(NodeGone) == []
    lab.release("b")
    assert [(at, event.keys, event.why) for at, event in lab.log if isinstance(event, NodeGone)] == [
        (12, (), "consolidated")
    ]


def test_an_empty_node_goes_at_once() -> None:
    assert Lab().submit("a").until(5).release("a").until(10).drain("spot-1").seen(NodeGone) == [(10, "spot-1")]


def test_no_attempt_is_bound_to_a_drained_node() -> None:
    lab = Lab().submit("a").until(10).drain("spot-1").submit("b").until(20)
    assert lab.bound == [(2, "a", "spot-1"), (12, "b", "spot-2")]


def test_a_drained_node_counts_as_a_node_until_it_is_gone() -> None:
    lab = Lab(a_pool(max_nodes=1)).submit("a", WHOLE_NODE).until(10).drain("spot-1").submit("b", WHOLE_NODE).until(20)
    assert lab.seen(NodeBooting) == [(0, "spot-1")]
    assert not lab.has_room("spot")
    assert lab.release("a").until(30).bound[-1] == (22, "b", "spot-2")


def test_a_node_that_is_gone_booting_announced_or_drained_cannot_be_drained() -> None:
    lab = Lab(a_pool(max_lifetime=100.0)).submit("a").until(1)
    assert not lab.supply.drain("spot-9", "drained", START + 1)
    assert not lab.supply.drain("spot-1", "drained", START + 1)
    assert lab.until(5).supply.drain("spot-1", "drained", START + 5)
    assert not lab.supply.drain("spot-1", "drained", START + 5)
    lab = Lab(a_pool(max_lifetime=100.0)).submit("a").until(103)
    assert not lab.supply.drain("spot-1", "drained", START + 103)


def test_the_provider_may_take_a_node_that_is_being_drained() -> None:
    lab = Lab(a_pool(max_lifetime=100.0)).submit("a").until(101).drain("spot-1").until(200)
    assert (lab.seen(Noticed), lab.seen(NodeGone)) == ([(102, "spot-1")], [(112, "spot-1")])


def test_a_drain_of_one_run_evicts_the_attempts_of_the_other_runs_too() -> None:
    lab = Lab().submit("a", run="one").submit("a", run="two").until(10).drain("spot-1")
    assert [event.key for _, event in lab.log if isinstance(event, Evicted)] == [
        key("a", run="one"),
        key("a", run="two"),
    ]
