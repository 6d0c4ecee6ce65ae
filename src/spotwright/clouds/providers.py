"""What AKS, GKE, EKS and Karpenter put on their nodes: labels, taints and notices. Pure, no IO.

Only this package knows the names that providers use. A pool holds the labels and taints of the user's configuration; these
functions add those that the provider sets by itself. Beside the table of facts stands what follows from it: the names that a
provider allows, its zone label, labels of the past with the form of today, and the pools without a ``spotwright.yaml``. On
another cluster nothing is assumed beyond the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from spotwright.clouds.node_signs import ARCH, CAPACITY_SIGNS, OS, POOL_SIGNS, capacity_by_words
from spotwright.model.pools import Capacity, Pool, PriceSource, Provider, Simulate
from spotwright.model.scheduling_terms import Taint

__all__ = [
    "AKS",
    "CAPACITY_LABELS",
    "COMPUTE_CLASS",
    "EKS",
    "GENERIC",
    "GKE",
    "GPU_TAINT_KEYS",
    "INSTANCE_TYPE",
    "KARPENTER",
    "NVIDIA_GPU",
    "ONLY_SPOT_LABELS",
    "PAST_FORMS",
    "PAST_SPOT_LABELS",
    "POOL_LABELS",
    "PREEMPTIBLE",
    "SPOT_LABELS",
    "SPOT_TAINT_KEYS",
    "UNMANAGED_SPOT_LABELS",
    "ZONE",
    "Facts",
    "PastForm",
    "allowed_name",
    "azure_zone",
    "built_in_pools",
    "commands_to_free",
    "default_notice",
    "default_notice_of_pods",
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
    "own_labels",
    "past_forms",
    "pool_label",
    "pool_name",
    "pool_of",
    "providers_of",
    "taints",
    "unknown_zones",
    "zone_label",
]


INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

ZONE = "topology.kubernetes.io/zone"
"""Set by every cloud provider. Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"."""

NVIDIA_GPU = "nvidia.com/gpu"
"""Resource of NVIDIA's device plugin, and key of the taint that GKE sets on nodes with GPUs."""


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


