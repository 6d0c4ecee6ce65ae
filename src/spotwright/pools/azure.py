"""The ``az`` commands that create a node pool of AKS, and those that show whether the region has the machine and the quota.

Pools of an aks-engine API model become AKS pools: aks-engine is retired, and low-priority VMs became Spot VMs.

Sources: azure-cli, ``acs/_params.py`` and ``acs/_help.py`` (``aks nodepool add``: the flags, their forms, and 3 as the default
of ``--node-count``), ``acs/managed_cluster_decorator.py`` (an update of the autoscaler's profile keeps its other settings);
Microsoft Learn, "Add an Azure Spot node pool to an AKS cluster" (eviction policy, maximum price, what cannot be changed later),
"Use the cluster autoscaler in AKS" (the profile's expander), "Use GPUs on AKS" (the driver comes with the image, the device
plugin does not); Azure, "Azure Spot Virtual Machines" (eviction types *capacity only* and *price or capacity*).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.providers import azure_zone
from spotwright.errors import InputError
from spotwright.model.pools import Pool
from spotwright.placing.retries import EXPANDER_MEANINGS, expander_objects
from spotwright.pools.request import (
    ListedPool,
    Request,
    Variable,
    Word,
    command,
    comment,
    cpus,
    gpus,
    heredoc,
    introduction,
    name_at_provider,
    section,
    with_create_flags,
)

__all__ = ["az_script", "pools_of_api_model"]


_GROUP = Variable("RESOURCE_GROUP", "the resource group of the cluster")
_CLUSTER = Variable("CLUSTER", "the name of the cluster")
_LOCATION = Variable("LOCATION", "the region of the cluster")
_DECIMALS = 5  # of a maximum price; source: azure-cli, validate_spot_max_price
_RESERVED = ("kubernetes.azure.com/", "kubernetes.io/")
_SAID_BY = {
    "name": "the name of the pool",
    "nodepool-name": "the name of the pool",
    "priority": "capacity",
    "spot-max-price": "max_price",
    "min-count": "min_nodes",
    "max-count": "max_nodes",
    "node-vm-size": "machine",
    "zones": "zones",
    "labels": "labels",
    "node-taints": "taints",
    "os-type": "os",
}


def az_script(request: Request) -> Iterator[str]:
    """The script for one pool. Raises :class:`InputError` if AKS cannot have such a pool."""
    pool = request.pool
    _refuse(request)
    name = name_at_provider(request)
    flags = _az_flags(request, name)
    yield from introduction(request, "AKS")
    yield from _availability(pool)
    yield from section("Make the pool.", *_meanings(request, name, flags))
    yield from command(("az", "aks", "nodepool", "add"), flags)
    yield from _preference(request)
    yield from section("Compare what is there with spotwright.yaml.")
    yield f"kubectl get nodes -l kubernetes.azure.com/agentpool={name} --show-labels"
    yield "kubectl get nodes,daemonsets -A -o json | spotwright pools check -"


def _refuse(request: Request) -> None:
    pool = request.pool
    if not pool.machine:
        raise InputError(f"pool {pool.name}: az needs the machine: set machine: Standard_... in spotwright.yaml")
    if pool.max_nodes < 1:
        raise InputError(f"pool {pool.name}: max_nodes is 0, and AKS asks for at least 1")
    if pool.max_price is not None:
        if request.currency != "USD":
            raise InputError(
                f"pool {pool.name}: max_price is in {request.currency}, and Azure takes the maximum price in USD: "
                "remove it, and add it to the command"
            )
        if (pool.max_price * 10**_DECIMALS).denominator != 1:
            raise InputError(
                f"pool {pool.name}: max_price has more than {_DECIMALS} decimals, which Azure does not take"
            )


def _az_flags(request: Request, name: str) -> dict[str, tuple[Word, ...]]:
    pool = request.pool
    labels = {key: value for key, value in providers.own_labels(pool).items() if not key.startswith(_RESERVED)}
    by_azure = providers.taints(Pool(pool.name, pool.capacity, pool.provider))
    taints = [str(taint) for taint in pool.taints if taint not in by_azure]
    flags: dict[str, tuple[Word, ...]] = {
        "resource-group": (_GROUP,),
        "cluster-name": (request.cluster or _CLUSTER,),
        "name": (name,),
        "mode": ("User",),
        **(_spot_flags(pool) if pool.is_spot else {}),
        **({"os-type": ("Windows",)} if pool.os == "windows" else {}),
        "node-vm-size": (pool.machine,),
        **({"zones": tuple(_number(zone) for zone in pool.zones)} if pool.zones else {}),
        "enable-cluster-autoscaler": (),
        "node-count": (pool.min_nodes,),
        "min-count": (pool.min_nodes,),
        "max-count": (pool.max_nodes,),
        **({"labels": tuple(f"{key}={value}" for key, value in labels.items())} if labels else {}),
        **({"node-taints": (",".join(taints),)} if taints else {}),
    }
    return with_create_flags(request, flags, _SAID_BY)


def _spot_flags(pool: Pool) -> dict[str, tuple[Word, ...]]:
    price = "-1" if pool.max_price is None else _decimal(pool.max_price)
    return {"priority": ("Spot",), "eviction-policy": ("Delete",), "spot-max-price": (price,)}


def _number(zone: str) -> str:
    """The number of a zone, as az takes it, also from a node label's form (eastus-1)."""
    found = azure_zone(zone)
    return found[1] if found else zone


