"""Refuse to place for a cluster with the built-in pools, and offer a ``pools`` section to start from.

The built-in pools stand for nodes of one machine. They have the labels of every provider, so manifests placed on them would
select nodes that no cluster has.
"""

from __future__ import annotations

from collections.abc import Iterable

from spotwright.config import FILE_NAME, Config
from spotwright.errors import ConfigError
from spotwright.model.pools import Provider

__all__ = ["require_pools"]


_MARKS = {
    Provider.KARPENTER: ("karpenter.sh/", "karpenter.k8s.aws/", "karpenter.azure.com/"),
    Provider.AKS: ("kubernetes.azure.com/", "azure.workload.identity/", ".csi.azure.com"),
    Provider.GKE: ("cloud.google.com/", ".csi.storage.gke.io", "gs://"),
    Provider.EKS: ("eks.amazonaws.com/", ".csi.aws.com", "alpha.eksctl.io/", "s3://"),
}
"""Texts in manifests that point to a provider: prefixes of labels and annotations, storage drivers, addresses of buckets."""

_POOLS = {
    Provider.AKS: (
        "  spotpool: {capacity: spot, provider: aks}           # az aks nodepool list: scaleSetPriority Spot",
        "  agentpool: {capacity: on-demand, provider: aks}",
    ),
    Provider.GKE: (
        "  spot-pool: {capacity: spot, provider: gke}          # made with --spot; name its taints too, if it has any",
        "  default-pool: {capacity: on-demand, provider: gke}",
    ),
    Provider.EKS: (
        "  spot: {capacity: spot, provider: eks}               # a managed node group with capacityType SPOT",
        "  main: {capacity: on-demand, provider: eks}",
    ),
    Provider.KARPENTER: (
        "  general-spot: {capacity: spot, provider: karpenter}",
        "  general: {capacity: on-demand, provider: karpenter}",
    ),
    Provider.GENERIC: (
        "  # provider: aks, gke, eks or karpenter knows the labels of its nodes; for generic, write those that your nodes have",
        "  spot: {capacity: spot, provider: generic, labels: {capacity: spot}}",
        "  on-demand: {capacity: on-demand, provider: generic, labels: {capacity: on-demand}}",
    ),
}


def require_pools(config: Config, texts: Iterable[str] = ()) -> None:
    """Raise :class:`ConfigError` if the configuration has only built-in pools.

    The message ends with the lines of a ``spotwright.yaml`` for the provider that the manifests in ``texts`` point to.
    """
    if not config.note:
        return
    problem = f"no {FILE_NAME}" if config.is_built_in else f"{config.path} names no pools"
    lines = _POOLS[_provider_of(texts)]
    head = ["version: 1"] if config.is_built_in else []
    policy = ["policy: {default: {spot: prefer}}"] if config.is_built_in else []
    start = "\n".join([*head, "pools:", *lines, *policy])
    where = f"start {FILE_NAME} with" if config.is_built_in else "add for instance"
    raise ConfigError(
        f"{problem}: placing needs the node pools of your cluster (the built-in pools are for local runs); {where}\n\n{start}\n"
    )


def _provider_of(texts: Iterable[str]) -> Provider:
    """The first provider that a text points to; generic if none does."""
    for text in texts:
        for provider, marks in _MARKS.items():
            if any(mark in text for mark in marks):
                return provider
    return Provider.GENERIC
