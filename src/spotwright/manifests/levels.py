"""Fields at the wrong level, which the API server drops without a word: refused, with the path where they belong."""

from __future__ import annotations

from collections.abc import Collection

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path, show

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
"""Fields of a pod spec that are often put a level or two too high. Source: Kubernetes API reference, PodSpec."""

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
"""Fields of a Job spec that a pod spec has not. Source: Kubernetes API reference, JobSpec."""

_OF_CONTAINERS = frozenset({"restartPolicy"})  # which init containers have as well


def refuse_misplaced(ctx: Context, at: Path, right: Path, names: Collection[str], own: Collection[str] = ()) -> None:
    """Refuse fields of ``names`` at ``at`` that belong under ``right``, but for those that the place has itself (``own``)."""
    present = ctx.editor.get(at)
    if not isinstance(present, dict):
        return
    for name in present:
        if name in names and name not in own:
            text = f"the API server drops this field here; it belongs under {show((*right, name))}"
            raise ctx.problem((*at, name), text)


def refuse_at_template(ctx: Context, template: Path) -> None:
    """Refuse what belongs into a pod template's ``spec`` and stands in the template itself or in a container, or no spec."""
    spec = (*template, "spec")
    refuse_misplaced(ctx, template, spec, POD_FIELDS)
    if not isinstance(ctx.editor.get(spec), dict):
        raise ctx.problem(template, f"expected a pod template with a {show(spec)}")
    _refuse_in_containers(ctx, spec)


def _refuse_in_containers(ctx: Context, spec: Path) -> None:
    """Refuse what belongs to the pod, and stands in one of its containers."""
    for kind in ("containers", "initContainers"):
        containers = ctx.editor.get((*spec, kind))
        for index in range(len(containers) if isinstance(containers, list) else 0):
            refuse_misplaced(ctx, (*spec, kind, index), spec, POD_FIELDS, _OF_CONTAINERS)
