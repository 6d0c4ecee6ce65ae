"""Labels of nodes as older tools and guides set them, with the form of today: they are named where nodes are read.

Sources: Google Cloud, "Preemptible VMs in GKE"; Microsoft Learn, "Azure low-priority VMs" (Spot VMs since 2020);
Azure/aks-engine, ``docs/topics/clusterdefinitions.md`` (retired); Kubernetes reference, "Well-Known Labels" (the beta labels);
Karpenter, "Upgrade Guide" (NodePools since 0.32); AWS and eksctl guides to unmanaged groups (``lifecycle`` labels).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["PAST_FORMS", "PAST_SPOT_LABELS", "UNMANAGED_SPOT_LABELS", "PastForm", "past_forms"]


class PastForm(NamedTuple):
    """A label of the past. ``value``: None for any. ``instead``: the label that makes it harmless, where both are set."""

    key: str
    value: str | None
    today: str
    instead: str = ""


UNMANAGED_SPOT_LABELS: Mapping[str, str] = {
    "lifecycle": "Ec2Spot",
    "node-lifecycle": "spot",
    "kubernetes.io/lifecycle": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}
"""Labels that guides put on spot nodes of unmanaged groups. On-demand nodes have them too, with another value."""

PAST_SPOT_LABELS: Mapping[str, str] = {
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "low",
    **UNMANAGED_SPOT_LABELS,
}
"""Labels of the past that mean spot."""

_UNMANAGED = "a label of unmanaged groups; managed node groups have eks.amazonaws.com/capacityType=SPOT by themselves"

PAST_FORMS: tuple[PastForm, ...] = (
    PastForm(
        "cloud.google.com/gke-preemptible",
        "true",
        "preemptible VMs live 24 hours at most; Spot VMs (gcloud container node-pools create --spot) have no such "
        "limit, and the label cloud.google.com/gke-spot=true",
    ),
    PastForm(
        "kubernetes.azure.com/scalesetpriority",
        "low",
        "low-priority VMs became Spot VMs: az aks nodepool add --priority Spot, whose nodes have the value spot",
    ),
    PastForm(
        "agentpool",
        None,
        "nodes of aks-engine, which is retired; AKS itself also sets kubernetes.azure.com/agentpool",
        instead="kubernetes.azure.com/agentpool",
    ),
    PastForm(
        "karpenter.sh/provisioner-name", None, "a Provisioner is a NodePool since Karpenter 0.32: karpenter.sh/nodepool"
    ),
    PastForm(
        "beta.kubernetes.io/instance-type",
        None,
        "the label is node.kubernetes.io/instance-type today",
        instead="node.kubernetes.io/instance-type",
    ),
    PastForm(
        "failure-domain.beta.kubernetes.io/zone",
        None,
        "the label is topology.kubernetes.io/zone today",
        instead="topology.kubernetes.io/zone",
    ),
    *(PastForm(key, value, _UNMANAGED) for key, value in sorted(UNMANAGED_SPOT_LABELS.items())),
)
"""The forms, in the order in which they are named."""


def past_forms(labels: Mapping[str, str]) -> Iterator[PastForm]:
    """The forms of the past among the labels of a node."""
    for form in PAST_FORMS:
        if form.key in labels and form.value in (None, labels[form.key]) and form.instead not in labels:
            yield form