def _decimal(price: Fraction) -> str:
    return f"{float(price):.{_DECIMALS}f}".rstrip("0").rstrip(".")


def _availability(pool: Pool) -> Iterator[str]:
    location: Word = pool.region or _LOCATION
    needed = f" This pool needs up to {cpus(pool)}." if cpus(pool) else ""
    quota = (
        "Spot nodes of every family share one quota: the row Total Regional Low-priority vCPUs."
        if pool.is_spot
        else "On-demand nodes need quota in the row of their family and in Total Regional vCPUs."
    )
    yield from section(
        "Does the region have the machine, and is quota left?",
        "The column Restrictions says None where your subscription may have the machine. NotAvailableForSubscription "
        "of the type Location: not in this region; of the type Zone: not in the zones beside it. Ask for access, or "
        "take another region or size.",
        quota + needed,
    )
    yield from command(
        ("az", "vm", "list-skus"), {"location": (location,), "size": (pool.machine,), "all": (), "output": ("table",)}
    )
    yield from command(("az", "vm", "list-usage"), {"location": (location,), "output": ("table",)})
    if pool.is_spot:
        sizes = f'[{{"sku":"{pool.machine}"}}]'
        locations: Word = f'["{pool.region}"]' if pool.region else Variable("LOCATIONS", "a JSON list of regions")
        yield from comment("How likely Azure is to have that many spot nodes now: High, Medium or Low.")
        yield from command(
            ("az", "compute-recommender", "spot-placement-score"),
            {
                "location": (location,),
                "desired-locations": (locations,),
                "desired-sizes": (sizes,),
                "desired-count": (max(pool.max_nodes, 1),),
                "availability-zones": ("true" if pool.zones else "false",),
            },
        )


def _meanings(request: Request, name: str, flags: dict[str, tuple[Word, ...]]) -> Iterator[str]:
    pool = request.pool
    yield from request.warnings
    if pool.is_spot:
        yield from _spot_meanings(request, flags)
    else:
        yield "On-demand: no priority is named, so the nodes are regular ones, with neither spot label nor spot taint."
    yield (
        f"--node-count {pool.min_nodes} is min_nodes: without it az asks for 3 nodes, which may lie outside "
        "--min-count and --max-count, and then refuses. Nodes come when pods wait for them."
    )
    yield (
        "Labels and taints are given here and never to Node objects: AKS passes them to its autoscaler, so that a pool "
        "of 0 nodes is known to fit, and every new node has them. They can be changed with az aks nodepool update."
    )
    reserved = [key for key in providers.own_labels(pool) if key.startswith(_RESERVED)]
    if reserved:
        yield request.warn(f"not given to az, because AKS reserves their prefix: {', '.join(reserved)}")
    if gpus(pool):
        yield from _gpu_meanings(request)
    yield (
        f"--mode User: system pods stay on the system pool. The pool's name {name} is the label "
        "kubernetes.azure.com/agentpool."
    )


def _spot_meanings(request: Request, flags: dict[str, tuple[Word, ...]]) -> Iterator[str]:
    pool = request.pool
    yield (
        "--priority Spot: AKS adds the label and the taint kubernetes.azure.com/scalesetpriority=spot:NoSchedule by "
        "itself. It can never be the cluster's default pool, has no SLA and one fault domain, and its upgrades do not "
        "drain. Priority, eviction policy and maximum price cannot be changed later: make a new pool instead."
    )
    if pool.max_price is None:
        yield (
            "--spot-max-price -1 is the eviction type 'capacity only': nodes go only where Azure needs the capacity, "
            "and cost at most the on-demand price."
        )
    else:
        yield (
            f"--spot-max-price {_decimal(pool.max_price)} is the eviction type 'price or capacity': nodes also go, and "
            "none comes, while an hour costs more US dollars than that. Without max_price it is 'capacity only'."
        )
    if "".join(map(str, flags.get("eviction-policy", ()))).lower() == "deallocate":
        yield request.warn(
            "--eviction-policy Deallocate keeps evicted machines as stopped nodes: they count against the quota, their "
            "disks are paid, and the autoscaler takes them for nodes that come back, so that the pool may not grow. "
            "Delete is the better choice"
        )
    else:
        yield "--eviction-policy Delete: evicted machines are deleted, and use neither quota nor disks."
    yield (
        "The notice is 30 seconds at best; AKS does not promise SIGTERM. Without the autoscaler the pool would shrink "
        "to 0 for good."
    )


