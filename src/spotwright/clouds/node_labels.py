"""Labels that nobody writes: those that Kubernetes, clouds, Karpenter and device plugins set on the nodes of a pool. Pure, no IO.

People select nodes by them, and no configuration lists them. Where the pool's machine, zones, region, system and devices tell
the value, it is derived; otherwise nodes may carry the label with any value, so a condition on it counts as met, and whoever
shows the result says so (:func:`setter`). :func:`refusal` is the one rule by which every command compares work with a pool. The
table names its sources.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.providers import NVIDIA_GPU, ZONE
from spotwright.model.pools import Pool, PriceSource, Provider
from spotwright.model.scheduling_terms import Constraints, Taint

__all__ = ["SETTERS", "Setter", "known", "known_in", "machine_accelerator", "refusal", "setter", "unknown"]


class Setter(NamedTuple):
    """Who sets labels, and on which nodes. A key that ends with ``*`` stands for every key that begins so.

    ``on``: the sorts of pools (:func:`_sorts`), empty for all. ``devices``: only on nodes with such devices: ``gpu`` or ``tpu``.
    ``source``: where the names are from.
    """

    name: str
    keys: tuple[str, ...]
    on: frozenset[str] = frozenset()
    devices: str = ""
    source: str = ""

    def sets(self, key: str) -> bool:
        """Whether it sets a label."""
        return any(key.startswith(one[:-1]) if one.endswith("*") else key == one for one in self.keys)


_SEEN = "nodes and manifests shown in public repositories"
_AKS_SOURCE = (
    'Microsoft Learn, "Use labels in an Azure Kubernetes Service (AKS) cluster"; nodes shown in public repositories'
)

_AZURE = frozenset({"AKS", "Karpenter on Azure"})
_GOOGLE = frozenset({"GKE", "Karpenter on Google Cloud"})
_AWS = frozenset({"EKS", "Karpenter on AWS"})

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
    Setter(
        "AKS",
        (
            "agentpool",
            "kubernetes.azure.com/agentpool",
            "kubernetes.azure.com/azure-cni-overlay",
            "kubernetes.azure.com/cluster",
            "kubernetes.azure.com/consolidated-additional-properties",
            "kubernetes.azure.com/ebpf-dataplane",
            "kubernetes.azure.com/fips_enabled",
            "kubernetes.azure.com/kubelet-identity-client-id",
            "kubernetes.azure.com/kubelet-serving-ca",
            "kubernetes.azure.com/localdns-state",
            "kubernetes.azure.com/mode",
            "kubernetes.azure.com/network-*",
            "kubernetes.azure.com/node-image-version",
            "kubernetes.azure.com/nodenetwork-vnetguid",
            "kubernetes.azure.com/nodepool-type",
            "kubernetes.azure.com/os-sku",
            "kubernetes.azure.com/os-sku-*",
            "kubernetes.azure.com/podnetwork-*",
            "kubernetes.azure.com/priority",
            "kubernetes.azure.com/role",
            "kubernetes.azure.com/security-type",
            "kubernetes.azure.com/sku-*",
            "kubernetes.azure.com/storageprofile",
            "kubernetes.azure.com/storagetier",
            "storageprofile",
            "storagetier",
            "topology.disk.csi.azure.com/zone",
        ),
        _AZURE,
        source=_AKS_SOURCE,
    ),
    Setter(
        "AKS",
        ("accelerator", "kubernetes.azure.com/accelerator"),
        _AZURE,
        "gpu",
        source=_SEEN,
    ),
    Setter(
        "GKE",
        (
            "addon.gke.io/*",
            "cloud.google.com/gce-topology-*",
            "cloud.google.com/gke-boot-disk",
            "cloud.google.com/gke-confidential-nodes-instance-type",
            "cloud.google.com/gke-container-runtime",
            "cloud.google.com/gke-cpu-scaling-level",
            "cloud.google.com/gke-dpv2-ready",
            "cloud.google.com/gke-ephemeral-storage-local-ssd",
            "cloud.google.com/gke-image-streaming",
            "cloud.google.com/gke-local-nvme-ssd",
            "cloud.google.com/gke-logging-variant",
            "cloud.google.com/gke-max-pods-per-node",
            "cloud.google.com/gke-memory-gb-scaling-level",
            "cloud.google.com/gke-metadata-server-enabled",
            "cloud.google.com/gke-netd-ready",
            "cloud.google.com/gke-os-distribution",
            "cloud.google.com/gke-placement-group",
            "cloud.google.com/gke-queued",
            "cloud.google.com/gke-secondary-boot-disk*",
            "cloud.google.com/gke-stack-type",
            "cloud.google.com/machine-family",
            "cloud.google.com/private-node",
            "cloud.google.com/reservation-*",
            "disk-type.gke.io/*",
            "iam.gke.io/gke-metadata-server-enabled",
            "sandbox.gke.io/runtime",
            "topology.gke.io/zone",
        ),
        _GOOGLE,
        source=_SEEN,
    ),
    Setter(
        "GKE",
        (
            "cloud.google.com/gke-accelerator",
            "cloud.google.com/gke-accelerator-count",
            "cloud.google.com/gke-gpu",
            "cloud.google.com/gke-gpu-*",
            "cloud.google.com/gke-max-shared-clients-per-gpu",
        ),
        _GOOGLE,
        "gpu",
        source=_SEEN,
    ),
    Setter(
        "GKE",
        ("cloud.google.com/gke-accelerator-count", "cloud.google.com/gke-tpu-*"),
        _GOOGLE,
        "tpu",
        source=_SEEN,
    ),
    Setter(
        "EKS",
        (
            "alpha.eksctl.io/cluster-name",
            "alpha.eksctl.io/instance-id",
            "alpha.eksctl.io/nodegroup-name",
            "eks.amazonaws.com/capacityBlockId",
            "eks.amazonaws.com/compute-type",
            "eks.amazonaws.com/nodegroup-image",
            "eks.amazonaws.com/sourceLaunchTemplateId",
            "eks.amazonaws.com/sourceLaunchTemplateVersion",
        ),
        frozenset({"EKS"}),
        source=_SEEN,
    ),
    Setter(
        "AWS",
        (
            "k8s.io/cloud-provider-aws",
            "topology.ebs.csi.aws.com/zone",
            "topology.k8s.aws/*",
            "vpc.amazonaws.com/*",
        ),
        _AWS,
        source=_SEEN,
    ),
    Setter("eksctl", ("k8s.amazonaws.com/accelerator",), _AWS, "gpu", source=_SEEN),
    Setter(
        "Karpenter",
        ("karpenter.sh/do-not-sync-taints", "karpenter.sh/initialized", "karpenter.sh/registered"),
        frozenset({"Karpenter on AWS", "Karpenter on Azure", "Karpenter on Google Cloud"}),
        source="karpenter, pkg/apis/v1/labels.go",
    ),
    Setter(
        "EKS Auto Mode",
        ("eks.amazonaws.com/compute-type", "eks.amazonaws.com/instance-*", "eks.amazonaws.com/nodeclass"),
        frozenset({"Karpenter on AWS"}),
        source=_SEEN,
    ),
    Setter(
        "Karpenter",
        ("karpenter.k8s.aws/*",),
        frozenset({"Karpenter on AWS"}),
        source="karpenter-provider-aws, pkg/apis/v1/labels.go",
    ),
    Setter(
        "Karpenter",
        ("karpenter.azure.com/*",),
        frozenset({"Karpenter on Azure"}),
        source="karpenter-provider-azure, pkg/apis/v1beta1/labels.go",
    ),
    Setter(
        "Karpenter",
        ("karpenter.k8s.gcp/*",),
        frozenset({"Karpenter on Google Cloud"}),
        source="karpenter-provider-gcp, pkg/apis/v1alpha1",
    ),
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

_ZONES = (
    "failure-domain.beta.kubernetes.io/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
)
"""Labels with the value of the zone's label, each where its setter sets it."""


