"""Facts about AKS, GKE, EKS and Karpenter: the labels, taints and notices of their nodes. No IO.

Only this package knows the names that providers use. A pool holds the labels and taints of the user's configuration; these
functions add those that the provider sets by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spotwright.clouds import aks, eks, generic, gke, karpenter
from spotwright.clouds.builtin import built_in_pools
from spotwright.clouds.naming import allowed_name
from spotwright.clouds.past_forms import PAST_SPOT_LABELS, UNMANAGED_SPOT_LABELS
from spotwright.clouds.provider import INSTANCE_TYPE, NVIDIA_GPU, ZONE, Facts, is_accelerator, is_gpu
from spotwright.clouds.zones import zone_label
from spotwright.model.pools import Pool, Provider
from spotwright.model.scheduling_terms import Taint

__all__ = [
    "CAPACITY_LABELS",
    "GPU_TAINT_KEYS",
    "ONLY_SPOT_LABELS",
    "POOL_LABELS",
    "SPOT_LABELS",
    "SPOT_TAINT_KEYS",
    "built_in_pools",
    "default_notice",
    "default_notice_of_pods",
    "gpus_of",
    "is_accelerator",
    "is_gpu",
    "is_gpu_taint",
    "is_spot_node",
    "is_spot_taint",
    "is_tolerated_by_cluster",
    "labels",
    "labels_by_zone",
    "notice_of_pods",
    "own_labels",
    "pool_label",
    "pool_name",
    "pool_of",
    "providers_of",
    "taints",
    "unknown_zones",
]

_FACTS: Mapping[Provider, Facts] = {
    Provider.AKS: aks.FACTS,
    Provider.GKE: gke.FACTS,
    Provider.EKS: eks.FACTS,
    Provider.KARPENTER: karpenter.FACTS,
    Provider.GENERIC: generic.FACTS,
}

_ON_DEMAND_LABELS = {pair for facts in _FACTS.values() for pair in facts.on_demand_labels.items()}


def _spot_labels() -> Mapping[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    for labels_of_spot in (*(facts.spot_labels for facts in _FACTS.values()), PAST_SPOT_LABELS):
        for key, value in labels_of_spot.items():
            values[key] = (*values.get(key, ()), value)
    return values


SPOT_LABELS: Mapping[str, tuple[str, ...]] = _spot_labels()
"""Labels that mean spot, of all providers and of the past: the values of each key, that of today first."""

CAPACITY_LABELS: tuple[str, ...] = tuple(
    next(iter(facts.spot_labels)) for facts in _FACTS.values() if facts.spot_labels
)
"""The key of each provider by which spot nodes are selected, the usual one where it has several."""

ONLY_SPOT_LABELS: frozenset[str] = frozenset(
    SPOT_LABELS.keys() - {key for key, _ in _ON_DEMAND_LABELS} - UNMANAGED_SPOT_LABELS.keys()
)
"""Keys of :data:`SPOT_LABELS` that no on-demand node has, with whatever value."""

SPOT_TAINT_KEYS: frozenset[str] = frozenset().union(*(facts.spot_taint_keys for facts in _FACTS.values()))
"""Keys of taints that mean spot, of all providers together: clusters are mixed, and people copy taints between them."""

POOL_LABELS: Mapping[str, Provider] = {
    **{_FACTS[one].pool_label: one for one in (Provider.KARPENTER, Provider.AKS, Provider.GKE, Provider.EKS)},
    "agentpool": Provider.GENERIC,  # aks-engine
    "karpenter.sh/provisioner-name": Provider.GENERIC,  # Karpenter before 0.32
    "alpha.eksctl.io/nodegroup-name": Provider.GENERIC,  # unmanaged groups of eksctl
}
"""Labels of nodes whose value is the name of their pool, with who sets them. Karpenter's is first: its nodes may have another."""

GPU_TAINT_KEYS: frozenset[str] = frozenset({NVIDIA_GPU, "amd.com/gpu"})
"""Keys of taints that repel work without GPUs: the resource names of device plugins. ``sku=gpu`` (AKS) means the same."""


def labels(pool: Pool) -> Mapping[str, str]:
    """Return the labels of a node of this pool: those of the provider, overridden by the pool's own.

    They include the zone only if the pool has exactly one, because nodes of several zones differ, and only if its label is known
    (:func:`unknown_zones`).
    """
    facts = _FACTS[pool.provider]
    set_by_provider = {
        **({INSTANCE_TYPE: pool.machine} if pool.machine else {}),
        **({ZONE: zone} if len(pool.zones) == 1 and (zone := zone_label(pool, pool.zones[0])) else {}),
        **({facts.pool_label: pool.name} if facts.pool_label else {}),
        **(facts.spot_labels if pool.is_spot else facts.on_demand_labels),
        **(facts.gpu_labels if _offers_gpu(pool) else {}),
    }
    return {**set_by_provider, **pool.labels}


def labels_by_zone(pool: Pool) -> tuple[Mapping[str, str], ...]:
    """Return the labels of the pool's nodes in each of its zones; those of :func:`labels` where it names no zone."""
    common = labels(pool)
    if len(pool.zones) < 2 or ZONE in pool.labels:
        return (common,)
    known = [zone_label(pool, zone) for zone in pool.zones]
    return tuple({**common, **({ZONE: zone} if zone else {})} for zone in known)


