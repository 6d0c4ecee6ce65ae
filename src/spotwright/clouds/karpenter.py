"""Karpenter and products built on it (EKS Auto Mode): a pool is a NodePool, and each node has its own capacity type.

A pool of the configuration has one capacity type, so a NodePool that allows both is two pools there. Sources: Karpenter,
"NodePools" and "Scheduling" (labels), "Disruption" (the two minutes of EC2; needs an interruption queue). On Azure the notice
is AKS's 30 s: set ``notice`` there.
"""

from __future__ import annotations

from spotwright.clouds.provider import Facts

__all__ = ["FACTS"]

_CAPACITY = "karpenter.sh/capacity-type"

FACTS = Facts(
    notice=120.0,
    pool_label="karpenter.sh/nodepool",
    spot_labels={_CAPACITY: "spot"},
    on_demand_labels={_CAPACITY: "on-demand"},
    spot_taint_keys=frozenset({_CAPACITY}),
)
"""Karpenter on AWS: 120 s notice; sets labels, no taint."""
