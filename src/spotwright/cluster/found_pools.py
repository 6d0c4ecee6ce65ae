"""Reads pools off the nodes of a cluster and off Karpenter's NodePools, as a configuration to start from.

Nodes of one pool carry the pool's name in a label of their provider. What they have in common becomes the pool: capacity,
machine, zones, resources and taints. Prices, limits and notices are in no object of the API, so they are left out. A pool without
nodes is known only where Karpenter has a NodePool for it. Each pool that is written here fits the nodes that it was read off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.node_signs import is_passing_taint
from spotwright.clouds.providers import INSTANCE_TYPE, NVIDIA_GPU, ZONE, azure_zone
from spotwright.cluster.workloads import metadata
from spotwright.model.pools import Capacity, Pool, Provider
from spotwright.model.scheduling_terms import Taint

__all__ = ["FoundPool", "found_pools"]


_SET_BY_TOOLS = ("agentpool", "storageprofile", "storagetier", "lifecycle", "node-lifecycle")
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
_REGION = "topology.kubernetes.io/region"
_EFFECTS = ("NoSchedule", "NoExecute")


class FoundPool(NamedTuple):
    """A pool that a cluster shows. ``settings`` are those of ``pools`` in spotwright.yaml; ``nodes`` are the nodes' names."""

    name: str
    settings: Mapping[str, Any]
    nodes: Sequence[str]


def found_pools(nodes: Sequence[Mapping[str, Any]], node_pools: Sequence[Mapping[str, Any]] = ()) -> list[FoundPool]:
    """The pools of these nodes, and of Karpenter's NodePools that have none, by name."""
    groups: dict[tuple[str, str, bool], list[Mapping[str, Any]]] = {}
    for node in nodes:
        label, value = _pool_label(node)
        groups.setdefault((label, value, _is_spot(node)), []).append(node)
    found: dict[str, FoundPool] = {}
    for (label, value, is_spot), members in groups.items():
        others = (label, value, not is_spot) in groups
        name = _name(value, suffix=("-spot" if is_spot else "-on-demand") if others else "", taken=found)
        settings = _settings(label, value, members, name, is_spot=is_spot)
        found[name] = FoundPool(name, settings, sorted(str(metadata(node).get("name")) for node in members))
    for pool in _without_nodes(node_pools, groups):
        if pool.name not in found:
            found[pool.name] = pool
    return sorted(found.values(), key=lambda pool: pool.name)


def _settings(
    label: str, value: str, nodes: Sequence[Mapping[str, Any]], name: str, *, is_spot: bool
) -> dict[str, Any]:
    """The settings of a pool, with the labels that its provider does not set by itself."""
    provider = providers.POOL_LABELS.get(label, Provider.GENERIC)
    capacity = Capacity.SPOT if is_spot else Capacity.ON_DEMAND
    machine, (region, zones) = _common(nodes, INSTANCE_TYPE), _zones(nodes, provider)
    node = _smallest(nodes)
    labels = {label: value} if label and (provider is Provider.GENERIC or name != value) else {}
    labels |= _own_labels(nodes)
    pool = Pool(name, capacity, provider, machine, tuple(zones), region, labels=labels)
    if provider is not Provider.GENERIC and not all(providers.pool_of(_labels(node), {name: pool}) for node in nodes):
        provider, labels = Provider.GENERIC, {label: value, **_capacity_labels(nodes), **_own_labels(nodes)}
        region, zones = _zones(nodes, provider)
    taints = _taints(nodes, Pool(name, capacity, provider))
    return {
        "capacity": str(capacity.value),
        **({"provider": str(provider.value)} if provider is not Provider.GENERIC else {}),
        **({"machine": machine} if machine else {}),
        **({"region": region} if region else {}),
        **({"zones": zones} if zones else {}),
        **({"node": node} if node else {}),
        **({"max_nodes": len(nodes)} if len(nodes) > pool.max_nodes else {}),
        **({"labels": labels} if labels else {}),
        **({"taints": taints} if taints else {}),
    }


