"""Which orders of pools an autoscaler follows, by what the cluster shows of it."""

from __future__ import annotations

from typing import Any

import pytest

from spotwright import config as configuration
from spotwright.clouds.cluster_autoscaler import (
    Group,
    Status,
    groups_of_pools,
    read_priorities,
    read_status,
)
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers, order_of
from spotwright.model.pools import Pool

AKS = {"cpuspot": {"capacity": "spot", "provider": "aks"}, "cpu": {"capacity": "on-demand", "provider": "aks"}}
KARPENTER = {
    "cpu-spot": {"capacity": "spot", "provider": "karpenter"},
    "cpu": {"capacity": "on-demand", "provider": "karpenter"},
}
GROUPS = ("aks-cpuspot-12345678-vmss", "aks-cpu-12345678-vmss")
STATUS = Status({name: Group(name) for name in GROUPS})


def pools(given: dict[str, dict[str, Any]]) -> dict[str, Pool]:
    return dict(configuration.from_mapping({"pools": given}).pools)


def of_expander(priorities: Any, status: Status | None = STATUS) -> Autoscalers:
    read = None if priorities is None else read_priorities(priorities)
    return Autoscalers(True, status, priorities is not None, read, {})


def order(given: dict[str, dict[str, Any]], seen: Autoscalers) -> tuple[bool, str]:
    known = pools(given)
    return tuple(order_of(list(known.values()), known, seen))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("priorities", "is_kept", "words"),
    [
        ({20: ["^aks-cpuspot-.*"], 10: ["^aks-cpu-.*"]}, True, "orders them"),
        ({20: [".*spot.*"]}, True, "orders them"),
        ({20: [".*spot.*"], 10: [".*"]}, True, "orders them"),
        ({10: [".*"]}, False, "gives cpuspot the priority 10, and cpu 10"),
        ({20: ["^aks-cpu-.*"], 10: [".*spot.*"]}, False, "gives cpuspot the priority 10, and cpu 20"),
        ({20: ["nodes-of-nobody"]}, False, "no pattern of the ConfigMap cluster-autoscaler-priority-expander matches"),
        ({20: ["^aks-cpu-.*"]}, False, "matches the group of cpuspot"),
        (None, False, "reads no preferences"),
    ],
)
def test_the_expander_orders_pools_where_its_patterns_do(priorities: Any, is_kept: bool, words: str) -> None:
    kept, why = order(AKS, of_expander(priorities))
    assert kept is is_kept
    assert words in why
    assert order(AKS, of_expander(priorities, None))[0] is is_kept  # by the names that groups of AKS have


def test_pools_that_nothing_scales_are_open() -> None:
    fixed = {name: {**pool, "min_nodes": 3, "max_nodes": 3} for name, pool in AKS.items()}
    assert order(fixed, UNKNOWN) == (True, "these pools have a fixed size")
    assert order(AKS, Autoscalers(False, None, False, None, {})) == (True, "no autoscaler adds nodes to these pools")
    assert order(AKS, UNKNOWN)[0] is False


def test_one_pool_that_grows_leaves_nothing_to_choose() -> None:
    mixed: dict[str, dict[str, Any]] = {**AKS, "cpu": {**AKS["cpu"], "min_nodes": 2, "max_nodes": 2}}
    assert order(mixed, of_expander(None)) == (True, "cpuspot alone can get more nodes")


@pytest.mark.parametrize(
    ("weights", "is_kept"),
    [
        ({"cpu-spot": 50, "cpu": 10}, True),
        ({"cpu-spot": 10, "cpu": 10}, False),
        ({"cpu-spot": 10, "cpu": 50}, False),
        ({"cpu-spot": 10}, False),
        ({}, True),
        (None, False),
    ],
)
def test_weights_of_karpenter_order_pools(weights: dict[str, int] | None, is_kept: bool) -> None:
    assert order(KARPENTER, Autoscalers(False, None, False, None, weights))[0] is is_kept


def test_karpenter_takes_spot_first_in_one_node_pool() -> None:
    of_one = {name: {**pool, "labels": {"karpenter.sh/nodepool": "all"}} for name, pool in KARPENTER.items()}
    assert order(of_one, Autoscalers(False, None, False, None, {"all": 0}))[0] is True


