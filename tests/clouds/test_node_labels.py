"""Labels that nobody writes: derived where the pool tells their value, else possible on the nodes of whoever sets them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotwright.clouds import providers
from spotwright.clouds.node_labels import known, refusal, setter, unknown
from spotwright.model.pools import Capacity, Pool
from spotwright.model.scheduling_terms import Constraints, Expression, Term

GPU = {"cpu": 8000, "nvidia.com/gpu": 1}
AKS = Pool("gpu", Capacity.SPOT, "aks", "Standard_NC6s_v3", node=GPU, region="eastus", zones=("1",))
GKE = Pool("gpu", Capacity.SPOT, "gke", "g2-standard-8", node=GPU, zones=("us-central1-a",))
EKS = Pool("gpu", Capacity.SPOT, "eks", "g5.2xlarge", node=GPU, zones=("us-east-1a",))
KARPENTER = Pool("gpu", Capacity.SPOT, "karpenter", "g5.2xlarge", node=GPU)
NAP = Pool("gpu", Capacity.SPOT, "karpenter", "Standard_NC24ads_A100_v4", node=GPU)
TPU = Pool("tpu", Capacity.SPOT, "gke", "ct5lp-hightpu-4t", node={"google.com/tpu": 4})
OTHER = Pool("other", Capacity.SPOT)
PLAIN = Pool("plain", Capacity.SPOT, "gke", "e2-standard-4", node={"cpu": 4000})


def selecting(key: str, value: str) -> Constraints:
    return Constraints(selector={key: value})


@pytest.mark.parametrize(
    ("pool", "key", "value"),
    [
        (AKS, "agentpool", "gpu"),
        (AKS, "kubernetes.azure.com/agentpool", "gpu"),
        (AKS, "accelerator", "nvidia"),
        (AKS, "kubernetes.azure.com/accelerator", "nvidia"),
        (AKS, "beta.kubernetes.io/instance-type", "Standard_NC6s_v3"),
        (AKS, "topology.kubernetes.io/zone", "eastus-1"),
        (AKS, "topology.kubernetes.io/region", "eastus"),
        (AKS, "topology.disk.csi.azure.com/zone", "eastus-1"),
        (AKS, "kubernetes.io/arch", "amd64"),
        (AKS, "kubernetes.io/os", "linux"),
        (GKE, "cloud.google.com/gke-accelerator", "nvidia-l4"),
        (GKE, "cloud.google.com/gke-accelerator-count", "1"),
        (GKE, "cloud.google.com/machine-family", "g2"),
        (GKE, "topology.gke.io/zone", "us-central1-a"),
        (GKE, "failure-domain.beta.kubernetes.io/region", "us-central1"),
        (TPU, "cloud.google.com/gke-tpu-accelerator", "tpu-v5-lite-podslice"),
        (EKS, "topology.kubernetes.io/region", "us-east-1"),
        (EKS, "topology.ebs.csi.aws.com/zone", "us-east-1a"),
        (KARPENTER, "karpenter.k8s.aws/instance-family", "g5"),
        (KARPENTER, "karpenter.k8s.aws/instance-category", "g"),
        (KARPENTER, "karpenter.k8s.aws/instance-generation", "5"),
        (KARPENTER, "karpenter.k8s.aws/instance-size", "2xlarge"),
        (KARPENTER, "karpenter.k8s.aws/instance-gpu-count", "1"),
        (KARPENTER, "eks.amazonaws.com/instance-family", "g5"),
        (NAP, "karpenter.azure.com/sku-family", "N"),
        (NAP, "karpenter.azure.com/sku-name", "Standard_NC24ads_A100_v4"),
    ],
)
def test_a_label_is_derived_from_the_machine_the_zones_and_the_name(pool: Pool, key: str, value: str) -> None:
    assert [labels[key] for labels in known(pool)] == [value]
    assert refusal(pool, selecting(key, value), ()) == ""
    assert refusal(pool, selecting(key, f"{value}x"), ()) == f"its node selector asks for {key}={value}x"


@pytest.mark.parametrize(
    ("pool", "key", "who"),
    [
        (AKS, "kubernetes.azure.com/mode", "AKS"),
        (AKS, "kubernetes.azure.com/os-sku", "AKS"),
        (AKS, "kubernetes.azure.com/cluster", "AKS"),
        (AKS, "kubernetes.azure.com/node-image-version", "AKS"),
        (AKS, "storageprofile", "AKS"),
        (AKS, "kubernetes.io/hostname", "Kubernetes"),
        (AKS, "node.kubernetes.io/windows-build", "Kubernetes"),
        (OTHER, "kubernetes.io/arch", "Kubernetes"),
        (OTHER, "topology.kubernetes.io/zone", "Kubernetes"),
        (OTHER, "node-role.kubernetes.io/worker", "Kubernetes"),
        (OTHER, "feature.node.kubernetes.io/cpu-model.vendor_id", "node feature discovery"),
        (OTHER, "nvidia.com/gpu.product", "GPU feature discovery"),
        (OTHER, "ray.io/accelerator-type", "Ray"),
        (GKE, "cloud.google.com/gke-boot-disk", "GKE"),
        (GKE, "cloud.google.com/gke-os-distribution", "GKE"),
        (GKE, "cloud.google.com/gke-gpu-driver-version", "GKE"),
        (GKE, "cloud.google.com/gke-max-pods-per-node", "GKE"),
        (TPU, "cloud.google.com/gke-tpu-topology", "GKE"),
        (EKS, "eks.amazonaws.com/nodegroup-image", "EKS"),
        (EKS, "alpha.eksctl.io/cluster-name", "EKS"),
        (EKS, "k8s.amazonaws.com/accelerator", "eksctl"),
        (EKS, "topology.k8s.aws/zone-id", "AWS"),
        (KARPENTER, "karpenter.k8s.aws/instance-gpu-memory", "Karpenter"),
        (KARPENTER, "karpenter.k8s.aws/instance-cpu", "Karpenter"),
        (KARPENTER, "eks.amazonaws.com/compute-type", "EKS Auto Mode"),
        (NAP, "karpenter.azure.com/sku-cpu", "Karpenter"),
        (NAP, "kubernetes.azure.com/os-sku", "AKS"),
    ],
)
def test_a_label_of_unknown_value_may_be_met(pool: Pool, key: str, who: str) -> None:
    assert setter(pool, key) == who
    assert key in unknown(pool)
    assert refusal(pool, selecting(key, "any"), ()) == ""
    assert refusal(pool, Constraints(required=(Term((Expression(key, "DoesNotExist"),)),)), ()) == ""


@pytest.mark.parametrize(
    ("pool", "key"),
    [
        (AKS, "cloud.google.com/gke-accelerator"),  # of another cloud
        (EKS, "karpenter.k8s.aws/instance-family"),  # of another autoscaler
        (KARPENTER, "karpenter.azure.com/sku-cpu"),  # of another cloud of the same autoscaler
        (OTHER, "kubernetes.azure.com/mode"),
        (PLAIN, "cloud.google.com/gke-accelerator"),  # a node of that size has no GPU
        (PLAIN, "nvidia.com/gpu.product"),
        (GKE, "cloud.google.com/gke-tpu-topology"),
        (GKE, "cloud.google.com/gke-preemptible"),  # how a node is sold is known
        (AKS, "team"),
        (AKS, "kubernetes.azure.com/scaleSetPriority"),
    ],
)
def test_a_label_that_nobody_sets_there_is_not_met(pool: Pool, key: str) -> None:
    assert setter(pool, key) == ""
    assert refusal(pool, selecting(key, "any"), ()) == f"its node selector asks for {key}=any"


def test_a_condition_on_the_tpus_of_a_machine_is_decided() -> None:
    pool = replace(GKE, machine="tpu7x-standard-4t")
    assert refusal(pool, selecting("cloud.google.com/gke-tpu-accelerator", "tpu-v6e-slice"), ()) != ""
    assert refusal(pool, selecting("cloud.google.com/gke-tpu-accelerator", "tpu7x"), ()) == ""


def test_what_the_configuration_says_overrides_what_the_machine_tells() -> None:
    pool = replace(GKE, labels={"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"})
    assert refusal(pool, selecting("cloud.google.com/gke-accelerator", "nvidia-tesla-t4"), ()) == ""


@pytest.mark.parametrize("key", ["cloud.google.com/gke-accelerator", "agentpool", "karpenter.k8s.aws/instance-family"])
def test_the_built_in_pools_stand_for_those_of_any_cloud(key: str) -> None:
    assert all(key in unknown(pool) for pool in providers.built_in_pools().values())


@pytest.mark.parametrize(
    ("provider", "machine", "architecture"),
    [
        ("eks", "m7g.large", "arm64"),
        ("eks", "c6gn.xlarge", "arm64"),
        ("eks", "a1.large", "arm64"),
        ("eks", "g5g.xlarge", "arm64"),
        ("eks", "g5.xlarge", "amd64"),
        ("eks", "gr6.4xlarge", "amd64"),
        ("eks", "u-6tb1.metal", "amd64"),
        ("aks", "Standard_D4ps_v5", "arm64"),
        ("aks", "Standard_E8pds_v6", "arm64"),
        ("aks", "Standard_NP10s", "amd64"),
        ("aks", "Standard_NC24ads_A100_v4", "amd64"),
        ("gke", "c4a-standard-8", "arm64"),
        ("gke", "t2a-standard-4", "arm64"),
        ("gke", "c3-standard-8", "amd64"),
    ],
)
def test_the_machine_tells_the_architecture(provider: str, machine: str, architecture: str) -> None:
    pool = Pool("a", Capacity.SPOT, provider, machine)
    assert known(pool)[0]["kubernetes.io/arch"] == architecture
