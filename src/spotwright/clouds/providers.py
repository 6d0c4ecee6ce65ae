"""The labels, taints and notices that providers give the nodes of a pool, by their records. Pure, no IO.

A pool holds the labels and taints of the user's configuration; these functions add the provider's
(:mod:`spotwright.clouds.provider_records`). Derived from all records are the labels and taints that mean spot anywhere,
deprecated labels with their replacement, and the built-in pools.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

from spotwright.clouds.node_signs import ARCH, CAPACITY_SIGNS, OS, POOL_SIGNS, capacity_by_words
from spotwright.clouds.provider import AZURE, CLUSTER_AUTOSCALER, NVIDIA_GPU, NamingRule, PastForm, Provider
from spotwright.clouds.provider_records import PREEMPTIBLE, PROVIDERS
from spotwright.model.pools import GENERIC, Capacity, Pool, PriceSource, Simulate
from spotwright.model.scheduling_terms import Taint

__all__ = [
    "CAPACITY_LABELS",
    "CUT_OFF",
    "GPU_TAINT_KEYS",
    "INSTANCE_TYPE",
    "NODE_POOL_LABEL",
    "ONLY_SPOT_LABELS",
    "PAST_FORMS",
    "POOL_LABELS",
    "SPOT_LABELS",
    "SPOT_TAINT_KEYS",
    "UNMANAGED_SPOT_LABELS",
    "ZONE",
    "allowed_name",
    "azure_zone",
    "below_cut_off",
    "built_in_pools",
    "commands_to_free",
    "gpus_of",
    "is_accelerator",
    "is_azure",
    "is_gpu",
    "is_gpu_taint",
    "is_spot_label",
    "is_spot_node",
    "is_spot_taint",
    "is_tolerated_by_cluster",
    "labels",
    "labels_by_zone",
    "naming_rule",
    "node_pool_of",
    "notice_of_pods",
    "of",
    "own_labels",
    "past_forms",
    "pool_label",
    "pool_name",
    "pool_of",
    "providers_of",
    "setting",
    "taints",
    "unknown_zones",
    "zone_label",
]


INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

ZONE = "topology.kubernetes.io/zone"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""


def is_gpu(resource: str) -> bool:
    """Whether a resource is GPUs, or parts of them, of a device plugin.

    Sources: NVIDIA/k8s-device-plugin, README (``nvidia.com/gpu``, ``gpu.shared`` and ``mig-1g.5gb``); ROCm/k8s-device-plugin
    (``amd.com/gpu``); intel/intel-device-plugins-for-kubernetes (``gpu.intel.com/i915``).
    """
    domain, _, name = resource.rpartition("/")
    return "gpu" in name or name.startswith("mig-") or domain.startswith("gpu.")


def is_accelerator(resource: str) -> bool:
    """Whether a resource is GPUs, TPUs or other accelerators: work without a request for them is kept off their nodes.

    Sources: Google Cloud, "About TPUs in GKE" (``google.com/tpu``) and Cloud TPU before GKE 1.27 (``cloud-tpus.google.com/v2``);
    AWS Neuron documentation, "Neuron device plugin" (``aws.amazon.com/neuron``, ``neuroncore``, ``neurondevice``);
    HabanaAI/habana-k8s-device-plugin (``habana.ai/gaudi``); Ascend/ascend-device-plugin (``huawei.com/Ascend910``);
    quic/cloud-ai-containers (``qualcomm.com/qaic``).
    """
    domain, _, name = resource.rpartition("/")
    if is_gpu(resource) or domain in _ACCELERATOR_DOMAINS or (domain and name == "tpu"):
        return True
    return domain == "aws.amazon.com" and name.startswith("neuron")


_ACCELERATOR_DOMAINS = frozenset({"cloud-tpus.google.com", "habana.ai", "huawei.com", "qualcomm.com"})


def of(pool: Pool) -> Provider:
    """The record of the pool's provider."""
    return PROVIDERS[pool.provider]


def allowed_name(pool: Pool, name: str) -> str | None:
    """The name without characters that the pool's provider drops; None if the rest is not a valid name there."""
    rule = _rule(pool)
    if rule is None:
        return name
    left = name.translate(dict.fromkeys(map(ord, rule.dropped)))
    return left if re.fullmatch(rule.pattern, left) else None


