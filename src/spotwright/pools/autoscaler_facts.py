"""The cluster autoscaler's ConfigMaps against the configuration: whether it keeps spot before on-demand, what its groups give.

The status has its groups of nodes; the expander's ConfigMap the order in which it grows them. Which expander it was started with
stands in neither. Sources: :mod:`spotwright.clouds.cluster_autoscaler`; kubernetes/autoscaler, FAQ
(``initial-node-group-backoff-duration``, ``max-node-group-backoff-duration``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS, Group, groups_of_pools, likely_group
from spotwright.clouds.pool_order import order_of
from spotwright.model.pools import Pool, Provider
from spotwright.placing.retries import expander_objects, preference_advice
from spotwright.pools.autoscaler_config_maps import NAMESPACE
from spotwright.pools.ground import Finding, Ground, Severity, names
from spotwright.scheduling.ladder import has_accelerators

__all__ = ["check_expander", "check_groups"]

_READ = f"kubectl get configmap -n {NAMESPACE} {PRIORITIES} {STATUS} -o yaml"
_AUTOSCALER = "cluster autoscaler"


def check_expander(ground: Ground) -> Iterator[Finding]:
    """Spot pools that the autoscaler grows after on-demand pools for the same work, or in no order; lines that match nothing."""
    seen = ground.autoscalers
    if seen.has_status is None and seen.has_priorities is None:
        return  # nobody has asked
    found: dict[str, list[str]] = {}
    for spot, other in _rivals(ground.pools):
        order = order_of([spot, other], ground.pools, seen)
        if not order.kept:
            lines = "" if seen.priorities is None else _lines_for(ground, other)
            found.setdefault(order.why, []).append(lines)
    advice = _advice(ground.pools)
    if (
        found
        and seen.has_priorities is None
        and not all(pool.provider is Provider.GKE for pool in _growing(ground.pools))
    ):
        text = (
            f"its ConfigMap {PRIORITIES} is not among the files, so nothing says whether it keeps spot before on-demand"
        )
        yield Finding(
            "expander-not-given",
            Severity.NOTE,
            _AUTOSCALER,
            text,
            f"add what this writes: {_READ}; where it is not there, {advice}",
        )
        return
    for why, some in found.items():
        by = "; ".join(dict.fromkeys(filter(None, some)))
        text = f"it does not keep spot before on-demand: {why}{f' ({by})' if by else ''}"
        yield Finding("preference-ignored", Severity.WARNING, _AUTOSCALER, text, advice)
    yield from _idle_lines(ground)


def _growing(pools: Mapping[str, Pool]) -> list[Pool]:
    """The pools that a cluster autoscaler grows."""
    return [
        pool for pool in pools.values() if pool.provider is not Provider.KARPENTER and pool.min_nodes < pool.max_nodes
    ]


def _rivals(pools: Mapping[str, Pool]) -> Iterator[tuple[Pool, Pool]]:
    """The pairs of a spot pool and an on-demand pool for the same work: both with accelerators or both without, of one system."""
    growing = _growing(pools)
    for spot in growing:
        for other in growing:
            alike = spot.os == other.os and has_accelerators(spot.node or {}) is has_accelerators(other.node or {})
            if spot.is_spot and not other.is_spot and alike:
                yield spot, other


def _advice(pools: Mapping[str, Pool]) -> str:
    """What to set, with the ConfigMap to apply."""
    objects = "\n".join(expander_objects(pools))
    if not objects:
        return f"use {preference_advice(_growing(pools), {})}"
    return (
        "start the autoscaler with the expander 'priority', and apply this ConfigMap, with your own lines for other "
        f"groups:\n{objects}"
    )


def _lines_for(ground: Ground, pool: Pool) -> str:
    """The lines of the ConfigMap that match the groups of a pool; empty if none does."""
    priorities = ground.autoscalers.priorities
    lines = (
        []
        if priorities is None
        else [priorities.line_for(name) for name in _groups(ground)[pool.name] or [likely_group(pool)]]
    )
    matched = dict.fromkeys(line for line in lines if line)
    return f"{', '.join(map(repr, matched))} for {pool.name}" if matched else ""


def _groups(ground: Ground) -> dict[str, list[str]]:
    status = ground.autoscalers.status
    return groups_of_pools(ground.pools.values(), status.groups if status is not None else ())


def _idle_lines(ground: Ground) -> Iterator[Finding]:
    """Lines of the expander's ConfigMap that match none of the groups that the status has."""
    seen = ground.autoscalers
    if seen.priorities is None or seen.status is None or not seen.status.groups:
        return
    idle = seen.priorities.idle_lines(seen.status.groups)
    if idle:
        lines = names([repr(line) for line in idle])
        text = f"its ConfigMap {PRIORITIES} has {lines}, and no group of its status has such a name"
        fix = "correct the pattern, or remove the line"
        yield Finding("pattern-matches-no-group", Severity.NOTE, _AUTOSCALER, text, fix)


def check_groups(ground: Ground) -> Iterator[Finding]:
    """Groups that give no node now, groups that no pool describes, and pools that have no group."""
    status = ground.autoscalers.status
    if status is None:
        return
    groups = _groups(ground)
    owners = {name: pool for pool, own in groups.items() for name in own}
    for group in status.groups.values():
        yield from _obstacles(group, owners.get(group.name, ""))
    strangers = [name for name in status.groups if name not in owners]
    if strangers:
        yield Finding(
            "group-of-no-pool",
            Severity.NOTE,
            "groups of no pool",
            f"{names(strangers)}: no pool of spotwright.yaml has its name in theirs, so attempts are never sent there",
            "add the pool to spotwright.yaml if work of yours is meant to run there",
        )
    for pool in _growing(ground.pools) if status.groups else ():
        if not groups[pool.name]:
            is_certain = pool.provider in (Provider.AKS, Provider.EKS) and pool.os != "windows"  # else any name will do
            yield Finding(
                "pool-without-group",
                Severity.WARNING if is_certain else Severity.NOTE,
                f"pool {pool.name}",
                f"the autoscaler's status has no group with its name, such as {likely_group(pool)}: nothing grows it",
                "let the autoscaler grow the pool, correct its name, or set min_nodes and max_nodes to its fixed size",
            )


def _obstacles(group: Group, pool: str) -> Iterator[Finding]:
    gets = f"pool {pool} gets no node of it" if pool else "it gives no node"
    if group.is_in_backoff:
        since = "" if group.since is None else f" since {_moment(group.since)}"
        error = f" ({group.error})" if group.error else ""
        yield Finding(
            "group-in-backoff",
            Severity.WARNING,
            f"group {group.name}",
            f"is in backoff{since}{error}: {gets} before the autoscaler tries it again, 5 to 30 minutes after it failed",
            "see the cloud's quota and capacity for its machine, or add a pool of another machine or zone",
        )
    elif group.is_full:
        yield Finding(
            "group-at-maximum",
            Severity.NOTE,
            f"group {group.name}",
            f"has all {group.max_size} nodes that it may have: {gets} beyond them",
            "raise its maximum, and max_nodes of the pool, if more work shall run there",
        )


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
