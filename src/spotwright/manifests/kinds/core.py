"""Kubernetes' own kinds that run to an end: Pod, Job and CronJob."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.manifests.context import Context, Level
from spotwright.manifests.jobspec import place_job, refuse_in_job
from spotwright.manifests.kinds import Place
from spotwright.manifests.levels import JOB_FIELDS, POD_FIELDS, refuse_at_template, refuse_misplaced
from spotwright.manifests.pods import Placed, Role, place_pod

__all__ = ["KINDS"]

_JOB_NAME = "metadata.labels['job-name']"
"""Set by the Job controller on every pod; of a CronJob each Job has its own."""

_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_CRON = (
    "concurrencyPolicy",
    "failedJobsHistoryLimit",
    "schedule",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
)


def _place_pod(ctx: Context) -> None:
    refuse_at_template(ctx, ctx.base)
    placed = place_pod(ctx, Role("pod", ctx.name, ctx.at("spec"), ctx.base))
    placed.report.after_interruption = "nothing brings it back: a bare Pod is never scheduled again"
    placed.report.frozen = (
        "refused are changes of everything but its images, labels and annotations; tolerations can be added"
    )
    if placed.on_spot:
        ctx.say(Level.WARNING, ctx.at("kind"), "a bare Pod is not scheduled again after an interruption; use a Job")


def _place_job(ctx: Context) -> None:
    _job_at(ctx, ())


def _place_cron_job(ctx: Context) -> None:
    version = str(ctx.get("apiVersion"))
    if version != "batch/v1":
        text = f"{version} is gone since Kubernetes 1.25, and the API server refuses it: write batch/v1"
        ctx.say(Level.WARNING, ctx.at("apiVersion"), text)
    inner = ctx.at("spec", "jobTemplate", "spec")
    refuse_misplaced(ctx, ctx.at("spec"), (*inner, "template", "spec"), POD_FIELDS)
    refuse_misplaced(ctx, ctx.at("spec"), inner, JOB_FIELDS | {"activeDeadlineSeconds", "template"})
    refuse_misplaced(ctx, ctx.at("spec", "jobTemplate"), (*inner, "template", "spec"), POD_FIELDS)
    refuse_misplaced(ctx, ctx.at("spec", "jobTemplate"), inner, JOB_FIELDS | {"activeDeadlineSeconds", "template"})
    refuse_misplaced(ctx, inner, ctx.at("spec"), _CRON)
    placed = _job_at(ctx, ("spec", "jobTemplate"))
    placed.report.frozen = "nothing is refused; a change counts for the Jobs that are made from then on"
    if placed.on_spot and ctx.get("spec", "concurrencyPolicy") in (None, "Allow"):
        text = "a Job that is tried again may overlap the next one of the schedule: write concurrencyPolicy Forbid or Replace"
        ctx.say(Level.WARNING, ctx.at("spec", "schedule"), text)


def _job_at(ctx: Context, steps: tuple[str, ...]) -> Placed:
    """Place the Job whose ``spec`` stands below ``steps``."""
    at = ctx.at(*steps, "spec")
    refuse_in_job(ctx, at)
    indexed = ctx.editor.get((*at, "completionMode")) == "Indexed"
    template = (*at, "template")
    role = Role("job", ctx.name, (*template, "spec"), template, run=_JOB_NAME, index=_INDEX if indexed else "")
    placed = place_job(ctx, at, role)
    at_once = ctx.editor.get((*at, "parallelism"))
    if placed.policy.checkpoint and not indexed and isinstance(at_once, int) and at_once > 1:
        text = "its pods run at once and share one place for checkpoints: write completionMode Indexed to give each its own"
        ctx.say(Level.WARNING, (*at, "parallelism"), text)
    return placed


KINDS: Mapping[tuple[str, str], Place] = {
    ("", "Pod"): _place_pod,
    ("batch", "Job"): _place_job,
    ("batch", "CronJob"): _place_cron_job,
}