def naming_rule(pool: Pool) -> str:
    """The provider's rule for the pool's name, in words; empty if any name of the configuration is allowed."""
    rule = _rule(pool)
    return "" if rule is None else rule.words


def _rule(pool: Pool) -> NamingRule | None:
    provider = of(pool)
    return provider.naming_on_windows or provider.naming if pool.os == "windows" else provider.naming


_LABEL = r"(?P<region>[a-z][a-z0-9]*)-(?P<number>[0-9])"


def is_azure(pool: Pool) -> bool:
    """Whether the nodes are Azure machines, made by AKS or Karpenter."""
    return of(pool).clouds_of(pool) == (AZURE,)


def zone_label(pool: Pool, zone: str) -> str | None:
    """Return the zone label of the pool's nodes in one of its zones; None: a number without the pool's region."""
    if not zone.isdigit() or not is_azure(pool):
        return zone
    return f"{pool.region.lower()}-{zone}" if pool.region else None


def azure_zone(label: str) -> tuple[str, str] | None:
    """Return the region and the number of an Azure zone label; None if it names no zone."""
    match = re.fullmatch(_LABEL, label)
    return (match["region"], match["number"]) if match else None


def commands_to_free(node: str) -> tuple[str, str]:
    """The commands that taint the Node object as out of service, and that delete it."""
    return (
        f"kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        f"kubectl delete node {node}",
    )


UNMANAGED_SPOT_LABELS: Mapping[str, str] = {
    "lifecycle": "Ec2Spot",
    "node-lifecycle": "spot",
    "kubernetes.io/lifecycle": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}
"""Labels that guides set on spot nodes of unmanaged groups. On-demand nodes have them too, with another value."""

_UNMANAGED = "a label of unmanaged groups; managed node groups have eks.amazonaws.com/capacityType=SPOT by themselves"

PAST_FORMS: tuple[PastForm, ...] = (
    *(form for provider in PROVIDERS.values() for form in provider.past),
    PastForm(
        "beta.kubernetes.io/instance-type",
        None,
        "the label is node.kubernetes.io/instance-type today",
        instead=("node.kubernetes.io/instance-type",),
    ),
    PastForm(
        "failure-domain.beta.kubernetes.io/zone",
        None,
        "the label is topology.kubernetes.io/zone today",
        instead=("topology.kubernetes.io/zone",),
    ),
    *(PastForm(key, value, _UNMANAGED) for key, value in sorted(UNMANAGED_SPOT_LABELS.items())),
)
"""The deprecated labels, in the order of messages."""


def past_forms(labels: Mapping[str, str]) -> Iterator[PastForm]:
    """The deprecated labels among the labels of a node."""
    for form in PAST_FORMS:
        if form.key in labels and form.value in (None, labels[form.key]) and not labels.keys() & set(form.instead):
            yield form


_OTHER_DEVICES = ("amd.com/gpu", "google.com/tpu", "cloud-tpus.google.com/v2", "cloud-tpus.google.com/v3")
_PRICES = {Capacity.ON_DEMAND: Fraction(1), Capacity.SPOT: Fraction(3, 10)}  # per node hour, in the run's currency


def built_in_pools() -> Mapping[str, Pool]:
    """Return the two pools by name, ``spot`` first.

    A node has 8 cpu, 32Gi, 4 GPUs and 8 of each other device. Each pool has at most 10 nodes and an example price.
    """
    spot = {key: value for provider in PROVIDERS.values() for key, value in provider.spot_labels.items()}
    on_demand = {key: value for provider in PROVIDERS.values() for key, value in provider.on_demand_labels.items()}
    pools = (
        _pool("spot", Capacity.SPOT, {**spot, PREEMPTIBLE: "true"}),
        _pool("on-demand", Capacity.ON_DEMAND, on_demand),
    )
    return {pool.name: pool for pool in pools}