class Form(NamedTuple):
    """One form of spot capacity that a provider sells, with what its nodes carry.

    A pool is of another form than the provider's usual one if its own labels have one of the form's: nobody else sets them.
    """

    labels: Mapping[str, str] = MappingProxyType({})
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What one provider sets on nodes by itself. ``notice`` is in seconds; no provider guarantees it.

    ``spot`` has the forms of spot capacity, the usual one first.
    """

    notice: float
    pods_share: float = 1.0  # of the notice; the kubelet keeps the rest for system pods
    pool_label: str = ""  # label whose value is the name of the pool
    spot: tuple[Form, ...] = (Form(),)
    on_demand_labels: Mapping[str, str] = field(default_factory=dict)
    gpu_labels: Mapping[str, str] = field(default_factory=dict)
    automatic_spot_taints: tuple[Taint, ...] = ()  # of pools that the provider makes by itself
    gpu_taints: tuple[Taint, ...] = ()
    tolerates_requests: bool = (
        False  # its API server adds to a pod a toleration of each extended resource in its requests
    )
    spot_taint_keys: frozenset[str] = frozenset()  # keys that mean spot there, also of taints set by people

    @property
    def spot_labels(self) -> Mapping[str, str]:
        """The labels of the usual form of spot capacity."""
        return self.spot[0].labels

    def form_of(self, pool: Pool) -> Form:
        """The form of a spot pool: the first of which it has a label in its configuration, else the usual one."""
        return next((form for form in self.spot if form.labels.items() & pool.labels.items()), self.spot[0])


_PRIORITY = "kubernetes.azure.com/scalesetpriority"

AKS = Facts(
    notice=30.0,
    pool_label="kubernetes.azure.com/agentpool",
    # On-demand pools get no label here: Microsoft's table has the value "regular", but pools made by hand were seen without the
    # label, and pipelines keep off spot with DoesNotExist.
    spot=(
        Form({_PRIORITY: "spot"}, (Taint(_PRIORITY, "spot"),)),
        Form({_PRIORITY: "low"}, (Taint(_PRIORITY, "low"),)),  # low-priority scale sets of before 2020
    ),
    gpu_labels={"kubernetes.azure.com/accelerator": "nvidia"},
    spot_taint_keys=frozenset({_PRIORITY}),
)
"""AKS: 30 s notice; sets label and taint of spot pools, and a label of GPU pools, but no GPU taint."""


_SPOT = "cloud.google.com/gke-spot"
_PROVISIONING = "cloud.google.com/gke-provisioning"

PREEMPTIBLE = "cloud.google.com/gke-preemptible"
"""Label (``true``) of preemptible VMs, which older guides select by."""

COMPUTE_CLASS = "cloud.google.com/compute-class"
"""Label by which pods select a ComputeClass, and by which node pools belong to it."""

GKE = Facts(
    notice=30.0,
    pods_share=0.5,
    pool_label="cloud.google.com/gke-nodepool",
    # a preemptible node has no gke-spot, a Spot VM no gke-preemptible
    spot=(
        Form({_SPOT: "true", _PROVISIONING: "spot"}),
        Form({PREEMPTIBLE: "true", _PROVISIONING: "preemptible"}),
    ),
    on_demand_labels={_PROVISIONING: "standard"},  # without gke-spot
    automatic_spot_taints=(Taint(_SPOT, "true"),),
    gpu_taints=(Taint(NVIDIA_GPU, "present"),),
    tolerates_requests=True,
    # "preemptible" is the taint in Google's own guide to preemptible pools with Kubeflow Pipelines
    spot_taint_keys=frozenset({_SPOT, PREEMPTIBLE, _PROVISIONING, "preemptible"}),
)
"""GKE: 30 s notice, of which pods have 15; sets labels and the GPU taint, and a spot taint only on pools that it makes by itself.

Sources: Google Cloud, "Run fault-tolerant workloads at lower costs in Spot Pods", "About node auto-provisioning".
"""


_EKS_CAPACITY = "eks.amazonaws.com/capacityType"

EKS = Facts(
    notice=120.0,
    pool_label="eks.amazonaws.com/nodegroup",
    spot=(Form({_EKS_CAPACITY: "SPOT"}),),
    on_demand_labels={_EKS_CAPACITY: "ON_DEMAND"},
    # "spot" and "spotInstance" are the taints in Amazon's own guides and examples
    spot_taint_keys=frozenset({_EKS_CAPACITY, "spot", "spotInstance"}),
)
"""EKS: 120 s notice; sets labels, no taint."""


_KARPENTER_CAPACITY = "karpenter.sh/capacity-type"

KARPENTER = Facts(
    notice=120.0,
    pool_label="karpenter.sh/nodepool",
    spot=(Form({_KARPENTER_CAPACITY: "spot"}),),
    on_demand_labels={_KARPENTER_CAPACITY: "on-demand"},
    spot_taint_keys=frozenset({_KARPENTER_CAPACITY}),
)
"""Karpenter on AWS: 120 s notice; sets labels, no taint."""


GENERIC = Facts(notice=30.0)
"""Generic: 30 s notice; sets neither labels nor taints."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    dropped: str  # characters that are left out where the pool's name has them
    words: str


_AKS = _Rule(re.compile(r"[a-z][a-z0-9]{0,11}"), "-", "at most 12 small letters and digits, a letter first")
_AKS_WINDOWS = _Rule(
    re.compile(r"[a-z][a-z0-9]{0,5}"), "-", "at most 6 small letters and digits, a letter first (Windows)"
)
_RULES = {
    Provider.AKS: _AKS,
    Provider.GKE: _Rule(
        re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"), "", "at most 40 small letters, digits and -, a letter first"
    ),
    Provider.EKS: _Rule(
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"),
        "",
        "at most 63 letters, digits, - and _, a letter or digit first",
    ),
}


