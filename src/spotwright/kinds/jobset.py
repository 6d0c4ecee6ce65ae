"""JobSet: jobs that work together and restart together when one of their pods is interrupted.

A pod replaced alone would not find its peers, so the child Job fails at once (``podFailurePolicy`` FailJob on DisruptionTarget,
``backoffLimit`` 0) and the set restarts. Every restart creates new Jobs with new deadlines, so only ``maxRestarts`` bounds
them: restarts are always counted. Errors can be kept apart only in a set of one pod: in others, pods that lost an interrupted
peer end with errors too.

With ``restartStrategy: InPlaceRestart`` the other pods stay and restart their containers. Placement does not enable it: it
needs a feature gate of JobSet's controller (``InPlaceRestart``, alpha, off by default), without which the webhook refuses the
set, and in each pod JobSet's agent, which the author builds and allows to change pods. So a set with it keeps the fields that
it needs, and any other restarts whole.

Sources: kubernetes-sigs/jobset v0.12.0, ``site/static/examples/failure-policy/host-maintenance-event-model.yaml``,
``pkg/controllers/failure_policy.go``, ``pkg/controllers/in_place_restart.go``, ``pkg/webhooks/jobset_webhook.go``,
``cmd/in-place-restart-agent``, ``site/static/examples/in-place-restart``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from spotwright.kinds.job import (
    INTERRUPTED_CODES,
    JOB_RETRIES,
    POD_FAILURE_POLICY,
    action_on_eviction,
    add_disruption_rule,
    find_disruption_rule,
    own_actions,
    pods_of_job,
    put_first,
    refuse_in_set,
    waits_for_failed_pods,
    write_replacement,
)
from spotwright.kinds.kind import (
    Count,
    Kind,
    Order,
    Reads,
    Retry,
    RetryFields,
    Run,
    Words,
    calls_after,
    leads_by_name,
    levels_of_pods,
    matching,
    pods_at,
    product,
    replicas,
)
from spotwright.kube.object_fields import mapping, mappings, text
from spotwright.placing.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import BY_CONTROLLER, POD_FACTS, Fact, Mechanism, in_object, nothing, waits
from spotwright.placing.environment import SHARED_TEMPLATE, c10d_endpoint
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import (
    JOB_FIELDS,
    METADATA,
    POD_FIELDS,
    TEMPLATE,
    TEXT,
    check,
    refuse_in_job,
    refuse_misplaced,
)
from spotwright.placing.pods import Placed, Role, place_pod
from spotwright.placing.retries import (
    DEFAULT_BACKOFF_LIMIT,
    counted_endings,
    counting_text,
    no_interruption_text,
    own_retries_of_job,
    whole_number,
    write_unless_set,
)

__all__ = [
    "IN_PLACE",
    "KINDS",
    "MECHANISMS",
    "MOST_RULES",
    "SET_ALONE",
    "SET_FACTS",
    "SET_IN_PLACE",
    "SET_RESTARTS",
    "SetMember",
    "has_agent",
    "is_matched",
    "note_rendezvous",
    "order_of_set",
    "pods_of_set",
    "retries_of_set",
    "why_not_matched",
    "write_failure_policy",
]


_SET_WAITS = waits("the set restarts at once")
_SET_LIMIT = "set:failurePolicy.maxRestarts"
SET_FACTS: Mapping[str, Fact] = {
    **POD_FACTS,
    **_SET_WAITS,
    "interruptions.max": in_object(_SET_LIMIT, "of the whole set; errors count there too"),
    "errors.retries": in_object(_SET_LIMIT, "of the whole set; interruptions count there too"),
    "fall_back_after": BY_CONTROLLER,
    "pending_timeout": BY_CONTROLLER,
    "timeout": in_object("job:activeDeadlineSeconds", "for each start of the set, with pending_timeout"),
}

SET_RESTARTS = Mechanism("the set restarts", SET_FACTS)

_SET_SEPARATES = Mechanism(
    "a set of one pod",
    {
        **SET_FACTS,
        "interruptions.max": in_object(_SET_LIMIT, "of the whole set; exit codes 137, 143 and 255 count there too"),
        "errors.retries: 0": in_object("set:failurePolicy.rules", "any other exit code fails the set"),
    },
)

_SET_UNCOUNTED = Mechanism(
    "its own rule does not count restarts",
    {
        **SET_FACTS,
        "interruptions.max": nothing("its own rule restarts without counting", is_reported=True),
    },
)

_SET_FAILS = Mechanism(
    "its own rule fails the set",
    {**SET_FACTS, "interruptions.max": nothing("its own rule fails the set", is_reported=True)},
)

SET_ALONE = Mechanism(
    "its own fields replace the pod alone",
    {
        **SET_FACTS,
        "interruptions.max": nothing("its Job replaces the pod alone", is_reported=True),
        "pending_timeout": nothing(),
    },
)

SET_IN_PLACE = Mechanism(
    "`restartStrategy: InPlaceRestart`",
    {
        **SET_FACTS,
        **waits("the pods that stay start again as soon as the new one is there"),
        "fall_back_after": nothing("the pods that stay keep their nodes, and the new one goes where they may be"),
        "pending_timeout": nothing(),
    },
)


SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""The label of a set's pods with the name of the set."""

