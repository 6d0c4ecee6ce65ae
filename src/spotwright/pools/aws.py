"""Managed node groups of EKS: ``aws`` commands or an ``eksctl`` configuration that create one, and commands that show the quota.

Sources: AWS CLI reference, ``eks create-nodegroup`` and the EKS API, ``CreateNodegroup``, ``Taint`` (effects in capitals),
``NodegroupScalingConfig`` (maxSize at least 1); Amazon EKS user guide, "Managed node groups" (spot: price-capacity-optimized,
capacity rebalancing, no price ceiling); kubernetes/autoscaler, ``cloudprovider/aws/README.md`` (node-template tags; the
autoscaler reads labels and taints with ``eks:DescribeNodegroup``); AWS CLI reference, ``ec2 describe-instance-type-offerings``,
``ec2 get-spot-placement-scores``, ``service-quotas list-service-quotas``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.node_labels import known
from spotwright.clouds.node_signs import ARCH
from spotwright.errors import InputError
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Taint
from spotwright.placing.retries import EXPANDER_MEANINGS, expander_objects
from spotwright.placing.yaml_writer import flow
from spotwright.pools.listed_forms import CAPACITY_TYPE
from spotwright.pools.request import (
    Flags,
    Request,
    Variable,
    Word,
    command,
    comment,
    counted,
    gpus,
    heredoc,
    introduction,
    items,
    labels_at_start,
    name_at_provider,
    own_fields,
    section,
    with_create_flags,
)

__all__ = ["availability", "aws_script", "eksctl_config", "preference", "refuse_managed_group", "shared_meanings"]


_CLUSTER = Variable("CLUSTER", "the name of the cluster")
_REGION = Variable("AWS_REGION", "the region of the cluster")
_SUBNETS = Variable("SUBNETS", "the subnets of the nodes, with spaces between them", is_list=True)
_ROLE = Variable("NODE_ROLE", "the ARN of the IAM role of the nodes")
_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
_AWS_SAID_BY = {
    "nodegroup-name": "the name of the pool",
    "capacity-type": "capacity",
    "scaling-config": "min_nodes and max_nodes",
    "labels": "labels",
    "taints": "taints",
}


def aws_script(request: Request) -> Iterator[str]:
    """The script for one pool. Raises :class:`InputError` if EKS cannot have such a group."""
    pool = request.pool
    refuse_managed_group(pool, "aws")
    name = name_at_provider(request)
    flags = _flags(request, name)
    region: Flags = {"region": flags["region"]} if "region" in flags else {}
    group: Flags = {"cluster-name": flags["cluster-name"], "nodegroup-name": (name,), **region}
    yield from introduction(request, "EKS, as a managed node group")
    yield from availability(pool, flags["instance-types"])
    yield from section("Make the group.", *_aws_meanings(request, flags))
    yield from command(("aws", "eks", "create-nodegroup"), flags)
    yield from command(("aws", "eks", "wait", "nodegroup-active"), group)
    yield from _tags(request, group, region)
    yield from preference(request)
    yield from section("Compare what is there with spotwright.yaml.")
    yield f"kubectl get nodes -l eks.amazonaws.com/nodegroup={name} --show-labels"
    yield "kubectl get nodes,daemonsets -A -o json | spotwright pools check -"


def refuse_managed_group(pool: Pool, tool: str) -> None:
    """Refuse a pool that cannot be a managed node group. Raises :class:`InputError`."""
    if not machines_of(pool):
        raise InputError(
            f"pool {pool.name}: {tool} needs the machine: set machine: m5.xlarge or the like in spotwright.yaml"
        )
    if pool.max_nodes < 1:
        raise InputError(f"pool {pool.name}: max_nodes is 0, and EKS asks for at least 1")


def _flags(request: Request, name: str) -> dict[str, tuple[Word, ...]]:
    pool = request.pool
    labels = _given_labels(request)
    flags: dict[str, tuple[Word, ...]] = {
        "cluster-name": (request.cluster or _CLUSTER,),
        "nodegroup-name": (name,),
        **({"region": (pool.region,)} if pool.region else {}),
        "capacity-type": (pool.labels.get(CAPACITY_TYPE, "SPOT" if pool.is_spot else "ON_DEMAND"),),
        "instance-types": tuple(machines_of(pool)),
        **({"ami-type": (_ami(pool),)} if gpus(pool) or pool.os == "windows" or _is_arm(pool) else {}),
        "scaling-config": (f"minSize={pool.min_nodes},maxSize={pool.max_nodes},desiredSize={pool.min_nodes}",),
        "subnets": (_SUBNETS,),
        "node-role": (_ROLE,),
        **({"labels": (",".join(f"{key}={value}" for key, value in labels.items()),)} if labels else {}),
        **({"taints": tuple(map(_taint, pool.taints))} if pool.taints else {}),
    }
    merged = with_create_flags(request, flags, _AWS_SAID_BY)
    merged.pop("instanceTypes", None)  # eksctl's name; its values are among instance-types
    return merged


def _given_labels(request: Request) -> Mapping[str, str]:
    """The labels to give, without the capacity's, which EKS sets."""
    return {key: value for key, value in labels_at_start(request).items() if key != CAPACITY_TYPE}


