"""Settings for the cluster autoscaler's ``priority`` expander, with which it prefers spot pools.

The autoscaler ignores preferred node affinity when it chooses a pool to grow. Its expander ``priority`` reads patterns of node
group names from the ConfigMap ``cluster-autoscaler-priority-expander``; a group that no pattern matches is never grown.
GKE's autoscaler has no such expander; there a ComputeClass orders spot and on-demand. Sources: kubernetes/autoscaler,
``expander/priority/readme.md``; Google Cloud, "About custom compute classes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from spotwright.clouds import providers
from spotwright.model.pools import Pool, Provider

__all__ = ["EXPANDER", "expander_lines", "expander_objects", "preference_advice"]

EXPANDER = "the expander 'priority' with the spot pools first (spotwright explain prints it)"
"""The expander as findings name it."""

_COMPUTE_CLASS = "a ComputeClass with spot first (GKE's autoscaler has no priority expander)"

_COMMANDS = {
    Provider.AKS: "az aks update -g GROUP -n CLUSTER --cluster-autoscaler-profile expander=priority",
    Provider.EKS: "start the cluster autoscaler with --expander=priority",
    Provider.GKE: f"on GKE use {_COMPUTE_CLASS}",
    Provider.GENERIC: "start the cluster autoscaler with --expander=priority",
}


def preference_advice(pools: Iterable[Pool]) -> str:
    """What makes the cluster autoscaler prefer the spot pools among these pools."""
    on_gke = {pool.provider is Provider.GKE for pool in pools if pool.provider is not Provider.KARPENTER}
    if on_gke == {True}:
        return _COMPUTE_CLASS
    return f"{EXPANDER}, and on GKE {_COMPUTE_CLASS}" if True in on_gke else EXPANDER


def expander_lines(pools: Mapping[str, Pool]) -> Iterator[str]:
    """The command and the ConfigMap, ready to apply; nothing if the pools have only one kind of capacity."""
    autoscaled = [pool for pool in pools.values() if pool.provider is not Provider.KARPENTER]
    if {pool.is_spot for pool in autoscaled} != {True, False}:
        return
    for provider in dict.fromkeys(pool.provider for pool in autoscaled):
        yield f"# {_COMMANDS[provider]}"
    yield from expander_objects(pools)


def expander_objects(pools: Mapping[str, Pool]) -> Iterator[str]:
    """The ConfigMap alone, with every pool that this expander may grow; nothing if the pools have only one capacity."""
    capacities = {pool.is_spot for pool in pools.values() if pool.provider is not Provider.KARPENTER}
    expanded = [pool for pool in pools.values() if pool.provider not in (Provider.KARPENTER, Provider.GKE)]
    if capacities != {True, False} or not expanded:
        return
    yield from (
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}",
        "data:",
        "  priorities: |",
    )
    ordered = sorted(expanded, key=lambda pool: (pool.is_spot, -(pool.price or Fraction(0))))
    for priority, pool in reversed(list(enumerate(ordered, start=1))):
        yield f"    {priority * 10}:"
        yield f"      - {_pattern(pool)}"


def _pattern(pool: Pool) -> str:
    """A pattern for the pool's node groups.

    AKS names scale sets ``aks-POOL-NUMBER-vmss``, EKS autoscaling groups ``eks-GROUP-UUID``; elsewhere the name contains the
    pool's. The pattern for ``gpu`` must not match the group of ``gpu-spot``.
    """
    name = providers.pool_name(pool) or pool.name
    patterns = {Provider.AKS: f"^aks-{name}-.*", Provider.EKS: f"^eks-{name}-[0-9a-f]{{8}}-.*"}
    return patterns.get(pool.provider, f".*{name}.*")
