"""Pools of an aks-engine API model, as pools of AKS today: aks-engine is retired, and low-priority VMs are Spot VMs.

Source: Azure/aks-engine, ``docs/topics/clusterdefinitions.md`` (agentPoolProfiles: name, count, vmSize, scaleSetPriority,
scaleSetEvictionPolicy, customNodeLabels, vnetSubnetId, OSDiskSizeGB, availabilityZones, osType) and ``docs/topics/addons.md``
(cluster-autoscaler: min-nodes and max-nodes, for all pools or for each).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.errors import InputError

__all__ = ["PastPool", "pools_of_api_model"]

_SPOT = ("low", "spot")


class PastPool(NamedTuple):
    """A pool of the API model: its settings for spotwright.yaml, and what has changed since."""

    name: str
    settings: Mapping[str, Any]
    notes: tuple[str, ...]


def pools_of_api_model(model: Mapping[str, Any], name: str) -> list[PastPool]:
    """The agent pools of an API model. ``name`` is how messages call the file. Raises :class:`InputError`."""
    properties = model.get("properties") or {}
    profiles = properties.get("agentPoolProfiles")
    if not isinstance(profiles, list) or not all(isinstance(one, Mapping) and one.get("name") for one in profiles):
        raise InputError(f"{name}: an API model of aks-engine, whose agentPoolProfiles are no list of pools with names")
    limits = dict(_limits(properties))
    return [_pool(profile, limits) for profile in profiles]


def _pool(profile: Mapping[str, Any], limits: Mapping[str, tuple[int, int]]) -> PastPool:
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
        **({"create_flags": flags} if (flags := dict(_flags(profile))) else {}),
    }
    return PastPool(name, settings, tuple(_notes(profile, name, priority, is_spot=is_spot)))


def _flags(profile: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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
    """The limits of the autoscaler add-on by pool; under the empty name those for all."""
    config = ((properties.get("orchestratorProfile") or {}).get("kubernetesConfig")) or {}
    for addon in config.get("addons") or ():
        if isinstance(addon, Mapping) and addon.get("name") == "cluster-autoscaler":
            for pool in ({"name": "", "config": addon.get("config")}, *(addon.get("pools") or ())):
                given = pool.get("config") or {}
                if given.get("max-nodes") is not None:
                    yield str(pool.get("name") or ""), (int(given.get("min-nodes") or 0), int(given["max-nodes"]))
