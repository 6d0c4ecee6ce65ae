"""Place workflows whose templates are all in another object (``workflowTemplateRef``), through fields of their own ``spec``.

Fields of the templates override these, and can do more (retries, fallback by attempt, daemons on on-demand). So this is done
only if every template gets the same placement; otherwise a finding says which object to place. The policy's timeout goes into the
workflow's ``podSpecPatch``, since ``activeDeadlineSeconds`` of a workflow bounds all its pods together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spotwright.manifests.enforcement.facts import Anchor
from spotwright.manifests.enforcement.mechanisms import Mechanism
from spotwright.manifests.kinds.argo.attempt_deadline import anchor_given_deadline
from spotwright.manifests.kinds.argo.pod_spec_patch import add_to_patch, read_patch
from spotwright.manifests.kinds.argo.retry_strategy import write_retries
from spotwright.manifests.kinds.argo.templates import WORKFLOW, Template, effective, templates, walk_calls
from spotwright.manifests.rules.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.manifests.rules.merging import place_merged, strategic, write
from spotwright.manifests.rules.pod_rules import Placed, Role
from spotwright.manifests.rules.schema import check
from spotwright.manifests.yamltext.documents import Document, Path
from spotwright.manifests.yamltext.edits import Editor, value_at

__all__ = ["place_by_reference"]

_SCHEDULING = ("tolerations", "affinity", "nodeSelector")
_FROZEN = "a workflow that has started keeps its templates"
_GRACE = "terminationGracePeriodSeconds"
_DEADLINE = "activeDeadlineSeconds"
_SPEC: Path = ("spec",)


def place_by_reference(ctx: PlaceContext, spec: Path) -> None:
    """Place a workflow that takes its templates from another object, as far as its own fields can."""
    at = (*spec, "workflowTemplateRef")
    reference = ctx.editor.get(at)
    kind = "ClusterWorkflowTemplate" if reference.get("clusterScope") else "WorkflowTemplate"
    name = str(reference.get("name"))
    source = ctx.find(kind, name, ctx.get("metadata", "namespace"))
    if source is None:
        text = f"its templates are in {kind} {name}, which was not given: pass its file with --with, or place that file"
        ctx.add_finding(Level.WARNING, at, text)
        return
    other = replace(ctx, editor=Editor(source), base=(), outer=None)
    check(other, _SPEC, WORKFLOW)
    all_templates = templates(other, _SPEC)
    reason = _obstacle(other, all_templates)
    pods = [] if reason else [_placed(ctx, other, spec, template) for template in all_templates]
    if pods and any(pod[1:] != pods[0][1:] for pod in pods):
        reason = "its templates need different nodes"
    name_and_line = f"{kind} {name} ({source.file}:{source.line(('metadata',))})"
    if reason and ctx.is_input(source):
        ctx.add_finding(Level.NOTE, at, f"nothing is placed here: {reason}; {name_and_line} is placed itself")
        return
    if reason:
        ctx.add_finding(Level.WARNING, at, f"nothing is placed here: {reason}; place {name_and_line} instead")
        return
    if pods:
        _write(ctx, spec, other, source, pods)


def _obstacle(other: PlaceContext, all_templates: Sequence[Template]) -> str:
    """Why fields of the workflow cannot place its pods; empty if they can."""
    for template in all_templates:
        if template.on_demand_reason:
            return f"template {template.name} must stay on on-demand ({template.on_demand_reason})"
        if any(other.editor.get((*path, name)) for path in (template.path, *template.callers) for name in _SCHEDULING):
            return f"template {template.name} has scheduling fields of its own, which override them"
    return ""


def _placed(ctx: PlaceContext, other: PlaceContext, spec: Path, template: Template) -> tuple[Placed, Any, Any]:
    """One template's pod before and after it is placed; the workflow's fields override those of the other object."""
    pod = effective(other, _SPEC, template)
    own = {name: ctx.editor.get((*spec, name)) for name in (*_SCHEDULING, "imagePullSecrets")}
    pod = strategic(pod, {name: value for name, value in own.items() if value})
    pod["metadata"] = ctx.editor.get((*spec, "podMetadata")) or {}
    pod = strategic(pod, read_patch(ctx, (*spec, "podSpecPatch")) or read_patch(other, (*_SPEC, "podSpecPatch")))
    before = _outside(pod)
    role = Role(template.name, f"{ctx.name}/{template.name}".lower(), spec, spec)
    placed, after = place_merged(ctx, role, pod)
    return placed, before, _outside(after)


def _outside(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in pod.items() if name not in ("containers", "initContainers")}


def _write(
    ctx: PlaceContext, spec: Path, other: PlaceContext, source: Document, pods: Sequence[tuple[Placed, Any, Any]]
) -> None:
    placed, before, after = pods[0]
    if placed.policy.spot is None:
        return
    for name in ("tolerations", "affinity", "imagePullSecrets"):
        write(ctx.editor, (*spec, name), before.get(name), after.get(name))
    write(ctx.editor, (*spec, "podMetadata"), before["metadata"] or None, after["metadata"])
    all_placed = [decisions for decisions, _, _ in pods]
    fields = {_GRACE: after[_GRACE]} if after.get(_GRACE) != before.get(_GRACE) else {}
    fields |= _deadline(ctx, spec, other, all_placed, is_placed_too=ctx.is_input(source))
    if fields:
        own = ctx.editor.get((*spec, "podSpecPatch"))
        hidden = {} if own else read_patch(other, (*_SPEC, "podSpecPatch"))  # a patch of the workflow replaces that one
        add_to_patch(ctx, (*spec, "podSpecPatch"), {**fields, **hidden})
    sentence = _retries(ctx, spec, other, source, placed)
    for template, decisions in zip(templates(other, _SPEC), all_placed, strict=True):
        report = decisions.report
        report.after_interruption, report.frozen, report.mechanism = sentence, _FROZEN, Mechanism.ARGO
        report.anchor("retry", ctx.editor, spec)
        levels = (template.path, (*_SPEC, "templateDefaults"), _SPEC)
        own = next((path for path in levels if other.editor.get((*path, "retryStrategy")) is not None), None)
        if ctx.is_input(source):
            report.mechanism = Mechanism.ARGO_TEMPLATES
        elif own is not None:
            report.mechanism = Mechanism.ARGO_OWN
            report.anchor("retry", other.editor, own)


def _deadline(
    ctx: PlaceContext, spec: Path, other: PlaceContext, all_placed: Sequence[Placed], *, is_placed_too: bool
) -> dict[str, int]:
    """The field with which the workflow's patch bounds each of its pods; empty if the templates have deadlines, or get them.

    One patch applies to every pod, so nothing is written for policies with different timeouts.
    """
    defaults = (*_SPEC, "templateDefaults")
    pairs = list(zip(templates(other, _SPEC), all_placed, strict=True))
    given = [anchor_given_deadline(other, template, placed, defaults) for template, placed in pairs]
    timeouts = {placed.policy.timeout for placed in all_placed}
    timeout = next(iter(timeouts))
    patch = read_patch(ctx, (*spec, "podSpecPatch")) or read_patch(other, (*_SPEC, "podSpecPatch"))
    if any(given) or is_placed_too or len(timeouts) > 1 or timeout is None or not ctx.writes(Group.RETRIES):
        return {}
    fields = {_DEADLINE: patch.get(_DEADLINE, math.ceil(timeout))}
    for placed in all_placed:
        placed.report.anchors["deadline"] = Anchor((), partial(value_at, fields), partial(value_at, patch))
    return {} if _DEADLINE in patch else fields


def _retries(ctx: PlaceContext, spec: Path, other: PlaceContext, source: Document, placed: Placed) -> str:
    """Write a retry strategy for the workflow if it has no DAGs, which it would repeat as a whole; returns what happens."""
    strategies = [(*template.path, "retryStrategy") for template in templates(other, _SPEC)]
    strategies += [("spec", "templateDefaults", "retryStrategy"), ("spec", "retryStrategy")]
    if any(other.editor.get(path) is not None for path in strategies):
        return "the retry strategies of its templates decide"
    if not ctx.writes(Group.RETRIES):
        return RETRIES_STAY
    if any(True for _ in walk_calls(other, _SPEC)):
        if ctx.is_input(source):
            return f"the retry strategies that are written into {source.file} decide"
        text = f"an interruption ends the workflow: its retries belong to the templates, so place {source.file} too"
        ctx.add_finding(Level.WARNING, (*spec, "workflowTemplateRef"), text)
        return "the workflow ends: its templates have no retry strategy"
    return write_retries(ctx, (*spec, "retryStrategy"), [], placed).sentence
