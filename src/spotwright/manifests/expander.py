"""What makes the cluster autoscaler obey a preference: its ``priority`` expander, with the spot pools first.

The autoscaler passes over preferred node affinity when it chooses which pool to grow. Its expander ``priority`` reads patterns of
node group names from the ConfigMap ``cluster-autoscaler-priority-expander``; a group that no pattern names is never used.
Source: kubernetes/autoscaler, ``expander/priority/readme.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from spotwright.model.pools import Pool, Provider

__all__ = ["EXPANDER", "expander_lines"]

EXPANDER = "the expander 'priority' with the spot pools first (spotwright explain prints it)"
"""How findings refer to it."""

_COMMANDS = {
    Provider.AKS: "az aks update -g GROUP -n CLUSTER --cluster-autoscaler-profile expander=priority",
    Provider.EKS: "start the cluster autoscaler with --expander=priority",
    Provider.GKE: "GKE's autoscaler has no priority expander: use a ComputeClass with spot first",
    Provider.GENERIC: "start the cluster autoscaler with --expander=priority",
}


def expander_lines(pools: Mapping[str, Pool]) -> Iterator[str]:
    """The command and the ConfigMap, ready to apply; nothing where there is no choice between spot and on-demand."""
    usual = [pool for pool in pools.values() if pool.provider is not Provider.KARPENTER]
    if {pool.is_spot for pool in usual} != {True, False}:
        return
    for provider in dict.fromkeys(pool.provider for pool in usual):
        yield f"# {_COMMANDS[provider]}"
    if all(pool.provider is Provider.GKE for pool in usual):
        return
    yield from (
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}",
        "data:",
        "  priorities: |",
    )
    ordered = sorted(usual, key=lambda pool: (pool.is_spot, -(pool.price or Fraction(0))))
    for priority, pool in reversed(list(enumerate(ordered, start=1))):
        yield f"    {priority * 10}:"
        yield f"      - {_pattern(pool)}"


def _pattern(pool: Pool) -> str:
    """How the pool's node groups are called: AKS scale sets are ``aks-POOL-...``, elsewhere the name holds the pool's."""
    return f"^aks-{pool.name}-.*" if pool.provider is Provider.AKS else f".*{pool.name}.*"
