"""Read node pools from the objects from which controllers make them, such as those of Crossplane, Config Connector and OpenShift.

Such an object is the provider's form in another spelling, so it is converted into that form. Groups of machines have no such
form: OpenShift's MachineSets with their MachineAutoscaler, InstanceGroups of kOps. A ComputeClass describes pools that GKE
makes by itself. An object that makes nodes and has no reader is reported as not read.

Sources: crossplane-contrib/provider-upjet-aws, provider-upjet-gcp and provider-upjet-azure (fields are those of Terraform's
resources, ``crossplane.io/external-name`` is the name there); crossplane-contrib/provider-aws, ``apis/eks/manualv1alpha1``;
Google, "Config Connector resources", ``ContainerNodePool``; aws-controllers-k8s/eks-controller, ``Nodegroup``;
Azure/azure-service-operator, ``ManagedClustersAgentPool``; openshift/api, ``machine/v1beta1`` (``spotMarketOptions``,
``spotVMOptions``, ``preemptible``, and annotations ``machine.openshift.io/vCPU``, ``memoryMb``, ``GPU`` for an empty set);
kubernetes/kops, ``docs/instance_groups.md``; Google, "ComputeClass custom resource definition".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.kube.object_fields import mapping, mappings, metadata
from spotwright.pools.listed_forms import AGENT_POOL, CLASS_RULE, GOOGLE_POOL, GROUP, NODE_GROUP, Form, Raw, present
from spotwright.pools.terraform_files import CONVERTERS, Output

__all__ = ["MADE_BY", "is_pool_object", "object_pools", "ordered_pools", "why_unread"]


MADE_BY = "objects of Crossplane, Config Connector, ACK, Azure Service Operator, OpenShift, kOps, or a ComputeClass"
"""The objects that are read, for messages."""

_Pools = Iterator[tuple[Form, Raw]]


class _Kind(NamedTuple):
    """A kind that makes pools: a pattern for its group, its name, and its reader, which gets the objects beside it."""

    group: str
    kind: str
    read: Callable[[Raw, Sequence[Raw]], _Pools]


def is_pool_object(one: Raw) -> bool:
    """Whether an object makes node pools or describes one that does."""
    return _kind(one) is not None or one.get("kind") in _COMPANIONS


def object_pools(one: Raw, beside: Sequence[Raw]) -> _Pools:
    """The node pools that an object makes, each in a form of a list; ``beside`` are the other objects of the file."""
    kind = _kind(one)
    if kind is not None:
        yield from kind.read(one, beside)


_MAKES_NODES = re.compile(
    r"(Node|Agent|Machine|Worker)s?(Pool|Group|Set|Deployment)|Nodegroup|ControlPlane|InstanceGroup|Provisioner|Karpenter|Shoot"
    r"|NodeTemplate|NodeConfig"
)


def why_unread(kind: str) -> str:
    """Why objects of a kind that makes nodes are not read; empty for other kinds."""
    return "Spotwright reads no pools of this kind" if _MAKES_NODES.search(kind) else ""


def _kind(one: Raw) -> _Kind | None:
    group = str(one.get("apiVersion") or "").partition("/")[0]
    return next((each for each in _KINDS if each.kind == one.get("kind") and re.fullmatch(each.group, group)), None)


def _name(one: Raw) -> str:
    """The pool's name: the one at its provider, if an annotation has it."""
    external = mapping(metadata(one).get("annotations")).get("crossplane.io/external-name")
    return str(external or metadata(one).get("name") or "")


_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OF_USERS = ("labels", "nodeLabels", "tags", "resourceLabels", "limits")  # mappings whose keys are not fields


def _snake(value: Any, key: str = "") -> Any:
    """A value in the spelling of Terraform's fields."""
    if isinstance(value, Mapping) and key not in _OF_USERS:
        return {_CAPITAL.sub("_", str(name)).lower(): _snake(item, str(name)) for name, item in value.items()}
    return [_snake(item) for item in value] if isinstance(value, list) else value


