"""Signs that a node goes: the taints, conditions and events of each handler and controller, ordered by their meaning.

They are data, so that :mod:`spotwright.scheduling.cause` decides by meaning, and a new handler is one line here. Two meanings
must never be mixed: the *provider* takes the node (an interruption), or *our own side* removes the node or the pod (a
disruption).
"""

from __future__ import annotations

import re
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
    "is_passing_taint",
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
"""Taints with which a handler marks a node that the provider takes."""

TAKEN_CONDITIONS: frozenset[str] = frozenset({"PreemptionScheduled"})
"""Conditions of a node that the provider takes: AKS node-problem-detector sets this one, reason ``SpotEvictionIncoming``."""

VM_EVENT_CONDITION = "VMEventScheduled"
"""Condition of AKS node-problem-detector for any Azure scheduled event; its message begins with the kind of the event."""

TAKEN_VM_EVENTS: tuple[str, ...] = ("Preempt", "Redeploy", "Terminate")
"""Kinds of Azure scheduled events that take the machine. After Freeze and Reboot it is back."""

TAKEN_EVENTS: frozenset[str] = frozenset(
    {
        "SpotInterrupted",  # Karpenter, pkg/controllers/interruption/events
        "TerminatingOnInterruption",  # Karpenter
        "SpotInterruption",  # aws-node-termination-handler, pkg/observability
        "PreemptScheduled",  # AKS node-problem-detector
    }
)
"""Reasons of events about a node that the provider takes."""

AUTO_DRAIN_TAINTS: frozenset[str] = frozenset(
    {"remediator.kubernetes.azure.com/unschedulable", "remediator.aks.microsoft.com/unschedulable"}
)
"""Taints with which AKS drains a node by itself: a spot node because of a preemption, any other node for maintenance."""

REMOVED_TAINTS: Mapping[str, str] = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler scaled its node down",  # kubernetes/autoscaler
    "karpenter.sh/disrupted": "Karpenter removed its node",  # consolidation, drift, expiry
    "karpenter.sh/disruption": "Karpenter removed its node",  # the same before v1
    "aws-node-termination-handler/rebalance-recommendation": "its node was drained on a rebalance recommendation",
    "aws-node-termination-handler/scheduled-maintenance": "its node was drained for maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination": "the autoscaling group removed its node",
}
"""Taints with which our own side marks a node that it removes, each with a sentence for people."""

REMOVED_EVENTS: Mapping[str, str] = {
    "ScaleDown": "the cluster autoscaler scaled its node down",  # kubernetes/autoscaler
    "DisruptionTerminating": "Karpenter removed its node",  # Karpenter, pkg/controllers/disruption
}
"""Reasons of events about a node that our own side removes, each with a sentence for people."""

GONE_TAINTS: frozenset[str] = frozenset(
    {
        "node.cloudprovider.kubernetes.io/shutdown",  # cloud node lifecycle controller: the instance is shut down
        "node.kubernetes.io/out-of-service",  # non-graceful node shutdown: a person or controller marked the node as lost
    }
)
"""Taints on a node object whose machine is gone."""

GONE_EVENTS: frozenset[str] = frozenset({"DeletingNode"})
"""Reasons of events about a node whose machine is gone: the cloud node lifecycle controller found no instance."""

UNREACHABLE_TAINTS: frozenset[str] = frozenset({"node.kubernetes.io/unreachable"})
"""Taints on a node that does not report. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

_PASSING = re.compile(
    r"node\.(kubernetes\.io|cloudprovider\.kubernetes\.io)/|DeletionCandidateOf|karpenter\.sh/(disrupt|unregistered)"
    r"|(startup|ignore)-taint\.cluster-autoscaler\.kubernetes\.io/|.*agent-not-ready$"
)


def is_passing_taint(key: str) -> bool:
    """Whether a taint comes and goes with the state of a node: its conditions, its start, and signs that it goes.

    Every other taint belongs to the pool.
    """
    return _PASSING.match(key) is not None or key in TAKEN_TAINTS | AUTO_DRAIN_TAINTS | REMOVED_TAINTS.keys()
