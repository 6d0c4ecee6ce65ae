"""LeaderWorkerSet: groups of pods that serve a model together, each with a leader and its workers.

A StatefulSet of the set owns the leaders, and each leader owns a StatefulSet with the workers of its group. By default the
controller reacts to a lost pod or a restarted container by deleting the leader and so the whole group, which it recreates,
uncounted and without a bound. So a set is treated like other services: it stays unchanged unless it is declared a worker, and
its leaders stay on on-demand.

Sources: kubernetes-sigs/lws, ``api/leaderworkerset/v1/leaderworkerset_types.go`` (fields, labels, restart policies) and
``pkg/controllers/pod_controller.go`` (``handleRestartPolicy``; the owner of the workers' StatefulSet).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.kinds.kind import Kind, Retry, RetryFields, Words, claims_of_each, number_at, pods_at, product
from spotwright.kinds.services import SERVES, duty_of, is_left
from spotwright.placing.context import Level, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import POD_FACTS, Mechanism, nothing, waits
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import POD_FIELDS, TEMPLATE, check, refuse_at_template, refuse_misplaced
from spotwright.placing.pods import Placed, PodRole, Role, place_pod
from spotwright.placing.retries import no_interruption_text, whole_number

__all__ = ["KINDS"]

_TOP = ("spec", "leaderWorkerTemplate")
_RUN = "metadata.labels['leaderworkerset.sigs.k8s.io/name']"
"""The controller sets it on every pod."""

_LEADS = "the workers of its group belong to it: without it, all of them are made again"
_WHOLE = "all pods of its group are made again"
_AFTER: dict[str, tuple[str, str]] = {
    "RecreateGroupOnPodRestart": (_WHOLE, _WHOLE),
    "RecreateGroupAfterStart": (f"{_WHOLE} if all of them have begun", _WHOLE),
    "None": ("its StatefulSet makes the pod again", _WHOLE),
    "Default": ("its StatefulSet makes the pod again", _WHOLE),
}
"""The effects of losing a worker and a leader, by the set's ``restartPolicy``; the first is the default."""

_UNCOUNTED = "; retries are not counted, and the other groups go on"
_FROZEN = "a changed template replaces the groups one after the other (rolloutStrategy)"
_NO_BOUND = nothing("its pods are made again without a bound, whatever ended them")
_GROUPS = Mechanism(
    "",
    {
        **POD_FACTS,
        **waits("its pods are made again at once"),
        "interruptions.max": _NO_BOUND,
        "errors.retries": _NO_BOUND,
    },
)


def _place_set(ctx: PlaceContext) -> None:
    if is_left(ctx):
        return
    template = ctx.at(*_TOP, "workerTemplate")
    refuse_misplaced(ctx, ctx.at("spec"), (*template, "spec"), POD_FIELDS)
    refuse_misplaced(ctx, ctx.at(*_TOP), (*template, "spec"), POD_FIELDS, allowed=("restartPolicy",))
    leaders = ctx.get(*_TOP, "leaderTemplate") is not None
    members = [_place_pods(ctx, "leader", _LEADS, PodRole.COORDINATOR)] if leaders else []
    members.append(_place_pods(ctx, "worker", "", duty_of(ctx)))
    policy = str(ctx.get(*_TOP, "restartPolicy", default=None) or next(iter(_AFTER)))
    for placed in members:
        lost = _AFTER.get(policy, (_WHOLE, _WHOLE))[placed.report.name == "leader" or not leaders]
        report = placed.report
        report.mechanism, report.frozen = _GROUPS, _FROZEN
        report.after_interruption = f"{lost}{_UNCOUNTED}" if placed.on_spot else no_interruption_text(placed.policy)
    if members[-1].on_spot:
        _explain(ctx, has_leaders=leaders)


def _place_pods(ctx: PlaceContext, name: str, reason: str, duty: PodRole) -> Placed:
    template = ctx.at(*_TOP, f"{name}Template")
    refuse_at_template(ctx, template)
    check(ctx, template, TEMPLATE)
    path = f"{ctx.name}/{name}"
    pinned = bool(reason)
    return place_pod(
        ctx,
        Role(name, path, (*template, "spec"), template, reason, work=ctx.name, run=_RUN, is_pinned=pinned, duty=duty),
    )


def _explain(ctx: PlaceContext, *, has_leaders: bool) -> None:
    """Report the effect of an interruption, and leaders on spot because they lack their own template."""
    if whole_number(ctx.get("spec", "replicas"), 1) == 1:
        text = f"{ctx.name}: no work is done while its only group is made again: set replicas to 2 or more"
        ctx.add_finding(Level.NOTE, ctx.at("spec"), text)
    if not has_leaders:
        text = (
            f"{ctx.name}: its leaders have the template of the workers, so they are on spot too: write a leaderTemplate"
        )
        ctx.add_finding(Level.NOTE, ctx.at(*_TOP), text)


def _groups(data: Mapping[str, Any], _path: Path) -> int | None:
    """The groups of the set, each with one leader."""
    return number_at(data, ("spec", "replicas"))


def _workers(data: Mapping[str, Any], _path: Path) -> int | None:
    """The workers of all groups, with the leaders if they share the template."""
    size = number_at(data, ("spec", *_TOP[1:], "size"))
    has_leaders = value_at(data, (*_TOP, "leaderTemplate")) is not None
    return product(_groups(data, _path), None if size is None else size - has_leaders)


KINDS = (
    Kind(
        group="leaderworkerset.x-k8s.io",
        name="LeaderWorkerSet",
        version="v1",
        place=_place_set,
        places=(
            pods_at("spec.leaderWorkerTemplate.leaderTemplate", duty=PodRole.COORDINATOR, at_once=_groups),
            pods_at("spec.leaderWorkerTemplate.workerTemplate", duty=PodRole.SERVING, at_once=_workers),
        ),
        claims=claims_of_each("spec.leaderWorkerTemplate.volumeClaimTemplates"),
        is_gang=True,
        retry=Retry.SET,
        retries=RetryFields(values=(Words("spec.leaderWorkerTemplate.restartPolicy", tuple(_AFTER)),)),
        mechanisms=(_GROUPS,),
        harm=SERVES,
        may_work=True,
        page="leaderworkerset",
        notes=(
            "A set usually serves a model, so it stays unchanged. The label `spotwright.dev/role: worker` says "
            "that it only takes work from a queue: then leaders stay on on-demand, and workers follow the policy.\n"
            "By default a group is made again when any of its pods is lost. With `restartPolicy: None` a lost "
            "worker alone is made again. Restarts are not counted, so budgets have no effect.\n"
            "The controller places the set, but does not record it."
        ),
        tried="Read in the source of LeaderWorkerSet, and checked against its schema; its controller was not run.",
    ),
)
