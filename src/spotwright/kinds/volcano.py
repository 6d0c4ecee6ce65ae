"""Volcano's Job and CronJob (batch.volcano.sh): tasks that run together, with policies for events.

Without a policy, Volcano recreates a deleted pod, uncounted, and leaves a failed one alone, such as after a node's graceful
shutdown, while the other tasks wait for it. So policies restart the Job at an eviction and at the exit codes of a killed pod;
errors of the code keep Volcano's default unless the policy retries them. A Job that may run with fewer pods (``minAvailable``)
restarts only the pod, which Volcano supports since 1.11.

Volcano counts every restart and fails the Job when the count reaches ``maxRetry``, so a ``maxRetry`` of N allows N - 1 restarts.
A task's policies precede the Job's, and within a list the first match wins. Sources: volcano-sh/volcano v1.15.1,
``pkg/controllers/job/job_controller_util.go`` (applyPolicies), ``job_controller_handler.go`` (updatePod, deletePod),
``state/running.go``, ``state/restarting.go``, ``pkg/webhooks/admission/jobs`` (defaults; no event twice, none beside ``*``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spotwright.kinds.job import INTERRUPTED_CODES, KILLED, REFUSED
from spotwright.kinds.kind import (
    Claim,
    Kind,
    Mount,
    RetryFields,
    Sharing,
    Words,
    leads_by_name,
    levels_of_pods,
    pods_at,
    replicas,
)
from spotwright.model.policy import BUILT_IN
from spotwright.placing.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import POD_FACTS, Enforcer, Fact, Mechanism, in_object, nothing, waits
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import POD_FIELDS, TEMPLATE, TEXT, check, refuse_at_template, refuse_misplaced
from spotwright.placing.pods import Placed, Role, place_pod
from spotwright.placing.retries import (
    counted_endings,
    no_interruption_text,
    whole_number,
    write_pod_deadline,
    write_unless_set,
)

__all__ = ["KINDS", "restarts_all"]


_FACTS: Mapping[str, Fact] = {
    **POD_FACTS,
    **waits("Volcano restarts at once"),
    "interruptions.max": in_object("job:maxRetry", "the count that fails the Job; errors count there too"),
    "errors.retries: 0": Fact(Enforcer.KIND, note="Volcano, by default"),
    "errors.retries": in_object("job:maxRetry", "the count that fails the Job; interruptions count there too"),
    "timeout": in_object("pod:activeDeadlineSeconds", "for each pod"),
}

_VOLCANO = Mechanism("", _FACTS)

_VOLCANO_ENDS = Mechanism(
    "its own policy ends the Job",
    {**_FACTS, "interruptions.max": nothing("its own policy ends the Job", is_reported=True)},
)

_VOLCANO_OWN = Mechanism(
    "its own policies decide about errors",
    {
        **_FACTS,
        **dict.fromkeys(("errors.retries: 0", "errors.retries"), nothing("its own policies decide", is_reported=True)),
    },
)


_RUN = "metadata.labels['volcano.sh/job-name']"
_INDEX = "metadata.labels['volcano.sh/task-index']"
_POLICY = {"action": TEXT, "event": TEXT, "events": [TEXT], "exitCode": TEXT, "timeout": TEXT}
_JOB = {
    "policies": [_POLICY],
    "plugins": {},
    "tasks": [{"name": TEXT, "template": TEMPLATE, "policies": [_POLICY]}],
}
_EVICTED, _FAILED, _ANY = "PodEvicted", "PodFailed", "*"
_RESTARTS = ("RestartJob", "RestartTask", "RestartPod", "RestartPartition")
_ERROR = 1  # an exit code that only the code itself returns
_STAYS = "Volcano leaves it as it is, and the other tasks wait for it"
_FROZEN = "only minAvailable, priorityClassName and the replicas of tasks can be changed; create the Job again"
_OF_JOBS = frozenset(
    {"maxRetry", "minAvailable", "minSuccess", "plugins", "policies", "queue", "tasks", "ttlSecondsAfterFinished"}
)
_OF_BOTH = frozenset({"schedulerName", "priorityClassName", "volumes"})  # fields of the Job too


@dataclass(frozen=True, slots=True)
class _Task:
    """One task of a Job: its path, its name, and the decisions for its pods."""

    at: Path
    name: str
    placed: Placed


def _place_job(ctx: PlaceContext) -> None:
    _job_at(ctx, ctx.at("spec"))


def _place_cron_job(ctx: PlaceContext) -> None:
    at = ctx.at("spec", "jobTemplate", "spec")
    refuse_misplaced(ctx, ctx.at("spec"), at, _OF_JOBS)
    _job_at(ctx, at)
    for role in ctx.roles:
        role.frozen = "everything can be changed; a change applies to the Jobs that are created afterwards"


def _job_at(ctx: PlaceContext, at: Path) -> None:
    """Place the Job whose spec is at ``at``."""
    tasks = ctx.editor.get((*at, "tasks"))
    if not isinstance(tasks, list) or not tasks:
        raise ctx.problem(at, "expected a Job of Volcano with tasks")
    check(ctx, at, _JOB)
    first = (*at, "tasks", 0, "template", "spec")
    refuse_misplaced(ctx, at, first, POD_FIELDS, _OF_BOTH)
    members = [_place_task(ctx, at, index, len(tasks)) for index in range(len(tasks))]
    spot = [task for task in members if task.placed.on_spot]
    if not spot:
        return
    if not ctx.writes(Group.RETRIES):
        for task in spot:
            task.placed.report.after_interruption = RETRIES_STAY
        return
    _settle(ctx, at, tasks, spot)
    for task in members:
        write_pod_deadline(ctx, (*task.at, "template", "spec"), task.name, task.placed.policy)


def _place_task(ctx: PlaceContext, at: Path, index: int, count: int) -> _Task:
    path = (*at, "tasks", index)
    template = (*path, "template")
    name = str(ctx.editor.get((*path, "name")) or f"task-{index}")
    refuse_misplaced(ctx, path, (*template, "spec"), POD_FIELDS)
    refuse_misplaced(ctx, path, at, _OF_JOBS - {"maxRetry", "minAvailable", "policies"})
    refuse_at_template(ctx, template)
    reason = "the other tasks depend on it" if count > 1 and _leads(ctx, at, name) else ""
    replicas = whole_number(ctx.editor.get((*path, "replicas")), 1)
    index_of_pod = _INDEX if replicas != 1 else ""
    role = Role(
        name,
        f"{ctx.name}/{name.lower()}",
        (*template, "spec"),
        template,
        reason,
        work=ctx.name,
        run=_RUN,
        index=index_of_pod,
    )
    placed = place_pod(ctx, role)
    placed.report.frozen = _FROZEN
    placed.report.mechanism = _VOLCANO
    placed.report.anchor("job", ctx.editor, at)
    placed.report.after_interruption = "" if placed.on_spot else no_interruption_text(placed.policy)
    return _Task(path, name, placed)


def _leads(ctx: PlaceContext, at: Path, name: str) -> bool:
    """Whether other tasks depend on a task: by its name, or because a plugin of the Job names it as the master."""
    plugins = ctx.editor.get((*at, "plugins")) or {}
    arguments = [str(one) for given in plugins.values() if isinstance(given, list) for one in given]
    named = any(argument.lstrip("-") in (f"master={name}", f"ps={name}", f"chief={name}") for argument in arguments)
    return named or leads_by_name(name)


def _settle(ctx: PlaceContext, at: Path, tasks: Sequence[Any], spot: Sequence[_Task]) -> None:
    """Write the Job's policies and its limit of restarts, and report the effect of an interruption on each task."""
    action = "RestartPod" if _may_run_with_fewer(ctx, at, tasks) else "RestartJob"
    own = [task for task in spot if _own_action(ctx, task.at) or _own_action(ctx, at)]
    if len(own) < len(spot):
        _write_policies(ctx, at, action, retries=max(task.placed.policy.retries for task in spot))
    elif ctx.options.has_webhook:
        _refuse(ctx, at)
    limit = _settle_limit(ctx, at, spot)
    for task in spot:
        _report(ctx, at, task, limit, action)
    paths = {task.at: task for task in spot}
    for index, text in restarts_all(ctx.editor.get(at)):
        found = paths.get((*at, "tasks", index))
        if found is not None:
            ctx.add_finding(Level.WARNING, (*found.at, "name"), f"{found.name}: {text}")