RUN_OF_SET = f"metadata.labels['{SET_LABEL}']"
"""The same as a field path."""

_FROZEN = (
    "failurePolicy cannot be changed; of replicatedJobs, only labels, annotations, tolerations and node selector of the pod "
    "templates can, while the JobSet is suspended (not the affinity)"
)
IN_PLACE = "InPlaceRestart"
"""The ``restartStrategy`` with which pods stay and restart their containers."""

_RULE = "spotwright_interrupted"
_ERROR_RULE = "spotwright_error"
_SET = {
    "failurePolicy": {
        "maxRestarts": TEXT,
        "rules": [{"action": TEXT, "onJobFailureReasons": [TEXT], "targetReplicatedJobs": [TEXT]}],
    },
    "replicatedJobs": [{"name": TEXT, "template": {"metadata": METADATA, "spec": {"template": TEMPLATE}}}],
}
_OF_JOBS = JOB_FIELDS | {"activeDeadlineSeconds"}
_OF_SETS = frozenset({"successPolicy", "ttlSecondsAfterFinished"})  # fields of a JobSet too


@dataclass(frozen=True, slots=True)
class SetMember:
    """One job of a set: the path of its Job spec, its name, and the decisions for its pods."""

    spec: Path
    name: str
    placed: Placed


def _place_jobset(ctx: PlaceContext) -> None:
    at = ctx.at("spec")
    check(ctx, at, _SET)
    jobs: Sequence[Any] = ctx.editor.get((*at, "replicatedJobs")) or ()
    _refuse_misplaced(ctx, at, len(jobs))
    names = [str(job.get("name") or index) for index, job in enumerate(jobs)]
    members = []
    for index, name in enumerate(names):
        spec = (*at, "replicatedJobs", index, "template", "spec")
        refuse_in_job(ctx, spec)
        on_demand_reason = _on_demand_reason(ctx, jobs, index) if len(jobs) > 1 else ""
        template = (*spec, "template")
        path = f"{ctx.name}/{name.lower()}"
        retries = own_retries_of_job(ctx, spec, (*at, "failurePolicy", "maxRestarts"))
        pod, waits = (*template, "spec"), waits_for_failed_pods(ctx, spec)
        placed = place_pod(
            ctx, Role(name, path, pod, template, on_demand_reason, work=ctx.name, run=RUN_OF_SET, retries=retries)
        )
        if waits and placed.on_spot:
            write_replacement(ctx, spec)
        placed.report.frozen = _FROZEN
        placed.report.after_interruption = "" if placed.on_spot else no_interruption_text(placed.policy)
        members.append(SetMember(spec, name, placed))
    write_failure_policy(ctx, at, members, is_alone=len(jobs) == 1 and _has_one_pod(jobs[0]))
    note_rendezvous(ctx, jobs, members)


def note_rendezvous(ctx: PlaceContext, jobs: Sequence[Any], members: Sequence[SetMember]) -> None:
    """Report jobs on spot with a c10d rendezvous at one of their own pods: its template is shared, so all go to spot."""
    for job, member in zip(jobs, members, strict=True):
        if not member.placed.on_spot or _has_one_pod(job):
            continue
        pod = (*member.spec, "template", "spec")
        others = [other.name.lower() for other in members if other is not member]
        for index, container in enumerate(ctx.editor.get((*pod, "containers")) or ()):
            endpoint = c10d_endpoint(container)
            if endpoint and not any(f"-{name}-" in endpoint for name in others):
                text = f"{member.name}: its pods meet at {endpoint}, {SHARED_TEMPLATE}"
                ctx.add_finding(Level.NOTE, (*pod, "containers", index), text)