@lru_cache(maxsize=16_384)
def setter(pool: Pool, key: str) -> str:
    """Who sets a label on the pool's nodes beside the configuration; empty if nobody does."""
    sorts = _sorts(pool)
    for one in SETTERS:
        if one.sets(key) and (not one.on or one.on & sorts) and _has(pool, one.devices):
            return one.name
    return ""


_SORTS = {Provider.AKS: frozenset({"AKS"}), Provider.GKE: frozenset({"GKE"}), Provider.EKS: frozenset({"EKS"})}


def _sorts(pool: Pool) -> frozenset[str]:
    """What the pool may be, as setters of labels tell pools apart: Karpenter runs on three clouds, and the machine tells which.

    The built-in pools stand for those of any cloud.
    """
    if pool.price_source is PriceSource.EXAMPLE:
        return _AZURE | _GOOGLE | _AWS
    if pool.provider is not Provider.KARPENTER:
        return _SORTS.get(pool.provider, frozenset())
    if providers.is_azure(pool):
        return frozenset({"Karpenter on Azure"})
    if not pool.machine:
        return frozenset({"Karpenter on AWS", "Karpenter on Azure", "Karpenter on Google Cloud"})
    return frozenset({"Karpenter on AWS" if _AWS_MACHINE.fullmatch(pool.machine) else "Karpenter on Google Cloud"})


