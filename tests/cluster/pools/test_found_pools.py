"""Pools that are read off nodes: the configuration that is written fits the nodes that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spotwright import config as configuration
from spotwright.clouds import providers
from spotwright.cluster.found_pools import found_pools
from spotwright.model.pools import Pool

AKS = {"kubernetes.azure.com/agentpool": "gpu", "agentpool": "gpu"}
AKS_SPOT = {"kubernetes.azure.com/agentpool": "gpuspot", "kubernetes.azure.com/scalesetpriority": "spot"}
GKE_SPOT = {"cloud.google.com/gke-nodepool": "pool-1", "cloud.google.com/gke-spot": "true"}
GKE_FULL = {**GKE_SPOT, "cloud.google.com/gke-provisioning": "spot"}
EKS = {"eks.amazonaws.com/nodegroup": "Large_Nodes", "eks.amazonaws.com/capacityType": "ON_DEMAND"}
EKS_SPOT = {"eks.amazonaws.com/nodegroup": "batch", "eks.amazonaws.com/capacityType": "SPOT"}
KARPENTER_SPOT = {"karpenter.sh/nodepool": "general", "karpenter.sh/capacity-type": "spot"}
KARPENTER = {"karpenter.sh/nodepool": "general", "karpenter.sh/capacity-type": "on-demand"}
BARE = {"kubernetes.io/hostname": "box"}


def a_node(name: str, labels: dict[str, str], *taints: tuple[str, str], **allocatable: str) -> dict[str, Any]:
    listed = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": listed},
        "status": {"allocatable": allocatable},
    }


def of_no_pool(nodes: list[dict[str, Any]], pools: Mapping[str, Pool]) -> list[str]:
    return [node["metadata"]["name"] for node in nodes if providers.pool_of(node["metadata"]["labels"], pools) is None]


def settings(*nodes: dict[str, Any], node_pools: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {pool.name: dict(pool.settings) for pool in found_pools(nodes, node_pools)}


@pytest.mark.parametrize("labels", [AKS, AKS_SPOT, GKE_SPOT, GKE_FULL, EKS, EKS_SPOT, KARPENTER, KARPENTER_SPOT])
def test_a_pool_fits_the_nodes_that_it_was_read_off(labels: dict[str, str]) -> None:
    node = a_node("n1", {**labels, "node.kubernetes.io/instance-type": "m1", "topology.kubernetes.io/zone": "a"})
    config = configuration.from_mapping({"pools": settings(node)})
    (pool,) = config.pools.values()
    assert of_no_pool([node], config.pools) == []
    assert pool.is_spot is ("spot" in str(labels).lower())
    assert pool.price is None


def test_pools_have_the_providers_name_capacity_machine_zones_and_taints() -> None:
    more = {"node.kubernetes.io/instance-type": "NC6"}
    nodes = [
        a_node(
            f"n{zone}",
            {**AKS_SPOT, **more, "topology.kubernetes.io/zone": f"eastus-{zone}"},
            ("kubernetes.azure.com/scalesetpriority", "spot"),
            ("sku", "gpu"),
            ("node.kubernetes.io/unreachable", ""),
            cpu="6",
            memory="112Gi",
        )
        for zone in ("1", "2")
    ]
    assert settings(*nodes) == {
        "gpuspot": {
            "capacity": "spot",
            "provider": "aks",
            "machine": "NC6",
            "region": "eastus",
            "zones": ["1", "2"],
            "node": {"cpu": "6", "memory": "112Gi"},
            "taints": ["sku=gpu:NoSchedule"],
        }
    }


@pytest.mark.parametrize("labels", [AKS, AKS_SPOT])
def test_a_pool_of_one_zone_of_azure_fits_its_nodes_which_say_the_region_before_its_number(
    labels: dict[str, str],
) -> None:
    node = a_node("n1", {**labels, "topology.kubernetes.io/zone": "westeurope-3"})
    found = settings(node)
    (written,) = found.values()
    assert (written["region"], written["zones"]) == ("westeurope", ["3"])
    assert of_no_pool([node], configuration.from_mapping({"pools": found}).pools) == []


def test_an_azure_node_outside_of_zones_has_a_region_and_no_zone() -> None:
    outside = {"topology.kubernetes.io/zone": "0", "topology.kubernetes.io/region": "eastus"}
    (written,) = settings(a_node("n1", {**AKS, **outside})).values()
    assert written["region"] == "eastus"
    assert "zones" not in written


def test_a_pool_of_both_capacities_is_two_pools() -> None:
    found = settings(a_node("n1", KARPENTER), a_node("n2", KARPENTER_SPOT))
    assert {name: each["capacity"] for name, each in found.items()} == {
        "general-on-demand": "on-demand",
        "general-spot": "spot",
    }
    config = configuration.from_mapping({"pools": found})
    assert of_no_pool([a_node("n1", KARPENTER), a_node("n2", KARPENTER_SPOT)], config.pools) == []


def test_a_node_pool_without_nodes_has_a_pool_for_each_capacity_that_it_asks_for() -> None:
    requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}]
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    node_pool = {
        "metadata": {"name": "idle"},
        "spec": {"template": {"spec": {"requirements": requirements, "taints": taints}}},
    }
    found = settings(node_pools=(node_pool,))
    assert set(found) == {"idle-spot", "idle-on-demand"}
    assert found["idle-spot"]["taints"] == ["gpu:NoSchedule"]
    assert configuration.from_mapping({"pools": found}).pools["idle-spot"].is_spot


def test_a_node_of_no_provider_is_named_as_one_that_fits_no_pool() -> None:
    config = configuration.from_mapping({"pools": settings(a_node("n1", AKS))})
    assert of_no_pool([a_node("n1", AKS), a_node("n2", BARE)], config.pools) == ["n2"]


def test_names_that_a_configuration_does_not_take_are_changed_and_still_fit() -> None:
    found = settings(a_node("n1", EKS))
    assert list(found) == ["large-nodes"]
    assert found["large-nodes"]["labels"] == {"eks.amazonaws.com/nodegroup": "Large_Nodes"}
