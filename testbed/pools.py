"""Pools that imitate AKS, GKE and EKS: the labels, taints and machine ids that nodes of each cloud carry.

Node 1 is an on-demand pool of its own, all further nodes are the spot pool. The facts are the clouds' documented ones, and
written here once more, independently of :mod:`spotwright.clouds`, so that tests compare two readings of them:

- AKS: https://learn.microsoft.com/azure/aks/spot-node-pool
- GKE: https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms
- EKS: https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html, "Managed node group capacity types"

GKE adds no taint to spot pools by itself in Standard clusters; its guide recommends the one that the test bed sets.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NodeIdentity", "identity"]

_AKS_GROUP = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mc_testbed/providers"
_AKS_SPOT = "kubernetes.azure.com/scalesetpriority"


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The cloud's properties of a node. ``resource`` is the machine's name in its metadata server."""

    pool: str
    spot: bool
    labels: dict[str, str]
    taints: tuple[str, ...]  # key=value:effect
    provider_id: str
    resource: str


def identity(cloud: str, number: int, *, spot: bool | None = None) -> NodeIdentity:
    """The identity of a node in a cloud; by default of the spot pool from the second node on."""
    spot = number > 1 if spot is None else spot
    return {"aks": _aks, "gke": _gke, "eks": _eks}[cloud](number, spot)


def _aks(number: int, spot: bool) -> NodeIdentity:
    pool = "spot" if spot else "system"
    scale_set = f"aks-{pool}-12345678-vmss"
    labels = {
        "agentpool": pool,
        "kubernetes.azure.com/agentpool": pool,
        "kubernetes.azure.com/mode": "user" if spot else "system",
        **_common("Standard_D2s_v5", "westeurope", "westeurope-1"),
    }
    if spot:
        labels[_AKS_SPOT] = "spot"
    machine = f"{_AKS_GROUP}/Microsoft.Compute/virtualMachineScaleSets/{scale_set}/virtualMachines/{number}"
    taints = (f"{_AKS_SPOT}=spot:NoSchedule",) if spot else ()
    return NodeIdentity(pool, spot, labels, taints, f"azure://{machine}", f"{scale_set}_{number}")


def _gke(number: int, spot: bool) -> NodeIdentity:
    pool = "spot-pool" if spot else "default-pool"
    labels = {
        "cloud.google.com/gke-nodepool": pool,
        "cloud.google.com/gke-provisioning": "spot" if spot else "standard",
        **_common("e2-standard-2", "europe-west4", "europe-west4-a"),
    }
    if spot:
        labels["cloud.google.com/gke-spot"] = "true"
    taints = ("cloud.google.com/gke-spot=true:NoSchedule",) if spot else ()
    machine = f"gke-testbed-{pool}-{number}"
    return NodeIdentity(pool, spot, labels, taints, f"gce://testbed/europe-west4-a/{machine}", machine)


def _eks(number: int, spot: bool) -> NodeIdentity:
    pool = "spot" if spot else "on-demand"
    labels = {
        "eks.amazonaws.com/nodegroup": pool,
        "eks.amazonaws.com/capacityType": "SPOT" if spot else "ON_DEMAND",
        **_common("m5.large", "eu-west-1", "eu-west-1a"),
    }
    machine = f"i-{number:017x}"
    return NodeIdentity(pool, spot, labels, (), f"aws:///eu-west-1a/{machine}", machine)


def _common(machine_type: str, region: str, zone: str) -> dict[str, str]:
    return {
        "node.kubernetes.io/instance-type": machine_type,
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": zone,
    }
