"""Tekton's PipelineRun, TaskRun and Pipeline: pod templates without metadata, grace period and mounts, and retries by task.

A PipelineRun has a pod template for all tasks, and one for a task in ``taskRunSpecs``. A task's field wins: its tolerations
replace the others. So every known task is placed with both merged, and gets its own fields only if the shared ones do not fit
(another policy, GPUs, its own template). Retries belong to the tasks of the pipeline, inline or in a Pipeline; a task of
``finally`` stays on on-demand, as exit handlers do.

Tekton retries a task whose pod has failed for any cause, and recreates a pod that vanished without an end, uncounted. The
affinity assistant, which puts tasks that share a volume on one node, gets the tolerations and the node selector, but no
affinity. A pod template has no metadata: TaskRuns inherit their PipelineRun's annotations, and pods their TaskRun's, so the
annotations against autoscalers go on the run.

Variables of a pod template are set in every step and override the step's of the same name. Run, task and TaskRun are pod
labels, so one list serves all tasks. A task's list is merged with it by name and comes first; before 0.56 it replaced it. A
variable may refer to earlier ones only, so a task that needs another value gets the whole list. ``$(SPOTWRIGHT_RUN)`` is left
to Kubernetes: Tekton replaces only its own names.

Sources: tektoncd/pipeline v1.15.0, ``pkg/apis/pipeline/pod/template.go`` (MergePodTemplateWithDefault, mergeByName),
``pkg/apis/pipeline/v1/pipelinerun_types.go`` (GetTaskRunSpec), ``pkg/reconciler/pipelinerun/pipelinerun.go``
(getTaskrunAnnotations), ``pkg/reconciler/taskrun/taskrun.go``, ``pkg/pod/pod.go`` (env, makeLabels),
``pkg/reconciler/taskrun/resources/apply.go`` (ApplyPodTemplateReplacements), ``pkg/internal/affinityassistant``;
``cmd/entrypoint/runner.go`` (signals); documentation, "Pod templates"; tektoncd/pipeline#1493, #5241.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from spotwright.kinds.kind import (
    Claim,
    Kind,
    Mount,
    Order,
    PodLevels,
    PodPlace,
    Reads,
    RetryFields,
    Run,
    Sharing,
    calls_after,
    claims_in,
    mounts_in,
    mounts_of,
    one_pod,
    pods_at,
    product,
)
from spotwright.kube.object_fields import mapping, mappings
from spotwright.placing.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import POD_FACTS, Enforcer, Fact, Mechanism, in_object, nothing, waits
from spotwright.placing.environment import AttemptIdentity, attempt_variables
from spotwright.placing.merging import place_merged, write
from spotwright.placing.patch import value_at
from spotwright.placing.pod_change import write_metadata
from spotwright.placing.pod_spec import METADATA, POD, TEXT, check, refuse_misplaced
from spotwright.placing.pods import Placed, Role, shield_change
from spotwright.placing.retries import counting_text, no_interruption_text, write_unless_set

__all__ = ["KINDS"]


_IN_PIPELINE = Fact(Enforcer.KIND, note="the retries of its Pipeline")

_TEKTON = Mechanism(
    "",
    {
        **POD_FACTS,
        **waits("Tekton tries again at once"),
        "interruptions.max": in_object(
            "task:retries",
            "errors count there too, pods that vanish do not",
            absent=_IN_PIPELINE,
        ),
        "errors.retries": in_object("task:retries", "interruptions count there too", absent=_IN_PIPELINE),
        "grace_period": nothing("Tekton's pod templates have none; Kubernetes gives 30s"),
        "timeout": nothing("Tekton's own timeouts hold, 1h unless you set them"),
        "checkpoint": in_object(
            "template:env",
            "for code that reads it, where it is a URL",
            name="SPOTWRIGHT_CHECKPOINT",
            absent=nothing("Tekton's pod templates mount nothing: use a URL, or a workspace"),
        ),
    },
)


_ALL_TASKS = ("spec", "taskRunTemplate", "podTemplate")
_ALL_TASKS_OF_V1BETA1 = ("spec", "podTemplate")
_PIPELINE_SPEC = ("spec", "pipelineSpec")
_FIELDS = ("tolerations", "affinity", "imagePullSecrets")
"""The fields of a pod template that placement writes."""

_OF_PODS = frozenset({"affinity", "nodeSelector", "tolerations"})
_LABEL = "metadata.labels['tekton.dev/{}']"
_OF_RUN = AttemptIdentity(
    _LABEL.format("pipelineTask"), "$(SPOTWRIGHT_TASK)", _LABEL.format("pipelineRun"), _LABEL.format("taskRun")
)
"""The attempts of a PipelineRun. TaskRuns of one task are the combinations of a matrix; a retry stays in its TaskRun."""

_GRACE = 30  # seconds: Kubernetes' default, which a Tekton pod template cannot change
_FINALLY = "it runs after all other tasks, also when they have failed"
_STEPS = {"steps": [{"name": TEXT}]}
_TASK = {"name": TEXT, "taskSpec": _STEPS, "taskRef": {"name": TEXT}}
_PIPELINE = {"tasks": [_TASK], "finally": [_TASK]}
_FROZEN = "the spec cannot be changed once it has started; create the run again"
_ASSISTANT = (
    "tasks that share a volume run on the node of Tekton's affinity assistant, which has their tolerations and not their "
    "affinity: with a required affinity they may wait for ever; switch it off (coschedule: disabled), or add a nodeSelector"
)


@dataclass(frozen=True, slots=True)
class _Task:
    """A task of a pipeline: its name, its path in the document, and its steps (``None`` if they are not known)."""

    name: str
    at: Path | None
    steps: Sequence[Mapping[str, Any]] | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Paths:
    """The paths of pod templates in a version of PipelineRun."""

    all_tasks: Path
    of_task: str


def _place_pipeline_run(ctx: PlaceContext) -> None:
    _check_spec(ctx)
    paths = _paths(ctx)
    check(ctx, ctx.at("spec", "pipelineSpec"), _PIPELINE)
    check(ctx, paths.all_tasks, POD)
    check(ctx, ctx.at("spec", "workspaces"), [{"name": TEXT}])
    check(ctx, ctx.at("spec", "taskRunSpecs"), [{"pipelineTaskName": TEXT, paths.of_task: POD}])
    tasks = _tasks_of_run(ctx)
    shared = _template(ctx, paths.all_tasks)
    base, placed_base = _place_shared(ctx, paths, tasks, shared)
    members = [*base, *(_place_task(ctx, paths, task, shared, placed_base) for task in tasks)]
    for member in members:
        member.report.frozen = _FROZEN
    _shield(ctx, members)
    spot = [member for member in members if member.on_spot]
    if spot and _has_volumes(ctx) and any(_is_required(member) for member in spot):
        ctx.add_finding(Level.WARNING, ctx.at("spec", "workspaces"), _ASSISTANT)
    if not tasks and spot:
        text = "its pipeline was not given, so no retries are written: pass the Pipeline's file, or set retries for its tasks"
        ctx.add_finding(Level.WARNING, ctx.at("spec", "pipelineRef"), text)


def _check_spec(ctx: PlaceContext) -> None:
    if not isinstance(ctx.get("spec"), dict):
        raise ctx.problem(ctx.at("spec"), f"expected the spec of a {ctx.get('kind')}")


def _paths(ctx: PlaceContext) -> _Paths:
    """The paths of pod templates in this version; another version's fields are refused."""
    spec = ctx.at("spec")
    if str(ctx.get("apiVersion")) == "tekton.dev/v1beta1":
        paths = _Paths(ctx.at(*_ALL_TASKS_OF_V1BETA1), "taskPodTemplate")
    else:
        paths = _Paths(ctx.at(*_ALL_TASKS), "podTemplate")
        refuse_misplaced(ctx, spec, ctx.at("spec", "taskRunTemplate"), {"podTemplate"})
        refuse_misplaced(ctx, ctx.at("spec", "taskRunTemplate"), paths.all_tasks, _OF_PODS)
    refuse_misplaced(ctx, spec, paths.all_tasks, _OF_PODS)
    return paths


