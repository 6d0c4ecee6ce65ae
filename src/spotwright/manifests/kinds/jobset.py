"""JobSet: jobs that work together, and are started again together when one of their pods is interrupted.

A pod that is replaced alone would find its peers gone, so the child Job fails at once (``podFailurePolicy`` FailJob on
DisruptionTarget, ``backoffLimit`` 0) and the set starts again. Every restart makes new Jobs with deadlines of their own, so
only ``maxRestarts`` ends it: restarts are counted, never ignored. Sources: kubernetes-sigs/jobset v0.12.0,
``site/static/examples/failure-policy/host-maintenance-event-model.yaml``, ``pkg/controllers/failure_policy.go``,
``pkg/webhooks/jobset_webhook.go``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.bounds import counting_costs, settle, undisturbed, whole
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.jobspec import add_rule, find_rule, refuse_in_job
from spotwright.manifests.kinds import Place
from spotwright.manifests.levels import JOB_FIELDS, POD_FIELDS, refuse_misplaced
from spotwright.manifests.pods import Placed, Role, place_pod

__all__ = ["KINDS", "Member", "settle_gang"]

_RUN = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
_FROZEN = (
    "refused are changes of failurePolicy, and of replicatedJobs but for labels, annotations, tolerations and node selector of "
    "the pod templates while the JobSet is suspended (not the affinity)"
)
_LEADERS = re.compile(
    r"(^|-)(leader|driver|coordinator|launcher|master|chief|head|scheduler|ps|parameter-?server)s?(-|\d|$)",
    re.IGNORECASE,
)
_RULE = "spotwright_interrupted"
_OF_JOBS = JOB_FIELDS | {"activeDeadlineSeconds"}
_OF_SETS = frozenset({"successPolicy", "ttlSecondsAfterFinished"})  # a JobSet has fields of these names itself


@dataclass(frozen=True, slots=True)
class Member:
    """One of the jobs of a set: the path of its Job spec, its name, and how its pods were placed."""

    spec: Path
    name: str
    placed: Placed


def _place_jobset(ctx: Context) -> None:
    at = ctx.at("spec")
    jobs = ctx.editor.get((*at, "replicatedJobs")) or ()
    _refuse_misplaced(ctx, at, len(jobs))
    names = [str(job.get("name") or index) for index, job in enumerate(jobs)]
    members = []
    for index, name in enumerate(names):
        spec = (*at, "replicatedJobs", index, "template", "spec")
        refuse_in_job(ctx, spec)
        stays = _why_it_stays(ctx, jobs, index) if len(jobs) > 1 else ""
        template = (*spec, "template")
        path = f"{ctx.name}/{name.lower()}"
        placed = place_pod(ctx, Role(name, path, (*template, "spec"), template, stays, work=ctx.name, run=_RUN))
        placed.report.frozen = _FROZEN
        placed.report.after_interruption = "" if placed.on_spot else undisturbed(placed.policy)
        members.append(Member(spec, name, placed))
    settle_gang(ctx, at, members)


def _refuse_misplaced(ctx: Context, at: Path, count: int) -> None:
    for index in range(count):
        job = (*at, "replicatedJobs", index)
        spec = (*job, "template", "spec")
        for level in (job, (*job, "template")):
            refuse_misplaced(ctx, level, (*spec, "template", "spec"), POD_FIELDS)
            refuse_misplaced(ctx, level, spec, _OF_JOBS)
    first = (*at, "replicatedJobs", 0, "template", "spec")
    refuse_misplaced(ctx, at, (*first, "template", "spec"), POD_FIELDS)
    refuse_misplaced(ctx, at, first, _OF_JOBS, _OF_SETS)
    refuse_misplaced(ctx, at, (*at, "failurePolicy"), {"maxRestarts", "rules", "restartStrategy"})


def _why_it_stays(ctx: Context, jobs: Sequence[Any], index: int) -> str:
    """Why a job of several stays on on-demand: by its name, or because it is the coordinator and has a single pod."""
    job = jobs[index]
    name = str(job.get("name"))
    if _LEADERS.search(name):
        return f"all other jobs depend on {name}"
    spec = (job.get("template") or {}).get("spec") or {}
    pods = (whole(job.get("replicas"), 1), whole(spec.get("parallelism"), 1))
    if ctx.get("spec", "coordinator", "replicatedJob") == name and pods == (1, 1):
        return f"{name} is the coordinator"
    return ""


def settle_gang(ctx: Context, at: Path, members: Sequence[Member]) -> None:
    """Write the failure policy of a set whose spec is at ``at``, and what an interruption does into its members' reports."""
    spot = [member for member in members if member.placed.on_spot]
    if not spot:
        return
    in_place = ctx.editor.get((*at, "failurePolicy", "restartStrategy")) == "InPlaceRestart"
    for member in spot:
        member.placed.report.after_interruption = "" if in_place else _settle_member(ctx, member)
    limit = _settle_restarts(ctx, at, spot)
    for member in spot:
        action = _settle_rule(ctx, at, member.name, in_place=in_place)
        if not member.placed.report.after_interruption:
            member.placed.report.after_interruption = _what_happens(action, limit)


