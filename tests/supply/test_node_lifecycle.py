"""Nodes that boot, fill up and are given back; the attempts that are put on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, SPOT, a_pool
from tests.supply.builders import ONE_CPU, Lab, key

from spotwright.model.pools import Pool, Trace
from spotwright.model.scheduling_terms import Constraints
from spotwright.supply.node_fit import Bound, NodeBooting, NodeGone, NodeReady, NodeRequest, Noticed

WHOLE_NODE = NodeRequest(("spot",), {"cpu": 4000})
EITHER = NodeRequest(("spot", "on-demand"), {"cpu": 4000})


# Booting


def test_a_node_boots_for_a_waiting_attempt() -> None:
    lab = Lab().submit("a").until(5)
    assert (lab.seen(NodeBooting), lab.seen(NodeReady)) == ([(0, "spot-1")], [(2, "spot-1")])


def test_an_attempt_is_bound_when_its_node_is_ready() -> None:
    assert Lab().submit("a").until(5).bound == [(2, "a", "spot-1")]


def test_the_booting_node_of_each_attempt_is_told_and_none_to_an_attempt_without_room() -> None:
    lab = Lab(a_pool(max_nodes=1)).submit("a", WHOLE_NODE).submit("b", WHOLE_NODE)
    assert [lab.supply.node_on_its_way(key(task)) for task in "abc"] == ["spot-1", "", ""]


def test_a_node_is_on_its_way_until_it_is_ready() -> None:
    assert Lab().submit("a").until(5).supply.node_on_its_way(key("a")) == ""


def test_a_booting_node_with_a_notice_is_not_on_its_way() -> None:
    """The recording takes it after a second, with a notice of a minute."""
    pool = a_pool(max_nodes=1, notice=60.0, simulate={"boot": 30.0})
    lab = Lab(pool, traces={"spot": Trace(1.0, (1, 0))}).submit("a").until(5)
    assert lab.supply.node_on_its_way(key("a")) == ""


def test_a_ready_node_takes_an_attempt_at_once() -> None:
    assert Lab().submit("a").until(5).submit("b").bound[-1] == (5, "b", "spot-1")


def test_one_node_boots_for_as_many_attempts_as_it_holds() -> None:
    lab = Lab()
    for n in range(5):
        lab.submit(f"t{n}")
    assert len(lab.until(5).seen(NodeBooting)) == 2


def test_attempts_that_wait_for_a_booting_node_boot_no_other() -> None:
    lab = Lab().submit("a").until(1).submit("b").submit("c")
    assert len(lab.until(5).seen(NodeBooting)) == 1


def test_a_pool_never_has_more_than_max_nodes() -> None:
    lab = Lab(a_pool(max_nodes=2))
    for n in range(9):
        lab.submit(f"t{n}", WHOLE_NODE)
    assert len(lab.until(5).seen(NodeBooting)) == 2


def test_a_waiting_attempt_gets_the_room_of_an_ended_one() -> None:
    lab = Lab(a_pool(max_nodes=1)).submit("a", WHOLE_NODE).submit("b", WHOLE_NODE).until(5).release("a")
    assert lab.bound == [(2, "a", "spot-1"), (5, "b", "spot-1")]


def test_when_a_pool_is_full_the_next_one_grows() -> None:
    lab = Lab(a_pool(max_nodes=1), ON_DEMAND).submit("a", EITHER).submit("b", EITHER).until(5)
    assert [node for _, _, node in lab.bound] == ["spot-1", "on-demand-1"]


def test_a_node_that_boots_in_a_pool_outside_of_the_rung_does_not_count() -> None:
    """The second attempt would fit on the booting node, but its rung has another pool, where a node has to boot too."""
    lab = (
        Lab(SPOT, ON_DEMAND)
        .submit("a", NodeRequest(("on-demand",), {}))
        .submit("b", NodeRequest(("spot",), {}))
        .until(5)
    )
    assert lab.bound == [(2, "a", "on-demand-1"), (2, "b", "spot-1")]


def test_a_withdrawn_attempt_is_not_bound() -> None:
    lab = Lab().submit("a").until(1)
    assert lab.supply.withdraw(key("a"))
    assert lab.until(5).bound == []


def test_a_bound_attempt_cannot_be_withdrawn() -> None:
    lab = Lab().submit("a").until(5)
    assert not lab.supply.withdraw(key("a"))


def test_an_attempt_larger_than_a_node_is_never_bound() -> None:
    assert Lab(a_pool(max_nodes=1)).submit("a", NodeRequest(("spot",), {"cpu": 5000})).until(9).bound == []


# Zones


def test_nodes_are_spread_over_the_zones_in_turn() -> None:
    lab = Lab(a_pool(zones=("a", "b")))
    for n in range(4):
        lab.submit(f"t{n}", WHOLE_NODE)
    zones = [node.zone for node in lab.until(5).supply._pools["spot"].nodes.values()]
    assert zones == ["a", "b", "a", "b"]


def test_a_node_boots_in_the_zone_that_an_attempt_selects() -> None:
    request = NodeRequest(("spot",), {}, Constraints(selector={"topology.kubernetes.io/zone": "b"}))
    lab = Lab(a_pool(zones=("a", "b"), max_nodes=1)).submit("a", request)
    assert lab.until(5).bound == [(2, "a", "spot-1")]


# Nodes from the start


def test_min_nodes_are_ready_from_the_start() -> None:
    lab = Lab(a_pool(min_nodes=2)).submit("a")
    assert (lab.seen(NodeReady), lab.bound) == ([(0, "spot-1"), (0, "spot-2")], [(0, "a", "spot-1")])


def test_a_taken_node_is_replaced_up_to_min_nodes() -> None:
    lab = Lab(a_pool(min_nodes=1, max_lifetime=100.0, notice=0.0)).until(150)
    assert lab.seen(NodeBooting) == [(0, "spot-1"), (100, "spot-2")]


def test_node_names_go_on_after_those_of_earlier_engines() -> None:
    assert Lab(made={"spot": 3}).submit("a").until(5).bound == [(2, "a", "spot-4")]


# Idle nodes


def test_a_node_that_stays_empty_is_given_back_after_ten_minutes() -> None:
    assert Lab().submit("a").until(5).release("a").until(1000).seen(NodeGone) == [(605, "spot-1")]


def test_a_node_that_gets_an_attempt_again_is_kept() -> None:
    lab = Lab().submit("a").until(5).release("a").until(300).submit("b")
    assert lab.until(1000).seen(NodeGone) == []


def test_ten_minutes_count_from_the_end_of_the_last_attempt() -> None:
    lab = Lab().submit("a").until(5).release("a").until(300).submit("b").until(301).release("b")
    assert lab.until(2000).seen(NodeGone) == [(901, "spot-1")]


def test_a_node_that_never_had_an_attempt_is_given_back() -> None:
    lab = Lab().submit("a").until(1)
    lab.supply.withdraw(key("a"))
    assert lab.until(1000).seen(NodeGone) == [(602, "spot-1")]


def test_min_nodes_are_never_given_back() -> None:
    assert Lab(a_pool(min_nodes=1)).until(5000).seen(NodeGone) == []


def test_a_supply_without_nodes_has_no_next_moment() -> None:
    assert Lab().until(5).supply.next_moment() is None


# The end of the run


def test_every_node_is_given_back_at_the_end() -> None:
    lab = Lab(a_pool(min_nodes=1)).submit("a").until(5)
    events = lab.supply.close()
    assert [(type(event), event.why) for event in events if isinstance(event, NodeGone)] == [
        (NodeGone, "given back at the end of the run")
    ]


def test_an_attempt_that_waits_at_the_end_gets_no_node() -> None:
    lab = Lab(a_pool(max_nodes=1)).submit("a", WHOLE_NODE).submit("b", WHOLE_NODE).until(5)
    assert [type(event) for event in lab.supply.close()] == [NodeGone]


# Why an attempt waits


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (a_pool(), "spot: 1 node booting"),
        (a_pool(max_nodes=0), "spot: max_nodes is 0"),
    ],
)
def test_the_reason_for_waiting_names_the_pool(pool: Pool, why: str) -> None:
    assert Lab(pool).submit("a").why("a") == why


def test_the_reason_for_waiting_names_a_full_pool() -> None:
    lab = Lab(a_pool(max_nodes=1)).submit("a", WHOLE_NODE).submit("b", WHOLE_NODE).until(5)
    assert lab.why("b") == "spot: its only node is in use (max_nodes is 1)"


def test_the_reason_for_waiting_names_every_pool_of_the_rung() -> None:
    lab = Lab(a_pool(max_nodes=0), a_pool("on-demand", spot=False, max_nodes=0)).submit("a", EITHER)
    assert lab.why("a") == "spot: max_nodes is 0; on-demand: max_nodes is 0"


# Room


@pytest.mark.parametrize(("taken", "room"), [(0, True), (3, True), (4, False)])
def test_a_pool_at_max_nodes_has_room_while_a_node_is_not_full(taken: int, room: bool) -> None:
    lab = Lab(a_pool(max_nodes=1))
    for n in range(taken):
        lab.submit(f"t{n}")
    assert lab.until(5).has_room("spot") is room


# The time scale


def test_the_time_scale_divides_boot_and_idle_time() -> None:
    lab = Lab(scale=10.0).submit("a").until(1).release("a").until(200)
    assert (lab.seen(NodeReady), lab.seen(NodeGone)) == ([(0.2, "spot-1")], [(61, "spot-1")])


# For anything that may happen

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4)),
        st.tuples(st.just("release"), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.integers(0, 200)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(0, 3), st.integers(0, 5))
def test_no_attempt_is_ever_bound_to_a_node_that_is_full_gone_or_noticed(
    steps: list[tuple[str, int]], seed: int, most: int
) -> None:
    pool = a_pool(max_nodes=most, notice=5.0, max_lifetime=90.0, simulate={"interrupt_every": 40.0})
    lab = Lab(pool, seed=seed)
    room: dict[str, int] = {}
    lost: set[str] = set()
    asked: dict[str, int] = {}
    for number, (what, amount) in enumerate(steps):
        if what == "submit":
            asked[f"t{number}"] = amount * 1000
            lab.submit(f"t{number}", NodeRequest(("spot",), {"cpu": amount * 1000}))
        elif what == "release" and lab.bound:
            lab.release(lab.bound[amount % len(lab.bound)][1])
        else:
            lab.until(lab.now + amount)
    for _, event in lab.log:
        if isinstance(event, NodeReady):
            room[event.node] = 4000
        elif isinstance(event, Noticed | NodeGone):
            lost.add(event.node)
        elif isinstance(event, Bound):
            assert event.node not in lost
            assert event.node in room
            assert asked[event.key.task] <= room[event.node]
    for node in lab.supply._pools["spot"].nodes.values():
        assert sum(asked[key.task] for key in node.keys) + (node.room or {})["cpu"] == 4000
        assert (node.room or {})["cpu"] >= 0
    assert len(lab.supply._pools["spot"].nodes) <= most
    bound = [task for _, task, _ in lab.bound]
    assert len(bound) == len(set(bound))


def test_attempts_of_one_shape_share_a_queue() -> None:
    lab = Lab(a_pool(max_nodes=0))
    for n in range(100):
        lab.submit(f"t{n}", ONE_CPU)
    assert len(lab.supply._queue._shapes) == 1
