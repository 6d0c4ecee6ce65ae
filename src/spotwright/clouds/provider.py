"""The form in which the facts about each provider are kept, and the names that all providers share.

A provider is data: the length of its notice, and the labels and taints that it sets on the nodes of a pool by itself. All other
labels and taints of a pool come from the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotwright.model.scheduling_terms import Taint

__all__ = ["INSTANCE_TYPE", "NVIDIA_GPU", "ZONE", "Facts", "is_accelerator", "is_gpu"]

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

ZONE = "topology.kubernetes.io/zone"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

NVIDIA_GPU = "nvidia.com/gpu"
"""Resource of NVIDIA's device plugin, and key of the taint that GKE sets on nodes with GPUs."""


def is_gpu(resource: str) -> bool:
    """True for the resources under which device plugins offer GPUs and parts of them.

    Sources: NVIDIA/k8s-device-plugin, README (``nvidia.com/gpu``, ``gpu.shared`` and ``mig-1g.5gb``); ROCm/k8s-device-plugin
    (``amd.com/gpu``); intel/intel-device-plugins-for-kubernetes (``gpu.intel.com/i915``).
    """
    domain, _, name = resource.rpartition("/")
    return "gpu" in name or name.startswith("mig-") or domain.startswith("gpu.")


def is_accelerator(resource: str) -> bool:
    """True for GPUs and TPUs: work that asks for none is kept off nodes that have them."""
    return is_gpu(resource) or resource.endswith("/tpu")


@dataclass(frozen=True, slots=True)
class Facts:
    """What one provider sets on nodes by itself. ``notice`` is in seconds; no provider guarantees it."""

    notice: float
    pods_share: float = 1.0  # of the notice; the kubelet keeps the rest for system pods
    pool_label: str = ""  # label whose value is the name of the pool
    spot_labels: Mapping[str, str] = field(default_factory=dict)
    on_demand_labels: Mapping[str, str] = field(default_factory=dict)
    gpu_labels: Mapping[str, str] = field(default_factory=dict)
    spot_taints: tuple[Taint, ...] = ()
    gpu_taints: tuple[Taint, ...] = ()
    tolerates_requests: bool = (
        False  # its API server adds to a pod a toleration of each extended resource in its requests
    )
    spot_taint_keys: frozenset[str] = frozenset()  # keys that mean spot there, also of taints set by people
