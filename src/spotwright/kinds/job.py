"""Kubernetes' kinds that run to completion: Pod, Job and CronJob.

The failure policy of a Job does not count interruptions as failures of the code, bounds the retries, and makes a refused pod's
exit code final; JobSets use the last too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotwright.kinds.kind import Kind, Reads, Retry, RetryFields, levels_of_pods, number_at, one_pod, pods_at, product
from spotwright.kube.object_fields import mappings, text
from spotwright.model.policy import BUILT_IN
from spotwright.placing.context import POLICY_ANNOTATION, RETRIES_STAY, Group, Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import (
    BY_CONTROLLER,
    POD_FACTS,
    Fact,
    Mechanism,
    in_object,
    nothing,
    waits,
)
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import JOB_FIELDS, POD_FIELDS, refuse_at_template, refuse_in_job, refuse_misplaced
from spotwright.placing.pods import Placed, Role, place_pod
from spotwright.placing.retries import (
    DEFAULT_BACKOFF_LIMIT,
    counted_endings,
    counting_text,
    deadline_seconds,
    no_interruption_text,
    own_retries_of_job,
    seconds_text,
    whole_number,
    write_pod_deadline,
    write_unless_set,
)

__all__ = [
    "DISRUPTION_CONDITION",
    "INTERRUPTED_CODES",
    "JOB_RETRIES",
    "KILLED",
    "KINDS",
    "POD_FAILURE_POLICY",
    "REFUSED",
    "REPLACEMENT_ANNOTATION",
    "action_on_eviction",
    "add_disruption_rule",
    "find_disruption_rule",
    "is_own_rule",
    "own_actions",
    "pods_of_job",
    "put_first",
    "refuse_in_job_spec",
    "refuse_in_set",
    "waits_for_failed_pods",
    "write_replacement",
]


_JOB_WAITS = waits("the Job controller waits 10s, doubled with each failed pod, at most 10m")
_JOB_DEFAULT = nothing("the default of Kubernetes, 6 retries, holds")
_ALL_ATTEMPTS = "for all attempts together"
_POD_DEADLINE = in_object("pod:activeDeadlineSeconds", "for each pod")
_JOB_DEADLINE = replace(_POD_DEADLINE, absent=in_object("job:activeDeadlineSeconds", _ALL_ATTEMPTS))


def _job_limit(note: str = "") -> Fact:
    per_index = in_object("job:backoffLimitPerIndex", note, absent=_JOB_DEFAULT)
    return in_object("job:backoffLimit", note, absent=per_index)


_JOB_FACTS: Mapping[str, Fact] = {
    **POD_FACTS,
    **_JOB_WAITS,
    "interruptions.max": _job_limit("errors count there too"),
    "errors.retries": _job_limit("interruptions count there too"),
    "timeout": _JOB_DEADLINE,
}
_JOB_UNCOUNTED = in_object(
    "job:activeDeadlineSeconds",
    "a time instead of a count",
    absent=nothing("interrupted pods are not counted", is_reported=True),
)

_POD = Mechanism(
    "",
    {
        **POD_FACTS,
        **waits("the kubelet waits 10s, doubled each time, at most 5m"),
        "interruptions.max": nothing("a bare Pod is never scheduled again", is_reported=True),
        "errors.retries": nothing("its restartPolicy decides, on the same node"),
        "timeout": in_object("pod:activeDeadlineSeconds", "for all restarts of its containers together"),
    },
)

_JOB_IGNORES = Mechanism(
    "interruptions are ignored until a deadline",
    {
        **_JOB_FACTS,
        "interruptions.max": _JOB_UNCOUNTED,
        "errors.retries": _job_limit("nodes that restart count there too"),
        "pending_timeout": BY_CONTROLLER,
    },
)

_JOB_SEPARATES = Mechanism(
    "rules keep errors apart",
    {
        **_JOB_FACTS,
        "interruptions.max": _job_limit("exit codes 137, 143 and 255 count there too"),
        "errors.retries: 0": in_object("job:podFailurePolicy", "any other exit code ends it"),
        "errors.retries": _job_limit("interruptions count there too"),
    },
)

_JOB_COUNTS = Mechanism("interruptions and errors are counted together", _JOB_FACTS)

_JOB_FAILS = Mechanism(
    "its own rule fails the Job",
    {
        **_JOB_FACTS,
        "interruptions.max": nothing("its own rule fails the Job", is_reported=True),
        "errors.retries": _job_limit(),
    },
)


DISRUPTION_CONDITION: Mapping[str, str] = {"type": "DisruptionTarget", "status": "True"}
"""The condition of a disrupted pod: its node was interrupted, drained or shut down, or it was preempted.

