"""The ResourceFlavor of a pool, which has the pool's name, and which flavors Kueue may assign to work.

Kueue assigns a flavor to the pods of a workload before they exist, and adds the flavor's labels to their node selector. It skips
a flavor whose ``nodeTaints`` the pods do not tolerate, and one whose ``nodeLabels`` contradict the pods' node selector or
required node affinity. Preferred affinity has no effect there. A condition on a label that the flavor does not have is ignored,
since 0.18.6 and 0.19.0 also where other flavors have the label; the pods would then wait for a node that does not exist. So each
pool that must not be used has to be excluded by a label that its own flavor has. Source: kubernetes-sigs/kueue v0.19.2,
``pkg/scheduler/flavorassigner/flavorassigner.go`` (checkFlavorForPodSets, flavorSelector).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.providers import INSTANCE_TYPE, ZONE
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Constraints, Expression, Taint, Term
from spotwright.scheduling.ladder import has_accelerators

__all__ = ["exclusion", "flavor_labels", "flavor_order", "flavor_taints", "may_assign"]


_MOST = 8  # labels and taints of a flavor, by its schema
_REPELLING = ("NoSchedule", "NoExecute")  # Kueue ignores PreferNoSchedule

_OF_NEW_NODES = frozenset({"cloud.google.com/gke-provisioning"})
"""Labels that nodes of older releases do not have: in a node selector they would keep pods off these nodes."""

Condition = dict[str, Any]
"""A node selector requirement as Kubernetes writes it: key, operator, values."""


def flavor_labels(pool: Pool) -> dict[str, str]:
    """The labels of a pool's flavor: those of its nodes, at most eight; the machine type and the zone are the first to go."""
    labels = {key: value for key, value in providers.labels(pool).items() if key not in _OF_NEW_NODES}
    return {key: labels[key] for key in sorted(labels, key=lambda key: key in (INSTANCE_TYPE, ZONE))[:_MOST]}


def flavor_taints(pool: Pool) -> tuple[Taint, ...]:
    """The taints of a pool's flavor: those of its nodes that keep pods away, at most eight."""
    return tuple(taint for taint in providers.taints(pool) if taint.effect in _REPELLING)[:_MOST]


def flavor_order(pools: Mapping[str, Pool], ladder: Sequence[str] = ()) -> list[Pool]:
    """The order of the flavors in a ClusterQueue: the pools of ``ladder``, spot first, then the others.

    Kueue takes the first flavor that matches and has quota: spot before on-demand, the cheaper first, a pool without a price
    last. Pools without GPUs are before those with: work without GPUs then reaches a GPU pool last, and work with GPUs skips
    the others, whose quota has none.
    """

    def rank(pool: Pool) -> tuple[bool, bool, bool, int, bool, Any]:
        named = pool.name in ladder
        place = ladder.index(pool.name) if named else 0
        return (
            not named,
            not named and has_accelerators(pool.node or {}),
            not pool.is_spot,
            place,
            pool.price is None,
            pool.price or 0,
        )

    return sorted(pools.values(), key=rank)


def may_assign(pool: Pool, constraints: Constraints, required: Sequence[Condition] = ()) -> bool:
    """Whether Kueue may assign the pool's flavor to work with these constraints and these required conditions beside them."""
    labels = flavor_labels(pool)
    conditions = [_expression(one) for one in required]
    if any(one.key in labels and not one.matches(labels) for one in conditions):
        return False
    seen = replace(
        constraints,
        selector={key: value for key, value in constraints.selector.items() if key in labels},
        required=tuple(_known_terms(constraints.required, labels)),
    )
    return not seen.refusal(labels, flavor_taints(pool))


def _known_terms(terms: Sequence[Term], labels: Mapping[str, str]) -> Iterator[Term]:
    """The terms without conditions on labels that the flavor does not have; none if a term has no other conditions."""
    known = [Term(tuple(one for one in term.expressions if one.key in labels)) for term in terms]
    if all(term.expressions for term in known):
        yield from known


def _expression(condition: Condition) -> Expression:
    return Expression(condition["key"], condition["operator"], tuple(condition.get("values") or ()))


def exclusion(
    used: Sequence[Pool], others: Sequence[Pool], constraints: Constraints, required: Sequence[Condition]
) -> tuple[list[Condition], list[Pool]]:
    """The conditions that keep Kueue from the flavors of ``others``, beside those ``required``; and the pools that stay possible.

    A pool stays possible if it has no label whose value differs from that of every pool in ``used``.
    """
    open_pools = [pool for pool in others if may_assign(pool, constraints, required)]
    shared = list(_differing(used, open_pools, common=True)) if open_pools else []
    if shared:
        return shared[:1], []
    values: dict[str, list[str]] = {}
    left = []
    for pool in open_pools:
        own = next(_differing(used, [pool], common=False), None)
        if own is None:
            left.append(pool)
        else:
            values.setdefault(own["key"], []).extend(own["values"])
    conditions = [
        {"key": key, "operator": "NotIn", "values": list(dict.fromkeys(some))} for key, some in values.items()
    ]
    return conditions, left


def _differing(used: Sequence[Pool], others: Sequence[Pool], *, common: bool) -> Iterator[Condition]:
    """Conditions on labels that all ``others`` have, with values that no pool in ``used`` has.

    ``common``: the pools in use have the label too, so that the condition names their values and holds for no unknown pool.
    """
    labels = [flavor_labels(pool) for pool in others]
    own = [flavor_labels(pool) for pool in used]
    for key in labels[0]:
        values = list(dict.fromkeys(str(one.get(key)) for one in labels))
        if (
            key in (INSTANCE_TYPE, ZONE)
            or not all(key in one for one in labels)
            or any(one.get(key) in values for one in own)
        ):
            continue
        if not common:
            yield {"key": key, "operator": "NotIn", "values": values}
        elif all(key in one for one in own):
            yield {"key": key, "operator": "In", "values": list(dict.fromkeys(one[key] for one in own))}