def _has_one_pod(job: Mapping[str, Any]) -> bool:
    """Whether a replicated job has a single pod at a time."""
    spec = (job.get("template") or {}).get("spec") or {}
    return (whole_number(job.get("replicas"), 1), whole_number(spec.get("parallelism"), 1)) == (1, 1)


def _refuse_misplaced(ctx: PlaceContext, at: Path, count: int) -> None:
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


def _on_demand_reason(ctx: PlaceContext, jobs: Sequence[Any], index: int) -> str:
    """Why one of several jobs stays on on-demand: its name, or a coordinator's single pod."""
    job = jobs[index]
    name = str(job.get("name"))
    if leads_by_name(name):
        return f"all other jobs depend on {name}"
    if ctx.get("spec", "coordinator", "replicatedJob") == name and _has_one_pod(job):
        return f"{name} is the coordinator"
    return ""


def write_failure_policy(ctx: PlaceContext, at: Path, members: Sequence[SetMember], *, is_alone: bool = False) -> None:
    """Write the failure policy of the set at ``at``, and the effect of an interruption in its members' reports.

    ``is_alone``: the set has a single pod, so that each error is its own.
    """
    for member in members:
        member.placed.report.mechanism = SET_RESTARTS
        member.placed.report.anchor("job", ctx.editor, member.spec)
        member.placed.report.anchor("set", ctx.editor, at)
    spot = [member for member in members if member.placed.on_spot]
    if not ctx.writes(Group.RETRIES):
        for member in spot:
            member.placed.report.after_interruption = RETRIES_STAY
        return
    if not spot:
        return
    _settle_set(ctx, at, spot, is_alone=is_alone)
    if ctx.options.has_webhook:
        refuse_in_set(ctx, at)


def _settle_set(ctx: PlaceContext, at: Path, spot: Sequence[SetMember], *, is_alone: bool) -> None:
    """Write the reaction to an interruption of a member on spot, and report it."""
    policy = (*at, "failurePolicy")
    in_place = ctx.editor.get((*policy, "restartStrategy")) == IN_PLACE
    apart = is_alone and not in_place and _can_fail_errors(ctx, at, spot[0])
    has_rules = bool(ctx.editor.get((*policy, "rules")))
    own = [member for member in spot if find_disruption_rule(ctx, member.spec) is not None]
    failing = [member for member in spot if "FailJob" in own_actions(ctx, member.spec)]
    tries = {} if in_place else _own_tries(ctx, at, spot)
    for member in spot:
        member.placed.report.after_interruption = (
            "" if in_place else _settle_member(ctx, member, apart=apart, has_rules=has_rules)
        )
    needed = sum(tries.get(one.name, 0) for one in spot if not one.placed.report.after_interruption)
    limit = _settle_restarts(ctx, at, spot, apart=apart, in_place=in_place, needed=needed)
    for number, member in enumerate(spot):
        fails_by_us = not (in_place or member in own or member.placed.report.after_interruption)
        rule = _rule_of(member.name, number if len(spot) > 1 else None, is_apart=member in failing)
        action = _settle_rule(ctx, at, member.name, rule, in_place=in_place, apart=apart, fails_by_us=fails_by_us)
        if in_place and not _fails_its_job(ctx, member):
            _report_in_place(ctx, member, limit)
        elif not member.placed.report.after_interruption:
            member.placed.report.mechanism = _mechanism(action, apart=apart)
            member.placed.report.after_interruption = _what_happens(action, limit, apart=apart)
    if in_place:
        ctx.add_finding(Level.NOTE, (*at, "failurePolicy", "restartStrategy"), _BEHIND_GATE)


def _can_fail_errors(ctx: PlaceContext, at: Path, member: SetMember) -> bool:
    """Whether rules may fail the set at the first error of the code. Not beside retries or rules of the user."""
    own = (
        (*at, "failurePolicy", "maxRestarts"),
        (*at, "failurePolicy", "rules"),
        (*member.spec, "podFailurePolicy", "rules"),
        (*member.spec, "backoffLimit"),
    )
    restart = ctx.editor.get((*member.spec, "template", "spec", "restartPolicy"))
    is_free = all(ctx.editor.get(path) in (None, []) for path in own)
    return is_free and restart in (None, "Never") and not member.placed.policy.retries


