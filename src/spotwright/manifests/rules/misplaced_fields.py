"""Refuse fields at the wrong level, which the API server would drop silently, and name the path where they belong."""

from __future__ import annotations

from collections.abc import Collection

from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.yamltext.documents import Path, show

__all__ = ["JOB_FIELDS", "POD_FIELDS", "refuse_at_template", "refuse_misplaced"]

POD_FIELDS: frozenset[str] = frozenset(
    {
        "affinity",
        "containers",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "priorityClassName",
        "restartPolicy",
        "schedulerName",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""Fields of a pod spec that are often written a level or two too high. Source: Kubernetes API reference, PodSpec."""

JOB_FIELDS: frozenset[str] = frozenset(
    {
        "backoffLimit",
        "backoffLimitPerIndex",
        "completionMode",
        "completions",
        "maxFailedIndexes",
        "parallelism",
        "podFailurePolicy",
        "podReplacementPolicy",
        "successPolicy",
        "ttlSecondsAfterFinished",
    }
)
"""Fields that a Job spec has and a pod spec has not. Source: Kubernetes API reference, JobSpec."""

_OF_CONTAINERS = frozenset({"restartPolicy"})  # a field of init containers too


def refuse_misplaced(
    ctx: PlaceContext, at: Path, target: Path, names: Collection[str], allowed: Collection[str] = ()
) -> None:
    """Refuse fields of ``names`` at ``at``, which belong under ``target``, except those ``allowed`` there."""
    present = ctx.editor.get(at)
    if not isinstance(present, dict):
        return
    for name in present:
        if name in names and name not in allowed:
            text = f"the API server would drop this field here; it belongs under {show((*target, name))}"
            raise ctx.problem((*at, name), text)


def refuse_at_template(ctx: PlaceContext, template: Path) -> None:
    """Refuse a pod template without a ``spec``, and fields of the pod spec that stand in the template or in a container."""
    spec = (*template, "spec")
    refuse_misplaced(ctx, template, spec, POD_FIELDS)
    if not isinstance(ctx.editor.get(spec), dict):
        raise ctx.problem(template, f"expected a pod template with a {show(spec)}")
    _refuse_in_containers(ctx, spec)


def _refuse_in_containers(ctx: PlaceContext, spec: Path) -> None:
    """Refuse fields of the pod spec that stand in one of its containers."""
    for kind in ("containers", "initContainers"):
        containers = ctx.editor.get((*spec, kind))
        for index in range(len(containers) if isinstance(containers, list) else 0):
            refuse_misplaced(ctx, (*spec, kind, index), spec, POD_FIELDS, _OF_CONTAINERS)
