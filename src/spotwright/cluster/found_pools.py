"""Derives pools from a cluster's nodes and Karpenter's NodePools, as a first configuration.

Nodes of one pool carry the pool's name in a label of their provider or provisioner. Nodes that differ in capacity type,
architecture, operating system or accelerators form separate pools; nodes without such a label form one pool for each set of
labels, taints and accelerators. A pool gets its nodes' common properties. Prices, limits and notices are not in the API and are
omitted. A pool without nodes is known only by its Karpenter NodePool. Notes name omitted and unknown properties.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.node_labels import is_set_by_system
from spotwright.clouds.node_signs import (
    ARCH,
    OS,
    is_control_plane,
    is_passing_taint,
    is_virtual,
)
from spotwright.clouds.provider import Provider
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.clouds.providers import INSTANCE_TYPE, NODE_POOL_LABEL, ZONE, azure_zone
from spotwright.errors import InputError
from spotwright.kube.object_fields import metadata
from spotwright.model.pools import GENERIC, Capacity, Pool
from spotwright.model.quantities import parse_resource
from spotwright.model.scheduling_terms import Taint
from spotwright.pools.cluster_inventory import labels_of, name_of, names, taints_of
from spotwright.pools.karpenter import CAPACITY_TYPE, NODE_CLASS_LABELS, RESERVED, NodePool, read_node_pool
from spotwright.pools.listed_forms import QUEUED, QUEUED_NOTE, UNSIZED_GPUS, ending_notes
from spotwright.pools.request import UNKNOWN_CAPACITY, name_for

__all__ = ["FoundPool", "found_pools", "left_out"]


_REGION = "topology.kubernetes.io/region"
_CAST_AI = "provisioner.cast.ai/managed-by"  # a label; CAST AI always marks its spot nodes
_MACHINE_API = "machine.openshift.io/machine"  # an annotation; the Machine API of OpenShift always marks its spot nodes
_AFTER_BOOT = ("nvidia.com/", "amd.com/", "feature.node.kubernetes.io/")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_IDENTITY = re.compile(r"i-[0-9a-f]{8,32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_MANY = 4  # least nodes for which a label with distinct values counts as a node name
_SHOWN = 3


class FoundPool(NamedTuple):
    """A pool found in a cluster. ``settings`` are an entry of ``pools`` in spotwright.yaml; ``nodes`` are the nodes' names.

    ``notes`` are for people. ``is_known``: whether its capacity is known.
    """

    name: str
    settings: Mapping[str, Any]
    nodes: Sequence[str]
    notes: Sequence[str] = ()
    is_known: bool = True


class _Node(NamedTuple):
    """A node's properties for a pool. ``pool``: the label that names its pool, and the value; empty texts without one."""

    name: str
    labels: Mapping[str, str]
    taints: frozenset[Taint]
    offers: Mapping[str, str]
    is_spot: bool | None
    os: str
    arch: str
    pool: tuple[str, str]
    cloud: str

    @property
    def is_reserved(self) -> bool:
        """Whether Karpenter made it in reserved capacity."""
        return self.labels.get(CAPACITY_TYPE) == RESERVED

    @property
    def accelerators(self) -> frozenset[str]:
        """Its accelerators, by resource."""
        return frozenset(name for name in self.offers if providers.is_accelerator(name))


class _Class(NamedTuple):
    """Nodes that become one pool. ``common`` are their common labels, in order.

    ``distinction``: the label of its accelerators, if other nodes of the pool have none.
    """

    pool: tuple[str, str]
    is_spot: bool | None
    os: str
    arch: str
    accelerators: frozenset[str] = frozenset()
    nodes: Sequence[_Node] = ()
    common: Mapping[str, str] = MappingProxyType({})
    distinction: tuple[tuple[str, str], ...] = ()
    is_reserved: bool = False


