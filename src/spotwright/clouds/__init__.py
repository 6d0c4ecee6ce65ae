"""What AKS, GKE, EKS and Karpenter say about spot nodes: labels, taints and notices. Facts only, no IO.

The layers above ask here and nowhere else, so that no other module knows a provider's names. A pool of the configuration
carries what the user said; these functions add what the provider sets by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.clouds import aks, eks, generic, gke, karpenter
from spotwright.clouds.builtin import built_in_pools
from spotwright.clouds.provider import INSTANCE_TYPE, NVIDIA_GPU, ZONE, Facts
from spotwright.model.placing import Taint
from spotwright.model.pools import Pool, Provider

__all__ = [
    "GPU_TAINT_KEYS",
    "SPOT_TAINT_KEYS",
    "built_in_pools",
    "default_notice",
    "is_gpu_taint",
    "is_spot_taint",
    "is_tolerated_by_itself",
    "labels",
    "taints",
]

_FACTS: Mapping[Provider, Facts] = {
    Provider.AKS: aks.FACTS,
    Provider.GKE: gke.FACTS,
    Provider.EKS: eks.FACTS,
    Provider.KARPENTER: karpenter.FACTS,
    Provider.GENERIC: generic.FACTS,
}

SPOT_TAINT_KEYS: frozenset[str] = frozenset().union(*(facts.spot_taint_keys for facts in _FACTS.values()))
"""Keys of taints that are known to mean spot, of every provider: clusters are mixed, and habits travel."""

GPU_TAINT_KEYS: frozenset[str] = frozenset({NVIDIA_GPU, "amd.com/gpu"})
"""Keys of taints that keep work without GPUs away: the device plugins' resource names. ``sku=gpu`` (AKS) means the same."""


def labels(pool: Pool) -> Mapping[str, str]:
    """The labels of a node of this pool: the provider's, overlaid by the pool's own.

    The zone is among them where the pool has exactly one; nodes of a pool with several differ.
    """
    facts = _FACTS[pool.provider]
    set_by_provider = {
        **({INSTANCE_TYPE: pool.machine} if pool.machine else {}),
        **({ZONE: pool.zones[0]} if len(pool.zones) == 1 else {}),
        **({facts.pool_label: pool.name} if facts.pool_label else {}),
        **(facts.spot_labels if pool.is_spot else facts.on_demand_labels),
        **(facts.gpu_labels if _offers_gpu(pool) else {}),
    }
    return {**set_by_provider, **pool.labels}


def taints(pool: Pool) -> tuple[Taint, ...]:
    """The taints of a node of this pool: its own, then those the provider sets by itself, none twice.

    Kubernetes allows one taint of a key and effect; where the user said one with another value, theirs stays.
    """
    facts = _FACTS[pool.provider]
    by_itself = (*(facts.spot_taints if pool.is_spot else ()), *(facts.gpu_taints if _offers_gpu(pool) else ()))
    said = {(taint.key, taint.effect) for taint in pool.taints}
    added = (taint for taint in by_itself if (taint.key, taint.effect) not in said)
    return (*dict.fromkeys(pool.taints), *added)


def is_spot_taint(pool: Pool, taint: Taint) -> bool:
    """Whether this taint of this pool only says that its nodes are spot, so that a spot policy answers it.

    Known keys count everywhere. A generic spot pool has no provider to ask: there any taint counts that is not a GPU's.
    """
    if taint.key in SPOT_TAINT_KEYS:
        return True
    return pool.provider is Provider.GENERIC and pool.is_spot and not is_gpu_taint(taint)


def is_gpu_taint(taint: Taint) -> bool:
    """Whether this taint keeps work without GPUs away."""
    return taint.key in GPU_TAINT_KEYS or (taint.key, taint.value) == ("sku", "gpu")


def is_tolerated_by_itself(pool: Pool, taint: Taint, requests: Mapping[str, int]) -> bool:
    """Whether the cluster lets every pod with these requests tolerate the taint, without a word of it in the pod."""
    return (
        _FACTS[pool.provider].tolerates_requests
        and taint.effect == "NoSchedule"
        and "/" in taint.key
        and bool(requests.get(taint.key))
    )


def default_notice(provider: Provider) -> float:
    """How long before it takes a spot node the provider says so, seconds; a best effort with all of them."""
    return _FACTS[provider].notice


def _offers_gpu(pool: Pool) -> bool:
    return bool(pool.node and pool.node.get(NVIDIA_GPU))
