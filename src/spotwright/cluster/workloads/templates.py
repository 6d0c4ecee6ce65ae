"""Reads the pod templates of a workload for the plan of its run: each becomes a task with its needs and its policy.

A Job's and a JobSet's templates stand in the object. What Argo and others make of theirs is read off the first pod of each
template, which shows what it really asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.cluster.workloads.owners import metadata
from spotwright.cluster.workloads.retries import has_policy, retries_of, retries_of_job
from spotwright.manifests.pod_graph import PodTask
from spotwright.manifests.rules.affinity import rung_conditions
from spotwright.model.pools import Pool

__all__ = ["template_of_pod", "templates_of"]

_RUNG = "spotwright.dev/rung"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_JOBS_DEFAULT = 6  # what the API server fills in for a Job's backoffLimit; in a JobSet it stands in the Job alone


def templates_of(owners: Sequence[Mapping[str, Any]]) -> list[PodTask]:
    """The templates that the owners of a pod hold, nearest owner first; empty where they are read off pods."""
    for owner in reversed(owners):
        spec = owner.get("spec") or {}
        if owner.get("kind") == "Job" and len(owners) == 1:
            name = str(metadata(owner).get("name", ""))
            return [_task("Job", name, spec.get("template") or {}, retries_of_job(spec, ()))]
        if owner.get("kind") == "JobSet":
            return [_of_replicated_job(replicated, owner) for replicated in spec.get("replicatedJobs") or ()]
    return []


def template_of_pod(
    name: str, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], pools: Mapping[str, Pool]
) -> PodTask:
    """A pod as the template of its task, without what a webhook required for the rung of this attempt alone."""
    kind = str(owners[-1].get("kind", "Pod")) if owners else "Pod"
    return _task(kind, name, _without_rung(pod, pools), retries_of(pod, owners))


def _without_rung(pod: Mapping[str, Any], pools: Mapping[str, Pool]) -> Mapping[str, Any]:
    names = str((metadata(pod).get("annotations") or {}).get(_RUNG, "")).split(",")
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    if not required or not all(name in pools for name in names):
        return pod
    ours = rung_conditions([pools[name] for name in names], pools)
    terms = [
        {**term, "matchExpressions": [one for one in term.get("matchExpressions") or () if one not in ours]}
        for term in required.get("nodeSelectorTerms") or ()
    ]
    own = [term for term in terms if any(term.values())]
    rest = {key: value for key, value in affinity["nodeAffinity"].items() if key != _REQUIRED}
    nodes = {**rest, _REQUIRED: {**required, "nodeSelectorTerms": own}} if own else rest
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": nodes}}}


def _of_replicated_job(replicated: Mapping[str, Any], job_set: Mapping[str, Any]) -> PodTask:
    job = {"backoffLimit": _JOBS_DEFAULT, **((replicated.get("template") or {}).get("spec") or {})}
    retries = retries_of_job(job, (job_set,))
    return _task("JobSet", str(replicated.get("name", "")), job.get("template") or {}, retries)


def _task(kind: str, name: str, template: Mapping[str, Any], retries: int | None) -> PodTask:
    meta = metadata(template)
    labels, annotations = (dict(meta.get(name) or {}) for name in ("labels", "annotations"))
    return PodTask(
        kind,
        name,
        dict(template.get("spec") or {}),
        labels=labels,
        annotations=annotations,
        retries=None if has_policy(labels, annotations) else retries,
    )