def _report(ctx: PlaceContext, at: Path, task: _Task, limit: Any, restart: str) -> None:
    """Report the effect of an interruption on a task under the present policies, and their gaps.

    A deleted pod counts as evicted; one killed by its node's shutdown stays, with exit code 137 or 143.
    """
    evicted = _action(ctx, at, task, _EVICTED)
    killed = {code: _action(ctx, at, task, _FAILED, code) for code in KILLED}
    text = _what_happens(evicted, limit) or "a pod that is deleted is created again, uncounted"
    if set(killed.values()) != {evicted}:
        parts = [f"after exit code {code}: {_what_happens(one, limit) or _STAYS}" for code, one in killed.items()]
        if len(set(killed.values())) == 1:
            parts = [
                f"after exit codes {KILLED[0]} and {KILLED[1]}: {_what_happens(killed[KILLED[0]], limit) or _STAYS}"
            ]
        text = "; ".join([f"after an eviction: {text}", *parts])
    task.placed.report.after_interruption = text
    ending = next((one for one in (evicted, *killed.values()) if one and one not in _RESTARTS), "")
    if ending:
        task.placed.report.mechanism = _VOLCANO_ENDS
        text = f"{task.name}: its own policy with action {ending} stays: an interruption ends the Job; write {restart}"
        ctx.add_finding(Level.WARNING, (*task.at, "name"), text)
    left = [str(code) for code, one in killed.items() if not one]
    if left:
        text = f"{task.name}: no policy is for exit code {' or '.join(left)}, with which a node's shutdown leaves a pod: {_STAYS}"
        wanted = evicted if evicted in _RESTARTS else restart
        ctx.add_finding(
            Level.WARNING, (*task.at, "name"), f"{text}; write action {wanted} for exitCode {' and '.join(left)}"
        )