def _ami(pool: Pool) -> str:
    if pool.os == "windows":
        return "WINDOWS_CORE_2022_x86_64"
    if not gpus(pool):
        return "AL2023_ARM_64_STANDARD"
    return "AL2023_ARM_64_NVIDIA" if _is_arm(pool) else "AL2023_x86_64_NVIDIA"


def _is_arm(pool: Pool) -> bool:
    return known(pool)[0].get(ARCH) == "arm64"


_MACHINES = ("instanceTypes", "instance-types")  # of create_flags: the names of eksctl and of aws


def machines_of(pool: Pool) -> list[str]:
    """The machines of the group: ``create_flags`` of either tool, else the pool's own."""
    given = next((pool.create_flags[key] for key in _MACHINES if key in pool.create_flags), None)
    if given is None:
        return [pool.machine] if pool.machine else []
    return [str(one) for one in given] if isinstance(given, list | tuple) else [str(given)]


def _taint(taint: Taint) -> str:
    value = f"value={taint.value}," if taint.value else ""
    return f"key={taint.key},{value}effect={_EFFECTS[taint.effect]}"


def availability(pool: Pool, machines: Sequence[Word]) -> Iterator[str]:
    """The commands that show machine and quota, as the first section of a script."""
    kind = "Spot" if pool.is_spot else "On-Demand"
    region: Flags = {"region": (pool.region or _REGION,)}
    values = ",".join(map(str, machines))
    yield from section(
        "Does the region have the machine, and is quota left?",
        "A zone that is not listed does not offer the machine.",
        f"Quota counts vCPUs, for each group of families: the row with {kind} and the first letter of the machine.",
    )
    offered: Flags = {
        "location-type": ("availability-zone",),
        "filters": (f"Name=instance-type,Values={values}",),
        **region,
        "output": ("table",),
    }
    yield from command(("aws", "ec2", "describe-instance-type-offerings"), offered)
    query = f"Quotas[?contains(QuotaName, '{kind}')].[QuotaName,QuotaCode,Value]"
    quotas: Flags = {"service-code": ("ec2",), "query": (query,), **region, "output": ("table",)}
    yield from command(("aws", "service-quotas", "list-service-quotas"), quotas)
    if pool.is_spot:
        yield from comment("How likely AWS is to have that many spot nodes now, from 1 to 10, for each zone.")
        scores: Flags = {
            "instance-types": machines,
            "target-capacity": (pool.max_nodes,),
            "single-availability-zone": (),
            "region-names": region["region"],
        }
        yield from command(("aws", "ec2", "get-spot-placement-scores"), scores)


def _aws_meanings(request: Request, flags: Flags) -> Iterator[str]:
    pool = request.pool
    yield from request.warnings
    yield from shared_meanings(request, flags["instance-types"], "instance-types")
    yield (
        f"desiredSize is min_nodes ({pool.min_nodes}). The autoscaler changes it later; a desired size is never part "
        "of an update."
    )
    zones = f" Take those in {', '.join(pool.zones)}: zones of spotwright.yaml are subnets here." if pool.zones else ""
    yield f"--subnets decides the zones.{zones} With zonal volumes make a group for each zone."
    if pool.os == "windows":
        yield "--ami-type: Windows nodes need a Windows AMI, and a cluster that has Windows support."