def _pool(name: str, capacity: Capacity, labels: Mapping[str, str]) -> Pool:
    return Pool(
        name=name,
        capacity=capacity,
        node={"cpu": 8_000, "memory": 32 * 2**30, NVIDIA_GPU: 4, **dict.fromkeys(_OTHER_DEVICES, 8)},
        max_nodes=10,
        labels=labels,
        price=_PRICES[capacity],
        price_source=PriceSource.EXAMPLE,
        notice=2.0,
        simulate=Simulate(boot=0.5),
    )


_SIGNS = tuple(
    pair for signs in (CAPACITY_SIGNS, *(one.capacity_signs for one in PROVIDERS.values())) for pair in signs.items()
)
_ON_DEMAND_LABELS = {
    *(pair for provider in PROVIDERS.values() for pair in provider.on_demand_labels.items()),
    *((key, value) for key, sign in _SIGNS for value in sign.on_demand),
}


def _spot_labels() -> Mapping[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    forms = (form.labels for provider in PROVIDERS.values() for form in provider.spot)
    for labels_of_spot in (*forms, UNMANAGED_SPOT_LABELS):
        for key, value in labels_of_spot.items():
            values[key] = tuple(dict.fromkeys((*values.get(key, ()), value)))
    for key, sign in _SIGNS:
        if sign.spot:
            values[key] = tuple(dict.fromkeys((*values.get(key, ()), *sign.spot)))
    return values


SPOT_LABELS: Mapping[str, tuple[str, ...]] = _spot_labels()
"""Labels of all providers and provisioners that mean spot, deprecated ones too: values by key, the current one first."""

CAPACITY_LABELS: tuple[str, ...] = tuple(
    next(iter(provider.spot_labels)) for provider in PROVIDERS.values() if provider.spot_labels
)
"""Each provider's usual key for selecting spot nodes."""

_SET_BY_PEOPLE = frozenset({"spot", "node-role.kubernetes.io/spot-worker", *UNMANAGED_SPOT_LABELS})

ONLY_SPOT_LABELS: frozenset[str] = frozenset(
    SPOT_LABELS.keys() - {key for key, _ in _ON_DEMAND_LABELS} - UNMANAGED_SPOT_LABELS.keys()
)
"""Keys of :data:`SPOT_LABELS` that on-demand nodes never have, with any value."""

SPOT_TAINT_KEYS: frozenset[str] = frozenset().union(
    *(provider.spot_taint_keys for provider in PROVIDERS.values()), dict(_SIGNS).keys() & ONLY_SPOT_LABELS
)
"""Keys of all providers' taints that mean spot: clusters are mixed, and people copy taints between them."""

NODE_POOL_LABEL = next(one.pool_label for one in PROVIDERS.values() if not one.has_groups)
"""The label with the NodePool's name on Karpenter's nodes."""

POOL_LABELS: Mapping[str, Provider] = {
    **{one.pool_label: one for one in PROVIDERS.values() if not one.has_groups},
    **dict.fromkeys(POOL_SIGNS, PROVIDERS[GENERIC]),
    **{one.pool_label: one for one in PROVIDERS.values() if one.makes_nodes_alike},
    **{label: PROVIDERS[GENERIC] for one in PROVIDERS.values() for label in one.other_pool_labels},
}
"""Labels with the pool's name, with their setters. Provisioners precede clouds, whose labels their nodes may have too."""

GPU_TAINT_KEYS: frozenset[str] = frozenset({NVIDIA_GPU, "amd.com/gpu"})
"""Keys of taints that repel work without GPUs: resource names of device plugins. ``sku=gpu`` (AKS) means the same."""


@lru_cache(maxsize=1024)
def labels(pool: Pool) -> Mapping[str, str]:
    """Return the labels of a node of this pool: the provider's, overridden by the pool's own.

    They include the zone only if the pool has exactly one, because nodes of several zones differ, and only if its label is known
    (:func:`unknown_zones`).
    """
    facts = of(pool)
    set_by_provider = {
        **({INSTANCE_TYPE: pool.machine} if pool.machine else {}),
        **({ZONE: zone} if len(pool.zones) == 1 and (zone := zone_label(pool, pool.zones[0])) else {}),
        **({facts.pool_label: pool.name} if pool_label(pool) else {}),
        **(facts.form_of(pool).labels if pool.is_spot else facts.on_demand_labels),
        **(facts.gpu_labels if _offers_gpu(pool) else {}),
    }
    return MappingProxyType({**set_by_provider, **pool.labels})


@lru_cache(maxsize=1024)
def labels_by_zone(pool: Pool) -> tuple[Mapping[str, str], ...]:
    """Return the labels of the pool's nodes in each of its zones; as :func:`labels` if it names no zone."""
    common = labels(pool)
    if len(pool.zones) < 2 or ZONE in pool.labels:
        return (common,)
    known = [zone_label(pool, zone) for zone in pool.zones]
    return tuple({**common, **({ZONE: zone} if zone else {})} for zone in known)


def unknown_zones(pool: Pool) -> tuple[str, ...]:
    """Return the pool's zones whose label is unknown: Azure's zone numbers without a region."""
    if ZONE in pool.labels:
        return ()
    return tuple(zone for zone in pool.zones if zone_label(pool, zone) is None)


def own_labels(pool: Pool) -> Mapping[str, str]:
    """Return the configured labels that the provider does not set: the labels to make the pool with."""
    facts = of(pool)
    by_provider = {
        INSTANCE_TYPE,
        ZONE,
        ARCH,
        OS,
        facts.pool_label,
        *(key for form in facts.spot for key in form.labels),
        *facts.on_demand_labels,
        *facts.gpu_labels,
    }
    return {key: value for key, value in pool.labels.items() if key not in by_provider}


def setting(provider: str) -> Mapping[str, str]:
    """A pool's ``provider`` setting in ``spotwright.yaml``: empty for the generic one, the default."""
    return {} if provider == GENERIC else {"provider": provider}


def pool_label(pool: Pool) -> str:
    """Return the provider's label with the pool's name; empty for a generic and for an automatic pool."""
    return "" if pool.automatic else of(pool).pool_label


def pool_name(pool: Pool) -> str | None:
    """Return the pool's name at its provider, the value of the provider's label, without disallowed characters.

    None: the provider does not allow the name.
    """
    return allowed_name(pool, pool.labels.get(pool_label(pool), pool.name))


def node_pool_of(pool: Pool) -> str:
    """The name of a pool's Karpenter NodePool; empty for other pools."""
    if of(pool).has_groups and NODE_POOL_LABEL not in pool.labels:
        return ""
    return pool.labels.get(NODE_POOL_LABEL) or pool_name(pool) or pool.name


def pool_of(node_labels: Mapping[str, str], pools: Mapping[str, Pool]) -> Pool | None:
    """Return the pool whose labels a node has; of several matches, the one with the most labels."""
    fitting = [pool for pool in pools.values() if (wanted := labels(pool)) and wanted.items() <= node_labels.items()]
    return max(fitting, key=lambda pool: len(labels(pool)), default=None)


@lru_cache(maxsize=1024)
def taints(pool: Pool) -> tuple[Taint, ...]:
    """Return the taints of a node of this pool: the pool's own, then the provider's.

    Kubernetes allows one taint per key and effect: the user's taint replaces the provider's.
    """
    facts = of(pool)
    of_spot = facts.automatic_spot_taints if pool.automatic else facts.form_of(pool).taints
    by_provider = (*(of_spot if pool.is_spot else ()), *(facts.gpu_taints if _offers_gpu(pool) else ()))
    own = {(taint.key, taint.effect) for taint in pool.taints}
    added = (taint for taint in by_provider if (taint.key, taint.effect) not in own)
    return (*dict.fromkeys(pool.taints), *added)


def is_spot_taint(pool: Pool, taint: Taint) -> bool:
    """Whether this taint of this pool only marks spot nodes, so that a spot policy tolerates it.

    Known keys and the words of :func:`~spotwright.clouds.node_signs.capacity_by_words` mean spot everywhere. In a generic spot
    pool, which has no provider, every taint but a GPU taint means spot.
    """
    if taint.key in SPOT_TAINT_KEYS or capacity_by_words(taint.key, taint.value):
        return True
    return pool.provider == GENERIC and pool.is_spot and not is_gpu_taint(taint)


def is_spot_node(node_labels: Mapping[str, str], taint_keys: Collection[str]) -> bool | None:
    """True if a node has a label or taint of any provider's spot nodes, False for a label of on-demand nodes, else None.

    Labels of clouds and provisioners take precedence over users' labels, and spot labels over on-demand labels. None is common:
    AKS does not label on-demand nodes, and a generic pool is known only from the configuration.
    """
    if any(is_spot_label(key, value) for key, value in node_labels.items() if key not in _SET_BY_PEOPLE):
        return True
    if _ON_DEMAND_LABELS & node_labels.items():
        return False
    if not SPOT_TAINT_KEYS.isdisjoint(taint_keys) or any(capacity_by_words(key, "") for key in taint_keys):
        return True
    said = {capacity_by_words(key, value) for key, value in node_labels.items()}
    return True if True in said else False if False in said else None


def is_spot_label(key: str, value: str) -> bool:
    """Whether a cloud, a provisioner or a guide of theirs sets this label on spot nodes."""
    return value in SPOT_LABELS.get(key, ())


_DEVICES = frozenset({"accelerator", "gpu", "gpus", "tpu"})


def is_gpu_taint(taint: Taint) -> bool:
    """Whether this taint repels work without GPUs or TPUs: it names a device or a word for one (``gpu=true``)."""
    word = taint.key.rpartition("/")[2]
    return taint.key in GPU_TAINT_KEYS or is_accelerator(taint.key) or word in _DEVICES or taint.value in _DEVICES


def is_tolerated_by_cluster(pool: Pool, taint: Taint, requests: Mapping[str, int]) -> bool:
    """Whether the cluster adds a toleration of the taint to every pod with these requests."""
    return (
        of(pool).tolerates_requests
        and taint.effect == "NoSchedule"
        and "/" in taint.key
        and bool(requests.get(taint.key))
    )


def notice_of_pods(pool: Pool) -> float:
    """The seconds of the pool's notice that pods get: all of them, if it is configured longer than its provider's."""
    facts = of(pool)
    return pool.notice * (facts.pods_share if pool.notice <= facts.notice else 1.0)


def providers_of(keys: Collection[str]) -> tuple[Provider, ...]:
    """Return the providers whose spot nodes have a label or taint with one of these keys.

    A key without a domain (``spot``) is a user's, and does not show the provider.
    """
    named = {key for key in keys if "/" in key}
    return tuple(
        provider
        for provider in PROVIDERS.values()
        if not named.isdisjoint({key for form in provider.spot for key in form.labels} | provider.spot_taint_keys)
    )


def gpus_of(pool: Pool) -> Mapping[str, int]:
    """Return the GPUs and parts of GPUs that a node of the pool offers, by resource."""
    return {name: amount for name, amount in (pool.node or {}).items() if amount and is_gpu(name)}


def _offers_gpu(pool: Pool) -> bool:
    return bool(pool.node and pool.node.get(NVIDIA_GPU))


CUT_OFF = -10
"""The lowest pod priority for which the cluster autoscaler adds nodes: the default of expendable-pods-priority-cutoff."""


def below_cut_off(priority: int, maker: str, pools: Iterable[Pool], target: Mapping[str, str]) -> str:
    """The autoscaler's treatment of pods with a priority below its cut-off, on the pools that it grows; else empty.

    ``maker`` names the source of the priority, ``target`` is the configuration's. Karpenter has no such limit. Source:
    kubernetes/autoscaler, FAQ, "How does Cluster Autoscaler work with Pod Priority and Preemption?"; Microsoft Learn, "Use the
    cluster autoscaler in AKS" (the same default).
    """
    grown = [pool.name for pool in pools if of(pool).has_groups and pool.min_nodes < pool.max_nodes]
    if priority >= CUT_OFF or not grown or target.get("autoscaler", CLUSTER_AUTOSCALER) != CLUSTER_AUTOSCALER:
        return ""
    return (
        f"{maker} has the value {priority}: below {CUT_OFF} the cluster autoscaler makes no node for pods, and removes nodes "
        f"under them, also those with safe-to-evict: false ({', '.join(grown[:3])}{' and others' if len(grown) > 3 else ''})"
    )