def _action(ctx: PlaceContext, at: Path, task: _Task, event: str, code: int | None = None) -> str:
    """The action for an event and an exit code of a task's pod; empty without a policy.

    The task's policies precede the Job's, and the first match wins.
    """
    return _action_in((ctx.editor.get(task.at), ctx.editor.get(at)), event, code)


def _action_in(holders: Sequence[Any], event: str, code: int | None = None) -> str:
    for holder in holders:
        for policy in _policies_in(holder):
            if _events(policy) & {event, _ANY} or (code is not None and policy.get("exitCode") == code):
                return str(policy.get("action"))
    return ""


def restarts_all(spec: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The tasks whose pods all restart after one is lost, though fewer would do, each with a sentence."""
    tasks = [one for one in _list(spec.get("tasks")) if isinstance(one, dict)]
    if not _runs_with_fewer(spec.get("minAvailable"), tasks):
        return
    for index, task in enumerate(tasks):
        count = whole_number(task.get("replicas"), 1) or 0
        actions = [_action_in((task, spec), _EVICTED), *(_action_in((task, spec), _FAILED, code) for code in KILLED)]
        action = next((one for one in actions if one in ("RestartJob", "RestartTask")), "")
        if action and count > 1:
            text = f"one lost pod restarts all {count} pods ({action}), and the Job may run with {spec.get('minAvailable')}"
            yield index, f"{text}: RestartPod makes it alone again (Volcano 1.11)"


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _may_run_with_fewer(ctx: PlaceContext, at: Path, tasks: Sequence[Any]) -> bool:
    """Whether the Job continues while pods are missing: it has more than the number that it states to need."""
    return _runs_with_fewer(ctx.editor.get((*at, "minAvailable")), tasks)


def _runs_with_fewer(given: Any, tasks: Sequence[Any]) -> bool:
    needed = whole_number(given)
    pods = [whole_number(task.get("replicas"), 1) if isinstance(task, dict) else None for task in tasks]
    known = [count for count in pods if count is not None]
    return needed is not None and len(known) == len(pods) and 0 < needed < sum(known)


def _policies(ctx: PlaceContext, at: Path) -> Iterator[Mapping[str, Any]]:
    return _policies_in(ctx.editor.get(at))


def _policies_in(holder: Any) -> Iterator[Mapping[str, Any]]:
    yield from (one for one in _list(value_at(holder, ("policies",))) if isinstance(one, dict))


def _events(policy: Mapping[str, Any]) -> set[str]:
    return {str(event) for event in (policy.get("event"), *(policy.get("events") or ())) if event}


def _own_action(ctx: PlaceContext, at: Path) -> str:
    """The action of the first policy for an eviction at the Job or a task, or empty."""
    return next((str(one.get("action")) for one in _policies(ctx, at) if _events(one) & {_EVICTED, _ANY}), "")


def _write_policies(ctx: PlaceContext, at: Path, action: str, retries: int) -> None:
    """Add a policy for each uncovered event and exit code of an interruption, after the user's."""
    events = {event for one in _policies(ctx, at) for event in _events(one)}
    codes = {one.get("exitCode") for one in _policies(ctx, at)}
    if _ANY in events:
        return
    added: list[dict[str, Any]] = []
    if ctx.options.has_webhook and REFUSED not in codes and _FAILED not in events:
        added.append({"exitCode": REFUSED, "action": "TerminateJob"})
    if retries and _FAILED not in events:
        if _EVICTED not in events:
            added.append({"events": [_EVICTED, _FAILED], "action": action})
        else:
            added.append({"event": _FAILED, "action": action})
    else:
        added += [
            {"exitCode": code, "action": action}
            for code in INTERRUPTED_CODES
            if code not in codes and _FAILED not in events
        ]
        added += [{"event": _EVICTED, "action": action}] if _EVICTED not in events else []
    ctx.editor.extend((*at, "policies"), added)


def _refuse(ctx: PlaceContext, at: Path) -> None:
    """Make a refused pod end the Job, despite the user's policies that restart it."""
    if not any(one.get("exitCode") == REFUSED for one in _policies(ctx, at)):
        rest = list(_policies(ctx, at))
        rule = {"exitCode": REFUSED, "action": "TerminateJob"}
        if rest:
            ctx.editor.replace((*at, "policies"), [rule, *rest])
        else:
            ctx.editor.extend((*at, "policies"), [rule])


def _settle_limit(ctx: PlaceContext, at: Path, spot: Sequence[_Task]) -> Any:
    """Write ``maxRetry``: one more than the restarts that the largest budgets of the tasks allow."""
    policy = max((task.placed.policy for task in spot), key=lambda one: one.max_interruptions + one.retries)
    restarts = counted_endings(policy, is_refused=ctx.options.has_webhook)
    retried = _settle_errors(ctx, at, spot)
    path = (*at, "maxRetry")
    in_force = write_unless_set(ctx, path, restarts + 1)
    if in_force != restarts + 1:
        text = f"maxRetry {in_force} stays, which allows one restart less; the policy allows {restarts} (--replace-retries)"
        ctx.add_finding(Level.WARNING, path, f"{text}; interruptions and errors count there")
        return in_force
    if ctx.options.has_webhook:
        return in_force
    if retried:
        text = f"maxRetry {in_force} allows {restarts} restarts: interruptions ({policy.max_interruptions}) and errors"
        ctx.add_finding(
            Level.WARNING, path, f"{text} ({policy.retries}) together, so an error of the code is retried as often"
        )
        return in_force
    codes = [code for code in KILLED if any(_action(ctx, at, task, _FAILED, code) in _RESTARTS for task in spot)]
    killed = f" and exit codes {' and '.join(map(str, codes))} (killed, out of memory)" if codes else ""
    text = f"maxRetry {in_force} allows {restarts} restarts, after interruptions{killed}"
    ctx.add_finding(Level.NOTE, path, f"{text}; another error of the code causes no restart")
    return in_force


def _settle_errors(ctx: PlaceContext, at: Path, spot: Sequence[_Task]) -> bool:
    """Whether an error of the code restarts something; reports the user's policies that contradict the request."""
    restarted = False
    for task in spot:
        action = _action(ctx, at, task, _FAILED, _ERROR)
        is_restarted = action in _RESTARTS
        restarted |= is_restarted
        retries = task.placed.policy.retries
        if is_restarted and not retries:
            text = f"{task.name}: its own policy for failed pods ({action}) stays: an error of the code is retried, too, though"
            text += f" errors.retries is 0 ({task.placed.policy.sources.get('errors.retries', BUILT_IN.source)})"
        elif retries and not is_restarted:
            text = f"{task.name}: its own policies stay, and none of them restarts after an error, so errors.retries {retries}"
            text += " has no effect"
        else:
            continue
        task.placed.report.mechanism = _VOLCANO_OWN
        ctx.add_finding(Level.WARNING, (*task.at, "name"), text)
    return restarted


def _what_happens(action: str, limit: Any) -> str:
    """The effect of an interruption under a policy with this action; empty without a policy."""
    if not action:
        return ""
    what = {
        "RestartJob": "the whole Job restarts",
        "RestartTask": "all pods of its task restart, the other tasks go on",
        "RestartPod": "the pod is created again, the others go on",
        "RestartPartition": "the pods of its partition restart, the others go on",
    }.get(action)
    if what is None:
        return f"the Job ends (its own policy: {action})"
    return f"{what}, counted against maxRetry {limit}, which fails the Job when the count reaches it"


_POLICIES = [dict.fromkeys(("action", "event", "events", "exitCode", "timeout"))]
_EVENTS = (
    *("*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed"),
    *("OutOfSync", "CommandIssued", "JobUpdated"),
)
_ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob"),
    *("CompleteJob", "ResumeJob", "SyncJob", "EnqueueJob"),
)


