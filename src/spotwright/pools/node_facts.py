"""Nodes against the configuration: labels, taints, GPUs, and leftovers of evictions.

Sources: the names of taints come from :mod:`spotwright.clouds.node_signs`; Azure/AKS#2976 (the autoscaler copies the taint of
the last evicted node into its picture of an empty pool, which then never grows); Kubernetes, "Schedule GPUs" (a node offers GPUs
once a device plugin has registered).

Pools that were read from nodes have notes on deprecated labels and unknown clouds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.node_signs import (
    AUTO_DRAIN_TAINTS,
    GONE_TAINTS,
    TAKEN_TAINTS,
    UNREACHABLE_TAINTS,
    is_control_plane,
    is_passing_taint,
)
from spotwright.clouds.providers import INSTANCE_TYPE, ZONE, azure_zone, past_forms
from spotwright.model.scheduling_terms import Taint
from spotwright.pools.cluster_inventory import ClusterInventory, Finding, Severity, labels_of, name_of, names, taints_of

__all__ = [
    "check_gpus",
    "check_labels",
    "check_leftovers",
    "check_strangers",
    "check_taints",
    "check_zones",
    "notes_on",
]


_GPU_LABELS = (
    "kubernetes.azure.com/accelerator",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu-count",
    "nvidia.com/gpu.present",
)
_NEVER_SELECTED = (INSTANCE_TYPE, ZONE)  # place never selects by them: groups have several machines and zones
_REPELLING = ("NoSchedule", "NoExecute")
_LEFT = AUTO_DRAIN_TAINTS | TAKEN_TAINTS

_LEFTOVERS = (
    (
        _LEFT,
        Finding(
            "eviction-leftover",
            Severity.ERROR,
            "",
            "a taint that an eviction left ({taint}): no pod lands there, and the cluster autoscaler counts it as a "
            "taint of every new node of the pool, which then stays at 0",
            "kubectl taint node NODE {taint}- where the machine lives; kubectl delete node NODE where it is gone",
        ),
    ),
    (
        GONE_TAINTS,
        Finding(
            "machine-is-gone",
            Severity.WARNING,
            "",
            "the taint {taint}: the machine is shut down or gone; with the eviction policy Deallocate it still counts "
            "against the quota",
            "kubectl delete node NODE; on AKS make the pool again with --eviction-policy Delete",
        ),
    ),
    (
        UNREACHABLE_TAINTS,
        Finding(
            "node-unreachable",
            Severity.WARNING,
            "",
            "the taint {taint}: the node does not report; its pods end after their tolerationSeconds",
            "see why the node does not report, or delete it",
        ),
    ),
)


def check_labels(ground: ClusterInventory) -> Iterator[Finding]:
    """Labels of the configuration that the pool's nodes do not have: no selector that place writes can match them."""
    for pool in ground.pools.values():
        lacking: dict[str, list[str]] = {}
        for node in ground.members[pool.name]:
            have = labels_of(node)
            for key, value in providers.labels(pool).items():
                if have.get(key) != value and key not in _NEVER_SELECTED:
                    seen = f"{key}={have[key]}" if key in have else f"no {key}"
                    lacking.setdefault(f"{key}={value} (there is {seen})", []).append(name_of(node))
        for label, nodes in lacking.items():
            yield Finding(
                "label-no-selector-can-match",
                Severity.ERROR,
                f"pool {pool.name}",
                f"spotwright.yaml expects the label {label} on {names(nodes)}; placement may select by it, and finds "
                "no node",
                "correct labels: in spotwright.yaml, or make the pool again with the label (spotwright pools command)",
            )


