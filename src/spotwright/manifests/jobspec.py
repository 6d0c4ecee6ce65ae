"""The failure policy of a Kubernetes Job: an interruption must not count as a failure of the code, and must not go on for ever.

With a bound on time (the policy's timeout, or the user's own ``activeDeadlineSeconds``) interrupted pods are ignored by a
``podFailurePolicy``; without one they are counted by ``backoffLimit``, together with errors. Sources: kubernetes/api
``batch/v1/types.go``; Kubernetes documentation, "Jobs", "Pod failure policy" and "Pod backoff failure policy".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.bounds import counting_costs, deadline_seconds, settle, spoken, undisturbed, whole
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.levels import JOB_FIELDS, POD_FIELDS, refuse_at_template, refuse_misplaced
from spotwright.manifests.pods import Placed, Role, place_pod

__all__ = ["DISRUPTED", "add_rule", "find_rule", "place_job", "refuse_in_job"]

DISRUPTED: Mapping[str, str] = {"type": "DisruptionTarget", "status": "True"}
"""The condition of a pod that something else ended: node taken, drained, preempted, collected, or the kubelet shut down.

``status`` is optional from Kubernetes 1.35 on only.
"""

_MAX_RULES = 20
_POD_FAILURE_POLICY = (1, 26)  # on without a feature gate since
_ENDED = (143, 137)  # SIGTERM, SIGKILL
_OF_BOTH = frozenset({"activeDeadlineSeconds"})  # a field of Job specs and of pod specs, but not of templates
_FROZEN = (
    "refused are changes of completions, podFailurePolicy and the pod template, but for its tolerations, node selector and "
    "node affinity while the Job is suspended and has not started; backoffLimit and activeDeadlineSeconds can be changed"
)


@dataclass(frozen=True, slots=True)
class _Job:
    """One Job spec under way."""

    ctx: Context
    at: Path  # of the Job spec
    placed: Placed

    def get(self, *steps: str | int) -> Any:
        return self.ctx.editor.get((*self.at, *steps))

    def say(self, level: Level, step: str, text: str) -> None:
        self.ctx.say(level, (*self.at, step), f"{self.placed.report.name}: {text}")


def place_job(ctx: Context, at: Path, role: Role) -> Placed:
    """Place the pods of a Job spec and write its failure policy; ``at`` is the path of the Job spec in the document."""
    refuse_in_job(ctx, at)
    placed = place_pod(ctx, role)
    placed.report.frozen = _FROZEN
    job = _Job(ctx, at, placed)
    placed.report.after_interruption = _settle_failures(job) if placed.on_spot else undisturbed(placed.policy)
    return placed


def refuse_in_job(ctx: Context, at: Path) -> None:
    """Refuse fields of a Job spec and its template that stand at the wrong level."""
    template = (*at, "template")
    refuse_misplaced(ctx, at, (*template, "spec"), POD_FIELDS)
    refuse_misplaced(ctx, template, at, JOB_FIELDS | _OF_BOTH)
    refuse_misplaced(ctx, (*template, "spec"), at, JOB_FIELDS)
    refuse_at_template(ctx, template)


def find_rule(ctx: Context, at: Path) -> tuple[int, str] | None:
    """The user's own rule on interrupted pods in a ``podFailurePolicy``: its index and its action."""
    for index, rule in enumerate(ctx.editor.get((*at, "podFailurePolicy", "rules")) or ()):
        patterns = rule.get("onPodConditions") if isinstance(rule, dict) else None
        for pattern in patterns or ():
            if pattern.get("type") == "DisruptionTarget" and pattern.get("status", "True") == "True":
                return index, str(rule.get("action"))
    return None


def add_rule(ctx: Context, at: Path, action: str) -> None:
    """Put a rule on interrupted pods before all others: the first that matches wins, and SIGTERM has an exit code as well."""
    rule = {"action": action, "onPodConditions": [dict(DISRUPTED)]}
    ctx.editor.extend((*at, "podFailurePolicy", "rules"), [rule])


def _settle_failures(job: _Job) -> str:
    """Write the failure policy, and say what an interruption does then."""
    never = settle(job.ctx, (*job.at, "template", "spec", "restartPolicy"), "Never") == "Never"
    found = find_rule(job.ctx, job.at)
    if found is not None:
        return _keep(job, *found)
    obstacle = _obstacle(job, never=never)
    if not obstacle and _has_bound(job):
        add_rule(job.ctx, job.at, "Ignore")
        return _ignoring(job)
    if not obstacle and job.get("podFailurePolicy", "rules"):
        add_rule(job.ctx, job.at, "Count")
    return _counting(job, obstacle)


