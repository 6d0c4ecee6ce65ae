"""Argo's kinds: Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow.

Each template with pods is placed at the template. A field of the workflow would also affect pods that are not placed: those of
templates in other objects, and the agent's for HTTP requests. A template's fields hide inherited ones, so it gets both the
inherited values and the additions. Daemons, exit handlers and pods that run only Argo's own code stay on on-demand. A workflow
with all templates in another object (``workflowTemplateRef``) is placed through fields of its own ``spec``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spotwright.kinds import katib
from spotwright.kinds.argo_order import order_of_steps
from spotwright.kinds.argo_steps import (
    TEMPLATES,
    WORKFLOW,
    Retries,
    Template,
    add_to_patch,
    anchor_given_deadline,
    argo_patch,
    argo_version,
    code_paths,
    effective,
    from_attempt,
    has_pods,
    own_retries,
    read_patch,
    sends_object,
    strategy_at,
    templates,
    walk_calls,
    write_deadline,
    write_retries,
)
from spotwright.kinds.kind import (
    Claim,
    Kind,
    PlaceObject,
    Reads,
    Retry,
    RetryFields,
    Sharing,
    Words,
    claims_in,
    claims_made,
    matching,
    mounts_in,
    pods_at,
)
from spotwright.kube.admission import Others
from spotwright.model.policy import Spot
from spotwright.placing.affinity import capacity_expressions
from spotwright.placing.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.placing.documents import Document, Path
from spotwright.placing.enforcement import (
    BACKOFFS,
    BY_CONTROLLER,
    POD_FACTS,
    Anchor,
    Enforcer,
    Fact,
    Mechanism,
    in_object,
    nothing,
    waits,
)
from spotwright.placing.merging import place_merged, strategic, write
from spotwright.placing.patch import Editor, value_at
from spotwright.placing.pod_spec import POD_FIELDS, check, refuse_misplaced
from spotwright.placing.pods import Placed, Role, queue_of

__all__ = ["KINDS", "place_by_reference"]


_IN_TEMPLATES = Fact(Enforcer.KIND, note="its templates, as their own policy says")
_ARGO_LIMIT = "retry:retryStrategy.limit"
_ARGO_WAITS: Mapping[str, Fact] = {
    "interruptions.backoff": in_object("retry:retryStrategy.backoff.duration"),
    "interruptions.factor": in_object("retry:retryStrategy.backoff.factor"),
    "interruptions.max_backoff": in_object("retry:retryStrategy.backoff.cap"),
    **dict.fromkeys(
        ("errors.backoff", "errors.factor", "errors.max_backoff"), nothing("Argo has one backoff for both")
    ),
}
_FACTS: Mapping[str, Fact] = {
    **POD_FACTS,
    **_ARGO_WAITS,
    "interruptions.max": in_object(_ARGO_LIMIT, "errors count there too, lost nodes do not"),
    "errors.retries: 0": in_object(
        "retry:retryStrategy.expression",
        "interruptions only",
        absent=in_object(
            _ARGO_LIMIT, "interruptions count there too", absent=Fact(Enforcer.KIND, note="Argo, by default")
        ),
    ),
    "errors.retries": in_object(
        "retry:retryStrategy.expression",
        "only as one of the first retries",
        absent=in_object(_ARGO_LIMIT, "interruptions count there too"),
    ),
    "fall_back_after": in_object("fallback:podSpecPatch", "counts errors too, no lost nodes", absent=BY_CONTROLLER),
    "pending_timeout": BY_CONTROLLER,
    "grace_period": in_object("pod:terminationGracePeriodSeconds", "in podSpecPatch"),
    "timeout": in_object(
        "deadline:activeDeadlineSeconds",
        "for each attempt",
        absent=in_object("limit:timeout", "for each attempt", absent=nothing("only code that runs to its end gets it")),
    ),
}

_ARGO = Mechanism("", _FACTS)

_ARGO_OWN = Mechanism(
    "its own `retryStrategy`",
    {
        **_FACTS,
        **waits("its own retryStrategy decides"),
        "errors.retries: 0": in_object(_ARGO_LIMIT, "interruptions count there too"),
        "errors.retries": in_object(_ARGO_LIMIT, "interruptions count there too"),
    },
)

_ARGO_INLINE = Mechanism(
    "an inline template that Argo loses with retries",
    {
        **_FACTS,
        **waits("an inline template gets no retries"),
        "interruptions.max": nothing("an inline template gets no retries", is_reported=True),
        "errors.retries: 0": Fact(Enforcer.KIND, note="Argo, by default"),
        "errors.retries": nothing("an inline template gets no retries", is_reported=True),
        "fall_back_after": nothing("an inline template gets no retries", is_reported=True),
    },
)

_ARGO_TEMPLATES = Mechanism(
    "a `workflowTemplateRef` to an object of the same command",
    {
        **_FACTS,
        **dict.fromkeys((*BACKOFFS, "interruptions.max", "errors.retries: 0", "errors.retries"), _IN_TEMPLATES),
        **dict.fromkeys(("fall_back_after", "timeout"), _IN_TEMPLATES),
    },
)


_SCHEDULING = ("tolerations", "affinity", "nodeSelector")
_FROZEN = "a workflow that has started keeps its templates"
_GRACE = "terminationGracePeriodSeconds"
_DEADLINE = "activeDeadlineSeconds"
_SPEC: Path = ("spec",)


def place_by_reference(ctx: PlaceContext, spec: Path) -> None:
    """Place a workflow with the templates of another object, through its own fields."""
    at = (*spec, "workflowTemplateRef")
    reference = ctx.editor.get(at)
    kind = "ClusterWorkflowTemplate" if reference.get("clusterScope") else "WorkflowTemplate"
    name = str(reference.get("name"))
    source = ctx.find(kind, name, ctx.get("metadata", "namespace"))
    if source is None:
        text = f"its templates are in {kind} {name}, which was not given: pass its file with --with, or place that file"
        ctx.add_finding(Level.WARNING, at, text)
        return
    other = replace(ctx, editor=Editor(source, steps=ctx.editor.steps), base=(), outer=None)
    check(other, _SPEC, WORKFLOW)
    all_templates = templates(other.editor.get, _SPEC)
    name_and_line = f"{kind} {name} ({source.file}:{source.line(('metadata',))})"
    overridden = _overridden(ctx, other, spec, all_templates) if ctx.is_input(source) else ""
    if overridden:
        text = f"not placed here: {name_and_line} is placed too, and the fields of its {overridden}"
        ctx.add_finding(Level.WARNING, at, f"{text}, or place the workflow alone and name that file with --with")
        return
    reason = _obstacle(other, all_templates)
    pods = [] if reason else [_placed(ctx, other, spec, template) for template in all_templates]
    if pods and any(pod[1:] != pods[0][1:] for pod in pods):
        reason = "its templates need different nodes"
    if reason and ctx.is_input(source):
        ctx.add_finding(Level.NOTE, at, f"not placed here: {reason}; {name_and_line} is placed itself")
        return
    if reason:
        ctx.add_finding(Level.WARNING, at, f"not placed here: {reason}; place {name_and_line} instead")
        return
    if pods:
        _write(ctx, spec, other, source, pods)


def _overridden(ctx: PlaceContext, other: PlaceContext, spec: Path, all_templates: Sequence[Template]) -> str:
    """The end of a message: the workflow's fields that placed templates override, and the remedy; or empty."""
    given = [name for name in _SCHEDULING if ctx.editor.get((*spec, name))]
    for template in all_templates:
        own, theirs = (one.policy(f"{one.name}/{template.name}".lower()) for one in (ctx, other))
        if theirs.spot is not None and given:
            return (
                f"template {template.name} override {', '.join(given)} of the workflow: write these into the template"
            )
        if theirs.spot is not None and (theirs.spot, theirs.ladder) != (own.spot, own.ladder):
            policy = f"spot: {theirs.spot} ({theirs.sources['spot']})"
            return f"template {template.name}, by {policy}, override the workflow's: give both one policy"
    return ""


