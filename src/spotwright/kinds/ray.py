"""Ray on Kubernetes (KubeRay): RayCluster, RayJob and RayCronJob, and a RayService with its own policy.

The head holds the state of the cluster (GCS), so it stays on on-demand; the worker groups follow the policy. KubeRay recreates
a lost worker from the same template, uncounted, and Ray reruns its tasks. A failed RayJob is retried on a new RayCluster, at
most ``backoffLimit`` times; each try has the whole ``activeDeadlineSeconds``. Sources: ray-project/kuberay v1.7.0,
``ray-operator/controllers/ray/rayjob_controller.go``, ``utils/validation.go``; Ray, "GCS fault tolerance in KubeRay", "KubeRay
label-based scheduling", "Use labels to control scheduling" (market types).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from spotwright.kinds.kind import (
    Kind,
    PodPlace,
    Reads,
    RetryFields,
    levels_of_pods,
    number_at,
    one_pod,
    pods_at,
    product,
)
from spotwright.kinds.services import SERVES, leave_unchanged
from spotwright.placing.context import RETRIES_STAY, Group, Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import POD_FACTS, Fact, Mechanism, in_object, nothing, waits
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import POD_FIELDS, TEMPLATE, TEXT, check, refuse_at_template, refuse_misplaced
from spotwright.placing.pods import Placed, PodRole, Role, place_pod
from spotwright.placing.retries import counting_text, no_interruption_text, whole_number, write_unless_set

__all__ = ["KINDS", "market_type"]


_RAY: Mapping[str, Fact] = {
    **POD_FACTS,
    **waits("KubeRay creates pods again at once"),
    "interruptions.max": nothing("KubeRay does not count lost workers"),
    "errors.retries": nothing("Ray runs failed tasks again, by their max_retries"),
    "fall_back_after": nothing("KubeRay creates workers from one template", is_reported=True),
}
_TRIES = "each on a new RayCluster"

_RAY_CLUSTER = Mechanism("", _RAY)

_RAY_JOB = Mechanism(
    "",
    {
        **_RAY,
        "interruptions.max": in_object("job:backoffLimit", f"{_TRIES}; errors count there too"),
        "errors.retries": in_object("job:backoffLimit", f"{_TRIES}; interruptions count there too"),
        "timeout": in_object("job:activeDeadlineSeconds", "for each try, with pending_timeout"),
    },
)


_HEAD = "it holds the state of the cluster (GCS): without it, all work of the cluster is lost"
_SUBMITTER = "it waits for the end of the job, and few retries are its own"
_CLUSTER_LABEL = "metadata.labels['ray.io/cluster']"
_MARKET, _VARIABLE = "ray.io/market-type", "RAY_NODE_MARKET_TYPE"
_OF_RAY_START = re.compile(
    r"""ray\.io/market-type["']?\s*[=:]\s*["']?([\w-]+)"""
)  # KEY=VALUE, or JSON as before Ray 2.49
_GROUP = {"template": TEMPLATE, "rayStartParams": {}, "labels": {}}
_CLUSTER = {
    "headGroupSpec": _GROUP,
    "workerGroupSpecs": [{**_GROUP, "groupName": TEXT}],
    "gcsFaultToleranceOptions": {},
}
_OF_JOBS = frozenset({"activeDeadlineSeconds", "backoffLimit", "entrypoint", "shutdownAfterJobFinishes"})
_ELASTIC = "kueue.x-k8s.io/elastic-job"
_GCS = (
    "gcsFaultToleranceOptions keeps the state of the cluster in Redis, which Ray recommends for Serve alone; other work is "
    "lost with the head"
)
_AGAIN = "KubeRay creates the pod again, and Ray runs its tasks again (actors by their max_restarts)"
_UNCOUNTED = "retries are not counted"
_FROZEN = "everything can be changed; KubeRay uses a changed template for new pods, and others stay as they are"
_FROZEN_JOB = "a changed rayClusterSpec is used for the next RayCluster, so create the RayJob again"


def _place_cluster(ctx: PlaceContext) -> None:
    members = _place_groups(ctx, ctx.at("spec"), _CLUSTER_LABEL)
    for placed in members:
        placed.report.frozen = _FROZEN
        if placed.on_spot:
            placed.report.after_interruption = f"{_AGAIN}; {_UNCOUNTED}"
    _warn_of_no_fallback(ctx, ctx.at("spec"), members)


def _place_job(ctx: PlaceContext) -> None:
    _job_at(ctx, ctx.at("spec"))


def _place_cron_job(ctx: PlaceContext) -> None:
    _job_at(ctx, ctx.at("spec", "jobTemplate"))


