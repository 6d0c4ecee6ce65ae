"""What providers put on the nodes of a pool: labels, taints and notices, by their records. Pure, no IO.

A pool holds the labels and taints of the user's configuration; these functions add those that the provider sets by itself
(:mod:`spotwright.clouds.provider_records`). Beside them stands what follows from all records together: the labels and taints that
mean spot anywhere, deprecated labels with their replacement, and the pools without a ``spotwright.yaml``.
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
    """True for the resources under which device plugins offer GPUs and parts of them.

    Sources: NVIDIA/k8s-device-plugin, README (``nvidia.com/gpu``, ``gpu.shared`` and ``mig-1g.5gb``); ROCm/k8s-device-plugin
    (``amd.com/gpu``); intel/intel-device-plugins-for-kubernetes (``gpu.intel.com/i915``).
    """
    domain, _, name = resource.rpartition("/")
    return "gpu" in name or name.startswith("mig-") or domain.startswith("gpu.")


def is_accelerator(resource: str) -> bool:
    """True for GPUs, TPUs and other accelerators: work that asks for none is kept off nodes that have them.

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
    """The name without the characters that the pool's provider does not allow; None if the rest is not a valid name there."""
    rule = _rule(pool)
    if rule is None:
        return name
    left = name.translate(dict.fromkeys(map(ord, rule.dropped)))
    return left if re.fullmatch(rule.pattern, left) else None


def naming_rule(pool: Pool) -> str:
    """What a name of a pool may be at the pool's provider, in words; empty where every name of the configuration may be used."""
    rule = _rule(pool)
    return "" if rule is None else rule.words


def _rule(pool: Pool) -> NamingRule | None:
    provider = of(pool)
    return provider.naming_on_windows or provider.naming if pool.os == "windows" else provider.naming


_LABEL = r"(?P<region>[a-z][a-z0-9]*)-(?P<number>[0-9])"


def is_azure(pool: Pool) -> bool:
    """Whether the nodes are machines of Azure: AKS', and those that Karpenter makes there."""
    return of(pool).clouds_of(pool) == (AZURE,)


def zone_label(pool: Pool, zone: str) -> str | None:
    """Return the zone label of the pool's nodes in one of its zones; None: a number without the pool's region."""
    if not zone.isdigit() or not is_azure(pool):
        return zone
    return f"{pool.region.lower()}-{zone}" if pool.region else None


def azure_zone(label: str) -> tuple[str, str] | None:
    """Return the region and the number of a zone label of Azure; None if it names no zone."""
    match = re.fullmatch(_LABEL, label)
    return (match["region"], match["number"]) if match else None


def commands_to_free(node: str) -> tuple[str, str]:
    """The command after which the Node object stays, marked as out of service, and the one that deletes it."""
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
"""Labels that guides put on spot nodes of unmanaged groups. On-demand nodes have them too, with another value."""

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
"""The forms, in the order in which they are named."""


def past_forms(labels: Mapping[str, str]) -> Iterator[PastForm]:
    """The forms of the past among the labels of a node."""
    for form in PAST_FORMS:
        if form.key in labels and form.value in (None, labels[form.key]) and not labels.keys() & set(form.instead):
            yield form


_OTHER_DEVICES = ("amd.com/gpu", "google.com/tpu", "cloud-tpus.google.com/v2", "cloud-tpus.google.com/v3")
_PRICES = {Capacity.ON_DEMAND: Fraction(1), Capacity.SPOT: Fraction(3, 10)}  # of a node hour, in the run's currency


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
"""Labels that mean spot, of all providers and provisioners, also former ones: the values of each key, the current one first."""

CAPACITY_LABELS: tuple[str, ...] = tuple(
    next(iter(provider.spot_labels)) for provider in PROVIDERS.values() if provider.spot_labels
)
"""The key of each provider by which spot nodes are selected, the usual one where it has several."""

_SET_BY_PEOPLE = frozenset({"spot", "node-role.kubernetes.io/spot-worker", *UNMANAGED_SPOT_LABELS})

ONLY_SPOT_LABELS: frozenset[str] = frozenset(
    SPOT_LABELS.keys() - {key for key, _ in _ON_DEMAND_LABELS} - UNMANAGED_SPOT_LABELS.keys()
)
"""Keys of :data:`SPOT_LABELS` that no on-demand node has, with whatever value."""

SPOT_TAINT_KEYS: frozenset[str] = frozenset().union(
    *(provider.spot_taint_keys for provider in PROVIDERS.values()), dict(_SIGNS).keys() & ONLY_SPOT_LABELS
)
"""Keys of taints that mean spot, of all providers together: clusters are mixed, and people copy taints between them."""

NODE_POOL_LABEL = next(one.pool_label for one in PROVIDERS.values() if not one.has_groups)
"""The label with the name of the NodePool, on nodes that Karpenter makes."""

POOL_LABELS: Mapping[str, Provider] = {
    **{one.pool_label: one for one in PROVIDERS.values() if not one.has_groups},
    **dict.fromkeys(POOL_SIGNS, PROVIDERS[GENERIC]),
    **{one.pool_label: one for one in PROVIDERS.values() if one.makes_nodes_alike},
    **{label: PROVIDERS[GENERIC] for one in PROVIDERS.values() for label in one.other_pool_labels},
}
"""Labels of nodes whose value is the name of their pool, with who sets them. Provisioners stand before clouds, whose labels their
nodes may have as well."""