def _of_terraform(resource: str, holder: Sequence[str], named: str = "name") -> Callable[[Raw, Sequence[Raw]], _Pools]:
    """The reader of an object with a Terraform resource's fields under ``holder``."""

    def read(one: Raw, _beside: Sequence[Raw]) -> _Pools:
        fields = one
        for key in holder:
            fields = mapping(fields.get(key))
        own = fields.get("resourceID") or _name(one)
        yield from CONVERTERS[resource]({**_snake(fields), named: own}, Output({}))

    return read


def _of_api(form: Form, holder: Sequence[str], named: str) -> Callable[[Raw, Sequence[Raw]], _Pools]:
    """The reader of an object with its provider's API fields under ``holder``; ``named`` is the field of its name."""

    def read(one: Raw, _beside: Sequence[Raw]) -> _Pools:
        fields = one
        for key in holder:
            fields = mapping(fields.get(key))
        yield form, {**fields, form.name: str(fields.get(named) or _name(one))}

    return read


def _of_machine_set(one: Raw, beside: Sequence[Raw]) -> _Pools:
    """A MachineSet of OpenShift, with its nodes' size in annotations and its limits in a MachineAutoscaler."""
    spec, notes = mapping(one.get("spec")), mapping(metadata(one).get("annotations"))
    made = mapping(mapping(spec.get("template")).get("spec"))
    given = mapping(mapping(made.get("providerSpec")).get("value"))
    place = mapping(given.get("placement"))
    is_spot = any(key in given for key in ("spotMarketOptions", "spotVMOptions")) or given.get("preemptible") is True
    is_spot = is_spot or str(given.get("provisioningModel")).lower() == "spot"
    machine = next((given[key] for key in ("instanceType", "vmSize", "machineType") if given.get(key)), None)
    replicas = spec.get("replicas") or 0
    least, most = _scaled(one, beside) or (replicas, replicas)
    zone = place.get("availabilityZone") or given.get("zone")
    yield (
        GROUP,
        present(
            groupName=_name(one),
            instanceTypes=[machine] if machine else None,
            marketType="spot" if is_spot else "on-demand",
            region=place.get("region") or given.get("region") or given.get("location"),
            minSize=least,
            maxSize=most,
            availabilityZones=[str(zone)] if zone else None,
            labels={
                **mapping(mapping(made.get("metadata")).get("labels")),
                **({"machine.openshift.io/interruptible-instance": ""} if is_spot else {}),
            },
            taints=[dict(taint) for taint in mappings(made.get("taints"))],
            resources=_machine_resources(notes),
        ),
    )


def _machine_resources(notes: Mapping[str, Any]) -> dict[str, str]:
    """A node's resources by the annotations for an autoscaler at zero."""
    amounts: dict[str, str] = {}
    for key, resource, unit in (("vCPU", "cpu", ""), ("memoryMb", "memory", "Mi"), ("GPU", NVIDIA_GPU, "")):
        value = str(notes.get(f"machine.openshift.io/{key}") or "")
        if value.isdecimal() and value != "0":
            amounts[resource] = f"{value}{unit}"
    return amounts


def _scaled(one: Raw, beside: Sequence[Raw]) -> tuple[int, int] | None:
    """The limits of a MachineAutoscaler for the set."""
    for other in beside:
        spec = mapping(other.get("spec"))
        target = mapping(spec.get("scaleTargetRef"))
        if other.get("kind") == "MachineAutoscaler" and target.get("name") == metadata(one).get("name"):
            limits = spec.get("minReplicas") or 0, spec.get("maxReplicas") or 0
            if all(isinstance(limit, int) for limit in limits):
                return limits
    return None


