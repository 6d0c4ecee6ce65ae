"""Node pools that the tools of providers list: each form becomes pools that load, and what a list does not say is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests import plain_yaml
from tests.pools.listed_node_pools import AWS, AZ, EKSCTL, GCLOUD, PLAN, RESOURCES, SHOWN, STATE

from spotwright import config as configuration
from spotwright.clouds import providers
from spotwright.errors import InputError
from spotwright.pools.catalogue import script
from spotwright.pools.cluster_inventory import read_objects
from spotwright.pools.node_pool_files import listed_pools
from spotwright.pools.request import ListedPool, Request


def read(*documents: Any) -> dict[str, ListedPool]:
    """The pools of the documents, which load as a configuration, and for each of which a tool prints something."""
    text = "\n".join(json.dumps(document) for document in documents)
    pools = listed_pools(read_objects(text, "pools.json").listings, "pools.json").pools
    settings = {pool.name: dict(pool.settings) for pool in pools}
    config = configuration.from_mapping({"version": 1, "pools": settings})
    for name, pool in config.pools.items():
        is_reserved = "eks.amazonaws.com/capacityType" in pool.labels
        if not pool.automatic:
            assert script(Request(pool, config.pools), "aws" if is_reserved else None), name
    return {pool.name: pool for pool in pools}


def test_pools_of_az_keep_priority_limits_zones_labels_and_taints() -> None:
    pools = read(AZ)
    assert pools["system"].settings == {
        "capacity": "on-demand",
        "provider": "aks",
        "machine": "Standard_D2s_v3",
        "min_nodes": 1,
        "max_nodes": 1,
        "create_flags": {"mode": "System", "node-osdisk-size": 128},
    }
    assert pools["gpuspot"].settings == {
        "capacity": "spot",
        "provider": "aks",
        "machine": "Standard_NC6s_v3",
        "zones": ["1", "2"],
        "max_nodes": 4,
        "labels": {"gpu": "true"},
        "taints": ["sku=gpu:NoSchedule"],
        "create_flags": {"vnet-subnet-id": "/subscriptions/1/subnets/nodes"},
    }
    assert "set node: of the pool" in pools["gpuspot"].notes[0]


@pytest.mark.parametrize(
    "document",
    [
        {"agentPoolProfiles": AZ, "location": "eastus", "kind": "Base", "name": "c"},
        {"value": [{"name": one["name"], "properties": one} for one in AZ], "location": "eastus"},
        [{"agentPoolProfiles": AZ, "location": "eastus", "name": "c"}],
    ],
    ids=["az aks show", "az rest", "az aks list"],
)
def test_pools_of_aks_are_read_off_their_cluster_too(document: Any) -> None:
    pools = read(document)
    assert {name: (one.settings["capacity"], one.settings["region"]) for name, one in pools.items()} == {
        "system": ("on-demand", "eastus"),
        "gpuspot": ("spot", "eastus"),
    }


def test_pools_of_gcloud_count_their_limits_in_all_zones_and_offer_their_gpus() -> None:
    assert read([GCLOUD])["t4"].settings == {
        "capacity": "spot",
        "provider": "gke",
        "machine": "n1-standard-8",
        "region": "us-central1",
        "zones": ["us-central1-a", "us-central1-b"],
        "node": {"nvidia.com/gpu": 1},
        "max_nodes": 10,
        "labels": {"team": "a", "cloud.google.com/gke-accelerator": "nvidia-tesla-t4"},
        "taints": ["cloud.google.com/gke-spot=true:NoSchedule"],
        "create_flags": {"disk-size": 100},
    }
    assert read({"name": "c", "location": "us-central1", "nodePools": [GCLOUD]}).keys() == {"t4"}


def google(machine: str, **config: Any) -> ListedPool:
    placement = {"tpuTopology": "2x4"} if machine.startswith("ct") else {}
    made = {"machineType": machine, **config}
    [pool] = read([{**GCLOUD, "config": made, "placementPolicy": placement, "autoscaling": {}}]).values()
    return pool


def test_preemptible_and_flex_start_machines_of_google_are_named() -> None:
    old = google("n1-standard-8", preemptible=True)
    assert (old.settings["capacity"], old.settings["max_lifetime"]) == ("spot", "24h")
    assert old.settings["labels"] == {"cloud.google.com/gke-preemptible": "true"}
    flexible = google("a2-highgpu-1g", flexStart=True)
    assert (flexible.settings["capacity"], flexible.settings["max_nodes"]) == ("on-demand", 2)
    assert "flex-start VMs" in flexible.notes[0]


def test_accelerators_of_google_are_counted_as_a_node_offers_them() -> None:
    gpu = {"acceleratorType": "nvidia-tesla-a100", "acceleratorCount": "2"}
    parts = google("a2-highgpu-2g", accelerators=[{**gpu, "gpuPartitionSize": "3g.20gb"}])
    assert parts.settings["node"] == {"nvidia.com/gpu": 4}
    assert parts.settings["labels"]["cloud.google.com/gke-gpu-partition-size"] == "3g.20gb"
    shared = google("a2-highgpu-2g", accelerators=[{**gpu, "gpuSharingConfig": {"maxSharedClientsPerGpu": "8"}}])
    assert shared.settings["node"] == {"nvidia.com/gpu": 16}
    assert google("ct5l-hightpu-8t", spot=True).settings["node"] == {"google.com/tpu": 8}
    chips = google("ct5lp-hightpu-4t", spot=True)
    assert chips.settings["node"] == {"google.com/tpu": 4}
    assert chips.settings["taints"] == ["google.com/tpu=present:NoSchedule"]
    assert chips.settings["labels"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }


def test_the_partitions_of_a_gpu_are_made_of_as_many_gpus_as_there_were() -> None:
    gpu = {"acceleratorType": "nvidia-tesla-a100", "acceleratorCount": "2", "gpuPartitionSize": "3g.20gb"}
    settings = {"parts": dict(google("a2-highgpu-2g", accelerators=[gpu]).settings)}
    config = configuration.from_mapping({"version": 1, "pools": settings})
    text = "\n".join(script(Request(config.pools["parts"], config.pools)))
    assert "type=nvidia-tesla-a100,count=2,gpu-driver-version=default,gpu-partition-size=3g.20gb" in text


@pytest.mark.parametrize(
    ("machine", "config", "taint", "key", "value"),
    [
        ("t2a-standard-4", {}, "kubernetes.io/arch=arm64:NoSchedule", "labels", {"kubernetes.io/arch": "arm64"}),
        ("a4x-highgpu-4g", {}, "kubernetes.io/arch=arm64:NoSchedule", "labels", {"kubernetes.io/arch": "arm64"}),
        (
            "n2-standard-4",
            {"imageType": "WINDOWS_LTSC_CONTAINERD"},
            "node.kubernetes.io/os=windows:NoSchedule",
            "os",
            "windows",
        ),
    ],
)
def test_gke_taints_nodes_of_another_architecture_or_system_by_itself(
    machine: str, config: dict[str, Any], taint: str, key: str, value: Any
) -> None:
    pool = google(machine, **config)
    assert (pool.settings["taints"], pool.settings[key]) == ([taint], value)
    made = configuration.from_mapping({"version": 1, "pools": {"t4": dict(pool.settings)}}).pools
    assert "--node-taints" not in "\n".join(script(Request(made["t4"], made)))


def test_a_pool_without_gpus_does_not_get_those_of_another_pool_of_its_machine() -> None:
    plain = {**GCLOUD, "name": "plain", "config": {"machineType": "n1-standard-8"}}
    settings = {name: dict(one.settings) for name, one in read([GCLOUD, plain]).items()}
    pools = configuration.from_mapping({"version": 1, "pools": settings}).pools
    assert dict(providers.gpus_of(pools["t4"])) == {"nvidia.com/gpu": 1}
    assert dict(providers.gpus_of(pools["plain"])) == {}


def test_groups_of_aws_keep_capacity_machines_architecture_and_their_own_name() -> None:
    other = {"nodegroup": {**AWS["nodegroup"], "nodegroupName": "block", "capacityType": "CAPACITY_BLOCK"}}
    pools = read(AWS, other)
    assert pools["train-spot"].settings == {
        "capacity": "spot",
        "provider": "eks",
        "region": "eu-west-1",
        "max_nodes": 9,
        "labels": {
            "eks.amazonaws.com/nodegroup": "Train_Spot",
            "team": "a",
            "kubernetes.io/arch": "arm64",
        },
        "taints": ["spot=true:NoSchedule"],
        "create_flags": {"volumeSize": 50, "instanceTypes": ["m6g.large", "m7g.large"]},
    }
    assert pools["block"].settings["capacity"] == "on-demand"
    assert pools["block"].settings["labels"]["eks.amazonaws.com/capacityType"] == "CAPACITY_BLOCK"


def test_several_machines_are_those_of_either_tool_of_eks() -> None:
    pools = {name: dict(one.settings) for name, one in read(AWS).items()}
    config = configuration.from_mapping({"version": 1, "pools": pools})
    request = Request(config.pools["train-spot"], config.pools)
    [group] = plain_yaml.load("\n".join(script(request, "eksctl")))["managedNodeGroups"]
    assert group["instanceTypes"] == ["m6g.large", "m7g.large"]
    text = "\n".join(script(request, "aws"))
    assert "--instance-types m6g.large m7g.large" in text
    assert "--ami-type AL2023_ARM_64_STANDARD" in text
    assert "--instanceTypes" not in text


def test_eksctl_lists_no_capacity_so_that_it_is_unknown() -> None:
    unmanaged = {**EKSCTL, "Name": "own", "Type": "unmanaged", "InstanceType": "m5.large,m5a.large"}
    pools = read([EKSCTL, unmanaged])
    assert not any(one.is_known for one in pools.values())
    assert all(
        "capacity unknown" in one.notes[0] and "aws eks describe-nodegroup" in one.notes[1] for one in pools.values()
    )
    assert pools["ng"].settings["provider"] == "eks"
    assert pools["own"].settings["labels"] == {"alpha.eksctl.io/nodegroup-name": "own"}
    assert "provider" not in pools["own"].settings


def test_groups_of_a_cluster_config_are_spot_by_their_own_words() -> None:
    mix = {"instanceTypes": ["m5.large", "m4.large"], "onDemandBaseCapacity": 0}
    config = {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": "c", "region": "us-east-1"},
        "managedNodeGroups": [
            {"name": "a", "spot": True, "instanceTypes": ["m5.large"], "minSize": 1, "maxSize": 3},
            {"name": "b", "instanceType": "m5.large", "desiredCapacity": 2},
        ],
        "nodeGroups": [
            {
                "name": "c",
                "instancesDistribution": {**mix, "onDemandPercentageAboveBaseCapacity": 0},
                "taints": {"spotInstance": "true:PreferNoSchedule"},
            },
            {"name": "d", "instancesDistribution": {**mix, "onDemandPercentageAboveBaseCapacity": 50}},
            {"name": "e", "instancesDistribution": mix},
        ],
    }
    pools = read(config)
    assert {name: (one.settings["capacity"], one.is_known) for name, one in pools.items()} == {
        "a": ("spot", True),
        "b": ("on-demand", True),
        "c": ("spot", True),
        "d": ("on-demand", False),
        "e": ("on-demand", True),
    }
    assert pools["c"].settings["taints"] == ["spotInstance=true:PreferNoSchedule"]
    assert (pools["a"].settings["region"], pools["a"].settings["min_nodes"]) == ("us-east-1", 1)


@pytest.mark.parametrize("document", [SHOWN, PLAN, STATE], ids=["show", "plan", "state"])
def test_every_output_of_terraform_has_the_pools_of_all_three_clouds(document: Any) -> None:
    pools = read(document)
    assert {name: (one.settings["provider"], one.settings["capacity"]) for name, one in pools.items()} == {
        "system": ("aks", "on-demand"),
        "spot": ("aks", "spot"),
        "l4": ("gke", "spot"),
        "spot-2": ("eks", "spot"),
    }
    assert pools["system"].settings["taints"] == ["CriticalAddonsOnly=true:NoSchedule"]
    assert pools["spot"].settings == {
        "capacity": "spot",
        "provider": "aks",
        "machine": "Standard_D4s_v3",
        "region": "westeurope",
        "zones": ["1"],
        "max_price": 0.5,
        "min_nodes": 1,
        "max_nodes": 5,
        "labels": {"team": "a"},
    }
    assert (pools["l4"].settings["node"], pools["l4"].settings["max_nodes"]) == ({"nvidia.com/gpu": 1}, 3)
    assert pools["spot-2"].settings["labels"] == {"eks.amazonaws.com/nodegroup": "spot"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([{"name": "x", "vmSize": 3}], "node pool 1 of az: vmSize: expected a text, found a number (3)"),
        ([AZ[0], {"name": None, "vmSize": "D2"}], "node pool 2 of az: name is missing"),
        ([{"name": "x", "config": {"taints": {}}}], "node pool 1 of gcloud: config.taints: expected a list"),
        (
            {"nodegroup": {"nodegroupName": "a", "scalingConfig": {"maxSize": "many"}}},
            "scalingConfig.maxSize: expected",
        ),
        (
            {
                "format_version": "1.0",
                "terraform_version": "1.9.0",
                "values": {"root_module": {"resources": RESOURCES[2:]}},
            },
            "an output of Terraform without a node pool: expected azurerm_kubernetes_cluster",
        ),
        ({"terraform_version": "1.9.0", "resources": 3}, "found no resources"),
        ({"agentPoolProfiles": [{"name": "a"}], "nodePools": []}, "expected nodes, found 1 object without a kind"),
    ],
)
def test_what_is_wrong_in_a_list_is_named_with_its_place(document: Any, message: str) -> None:
    objects = read_objects(json.dumps(document), "pools.json")
    with pytest.raises(InputError) as raised:
        listed_pools(objects.listings, "pools.json") if objects.listings else objects.require_nodes("pools.json")
    assert message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
