"""Choose the node labels that select pools: the expressions for "spot", "on-demand", or "one of these pools".

Only the configuration and the facts about providers count: a label is used if every selected pool has it and no other pool does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from spotwright.clouds import node_labels, providers
from spotwright.clouds.pool_order import compute_class_of
from spotwright.clouds.provider_records import COMPUTE_CLASS
from spotwright.clouds.providers import INSTANCE_TYPE, ZONE
from spotwright.errors import ConfigError
from spotwright.model.policy import Policy
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Expression as Condition
from spotwright.scheduling.ladder import Ladder, PodRequirements

__all__ = [
    "Attraction",
    "Expression",
    "attraction",
    "capacity_expressions",
    "conditions_from_attempt",
    "off_idle_gpus",
    "off_windows",
    "rung_conditions",
]


Expression = dict[str, Any]
"""A node selector requirement as Kubernetes writes it: key, operator, values."""

_NO_LABEL = "spotwright.dev/any-node"
"""A label that no node has; every node meets a ``NotIn`` condition on it."""


@dataclass(frozen=True, slots=True)
class Attraction:
    """The node affinity of a placement: conditions that must hold, and conditions that are preferred.

    ``any_of``: alternatives, one of which must hold too, where the pools have several forms without a common label.
    """

    required: tuple[Expression, ...] = ()
    preferred: tuple[Expression, ...] = ()
    any_of: tuple[Expression, ...] = ()

    @property
    def as_wish(self) -> Attraction:
        """The same with every condition preferred."""
        return Attraction((), (*self.required, *self.any_of, *self.preferred))


def attraction(policy: Policy, used: Sequence[Pool], pools: Mapping[str, Pool]) -> Attraction:
    """The affinity that leads to the pools in use: one kind of capacity is required; of both, spot is preferred.

    On Karpenter both kinds are required instead, because Karpenter itself tries spot first if both are allowed. Raises
    :class:`ConfigError` if no label distinguishes the pools.
    """
    return _attraction(tuple(used), tuple(pools.values()), is_named=policy.ladder is not None)


def rung_conditions(used: Sequence[Pool], pools: Mapping[str, Pool]) -> Sequence[Expression]:
    """The labels that select the pools of a rung; the pools of its capacity if no label distinguishes them."""
    for is_named in (True, False):
        try:
            return _attraction(tuple(used), tuple(pools.values()), is_named=is_named).required
        except ConfigError:
            continue
    return ()


@lru_cache(maxsize=1024)
def _attraction(used: tuple[Pool, ...], every: tuple[Pool, ...], *, is_named: bool) -> Attraction:
    """The part that depends on the pools alone, and so is the same for all work that fits them."""
    if not used:
        return Attraction()
    named = _names_expression(used, every) if is_named else []
    named += [one for one in _class_expression(used) if one not in named]
    kinds = {pool.is_spot for pool in used}
    forms = _forms(used, every) if True in kinds else ()
    if len(kinds) == 1 and forms:
        return Attraction(tuple(named), any_of=() if named else forms)
    if len(kinds) == 1:
        of_capacity = capacity_expressions(used, every, spot=kinds == {True})
        return Attraction((*named, *(one for one in of_capacity if one not in named)))
    owners = {providers.of(pool) for pool in used}
    if len(owners) == 1 and (owner := owners.pop()).mixes_capacities:
        ((key, spot),) = owner.spot_labels.items()
        both = {"key": key, "operator": "In", "values": [spot, owner.on_demand_labels[key]]}
        return Attraction((*named, both))
    wishes = forms or tuple(capacity_expressions([p for p in used if p.is_spot], every, spot=True))
    return Attraction(tuple(named), wishes)


def _class_expression(used: Sequence[Pool]) -> list[Expression]:
    """The condition that selects the ComputeClass of these pools; none if they are not all in one. The class orders its pools."""
    compute_class = compute_class_of(used)
    return [{"key": COMPUTE_CLASS, "operator": "In", "values": [compute_class]}] if compute_class else []


def off_idle_gpus(
    work: PodRequirements, ladder: Ladder, wanted: Attraction, pools: Mapping[str, Pool]
) -> list[Expression]:
    """The conditions that keep work without GPUs off GPU pools where neither a taint nor another condition does.

    A pool that no label distinguishes from those in use is left out: no condition can keep the work off it.
    """
    if not ladder.idle:
        return []
    added = tuple(toleration for rung in ladder.rungs for toleration in rung.tolerations)
    constraints = replace(work.constraints, tolerations=work.constraints.tolerations + added)
    required = [Condition(e["key"], e["operator"], tuple(e.get("values") or ())) for e in wanted.required]
    reachable = [
        pool
        for pool in (pools[name] for name in ladder.idle)
        if any(
            not constraints.refusal(labels, providers.taints(pool), node_labels.unknown(pool))
            and all(condition.matches(labels) for condition in required)
            for labels in node_labels.known(pool)
        )
    ]
    used = [pools[name] for rung in ladder.rungs for name in rung.pools]
    shared = _positive(reachable, used)
    excluded = shared or [one for pool in reachable for one in _positive([pool], used)]
    values: dict[str, list[str]] = {}
    for expression in excluded:
        values.setdefault(expression["key"], []).extend(expression["values"])
    return [{"key": key, "operator": "NotIn", "values": list(dict.fromkeys(all_))} for key, all_ in values.items()]


def off_windows(ladder: Ladder, wanted: Attraction, pools: Mapping[str, Pool]) -> list[Expression]:
    """The condition that keeps work off nodes of Windows where no other one does: these have no taint by default."""
    required = [Condition(e["key"], e["operator"], tuple(e.get("values") or ())) for e in wanted.required]
    added = tuple(toleration for rung in ladder.rungs for toleration in rung.tolerations)
    for name in ladder.refusals if ladder.keeps_off_windows else ():
        pool = pools[name]
        left = [taint for taint in providers.taints(pool) if taint.effect != "PreferNoSchedule"]
        is_tainted = any(not any(one.tolerates(taint) for one in added) for taint in left)
        labels = node_labels.known(pool)
        if (
            pool.os == "windows"
            and not is_tainted
            and any(all(one.matches(each) for one in required) for each in labels)
        ):
            return [{"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]}]
    return []


def capacity_expressions(used: Sequence[Pool], every: Sequence[Pool], *, spot: bool) -> list[Expression]:
    """The conditions, all of which must hold, that select the spot (or on-demand) nodes of the pools in use.

    Raises :class:`ConfigError` if no label distinguishes them from the other kind.
    """
    selected = [pool for pool in used if pool.is_spot is spot]
    others = [pool for pool in every if pool.is_spot is not spot]
    positive = _positive(selected, others, _by_capacity)
    if not selected or not others:
        return positive
    by_capacity = providers.SPOT_LABELS if spot else providers.CAPACITY_LABELS
    names_capacity = bool(positive) and positive[0]["key"] in by_capacity
    if not names_capacity and any(pool.automatic or providers.of(pool).adds_pools for pool in selected):
        without = list(_negative(selected, others))
        if all(any(_excludes(one, pool) for one in without) for pool in others):
            return without  # the provider may add pools at any time, whose names are unknown
    if positive:
        return positive
    negative = list(_negative(selected, others))
    if not all(any(_excludes(one, pool) for one in negative) for pool in others):
        shared = _positive(others, selected, _by_capacity)
        negative = [{**expression, "operator": "NotIn"} for expression in shared]
    if negative:
        return negative
    kind = "spot" if spot else "on-demand"
    names = ", ".join(pool.name for pool in selected)
    raise ConfigError(
        f"no label distinguishes the {kind} pools ({names}) from the others: give them one under labels: in spotwright.yaml"
    )


def _forms(used: Sequence[Pool], every: Sequence[Pool]) -> tuple[Expression, ...]:
    """One condition for each form of spot capacity among the pools, as alternatives; none if one condition serves all.

    AKS node pools and Karpenter's pools on AKS are such forms: their nodes share no label.
    """
    try:
        capacity_expressions(used, every, spot=True)
    except ConfigError:
        selected, others = [pool for pool in used if pool.is_spot], [pool for pool in every if not pool.is_spot]
        each = [_positive([pool], others, _by_capacity) for pool in selected]
        if not all(each):
            raise
        values: dict[str, list[str]] = {}
        for one in (condition for conditions in each for condition in conditions):
            values.setdefault(one["key"], []).extend(one["values"])
        return tuple(
            {"key": key, "operator": "In", "values": list(dict.fromkeys(all_))} for key, all_ in values.items()
        )
    return ()


def _excludes(condition: Expression, pool: Pool) -> bool:
    """Whether a ``NotIn`` condition keeps work off the nodes of a pool."""
    return providers.labels(pool).get(condition["key"]) in condition["values"]


def conditions_from_attempt(
    conditions: Sequence[Mapping[str, Any]], choose: Callable[[str, str], str]
) -> list[Expression]:
    """The conditions for later attempts, which every node meets in earlier ones.

    ``choose`` returns the controller's expression for two texts: for earlier attempts, and for later ones.
    """
    return [
        {
            "key": choose(_NO_LABEL, str(condition["key"])),
            "operator": "NotIn" if condition["operator"] == "NotIn" else choose("NotIn", str(condition["operator"])),
            "values": list(condition["values"]),
        }
        for condition in conditions
    ]


def _names_expression(used: Sequence[Pool], every: Sequence[Pool]) -> list[Expression]:
    """The conditions that select exactly these pools; empty without others.

    Pools that the provider makes by itself have no such name: they are selected by excluding the others' labels.

    Raises :class:`ConfigError` if no label distinguishes them from the others.
    """
    names = {pool.name for pool in used}
    others = [pool for pool in every if pool.name not in names]
    if not others:
        return []
    positive = _positive(used, others)
    if positive:
        return positive
    if any(pool.automatic for pool in used):
        kinds = {pool.is_spot for pool in used}
        alike = [pool for pool in others if pool.is_spot in kinds]  # the others are excluded by their capacity
        values: dict[str, list[str]] = {}
        for expression in (one for pool in alike for one in _positive([pool], used)):
            values.setdefault(expression["key"], []).extend(expression["values"])
        without = [
            {"key": key, "operator": "NotIn", "values": list(dict.fromkeys(each))} for key, each in values.items()
        ]
        if all(any(_excludes(one, pool) for one in without) for pool in alike):
            return without
    listed = ", ".join(pool.name for pool in used)
    raise ConfigError(
        f"no label distinguishes the pools {listed} from the others: give them one under labels: in spotwright.yaml"
    )


def _matches(condition: Condition, pool: Pool) -> bool:
    """Whether nodes in one of the pool's zones meet a condition, by labels that are written, set or derived."""
    return any(condition.matches(labels) for labels in node_labels.known(pool))