def _keep(job: _Job, index: int, action: str) -> str:
    """What the user's own rule on interrupted pods means; changed only with ``--replace-retries``."""
    path = (*job.at, "podFailurePolicy", "rules", index, "action")
    if job.ctx.options.replace_retries and _replaces_failed_pods(job):
        action = settle(job.ctx, path, "Ignore" if _has_bound(job) else "Count")
    for before in range(index):
        if any(_fails_at(job.get("podFailurePolicy", "rules", before), code) for code in _ENDED):
            text = "this rule wins over the one on DisruptionTarget below it, and an interrupted pod has exit code 143 or 137"
            job.ctx.say(Level.WARNING, (*path[:-2], before), f"{text}: an interruption fails the Job; move it down")
    if action == "Ignore":
        return _ignoring(job)
    if action == "Count":
        return _counting(job, "")
    job.ctx.say(
        Level.WARNING, path, f"this rule makes an interruption fail the Job ({action}); --replace-retries changes it"
    )
    return f"the Job fails, by its own rule on DisruptionTarget ({action})"


def _obstacle(job: _Job, *, never: bool) -> str:
    """Why no rule on interrupted pods can be added; empty where one can."""
    if not never:
        return "a podFailurePolicy needs restartPolicy Never (--replace-retries)"
    if _version(job.ctx.config.target.get("kubernetes", "")) < _POD_FAILURE_POLICY:
        return "target.kubernetes has no podFailurePolicy: it came with 1.26"
    if len(job.get("podFailurePolicy", "rules") or ()) >= _MAX_RULES:
        return f"a podFailurePolicy has at most {_MAX_RULES} rules"
    if _replaces_failed_pods(job):
        return ""
    return "a podFailurePolicy needs podReplacementPolicy Failed (--replace-retries)"


def _replaces_failed_pods(job: _Job) -> bool:
    """Whether the Job waits until a pod has failed before it makes another, which is its default beside a podFailurePolicy."""
    path = (*job.at, "podReplacementPolicy")
    return job.ctx.editor.get(path) is None or settle(job.ctx, path, "Failed") == "Failed"


def _has_bound(job: _Job) -> bool:
    return job.get("activeDeadlineSeconds") is not None or _deadline(job) is not None


def _deadline(job: _Job) -> int | None:
    """The bound of the policy; ``None`` without a timeout, or where completions is a placeholder."""
    completions = whole(job.get("completions"), 1)
    if completions is None:
        return None
    parallelism = whole(job.get("parallelism"), 1) or 1
    return deadline_seconds(job.placed.policy, max(1, math.ceil(completions / parallelism)))


def _ignoring(job: _Job) -> str:
    """Interrupted pods are not counted: what remains is the end of all attempts, and the budget of errors."""
    policy, wanted = job.placed.policy, _deadline(job)
    path = (*job.at, "activeDeadlineSeconds")
    holds = settle(job.ctx, path, wanted) if wanted is not None else job.get("activeDeadlineSeconds")
    _settle_limit(job, policy.retries, Level.NOTE, "interruptions are not counted there")
    if holds is None:
        text = "interrupted pods are ignored without an end: give the policy a timeout, or write activeDeadlineSeconds"
        job.say(Level.WARNING, "podFailurePolicy", text)
        return "the pod is made again, as often as it is interrupted"
    if wanted is not None and holds != wanted:
        text = (
            f"activeDeadlineSeconds {holds} stays and bounds all attempts together; the policy allows {spoken(wanted)}"
        )
        job.say(Level.WARNING, "activeDeadlineSeconds", f"{text} (--replace-retries)")
    return f"the pod is made again and nothing is counted; the Job ends after activeDeadlineSeconds {spoken(holds)}"


def _counting(job: _Job, obstacle: str) -> str:
    """Interruptions are counted with errors."""
    policy = job.placed.policy
    total = policy.max_interruptions + policy.retries
    field, holds = _settle_limit(job, total, Level.WARNING, "interruptions are counted there as well")
    bound = (
        "no timeout that would bound them" if policy.timeout is None else "no bound while completions is a placeholder"
    )
    why = obstacle or f"the policy gives {bound}, so interruptions are not ignored"
    if holds == total:
        job.say(Level.WARNING, field, f"{counting_costs(field, policy)}: {why}")
    elif obstacle:
        job.say(Level.WARNING, "template", f"interruptions are counted as errors are: {obstacle}")
    return f"the pod is made again and counted, with errors, against {field} {holds}"


def _settle_limit(job: _Job, wanted: int, level: Level, beside: str) -> tuple[str, Any]:
    """The limit of failures and what it is: per index where the user chose that; another value of the user's is named."""
    field = "backoffLimit" if job.get("backoffLimitPerIndex") is None else "backoffLimitPerIndex"
    holds = settle(job.ctx, (*job.at, field), wanted)
    if holds != wanted:
        job.say(level, field, f"{field} {holds} stays, the policy says {wanted} (--replace-retries); {beside}")
    return field, holds


def _fails_at(rule: Any, code: int) -> bool:
    """Whether a rule fails a Job, or an index, whose pod ends with an exit code."""
    given = rule.get("onExitCodes") if isinstance(rule, dict) else None
    if not isinstance(given, dict) or not str(rule.get("action")).startswith("Fail"):
        return False
    return (code in (given.get("values") or ())) is (given.get("operator") == "In")


def _version(text: str) -> tuple[float, float]:
    """The numbers of a version; the newest where nothing is said."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (math.inf, math.inf)
