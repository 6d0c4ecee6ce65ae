"""Labels of nodes: misspelt keys and values lead to the ones that nodes have, and what may be right is left alone."""

from __future__ import annotations

import pytest

from spotwright.clouds.label_values import is_region, key_meant, label_of, makers_of, region_of, value_meant

MISSPELT = {
    "eks.amazonaws.com/capacity-type": "eks.amazonaws.com/capacityType",
    "eks.amazonaws.com/CapacityType": "eks.amazonaws.com/capacityType",
    "eks.amazonaws.com/node-group": "eks.amazonaws.com/nodegroup",
    "karpenter.sh/capacityType": "karpenter.sh/capacity-type",
    "karpenter.k8s.aws/capacity-type": "karpenter.sh/capacity-type",
    "karpeter.sh/capacity-type": "karpenter.sh/capacity-type",
    "karpenter.sh/node-pool": "karpenter.sh/nodepool",
    "karpenter.sh/instance-family": "karpenter.k8s.aws/instance-family",
    "kubernetes.azure.com/scaleSetPriority": "kubernetes.azure.com/scalesetpriority",
    "kubernetes.azure.com/scale-set-priority": "kubernetes.azure.com/scalesetpriority",
    "kubernetes.azure.com/scalsetpriority": "kubernetes.azure.com/scalesetpriority",
    "scalesetpriority": "kubernetes.azure.com/scalesetpriority",
    "kubernetes.azure.com/node-pool": "kubernetes.azure.com/agentpool",
    "cloud.google.com/spot": "cloud.google.com/gke-spot",
    "cloud.google.com/gke_spot": "cloud.google.com/gke-spot",
    "gke-spot": "cloud.google.com/gke-spot",
    "cloud.google.com/preemptible": "cloud.google.com/gke-preemptible",
    "cloud.google.com/gke-preemptable": "cloud.google.com/gke-preemptible",
    "cloud.google.com/accelerator": "cloud.google.com/gke-accelerator",
    "node.kubernetes.io/instanceType": "node.kubernetes.io/instance-type",
    "failure-domain.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/zones": "topology.kubernetes.io/zone",
}


@pytest.mark.parametrize(("wrong", "right"), MISSPELT.items())
def test_a_misspelt_key_leads_to_the_key_that_nodes_have(wrong: str, right: str) -> None:
    assert key_meant(wrong) == right
    assert label_of(right) is not None


@pytest.mark.parametrize(
    "key",
    [
        "gpu",
        "pool",
        "capacity-type",
        "capacityType",
        "example.com/capacity-type",
        "karpenter.k8s.aws/instance-capability-flex",
        "karpenter.sh/nodepool-hash",
        "karpenter.azure.com/sku-name",
        "kubernetes.azure.com/os-sku",
        "kubernetes.azure.com/cluster",
        "cloud.google.com/gke-nodepool-type",
        "cloud.google.com/gke-boot-disk",
        "eks.amazonaws.com/sourceLaunchTemplateId",
        "eks.amazonaws.com/nodegroup-image",
        "topology.gke.io/zone",
        "topology.ebs.csi.aws.com/zone",
        "node.kubernetes.io/arch",
        "node-role.kubernetes.io/worker",
        "kubernetes.io/role",
        "nvidia.com/gpu.present",
        "/" * 10_000,
        "",
        *sorted(set(MISSPELT.values())),
    ],
)
def test_a_key_that_is_known_or_may_be_the_users_own_is_no_misspelling(key: str) -> None:
    assert key_meant(key) is None


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("kubernetes.azure.com/scalesetpriority", "Spot", "spot"),
        ("kubernetes.azure.com/scalesetpriority", "preemptible", "spot"),
        ("kubernetes.azure.com/priority", "SPOT", "spot"),
        ("eks.amazonaws.com/capacityType", "spot", "SPOT"),
        ("eks.amazonaws.com/capacityType", "on-demand", "ON_DEMAND"),
        ("karpenter.sh/capacity-type", "ON_DEMAND", "on-demand"),
        ("karpenter.sh/capacity-type", "ondemand", "on-demand"),
        ("karpenter.sh/capacity-type", "cheap", ""),
        ("cloud.google.com/gke-spot", "yes", "true"),
        ("cloud.google.com/gke-spot", "True", "true"),
        ("cloud.google.com/gke-spot", "", ""),
        ("cloud.google.com/gke-provisioning", "SPOT", "spot"),
        ("cloud.google.com/gke-accelerator", "NVIDIA-L4", "nvidia-l4"),
        ("kubernetes.io/arch", "x86_64", "amd64"),
        ("kubernetes.io/arch", "aarch64", "arm64"),
        ("kubernetes.io/os", "Linux", "linux"),
    ],
)
def test_another_value_leads_to_the_value_that_nodes_have(key: str, value: str, meant: str) -> None:
    label = label_of(key)
    assert label is not None
    assert value_meant(label, value) == meant


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("kubernetes.azure.com/scalesetpriority", "regular"),
        ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK"),
        ("karpenter.sh/capacity-type", "reserved"),
        ("cloud.google.com/gke-provisioning", "flex-start"),
        ("cloud.google.com/compute-class", "Performance"),
        ("kubernetes.io/arch", "wasm32-wasi"),
        ("topology.kubernetes.io/zone", "Rack-4"),
        ("karpenter.sh/nodepool", "GPU"),
    ],
)
def test_a_value_that_nodes_may_have_is_not_corrected(key: str, value: str) -> None:
    label = label_of(key)
    assert label is not None
    assert value_meant(label, value) is None


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
        ("europe-west4-a", "europe-west4"),
        ("eastus2-1", "eastus2"),
        ("1", None),
        ("rack-4", None),
        ("us-east-1", None),
    ],
)
def test_the_region_is_read_from_the_names_that_clouds_give_their_zones(zone: str, region: str | None) -> None:
    assert region_of(zone) == region
    assert region is None or is_region(region)


def test_the_type_of_a_machine_tells_its_cloud() -> None:
    aks = makers_of("node.kubernetes.io/instance-type", ["Standard_NC6s_v3"])

    assert aks == makers_of("kubernetes.azure.com/mode")
    assert aks.isdisjoint(makers_of("node.kubernetes.io/instance-type", ["g4dn.xlarge", "p3.2xlarge"]))
    assert aks & makers_of("node.kubernetes.io/instance-type", ["g4dn.xlarge", "Standard_NC6s_v3"])
    assert not makers_of("node.kubernetes.io/instance-type", ["g4dn.xlarge", "mine"])  # nothing is certain
