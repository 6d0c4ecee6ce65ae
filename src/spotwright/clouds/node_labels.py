"""The built-in labels that Kubernetes, clouds, Karpenter and device plugins set on the nodes of a pool. Pure, no IO.

People select nodes by them without listing them in a configuration. The value is derived from the pool's machine, zones,
region, system and devices where they determine it; otherwise it may be any value, so a condition on it counts as met, and
messages say so (:func:`setter`). :func:`refusal` is the rule by which every command compares work with a pool. The table names
its sources.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from spotwright.clouds import providers
from spotwright.clouds.machines import architecture
from spotwright.clouds.provider import Setter
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.clouds.providers import ZONE
from spotwright.model.pools import Pool, PriceSource
from spotwright.model.scheduling_terms import Constraints, Taint

__all__ = ["SETTERS", "architecture_of", "is_set_by_system", "known", "known_in", "refusal", "setter", "unknown"]


SETTERS = (
    Setter(
        "Kubernetes",
        (
            "beta.kubernetes.io/arch",
            "beta.kubernetes.io/instance-type",
            "beta.kubernetes.io/os",
            "failure-domain.beta.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/zone",
            "kubernetes.io/arch",
            "kubernetes.io/hostname",
            "kubernetes.io/os",
            "kubernetes.io/role",
            "node-role.kubernetes.io/*",
            "node.kubernetes.io/instance-type",
            "node.kubernetes.io/windows-build",
            "topology.kubernetes.io/region",
            "topology.kubernetes.io/zone",
        ),
        source='Kubernetes reference, "Well-Known Labels, Annotations and Taints"',
    ),
    *(one for provider in PROVIDERS.values() for one in provider.setters),
    Setter(
        "GPU feature discovery",
        (
            "nvidia.com/cuda*",
            "nvidia.com/gfd*",
            "nvidia.com/gpu.*",
            "nvidia.com/mig*",
            "nvidia.com/mps*",
            "nvidia.com/vgpu*",
        ),
        devices="gpu",
        source="NVIDIA/k8s-device-plugin, GPU feature discovery",
    ),
    Setter(
        "AMD's node labeller",
        ("amd.com/gpu.*", "beta.amd.com/gpu.*"),
        devices="gpu",
        source="ROCm/k8s-device-plugin, node labeller",
    ),
    Setter(
        "Intel's device plugins",
        ("gpu.intel.com/*",),
        devices="gpu",
        source="intel/intel-device-plugins-for-kubernetes",
    ),
    Setter(
        "node feature discovery",
        ("feature.node.kubernetes.io/*", "intel.feature.node.kubernetes.io/*"),
        source='node-feature-discovery documentation, "Feature labels"',
    ),
    Setter("Ray", ("ray.io/*",), source='Ray documentation, "Use labels to control scheduling"'),
)

_ZONES = ("failure-domain.beta.kubernetes.io/zone", *(key for one in PROVIDERS.values() for key in one.zone_labels))
"""Labels with the same value as the zone's label, on the nodes where their setter sets them."""


_SYSTEM_DOMAIN = (
    r"(.+\.)?(kubernetes\.io|k8s\.io|x-k8s\.io|k8s\.aws|amazonaws\.com|eksctl\.io|azure\.com|google\.com|gke\.io|karpenter\.sh"
    r"|nvidia\.com|amd\.com|intel\.com|habana\.ai|cast\.ai|spotinst\.io|openshift\.io|gardener\.cloud|sapcloud\.io"
    r"|oraclecloud\.com|yandex\.cloud|alibabacloud\.com|aliyun\.com|digitalocean\.com|linode\.com|scaleway\.com|vultr\.com"
    r"|cattle\.io|k3s\.io|microk8s\.io|juju\.is|cilium\.io|projectcalico\.org)"
)
_CHOSEN_DOMAINS = frozenset(
    {
        "node-role.kubernetes.io",  # roles, set by people
        "node-restriction.kubernetes.io",  # Kubernetes reference, "NodeRestriction": for users' labels
        "node.cluster.x-k8s.io",  # kubernetes-sigs/cluster-api: labels of a Machine that are copied to its node
        "node.kubernetes.io",  # kubelet, --node-labels: one of the two prefixes that it accepts
        "kubelet.kubernetes.io",
    }
)
_CHOSEN_KEYS = frozenset().union(*(one.chosen_labels for one in PROVIDERS.values()))
_SYSTEM_KEYS = frozenset(
    {
        *(key for one in PROVIDERS.values() for key in one.plain_labels),
        "node-role.kubernetes.io/agent",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "node.kubernetes.io/exclude-from-external-load-balancers",
    }
)


def is_set_by_system(key: str) -> bool:
    """Whether Kubernetes, a cloud or a controller sets a label on nodes, and work is not expected to select by it.

    A pool keeps users' labels: labels without a domain or with a domain that is not a provider's, and roles. It also keeps the
    clouds' labels that name a pool's accelerator.
    """
    domain, _, _ = key.rpartition("/")
    if key in _SYSTEM_KEYS:
        return True
    if not domain or key in _CHOSEN_KEYS or domain in _CHOSEN_DOMAINS:
        return False
    return re.fullmatch(_SYSTEM_DOMAIN, domain) is not None