def _job_at(ctx: PlaceContext, at: Path) -> None:
    """Place the RayJob whose spec is at ``at``."""
    cluster = (*at, "rayClusterSpec")
    refuse_misplaced(ctx, at, (*cluster, "workerGroupSpecs", 0, "template", "spec"), POD_FIELDS)
    refuse_misplaced(ctx, at, cluster, {"headGroupSpec", "workerGroupSpecs", "enableInTreeAutoscaling"})
    refuse_misplaced(ctx, cluster, at, _OF_JOBS)
    if ctx.editor.get(cluster) is None:
        text = "the job runs on the RayCluster of its clusterSelector, so it is not placed here: place that RayCluster"
        ctx.add_finding(Level.WARNING, (*at, "clusterSelector"), text)
        return
    members = _place_groups(ctx, cluster, _run_of(ctx))
    submitter = (*at, "submitterPodTemplate")
    if ctx.editor.get(submitter) is not None:
        check(ctx, submitter, TEMPLATE)
        members.append(_place_role(ctx, "submitter", submitter, _run_of(ctx), _SUBMITTER))
    spot = [placed for placed in members if placed.on_spot]
    if spot:
        retried = _settle_retries(ctx, at, spot) if ctx.writes(Group.RETRIES) else RETRIES_STAY
        over = ", and starts over" if _run_of(ctx) == _CLUSTER_LABEL else ""
        for placed in spot:
            placed.report.after_interruption = f"{_AGAIN}; {retried}{over}"
        _warn_of_starting_over(ctx, at, spot)
        _warn_of_no_fallback(ctx, cluster, members)
    for placed in members:
        placed.report.frozen = _FROZEN_JOB
        placed.report.mechanism = _RAY_JOB
        placed.report.anchor("job", ctx.editor, at)
    _check_end(ctx, at)


def _run_of(ctx: PlaceContext) -> str:
    """The run of a RayJob's pods: its name, because each retry's RayCluster has a new name."""
    name = ctx.get("metadata", "name")
    return str(name) if name and ctx.get("kind") == "RayJob" else _CLUSTER_LABEL


def _warn_of_starting_over(ctx: PlaceContext, at: Path, spot: list[Placed]) -> None:
    """Report a RayJob whose retry cannot find the checkpoints of the try before, because its run is the RayCluster.

    It is a warning if the policy names a place for checkpoints.
    """
    if _run_of(ctx) != _CLUSTER_LABEL:
        return
    has_name = ctx.get("kind") == "RayCronJob"
    why = "a RayCronJob" if has_name else "a RayJob without metadata.name"
    way = "let the code name its place for checkpoints itself" if has_name else "replace generateName by metadata.name"
    text = (
        f"a new try starts over: SPOTWRIGHT_RUN of {why} is the name of its RayCluster, and each try has a new one, with an "
        f"empty place for checkpoints; {way}"
    )
    level = Level.WARNING if any(placed.policy.checkpoint for placed in spot) else Level.NOTE
    ctx.add_finding(level, at, text)


def _place_service(ctx: PlaceContext) -> None:
    """Place a RayService whose own label or annotation sets a policy; others stay on on-demand."""
    if not ctx.has_own_policy:
        leave_unchanged(ctx)
        return
    cluster = ctx.at("spec", "rayClusterConfig")
    members = _place_groups(ctx, cluster, _CLUSTER_LABEL, PodRole.SERVING)
    for placed in members:
        placed.report.frozen = "everything can be changed; KubeRay makes a new RayCluster and moves the requests to it"
        if placed.on_spot:
            placed.report.after_interruption = f"{_AGAIN}; requests in progress fail; {_UNCOUNTED}"
    if any(placed.on_spot for placed in members):
        text = "it serves requests: keep a worker group on on-demand that can carry them, and at least two replicas of each"
        ctx.add_finding(Level.WARNING, ctx.at("kind"), f"RayService {ctx.name}: {text}")
        if ctx.editor.get((*cluster, "gcsFaultToleranceOptions")) is None:
            text = (
                "without gcsFaultToleranceOptions the service is down while a lost head is replaced, whatever its node"
            )
            ctx.add_finding(Level.WARNING, cluster, text)