def _gpu_meanings(request: Request) -> Iterator[str]:
    pool = request.pool
    yield (
        "GPUs: the machine size brings them, and AKS the driver. It installs no device plugin: until NVIDIA's "
        "DaemonSet runs there and tolerates the pool's taints, no node has allocatable GPUs."
    )
    if not any(providers.is_gpu_taint(taint) for taint in pool.taints):
        yield request.warn(
            'AKS sets no GPU taint: add taints: ["sku=gpu:NoSchedule"] to the pool in spotwright.yaml, '
            "or work without GPUs may fill it"
        )


def _preference(request: Request) -> Iterator[str]:
    objects = list(
        expander_objects({name: one for name, one in request.pools.items() if one.provider == request.pool.provider})
    )
    if not objects:
        return
    yield from section(
        "Make spot: prefer true, once for the cluster.",
        *EXPANDER_MEANINGS,
        "The other settings of the autoscaler's profile stay as they are.",
    )
    group = {"resource-group": (_GROUP,), "name": (request.cluster or _CLUSTER,)}
    yield from command(("az", "aks", "update"), {**group, "cluster-autoscaler-profile": ("expander=priority",)})
    yield from heredoc(("kubectl", "apply", "-f", "-"), objects)


_SPOT = ("low", "spot")


def pools_of_api_model(model: Mapping[str, Any], name: str) -> list[ListedPool]:
    """The agent pools of an API model. ``name`` is the file's for messages. Raises :class:`InputError`."""
    properties = model.get("properties") or {}
    profiles = properties.get("agentPoolProfiles")
    if not isinstance(profiles, list) or not all(isinstance(one, Mapping) and one.get("name") for one in profiles):
        raise InputError(
            f"{name}: an API model of aks-engine, whose agentPoolProfiles are not a list of pools with names"
        )
    limits = dict(_limits(properties))
    return [_pool(profile, limits) for profile in profiles]


def _pool(profile: Mapping[str, Any], limits: Mapping[str, tuple[int, int]]) -> ListedPool:
    given = str(profile["name"])
    name = re.sub(r"[^a-z0-9]", "", given.lower())[:12] or "pool"
    priority = str(profile.get("scaleSetPriority") or "Regular")
    is_spot = priority.lower() in _SPOT
    least, most = limits.get(given) or limits.get("") or (0, max(int(profile.get("count") or 0), 10))
    labels = {str(key): str(value) for key, value in (profile.get("customNodeLabels") or {}).items()}
    settings = {
        "capacity": "spot" if is_spot else "on-demand",
        "provider": "aks",
        **({"machine": str(profile["vmSize"])} if profile.get("vmSize") else {}),
        **({"zones": [str(zone) for zone in profile["availabilityZones"]]} if profile.get("availabilityZones") else {}),
        **({"os": "windows"} if str(profile.get("osType", "")).lower() == "windows" else {}),
        **({"min_nodes": least} if least else {}),
        "max_nodes": max(most, 1),
        **({"labels": labels} if labels else {}),
        **({"create_flags": flags} if (flags := dict(_profile_flags(profile))) else {}),
    }
    return ListedPool(name, settings, tuple(_notes(profile, name, priority, is_spot=is_spot)))


def _profile_flags(profile: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if profile.get("vnetSubnetId"):
        yield "vnet-subnet-id", str(profile["vnetSubnetId"])
    size = profile.get("OSDiskSizeGB") or profile.get("osDiskSizeGB")
    if size:
        yield "node-osdisk-size", int(size)
    if str(profile.get("scaleSetEvictionPolicy", "")).lower() == "deallocate":
        yield "eviction-policy", "Deallocate"


def _notes(profile: Mapping[str, Any], name: str, priority: str, *, is_spot: bool) -> Iterator[str]:
    if name != profile["name"]:
        yield f"called {profile['name']} there; AKS allows at most 12 small letters and digits"
    if priority.lower() == "low":
        yield "scaleSetPriority Low: low-priority VMs became Spot VMs (az aks nodepool add --priority Spot)"
    if is_spot:
        yield (
            "AKS adds the taint kubernetes.azure.com/scalesetpriority=spot:NoSchedule by itself, which aks-engine did "
            "not"
        )
    if str(profile.get("scaleSetEvictionPolicy", "")).lower() == "deallocate":
        yield "Deallocate keeps evicted machines, which count against the quota: remove eviction-policy"
    if "singlePlacementGroup" in profile:
        yield "singlePlacementGroup: AKS makes several placement groups by itself"
    if int(profile.get("count") or 0) and is_spot:
        yield "count: pools of AKS start at min_nodes, and may have 0 nodes"


def _limits(properties: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, int]]]:
    """The limits of the autoscaler add-on by pool; the empty name has the default."""
    config = ((properties.get("orchestratorProfile") or {}).get("kubernetesConfig")) or {}
    for addon in config.get("addons") or ():
        if isinstance(addon, Mapping) and addon.get("name") == "cluster-autoscaler":
            for pool in ({"name": "", "config": addon.get("config")}, *(addon.get("pools") or ())):
                given = pool.get("config") or {}
                if given.get("max-nodes") is not None:
                    yield str(pool.get("name") or ""), (int(given.get("min-nodes") or 0), int(given["max-nodes"]))
