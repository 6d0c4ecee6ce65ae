"""Kubernetes' own kinds that run to an end: Pod, Job and CronJob."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.enforcement.mechanisms import Mechanism
from spotwright.manifests.kinds import PlaceObject
from spotwright.manifests.kinds.refusals import refuse_in_job_spec
from spotwright.manifests.rules.context import Group, Level, PlaceContext
from spotwright.manifests.rules.job_failure_policy import place_job, refuse_in_job
from spotwright.manifests.rules.misplaced_fields import JOB_FIELDS, POD_FIELDS, refuse_at_template, refuse_misplaced
from spotwright.manifests.rules.pod_rules import Placed, Role, place_pod
from spotwright.manifests.rules.retry_bounds import write_pod_deadline
from spotwright.model.policy import BUILT_IN

__all__ = ["KINDS"]

_JOB_NAME = "metadata.labels['job-name']"
"""The Job controller sets it on every pod; each Job of a CronJob has its own."""

_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_CRON = (
    "concurrencyPolicy",
    "failedJobsHistoryLimit",
    "schedule",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
)


def _place_pod(ctx: PlaceContext) -> None:
    refuse_at_template(ctx, ctx.base)
    placed = place_pod(ctx, Role("pod", ctx.name, ctx.at("spec"), ctx.base))
    if ctx.writes(Group.RETRIES):
        write_pod_deadline(ctx, ctx.at("spec"), "pod", placed.policy)
    placed.report.mechanism = Mechanism.POD
    placed.report.after_interruption = "the pod is lost: a bare Pod is never scheduled again"
    placed.report.frozen = (
        "only images, labels and annotations can be changed; tolerations and activeDeadlineSeconds can be added"
    )
    if placed.on_spot:
        ctx.add_finding(
            Level.WARNING, ctx.at("kind"), "a bare Pod is not scheduled again after an interruption; use a Job"
        )


def _place_job(ctx: PlaceContext) -> None:
    _job_at(ctx, ())


def _place_cron_job(ctx: PlaceContext) -> None:
    version = str(ctx.get("apiVersion"))
    if version != "batch/v1":
        text = f"Kubernetes 1.25 removed {version}, so the API server refuses it: write batch/v1"
        ctx.add_finding(Level.WARNING, ctx.at("apiVersion"), text)
    inner = ctx.at("spec", "jobTemplate", "spec")
    refuse_misplaced(ctx, ctx.at("spec"), (*inner, "template", "spec"), POD_FIELDS)
    refuse_misplaced(ctx, ctx.at("spec"), inner, JOB_FIELDS | {"activeDeadlineSeconds", "template"})
    refuse_misplaced(ctx, ctx.at("spec", "jobTemplate"), (*inner, "template", "spec"), POD_FIELDS)
    refuse_misplaced(ctx, ctx.at("spec", "jobTemplate"), inner, JOB_FIELDS | {"activeDeadlineSeconds", "template"})
    refuse_misplaced(ctx, inner, ctx.at("spec"), _CRON)
    placed = _job_at(ctx, ("spec", "jobTemplate"))
    placed.report.frozen = "everything can be changed; a change applies to the Jobs that are created afterwards"
    if ctx.queue and not placed.report.queue:
        text = "Kueue does not read the queue's name here, so it admits no Jobs: write this label in spec.jobTemplate.metadata"
        ctx.add_finding(Level.WARNING, ctx.at("metadata", "labels"), text)
    if placed.on_spot and ctx.get("spec", "concurrencyPolicy") in (None, "Allow"):
        text = "retries of a Job may overlap the next Job of the schedule: set concurrencyPolicy to Forbid or Replace"
        ctx.add_finding(Level.WARNING, ctx.at("spec", "schedule"), text)


def _job_at(ctx: PlaceContext, steps: tuple[str, ...]) -> Placed:
    """Place the Job whose ``spec`` is below ``steps``."""
    at = ctx.at(*steps, "spec")
    refuse_in_job(ctx, at)
    indexed = ctx.editor.get((*at, "completionMode")) == "Indexed"
    template = (*at, "template")
    role = Role(
        "job",
        ctx.name,
        (*template, "spec"),
        template,
        run=_JOB_NAME,
        index=_INDEX if indexed else "",
        queued_by=ctx.at(*steps, "metadata") if steps else None,
    )
    placed = place_job(ctx, at, role)
    if ctx.options.has_webhook and _is_retried(placed) and ctx.writes(Group.RETRIES):
        refuse_in_job_spec(ctx, at)
    parallelism = ctx.editor.get((*at, "parallelism"))
    if placed.policy.checkpoint and not indexed and isinstance(parallelism, int) and parallelism > 1:
        text = "its pods run in parallel and share one place for checkpoints: set completionMode to Indexed to give each its own"
        ctx.add_finding(Level.WARNING, (*at, "parallelism"), text)
    return placed


def _is_retried(placed: Placed) -> bool:
    """Whether budgets of a policy end the Job: of one on on-demand only where somebody set its errors."""
    policy = placed.policy
    return placed.on_spot or (policy.spot is not None and policy.sources.get("errors.retries") != BUILT_IN.source)


KINDS: Mapping[tuple[str, str], PlaceObject] = {
    ("", "Pod"): _place_pod,
    ("batch", "Job"): _place_job,
    ("batch", "CronJob"): _place_cron_job,
}