``status`` is optional only from Kubernetes 1.35 on.
"""

KILLED = (137, 143)
"""The exit codes after SIGKILL and SIGTERM: perhaps an interruption that left no condition."""

INTERRUPTED_CODES = (*KILLED, 255)
"""The exit codes of interruptions without a condition: :data:`KILLED`, and the code of a lost container.

A kubelet that restarts after its node lost power finds the containers gone and writes 255 with the reason ``Unknown``
(Kubernetes 1.35.4 with containerd). Programs may exit with 255 too.
"""

REFUSED = 86
"""The exit code of a pod that is refused because a budget of its task is spent."""

REPLACEMENT_ANNOTATION = "spotwright.dev/replacement"
"""The annotation (``Failed``) of pods whose Job, by its author's fields, replaces only failed pods.

Beside a ``podFailurePolicy`` the API server accepts only ``podReplacementPolicy: Failed``. Since Kubernetes 1.31 a Job is
Complete only once its pod on an unreachable node is gone too.
"""

_MAX_RULES = 20
_POD_FAILURE_POLICY = (1, 26)  # enabled by default since this version
_INDEX_LIMITS = (1, 29)  # backoffLimitPerIndex, likewise
_FROZEN = (
    "completions, podFailurePolicy, backoffLimitPerIndex and the pod template cannot be changed, except its tolerations, node "
    "selector and node affinity while the Job is suspended and has not started; backoffLimit and activeDeadlineSeconds can be "
    "changed"
)


@dataclass(frozen=True, slots=True)
class _JobSpec:
    """One Job spec while it is placed."""

    ctx: PlaceContext
    at: Path  # of the Job spec
    placed: Placed

    def get(self, *steps: str | int) -> Any:
        return self.ctx.editor.get((*self.at, *steps))

    def add_finding(self, level: Level, step: str, text: str) -> None:
        self.ctx.add_finding(level, (*self.at, step), f"{self.placed.report.name}: {text}")


def _place_spec(ctx: PlaceContext, at: Path, role: Role) -> Placed:
    """Place the pods of the Job spec at the path ``at`` and write its failure policy."""
    waits = waits_for_failed_pods(ctx, at)
    placed = place_pod(ctx, role)
    placed.report.frozen = _FROZEN
    if waits and placed.on_spot:
        write_replacement(ctx, at)
    placed.report.mechanism = _JOB_COUNTS
    placed.report.anchor("job", ctx.editor, at)
    job = _JobSpec(ctx, at, placed)
    if not placed.on_spot:
        placed.report.after_interruption = no_interruption_text(placed.policy)
    elif not ctx.writes(Group.RETRIES):
        placed.report.after_interruption = RETRIES_STAY
    else:
        placed.report.after_interruption = _settle_failures(job)
    if ctx.writes(Group.RETRIES):
        write_pod_deadline(ctx, role.spec, placed.report.name, placed.policy)
        if not placed.on_spot:
            _settle_on_demand(job)
    return placed


def _settle_on_demand(job: _JobSpec) -> None:
    """Write the error budget of a Job on on-demand, if the user set one; otherwise Kubernetes' 6 retries apply."""
    policy = job.placed.policy
    if policy.spot is not None and _sets_errors(job.placed):
        _settle_limit(job, _limit(job) if _is_refused(job) else policy.retries, "drained pods count there too")