def _settle_member(ctx: Context, member: Member) -> str:
    """Let a child Job fail at once when one of its pods is interrupted; a sentence where the user's own words do otherwise."""
    spec, name = member.spec, member.name
    restart = settle(ctx, (*spec, "template", "spec", "restartPolicy"), "Never")
    found = find_rule(ctx, spec)
    if found is not None:
        action = settle(ctx, (*spec, "podFailurePolicy", "rules", found[0], "action"), "FailJob")
    elif restart == "Never":
        add_rule(ctx, spec, "FailJob")
        action = "FailJob"
    else:
        action = "Count"
        text = f"{name}: restartPolicy {restart} stays (--replace-retries), and with it no podFailurePolicy is possible"
        ctx.say(Level.WARNING, (*spec, "template", "spec", "restartPolicy"), f"{text}: {_ALONE}")
    limit = settle(ctx, (*spec, "backoffLimit"), 0) if restart == "Never" else ctx.editor.get((*spec, "backoffLimit"))
    _bound_round(ctx, member)
    if action == "FailJob":
        if limit != 0:
            text = f"{name}: backoffLimit {limit} stays (--replace-retries): after an error its Job makes a pod again alone"
            ctx.say(Level.NOTE, (*spec, "backoffLimit"), text)
        return ""
    if found is not None:
        text = f"{name}: this rule says {action}, and stays (--replace-retries): {_ALONE}"
        ctx.say(Level.WARNING, (*spec, "podFailurePolicy", "rules", found[0], "action"), text)
    counted = (
        "is not counted"
        if action == "Ignore"
        else f"counts against the Job's backoffLimit {6 if limit is None else limit}"
    )
    return f"the pod alone is made again, which {counted}; the others of the set go on without it"


_ALONE = "an interrupted pod is made again alone, while the others wait for it or fail"


def _bound_round(ctx: Context, member: Member) -> None:
    """The policy's timeout bounds each round of the set, because every restart makes a new Job."""
    policy, path = member.placed.policy, (*member.spec, "activeDeadlineSeconds")
    if policy.timeout is not None and ctx.editor.get(path) is None:
        ctx.editor.add(path, math.ceil(policy.timeout + policy.pending_timeout))


def _settle_restarts(ctx: Context, at: Path, spot: Sequence[Member]) -> Any:
    """How often the set may start again: the largest budgets of its members."""
    policy = max((m.placed.policy for m in spot), key=lambda p: p.max_interruptions + p.retries)
    total, path = policy.max_interruptions + policy.retries, (*at, "failurePolicy", "maxRestarts")
    holds = settle(ctx, path, total)
    if holds == total:
        text = f"{counting_costs('maxRestarts', policy)}: a JobSet has no other end for restarts"
    else:
        text = f"maxRestarts {holds} stays, the policy says {total} (--replace-retries); it counts interruptions and errors"
    ctx.say(Level.WARNING, path, text)
    return holds


def _settle_rule(ctx: Context, at: Path, name: str, *, in_place: bool) -> str:
    """The action for an interrupted job: that of the first rule that matches, ours where there are none."""
    path = (*at, "failurePolicy", "rules")
    rules = ctx.editor.get(path)
    action, index = _first_action(rules or (), name)
    if in_place and not rules:
        return "RestartJobSet"  # as where no rule matches: no Job fails by a podFailurePolicy here
    if not rules or (action not in ("", "RestartJobSet") and ctx.options.replace_retries):
        rule = {"name": _RULE, "action": "RestartJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
        ctx.editor.extend(path, [rule])
        return "RestartJobSet"
    if action not in ("", "RestartJobSet"):
        text = f"{name}: this rule says {action} for an interruption, and stays (--replace-retries)"
        text += _NO_END if action.endswith("IgnoreMaxRestarts") else ""
        ctx.say(Level.WARNING, (*path, index), text)
    return action or "RestartJobSet"


_NO_END = ": restarts that are not counted have no end"


def _first_action(rules: Sequence[Any], name: str) -> tuple[str, int]:
    """The first rule that matches the failure of an interrupted job; no action where none does, which counts a restart."""
    for index, rule in enumerate(rules):
        if not isinstance(rule, dict):
            continue
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        if (not reasons or "PodFailurePolicy" in reasons) and (not targets or name in targets):
            return str(rule.get("action")), index
    return "", 0


def _what_happens(action: str, limit: Any) -> str:
    counted = (
        "not counted" if action.endswith("IgnoreMaxRestarts") else f"counted, with errors, against maxRestarts {limit}"
    )
    if action == "FailJobSet":
        return "the set fails"
    what = "the whole set starts again" if action.startswith("RestartJobSet") else "its job starts again"
    return f"{what}, {counted}"


KINDS: Mapping[tuple[str, str], Place] = {("jobset.x-k8s.io", "JobSet"): _place_jobset}