@lru_cache(maxsize=16_384)
def setter(pool: Pool, key: str) -> str:
    """Who, other than the configuration, sets a label on the pool's nodes; empty if unknown."""
    sorts = _sorts(pool)
    for one in SETTERS:
        if one.sets(key) and (not one.on or one.on & sorts) and _has(pool, one.devices):
            return one.name
    return ""


def _sorts(pool: Pool) -> frozenset[str]:
    """The pool's possible sorts for setters of labels: Karpenter runs on three clouds, and the machine shows which.

    The built-in pools represent pools of any cloud.
    """
    if pool.price_source is PriceSource.EXAMPLE:
        return frozenset().union(*(one.sorts(one.clouds) for one in PROVIDERS.values()))
    provider = providers.of(pool)
    return provider.sorts(provider.clouds_of(pool))


def _has(pool: Pool, devices: str) -> bool:
    """Whether nodes of the pool may have such devices, as nodes of unknown size may."""
    if not devices or pool.node is None:
        return True
    if devices == "tpu":
        return any(amount and name.endswith("/tpu") for name, amount in pool.node.items())
    return bool(providers.gpus_of(pool))


@lru_cache(maxsize=1024)
def known(pool: Pool) -> tuple[Mapping[str, str], ...]:
    """The labels with a known value on the pool's nodes, in each zone: configured, set by the provider, or derived."""
    derived = _derived(pool)
    return tuple(
        MappingProxyType({**derived, **_of_zone(pool, labels), **labels}) for labels in providers.labels_by_zone(pool)
    )


def known_in(pool: Pool, zone: str | None) -> Mapping[str, str]:
    """The labels of :func:`known` on a node in one of the pool's zones."""
    each = known(pool)
    return each[pool.zones.index(zone)] if zone is not None and len(each) > 1 else each[0]


def _of_zone(pool: Pool, labels: Mapping[str, str]) -> dict[str, str]:
    zone = labels.get(ZONE)
    return {key: zone for key in _ZONES if zone and setter(pool, key)}


def _derived(pool: Pool) -> dict[str, str]:
    """The built-in labels that follow from the pool's settings."""
    labels = {"kubernetes.io/os": pool.os, "beta.kubernetes.io/os": pool.os}
    if region := _region(pool):
        labels |= {"topology.kubernetes.io/region": region, "failure-domain.beta.kubernetes.io/region": region}
    if pool.machine:
        labels["beta.kubernetes.io/instance-type"] = pool.machine
    if arch := architecture_of(pool):
        labels |= {"kubernetes.io/arch": arch, "beta.kubernetes.io/arch": arch}
    derived = providers.of(pool).derived
    return labels if derived is None else {**labels, **derived(pool)}


_ZONE_OF_REGION = r"(?P<region>.*[0-9])-?[a-z]"


def _region(pool: Pool) -> str:
    """The value of the region label, from the pool's region or one of its zones; empty if neither is known."""
    if pool.region:
        return pool.region.lower()
    for zone in pool.zones:
        if azure := providers.azure_zone(zone):
            return azure[0]
        if match := re.fullmatch(_ZONE_OF_REGION, zone):
            return match["region"]
    return ""


def architecture_of(pool: Pool) -> str:
    """The architecture of the pool's machine as Kubernetes names it; empty if neither its name nor its provider shows it."""
    found, arm_machines = architecture(pool.machine), providers.of(pool).arm_machines
    if found or not pool.machine or not arm_machines:
        return found
    return "arm64" if pool.machine.startswith(arm_machines) else "amd64"


class _UnknownLabels(Container[str]):
    """The labels that a pool's nodes may have with unknown values."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known = known(pool)[0]

    def __contains__(self, key: object) -> bool:
        return key not in self._known and bool(setter(self._pool, str(key)))


@lru_cache(maxsize=1024)
def unknown(pool: Pool) -> Container[str]:
    """The labels that nodes of the pool may carry with an unknown value."""
    return _UnknownLabels(pool)


def refusal(pool: Pool, constraints: Constraints, taints: tuple[Taint, ...]) -> str:
    """The first reason why no node of the pool with these taints admits work; empty if the nodes of a zone may admit it.

    Every command compares work with a pool by this function, so that all agree.
    """
    if not (constraints.selector or constraints.required):  # most work asks for no labels, and listing them is slow
        return constraints.refusal({}, taints)
    return next(iter(sorted(_reasons(pool, constraints, taints), key=bool)))


def _reasons(pool: Pool, constraints: Constraints, taints: tuple[Taint, ...]) -> Iterator[str]:
    for labels in known(pool):
        yield constraints.refusal(labels, taints, unknown(pool))
