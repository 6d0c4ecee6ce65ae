"""Azure Kubernetes Service: a node pool is an agent pool on a scale set; spot is the scale set's priority.

Sources: Microsoft Learn, "Add an Azure Spot node pool to an AKS cluster" (label and taint of spot pools), "Use labels in an
AKS cluster" (``agentpool``), "Scheduled Events" (a Preempt event comes at least 30 s ahead, best effort).
"""

from __future__ import annotations

from spotwright.clouds.provider import Facts
from spotwright.model.scheduling_terms import Taint

__all__ = ["FACTS"]

_PRIORITY = "kubernetes.azure.com/scalesetpriority"

FACTS = Facts(
    notice=30.0,
    pool_label="kubernetes.azure.com/agentpool",
    # On-demand pools get no label here: Microsoft's table has the value "regular", but pools made by hand were seen without the
    # label, and pipelines keep off spot with DoesNotExist.
    spot_labels={_PRIORITY: "spot"},
    gpu_labels={"kubernetes.azure.com/accelerator": "nvidia"},
    spot_taints=(Taint(_PRIORITY, "spot"),),
    spot_taint_keys=frozenset({_PRIORITY}),
)
"""AKS: 30 s notice; sets label and taint of spot pools, and a label of GPU pools, but no GPU taint."""