def allowed_name(pool: Pool, name: str) -> str | None:
    """The name without the characters that the pool's provider does not allow; None if what is left is no name there."""
    rule = _rule(pool)
    if rule is None:
        return name
    left = name.translate(dict.fromkeys(map(ord, rule.dropped)))
    return left if rule.pattern.fullmatch(left) else None


def naming_rule(pool: Pool) -> str:
    """What a name of a pool may be at the pool's provider, in words; empty where every name of the configuration may be used."""
    rule = _rule(pool)
    return "" if rule is None else rule.words


def _rule(pool: Pool) -> _Rule | None:
    return _AKS_WINDOWS if pool.provider is Provider.AKS and pool.os == "windows" else _RULES.get(pool.provider)


_LABEL = re.compile(r"(?P<region>[a-z][a-z0-9]*)-(?P<number>[0-9])")
_MACHINE = "Standard_"
_NODE_CLASS = "karpenter.azure.com/"


def is_azure(pool: Pool) -> bool:
    """Whether the nodes are machines of Azure: those of AKS, and those that Karpenter makes there."""
    if pool.provider is Provider.KARPENTER:
        return pool.machine.startswith(_MACHINE) or any(_NODE_CLASS in key for key in pool.labels)
    return pool.provider is Provider.AKS


def zone_label(pool: Pool, zone: str) -> str | None:
    """Return the zone label of the pool's nodes in one of its zones; None: a number without the pool's region."""
    if not zone.isdigit() or not is_azure(pool):
        return zone
    return f"{pool.region.lower()}-{zone}" if pool.region else None


def azure_zone(label: str) -> tuple[str, str] | None:
    """Return the region and the number of a zone label of Azure; None if it names no zone."""
    match = _LABEL.fullmatch(label)
    return (match["region"], match["number"]) if match else None


def commands_to_free(node: str) -> tuple[str, str]:
    """The command after which the Node object stays, marked as out of service, and the one that deletes it."""
    return (
        f"kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        f"kubectl delete node {node}",
    )


class PastForm(NamedTuple):
    """A label of the past. ``value``: None for any. ``instead``: the label that makes it harmless, where both are set."""

    key: str
    value: str | None
    today: str
    instead: str = ""


UNMANAGED_SPOT_LABELS: Mapping[str, str] = {
    "lifecycle": "Ec2Spot",
    "node-lifecycle": "spot",
    "kubernetes.io/lifecycle": "spot",
    "node.kubernetes.io/lifecycle": "spot",
}
"""Labels that guides put on spot nodes of unmanaged groups. On-demand nodes have them too, with another value."""

PAST_SPOT_LABELS: Mapping[str, str] = {
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "low",
    **UNMANAGED_SPOT_LABELS,
}
"""Labels of the past that mean spot."""

_UNMANAGED = "a label of unmanaged groups; managed node groups have eks.amazonaws.com/capacityType=SPOT by themselves"

PAST_FORMS: tuple[PastForm, ...] = (
    PastForm(
        "cloud.google.com/gke-preemptible",
        "true",
        "preemptible VMs live 24 hours at most; Spot VMs (gcloud container node-pools create --spot) have no such "
        "limit, and the label cloud.google.com/gke-spot=true",
    ),
    PastForm(
        "kubernetes.azure.com/scalesetpriority",
        "low",
        "low-priority VMs became Spot VMs: az aks nodepool add --priority Spot, whose nodes have the value spot",
    ),
    PastForm(
        "agentpool",
        None,
        "nodes of aks-engine, which is retired; AKS itself also sets kubernetes.azure.com/agentpool",
        instead="kubernetes.azure.com/agentpool",
    ),
    PastForm(
        "karpenter.sh/provisioner-name", None, "a Provisioner is a NodePool since Karpenter 0.32: karpenter.sh/nodepool"
    ),
    PastForm(
        "beta.kubernetes.io/instance-type",
        None,
        "the label is node.kubernetes.io/instance-type today",
        instead="node.kubernetes.io/instance-type",
    ),
    PastForm(
        "failure-domain.beta.kubernetes.io/zone",
        None,
        "the label is topology.kubernetes.io/zone today",
        instead="topology.kubernetes.io/zone",
    ),
    *(PastForm(key, value, _UNMANAGED) for key, value in sorted(UNMANAGED_SPOT_LABELS.items())),
)
"""The forms, in the order in which they are named."""


