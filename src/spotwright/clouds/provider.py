"""The one shape in which each provider says its facts, and the names that all of them share.

A provider is data: how long its notice is, and which labels and taints it sets on the nodes of a pool by itself. Everything
else a pool has was said by the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotwright.model.placing import Taint

__all__ = ["INSTANCE_TYPE", "NVIDIA_GPU", "ZONE", "Facts"]

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

ZONE = "topology.kubernetes.io/zone"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

NVIDIA_GPU = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin, and the key of the taint that GKE sets beside it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What one provider does by itself. ``notice`` is in seconds, and a best effort everywhere."""

    notice: float
    pool_label: str = ""  # the label whose value is the pool's name
    spot_labels: Mapping[str, str] = field(default_factory=dict)
    on_demand_labels: Mapping[str, str] = field(default_factory=dict)
    gpu_labels: Mapping[str, str] = field(default_factory=dict)
    spot_taints: tuple[Taint, ...] = ()
    gpu_taints: tuple[Taint, ...] = ()
    tolerates_requests: bool = (
        False  # its API server gives a pod the toleration of each extended resource that it asks for
    )
    spot_taint_keys: frozenset[str] = frozenset()  # keys that mean spot there, whoever set the taint
