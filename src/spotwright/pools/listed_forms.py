"""The forms in which the providers' tools list a node pool, and each one's reader into a pool of spotwright.yaml.

A form has the keys that identify it, the types of its fields, and a reader. Other sources of pools, such as Terraform and
controllers that make pools from objects, are converted into one of these forms.

Sources: Azure REST reference, "Agent Pools - List"; Google Kubernetes Engine API, ``NodePool``; Google Cloud, "Arm workloads on
GKE" (taint), "Run multi-instance GPUs" (partitions), "Share GPUs with multiple workloads using GPU time-sharing"; Amazon EKS API
reference, ``Nodegroup`` (``capacityType``: on-demand is the default); eksctl-io/eksctl, ``pkg/actions/nodegroup/get.go``
(``Summary``).
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
from spotwright.clouds.provider_records import (
    COMPUTE_CLASS,
    PREEMPTIBLE,
    PROVIDERS,
    PROVISIONING,
    machine_accelerator,
    machine_tpu,
)
from spotwright.model.pools import GENERIC, Capacity, Pool
from spotwright.pools.request import DURATION, FLAG, NUMBER, SCALAR, TEXT, UNKNOWN_CAPACITY, ListedPool

__all__ = [
    "AGENT_POOL",
    "CLASS_RULE",
    "EKSCTL_CONFIG",
    "FORMS",
    "GOOGLE_POOL",
    "GROUP",
    "NODE_GROUP",
    "Form",
    "Raw",
    "block",
    "mappings",
    "present",
]


Raw = Mapping[str, Any]
"""An object as its tool wrote it."""
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
_TAINT = {"key": TEXT, "value": TEXT, "effect": TEXT}
_LABELS = {"*": TEXT}
_LEAST = 1  # nodes of a pool at its largest: every provider requires one
UNSIZED_GPUS = "set node: of the pool: the machine has GPUs or other accelerators, and how many is not in the list"
_BLOCK = "Capacity Block: on-demand, and AWS ends its nodes from 30 minutes before the reservation ends"
CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
ACCELERATOR = "cloud.google.com/gke-accelerator"
SHARED_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
_EKSCTL_LABEL = "alpha.eksctl.io/nodegroup-name"


class Form(NamedTuple):
    """A list of one tool: the key of a pool's name, the required keys, the shape to check, and the reader of a pool."""

    tool: str
    name: str
    keys: frozenset[str]
    shape: Raw
    read: Callable[[Raw], ListedPool]


def mappings(value: Any) -> list[Raw]:
    """The mappings of a list; empty for any other value."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def block(values: Raw, key: str) -> Raw:
    """A block of a resource, which Terraform writes as a list of one mapping, or empty."""
    value = values.get(key)
    return value if isinstance(value, Mapping) else next(iter(mappings(value)), {})


def present(**values: Any) -> dict[str, Any]:
    """The values that are set."""
    return {key: value for key, value in values.items() if value is not None}


def _pool(
    name: str,
    provider: str,
    is_spot: bool | None,
    *,
    labels: Raw | None = None,
    taints: Sequence[str] = (),
    bounds: tuple[int, int] | None,
    flags: Raw | None = None,
    notes: Iterable[str] = (),
    **settings: Any,
) -> ListedPool:
    """A pool of these settings, without empty values and the labels and taints that its provider sets by itself."""
    capacity = Capacity.SPOT if is_spot else Capacity.ON_DEMAND
    alone = Pool(name, capacity, provider, settings.get("machine", ""), node=settings.get("node"))
    by_provider, tainted = providers.labels(alone), {str(taint) for taint in providers.taints(alone)}
    own = {str(key): str(value) for key, value in (labels or {}).items() if by_provider.get(str(key)) != str(value)}
    limits = {} if bounds is None else {"min_nodes": bounds[0], "max_nodes": max(*bounds, _LEAST)}
    written = {
        "capacity": str(capacity.value),
        **providers.setting(provider),
        **{key: value for key, value in settings.items() if value},
        **limits,
        "labels": own,
        "taints": [taint for taint in dict.fromkeys(taints) if taint not in tainted],
        "create_flags": {key: value for key, value in (flags or {}).items() if value not in (None, "", [])},
    }
    unknown = (UNKNOWN_CAPACITY,) if is_spot is None else ()
    return ListedPool(
        name, {key: value for key, value in written.items() if value}, (*unknown, *notes), is_spot is not None
    )


def _architecture(provider: str, machine: str) -> dict[str, str]:
    """The label of an Arm machine; empty for others."""
    arch = architecture_of(Pool("", Capacity.SPOT, provider, machine))
    return {ARCH: arch} if arch == "arm64" else {}


def _taints(given: Iterable[Raw] | None) -> list[str]:
    """Taints with Google's and AWS's effects, in Kubernetes' form."""
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
            *((UNSIZED_GPUS,) if machine.startswith(PROVIDERS["aks"].gpu_machines) else ()),
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
    policy = str(scales.get("locationPolicy") or "")
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
    is_queued = (raw.get("queuedProvisioning") or {}).get("enabled") is True
    taints += [QUEUED] if is_queued else []
    is_flexible, duration = config.get("flexStart") is True, str(config.get("maxRunDuration") or "")
    reserved = config.get("reservationAffinity") or {}
    is_spot, affinity = is_preemptible or config.get("spot") is True, str(reserved.get("consumeReservationType") or "")
    scopes = [str(one) for one in config.get("oauthScopes") or ()]
    return _pool(
        str(raw["name"]),
        "gke",
        is_spot,
        machine=machine,
        region="-".join(where.split("-")[:2]),
        zones=zones,
        os="windows" if is_windows else "",
        node=node,
        max_lifetime="24h" if is_preemptible else duration or None,
        labels={
            **(config.get("labels") or {}),
            **labels,
            **({PREEMPTIBLE: "true"} if is_preemptible else {}),
            **({PROVISIONING: "flex-start"} if is_flexible or is_queued else {}),
            **({PROVISIONING: "reservation"} if affinity == _SPECIFIC else {}),
            **arch,
        },
        taints=taints,
        bounds=bounds,
        flags={
            "disk-size": config.get("diskSizeGb"),
            "disk-type": config.get("diskType"),
            "service-account": config.get("serviceAccount") if config.get("serviceAccount") != "default" else None,
            "scopes": scopes,
            "flex-start": is_flexible or None,
            "enable-queued-provisioning": is_queued or None,
            "location-policy": policy if policy not in ("", LOCATION_POLICIES[is_spot]) else None,
            "reservation-affinity": _AFFINITIES.get(affinity),
            "reservation": ",".join(map(str, reserved.get("values") or ())),
        },
        notes=[
            *(ending_notes(PROVISIONING, "flex-start") if is_flexible or is_queued else ()),
            *([QUEUED_NOTE] if is_queued else ()),
            *notes,
        ],
    )


