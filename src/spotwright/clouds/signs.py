"""What is written on nodes and pods when a node goes: the names by which each handler and controller says it.

Kept as data beside the providers, so that :mod:`spotwright.scheduling.cause` decides by meaning and a new handler is one line
here. Two meanings must never be mixed: the *provider* takes the node (an interruption), or *somebody on our side* removes
it or the pod (a disruption).
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "AUTO_DRAIN_TAINTS",
    "GONE_EVENTS",
    "GONE_TAINTS",
    "REMOVED_EVENTS",
    "REMOVED_TAINTS",
    "TAKEN_CONDITIONS",
    "TAKEN_EVENTS",
    "TAKEN_TAINTS",
    "TAKEN_VM_EVENTS",
    "UNREACHABLE_TAINTS",
    "VM_EVENT_CONDITION",
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
"""Taints by which a handler says that the provider takes the node."""

TAKEN_CONDITIONS: frozenset[str] = frozenset({"PreemptionScheduled"})
"""Node conditions that say it: AKS node-problem-detector sets this one with reason ``SpotEvictionIncoming``."""

VM_EVENT_CONDITION = "VMEventScheduled"
"""AKS node-problem-detector: some Azure scheduled event is coming; its message begins with the kind of event."""

TAKEN_VM_EVENTS: tuple[str, ...] = ("Preempt", "Redeploy", "Terminate")
"""Kinds of Azure scheduled events after which the machine is gone. Freeze and Reboot come back."""

TAKEN_EVENTS: frozenset[str] = frozenset(
    {
        "SpotInterrupted",  # Karpenter, pkg/controllers/interruption/events
        "TerminatingOnInterruption",  # Karpenter
        "SpotInterruption",  # aws-node-termination-handler, pkg/observability
        "PreemptScheduled",  # AKS node-problem-detector
    }
)
"""Reasons of events about a node that say the provider takes it."""

AUTO_DRAIN_TAINTS: frozenset[str] = frozenset(
    {"remediator.kubernetes.azure.com/unschedulable", "remediator.aks.microsoft.com/unschedulable"}
)
"""AKS drains the node by itself: on a spot node because it is preempted, on any other for repair or maintenance."""

REMOVED_TAINTS: Mapping[str, str] = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler scaled its node down",  # kubernetes/autoscaler
    "karpenter.sh/disrupted": "Karpenter removed its node",  # consolidation, drift, expiry
    "karpenter.sh/disruption": "Karpenter removed its node",  # the same before v1
    "aws-node-termination-handler/rebalance-recommendation": "its node was drained on a rebalance recommendation",
    "aws-node-termination-handler/scheduled-maintenance": "its node was drained for maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination": "the autoscaling group removed its node",
}
"""Taints by which our side says that it removes the node, each with the sentence for people."""

REMOVED_EVENTS: Mapping[str, str] = {
    "ScaleDown": "the cluster autoscaler scaled its node down",  # kubernetes/autoscaler
    "DisruptionTerminating": "Karpenter removed its node",  # Karpenter, pkg/controllers/disruption
}
"""The same as events about the node."""

GONE_TAINTS: frozenset[str] = frozenset(
    {
        "node.cloudprovider.kubernetes.io/shutdown",  # cloud node lifecycle controller: the instance is shut down
        "node.kubernetes.io/out-of-service",  # non-graceful node shutdown: a person or a controller gave the node up
    }
)
"""Taints on a node object whose machine is no longer there."""

GONE_EVENTS: frozenset[str] = frozenset({"DeletingNode"})
"""The cloud node lifecycle controller found no instance behind the node."""

UNREACHABLE_TAINTS: frozenset[str] = frozenset({"node.kubernetes.io/unreachable"})
"""Nothing is heard of the node. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""