def _settle_member(ctx: PlaceContext, member: SetMember, *, apart: bool, has_rules: bool) -> str:
    """Make a child Job fail when one of its pods is interrupted; if the user's settings prevent it, return the effect.

    ``apart``: a pod killed without a condition fails it in the same way, other errors do not. ``has_rules``: the user's rules
    handle a failed Job, so that its retries after errors stay.
    """
    spec, name = member.spec, member.name
    restart = write_unless_set(ctx, (*spec, "template", "spec", "restartPolicy"), "Never")
    own_rule = find_disruption_rule(ctx, spec)
    if own_rule is not None:
        action = write_unless_set(ctx, (*spec, "podFailurePolicy", "rules", own_rule[0], "action"), "FailJob")
    elif "Ignore" in own_actions(ctx, spec):
        action = "Ignore"  # on exit codes that interrupted pods may have
        text = f"{name}: your podFailurePolicy ignores exit codes, so no rule for interruptions is added: {_ALONE}"
        ctx.add_finding(Level.WARNING, (*spec, "podFailurePolicy", "rules"), text)
    elif restart == "Never":
        killed = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": list(INTERRUPTED_CODES)}}
        add_disruption_rule(ctx, spec, "FailJob", *([killed] if apart else []))
        action = "FailJob"
    else:
        action = "Count"
        text = f"{name}: restartPolicy {restart} stays (--replace-retries), and it allows no podFailurePolicy"
        ctx.add_finding(Level.WARNING, (*spec, "template", "spec", "restartPolicy"), f"{text}: {_ALONE}")
    limit = ctx.editor.get((*spec, "backoffLimit"))
    if action == "FailJob" and not has_rules:
        limit = write_unless_set(ctx, (*spec, "backoffLimit"), 0)
    _bound_round(ctx, member)
    if action == "FailJob":
        if limit != 0:
            stays = f"the default backoffLimit {DEFAULT_BACKOFF_LIMIT} stays beside your rules" if limit is None else ""
            stays = stays or f"backoffLimit {limit} stays (--replace-retries)"
            text = f"{name}: {stays}: after an error its Job replaces the pod alone"
            ctx.add_finding(Level.WARNING, (*spec, "backoffLimit"), text)
        return ""
    if own_rule is not None:
        text = f"{name}: this rule with action {action} stays (--replace-retries): {_ALONE}"
        ctx.add_finding(Level.WARNING, (*spec, "podFailurePolicy", "rules", own_rule[0], "action"), text)
    member.placed.report.mechanism = SET_ALONE
    counted = (
        "is not counted"
        if action == "Ignore"
        else f"counts against the Job's backoffLimit {6 if limit is None else limit}"
    )
    return f"only this pod is created again, which {counted}; the other pods of the set go on without it"


_ALONE = "an interrupted pod is replaced alone, while the others wait for it or fail"


def _bound_round(ctx: PlaceContext, member: SetMember) -> None:
    """Bound each round of the set by the policy's timeout, because every restart creates a new Job."""
    policy, path = member.placed.policy, (*member.spec, "activeDeadlineSeconds")
    if policy.timeout is not None and ctx.editor.get(path) is None:
        ctx.editor.add(path, math.ceil(policy.timeout + policy.pending_timeout))


def has_agent(pod: Mapping[str, Any]) -> bool:
    """Whether a container's exit restarts its pod's containers, as JobSet's agent does."""
    containers = (one for key in ("initContainers", "containers") for one in pod.get(key) or ())
    return any(isinstance(one, Mapping) and bool(one.get("restartPolicyRules")) for one in containers)


_BEHIND_GATE = (
    f"{IN_PLACE} needs JobSet 0.11 or newer with its feature gate {IN_PLACE}, and elsewhere the API server refuses this set; "
    "without restartStrategy all its pods are made again, and go on at the step that was saved"
)


def _fails_its_job(ctx: PlaceContext, member: SetMember) -> bool:
    """Whether a user's rule lets an interrupted pod fail its Job: then the set restarts whole under any strategy."""
    own_rule = find_disruption_rule(ctx, member.spec)
    return own_rule is not None and own_rule[1] == "FailJob"