def find_disruption_rule(ctx: PlaceContext, at: Path) -> tuple[int, str] | None:
    """The user's own rule for interrupted pods in a ``podFailurePolicy``: its index and its action."""
    for index, rule in enumerate(ctx.editor.get((*at, "podFailurePolicy", "rules")) or ()):
        patterns = rule.get("onPodConditions") if isinstance(rule, dict) else None
        for pattern in patterns or ():
            if pattern.get("type") == "DisruptionTarget" and pattern.get("status", "True") == "True":
                return index, str(rule.get("action"))
    return None


def add_disruption_rule(ctx: PlaceContext, at: Path, action: str, *others: Mapping[str, Any]) -> None:
    """Insert a rule for interrupted pods before all others: the first match wins, and a rule on exit codes may match SIGTERM.

    ``others`` are rules of ours that follow it.
    """
    rule = {"action": action, "onPodConditions": [dict(DISRUPTION_CONDITION)]}
    ctx.editor.extend((*at, "podFailurePolicy", "rules"), [rule, *others])


def _settle_failures(job: _JobSpec) -> str:
    """Write the failure policy; returns the effect of an interruption.

    A user's rule on exit codes may fail the Job at an interrupted pod's code, so ours precedes it. If it ignores that code,
    ours ignores interruptions too, so that they stay uncounted.
    """
    never = _settle_required(job, "Never", "template", "spec", "restartPolicy")
    own_rule = find_disruption_rule(job.ctx, job.at)
    if own_rule is not None:
        return _keep(job, *own_rule)
    obstacle = _obstacle(job, never=never)
    if not obstacle and _has_bound(job):
        apart = _can_fail_errors(job)
        add_disruption_rule(job.ctx, job.at, "Ignore", *([_error_rule(job)] if apart else []))
        return _ignoring(job, is_apart=apart)
    if not obstacle and _can_fail_errors(job):
        return _failing_errors(job)
    actions = own_actions(job.ctx, job.at)
    if not obstacle and any(action.startswith("Fail") for action in actions):
        add_disruption_rule(job.ctx, job.at, "Ignore" if "Ignore" in actions else "Count")
        if "Ignore" in actions:
            return _ignoring(job)
    return _counting(job, obstacle)


def own_actions(ctx: PlaceContext, at: Path) -> set[str]:
    """The actions of the user's own rules in the ``podFailurePolicy`` of the Job spec at a path."""
    rules = ctx.editor.get((*at, "podFailurePolicy", "rules")) or ()
    return {str(rule.get("action")) for rule in rules if isinstance(rule, dict) and not _is_refusal(rule)}


def _is_refusal(rule: Any) -> bool:
    """Whether a rule is ours, from an earlier placement: it matches no interruption, so no rule has to precede it."""
    return isinstance(rule, dict) and rule.get("onExitCodes") == {"operator": "In", "values": [REFUSED]}


def is_own_rule(rule: Any) -> bool:
    """Whether placement writes this rule of a ``podFailurePolicy``: for refusals or for interrupted pods."""
    return _is_refusal(rule) or (isinstance(rule, dict) and rule.get("onPodConditions") == [DISRUPTION_CONDITION])


def waits_for_failed_pods(ctx: PlaceContext, at: Path) -> bool:
    """Whether the author's Job spec at a path replaces only failed pods; ask before it is placed.

    A ``podFailurePolicy`` has this effect too. Pods with a policy were placed before, and the rules may be ours.
    """
    annotations = ctx.editor.get((*at, "template", "metadata", "annotations")) or {}
    own = ctx.editor.get((*at, "podReplacementPolicy")) == "Failed" or ctx.editor.get(
        (*at, "podFailurePolicy", "rules")
    )
    return bool(own) and POLICY_ANNOTATION not in annotations


def write_replacement(ctx: PlaceContext, at: Path) -> None:
    """Annotate the pods of a placed Job spec whose author wants only failed pods replaced."""
    path = (*at, "template", "metadata", "annotations", REPLACEMENT_ANNOTATION)
    if ctx.writes(Group.PLACEMENT) and ctx.editor.get(path) is None:
        ctx.editor.add(path, "Failed")