class _Differences(NamedTuple):
    """The differences of a pool's classes. ``chosen`` counts the classes with a label that work may select by."""

    is_one: bool
    capacity: bool
    os: bool
    arch: bool
    accelerators: bool
    chosen: Mapping[tuple[str, str], int]

    @classmethod
    def of(cls, classes: Sequence[_Class], cluster: _Cluster) -> _Differences:
        """Compare the classes."""
        return cls(
            len(classes) == 1,
            len({(one.is_spot, one.is_reserved) for one in classes}) > 1,
            len({one.os for one in classes}) > 1,
            len({one.arch for one in classes}) > 1,
            len({one.accelerators for one in classes}) > 1,
            Counter(pair for one in classes for pair in _chosen(one, cluster).items()),
        )


def found_pools(
    nodes: Sequence[Mapping[str, Any]], node_pools: Sequence[Mapping[str, Any]] = (), taken: Collection[str] = ()
) -> list[FoundPool]:
    """The pools of these nodes, and of Karpenter's NodePools without nodes, by name. ``taken`` are names of other pools."""
    every = [_node(node) for node in _sorted_out(nodes).workers]
    asked = {one.name: one for one in map(read_node_pool, node_pools)}
    by_pool: dict[tuple[str, str], list[_Node]] = {(NODE_POOL_LABEL, name): [] for name in asked}
    for node in every:
        by_pool.setdefault(node.pool, []).append(node)
    cluster = _Cluster.of(every, asked)
    found: dict[str, FoundPool] = {}
    pools: dict[str, Pool] = {}
    for (label, value), members in by_pool.items():
        node_pool = asked.get(value) if label == NODE_POOL_LABEL else None
        classes = _classes((label, value), members, cluster, node_pool)
        differences = _Differences.of(classes, cluster)
        for one in classes:
            name = name_for(_name(one, differences, cluster), taken={*found, *taken})
            pools[name], found[name] = _found(one, name, differences, cluster, node_pool)
    return sorted(_told_apart(found, pools, every), key=lambda pool: pool.name)


class _SortedOut(NamedTuple):
    workers: Sequence[Mapping[str, Any]]
    control_plane: Sequence[Mapping[str, Any]]
    virtual: Sequence[Mapping[str, Any]]


