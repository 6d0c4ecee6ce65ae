"""Conditions on nodes that nobody can judge before the work runs: they are taken to be met, and that is said.

A placeholder (``${...}`` of Katib, ``{{...}}`` of Argo) is filled in later. And some labels the nodes of every cloud have, while
few configurations say them of their pools: a manifest that asks for ``kubernetes.io/arch: amd64`` fits, unless a pool says what
its nodes are; then all are compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spotwright import clouds
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.model.placing import Constraints, Expression, Term

__all__ = ["is_placeholder", "without_unknown"]

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
_SYSTEM = frozenset({"beta.kubernetes.io/os", "kubernetes.io/os"})  # Linux, where a pool says nothing else
_MET = Expression("spotwright.dev/any-node", "DoesNotExist")  # by every node


def is_placeholder(value: Any) -> bool:
    """Whether a value is filled in only when the work runs."""
    return isinstance(value, str) and ("${" in value or "{{" in value)


def without_unknown(ctx: Context, given: Constraints, selector: Path, terms: Path) -> Constraints:
    """The constraints that can be judged. ``selector`` and ``terms`` are where the others stand."""
    if not given.selector and not given.required:
        return given
    kept = {
        key: value
        for key, value in given.selector.items()
        if not _is_unknown(ctx, (*selector, key), Expression(key, "In", (value,)))
    }
    required = tuple(_known(ctx, (*terms, index), term) for index, term in enumerate(given.required))
    return replace(given, selector=kept, required=required)


def _known(ctx: Context, path: Path, term: Term) -> Term:
    """A term without the expressions that nobody can judge; a term of nothing else is met."""
    kept = tuple(
        one
        for index, one in enumerate(term.expressions)
        if not _is_unknown(ctx, (*path, "matchExpressions", index), one)
    )
    if len(kept) == len(term.expressions):
        return term
    return Term(kept or (_MET,), term.fields)


def _is_unknown(ctx: Context, path: Path, asked: Expression) -> bool:
    if any(is_placeholder(part) for part in (asked.key, *asked.values)):
        text = f"{asked.key} {asked.operator} {', '.join(asked.values)} is known only when this runs"
        ctx.say(Level.WARNING, path, f"{text}: it is taken to fit the pools that the rest fits")
        return True
    if asked.key not in _ON_EVERY_NODE | _SYSTEM or _is_said(ctx, asked.key):
        return False
    if asked.key in _SYSTEM:
        return asked.matches({asked.key: "linux"})
    text = f"no pool says its {asked.key}, so each is taken to fit; say it under labels: in spotwright.yaml"
    ctx.say(Level.NOTE, path, text)
    return True


def _is_said(ctx: Context, key: str) -> bool:
    return any(
        pool.zones if key.endswith("/zone") else key in clouds.labels(pool) for pool in ctx.config.pools.values()
    )