def _retries(top: str) -> RetryFields:
    """The retry fields of a Job spec at this path.

    Sources: the custom resource definitions of volcano v1.15; ``pkg/apis/bus/v1alpha1/actions.go``.
    """
    above: dict[str, tuple[str, ...]] = {} if top == "spec" else {"spec": ()}
    levels = dict.fromkeys((top, f"{top}.tasks.*"), ("maxRetry", "policies"))
    policies = (f"{top}.policies", f"{top}.tasks.*.policies")
    words = (("event", _EVENTS), ("events.*", _EVENTS), ("action", _ACTIONS))
    return RetryFields(
        f"{top}.maxRetry",
        {**above, **levels, **levels_of_pods(f"{top}.tasks.*.template")},
        dict.fromkeys(policies, _POLICIES),
        tuple(Words(f"{policy}.*.{field}", values) for policy in policies for field, values in words),
    )


def _claims(data: Mapping[str, Any], path: Path) -> Iterator[Claim]:
    """The volumes of a Job, which all its pods mount: claims that it names, or that are made for it.

    Source: volcano-sh/volcano, ``pkg/controllers/job/job_controller_actions.go``, ``createJobIOIfNotExist``.
    """
    top = path[: path.index("tasks")]
    volumes = value_at(data, (*top, "volumes"))
    for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        at, mount = (*top, "volumes", index), Mount(str(value_at(volume, ("mountPath",))))
        name, own = value_at(volume, ("volumeClaimName",)), value_at(volume, ("volumeClaim",))
        if isinstance(name, str) and name:
            yield Claim(name, (*at, "volumeClaimName"), mounts=(mount,))
        elif isinstance(own, dict):
            yield Claim(f"volumes[{index}]", (*at, "volumeClaim"), Sharing.OBJECT, own, mounts=(mount,))