def _obstacle(other: PlaceContext, all_templates: Sequence[Template]) -> str:
    """Why fields of the workflow cannot place its pods; empty if they can."""
    for template in all_templates:
        if template.on_demand_reason:
            return f"template {template.name} must stay on on-demand ({template.on_demand_reason})"
        if any(other.editor.get((*path, name)) for path in (template.path, *template.callers) for name in _SCHEDULING):
            return f"template {template.name} sets its own scheduling fields, which take precedence"
    return ""


def _placed(ctx: PlaceContext, other: PlaceContext, spec: Path, template: Template) -> tuple[Placed, Any, Any]:
    """One template's pod before and after it is placed; the workflow's fields override those of the other object."""
    pod = _effective(other, _SPEC, template)
    own = {name: ctx.editor.get((*spec, name)) for name in (*_SCHEDULING, "imagePullSecrets")}
    pod = strategic(pod, {name: value for name, value in own.items() if value})
    pod["metadata"] = ctx.editor.get((*spec, "podMetadata")) or {}
    pod = strategic(pod, read_patch(ctx, (*spec, "podSpecPatch")) or read_patch(other, (*_SPEC, "podSpecPatch")))
    before = _outside(pod)
    retries = own_retries(other, _SPEC, template.path)
    role = Role(template.name, f"{ctx.name}/{template.name}".lower(), spec, spec, retries=retries)
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
        hidden = {} if own else read_patch(other, (*_SPEC, "podSpecPatch"))  # the workflow's patch replaces it
        add_to_patch(ctx, (*spec, "podSpecPatch"), {**fields, **hidden})
    sentence = _workflow_retries(ctx, spec, other, source, placed)
    for template, decisions in zip(templates(other.editor.get, _SPEC), all_placed, strict=True):
        report = decisions.report
        report.after_interruption, report.frozen, report.mechanism = sentence, _FROZEN, _ARGO
        report.anchor("retry", ctx.editor, spec)
        own = strategy_at(other.editor.get, _SPEC, template.path)
        if ctx.is_input(source):
            report.mechanism = _ARGO_TEMPLATES
        elif own is not None:
            report.mechanism = _ARGO_OWN
            report.anchor("retry", other.editor, own[:-1])


