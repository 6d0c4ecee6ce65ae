"""The choice of a node for an attempt: filter and score as the Kubernetes scheduler does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import ON_DEMAND, SPOT, a_pool
from tests.supply.builders import key

from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Constraints, Expression, Preference, Taint, Term, Toleration
from spotwright.supply.node_fit import PODS, Node, NodeRequest, choose, growth, new_node

SSD = Term((Expression("disk", "In", ("ssd",)),))
ZONE_B = Term((Expression("topology.kubernetes.io/zone", "In", ("b",)),))


def a_node(pool: Pool = SPOT, name: str = "n1", zone: str | None = None) -> Node:
    return new_node(name, pool, zone)


def a_request(*pools: str, cpu: int = 0, **constraints: Any) -> NodeRequest:
    return NodeRequest(pools or ("spot",), {"cpu": cpu} if cpu else {}, Constraints(**constraints))


def holding(node: Node, count: int, cpu: int = 1000) -> Node:
    for number in range(count):
        node.add(key(f"other-{node.name}", number), a_request(cpu=cpu))
    return node


# Room


def test_an_attempt_fits_while_there_is_room_for_its_request() -> None:
    node = holding(a_node(), 3)
    assert (choose(a_request(cpu=1000), [node]), choose(a_request(cpu=1001), [node])) == (node, None)


def test_an_ended_attempt_gives_its_room_back() -> None:
    node = holding(a_node(), 4)
    node.remove(key("other-n1", 0), a_request(cpu=1000))
    assert choose(a_request(cpu=1000), [node]) is node


def test_a_gpu_is_room_like_any_other() -> None:
    node = a_node(a_pool("gpu", node={"cpu": 4000, "nvidia.com/gpu": 1}))
    request = NodeRequest(("gpu",), {"nvidia.com/gpu": 1})
    node.add(key("first"), request)
    assert choose(request, [node]) is None


def test_a_node_without_gpus_has_no_room_for_one() -> None:
    assert choose(NodeRequest(("spot",), {"nvidia.com/gpu": 1}), [a_node()]) is None


def test_attempts_without_requests_take_one_cpu_each() -> None:
    """A node of 4 CPUs does not hold 30 of them."""
    node = a_node(a_pool(node={"cpu": 4000, "memory": 16 * 2**30}))
    bound = 0
    while choose(a_request(), [node]):
        node.add(key("task", bound), a_request())
        bound += 1
    assert bound == 4


def test_attempts_without_requests_leave_what_is_left_to_those_with_requests() -> None:
    node = holding(a_node(a_pool(node={"cpu": 4000})), 3, cpu=0)
    assert choose(a_request(cpu=1000), [node]) is node
    assert choose(a_request(cpu=1001), [node]) is None
    node.remove(key("other-n1", 0), a_request())
    assert choose(a_request(cpu=2000), [node]) is node


@pytest.mark.parametrize("size", [{"cpu": 500}, {"nvidia.com/gpu": 1}, {"memory": 2**30}])
def test_a_node_smaller_than_the_default_share_still_takes_an_attempt_without_requests(size: dict[str, int]) -> None:
    assert choose(a_request(), [a_node(a_pool(node=size))]) is not None


def test_an_attempt_that_requests_memory_alone_takes_no_cpu() -> None:
    node = holding(a_node(a_pool(node={"cpu": 4000, "memory": 2**30})), 4, cpu=1000)
    assert choose(NodeRequest(("spot",), {"memory": 2**20}), [node]) is node


def test_a_node_holds_no_more_attempts_than_the_kubelet_runs_pods() -> None:
    node = a_node(a_pool(node={"cpu": 1_000_000}))
    assert choose(a_request(cpu=1), [holding(node, PODS, cpu=1)]) is None
    assert choose(a_request(cpu=1), [holding(a_node(node.pool), PODS - 1, cpu=1)]) is not None


def test_a_pool_may_set_the_number_of_pods_of_a_node() -> None:
    assert choose(a_request(), [holding(a_node(a_pool(node={"cpu": 4000, "pods": 2})), 2, cpu=0)]) is None


def test_a_node_of_unknown_size_takes_one_attempt_at_a_time() -> None:
    node = a_node(a_pool(node=None))
    assert choose(a_request(cpu=64000), [node]) is node
    assert choose(a_request(), [holding(node, 1)]) is None


@pytest.mark.parametrize(("count", "full"), [(0, False), (3, False), (4, True)])
def test_a_node_is_full_when_one_of_its_resources_is_used_up(count: int, full: bool) -> None:
    assert holding(a_node(), count).is_full is full


# Filter


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_refuses_an_attempt_without_the_toleration(effect: str) -> None:
    node = a_node(a_pool(taints=(Taint("spot", "true", effect),)))
    tolerating = a_request(tolerations=(Toleration("spot", "Exists"),))
    assert (choose(a_request(), [node]), choose(tolerating, [node])) == (None, node)


def test_a_prefer_no_schedule_taint_refuses_nothing() -> None:
    node = a_node(a_pool(taints=(Taint("spot", "true", "PreferNoSchedule"),)))
    assert choose(a_request(), [node]) is node


def test_a_node_selector_must_match() -> None:
    request = a_request(selector={"disk": "ssd"})
    node = a_node(a_pool("ssd", labels={"disk": "ssd"}))
    other = a_node(a_pool("a", zones=("a",)), zone="a")
    assert (choose(request, [other]), choose(request, [node])) == (None, node)


def test_required_affinity_must_match_with_one_of_its_terms() -> None:
    request = a_request(required=(SSD, ZONE_B))
    node = a_node(a_pool("b", zones=("b",)), zone="b")
    other = a_node(a_pool("a", zones=("a",)), zone="a")
    assert (choose(request, [other]), choose(request, [node])) == (None, node)


@pytest.mark.parametrize("name", ["n1", "aks-spot-000001"])
def test_a_node_that_is_named_counts_as_met_for_no_simulated_node_has_a_name_of_the_cluster(name: str) -> None:
    assert choose(a_request(selector={"kubernetes.io/hostname": name}), [a_node()]) is not None


def test_a_label_of_the_provider_can_be_selected() -> None:
    request = a_request(selector={"cloud.google.com/gke-spot": "true"})
    assert choose(request, [node := a_node(a_pool(provider="gke", taints=()))]) is node


# Score


def test_a_preferred_node_comes_first() -> None:
    request = a_request(preferred=(Preference(1, SSD),))
    assert choose(request, [a_node(), ssd := a_node(a_pool("ssd", labels={"disk": "ssd"}))]) is ssd


def test_weights_of_preferences_add_up() -> None:
    request = a_request(preferred=(Preference(60, SSD), Preference(40, ZONE_B), Preference(30, ZONE_B)))
    ssd, zone_b = a_node(a_pool("ssd", labels={"disk": "ssd"})), a_node(a_pool("b", zones=("b",)), zone="b")
    assert choose(request, [ssd, zone_b]) is zone_b


def test_a_preference_is_not_required() -> None:
    assert choose(a_request(preferred=(Preference(100, SSD),)), [node := a_node()]) is node


def test_a_node_with_a_prefer_no_schedule_taint_comes_last() -> None:
    avoided = a_node(a_pool("avoided", taints=(Taint("spot", "true", "PreferNoSchedule"),)))
    assert choose(a_request(), [avoided, node := a_node()]) is node


def test_a_preference_weighs_more_than_a_prefer_no_schedule_taint() -> None:
    avoided = a_node(a_pool("avoided", labels={"disk": "ssd"}, taints=(Taint("a", "", "PreferNoSchedule"),)))
    assert choose(a_request(preferred=(Preference(1, SSD),)), [a_node(), avoided]) is avoided


def test_of_equal_nodes_the_emptier_one_is_chosen() -> None:
    assert choose(a_request(), [holding(a_node(), 1), empty := a_node(name="n2")]) is empty


def test_of_equally_full_nodes_the_older_one_is_chosen() -> None:
    assert choose(a_request(), [old := a_node(), a_node(name="n2")]) is old


# Growth


def grown(request: NodeRequest, *pools: Pool) -> list[str]:
    return [name for name, _ in growth(request, {pool.name: pool for pool in pools})]


def test_pools_grow_in_the_order_of_the_request() -> None:
    assert grown(a_request(), SPOT, ON_DEMAND) == ["spot", "on-demand"]


def test_a_pool_whose_nodes_would_be_refused_does_not_grow() -> None:
    assert grown(a_request(selector={"disk": "ssd"}), SPOT, a_pool("ssd", labels={"disk": "ssd"})) == ["ssd"]


def test_preferences_choose_the_pool_that_grows() -> None:
    request = a_request(preferred=(Preference(1, SSD),))
    assert grown(request, SPOT, a_pool("ssd", labels={"disk": "ssd"})) == ["ssd", "spot"]


def test_a_pool_grows_in_the_zones_that_the_request_accepts() -> None:
    pool = a_pool(zones=("a", "b", "c"))
    assert growth(a_request(required=(ZONE_B,)), {"spot": pool}) == (("spot", ("b",)),)


def test_a_pool_grows_in_any_zone_without_a_required_zone() -> None:
    assert growth(a_request(), {"spot": a_pool(zones=("a", "b"))}) == (("spot", ("a", "b")),)