def _place_groups(ctx: PlaceContext, at: Path, run: str, duty: PodRole = PodRole.WORKER) -> list[Placed]:
    """Place the head and the worker groups of the cluster spec at ``at``, and report what the operator refuses.

    ``duty`` is the worker groups'.
    """
    if not isinstance(ctx.editor.get((*at, "headGroupSpec")), dict):
        raise ctx.problem(at, "expected a cluster with a headGroupSpec")
    check(ctx, at, _CLUSTER)
    groups = ctx.editor.get((*at, "workerGroupSpecs")) or ()
    first = (*at, "workerGroupSpecs", 0) if groups else (*at, "headGroupSpec")
    refuse_misplaced(ctx, at, (*first, "template", "spec"), POD_FIELDS)
    head = _place_group(ctx, "head", (*at, "headGroupSpec"), run, _HEAD, PodRole.COORDINATOR)
    workers = [
        _place_group(
            ctx, str(group.get("groupName") or f"workers-{index}"), (*at, "workerGroupSpecs", index), run, duty=duty
        )
        for index, group in enumerate(groups)
    ]
    _check_head(ctx, at, head, workers)
    _check_autoscaling(ctx, at, len(workers))
    return [head, *workers]


def _place_group(
    ctx: PlaceContext, name: str, at: Path, run: str, reason: str = "", duty: PodRole = PodRole.WORKER
) -> Placed:
    template = (*at, "template")
    refuse_misplaced(ctx, at, (*template, "spec"), POD_FIELDS)
    market, where = market_type(ctx.editor.get(at) or {})
    if market == "on-demand":
        reason = reason or f"its {_MARKET} is on-demand, by which Ray gives it tasks"
    placed = _place_role(ctx, name, template, run, reason, duty)
    _check_market(ctx, placed, market, (*at, *where))
    return placed


def market_type(group: Mapping[str, Any]) -> tuple[str, Path]:
    """The market type by which Ray assigns tasks to a group (``spot`` or ``on-demand``), and its path in the group's spec.

    Neither Ray nor KubeRay places pods by it: the label only informs Ray's scheduler. Both are empty without a market type.
    """
    label = value_at(group, ("labels", _MARKET))
    if label:
        return str(label).lower(), ("labels", _MARKET)
    found = _OF_RAY_START.search(str(value_at(group, ("rayStartParams", "labels"), "")))
    if found is not None:
        return found[1].lower(), ("rayStartParams", "labels")
    containers: Path = ("template", "spec", "containers")
    for index, container in enumerate(value_at(group, containers) or ()):
        for number, variable in enumerate(value_at(container, ("env",)) or ()):
            if value_at(variable, ("name",)) == _VARIABLE:
                return str(value_at(variable, ("value",), "")).lower(), (*containers, index, "env", number)
    return "", ()


def _check_market(ctx: PlaceContext, placed: Placed, market: str, path: Path) -> None:
    """Report a group that its market type keeps on on-demand, and one whose nodes belong to another market."""
    if placed.policy.spot is None or not market:
        return
    name, source = placed.report.name, placed.policy.sources["spot"]
    if placed.report.on_demand_reason and market == "on-demand":
        text = f"{name}: kept on on-demand, because Ray gives it the tasks that ask for on-demand nodes by this"
        ctx.add_finding(Level.NOTE, path, text)
    elif market == "on-demand" and placed.on_spot:
        text = f"{name}: it is on spot ({source}), and Ray gives it the tasks that ask for on-demand nodes by this: correct it"
        ctx.add_finding(Level.WARNING, path, text)
    elif market == "spot" and not placed.on_spot:
        text = f"{name}: it is on on-demand ({source}), and Ray gives it the tasks that ask for spot nodes by this: correct it"
        ctx.add_finding(Level.WARNING, path, text)


def _place_role(
    ctx: PlaceContext, name: str, template: Path, run: str, reason: str, duty: PodRole = PodRole.COORDINATOR
) -> Placed:
    refuse_at_template(ctx, template)
    role = Role(
        name,
        f"{ctx.name}/{name.lower()}",
        (*template, "spec"),
        template,
        reason,
        work=ctx.name,
        run=run,
        is_pinned=bool(reason),
        duty=duty,
    )
    placed = place_pod(ctx, role)
    placed.report.mechanism = _RAY_CLUSTER
    placed.report.after_interruption = "" if placed.on_spot else no_interruption_text(placed.policy)
    return placed


def _check_head(ctx: PlaceContext, at: Path, head: Placed, workers: list[Placed]) -> None:
    """Warn of a head that policy.tasks puts on spot, and of tasks that the head would run itself."""
    path = (*at, "headGroupSpec")
    if head.on_spot:
        protected = ctx.editor.get((*at, "gcsFaultToleranceOptions")) is not None
        text = _GCS if protected else f"and it has no fault tolerance: {_GCS}"
        ctx.add_finding(Level.WARNING, path, f"head: it is on spot ({head.policy.sources['spot']}), {text}")
    elif any(worker.on_spot for worker in workers):
        given = (ctx.editor.get((*path, "rayStartParams")) or {}).get("num-cpus")
        if str(given) != "0":
            text = (
                'head: Ray also runs tasks on it, where they compete with the GCS: set rayStartParams: {num-cpus: "0"}'
            )
            ctx.add_finding(Level.NOTE, path, text)