def _keep(job: _JobSpec, index: int, action: str) -> str:
    """Keep the user's own rule for interrupted pods unless ``--replace-retries`` is given; returns its effect."""
    path = (*job.at, "podFailurePolicy", "rules", index, "action")
    unbounded = action == "Ignore" and not _has_bound(job)
    if job.ctx.options.replace_retries and not unbounded and _replaces_failed_pods(job):
        action = write_unless_set(job.ctx, path, "Ignore" if _has_bound(job) else "Count")
    for before in range(index):
        if any(_fails_at(job.get("podFailurePolicy", "rules", before), code) for code in INTERRUPTED_CODES):
            text = "this rule comes before the one on DisruptionTarget, and an interrupted pod has exit code 143, 137 or 255"
            job.ctx.add_finding(
                Level.WARNING, (*path[:-2], before), f"{text}, so an interruption fails the Job; move this rule down"
            )
    if action == "Ignore":
        return _ignoring(job)
    if action == "Count":
        return _counting(job, "")
    job.ctx.add_finding(
        Level.WARNING, path, f"this rule makes an interruption fail the Job ({action}); --replace-retries changes it"
    )
    job.placed.report.mechanism = _JOB_FAILS
    return f"the Job fails, by its own rule on DisruptionTarget ({action})"


def _obstacle(job: _JobSpec, *, never: bool) -> str:
    """Why no rule for interrupted pods can be added; empty if one can."""
    if not never:
        return f"a podFailurePolicy needs restartPolicy Never ({_how_to_replace(job)})"
    if _version(job.ctx.config.target.get("kubernetes", "")) < _POD_FAILURE_POLICY:
        return "target.kubernetes is older than 1.26, which introduced podFailurePolicy"
    if len(job.get("podFailurePolicy", "rules") or ()) >= _MAX_RULES:
        return f"a podFailurePolicy has at most {_MAX_RULES} rules"
    if _replaces_failed_pods(job):
        return ""
    return f"a podFailurePolicy needs podReplacementPolicy Failed ({_how_to_replace(job)})"


def _settle_required(job: _JobSpec, required: str, *steps: str) -> bool:
    """Whether a field has the value that a podFailurePolicy requires; write it unless it is set.

    ``--replace-retries`` replaces the user's value only where there is a podFailurePolicy or a bound that lets one be added.
    """
    present = job.get(*steps)
    if present is not None and not _has_bound(job) and not job.get("podFailurePolicy", "rules"):
        return bool(present == required)
    return bool(write_unless_set(job.ctx, (*job.at, *steps), required) == required)


def _how_to_replace(job: _JobSpec) -> str:
    """The remedy by which the user's retry field is replaced."""
    if not job.ctx.options.replace_retries or _has_bound(job):
        return "--replace-retries"
    return f"--replace-retries changes it only with a bound: {_GIVE_BOUND}"


_GIVE_BOUND = "give the policy a timeout, or set activeDeadlineSeconds"


def _replaces_failed_pods(job: _JobSpec) -> bool:
    """Whether the Job replaces a pod only once it has failed, the default beside a podFailurePolicy."""
    return job.get("podReplacementPolicy") is None or _settle_required(job, "Failed", "podReplacementPolicy")


def _has_bound(job: _JobSpec) -> bool:
    return job.get("activeDeadlineSeconds") is not None or _deadline(job) is not None


def _deadline(job: _JobSpec) -> int | None:
    """The policy's bound in seconds; ``None`` without a timeout, or if completions is a placeholder."""
    completions = whole_number(job.get("completions"), 1)
    if completions is None:
        return None
    parallelism = whole_number(job.get("parallelism"), 1) or 1
    return deadline_seconds(job.placed.policy, max(1, math.ceil(completions / parallelism)))