QUEUED = "cloud.google.com/gke-queued=true:NoSchedule"
"""The taint that GKE sets on nodes of queued provisioning."""

QUEUED_NOTE = (
    "queued provisioning: nodes come only for a ProvisioningRequest of Kueue; a pod without one waits for ever"
)
"""The note for users of such a pool."""

LOCATION_POLICIES: Mapping[bool, str] = {True: "ANY", False: "BALANCED"}
"""The location policy of a new pool of GKE, by whether it is spot."""

_SPECIFIC = "SPECIFIC_RESERVATION"
_AFFINITIES = {"NO_RESERVATION": "none", "ANY_RESERVATION": "any", _SPECIFIC: "specific"}
_SHARING = {"TIME_SHARING": "time-sharing", "MPS": "mps"}


_ENDINGS = {
    (PROVISIONING, "flex-start"): "flex-start VMs: on-demand, and each ends after max_lifetime, 7 days at most",
    (CAPACITY_TYPE, "CAPACITY_BLOCK"): _BLOCK,
    ("karpenter.k8s.aws/capacity-reservation-type", "capacity-block"): _BLOCK,
}


def ending_notes(key: str, value: str) -> tuple[str, ...]:
    """The notes on a label that makes a provider end on-demand nodes at some time; empty for other labels."""
    found = _ENDINGS.get((key, value))
    return (found,) if found else ()


def _google_devices(config: Raw, machine: str, topology: Any) -> tuple[dict[str, str], dict[str, int], list[str]]:
    """The labels for the accelerators of a GKE pool, the amount that a node offers, and notes."""
    labels: dict[str, str] = {}
    node: dict[str, int] = {}
    notes: list[str] = []
    for one in config.get("accelerators") or ():
        count, size = int(one.get("acceleratorCount") or 0), str(one.get("gpuPartitionSize") or "")
        shared = (one.get("gpuSharingConfig") or {}).get("maxSharedClientsPerGpu")
        if not count:
            continue
        labels[ACCELERATOR] = str(one.get("acceleratorType") or "")
        if size:
            labels["cloud.google.com/gke-gpu-partition-size"] = size
            count *= gpu_parts(size)
        if shared:
            count *= int(shared)
            strategy = str((one.get("gpuSharingConfig") or {}).get("gpuSharingStrategy") or "TIME_SHARING")
            labels[SHARED_CLIENTS], labels[SHARING] = str(shared), _SHARING.get(strategy, strategy.lower())
            notes.append(f"each GPU is shared by {shared} containers, so a node offers {count}")
        node[NVIDIA_GPU] = count
    if not node and machine_accelerator(machine):
        notes.append(UNSIZED_GPUS)
    kind, chips = machine_tpu(machine), _CHIPS.search(machine)
    if kind and chips:
        node["google.com/tpu"] = int(chips[1])
        labels["cloud.google.com/gke-tpu-accelerator"] = kind
        labels |= {"cloud.google.com/gke-tpu-topology": str(topology)} if topology else {}
    return labels, node, notes