def _deadline(
    ctx: PlaceContext, spec: Path, other: PlaceContext, all_placed: Sequence[Placed], *, is_placed_too: bool
) -> dict[str, int]:
    """The field by which the workflow's patch bounds each pod; empty if the templates have or get deadlines.

    One patch applies to every pod, so policies with different timeouts get none.
    """
    defaults = (*_SPEC, "templateDefaults")
    pairs = list(zip(templates(other.editor.get, _SPEC), all_placed, strict=True))
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


def _workflow_retries(ctx: PlaceContext, spec: Path, other: PlaceContext, source: Document, placed: Placed) -> str:
    """Write a retry strategy for the workflow if it has no DAGs (they would be repeated whole); returns the effect."""
    get, at = other.editor.get, (*spec, "retryStrategy")
    if any(strategy_at(get, _SPEC, template.path) for template in templates(get, _SPEC)):
        return "the retry strategies of its templates decide"
    if not ctx.writes(Group.RETRIES):
        return RETRIES_STAY
    if any(True for _ in walk_calls(get, _SPEC)):
        if ctx.is_input(source):
            return f"the retry strategies that are written into {source.file} decide"
        text = f"an interruption ends the workflow: its retries belong to the templates, so place {source.file} too"
        ctx.add_finding(Level.WARNING, (*spec, "workflowTemplateRef"), text)
        return "the workflow ends: its templates have no retry strategy"
    return write_retries(ctx, at, None if ctx.editor.get(at) is None else at, placed).sentence


_WORKFLOW_FIELDS = frozenset(
    {"affinity", "imagePullSecrets", "nodeSelector", "schedulerName", "serviceAccountName", "tolerations", "volumes"}
)
_TEMPLATE_FIELDS = frozenset(
    {"affinity", "initContainers", "nodeSelector", "priorityClassName", "schedulerName", "serviceAccountName"}
    | {"tolerations", "volumes"}
)
_LOST_TEMPLATE = "Error, 'failed to get a template' (argo-workflows#15051, seen on Argo 3.7.3)"
_KEEPS_INLINE: Mapping[tuple[int, int], int] = {(3, 7): 14, (4, 0): 5}
"""The first patch level of each version that keeps an inline template with retries."""
_RUN = "{{workflow.name}}"
_NODE = "{{=sprig.trunc(12, sprig.sha256sum(node.name))}}"  # a folder's name, equal for all attempts of a loop's item


