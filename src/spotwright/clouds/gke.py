"""Google Kubernetes Engine: node pools of Spot VMs, of the older preemptible VMs, or of standard ones.

Sources: Google Cloud, "Spot VMs in GKE" (30 s notice, of which pods have the first 15; labels), "Run GPUs in GKE Standard
node pools" (the GPU taint is set when the pool is made; the admission controller ExtendedResourceToleration lets pods that
ask for GPUs tolerate it). The spot taint is set by itself only on pools of node auto-provisioning and Autopilot: on a pool
made by hand it is there if ``--node-taints`` said so, and then it stands in the configuration.
"""

from __future__ import annotations

from spotwright.clouds.provider import NVIDIA_GPU, Facts
from spotwright.model.placing import Taint

__all__ = ["FACTS", "PREEMPTIBLE"]

_SPOT = "cloud.google.com/gke-spot"
_PROVISIONING = "cloud.google.com/gke-provisioning"

PREEMPTIBLE = "cloud.google.com/gke-preemptible"
"""The label (``true``) of nodes that are preemptible VMs, which the older guides select by."""

FACTS = Facts(
    notice=30.0,
    pool_label="cloud.google.com/gke-nodepool",
    spot_labels={_SPOT: "true", _PROVISIONING: "spot"},
    on_demand_labels={_PROVISIONING: "standard"},  # gke-spot is not there at all
    gpu_taints=(Taint(NVIDIA_GPU, "present"),),
    tolerates_requests=True,
    # "preemptible" is the taint in Google's own guide to preemptible pools with Kubeflow Pipelines
    spot_taint_keys=frozenset({_SPOT, PREEMPTIBLE, _PROVISIONING, "preemptible"}),
)
"""GKE: 30 s (pods have 15 of them), the GPU taint by itself, the spot taint not."""
