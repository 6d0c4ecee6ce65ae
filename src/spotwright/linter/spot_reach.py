"""Whether pods can reach spot nodes, and by what: a selector, a preference, a toleration, or because they are not kept off."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from spotwright.clouds import node_labels, providers
from spotwright.linter.settings import Settings
from spotwright.model.pools import Pool, Resources
from spotwright.model.scheduling_terms import Constraints, Expression, Term
from spotwright.scheduling.ladder import too_large

__all__ = [
    "Reach",
    "admits",
    "alternatives",
    "reach_of",
    "selects_pool",
    "selects_spot",
    "shuns_spot",
    "tolerates_spot",
]


class Reach(IntEnum):
    """How pods come to spot nodes."""

    NONE = 0  # they do not
    OPEN = 1  # a spot pool of the configuration has no taint, and they are not kept off
    TOLERATED = 2  # they tolerate the taint of spot nodes
    PREFERRED = 3  # they prefer spot nodes
    REQUIRED = 4  # no other node will do


def reach_of(constraints: Constraints, settings: Settings) -> Reach:
    """How pods with these constraints come to spot nodes."""
    if any(map(shuns_spot, constraints.pairs)):
        return Reach.NONE
    if constraints.required and all(_shuns(term) for term in constraints.required):
        return Reach.NONE
    if _requires(constraints, settings):
        return Reach.REQUIRED
    if any(_selects(wish.term, settings) for wish in constraints.preferred):
        return Reach.PREFERRED
    if any(tolerates_spot(toleration.key, toleration.operator, settings) for toleration in constraints.tolerations):
        return Reach.TOLERATED
    if any(admits(pool, constraints) for pool in settings.spot_pools):
        return Reach.OPEN
    return Reach.NONE


def alternatives(constraints: Constraints) -> list[list[Expression]]:
    """The required conditions that have to hold together, once for each alternative."""
    return [[*constraints.pairs, *term.expressions] for term in constraints.required] or [[*constraints.pairs]]


def selects_pool(constraints: Constraints, pool: Pool, requests: Resources) -> bool:
    """Whether nodes of the pool are large enough, and meet the selector and the required affinity, whatever their taints."""
    if too_large(requests, pool):
        return False
    constraints = Constraints(selector=constraints.selector, required=constraints.required)
    return not node_labels.refusal(pool, constraints, ())


def admits(pool: Pool, constraints: Constraints, requests: Resources | None = None) -> bool:
    """Whether nodes in one of the pool's zones admit the pods. The cluster may add tolerations for their ``requests``."""
    taints = providers.taints(pool)
    left = tuple(one for one in taints if not providers.is_tolerated_by_cluster(pool, one, requests or {}))
    return not node_labels.refusal(pool, constraints, left)


def tolerates_spot(key: str, operator: str, settings: Settings) -> bool:
    """Whether a toleration of this key and operator is for taints of spot nodes; one without a key is for every taint."""
    return key in settings.spot_taints or (not key and operator == "Exists")


def _requires(constraints: Constraints, settings: Settings) -> bool:
    if any(_is_spot_pair(pair, settings) for pair in constraints.selector.items()):
        return True
    return bool(constraints.required) and all(_selects(term, settings) for term in constraints.required)


def _selects(term: Term, settings: Settings) -> bool:
    return any(selects_spot(expression, settings) for expression in term.expressions)


def selects_spot(expression: Expression, settings: Settings) -> bool:
    """Whether only spot nodes meet a condition."""
    if expression.operator == "Exists":
        return expression.key in providers.ONLY_SPOT_LABELS
    if expression.operator != "In" or not expression.values:
        return False
    return all(_is_spot_pair((expression.key, value), settings) for value in expression.values)


def _is_spot_pair(pair: tuple[str, str], settings: Settings) -> bool:
    key, value = pair
    return value in providers.SPOT_LABELS.get(key, ()) or pair in settings.spot_pairs


def shuns_spot(expression: Expression) -> bool:
    """Whether no spot node of the provider that has this label meets a condition.

    A former value counts if it is required; a condition that only excludes it does not keep pods off present nodes. A
    key without a domain may mean anything (``lifecycle: production``), unless it has a value of spot nodes.
    """
    key, values = expression.key, providers.SPOT_LABELS.get(expression.key, ())
    if not values or ("/" not in key and set(values).isdisjoint(expression.values)):
        return False
    met = [expression.matches({key: value}) for value in values]
    return not any(met) if expression.operator == "In" else not met[0]


def _shuns(term: Term) -> bool:
    return any(map(shuns_spot, _of(term)))


def _of(term: Term) -> Iterable[Expression]:
    return term.expressions