def left_out(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The nodes without a pool, a sentence for each kind."""
    _, control_plane, virtual = _sorted_out(nodes)
    if control_plane:
        yield f"Left out, because they are the control plane: {names([name_of(node) for node in control_plane])}."
    if virtual:
        yield f"Left out, because they are not machines (Fargate, virtual kubelet): {names([name_of(node) for node in virtual])}."


def _sorted_out(nodes: Sequence[Mapping[str, Any]]) -> _SortedOut:
    """The nodes by purpose. In a cluster without workers (k3s, kind), the untainted control plane counts as workers."""
    virtual = [node for node in nodes if is_virtual(labels_of(node))]
    machines = [node for node in nodes if not is_virtual(labels_of(node))]
    untainted = [node for node in machines if not is_control_plane({}, _taint_keys(node))]
    workers = [node for node in untainted if not is_control_plane(labels_of(node), ())] or untainted
    kept = {id(node) for node in workers}
    return _SortedOut(workers, [node for node in machines if id(node) not in kept], virtual)


def _taint_keys(node: Mapping[str, Any]) -> list[str]:
    return [taint.key for taint in taints_of(node)]


def _node(node: Mapping[str, Any]) -> _Node:
    labels, status = labels_of(node), node.get("status") or {}
    info = status.get("nodeInfo") or {}
    pool = next(((label, labels[label]) for label in providers.POOL_LABELS if labels.get(label)), ("", ""))
    is_spot = providers.is_spot_node(labels, _taint_keys(node))
    is_marked = _provider(pool[0], labels).marks_spot or _CAST_AI in labels
    if is_spot is None and (is_marked or _MACHINE_API in (metadata(node).get("annotations") or {})):
        is_spot = False
    return _Node(
        name_of(node),
        labels,
        frozenset(one for one in taints_of(node) if one.effect in _EFFECTS and not is_passing_taint(one.key)),
        dict(_offers(status, name_of(node))),
        is_spot,
        labels.get(OS) or str(info.get("operatingSystem") or "linux"),
        labels.get(ARCH) or str(info.get("architecture") or ""),
        pool,
        str((node.get("spec") or {}).get("providerID") or "").partition("://")[0],
    )


def _offers(status: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    """A node's capacity for pods: CPUs, memory and every device, including unhealthy ones.

    Raises :class:`InputError` for an invalid amount.
    """
    capacity = status.get("capacity") or {}
    allocatable = status.get("allocatable") or capacity
    for resource in ("cpu", "memory", *sorted({*allocatable, *capacity} - {"cpu", "memory"})):
        is_device = "/" in resource or resource.startswith("hugepages-")
        if not is_device and resource not in ("cpu", "memory"):
            continue
        given = [one[resource] for one in (allocatable, capacity) if one.get(resource) not in (None, "0", 0)]
        if given:
            try:
                parse_resource(resource, given[0])
            except ValueError as error:
                raise InputError(f"node {name}: status.allocatable: {resource}: {error}") from None
            yield resource, str(given[0])


class _Cluster(NamedTuple):
    """The properties common to all nodes. ``naming``: labels that name single nodes. ``archs``: the architectures."""

    naming: frozenset[str]
    archs: frozenset[str]

    @classmethod
    def of(cls, nodes: Sequence[_Node], asked: Mapping[str, NodePool]) -> _Cluster:
        """Derive it from the nodes and the requested NodePools."""
        holders = Counter(key for node in nodes for key in node.labels)
        values = Counter(key for key, _ in {pair for node in nodes for pair in node.labels.items()})
        naming = (key for key, count in holders.items() if count >= _MANY and values[key] == count)
        archs = {node.arch for node in nodes} | {arch for one in asked.values() for arch in one.archs}
        return cls(frozenset(naming), frozenset(archs - {""}))

    def chosen(self, labels: Mapping[str, str], node: str) -> dict[str, str]:
        """The labels by which work may select a node: users' labels that do not name a single node."""
        return {
            key: value
            for key, value in labels.items()
            if not (is_set_by_system(key) or key in self.naming or value == node or _IDENTITY.fullmatch(value))
        }


def _provider(pool_label: str, labels: Collection[str]) -> Provider:
    """The provider of nodes with these labels: by the label that names their pool, else by the labels' prefix."""
    if pool_label:
        return providers.POOL_LABELS[pool_label]
    by_prefix = (one for one in PROVIDERS.values() if one.node_prefix)
    known = (one for one in by_prefix if any(key.startswith(one.node_prefix) for key in labels))
    return next(known, PROVIDERS[GENERIC])


def _classes(
    pool: tuple[str, str], nodes: Sequence[_Node], cluster: _Cluster, node_pool: NodePool | None
) -> list[_Class]:
    """The classes of a pool's nodes, including a NodePool's capacity type without nodes."""
    are_alike = bool(pool[0]) and providers.POOL_LABELS[pool[0]].makes_nodes_alike

    def kind(node: _Node) -> Hashable:
        if are_alike:
            return node.is_spot
        made = (node.is_spot, node.is_reserved, node.os, node.arch)
        if pool[0]:
            return made
        return (*made, node.taints, node.accelerators, frozenset(cluster.chosen(node.labels, node.name).items()))

    classes = [_class_of(pool, members) for members in _split(nodes, kind)]
    if pool[0] and not are_alike:
        classes = [part for one in classes for part in _by_accelerators(one)]
    if node_pool is not None:
        arch = node_pool.archs[0] if len(node_pool.archs) == 1 else ""
        there = {(one.is_spot, one.is_reserved) for one in classes}
        asked = {capacity: (capacity == "spot", capacity == RESERVED) for capacity in node_pool.capacities}
        classes += [
            _Class(pool, is_spot, node_pool.os, arch, is_reserved=is_reserved)
            for is_spot, is_reserved in asked.values()
            if (is_spot, is_reserved) not in there
        ]
    return classes


def _split(nodes: Sequence[_Node], kind: Callable[[_Node], Hashable]) -> list[list[_Node]]:
    groups: dict[Hashable, list[_Node]] = {}
    for node in nodes:
        groups.setdefault(kind(node), []).append(node)
    return list(groups.values())


def _class_of(pool: tuple[str, str], nodes: Sequence[_Node]) -> _Class:
    archs = {node.arch for node in nodes}
    accelerators = frozenset[str]().union(*(node.accelerators for node in nodes))
    sets = [node.labels.items() for node in nodes]
    common = dict(sorted(set(sets[0]).intersection(*sets[1:])))
    arch = archs.pop() if len(archs) == 1 else ""
    is_reserved = bool(pool[0]) and nodes[0].is_reserved
    return _Class(pool, nodes[0].is_spot, nodes[0].os, arch, accelerators, nodes, common, is_reserved=is_reserved)


def _by_accelerators(whole: _Class) -> list[_Class]:
    """The parts of a class by their accelerators, if labels distinguish them; else the whole."""
    parts = [_class_of(whole.pool, nodes) for nodes in _split(whole.nodes, lambda node: node.accelerators)]
    labelled = [part._replace(distinction=_distinction(part, parts)) for part in parts]
    is_split = len(parts) > 1 and all(part.distinction for part in labelled if part.accelerators)
    return [part if part.accelerators else part._replace(distinction=()) for part in labelled] if is_split else [whole]


def _distinction(part: _Class, parts: Sequence[_Class]) -> tuple[tuple[str, str], ...]:
    """A label that all nodes of a class have and no others; the label of a machine or an accelerator first."""
    foreign = {pair for other in parts if other is not part for node in other.nodes for pair in node.labels.items()}
    own = [
        (key, value)
        for key, value in part.common.items()
        if (key, value) not in foreign and key != ZONE and "hostname" not in key and not _IDENTITY.fullmatch(value)
    ]
    own.sort(key=lambda pair: (pair[0].startswith(_AFTER_BOOT), not re.search("gpu|accelerator", pair[0]), pair))
    return tuple(own[:1])


def _name(one: _Class, differences: _Differences, cluster: _Cluster) -> str:
    """The name of the pool, with this class's distinction if the pool has several."""
    words = [one.pool[1] or _word_for(one, differences, cluster) or "other-nodes"]
    if differences.capacity:
        words.append(RESERVED if one.is_reserved else {True: "spot", False: "on-demand", None: "unknown"}[one.is_spot])
    if differences.os and one.os != "linux":
        words.append(one.os)
    if differences.arch and one.arch not in ("", "amd64"):
        words.append(one.arch)
    if differences.accelerators and one.accelerators:
        words.append(min(one.accelerators).rpartition("/")[2])
    return "-".join(word for number, word in enumerate(words) if word not in words[:number])


def _word_for(one: _Class, differences: _Differences, cluster: _Cluster) -> str:
    """A name for nodes without a pool label: a role or another value that no other class has."""
    if differences.is_one:
        return ""
    for key, value in sorted(_chosen(one, cluster).items(), key=lambda pair: ("node-role" not in pair[0], pair)):
        if differences.chosen[key, value] == 1 and providers.is_spot_node({key: value}, ()) is None:
            return key.rpartition("/")[2] if value in ("", "true") else value
    return ""


def _chosen(one: _Class, cluster: _Cluster) -> dict[str, str]:
    return cluster.chosen(one.common, one.nodes[0].name if len(one.nodes) == 1 else "")


def _found(
    one: _Class, name: str, differences: _Differences, cluster: _Cluster, node_pool: NodePool | None
) -> tuple[Pool, FoundPool]:
    node = _largest(one.nodes)
    offers = {resource: parse_resource(resource, amount) for resource, amount in node.items()}
    pool = _pool(one, name, offers, _own_labels(one, differences, cluster, node_pool), node_pool)
    taints = _taints(one.nodes, pool) if one.nodes else [str(taint) for taint in node_pool.taints] if node_pool else []
    flags = dict(_flags(one, pool, node_pool))
    classes_group = str(flags.get("nodeClassRef", {}).get("group", ""))
    clouds = providers.of(pool).clouds
    is_azure = len(clouds) > 1 and (
        any(node.cloud == "azure" for node in one.nodes) or classes_group == "karpenter.azure.com"
    )
    settings = {
        "capacity": str(pool.capacity.value),
        **providers.setting(pool.provider),
        **({"machine": pool.machine} if pool.machine else {}),
        **({"region": pool.region} if pool.region else {}),
        **({"zones": list(pool.zones)} if pool.zones else {}),
        **({"os": pool.os} if pool.os != "linux" else {}),
        **({"node": node} if node else {}),
        **({"max_nodes": len(one.nodes)} if len(one.nodes) > pool.max_nodes else {}),
        **({"labels": dict(pool.labels)} if pool.labels else {}),
        **({"taints": taints} if taints else {}),
        **({"notice": "30s"} if is_azure and pool.is_spot else {}),
        **({"max_lifetime": lifetime} if (lifetime := (node_pool and node_pool.lifetime) or _lifetime(one)) else {}),
        **({"create_flags": flags} if flags else {}),
    }
    notes = [*_notes(one, pool, taints), *(node_pool.notes if node_pool else ())]
    asked = (str(one.get("key")) for one in flags.get("requirements", ()))
    if not one.nodes and any(re.search("instance-(gpu|accelerator)|sku-gpu", key) for key in asked):
        notes.append(UNSIZED_GPUS)
    return pool, FoundPool(name, settings, sorted(each.name for each in one.nodes), notes, one.is_spot is not None)


def _own_labels(
    one: _Class, differences: _Differences, cluster: _Cluster, node_pool: NodePool | None
) -> dict[str, str]:
    """The labels by which work may select a class or which distinguish it, including its capacity label."""
    common = one.common
    asked = node_pool.labels if node_pool and not one.nodes else {}
    own = {**asked, **_chosen(one, cluster), **dict(one.distinction)}
    if one.is_spot is not None:
        own |= {key: value for key, value in common.items() if providers.is_spot_node({key: value}, ()) is one.is_spot}
    if one.is_reserved:
        own[CAPACITY_TYPE] = RESERVED
    differs = one.arch != "amd64" or len(cluster.archs) > 1
    if one.arch and differs and (ARCH in common or not one.nodes):
        own[ARCH] = one.arch
    if OS in common and differences.os:
        own[OS] = one.os
    return dict(sorted(own.items()))


def _pool(
    one: _Class, name: str, offers: Mapping[str, int], own: Mapping[str, str], node_pool: NodePool | None
) -> Pool:
    """The pool of a class, whose labels its nodes have.

    If their machines and zones differ from the NodePool's, the nodes' count; if they lack their provider's labels, the pool is
    generic.
    """
    label, value = one.pool
    capacity, common = Capacity.SPOT if one.is_spot else Capacity.ON_DEMAND, one.common
    os = "windows" if one.os == "windows" else "linux"
    named = _provider(label, common).name
    for provider, asked in ((named, node_pool), (named, None), (GENERIC, None)):
        machine = asked.machine if asked else common.get(INSTANCE_TYPE, "")
        by_provider = providers.labels(Pool(name, capacity, provider, machine, node=offers))
        labels = {label: value} if label and by_provider.get(label) != value else {}
        labels |= {key: text for key, text in own.items() if by_provider.get(key) != text}
        region, zones = ("", asked.zones) if asked else _zones(one.nodes, provider)
        pool = Pool(name, capacity, provider, machine, tuple(zones), region, os, node=offers, labels=labels)
        if all(providers.pool_of(node.labels, {name: pool}) for node in one.nodes):
            break
    return pool


def _flags(one: _Class, pool: Pool, node_pool: NodePool | None) -> Iterator[tuple[str, Any]]:
    """A tool's settings that have no field of a pool, so that ``pools command`` recreates the pool as it was."""
    if not providers.of(pool).has_groups:
        if node_pool is not None:
            yield from node_pool.flags.items()
        else:
            named = [(key, one.common[key]) for key in NODE_CLASS_LABELS if key in one.common]
            yield from (("nodeClassRef", {**NODE_CLASS_LABELS[key], "name": value}) for key, value in named)
    machines = _values(one.nodes, INSTANCE_TYPE)
    if (setting := providers.of(pool).machines_setting) and len(machines) > 1:
        yield setting, machines


_DURATION = "cloud.google.com/gke-max-run-duration-seconds"


def _lifetime(one: _Class) -> str:
    """GKE's lifetime of a class's nodes; empty without a label for it."""
    seconds = one.common.get(_DURATION, "")
    return f"{seconds}s" if seconds.isdecimal() and int(seconds) else ""


def _notes(one: _Class, pool: Pool, taints: Sequence[str]) -> Iterator[str]:
    if one.is_spot is None:
        yield UNKNOWN_CAPACITY
    yield from (note for pair in one.common.items() for note in ending_notes(*pair))
    if QUEUED in taints:
        yield QUEUED_NOTE
    machines = _values(one.nodes, INSTANCE_TYPE)
    if len(machines) > 1:
        yield f"machines of several sizes ({names(machines)}): node is the largest amount of each resource"
    if pool.os != one.os:
        yield f"operating system {one.os}: spotwright.yaml supports linux and windows"
    partial = {str(taint) for node in one.nodes for taint in node.taints} - {
        str(taint) for taint in providers.taints(pool)
    }
    for taint in sorted(partial - set(taints)):
        holders = [node.name for node in one.nodes if taint in map(str, node.taints)]
        if len(holders) < len(one.nodes):
            yield f"the taint {taint} is only on {names(holders)}, so it is left out"


def _told_apart(
    found: Mapping[str, FoundPool], pools: Mapping[str, Pool], nodes: Sequence[_Node]
) -> Iterator[FoundPool]:
    """The pools, with a note on pools that labels do not distinguish from each other."""
    of_node = {node: name for name, one in found.items() for node in one.nodes}
    taken: dict[str, set[str]] = {}
    holders: dict[tuple[str, str], dict[str, Pool]] = {}  # pools by their rarest label
    counts = Counter(pair for pool in pools.values() for pair in providers.labels(pool).items())
    for name, pool in pools.items():
        rarest = min(providers.labels(pool).items(), key=lambda pair: counts[pair], default=None)
        if rarest is not None:
            holders.setdefault(rarest, {})[name] = pool
    for node in nodes:
        near = {name: pool for pair in node.labels.items() for name, pool in holders.get(pair, {}).items()}
        matching = providers.pool_of(node.labels, near)
        if matching is None or matching.name != of_node[node.name]:
            taken.setdefault(of_node[node.name], set()).add(matching.name if matching else "")
    for name, one in found.items():
        others = sorted(taken.get(name, set()) - {""})
        if name not in taken:
            yield one
            continue
        what = f"from nodes of {', '.join(others)}" if others else "from other nodes"
        fix = (
            f"kubectl label node {' '.join(one.nodes[:_SHOWN])}{' ...' if len(one.nodes) > _SHOWN else ''} pool={name}"
        )
        yield one._replace(
            notes=[*one.notes, f"no label distinguishes these nodes {what}: {fix}, and add it under labels"]
        )


def _zones(nodes: Sequence[_Node], provider: str) -> tuple[str, list[str]]:
    """The region and the zones of these nodes: on AKS zones are numbers, as in its commands; elsewhere they name the region."""
    labels = _values(nodes, ZONE)
    if not PROVIDERS[provider].has_numbered_zones:
        return "", labels
    found = [zone for label in labels if (zone := azure_zone(label))]
    regions = {region for region, _ in found} or set(_values(nodes, _REGION))
    if len(regions) != 1 or (found and len(found) != len(labels)):
        return "", [label for label in labels if azure_zone(label)]
    return regions.pop(), [number for _, number in found]


def _values(nodes: Sequence[_Node], label: str) -> list[str]:
    return sorted({value for node in nodes if (value := node.labels.get(label))})


def _largest(nodes: Sequence[_Node]) -> dict[str, str]:
    """The largest amount of each resource on any of these nodes, so that whatever ran on one fits."""
    result: dict[str, str] = {}
    for node in nodes:
        for resource, amount in node.offers.items():
            if resource not in result or parse_resource(resource, amount) > parse_resource(resource, result[resource]):
                result[resource] = amount
    return result


def _taints(nodes: Sequence[_Node], pool: Pool) -> list[str]:
    """The taints that all nodes have, without the provider's."""
    common = frozenset.intersection(*(node.taints for node in nodes))
    return sorted(str(taint) for taint in common - set(providers.taints(pool)))
