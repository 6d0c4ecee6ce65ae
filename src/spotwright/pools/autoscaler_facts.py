"""The cluster autoscaler's ConfigMaps against the configuration: whether spot comes before on-demand, whether groups can grow.

The status has its node groups; the expander's ConfigMap the order in which it grows them. Neither has the expander that it was
started with. Sources: :mod:`spotwright.clouds.cluster_autoscaler`; kubernetes/autoscaler, FAQ
(``initial-node-group-backoff-duration``, ``max-node-group-backoff-duration``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from spotwright.clouds.cluster_autoscaler import (
    PRIORITIES,
    STATUS,
    Group,
    Status,
    groups_of_pools,
    likely_group,
    read_priorities,
)
from spotwright.clouds.pool_order import Autoscalers, order_of
from spotwright.clouds.providers import of
from spotwright.model.pools import Pool
from spotwright.placing.retries import expander_objects, expander_rules, preference_advice
from spotwright.pools.autoscaler_config_maps import NAMESPACE
from spotwright.pools.cluster_inventory import ClusterInventory, Finding, Severity, names
from spotwright.scheduling.ladder import has_accelerators

__all__ = ["check_expander", "check_groups"]

_READ = f"kubectl get configmap -n {NAMESPACE} {PRIORITIES} {STATUS} -o yaml"
_AUTOSCALER = "cluster autoscaler"


def check_expander(ground: ClusterInventory) -> Iterator[Finding]:
    """Spot pools that the autoscaler grows after on-demand pools for the same work, or in no order; lines that match no group."""
    seen = ground.autoscalers
    if seen.has_status is None and seen.has_priorities is None:
        return  # not read
    found: dict[str, list[str]] = {}
    for other, why in _broken_orders(ground, seen):
        found.setdefault(why, []).append(_lines_for(ground, other))
    advice = _advice(ground)
    if found and seen.has_priorities is None and not all(of(pool).orders_by for pool in _growing(ground)):
        text = f"its ConfigMap {PRIORITIES} was not read, so it is unknown whether it keeps spot before on-demand"
        fix = f"add what this writes: {_READ}; where it is not there, {advice}"
        yield Finding("expander-not-given", Severity.NOTE, _AUTOSCALER, text, fix)
        return
    for why, some in found.items():
        by = "; ".join(dict.fromkeys(filter(None, some)))
        text = f"it does not keep spot before on-demand: {why}{f' ({by})' if by else ''}"
        yield Finding("preference-ignored", Severity.WARNING, _AUTOSCALER, text, advice)
    yield from _idle_lines(ground)


def _growing(ground: ClusterInventory) -> list[Pool]:
    """The pools that a cluster autoscaler grows."""
    of_groups = (pool for pool in ground.pools.values() if of(pool).has_groups)
    return [pool for pool in of_groups if pool.min_nodes < pool.max_nodes]


def _broken_orders(ground: ClusterInventory, seen: Autoscalers) -> Iterator[tuple[Pool, str]]:
    """The on-demand pools that may be grown before a spot pool for the same work, with the reason.

    Two pools serve the same work if both or neither have accelerators and their operating systems are equal.
    """
    growing, groups = _growing(ground), _groups(ground)
    for spot in (pool for pool in growing if pool.is_spot):
        for other in (pool for pool in growing if not pool.is_spot and _is_alike(pool, spot)):
            own = {name: Group(name) for pool in (spot, other) for name in groups[pool.name]}
            pair = {pool.name: pool for pool in (spot, other)}
            order = order_of([spot, other], pair, seen._replace(status=Status(own)))
            if not order.kept:
                yield other, order.why


def _is_alike(pool: Pool, other: Pool) -> bool:
    return pool.os == other.os and has_accelerators(pool.node or {}) is has_accelerators(other.node or {})


def _advice(ground: ClusterInventory) -> str:
    """The fix, with the ConfigMap to apply; its patterns are group names where ``explain``'s patterns would not match."""
    rules = expander_rules(ground.pools)
    if not rules:
        return f"use {preference_advice(_growing(ground), {})}"
    seen = ground.autoscalers._replace(has_priorities=True, priorities=read_priorities(rules))
    groups: Mapping[str, Sequence[str]] = _groups(ground) if any(_broken_orders(ground, seen)) else {}
    objects = "\n".join(expander_objects(ground.pools, groups))
    return (
        "start the autoscaler with the expander 'priority', and apply this ConfigMap, with your own lines for other "
        f"groups:\n{objects}"
    )


def _lines_for(ground: ClusterInventory, pool: Pool) -> str:
    """The lines of the ConfigMap that match the groups of a pool; empty if none does."""
    priorities = ground.autoscalers.priorities
    groups = _groups(ground)[pool.name] or [likely_group(pool)]
    lines = [] if priorities is None else [priorities.line_for(name) for name in groups]
    matched = dict.fromkeys(repr(line) for line in lines if line)
    return f"{', '.join(matched)} for {pool.name}" if matched else ""


def _groups(ground: ClusterInventory) -> Mapping[str, Sequence[str]]:
    """The group names of each pool, from the status."""
    status = ground.autoscalers.status
    return groups_of_pools(ground.pools.values(), status.groups if status is not None else ())


def _idle_lines(ground: ClusterInventory) -> Iterator[Finding]:
    """Lines of the expander's ConfigMap that match no group of the status."""
    seen = ground.autoscalers
    if seen.priorities is None or seen.status is None or not seen.status.groups:
        return
    idle = seen.priorities.idle_lines(seen.status.groups)
    if idle:
        lines = names([repr(line) for line in idle])
        text = f"its ConfigMap {PRIORITIES} has {lines}, and no group of its status has such a name"
        fix = "correct the pattern, or remove the line"
        yield Finding("pattern-matches-no-group", Severity.NOTE, _AUTOSCALER, text, fix)


def check_groups(ground: ClusterInventory) -> Iterator[Finding]:
    """Groups that cannot grow now, groups without a pool, and pools without a group."""
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
    for pool in _growing(ground) if status.groups else ():
        if not groups[pool.name]:
            is_certain = of(pool).names_groups and pool.os != "windows"  # else any name will do
            yield Finding(
                "pool-without-group",
                Severity.WARNING if is_certain else Severity.NOTE,
                f"pool {pool.name}",
                f"the autoscaler's status has no group with its name, such as {likely_group(pool)}: it never grows",
                "let the autoscaler grow the pool, correct its name, or set min_nodes and max_nodes to its fixed size",
            )


def _obstacles(group: Group, pool: str) -> Iterator[Finding]:
    gets = f"pool {pool} gets no node of it" if pool else "it gives no node"
    if group.is_in_backoff:
        since = f" since {_moment(group.since)}" if group.since else ""
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
