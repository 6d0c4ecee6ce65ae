"""Kubeflow Trainer: TrainJob, which changes the pods of a runtime, and the runtimes themselves.

A patch of a TrainJob replaces the tolerations and the affinity terms of its runtime, so the runtime is read, and the patch gets
its values together with the additions. Only the runtime can set retries, so they are written there, as for a JobSet. Source:
kubeflow/trainer v2.0 to v2.3, ``pkg/runtime/core/trainingruntime.go`` (merge) and ``pkg/runtime/framework/plugins/jobset``
(what is refused).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.kinds import PlaceObject
from spotwright.manifests.kinds.jobset import SetMember, write_failure_policy
from spotwright.manifests.kinds.trainer.runtime_copies import JOBS, RuntimeCopy, settle_retries
from spotwright.manifests.kinds.trainer.runtime_patches import (
    KUEUE,
    MANAGER,
    PATCHES,
    Patch,
    TrainerRelease,
    patch_entries,
    patches,
    trainer_release,
)
from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.manifests.rules.job_failure_policy import refuse_in_job
from spotwright.manifests.rules.merging import place_merged, strategic, write
from spotwright.manifests.rules.misplaced_fields import JOB_FIELDS, POD_FIELDS, refuse_misplaced
from spotwright.manifests.rules.pod_rules import Placed, Role, place_pod
from spotwright.manifests.rules.schema import METADATA, TEMPLATE, TEXT, check, check_value
from spotwright.manifests.yamltext.documents import Document, Path

__all__ = ["KINDS"]

_RUN = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINJOB = {
    **PATCHES,
    "runtimeRef": {"name": TEXT, "kind": TEXT},
    "trainer": {"env": [{"name": TEXT}], "resourcesPerNode": {"limits": {}, "requests": {}}},
}
_RUNTIME = {
    "mlPolicy": {"mpi": {}},
    "template": {
        "spec": {
            "failurePolicy": {"rules": [{"action": TEXT}]},
            "replicatedJobs": [{"name": TEXT, "template": {"metadata": METADATA, "spec": {"template": TEMPLATE}}}],
        }
    },
}
_LAUNCHER = "all nodes depend on the launcher"
_GRACE = "terminationGracePeriodSeconds"
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")
_FROZEN = (
    "spec.trainer, spec.runtimeRef and spec.activeDeadlineSeconds cannot be changed; the entries that change pods can, while "
    "the TrainJob is suspended"
)


@dataclass(slots=True)
class _ReplicatedJob:
    """One replicated job of the runtime: its pod template with the TrainJob's changes, before and after it is placed."""

    name: str
    is_trainer: bool  # the one that spec.trainer configures
    has_placed_runtime: bool  # whether the command places the runtime too
    patches: Sequence[Patch]
    before: dict[str, Any]
    after: dict[str, Any]
    placed: Placed


def _place_trainjob(ctx: PlaceContext) -> None:
    check(ctx, ctx.at("spec"), _TRAINJOB)
    release = trainer_release(ctx)
    _refuse_misplaced(ctx, release)
    runtime = _runtime(ctx)
    if runtime is None:
        return
    given = runtime.get(JOBS, None) or ()
    _check_entries(ctx, release, [str(job.get("name")) for job in given])
    jobs = [_placed(ctx, release, runtime, job) for job in given]
    own = settle_retries(ctx, release, runtime, {job.name: job.placed for job in jobs})
    templates = {job.name: template for job in jobs if (template := _template(ctx, release, job, jobs, own))}
    if templates:
        ctx.editor.extend(ctx.at("spec", release.field), patch_entries(release, templates))
    for job in jobs:
        if job.is_trainer:
            old, new = (_node(pod.get("spec") or {}) for pod in (job.before, job.after))
            ctx.editor.extend(ctx.at("spec", "trainer", "env"), _new(old, new, "env"))
    if own is not None:
        own.add(ctx)