def _place_workflow(ctx: PlaceContext, *above: str) -> None:
    spec = ctx.at(*above, "workflowSpec") if above else ctx.at("spec")
    check(ctx, spec, WORKFLOW)
    refuse_misplaced(ctx, spec, (*spec, "podSpecPatch"), POD_FIELDS, _WORKFLOW_FIELDS)
    if ctx.editor.get((*spec, "workflowTemplateRef")) is not None:
        place_by_reference(ctx, spec)
        return
    for template in templates(ctx.editor.get, spec):
        _refuse_misplaced(ctx, template)
        _place_template(ctx, spec, template)
    if ctx.writes(Group.RETRIES):
        _report_outer_retries(ctx, spec)
    _report_references(ctx, spec)


def _place_cron(ctx: PlaceContext) -> None:
    begin = len(ctx.roles)
    _place_workflow(ctx, "spec")
    on_spot = any(ctx.config.pools[name].is_spot for role in ctx.roles[begin:] for name in role.pools)
    if on_spot and ctx.get("spec", "concurrencyPolicy", default="Allow") == "Allow":
        text = "retries of a workflow may overlap the next workflow of the schedule: set concurrencyPolicy to Forbid or Replace"
        ctx.add_finding(Level.WARNING, ctx.at("spec"), text)


def _refuse_misplaced(ctx: PlaceContext, template: Template) -> None:
    refuse_misplaced(ctx, template.path, (*template.path, "podSpecPatch"), POD_FIELDS, _TEMPLATE_FIELDS)
    for path in code_paths(ctx.editor.get, template):
        refuse_misplaced(ctx, path, template.path, _TEMPLATE_FIELDS, {"volumes"})
        refuse_misplaced(ctx, path, (*template.path, "podSpecPatch"), POD_FIELDS, {"restartPolicy", "volumes"})


def _place_template(ctx: PlaceContext, spec: Path, template: Template) -> None:
    before = _effective(ctx, spec, template)
    for patch in _patches(ctx, spec, template):
        before = strategic(before, read_patch(ctx, patch))
    task = f"{ctx.name}/{template.name}".lower()
    retries = own_retries(ctx, spec, template.path)
    at, reason = template.path, template.on_demand_reason
    role = Role(template.name, task, at, at, reason, run=_RUN, index=_NODE, retries=retries)
    placed, after = place_merged(ctx, role, before)
    if placed.policy.spot is not None:
        retried = _retries(ctx, spec, template, placed)
        if ctx.writes(Group.RETRIES):
            write_deadline(ctx, template, placed, (*spec, "templateDefaults"), _patches(ctx, spec, template))
            _warn_of_hanging(ctx, spec, template, placed)
        _write_pod(ctx, spec, template, before, after)
        if ctx.writes(Group.CHECKPOINT) and (not template.on_demand_reason or placed.on_spot):
            _write_code(ctx, template, before, after)
        fields = {_GRACE: after[_GRACE]} if after.get(_GRACE) != before.get(_GRACE) else {}
        if _falls_back(ctx, template, placed, retried, after):
            _refuse_patched(ctx, spec, template, "affinity")
            fields["affinity"] = _from_attempt(ctx, placed, after.get("affinity"))
        if placed.on_spot:
            _report_lost_nodes(ctx, spec, placed)
        if fields:
            add_to_patch(ctx, (*template.path, "podSpecPatch"), fields, (*spec, "templateDefaults", "podSpecPatch"))
    if template.kind == "resource":
        _place_manifest(ctx, template)


def _effective(ctx: PlaceContext, spec: Path, template: Template) -> dict[str, Any]:
    """The pod of a template. Raises :class:`ManifestError` if callers pass down different affinities."""

    def refuse(*paths: Path) -> None:
        lines = " and ".join(str(ctx.editor.document.line(path)) for path in paths)
        text = f"the callers of template {template.name} pass down different affinities (lines {lines}); "
        raise ctx.problem(template.path, f"{text}give the template its own affinity")

    pod = effective(ctx.editor.get, spec, template, argo_version(ctx.config), refuse)
    return {**pod.spec, **({"metadata": pod.metadata} if pod.metadata else {})}


