"""Signs on nodes: that a node is going away, that it is spot, which pool it belongs to, and that it belongs to no pool.

They are data, so that :mod:`spotwright.scheduling.cause` decides by meaning, and a new handler is one line here. Two meanings
must never be confused: the *provider* reclaims the node (an interruption), or the *cluster's own side* removes the node or the
pod (a disruption). The labels of provisioners other than the clouds of :mod:`spotwright.clouds.providers` are here too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "ARCH",
    "AUTO_DRAIN_TAINTS",
    "CAPACITY_SIGNS",
    "GONE_EVENTS",
    "GONE_TAINTS",
    "OS",
    "PLATFORM_TAINTS",
    "POOL_SIGNS",
    "REMOVED_EVENTS",
    "REMOVED_TAINTS",
    "TAKEN_CONDITIONS",
    "TAKEN_EVENTS",
    "TAKEN_TAINTS",
    "TAKEN_VM_EVENTS",
    "UNREACHABLE_TAINTS",
    "VM_EVENT_CONDITION",
    "CapacitySign",
    "capacity_by_words",
    "is_control_plane",
    "is_passing_taint",
    "is_refused_by_kubelet",
    "is_virtual",
]

TAKEN_TAINTS: frozenset[str] = frozenset(
    {
        "aws-node-termination-handler/spot-itn",  # aws-node-termination-handler, --taint-node
        "aks-node-termination-handler/preempt",  # maksim-paskal/aks-node-termination-handler, pkg/api
        "aks-node-termination-handler/redeploy",
        "aks-node-termination-handler/terminate",
        "cloud.google.com/impending-node-termination",  # GoogleCloudPlatform/k8s-node-termination-handler, and GKE itself
    }
)
"""Taints with which a handler marks a node that the provider reclaims."""

TAKEN_CONDITIONS: frozenset[str] = frozenset({"PreemptionScheduled"})
"""Conditions of a node that the provider reclaims: AKS node-problem-detector sets this one, reason ``SpotEvictionIncoming``."""

VM_EVENT_CONDITION = "VMEventScheduled"
"""The condition of AKS node-problem-detector for any Azure scheduled event; its message begins with the event's kind."""

TAKEN_VM_EVENTS: tuple[str, ...] = ("Preempt", "Redeploy", "Terminate")
"""Kinds of Azure scheduled events that remove the machine. After Freeze and Reboot it comes back."""

TAKEN_EVENTS: frozenset[str] = frozenset(
    {
        "SpotInterrupted",  # Karpenter, pkg/controllers/interruption/events
        "TerminatingOnInterruption",  # Karpenter
        "SpotInterruption",  # aws-node-termination-handler, pkg/observability
        "PreemptScheduled",  # AKS node-problem-detector
    }
)
"""Reasons of events about a node that the provider reclaims."""

AUTO_DRAIN_TAINTS: frozenset[str] = frozenset(
    {"remediator.kubernetes.azure.com/unschedulable", "remediator.aks.microsoft.com/unschedulable"}
)
"""Taints with which AKS drains a node: a spot node because of a preemption, any other node for maintenance."""

REMOVED_TAINTS: Mapping[str, str] = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler scaled its node down",  # kubernetes/autoscaler
    "karpenter.sh/disrupted": "Karpenter removed its node",  # consolidation, drift, expiry
    "karpenter.sh/disruption": "Karpenter removed its node",  # the same before v1
    "aws-node-termination-handler/rebalance-recommendation": "its node was drained on a rebalance recommendation",
    "aws-node-termination-handler/scheduled-maintenance": "its node was drained for maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination": "the autoscaling group removed its node",
}
"""Taints with which the cluster's own side marks a node that it removes, each with a sentence for people."""

REMOVED_EVENTS: Mapping[str, str] = {
    "ScaleDown": "the cluster autoscaler scaled its node down",  # kubernetes/autoscaler
    "DisruptionTerminating": "Karpenter removed its node",  # Karpenter, pkg/controllers/disruption
}
"""Reasons of events about a node that the cluster's own side removes, each with a sentence for people."""

GONE_TAINTS: frozenset[str] = frozenset(
    {
        "node.cloudprovider.kubernetes.io/shutdown",  # cloud node lifecycle controller: the instance is shut down
        "node.kubernetes.io/out-of-service",  # non-graceful node shutdown: a person or controller marked the node as lost
    }
)
"""Taints on a Node object whose machine is gone."""

