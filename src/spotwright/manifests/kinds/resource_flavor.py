"""Kueue's ResourceFlavor: the labels and taints of the pool that it stands for.

A flavor says on which nodes its quota is. Kueue adds ``nodeLabels`` to the pods' node selector and gives the flavor only to pods
that tolerate its ``nodeTaints``, so a flavor that lacks those of its pool sends work to other nodes, or work without a policy to
spot. The pool is the one with the flavor's name, or the only one that has all of its labels. Tolerations are never added: Kueue
adds them to every pod of the flavor. Sources: kubernetes-sigs/kueue v0.19.2, ``apis/kueue/v1beta2/resourceflavor_types.go``;
``site/content/en/docs/concepts/resource_flavor.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.manifests.kinds import PlaceObject
from spotwright.manifests.kueue.flavors import flavor_labels, flavor_taints
from spotwright.manifests.rules.context import Group, Level, PlaceContext, name_of
from spotwright.manifests.rules.schema import TEXT, check
from spotwright.model.pools import Pool

__all__ = ["KINDS"]

_SPEC = {
    "nodeLabels": {},
    "nodeTaints": [{"key": TEXT, "value": TEXT, "effect": TEXT}],
    "tolerations": [{"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT}],
}
_MOST = 8  # labels of a flavor, and taints, by its schema


def _place_flavor(ctx: PlaceContext) -> None:
    check(ctx, ctx.at("spec"), _SPEC)
    given = ctx.get("spec", "nodeLabels") or {}
    pool = _pool_of(ctx, given)
    if pool is None:
        text = f"ResourceFlavor {name_of(ctx.get('metadata'))} stays unchanged: no pool has its name, and its labels are not"
        text += f" those of one pool alone (the pools are {', '.join(ctx.config.pools)})"
        ctx.add_finding(Level.NOTE, ctx.at("kind"), text)
        return
    if ctx.writes(Group.PLACEMENT):
        _write_labels(ctx, pool, given)
        _write_taints(ctx, pool)
    _warn_of_tolerations(ctx, pool)


def _pool_of(ctx: PlaceContext, given: Mapping[str, Any]) -> Pool | None:
    """The pool of a flavor: by its name, else by its labels."""
    named = ctx.config.pools.get(name_of(ctx.get("metadata")))
    if named is not None or not given:
        return named
    fitting = [pool for pool in ctx.config.pools.values() if given.items() <= flavor_labels(pool).items()]
    return fitting[0] if len(fitting) == 1 else None


def _write_labels(ctx: PlaceContext, pool: Pool, given: Mapping[str, Any]) -> None:
    """Add the labels of the pool that the flavor lacks. Raises :class:`ManifestError` if one has another value."""
    labels = flavor_labels(pool)
    for key, value in labels.items():
        if key in given and str(given[key]) != value:
            path = ctx.at("spec", "nodeLabels", key)
            text = f"nodes of pool {pool.name} have {key}={value}, so this flavor would match none of them"
            raise ctx.problem(path, f"{text}: write that, or correct labels: of the pool in spotwright.yaml")
    missing = {key: value for key, value in labels.items() if key not in given}
    for key, value in list(missing.items())[: _MOST - len(given)]:
        ctx.editor.add(ctx.at("spec", "nodeLabels", key), value)


def _write_taints(ctx: PlaceContext, pool: Pool) -> None:
    """Add the taints of the pool that the flavor lacks, so that work without a policy does not get it."""
    given = ctx.get("spec", "nodeTaints") or []
    have = {(one.get("key"), one.get("value") or "", one.get("effect")) for one in given}
    missing = [one for one in flavor_taints(pool) if (one.key, one.value or "", one.effect) not in have]
    ctx.editor.extend(ctx.at("spec", "nodeTaints"), [one.fields for one in missing[: _MOST - len(given)]])


def _warn_of_tolerations(ctx: PlaceContext, pool: Pool) -> None:
    """Warn of tolerations of the flavor for the taints of spot nodes, which give every work the flavor."""
    keys = {taint.key for taint in flavor_taints(pool)}
    for index, one in enumerate(ctx.get("spec", "tolerations") or ()):
        if pool.is_spot and (not one.get("key") or one.get("key") in keys):
            text = "Kueue adds this to every pod of the flavor, so work without a policy lands on spot, and in a TrainJob it"
            text += " replaces the tolerations of the pods: remove it, place adds what work needs"
            ctx.add_finding(Level.WARNING, ctx.at("spec", "tolerations", index), text)


KINDS: Mapping[tuple[str, str], PlaceObject] = {("kueue.x-k8s.io", "ResourceFlavor"): _place_flavor}
