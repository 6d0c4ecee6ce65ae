"""Pools that are read off nodes: the configuration that is written fits the nodes that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spotwright import config as configuration
from spotwright.clouds import providers
from spotwright.cluster.found_pools import FoundPool, found_pools, left_out
from spotwright.errors import InputError
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


def found(*nodes: dict[str, Any], node_pools: tuple[dict[str, Any], ...] = ()) -> dict[str, FoundPool]:
    return {pool.name: pool for pool in found_pools(nodes, node_pools)}


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


def test_a_pool_whose_capacity_nothing_says_is_named_as_unknown() -> None:
    kops = {"kops.k8s.io/instancegroup": "nodes"}
    pools = found(a_node("n1", kops), a_node("n2", {**kops, "node-lifecycle": "spot"}), a_node("n3", AKS))
    assert {name: one.is_known for name, one in pools.items()} == {
        "nodes-unknown": False,
        "nodes-spot": True,
        "gpu": True,
    }
    assert pools["nodes-unknown"].settings["capacity"] == "on-demand"
    assert "capacity unknown" in pools["nodes-unknown"].notes[0]


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"provisioner.cast.ai/managed-by": "cast.ai"}, {}),
        ({"node-role.kubernetes.io/worker": ""}, {"machine.openshift.io/machine": "openshift-machine-api/a"}),
        ({"cloud.google.com/gke-nodepool": "a"}, {}),
        ({"karpenter.sh/nodepool": "a", "karpenter.sh/capacity-type": "reserved"}, {}),
    ],
)
def test_a_node_is_on_demand_where_its_provisioner_marks_every_spot_node(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    node = a_node("n1", labels)
    node["metadata"]["annotations"] = annotations
    [pool] = found(node).values()
    assert (pool.settings["capacity"], pool.is_known) == ("on-demand", True)


def test_nodes_of_cast_ai_on_aks_are_pools_by_their_template_and_not_by_the_one_agent_pool() -> None:
    marks = {"kubernetes.azure.com/agentpool": "castai", "provisioner.cast.ai/managed-by": "cast.ai"}
    spot = {"scheduling.cast.ai/spot": "true"}
    pools = found(
        a_node("n1", {**marks, "scheduling.cast.ai/node-template": "train", **spot}),
        a_node("n2", {**marks, "scheduling.cast.ai/node-template": "train"}),
        a_node("n3", {**marks, "scheduling.cast.ai/node-template": "serve"}),
    )
    assert {name: one.settings["capacity"] for name, one in pools.items()} == {
        "train-spot": "spot",
        "train-on-demand": "on-demand",
        "serve": "on-demand",
    }
    assert pools["train-spot"].settings["labels"] == {"scheduling.cast.ai/node-template": "train", **spot}


def test_every_device_is_kept_also_one_that_is_out_of_order_now() -> None:
    node = a_node("n1", EKS_SPOT, cpu="4", pods="58")
    node["status"]["allocatable"] |= {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7", "hugepages-2Mi": "0"}
    node["status"]["capacity"] = {"aws.amazon.com/neuron": "1", "rdma/hca_a": "1k", "ephemeral-storage": "9"}
    [pool] = found(node).values()
    devices = {"nvidia.com/mig-1g.5gb": "7", "aws.amazon.com/neuron": "1", "rdma/hca_a": "1k"}
    assert pool.settings["node"] == {"cpu": "4", **devices}


def test_nodes_of_several_sizes_are_described_by_the_largest_amounts_and_it_is_said() -> None:
    nodes = [
        a_node(name, {**EKS_SPOT, "node.kubernetes.io/instance-type": machine}, cpu=cpu, memory=memory)
        for name, machine, cpu, memory in (("n1", "m5.large", "1930m", "7Gi"), ("n2", "r5.large", "1", "15Gi"))
    ]
    [pool] = found(*nodes).values()
    assert pool.settings["node"] == {"cpu": "1930m", "memory": "15Gi"}
    assert pool.settings["create_flags"] == {"instanceTypes": ["m5.large", "r5.large"]}
    assert "machines of several sizes (m5.large, r5.large)" in pool.notes[0]


def test_an_amount_that_is_none_is_refused_with_its_node() -> None:
    with pytest.raises(InputError, match=r"node n1: status\.allocatable: cpu: .*many"):
        found(a_node("n1", EKS, cpu="many"))


def test_architecture_and_operating_system_are_kept_with_their_taints() -> None:
    arm = a_node("n1", {**EKS_SPOT, "kubernetes.io/arch": "arm64"}, ("kubernetes.io/arch", "arm64"))
    windows = a_node("n2", {**AKS, "kubernetes.io/os": "windows"}, ("node.kubernetes.io/os", "windows"))
    pools = found(arm, windows, a_node("n3", {**GKE_FULL, "kubernetes.io/arch": "amd64"}))
    assert pools["batch"].settings["labels"]["kubernetes.io/arch"] == "arm64"
    assert pools["batch"].settings["taints"] == ["kubernetes.io/arch=arm64:NoSchedule"]
    assert (pools["gpu"].settings["os"], pools["gpu"].settings["taints"]) == (
        "windows",
        ["node.kubernetes.io/os=windows:NoSchedule"],
    )
    assert pools["pool-1"].settings["labels"] == {"kubernetes.io/arch": "amd64"}


def test_a_taint_of_some_nodes_alone_is_named() -> None:
    [pool] = found(a_node("n1", EKS, ("dedicated", "x")), a_node("n2", EKS)).values()
    assert "taints" not in pool.settings
    assert pool.notes == ["the taint dedicated=x:NoSchedule is only on n1, so it is left out"]


CONTROL = {"node-role.kubernetes.io/control-plane": "", "kops.k8s.io/instancegroup": "control"}


@pytest.mark.parametrize(
    "labels", [CONTROL, {"node-role.kubernetes.io/master": ""}, {"kubernetes.io/role": "master"}], ids=str
)
def test_nodes_of_the_control_plane_are_left_out_and_named(labels: dict[str, str]) -> None:
    nodes = [a_node("c1", labels), a_node("w1", EKS)]
    assert [pool.nodes for pool in found_pools(nodes)] == [["w1"]]
    assert list(left_out(nodes)) == ["Left out, because they are the control plane: c1."]


def test_a_cluster_of_servers_alone_has_its_untainted_ones_as_pool() -> None:
    taint = ("node-role.kubernetes.io/control-plane", "")
    nodes = [a_node("c1", CONTROL, taint), a_node("c2", CONTROL)]
    assert [pool.nodes for pool in found_pools(nodes)] == [["c2"]]
    assert found_pools(nodes[:1]) == []


def test_nodes_that_are_no_machines_are_left_out() -> None:
    nodes = [a_node("f1", {"eks.amazonaws.com/compute-type": "fargate"}), a_node("w1", EKS)]
    assert [pool.nodes for pool in found_pools(nodes)] == [["w1"]]
    assert "not machines (Fargate, virtual kubelet): f1" in next(left_out(nodes))


def test_nodes_without_a_pool_are_one_pool_for_each_class_of_them() -> None:
    nodes = [
        a_node("g1", {"node-class": "gpu", "rack": "r1"}, ("gpu", "true"), **{"nvidia.com/gpu": "8"}),
        a_node("h1", {"node-class": "highmem", "rack": "r1"}),
        a_node("h2", {"node-class": "highmem", "rack": "r1"}),
        a_node("i1", {"node-role.kubernetes.io/infra": "", "rack": "r1"}, ("node-role.kubernetes.io/infra", "")),
        a_node("p1", {"rack": "r1"}),
    ]
    pools = found(*nodes)
    assert {name: list(one.nodes) for name, one in pools.items()} == {
        "gpu": ["g1"],
        "highmem": ["h1", "h2"],
        "infra": ["i1"],
        "other-nodes": ["p1"],
    }
    config = configuration.from_mapping({"pools": {name: dict(one.settings) for name, one in pools.items()}})
    for node in nodes:
        matching = providers.pool_of(node["metadata"]["labels"], config.pools)
        assert matching is not None
        assert node["metadata"]["name"] in pools[matching.name].nodes


def test_a_label_that_names_each_node_makes_no_classes() -> None:
    nodes = [a_node(f"n{number}", {"serial": f"s{number}", "team": "a"}) for number in range(6)]
    [pool] = found(*nodes).values()
    assert pool.settings["labels"] == {"team": "a"}


def test_nodes_that_no_label_tells_apart_get_a_note_with_the_command_that_labels_them() -> None:
    pools = found(a_node("n1", {}), a_node("n2", {}, **{"nvidia.com/gpu": "1"}))
    assert set(pools) == {"other-nodes", "other-nodes-gpu"}
    assert "kubectl label node n2 pool=other-nodes-gpu" in pools["other-nodes-gpu"].notes[-1]


REQUIREMENTS = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]},
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m"]},
]
REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def a_node_pool(
    name: str = "general", requirements: list[dict[str, Any]] = REQUIREMENTS, **spec: Any
) -> dict[str, Any]:
    made = {"requirements": requirements, "nodeClassRef": REFERENCE}
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {**made, **spec}}
    return {"metadata": {"name": name}, "spec": {"limits": {"cpu": "100"}, "template": template}}


def test_a_node_pool_is_read_in_full_beside_its_nodes() -> None:
    zone = {"topology.kubernetes.io/zone": "us-east-1a"}
    node = a_node("n1", {**KARPENTER_SPOT, **zone, "team": "a", "kubernetes.io/arch": "arm64"}, cpu="2")
    shared = {
        "provider": "karpenter",
        "zones": ["us-east-1a"],
        "labels": {"karpenter.sh/nodepool": "general", "kubernetes.io/arch": "arm64", "team": "a"},
        "max_lifetime": "720h",
        "create_flags": {"requirements": REQUIREMENTS[3:], "nodeClassRef": REFERENCE, "limits": {"cpu": "100"}},
    }
    pools = found(node, node_pools=(a_node_pool(expireAfter="720h", terminationGracePeriod="48h"),))
    assert pools["general-on-demand"].settings == {"capacity": "on-demand", **shared}
    assert pools["general-spot"].settings == {"capacity": "spot", "node": {"cpu": "2"}, **shared}


OUTLIVED, LATER, DRIFTED = (
    "that work outlives it",
    "ends up to 5m later",
    "on nodes that have drifted from the NodePool",
)


@pytest.mark.parametrize(
    ("spec", "disruption", "max_lifetime", "notes"),
    [
        ({}, {}, None, []),
        ({"expireAfter": "Never"}, {}, None, []),
        ({"expireAfter": "24h"}, {}, None, [OUTLIVED]),
        ({}, {"expireAfter": "24h"}, None, [OUTLIVED]),  # of v1beta1
        ({"expireAfter": "24h", "terminationGracePeriod": "5m"}, {}, "24h", [LATER, DRIFTED]),
        ({"expireAfter": "Never", "terminationGracePeriod": "5m"}, {}, None, [DRIFTED]),
        ({"terminationGracePeriod": "5m"}, {"budgets": [{"nodes": "10%"}]}, None, [DRIFTED]),
        ({"terminationGracePeriod": "5m"}, {"budgets": [{"nodes": "0", "reasons": ["Empty"]}]}, None, [DRIFTED]),
        ({"terminationGracePeriod": "5m"}, {"budgets": [{"nodes": "0", "schedule": "@daily"}]}, None, [DRIFTED]),
        ({"terminationGracePeriod": "5m"}, {"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}, None, []),
        ({"terminationGracePeriod": "5m"}, {"budgets": [{"nodes": "0"}]}, None, []),
    ],
)
def test_a_lifetime_is_what_ends_the_work_on_a_node(
    spec: dict[str, Any], disruption: dict[str, Any], max_lifetime: str | None, notes: list[str]
) -> None:
    given = a_node_pool(**spec)
    given["spec"]["disruption"] = disruption
    [pool, _] = found(node_pools=(given,)).values()

    assert pool.settings.get("max_lifetime") == max_lifetime
    assert [text for text in pool.notes if "expireAfter" in text or "terminationGracePeriod" in text] == [
        next(text for text in pool.notes if note in text) for note in notes
    ]


@pytest.mark.parametrize(
    ("reference", "flags"),
    [
        ({"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"}, REFERENCE),
        ({"name": "default"}, None),
    ],
)
def test_the_node_class_of_a_past_version_is_named_as_today(
    reference: dict[str, str], flags: dict[str, str] | None
) -> None:
    [pool, _] = found(node_pools=(a_node_pool(nodeClassRef=reference),)).values()
    assert pool.settings["create_flags"].get("nodeClassRef") == flags


def test_nodes_in_other_zones_than_their_node_pool_asks_for_now_are_still_its_pool() -> None:
    node = a_node("n1", {**KARPENTER_SPOT, "topology.kubernetes.io/zone": "us-east-1b"})
    pools = found(node, node_pools=(a_node_pool(),))
    assert (pools["general-spot"].settings["provider"], pools["general-spot"].settings["zones"]) == (
        "karpenter",
        ["us-east-1b"],
    )


@pytest.mark.parametrize(
    ("operator", "values", "capacities"),
    [
        ("In", ["spot"], {"spot"}),
        ("NotIn", ["spot"], {"on-demand"}),
        ("Exists", [], {"spot", "on-demand"}),
        ("In", ["on-demand", "reserved"], {"on-demand"}),
        (None, [], {"on-demand"}),
    ],
)
def test_a_node_pool_asks_for_the_capacities_that_its_requirements_allow(
    operator: str | None, values: list[str], capacities: set[str]
) -> None:
    asked = [{"key": "karpenter.sh/capacity-type", "operator": operator, "values": values}] if operator else []
    pools = found(node_pools=(a_node_pool(requirements=asked),))
    assert {one.settings["capacity"] for one in pools.values()} == capacities


def test_two_node_pools_whose_names_become_one_are_both_kept() -> None:
    spot = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
    pools = found(node_pools=(a_node_pool(), a_node_pool("general-spot", spot)))
    assert set(pools) == {"general-on-demand", "general-spot", "general-spot-2"}
    assert pools["general-spot-2"].settings["labels"]["karpenter.sh/nodepool"] == "general-spot"