GPU_TAINT_KEYS: frozenset[str] = frozenset({NVIDIA_GPU, "amd.com/gpu"})
"""Keys of taints that repel work without GPUs: the resource names of device plugins. ``sku=gpu`` (AKS) means the same."""


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
    """Return the zones of the pool whose label is not known: numbers of zones on Azure, where the pool has no region."""
    if ZONE in pool.labels:
        return ()
    return tuple(zone for zone in pool.zones if zone_label(pool, zone) is None)


def own_labels(pool: Pool) -> Mapping[str, str]:
    """Return the labels of the configuration that the provider does not set by itself: those that the pool is made with."""
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
    """What a pool says of its provider in ``spotwright.yaml``: empty for the generic one, which is the default."""
    return {} if provider == GENERIC else {"provider": provider}


def pool_label(pool: Pool) -> str:
    """Return the label in which the provider writes the pool's name; empty for a generic pool, and for an automatic one."""
    return "" if pool.automatic else of(pool).pool_label


def pool_name(pool: Pool) -> str | None:
    """Return the pool's name at its provider: the value of the provider's label, without characters that are not allowed there.

    None: the provider allows no such name.
    """
    return allowed_name(pool, pool.labels.get(pool_label(pool), pool.name))


def node_pool_of(pool: Pool) -> str:
    """The name of the NodePool of Karpenter whose nodes a pool has; empty for a pool of another kind."""
    if of(pool).has_groups and NODE_POOL_LABEL not in pool.labels:
        return ""
    return pool.labels.get(NODE_POOL_LABEL) or pool_name(pool) or pool.name


def pool_of(node_labels: Mapping[str, str], pools: Mapping[str, Pool]) -> Pool | None:
    """Return the pool whose labels a node has; of several that fit, the one with the most labels."""
    fitting = [pool for pool in pools.values() if (wanted := labels(pool)) and wanted.items() <= node_labels.items()]
    return max(fitting, key=lambda pool: len(labels(pool)), default=None)


@lru_cache(maxsize=1024)
def taints(pool: Pool) -> tuple[Taint, ...]:
    """Return the taints of a node of this pool: its own, then those that the provider sets by itself, none twice.

    Kubernetes allows one taint of a key and effect: the user's taint takes the place of the provider's.
    """
    facts = of(pool)
    of_spot = facts.automatic_spot_taints if pool.automatic else facts.form_of(pool).taints
    by_provider = (*(of_spot if pool.is_spot else ()), *(facts.gpu_taints if _offers_gpu(pool) else ()))
    own = {(taint.key, taint.effect) for taint in pool.taints}
    added = (taint for taint in by_provider if (taint.key, taint.effect) not in own)
    return (*dict.fromkeys(pool.taints), *added)


def is_spot_taint(pool: Pool, taint: Taint) -> bool:
    """True if this taint of this pool only marks spot nodes, so that a spot policy tolerates it.

    Known keys and the words of :func:`~spotwright.clouds.node_signs.capacity_by_words` mean spot everywhere. In a generic spot
    pool, which has no provider, every taint but a GPU taint means spot.
    """
    if taint.key in SPOT_TAINT_KEYS or capacity_by_words(taint.key, taint.value):
        return True
    return pool.provider == GENERIC and pool.is_spot and not is_gpu_taint(taint)


def is_spot_node(node_labels: Mapping[str, str], taint_keys: Collection[str]) -> bool | None:
    """True if a node has a label or taint of any provider's spot nodes, False for a label of on-demand nodes, else None.

    What a cloud or a provisioner says counts before what people say, and a label of spot before one of on-demand. None is common:
    AKS labels no on-demand nodes, and a generic pool is known by the user's configuration alone.
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
    """True if a cloud, a provisioner or a guide of theirs sets this label on spot nodes."""
    return value in SPOT_LABELS.get(key, ())


_DEVICES = frozenset({"accelerator", "gpu", "gpus", "tpu"})


def is_gpu_taint(taint: Taint) -> bool:
    """True if this taint repels work without GPUs or TPUs: it is named by a device, or by the word for it (``gpu=true``)."""
    word = taint.key.rpartition("/")[2]
    return taint.key in GPU_TAINT_KEYS or is_accelerator(taint.key) or word in _DEVICES or taint.value in _DEVICES


def is_tolerated_by_cluster(pool: Pool, taint: Taint, requests: Mapping[str, int]) -> bool:
    """True if the cluster itself adds a toleration of the taint to every pod with these requests."""
    return (
        of(pool).tolerates_requests
        and taint.effect == "NoSchedule"
        and "/" in taint.key
        and bool(requests.get(taint.key))
    )


def notice_of_pods(pool: Pool) -> float:
    """Seconds of the pool's notice that pods get; a notice longer than its provider's was made longer for them."""
    facts = of(pool)
    return pool.notice * (facts.pods_share if pool.notice <= facts.notice else 1.0)


def providers_of(keys: Collection[str]) -> tuple[Provider, ...]:
    """Return the providers whose spot nodes have a label or taint with one of these keys.

    A key without a domain (``spot``) is set by people, and so it does not show the provider.
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
"""The lowest priority of pods for which the cluster autoscaler makes nodes: the default of expendable-pods-priority-cutoff."""


def below_cut_off(priority: int, maker: str, pools: Iterable[Pool], target: Mapping[str, str]) -> str:
    """What the autoscaler does with pods of a priority on the pools that it grows, if that is below its cut-off; else empty.

    ``maker`` names what gives the priority, ``target`` is the configuration's. Karpenter has no such limit. Source:
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