def _tasks_of_run(ctx: PlaceContext) -> list[_Task]:
    """The tasks of a run: from its inline pipeline, or from the Pipeline that it names, if given."""
    if isinstance(ctx.get("spec", "pipelineSpec"), dict):
        return _tasks(ctx, ctx.get("spec", "pipelineSpec"), ctx.at("spec", "pipelineSpec"))
    name = ctx.get("spec", "pipelineRef", "name")
    pipeline = ctx.find("Pipeline", str(name), ctx.get("metadata", "namespace")) if name else None
    if pipeline is None:
        return []
    if not ctx.is_input(pipeline):
        text = f"the retries of its tasks are in Pipeline {name} ({pipeline.file}), which is only read: pass its file to place it"
        ctx.add_finding(Level.WARNING, ctx.at("spec", "pipelineRef"), text)
    return _tasks(ctx, pipeline.get(("spec",), {}), None)


def _tasks(ctx: PlaceContext, pipeline: Mapping[str, Any], at: Path | None) -> list[_Task]:
    """The tasks of a pipeline spec; ``at`` is its path in the document, ``None`` if it is in another one."""
    found = []
    for key, reason in (("tasks", ""), ("finally", _FINALLY)):
        given = pipeline.get(key)
        for index, task in enumerate(given if isinstance(given, list) else ()):
            if not isinstance(task, dict):
                continue
            name = str(task.get("name") or f"{key}-{index}")
            found.append(_Task(name, None if at is None else (*at, key, index), _steps(ctx, task), reason))
    return found


