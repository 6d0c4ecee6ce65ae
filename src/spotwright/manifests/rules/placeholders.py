"""Conditions on nodes that cannot be checked before the work runs: they count as met, with a finding.

A placeholder (``${...}`` of Katib, ``{{...}}`` of Argo) is filled in later. Some labels are on the nodes of every cloud, but few
configurations list them: a manifest that asks for ``kubernetes.io/arch: amd64`` fits unless a pool states its architecture; then
all pools are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.providers import ZONE
from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.manifests.yamltext.documents import Path
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Constraints, Expression, Term

__all__ = ["AddFinding", "is_placeholder", "judgeable", "without_unknown"]

_ON_EVERY_NODE = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)  # Source: Kubernetes reference, "Well-Known Labels, Annotations and Taints"
_SYSTEM = frozenset({"beta.kubernetes.io/os", "kubernetes.io/os"})  # Linux, unless a pool states another one
_MET = Expression("spotwright.dev/any-node", "DoesNotExist")  # true of every node

AddFinding = Callable[[Level, Path, str], None]
"""Reports a condition that cannot be checked: its severity, its path, the text."""


def is_placeholder(value: Any) -> bool:
    """Whether a value is a placeholder that is filled in at run time."""
    return isinstance(value, str) and ("${" in value or "{{" in value)


def without_unknown(ctx: PlaceContext, given: Constraints, selector: Path, terms: Path) -> Constraints:
    """The constraints that can be checked. The others are reported at the paths ``selector`` and ``terms``."""
    return judgeable(given, ctx.config.pools, ctx.add_finding, selector, terms)


def judgeable(
    given: Constraints, pools: Mapping[str, Pool], add_finding: AddFinding, selector: Path = (), terms: Path = ()
) -> Constraints:
    """The constraints that can be compared with these pools; each other one counts as met and is reported to ``add_finding``."""
    if not given.selector and not given.required:
        return given
    kept = {
        key: value
        for key, value in given.selector.items()
        if not _is_unknown(pools, add_finding, (*selector, key), Expression(key, "In", (value,)))
    }
    required = tuple(_known(pools, add_finding, (*terms, index), term) for index, term in enumerate(given.required))
    return replace(given, selector=kept, required=required)


def _known(pools: Mapping[str, Pool], add_finding: AddFinding, path: Path, term: Term) -> Term:
    """A term without the expressions that cannot be checked; if no other is left, the term is met."""
    kept = tuple(
        one
        for index, one in enumerate(term.expressions)
        if not _is_unknown(pools, add_finding, (*path, "matchExpressions", index), one)
    )
    if len(kept) == len(term.expressions):
        return term
    return Term(kept or (_MET,), term.fields)


def _is_unknown(pools: Mapping[str, Pool], add_finding: AddFinding, path: Path, expression: Expression) -> bool:
    if any(is_placeholder(part) for part in (expression.key, *expression.values)):
        text = f"{expression.key} {expression.operator} {', '.join(expression.values)} is known only at run time"
        add_finding(Level.WARNING, path, f"{text}: it counts as met by every pool that meets the rest")
        return True
    if expression.key not in _ON_EVERY_NODE | _SYSTEM or _is_configured(pools, expression.key):
        return False
    if expression.key in _SYSTEM:
        return expression.matches({expression.key: "linux"})
    unknown = [(pool.name, zone) for pool in pools.values() for zone in providers.unknown_zones(pool)]
    if expression.key == ZONE and unknown:
        name, zone = unknown[0]
        text = f"nodes of pool {name} in zone {zone} are labelled REGION-{zone}, and the region is not known, so every pool"
        text += f" counts as fitting; set region: of pool {name} in spotwright.yaml"
    else:
        text = f"no pool states its {expression.key}, so every pool counts as fitting; state it under labels: in spotwright.yaml"
    add_finding(Level.NOTE, path, text)
    return True


def _is_configured(pools: Mapping[str, Pool], key: str) -> bool:
    if key == ZONE and any(providers.unknown_zones(pool) for pool in pools.values()):
        return False
    return any(key in labels for pool in pools.values() for labels in providers.labels_by_zone(pool))