def shared_meanings(request: Request, machines: Sequence[Word], setting: str) -> Iterator[str]:
    """Notes on a managed node group, whichever tool makes it. ``setting``: the name of the list of machines."""
    pool = request.pool
    if pool.is_spot:
        yield (
            "Spot: all nodes of the group are spot; the label eks.amazonaws.com/capacityType is SPOT, and the only "
            "taints are yours. EKS chooses the machines by price and capacity, replaces a node on a rebalance "
            "recommendation and drains it on the notice of 2 minutes, as a best effort. Capacity type and machines "
            "cannot be changed later: make a new group instead."
        )
        if len(machines) == 1:
            yield (
                "One machine type means one spot market for each zone. More of the same CPUs, memory and GPUs are "
                f"reclaimed less often: create_flags: {{{setting}: [{pool.machine}, ...]}}. The cluster autoscaler measures "
                "by the first."
            )
        if not any(providers.is_spot_taint(pool, taint) for taint in pool.taints):
            yield request.warn(
                'EKS sets no spot taint: add taints: ["spot=true:NoSchedule"] to the pool in spotwright.yaml, or any '
                "work may land on it"
            )
        if pool.max_price is not None:
            yield request.warn(
                "max_price is not given to EKS: a managed node group pays the spot price, and has no ceiling"
            )
    elif CAPACITY_TYPE in pool.labels:
        yield (
            f"Reserved: the label {CAPACITY_TYPE} is {pool.labels[CAPACITY_TYPE]}. The reservation stands in a launch template: "
            "create_flags: {launch-template: id=lt-...}."
        )
    else:
        yield f"On-demand: the label {CAPACITY_TYPE} is ON_DEMAND."
    if gpus(pool):
        yield (
            "GPUs: the machine brings them, the NVIDIA AMI its driver. The device plugin is yours to install, and must "
            "tolerate the taints."
        )
        if not any(providers.is_gpu_taint(taint) for taint in pool.taints):
            yield request.warn(
                'EKS sets no GPU taint: add taints: ["nvidia.com/gpu=present:NoSchedule"] to the pool in '
                "spotwright.yaml, or work without GPUs may fill it"
            )


def _tags(request: Request, group: Flags, region: Flags) -> Iterator[str]:
    """The hints for a cluster autoscaler at 0 nodes, as tags of the autoscaling group."""
    pool = request.pool
    tags = [
        (f"{_TEMPLATE}/label/{key}", value)
        for key, value in providers.labels(pool).items()
        if "kubernetes.io/" not in key
    ]
    tags += [(f"{_TEMPLATE}/taint/{taint.key}", f"{taint.value}:{taint.effect}") for taint in pool.taints]
    tags += [(f"{_TEMPLATE}/resources/{name}", str(amount)) for name, amount in _devices(pool)]
    yield from section(
        "From zero: tell a cluster autoscaler what a node of the empty group would be.",
        "It reads labels and taints of the group itself where its role may eks:DescribeNodegroup; then these tags are "
        "not needed. Without either, pods that select a label wait for ever while the group is empty.",
    )
    query: Flags = {"query": ("nodegroup.resources.autoScalingGroups[0].name",), "output": ("text",)}
    lines = list(command(("aws", "eks", "describe-nodegroup"), {**group, **query}))
    yield f"GROUP=$({lines[0]}"
    yield from lines[1:-1]
    yield f"{lines[-1]})"
    words: tuple[Word, ...] = tuple(
        Variable(
            "GROUP",
            "",
            f"ResourceType=auto-scaling-group,ResourceId={{}},Key={key},Value={value},PropagateAtLaunch=false",
        )
        for key, value in tags
    )
    yield from command(("aws", "autoscaling", "create-or-update-tags"), {**region, "tags": words})


def _devices(pool: Pool) -> Iterator[tuple[str, int]]:
    yield from ((name, amount) for name, amount in (pool.node or {}).items() if "/" in name)


