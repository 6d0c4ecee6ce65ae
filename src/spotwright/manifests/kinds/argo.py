"""Argo's kinds: Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow.

Every template that has pods is placed by itself, at the template. What stands at the workflow's level would also move pods that
nobody placed: of templates in other objects, and of the agent that makes HTTP requests. So a template gets what it inherits
together with what is added, because its own fields hide the others. Daemons, exit handlers and the pods that only run Argo's
own code stay on on-demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.manifests import embedded
from spotwright.manifests.affinity import capacity_expressions
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.edits import clone
from spotwright.manifests.kinds import Place
from spotwright.manifests.kinds.argo_patch import add_to_patch, from_attempt, read_patch
from spotwright.manifests.kinds.argo_reference import place_by_reference
from spotwright.manifests.kinds.argo_retries import Retries, write_retries
from spotwright.manifests.kinds.argo_templates import (
    WORKFLOW,
    Template,
    argo_version,
    code_paths,
    effective,
    templates,
    walk_calls,
)
from spotwright.manifests.levels import POD_FIELDS, refuse_misplaced
from spotwright.manifests.merging import place_merged, strategic, write
from spotwright.manifests.pods import Placed, Role, is_queued
from spotwright.manifests.shapes import check
from spotwright.model.policy import Spot

__all__ = ["KINDS"]

_WORKFLOW_FIELDS = frozenset(
    {"affinity", "imagePullSecrets", "nodeSelector", "schedulerName", "serviceAccountName", "tolerations", "volumes"}
)
_TEMPLATE_FIELDS = frozenset(
    {"affinity", "initContainers", "nodeSelector", "priorityClassName", "schedulerName", "serviceAccountName"}
    | {"tolerations", "volumes"}
)
_MAKES = ("create", "apply", "replace")  # actions of a resource template that give the API server a whole object
_GRACE = "terminationGracePeriodSeconds"
_RUN = "metadata.labels['workflows.argoproj.io/workflow']"
_NODE = "{{=sprig.trunc(12, sprig.sha256sum(node.name))}}"  # one for all attempts of an item of a loop; names a folder


def _place_workflow(ctx: Context, *above: str) -> None:
    spec = ctx.at(*above, "workflowSpec") if above else ctx.at("spec")
    check(ctx, spec, WORKFLOW)
    refuse_misplaced(ctx, spec, (*spec, "podSpecPatch"), POD_FIELDS, _WORKFLOW_FIELDS)
    if ctx.editor.get((*spec, "workflowTemplateRef")) is not None:
        place_by_reference(ctx, spec)
        return
    for template in templates(ctx, spec):
        _refuse_misplaced(ctx, template)
        _place_template(ctx, spec, template)
    _name_references(ctx, spec)


def _place_cron(ctx: Context) -> None:
    begin = len(ctx.roles)
    _place_workflow(ctx, "spec")
    on_spot = any(ctx.config.pools[name].is_spot for role in ctx.roles[begin:] for name in role.pools)
    if on_spot and ctx.get("spec", "concurrencyPolicy", default="Allow") == "Allow":
        text = "a workflow that tries again may overlap the next one of the schedule: write concurrencyPolicy Forbid or Replace"
        ctx.say(Level.WARNING, ctx.at("spec"), text)


def _refuse_misplaced(ctx: Context, template: Template) -> None:
    refuse_misplaced(ctx, template.path, (*template.path, "podSpecPatch"), POD_FIELDS, _TEMPLATE_FIELDS)
    for path in code_paths(ctx, template):
        refuse_misplaced(ctx, path, template.path, _TEMPLATE_FIELDS, {"volumes"})
        refuse_misplaced(ctx, path, (*template.path, "podSpecPatch"), POD_FIELDS, {"restartPolicy", "volumes"})


def _place_template(ctx: Context, spec: Path, template: Template) -> None:
    before = effective(ctx, spec, template)
    for patch in _patches(ctx, spec, template):
        before = strategic(before, read_patch(ctx, patch))
    after = clone(before)
    task = f"{ctx.name}/{template.name}".lower()
    role = Role(template.name, task, template.path, template.path, template.stays, run=_RUN, index=_NODE)
    placed = place_merged(ctx, role, after)
    if placed.policy.spot is not None:
        retries = _retries(ctx, spec, template, placed)
        _write_pod(ctx, spec, template, before, after)
        if not template.stays or placed.on_spot:
            _write_code(ctx, template, before, after)
        fields = {_GRACE: after[_GRACE]} if after.get(_GRACE) != before.get(_GRACE) else {}
        if _falls_back(ctx, template, placed, retries, after):
            _refuse_patched(ctx, spec, template, "affinity")
            fields["affinity"] = _from_attempt(ctx, placed, after.get("affinity"))
        if fields:
            add_to_patch(ctx, (*template.path, "podSpecPatch"), fields, (*spec, "templateDefaults", "podSpecPatch"))
    if template.kind == "resource":
        _place_manifest(ctx, template)


def _patches(ctx: Context, spec: Path, template: Template) -> tuple[Path, Path]:
    """The patches of a template's pods, as they are applied: the workflow's, then its own or else that of the defaults."""
    own = (*template.path, "podSpecPatch")
    return (*spec, "podSpecPatch"), own if ctx.editor.get(own) else (*spec, "templateDefaults", "podSpecPatch")


def _retries(ctx: Context, spec: Path, template: Template, placed: Placed) -> Retries:
    """Retries of the user's code; Argo's own pods and daemons are left as they are."""
    report = placed.report
    if template.stays:
        report.after_interruption = "nothing that spot does reaches it: it stays on on-demand"
        return Retries(is_retried=False, limit=0, sentence="")
    inherited = [(*spec, "templateDefaults", "retryStrategy"), (*spec, "retryStrategy")]
    retries = write_retries(ctx, (*template.path, "retryStrategy"), inherited, placed)
    report.after_interruption = retries.sentence
    if retries.is_retried and template.path[-1] == "inline" and argo_version(ctx) >= (3, 7):
        text = (
            "retries of an inline template fail in releases of Argo 3.7 and 4.0 without the fix of argo-workflows#15051"
        )
        ctx.say(Level.WARNING, template.path, f"{template.name}: {text}; upgrade, or list it under templates")
    if placed.on_spot and template.kind == "containerSet":
        text = "a containerSet whose pod is deleted can hang (argo-workflows#13951): give it activeDeadlineSeconds"
        ctx.say(Level.WARNING, (*template.path, "containerSet"), f"{template.name}: {text}")
    return retries


def _write_pod(ctx: Context, spec: Path, template: Template, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Where the pod goes, how it is marked, and with which secrets its images are pulled."""
    for name in ("tolerations", "affinity"):
        if after.get(name) != before.get(name):
            _refuse_patched(ctx, spec, template, name)
            write(ctx.editor, (*template.path, name), before.get(name), after.get(name))
    write(ctx.editor, (*spec, "imagePullSecrets"), before.get("imagePullSecrets"), after.get("imagePullSecrets"))
    for kind in ("labels", "annotations"):
        known = before.get("metadata", {}).get(kind) or {}
        for key, value in (after.get("metadata", {}).get(kind) or {}).items():
            if key not in known:
                ctx.editor.add((*template.path, "metadata", kind, key), value)