def _read_eks(raw: Raw) -> ListedPool:
    machines = [str(one) for one in raw.get("instanceTypes") or ()]
    scales, image = raw.get("scalingConfig") or {}, str(raw.get("amiType") or "")
    kind, end = str(raw.get("capacityType") or ""), raw.get("reservationEnd")
    arn = str(raw.get("nodegroupArn") or "").split(":")
    reserved = {CAPACITY_TYPE: kind} if kind not in ("", "SPOT", "ON_DEMAND") else {}
    notes = [] if kind else ["no capacity type is named: EKS makes on-demand nodes then"]
    notes += [f"{note}{f'; this one ends at {end}' if end else ''}" for note in ending_notes(CAPACITY_TYPE, kind)]
    return _aws_pool(str(raw["nodegroupName"]), "eks", kind == "SPOT", machines, image)(
        region=arn[3] if len(arn) > 4 else str(raw.get("region") or ""),
        labels={**(raw.get("labels") or {}), **reserved},
        taints=_taints(raw.get("taints")),
        bounds=(int(scales.get("minSize") or 0), int(scales.get("maxSize") or 0)),
        flags={"volumeSize": raw.get("diskSize")},
        notes=notes,
    )


def _aws_pool(
    name: str, provider: str, is_spot: bool | None, machines: Sequence[str], image: str
) -> Callable[..., ListedPool]:
    """A pool of one or several AWS machines; its image determines architecture and operating system."""

    def made(*, labels: Raw, flags: Raw, notes: Sequence[str], **settings: Any) -> ListedPool:
        return _pool(
            name,
            provider,
            is_spot,
            machine=machines[0] if len(machines) == 1 else "",
            os="windows" if image.upper().startswith("WINDOWS") else "",
            labels={**labels, **({ARCH: "arm64"} if "ARM_64" in image.upper() else {})},
            flags={**flags, "instanceTypes": list(machines) if len(machines) > 1 else None},
            notes=[*notes, *(() if settings.get("node") else _unsized(machines, image))],
            **settings,
        )

    return made


def _unsized(machines: Sequence[str], image: str) -> Iterator[str]:
    """A note if an AWS node has an unknown number of accelerators."""
    starts = PROVIDERS["eks"].gpu_machines
    if re.search("GPU|NVIDIA|NEURON", image.upper()) or any(one.startswith(starts) for one in machines):
        yield UNSIZED_GPUS


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
        is_spot = _is_spot_mix(mix)
    taints = mappings(raw.get("taints"))
    if isinstance(raw.get("taints"), Mapping):  # of former nodeGroups: key, then value:effect
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
        notes=[_MIXES] if is_spot is None else [],
    )


_MIXES = "it mixes spot and on-demand in one group: make a group of each"


def _is_spot_mix(mix: Raw) -> bool | None:
    """The capacity of a group by its distribution; ``None`` if it has nodes of both."""
    base, above = mix.get("onDemandBaseCapacity"), mix.get("onDemandPercentageAboveBaseCapacity")
    share = _ALL_ON_DEMAND if above is None else int(above)
    return False if share == _ALL_ON_DEMAND else True if share == 0 and not int(base or 0) else None


_MARKETS = {"spot": True, "on-demand": False, "capacity-block": False}


def _read_group(raw: Raw) -> ListedPool:
    """A group of machines whose nodes join the cluster by themselves: only its tags describe its nodes."""
    machines, mix = [str(one) for one in raw.get("instanceTypes") or ()], raw.get("instancesDistribution")
    market = raw.get("marketType")
    is_spot = _is_spot_mix(mix) if mix is not None else _MARKETS.get(str(market or ""))
    labels, end = raw.get("labels") or {}, raw.get("reservationEnd")
    notes = [_MIXES] if mix is not None and is_spot is None else []
    notes += (
        ["its machines are chosen by attributes: set machine: or node: of the pool"] if raw.get("byAttributes") else []
    )
    notes += [] if raw.get("maxSize") else ["no upper limit is in the file: set max_nodes"]
    notes += [f"{_BLOCK}{f'; this one ends at {end}' if end else ''}"] if market == "capacity-block" else []
    notes += (
        [] if labels else ["nothing in the file names the labels of its nodes: add those that its start script sets"]
    )
    return _aws_pool(str(raw["groupName"]), GENERIC, is_spot, machines, str(raw.get("image") or ""))(
        region=str(raw.get("region") or ""),
        zones=[str(zone) for zone in raw.get("availabilityZones") or ()],
        node={str(key): value for key, value in (raw.get("resources") or {}).items()},
        max_price=raw.get("maxPrice"),
        labels=labels,
        taints=_taints(raw.get("taints")),
        bounds=(int(raw.get("minSize") or 0), int(raw.get("maxSize") or 0)),
        flags={},
        notes=notes,
    )