def _by_name(key: str) -> tuple[int, str]:
    """The usual label of each provider's spot nodes first, then the rest."""
    usual = providers.CAPACITY_LABELS
    return (usual.index(key) if key in usual else len(usual)), key


def _by_capacity(key: str) -> tuple[int, str]:
    """The usual label of each provider's spot nodes first, then other labels for how a node is sold, then the rest."""
    rank, name = _by_name(key)
    return rank + (key not in providers.SPOT_LABELS), name


def _positive(
    selected: Sequence[Pool], others: Sequence[Pool], order: Callable[[str], tuple[int, str]] = _by_name
) -> list[Expression]:
    """The first label, in this order, that every selected pool has with values that no other pool has; else none.

    Labels that follow from the machine of another pool count as well.
    """
    if not selected:
        return []
    labels = [providers.labels(pool) for pool in selected]
    for key in sorted(set(labels[0]).intersection(*labels[1:]) - {INSTANCE_TYPE, ZONE}, key=order):
        values = list(dict.fromkeys(one[key] for one in labels))
        condition = Condition(key, "In", tuple(values))
        if not any(_matches(condition, pool) for pool in others):
            return [{"key": key, "operator": "In", "values": values}]
    return []


def _negative(selected: Sequence[Pool], others: Sequence[Pool]) -> Iterator[Expression]:
    """Labels of the other pools that no selected pool has: together they exclude the others."""
    left = list(others)
    for key in sorted(providers.SPOT_LABELS, key=_by_capacity):
        values = list(dict.fromkeys(v for pool in left if (v := providers.labels(pool).get(key)) is not None))
        condition = Condition(key, "In", tuple(values))
        if values and not any(_matches(condition, pool) for pool in selected):
            left = [pool for pool in left if providers.labels(pool).get(key) is None]
            yield {"key": key, "operator": "NotIn", "values": values}
