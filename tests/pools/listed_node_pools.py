"""Node pools as the tools of their providers list them: one document of each form."""

from __future__ import annotations

from typing import Any

__all__ = ["AWS", "AZ", "EKSCTL", "GCLOUD", "PLAN", "RESOURCES", "SHOWN", "STATE"]

AZ = [
    {
        "name": "system",
        "vmSize": "Standard_D2s_v3",
        "mode": "System",
        "count": 1,
        "enableAutoScaling": False,
        "minCount": None,
        "maxCount": None,
        "scaleSetPriority": None,
        "nodeLabels": None,
        "nodeTaints": None,
        "osType": "Linux",
        "osDiskSizeGb": 128,
    },
    {
        "name": "gpuspot",
        "vmSize": "Standard_NC6s_v3",
        "mode": "User",
        "count": 0,
        "enableAutoScaling": True,
        "minCount": 0,
        "maxCount": 4,
        "availabilityZones": ["1", "2"],
        "scaleSetPriority": "Spot",
        "scaleSetEvictionPolicy": "Delete",
        "spotMaxPrice": -1.0,
        "nodeLabels": {"kubernetes.azure.com/scalesetpriority": "spot", "gpu": "true"},
        "nodeTaints": ["kubernetes.azure.com/scalesetpriority=spot:NoSchedule", "sku=gpu:NoSchedule"],
        "osType": "Linux",
        "vnetSubnetId": "/subscriptions/1/subnets/nodes",
    },
]
GCLOUD = {
    "name": "t4",
    "config": {
        "machineType": "n1-standard-8",
        "spot": True,
        "labels": {"team": "a"},
        "taints": [{"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NO_SCHEDULE"}],
        "accelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "1"}],
        "imageType": "COS_CONTAINERD",
        "serviceAccount": "default",
        "diskSizeGb": 100,
    },
    "autoscaling": {"enabled": True, "maxNodeCount": 5},
    "locations": ["us-central1-a", "us-central1-b"],
    "initialNodeCount": 1,
}
AWS = {
    "nodegroup": {
        "nodegroupName": "Train_Spot",
        "nodegroupArn": "arn:aws:eks:eu-west-1:1:nodegroup/c/Train_Spot/1",
        "capacityType": "SPOT",
        "instanceTypes": ["m6g.large", "m7g.large"],
        "amiType": "AL2023_ARM_64_STANDARD",
        "scalingConfig": {"minSize": 0, "maxSize": 9, "desiredSize": 0},
        "labels": {"team": "a"},
        "taints": [{"key": "spot", "value": "true", "effect": "NO_SCHEDULE"}],
        "diskSize": 50,
    }
}
EKSCTL = {
    "StackName": "eksctl-c-nodegroup-ng",
    "Cluster": "c",
    "Name": "ng",
    "MaxSize": 4,
    "MinSize": 0,
    "InstanceType": "m5.large",
    "ImageID": "AL2_x86_64",
    "Type": "managed",
}
AZURERM = {
    "name": "spot",
    "kubernetes_cluster_id": "/c",
    "vm_size": "Standard_D4s_v3",
    "priority": "Spot",
    "spot_max_price": 0.5,
    "auto_scaling_enabled": True,
    "min_count": 1,
    "max_count": 5,
    "node_labels": {"team": "a"},
    "node_taints": ["kubernetes.azure.com/scalesetpriority=spot:NoSchedule"],
    "zones": ["1"],
}
AZURERM_CLUSTER = {
    "id": "/c",
    "location": "westeurope",
    "default_node_pool": [
        {"name": "system", "vm_size": "Standard_D2s_v3", "node_count": 1, "only_critical_addons_enabled": True}
    ],
}
GOOGLE = {
    "name": "l4",
    "cluster": "g",
    "location": "us-central1",
    "node_locations": ["us-central1-a"],
    "autoscaling": [{"min_node_count": 0, "max_node_count": 3, "total_max_node_count": 0}],
    "node_config": [
        {
            "machine_type": "g2-standard-8",
            "spot": True,
            "taint": [{"key": "gpu", "value": "true", "effect": "NO_SCHEDULE"}],
            "guest_accelerator": [{"type": "nvidia-l4", "count": 1, "gpu_sharing_config": []}],
        }
    ],
}
EKS_GROUP = {
    "node_group_name": "spot",
    "cluster_name": "c",
    "capacity_type": "SPOT",
    "instance_types": ["m5.large"],
    "scaling_config": [{"min_size": 0, "max_size": 3, "desired_size": 0}],
    "taint": [{"key": "spot", "value": "true", "effect": "NO_SCHEDULE"}],
}


def resource(kind: str, values: dict[str, Any], mode: str = "managed") -> dict[str, Any]:
    return {"mode": mode, "type": kind, "name": "this", "values": values}


RESOURCES = [
    resource("azurerm_kubernetes_cluster", AZURERM_CLUSTER),
    resource("azurerm_kubernetes_cluster_node_pool", AZURERM),
    resource("aws_vpc", {"id": "v"}),
]
INSIDE = [
    resource("google_container_node_pool", GOOGLE),
    resource("google_container_cluster", {"name": "g", "node_pool": [{"name": "l4", "node_config": []}]}),
    resource("aws_eks_node_group", EKS_GROUP),
    resource("aws_eks_node_group", {"node_group_name": "read"}, mode="data"),
]
MODULES = {"root_module": {"resources": RESOURCES, "child_modules": [{"child_modules": [{"resources": INSIDE}]}]}}
SHOWN = {"format_version": "1.0", "terraform_version": "1.9.0", "values": MODULES}
PLAN = {"format_version": "1.2", "terraform_version": "1.9.0", "planned_values": MODULES, "prior_state": {}}
STATE = {
    "version": 4,
    "terraform_version": "1.9.0",
    "resources": [
        {"mode": one["mode"], "type": one["type"], "instances": [{"attributes": one["values"]}]}
        for one in (*RESOURCES, *INSIDE)
    ],
}
