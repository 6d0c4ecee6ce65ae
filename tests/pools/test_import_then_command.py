"""A pool that is imported, made again by its own command and listed anew is the same pool."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import plain_yaml

from spotwright import config as configuration
from spotwright.cluster.found_pools import found_pools
from spotwright.pools.catalogue import script
from spotwright.pools.cluster_inventory import read_objects
from spotwright.pools.generic import compute_class_lines
from spotwright.pools.node_pool_files import listed_pools
from spotwright.pools.request import Request

Settings = Mapping[str, Mapping[str, Any]]
Flags = Mapping[str, list[str]]

NAMES = st.sampled_from(["gpu", "team-a", "spot"])
VALUES = st.sampled_from(["a", "b1", "true"])
LABELS = st.dictionaries(st.sampled_from(["team", "example.com/zone"]), VALUES, max_size=2)
LIMITS = st.tuples(st.integers(0, 3), st.integers(1, 20)).map(sorted)
CASES = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CAPITALS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
TAINTS = st.lists(
    st.tuples(st.sampled_from(["sku", "example.com/for"]), VALUES, st.sampled_from(CASES)),
    max_size=2,
    unique_by=lambda one: (one[0], one[2]),
)
SPOT_TAINT = "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"


def imported(*documents: Any) -> Settings:
    """The pools of spotwright.yaml that the documents give."""
    objects = read_objects("\n".join(json.dumps(one) for one in documents), "pools.json")
    listed = listed_pools(objects.listings, "pools.json").pools if objects.listings else ()
    found = {pool.name: pool.settings for pool in found_pools((), objects.node_pools)}
    return {pool.name: pool.settings for pool in listed} | found


def commanded(settings: Settings, tool: str) -> dict[str, str]:
    """The text that makes each pool."""
    config = configuration.from_mapping({"version": 1, "pools": {name: dict(one) for name, one in settings.items()}})
    return {name: "\n".join(script(Request(pool, config.pools), tool)) for name, pool in config.pools.items()}


def call(text: str, *words: str) -> tuple[list[str], Flags]:
    """The arguments and flags of the command that begins with these words."""
    lines = text.replace("\\\n", " ").splitlines()
    [line] = [one for one in lines if one.startswith(" ".join(words))]
    arguments: list[str] = []
    flags: dict[str, list[str]] = {}
    current = arguments
    for word in shlex.split(line)[len(words) :]:
        if word.startswith("--"):
            current = flags.setdefault(word[2:], [])
        else:
            current.append(word)
    return arguments, flags


def one_of(flags: Flags, name: str) -> str | None:
    return flags[name][0] if flags.get(name) else None


def pairs(values: Iterable[str]) -> dict[str, str]:
    return dict(value.split("=", 1) for value in values)


def parted(text: str | None) -> list[str]:
    return text.split(",") if text else []


def capital_taints(texts: Iterable[str]) -> list[dict[str, str]]:
    taints = []
    for text in texts:
        pair, _, effect = text.rpartition(":")
        key, _, value = pair.partition("=")
        taints.append({"key": key, "value": value, "effect": CAPITALS[effect]})
    return taints


def agent_pool(text: str) -> dict[str, Any]:
    """What AKS would list once the command of az has run."""
    _, flags = call(text, "az", "aks", "nodepool", "add")
    is_spot = one_of(flags, "priority") == "Spot"
    return {
        "name": one_of(flags, "name"),
        "vmSize": one_of(flags, "node-vm-size"),
        "scaleSetPriority": one_of(flags, "priority"),
        "scaleSetEvictionPolicy": one_of(flags, "eviction-policy"),
        "spotMaxPrice": float(price) if (price := one_of(flags, "spot-max-price")) else None,
        "enableAutoScaling": "enable-cluster-autoscaler" in flags,
        "minCount": int(flags["min-count"][0]),
        "maxCount": int(flags["max-count"][0]),
        "availabilityZones": flags.get("zones"),
        "nodeLabels": pairs(flags.get("labels", ())),
        "nodeTaints": [*([SPOT_TAINT] if is_spot else []), *parted(one_of(flags, "node-taints"))],
        "osType": one_of(flags, "os-type"),
        "osDiskSizeGb": int(size) if (size := one_of(flags, "node-osdisk-size")) else None,
        "gpuInstanceProfile": one_of(flags, "gpu-instance-profile"),
        "mode": one_of(flags, "mode"),
    }


AGENT_POOLS = st.builds(
    lambda name, machine, spot, limits, scales, **others: {
        "name": name.replace("-", ""),
        "vmSize": machine,
        "scaleSetPriority": "Spot" if spot is not None else "Regular",
        "scaleSetEvictionPolicy": spot,
        "enableAutoScaling": scales,
        "minCount": limits[0],
        "maxCount": limits[1],
        "count": limits[1],
        **others,
    },
    NAMES,
    st.sampled_from(["Standard_D4s_v5", "Standard_NC6s_v3"]),
    st.sampled_from([None, "Delete", "Deallocate"]),
    LIMITS,
    st.booleans(),
    nodeLabels=LABELS,
    nodeTaints=TAINTS.map(lambda some: [f"{key}={value}:{effect}" for key, value, effect in some]),
    availabilityZones=st.sampled_from([None, ["1"], ["1", "3"]]),
    mode=st.sampled_from(["User", "System"]),
    osDiskSizeGb=st.sampled_from([None, 128]),
    gpuInstanceProfile=st.sampled_from([None, "MIG1g"]),
)


def google_pool(text: str) -> dict[str, Any]:
    """What GKE would list once the command of gcloud has run."""
    [name], flags = call(text, "gcloud", "container", "node-pools", "create")
    devices = [pairs(parted(one)) for one in flags.get("accelerator", ())]
    sharing = {"time-sharing": "TIME_SHARING", "mps": "MPS", None: None}
    affinity = {"none": "NO_RESERVATION", "any": "ANY_RESERVATION", "specific": "SPECIFIC_RESERVATION", None: None}
    zones = parted(one_of(flags, "node-locations"))
    return {
        "name": name,
        "location": "us-central1",
        "locations": zones,
        "initialNodeCount": int(flags["num-nodes"][0]),
        "autoscaling": {
            "enabled": "enable-autoscaling" in flags,
            "totalMinNodeCount": int(flags["total-min-nodes"][0]),
            "totalMaxNodeCount": int(flags["total-max-nodes"][0]),
            "locationPolicy": one_of(flags, "location-policy"),
        },
        "queuedProvisioning": {"enabled": "enable-queued-provisioning" in flags},
        "config": {
            "machineType": one_of(flags, "machine-type"),
            "spot": "spot" in flags,
            "preemptible": "preemptible" in flags,
            "flexStart": "flex-start" in flags,
            "maxRunDuration": one_of(flags, "max-run-duration"),
            "labels": pairs(parted(one_of(flags, "node-labels"))),
            "taints": capital_taints(parted(one_of(flags, "node-taints"))),
            "diskSizeGb": int(size) if (size := one_of(flags, "disk-size")) else None,
            "reservationAffinity": {
                "consumeReservationType": affinity[one_of(flags, "reservation-affinity")],
                "values": parted(one_of(flags, "reservation")),
            },
            "accelerators": [
                {
                    "acceleratorType": one["type"],
                    "acceleratorCount": one["count"],
                    "gpuPartitionSize": one.get("gpu-partition-size"),
                    "gpuSharingConfig": {
                        "maxSharedClientsPerGpu": one.get("max-shared-clients-per-gpu"),
                        "gpuSharingStrategy": sharing[one.get("gpu-sharing-strategy")],
                    },
                }
                for one in devices
            ],
        },
    }


SHARED = st.sampled_from(
    [{}, {"maxSharedClientsPerGpu": "4", "gpuSharingStrategy": "MPS"}, {"maxSharedClientsPerGpu": 2}]
)
GPUS = st.builds(
    lambda count, size, shared: [
        {
            "acceleratorType": "nvidia-tesla-a100",
            "acceleratorCount": count,
            "gpuPartitionSize": size,
            "gpuSharingConfig": shared,
        }
    ],
    st.integers(1, 4),
    st.sampled_from([None, "1g.5gb", "3g.20gb"]),
    SHARED,
)
CAPACITIES: list[tuple[dict[str, Any], bool]] = [
    ({"spot": True}, False),
    ({"preemptible": True}, False),
    ({}, False),
    ({"flexStart": True, "maxRunDuration": "7200s"}, False),
    (
        {
            "flexStart": True,
            "maxRunDuration": "604800s",
            "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
        },
        True,
    ),
    ({"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["r1"]}}, False),
]
GOOGLE_POOLS = st.builds(
    lambda name, capacity, devices, limits, zones, policy, labels, taints: {
        "name": name,
        "location": "us-central1",
        "locations": zones,
        "autoscaling": {
            "enabled": True,
            "minNodeCount": limits[0],
            "maxNodeCount": limits[1],
            "locationPolicy": policy,
        },
        "queuedProvisioning": {"enabled": capacity[1]},
        "config": {
            "machineType": "a2-highgpu-4g" if devices else "n2-standard-8",
            "accelerators": devices,
            "labels": labels,
            "taints": [{"key": key, "value": value, "effect": CAPITALS[effect]} for key, value, effect in taints],
            **capacity[0],
        },
    },
    NAMES,
    st.sampled_from(CAPACITIES),
    st.one_of(st.just([]), GPUS),
    LIMITS,
    st.sampled_from([[], ["us-central1-a"], ["us-central1-a", "us-central1-b"]]),
    st.sampled_from([None, "ANY", "BALANCED"]),
    LABELS,
    TAINTS,
)


def node_group(text: str) -> dict[str, Any]:
    """What EKS would list once the command of aws has run."""
    _, flags = call(text, "aws", "eks", "create-nodegroup")
    scaling = pairs(parted(one_of(flags, "scaling-config")))
    taints = [pairs(parted(one)) for one in flags.get("taints", ())]
    return {
        "nodegroupName": one_of(flags, "nodegroup-name"),
        "capacityType": one_of(flags, "capacity-type"),
        "instanceTypes": flags["instance-types"],
        "amiType": one_of(flags, "ami-type"),
        "labels": pairs(parted(one_of(flags, "labels"))),
        "taints": taints,
        "scalingConfig": {"minSize": int(scaling["minSize"]), "maxSize": int(scaling["maxSize"])},
    }


NODE_GROUPS = st.builds(
    lambda name, kind, machines, limits, labels, taints: {
        "nodegroupName": name,
        "capacityType": kind,
        "instanceTypes": machines,
        "labels": labels,
        "taints": [{"key": key, "value": value, "effect": CAPITALS[effect]} for key, value, effect in taints],
        "scalingConfig": {"minSize": limits[0], "maxSize": limits[1]},
    },
    NAMES,
    st.sampled_from(["SPOT", "ON_DEMAND", "CAPACITY_BLOCK"]),
    st.sampled_from([["m5.large"], ["m5.large", "m6i.large"], ["g5.xlarge"]]),
    LIMITS,
    LABELS,
    TAINTS,
)


@pytest.mark.parametrize(
    ("tool", "drawn", "listed"),
    [("az", AGENT_POOLS, agent_pool), ("gcloud", GOOGLE_POOLS, google_pool), ("aws", NODE_GROUPS, node_group)],
    ids=["az", "gcloud", "aws"],
)
@given(data=st.data())
def test_a_listed_pool_that_its_command_makes_is_listed_as_the_same_pool(
    tool: str, drawn: st.SearchStrategy[Any], listed: Callable[[str], dict[str, Any]], data: st.DataObject
) -> None:
    document = data.draw(drawn)
    pools = imported(document)
    [text] = commanded(pools, tool).values()
    assert imported(listed(text)) == pools


GROUPS = st.builds(
    lambda name, is_spot, machines, limits, labels, taints: {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": "c", "region": "eu-west-1"},
        "managedNodeGroups": [
            {
                "name": name,
                "spot": is_spot,
                "instanceTypes": machines,
                "minSize": limits[0],
                "maxSize": limits[1],
                "labels": labels,
                "taints": [{"key": key, "value": value, "effect": effect} for key, value, effect in taints],
            }
        ],
    },
    NAMES,
    st.booleans(),
    st.sampled_from([["m5.large"], ["m5.large", "m6i.large"], ["g5.xlarge"]]),
    LIMITS,
    LABELS,
    TAINTS,
)


@given(document=GROUPS)
def test_a_group_of_a_cluster_config_comes_back_from_the_config_that_is_printed(document: dict[str, Any]) -> None:
    pools = imported(document)
    [text] = commanded(pools, "eksctl").values()
    assert imported(plain_yaml.load(text)) == pools


CAPACITY = "karpenter.sh/capacity-type"
ASKED = [
    {"key": CAPACITY, "operator": "In", "values": ["spot"]},
    {"key": CAPACITY, "operator": "In", "values": ["reserved", "spot", "on-demand"]},
    {"key": CAPACITY, "operator": "NotIn", "values": ["on-demand"]},
    {"key": CAPACITY, "operator": "NotIn", "values": ["spot"]},
    {"key": CAPACITY, "operator": "Exists"},
]
NODE_POOLS = st.builds(
    lambda name, capacity, others, labels, taints, ends, limits: {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"},
                    "requirements": [*capacity, *others],
                    "taints": [{"key": key, "value": value, "effect": effect} for key, value, effect in taints],
                    **ends,
                },
            },
            "limits": limits,
        },
    },
    NAMES,
    st.one_of(st.just([]), st.sampled_from(ASKED).map(lambda one: [one])),
    st.lists(
        st.sampled_from(
            [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},
                {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["eu-west-1a"]},
                {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["15"]},
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "m6i"], "minValues": 2},
            ]
        ),
        max_size=3,
        unique_by=lambda one: one["key"],
    ),
    LABELS,
    TAINTS,
    st.sampled_from(
        [
            {},
            {"expireAfter": "720h"},
            {"expireAfter": "12h", "terminationGracePeriod": "1h"},
            {"startupTaints": [{"key": "example.com/starts", "effect": "NoExecute"}]},
        ]
    ),
    st.sampled_from([{}, {"cpu": 100}]),
)


def capacities(settings: Settings) -> set[str]:
    return {one.get("labels", {}).get(CAPACITY, one["capacity"]) for one in settings.values()}


@given(node_pool=NODE_POOLS)
def test_a_node_pool_comes_back_from_the_object_that_is_printed_for_each_of_its_pools(
    node_pool: dict[str, Any],
) -> None:
    pools = imported(node_pool)
    asked = node_pool["spec"]["template"]["spec"]["requirements"]
    is_named = any(one["key"] == CAPACITY for one in asked)
    for text in commanded(pools, "karpenter").values():
        again = imported(plain_yaml.load(text))
        assert capacities(again) == capacities(pools)
        assert {name: compared(one) for name, one in again.items()} == {
            name: compared(one) for name, one in pools.items()
        }
    assert is_named or capacities(pools) == {"on-demand"}


def compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a pool, a lifetime as seconds whatever its unit; 'linux' is said although it is the default."""
    hours = {"12h": "43200s"}
    return {**settings, "max_lifetime": hours.get(settings.get("max_lifetime", ""), settings.get("max_lifetime"))}


RULES = st.lists(
    st.builds(
        lambda is_spot, machine, devices, zones: {
            **machine,
            "spot": is_spot,
            **({"gpu": devices} if devices else {}),
            **({"location": {"zones": zones}} if zones else {}),
        },
        st.booleans(),
        st.sampled_from(
            [{"machineFamily": "g2"}, {"machineType": "g2-standard-8"}, {"machineFamily": "n4", "minCores": 16}]
        ),
        st.sampled_from([None, {"type": "nvidia-l4", "count": 1}]),
        st.sampled_from([None, ["us-central1-a"]]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one["spot"],
)


@given(rules=RULES)
def test_the_rules_of_a_compute_class_come_back_spot_first(rules: list[dict[str, Any]]) -> None:
    document = {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": {"name": "ml"},
        "spec": {"priorities": rules},
    }
    pools = imported(document)
    config = configuration.from_mapping({"version": 1, "pools": {name: dict(one) for name, one in pools.items()}})
    printed = plain_yaml.load("\n".join(compute_class_lines(config.pools)))
    assert printed["spec"]["priorities"] == sorted(rules, key=lambda rule: not rule["spot"])
    assert imported(printed) == pools
