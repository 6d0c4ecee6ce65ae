"""Amazon EKS managed node groups: one group is all spot or all on-demand.

Sources: Amazon EKS user guide, "Managed node groups" (labels ``eks.amazonaws.com/nodegroup`` and ``capacityType``; no taint by
itself), Amazon EC2 user guide, "Spot Instance interruption notices" (two minutes).
"""

from __future__ import annotations

from spotwright.clouds.provider import Facts

__all__ = ["FACTS"]

_CAPACITY = "eks.amazonaws.com/capacityType"

FACTS = Facts(
    notice=120.0,
    pool_label="eks.amazonaws.com/nodegroup",
    spot_labels={_CAPACITY: "SPOT"},
    on_demand_labels={_CAPACITY: "ON_DEMAND"},
    # "spot" and "spotInstance" are the taints in Amazon's own guides and examples
    spot_taint_keys=frozenset({_CAPACITY, "spot", "spotInstance"}),
)
"""EKS: 120 s notice; sets labels, no taint."""
