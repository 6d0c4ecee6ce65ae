"""Read node pools from Terraform's output, of a state or a plan, as the list that the provider's tool would write.

Resources that make nodes in another way are named with the reason why they are not read, and all others are counted by type.
Kubernetes objects inside resources are read as from a file.

Sources: Terraform, "JSON Output Format", and the resources of its providers: ``azurerm_kubernetes_cluster``,
``azurerm_kubernetes_cluster_node_pool``, ``google_container_cluster``, ``google_container_node_pool``, ``aws_eks_node_group``,
``aws_autoscaling_group``, ``aws_launch_template`` (``instance_market_options``: spot or capacity-block),
``aws_ec2_capacity_block_reservation`` (``end_date``), ``kubernetes_manifest``, ``kubectl_manifest``; kubernetes/autoscaler,
``cloudprovider/aws/README.md`` (tags ``k8s.io/cluster-autoscaler/node-template``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.placing.documents import ManifestError, parse
from spotwright.pools.listed_forms import (
    AGENT_POOL,
    GOOGLE_POOL,
    GROUP,
    NODE_GROUP,
    Form,
    Raw,
    block,
    mappings,
    present,
)

__all__ = ["CONVERTERS", "Output", "Unread", "is_terraform", "manifests"]


class Unread(NamedTuple):
    """An unread resource: its kind or type, its name, and the reason."""

    kind: str
    name: str
    why: str

    @property
    def text(self) -> str:
        """The resource and the reason, in words."""
        return f"{self.kind} {self.name}: {self.why}"


def is_terraform(document: Raw) -> bool:
    """Whether a document is an output of Terraform: a plan, a state that was shown, or the state itself."""
    return "terraform_version" in document or {"format_version", "values"} <= document.keys()


class _Resource(NamedTuple):
    """A managed resource; ``name`` is for people."""

    type: str
    name: str
    values: Raw


def _resources(document: Raw) -> Iterator[_Resource]:
    """The managed resources: of a plan, of a state that was shown, or of the state itself."""
    for root in (document.get("planned_values"), document.get("values")):
        module = root.get("root_module") if isinstance(root, Mapping) else None
        if isinstance(module, Mapping):
            yield from _of_module(module)
            return
    for resource in mappings(document.get("resources")):
        if resource.get("mode", "managed") == "managed":
            for instance in mappings(resource.get("instances")):
                if isinstance(instance.get("attributes"), Mapping):
                    yield _resource(resource, str(resource.get("name")), instance["attributes"])


def _of_module(root: Raw) -> Iterator[_Resource]:
    modules = [root]
    while modules:
        module = modules.pop()
        modules += mappings(module.get("child_modules"))
        for resource in mappings(module.get("resources")):
            if resource.get("mode", "managed") == "managed" and isinstance(resource.get("values"), Mapping):
                yield _resource(resource, str(resource.get("address") or resource.get("name")), resource["values"])


def _resource(resource: Raw, address: str, values: Raw) -> _Resource:
    name = next((values[key] for key in ("name", "node_group_name") if isinstance(values.get(key), str)), address)
    return _Resource(str(resource.get("type")), name, values)


_Pools = Iterator[tuple[Form, Raw]]


class Output:
    """The resources of one output, and the pools read from them. Ask for :attr:`pools` before :attr:`unread`."""

    def __init__(self, document: Raw) -> None:
        """Sort the resources by type."""
        self.found: dict[str, list[_Resource]] = {}
        for one in _resources(document):
            self.found.setdefault(one.type, []).append(one)
        self.unread: list[Unread] = []

    def pools(self) -> list[tuple[Form, Raw]]:
        """The node pools as their providers list them, without a cluster's repetitions."""
        pools: dict[tuple[str, str, str], tuple[Form, Raw]] = {}
        for kind, convert in CONVERTERS.items():
            for resource in self.found.get(kind, ()):
                for form, one in convert(resource.values, self):
                    named = str(one.get(form.name) or "")
                    pools.setdefault((form.tool, str(one.get("cluster", "")), named), (form, one))
        for kind, some in self.found.items():
            self.unread += (Unread(kind, one.name, why) for one in some if (why := _why_unread(kind, one.values)))
        return list(pools.values())

    def others(self) -> Counter[str]:
        """The count of each type of resource that is not known to make nodes."""
        seen = {*CONVERTERS, *_PARTS, *_MANIFESTS, *(one.kind for one in self.unread)}
        return Counter({kind: len(some) for kind, some in self.found.items() if kind not in seen})

    def template(self, values: Raw) -> Raw:
        """The launch template that a group names, by its ID or its name; empty if the output lacks it."""
        named = block(values, "launch_template") or block(values, "launch_template_specification")
        keys = {named.get(key) for key in ("id", "launch_template_id", "name", "launch_template_name")} - {None, ""}
        keys |= {values.get("launch_configuration")} - {None, ""}
        every = (*self.found.get("aws_launch_template", ()), *self.found.get("aws_launch_configuration", ()))
        return next((one.values for one in every if {one.values.get("id"), one.values.get("name")} & keys), {})

    def end_of_block(self, template: Raw) -> str:
        """The end of a launch template's Capacity Block, as Terraform writes it; empty if the output lacks it."""
        target = block(block(template, "capacity_reservation_specification"), "capacity_reservation_target")
        named = target.get("capacity_reservation_id")
        every = (
            *self.found.get("aws_ec2_capacity_block_reservation", ()),
            *self.found.get("aws_ec2_capacity_reservation", ()),
        )
        return next(
            (str(one.values.get("end_date") or "") for one in every if named and one.values.get("id") == named), ""
        )


