"""Kubeflow Trainer: TrainJob, which changes the pods of a runtime, and the runtimes themselves.

A patch of a TrainJob replaces the tolerations and the affinity terms of its runtime, so the runtime is read and what it says is
written with what is added. How often work is tried again can be said in the runtime alone: there it is written, as for a JobSet.
Source: kubeflow/trainer v2.0 to v2.3, ``pkg/runtime/core/trainingruntime.go`` (merge) and
``pkg/runtime/framework/plugins/jobset`` (what is refused).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import clone
from spotwright.manifests.jobspec import refuse_in_job
from spotwright.manifests.kinds import Place
from spotwright.manifests.kinds.jobset import Member, settle_gang
from spotwright.manifests.kinds.trainjob_patches import (
    KUEUE,
    MANAGER,
    PATCHES,
    Generation,
    Patch,
    generation,
    items,
    patches,
)
from spotwright.manifests.kinds.trainjob_runtime import JOBS, Copy, settle_retries
from spotwright.manifests.levels import JOB_FIELDS, POD_FIELDS, refuse_misplaced
from spotwright.manifests.merging import place_merged, strategic, write
from spotwright.manifests.pods import Placed, Role, place_pod
from spotwright.manifests.shapes import METADATA, TEMPLATE, TEXT, check, check_value

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
    "spec.trainer, spec.runtimeRef and spec.activeDeadlineSeconds never change; what changes the pods can be changed only while "
    "the TrainJob is suspended"
)


@dataclass(slots=True)
class _Job:
    """One replicated job of the runtime: its pod template with the TrainJob's changes in it, before and after it is placed."""

    name: str
    is_trainer: bool  # the one that spec.trainer speaks of
    patches: Sequence[Patch]
    before: dict[str, Any]
    after: dict[str, Any]
    placed: Placed


def _place_trainjob(ctx: Context) -> None:
    check(ctx, ctx.at("spec"), _TRAINJOB)
    known = generation(ctx)
    _refuse_misplaced(ctx, known)
    runtime = _runtime(ctx)
    if runtime is None:
        return
    given = runtime.get(JOBS, None) or ()
    _check_entries(ctx, known, [str(job.get("name")) for job in given])
    jobs = [_placed(ctx, known, runtime, job) for job in given]
    own = settle_retries(ctx, known, runtime, {job.name: job.placed for job in jobs})
    templates = {job.name: template for job in jobs if (template := _template(ctx, known, job, jobs, own))}
    if templates:
        ctx.editor.extend(ctx.at("spec", known.field), items(known, templates))
    for job in jobs:
        if job.is_trainer:
            old, new = (_node(pod.get("spec") or {}) for pod in (job.before, job.after))
            ctx.editor.extend(ctx.at("spec", "trainer", "env"), _new(old, new, "env"))
    if own is not None:
        own.add(ctx)


def _refuse_misplaced(ctx: Context, known: Generation) -> None:
    spec = ctx.at("spec")
    right = (*spec, known.field)
    own = {"podSpecOverrides", "podTemplateOverrides", "runtimePatches"}
    refuse_misplaced(ctx, spec, right, POD_FIELDS, own)
    refuse_misplaced(ctx, (*spec, "trainer"), right, POD_FIELDS)
    refuse_misplaced(ctx, (*spec, "trainer"), spec, own)
    for name in ctx.editor.get(spec) or ():
        if name in JOB_FIELDS or name in ("failurePolicy", "successPolicy"):
            raise ctx.problem((*spec, name), "the API server drops this field here; only the runtime can have it")


def _runtime(ctx: Context) -> Document | None:
    """The runtime of a TrainJob; said, and nothing more, where it is not at hand."""
    reference = ctx.get("spec", "runtimeRef")
    if not reference or not reference.get("name"):
        raise ctx.problem(ctx.at("spec", "runtimeRef"), "expected the name of a runtime")
    kind, name = str(reference.get("kind") or "ClusterTrainingRuntime"), str(reference["name"])
    namespace = ctx.get("metadata", "namespace") if kind == "TrainingRuntime" else None
    found = ctx.find(kind, name, namespace)
    if found is None:
        text = (
            f"nothing is placed: a patch replaces what {kind} {name} says, which is not here; pass it with --with "
            f"(kubectl get {kind.lower()} {name} -o yaml)"
        )
        ctx.say(Level.WARNING, ctx.at("spec", "runtimeRef"), text)
        return None
    check_value(found, ("spec",), found.get(("spec",), {}), _RUNTIME)
    return found


