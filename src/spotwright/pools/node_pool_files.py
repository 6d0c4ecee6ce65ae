"""Reads node pools off what the tools of their providers list, so that pools without a node are known too.

The lists come from ``az aks nodepool list``, ``gcloud container node-pools list``, ``aws eks describe-nodegroup`` and
``eksctl get nodegroup`` (each as JSON), and Terraform's own output (``terraform show -json``, also of a plan, and ``terraform
state pull``). A form is known by its content. Resources of Terraform are read as the list of the same provider.

Sources: Azure REST reference, "Agent Pools - List"; Google Kubernetes Engine API, ``NodePool``; Google Cloud, "Arm workloads on
GKE" (taint), "Run multi-instance GPUs" (partitions), "Share GPUs with multiple workloads using GPU time-sharing"; Amazon EKS API
reference, ``Nodegroup`` (``capacityType``: on-demand is the default); eksctl-io/eksctl,
``pkg/actions/nodegroup/get.go`` (``Summary``); Terraform, "JSON Output Format", and the resources of its
providers: ``azurerm_kubernetes_cluster``, ``azurerm_kubernetes_cluster_node_pool``, ``google_container_cluster``,
``google_container_node_pool``, ``aws_eks_node_group``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.machines import gpu_parts
from spotwright.clouds.node_labels import architecture_of
from spotwright.clouds.node_signs import ARCH
from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.clouds.provider_records import PREEMPTIBLE, PROVIDERS, machine_tpu
from spotwright.errors import InputError
from spotwright.model.pools import GENERIC, Capacity, Pool
from spotwright.pools.request import NUMBER, SCALAR, TEXT, UNKNOWN_CAPACITY, ListedPool, find_wrong, name_for

__all__ = ["TOOLS", "is_listing", "listed_pools"]


TOOLS = (
    "az aks nodepool list -o json, gcloud container node-pools list --format=json, aws eks describe-nodegroup, eksctl get "
    "nodegroup -o json or terraform show -json"
)
"""The commands whose output is read."""


_Raw = Mapping[str, Any]
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
_TAINT = {"key": TEXT, "value": TEXT, "effect": TEXT}
_LABELS = {"*": TEXT}
_LEAST = 1  # node of a pool at its largest: every provider asks for one
_GPUS = "set node: of the pool: the machine has GPUs or other accelerators, and how many is not in the list"
_EKSCTL_LABEL = "alpha.eksctl.io/nodegroup-name"


class _Form(NamedTuple):
    """A list of one tool: the key of a pool's name, the keys that all have, the shape that is checked, and the reader of one."""

    tool: str
    name: str
    keys: frozenset[str]
    shape: _Raw
    read: Callable[[_Raw], ListedPool]


def is_listing(document: _Raw) -> bool:
    """Whether an object without a kind is a list of node pools, one of them, or an output of Terraform."""
    return _is_terraform(document) or next(_parts(document), None) is not None


def listed_pools(documents: Iterable[_Raw], name: str) -> tuple[str, list[ListedPool]]:
    """The tools that wrote the lists, and their pools under names for spotwright.yaml. ``name`` is how messages call the file.

    Raises :class:`InputError` with the field that has another form, and for lists without a node pool.
    """
    tools: dict[str, None] = {}
    pools: dict[str, ListedPool] = {}
    for document in documents:
        from_terraform = _is_terraform(document)
        for form, one in _resources(document, name) if from_terraform else _parts(document):
            tools["Terraform" if from_terraform else form.tool] = None
            wrong = find_wrong(one, form.shape)
            if not wrong and not one.get(form.name):
                wrong = f"{form.name} is missing"
            if wrong:
                raise InputError(f"{name}: node pool {len(pools) + 1} of {form.tool}: {wrong}")
            pool = form.read(one)
            free = name_for(pool.name, taken=pools)
            pools[free] = pool._replace(name=free, settings=_named(pool, free))
    if not pools:
        raise InputError(f"{name}: the list has no node pools")
    return ", ".join(tools), [_without_devices_of_others(pool, pools) for pool in pools.values()]