def past_forms(labels: Mapping[str, str]) -> Iterator[PastForm]:
    """The forms of the past among the labels of a node."""
    for form in PAST_FORMS:
        if form.key in labels and form.value in (None, labels[form.key]) and form.instead not in labels:
            yield form


_OTHER_DEVICES = ("amd.com/gpu", "google.com/tpu", "cloud-tpus.google.com/v2", "cloud-tpus.google.com/v3")
_PRICES = {Capacity.ON_DEMAND: Fraction(1), Capacity.SPOT: Fraction(3, 10)}  # of a node hour, in the run's currency
_PROVIDERS = (AKS, GKE, EKS, KARPENTER)


def built_in_pools() -> Mapping[str, Pool]:
    """Return the two pools by name, ``spot`` first.

    A node has 8 cpu, 32Gi, 4 GPUs and 8 of each other device. Each pool has at most 10 nodes and an example price.
    """
    spot = {key: value for facts in _PROVIDERS for key, value in facts.spot_labels.items()}
    on_demand = {key: value for facts in _PROVIDERS for key, value in facts.on_demand_labels.items()}
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


_FACTS: Mapping[Provider, Facts] = {
    Provider.AKS: AKS,
    Provider.GKE: GKE,
    Provider.EKS: EKS,
    Provider.KARPENTER: KARPENTER,
    Provider.GENERIC: GENERIC,
}

_ON_DEMAND_LABELS = {
    *(pair for facts in _FACTS.values() for pair in facts.on_demand_labels.items()),
    *((key, value) for key, sign in CAPACITY_SIGNS.items() for value in sign.on_demand),
}