def _without_nodes(
    node_pools: Sequence[Mapping[str, Any]], groups: Mapping[tuple[str, str, bool], object]
) -> Iterator[FoundPool]:
    """NodePools of Karpenter for which there is no node now: a pool for each capacity type that they may ask for."""
    for node_pool in node_pools:
        value = str(metadata(node_pool).get("name", ""))
        spec = ((node_pool.get("spec") or {}).get("template") or {}).get("spec") or {}
        kinds = next(
            (each.get("values") or [] for each in spec.get("requirements") or () if each.get("key") == _CAPACITY_TYPE),
            ["on-demand"],  # Karpenter's default
        )
        for kind in kinds:
            is_spot = kind == "spot"
            if kind not in ("spot", "on-demand") or ("karpenter.sh/nodepool", value, is_spot) in groups:
                continue
            many = len(kinds) > 1
            name = _name(value, suffix=("-spot" if is_spot else "-on-demand") if many else "", taken={})
            labels = {"karpenter.sh/nodepool": value} if name != value else {}
            taints = [_written(taint) for taint in spec.get("taints") or ()]
            settings = {"capacity": "spot" if is_spot else "on-demand", "provider": "karpenter"}
            more = {**({"labels": labels} if labels else {}), **({"taints": taints} if taints else {})}
            yield FoundPool(name, {**settings, **more}, ())


def _pool_label(node: Mapping[str, Any]) -> tuple[str, str]:
    labels = _labels(node)
    return next(((label, labels[label]) for label in providers.POOL_LABELS if labels.get(label)), ("", ""))


def _is_spot(node: Mapping[str, Any]) -> bool:
    taints = tuple(str(taint.get("key", "")) for taint in (node.get("spec") or {}).get("taints") or ())
    return bool(providers.is_spot_node(_labels(node), taints))


def _name(value: str, *, suffix: str, taken: Mapping[str, object]) -> str:
    """A name for spotwright.yaml: small letters, digits and dashes."""
    base = re.sub(r"[^a-z0-9-]+", "-", value.lower()).strip("-") or "other-nodes"
    names = (f"{base}{suffix}", *(f"{base}{suffix}-{number}" for number in range(2, 1000)))
    return next(name for name in names if name not in taken)


def _zones(nodes: Sequence[Mapping[str, Any]], provider: Provider) -> tuple[str, list[str]]:
    """The region and the zones of these nodes: on AKS zones are numbers, as in its commands; elsewhere they name the region."""
    labels = _values(nodes, ZONE)
    if provider is not Provider.AKS:
        return "", labels
    found = [zone for label in labels if (zone := azure_zone(label))]
    regions = {region for region, _ in found} or set(_values(nodes, _REGION))
    if len(regions) != 1 or (found and len(found) != len(labels)):
        return "", [label for label in labels if azure_zone(label)]
    return regions.pop(), [number for _, number in found]


def _values(nodes: Sequence[Mapping[str, Any]], label: str) -> list[str]:
    return sorted({str(value) for node in nodes if (value := _labels(node).get(label))})


def _common(nodes: Sequence[Mapping[str, Any]], label: str) -> str:
    values = [_labels(node).get(label) for node in nodes]
    return str(values[0]) if values[0] and len(set(values)) == 1 else ""


def _capacity_labels(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The labels that say spot, or not, and that all of these nodes have."""
    common = set.intersection(*(set(_labels(node).items()) for node in nodes))
    return {key: value for key, value in sorted(common) if providers.is_spot_node({key: value}, ()) is not None}


def _own_labels(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The labels without a domain that all of these nodes have: people set those, for selectors such as ``gpu: "true"``."""
    common = set.intersection(*(set(_labels(node).items()) for node in nodes))
    return {key: value for key, value in sorted(common) if "/" not in key and key not in _SET_BY_TOOLS}


def _smallest(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the smallest of these nodes offers to pods. Amounts are compared as texts of one unit only, else left out."""
    offers = [(node.get("status") or {}).get("allocatable") or {} for node in nodes]
    result: dict[str, Any] = {}
    for resource in ("cpu", "memory", NVIDIA_GPU):
        amounts = {str(offer[resource]) for offer in offers if offer.get(resource) not in (None, "0")}
        if len(amounts) == 1 and all(resource in offer for offer in offers):
            result[resource] = next(iter(amounts))
    return result


def _taints(nodes: Sequence[Mapping[str, Any]], pool: Pool) -> list[str]:
    """The taints that all nodes have, without those of the provider and those that come and go."""
    by_provider = {str(taint) for taint in providers.taints(pool)}
    all_taints = [
        {_written(taint) for taint in (node.get("spec") or {}).get("taints") or () if _stays(taint)} for node in nodes
    ]
    return sorted(set.intersection(*all_taints) - by_provider) if all_taints else []


def _stays(taint: Mapping[str, Any]) -> bool:
    return not is_passing_taint(str(taint.get("key", ""))) and taint.get("effect") in _EFFECTS


def _written(taint: Mapping[str, Any]) -> str:
    return str(Taint(str(taint.get("key", "")), str(taint.get("value") or ""), str(taint.get("effect", "NoSchedule"))))


def _labels(node: Mapping[str, Any]) -> dict[str, str]:
    return dict(metadata(node).get("labels") or {})