def _has(pool: Pool, devices: str) -> bool:
    """Whether nodes of the pool may have such devices; nodes of unknown size may."""
    if not devices or pool.node is None:
        return True
    if devices == "tpu":
        return any(amount and name.endswith("/tpu") for name, amount in pool.node.items())
    return bool(providers.gpus_of(pool))


@lru_cache(maxsize=1024)
def known(pool: Pool) -> tuple[Mapping[str, str], ...]:
    """The labels of the pool's nodes whose value is known, in each of its zones: written, set by the provider, or derived."""
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
    """What the pool's own settings tell of labels that nobody writes."""
    labels = {"kubernetes.io/os": pool.os, "beta.kubernetes.io/os": pool.os}
    if region := _region(pool):
        labels |= {"topology.kubernetes.io/region": region, "failure-domain.beta.kubernetes.io/region": region}
    if pool.machine:
        labels["beta.kubernetes.io/instance-type"] = pool.machine
    if architecture := _architecture(pool):
        labels |= {"kubernetes.io/arch": architecture, "beta.kubernetes.io/arch": architecture}
    if pool.provider is Provider.AKS:
        labels |= _of_aks(pool)
    elif pool.provider is Provider.GKE:
        labels |= _of_gke(pool)
    elif pool.provider is Provider.KARPENTER:
        labels |= _of_azure_machine(pool) if providers.is_azure(pool) else _of_aws_machine(pool)
    return labels


_ZONE_OF_REGION = re.compile(r"(?P<region>.*[0-9])-?[a-z]")


def _region(pool: Pool) -> str:
    """The value of the region's label, from the pool's region or else from one of its zones; empty if neither tells it."""
    if pool.region:
        return pool.region.lower()
    for zone in pool.zones:
        if azure := providers.azure_zone(zone):
            return azure[0]
        if match := _ZONE_OF_REGION.fullmatch(zone):
            return match["region"]
    return ""


_ARM_OF_GKE = ("a4x-", "c4a-", "n4a-", "t2a-")
_AWS_MACHINE = re.compile(
    r"(?P<family>(?P<category>[a-z]+)(?:-[0-9]+tb)?(?P<generation>[0-9]+)(?P<traits>[a-z0-9-]*))\.(?P<size>[a-z0-9-]+)"
)
_AZURE_MACHINE = re.compile(r"Standard_(?P<family>[A-Z])[A-Z]*[0-9]+(?:-[0-9]+)?(?P<traits>[a-z]*)(?:_.*)?")


def _architecture(pool: Pool) -> str:
    """The processor architecture of the pool's machine as Kubernetes names it; empty where the machine does not tell it.

    Arm: Google's C4A, N4A, T2A and A4X; Amazon's A1 and machines with a ``g`` after the generation; Azure's with a ``p`` among
    the small letters. Sources: Google Cloud, "Arm on GKE"; AWS, "Amazon EC2 instance type naming conventions"; Microsoft Learn,
    "Azure virtual machine sizes naming conventions".
    """
    machine = pool.machine
    if aws := _AWS_MACHINE.fullmatch(machine):
        return "arm64" if aws["traits"].startswith("g") or aws["family"] == "a1" else "amd64"
    if azure := _AZURE_MACHINE.fullmatch(machine):
        return "arm64" if "p" in azure["traits"] else "amd64"
    if pool.provider is Provider.GKE and machine:
        return "arm64" if machine.startswith(_ARM_OF_GKE) else "amd64"
    return ""


def _of_aks(pool: Pool) -> dict[str, str]:
    labels = {"kubernetes.azure.com/priority": "spot" if pool.is_spot else "regular"}
    if name := providers.labels(pool).get(providers.AKS.pool_label):
        labels["agentpool"] = name
    if (pool.node or {}).get(NVIDIA_GPU):
        labels["accelerator"] = "nvidia"
    return labels