def check_zones(ground: ClusterInventory) -> Iterator[Finding]:
    """Zones of the configuration that cannot be compared with labels of nodes, and nodes in other zones."""
    for pool in ground.pools.values():
        unknown = providers.unknown_zones(pool)
        found = {label for node in ground.members[pool.name] if (label := labels_of(node).get(ZONE))}
        if unknown:
            seen = sorted({zone[0] for label in found if (zone := azure_zone(label))})
            yield Finding(
                "zone-without-region",
                Severity.NOTE,
                f"pool {pool.name}",
                f"nodes in zone {unknown[0]} are labelled {seen[0] if len(seen) == 1 else 'REGION'}-{unknown[0]}, and "
                "the pool has no region: work that selects a zone cannot be compared with it",
                f"set region: {seen[0] if len(seen) == 1 else 'of the cluster'} in spotwright.yaml",
            )
        elif pool.zones:
            expected = {labels[ZONE] for labels in providers.labels_by_zone(pool)}
            for label in sorted(found - expected):
                nodes = [name_of(node) for node in ground.members[pool.name] if labels_of(node).get(ZONE) == label]
                yield Finding(
                    "zone-not-configured",
                    Severity.WARNING,
                    f"pool {pool.name}",
                    f"{names(nodes)} {'is' if len(nodes) == 1 else 'are'} labelled {label}, and the zones of "
                    f"spotwright.yaml are labelled {', '.join(sorted(expected))}",
                    "correct zones: (and region:) in spotwright.yaml, or make the pool again with its zones",
                )


def check_taints(ground: ClusterInventory) -> Iterator[Finding]:
    """Taints of nodes that the configuration lacks, so that placement does not tolerate them; and the reverse."""
    for pool in ground.pools.values():
        expected = set(providers.taints(pool))
        unknown: dict[Taint, list[str]] = {}
        for node in ground.members[pool.name]:
            for taint in taints_of(node):
                if taint not in expected and taint.effect in _REPELLING and not is_passing_taint(taint.key):
                    unknown.setdefault(taint, []).append(name_of(node))
        for taint, nodes in unknown.items():
            yield Finding(
                "taint-no-work-tolerates",
                Severity.ERROR,
                f"pool {pool.name}",
                f"the taint {taint} on {names(nodes)} is not in spotwright.yaml, so place tolerates it nowhere",
                f'add taints: ["{taint}"] to the pool, or remove the taint where the pool is made',
            )
        members = ground.members[pool.name]
        for taint in sorted(expected):
            if members and not any(taint in taints_of(node) for node in members):
                yield Finding(
                    "taint-missing",
                    Severity.WARNING,
                    f"pool {pool.name}",
                    f"no node has the taint {taint} of spotwright.yaml: other work may fill the pool",
                    "make the pool again with the taint (spotwright pools command), or remove it from spotwright.yaml",
                )


def check_gpus(ground: ClusterInventory) -> Iterator[Finding]:
    """Nodes with GPUs that offer none, or fewer than the configuration says."""
    for pool in ground.pools.values():
        wanted = providers.gpus_of(pool)
        none = [node for node in ground.members[pool.name] if _has_gpus(node, wanted) and not _offered(node)]
        if none:
            by_user = "install NVIDIA's device plugin with a toleration for the pool's taints"
            driver = providers.of(pool).gpu_driver or by_user
            yield Finding(
                "gpu-not-allocatable",
                Severity.ERROR,
                f"pool {pool.name}",
                f"{names([name_of(node) for node in none])}: a machine with GPUs offers none (status.allocatable): the "
                "device plugin or the driver does not run there, and work that asks for GPUs waits for ever",
                driver,
            )
        fewer = [
            name_of(node)
            for node in ground.members[pool.name]
            if any(0 < _amount(node, name) < amount for name, amount in wanted.items())
        ]
        if fewer:
            yield Finding(
                "gpu-fewer-than-configured",
                Severity.WARNING,
                f"pool {pool.name}",
                f"{names(fewer)}: fewer GPUs are offered than node: in spotwright.yaml says",
                "correct node: of the pool, or look for a GPU that failed",
            )


def _has_gpus(node: Mapping[str, Any], wanted: Mapping[str, int]) -> bool:
    capacity = (node.get("status") or {}).get("capacity") or {}
    labels = labels_of(node)
    labelled = any(labels.get(key) not in (None, "", "0", "false") for key in _GPU_LABELS)
    return (
        bool(wanted)
        or labelled
        or any(providers.is_gpu(name) and str(amount) != "0" for name, amount in capacity.items())
    )