def _steps(ctx: PlaceContext, task: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """The steps of a task, inline or in a Task that was given."""
    spec = task.get("taskSpec")
    if not isinstance(spec, dict):
        reference = task.get("taskRef")
        name = reference.get("name") if isinstance(reference, dict) else None
        found = ctx.find("Task", str(name), ctx.get("metadata", "namespace")) if name else None
        spec = None if found is None else found.get(("spec",), None)
    steps = spec.get("steps") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(steps, list):
        return None
    common = _env(spec.get("stepTemplate"))
    return [{**step, "env": [*common, *_env(step)]} for step in steps if isinstance(step, dict)]


def _env(holder: Any) -> list[dict[str, Any]]:
    """The variables of a step or a pod template."""
    given = holder.get("env") if isinstance(holder, dict) else None
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _names(variables: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(one.get("name")) for one in variables}


def _set_by_steps(task: _Task) -> set[str]:
    """The variables that steps of a task set themselves; a pod template's variables would hide them."""
    return {name for step in task.steps or () for name in _names(_env(step))}


def _new_variables(
    ctx: PlaceContext, placed: Placed, identity: AttemptIdentity, taken: set[str]
) -> list[dict[str, Any]]:
    """The variables of the attempts, without those whose names are taken."""
    if placed.policy.spot is None or not ctx.writes(Group.CHECKPOINT):
        return []
    return [one for one in attempt_variables(identity, placed.policy.checkpoint) if one["name"] not in taken]


def _anchor(ctx: PlaceContext, placed: Placed, template: Path) -> None:
    """Name the pod template whose variables have the checkpoint; not if it is a volume."""
    checkpoint = placed.policy.checkpoint
    if checkpoint is not None and not checkpoint.startswith("pvc://"):
        placed.report.anchor("template", ctx.editor, template)


def _template(ctx: PlaceContext, path: Path) -> dict[str, Any]:
    return dict(ctx.editor.get(path) or {})


def _place(
    ctx: PlaceContext, task: _Task, policy_path: str, path: Path, template: Mapping[str, Any]
) -> tuple[Placed, dict[str, Any]]:
    """Place the pods of a template; returns also the fields of the placed template.

    The requests are the steps'. A task with unknown steps may ask for GPUs, so GPU nodes are allowed.
    """
    containers = [{"name": str(step.get("name", "step")), "resources": _resources(step)} for step in task.steps or ()]
    value = {**template, "containers": containers, "terminationGracePeriodSeconds": _GRACE}
    role = Role(task.name, policy_path, path, None, task.reason, holder=task.steps is None)
    only = ctx.options.only - {Group.CHECKPOINT}
    placed, after = place_merged(replace(ctx, options=replace(ctx.options, only=only)), role, value)
    placed.report.mechanism = _TEKTON
    placed.report.after_interruption = "" if placed.on_spot else no_interruption_text(placed.policy)
    if role.holder and placed.policy.spot is not None and placed.policy.image_pull_secrets:
        have = after.get("imagePullSecrets") or []
        wanted = [{"name": name} for name in placed.policy.image_pull_secrets]
        after["imagePullSecrets"] = [*have, *(one for one in wanted if one not in have)]
    return placed, {field: after[field] for field in _FIELDS if after.get(field) is not None}


def _resources(step: Mapping[str, Any]) -> Mapping[str, Any]:
    given = step.get("computeResources") or step.get("resources")
    return given if isinstance(given, dict) else {}


def _write_fields(ctx: PlaceContext, path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    for field in _FIELDS:
        if field in after:
            write(ctx.editor, (*path, field), before.get(field), after[field])


def _place_shared(
    ctx: PlaceContext, paths: _Paths, tasks: Sequence[_Task], shared: Mapping[str, Any]
) -> tuple[list[Placed], dict[str, Any]]:
    """Place the template of all tasks; returns its role and its fields. If every task is known, only these are reported."""
    known = bool(tasks) and all(task.steps is not None for task in tasks)
    findings, roles = len(ctx.findings), len(ctx.roles)
    placed, after = _place(ctx, _Task("tasks", None, [] if known else None), ctx.name, paths.all_tasks, shared)
    if known:
        del ctx.findings[findings:], ctx.roles[roles:]
    _write_fields(ctx, paths.all_tasks, shared, after)
    taken = {name for task in tasks for name in _set_by_steps(task)} | _names(_env(shared))
    after["env"] = _new_variables(ctx, placed, _OF_RUN, taken)
    ctx.editor.extend((*paths.all_tasks, "env"), after["env"])
    _anchor(ctx, placed, paths.all_tasks)
    return ([] if known else [placed]), after


def _place_task(
    ctx: PlaceContext, paths: _Paths, task: _Task, shared: Mapping[str, Any], placed_base: Mapping[str, Any]
) -> Placed:
    """Place one task of a run: write its own fields where the shared ones do not fit."""
    specs = ctx.at("spec", "taskRunSpecs")
    entries = ctx.editor.get(specs) or []
    ctx.editor.steps.charge(len(entries) // 20)
    index = next((i for i, one in enumerate(entries) if one.get("pipelineTaskName") == task.name), len(entries))
    path = (*specs, index, paths.of_task)
    own = dict(entries[index].get(paths.of_task) or {}) if index < len(entries) else {}
    before = _merged(shared, own)
    placed, after = _place(
        ctx, task, f"{ctx.name}/{task.name}", path if index < len(entries) or task.at is None else task.at, before
    )
    inherited = _merged(placed_base, own)
    taken = _set_by_steps(task) | _names(_env(shared)) | _names(_env(own))
    after["env"] = [*_env(own), *_own_variables(_new_variables(ctx, placed, _OF_RUN, taken), placed_base["env"], own)]
    inherited["env"] = _env(own)
    changed = {field: value for field, value in after.items() if value != inherited.get(field)}
    if "tolerations" in changed and "affinity" in after:
        changed["affinity"] = after["affinity"]  # repeats the shared one beside its tolerations
    if "affinity" in inherited and "affinity" not in after:
        changed["affinity"] = {}  # the task had none and must not inherit the shared one
    if changed and index == len(entries):
        ctx.editor.extend(specs, [{"pipelineTaskName": task.name, paths.of_task: changed}])
    elif changed:
        for field, value in changed.items():
            write(ctx.editor, (*path, field), own.get(field), value)
    _anchor(ctx, placed, path if "env" in changed else paths.all_tasks)
    _settle_retries(ctx, task.at, placed)
    return placed


def _merged(of_all_tasks: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The pod template of a task: each field is its own or the shared one."""
    return {**of_all_tasks, **own}


def _levels_of(all_tasks: Path, data: Mapping[str, Any], path: Path) -> PodLevels:
    """The pod of a task by both templates; ``all_tasks`` is the path of the shared one."""
    shared, own = mapping(value_at(data, all_tasks)), mapping(value_at(data, path))
    return PodLevels(
        path, "H", _merged(shared, own), {}, {(key,): (*all_tasks, key) for key in shared if key not in own}
    )


def _of_tasks(all_tasks: Path, data: Mapping[str, Any], path: Path) -> Iterator[tuple[str, PodLevels]]:
    """The pods of the tasks of a run's own pipeline that have the template at a path, with their steps; none elsewhere."""
    levels = _levels_of(all_tasks, data, path)
    for name, at in _tasks_with(data, path):
        yield name, _with_steps(levels, data, at, path[:-1])


def _tasks_with(data: Mapping[str, Any], template: Path) -> Iterator[tuple[str, Path]]:
    """The tasks of a run's own pipeline that have a pod template: the name of each, and where its ``taskSpec`` is."""
    templates = _pod_templates(data)
    for field in ("tasks", "finally"):
        given = value_at(data, (*_PIPELINE_SPEC, field))
        for index, task in enumerate(given if isinstance(given, list) else ()):
            name = str(mapping(task).get("name"))
            if templates.get(name) == template:
                yield name, (*_PIPELINE_SPEC, field, index, "taskSpec")


def _of_task_run(data: Mapping[str, Any], path: Path) -> Iterator[tuple[str, PodLevels]]:
    """The pod of a TaskRun with its own steps."""
    levels = PodLevels(path, "H", mapping(value_at(data, path)), {})
    yield "", _with_steps(levels, data, ("spec", "taskSpec"), ("spec",))


def _with_steps(levels: PodLevels, data: Mapping[str, Any], at: Path, own: Path) -> PodLevels:
    """A pod with the steps and volumes of the task at a path, and what the run at ``own`` has asked for all steps together.

    It has the labels and annotations of the run. Sources: Tekton's documentation, "Tasks" ("Specifying a Step template") and
    "Compute Resources"; ``pkg/pod/pod.go``.
    """
    task, steps = mapping(value_at(data, at)), value_at(data, (*at, "steps"))
    spec, where = dict(levels.spec), dict(levels.where)
    if isinstance(steps, list):
        spec["containers"] = [_container({**mapping(task.get("stepTemplate")), **mapping(step)}) for step in steps]
        where |= {("containers", index): (*at, "steps", index) for index in range(len(steps))}
    if isinstance(task.get("volumes"), list):
        spec["volumes"], where["volumes",] = task["volumes"], (*at, "volumes")
    if value_at(data, (*own, "computeResources")) is not None:
        spec["resources"] = value_at(data, (*own, "computeResources"))
    return levels._replace(spec=spec, where=where, metadata=mapping(data.get("metadata")))


def _container(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step as a container: a script is what a shell runs."""
    container = {key: value for key, value in step.items() if key not in ("computeResources", "script")}
    if step.get("computeResources") is not None:
        container["resources"] = step["computeResources"]
    if isinstance(step.get("script"), str):
        container |= {"command": ["sh", "-c", step["script"]], "args": []}
    return container


def _own_variables(
    wanted: list[dict[str, Any]], of_all_tasks: Sequence[Mapping[str, Any]], own: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The additions to a task; empty if the shared template has them all."""
    has_all = all(one in of_all_tasks for one in wanted) and not _env(own)
    return [] if has_all else wanted


def _settle_retries(ctx: PlaceContext, at: Path | None, placed: Placed) -> None:
    """Write the retries of a task on spot; ``at`` is their path, ``None`` if they are in another object."""
    report, policy = placed.report, placed.policy
    if not placed.on_spot:
        if at is not None and policy.spot is not None and policy.retries and ctx.writes(Group.RETRIES):
            report.anchor("task", ctx.editor, at)
            write_unless_set(ctx, (*at, "retries"), policy.retries)
        return
    if at is None:
        report.after_interruption = "the task is tried again, as often as the retries of its Pipeline allow"
        return
    report.anchor("task", ctx.editor, at)
    if not ctx.writes(Group.RETRIES):
        report.after_interruption = RETRIES_STAY
        return
    total, path = policy.max_interruptions + policy.retries, (*at, "retries")
    in_force = write_unless_set(ctx, path, total)
    text = counting_text("retries", policy)
    if in_force != total:
        text = f"retries {in_force} stays; the policy allows {total} (--replace-retries); it counts interruptions and errors"
    ctx.add_finding(Level.WARNING, path, f"{report.name}: {text}")
    report.after_interruption = (
        f"the task is tried again, counted, with errors, against retries {in_force}; a pod that is gone without an end is "
        "created again, uncounted; Tekton's timeouts bound all of it (1h for a run, unless you set them)"
    )


def _has_volumes(ctx: PlaceContext) -> bool:
    """Whether tasks may share a volume, so that the affinity assistant puts them on one node."""
    return any(True for _ in _volumes(ctx.get()))


def _volumes(data: Mapping[str, Any]) -> Iterator[tuple[str, str, Claim]]:
    """The claims of a run's workspaces, named or made for the run: each with the workspace's name and its folder."""
    spaces = value_at(data, ("spec", "workspaces"))
    for index, space in enumerate(spaces if isinstance(spaces, list) else ()):
        name, folder = str(value_at(space, ("name",))), str(value_at(space, ("subPath",)) or "")
        at, claim = ("spec", "workspaces", index), value_at(space, ("persistentVolumeClaim", "claimName"))
        if value_at(space, ("persistentVolumeClaim",)) is not None:
            yield name, folder, Claim(str(claim), (*at, "persistentVolumeClaim"))
        elif value_at(space, ("volumeClaimTemplate",)) is not None:
            own = mapping(value_at(space, ("volumeClaimTemplate", "spec")))
            yield name, folder, Claim(name, (*at, "volumeClaimTemplate"), Sharing.OBJECT, own)


def _claims_of_volumes(data: Mapping[str, Any], task: Path) -> Iterator[Claim]:
    """The claims that a task at a path has as volumes."""
    mounts = list(mounts_in(value_at(data, task)))
    for one in claims_in(data, (*task, "volumes")):
        yield one._replace(mounts=tuple(mounts_of(mounts, one.volume)))


def _claims_of_task_run(data: Mapping[str, Any], _path: Path) -> Iterator[Claim]:
    yield from _claims_of_volumes(data, ("spec", "taskSpec"))
    for name, folder, claim in _volumes(data):
        yield claim._replace(mounts=(Mount(f"/workspace/{name}", folder),))


def _claims(data: Mapping[str, Any], path: Path) -> Iterator[Claim]:
    """The claims that tasks with the pod template at a path have as volumes, and those of workspaces that they bind.

    The bindings of a Pipeline in another object are unknown. The shared template has every claim of the run.
    """
    for of_task, at in _tasks_with(data, path):
        yield from (one._replace(tasks=frozenset({of_task})) for one in _claims_of_volumes(data, at))
    volumes, is_of_all = list(_volumes(data)), path in (_ALL_TASKS, _ALL_TASKS_OF_V1BETA1)
    if not volumes:
        return
    if not isinstance(value_at(data, _PIPELINE_SPEC), dict):
        yield from (claim for _, _, claim in volumes if is_of_all)
        return
    names = {str(value_at(data, (*path[:-1], "pipelineTaskName")))}
    if is_of_all:
        names = {name for name, template in _pod_templates(data).items() if template == path}
    users = defaultdict[str, list[tuple[str, str, str]]](list)
    for task in (one for field in ("tasks", "finally") for one in mappings(value_at(data, (*_PIPELINE_SPEC, field)))):
        task_name = str(task.get("name"))
        for space, own_name, folder in _bindings(task) if task_name in names else ():
            users[space].append((task_name, own_name, folder))
    for name, outer, claim in volumes:
        if name in users:
            mounts = [
                Mount(f"/workspace/{own}", "/".join(filter(None, (outer, inner)))) for _, own, inner in users[name]
            ]
            tasks = frozenset(task for task, _, _ in users[name])
            yield claim._replace(mounts=tuple(dict.fromkeys(mounts)), tasks=tasks)


def _bindings(task: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The workspaces that a task of a pipeline binds: the name in the run, its own name, and the folder in the volume.

    An inline task also gets those that its steps name. Source: tektoncd/pipeline,
    ``pkg/reconciler/pipelinerun/pipelinerun.go``, ``getTaskrunWorkspaces`` and ``propagateWorkspaces``;
    ``pkg/workspace/apply.go``, ``FindWorkspacesUsedByTask``.
    """
    given = {str(one.get("name")): one for one in mappings(task.get("workspaces"))}
    for name, one in given.items():
        yield str(one.get("workspace") or name), name, str(one.get("subPath") or "")
    containers = [value_at(task, ("taskSpec", field)) for field in ("steps", "sidecars", "stepTemplate")]
    for name in dict.fromkeys(_WORKSPACE.findall(json.dumps(containers, default=str))):
        if name not in given:
            yield name, name, ""


_WORKSPACE = re.compile(r"\$\(workspaces\.([\w-]+)\.")


def _is_required(placed: Placed) -> bool:
    """Whether a role runs on one kind of capacity only, by a required affinity."""
    return len({rung.spot for rung in placed.ladder.rungs}) == 1


def _shield(ctx: PlaceContext, members: Sequence[Placed]) -> None:
    """Annotate a run to keep autoscalers from moving its pods, which inherit the annotations."""
    if ctx.writes(Group.PLACEMENT) and any(member.policy.spot is not None for member in members):
        check(ctx, ctx.at("metadata"), METADATA)
        at = ctx.at("metadata")
        write_metadata(ctx.editor, at, shield_change(ctx, at, ctx.name))


def _place_task_run(ctx: PlaceContext) -> None:
    spec, path = ctx.at("spec"), ctx.at("spec", "podTemplate")
    _check_spec(ctx)
    refuse_misplaced(ctx, spec, path, _OF_PODS)
    check(ctx, path, POD)
    check(ctx, ctx.at("spec", "taskSpec"), _STEPS)
    template = _template(ctx, path)
    task = _Task("task", spec, _steps(ctx, ctx.get("spec", default={})))
    placed, after = _place(ctx, task, ctx.name, path, template)
    _write_fields(ctx, path, template, after)
    identity = AttemptIdentity(ctx.name, ctx.name, _LABEL.format("taskRun"))
    taken = _set_by_steps(task) | _names(_env(template))
    ctx.editor.extend((*path, "env"), _new_variables(ctx, placed, identity, taken))
    _anchor(ctx, placed, path)
    _settle_retries(ctx, spec, placed)
    _shield(ctx, [placed])
    placed.report.frozen = _FROZEN


def _place_pipeline(ctx: PlaceContext) -> None:
    """Write the retries of a Pipeline's tasks; the PipelineRun decides where its pods run."""
    _check_spec(ctx)
    check(ctx, ctx.at("spec"), _PIPELINE)
    for task in _tasks(ctx, ctx.get("spec", default={}), ctx.at("spec")):
        if task.at is not None:
            placed, _ = _place(ctx, task, f"{ctx.name}/{task.name}", task.at, {})
            placed.report.frozen = (
                "everything can be changed; runs that have started keep the pipeline they started with"
            )
            _settle_retries(ctx, task.at, placed)


def _order(data: Mapping[str, Any]) -> Order:
    """The tasks of a run's inline pipeline by their pod template; unknown if the pipeline is another object.

    A task follows those in its ``runAfter`` and those whose results it uses; ``finally`` follows all. Source:
    Tekton's documentation, "Pipelines" ("Configuring the Task execution order", "Adding Finally to the Pipeline") and "Matrix".
    """
    tasks, last = _tasks_at(data, "tasks"), _tasks_at(data, "finally")
    after = {name: [*_named_in(task), *_RESULT.findall(json.dumps(task, default=str))] for name, task in tasks.items()}
    after |= {name: list(tasks) for name in last}
    conditional = [name for name, task in (tasks | last).items() if task.get("when") is not None]
    calls, templates = calls_after(_PIPELINE_SPEC, after, (), conditional), _pod_templates(data)
    runs: dict[Path, list[Run]] = {}
    for name, task in (tasks | last).items():
        if name in templates:
            times = _times(task)
            runs.setdefault(templates[name], []).append(Run((calls[name]._replace(times=times),), times))
    return Order(runs)


def _tasks_at(data: Mapping[str, Any], *fields: str) -> dict[str, Mapping[str, Any]]:
    """The tasks in lists of a run's inline pipeline, by name."""
    given = (one for field in fields for one in mappings(value_at(data, (*_PIPELINE_SPEC, field))))
    return {str(one.get("name")): one for one in given}


def _pod_templates(data: Mapping[str, Any]) -> dict[str, Path]:
    """The path of the pod template of each task in a run's inline pipeline: its own or the shared one."""
    templates: dict[str, Path] = {}
    for kind, of_all_tasks in (("podTemplate", _ALL_TASKS), ("taskPodTemplate", _ALL_TASKS_OF_V1BETA1)):
        for index, one in enumerate(mappings(value_at(data, ("spec", "taskRunSpecs")))):
            if one.get(kind) is not None:
                templates[str(one.get("pipelineTaskName"))] = ("spec", "taskRunSpecs", index, kind)
        if value_at(data, of_all_tasks) is not None:
            templates |= {name: of_all_tasks for name in _tasks_at(data, "tasks", "finally") if name not in templates}
    return templates


_RESULT = re.compile(r"\$\(tasks\.([\w-]+)\.")


def _named_in(task: Mapping[str, Any]) -> list[str]:
    given = task.get("runAfter")
    return [str(name) for name in given] if isinstance(given, list) else []


def _times(task: Mapping[str, Any]) -> int | None:
    """The number of runs in a task's matrix; ``None`` if only the run decides it, or it has ``include``."""
    matrix = task.get("matrix")
    if matrix is None:
        return 1
    params = mappings(value_at(matrix, ("params",)))
    added = value_at(matrix, ("include",))
    if not params or added:
        return len(added) if isinstance(added, list) and not params else None
    lengths = [len(value) if isinstance(value := one.get("value"), list) else None for one in params]
    return product(*lengths)


def _pipeline_of(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The Pipeline to which a PipelineRun refers."""
    pipeline = spec.get("pipelineRef")
    yield "Pipeline", pipeline.get("name") if isinstance(pipeline, dict) else None


_IN_TASK = ("taskSpec", "taskRef", "taskSpec.steps.*")


def _retries(pipeline: str, *above: str) -> RetryFields:
    """The retry fields of a pipeline's tasks at this path."""
    tasks = (f"{pipeline}.tasks.*", f"{pipeline}.finally.*")
    inside: dict[str, tuple[str, ...]] = dict.fromkeys((f"{task}.{level}" for task in tasks for level in _IN_TASK), ())
    levels = {**dict.fromkeys((*above, pipeline), ()), **dict.fromkeys(tasks, ("retries",)), **inside}
    return RetryFields(f"{pipeline}.tasks[].retries", levels)


def _pods_at(path: str, all_tasks: Path) -> PodPlace:
    """A pod template of a PipelineRun; ``all_tasks`` is the path of the one for all tasks in its version."""
    return pods_at(path, "H", read=partial(_levels_of, all_tasks), tasks=partial(_of_tasks, all_tasks))


_kind = partial(
    Kind,
    group="tekton.dev",
    version="v1",
    more_versions=("v1beta1",),
    takes_any_version=True,
    mechanisms=(_TEKTON,),
    reads=Reads.OBJECTS,
    passes_signals=True,
)

KINDS = (
    _kind(
        name="PipelineRun",
        place=_place_pipeline_run,
        places=(
            _pods_at("spec.taskRunTemplate.podTemplate", _ALL_TASKS),
            _pods_at("spec.taskRunSpecs.*.podTemplate", _ALL_TASKS),
            _pods_at("spec.podTemplate", _ALL_TASKS_OF_V1BETA1),
            _pods_at("spec.taskRunSpecs.*.taskPodTemplate", _ALL_TASKS_OF_V1BETA1),
        ),
        claims=_claims,
        order=_order,
        makes=("TaskRun",),
        top=("spec", "pipelineSpec"),
        page="tekton",
        notes=(
            "Tasks go to spot; `finally` tasks stay on on-demand. A task is `RUN/TASK` in `policy.tasks`.\n"
            "An entry of `taskRunSpecs` **replaces** each field of the template of all tasks, so a task with "
            "different needs gets all fields.\n"
            "`retries` counts interruptions and errors together, and Tekton repeats at once. A run ends after 1 h "
            "unless it sets `timeouts`. A Pipeline has the retries of a `pipelineRef`: give it in the input or "
            "with `--with`.\n"
            "A pod template of Tekton has no grace period, labels or mounts: use a URL for `checkpoint`, or a "
            "workspace.\n"
            "The affinity assistant ignores the tasks' required affinity: set `coschedule: disabled` or `spot: "
            "prefer`.\n"
            "The controller places runs, but does not record them."
        ),
        tried=("Read in the source of Tekton Pipelines 1.15.0. Its controller was not run."),
        retries=_retries("spec.pipelineSpec", "spec", "spec.taskRunTemplate", "spec.taskRunSpecs.*"),
        references=_pipeline_of,
    ),
    _kind(
        name="TaskRun",
        page="tekton",
        leaves_pods=True,
        place=_place_task_run,
        places=(pods_at("spec.podTemplate", "H", at_once=one_pod, tasks=_of_task_run),),
        claims=_claims_of_task_run,
        retries=RetryFields("spec.retries", {"spec": ("retries",), "spec.taskSpec": (), "spec.taskSpec.steps.*": ()}),
    ),
    _kind(name="Pipeline", may_change=True, place=_place_pipeline, retries=_retries("spec"), page="tekton"),
)
