"""Compiled pipelines of Kubeflow Pipelines (KFP IR): the two documents of a file, or the PipelineVersion that holds both.

Settings belong to executors, retries to tasks, policies to paths of tasks as a run has them. Each executor gets the placement of
its tasks; what the configuration said of them is kept beside, so that the file means the same where there is no configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from spotwright.manifests.context import Context, Level, RoleReport
from spotwright.manifests.documents import Path
from spotwright.manifests.kinds import Place
from spotwright.manifests.kinds.kfp_backend import admin_notes, after_interruption
from spotwright.manifests.kinds.kfp_pods import decided_in_the_run, place_executor, read_work
from spotwright.manifests.kinds.kfp_retries import write_retries
from spotwright.manifests.kinds.kfp_tasks import Home, Task, list_tasks, mixed_up, policy_of
from spotwright.manifests.pairs import KIND, PIPELINE, PLATFORMS
from spotwright.manifests.pods import Placed, fits_nowhere
from spotwright.model.placed import POLICIES
from spotwright.model.policy import Layer, Policy
from spotwright.model.policy_values import policy_mapping
from spotwright.scheduling.ladder import Ladder

__all__ = ["KINDS"]

_FROZEN = "a run keeps what it was started with; a change counts for the runs of the next version that is uploaded"


def _place_pair(ctx: Context) -> None:
    if ctx.editor.document.file.endswith(".json"):
        text = "a JSON file holds one document, and placement stands in a second one: compile to YAML"
        raise ctx.problem(PIPELINE, text)
    _place(ctx, Home(PIPELINE, PLATFORMS))


def _place_version(ctx: Context) -> None:
    if isinstance(ctx.get("spec", "pipelineSpec"), dict):
        _place(ctx, Home(ctx.at("spec", "pipelineSpec"), ctx.at("spec", "platformSpec", "platforms")))


def _place(ctx: Context, home: Home) -> None:
    policies = [(task, policy_of(ctx, home, task)) for task in list_tasks(ctx, home)]
    by_executor: dict[str, list[tuple[Task, Policy]]] = {}
    for task, policy in policies:
        by_executor.setdefault(task.label, []).append((task, policy))
    reports = {id(task): _report(ctx, task, policy) for task, policy in policies}
    ctx.roles += reports.values()
    on_spot = False
    mixed = mixed_up(ctx, home)
    for label, text in mixed.items():
        ctx.say(Level.WARNING, home.executor(label), text)
    for label, uses in by_executor.items():
        _refuse_two_policies(ctx, uses, mixed.get(label, ""))
        if any(policy.spot is not None for _, policy in uses):
            on_spot |= _place_uses(ctx, home, uses, [reports[id(task)] for task, _ in uses])
    _keep_policies(ctx, home, policies)
    if on_spot:
        text = (
            "a compiled pipeline has no grace period: its pods have Kubernetes' 30s, and the code hears of SIGTERM for a "
            "second at most, so checkpoints have to be saved as the code goes (policy grace_period counts elsewhere)"
        )
        ctx.say(Level.NOTE, (*home.pipeline, "pipelineInfo"), text)


def _report(ctx: Context, task: Task, policy: Policy) -> RoleReport:
    line = ctx.editor.document.line(task.at)
    return RoleReport("task", task.path, line, policy, (), {}, frozen=_FROZEN if policy.spot is not None else "")


def _refuse_two_policies(ctx: Context, uses: Sequence[tuple[Task, Policy]], mixed: str) -> None:
    """An executor has one placement, so its tasks must agree, unless nobody says anything about spot."""
    (first, known), *others = uses
    for task, policy in others:
        differing = [
            field.name
            for field in fields(Policy)
            if field.name != "sources" and getattr(policy, field.name) != getattr(known, field.name)
        ]
        if differing and (policy.spot is not None or known.spot is not None):
            raise ctx.problem(
                task.at,
                f"the tasks {first.path} and {task.path} share the executor {task.label}, and their policies differ in "
                f"{', '.join(differing)}: {mixed or 'say the same of both'}",
            )


def _place_uses(ctx: Context, home: Home, uses: Sequence[tuple[Task, Policy]], reports: Sequence[RoleReport]) -> bool:
    """Place one executor and the retries of its tasks; whether an interruption can happen to them."""
    tasks, policy = [task for task, _ in uses], uses[0][1]
    settings = home.settings(tasks[0].label)
    parameter = decided_in_the_run(ctx, settings)
    if parameter:
        text = f"where it runs is decided in the run ({parameter}), so nothing is added"
        ctx.say(Level.WARNING, settings, f"{tasks[0].path}: {text}")
        for report in reports:
            report.after_interruption = text
        return False
    work = read_work(ctx, home, tasks[0].label)
    ladder = ctx.choices.ladder(work, policy)
    if not ladder.rungs:
        raise ctx.problem(_blamed(ctx, home, tasks[0], ladder), fits_nowhere(tasks[0].path, policy, ladder))
    if ladder.note:
        ctx.say(Level.WARNING, tasks[0].at, f"{tasks[0].path}: {ladder.note}")
    tries: dict[Any, int] = {}
    for task, report in zip(tasks, reports, strict=True):
        placed = _placed(policy, ladder, report)
        if task.at not in tries:
            tries[task.at] = write_retries(ctx, task, placed)
        if placed.on_spot:
            report.after_interruption = after_interruption(ctx.config.target, tries[task.at], loops=task.loops)
            report.notes = admin_notes(ctx.config.pools.values())
    placed = _placed(policy, ladder, reports[0])
    place_executor(ctx, home, tasks, placed)
    return placed.on_spot


def _blamed(ctx: Context, home: Home, task: Task, ladder: Ladder) -> Path:
    """What the pipeline says against the policy; the task itself where it is not one thing."""
    reasons, settings = " ".join(ladder.refusals.values()), home.settings(task.label)
    for said, path in (
        ("node selector asks for", (*settings, "nodeSelector")),
        ("required node affinity", (*settings, "nodeAffinity")),
        ("it asks for", (*home.executor(task.label), "container", "resources")),
    ):
        if said in reasons and ctx.editor.get(path) is not None:
            return path
    return task.at


def _placed(policy: Policy, ladder: Ladder, report: RoleReport) -> Placed:
    report.pools = tuple(name for rung in ladder.rungs for name in rung.pools)
    report.refusals = ladder.refusals
    return Placed(policy, ladder, report)


def _keep_policies(ctx: Context, home: Home, policies: Sequence[tuple[Task, Policy]]) -> None:
    """Keep what the configuration said of each task, where it was what counted."""
    kept = {}
    for task, policy in policies:
        default, tasks = ctx.config.layers_for(task.path)
        said = _merged([*default, *tasks])
        values = {name: value for name, (value, source) in said.items() if policy.sources.get(name) == source}
        if values and policy.spot is not None:
            kept[task.path] = policy_mapping(values)
    if kept and not ctx.config.is_built_in:
        ctx.editor.add((*home.platforms, *POLICIES[1:]), json.dumps(kept, separators=(",", ":")))


def _merged(layers: Sequence[Layer]) -> dict[str, tuple[Any, str]]:
    return {name: (value, layer.source) for layer in layers for name, value in layer.values.items()}


KINDS: Mapping[tuple[str, str], Place] = {
    KIND: _place_pair,
    ("pipelines.kubeflow.org", "PipelineVersion"): _place_version,
}