def _placed(ctx: Context, known: Generation, runtime: Document, given: Mapping[str, Any]) -> _Job:
    """Put a replicated job's pod template together and place it."""
    name = str(given.get("name"))
    is_trainer = _ancestor(given) == "trainer" or (name == "node" and not _has_ancestor(runtime))
    mine = [patch for patch in patches(ctx, known) if name in patch.jobs]
    before: dict[str, Any] = clone(((given.get("template") or {}).get("spec") or {}).get("template") or {})
    for patch in mine:
        before = strategic(before, patch.template)
    as_node = runtime.get(("spec", "mlPolicy", "mpi", "runLauncherAsNode"), None) is True
    if is_trainer or (as_node and name == "node"):
        _give_resources(ctx, before)
    after = clone(before)
    after.setdefault("spec", {})
    template = _where(mine) or ctx.at("spec", known.field, name, "template")
    stays = _LAUNCHER if name == "launcher" else ""
    role = Role(name, f"{ctx.name}/{name.lower()}", (*template, "spec"), template, stays, work=ctx.name, run=_RUN)
    placed = place_merged(ctx, role, after)
    placed.report.frozen = _FROZEN
    ours = [patch for patch in mine if patch.manager != KUEUE]
    return _Job(name, is_trainer, ours, before, after, placed)


def _where(mine: Sequence[Patch]) -> Path | None:
    """Where the TrainJob itself says to which nodes the pods go, for messages about it; ``None`` where it does not."""
    for patch in reversed(mine):
        if patch.spec[-1] == "spec" and {"affinity", "nodeSelector"} & (patch.template.get("spec") or {}).keys():
            return patch.spec[:-1]
    return None


def _ancestor(job: Mapping[str, Any]) -> str:
    labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return str(labels.get(_ANCESTOR, ""))


def _has_ancestor(runtime: Document) -> bool:
    return any(_ancestor(job) == "trainer" for job in runtime.get(JOBS))


def _give_resources(ctx: Context, template: dict[str, Any]) -> None:
    """What ``spec.trainer`` says of the container ``node``: its resources and its environment."""
    trainer = ctx.get("spec", "trainer") or {}
    said = {"resources": trainer.get("resourcesPerNode") or {}, "env": trainer.get("env") or []}
    for container in (template.get("spec") or {}).get("containers") or ():
        if container.get("name") == "node":
            container.update(strategic({key: container[key] for key in said if container.get(key)}, said))


def _check_entries(ctx: Context, known: Generation, names: Sequence[str]) -> None:
    """Entries of other managers stay; ours must not be there twice, and every job that is named must be in the runtime."""
    for index, entry in enumerate(ctx.get("spec", known.field) or ()):
        path = ctx.at("spec", known.field, index)
        if entry.get("manager") == MANAGER:
            raise ctx.problem(path, f"an entry of {MANAGER} without a record of what was placed; take it out")
        if entry.get("manager") == KUEUE:
            text = "Kueue's own entry stays; where it sets tolerations, those replace what is placed before it"
            ctx.say(Level.WARNING, path, text)
    for patch in patches(ctx, known):
        for job in patch.jobs:
            if job not in names:
                text = (
                    f"the runtime has no replicated job {job}, only {', '.join(names)}: the TrainJob would be refused"
                )
                raise ctx.problem(patch.entry, text)


def _template(ctx: Context, known: Generation, job: _Job, jobs: Sequence[_Job], own: Copy | None) -> dict[str, Any]:
    """What our entry says of a job; fields that an entry of the user's has are added to in place."""
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
            spec |= _affinity(ctx, known, job, own)
    for name in (_GRACE, "imagePullSecrets"):
        if after.get(name) != before.get(name):
            spec |= _if_settable(ctx, known, job, name, own)
    if job.is_trainer:
        spec |= _checkpoint(before, after)
    metadata = _new_metadata(job) if known.has_metadata else {}
    return {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}