def _without_devices_of_others(pool: ListedPool, pools: Mapping[str, ListedPool]) -> ListedPool:
    """The pool, with 0 of each device that another pool of the same machine has: pools of one machine share their size."""
    machine = pool.settings.get("machine")
    if not machine or "node" in pool.settings:
        return pool
    same = [one.settings.get("node", {}) for one in pools.values() if one.settings.get("machine") == machine]
    none = {resource: 0 for node in same for resource in node}
    return pool._replace(settings={**pool.settings, "node": none}) if none else pool


def _named(pool: ListedPool, name: str) -> _Raw:
    """The settings, with the label that names the pool at its provider where spotwright.yaml has another name for it."""
    label = providers.pool_label(Pool(name, Capacity.SPOT, pool.settings.get("provider", GENERIC)))
    if name == pool.name or not label:
        return pool.settings
    return {**pool.settings, "labels": {label: pool.name, **pool.settings.get("labels", {})}}


def _parts(document: _Raw, depth: int = 0) -> Iterator[tuple[_Form, _Raw]]:
    """The node pools of a document: itself, a cluster's, and those of a page of a list."""
    if str(document.get("apiVersion")).startswith("eksctl.io/"):
        yield from _groups(document)
        return
    for inside in _HOLDERS if depth < len(_HOLDERS) else ():
        if isinstance(document.get(inside), list):
            region = {"location": document["location"]} if isinstance(document.get("location"), str) else {}
            for item in _mappings(document[inside]):
                yield from _parts({**region, **item}, depth + 1)
            return
    for wrapper in ("nodegroup", "properties"):
        inner = document.get(wrapper)
        if isinstance(inner, Mapping):
            document = {**document, **inner}
    form = next((one for one in _FORMS if one.keys <= document.keys()), None)
    if form is not None:
        yield form, document


_HOLDERS = ("value", "agentPoolProfiles", "nodePools")  # of a page of Azure's API, of a cluster of AKS, of one of GKE


def _groups(config: _Raw) -> Iterator[tuple[_Form, _Raw]]:
    """The groups of a ClusterConfig of eksctl, managed ones and others, each with the region of the cluster."""
    metadata = config.get("metadata")
    region = {"region": metadata["region"]} if isinstance(metadata, Mapping) and metadata.get("region") else {}
    for key in ("managedNodeGroups", "nodeGroups"):
        for group in _mappings(config.get(key)):
            yield _EKSCTL_CONFIG, {**group, **region, "isManaged": key == "managedNodeGroups"}


def _is_terraform(document: _Raw) -> bool:
    return "terraform_version" in document or {"format_version", "values"} <= document.keys()


def _resources(document: _Raw, name: str) -> Iterator[tuple[_Form, _Raw]]:
    """The node pools of an output of Terraform; those that a cluster repeats are left out.

    Raises :class:`InputError` without any, with the types of resource in the file.
    """
    found: dict[str, list[_Raw]] = {}
    for kind, values in _instances(document):
        found.setdefault(kind, []).append(values)
    clusters = {str(one.get("id")): one.get("location") for one in found.get("azurerm_kubernetes_cluster", ())}
    found["azurerm_kubernetes_cluster_node_pool"] = [
        {**values, "location": clusters.get(str(values.get("kubernetes_cluster_id")))}
        for values in found.get("azurerm_kubernetes_cluster_node_pool", ())
    ]
    pools: dict[tuple[str, str, str], tuple[_Form, _Raw]] = {}
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


def _instances(document: _Raw) -> Iterator[tuple[str, _Raw]]:
    """The types and values of managed resources: of a plan, of a state that was shown, or of the state itself."""
    for root in (document.get("planned_values"), document.get("values")):
        module = root.get("root_module") if isinstance(root, Mapping) else None
        if isinstance(module, Mapping):
            yield from _of_module(module)
            return
    for resource in _mappings(document.get("resources")):
        if resource.get("mode", "managed") == "managed":
            for instance in _mappings(resource.get("instances")):
                if isinstance(instance.get("attributes"), Mapping):
                    yield str(resource.get("type")), instance["attributes"]