def _ignoring(job: _JobSpec, *, is_apart: bool = False) -> str:
    """Settle the fields beside a rule that ignores interrupted pods: the deadline of all attempts, and the budget for errors."""
    wanted = _deadline(job)
    job.placed.report.mechanism = _JOB_IGNORES
    path = (*job.at, "activeDeadlineSeconds")
    in_force = write_unless_set(job.ctx, path, wanted) if wanted is not None else job.get("activeDeadlineSeconds")
    room = "nodes that restart count there too, because their pods have exit code 255 and no condition"
    limit, failures = _settle_limit(job, _limit(job, is_apart=is_apart), room)
    if not is_apart and not job.ctx.options.has_webhook:
        text = f"{limit} {failures} has room for interruptions as well: {room}; so an error may be tried as often"
        job.add_finding(Level.NOTE, limit, text)
    if in_force is None:
        text = f"interrupted pods are ignored without a bound: {_GIVE_BOUND}"
        text += " (without it --replace-retries leaves this rule)" if job.ctx.options.replace_retries else ""
        job.add_finding(Level.WARNING, "podFailurePolicy", text)
        return "the pod is created again, as often as it is interrupted"
    if wanted is not None and in_force != wanted:
        text = (
            f"activeDeadlineSeconds {in_force} stays and bounds all attempts; the policy allows {seconds_text(wanted)}"
        )
        job.add_finding(Level.WARNING, "activeDeadlineSeconds", f"{text} (--replace-retries)")
    return f"the pod is created again, uncounted; the Job ends after activeDeadlineSeconds {seconds_text(in_force)}"


def _can_fail_errors(job: _JobSpec) -> bool:
    """Whether a rule may end the Job at the first error, so that its limit counts only interruptions.

    Not beside rules or a limit of the user. Not with parallel pods: if they work together, those that lost a peer end with
    errors too, which are not the code's.
    """
    spec = job.get()
    own = value_at(spec, ("podFailurePolicy", "rules")) or any(
        spec.get(name) is not None for name in ("backoffLimit", "backoffLimitPerIndex")
    )
    return not own and not job.placed.policy.retries and whole_number(spec.get("parallelism"), 1) == 1


def _failing_errors(job: _JobSpec) -> str:
    """Write rules that count interruptions and end the Job at any other error; returns the effect of an interruption."""
    job.placed.report.mechanism = _JOB_SEPARATES
    add_disruption_rule(job.ctx, job.at, "Count", _error_rule(job))
    limit, in_force = _settle_limit(job, _limit(job, is_apart=True), "")
    if _is_refused(job):
        return f"the pod is created again, against {limit} {in_force}; the webhook holds each budget"
    text = "exit codes 137, 143 and 255 (killed, out of memory, rebooted) count as interruptions, "
    text += f"against {limit} {in_force}"
    text += "; any other error ends the Job, because errors.retries is 0"
    if job.placed.policy.timeout is not None:
        text += "; no deadline bounds all attempts while completions is a placeholder"
    job.add_finding(Level.NOTE, "podFailurePolicy", text)
    return (
        f"the pod is created again; it counts against {limit} {in_force}, and an error of the code ends the Job at once"
    )


def _error_rule(job: _JobSpec) -> dict[str, Any]:
    """The rule that ends the Job, or the index, at any error that cannot be an interruption."""
    action = "FailIndex" if _has_index_limits(job) else "FailJob"
    return {"action": action, "onExitCodes": {"operator": "NotIn", "values": [0, *INTERRUPTED_CODES]}}


def _is_refused(job: _JobSpec) -> bool:
    """Whether a webhook refuses the pod that would exceed a budget and so ends the Job; not if containers restart in place."""
    return job.ctx.options.has_webhook and bool(job.get("template", "spec", "restartPolicy") == "Never")


def _limit(job: _JobSpec, *, is_apart: bool = False) -> int:
    """The failure limit of a Job that counts every cause; if pods are refused, the failures of each of its tasks.

    Never fewer than without us, unless errors are kept apart (``is_apart``).
    """
    each = counted_endings(job.placed.policy, is_refused=_is_refused(job))
    if job.get("backoffLimit") is None and not is_apart:
        each = max(each, DEFAULT_BACKOFF_LIMIT)
    if not _is_refused(job) or job.get("backoffLimitPerIndex") is not None or _has_index_limits(job):
        return each
    tasks = whole_number(job.get("completions"), whole_number(job.get("parallelism"), 1))
    return each * max(1, tasks or 1)