def preference(request: Request) -> Iterator[str]:
    """The priority expander with every EKS pool; empty if they have one capacity."""
    objects = list(
        expander_objects({name: one for name, one in request.pools.items() if one.provider == request.pool.provider})
    )
    if not objects:
        return
    yield from section(
        "Make spot: prefer true, once for the cluster.",
        "Start the cluster autoscaler with --expander=priority.",
        *EXPANDER_MEANINGS,
    )
    yield from heredoc(("kubectl", "apply", "-f", "-"), objects)


_EKSCTL_SAID_BY = {
    "name": "the name of the pool",
    "spot": "capacity",
    "minSize": "min_nodes",
    "maxSize": "max_nodes",
    "desiredCapacity": "min_nodes",
    "labels": "labels",
    "taints": "taints",
    "availabilityZones": "zones",
    "instanceType": "machine",
}
_FAMILIES = {"windows": "WindowsServer2022CoreContainer", "linux": "AmazonLinux2023"}


def eksctl_config(request: Request) -> Iterator[str]:
    """The lines of a ClusterConfig with one group. Raises :class:`InputError` if EKS cannot have it."""
    pool = request.pool
    refuse_managed_group(pool, "eksctl")
    name = name_at_provider(request)
    group = _group(request, name)
    machines = tuple(group["instanceTypes"])
    yield from comment(f"{pool.name}: {counted(pool)} on EKS, as a managed node group.")
    yield from comment("No command has run yet. Write it to a file, then: eksctl create nodegroup --config-file FILE")
    yield from items(
        (*request.warnings, *shared_meanings(request, machines, "instanceTypes"), *_eksctl_meanings(request))
    )
    yield "apiVersion: eksctl.io/v1alpha5"
    yield "kind: ClusterConfig"
    yield "metadata:"
    yield (
        f"  name: {flow(request.cluster or 'CLUSTER')}{'' if request.cluster else '  # SET THIS, or use --cluster-name'}"
    )
    yield f"  region: {flow(pool.region or 'REGION')}{'' if pool.region else '  # SET THIS, or region: of the pool'}"
    yield "managedNodeGroups:"
    for number, (key, value) in enumerate(group.items()):
        yield from _field("- " if number == 0 else "  ", key, value)
    for line in (*availability(pool, machines), *preference(request)):
        yield line if not line or line.startswith("# ") else f"#   {line}"


def _group(request: Request, name: str) -> dict[str, Any]:
    pool = request.pool
    labels = _given_labels(request)
    if CAPACITY_TYPE in pool.labels:
        raise InputError(
            f"pool {pool.name}: eksctl makes no managed group with {CAPACITY_TYPE}={pool.labels[CAPACITY_TYPE]}: use --as aws"
        )
    return {
        "name": name,
        "spot": pool.is_spot,
        "instanceTypes": machines_of(pool),
        "amiFamily": _FAMILIES[pool.os],
        "minSize": pool.min_nodes,
        "maxSize": pool.max_nodes,
        "desiredCapacity": pool.min_nodes,
        **({"availabilityZones": list(pool.zones)} if pool.zones else {}),
        **({"labels": dict(labels)} if labels else {}),
        **({"taints": [taint.fields for taint in pool.taints]} if pool.taints else {}),
        "propagateASGTags": True,
        **own_fields(request, _EKSCTL_SAID_BY, "eksctl (see --as aws)", "volumeSize"),
    }


def _field(start: str, key: str, value: Any) -> Iterator[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        yield f"{start}{key}:"
        yield from (f"  - {flow(item)}" for item in value)
    else:
        yield f"{start}{key}: {flow(value)}"


def _eksctl_meanings(request: Request) -> Iterator[str]:
    pool = request.pool
    yield (
        "propagateASGTags writes labels and taints as node-template tags of the autoscaling group, so that a cluster "
        "autoscaler knows what a node of the empty group would be."
    )
    if gpus(pool):
        yield (
            "eksctl takes the NVIDIA AMI for machines with GPUs, and installs NVIDIA's device plugin unless set "
            "otherwise."
        )
    yield f"desiredCapacity is min_nodes ({pool.min_nodes})."
