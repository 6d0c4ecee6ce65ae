"""Google Kubernetes Engine: node pools of Spot VMs, of the older preemptible VMs, or of standard ones.

Sources: Google Cloud, "Spot VMs in GKE" (30 s notice, of which pods have the first 15; labels), "Run GPUs in GKE Standard
node pools" (the GPU taint is set when the pool is made; the admission controller ExtendedResourceToleration lets pods that
ask for GPUs tolerate it). GKE sets the spot taint only on pools of node auto-provisioning and Autopilot. A pool made by
hand has it if it was made with ``--node-taints``, and then the configuration has it too.
"""

from __future__ import annotations

from spotwright.clouds.provider import NVIDIA_GPU, Facts
from spotwright.model.scheduling_terms import Taint

__all__ = ["COMPUTE_CLASS", "FACTS", "PREEMPTIBLE"]

_SPOT = "cloud.google.com/gke-spot"
_PROVISIONING = "cloud.google.com/gke-provisioning"

PREEMPTIBLE = "cloud.google.com/gke-preemptible"
"""Label (``true``) of preemptible VMs, which older guides select by."""

COMPUTE_CLASS = "cloud.google.com/compute-class"
"""Label by which pods select a ComputeClass, and by which node pools belong to it."""

FACTS = Facts(
    notice=30.0,
    pods_share=0.5,
    pool_label="cloud.google.com/gke-nodepool",
    spot_labels={_SPOT: "true", _PROVISIONING: "spot"},
    on_demand_labels={_PROVISIONING: "standard"},  # without gke-spot
    gpu_taints=(Taint(NVIDIA_GPU, "present"),),
    tolerates_requests=True,
    # "preemptible" is the taint in Google's own guide to preemptible pools with Kubeflow Pipelines
    spot_taint_keys=frozenset({_SPOT, PREEMPTIBLE, _PROVISIONING, "preemptible"}),
)
"""GKE: 30 s notice, of which pods have 15; sets labels and the GPU taint, no spot taint."""