_PARTS = ("aws_launch_template", "aws_launch_configuration", "aws_ec2_capacity_block_reservation")  # of what is read
_MANIFESTS = ("kubernetes_manifest", "kubectl_manifest", "k8s_manifest")
_MAKES_NODES = re.compile(
    r"node_?(pool|group|template)|worker_pool|autoscaling_group|auto_?scal(er|ing)_pool|scale_set|instance_(group|template)|fleet"
    r"|ocean|fargate_profile|machine_(pool|set)|spot_instance|karpenter"
)


def _why_unread(kind: str, values: Raw) -> str:
    """Why a resource that makes nodes is not read; empty if it is read or not known to make nodes."""
    if kind in _BESIDE:
        return _BESIDE[kind](values)
    if kind in CONVERTERS or kind in _PARTS or kind in _MANIFESTS:
        return ""
    return "Spotwright reads no pools of this type" if _MAKES_NODES.search(kind) else ""


def _group_without_cluster(values: Raw) -> str:
    tagged = any(_OF_CLUSTER.match(key) for key in _tags(values))
    return "" if tagged else "no tag says that its nodes join a cluster; add them with pools of provider: generic"


def _auto_provisioning(values: Raw) -> str:
    if values.get("enable_autopilot") is True:
        return "Autopilot makes its nodes by itself: describe them as pools with automatic: true"
    given = block(values, "cluster_autoscaling")
    if given.get("enabled") is True:
        limits = ", ".join(
            f"{one.get('resource_type')} {one.get('maximum')}" for one in mappings(given.get("resource_limits"))
        )
        return (
            f"node auto-provisioning makes pools by itself{f' (limits: {limits})' if limits else ''}: describe them as pools "
            "with automatic: true"
        )
    return ""


def _node_provisioning(values: Raw) -> str:
    mode = str(block(values, "node_provisioning_profile").get("mode") or "")
    made = "node auto provisioning makes nodes by NodePools of Karpenter: kubectl get nodepools -o json has them"
    return made if mode.lower() == "auto" else ""


def _auto_mode(values: Raw) -> str:
    compute = block(values, "compute_config")
    named = ", ".join(map(str, compute.get("node_pools") or ()))
    made = f"Auto Mode makes nodes by NodePools{f' ({named})' if named else ''}: kubectl get nodepools -o json has them"
    return made if compute.get("enabled") is True else ""


def _helm(values: Raw) -> str:
    texts = [str(values.get(key) or "") for key in ("chart", "values", "set", "set_list")]
    makes = re.search(r"NodePool|nodePools?\b|karpenter", " ".join(texts), re.IGNORECASE)
    return (
        "its objects are not in the output: helm get manifest, or kubectl get nodepools -o json, has them"
        if makes
        else ""
    )


_BESIDE: Mapping[str, Callable[[Raw], str]] = {
    "aws_autoscaling_group": _group_without_cluster,
    "google_container_cluster": _auto_provisioning,
    "azurerm_kubernetes_cluster": _node_provisioning,
    "aws_eks_cluster": _auto_mode,
    "helm_release": _helm,
    "aws_eks_fargate_profile": lambda _values: "Fargate has no nodes that are a pool",
}
"""Why a resource is not read, or what else it makes that is not, by type."""