AGENT_POOL = Form(
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
GOOGLE_POOL = Form(
    "gcloud",
    "name",
    frozenset({"name", "config"}),
    {
        **dict.fromkeys(("name", "location"), TEXT),
        "locations": [TEXT],
        "initialNodeCount": NUMBER,
        "autoscaling": dict.fromkeys(("minNodeCount", "maxNodeCount", "totalMinNodeCount", "totalMaxNodeCount"), NUMBER)
        | {"locationPolicy": TEXT},
        "queuedProvisioning": {"enabled": FLAG},
        "placementPolicy": {"tpuTopology": TEXT},
        "config": {
            **dict.fromkeys(("machineType", "imageType", "diskType", "serviceAccount"), TEXT),
            "maxRunDuration": DURATION,
            "diskSizeGb": NUMBER,
            "reservationAffinity": {"consumeReservationType": TEXT, "values": [TEXT]},
            "labels": _LABELS,
            "taints": [_TAINT],
            "oauthScopes": [TEXT],
            "accelerators": [
                {
                    "acceleratorType": TEXT,
                    "acceleratorCount": NUMBER,
                    "gpuPartitionSize": TEXT,
                    "gpuSharingConfig": {"maxSharedClientsPerGpu": NUMBER, "gpuSharingStrategy": TEXT},
                }
            ],
        },
    },
    _read_gke,
)
NODE_GROUP = Form(
    "aws",
    "nodegroupName",
    frozenset({"nodegroupName"}),
    {
        **dict.fromkeys(("nodegroupName", "nodegroupArn", "capacityType", "amiType", "region", "reservationEnd"), TEXT),
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
_RULE = (
    "machineType",
    "spot",
    "gpu",
    "location",
    "maxRunDurationSeconds",
    "computeClass",
    "number",
    "name",
)  # fields of a pool


def _read_class_rule(raw: Raw) -> ListedPool:
    """A rule of a ComputeClass by which GKE makes node pools; settings without a field of a pool stay in ``create_flags``."""
    is_spot, devices = raw.get("spot") is True, raw.get("gpu") or {}
    count, seconds = int(devices.get("count") or 0), raw.get("maxRunDurationSeconds")
    machine = str(raw.get("machineType") or "")
    is_flexible = (raw.get("flexStart") or {}).get("enabled") is True
    kept = {key: value for key, value in raw.items() if key not in _RULE}
    return _pool(
        f"{raw['computeClass']}-{'spot' if is_spot else 'on-demand'}",
        "gke",
        is_spot,
        automatic=True,
        machine=machine,
        zones=[str(zone) for zone in (raw.get("location") or {}).get("zones") or ()],
        node={NVIDIA_GPU: count} if count else None,
        max_lifetime=f"{seconds}s" if seconds else None,
        labels={
            COMPUTE_CLASS: raw["computeClass"],
            **({ACCELERATOR: str(devices.get("type") or "")} if count else {}),
            **({PROVISIONING: "flex-start"} if is_flexible else {}),
        },
        bounds=None,
        flags=kept,
        notes=[]
        if machine
        else ["GKE chooses the machine: set node: of the pool, at least for what its GPUs do not say"],
    )


CLASS_RULE = Form(
    "ComputeClasses",
    "computeClass",
    frozenset({"computeClass"}),
    {
        **dict.fromkeys(("computeClass", "machineType"), TEXT),
        "spot": FLAG,
        "gpu": {"type": TEXT, "count": NUMBER},
        "location": {"zones": [TEXT]},
        "flexStart": {"enabled": FLAG},
        "maxRunDurationSeconds": NUMBER,
    },
    _read_class_rule,
)
GROUP = Form(
    "groups of machines",
    "groupName",
    frozenset({"groupName"}),
    {
        **dict.fromkeys(("groupName", "marketType", "image", "region", "reservationEnd"), TEXT),
        **dict.fromkeys(("minSize", "maxSize"), NUMBER),
        **{key: [TEXT] for key in ("instanceTypes", "availabilityZones")},
        "labels": _LABELS,
        "taints": [_TAINT],
        "resources": {"*": SCALAR},
        "maxPrice": SCALAR,
        "instancesDistribution": {"onDemandBaseCapacity": NUMBER, "onDemandPercentageAboveBaseCapacity": NUMBER},
    },
    _read_group,
)
FORMS = (AGENT_POOL, NODE_GROUP, _EKSCTL, GOOGLE_POOL)
"""The forms of lists, in the order in which they are tried."""
