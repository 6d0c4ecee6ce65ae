"""The forms in which the tools of providers list a node pool, and the reader of each: what a pool of spotwright.yaml gets of it.

A form has the keys by which it is known, the types of its fields, and a reader. Other writers of pools, such as Terraform and
controllers that make pools from objects, are read by turning them into one of these forms.

Sources: Azure REST reference, "Agent Pools - List"; Google Kubernetes Engine API, ``NodePool``; Google Cloud, "Arm workloads on
GKE" (taint), "Run multi-instance GPUs" (partitions), "Share GPUs with multiple workloads using GPU time-sharing"; Amazon EKS API
reference, ``Nodegroup`` (``capacityType``: on-demand is the default); eksctl-io/eksctl, ``pkg/actions/nodegroup/get.go``
(``Summary``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.machines import gpu_parts
from spotwright.clouds.node_labels import architecture_of
from spotwright.clouds.node_signs import ARCH
from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.clouds.provider_records import PREEMPTIBLE, PROVIDERS, machine_tpu
from spotwright.model.pools import GENERIC, Capacity, Pool
from spotwright.pools.request import NUMBER, SCALAR, TEXT, UNKNOWN_CAPACITY, ListedPool

__all__ = ["AKS", "EKS", "EKSCTL_CONFIG", "FORMS", "GKE", "Form", "Raw", "block", "mappings", "present"]


Raw = Mapping[str, Any]
"""An object as its tool wrote it."""
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
_TAINT = {"key": TEXT, "value": TEXT, "effect": TEXT}
_LABELS = {"*": TEXT}
_LEAST = 1  # node of a pool at its largest: every provider asks for one
_GPUS = "set node: of the pool: the machine has GPUs or other accelerators, and how many is not in the list"
_EKSCTL_LABEL = "alpha.eksctl.io/nodegroup-name"


class Form(NamedTuple):
    """A list of one tool: the key of a pool's name, the keys that all have, the shape that is checked, and the reader of one."""

    tool: str
    name: str
    keys: frozenset[str]
    shape: Raw
    read: Callable[[Raw], ListedPool]


def mappings(value: Any) -> list[Raw]:
    """The mappings of a list; none of anything else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def block(values: Raw, key: str) -> Raw:
    """A block of a resource, which Terraform writes as a list of one mapping, or empty."""
    value = values.get(key)
    return value if isinstance(value, Mapping) else next(iter(mappings(value)), {})


def present(**values: Any) -> dict[str, Any]:
    """The values that are there."""
    return {key: value for key, value in values.items() if value is not None}


def _pool(
    name: str,
    provider: str,
    is_spot: bool | None,
    *,
    labels: Raw | None = None,
    taints: Sequence[str] = (),
    bounds: tuple[int, int],
    flags: Raw | None = None,
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


def _taints(given: Iterable[Raw] | None) -> list[str]:
    """Taints with the effects of Google and of AWS, in the form of Kubernetes."""
    texts = []
    for one in given or ():
        effect = _EFFECTS.get(str(one.get("effect")), str(one.get("effect")))
        value = f"={one['value']}" if one.get("value") else ""
        texts.append(f"{one.get('key')}{value}:{effect}")
    return texts


def _read_aks(raw: Raw) -> ListedPool:
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


def _read_gke(raw: Raw) -> ListedPool:
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


def _google_devices(config: Raw, machine: str, topology: Any) -> tuple[dict[str, str], dict[str, int], list[str]]:
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


def _read_eks(raw: Raw) -> ListedPool:
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

    def made(*, labels: Raw, flags: Raw, notes: Sequence[str], **settings: Any) -> ListedPool:
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


def _read_eksctl(raw: Raw) -> ListedPool:
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


def _read_eksctl_config(raw: Raw) -> ListedPool:
    mix = raw.get("instancesDistribution") or {}
    given = raw.get("instanceTypes") or mix.get("instanceTypes") or [raw.get("instanceType")]
    machines = [str(one) for one in given if one and one != "mixed"]
    is_spot: bool | None = raw.get("spot") is True
    if mix:
        base, above = mix.get("onDemandBaseCapacity"), mix.get("onDemandPercentageAboveBaseCapacity")
        share = _ALL_ON_DEMAND if above is None else int(above)
        is_spot = False if share == _ALL_ON_DEMAND else True if share == 0 and not int(base or 0) else None
    taints = mappings(raw.get("taints"))
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


AKS = Form(
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
GKE = Form(
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
EKS = Form(
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
_EKSCTL = Form(
    "eksctl",
    "Name",
    frozenset({"Cluster", "Name", "InstanceType"}),
    {
        **dict.fromkeys(("Cluster", "Name", "InstanceType", "ImageID", "Type", "NodeGroupType"), TEXT),
        **dict.fromkeys(("MinSize", "MaxSize"), NUMBER),
    },
    _read_eksctl,
)
EKSCTL_CONFIG = Form(
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
FORMS = (AKS, EKS, _EKSCTL, GKE)
"""The forms of lists, in the order in which they are tried."""
