"""Reads node pools off Terraform's output: of a state or a plan, as the list that the same provider's tool would write.

Sources: Terraform, "JSON Output Format", and the resources of its providers: ``azurerm_kubernetes_cluster``,
``azurerm_kubernetes_cluster_node_pool``, ``google_container_cluster``, ``google_container_node_pool``, ``aws_eks_node_group``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from spotwright.errors import InputError
from spotwright.pools.listed_forms import AKS, EKS, GKE, Form, Raw, block, mappings, present

__all__ = ["is_terraform", "terraform_pools"]


def is_terraform(document: Raw) -> bool:
    return "terraform_version" in document or {"format_version", "values"} <= document.keys()


def terraform_pools(document: Raw, name: str) -> Iterator[tuple[Form, Raw]]:
    """The node pools of an output of Terraform; those that a cluster repeats are left out.

    Raises :class:`InputError` without any, with the types of resource in the file.
    """
    found: dict[str, list[Raw]] = {}
    for kind, values in _instances(document):
        found.setdefault(kind, []).append(values)
    clusters = {str(one.get("id")): one.get("location") for one in found.get("azurerm_kubernetes_cluster", ())}
    found["azurerm_kubernetes_cluster_node_pool"] = [
        {**values, "location": clusters.get(str(values.get("kubernetes_cluster_id")))}
        for values in found.get("azurerm_kubernetes_cluster_node_pool", ())
    ]
    pools: dict[tuple[str, str, str], tuple[Form, Raw]] = {}
    for kind, convert in _CONVERTERS.items():
        for values in found.get(kind, ()):
            for form, one in convert(values):
                named = str(next((one[key] for key in ("name", "nodegroupName") if key in one), ""))
                pools.setdefault((form.tool, str(one.get("cluster", "")), named), (form, one))
    if not pools:
        there = ", ".join(sorted(kind for kind, some in found.items() if some)[:5]) or "no resources"
        raise InputError(
            f"{name}: an output of Terraform without a node pool: expected {', '.join(_CONVERTERS)}, found {there}"
        )
    yield from pools.values()


def _instances(document: Raw) -> Iterator[tuple[str, Raw]]:
    """The types and values of managed resources: of a plan, of a state that was shown, or of the state itself."""
    for root in (document.get("planned_values"), document.get("values")):
        module = root.get("root_module") if isinstance(root, Mapping) else None
        if isinstance(module, Mapping):
            yield from _of_module(module)
            return
    for resource in mappings(document.get("resources")):
        if resource.get("mode", "managed") == "managed":
            for instance in mappings(resource.get("instances")):
                if isinstance(instance.get("attributes"), Mapping):
                    yield str(resource.get("type")), instance["attributes"]


def _of_module(root: Raw) -> Iterator[tuple[str, Raw]]:
    modules = [root]
    while modules:
        module = modules.pop()
        modules += mappings(module.get("child_modules"))
        for resource in mappings(module.get("resources")):
            if resource.get("mode", "managed") == "managed" and isinstance(resource.get("values"), Mapping):
                yield str(resource.get("type")), resource["values"]


def _of_azurerm(values: Raw) -> Iterator[tuple[Form, Raw]]:
    scales = values.get("auto_scaling_enabled", values.get("enable_auto_scaling"))
    yield (
        AKS,
        present(
            cluster=values.get("kubernetes_cluster_id"),
            name=values.get("name"),
            vmSize=values.get("vm_size"),
            location=values.get("location"),
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
            mode=values.get("mode"),
        ),
    )


def _of_azurerm_cluster(values: Raw) -> Iterator[tuple[Form, Raw]]:
    default = block(values, "default_node_pool")
    if default:
        taints = ["CriticalAddonsOnly=true:NoSchedule"] if default.get("only_critical_addons_enabled") is True else None
        given = {"location": values.get("location"), "mode": "System", "kubernetes_cluster_id": values.get("id")}
        yield from _of_azurerm({**default, **given, "node_taints": default.get("node_taints") or taints})


def _of_google(values: Raw) -> Iterator[tuple[Form, Raw]]:
    made, scales = block(values, "node_config"), block(values, "autoscaling")
    devices = [
        present(
            acceleratorType=one.get("type"),
            acceleratorCount=one.get("count"),
            gpuPartitionSize=one.get("gpu_partition_size"),
            gpuSharingConfig=present(
                maxSharedClientsPerGpu=block(one, "gpu_sharing_config").get("max_shared_clients_per_gpu")
            ),
        )
        for one in mappings(made.get("guest_accelerator"))
    ]
    config = present(
        machineType=made.get("machine_type"),
        spot=made.get("spot"),
        preemptible=made.get("preemptible"),
        flexStart=made.get("flex_start"),
        labels=made.get("labels"),
        taints=made.get("taint"),
        accelerators=devices,
        imageType=made.get("image_type"),
        diskSizeGb=made.get("disk_size_gb"),
        diskType=made.get("disk_type"),
        serviceAccount=made.get("service_account"),
        oauthScopes=made.get("oauth_scopes"),
    )
    bounds = {
        "minNodeCount": scales.get("min_node_count"),
        "maxNodeCount": scales.get("max_node_count"),
        "totalMinNodeCount": scales.get("total_min_node_count"),
        "totalMaxNodeCount": scales.get("total_max_node_count"),
    }
    yield (
        GKE,
        present(
            cluster=values.get("cluster"),
            name=values.get("name"),
            config=config,
            location=values.get("location"),
            locations=values.get("node_locations"),
            initialNodeCount=values.get("node_count") or values.get("initial_node_count"),
            autoscaling={"enabled": True, **present(**bounds)} if scales else None,
            placementPolicy=present(tpuTopology=block(values, "placement_policy").get("tpu_topology")),
        ),
    )


def _of_google_cluster(values: Raw) -> Iterator[tuple[Form, Raw]]:
    shared = {"location": values.get("location"), "node_locations": values.get("node_locations")}
    for one in mappings(values.get("node_pool")):
        own = {key: value for key, value in one.items() if value not in (None, [])}
        yield from _of_google({**shared, **own, "cluster": values.get("name")})


def _of_aws(values: Raw) -> Iterator[tuple[Form, Raw]]:
    scales = block(values, "scaling_config")
    yield (
        EKS,
        present(
            cluster=values.get("cluster_name"),
            nodegroupName=values.get("node_group_name"),
            nodegroupArn=values.get("arn"),
            capacityType=values.get("capacity_type"),
            instanceTypes=values.get("instance_types"),
            amiType=values.get("ami_type"),
            diskSize=values.get("disk_size"),
            labels=values.get("labels"),
            taints=values.get("taint"),
            scalingConfig=present(minSize=scales.get("min_size"), maxSize=scales.get("max_size")),
        ),
    )


_CONVERTERS: Mapping[str, Callable[[Raw], Iterator[tuple[Form, Raw]]]] = {
    "azurerm_kubernetes_cluster": _of_azurerm_cluster,
    "azurerm_kubernetes_cluster_node_pool": _of_azurerm,
    "google_container_node_pool": _of_google,
    "google_container_cluster": _of_google_cluster,
    "aws_eks_node_group": _of_aws,
}