def _counting(job: _JobSpec, obstacle: str) -> str:
    """Settle the fields where interruptions are counted with errors."""
    policy = job.placed.policy
    total = _limit(job)
    field, in_force = _settle_limit(job, total, "interruptions count there as well")
    bound = "no timeout to bound them" if policy.timeout is None else "no bound while completions is a placeholder"
    why = obstacle or f"the policy gives {bound}, so interruptions are not ignored"
    if in_force == total and job.ctx.options.has_webhook:
        return f"the pod is created again, against {field} {in_force}; the webhook holds each budget"
    if in_force == total:
        job.add_finding(Level.WARNING, field, f"{counting_text(field, policy)}: {why}")
    elif obstacle:
        job.add_finding(Level.WARNING, "template", f"interruptions are counted as errors are: {obstacle}")
    return f"the pod is created again; it counts, together with errors, against {field} {in_force}"


def _settle_limit(job: _JobSpec, wanted: int, beside: str) -> tuple[str, Any]:
    """Write the field that limits failures, per index where possible; returns the field and its value in force."""
    field = "backoffLimit"
    if job.get("backoffLimitPerIndex") is not None:
        field = "backoffLimitPerIndex"
    elif _has_index_limits(job):
        field = "backoffLimitPerIndex"
        write_unless_set(job.ctx, (*job.at, "maxFailedIndexes"), 0)  # the first index above its limit ends the Job
    in_force = write_unless_set(job.ctx, (*job.at, field), wanted)
    if in_force != wanted:
        job.add_finding(
            Level.WARNING, field, f"{field} {in_force} stays, the policy says {wanted} (--replace-retries); {beside}"
        )
    return field, in_force


def _has_index_limits(job: _JobSpec) -> bool:
    """Whether each index gets its own limit: in an Indexed Job without a limit of the user."""
    return (
        job.get("completionMode") == "Indexed"
        and job.get("backoffLimit") is None
        and job.get("template", "spec", "restartPolicy") == "Never"
        and _version(job.ctx.config.target.get("kubernetes", "")) >= _INDEX_LIMITS
    )


def _fails_at(rule: Any, code: int) -> bool:
    """Whether a rule fails the Job, or the index, of a pod with this exit code."""
    given = rule.get("onExitCodes") if isinstance(rule, dict) else None
    if not isinstance(given, dict) or not str(rule.get("action")).startswith("Fail"):
        return False
    return (code in (given.get("values") or ())) is (given.get("operator") == "In")


def _version(text: str) -> tuple[float, float]:
    """The numbers of a version; the newest if none is given."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (math.inf, math.inf)


_SET_RULE = "spotwright_refused"


def refuse_in_job_spec(ctx: PlaceContext, at: Path) -> bool:
    """Make the Job spec at a path end at a refusal's exit code; returns whether it can.

    It cannot if pods restart in place, are replaced before they have failed, or have 20 other rules.
    """
    rules = ctx.editor.get((*at, "podFailurePolicy", "rules")) or []
    if ctx.editor.get((*at, "template", "spec", "restartPolicy")) != "Never":
        return False
    if ctx.editor.get((*at, "podReplacementPolicy")) not in (None, "Failed") or len(rules) >= _MAX_RULES:
        return False
    if any(_fails_at_refusal(rule) for rule in rules):
        return True
    action = "FailIndex" if ctx.editor.get((*at, "backoffLimitPerIndex")) is not None else "FailJob"
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [REFUSED]}}
    put_first(ctx, (*at, "podFailurePolicy", "rules"), rule)
    return True


def refuse_in_set(ctx: PlaceContext, at: Path) -> None:
    """Make the JobSet spec at a path fail at a refusal in one of its jobs, before its other rules."""
    jobs = range(len(ctx.editor.get((*at, "replicatedJobs")) or ()))
    final = [refuse_in_job_spec(ctx, (*at, "replicatedJobs", index, "template", "spec")) for index in jobs]
    if any(final):
        rule = {
            "name": _SET_RULE,
            "action": "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [f"exit code {REFUSED} "],
        }
        put_first(ctx, (*at, "failurePolicy", "rules"), rule)


def _fails_at_refusal(rule: Any) -> bool:
    given = rule.get("onExitCodes") if isinstance(rule, dict) else None
    if not isinstance(given, dict) or not str(rule.get("action")).startswith("Fail"):
        return False
    return (REFUSED in (given.get("values") or ())) is (given.get("operator") == "In")


def put_first(ctx: PlaceContext, path: Path, rule: Mapping[str, Any]) -> None:
    """Insert a rule before all others, including those added before."""
    present: Sequence[Any] = ctx.editor.get(path) or []
    if ctx.editor.document.get(path, None) is None and present:
        ctx.editor.replace(path, [rule, *present])
    else:
        ctx.editor.extend(path, [rule])


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
    placed.report.mechanism = _POD
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
        retries=own_retries_of_job(ctx, at),
    )
    placed = _place_spec(ctx, at, role)
    if ctx.options.has_webhook and _is_retried(placed) and ctx.writes(Group.RETRIES):
        refuse_in_job_spec(ctx, at)
    parallelism = ctx.editor.get((*at, "parallelism"))
    if placed.policy.checkpoint and not indexed and isinstance(parallelism, int) and parallelism > 1:
        text = "its pods run in parallel and share one place for checkpoints: set completionMode to Indexed to give each its own"
        ctx.add_finding(Level.WARNING, (*at, "parallelism"), text)
    return placed


def _is_retried(placed: Placed) -> bool:
    """Whether a policy's budgets end the Job: on on-demand only if its errors are set."""
    policy = placed.policy
    return placed.on_spot or (policy.spot is not None and _sets_errors(placed))