def _refuse_misplaced(ctx: PlaceContext, release: TrainerRelease) -> None:
    spec = ctx.at("spec")
    right = (*spec, release.field)
    own = {"podSpecOverrides", "podTemplateOverrides", "runtimePatches"}
    refuse_misplaced(ctx, spec, right, POD_FIELDS, own)
    refuse_misplaced(ctx, (*spec, "trainer"), right, POD_FIELDS)
    refuse_misplaced(ctx, (*spec, "trainer"), spec, own)
    for name in ctx.editor.get(spec) or ():
        if name in JOB_FIELDS or name in ("failurePolicy", "successPolicy"):
            raise ctx.problem((*spec, name), "the API server would drop this field here; only the runtime can have it")


def _runtime(ctx: PlaceContext) -> Document | None:
    """The runtime of a TrainJob; ``None``, with a finding, if it was not given."""
    reference = ctx.get("spec", "runtimeRef")
    if not reference or not reference.get("name"):
        raise ctx.problem(ctx.at("spec", "runtimeRef"), "expected the name of a runtime")
    kind, name = str(reference.get("kind") or "ClusterTrainingRuntime"), str(reference["name"])
    namespace = ctx.get("metadata", "namespace") if kind == "TrainingRuntime" else None
    runtime = ctx.find(kind, name, namespace)
    if runtime is None:
        text = (
            f"nothing is placed: a patch would replace values of {kind} {name}, which was not given; pass it with --with "
            f"(kubectl get {kind.lower()} {name} -o yaml)"
        )
        ctx.add_finding(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
        return None
    check_value(runtime, ("spec",), runtime.get(("spec",), {}), _RUNTIME)
    return runtime


def _placed(ctx: PlaceContext, release: TrainerRelease, runtime: Document, given: Mapping[str, Any]) -> _ReplicatedJob:
    """Merge the pod template of a replicated job and place it."""
    name = str(given.get("name"))
    is_trainer = _ancestor(given) == "trainer" or (name == "node" and not _has_ancestor(runtime))
    applied = [patch for patch in patches(ctx, release) if name in patch.jobs]
    before: dict[str, Any] = ((given.get("template") or {}).get("spec") or {}).get("template") or {}
    for patch in applied:
        before = strategic(before, patch.template)
    as_node = runtime.get(("spec", "mlPolicy", "mpi", "runLauncherAsNode"), None) is True
    if is_trainer or (as_node and name == "node"):
        before = _with_resources(ctx, before)
    template = _scheduling_path(applied) or ctx.at("spec", release.field, name, "template")
    on_demand_reason = _LAUNCHER if name == "launcher" else ""
    role = Role(
        name, f"{ctx.name}/{name.lower()}", (*template, "spec"), template, on_demand_reason, work=ctx.name, run=_RUN
    )
    placed, after = place_merged(ctx, role, {"spec": {}, **before})
    placed.report.frozen = _FROZEN
    ours = [patch for patch in applied if patch.manager != KUEUE]
    return _ReplicatedJob(name, is_trainer, ctx.is_input(runtime), ours, before, after, placed)


def _scheduling_path(applied: Sequence[Patch]) -> Path | None:
    """The path at which the TrainJob itself selects nodes, for messages about it; ``None`` if it does not."""
    for patch in reversed(applied):
        if patch.spec[-1] == "spec" and {"affinity", "nodeSelector"} & (patch.template.get("spec") or {}).keys():
            return patch.spec[:-1]
    return None


def _ancestor(job: Mapping[str, Any]) -> str:
    labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return str(labels.get(_ANCESTOR, ""))


def _has_ancestor(runtime: Document) -> bool:
    return any(_ancestor(job) == "trainer" for job in runtime.get(JOBS))


def _with_resources(ctx: PlaceContext, template: Mapping[str, Any]) -> dict[str, Any]:
    """The template with the resources and the environment that ``spec.trainer`` gives its container ``node``."""
    trainer, pod = ctx.get("spec", "trainer") or {}, template.get("spec") or {}
    given = {"resources": trainer.get("resourcesPerNode") or {}, "env": trainer.get("env") or []}
    containers = [
        {**container, **strategic({key: container[key] for key in given if container.get(key)}, given)}
        if container.get("name") == "node"
        else container
        for container in pod.get("containers") or ()
    ]
    return {**template, "spec": {**pod, "containers": containers}} if containers else dict(template)


def _check_entries(ctx: PlaceContext, release: TrainerRelease, names: Sequence[str]) -> None:
    """Refuse a second entry of ours, and entries for jobs that the runtime does not have; entries of other managers stay."""
    for index, entry in enumerate(ctx.get("spec", release.field) or ()):
        path = ctx.at("spec", release.field, index)
        if entry.get("manager") == MANAGER:
            raise ctx.problem(path, f"an entry of {MANAGER} without a placement record; remove it")
        if entry.get("manager") == KUEUE:
            text = "Kueue's own entry stays; if it sets tolerations, they replace those that are placed"
            ctx.add_finding(Level.WARNING, path, text)
    for patch in patches(ctx, release):
        for job in patch.jobs:
            if job not in names:
                text = f"the runtime has no replicated job {job}, only {', '.join(names)}: the API server would refuse this"
                raise ctx.problem(patch.entry, text)


def _template(
    ctx: PlaceContext,
    release: TrainerRelease,
    job: _ReplicatedJob,
    jobs: Sequence[_ReplicatedJob],
    own: RuntimeCopy | None,
) -> dict[str, Any]:
    """The changes of our entry to a job; a field in an entry of the user's is extended there instead."""
    spec: dict[str, Any] = {}
    before, after = job.before.get("spec") or {}, job.after["spec"]
    for name in ("tolerations", "affinity"):
        if after.get(name) == before.get(name):
            continue
        holder = next((patch for patch in reversed(job.patches) if name in (patch.template.get("spec") or {})), None)
        if holder is not None:
            _add_to(ctx, holder, name, job, jobs)
        elif name == "tolerations":
            spec[name] = after[name]
        else:
            spec |= _affinity(ctx, release, job, own)
    for name in (_GRACE, "imagePullSecrets"):
        if after.get(name) != before.get(name):
            spec |= _if_settable(ctx, release, job, name, own)
    if job.is_trainer:
        spec |= _checkpoint(before, after)
    metadata = _new_metadata(job) if release.has_metadata else {}
    return {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}


def _add_to(ctx: PlaceContext, holder: Patch, name: str, job: _ReplicatedJob, jobs: Sequence[_ReplicatedJob]) -> None:
    """Extend a field in an entry of the user's, because entries replace the field."""
    after = job.after["spec"][name]
    for other in jobs:
        if other.name in holder.jobs and other.after["spec"].get(name) != after:
            text = f"{job.name} and {other.name} need different {name}: give each of them an entry of its own"
            raise ctx.problem((*holder.spec, name), text)
    write(ctx.editor, (*holder.spec, name), (job.before.get("spec") or {}).get(name), after)


def _affinity(
    ctx: PlaceContext, release: TrainerRelease, job: _ReplicatedJob, own: RuntimeCopy | None
) -> dict[str, Any]:
    """The changed lists of terms as a whole, because a patch replaces them."""
    old, new = (
        ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {} for pod in (job.before, job.after)
    )
    terms = {key: new[key] for key in _TERMS if new.get(key) != old.get(key)}
    if release.can_set("affinity"):
        return {"affinity": {"nodeAffinity": terms}}
    if own is not None:
        return _if_settable(ctx, release, job, "affinity", own)
    required = terms.get(_TERMS[0], {}).get("nodeSelectorTerms", [])
    expressions = required[0].get("matchExpressions", []) if len(required) == 1 else []
    selector = {
        one["key"]: one["values"][0] for one in expressions if one["operator"] == "In" and len(one["values"]) == 1
    }
    if (len(selector) < len(expressions) or len(terms) != 1 or not selector) and not ctx.options.has_webhook:
        missing = "some of the conditions" if selector else "the conditions"
        text = (
            f"{job.name}: a TrainJob of trainer {release} cannot set affinity, so {missing} for its pools are missing"
        )
        text += ": place the runtime"
        ctx.add_finding(Level.WARNING, ctx.at("spec"), text)
    return {"nodeSelector": selector} if selector else {}


def _if_settable(
    ctx: PlaceContext, release: TrainerRelease, job: _ReplicatedJob, name: str, own: RuntimeCopy | None
) -> dict[str, Any]:
    """A field for our entry; if a TrainJob of the release cannot set it, the copy of its runtime gets it, if there is one."""
    before, after = (job.before.get("spec") or {}).get(name), job.after["spec"][name]
    if release.can_set(name):
        return {name: after[len(before or ()) :] if isinstance(after, list) else after}
    if own is not None:
        own.write(job.name, name, before, after)
        return {}
    text = f"{job.name}: a TrainJob of trainer {release} cannot set {name}"
    if ctx.options.has_webhook:
        return {}  # the JobSet that Trainer makes of it gets the field
    if job.has_placed_runtime:
        ctx.add_finding(Level.NOTE, ctx.at("spec"), f"{text}: that of its runtime holds, which is placed too")
    else:
        ctx.add_finding(Level.WARNING, ctx.at("spec"), f"{text}: place the runtime instead")
    return {}


def _checkpoint(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The volume of the checkpoint, and its mount in the container ``node``."""
    fields: dict[str, Any] = {}
    volumes, mounts = _new(before, after, "volumes"), _new(_node(before), _node(after), "volumeMounts")
    if volumes and mounts:
        fields["volumes"] = volumes
        fields["containers"] = [{"name": "node", "volumeMounts": mounts}]
    return fields


def _node(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    containers: Sequence[Mapping[str, Any]] = spec.get("containers") or ()
    return next((container for container in containers if container.get("name") == "node"), {})


def _new(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> list[Any]:
    return list((after.get(name) or [])[len(before.get(name) or []) :])


def _new_metadata(job: _ReplicatedJob) -> dict[str, Any]:
    """The labels and annotations that were added to a job's pods."""
    metadata: dict[str, Any] = {}
    for kind in ("labels", "annotations"):
        old = (job.before.get("metadata") or {}).get(kind) or {}
        new = (job.after.get("metadata") or {}).get(kind) or {}
        added = {key: value for key, value in new.items() if key not in old}
        if added:
            metadata[kind] = added
    return metadata


def _place_runtime(ctx: PlaceContext) -> None:
    check(ctx, ctx.at("spec"), _RUNTIME)
    at = ctx.at("spec", "template", "spec")
    members = []
    jobs = ctx.editor.get((*at, "replicatedJobs")) or ()
    refuse_misplaced(
        ctx, ctx.at("spec"), (*at, "replicatedJobs", 0, "template", "spec", "template", "spec"), POD_FIELDS
    )
    for index, job in enumerate(jobs):
        name = str(job.get("name"))
        spec = (*at, "replicatedJobs", index, "template", "spec")
        refuse_in_job(ctx, spec)
        template = (*spec, "template")
        on_demand_reason = _LAUNCHER if name == "launcher" else ""
        path = f"{ctx.name}/{name.lower()}"
        placed = place_pod(
            ctx, Role(name, path, (*template, "spec"), template, on_demand_reason, work=ctx.name, run=_RUN)
        )
        placed.report.frozen = "TrainJobs that have started keep the old runtime"
        members.append(SetMember(spec, name, placed))
    write_failure_policy(ctx, at, members)


KINDS: Mapping[tuple[str, str], PlaceObject] = {
    ("trainer.kubeflow.org", "TrainJob"): _place_trainjob,
    ("trainer.kubeflow.org", "TrainingRuntime"): _place_runtime,
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): _place_runtime,
}