def _patches(ctx: PlaceContext, spec: Path, template: Template) -> tuple[Path, Path]:
    """The patches of a template's pods, in order: the workflow's, then the template's, else the defaults'."""
    own = (*template.path, "podSpecPatch")
    return (*spec, "podSpecPatch"), own if ctx.editor.get(own) else (*spec, "templateDefaults", "podSpecPatch")


def _retries(ctx: PlaceContext, spec: Path, template: Template, placed: Placed) -> Retries:
    """Write the retries of the user's code; Argo's pods and daemons keep theirs."""
    report = placed.report
    report.mechanism = _ARGO
    report.anchor("template", ctx.editor, template.path)
    report.anchor("retry", ctx.editor, template.path)
    if template.on_demand_reason:
        report.after_interruption = "no interruption of spot capacity reaches it: it stays on on-demand"
        return Retries(is_retried=False, limit=0, sentence="")
    if not ctx.writes(Group.RETRIES):
        report.after_interruption = RETRIES_STAY
        return Retries(is_retried=False, limit=0, sentence=RETRIES_STAY)
    own = strategy_at(ctx.editor.get, spec, template.path)
    if own is None and _loses_inline_retries(ctx, template):
        text = f"an inline template gets no retries: with them Argo ends the step as {_LOST_TEMPLATE}; {_inline_advice(ctx)}"
        ctx.add_finding(Level.WARNING, template.path, f"{template.name}: {text}")
        report.mechanism = _ARGO_INLINE
        report.after_interruption = "an interruption ends the step: an inline template gets no retries"
        return Retries(is_retried=False, limit=0, sentence=report.after_interruption)
    retries = write_retries(ctx, (*template.path, "retryStrategy"), own, placed)
    report.after_interruption = retries.sentence
    if retries.own_at is not None:
        report.mechanism = _ARGO_OWN
        report.anchor("retry", ctx.editor, retries.own_at)
        if _loses_inline_retries(ctx, template):
            text = f"with retries, Argo ends an inline template as {_LOST_TEMPLATE}; {_inline_advice(ctx)}"
            ctx.add_finding(Level.WARNING, template.path, f"{template.name}: {text}")
    return retries


def _warn_of_hanging(ctx: PlaceContext, spec: Path, template: Template, placed: Placed) -> None:
    """Warn of a containerSet on spot that no deadline ends."""
    if not placed.on_spot or template.kind != "containerSet":
        return
    if not anchor_given_deadline(ctx, template, placed, (*spec, "templateDefaults")):
        text = "a containerSet can hang when its pod is deleted (argo-workflows#13951): give the policy a timeout"
        ctx.add_finding(Level.WARNING, (*template.path, "containerSet"), f"{template.name}: {text}")


def _loses_inline_retries(ctx: PlaceContext, template: Template) -> bool:
    """Whether Argo loses this template with retries, even if the first attempt succeeds.

    Releases from 3.7.1 and 4.0.0 do, up to :data:`_KEEPS_INLINE`. Without a patch level in ``target.argo`` the worse is
    assumed. Source: argo-workflows#15051; the changes #14576, #16009 and #16007, and the tags that contain them.
    """
    patch, version = argo_patch(ctx), argo_version(ctx.config)
    if template.path[-1] != "inline" or version not in _KEEPS_INLINE:
        return False
    return patch is None or ((version, patch) != ((3, 7), 0) and patch < _KEEPS_INLINE[version])


def _inline_advice(ctx: PlaceContext) -> str:
    """The remedies for an inline template that Argo loses."""
    if argo_patch(ctx) is not None:
        return "move it to templates"
    major, minor = argo_version(ctx.config)
    fixed = f"{major}.{minor}.{_KEEPS_INLINE[major, minor]}"
    return f"move it to templates, or set target.argo to {fixed} if that or a later release runs, which is mended"


