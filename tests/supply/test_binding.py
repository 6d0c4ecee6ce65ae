"""Which node an attempt is bound to: filter and score as the Kubernetes scheduler does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import ON_DEMAND, SPOT, a_pool

from spotwright.model.placing import Constraints, Expression, Preference, Taint, Term, Toleration
from spotwright.model.pools import Pool, Provider
from spotwright.supply.binding import PODS, Node, Request, choose, growth, new_node

SSD = Term((Expression("disk", "In", ("ssd",)),))
ZONE_B = Term((Expression("topology.kubernetes.io/zone", "In", ("b",)),))


def a_node(pool: Pool = SPOT, name: str = "n1", zone: str | None = None) -> Node:
    return new_node(name, pool, zone)


def a_request(*pools: str, cpu: int = 0, **said: Any) -> Request:
    return Request(pools or ("spot",), {"cpu": cpu} if cpu else {}, Constraints(**said))


def holding(node: Node, count: int, cpu: int = 1000) -> Node:
    for number in range(count):
        node.take_in((f"other-{node.name}", number), a_request(cpu=cpu))
    return node


# Room


def test_an_attempt_fits_while_there_is_room_for_what_it_asks() -> None:
    node = holding(a_node(), 3)
    assert (choose(a_request(cpu=1000), [node]), choose(a_request(cpu=1001), [node])) == (node, None)


def test_an_ended_attempt_gives_its_room_back() -> None:
    node = holding(a_node(), 4)
    node.give_back(("other-n1", 0), a_request(cpu=1000))
    assert choose(a_request(cpu=1000), [node]) is node


def test_a_gpu_is_room_like_any_other() -> None:
    node = a_node(a_pool("gpu", node={"cpu": 4000, "nvidia.com/gpu": 1}))
    request = Request(("gpu",), {"nvidia.com/gpu": 1})
    node.take_in(("first", 1), request)
    assert choose(request, [node]) is None


def test_a_node_without_gpus_has_no_room_for_one() -> None:
    assert choose(Request(("spot",), {"nvidia.com/gpu": 1}), [a_node()]) is None


def test_a_node_holds_no_more_attempts_than_the_kubelet_runs_pods() -> None:
    assert choose(a_request(), [holding(a_node(), PODS, cpu=0)]) is None


def test_a_node_may_say_how_many_pods_it_runs() -> None:
    assert choose(a_request(), [holding(a_node(a_pool(node={"cpu": 4000, "pods": 2})), 2, cpu=0)]) is None


def test_a_node_of_unknown_size_takes_one_attempt_at_a_time() -> None:
    node = a_node(a_pool(node=None))
    assert choose(a_request(cpu=64000), [node]) is node
    assert choose(a_request(), [holding(node, 1)]) is None


@pytest.mark.parametrize(("count", "full"), [(0, False), (3, False), (4, True)])
def test_a_node_is_full_when_something_it_offers_is_used_up(count: int, full: bool) -> None:
    assert holding(a_node(), count).is_full is full


# Filter


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_keeps_away_what_does_not_tolerate_it(effect: str) -> None:
    node = a_node(a_pool(taints=(Taint("spot", "true", effect),)))
    tolerating = a_request(tolerations=(Toleration("spot", "Exists"),))
    assert (choose(a_request(), [node]), choose(tolerating, [node])) == (None, node)


def test_a_taint_that_only_prefers_keeps_nothing_away() -> None:
    node = a_node(a_pool(taints=(Taint("spot", "true", "PreferNoSchedule"),)))
    assert choose(a_request(), [node]) is node


def test_a_node_selector_must_match() -> None:
    request = a_request(selector={"disk": "ssd"})
    node = a_node(a_pool("ssd", labels={"disk": "ssd"}))
    assert (choose(request, [a_node()]), choose(request, [node])) == (None, node)


def test_required_affinity_must_match_with_one_of_its_terms() -> None:
    request = a_request(required=(SSD, ZONE_B))
    node = a_node(a_pool("b", zones=("b",)), zone="b")
    assert (choose(request, [a_node()]), choose(request, [node])) == (None, node)


def test_the_hostname_tells_nodes_of_one_pool_apart() -> None:
    request = a_request(selector={"kubernetes.io/hostname": "n2"})
    assert choose(request, [a_node(name="n1"), two := a_node(name="n2")]) is two


def test_a_label_that_the_provider_sets_can_be_selected() -> None:
    request = a_request(selector={"cloud.google.com/gke-spot": "true"})
    assert choose(request, [node := a_node(a_pool(provider=Provider.GKE, taints=()))]) is node


# Score


def test_a_preferred_node_comes_first() -> None:
    request = a_request(preferred=(Preference(1, SSD),))
    assert choose(request, [a_node(), ssd := a_node(a_pool("ssd", labels={"disk": "ssd"}))]) is ssd


def test_weights_of_preferences_add_up() -> None:
    request = a_request(preferred=(Preference(60, SSD), Preference(40, ZONE_B), Preference(30, ZONE_B)))
    ssd, zone_b = a_node(a_pool("ssd", labels={"disk": "ssd"})), a_node(a_pool("b", zones=("b",)), zone="b")
    assert choose(request, [ssd, zone_b]) is zone_b


def test_a_preference_is_no_demand() -> None:
    assert choose(a_request(preferred=(Preference(100, SSD),)), [node := a_node()]) is node


def test_a_node_that_would_rather_not_comes_last() -> None:
    shy = a_node(a_pool("shy", taints=(Taint("spot", "true", "PreferNoSchedule"),)))
    assert choose(a_request(), [shy, node := a_node()]) is node


def test_a_preference_weighs_more_than_a_node_that_would_rather_not() -> None:
    shy = a_node(a_pool("shy", labels={"disk": "ssd"}, taints=(Taint("a", "", "PreferNoSchedule"),)))
    assert choose(a_request(preferred=(Preference(1, SSD),)), [a_node(), shy]) is shy


def test_of_equal_nodes_the_emptier_one_is_chosen() -> None:
    assert choose(a_request(), [holding(a_node(), 1), empty := a_node(name="n2")]) is empty


def test_of_equally_full_nodes_the_older_one_is_chosen() -> None:
    assert choose(a_request(), [old := a_node(), a_node(name="n2")]) is old


# Growth


def grown(request: Request, *pools: Pool) -> list[str]:
    return [name for name, _ in growth(request, {pool.name: pool for pool in pools})]


def test_pools_grow_in_the_order_in_which_they_were_asked_for() -> None:
    assert grown(a_request(), SPOT, ON_DEMAND) == ["spot", "on-demand"]


def test_a_pool_whose_nodes_would_be_refused_does_not_grow() -> None:
    assert grown(a_request(selector={"disk": "ssd"}), SPOT, a_pool("ssd", labels={"disk": "ssd"})) == ["ssd"]


def test_preferences_choose_the_pool_that_grows() -> None:
    request = a_request(preferred=(Preference(1, SSD),))
    assert grown(request, SPOT, a_pool("ssd", labels={"disk": "ssd"})) == ["ssd", "spot"]


def test_a_pool_grows_in_the_zones_that_suit() -> None:
    pool = a_pool(zones=("a", "b", "c"))
    assert growth(a_request(required=(ZONE_B,)), {"spot": pool}) == (("spot", ("b",)),)


def test_a_pool_grows_in_any_zone_where_none_is_asked_for() -> None:
    assert growth(a_request(), {"spot": a_pool(zones=("a", "b"))}) == (("spot", ("a", "b")),)
