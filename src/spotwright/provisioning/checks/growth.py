"""Pools that grow from zero: labels that the autoscaler cannot know while no node is there.

An autoscaler compares waiting pods with a node that does not exist yet: the node of a template. Labels that a DaemonSet or a
person puts on a node once it runs are not in it. Sources: kubernetes/autoscaler, ``cluster-autoscaler/FAQ.md`` ("How can I scale
a node group to 0?"), ``cloudprovider/aws/README.md`` and ``cloudprovider/azure/README.md`` (node-template tags); NVIDIA
gpu-feature-discovery and Node Feature Discovery (the prefixes); Azure/AKS#3629.
"""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.clouds import providers
from spotwright.model.pools import Pool, Provider
from spotwright.provisioning.checks.ground import Finding, Ground, Severity

__all__ = ["check_growth"]

_AFTER_BOOT = ("nvidia.com/", "amd.com/", "feature.node.kubernetes.io/", "gpu.intel.com/", "node-role.kubernetes.io/")


def check_growth(ground: Ground) -> Iterator[Finding]:
    """Labels of pools and of selectors that no template of an empty pool has."""
    from_zero = [pool for pool in ground.pools.values() if pool.min_nodes == 0]
    for pool in from_zero:
        for key, value in pool.labels.items():
            if key.startswith(_AFTER_BOOT):
                yield Finding(
                    "label-unknown-at-zero",
                    Severity.ERROR,
                    f"pool {pool.name}",
                    f"the label {key}={value} is put on a node after it has booted: the autoscaler does not know it "
                    "while the pool has no node, and never makes one for work that selects it",
                    "give the pool a label of its own when it is made, or set min_nodes: 1",
                )
        hints = _hints(pool)
        if hints:
            yield hints
    for work in ground.works:
        for key, value in work.constraints.selector.items():
            pools = [
                pool.name for pool in from_zero if any(one.get(key) == value for one in providers.labels_by_zone(pool))
            ]
            if key.startswith(_AFTER_BOOT) and not _is_always_there(ground, key, value):
                yield Finding(
                    "selector-unknown-at-zero",
                    Severity.ERROR,
                    work.where,
                    f"its node selector asks for {key}={value}, a label that nodes have only after they have "
                    f"booted{': ' + ', '.join(pools) if pools else ''}: no pool grows from 0 for it",
                    "select a label that the pool is made with, such as those of spotwright pools list",
                )


def _is_always_there(ground: Ground, key: str, value: str) -> bool:
    """Whether a pool that never shrinks to 0 has a node with the label."""
    return any(
        labels.get(key) == value
        for pool in ground.pools.values()
        if pool.min_nodes and ground.members[pool.name]
        for labels, _ in ground.kinds_of_node(pool)
    )


def _hints(pool: Pool) -> Finding | None:
    own = [key for key in providers.own_labels(pool) if not key.startswith(_AFTER_BOOT)]
    if pool.provider not in (Provider.EKS, Provider.GENERIC) or not (own or pool.taints):
        return None
    return Finding(
        "hints-at-zero",
        Severity.NOTE,
        f"pool {pool.name}",
        "an autoscaler knows its labels and taints at 0 nodes only by hints: node-template tags, or the rights to read "
        "the group",
        f"spotwright pools command {pool.name} prints them",
    )
