"""By which labels pools are told apart: the expressions that stand for "spot", "on-demand", or "one of these pools".

Nothing is assumed about a cluster but what the configuration and the providers' facts say: a label is used only if every pool
that is meant carries it and none of the others does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotwright import clouds
from spotwright.clouds.provider import INSTANCE_TYPE, ZONE
from spotwright.errors import ConfigError
from spotwright.model.placing import Expression as Condition
from spotwright.model.policy import Policy
from spotwright.model.pools import Pool, Provider
from spotwright.scheduling.ladder import IDLE, Ladder, Work

__all__ = ["Attraction", "Expression", "attraction", "capacity_expressions", "off_idle_gpus"]

Expression = dict[str, Any]
"""A node selector requirement as Kubernetes writes it: key, operator, values."""

_CAPACITY_KEYS = (
    "kubernetes.azure.com/scalesetpriority",
    "cloud.google.com/gke-spot",
    "eks.amazonaws.com/capacityType",
    "karpenter.sh/capacity-type",
)


@dataclass(frozen=True, slots=True)
class Attraction:
    """What node affinity a placement asks for: conditions that must hold, and conditions of which each is wished for."""

    required: tuple[Expression, ...] = ()
    preferred: tuple[Expression, ...] = ()


def attraction(policy: Policy, used: Sequence[Pool], pools: Mapping[str, Pool]) -> Attraction:
    """By the ladder: one kind of capacity is required, of both spot is preferred; of Karpenter's pools both are required.

    Karpenter itself tries spot first where both are allowed. Raises :class:`ConfigError` where no label tells the pools apart.
    """
    every = tuple(pools.values())
    named = _names_expression(used, pools) if policy.ladder is not None else []
    kinds = {pool.is_spot for pool in used}
    if len(kinds) == 1:
        return Attraction((*named, *capacity_expressions(used, every, spot=kinds == {True})))
    if all(pool.provider is Provider.KARPENTER for pool in used):
        both = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
        return Attraction((*named, both))
    return Attraction(tuple(named), tuple(capacity_expressions([p for p in used if p.is_spot], every, spot=True)))


def off_idle_gpus(work: Work, ladder: Ladder, wanted: Attraction, pools: Mapping[str, Pool]) -> list[Expression]:
    """The conditions that keep work without GPUs off the GPU pools which no taint and no other condition keeps it off.

    A pool that no label tells from those in use is left out: nothing can keep the work off it.
    """
    idle = [name for name, why in ladder.refusals.items() if why == IDLE]
    if not idle:
        return []
    added = tuple(toleration for rung in ladder.rungs for toleration in rung.tolerations)
    constraints = replace(work.constraints, tolerations=work.constraints.tolerations + added)
    required = [Condition(e["key"], e["operator"], tuple(e.get("values") or ())) for e in wanted.required]
    open_to_it = [
        pool
        for pool in (pools[name] for name in idle)
        if not constraints.refusal(clouds.labels(pool), clouds.taints(pool))
        and all(condition.matches(clouds.labels(pool)) for condition in required)
    ]
    used = [pools[name] for rung in ladder.rungs for name in rung.pools]
    together = _positive(open_to_it, used)[:1]
    found = together or [one for pool in open_to_it for one in _positive([pool], used)[:1]]
    values: dict[str, list[str]] = {}
    for expression in found:
        values.setdefault(expression["key"], []).extend(expression["values"])
    return [{"key": key, "operator": "NotIn", "values": list(dict.fromkeys(of))} for key, of in values.items()]


def capacity_expressions(used: Sequence[Pool], every: Sequence[Pool], *, spot: bool) -> list[Expression]:
    """The conditions, all of which must hold, that mean spot (or on-demand) nodes of the pools in use.

    Raises :class:`ConfigError` where no label tells them from the other kind.
    """
    meant = [pool for pool in used if pool.is_spot is spot]
    others = [pool for pool in every if pool.is_spot is not spot]
    if not meant or not others:
        return _positive(meant, others)[:1]
    positive = _positive(meant, others)
    if positive:
        return positive[:1]
    negative = list(_negative(meant, others)) or [
        {**expression, "operator": "NotIn"} for expression in _positive(others, meant)[:1]
    ]
    if negative:
        return negative
    kind = "spot" if spot else "on-demand"
    names = ", ".join(pool.name for pool in meant)
    raise ConfigError(
        f"no label tells the {kind} pools ({names}) from the others: give them one under labels: in spotwright.yaml"
    )


def _names_expression(used: Sequence[Pool], pools: Mapping[str, Pool]) -> list[Expression]:
    """The condition that means exactly these pools; none where they are all there is.

    Raises :class:`ConfigError` where no label tells them from the others.
    """
    others = [pool for name, pool in pools.items() if name not in {p.name for p in used}]
    if not others:
        return []
    positive = _positive(used, others)
    if positive:
        return positive[:1]
    names = ", ".join(pool.name for pool in used)
    raise ConfigError(
        f"no label tells the pools {names} from the others: give them one under labels: in spotwright.yaml"
    )


def _positive(meant: Sequence[Pool], others: Sequence[Pool]) -> list[Expression]:
    """Labels that every meant pool carries with values that no other pool has, the best known first."""
    if not meant:
        return []
    labels = [clouds.labels(pool) for pool in meant]
    foreign = [clouds.labels(pool) for pool in others]
    found = []
    for key in sorted(set.intersection(*(set(one) for one in labels)), key=_preference):
        values = list(dict.fromkeys(one[key] for one in labels))
        if key not in (INSTANCE_TYPE, ZONE) and not any(one.get(key) in values for one in foreign):
            found.append({"key": key, "operator": "In", "values": values})
    return found


def _negative(meant: Sequence[Pool], others: Sequence[Pool]) -> Iterator[Expression]:
    """Labels of the others that no meant pool carries: together they keep the others out."""
    mine = [clouds.labels(pool) for pool in meant]
    left = list(others)
    for key in _CAPACITY_KEYS:
        values = list(dict.fromkeys(v for pool in left if (v := clouds.labels(pool).get(key)) is not None))
        if values and not any(one.get(key) in values for one in mine):
            left = [pool for pool in left if clouds.labels(pool).get(key) is None]
            yield {"key": key, "operator": "NotIn", "values": values}


def _preference(key: str) -> tuple[int, str]:
    return (_CAPACITY_KEYS.index(key) if key in _CAPACITY_KEYS else len(_CAPACITY_KEYS), key)
