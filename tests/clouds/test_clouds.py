"""Labels and taints that providers set by themselves, combined with those of the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotwright.clouds import providers as clouds
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.model.pools import Capacity, Pool
from spotwright.model.scheduling_terms import Taint

AKS_SPOT = Taint("kubernetes.azure.com/scalesetpriority", "spot")
GPU = Taint("nvidia.com/gpu", "present")
GKE_SPOT = Taint("cloud.google.com/gke-spot", "true")


def pool(provider: str, capacity: Capacity = Capacity.SPOT, **fields: object) -> Pool:
    return replace(Pool(name="workers", capacity=capacity, provider=provider), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("provider", "key", "spot", "on_demand"),
    [
        ("aks", "kubernetes.azure.com/scalesetpriority", "spot", None),
        ("gke", "cloud.google.com/gke-spot", "true", None),
        ("gke", "cloud.google.com/gke-provisioning", "spot", "standard"),
        ("eks", "eks.amazonaws.com/capacityType", "SPOT", "ON_DEMAND"),
        ("karpenter", "karpenter.sh/capacity-type", "spot", "on-demand"),
    ],
)
def test_the_capacity_label_says_how_the_node_is_sold(
    provider: str, key: str, spot: str, on_demand: str | None
) -> None:
    assert clouds.labels(pool(provider)).get(key) == spot
    assert clouds.labels(pool(provider, Capacity.ON_DEMAND)).get(key) == on_demand


@pytest.mark.parametrize(
    ("provider", "key"),
    [
        ("aks", "kubernetes.azure.com/agentpool"),
        ("gke", "cloud.google.com/gke-nodepool"),
        ("eks", "eks.amazonaws.com/nodegroup"),
        ("karpenter", "karpenter.sh/nodepool"),
    ],
)
def test_the_pool_label_is_the_pools_name(provider: str, key: str) -> None:
    assert clouds.labels(pool(provider))[key] == "workers"


def test_a_preemptible_pool_of_gke_has_the_labels_of_its_form_alone() -> None:
    seen = clouds.labels(pool("gke", labels={"cloud.google.com/gke-preemptible": "true"}))
    assert seen["cloud.google.com/gke-preemptible"] == "true"
    assert seen["cloud.google.com/gke-provisioning"] == "preemptible"
    assert "cloud.google.com/gke-spot" not in seen


def test_a_low_priority_pool_of_aks_has_the_taint_of_its_form() -> None:
    low = pool("aks", labels={"kubernetes.azure.com/scalesetpriority": "low"})
    assert clouds.taints(low) == (Taint("kubernetes.azure.com/scalesetpriority", "low"),)


def test_a_generic_pool_has_no_label_but_its_own() -> None:
    assert clouds.labels(pool("generic", labels={"gpu": "true"})) == {"gpu": "true"}


def test_the_machine_and_the_only_zone_are_labels_everywhere() -> None:
    seen = clouds.labels(pool("generic", machine="e2-standard-4", zones=("europe-west1-b",)))

    assert seen == {
        "node.kubernetes.io/instance-type": "e2-standard-4",
        "topology.kubernetes.io/zone": "europe-west1-b",
    }


@pytest.mark.parametrize("zone", ["1", "eastus-1"])
def test_a_zone_of_aks_is_labelled_with_its_region(zone: str) -> None:
    seen = clouds.labels(pool("aks", zones=(zone,), region="eastus"))
    assert seen["topology.kubernetes.io/zone"] == "eastus-1"


def test_the_label_of_a_zone_of_aks_is_not_known_without_the_region() -> None:
    without = pool("aks", zones=("1", "2"))
    assert clouds.unknown_zones(without) == ("1", "2")
    assert all("topology.kubernetes.io/zone" not in labels for labels in clouds.labels_by_zone(without))
    assert clouds.unknown_zones(pool("aks", zones=("eastus-1",))) == ()


def test_karpenter_on_azure_labels_zones_as_aks_does() -> None:
    made = pool("karpenter", zones=("2",), region="eastus", machine="Standard_D4s_v3")
    assert clouds.labels(made)["topology.kubernetes.io/zone"] == "eastus-2"


def test_nodes_differ_by_the_zones_of_their_pool() -> None:
    kinds = clouds.labels_by_zone(pool("aks", zones=("1", "2"), region="eastus"))
    assert [labels["topology.kubernetes.io/zone"] for labels in kinds] == ["eastus-1", "eastus-2"]
    assert len(clouds.labels_by_zone(pool("generic"))) == 1


def test_several_zones_are_no_label_of_the_pool() -> None:
    assert "topology.kubernetes.io/zone" not in clouds.labels(pool("gke", zones=("a", "b")))


def test_a_label_of_the_configuration_overrides_the_providers() -> None:
    named = pool("aks", labels={"kubernetes.azure.com/agentpool": "spotgpu"})

    assert clouds.labels(named)["kubernetes.azure.com/agentpool"] == "spotgpu"


def test_aks_labels_gpu_nodes() -> None:
    assert clouds.labels(pool("aks", node={"nvidia.com/gpu": 1}))["kubernetes.azure.com/accelerator"] == "nvidia"
    assert "kubernetes.azure.com/accelerator" not in clouds.labels(pool("aks", node={"cpu": 1000}))


def test_aks_taints_spot_nodes_by_itself_and_no_others() -> None:
    assert clouds.taints(pool("aks")) == (AKS_SPOT,)
    assert clouds.taints(pool("aks", Capacity.ON_DEMAND)) == ()


def test_gke_taints_gpu_nodes_of_either_kind_by_itself() -> None:
    assert clouds.taints(pool("gke", node={"nvidia.com/gpu": 4})) == (GPU,)
    assert clouds.taints(pool("gke", Capacity.ON_DEMAND, node={"nvidia.com/gpu": 4})) == (GPU,)


def test_gke_does_not_taint_spot_pools_made_by_hand() -> None:
    assert clouds.taints(pool("gke")) == ()
    assert clouds.taints(pool("gke", taints=(GKE_SPOT,))) == (GKE_SPOT,)


@pytest.mark.parametrize("provider", ["eks", "karpenter", "generic"])
def test_the_others_add_no_taint(provider: str) -> None:
    own = Taint("team", "a")

    assert clouds.taints(pool(provider, taints=(own,), node={"nvidia.com/gpu": 1})) == (own,)


def test_no_taint_occurs_twice() -> None:
    assert clouds.taints(pool("aks", taints=(AKS_SPOT, AKS_SPOT))) == (AKS_SPOT,)


def test_a_configured_taint_is_the_only_one_of_its_key_and_effect() -> None:
    own = Taint("nvidia.com/gpu", "a100")

    assert clouds.taints(pool("gke", taints=(own,), node={"nvidia.com/gpu": 1})) == (own,)


@pytest.mark.parametrize(
    "taint", [AKS_SPOT, GKE_SPOT, Taint("preemptible", "true"), Taint("karpenter.sh/capacity-type", "spot")]
)
def test_known_keys_mean_spot_with_every_provider(taint: Taint) -> None:
    assert all(clouds.is_spot_taint(pool(provider), taint) for provider in PROVIDERS)


@pytest.mark.parametrize(
    ("provider", "capacity", "expected"),
    [
        ("generic", Capacity.SPOT, True),
        ("generic", Capacity.ON_DEMAND, False),
        ("aks", Capacity.SPOT, False),
        ("eks", Capacity.SPOT, False),
    ],
)
def test_an_unknown_taint_means_spot_on_generic_spot_pools_only(
    provider: str, capacity: Capacity, expected: bool
) -> None:
    assert clouds.is_spot_taint(pool(provider, capacity), Taint("cheap")) is expected


def test_a_gpu_taint_never_means_spot() -> None:
    assert not clouds.is_spot_taint(pool("generic"), GPU)


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        (GPU, True),
        (Taint("amd.com/gpu"), True),
        (Taint("sku", "gpu"), True),
        (Taint("gpu", "true"), True),
        (Taint("example.com/gpu", "present"), True),
        (Taint("google.com/tpu", "present"), True),
        (Taint("dedicated", "gpu"), True),
        (Taint("type", "gpu-spot"), False),
        (Taint("sku", "large"), False),
        (AKS_SPOT, False),
    ],
)
def test_gpu_taints_are_known_by_a_resource_or_by_the_word_for_it(taint: Taint, expected: bool) -> None:
    assert clouds.is_gpu_taint(taint) is expected


def test_each_provider_has_its_documented_notice() -> None:
    assert {one.name: one.notice for one in PROVIDERS.values()} == {
        "aks": 30.0,
        "gke": 30.0,
        "eks": 120.0,
        "oke": 120.0,
        "karpenter": 120.0,
        "generic": 30.0,
    }


@pytest.mark.parametrize(
    ("keys", "providers"),
    [
        (["kubernetes.azure.com/scalesetpriority"], ("aks",)),
        (["cloud.google.com/gke-preemptible", "gpu"], ("gke",)),
        (["eks.amazonaws.com/capacityType", "karpenter.sh/capacity-type"], ("eks", "karpenter")),
        (["spot", "preemptible"], ()),
    ],
)
def test_a_key_with_a_domain_names_its_provider(keys: list[str], providers: tuple[str, ...]) -> None:
    assert tuple(one.name for one in clouds.providers_of(keys)) == providers


@pytest.mark.parametrize(("provider", "notice", "of_pods"), [("gke", 30, 15), ("gke", 120, 120), ("aks", 30, 30)])
def test_pods_get_half_of_the_notice_of_gke_unless_somebody_made_it_longer(
    provider: str, notice: float, of_pods: float
) -> None:
    assert clouds.notice_of_pods(pool(provider, notice=notice)) == of_pods


def test_the_pool_of_a_node_is_the_one_whose_labels_it_has_and_of_several_the_one_with_the_most() -> None:
    pools = {
        "large": pool("generic", name="large", labels={"team": "a", "size": "large"}),
        "any": pool("generic", name="any", labels={"team": "a"}),
        "bare": pool("generic", name="bare"),
    }

    def name(**labels: str) -> str | None:
        found = clouds.pool_of({"host": "n1", **labels}, pools)
        return None if found is None else found.name

    assert (name(team="a"), name(team="a", size="large"), name(team="b"), name()) == ("any", "large", None, None)


@pytest.mark.parametrize(
    ("resource", "gpu", "accelerator"),
    [
        ("nvidia.com/gpu", True, True),
        ("nvidia.com/gpu.shared", True, True),
        ("nvidia.com/mig-1g.5gb", True, True),
        ("amd.com/gpu", True, True),
        ("gpu.intel.com/i915", True, True),
        ("google.com/tpu", False, True),
        ("vpc.amazonaws.com/efa", False, False),
        ("memory", False, False),
    ],
)
def test_gpus_their_parts_and_tpus_are_known_by_the_names_of_device_plugins(
    resource: str, gpu: bool, accelerator: bool
) -> None:
    assert (clouds.is_gpu(resource), clouds.is_accelerator(resource)) == (gpu, accelerator)


@pytest.mark.parametrize(
    ("provider", "name", "at_provider"),
    [
        ("aks", "gpu-spot", "gpuspot"),
        ("aks", "a-pool-of-a-long-name", None),
        ("aks", "4gpus", None),
        ("gke", "gpu-spot", "gpu-spot"),
        ("gke", "4gpus", None),
        ("eks", "4gpus", "4gpus"),
        ("karpenter", "gpu-spot", "gpu-spot"),
    ],
)
def test_a_pool_has_a_name_that_its_provider_allows(provider: str, name: str, at_provider: str | None) -> None:
    assert clouds.pool_name(Pool(name, Capacity.SPOT, provider)) == at_provider


def test_the_label_of_the_configuration_names_the_pool_at_its_provider() -> None:
    pool = Pool("gpu-spot", Capacity.SPOT, "aks", labels={"kubernetes.azure.com/agentpool": "gpus", "team": "a"})
    assert clouds.pool_name(pool) == "gpus"
    assert clouds.own_labels(pool) == {"team": "a"}