def _check_autoscaling(ctx: PlaceContext, at: Path, count: int) -> None:
    """Warn of settings that are incompatible with Ray's autoscaler."""
    if ctx.editor.get((*at, "enableInTreeAutoscaling")) is not True:
        return
    for index in range(count):
        path = (*at, "workerGroupSpecs", index, "template", "spec", "restartPolicy")
        if ctx.editor.get(path) not in (None, "Never"):
            text = "Ray's autoscaler needs worker pods that do not restart in place: set restartPolicy to Never, or remove it"
            ctx.add_finding(Level.WARNING, path, text)
    if ctx.queue and str(ctx.get("metadata", "annotations", _ELASTIC)) != "true":
        text = f'Kueue admits a cluster with Ray\'s autoscaler only as an elastic job: annotate it {_ELASTIC}: "true"'
        ctx.add_finding(Level.WARNING, (*at, "enableInTreeAutoscaling"), text)


def _warn_of_no_fallback(ctx: PlaceContext, at: Path, members: list[Placed]) -> None:
    """Warn once that workers do not fall back to on-demand, and how to keep some there."""
    preferring = [placed for placed in members if placed.on_spot and _has_both(placed)]
    if preferring:
        names = ", ".join(placed.report.name for placed in preferring)
        text = f"{names}: KubeRay creates lost workers again from the same template, so fall_back_after has no effect; a separate"
        text += f" worker group with spot: never in policy.tasks ({ctx.name}/GROUP) keeps a part on on-demand"
        ctx.add_finding(Level.WARNING, (*at, "workerGroupSpecs"), text)


def _has_both(placed: Placed) -> bool:
    return {rung.spot for rung in placed.ladder.rungs} == {True, False}


def _settle_retries(ctx: PlaceContext, at: Path, spot: list[Placed]) -> str:
    """Write a RayJob's retry limit and the deadline of a try; returns the effect of a failure."""
    for problem in _refused_retries(ctx, at):
        ctx.add_finding(Level.WARNING, at, f"{problem}, so a job that fails after an interruption is not tried again")
        return "if the job fails by it, the job is not tried again"
    policy = max((placed.policy for placed in spot), key=lambda p: (p.max_interruptions + p.retries, p.timeout or 0))
    total, path = policy.max_interruptions + policy.retries, (*at, "backoffLimit")
    in_force = write_unless_set(ctx, path, total)
    text = f"{counting_text('backoffLimit', policy)}; each retry is a new RayCluster"
    if in_force != total:
        text = f"backoffLimit {in_force} stays; the policy allows {total} (--replace-retries); it counts interruptions and errors"
    ctx.add_finding(Level.WARNING, path, text)
    deadline = (*at, "activeDeadlineSeconds")
    if policy.timeout is not None and ctx.editor.get(deadline) is None:
        ctx.editor.add(deadline, math.ceil(policy.timeout + policy.pending_timeout))
    return f"if the job fails by it, it starts again on a new RayCluster, counted, with errors, against backoffLimit {in_force}"


def _refused_retries(ctx: PlaceContext, at: Path) -> Iterator[str]:
    """Why the API server or the operator would refuse a backoffLimit."""
    if str(ctx.get("apiVersion")) == "ray.io/v1alpha1":
        yield "ray.io/v1alpha1 has no backoffLimit (write ray.io/v1)"
    if ctx.editor.get((*at, "submissionMode")) == "InteractiveMode":
        yield "KubeRay takes no backoffLimit in InteractiveMode"


def _check_end(ctx: PlaceContext, at: Path) -> None:
    """Report a RayJob whose cluster outlives it."""
    if ctx.editor.get((*at, "shutdownAfterJobFinishes")) is True or ctx.editor.get((*at, "deletionStrategy")):
        return
    if ctx.queue:
        text = "Kueue needs shutdownAfterJobFinishes: true: the cluster keeps its quota otherwise"
        ctx.add_finding(Level.WARNING, at, text)
    else:
        text = "its RayCluster keeps its nodes after the job's end: set shutdownAfterJobFinishes: true"
        ctx.add_finding(Level.NOTE, at, text)


