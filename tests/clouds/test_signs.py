"""No sign on a node has two meanings, and each has the one that its cloud, provisioner or person gave it."""

from __future__ import annotations

import pytest

from spotwright.clouds import node_signs, providers
from spotwright.clouds.node_labels import is_set_by_system
from spotwright.clouds.node_signs import is_passing_taint
from spotwright.model.pools import Capacity, Pool
from spotwright.model.scheduling_terms import Taint


def test_no_taint_means_both_that_the_provider_takes_the_node_and_that_our_side_removes_it() -> None:
    kinds = [
        node_signs.TAKEN_TAINTS,
        node_signs.AUTO_DRAIN_TAINTS,
        set(node_signs.REMOVED_TAINTS),
        node_signs.GONE_TAINTS,
        node_signs.UNREACHABLE_TAINTS,
    ]

    assert len(set().union(*kinds)) == sum(len(kind) for kind in kinds)


def test_no_event_means_both() -> None:
    kinds = [node_signs.TAKEN_EVENTS, set(node_signs.REMOVED_EVENTS), node_signs.GONE_EVENTS]

    assert len(set().union(*kinds)) == sum(len(kind) for kind in kinds)


def test_every_removal_has_a_sentence_for_people() -> None:
    sentences = [*node_signs.REMOVED_TAINTS.values(), *node_signs.REMOVED_EVENTS.values()]

    assert all(sentence and not sentence.endswith(".") for sentence in sentences)


@pytest.mark.parametrize(
    ("label", "is_spot"),
    [
        ("scheduling.cast.ai/spot=true", True),
        ("spotinst.io/node-lifecycle=spot", True),
        ("spotinst.io/node-lifecycle=od", False),
        ("cluster.x-k8s.io/interruptible=", True),
        ("machine.openshift.io/interruptible-instance=", True),
        ("oci.oraclecloud.com/oke-is-preemptible=true", True),
        ("yandex.cloud/preemptible=false", False),
        ("node.alibabacloud.com/spot-strategy=SpotAsPriceGo", True),
        ("node-role.kubernetes.io/spot-worker=true", True),
        ("node-role.kubernetes.io/spot=", True),
        ("karpenter.sh/capacity-type=reserved", False),
        ("eks.amazonaws.com/capacityType=CAPACITY_BLOCK", False),
        ("cloud.google.com/gke-provisioning=flex-start", False),
        ("kubernetes.azure.com/scalesetpriority=regular", False),
        ("lifecycle=Ec2Spot", True),
        ("LifeCycle=Ec2Spot", True),
        ("node-lifecycle=on-demand", False),
        ("node.kubernetes.io/lifecycle=normal", False),
        ("node.kubernetes.io/capacity-type=spot", True),
        ("example.com/spot=true", True),
        ("example.com/node.is-spot=yes", True),
        ("aws.amazon.com/spot=true", True),
        ("instance-market-type=spot", True),
        ("purchase-option=ON_DEMAND", False),
        ("node-type=spot", True),
        ("spot=false", False),
        ("spot-price=0.1", None),
        ("lifecycle=production", None),
        ("node-class=standard", None),
        ("team=spot", None),
        ("eks.amazonaws.com/nodegroup=spot", None),
    ],
)
def test_a_label_says_spot_or_on_demand_or_neither(label: str, is_spot: bool | None) -> None:
    key, _, value = label.partition("=")
    assert providers.is_spot_node({"kubernetes.io/os": "linux", key: value}, ()) is is_spot


def test_what_a_cloud_says_counts_before_what_people_say() -> None:
    assert (
        providers.is_spot_node({"karpenter.sh/capacity-type": "on-demand", "lifecycle": "Ec2Spot"}, ["spot"]) is False
    )
    assert providers.is_spot_node({"eks.amazonaws.com/capacityType": "SPOT", "spot": "false"}, ()) is True
    assert providers.is_spot_node({"lifecycle": "OnDemand"}, ["spot"]) is True


@pytest.mark.parametrize(
    "key", ["scheduling.cast.ai/spot", "oci.oraclecloud.com/oke-is-preemptible", "example.com/spot"]
)
def test_a_taint_of_spot_nodes_is_known_on_nodes_and_tolerated_for_a_spot_policy(key: str) -> None:
    pool = Pool("a", Capacity.SPOT, "eks")
    assert providers.is_spot_node({}, [key]) is True
    assert providers.is_spot_taint(pool, Taint(key, "true"))


def test_the_taint_of_windows_nodes_stays_and_those_of_conditions_pass() -> None:
    assert not is_passing_taint("node.kubernetes.io/os")
    assert is_passing_taint("node.kubernetes.io/not-ready")


@pytest.mark.parametrize(
    ("key", "is_system"),
    [
        ("team", False),
        ("example.com/pool", False),
        ("node-role.kubernetes.io/infra", False),
        ("node.kubernetes.io/lifecycle", False),
        ("cloud.google.com/gke-accelerator", False),
        ("node.kubernetes.io/instance-type", True),
        ("kubernetes.io/hostname", True),
        ("kubernetes.azure.com/node-image-version", True),
        ("karpenter.k8s.aws/instance-family", True),
        ("nvidia.com/gpu.product", True),
        ("provisioner.cast.ai/node-id", True),
        ("agentpool", True),
    ],
)
def test_labels_that_people_set_are_told_from_those_of_systems(key: str, is_system: bool) -> None:
    assert is_set_by_system(key) is is_system


@pytest.mark.parametrize(
    ("resource", "is_accelerator"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("google.com/tpu", True),
        ("aws.amazon.com/neuroncore", True),
        ("habana.ai/gaudi", True),
        ("huawei.com/Ascend910", True),
        ("rdma/hca_shared_devices_a", False),
        ("vpc.amazonaws.com/pod-eni", False),
        ("cpu", False),
    ],
)
def test_accelerators_are_known_by_their_resource(resource: str, is_accelerator: bool) -> None:
    assert providers.is_accelerator(resource) is is_accelerator
