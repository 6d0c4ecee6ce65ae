"""Compiled pipelines of Kubeflow Pipelines (KFP IR): the two documents of a file, or the PipelineVersion that holds both.

Settings belong to executors, retries to tasks, and policies to the paths of tasks in a run. Each executor gets the placement of
its tasks. The policies of the configuration are stored in the file, so that it means the same where there is no configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from spotwright.kfp.placed_record import POLICIES
from spotwright.manifests.enforcement.mechanisms import Mechanism
from spotwright.manifests.kinds import PlaceObject
from spotwright.manifests.kinds.kfp.attempt_affinity import later_conditions, on_demand_from, on_demand_text
from spotwright.manifests.kinds.kfp.backend import (
    admin_notes,
    after_interruption,
    backend_of,
    lost_nodes_note,
    stock_warning,
)
from spotwright.manifests.kinds.kfp.component_library import add_library_to_components
from spotwright.manifests.kinds.kfp.document_pair import KIND, PIPELINE, PLATFORMS
from spotwright.manifests.kinds.kfp.executor_pods import place_executor, read_work, runtime_field
from spotwright.manifests.kinds.kfp.pipeline_tasks import (
    CompiledTask,
    PipelinePaths,
    list_tasks,
    mapping_at,
    merge_warnings,
    policy_of,
)
from spotwright.manifests.kinds.kfp.task_retries import write_retries
from spotwright.manifests.rules.context import Group, Level, PlaceContext, RoleReport
from spotwright.manifests.rules.pod_rules import Placed, no_pool_fits
from spotwright.manifests.yamltext.documents import Path
from spotwright.model.policy import BUILT_IN, Layer, Policy, policy_mapping
from spotwright.scheduling.ladder import Ladder, build

__all__ = ["KINDS"]

_FROZEN = (
    "a run keeps the version with which it was started; a change applies to runs of the next version that is uploaded"
)


def _place_pair(ctx: PlaceContext) -> None:
    if ctx.editor.document.file.endswith(".json") and not ctx.options.only_explain:
        text = "placement needs a second document, which JSON cannot have: compile to YAML"
        raise ctx.problem(PIPELINE, text)
    _place(ctx, PipelinePaths(PIPELINE, PLATFORMS))


def _place_version(ctx: PlaceContext) -> None:
    if isinstance(ctx.get("spec", "pipelineSpec"), dict):
        _place(ctx, PipelinePaths(ctx.at("spec", "pipelineSpec"), ctx.at("spec", "platformSpec", "platforms")))


def _place(ctx: PlaceContext, paths: PipelinePaths) -> None:
    policies = [(task, policy_of(ctx, paths, task)) for task in list_tasks(ctx, paths)]
    by_executor: dict[str, list[tuple[CompiledTask, Policy]]] = {}
    for task, policy in policies:
        by_executor.setdefault(task.label, []).append((task, policy))
    reports = {id(task): _report(ctx, task, policy) for task, policy in policies}
    ctx.roles += reports.values()
    on_spot = False
    merges = merge_warnings(ctx, paths)
    for label, text in merges.items():
        ctx.add_finding(Level.WARNING, paths.executor(label), text)
    for label, uses in by_executor.items():
        _refuse_differing_policies(ctx, uses, merges.get(label, ""))
        if any(policy.spot is not None for _, policy in uses):
            on_spot |= _place_uses(ctx, paths, uses, [reports[id(task)] for task, _ in uses])
    _warn_of_void_retries(ctx, paths, [task for task, policy in policies if policy.spot is not None])
    if ctx.writes(Group.CHECKPOINT):
        add_library_to_components(ctx, paths, policies)
    _store_policies(ctx, paths, policies)
    if on_spot:
        ctx.add_finding(Level.NOTE, (*paths.pipeline, "pipelineInfo"), lost_nodes_note(backend_of(ctx.config.target)))
        text = (
            "a compiled pipeline cannot set a grace period: without the Spotwright controller the policy's grace_period has no "
            "effect, and the code has about 0.3s after SIGTERM (seen on KFP 2.17.0), so it has to save checkpoints as it goes; "
            "the controller gives code with spotwright.checkpoint the grace period before SIGTERM"
        )
        is_set = any(policy.sources.get("grace_period") != BUILT_IN.source for _, policy in policies)
        ctx.add_finding(Level.WARNING if is_set else Level.NOTE, (*paths.pipeline, "pipelineInfo"), text)


def _warn_of_void_retries(ctx: PlaceContext, paths: PipelinePaths, tasks: Sequence[CompiledTask]) -> None:
    """Warn, once for a pipeline, where the backend as it is installed does not retry what the pipeline says."""
    backend = backend_of(ctx.config.target)
    retried = [task for task in tasks if mapping_at(ctx, (*task.at, "retryPolicy")).get("maxRetryCount")]
    if backend.is_stock and retried:
        ctx.add_finding(Level.WARNING, (*paths.pipeline, "pipelineInfo"), stock_warning(backend, len(retried)))


def _report(ctx: PlaceContext, task: CompiledTask, policy: Policy) -> RoleReport:
    line = ctx.editor.document.line(task.at)
    report = RoleReport("task", task.path, line, policy, (), {}, frozen=_FROZEN if policy.spot is not None else "")
    report.on_demand_reason = task.on_demand_reason if policy.sources.get("spot") == task.on_demand_reason else ""
    return report


def _refuse_differing_policies(ctx: PlaceContext, uses: Sequence[tuple[CompiledTask, Policy]], merge: str) -> None:
    """Refuse tasks with one executor and different policies: it has one placement. Policies without ``spot`` may differ."""
    (first, first_policy), *others = uses
    for task, policy in others:
        differing = [
            field.name
            for field in fields(Policy)
            if field.name != "sources" and getattr(policy, field.name) != getattr(first_policy, field.name)
        ]
        if differing and (policy.spot is not None or first_policy.spot is not None):
            raise ctx.problem(
                task.at,
                f"the tasks {first.path} and {task.path} share the executor {task.label}, and their policies differ in "
                f"{', '.join(differing)}: {merge or 'set the same policy for both'}",
            )


def _place_uses(
    ctx: PlaceContext, paths: PipelinePaths, uses: Sequence[tuple[CompiledTask, Policy]], reports: Sequence[RoleReport]
) -> bool:
    """Place one executor and write the retries of its tasks; returns whether they may run on spot."""
    tasks, policy = [task for task, _ in uses], uses[0][1]
    settings = paths.settings(tasks[0].label)
    parameter = runtime_field(ctx, settings)
    if parameter:
        text = f"a parameter decides at run time where it runs ({parameter}), so nothing is added"
        ctx.add_finding(Level.WARNING, settings, f"{tasks[0].path}: {text}")
        for report in reports:
            report.after_interruption = text
        return False
    work = read_work(ctx, paths, tasks[0].label)
    ladder = build(work, policy, ctx.config.pools)
    if not ladder.rungs:
        raise ctx.problem(_conflicting_path(ctx, paths, tasks[0], ladder), no_pool_fits(tasks[0].path, policy, ladder))
    if ladder.note:
        ctx.add_finding(Level.WARNING, tasks[0].at, f"{tasks[0].path}: {ladder.note}")
    tries: dict[Path, int] = {}
    for task, report in zip(tasks, reports, strict=True):
        placed = _placed(policy, ladder, report)
        if task.at not in tries:
            tries[task.at] = write_retries(ctx, task, placed)
    placed, backend = _placed(policy, ladder, reports[0]), backend_of(ctx.config.target)
    first = on_demand_from(ctx, paths, backend, tasks, tries, placed)
    for task, report in zip(tasks, reports, strict=True):
        _anchor(ctx, report, task, settings, falls_back=first is not None)
    for task, report in zip(tasks, reports, strict=True) if placed.on_spot else ():
        moved = on_demand_text(backend, first)
        effect = after_interruption(backend, tries[task.at])
        report.after_interruption = f"{effect}; {moved}" if moved else effect
        report.notes = admin_notes(backend, ctx.config.pools.values())
    later = later_conditions(ctx, backend, placed, first, max(tries.values()))
    place_executor(ctx, paths, tasks, placed, later)
    return placed.on_spot


def _anchor(ctx: PlaceContext, report: RoleReport, task: CompiledTask, settings: Path, *, falls_back: bool) -> None:
    """Tell the report where the fields of a task are that enforce its policy."""
    report.on_spot = any(ctx.config.pools[name].is_spot for name in report.pools)
    report.mechanism = Mechanism.KFP_STOCK if backend_of(ctx.config.target).is_stock else Mechanism.KFP
    report.anchor("task", ctx.editor, task.at)
    report.anchor("settings", ctx.editor, settings)
    if falls_back:
        report.anchor("fallback", ctx.editor, settings)


def _conflicting_path(ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask, ladder: Ladder) -> Path:
    """The field of the pipeline that contradicts the policy; the task itself if it is no single field."""
    reasons, settings = " ".join(ladder.refusals.values()), paths.settings(task.label)
    for refusal, path in (
        ("node selector asks for", (*settings, "nodeSelector")),
        ("required node affinity", (*settings, "nodeAffinity")),
        ("it asks for", (*paths.executor(task.label), "container", "resources")),
    ):
        if refusal in reasons and ctx.editor.get(path) is not None:
            return path
    return task.at


def _placed(policy: Policy, ladder: Ladder, report: RoleReport) -> Placed:
    report.pools = tuple(name for rung in ladder.rungs for name in rung.pools)
    report.refusals = ladder.refusals
    return Placed(policy, ladder, report)


def _store_policies(ctx: PlaceContext, paths: PipelinePaths, policies: Sequence[tuple[CompiledTask, Policy]]) -> None:
    """Store the configuration's policy of each task, as far as it is in force."""
    stored = {}
    for task, policy in policies:
        default, tasks = ctx.config.layers_for(task.path)
        configured = _merged([*default, *tasks])
        values = {name: value for name, (value, source) in configured.items() if policy.sources.get(name) == source}
        if values and policy.spot is not None:
            stored[task.path] = policy_mapping(values)
    if stored and not ctx.config.is_built_in:
        ctx.editor.add((*paths.platforms, *POLICIES[1:]), json.dumps(stored, separators=(",", ":")))


def _merged(layers: Sequence[Layer]) -> dict[str, tuple[Any, str]]:
    return {name: (value, layer.source) for layer in layers for name, value in layer.values.items()}


KINDS: Mapping[tuple[str, str], PlaceObject] = {
    KIND: _place_pair,
    ("pipelines.kubeflow.org", "PipelineVersion"): _place_version,
}
