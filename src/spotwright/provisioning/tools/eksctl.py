"""The configuration of ``eksctl`` that makes a managed node group of EKS.

Sources: eksctl-io/eksctl, ``pkg/apis/eksctl.io/v1alpha5/assets/schema.json`` (ManagedNodeGroup: the fields and their types) and
the user guide, "Spot instances" and "Auto Scaling" (``propagateASGTags`` writes labels and taints as tags for the cluster
autoscaler).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spotwright.clouds import providers
from spotwright.manifests.yamltext.splice import flow
from spotwright.provisioning.making import Request, counted, gpus, name_at_provider, own_fields
from spotwright.provisioning.script import comment, items
from spotwright.provisioning.tools.aws import availability, preference, refuse_managed_group, shared_meanings

__all__ = ["eksctl_config"]

_SAID_BY = {
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
    yield from comment("Nothing has been run. Write it to a file, then: eksctl create nodegroup --config-file FILE")
    yield from items((*request.warnings, *shared_meanings(request, machines, "instanceTypes"), *_meanings(request)))
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
    labels = providers.own_labels(pool)
    return {
        "name": name,
        "spot": pool.is_spot,
        "instanceTypes": [pool.machine],
        "amiFamily": _FAMILIES[pool.os],
        "minSize": pool.min_nodes,
        "maxSize": pool.max_nodes,
        "desiredCapacity": pool.min_nodes,
        **({"availabilityZones": list(pool.zones)} if pool.zones else {}),
        **({"labels": dict(labels)} if labels else {}),
        **({"taints": [taint.fields for taint in pool.taints]} if pool.taints else {}),
        "propagateASGTags": True,
        **own_fields(request, _SAID_BY, "eksctl (see --as aws)", "volumeSize"),
    }


def _field(start: str, key: str, value: Any) -> Iterator[str]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        yield f"{start}{key}:"
        yield from (f"  - {flow(item)}" for item in value)
    else:
        yield f"{start}{key}: {flow(value)}"


def _meanings(request: Request) -> Iterator[str]:
    pool = request.pool
    yield (
        "propagateASGTags writes labels and taints as node-template tags of the autoscaling group, so that a cluster "
        "autoscaler knows what a node of the empty group would be."
    )
    if gpus(pool):
        yield (
            "eksctl takes the NVIDIA AMI for machines with GPUs, and installs NVIDIA's device plugin unless told "
            "otherwise."
        )
    yield f"desiredCapacity is min_nodes ({pool.min_nodes})."