def unknown_zones(pool: Pool) -> tuple[str, ...]:
    """Return the zones of the pool whose label is not known: numbers of zones on Azure, where the pool has no region."""
    if ZONE in pool.labels:
        return ()
    return tuple(zone for zone in pool.zones if zone_label(pool, zone) is None)


def own_labels(pool: Pool) -> Mapping[str, str]:
    """Return the labels of the configuration that the provider does not set by itself: those that the pool is made with."""
    facts = _FACTS[pool.provider]
    by_provider = {
        INSTANCE_TYPE,
        ZONE,
        facts.pool_label,
        *facts.spot_labels,
        *facts.on_demand_labels,
        *facts.gpu_labels,
    }
    return {key: value for key, value in pool.labels.items() if key not in by_provider}


def pool_label(pool: Pool) -> str:
    """Return the label in which the provider writes the pool's name; empty for a generic pool."""
    return _FACTS[pool.provider].pool_label


def pool_name(pool: Pool) -> str | None:
    """Return the pool's name at its provider: the value of the provider's label, without characters that are not allowed there.

    None: the provider allows no such name.
    """
    return allowed_name(pool, pool.labels.get(pool_label(pool), pool.name))


def pool_of(node_labels: Mapping[str, str], pools: Mapping[str, Pool]) -> Pool | None:
    """Return the pool whose labels a node has; of several that fit, the one with the most labels."""
    fitting = [pool for pool in pools.values() if (wanted := labels(pool)) and wanted.items() <= node_labels.items()]
    return max(fitting, key=lambda pool: len(labels(pool)), default=None)


def taints(pool: Pool) -> tuple[Taint, ...]:
    """Return the taints of a node of this pool: its own, then those that the provider sets by itself, none twice.

    Kubernetes allows one taint of a key and effect: the user's taint takes the place of the provider's.
    """
    facts = _FACTS[pool.provider]
    by_provider = (*(facts.spot_taints if pool.is_spot else ()), *(facts.gpu_taints if _offers_gpu(pool) else ()))
    own = {(taint.key, taint.effect) for taint in pool.taints}
    added = (taint for taint in by_provider if (taint.key, taint.effect) not in own)
    return (*dict.fromkeys(pool.taints), *added)


def is_spot_taint(pool: Pool, taint: Taint) -> bool:
    """True if this taint of this pool only marks spot nodes, so that a spot policy tolerates it.

    Known keys mean spot everywhere. In a generic spot pool, which has no provider, every taint but a GPU taint means spot.
    """
    if taint.key in SPOT_TAINT_KEYS:
        return True
    return pool.provider is Provider.GENERIC and pool.is_spot and not is_gpu_taint(taint)


def is_spot_node(node_labels: Mapping[str, str], taint_keys: Collection[str]) -> bool | None:
    """True if a node has a label or taint of any provider's spot nodes, False for a label of on-demand nodes, else None.

    None is common: AKS labels no on-demand nodes, and a generic pool is known by the user's configuration alone.
    """
    is_labelled = any(node_labels.get(key) in values for key, values in SPOT_LABELS.items())
    if is_labelled or not SPOT_TAINT_KEYS.isdisjoint(taint_keys):
        return True
    return False if _ON_DEMAND_LABELS & node_labels.items() else None


def is_gpu_taint(taint: Taint) -> bool:
    """True if this taint repels work without GPUs."""
    return taint.key in GPU_TAINT_KEYS or (taint.key, taint.value) == ("sku", "gpu")


def is_tolerated_by_cluster(pool: Pool, taint: Taint, requests: Mapping[str, int]) -> bool:
    """True if the cluster itself adds a toleration of the taint to every pod with these requests."""
    return (
        _FACTS[pool.provider].tolerates_requests
        and taint.effect == "NoSchedule"
        and "/" in taint.key
        and bool(requests.get(taint.key))
    )


def default_notice(provider: Provider) -> float:
    """Seconds between the provider's notice and the end of a spot node. No provider guarantees it."""
    return _FACTS[provider].notice


def default_notice_of_pods(provider: Provider) -> float:
    """Seconds of :func:`default_notice` that pods get; the kubelet keeps the others for system pods."""
    return _FACTS[provider].notice * _FACTS[provider].pods_share


def notice_of_pods(pool: Pool) -> float:
    """Seconds of the pool's notice that pods get; a notice longer than its provider's was made longer for them."""
    facts = _FACTS[pool.provider]
    return pool.notice * (facts.pods_share if pool.notice <= facts.notice else 1.0)


def providers_of(keys: Collection[str]) -> tuple[Provider, ...]:
    """Return the providers whose spot nodes have a label or taint with one of these keys.

    A key without a domain (``spot``) is set by people, and so it tells nothing of the provider.
    """
    named = {key for key in keys if "/" in key}
    return tuple(
        provider
        for provider, facts in _FACTS.items()
        if not named.isdisjoint(facts.spot_labels.keys() | facts.spot_taint_keys)
    )


def gpus_of(pool: Pool) -> Mapping[str, int]:
    """Return the GPUs and parts of GPUs that a node of the pool offers, by resource."""
    return {name: amount for name, amount in (pool.node or {}).items() if amount and is_gpu(name)}


def _offers_gpu(pool: Pool) -> bool:
    return bool(pool.node and pool.node.get(NVIDIA_GPU))