def _pods_of_group(data: Mapping[str, Any], path: Path) -> int | None:
    """The pods of a worker group at one time; with Ray's autoscaler, its maximum.

    Source: ray-project/kuberay, ``apis/ray/v1/raycluster_types.go``.
    """
    group, cluster = path[:-1], path[:-3]
    if value_at(data, (*cluster, "enableInTreeAutoscaling")) is True:
        pods = whole_number(value_at(data, (*group, "maxReplicas")))
    else:
        pods = number_at(data, (*group, "replicas"), 0)
    return product(pods, number_at(data, (*group, "numOfHosts")))


def _pods(prefix: str, workers: PodRole = PodRole.WORKER) -> tuple[PodPlace, ...]:
    return (
        pods_at(f"{prefix}.headGroupSpec.template", duty=PodRole.COORDINATOR, at_once=one_pod),
        pods_at(f"{prefix}.workerGroupSpecs.*.template", duty=workers, at_once=_pods_of_group),
    )


_GROUPS = ("spec.rayClusterSpec.headGroupSpec", "spec.rayClusterSpec.workerGroupSpecs.*")
_RETRIES = RetryFields(
    "spec.backoffLimit",
    {
        "spec": ("backoffLimit",),
        **dict.fromkeys(("spec.rayClusterSpec", *_GROUPS), ()),
        **{at: () for group in _GROUPS for at in levels_of_pods(f"{group}.template")},
        **levels_of_pods("spec.submitterPodTemplate"),
    },
    {"spec.submitterConfig": {"backoffLimit": None}},
)

_kind = partial(Kind, group="ray.io", version="v1", reads=Reads.OBJECTS, is_queued=True)

KINDS = (
    _kind(
        name="RayCluster",
        more_versions=("v1alpha1",),
        takes_any_version=True,
        place=_place_cluster,
        places=_pods("spec"),
        mechanisms=(_RAY_CLUSTER,),
        page="raycluster",
        notes=(
            "The head holds the state of the cluster and stays on on-demand; worker groups follow the policy as "
            "`CLUSTER/GROUP`. Only `policy.tasks` can move the head.\n"
            "A group whose Ray market type is `on-demand` stays on on-demand.\n"
            "KubeRay does not count lost workers, so `interruptions.max` has no effect and workers do not fall "
            "back. Keep part of them on on-demand with a second group and `spot: never`.\n"
            'Ray repeats lost tasks by `max_retries` and actors by `max_restarts`. Set `num-cpus: "0"` on the '
            "head, so that it runs no tasks."
        ),
        tried=(
            "Read in the source of KubeRay 1.7.0 and checked against its schemas, also by the API server 1.35.4 "
            "(dry run). Its operator was not run."
        ),
    ),
    _kind(
        name="RayJob",
        takes_any_version=True,
        place=_place_job,
        places=(
            *_pods("spec.rayClusterSpec"),
            pods_at("spec.submitterPodTemplate", duty=PodRole.COORDINATOR, at_once=one_pod),
        ),
        mechanisms=(_RAY_JOB,),
        page="rayjob",
        notes=(
            "The workers go to spot; the head and the submitter stay on on-demand. A RayJob with a "
            "`clusterSelector` has no pods: place its RayCluster.\n"
            "If the job fails, KubeRay starts it again on a new RayCluster, at most `backoffLimit` times, which "
            "counts interruptions and errors together. `activeDeadlineSeconds` bounds each try.\n"
            "All tries share the checkpoint place of the RayJob's name. With `generateName` a new try starts "
            "over.\n"
            "Set `shutdownAfterJobFinishes: true`: else the cluster keeps its nodes after the end."
        ),
        tried=(
            "Read in the source of KubeRay 1.7.0 and checked against its schemas, also by the API server 1.35.4 "
            "(dry run). Its operator was not run."
        ),
        retries=_RETRIES,
        makes=("RayCluster",),
    ),
    _kind(
        name="RayCronJob",
        place=_place_cron_job,
        mechanisms=(_RAY_JOB,),
        may_change=True,
        page="rayjob",
        notes=("Each RayJob of the schedule is placed; a new try starts over, because its run is the RayCluster."),
    ),
    _kind(
        name="RayService",
        place=_place_service,
        places=_pods("spec.rayClusterConfig", PodRole.SERVING),
        mechanisms=(_RAY_CLUSTER,),
        makes=("RayCluster",),
        harm=SERVES,
        page="raycluster",
        notes=(
            "A RayService stays unchanged unless it asks for spot (`spotwright.dev/spot: prefer`). Then it needs "
            "a worker group on on-demand and `gcsFaultToleranceOptions`."
        ),
    ),
)