def manifests(document: Raw, name: str) -> tuple[list[Raw], list[Unread]]:
    """The Kubernetes objects inside an output, and the unreadable ones, such as values that a plan does not know."""
    objects: list[Raw] = []
    unread: list[Unread] = []
    for one in _resources(document):
        if one.type not in _MANIFESTS:
            continue
        given = next((one.values[key] for key in ("manifest", "yaml_body", "content") if one.values.get(key)), None)
        if isinstance(given, Mapping):
            objects.append(given)
        elif isinstance(given, str):
            try:
                read = [each.get(()) for each in parse(given, name)]
            except ManifestError as error:
                unread.append(Unread(one.type, one.name, f"its text cannot be read: {error}"))
                continue
            objects += (each for each in read if isinstance(each, Mapping))
        else:
            unread.append(
                Unread(one.type, one.name, "its object is known after apply: use terraform show -json of the state")
            )
    return objects, unread


def _of_azurerm(values: Raw, output: Output) -> _Pools:
    clusters = {
        str(one.values.get("id")): one.values.get("location")
        for one in output.found.get("azurerm_kubernetes_cluster", ())
    }
    scales = values.get("auto_scaling_enabled", values.get("enable_auto_scaling"))
    yield (
        AGENT_POOL,
        present(
            cluster=values.get("kubernetes_cluster_id"),
            name=values.get("name"),
            vmSize=values.get("vm_size"),
            location=values.get("location") or clusters.get(str(values.get("kubernetes_cluster_id"))),
            scaleSetPriority=values.get("priority"),
            scaleSetEvictionPolicy=values.get("eviction_policy"),
            spotMaxPrice=values.get("spot_max_price"),
            enableAutoScaling=scales,
            minCount=values.get("min_count"),
            maxCount=values.get("max_count"),
            count=values.get("node_count"),
            availabilityZones=values.get("zones"),
            nodeLabels=values.get("node_labels"),
            nodeTaints=values.get("node_taints"),
            osType=values.get("os_type"),
            osDiskSizeGb=values.get("os_disk_size_gb"),
            vnetSubnetId=values.get("vnet_subnet_id"),
            gpuInstanceProfile=values.get("gpu_instance"),
            mode=values.get("mode"),
        ),
    )


def _of_azurerm_cluster(values: Raw, output: Output) -> _Pools:
    default = block(values, "default_node_pool")
    if default:
        taints = ["CriticalAddonsOnly=true:NoSchedule"] if default.get("only_critical_addons_enabled") is True else None
        given = {"location": values.get("location"), "mode": "System", "kubernetes_cluster_id": values.get("id")}
        yield from _of_azurerm({**default, **given, "node_taints": default.get("node_taints") or taints}, output)


def _of_google(values: Raw, _output: Output) -> _Pools:
    made, scales = block(values, "node_config"), block(values, "autoscaling")
    reserved = block(made, "reservation_affinity")
    config = present(
        machineType=made.get("machine_type"),
        spot=made.get("spot"),
        preemptible=made.get("preemptible"),
        flexStart=made.get("flex_start"),
        maxRunDuration=made.get("max_run_duration"),
        labels=made.get("labels"),
        taints=made.get("taint"),
        accelerators=[_google_device(one) for one in mappings(made.get("guest_accelerator"))],
        imageType=made.get("image_type"),
        diskSizeGb=made.get("disk_size_gb"),
        diskType=made.get("disk_type"),
        serviceAccount=made.get("service_account"),
        oauthScopes=made.get("oauth_scopes"),
        reservationAffinity=present(
            consumeReservationType=reserved.get("consume_reservation_type"), values=reserved.get("values")
        ),
    )
    bounds = {
        "minNodeCount": scales.get("min_node_count"),
        "maxNodeCount": scales.get("max_node_count"),
        "totalMinNodeCount": scales.get("total_min_node_count"),
        "totalMaxNodeCount": scales.get("total_max_node_count"),
        "locationPolicy": scales.get("location_policy"),
    }
    yield (
        GOOGLE_POOL,
        present(
            cluster=values.get("cluster"),
            name=values.get("name"),
            config=config,
            location=values.get("location"),
            locations=values.get("node_locations"),
            initialNodeCount=values.get("node_count") or values.get("initial_node_count"),
            autoscaling={"enabled": True, **present(**bounds)} if scales else None,
            placementPolicy=present(tpuTopology=block(values, "placement_policy").get("tpu_topology")),
            queuedProvisioning=present(enabled=block(values, "queued_provisioning").get("enabled")),
        ),
    )


def _google_device(one: Raw) -> dict[str, Any]:
    shared = block(one, "gpu_sharing_config")
    return present(
        acceleratorType=one.get("type"),
        acceleratorCount=one.get("count"),
        gpuPartitionSize=one.get("gpu_partition_size"),
        gpuSharingConfig=present(
            maxSharedClientsPerGpu=shared.get("max_shared_clients_per_gpu"),
            gpuSharingStrategy=shared.get("gpu_sharing_strategy"),
        ),
    )