def _of_instance_group(one: Raw, _beside: Sequence[Raw]) -> _Pools:
    """An InstanceGroup of kOps; the control plane's take no work."""
    spec = mapping(one.get("spec"))
    if str(spec.get("role") or "Node").lower() != "node":
        return
    mix = mapping(spec.get("mixedInstancesPolicy"))
    taints = [re.match(r"([^=:]+)=?([^:]*):(.*)", str(text)) for text in spec.get("taints") or ()]
    machine = spec.get("machineType")
    yield (
        GROUP,
        present(
            groupName=_name(one),
            instanceTypes=mix.get("instances") or ([machine] if machine else None),
            marketType="spot" if spec.get("maxPrice") else "on-demand",
            maxPrice=spec.get("maxPrice"),
            instancesDistribution=present(
                onDemandBaseCapacity=mix.get("onDemandBase"),
                onDemandPercentageAboveBaseCapacity=mix.get("onDemandAboveBase"),
            )
            if mix
            else None,
            minSize=spec.get("minSize"),
            maxSize=spec.get("maxSize"),
            availabilityZones=spec.get("zones"),
            labels={**mapping(spec.get("nodeLabels")), "kops.k8s.io/instancegroup": _name(one)},
            taints=[{"key": found[1], "value": found[2], "effect": found[3]} for found in taints if found],
        ),
    )


def _of_class(one: Raw, _beside: Sequence[Raw]) -> _Pools:
    """The rules of a ComputeClass by which GKE makes pools; a rule that names pools only orders them."""
    name, spec = _name(one), mapping(one.get("spec"))
    defaults = mapping(spec.get("priorityDefaults"))
    for rule in mappings(spec.get("priorities")):
        if "nodepools" not in rule:
            yield CLASS_RULE, {**defaults, **rule, "computeClass": name}


def ordered_pools(one: Raw) -> list[str]:
    """The pools that a ComputeClass orders by their names; a tool of its provider lists them."""
    rules = mappings(mapping(one.get("spec")).get("priorities")) if one.get("kind") == "ComputeClass" else []
    return [str(name) for rule in rules for name in rule.get("nodepools") or ()]


_AWS = r"(eks|autoscaling)\.aws(\.m)?\.upbound\.io"
_GCP = r"container\.gcp(\.m)?\.upbound\.io"
_AZURE = r"containerservice\.azure(\.m)?\.upbound\.io"
_CNRM = r"container\.cnrm\.cloud\.google\.com"
_PROVIDER = ("spec", "forProvider")
_KINDS: tuple[_Kind, ...] = (
    _Kind(_AWS, "NodeGroup", _of_terraform("aws_eks_node_group", _PROVIDER, "node_group_name")),
    _Kind(_AWS, "AutoscalingGroup", _of_terraform("aws_autoscaling_group", _PROVIDER)),
    _Kind(_GCP, "NodePool", _of_terraform("google_container_node_pool", _PROVIDER)),
    _Kind(_GCP, "Cluster", _of_terraform("google_container_cluster", _PROVIDER)),
    _Kind(_AZURE, "KubernetesClusterNodePool", _of_terraform("azurerm_kubernetes_cluster_node_pool", _PROVIDER)),
    _Kind(_AZURE, "KubernetesCluster", _of_terraform("azurerm_kubernetes_cluster", _PROVIDER)),
    _Kind(_CNRM, "ContainerNodePool", _of_terraform("google_container_node_pool", ("spec",))),
    _Kind(_CNRM, "ContainerCluster", _of_terraform("google_container_cluster", ("spec",))),
    _Kind(r"eks\.aws\.crossplane\.io", "NodeGroup", _of_api(NODE_GROUP, _PROVIDER, "nodegroupName")),
    _Kind(r"container\.gcp\.crossplane\.io", "NodePool", _of_api(GOOGLE_POOL, _PROVIDER, "name")),
    _Kind(r"eks\.services\.k8s\.aws", "Nodegroup", _of_api(NODE_GROUP, ("spec",), "name")),
    _Kind(r"containerservice\.azure\.com", "ManagedClustersAgentPool", _of_api(AGENT_POOL, ("spec",), "azureName")),
    _Kind(r"machine\.openshift\.io", "MachineSet", _of_machine_set),
    _Kind(r"kops\.k8s\.io", "InstanceGroup", _of_instance_group),
    _Kind(r"cloud\.google\.com", "ComputeClass", _of_class),
)
_COMPANIONS = ("MachineAutoscaler",)