GONE_EVENTS: frozenset[str] = frozenset({"DeletingNode"})
"""Reasons of events about a node whose machine is gone: the cloud node lifecycle controller found no instance."""

UNREACHABLE_TAINTS: frozenset[str] = frozenset({"node.kubernetes.io/unreachable"})
"""Taints on a node that stopped reporting. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

_PASSING = (
    r"node\.(kubernetes\.io/(?!os$)|cloudprovider\.kubernetes\.io/)|DeletionCandidateOf|karpenter\.sh/(disrupt|unregistered)"
    r"|(startup|ignore)-taint\.cluster-autoscaler\.kubernetes\.io/|.*agent-not-ready$"
)


def is_passing_taint(key: str) -> bool:
    """Whether a taint comes and goes with a node's state: its conditions, its start, and signs that it is going away.

    Every other taint belongs to the pool, including ``node.kubernetes.io/os``, which stays on Windows nodes.
    """
    return re.match(_PASSING, key) is not None or key in TAKEN_TAINTS | AUTO_DRAIN_TAINTS | REMOVED_TAINTS.keys()


ARCH = "kubernetes.io/arch"
"""Set by every kubelet. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

OS = "kubernetes.io/os"
"""Set by every kubelet. Source: as for :data:`ARCH`."""

PLATFORM_TAINTS: Mapping[str, str] = {ARCH: ARCH, OS: OS, "node.kubernetes.io/os": OS, "os": OS}
"""Keys of taints on nodes of another architecture or operating system, with the equivalent label.

Sources: Google Cloud, "Prepare an Arm workload for deployment" (``kubernetes.io/arch``); Kubernetes, "Guide for Running Windows
Containers" (``os``); Google Cloud, "Creating a cluster using Windows Server node pools" (``node.kubernetes.io/os``).
"""


class CapacitySign(NamedTuple):
    """The values of a label that mean spot, and those that mean on-demand."""

    spot: tuple[str, ...] = ()
    on_demand: tuple[str, ...] = ()


CAPACITY_SIGNS: Mapping[str, CapacitySign] = {
    # CAST AI documentation, "Autoscaler Node Labels and Taints"; castai/spot-handler, the chart's node selector
    "scheduling.cast.ai/spot": CapacitySign(("true",)),
    # Spot Ocean documentation, "Labels and Taints" (od and spot)
    "spotinst.io/node-lifecycle": CapacitySign(("spot",), ("od", "on-demand")),
    # kubernetes-sigs/cluster-api, api/core/v1beta2/common_types.go (InterruptibleLabel), set without a value
    "cluster.x-k8s.io/interruptible": CapacitySign(("", "true")),
    # openshift/machine-api-operator, machine-api-termination-handler, set without a value
    "machine.openshift.io/interruptible-instance": CapacitySign(("", "true")),
    # Yandex Managed Service for Kubernetes, "Working with node labels"
    "yandex.cloud/preemptible": CapacitySign(("true",), ("false",)),
    # Alibaba Cloud, release notes of the cloud controller manager 2.10
    "node.alibabacloud.com/spot-strategy": CapacitySign(("SpotAsPriceGo", "SpotWithPriceLimit"), ("NoSpot",)),
    # pusher/k8s-spot-rescheduler, README; castai/spot-handler, pkg/labels, for instance groups of kOps
    "node-role.kubernetes.io/spot-worker": CapacitySign(("true", "")),
    "spot": CapacitySign(("true",), ("false",)),
}
"""Labels of provisioners and clouds without a record, set by them or according to user guides."""

_SEPARATOR = re.compile(r"[-_.]")
_FLAG = re.compile(
    r"(k8s|node|instance)?(is|use|gke|okeis)?(spot|preemptible|interruptible|lowpriority)(instance|node|worker|pool|vm)?s?"
)
_MODEL = re.compile(
    r"(k8s|gke)?(node|instance|vm|scaleset|nodegroup|nodepool)?"
    r"(lifecycle|capacitytype|purchase(type|option|model)|purchasing(option|model)|markettype|provisioning(model)?|priority)"
)
_KIND = re.compile(r"(k8s)?(node|instance|vm|nodegroup|nodepool)?(capacity|pricing(model)?|market|type|class|kind)")
_YES, _NO = re.compile(r"(true|yes|1|on|enabled|present|spot)?"), re.compile(r"false|no|0|off|disabled")
_SPOT = re.compile(r"((ec2|aws)?spot(instances?|vm)?|preemptible|interruptible|lowpriority)")
_ON_DEMAND = re.compile(r"(ec2)?ondemand|od|nonspot|nospot")
_REGULAR = re.compile(r"normal|regular|standard|reserved")