def _add_to(ctx: Context, holder: Patch, name: str, job: _Job, jobs: Sequence[_Job]) -> None:
    """Add to a field that an entry of the user's sets: a later entry would hide ours."""
    after = job.after["spec"][name]
    for other in jobs:
        if other.name in holder.jobs and other.after["spec"].get(name) != after:
            text = f"{job.name} and {other.name} need different {name}: give each of them an entry of its own"
            raise ctx.problem((*holder.spec, name), text)
    write(ctx.editor, (*holder.spec, name), (job.before.get("spec") or {}).get(name), after)


def _affinity(ctx: Context, known: Generation, job: _Job, own: Copy | None) -> dict[str, Any]:
    """The terms that changed, whole: a patch replaces each list of them."""
    old, new = (
        ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {} for pod in (job.before, job.after)
    )
    terms = {key: new[key] for key in _TERMS if new.get(key) != old.get(key)}
    if known.can_set("affinity"):
        return {"affinity": {"nodeAffinity": terms}}
    if own is not None:
        return _if_settable(ctx, known, job, "affinity", own)
    required = terms.get(_TERMS[0], {}).get("nodeSelectorTerms", [])
    expressions = required[0].get("matchExpressions", []) if len(required) == 1 else []
    selector = {
        one["key"]: one["values"][0] for one in expressions if one["operator"] == "In" and len(one["values"]) == 1
    }
    if len(selector) < len(expressions) or len(terms) != 1 or not selector:
        some = "some of what leads" if selector else "what leads"
        text = f"{job.name}: a TrainJob of trainer {known} cannot set affinity, and not {some} it to its pools: place the runtime"
        ctx.say(Level.WARNING, ctx.at("spec"), text)
    return {"nodeSelector": selector} if selector else {}


def _if_settable(ctx: Context, known: Generation, job: _Job, name: str, own: Copy | None) -> dict[str, Any]:
    """A field for our entry; where a TrainJob of the release cannot set it, its own runtime does, if it has one."""
    before, after = (job.before.get("spec") or {}).get(name), job.after["spec"][name]
    if known.can_set(name):
        return {name: after[len(before or ()) :] if isinstance(after, list) else after}
    if own is not None:
        own.write(job.name, name, before, after)
        return {}
    text = f"{job.name}: a TrainJob of trainer {known} cannot set {name}: place the runtime, which can"
    ctx.say(Level.WARNING, ctx.at("spec"), text)
    return {}


def _checkpoint(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The volume of the checkpoint, and its mount in the container that trains."""
    found: dict[str, Any] = {}
    volumes, mounts = _new(before, after, "volumes"), _new(_node(before), _node(after), "volumeMounts")
    if volumes and mounts:
        found["volumes"] = volumes
        found["containers"] = [{"name": "node", "volumeMounts": mounts}]
    return found


def _node(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    containers: Sequence[Mapping[str, Any]] = spec.get("containers") or ()
    return next((container for container in containers if container.get("name") == "node"), {})


def _new(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> list[Any]:
    return list((after.get(name) or [])[len(before.get(name) or []) :])


def _new_metadata(job: _Job) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in ("labels", "annotations"):
        old = (job.before.get("metadata") or {}).get(kind) or {}
        new = (job.after.get("metadata") or {}).get(kind) or {}
        added = {key: value for key, value in new.items() if key not in old}
        if added:
            found[kind] = added
    return found


def _place_runtime(ctx: Context) -> None:
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
        stays = _LAUNCHER if name == "launcher" else ""
        path = f"{ctx.name}/{name.lower()}"
        placed = place_pod(ctx, Role(name, path, (*template, "spec"), template, stays, work=ctx.name, run=_RUN))
        placed.report.frozen = "TrainJobs that have started keep the runtime as it was"
        members.append(Member(spec, name, placed))
    settle_gang(ctx, at, members)


KINDS: Mapping[tuple[str, str], Place] = {
    ("trainer.kubeflow.org", "TrainJob"): _place_trainjob,
    ("trainer.kubeflow.org", "TrainingRuntime"): _place_runtime,
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): _place_runtime,
}