def _write_pod(
    ctx: PlaceContext, spec: Path, template: Template, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Write the pod's scheduling fields, its metadata, and the secrets for its images."""
    for name in ("tolerations", "affinity"):
        if after.get(name) != before.get(name):
            _refuse_patched(ctx, spec, template, name)
            write(ctx.editor, (*template.path, name), before.get(name), after.get(name))
    write(ctx.editor, (*spec, "imagePullSecrets"), before.get("imagePullSecrets"), after.get("imagePullSecrets"))
    for kind in ("labels", "annotations"):
        old = before.get("metadata", {}).get(kind) or {}
        for key, value in (after.get("metadata", {}).get(kind) or {}).items():
            if key not in old:
                ctx.editor.add((*template.path, "metadata", kind, key), value)


def _write_code(ctx: PlaceContext, template: Template, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Write the environment and the volume of the checkpoint; pods that stay on on-demand need neither."""
    paths = code_paths(ctx.editor.get, template)
    if paths:
        write(ctx.editor, (*template.path, "volumes"), before.get("volumes"), after.get("volumes"))
    for index, path in enumerate(paths):
        for name in ("env", "volumeMounts"):
            old, new = (pod["containers"][index].get(name) or [] for pod in (before, after))
            ctx.editor.extend((*path, name), new[len(old) :])


def _refuse_patched(ctx: PlaceContext, spec: Path, template: Template, name: str) -> None:
    """Refuse a patch with a scheduling field: it would override the placement."""
    for path in _patches(ctx, spec, template):
        if name in read_patch(ctx, path):
            text = f"the patch sets {name}, which would override the placement; move it to {name} of template {template.name}"
            raise ctx.problem(path, text)


def _falls_back(
    ctx: PlaceContext, template: Template, placed: Placed, retries: Retries, pod: Mapping[str, Any]
) -> bool:
    """Whether later attempts can fall back to on-demand."""
    both = {rung.spot for rung in placed.ladder.rungs} == {True, False}
    if placed.policy.spot is not Spot.PREFER or not both or not retries.is_retried or not ctx.writes(Group.PLACEMENT):
        return False
    queued = queue_of(ctx, pod.get("metadata"))
    reached = retries.limit is None or retries.limit >= placed.policy.fall_back_after
    if queued or not reached or placed.ladder.undecided:
        return False
    if argo_version(ctx.config) < (3, 1):
        text = (
            "Argo before 3.1 cannot place attempts differently: every attempt prefers spot, none is sent to on-demand"
        )
        ctx.add_finding(Level.WARNING, template.path, f"{template.name}: {text}")
        return False
    placed.report.anchor("fallback", ctx.editor, template.path)
    placed.report.after_interruption += (
        f"; after {placed.policy.fall_back_after} retries, errors included, on on-demand only"
    )
    return True


def _report_lost_nodes(ctx: PlaceContext, spec: Path, placed: Placed) -> None:
    """Report that Argo does not count lost nodes: it recreates the same attempt while the pod's results are incomplete."""
    source = "seen on Argo 3.7.3 and 4.0.5"
    version = argo_version(ctx.config)
    if version not in ((3, 7), (4, 0)):
        source += f"; assumed for {version[0]}.{version[1]} too"
    placed.report.after_interruption += f"; a lost node: the same attempt again, not counted ({source})"
    text = (
        "Argo counts drains and deletes, but no lost node: the same attempt starts again, also without retries, so "
        f"interruptions.max and fall_back_after have no effect there ({source})"
    )
    ctx.add_finding(Level.NOTE, spec, text)


def _from_attempt(ctx: PlaceContext, placed: Placed, affinity: Any) -> dict[str, Any]:
    pools = ctx.config.pools
    used = [pools[name] for rung in placed.ladder.rungs for name in rung.pools]
    conditions = capacity_expressions(used, tuple(pools.values()), spot=False)
    return from_attempt(placed.policy.fall_back_after, affinity, conditions)


def _place_manifest(ctx: PlaceContext, template: Template) -> None:
    """Place the object of a resource template, by its own kind."""
    path = (*template.path, "resource")
    if sends_object(ctx.editor.get(path)):
        katib.place(ctx, (*path, "manifest"), f"{ctx.name}/{template.name}".lower())


def _report_outer_retries(ctx: PlaceContext, spec: Path) -> None:
    """Report retries of templates without pods: each repeats all steps with all their retries (seen on 3.7.3)."""
    for caller in dict.fromkeys(call.caller for call in walk_calls(ctx.editor.get, spec)):
        strategy = ctx.editor.get((*caller, "retryStrategy"))
        if isinstance(strategy, dict):
            name, limit = ctx.editor.get((*caller, "name")), strategy.get("limit", "no limit")
            text = (
                f"{name}: your retryStrategy (limit: {limit}) starts its steps again, each time with all their retries"
            )
            ctx.add_finding(Level.WARNING, (*caller, "retryStrategy"), f"{text}: the budgets hold for each time")


def _report_references(ctx: PlaceContext, spec: Path) -> None:
    """Report references to templates of objects that were not given, which have to be placed there."""
    for call in walk_calls(ctx.editor.get, spec):
        reference = call.step.get("templateRef")
        if not isinstance(reference, dict):
            continue
        kind = "ClusterWorkflowTemplate" if reference.get("clusterScope") else "WorkflowTemplate"
        name = str(reference.get("name"))
        if ctx.find(kind, name, ctx.get("metadata", "namespace")) is None:
            text = f"template {reference.get('template')} is in {kind} {name}, which was not given: place its file too"
            ctx.add_finding(Level.WARNING, (*call.path, "templateRef"), text)


_STRATEGY = {
    **dict.fromkeys(("limit", "retryPolicy", "expression")),
    "backoff": dict.fromkeys(("duration", "factor", "maxDuration", "cap")),
    "affinity": {"nodeAntiAffinity": None},
}
_POLICIES = ("Always", "OnFailure", "OnError", "OnTransientError")
_INSIDE = ("dag", "dag.tasks.*", "steps.*.*", "container", "script", "containerSet.containers.*")


def _retry_fields(top: str) -> RetryFields:
    """The retry fields of a workflow at this path. Source: the custom resource definitions of argo-workflows v3.7 and v4.0."""
    above: dict[str, tuple[str, ...]] = {} if top == "spec" else {"spec": ()}
    levels = (top, f"{top}.templateDefaults", f"{top}.templates.*")
    own = dict.fromkeys(levels, ("retryStrategy",))
    inside: dict[str, tuple[str, ...]] = dict.fromkeys((f"{top}.templates.*.{level}" for level in _INSIDE), ())
    return RetryFields(
        f"{top}.templates[].retryStrategy",
        {**above, **own, **inside},
        {f"{level}.retryStrategy": _STRATEGY for level in levels},
        tuple(Words(f"{level}.retryStrategy.retryPolicy", _POLICIES) for level in levels),
    )


_STEPS = (_ARGO, _ARGO_OWN, _ARGO_INLINE)


def _is_of_others(spec: Any) -> bool:
    """Whether another object has the workflow's templates, so that its own fields apply to their pods."""
    return isinstance(spec, dict) and spec.get("workflowTemplateRef") is not None


def _has_none(_defaults: Any) -> bool:
    """The defaults of templates have no pods."""
    return False


def _claims(data: Mapping[str, Any], path: Path, *, spec: tuple[str, ...]) -> Iterator[Claim]:
    """The claims of a workflow and of its defaults that a template mounts; a workflow makes the claims of its claim templates.

    Source: argo-workflows, ``workflow/controller/workflowpod.go``, ``addVolumeReferences``.
    """
    template = value_at(data, path)
    own = {one.volume for one in claims_in(template, ("volumes",))}
    mounted = {str(mount.get("name")) for mount in mounts_in(template)} - own
    for level in ((*spec, "templateDefaults"), spec) if path != spec else ():
        yield from (one for one in claims_in(data, (*level, "volumes")) if one.volume in mounted)
    made = claims_made(data, (*spec, "volumeClaimTemplates"), Sharing.OBJECT)
    yield from (one for one in made if one.volume in mounted)


def _manifests(data: Mapping[str, Any], _others: Others, *, spec: tuple[str, ...]) -> Iterator[Path]:
    """The manifests that a workflow sends to the API server as whole objects."""
    for path in TEMPLATES:
        for at in matching(data, (*spec, *path.split("."))):
            if sends_object(value_at(data, (*at, "resource"))):
                yield (*at, "resource", "manifest")


def _kind(
    name: str, *, spec: str = "spec", place: PlaceObject = _place_workflow, is_run: bool = True, **more: Any
) -> Kind:
    """The record of a kind. ``spec`` is the path of its workflow; ``is_run``: it refers to templates and is executed."""
    return Kind(
        group="argoproj.io",
        name=name,
        version="v1alpha1",
        place=place,
        places=(
            pods_at(spec, "H", is_there=_is_of_others),
            pods_at(f"{spec}.templateDefaults", "H", is_there=_has_none),
            *(pods_at(f"{spec}.{path}", "H", is_there=has_pods) for path in TEMPLATES),
        ),
        holds=partial(_manifests, spec=tuple(spec.split("."))),
        claims=partial(_claims, spec=tuple(spec.split("."))),
        order=partial(order_of_steps, spec=tuple(spec.split("."))),
        mechanisms=(*_STEPS, _ARGO_TEMPLATES) if is_run else _STEPS,
        references=_references if is_run else None,
        top=tuple(spec.split(".")),
        retry=Retry.STEP,
        annotations=("metadata", "annotations"),
        retries=_retry_fields(spec),
        **{"reads": Reads.OBJECTS, "page": name.lower(), "page_of_retries": "argo", **more},
    )


def _references(value: Any) -> Iterator[tuple[str, Any]]:
    """The templates to which a workflow refers, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key in ("workflowTemplateRef", "templateRef"):
            if isinstance(one := value.get(key), dict):
                yield "ClusterWorkflowTemplate" if one.get("clusterScope") else "WorkflowTemplate", one.get("name")
        for item in value.values():
            yield from _references(item)


KINDS = (
    _kind(
        "Workflow",
        reads=Reads.RUNS,
        makes=("Pod",),
        page="argo",
        page_of_retries="",
        short_name="wf",
        pods_label="workflows.argoproj.io/workflow",
        why_not_evicted=lambda _: "",
        notes=(
            "Each template with pods is placed separately, as `WORKFLOW/TEMPLATE`. Daemons, exit handlers, hooks, "
            "`resource` and `data` templates stay on on-demand; `policy.tasks` overrides this.\n"
            "Argo has one count, so `limit` is `interruptions.max` + `errors.retries`; an expression (Argo 3.2 "
            "and later) retries errors only among the first `errors.retries`. A lost node is not counted: Argo "
            "makes the same attempt again.\n"
            "`timeout` becomes `activeDeadlineSeconds` of each pod. A `retryStrategy` of your own stays; "
            "`--replace-retries` replaces it.\n"
            "A `containerSet` whose pod is deleted can hang (argo-workflows#13951): set a `timeout`.\n"
            "With retries, an inline template fails on Argo 3.7.1 to 3.7.13 and 4.0.0 to 4.0.4 (#15051), so it "
            "gets none there.\n"
            "A workflow with `workflowTemplateRef` needs its template in the input or in `--with`."
        ),
        tried=(
            "Seen on Argo 3.7.3 and Kubernetes 1.35.4, lost nodes also on 4.0.5. Argo's controllers 3.5.11, 3.6.5 "
            "and 3.7.1 ran the expressions against a simulated API."
        ),
    ),
    _kind(
        "CronWorkflow",
        spec="spec.workflowSpec",
        place=_place_cron,
        may_change=True,
        notes=(
            "The workflow in `spec.workflowSpec` is placed like a Workflow. A retried run may overlap the next "
            "one: set `concurrencyPolicy: Forbid` or `Replace`."
        ),
    ),
    _kind(
        "WorkflowTemplate",
        is_run=False,
        may_change=True,
        notes=(
            "Its templates are placed like those of a Workflow, as `TEMPLATE-OBJECT/TEMPLATE`. If you may change "
            "only the workflow, give this object with `--with`: the workflow is placed if all templates may get "
            "the same settings. Running workflows keep their templates."
        ),
    ),
    _kind(
        "ClusterWorkflowTemplate",
        is_run=False,
        is_cluster_wide=True,
        notes=(
            "A workflow names it with `clusterScope: true`. It usually belongs to a platform team: give it with "
            "`--with`, and the workflow is placed instead. If its templates call one another, the workflow cannot "
            "set the retries of single steps, and a message says what to place."
        ),
    ),
)