def _report_in_place(ctx: PlaceContext, member: SetMember, limit: Any) -> None:
    """Report the effect of an interruption where pods restart in place; warn of pods without the agent."""
    report, pod = member.placed.report, (*member.spec, "template", "spec")
    if has_agent(ctx.editor.get(pod) or {}):
        report.mechanism = SET_IN_PLACE
        report.after_interruption = (
            "this pod alone is made again, and the others stay and start their containers again, counted, with errors, "
            f"against maxRestarts {limit}"
        )
        return
    report.mechanism = SET_ALONE
    report.after_interruption = "only this pod is created again; the other pods of the set go on without it"
    text = (
        f"{member.name}: {IN_PLACE} needs JobSet's agent in each pod, and no container here has restartPolicyRules, so "
        "the other pods are not restarted: add the agent (jobset, site/static/examples/in-place-restart), or leave "
        "restartStrategy out, and the whole set restarts"
    )
    ctx.add_finding(Level.WARNING, (*pod, "containers"), text)


def _settle_restarts(
    ctx: PlaceContext, at: Path, spot: Sequence[SetMember], *, apart: bool, in_place: bool, needed: int
) -> Any:
    """Write the limit of restarts: the largest budgets of the members. Pods that stay are never refused.

    At least ``needed``: the tries that the author's fields gave to a pod that now restarts the set.
    """
    policy = max((m.placed.policy for m in spot), key=lambda p: p.max_interruptions + p.retries)
    never = all(ctx.editor.get((*m.spec, "template", "spec", "restartPolicy")) == "Never" for m in spot)
    is_refused = ctx.options.has_webhook and never and not in_place
    path = (*at, "failurePolicy", "maxRestarts")
    total = counted_endings(policy, is_refused=is_refused)
    if ctx.editor.get(path) is None and needed > total:
        ctx.editor.add(path, needed)
        text = (
            f"maxRestarts is {needed}, as often as the Jobs alone make pods again: each interruption restarts the set"
        )
        ctx.add_finding(Level.WARNING, path, text)
        return needed
    in_force = write_unless_set(ctx, path, total)
    if isinstance(in_force, int) and in_force < needed:
        ctx.editor.replace(path, needed)
        text = f"maxRestarts {in_force} becomes {needed}: an interruption restarts the whole set, where a Job made its pod again "
        text += "by its backoffLimit; so the work is tried as often as before"
        ctx.add_finding(Level.WARNING, path, text)
        return needed
    if apart and not ctx.options.has_webhook:
        text = f"maxRestarts {in_force} counts interruptions, and pods with exit code 137, 143 or 255 "
        text += (
            "(killed, out of memory, rebooted); any other error of the code fails the set, because errors.retries is 0"
        )
        ctx.add_finding(Level.NOTE, path, text)
        return in_force
    if in_force == total and ctx.options.has_webhook and not in_place:
        return in_force
    if in_force == total:
        text = f"{counting_text('maxRestarts', policy)}: a JobSet has no other bound for restarts"
    else:
        text = f"maxRestarts {in_force} stays; the policy allows {total} (--replace-retries); it counts interruptions and errors"
    ctx.add_finding(Level.WARNING, path, text)
    return in_force


def _own_tries(ctx: PlaceContext, at: Path, spot: Sequence[SetMember]) -> Mapping[str, int]:
    """The tries by each member's own retries, of the set and its Jobs, up to its policy's limit."""
    found = {}
    for one in spot:
        own = own_retries_of_job(ctx, one.spec, (*at, "failurePolicy", "maxRestarts"))
        if own is not None:
            jobs = whole_number(ctx.editor.get((*one.spec[:-2], "replicas")), 1) or 1
            indexes = whole_number(ctx.editor.get((*one.spec, "completions")), 1) or 1
            per_index = ctx.editor.get((*one.spec, "backoffLimitPerIndex")) is not None
            found[one.name] = min(own.times, one.placed.policy.retries) * jobs * (indexes if per_index else 1)
    return found


def _rule_of(name: str, number: int | None, *, is_apart: bool) -> dict[str, Any]:
    """Our rule for interruptions of a member, without its action; ``number``: its place among several members.

    JobSet requires unique names. ``is_apart``: a user's rule fails the Job too, so ours matches Kubernetes' message
    (``pod_failure_policy.go``), which JobSet supports since 0.10.
    """
    rule: dict[str, Any] = {"name": _RULE, "onJobFailureReasons": ["PodFailurePolicy"]}
    if is_apart:
        rule["onJobFailureMessagePatterns"] = ["has condition DisruptionTarget"]
    if number is not None:
        rule |= {"name": f"{_RULE}_{number}", "targetReplicatedJobs": [name]}
    return rule


