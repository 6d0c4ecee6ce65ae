"""Workflows whose templates are all in another object (``workflowTemplateRef``): only fields of the own ``spec`` count.

What is placed at the templates themselves wins over them, and can do more (retries, attempts, daemons kept apart). So this is
done only where every template gets the same, and otherwise it is said what to place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Document, Path
from spotwright.manifests.edits import Editor, clone
from spotwright.manifests.kinds.argo_patch import add_to_patch, read_patch
from spotwright.manifests.kinds.argo_retries import write_retries
from spotwright.manifests.kinds.argo_templates import WORKFLOW, Template, effective, templates, walk_calls
from spotwright.manifests.merging import place_merged, strategic, write
from spotwright.manifests.pods import Placed, Role
from spotwright.manifests.shapes import check

__all__ = ["place_by_reference"]

_SCHEDULING = ("tolerations", "affinity", "nodeSelector")
_FROZEN = "a workflow that has started keeps the templates it was started with"
_GRACE = "terminationGracePeriodSeconds"
_SPEC: Path = ("spec",)


def place_by_reference(ctx: Context, spec: Path) -> None:
    """Place a workflow that takes its templates from another object, as far as its own fields reach."""
    at = (*spec, "workflowTemplateRef")
    reference = ctx.editor.get(at)
    kind = "ClusterWorkflowTemplate" if reference.get("clusterScope") else "WorkflowTemplate"
    name = str(reference.get("name"))
    found = ctx.find(kind, name, ctx.get("metadata", "namespace"))
    if found is None:
        text = f"its pods are described in {kind} {name}, which is not here: pass its file with --with, or place that"
        ctx.say(Level.WARNING, at, text)
        return
    other = replace(ctx, editor=Editor(found), base=(), around=None)
    check(other, _SPEC, WORKFLOW)
    all_templates = templates(other, _SPEC)
    reason = _why_not(other, all_templates)
    pods = [] if reason else [_placed(ctx, other, spec, template) for template in all_templates]
    if pods and any(pod[1:] != pods[0][1:] for pod in pods):
        reason = "its templates need different nodes"
    where = f"{kind} {name} ({found.file}:{found.line(('metadata',))})"
    if reason and ctx.is_input(found):
        ctx.say(Level.NOTE, at, f"nothing is placed here: {reason}; {where} is placed itself")
        return
    if reason:
        ctx.say(Level.WARNING, at, f"nothing is placed here: {reason}; place {where} instead")
        return
    if pods:
        _write(ctx, spec, other, found, pods)


def _why_not(other: Context, found: Sequence[Template]) -> str:
    """Why fields of the workflow cannot place its pods as they should be; empty where they can."""
    for template in found:
        if template.stays:
            return f"template {template.name} must stay on on-demand ({template.stays})"
        if any(other.editor.get((*path, name)) for path in (template.path, *template.callers) for name in _SCHEDULING):
            return f"template {template.name} has scheduling fields of its own, which would win"
    return ""


def _placed(ctx: Context, other: Context, spec: Path, template: Template) -> tuple[Placed, Any, Any]:
    """One template's pod with the workflow's fields over those of the other object, before and after it is placed."""
    pod = effective(other, _SPEC, template)
    own = {name: ctx.editor.get((*spec, name)) for name in (*_SCHEDULING, "imagePullSecrets")}
    pod = strategic(pod, {name: value for name, value in own.items() if value})
    pod["metadata"] = clone(ctx.editor.get((*spec, "podMetadata"))) or {}
    pod = strategic(pod, read_patch(ctx, (*spec, "podSpecPatch")))
    before = _outside(pod)
    role = Role(template.name, f"{ctx.name}/{template.name}".lower(), spec, spec)
    placed = place_merged(ctx, role, pod)
    return placed, before, _outside(pod)


def _outside(pod: Mapping[str, Any]) -> dict[str, Any]:
    return clone({name: value for name, value in pod.items() if name not in ("containers", "initContainers")})


def _write(ctx: Context, spec: Path, other: Context, found: Document, pods: Sequence[tuple[Placed, Any, Any]]) -> None:
    placed, before, after = pods[0]
    if placed.policy.spot is None:
        return
    for name in ("tolerations", "affinity", "imagePullSecrets"):
        write(ctx.editor, (*spec, name), before.get(name), after.get(name))
    write(ctx.editor, (*spec, "podMetadata"), before["metadata"] or None, after["metadata"])
    if after.get(_GRACE) != before.get(_GRACE):
        add_to_patch(ctx, (*spec, "podSpecPatch"), {_GRACE: after[_GRACE]})
    sentence = _retries(ctx, spec, other, found, placed)
    for one, _, _ in pods:
        one.report.after_interruption = sentence
        one.report.frozen = _FROZEN


def _retries(ctx: Context, spec: Path, other: Context, found: Document, placed: Placed) -> str:
    """A retry strategy of the workflow would also repeat whole DAGs; so it is written only where there are none."""
    strategies = [(*template.path, "retryStrategy") for template in templates(other, _SPEC)]
    strategies += [("spec", "templateDefaults", "retryStrategy"), ("spec", "retryStrategy")]
    if any(other.editor.get(path) is not None for path in strategies):
        return "what the retry strategies of its templates say"
    if any(True for _ in walk_calls(other, _SPEC)):
        if ctx.is_input(found):
            return f"what the retry strategies say that {found.file} is given"
        text = f"an interruption ends the workflow: retries belong to its templates, so place {found.file} as well"
        ctx.say(Level.WARNING, (*spec, "workflowTemplateRef"), text)
        return "the workflow ends: its templates have no retry strategy"
    return write_retries(ctx, (*spec, "retryStrategy"), [], placed).sentence