def _sets_errors(placed: Placed) -> bool:
    """Whether a policy, not the Job itself, sets the budget for errors."""
    source = placed.policy.sources.get("errors.retries", BUILT_IN.source)
    return source not in (BUILT_IN.source, placed.report.own_retries)


def action_on_eviction(job: Mapping[str, Any]) -> str:
    """The action of a Job's first rule on the condition that an eviction sets; empty without one."""
    for rule in mappings(value_at(job, ("spec", "podFailurePolicy", "rules"))):
        for pattern in mappings(rule.get("onPodConditions")):
            if pattern.get("type") == "DisruptionTarget" and pattern.get("status", "True") == "True":
                return text(rule.get("action"))
    return ""


def _why_counted(owners: Sequence[Mapping[str, Any]]) -> str:
    if action_on_eviction(owners[0]) == "Ignore":
        return ""
    limit = value_at(owners[0], ("spec", "backoffLimit"), 6)
    return f"its Job would count it against backoffLimit {limit}: its podFailurePolicy does not ignore DisruptionTarget"


POD_FAILURE_POLICY = {
    "rules": [
        {
            "action": None,
            "onExitCodes": dict.fromkeys(("containerName", "operator", "values")),
            "onPodConditions": [dict.fromkeys(("type", "status"))],
        }
    ]
}
"""All fields of a ``podFailurePolicy``. Source: Kubernetes API reference, JobSpec."""

JOB_RETRIES = ("backoffLimit", "backoffLimitPerIndex", "podFailurePolicy")
"""The retry fields of a Job spec."""


def _retries(top: str) -> RetryFields:
    """The retry fields of a Job spec at this path."""
    above: dict[str, tuple[str, ...]] = {} if top == "spec" else {"spec": (), "spec.jobTemplate": ()}
    levels = {**above, top: JOB_RETRIES, **levels_of_pods(f"{top}.template")}
    return RetryFields(f"{top}.backoffLimit", levels, {f"{top}.podFailurePolicy": POD_FAILURE_POLICY})


def _pods_of_scaled_job(data: Mapping[str, Any], path: Path) -> int | None:
    """The pods of a ScaledJob at one time: of all its Jobs, at most 100 by default.

    Source: KEDA's documentation, "ScaledJob specification", ``maxReplicaCount``.
    """
    return product(number_at(data, ("spec", "maxReplicaCount"), 100), pods_of_job(data, path))


def pods_of_job(data: Mapping[str, Any], path: Path) -> int | None:
    """The pods of a Job at one time: its ``parallelism``, and no more than its ``completions``."""
    job = path[:-1]
    parallel = number_at(data, (*job, "parallelism"))
    if value_at(data, (*job, "completions")) is None:
        return parallel
    completions = number_at(data, (*job, "completions"))
    return None if parallel is None or completions is None else min(parallel, completions)