def test_two_autoscalers_keep_no_order() -> None:
    both = {"cpu-spot": KARPENTER["cpu-spot"], "cpu": AKS["cpu"]}
    assert order(both, Autoscalers(True, STATUS, False, None, {"cpu-spot": 50}))[0] is False
    assert order(both, Autoscalers(False, None, False, None, {"cpu-spot": 50}))[0] is True  # one of them is not there


def test_gke_follows_a_compute_class_alone() -> None:
    gke = {"a": {"capacity": "spot", "provider": "gke"}, "b": {"capacity": "on-demand", "provider": "gke"}}
    assert order(gke, of_expander({20: ["-a-"], 10: ["-b-"]}))[0] is False
    classed = {name: {**one, "labels": {"cloud.google.com/compute-class": "cheap"}} for name, one in gke.items()}
    assert order(classed, UNKNOWN) == (True, "the ComputeClass cheap orders them")


def test_a_group_is_of_the_pool_with_the_longest_name_that_it_holds() -> None:
    known = pools(
        {
            "gpu": {"capacity": "on-demand"},
            "gpu-spot": {"capacity": "spot"},
            "cpuspot": AKS["cpuspot"],
            "pool-1": {"capacity": "spot", "provider": "gke"},
        }
    )
    names = [
        "asg-gpu-spot-1",
        "my.gpu.nodes",
        "aks-cpuspot-1-vmss",
        "aks-cpu-1-vmss",
        "https://c/x/gke-one-pool-1-ab-grp",
    ]
    found = groups_of_pools(known.values(), names)
    assert found == {"gpu": [names[1]], "gpu-spot": [names[0]], "cpuspot": [names[2]], "pool-1": [names[4]]}


def test_the_status_tells_what_a_group_can_give() -> None:
    backoff = {"status": "Backoff", "backoffInfo": {"errorCode": "cloudProviderError", "errorMessage": "no capacity"}}
    groups = [
        {"name": "empty", "health": {"maxSize": 3}},
        {
            "name": "full",
            "health": {"cloudProviderTarget": 3, "maxSize": 3, "nodeCounts": {"registered": {"ready": 3}}},
        },
        {
            "name": "boots",
            "health": {"cloudProviderTarget": 3, "maxSize": 3, "nodeCounts": {"registered": {"ready": 2}}},
        },
        {
            "name": "refused",
            "health": {"maxSize": 3},
            "scaleUp": {**backoff, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        },
        {"name": "started", "health": {"maxSize": 1, "lastProbeTime": "2026-01-01T00:00:10.123456789Z"}},
    ]
    status = read_status({"nodeGroups": groups})
    assert {name: group.obstacle for name, group in status.groups.items()} == {
        "empty": "",
        "full": "at its maximum of 3",
        "boots": "",
        "refused": "in backoff after a failed scale-up (cloudProviderError: no capacity)",
        "started": "",
    }
    assert status.groups["boots"].is_coming
    assert status.groups["refused"].since == 1767225600.0
    assert status.at == pytest.approx(1767225610.123456)


@pytest.mark.parametrize("data", [None, "Cluster-wide:\n  Health: Healthy", [], {"nodeGroups": "x"}, 7])
def test_a_status_of_another_form_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="expected the status"):
        read_status(data)


@pytest.mark.parametrize(
    "data", [None, {}, [], {"high": [".*"]}, {True: [".*"]}, {10: ".*"}, {10: [1]}, {10: ["("]}, {10: ["a" * 201]}]
)
def test_priorities_of_another_form_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|is not a pattern"):
        read_priorities(data)


def test_a_status_whose_groups_have_no_nodes_tells_its_own_time() -> None:
    groups = [{"name": "empty", "health": {"maxSize": 3, "lastProbeTime": None}}]
    assert read_status({"time": "2026-01-01 00:00:10.123456789 +0000 UTC", "nodeGroups": groups}).at == 1767225610.0
    assert read_status({"time": "soon", "nodeGroups": groups}).at is None