def _write_code(ctx: Context, template: Template, before: dict[str, Any], after: dict[str, Any]) -> None:
    """What the code needs to be told, and to go on where it was; pods that stay need neither."""
    paths = code_paths(ctx, template)
    if paths:
        write(ctx.editor, (*template.path, "volumes"), before.get("volumes"), after.get("volumes"))
    for index, path in enumerate(paths):
        for name in ("env", "volumeMounts"):
            old, new = (pod["containers"][index].get(name) or [] for pod in (before, after))
            ctx.editor.extend((*path, name), new[len(old) :])


def _refuse_patched(ctx: Context, spec: Path, template: Template, name: str) -> None:
    """A patch wins over the fields: what it says of scheduling would hide what is placed."""
    for path in _patches(ctx, spec, template):
        if name in read_patch(ctx, path):
            text = (
                f"the patch sets {name}, which would hide what is placed; move it to {name} of template {template.name}"
            )
            raise ctx.problem(path, text)


def _falls_back(ctx: Context, template: Template, placed: Placed, retries: Retries, pod: Mapping[str, Any]) -> bool:
    """Whether later attempts can be told to go to on-demand."""
    both = {rung.spot for rung in placed.ladder.rungs} == {True, False}
    if placed.policy.spot is not Spot.PREFER or not both or not retries.is_retried:
        return False
    queued = is_queued(ctx, pod.get("metadata"))
    reached = retries.limit is None or retries.limit >= placed.policy.fall_back_after
    if queued or not reached:
        return False
    if argo_version(ctx) < (3, 1):
        text = "Argo before 3.1 cannot choose by attempt: every attempt prefers spot, none is sent to on-demand"
        ctx.say(Level.WARNING, template.path, f"{template.name}: {text}")
        return False
    placed.report.after_interruption += f"; after {placed.policy.fall_back_after} retries on on-demand only"
    return True


def _from_attempt(ctx: Context, placed: Placed, affinity: Any) -> dict[str, Any]:
    pools = ctx.config.pools
    used = [pools[name] for rung in placed.ladder.rungs for name in rung.pools]
    conditions = capacity_expressions(used, tuple(pools.values()), spot=False)
    return from_attempt(placed.policy.fall_back_after, affinity, conditions)


def _place_manifest(ctx: Context, template: Template) -> None:
    """The object that a resource template makes, by its own kind."""
    path = (*template.path, "resource")
    if ctx.editor.get((*path, "action")) in _MAKES and isinstance(ctx.editor.get((*path, "manifest")), str):
        embedded.place(ctx, (*path, "manifest"), f"{ctx.name}/{template.name}".lower())


def _name_references(ctx: Context, spec: Path) -> None:
    """Templates of other objects are placed there; say which are not at hand."""
    for call in walk_calls(ctx, spec):
        reference = call.step.get("templateRef")
        if not isinstance(reference, dict):
            continue
        kind = "ClusterWorkflowTemplate" if reference.get("clusterScope") else "WorkflowTemplate"
        name = str(reference.get("name"))
        if ctx.find(kind, name, ctx.get("metadata", "namespace")) is None:
            text = (
                f"template {reference.get('template')} is in {kind} {name}, which is not here: place its file as well"
            )
            ctx.say(Level.NOTE, (*call.path, "templateRef"), text)


KINDS: Mapping[tuple[str, str], Place] = {
    ("argoproj.io", "Workflow"): _place_workflow,
    ("argoproj.io", "WorkflowTemplate"): _place_workflow,
    ("argoproj.io", "ClusterWorkflowTemplate"): _place_workflow,
    ("argoproj.io", "CronWorkflow"): _place_cron,
}
