"""Node pools as people define them in objects and in Terraform's resources: read, or named as not read with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from spotwright.cli.pools_nodes import import_pools
from spotwright.pools.cluster_inventory import read_objects
from spotwright.pools.node_pool_files import Listing, listed_pools


def listing(*documents: Any) -> Listing:
    objects = read_objects("\n".join(json.dumps(one) for one in documents), "f")
    return listed_pools(objects.listings, "f", has_others=True)


def settings(*documents: Any) -> dict[str, Mapping[str, Any]]:
    return {pool.name: pool.settings for pool in listing(*documents).pools}


def imported(*documents: Any) -> Result:
    return CliRunner().invoke(import_pools, ["-"], input="\n".join(json.dumps(one) for one in documents))


def obj(api: str, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def terraform(*resources: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {"mode": "managed", "type": kind, "name": "this", "address": f"{kind}.this", "values": values}
        for kind, values in resources
    ]
    return {"format_version": "1.0", "values": {"root_module": {"resources": made}}}


SPOT_GROUP = {
    "capacity": "spot",
    "provider": "eks",
    "machine": "m5.xlarge",
    "region": "eu-west-1",
    "max_nodes": 4,
    "labels": {"team": "a"},
    "taints": ["spot=true:NoSchedule"],
}
FIELDS = {
    "region": "eu-west-1",
    "capacityType": "SPOT",
    "instanceTypes": ["m5.xlarge"],
    "labels": {"team": "a"},
}


@pytest.mark.parametrize(
    "document",
    [
        obj(
            "eks.aws.upbound.io/v1beta1",
            "NodeGroup",
            "train",
            {
                "forProvider": {
                    **FIELDS,
                    "taint": [{"key": "spot", "value": "true", "effect": "NO_SCHEDULE"}],
                    "scalingConfig": [{"minSize": 0, "maxSize": 4}],
                }
            },
        ),
        obj(
            "eks.aws.m.upbound.io/v1beta1",
            "NodeGroup",
            "group-x7k2p",
            {
                "forProvider": {
                    **FIELDS,
                    "taint": [{"key": "spot", "value": "true", "effect": "NO_SCHEDULE"}],
                    "scalingConfig": {"minSize": 0, "maxSize": 4},
                }
            },
            annotations={"crossplane.io/external-name": "train"},
        ),
        obj(
            "eks.aws.crossplane.io/v1alpha1",
            "NodeGroup",
            "train",
            {
                "forProvider": {
                    **FIELDS,
                    "taints": [{"key": "spot", "value": "true", "effect": "NO_SCHEDULE"}],
                    "scalingConfig": {"minSize": 0, "maxSize": 4},
                }
            },
        ),
        obj(
            "eks.services.k8s.aws/v1alpha1",
            "Nodegroup",
            "made-by-ack",
            {
                **FIELDS,
                "name": "train",
                "taints": [{"key": "spot", "value": "true", "effect": "NO_SCHEDULE"}],
                "scalingConfig": {"minSize": 0, "maxSize": 4},
            },
        ),
    ],
    ids=["upbound", "upbound namespaced", "provider-aws", "ack"],
)
def test_a_node_group_of_eks_is_the_same_pool_whichever_controller_makes_it(document: Any) -> None:
    assert settings(document) == {"train": SPOT_GROUP}


@pytest.mark.parametrize(
    "document",
    [
        obj(
            "container.cnrm.cloud.google.com/v1beta1",
            "ContainerNodePool",
            "l4",
            {
                "location": "us-central1",
                "autoscaling": {"minNodeCount": 0, "maxNodeCount": 4},
                "nodeConfig": {
                    "machineType": "g2-standard-8",
                    "spot": True,
                    "guestAccelerator": [{"type": "nvidia-l4", "count": 1}],
                    "taint": [{"key": "for", "value": "train", "effect": "NO_SCHEDULE"}],
                },
            },
        ),
        obj(
            "container.gcp.upbound.io/v1beta1",
            "NodePool",
            "l4",
            {
                "forProvider": {
                    "location": "us-central1",
                    "autoscaling": [{"minNodeCount": 0, "maxNodeCount": 4}],
                    "nodeConfig": [
                        {
                            "machineType": "g2-standard-8",
                            "spot": True,
                            "guestAccelerator": [{"type": "nvidia-l4", "count": 1}],
                            "taint": [{"key": "for", "value": "train", "effect": "NO_SCHEDULE"}],
                        }
                    ],
                }
            },
        ),
    ],
    ids=["Config Connector", "Crossplane"],
)
def test_a_node_pool_of_gke_is_the_same_pool_whichever_controller_makes_it(document: Any) -> None:
    assert settings(document) == {
        "l4": {
            "capacity": "spot",
            "provider": "gke",
            "machine": "g2-standard-8",
            "region": "us-central1",
            "node": {"nvidia.com/gpu": 1},
            "max_nodes": 4,
            "labels": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
            "taints": ["for=train:NoSchedule"],
        }
    }


def test_a_pool_of_aks_is_read_off_crossplane_and_azure_service_operator() -> None:
    crossplane = obj(
        "containerservice.azure.upbound.io/v1beta1",
        "KubernetesClusterNodePool",
        "spot",
        {
            "forProvider": {
                "vmSize": "Standard_D4s_v5",
                "priority": "Spot",
                "enableAutoScaling": True,
                "maxCount": 3,
                "nodeLabels": {"teamName": "a"},
            }
        },
    )
    operator = obj(
        "containerservice.azure.com/v1api20240901",
        "ManagedClustersAgentPool",
        "x",
        {
            "azureName": "spot",
            "vmSize": "Standard_D4s_v5",
            "scaleSetPriority": "Spot",
            "enableAutoScaling": True,
            "maxCount": 3,
            "nodeLabels": {"teamName": "a"},
        },
    )
    expected = {
        "spot": {
            "capacity": "spot",
            "provider": "aks",
            "machine": "Standard_D4s_v5",
            "max_nodes": 3,
            "labels": {"teamName": "a"},
        }
    }
    assert settings(crossplane) == settings(operator) == expected


@pytest.mark.parametrize(
    ("value", "capacity", "machine"),
    [
        ({"instanceType": "g5.2xlarge", "spotMarketOptions": {}}, "spot", "g5.2xlarge"),
        ({"vmSize": "Standard_D4s_v5", "spotVMOptions": {"maxPrice": 1}}, "spot", "Standard_D4s_v5"),
        ({"machineType": "n2-standard-8", "preemptible": True}, "spot", "n2-standard-8"),
        ({"machineType": "n2-standard-8", "provisioningModel": "Spot"}, "spot", "n2-standard-8"),
        ({"instanceType": "m5.xlarge"}, "on-demand", "m5.xlarge"),
    ],
)
def test_a_machine_set_says_capacity_and_machine_in_the_words_of_its_cloud(
    value: dict[str, Any], capacity: str, machine: str
) -> None:
    one = obj(
        "machine.openshift.io/v1beta1", "MachineSet", "set", {"template": {"spec": {"providerSpec": {"value": value}}}}
    )
    [pool] = settings(one).values()
    assert (pool["capacity"], pool["machine"]) == (capacity, machine)
    marked = "machine.openshift.io/interruptible-instance" in pool.get("labels", {})
    assert marked == (capacity == "spot")


def test_a_machine_set_has_the_size_of_its_annotations_and_the_limits_of_its_autoscaler() -> None:
    sizes = {
        "machine.openshift.io/vCPU": "8",
        "machine.openshift.io/memoryMb": "32768",
        "machine.openshift.io/GPU": "1",
    }
    spec = {"replicas": 0, "template": {"spec": {"providerSpec": {"value": {"instanceType": "g5.2xlarge"}}}}}
    one = obj("machine.openshift.io/v1beta1", "MachineSet", "gpu", spec, annotations=sizes)
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "gpu"}
    scaled = obj(
        "autoscaling.openshift.io/v1beta1",
        "MachineAutoscaler",
        "gpu",
        {"minReplicas": 1, "maxReplicas": 6, "scaleTargetRef": target},
    )
    [pool] = settings(scaled, one).values()
    assert (pool["min_nodes"], pool["max_nodes"]) == (1, 6)
    assert pool["node"] == {"cpu": "8", "memory": "32768Mi", "nvidia.com/gpu": "1"}
    [alone] = listing(one).pools
    assert "no upper limit is in the file: set max_nodes" in alone.notes


def test_an_instance_group_of_kops_is_a_pool_unless_it_is_the_control_plane() -> None:
    nodes = {
        "role": "Node",
        "maxPrice": "0.2",
        "machineType": "m5.large",
        "minSize": 0,
        "maxSize": 3,
        "nodeLabels": {"team": "a"},
        "taints": ["spot=true:NoSchedule"],
    }
    groups = (
        obj("kops.k8s.io/v1alpha2", "InstanceGroup", "nodes", nodes),
        obj("kops.k8s.io/v1alpha2", "InstanceGroup", "masters", {"role": "ControlPlane", "machineType": "m5.large"}),
    )
    [(name, pool)] = settings(*groups).items()
    assert (name, pool["capacity"], pool["taints"]) == ("nodes", "spot", ["spot=true:NoSchedule"])


GROUP: dict[str, Any] = {
    "name": "gpu",
    "min_size": 0,
    "max_size": 3,
    "tag": [
        {"key": "k8s.io/cluster-autoscaler/node-template/label/team", "value": "a"},
        {"key": "k8s.io/cluster-autoscaler/node-template/taint/spot", "value": "true:NoSchedule"},
        {"key": "k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu", "value": "1"},
    ],
}
TEMPLATE = {"id": "lt-1", "name": "gpu", "instance_type": "g5.xlarge"}


@pytest.mark.parametrize(
    ("group", "template", "capacity"),
    [
        ({"launch_template": [{"id": "lt-1"}]}, {"instance_market_options": [{"market_type": "spot"}]}, "spot"),
        ({"launch_template": [{"name": "gpu"}]}, {"instance_market_options": []}, "on-demand"),
        (
            {
                "mixed_instances_policy": [
                    {
                        "instances_distribution": [{"on_demand_percentage_above_base_capacity": 0}],
                        "launch_template": [{"launch_template_specification": [{"launch_template_id": "lt-1"}]}],
                    }
                ]
            },
            {},
            "spot",
        ),
    ],
    ids=["spot template", "template", "mixed"],
)
def test_a_self_managed_group_has_the_machine_and_market_of_its_launch_template(
    group: dict[str, Any], template: dict[str, Any], capacity: str
) -> None:
    document = terraform(
        ("aws_autoscaling_group", {**GROUP, **group}), ("aws_launch_template", {**TEMPLATE, **template})
    )
    assert settings(document) == {
        "gpu": {
            "capacity": capacity,
            "machine": "g5.xlarge",
            "node": {"nvidia.com/gpu": "1"},
            "max_nodes": 3,
            "labels": {"team": "a"},
            "taints": ["spot=true:NoSchedule"],
        }
    }


def test_a_group_whose_capacity_is_not_in_the_file_is_unknown_and_one_without_a_cluster_is_named() -> None:
    [pool] = listing(terraform(("aws_autoscaling_group", GROUP))).pools
    assert not pool.is_known
    web = ("aws_autoscaling_group", {"name": "web", "max_size": 2})
    result = imported(terraform(web, ("aws_eks_node_group", {"node_group_name": "a"})))
    assert "# Not read: aws_autoscaling_group web: no tag says" in result.stdout
    assert "warning: not read: aws_autoscaling_group web" in result.stderr


def test_a_capacity_block_ends_when_its_reservation_does() -> None:
    reservation = {"id": "cr-1", "end_date": "2026-12-05T11:30:00Z"}
    target = [{"capacity_reservation_target": [{"capacity_reservation_id": "cr-1"}]}]
    template = {**TEMPLATE, "instance_type": "p5.48xlarge", "capacity_reservation_specification": target}
    group = {"node_group_name": "h100", "capacity_type": "CAPACITY_BLOCK", "launch_template": [{"id": "lt-1"}]}
    [pool] = listing(
        terraform(
            ("aws_ec2_capacity_block_reservation", reservation),
            ("aws_launch_template", template),
            ("aws_eks_node_group", group),
        )
    ).pools
    assert pool.settings["machine"] == "p5.48xlarge"
    assert any("Capacity Block" in note and "ends at 2026-12-05T11:30:00Z" in note for note in pool.notes)


NODE_POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "cpu"},
    "spec": {
        "template": {
            "spec": {"requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]}
        }
    },
}


@pytest.mark.parametrize(
    "resource",
    [
        ("kubernetes_manifest", {"manifest": NODE_POOL}),
        ("kubectl_manifest", {"yaml_body": json.dumps(NODE_POOL)}),
        ("kubectl_manifest", {"yaml_body": f"---\n{json.dumps(NODE_POOL)}\n"}),
    ],
)
def test_objects_inside_resources_are_read_like_those_of_a_file(resource: tuple[str, dict[str, Any]]) -> None:
    result = imported(terraform(resource, ("aws_eks_node_group", {"node_group_name": "cpu", "capacity_type": "SPOT"})))
    assert result.exit_code == 0
    assert "\n  cpu:\n    capacity: spot\n    provider: eks" in result.stdout
    assert "\n  cpu-2:  # no node now\n    capacity: spot\n    provider: karpenter" in result.stdout


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        (
            ("kubectl_manifest", {"yaml_body": None}),
            "kubectl_manifest kubectl_manifest.this: its object is known after apply",
        ),
        (("kubectl_manifest", {"yaml_body": "a: [b"}), "its text cannot be read"),
        (
            ("oci_containerengine_node_pool", {"name": "a"}),
            "oci_containerengine_node_pool a: Spotwright reads no pools",
        ),
        (("digitalocean_kubernetes_node_pool", {"name": "d"}), "Spotwright reads no pools of this type"),
        (("google_container_cluster", {"name": "c", "enable_autopilot": True}), "Autopilot makes its nodes by itself"),
        (
            ("azurerm_kubernetes_cluster", {"name": "c", "node_provisioning_profile": [{"mode": "Auto"}]}),
            "NodePools of Karpenter",
        ),
        (
            ("aws_eks_cluster", {"name": "c", "compute_config": [{"enabled": True, "node_pools": ["system"]}]}),
            "Auto Mode makes nodes",
        ),
        (("helm_release", {"name": "pools", "values": ["nodePools: {gpu: {}}"]}), "its objects are not in the output"),
    ],
)
def test_what_makes_nodes_and_is_not_read_is_named_with_the_reason(
    resource: tuple[str, dict[str, Any]], said: str
) -> None:
    result = imported(terraform(resource, ("aws_eks_node_group", {"node_group_name": "a"})))
    assert "# Not read: " in result.stdout
    assert said in result.stdout
    assert said in result.stderr


def test_resources_without_nodes_are_counted_by_type() -> None:
    others = [("aws_iam_role", {"name": "a"}), ("aws_iam_role", {"name": "b"}), ("aws_vpc", {"id": "v"})]
    result = imported(terraform(*others, ("aws_eks_node_group", {"node_group_name": "a"})))
    assert "# 3 other resources make no nodes, as far as is known: 2 aws_iam_role, 1 aws_vpc." in result.stdout


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("cluster.x-k8s.io/v1beta1", "MachineDeployment"),
        ("infrastructure.cluster.x-k8s.io/v1beta2", "AWSManagedMachinePool"),
        ("hypershift.openshift.io/v1beta1", "NodePool"),
        ("core.gardener.cloud/v1beta1", "Shoot"),
    ],
)
def test_an_object_that_makes_nodes_and_has_no_reader_is_named_with_what_is_read(api: str, kind: str) -> None:
    alone = str(imported(obj(api, kind, "a", {})).exception)
    assert f"{kind} a: Spotwright reads no pools of this kind" in alone
    assert "gcloud container node-pools list" in alone
    beside = imported(obj(api, kind, "a", {}), NODE_POOL)
    assert f"# Not read: {kind} a: Spotwright reads no pools of this kind." in beside.stdout


def test_a_compute_class_is_pools_that_gke_makes_and_the_pools_that_it_orders_are_named() -> None:
    rules = [
        {"machineFamily": "g2", "gpu": {"type": "nvidia-l4", "count": 1}, "spot": True},
        {"nodepools": ["l4", "l4-old"]},
        {"machineType": "n4-standard-8", "maxRunDurationSeconds": 3600},
    ]
    found = listing(obj("cloud.google.com/v1", "ComputeClass", "ml", {"priorities": rules}))
    assert {pool.name: pool.settings["capacity"] for pool in found.pools} == {
        "ml-spot": "spot",
        "ml-on-demand": "on-demand",
    }
    assert all(pool.settings["automatic"] for pool in found.pools)
    assert found.pools[0].settings["create_flags"] == {"machineFamily": "g2"}
    assert found.pools[1].settings["max_lifetime"] == "3600s"
    assert [one.text for one in found.unread] == [
        "ComputeClass ml: it orders l4, l4-old, which gcloud container node-pools list --format=json shows"
    ]


def test_a_field_of_another_form_in_an_object_is_refused_with_its_place() -> None:
    broken = obj("eks.services.k8s.aws/v1alpha1", "Nodegroup", "a", {"instanceTypes": "m5.large"})
    assert "f: node pool 1 of aws: instanceTypes: expected a list" in str(imported(broken).exception).replace(
        "-:", "f:"
    )


def test_nodes_of_flex_start_and_capacity_blocks_are_said_to_end() -> None:
    def node(name: str, **labels: str) -> dict[str, Any]:
        return {"kind": "Node", "metadata": {"name": name, "labels": labels}}

    flexible = node(
        "a",
        **{
            "cloud.google.com/gke-nodepool": "flex",
            "cloud.google.com/gke-provisioning": "flex-start",
            "cloud.google.com/gke-max-run-duration-seconds": "7200",
        },
    )
    block = node("b", **{"eks.amazonaws.com/nodegroup": "block", "eks.amazonaws.com/capacityType": "CAPACITY_BLOCK"})
    text = imported(flexible, block).stdout
    assert "flex-start VMs: on-demand, and each ends after max_lifetime" in text
    assert "max_lifetime: 7200s" in text
    assert "Capacity Block: on-demand, and AWS ends its nodes" in text