_kind = partial(
    Kind,
    claims=_claims,
    group="batch.volcano.sh",
    version="v1alpha1",
    is_gang=True,
    leads=leads_by_name,
    mechanisms=(_VOLCANO, _VOLCANO_ENDS, _VOLCANO_OWN),
)

KINDS = (
    _kind(
        name="Job",
        place=_place_job,
        retries=_retries("spec"),
        places=(pods_at("spec.tasks.*.template", at_once=replicas),),
        page="volcanojob",
        notes=(
            "A task stays on on-demand if a plugin names it (`--master=boss`) or its name says so (`master`, "
            "`ps`, `launcher`, `chief`, `driver`, `head`). A task is `JOB/TASK` in `policy.tasks`.\n"
            "Policies are added that restart the Job at an eviction and at exit codes 137, 143 and 255; with "
            "`errors.retries` at every failed pod. A Job with `minAvailable` below its pods restarts only the pod "
            "(Volcano 1.11).\n"
            "Volcano fails a Job when the restarts *reach* `maxRetry`, so that is one more than both budgets "
            "together.\n"
            "Your own policies come first; beside one for `*` none is added, because Volcano refuses that. "
            "`timeout` bounds each pod.\n"
            "The controller places the Job, but does not record it as a run."
        ),
        tried=("Read in the source of Volcano 1.15.1 and checked against its schema. Its controller was not run."),
    ),
    _kind(
        name="CronJob",
        page="volcanojob",
        place=_place_cron_job,
        notes=("Job and CronJob share their names with Kubernetes' kinds; the group distinguishes them."),
        may_change=True,
        retries=_retries("spec.jobTemplate.spec"),
        places=(pods_at("spec.jobTemplate.spec.tasks.*.template", at_once=replicas),),
    ),
)