def _offered(node: Mapping[str, Any]) -> bool:
    """Whether a node offers a GPU, or a part of one (``nvidia.com/mig-1g.5gb``)."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return any(providers.is_gpu(name) and str(amount) != "0" for name, amount in allocatable.items())


def _amount(node: Mapping[str, Any], name: str) -> int:
    value = str(((node.get("status") or {}).get("allocatable") or {}).get(name, "0"))
    return int(value) if value.isdecimal() else 0


def check_leftovers(ground: ClusterInventory) -> Iterator[Finding]:
    """Taints that an eviction left on nodes that are back, and nodes whose machine is gone."""
    for pool_name, nodes in (*ground.members.items(), ("", ground.strangers)):
        where = f"pool {pool_name}" if pool_name else "nodes of no pool"
        for keys, form in _LEFTOVERS:
            yield from _tainted(nodes, keys, form._replace(where=where))


def _tainted(nodes: Sequence[Mapping[str, Any]], keys: frozenset[str], form: Finding) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    for node in nodes:
        for taint in taints_of(node):
            if taint.key in keys:
                found.setdefault(taint.key, []).append(name_of(node))
    for key, some in found.items():
        text = f"{names(list(dict.fromkeys(some)))}: {form.text.format(taint=key)}"
        yield form._replace(text=text, fix=form.fix.format(taint=key))


def check_strangers(ground: ClusterInventory) -> Iterator[Finding]:
    """Nodes without a pool in the configuration, pools without nodes, and deprecated labels."""
    of_control = [one for one in ground.strangers if is_control_plane(labels_of(one), [t.key for t in taints_of(one)])]
    workers = [one for one in ground.strangers if one not in of_control]
    if of_control:
        yield Finding(
            "node-of-no-pool",
            Severity.NOTE,
            "control plane",
            f"{names([name_of(node) for node in of_control])}: nodes of the control plane, on which no work is placed",
            "nothing: spotwright pools import leaves them out too",
        )
    if workers:
        yield Finding(
            "node-of-no-pool",
            Severity.NOTE,
            "nodes of no pool",
            f"{names([name_of(node) for node in workers])}: no pool of spotwright.yaml has their labels, so "
            "they are never rungs: attempts are not sent there",
            "spotwright pools import prints them as pools",
        )
    for pool in ground.pools.values():
        if not ground.members[pool.name] and pool.min_nodes and ground.knows_nodes:
            yield Finding(
                "pool-without-nodes",
                Severity.WARNING,
                f"pool {pool.name}",
                f"min_nodes is {pool.min_nodes}, and no node has the pool's labels",
                "make the pool (spotwright pools command), or correct its name or labels in spotwright.yaml",
            )
    seen: dict[tuple[str, str], list[str]] = {}
    for nodes in (*ground.members.values(), ground.strangers):
        for node in nodes:
            for form in past_forms(labels_of(node)):
                seen.setdefault((form.key, form.today), []).append(name_of(node))
    for (key, today), some in seen.items():
        yield Finding(
            "form-of-the-past",
            Severity.NOTE,
            names(some),
            f"the label {key}: {today}",
            "make the pool again in the current form",
        )


_CLOUDS = ("azure", "gce", "aws")


def notes_on(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The notes on the nodes of one pool, each once."""
    told: set[str] = set()
    for node in nodes:
        for form in past_forms(labels_of(node)):
            text = f"{form.key}: {form.today}"
            if text not in told:
                told.add(text)
                yield text
        cloud, colon, _ = str((node.get("spec") or {}).get("providerID") or "").partition("://")
        if colon and cloud not in _CLOUDS and cloud not in told:
            told.add(cloud)
            yield (
                f"providerID {cloud}://: a cloud that Spotwright does not know: write the labels and taints that mark "
                "spot there"
            )
