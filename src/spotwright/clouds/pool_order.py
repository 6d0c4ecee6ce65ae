"""Whether what makes the nodes of a cluster follows an order of pools by itself: then a pod need not be sent to one of them.

A pod that is open to several pools gets its node sooner than one that is required to have one of them, because an autoscaler
goes on to the next pool by itself, within seconds. But the cluster autoscaler does not read preferences: among pools that fit it
follows its expander. So a pod is open only where the order that its policy wants is the one that the autoscaler follows.

Sources: kubernetes/autoscaler, FAQ ("What are Expanders?"); Karpenter's documentation, "NodePools" (the highest weight first;
spot first where one NodePool allows both); GKE's documentation, "About custom compute classes" (priorities).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from spotwright.clouds.cluster_autoscaler import PRIORITIES, Priorities, Status, groups_of_pools, likely_group
from spotwright.clouds.providers import COMPUTE_CLASS, pool_name
from spotwright.model.pools import Pool, Provider

__all__ = ["UNKNOWN", "Autoscalers", "Order", "compute_class_of", "order_of"]


class Autoscalers(NamedTuple):
    """What a cluster shows of its autoscalers. What cannot be read is None, and ``unread`` says why.

    ``status`` is that of a cluster autoscaler; ``has_status``: whether there is one. ``priorities`` are those of the expander;
    ``has_priorities``: whether its ConfigMap is there, also if it cannot be understood. ``weights`` are the weights of
    Karpenter's NodePools by name, none where Karpenter is not installed.
    """

    has_status: bool | None = None
    status: Status | None = None
    has_priorities: bool | None = None
    priorities: Priorities | None = None
    weights: Mapping[str, int] | None = None
    unread: str = ""


UNKNOWN = Autoscalers(unread="nothing has been read of the cluster's autoscalers")
"""Nothing is known."""


class Order(NamedTuple):
    """Whether an order of pools is ``kept``, and ``why``, a clause for people."""

    kept: bool
    why: str


def order_of(wanted: Sequence[Pool], pools: Mapping[str, Pool], seen: Autoscalers) -> Order:
    """Whether a pod that is open to the pools ``wanted``, in this order, gets a node of the first of them that has one.

    Spot has to come before on-demand for certain; pools of one capacity may be equal. ``pools`` are all of the configuration.
    """
    if compute_class := compute_class_of(wanted):
        return Order(True, f"the ComputeClass {compute_class} orders them")
    scaled = [pool for pool in wanted if pool.min_nodes < pool.max_nodes]
    has_scaled = bool(scaled)
    stuck = _without_nodes(scaled, pools, seen)
    scaled = [pool for pool in scaled if pool.name not in stuck]
    of_karpenter = [pool for pool in scaled if pool.provider is Provider.KARPENTER]
    of_groups = [pool for pool in scaled if pool.provider is not Provider.KARPENTER]
    if seen.weights is not None and not seen.weights:
        of_karpenter = []
    if seen.has_status is False:
        of_groups = []
    if not of_karpenter and not of_groups:
        now = " now" if stuck else ""
        return Order(True, f"nothing adds nodes to these pools{now}" if has_scaled else "these pools have a fixed size")
    if of_karpenter and of_groups:
        return Order(False, "Karpenter and the cluster autoscaler would each choose among their own pools")
    return _of_karpenter(of_karpenter, seen) if of_karpenter else _of_groups(of_groups, pools, seen)


def _without_nodes(wanted: Sequence[Pool], pools: Mapping[str, Pool], seen: Autoscalers) -> set[str]:
    """The pools none of whose groups can grow now: their autoscaler passes them over, whatever its expander prefers."""
    if seen.status is None:
        return set()
    groups, found = seen.status.groups, groups_of_pools(pools.values(), seen.status.groups)
    own = {pool.name: found.get(pool.name, ()) for pool in wanted}
    return {name for name, each in own.items() if each and all(groups[one].obstacle for one in each)}


def compute_class_of(pools: Sequence[Pool]) -> str:
    """The ComputeClass of GKE to which all of these pools belong, which orders them; empty if there is none."""
    found = {pool.labels.get(COMPUTE_CLASS) if pool.provider is Provider.GKE else None for pool in pools}
    only = found.pop() if len(found) == 1 else None
    return only or ""


def _of_karpenter(wanted: Sequence[Pool], seen: Autoscalers) -> Order:
    names = [pool_name(pool) or pool.name for pool in wanted]
    if seen.weights is None:
        return Order(False, f"the weights of Karpenter's NodePools are not known ({seen.unread})")
    for name in names:
        if name not in seen.weights:
            return Order(False, f"Karpenter has no NodePool {name}")
    for (before, first), (after, second) in pairwise(zip(wanted, names, strict=True)):
        higher, lower = seen.weights[first], seen.weights[second]
        if first == second or higher > lower or (higher == lower and before.is_spot is after.is_spot):
            continue
        return Order(False, f"Karpenter's NodePool {first} has the weight {higher}, and {second} has {lower}")
    if len(set(names)) == 1:
        return Order(True, f"Karpenter takes spot first in the NodePool {names[0]}")
    return Order(True, f"the weights of Karpenter's NodePools order them: {', '.join(dict.fromkeys(names))}")


def _of_groups(wanted: Sequence[Pool], pools: Mapping[str, Pool], seen: Autoscalers) -> Order:
    if len(wanted) == 1:
        return Order(True, f"{wanted[0].name} alone can get more nodes")
    if any(pool.provider is Provider.GKE for pool in wanted):
        return Order(False, "GKE's autoscaler follows no order of pools; a ComputeClass does")
    if seen.has_priorities is None:
        return Order(False, f"the expander's ConfigMap {PRIORITIES} is not known ({seen.unread})")
    if seen.priorities is None:
        state = "cannot be understood" if seen.has_priorities else "is not there"
        return Order(False, f"the cluster autoscaler reads no preferences, and its ConfigMap {PRIORITIES} {state}")
    problem = next(_problems(wanted, pools, seen, seen.priorities), "")
    if problem:
        return Order(False, problem)
    return Order(True, f"the ConfigMap {PRIORITIES} orders them: {', '.join(pool.name for pool in wanted)}")


def _problems(
    wanted: Sequence[Pool], pools: Mapping[str, Pool], seen: Autoscalers, priorities: Priorities
) -> Iterator[str]:
    """Why the expander does not follow the order; nothing if it does."""
    groups = groups_of_pools(pools.values(), seen.status.groups if seen.status is not None else ())
    lowest = -1  # what the expander begins with: a group that no pattern matches is behind all others
    found: list[tuple[Pool, list[int]]] = []
    for pool in wanted:
        each = [priorities.of(name) for name in groups.get(pool.name) or [likely_group(pool)]]
        found.append((pool, [lowest if one is None else one for one in each]))
    for (before, high), (after, low) in pairwise(found):
        if min(high) > max(low) or (min(high) == max(low) and before.is_spot is after.is_spot):
            continue
        if min(high) == lowest:
            yield f"no pattern of the ConfigMap {PRIORITIES} matches the group of {before.name}"
        yield f"the ConfigMap {PRIORITIES} gives {before.name} the priority {min(high)}, and {after.name} {max(low)}"