@lru_cache(maxsize=4096)
def capacity_by_words(key: str, value: str) -> bool | None:
    """Whether a user's label or taint means spot (True) or on-demand (False), by its words; None: neither.

    Self-managed groups have labels such as ``node-lifecycle=spot``, ``lifecycle=Ec2Spot``, ``example.com/spot=true``,
    ``node-role.kubernetes.io/spot`` and ``capacity-type=ON_DEMAND``. The last part of the key must be exactly the word for
    capacity.
    """
    name = _SEPARATOR.sub("", key.rpartition("/")[2]).lower()
    said = _SEPARATOR.sub("", value).lower()
    if _FLAG.fullmatch(name):
        return True if _YES.fullmatch(said) else False if _NO.fullmatch(said) else None
    is_model = _MODEL.fullmatch(name)
    if not (is_model or _KIND.fullmatch(name)):
        return None
    if _SPOT.fullmatch(said):
        return True
    is_on_demand = _ON_DEMAND.fullmatch(said) or (is_model and _REGULAR.fullmatch(said))
    return False if is_on_demand else None


POOL_SIGNS: tuple[str, ...] = (
    "scheduling.cast.ai/node-template",  # CAST AI, which sets agentpool=castai on all its nodes on AKS
    "spotinst.io/ocean-vng-id",  # Spot Ocean, the virtual node group
    "hypershift.openshift.io/nodePool",  # openshift/hypershift
    "kops.k8s.io/instancegroup",  # kubernetes/kops
    "worker.gardener.cloud/pool",  # gardener/gardener
    "doks.digitalocean.com/node-pool",  # DigitalOcean
    "lke.linode.com/pool-id",  # Akamai (Linode)
    "k8s.scaleway.com/pool-name",  # Scaleway
    "ibm-cloud.kubernetes.io/worker-pool-name",  # IBM Cloud
    "node.alibabacloud.com/nodepool-id",  # Alibaba Cloud
    "alibabacloud.com/nodepool-id",
    "yandex.cloud/node-group-id",  # Yandex Cloud
    "vke.vultr.com/node-pool",  # Vultr
)
"""Labels whose value names the pool of a node, by provisioners that are not a :class:`~spotwright.model.pools.Provider`."""

_OF_KUBERNETES = r"(.+\.)?(kubernetes\.io|k8s\.io)"
_OF_KUBELETS = r"(.+\.)?(kubelet|node)\.kubernetes\.io"


def is_refused_by_kubelet(key: str) -> bool:
    """Whether a kubelet refuses to start with this label in ``--node-labels``, so that only another client can set it.

    Source: Kubernetes reference, "kubelet", ``--node-labels``.
    """
    domain, _, _ = key.rpartition("/")
    return re.fullmatch(_OF_KUBERNETES, domain) is not None and re.fullmatch(_OF_KUBELETS, domain) is None


_CONTROL_PLANE = frozenset(
    f"node-role.kubernetes.io/{role}" for role in ("control-plane", "master", "controlplane", "etcd", "api-server")
)


def is_control_plane(labels: Mapping[str, str], taint_keys: Collection[str]) -> bool:
    """Whether a node belongs to the control plane, by a label or a taint, also of kOps, RKE and earlier Kubernetes."""
    by_role = labels.get("kubernetes.io/role") == "master"
    return by_role or not _CONTROL_PLANE.isdisjoint(labels) or not _CONTROL_PLANE.isdisjoint(taint_keys)


def is_virtual(labels: Mapping[str, str]) -> bool:
    """Whether a node represents a service that runs pods without a pool's nodes: Fargate, a virtual kubelet."""
    return labels.get("eks.amazonaws.com/compute-type") == "fargate" or labels.get("type") == "virtual-kubelet"