def _spot_labels() -> Mapping[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    forms = (form.labels for facts in _FACTS.values() for form in facts.spot)
    for labels_of_spot in (*forms, PAST_SPOT_LABELS):
        for key, value in labels_of_spot.items():
            values[key] = tuple(dict.fromkeys((*values.get(key, ()), value)))
    for key, sign in CAPACITY_SIGNS.items():
        if sign.spot:
            values[key] = tuple(dict.fromkeys((*values.get(key, ()), *sign.spot)))
    return values


SPOT_LABELS: Mapping[str, tuple[str, ...]] = _spot_labels()
"""Labels that mean spot, of all providers, of other provisioners and of the past: the values of each key, that of today first."""

CAPACITY_LABELS: tuple[str, ...] = tuple(
    next(iter(facts.spot_labels)) for facts in _FACTS.values() if facts.spot_labels
)
"""The key of each provider by which spot nodes are selected, the usual one where it has several."""

_SET_BY_PEOPLE = frozenset({"spot", "node-role.kubernetes.io/spot-worker", *UNMANAGED_SPOT_LABELS})

ONLY_SPOT_LABELS: frozenset[str] = frozenset(
    SPOT_LABELS.keys() - {key for key, _ in _ON_DEMAND_LABELS} - UNMANAGED_SPOT_LABELS.keys()
)
"""Keys of :data:`SPOT_LABELS` that no on-demand node has, with whatever value."""

SPOT_TAINT_KEYS: frozenset[str] = frozenset().union(
    *(facts.spot_taint_keys for facts in _FACTS.values()), CAPACITY_SIGNS.keys() & ONLY_SPOT_LABELS
)
"""Keys of taints that mean spot, of all providers together: clusters are mixed, and people copy taints between them."""

POOL_LABELS: Mapping[str, Provider] = {
    KARPENTER.pool_label: Provider.KARPENTER,
    **dict.fromkeys(POOL_SIGNS, Provider.GENERIC),
    **{_FACTS[one].pool_label: one for one in (Provider.AKS, Provider.GKE, Provider.EKS)},
    "agentpool": Provider.GENERIC,  # aks-engine
    "karpenter.sh/provisioner-name": Provider.GENERIC,  # Karpenter before 0.32
    "alpha.eksctl.io/nodegroup-name": Provider.GENERIC,  # unmanaged groups of eksctl
}
"""Labels of nodes whose value is the name of their pool, with who sets them. Provisioners stand before clouds, whose labels their
nodes may have as well."""

GPU_TAINT_KEYS: frozenset[str] = frozenset({NVIDIA_GPU, "amd.com/gpu"})
"""Keys of taints that repel work without GPUs: the resource names of device plugins. ``sku=gpu`` (AKS) means the same."""


@lru_cache(maxsize=1024)
def labels(pool: Pool) -> Mapping[str, str]:
    """Return the labels of a node of this pool: those of the provider, overridden by the pool's own.

    They include the zone only if the pool has exactly one, because nodes of several zones differ, and only if its label is known
    (:func:`unknown_zones`).
    """
    facts = _FACTS[pool.provider]
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
        ARCH,
        OS,
        facts.pool_label,
        *(key for form in facts.spot for key in form.labels),
        *facts.on_demand_labels,
        *facts.gpu_labels,
    }
    return {key: value for key, value in pool.labels.items() if key not in by_provider}


def pool_label(pool: Pool) -> str:
    """Return the label in which the provider writes the pool's name; empty for a generic pool, and for an automatic one."""
    return "" if pool.automatic else _FACTS[pool.provider].pool_label


def pool_name(pool: Pool) -> str | None:
    """Return the pool's name at its provider: the value of the provider's label, without characters that are not allowed there.

    None: the provider allows no such name.
    """
    return allowed_name(pool, pool.labels.get(pool_label(pool), pool.name))


def node_pool_of(pool: Pool) -> str:
    """The name of the NodePool of Karpenter whose nodes a pool has; empty for a pool of another kind."""
    if pool.provider is not Provider.KARPENTER and KARPENTER.pool_label not in pool.labels:
        return ""
    return pool.labels.get(KARPENTER.pool_label) or pool_name(pool) or pool.name


def pool_of(node_labels: Mapping[str, str], pools: Mapping[str, Pool]) -> Pool | None:
    """Return the pool whose labels a node has; of several that fit, the one with the most labels."""
    fitting = [pool for pool in pools.values() if (wanted := labels(pool)) and wanted.items() <= node_labels.items()]
    return max(fitting, key=lambda pool: len(labels(pool)), default=None)


@lru_cache(maxsize=1024)
def taints(pool: Pool) -> tuple[Taint, ...]:
    """Return the taints of a node of this pool: its own, then those that the provider sets by itself, none twice.

    Kubernetes allows one taint of a key and effect: the user's taint takes the place of the provider's.
    """
    facts = _FACTS[pool.provider]
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
    return pool.provider is Provider.GENERIC and pool.is_spot and not is_gpu_taint(taint)


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
        if not named.isdisjoint({key for form in facts.spot for key in form.labels} | facts.spot_taint_keys)
    )


def gpus_of(pool: Pool) -> Mapping[str, int]:
    """Return the GPUs and parts of GPUs that a node of the pool offers, by resource."""
    return {name: amount for name, amount in (pool.node or {}).items() if amount and is_gpu(name)}


def _offers_gpu(pool: Pool) -> bool:
    return bool(pool.node and pool.node.get(NVIDIA_GPU))