_ACCELERATORS = {
    "a2-highgpu-": "nvidia-tesla-a100",
    "a2-megagpu-": "nvidia-tesla-a100",
    "a2-ultragpu-": "nvidia-a100-80gb",
    "a3-edgegpu-": "nvidia-h100-80gb",
    "a3-highgpu-": "nvidia-h100-80gb",
    "a3-megagpu-": "nvidia-h100-mega-80gb",
    "a3-ultragpu-": "nvidia-h200-141gb",
    "a4-highgpu-": "nvidia-b200",
    "a4x-highgpu-": "nvidia-gb200",
    "g2-standard-": "nvidia-l4",
    "g4-standard-": "nvidia-rtx-pro-6000",
}
_TPUS = {
    "ct4p-": "tpu-v4-podslice",
    "ct5l-": "tpu-v5-lite-device",
    "ct5lp-": "tpu-v5-lite-podslice",
    "ct5p-": "tpu-v5p-slice",
    "ct6e-": "tpu-v6e-slice",
}


def machine_accelerator(machine: str) -> str:
    """GKE's name of the GPUs that come with a machine (``g2-standard-8``: ``nvidia-l4``); empty for a machine without any.

    Source: Google Cloud, "GPU machine types" and "About GPUs in GKE".
    """
    return next((name for prefix, name in _ACCELERATORS.items() if machine.startswith(prefix)), "")


def _of_gke(pool: Pool) -> dict[str, str]:
    labels = {}
    if pool.machine:
        labels["cloud.google.com/machine-family"] = pool.machine.partition("-")[0]
    if accelerator := machine_accelerator(pool.machine):
        labels["cloud.google.com/gke-accelerator"] = accelerator
        if count := (pool.node or {}).get(NVIDIA_GPU):
            labels["cloud.google.com/gke-accelerator-count"] = str(count)
    if tpu := next((name for prefix, name in _TPUS.items() if pool.machine.startswith(prefix)), ""):
        labels["cloud.google.com/gke-tpu-accelerator"] = tpu
    return labels


def _of_aws_machine(pool: Pool) -> dict[str, str]:
    """Karpenter's labels for a machine of Amazon, of which EKS Auto Mode has its own form."""
    match = _AWS_MACHINE.fullmatch(pool.machine)
    if match is None:
        return {}
    gpus = (pool.node or {}).get(NVIDIA_GPU)
    facts = {
        "category": match["category"],
        "family": match["family"],
        "generation": match["generation"],
        "size": match["size"],
        **({"gpu-count": str(gpus), "gpu-manufacturer": "nvidia"} if gpus else {}),
    }
    domains = ("karpenter.k8s.aws", "eks.amazonaws.com")
    return {f"{domain}/instance-{name}": value for domain in domains for name, value in facts.items()}


def _of_azure_machine(pool: Pool) -> dict[str, str]:
    match = _AZURE_MACHINE.fullmatch(pool.machine)
    if match is None:
        return {}
    gpus = (pool.node or {}).get(NVIDIA_GPU)
    facts = {
        "name": pool.machine,
        "family": match["family"],
        **({"gpu-count": str(gpus), "gpu-manufacturer": "nvidia"} if gpus else {}),
    }
    return {f"karpenter.azure.com/sku-{name}": value for name, value in facts.items()}


class _UnknownLabels(Container[str]):
    """The labels that nodes of a pool may carry with a value that nobody knows."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known = known(pool)[0]

    def __contains__(self, key: object) -> bool:
        return key not in self._known and bool(setter(self._pool, str(key)))


@lru_cache(maxsize=1024)
def unknown(pool: Pool) -> Container[str]:
    """The labels that nodes of the pool may carry with a value that nothing tells."""
    return _UnknownLabels(pool)


def refusal(pool: Pool, constraints: Constraints, taints: tuple[Taint, ...]) -> str:
    """The first reason for which no node of the pool with these taints admits work; empty if those of one zone may admit it.

    Every command compares work with a pool by this function, so that one does not refuse what another accepts.
    """
    if not (constraints.selector or constraints.required):  # most work asks for no labels, and to list them takes long
        return constraints.refusal({}, taints)
    return next(iter(sorted(_reasons(pool, constraints, taints), key=bool)))


def _reasons(pool: Pool, constraints: Constraints, taints: tuple[Taint, ...]) -> Iterator[str]:
    for labels in known(pool):
        yield constraints.refusal(labels, taints, unknown(pool))