def _of_google_cluster(values: Raw, output: Output) -> _Pools:
    shared = {"location": values.get("location"), "node_locations": values.get("node_locations")}
    for one in mappings(values.get("node_pool")):
        own = {key: value for key, value in one.items() if value not in (None, [])}
        yield from _of_google({**shared, **own, "cluster": values.get("name")}, output)


def _of_aws(values: Raw, output: Output) -> _Pools:
    scales, template = block(values, "scaling_config"), output.template(values)
    machine = template.get("instance_type")
    yield (
        NODE_GROUP,
        present(
            cluster=values.get("cluster_name"),
            nodegroupName=values.get("node_group_name") or values.get("node_group_name_prefix"),
            nodegroupArn=values.get("arn"),
            region=values.get("region"),
            capacityType=values.get("capacity_type"),
            instanceTypes=values.get("instance_types") or ([machine] if machine else None),
            amiType=values.get("ami_type"),
            diskSize=values.get("disk_size"),
            labels=values.get("labels"),
            taints=values.get("taint"),
            scalingConfig=present(minSize=scales.get("min_size"), maxSize=scales.get("max_size")),
            reservationEnd=output.end_of_block(template) or None,
        ),
    )


_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
_OF_CLUSTER = re.compile(
    r"kubernetes\.io/cluster/|k8s\.io/cluster-autoscaler/|k8s\.io/cluster/|eks:|aws:eks:|alpha\.eksctl\.io/"
)


def _tags(values: Raw) -> dict[str, str]:
    """The tags of a group, which Terraform writes as blocks or as one mapping."""
    given = [*mappings(values.get("tag")), *mappings(values.get("tags"))]
    tags = {str(one.get("key")): str(one.get("value") or "") for one in given if "key" in one}
    whole = values.get("tags")
    return tags | {str(key): str(value) for key, value in (whole if isinstance(whole, Mapping) else {}).items()}


def _of_group(values: Raw, output: Output) -> _Pools:
    """A group of machines that join a cluster by their start script; the tags for the autoscaler describe its nodes."""
    if _group_without_cluster(values):
        return
    mix = block(values, "mixed_instances_policy")
    chosen = block(mix, "launch_template")
    template = output.template(chosen) or output.template(values)
    overrides = mappings(chosen.get("override"))
    machines = [str(one["instance_type"]) for one in overrides if one.get("instance_type")]
    shares = block(mix, "instances_distribution")
    market = str(block(template, "instance_market_options").get("market_type") or "")
    hinted = [(key.removeprefix(_TEMPLATE), value) for key, value in _tags(values).items() if key.startswith(_TEMPLATE)]
    hints = [(*key.partition("/")[::2], value) for key, value in hinted]
    yield (
        GROUP,
        present(
            groupName=values.get("name") or values.get("name_prefix"),
            region=values.get("region"),
            instanceTypes=machines or [one for one in [template.get("instance_type")] if one],
            byAttributes=any(block(one, "instance_requirements") for one in overrides) or None,
            marketType="spot" if template.get("spot_price") else market or ("on-demand" if template else None),
            instancesDistribution=present(
                onDemandBaseCapacity=shares.get("on_demand_base_capacity"),
                onDemandPercentageAboveBaseCapacity=shares.get("on_demand_percentage_above_base_capacity"),
            )
            if mix
            else None,
            minSize=values.get("min_size"),
            maxSize=values.get("max_size"),
            availabilityZones=values.get("availability_zones"),
            labels={key: value for sort, key, value in hints if sort == "label"},
            taints=[_hinted_taint(key, value) for sort, key, value in hints if sort == "taint"],
            resources={key: value for sort, key, value in hints if sort == "resources"},
            reservationEnd=output.end_of_block(template) or None,
        ),
    )


def _hinted_taint(key: str, text: str) -> dict[str, str]:
    value, _, effect = text.rpartition(":")
    return {"key": key, "value": value, "effect": effect}


CONVERTERS: Mapping[str, Callable[[Raw, Output], _Pools]] = {
    "azurerm_kubernetes_cluster": _of_azurerm_cluster,
    "azurerm_kubernetes_cluster_node_pool": _of_azurerm,
    "google_container_node_pool": _of_google,
    "google_container_cluster": _of_google_cluster,
    "aws_eks_node_group": _of_aws,
    "aws_autoscaling_group": _of_group,
}
"""The types of resource that are read."""
