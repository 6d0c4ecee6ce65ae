"""Decides whether a cluster's autoscaler follows the wanted order of pools, so that a pod need not be pinned to one of them.

A pod that is open to several pools gets a node sooner than a pinned one, because an autoscaler tries the next pool within
seconds. But the cluster autoscaler ignores preferences: among matching pools it follows its expander. So a pod is left open
only if the autoscaler's order is the order that its policy wants.

Sources: kubernetes/autoscaler, FAQ ("What are Expanders?"); Karpenter's documentation, "NodePools" (the highest weight first;
spot first where one NodePool allows both); GKE's documentation, "About custom compute classes" (priorities).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spotwright.clouds.cluster_autoscaler import PRIORITIES, Priorities, Status, groups_of_pools, likely_group
from spotwright.clouds.providers import node_pool_of, of
from spotwright.model.pools import Pool

__all__ = ["UNKNOWN", "Autoscalers", "Order", "compute_class_of", "order_of"]


class Autoscalers(NamedTuple):
    """The state of a cluster's autoscalers. Unreadable parts are None, and ``unread`` says why.

    ``status`` is the cluster autoscaler's; ``has_status``: whether its ConfigMap exists (None: unknown, or missing although the
    autoscaler writes Events). ``priorities`` are the expander's; ``has_priorities``: whether its ConfigMap exists, even if it
    cannot be parsed. ``weights`` are the weights of Karpenter's NodePools by name, empty without Karpenter.
    """

    has_status: bool | None = None
    status: Status | None = None
    has_priorities: bool | None = None
    priorities: Priorities | None = None
    weights: Mapping[str, int] | None = None
    unread: str = ""


UNKNOWN = Autoscalers(unread="the cluster's autoscalers have not been read")
"""The unknown state."""


class Order(NamedTuple):
    """Whether an order of pools is ``kept``, and ``why``, a clause for people."""

    kept: bool
    why: str


def order_of(wanted: Sequence[Pool], pools: Mapping[str, Pool], seen: Autoscalers) -> Order:
    """Whether a pod that is open to the pools ``wanted`` gets an available spot node before an on-demand one.

    Among pools of one capacity type any order is fine: their autoscaler chooses. ``pools`` are all pools of the configuration.
    """
    if compute_class := compute_class_of(wanted):
        return Order(True, f"the ComputeClass {compute_class} orders them")
    can_grow = [pool for pool in wanted if pool.min_nodes < pool.max_nodes]
    if not can_grow:
        return Order(True, "these pools have a fixed size")
    stuck = _without_nodes(can_grow, pools, seen)
    growing = [pool for pool in can_grow if pool.name not in stuck]
    of_karpenter = [pool for pool in growing if node_pool_of(pool) and seen.weights != {}]
    of_groups = [pool for pool in growing if not node_pool_of(pool) and seen.has_status is not False]
    if not of_karpenter and not of_groups:
        return Order(True, f"no autoscaler adds nodes to these pools{' now' if stuck else ''}")
    if of_karpenter and of_groups:
        return Order(False, "Karpenter and the cluster autoscaler would each choose among their own pools")
    return _of_karpenter(of_karpenter, seen) if of_karpenter else _of_groups(of_groups, pools, seen)


def _without_nodes(wanted: Sequence[Pool], pools: Mapping[str, Pool], seen: Autoscalers) -> set[str]:
    """The pools whose groups all cannot grow now: the autoscaler skips them, whatever its expander prefers."""
    if seen.status is None:
        return set()
    groups, found = seen.status.groups, groups_of_pools(pools.values(), seen.status.groups)
    own = {pool.name: found.get(pool.name, ()) for pool in wanted}
    return {name for name, each in own.items() if each and all(groups[one].obstacle for one in each)}


def compute_class_of(pools: Sequence[Pool]) -> str:
    """The GKE ComputeClass that all of these pools belong to, and that orders them, or empty."""
    found = {pool.labels.get(of(pool).class_label) for pool in pools}
    only = found.pop() if len(found) == 1 else None
    return only or ""


def _of_karpenter(wanted: Sequence[Pool], seen: Autoscalers) -> Order:
    if seen.weights is None:
        return Order(False, f"the weights of Karpenter's NodePools are not known ({seen.unread})")
    for name in map(node_pool_of, wanted):
        if name not in seen.weights:
            return Order(False, f"Karpenter has no NodePool {name}")
    for spot in (pool for pool in wanted if pool.is_spot):
        for regular in (pool for pool in wanted if not pool.is_spot):
            first, second = node_pool_of(spot), node_pool_of(regular)
            if first != second and seen.weights[first] <= seen.weights[second]:
                weights = f"the weight {seen.weights[first]}, and {second} has {seen.weights[second]}"
                return Order(False, f"Karpenter's NodePool {first} has {weights}")
    names = ", ".join(dict.fromkeys(map(node_pool_of, wanted)))
    return Order(True, f"Karpenter takes spot first, and NodePools by their weight: {names}")


def _of_groups(wanted: Sequence[Pool], pools: Mapping[str, Pool], seen: Autoscalers) -> Order:
    if len(wanted) == 1:
        return Order(True, f"{wanted[0].name} alone can get more nodes")
    if len({pool.is_spot for pool in wanted}) == 1:
        return Order(True, "they are of one capacity, and the autoscaler takes the next one where one cannot grow")
    for provider in (of(pool) for pool in wanted if of(pool).orders_by):
        return Order(False, f"{provider.title}'s autoscaler follows no order of pools; {provider.orders_by} does")
    groups = groups_of_pools(pools.values(), seen.status.groups if seen.status is not None else ())
    nameless = [
        pool.name for pool in wanted if seen.status is not None and seen.status.groups and not groups[pool.name]
    ]
    if nameless:
        none = f"no group of the cluster autoscaler has the name of {', '.join(nameless)}"
        return Order(True, f"{none}, so it would be unknown that it cannot grow")
    if seen.has_priorities is None:
        return Order(False, f"the expander's ConfigMap {PRIORITIES} is not known ({seen.unread})")
    if seen.priorities is None:
        state = "cannot be understood" if seen.has_priorities else "is not there"
        return Order(False, f"the cluster autoscaler reads no preferences, and its ConfigMap {PRIORITIES} {state}")
    return _by_priority(wanted, groups, seen.priorities)


def _by_priority(wanted: Sequence[Pool], groups: Mapping[str, Sequence[str]], priorities: Priorities) -> Order:
    """Whether the priorities put every spot pool before every on-demand pool."""
    lowest = -1  # the expander's initial value: a group without a match is last
    found: dict[str, list[int]] = {}
    for pool in wanted:
        each = [priorities.of(name) for name in groups.get(pool.name) or [likely_group(pool)]]
        found[pool.name] = [lowest if one is None else one for one in each]
    for spot in (pool.name for pool in wanted if pool.is_spot):
        for regular in (pool.name for pool in wanted if not pool.is_spot):
            high, low = min(found[spot]), max(found[regular])
            if high == lowest:
                return Order(False, f"no pattern of the ConfigMap {PRIORITIES} matches the group of {spot}")
            if high <= low:
                return Order(False, f"the ConfigMap {PRIORITIES} gives {spot} the priority {high}, and {regular} {low}")
    return Order(True, f"the ConfigMap {PRIORITIES} orders them: {', '.join(pool.name for pool in wanted)}")