_MECHANISMS = (_JOB_IGNORES, _JOB_SEPARATES, _JOB_COUNTS, _JOB_FAILS)

KINDS = (
    Kind(
        group="",
        name="Pod",
        version="v1",
        place=_place_pod,
        places=(pods_at("", at_once=one_pod),),
        retry=Retry.NONE,
        retries=RetryFields(levels={"spec": (), "spec.containers.*": ()}),
        mechanisms=(_POD,),
        reads=Reads.OBJECTS,
        short_name="po",
        page="pod",
        notes=(
            "`restartPolicy` restarts containers on the same node only. Use a Job for work that should be "
            "retried.\n"
            "The controller places a Pod only if the Pod asks for it, by the label `spotwright.dev/spot` or the "
            "annotation `spotwright.dev/policy`. It is a run with one attempt, which is neither moved nor "
            "refused."
        ),
        tried=("Seen on Kubernetes 1.35.4."),
    ),
    Kind(
        group="batch",
        name="Job",
        version="v1",
        place=_place_job,
        places=(pods_at("spec.template", job=1, at_once=pods_of_job),),
        retry=Retry.JOB,
        retries=_retries("spec"),
        mechanisms=_MECHANISMS,
        reads=Reads.RUNS,
        is_queued=True,
        why_not_evicted=_why_counted,
        makes_pods_later=True,
        pods_label="batch.kubernetes.io/controller-uid",
        suspended_by=("spec", "suspend"),
        page="job",
        notes=(
            "With a `timeout` or `activeDeadlineSeconds`, a rule ignores `DisruptionTarget`, so Kubernetes does "
            "not count interruptions; the deadline over all attempts ends them. Otherwise `backoffLimit` counts "
            "interruptions and errors together, except with `errors.retries: 0` and one pod at a time: then a "
            "rule fails the Job at exit codes other than 0, 137, 143 and 255.\n"
            "In an Indexed Job each index has these budgets (`backoffLimitPerIndex`).\n"
            "A `podFailurePolicy` needs Kubernetes 1.26 and `restartPolicy: Never`.\n"
            "Limits, deadlines and rules of your own stay, with a message; `--replace-retries` replaces them.\n"
            "A Helm or Argo CD hook stays on on-demand, because a release waits for it. Label it "
            "`spotwright.dev/spot: prefer` if it can be repeated."
        ),
        tried=("Seen on Kubernetes 1.35.4: drains, power cuts, taints, errors of the code, Indexed Jobs."),
    ),
    Kind(
        group="batch",
        name="CronJob",
        version="v1",
        takes_any_version=True,
        place=_place_cron_job,
        places=(pods_at("spec.jobTemplate.spec.template", job=1, at_once=pods_of_job),),
        retry=Retry.JOB,
        retries=_retries("spec.jobTemplate.spec"),
        mechanisms=_MECHANISMS,
        reads=Reads.OBJECTS,
        is_queued=True,
        page="cronjob",
        top=("spec", "jobTemplate", "spec"),
        may_change=True,
        page_of_retries="job",
        notes=(
            "Each Job of the schedule is placed like a Job. A retried Job may still run when the next one is due: "
            "set `concurrencyPolicy: Forbid` or `Replace`.\n"
            "`restartPolicy: OnFailure` excludes a `podFailurePolicy`, so interruptions count with errors; "
            "`--replace-retries` changes it to `Never`.\n"
            "A change applies to Jobs that are created later. `batch/v1beta1` is placed like `batch/v1`."
        ),
        tried=("Seen on Kubernetes 1.35.4."),
    ),
    Kind(
        group="keda.sh",
        name="ScaledJob",
        places=(pods_at("spec.jobTargetRef.template", job=1, at_once=_pods_of_scaled_job),),
        retry=Retry.JOB,
        retries=_retries("spec.jobTargetRef"),
        top=("spec", "jobTargetRef"),
    ),
    Kind(group="", name="PodTemplate", places=(pods_at("template"),)),
)