def _of_module(root: _Raw) -> Iterator[tuple[str, _Raw]]:
    modules = [root]
    while modules:
        module = modules.pop()
        modules += _mappings(module.get("child_modules"))
        for resource in _mappings(module.get("resources")):
            if resource.get("mode", "managed") == "managed" and isinstance(resource.get("values"), Mapping):
                yield str(resource.get("type")), resource["values"]


def _mappings(value: Any) -> list[_Raw]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _block(values: _Raw, key: str) -> _Raw:
    """A block of a resource, which Terraform writes as a list of one mapping, or empty."""
    value = values.get(key)
    return value if isinstance(value, Mapping) else next(iter(_mappings(value)), {})


def _present(**values: Any) -> dict[str, Any]:
    """The values that are there."""
    return {key: value for key, value in values.items() if value is not None}


def _of_azurerm(values: _Raw) -> Iterator[tuple[_Form, _Raw]]:
    scales = values.get("auto_scaling_enabled", values.get("enable_auto_scaling"))
    yield (
        _AKS,
        _present(
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


def _of_azurerm_cluster(values: _Raw) -> Iterator[tuple[_Form, _Raw]]:
    default = _block(values, "default_node_pool")
    if default:
        taints = ["CriticalAddonsOnly=true:NoSchedule"] if default.get("only_critical_addons_enabled") is True else None
        given = {"location": values.get("location"), "mode": "System", "kubernetes_cluster_id": values.get("id")}
        yield from _of_azurerm({**default, **given, "node_taints": default.get("node_taints") or taints})


def _of_google(values: _Raw) -> Iterator[tuple[_Form, _Raw]]:
    made, scales = _block(values, "node_config"), _block(values, "autoscaling")
    devices = [
        _present(
            acceleratorType=one.get("type"),
            acceleratorCount=one.get("count"),
            gpuPartitionSize=one.get("gpu_partition_size"),
            gpuSharingConfig=_present(
                maxSharedClientsPerGpu=_block(one, "gpu_sharing_config").get("max_shared_clients_per_gpu")
            ),
        )
        for one in _mappings(made.get("guest_accelerator"))
    ]
    config = _present(
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
        _GKE,
        _present(
            cluster=values.get("cluster"),
            name=values.get("name"),
            config=config,
            location=values.get("location"),
            locations=values.get("node_locations"),
            initialNodeCount=values.get("node_count") or values.get("initial_node_count"),
            autoscaling={"enabled": True, **_present(**bounds)} if scales else None,
            placementPolicy=_present(tpuTopology=_block(values, "placement_policy").get("tpu_topology")),
        ),
    )


def _of_google_cluster(values: _Raw) -> Iterator[tuple[_Form, _Raw]]:
    shared = {"location": values.get("location"), "node_locations": values.get("node_locations")}
    for one in _mappings(values.get("node_pool")):
        own = {key: value for key, value in one.items() if value not in (None, [])}
        yield from _of_google({**shared, **own, "cluster": values.get("name")})


def _of_aws(values: _Raw) -> Iterator[tuple[_Form, _Raw]]:
    scales = _block(values, "scaling_config")
    yield (
        _EKS,
        _present(
            cluster=values.get("cluster_name"),
            nodegroupName=values.get("node_group_name"),
            nodegroupArn=values.get("arn"),
            capacityType=values.get("capacity_type"),
            instanceTypes=values.get("instance_types"),
            amiType=values.get("ami_type"),
            diskSize=values.get("disk_size"),
            labels=values.get("labels"),
            taints=values.get("taint"),
            scalingConfig=_present(minSize=scales.get("min_size"), maxSize=scales.get("max_size")),
        ),
    )


_CONVERTERS: Mapping[str, Callable[[_Raw], Iterator[tuple[_Form, _Raw]]]] = {
    "azurerm_kubernetes_cluster": _of_azurerm_cluster,
    "azurerm_kubernetes_cluster_node_pool": _of_azurerm,
    "google_container_node_pool": _of_google,
    "google_container_cluster": _of_google_cluster,
    "aws_eks_node_group": _of_aws,
}


def _pool(
    name: str,
    provider: str,
    is_spot: bool | None,
    *,
    labels: _Raw | None = None,
    taints: Sequence[str] = (),
    bounds: tuple[int, int],
    flags: _Raw | None = None,
    notes: Iterable[str] = (),
    **settings: Any,
) -> ListedPool:
    """A pool of these settings; labels and taints that its provider sets by itself are left out, and so is what is empty."""
    capacity = Capacity.SPOT if is_spot else Capacity.ON_DEMAND
    alone = Pool(name, capacity, provider, settings.get("machine", ""), node=settings.get("node"))
    by_provider, tainted = providers.labels(alone), {str(taint) for taint in providers.taints(alone)}
    own = {str(key): str(value) for key, value in (labels or {}).items() if by_provider.get(str(key)) != str(value)}
    least, most = bounds
    written = {
        "capacity": str(capacity.value),
        **providers.setting(provider),
        **{key: value for key, value in settings.items() if value},
        "min_nodes": least,
        "max_nodes": max(most, least, _LEAST),
        "labels": own,
        "taints": [taint for taint in dict.fromkeys(taints) if taint not in tainted],
        "create_flags": {key: value for key, value in (flags or {}).items() if value not in (None, "", [])},
    }
    unknown = (UNKNOWN_CAPACITY,) if is_spot is None else ()
    return ListedPool(
        name, {key: value for key, value in written.items() if value}, (*unknown, *notes), is_spot is not None
    )


def _architecture(provider: str, machine: str) -> dict[str, str]:
    """The label of an Arm machine; empty for another one."""
    arch = architecture_of(Pool("", Capacity.SPOT, provider, machine))
    return {ARCH: arch} if arch == "arm64" else {}


def _taints(given: Iterable[_Raw] | None) -> list[str]:
    """Taints with the effects of Google and of AWS, in the form of Kubernetes."""
    texts = []
    for one in given or ():
        effect = _EFFECTS.get(str(one.get("effect")), str(one.get("effect")))
        value = f"={one['value']}" if one.get("value") else ""
        texts.append(f"{one.get('key')}{value}:{effect}")
    return texts


def _read_aks(raw: _Raw) -> ListedPool:
    priority = str(raw.get("scaleSetPriority") or "Regular").lower()
    count, machine, price = int(raw.get("count") or 0), str(raw.get("vmSize") or ""), raw.get("spotMaxPrice")
    has_price = isinstance(price, int | float) and not isinstance(price, bool) and price > 0
    scales = raw.get("enableAutoScaling") is True
    bounds = (int(raw.get("minCount") or 0), int(raw.get("maxCount") or count)) if scales else (count, count)
    zones = [str(zone) for zone in raw.get("availabilityZones") or ()]
    return _pool(
        str(raw["name"]),
        "aks",
        priority in ("spot", "low"),
        machine=machine,
        region=str(raw.get("location") or ""),
        zones=zones,
        os="windows" if str(raw.get("osType")).lower() == "windows" else "",
        max_price=price if has_price else None,
        labels={**(raw.get("nodeLabels") or {}), **_architecture("aks", machine)},
        taints=raw.get("nodeTaints") or (),
        bounds=bounds,
        flags={
            "mode": "System" if raw.get("mode") == "System" else None,
            "vnet-subnet-id": raw.get("vnetSubnetId"),
            "node-osdisk-size": raw.get("osDiskSizeGb") or None,
            "gpu-instance-profile": raw.get("gpuInstanceProfile"),
            "eviction-policy": "Deallocate" if raw.get("scaleSetEvictionPolicy") == "Deallocate" else None,
        },
        notes=[
            *(("scaleSetPriority Low: low-priority VMs became Spot VMs",) if priority == "low" else ()),
            *((_GPUS,) if machine.startswith(PROVIDERS["aks"].gpu_machines) else ()),
        ],
    )


_CHIPS = re.compile(r"-([0-9]{1,3})t$")


def _read_gke(raw: _Raw) -> ListedPool:
    config, scales = raw.get("config") or {}, raw.get("autoscaling") or {}
    machine, image = str(config.get("machineType") or ""), str(config.get("imageType") or "")
    zones = [str(zone) for zone in raw.get("locations") or ()]
    where = str(raw.get("location") or (zones[0] if zones else ""))
    across = max(len(zones), 1)
    bounds = (int(raw.get("initialNodeCount") or 0) * across,) * 2
    if scales.get("enabled"):
        least = scales.get("totalMinNodeCount") or int(scales.get("minNodeCount") or 0) * across
        most = scales.get("totalMaxNodeCount") or int(scales.get("maxNodeCount") or 0) * across
        bounds = (int(least), int(most))
    labels, node, notes = _google_devices(config, machine, (raw.get("placementPolicy") or {}).get("tpuTopology"))
    is_preemptible, is_windows = config.get("preemptible") is True, image.upper().startswith("WINDOWS")
    arch = _architecture("gke", machine)
    taints = _taints(config.get("taints")) + [f"{key}={value}:NoSchedule" for key, value in arch.items()]
    taints += ["node.kubernetes.io/os=windows:NoSchedule"] if is_windows else []
    taints += ["google.com/tpu=present:NoSchedule"] if "google.com/tpu" in node else []
    scopes = [str(one) for one in config.get("oauthScopes") or ()]
    return _pool(
        str(raw["name"]),
        "gke",
        is_preemptible or config.get("spot") is True,
        machine=machine,
        region="-".join(where.split("-")[:2]),
        zones=zones,
        os="windows" if is_windows else "",
        node=node,
        max_lifetime="24h" if is_preemptible else None,
        labels={
            **(config.get("labels") or {}),
            **labels,
            **({PREEMPTIBLE: "true"} if is_preemptible else {}),
            **arch,
        },
        taints=taints,
        bounds=bounds,
        flags={
            "disk-size": config.get("diskSizeGb"),
            "disk-type": config.get("diskType"),
            "service-account": config.get("serviceAccount") if config.get("serviceAccount") != "default" else None,
            "scopes": scopes,
        },
        notes=[
            *notes,
            *(("flex-start VMs: on-demand, and each ends after some days",) if config.get("flexStart") is True else ()),
        ],
    )


def _google_devices(config: _Raw, machine: str, topology: Any) -> tuple[dict[str, str], dict[str, int], list[str]]:
    """The labels that say which accelerators a pool of GKE has, what a node offers of them, and notes."""
    labels: dict[str, str] = {}
    node: dict[str, int] = {}
    notes: list[str] = []
    for one in config.get("accelerators") or ():
        count, size = int(one.get("acceleratorCount") or 0), str(one.get("gpuPartitionSize") or "")
        shared = (one.get("gpuSharingConfig") or {}).get("maxSharedClientsPerGpu")
        if not count:
            continue
        labels["cloud.google.com/gke-accelerator"] = str(one.get("acceleratorType") or "")
        if size:
            labels["cloud.google.com/gke-gpu-partition-size"] = size
            count *= gpu_parts(size)
        if shared:
            count *= int(shared)
            notes.append(f"each GPU is shared by {shared} containers, so a node offers {count}")
        node[NVIDIA_GPU] = count
    kind, chips = machine_tpu(machine), _CHIPS.search(machine)
    if kind and chips:
        node["google.com/tpu"] = int(chips[1])
        labels["cloud.google.com/gke-tpu-accelerator"] = kind
        labels |= {"cloud.google.com/gke-tpu-topology": str(topology)} if topology else {}
    return labels, node, notes


def _read_eks(raw: _Raw) -> ListedPool:
    machines = [str(one) for one in raw.get("instanceTypes") or ()]
    scales, image = raw.get("scalingConfig") or {}, str(raw.get("amiType") or "")
    kind = str(raw.get("capacityType") or "")
    arn = str(raw.get("nodegroupArn") or "").split(":")
    reserved = {"eks.amazonaws.com/capacityType": kind} if kind not in ("", "SPOT", "ON_DEMAND") else {}
    notes = [] if kind else ["no capacity type is named: EKS makes on-demand nodes then"]
    return _aws_pool(str(raw["nodegroupName"]), "eks", kind == "SPOT", machines, image)(
        region=arn[3] if len(arn) > 4 else "",
        labels={**(raw.get("labels") or {}), **reserved},
        taints=_taints(raw.get("taints")),
        bounds=(int(scales.get("minSize") or 0), int(scales.get("maxSize") or 0)),
        flags={"volumeSize": raw.get("diskSize")},
        notes=notes,
    )


def _aws_pool(
    name: str, provider: str, is_spot: bool | None, machines: Sequence[str], image: str
) -> Callable[..., ListedPool]:
    """A pool of one or several machines of AWS, whose image says architecture and operating system."""

    def made(*, labels: _Raw, flags: _Raw, notes: Sequence[str], **settings: Any) -> ListedPool:
        return _pool(
            name,
            provider,
            is_spot,
            machine=machines[0] if len(machines) == 1 else "",
            os="windows" if image.upper().startswith("WINDOWS") else "",
            labels={**labels, **({ARCH: "arm64"} if "ARM_64" in image.upper() else {})},
            flags={**flags, "instanceTypes": list(machines) if len(machines) > 1 else None},
            notes=[*notes, *((_GPUS,) if re.search("GPU|NVIDIA|NEURON", image.upper()) else ())],
            **settings,
        )

    return made


def _read_eksctl(raw: _Raw) -> ListedPool:
    given = str(raw.get("InstanceType") or "")
    machines = [one for one in (part.strip() for part in given.split(",")) if one and one != "-"]
    is_managed = str(raw.get("Type") or raw.get("NodeGroupType") or "managed") != "unmanaged"
    name = str(raw["Name"])
    return _aws_pool(name, "eks" if is_managed else GENERIC, None, machines, str(raw.get("ImageID") or ""))(
        labels={} if is_managed else {_EKSCTL_LABEL: name},
        bounds=(int(raw.get("MinSize") or 0), int(raw.get("MaxSize") or 0)),
        flags={},
        notes=[
            "eksctl lists neither capacity nor labels nor taints: aws eks describe-nodegroup does for a managed group"
        ],
    )


_ALL_ON_DEMAND = 100  # percent, eksctl's default of onDemandPercentageAboveBaseCapacity


def _read_eksctl_config(raw: _Raw) -> ListedPool:
    mix = raw.get("instancesDistribution") or {}
    given = raw.get("instanceTypes") or mix.get("instanceTypes") or [raw.get("instanceType")]
    machines = [str(one) for one in given if one and one != "mixed"]
    is_spot: bool | None = raw.get("spot") is True
    if mix:
        base, above = mix.get("onDemandBaseCapacity"), mix.get("onDemandPercentageAboveBaseCapacity")
        share = _ALL_ON_DEMAND if above is None else int(above)
        is_spot = False if share == _ALL_ON_DEMAND else True if share == 0 and not int(base or 0) else None
    taints = _mappings(raw.get("taints"))
    if isinstance(raw.get("taints"), Mapping):  # of nodeGroups in the past: key, then value:effect
        parts = [(key, *str(value).rpartition(":")) for key, value in raw["taints"].items()]
        taints = [{"key": key, "value": value, "effect": effect} for key, value, _, effect in parts]
    name = str(raw["name"])
    is_managed = raw["isManaged"] is True
    family = str(raw.get("amiFamily") or "")
    return _aws_pool(name, "eks" if is_managed else GENERIC, is_spot, machines, family)(
        region=str(raw.get("region") or ""),
        zones=[str(zone) for zone in raw.get("availabilityZones") or ()],
        labels={**(raw.get("labels") or {}), **({} if is_managed else {_EKSCTL_LABEL: name})},
        taints=_taints(taints),
        bounds=(int(raw.get("minSize") or 0), int(raw.get("maxSize") or raw.get("desiredCapacity") or 0)),
        flags={"volumeSize": raw.get("volumeSize")} if is_managed else {},
        notes=["instancesDistribution mixes spot and on-demand in one group: make a group of each"]
        if is_spot is None
        else [],
    )


_AKS = _Form(
    "az",
    "name",
    frozenset({"name", "vmSize"}),
    {
        **dict.fromkeys(("name", "vmSize", "location", "osType", "mode", "vnetSubnetId", "gpuInstanceProfile"), TEXT),
        **dict.fromkeys(("scaleSetPriority", "scaleSetEvictionPolicy"), TEXT),
        **dict.fromkeys(("minCount", "maxCount", "count", "osDiskSizeGb"), NUMBER),
        "spotMaxPrice": SCALAR,
        "availabilityZones": [SCALAR],
        "nodeLabels": _LABELS,
        "nodeTaints": [TEXT],
    },
    _read_aks,
)
_GKE = _Form(
    "gcloud",
    "name",
    frozenset({"name", "config"}),
    {
        **dict.fromkeys(("name", "location"), TEXT),
        "locations": [TEXT],
        "initialNodeCount": NUMBER,
        "autoscaling": dict.fromkeys(
            ("minNodeCount", "maxNodeCount", "totalMinNodeCount", "totalMaxNodeCount"), NUMBER
        ),
        "placementPolicy": {"tpuTopology": TEXT},
        "config": {
            **dict.fromkeys(("machineType", "imageType", "diskType", "serviceAccount"), TEXT),
            "diskSizeGb": NUMBER,
            "labels": _LABELS,
            "taints": [_TAINT],
            "oauthScopes": [TEXT],
            "accelerators": [
                {
                    "acceleratorType": TEXT,
                    "acceleratorCount": NUMBER,
                    "gpuPartitionSize": TEXT,
                    "gpuSharingConfig": {"maxSharedClientsPerGpu": NUMBER},
                }
            ],
        },
    },
    _read_gke,
)
_EKS = _Form(
    "aws",
    "nodegroupName",
    frozenset({"nodegroupName"}),
    {
        **dict.fromkeys(("nodegroupName", "nodegroupArn", "capacityType", "amiType"), TEXT),
        "instanceTypes": [TEXT],
        "diskSize": NUMBER,
        "labels": _LABELS,
        "taints": [_TAINT],
        "scalingConfig": dict.fromkeys(("minSize", "maxSize"), NUMBER),
    },
    _read_eks,
)
_EKSCTL = _Form(
    "eksctl",
    "Name",
    frozenset({"Cluster", "Name", "InstanceType"}),
    {
        **dict.fromkeys(("Cluster", "Name", "InstanceType", "ImageID", "Type", "NodeGroupType"), TEXT),
        **dict.fromkeys(("MinSize", "MaxSize"), NUMBER),
    },
    _read_eksctl,
)
_EKSCTL_CONFIG = _Form(
    "eksctl",
    "name",
    frozenset({"isManaged"}),
    {
        **dict.fromkeys(("name", "instanceType", "amiFamily", "region"), TEXT),
        **dict.fromkeys(("minSize", "maxSize", "desiredCapacity", "volumeSize"), NUMBER),
        **{key: [TEXT] for key in ("instanceTypes", "availabilityZones")},
        "labels": _LABELS,
        "instancesDistribution": {
            "instanceTypes": [TEXT],
            "onDemandBaseCapacity": NUMBER,
            "onDemandPercentageAboveBaseCapacity": NUMBER,
        },
    },
    _read_eksctl_config,
)
_FORMS = (_AKS, _EKS, _EKSCTL, _GKE)