def _settle_rule(
    ctx: PlaceContext,
    at: Path,
    name: str,
    ours: Mapping[str, Any],
    *,
    in_place: bool,
    apart: bool,
    fails_by_us: bool,
) -> str:
    """The action for an interrupted job: of the first matching rule, or of ours if there are no rules.

    ``ours`` is our rule for a member beside the user's rules. ``fails_by_us``: only our rule makes an interruption fail the
    job, so the user's rules that fail the set were not meant for it.
    """
    path = (*at, "failurePolicy", "rules")
    rules = ctx.editor.get(path)
    _warn_of_patterns(ctx, path, rules or ())
    action, index = _first_action(rules or (), name)
    if in_place and not rules:
        return "RestartJobSet"  # the default without a matching rule: here no podFailurePolicy fails a Job
    if not rules:
        rule = {"name": _RULE, "action": "RestartJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
        error = {"name": _ERROR_RULE, "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}
        ctx.editor.extend(path, [rule, error] if apart else [rule])
        return "RestartJobSet"
    after_failures = _first_action(rules, name, "BackoffLimitExceeded")[0]
    restart = after_failures if after_failures.endswith("IgnoreMaxRestarts") else "RestartJobSet"
    is_kept = (action or "RestartJobSet") in (restart, "RestartJobSetAndIgnoreMaxRestarts", "RestartJob")
    is_replaced = action not in ("", "RestartJobSet") and ctx.options.replace_retries
    if is_replaced or (fails_by_us and not is_kept):
        restart = "RestartJobSet" if is_replaced else restart
        put_first(ctx, path, {**ours, "action": restart})
        return restart
    if action not in ("", "RestartJobSet"):
        text = f"{name}: for an interruption this rule has the action {action}, and it stays (--replace-retries)"
        text += _UNBOUNDED if action.endswith("IgnoreMaxRestarts") else ""
        ctx.add_finding(Level.WARNING, (*path, index), text)
    return action or "RestartJobSet"


MOST_RULES = 20
"""The most rules of a failurePolicy whose patterns are matched."""

_LONGEST_PATTERN = 200  # characters
_MOST_PATTERNS = 10  # of one rule
_PATTERN_MEMORY = 64 * 1024  # bytes: a pattern is compiled within a millisecond then, and matched in time with its text


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> Any:
    """A JobSet author's pattern (Go syntax) compiled by RE2, which matches in linear time.

    A string instead: why it is not valid.
    """
    import re2

    if len(pattern) > _LONGEST_PATTERN:
        return f"it is longer than {_LONGEST_PATTERN} characters"
    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError:
        return "it is not a text"
    except re2.error as error:
        why = error.args[0] if error.args else ""
        return why.decode(errors="replace") if isinstance(why, bytes) else str(why)


def is_matched(patterns: Any, message: str) -> bool:
    """Whether one of a rule's ``onJobFailureMessagePatterns`` matches a message; without patterns the rule matches any.

    Needs the extra ``cluster``. A pattern that RE2 refuses never matches, nor do patterns behind the tenth.
    """
    if not isinstance(patterns, list) or not patterns:
        return True
    found = (_compiled(str(pattern)) for pattern in patterns[:_MOST_PATTERNS])
    return any(not isinstance(one, str) and one.search(message) is not None for one in found)


def why_not_matched(patterns: Any) -> str:
    """Why a rule's ``onJobFailureMessagePatterns`` are not matched, in one sentence; empty if they are. Needs the extra."""
    if not isinstance(patterns, list):
        return ""
    if len(patterns) > _MOST_PATTERNS:
        return f"only the first {_MOST_PATTERNS} of {len(patterns)} patterns are looked for"
    for pattern in patterns:
        why = _compiled(str(pattern))
        if isinstance(why, str):
            return f"{str(pattern)[:80]!r} is an invalid pattern (RE2): {why[:120]}"
    return ""


def _warn_of_patterns(ctx: PlaceContext, path: Path, rules: Sequence[Any]) -> None:
    """Report patterns that never match, if RE2 (extra ``cluster``) is installed."""
    for index, rule in enumerate(rules[:MOST_RULES]):
        patterns = rule.get("onJobFailureMessagePatterns") if isinstance(rule, dict) else None
        if patterns and find_spec("re2") is None:
            return
        if why := why_not_matched(patterns):
            ctx.add_finding(Level.WARNING, (*path, index, "onJobFailureMessagePatterns"), why)
            return


_UNBOUNDED = ": restarts that are not counted are not bounded"


def _first_action(rules: Sequence[Any], name: str, why: str = "PodFailurePolicy") -> tuple[str, int]:
    """The action and the index of the first rule for a job that failed so; without one, no action: a counted restart."""
    for index, rule in enumerate(rules):
        if not isinstance(rule, dict):
            continue
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        if (not reasons or why in reasons) and (not targets or name in targets):
            return str(rule.get("action")), index
    return "", 0


def _mechanism(action: str, *, apart: bool) -> Mechanism:
    """The mechanism of a set whose rule for interruptions has this action."""
    if action == "FailJobSet":
        return _SET_FAILS
    if action.endswith("IgnoreMaxRestarts"):
        return _SET_UNCOUNTED
    return _SET_SEPARATES if apart else SET_RESTARTS


def _what_happens(action: str, limit: Any, *, apart: bool) -> str:
    if apart:
        return f"the whole set restarts, counted against maxRestarts {limit}; an error of the code fails it at once"
    counted = (
        "not counted" if action.endswith("IgnoreMaxRestarts") else f"counted, with errors, against maxRestarts {limit}"
    )
    if action == "FailJobSet":
        return "the set fails"
    what = "the whole set restarts" if action.startswith("RestartJobSet") else "its job restarts"
    return f"{what}, {counted}"


_EVICTED = "Pod team-a/one has condition DisruptionTarget matching FailJob rule at index 0"  # kubernetes, pod_failure_policy.go
_RESTARTS = ("RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")


def _why_not_restarted(owners: Sequence[Mapping[str, Any]]) -> str:
    job_set = next(owner for owner in owners if owner.get("kind") == KINDS[0].name)
    if action_on_eviction(owners[0]) != "FailJob":
        return "its JobSet would not restart: no podFailurePolicy fails its Job on DisruptionTarget"
    failure = mapping(value_at(job_set, ("spec", "failurePolicy")))
    name = str(value_at(owners[0], ("metadata", "labels", "jobset.sigs.k8s.io/replicatedjob-name")))
    chosen = _action_of_set(failure, name)
    if chosen not in _RESTARTS:
        return f"its JobSet would not restart as a whole: its failurePolicy says {chosen}"
    most, used = failure.get("maxRestarts") or 0, _counted_restarts(job_set)
    if chosen == "RestartJobSet" and used >= most:
        return f"its JobSet would fail: {used} of maxRestarts {most} are used"
    return ""


def _counted_restarts(job_set: Mapping[str, Any]) -> int:
    """The restarts that count against ``maxRestarts``."""
    counted = value_at(job_set, ("status", "restartsCountTowardsMax"), value_at(job_set, ("status", "restarts"), 0))
    return counted if isinstance(counted, int) else 0


def _action_of_set(failure: Mapping[str, Any], name: str) -> str:
    """A JobSet's action when a Job of this name fails by its podFailurePolicy: by default a restart."""
    rules = mappings(failure.get("rules"))
    for rule in rules[:MOST_RULES]:
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        is_for_it = _may_be(reasons, "PodFailurePolicy") and _may_be(targets, name)
        if is_for_it and is_matched(rule.get("onJobFailureMessagePatterns"), _EVICTED):
            return text(rule.get("action"))
    if len(rules) > MOST_RULES:
        return "FailJobSet"  # unknown which one matches
    return "RestartJobSet" if failure else "FailJobSet"


def _may_be(names: Any, name: str) -> bool:
    """Whether a rule's list of names is missing or has the name."""
    return not isinstance(names, list) or not names or name in names


_POLICY = {
    **dict.fromkeys(("maxRestarts", "restartStrategy")),
    "rules": [
        dict.fromkeys(("name", "action", "onJobFailureReasons", "onJobFailureMessagePatterns", "targetReplicatedJobs"))
    ],
}
_STRATEGIES = ("Recreate", "BlockingRecreate", "InPlaceRestart")
_ACTIONS = ("FailJobSet", *_RESTARTS, "RestartJob", "RestartJobAndIgnoreMaxRestarts")
_REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")


def pods_of_set(data: Mapping[str, Any], path: Path) -> int | None:
    """The pods of a replicated job at one time, in all of its Jobs."""
    return product(replicas(data, path[:-2]), pods_of_job(data, path))


def order_of_set(data: Mapping[str, Any], top: str = "spec", count: Count = pods_of_set) -> Order:
    """The replicated jobs of a set: one that depends on others' completion begins after they end.

    Source: jobset v0.12, ``api/jobset/v1alpha2/jobset_types.go``, ``DependsOn``.
    """
    where = (*top.split("."), "replicatedJobs")
    jobs = {str(value_at(data, (*at, "name"))): at for at in matching(data, (*where, "*"))}
    after = {
        name: [
            str(one.get("name"))
            for one in mappings(value_at(data, (*at, "dependsOn")))
            if one.get("status") == "Complete"
        ]
        for name, at in jobs.items()
    }
    calls = calls_after(where, after)
    paths = {name: (*at, "template", "spec", "template") for name, at in jobs.items()}
    return Order({path: [Run((calls[name],), count(data, path))] for name, path in paths.items()})


def retries_of_set(top: str) -> RetryFields:
    """The retry fields of a JobSet's spec at this path.

    Sources: the custom resource definition of jobset v0.12; ``pkg/webhooks/jobset_webhook.go``.
    """
    job, policy = f"{top}.replicatedJobs.*.template", f"{top}.failurePolicy"
    above: dict[str, tuple[str, ...]] = {} if top == "spec" else dict.fromkeys(("spec", "spec.template"), ())
    levels = {top: ("failurePolicy",), f"{top}.replicatedJobs.*": (), job: (), f"{job}.spec": JOB_RETRIES}
    return RetryFields(
        f"{policy}.maxRestarts",
        {**above, **levels, **levels_of_pods(f"{job}.spec.template")},
        {policy: _POLICY, f"{job}.spec.podFailurePolicy": POD_FAILURE_POLICY},
        (
            Words(f"{policy}.restartStrategy", _STRATEGIES),
            Words(f"{policy}.rules.*.action", _ACTIONS),
            Words(f"{policy}.rules.*.onJobFailureReasons.*", _REASONS),
        ),
    )


MECHANISMS = (
    SET_RESTARTS,
    _SET_SEPARATES,
    _SET_UNCOUNTED,
    _SET_FAILS,
    SET_ALONE,
    SET_IN_PLACE,
)
"""The retry mechanisms of JobSets, and of kinds that make one."""

KINDS = (
    Kind(
        group="jobset.x-k8s.io",
        name="JobSet",
        version="v1alpha2",
        place=_place_jobset,
        places=(pods_at("spec.replicatedJobs.*.template.spec.template", job=1, at_once=pods_of_set),),
        order=order_of_set,
        is_gang=True,
        retry=Retry.SET,
        retries=retries_of_set("spec"),
        mechanisms=MECHANISMS,
        reads=Reads.RUNS,
        makes=("Job",),
        is_queued=True,
        why_not_evicted=_why_not_restarted,
        pods_label=SET_LABEL,
        restart_label="jobset.sigs.k8s.io/restart-attempt",
        suspended_by=("spec", "suspend"),
        leads=leads_by_name,
        default_policy="OnFailure",
        page="jobset",
        notes=(
            "A role is `JOBSET/JOB` in `policy.tasks`. A job named leader, driver, coordinator, launcher, master, "
            "chief, head, scheduler or ps stays on on-demand, as does a job that `spec.coordinator` names. The "
            "only job of a set goes to spot.\n"
            "An interrupted job fails at once and the whole set restarts. `maxRestarts` counts interruptions and "
            "errors together; a set of one pod with `errors.retries: 0` fails at an error of the code instead.\n"
            "`timeout` and `pending_timeout` limit each round of the set. All jobs share one place for "
            "checkpoints.\n"
            "`InPlaceRestart` (JobSet 0.11) replaces the lost pod alone. It needs a feature gate and JobSet's "
            "agent in each pod, so Spotwright cannot switch it on; a set that has it stays as it is.\n"
            "torchrun: give the rendezvous a separate job named `leader`, which stays on on-demand."
        ),
        tried=(
            "Seen on JobSet 0.10.1 and Kubernetes 1.35.4: drains, power cuts, taints, notices. `InPlaceRestart` "
            "was read in the source of JobSet 0.12."
        ),
    ),
)
