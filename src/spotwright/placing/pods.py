"""The shared rules of a placed pod: tolerations, affinity, grace period, annotations, environment.

Every kind calls :func:`place_pod` for each of its roles. The rules add and never drop: new tolerations stand beside the user's,
and a condition is added to every node selector term (terms are alternatives, so it holds only if all of them have it). A policy
that contradicts the manifest is refused with both lines.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.provider import CLUSTER_AUTOSCALER
from spotwright.clouds.providers import below_cut_off
from spotwright.kube.admission import priority
from spotwright.kube.pod import TERMS
from spotwright.model.policy import BUILT_IN, Policy, Spot
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Taint
from spotwright.placing.affinity import Expression, attraction, off_idle_gpus, off_windows
from spotwright.placing.context import (
    DEFAULT_QUEUE,
    MOST_RETRIES,
    POLICY_ANNOTATION,
    QUEUE_LABEL,
    SPOT_LABEL,
    Group,
    Level,
    OwnRetries,
    PlaceContext,
    RoleReport,
)
from spotwright.placing.documents import MISSING, NoPoolFitsError, Path
from spotwright.placing.environment import AttemptIdentity, environment_change, library_change, torchrun_words
from spotwright.placing.kueue_flavors import ClusterQueue, Flavor, QueueFiles, exclusion, refusal
from spotwright.placing.pod_change import NO_CHANGE, OWN_ANNOTATION, PodChange, grace_period_of, write
from spotwright.placing.pod_spec import (
    METADATA,
    POD,
    additions_in_words,
    check,
    refuse_scheduling,
    requirements_of,
)
from spotwright.placing.retries import PREFERENCE_IGNORED, preference_advice
from spotwright.scheduling.ladder import Ladder, PodRequirements, build

__all__ = [
    "Placed",
    "PodRole",
    "Role",
    "change_of",
    "conflicting_path",
    "metadata_change",
    "no_pool_fits",
    "own_conditions",
    "place_pod",
    "queue_of",
    "settle_queue",
    "shield_change",
    "shields",
    "shortest_notice",
    "tolerations_of",
    "warn_of_preference",
    "warn_of_undecided",
]


def conflicting_path(ctx: PlaceContext, spec: Path, refusals: Mapping[str, str]) -> Path:
    """The field of a pod spec for which its pools were refused; the pod spec itself if several fields do."""
    reasons = " ".join(refusals.values())
    for key in ctx.editor.get((*spec, "nodeSelector")) or ():
        if f"node selector asks for {key}=" in reasons:
            return (*spec, "nodeSelector", key)
    if "required node affinity" in reasons:
        return (*spec, *TERMS)
    if (
        "it asks for" in reasons and ctx.editor.document.get((*spec, "containers")) is not MISSING
    ):  # else Spark's requests
        for index, container in enumerate(ctx.editor.get((*spec, "containers")) or ()):
            if isinstance(container, dict) and container.get("resources"):
                return (*spec, "containers", index, "resources")
    return spec


class PodRole(StrEnum):
    """The purpose of pods, which decides whether they may be lost."""

    WORKER = "worker"  # work that can be done again
    COORDINATOR = "coordinator"  # the others need it: its loss ends the whole
    SERVING = "serving"  # it answers requests
    DATASTORE = "datastore"  # it keeps data
    INTERACTIVE = "interactive"  # people work in it
    SYSTEM = "system"  # it runs on every node
    HOOK = "hook"  # a release waits for it, and fails with it


@dataclass(frozen=True, slots=True)
class Role:
    """One role of an object: the pods of one template. ``spec`` is the path of the pod spec, ``template`` that of the template.

    ``path`` is its name in policies. ``on_demand_reason`` says why it is kept on on-demand unless the user sets a policy.
    ``holder``: an object with tolerations and affinity that is not a pod spec (Argo), so that no other field can be set.
    ``work``, ``run``, ``index`` and ``is_elastic`` as in :class:`~spotwright.placing.environment.AttemptIdentity`; ``work`` is
    ``path`` by default. ``queued_by`` is the path of the metadata in which Kueue looks for the queue's name, if not the
    object's or the template's. ``is_pinned``: ``policy.tasks`` alone overrides ``on_demand_reason``, because the object's own
    policy is meant for its other roles. ``duty`` decides whether autoscalers may move the pods. ``is_inherited``: other objects
    inherit the template and may ask for GPUs, so its pods are not kept off GPU pools. ``retries`` are the controller's retries,
    if it retries errors.
    """

    name: str
    path: str
    spec: Path
    template: Path | None
    on_demand_reason: str = ""
    holder: bool = False
    work: str = ""
    run: str = "metadata.name"
    index: str = ""
    is_elastic: bool = False
    queued_by: Path | None = None
    is_pinned: bool = False
    duty: PodRole = PodRole.WORKER
    is_inherited: bool = False
    retries: OwnRetries | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The decisions for a role; ``ladder`` is empty if no policy sets ``spot``."""

    policy: Policy
    ladder: Ladder
    report: RoleReport

    @property
    def on_spot(self) -> bool:
        """Whether the role may run on spot pools, where it can be interrupted."""
        return any(rung.spot for rung in self.ladder.rungs)


def _warn_of_priority(ctx: PlaceContext, spec: Path, pools: Collection[str]) -> None:
    """Warn if the cluster autoscaler adds no nodes for pods of this priority on the ladder's pools."""
    given = ctx.editor.get(spec)
    found = priority(given, ctx.others) if isinstance(given, dict) else None
    if found is not None:
        text = below_cut_off(found.value, found.maker, [ctx.config.pools[name] for name in pools], ctx.config.target)
        if text:
            ctx.add_finding(Level.WARNING, spec, text)


def place_pod(ctx: PlaceContext, role: Role, policy: Policy | None = None) -> Placed:
    """Place the pods of one role and add its report. Raises :class:`ManifestError` if no pool fits.

    ``policy`` is the role's, if already decided; by default that of the object and the configuration.
    """
    _check(ctx, role)
    hook = ctx.hook
    reason = role.on_demand_reason or hook
    policy = policy or ctx.policy(role.path, on_demand_reason=reason, is_pinned=role.is_pinned, retries=role.retries)
    metadata = None if role.template is None else (*role.template, "metadata")
    work = requirements_of(ctx, role.spec, metadata, is_holder=role.holder)
    ladder = build(work, policy, ctx.config.pools)
    pools = tuple(name for rung in ladder.rungs for name in rung.pools)
    report = RoleReport(role.name, role.path, ctx.editor.document.line(role.spec), policy, pools, ladder.refusals)
    report.not_judged = ladder.not_judged
    report.anchor("pod", ctx.editor, role.spec)
    report.own_retries = "" if role.retries is None else role.retries.name
    report.identity = {"work": role.work or role.path, "run": role.run, "index": role.index}
    report.on_demand_reason = reason if policy.sources.get("spot") == reason else ""
    report.on_spot = policy.spot is not None and any(rung.spot for rung in ladder.rungs)
    ctx.roles.append(report)
    _warn_of_priority(ctx, role.spec, pools)
    if hook and report.on_demand_reason == hook:
        if not ladder.rungs:
            text = f"{role.name} stays unchanged: {hook}; no on-demand pool fits it: describe one in spotwright.yaml"
            ctx.add_finding(Level.WARNING, role.spec, text)
            report.policy = policy = replace(policy, spot=None)
            report.on_demand_reason = ""
            as_it_is = build(work, policy, ctx.config.pools)
            report.pools, report.refusals = tuple(n for rung in as_it_is.rungs for n in rung.pools), as_it_is.refusals
        else:
            text = f"kept on on-demand: {hook}; label it {SPOT_LABEL}: prefer if it is work that can be done again"
            ctx.add_finding(Level.NOTE, ctx.at("metadata"), f"{ctx.get('kind')} {ctx.name}: {text}")
    if policy.spot is None:
        return Placed(policy, Ladder(()), report)
    refuse_scheduling(ctx, role.spec)
    if not ladder.rungs:
        path = conflicting_path(ctx, role.spec, ladder.refusals)
        pod = {} if role.holder else ctx.editor.get(role.spec)
        raise no_pool_fits(ctx, path, role.name, role.path, policy, ladder, pod)
    for text in ladder.warnings(role.path):
        ctx.add_finding(Level.WARNING, role.spec, f"{role.name}: {text}")
    if not role.holder:
        _warn_of_nodes(ctx, role)
    placed = Placed(policy, ladder, report)
    _tell_lowered(ctx, role, policy)
    change = _placement(ctx, role, placed, work) if ctx.writes(Group.PLACEMENT) else NO_CHANGE
    if ctx.writes(Group.CHECKPOINT) and not role.holder:
        identity = AttemptIdentity(role.path, role.work or role.path, role.run, role.index, role.is_elastic)
        change |= environment_change(ctx.editor.get(role.spec), identity, policy.checkpoint)
        is_asked = ctx.asks_itself(role.path, "checkpoint")
        change |= library_change(ctx, role.spec, role.name, policy.checkpoint, is_asked=is_asked)
    write(ctx.editor, role.spec, change, None if role.template is None else (*role.template, "metadata"))
    if ctx.writes(Group.CHECKPOINT) and not role.holder:
        containers = ctx.editor.get((*role.spec, "containers")) or ()
        report.torchrun = torchrun_words(containers, change.containers, is_elastic=role.is_elastic)
    return placed


def _warn_of_nodes(ctx: PlaceContext, role: Role) -> None:
    """Report what keeps the pods from the nodes that the autoscaler or the scheduler would choose."""
    if ctx.editor.get((*role.spec, "nodeName")):
        text = (
            f"{role.name}: nodeName fixes the node and bypasses the scheduler, so no affinity takes effect; remove it"
        )
        ctx.add_finding(Level.WARNING, (*role.spec, "nodeName"), text)


def _tell_lowered(ctx: PlaceContext, role: Role, policy: Policy) -> None:
    """Say that the policy allows fewer errors than the role's own controller retries, by a webhook or by a written field.

    Without a webhook the user's field stays; another message reports that.
    """
    own = role.retries
    if own is None or policy.retries >= min(own.times, MOST_RETRIES):
        return
    if not ctx.options.has_webhook and not (own.is_default and ctx.writes(Group.RETRIES)):
        return
    if role.template is not None and POLICY_ANNOTATION in (
        ctx.editor.get((*role.template, "metadata", "annotations")) or {}
    ):
        return  # already placed with its owner, which has written the field
    text = f"errors.retries {policy.retries} ({policy.sources['errors.retries']}) holds, and not {own.name}"
    remedy = f"raise errors.retries to {own.times}" if own.times < MOST_RETRIES else "raise errors.retries"
    text += f", which would retry it {own.times} times" if own.times < MOST_RETRIES else ", which has no bound"
    level = Level.NOTE if own.is_default else Level.WARNING
    ctx.add_finding(level, role.spec, f"{role.name}: {text}: {remedy} if errors should be retried as often")


def _check(ctx: PlaceContext, role: Role) -> None:
    """Check the shape of the fields that are read of a role. Raises :class:`ManifestError` with the line."""
    check(ctx, role.spec, POD)
    if role.template is not None:
        check(ctx, (*role.template, "metadata"), METADATA)


def _placement(ctx: PlaceContext, role: Role, placed: Placed, work: PodRequirements) -> PodChange:
    """The pods' conditions and tolerations, the grace period within the notice, and the policy."""
    queue = "" if role.is_inherited else _queue_of_role(ctx, role)
    also = placed.ladder.idle if role.is_inherited else ()
    change = change_of(
        ctx, role.spec, placed, work, queue=queue, also=also, is_apart=not (role.holder or role.is_inherited)
    )
    if change.preferred:
        used = [ctx.config.pools[name] for name in (*placed.report.pools, *also)]
        warn_of_preference(ctx, role.spec, role.name, used)
    if not role.holder:
        secrets = tuple(placed.policy.image_pull_secrets)
        change = replace(change, grace_period=_limited_grace(ctx, role, placed), image_pull_secrets=secrets)
    if role.template is None:
        return change
    metadata = (*role.template, "metadata")
    change |= own_conditions(ctx, metadata, change, ctx.editor.get(role.spec) or {})
    return change | metadata_change(ctx, metadata, placed, role.duty)


def own_conditions(ctx: PlaceContext, metadata: Path, change: PodChange, spec: Mapping[str, Any]) -> PodChange:
    """The record of the author's conditions in a pod spec that equal ours, at the first placement."""
    own, annotations = change.own_in(spec), ctx.editor.get((*metadata, "annotations")) or {}
    if not own or POLICY_ANNOTATION in annotations:
        return NO_CHANGE
    return PodChange(annotations={OWN_ANNOTATION: json.dumps(own, separators=(",", ":"))})


def queue_of(ctx: PlaceContext, metadata: Any) -> str:
    """The Kueue queue that admits the object, or its pods one by one (by their own label); empty without one."""
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    own = labels.get(QUEUE_LABEL) if isinstance(labels, dict) else None
    return str(own or ctx.queue)


def no_pool_fits(
    ctx: PlaceContext,
    at: Path,
    name: str,
    path: str,
    policy: Policy,
    ladder: Ladder,
    pod: Mapping[str, Any] | None = None,
) -> NoPoolFitsError:
    """The error for a role that no pool fits, with each pool's reason and remedies. ``path`` is its name in policies.

    ``pod`` is its pod spec, where it has one.
    """
    reasons = "; ".join(f"{pool}: {why}" for pool, why in ladder.refusals.items())
    spot = f"spot: {policy.spot} ({policy.sources['spot']})"
    by_label = any("node selector asks" in why or "required node affinity" in why for why in ladder.refusals.values())
    hint = "; if a pool's nodes have that label, add it under the pool's labels: in spotwright.yaml" if by_label else ""
    hint += "".join(f"; its {text}" for text in additions_in_words(ctx, pod or {}, ladder.refusals.values()))
    return NoPoolFitsError(
        str(ctx.problem(at, f"{name} fits no pool with {spot}: {reasons}{hint}{ladder.remedy(path)}"))
    )


def tolerations_of(ladder: Ladder) -> list[dict[str, str]]:
    """The tolerations that a ladder needs, in the fields of Kubernetes."""
    wanted = dict.fromkeys(toleration for rung in ladder.rungs for toleration in rung.tolerations)
    return [Taint(one.key, one.value, one.effect).toleration_fields for one in wanted]


def change_of(
    ctx: PlaceContext,
    at: Path,
    placed: Placed,
    work: PodRequirements,
    *,
    queue: str = "",
    also: Sequence[str] = (),
    is_apart: bool = True,
    later: Sequence[Expression] = (),
) -> PodChange:
    """The change that brings pods to the pools of their ladder, and to the pools of ``also``; warnings go to the path ``at``.

    One kind of capacity is required; of both, spot is preferred, except in a ``queue`` of Kueue. ``is_apart``: work without GPUs
    is kept off GPU pools. ``later`` are conditions that hold from some attempt on.
    """
    pools = ctx.config.pools
    wanted = attraction(placed.policy, [pools[name] for name in (*placed.report.pools, *also)], pools)
    required: list[Expression] = []
    if placed.ladder.undecided:
        wanted = wanted.as_wish
        warn_of_undecided(ctx, at, placed.report.name, placed)
    else:
        apart = off_idle_gpus(work, placed.ladder, wanted, pools) if is_apart else []
        apart += off_windows(placed.ladder, wanted, pools)
        required = [*wanted.required, *apart, *later]
        if queue:
            required += settle_queue(ctx, at, placed, work, required, queue)
    return PodChange(
        tuple(tolerations_of(placed.ladder)),
        tuple(required),
        wanted.any_of,
        () if queue else wanted.preferred,
        is_wish=bool(placed.ladder.undecided),
    )


def _queue_of_role(ctx: PlaceContext, role: Role) -> str:
    if role.queued_by is not None:
        own = str((ctx.editor.get((*role.queued_by, "labels")) or {}).get(QUEUE_LABEL) or "")
        return own or (DEFAULT_QUEUE if ctx.default_queue is not None else "")
    return queue_of(ctx, None if role.template is None else ctx.editor.get((*role.template, "metadata")))


def settle_queue(
    ctx: PlaceContext, path: Path, placed: Placed, work: PodRequirements, required: Sequence[Expression], queue: str
) -> list[Expression]:
    """The conditions, beside those ``required``, by which Kueue skips flavors of pools that the role must not use.

    Kueue ignores preferred affinity: the order of the ClusterQueue's flavors replaces it. Findings name that order, what Kueue
    does not enforce, and flavors that no label excludes.
    """
    pools, report = ctx.config.pools, placed.report
    used_pools = [pools[name] for name in report.pools]
    files = QueueFiles(ctx.find, ctx.find_all, pools)
    known = files.cluster_queue(queue, ctx.namespace, work.requests.keys() | {"cpu"}, ctx.config.default_ladder)
    used = [flavor for flavor in known.flavors if set(flavor.pools) & set(used_pools)]
    others = [flavor for flavor in known.flavors if flavor not in used]  # including pools outside a named ladder
    added = tuple(toleration for rung in placed.ladder.rungs for toleration in rung.tolerations)
    constraints = replace(work.constraints, tolerations=work.constraints.tolerations + added)
    conditions, left = exclusion(used, others, constraints, required)
    names = ", ".join(flavor.name for flavor in used) or "none"
    _report_default_queue(ctx, path, report, queue)
    report.queue = f"{queue}: Kueue takes the first flavor that matches and has quota, of {names}"
    report.queue += f", in {known}" if known.name else ""
    text = f"{_DECIDES} leave these flavors, to be in this order: {names} (spotwright pools command --as kueue prints them)"
    if known.name:
        text = f"{_DECIDES} leave these flavors, in the order of {known}: {names}"
    ctx.add_finding(Level.NOTE, path, f"{report.name}: {text}")
    if placed.on_spot and not all(pool.is_spot for pool in used_pools):
        ctx.add_finding(Level.WARNING, path, f"{report.name}: {_BY_QUOTA}")
    if left:
        text = f"Kueue may also assign {', '.join(flavor.name for flavor in left)}, whose nodes no label distinguishes from these"
        text += f" ({names}): give each pool a distinct label under labels: in spotwright.yaml"
        text += ", and each flavor its nodeLabels (spotwright place completes them)" if known.name else ""
        ctx.add_finding(Level.WARNING, path, f"{report.name}: {text}")
    if known.name:
        refused = {one.name: why for one in used if (why := refusal(one, constraints, [*required, *conditions]))}
        _compare_with_queue(ctx, path, placed, known, used, refused)
    pools_in_order = [pool.name for flavor in used for pool in flavor.pools if pool in used_pools]
    if report.policy.ladder is not None and list(dict.fromkeys(pools_in_order)) != list(report.pools):
        text = f"its ladder ({', '.join(report.pools)}) is not the order of the flavors ({names}), which Kueue follows"
        text += ": set ladder in policy.default, or use a separate ClusterQueue"
        ctx.add_finding(Level.WARNING, path, f"{report.name}: {text}")
    return conditions


def _report_default_queue(ctx: PlaceContext, path: Path, report: RoleReport, queue: str) -> None:
    """Report that work is in a queue that it does not name."""
    found = ctx.default_queue if queue == DEFAULT_QUEUE else None
    if found is not None:
        where = f"{found.file}:{found.line(('metadata', 'name'))}"
        text = f"it names no queue, so Kueue puts it into the LocalQueue {DEFAULT_QUEUE} of its namespace ({where})"
        ctx.add_finding(Level.NOTE, path, f"{report.name}: {text}")


def _compare_with_queue(
    ctx: PlaceContext,
    path: Path,
    placed: Placed,
    known: ClusterQueue,
    used: Sequence[Flavor],
    refused: Mapping[str, str],
) -> None:
    """Warn if a ClusterQueue's flavors, or their order, are not what the policy asks for."""
    name, where = placed.report.name, str(known)
    for flavor, why in refused.items():
        ctx.add_finding(Level.WARNING, path, f"{name}: Kueue never assigns the flavor {flavor} of {where}: {why}")
    if known.unknown:
        text = f"{where} has unknown flavors ({', '.join(known.unknown)}): give their ResourceFlavors with --with"
        ctx.add_finding(Level.WARNING, path, f"{name}: {text}")
    if len(refused) == len(used) and not known.unknown:
        text = f"{where} has no flavor of its pools ({', '.join(placed.report.pools)}) that it may have, so it is never admitted"
        ctx.add_finding(Level.WARNING, path, f"{name}: {text}")
    for group in known.groups:
        order = [flavor for flavor in group if flavor in used and flavor.name not in refused]
        late = [index for index, flavor in enumerate(order) if flavor.capacity == {True}]
        first = next((flavor for flavor in order[: max(late, default=0)] if flavor.capacity == {False}), None)
        if placed.policy.spot is Spot.PREFER and first is not None:
            placed.report.is_queue_reversed = True
            text = (
                f"{where} has the flavor {first.name} (on-demand) before {order[late[-1]].name} (spot), and Kueue takes"
            )
            ctx.add_finding(Level.WARNING, path, f"{name}: {text} the first that has quota: put the spot flavors first")


_DECIDES = "Kueue decides where it runs: its required affinity and tolerations"
_BY_QUOTA = (
    "Kueue takes the next flavor where the quota of one is used, not after interruptions and not where spot nodes are missing "
    "(kubernetes-sigs/kueue#2560): fall_back_after and pending_timeout have no effect"
)


def warn_of_undecided(ctx: PlaceContext, path: Path, name: str, placed: Placed) -> None:
    """Warn that no requirement is added beside a condition that only the run decides: with some values no node would fit."""
    keys = ", ".join(dict.fromkeys(one.key for one in placed.ladder.undecided))
    text = f"its condition on {keys} is decided when it runs, so no condition is required beside it"
    ctx.add_finding(
        Level.WARNING, path, f"{name}: {text}: spot: {placed.policy.spot} is a wish, and no attempt is moved"
    )


def warn_of_preference(ctx: PlaceContext, path: Path, name: str, used: Sequence[Pool]) -> None:
    """Warn that the cluster autoscaler ignores a preference, and name the setting that helps."""
    advice = "" if ctx.options.has_webhook else preference_advice(used, ctx.config.target)  # the webhook writes a rung
    if advice:
        ctx.add_finding(Level.WARNING, path, f"{name}: {PREFERENCE_IGNORED}; use {advice}")


def _limited_grace(ctx: PlaceContext, role: Role, placed: Placed) -> int | None:
    """The grace period for the role's pods, within the shortest notice of its spot pools; an existing one stays."""
    used = [ctx.config.pools[name] for name in placed.report.pools]
    notice = shortest_notice(used, simulated=ctx.config.is_built_in)
    path = (*role.spec, "terminationGracePeriodSeconds")
    given = ctx.editor.get(path)
    if given is not None:
        if notice is not None and isinstance(given, int) and given > notice:
            text = (
                f"{role.name}: the grace period of {given}s is longer than the notice of {notice:g}s, and will be cut"
            )
            ctx.add_finding(Level.WARNING, path, text)
        return None
    grace, wanted = grace_period_of(placed.policy, notice), int(placed.policy.grace_period)
    if grace is not None and grace < wanted:
        source = placed.policy.sources["grace_period"]
        text = f"{role.name}: the grace period of {wanted}s ({source}) is cut to {grace}s"
        text += f": the shortest notice of its spot pools is {notice:g}s"
        ctx.add_finding(Level.NOTE if source == BUILT_IN.source else Level.WARNING, role.spec, text)
    return grace


def shortest_notice(used: Sequence[Pool], *, simulated: bool = False) -> float | None:
    """The shortest notice, in seconds, on the spot pools among these; ``None`` if none is spot.

    ``simulated``: the pools are built in, with a short notice for short local runs; a cluster has its provider's.
    """
    spot = [pool for pool in used if pool.is_spot]
    if simulated:
        return min((providers.of(pool).notice_of_pods for pool in spot), default=None)
    return min(map(providers.notice_of_pods, spot), default=None)


def metadata_change(ctx: PlaceContext, metadata: Path, placed: Placed, duty: PodRole = PodRole.WORKER) -> PodChange:
    """The label, the policy and the shields of the pods whose metadata are at this path."""
    check(ctx, metadata, METADATA)
    spot = str(placed.policy.spot)
    text = _policy_text(spot, placed.policy.max_interruptions, placed.policy.retries)
    if ctx.options.has_webhook:  # it decides by each pod's annotations
        text = json.dumps({**json.loads(text), **_of_attempts(placed.policy)}, separators=(",", ":"))
    change = PodChange(labels={SPOT_LABEL: spot}, annotations={POLICY_ANNOTATION: text})
    return change | shield_change(ctx, metadata, placed.report.policy_path, duty)


_SAFE_TO_EVICT, _DO_NOT_DISRUPT = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"
_OF_KARPENTER = "karpenter."  # prefix of its nodes' labels: karpenter.sh/nodepool, karpenter.k8s.aws/instance-family
_DEAR = frozenset({PodRole.WORKER, PodRole.COORDINATOR, PodRole.HOOK})


def shields(
    duty: PodRole, target: Mapping[str, str], pools: Iterable[Pool], keys: Iterable[str] = ()
) -> dict[str, str]:
    """The annotations that keep autoscalers from moving pods to save a node; none for pods that are cheap to move.

    Work that restarts from the beginning or its last checkpoint is expensive to move: workers, the coordinators that all of
    them need, and hooks that a release waits for. Spot or not does not matter: scale-down and consolidation empty on-demand
    nodes too. Pods that serve (a PodDisruptionBudget bounds how many move at once) and pods of every node are cheap to move,
    because others take over; and as they never end, a shield would hold their nodes for ever.

    The configuration's ``target`` and ``pools`` show which autoscalers the cluster has. ``keys`` are the node labels that the
    pods themselves ask for; pods that ask for Karpenter's labels are on no other autoscaler's nodes. Sources:
    kubernetes/autoscaler, ``cluster-autoscaler/FAQ.md`` (what prevents the removal of a node); aws/karpenter-provider-aws,
    documentation, "Disruption", "Pod-Level Controls".
    """
    if duty not in _DEAR:
        return {}
    autoscaler = target.get("autoscaler", CLUSTER_AUTOSCALER)
    asks_for_karpenter = any(key.startswith(_OF_KARPENTER) for key in keys)
    found = {}
    if asks_for_karpenter or autoscaler != CLUSTER_AUTOSCALER or any(map(_is_made_by_karpenter, pools)):
        found[_DO_NOT_DISRUPT] = "true"
    if autoscaler == CLUSTER_AUTOSCALER and not asks_for_karpenter:
        found[_SAFE_TO_EVICT] = "false"
    return found


def _is_made_by_karpenter(pool: Pool) -> bool:
    return not providers.of(pool).has_groups or any(key.startswith(_OF_KARPENTER) for key in pool.labels)


def shield_change(ctx: PlaceContext, metadata: Path, name: str, duty: PodRole = PodRole.WORKER) -> PodChange:
    """The :func:`shields` of the pods of ``name``, whose metadata are at this path. The user's values stay, with a warning."""
    wanted = shields(duty, ctx.config.target, ctx.config.pools.values())
    given = ctx.editor.get((*metadata, "annotations")) or {}
    for key, value in wanted.items():
        own = given.get(key)
        if own is not None and own != value:
            text = f'{name}: its own {key}: "{own}" stays, so the autoscaler may move it while it works, to save a node'
            ctx.add_finding(Level.WARNING, (*metadata, "annotations", key), f'{text}; write "{value}"')
    return PodChange(annotations=wanted)


def _of_attempts(policy: Policy) -> dict[str, Any]:
    """The fields by which an attempt's rung is chosen, if set and meaningful."""
    fields: dict[str, Any] = {
        "ladder": None if policy.ladder is None else list(policy.ladder),
        "grace_period": f"{policy.grace_period:g}s",
    }
    if policy.deadline is None:
        fields["pending_timeout"] = f"{policy.pending_timeout:g}s"
        if policy.spot is Spot.PREFER:
            fields["fall_back_after"] = policy.fall_back_after
    unset = (None, BUILT_IN.source, "interruptions.max")
    kept = {name for name in fields if policy.sources.get(name) not in unset}
    if policy.fall_back_after != policy.max_interruptions:
        kept.add("fall_back_after")
    return {name: value for name, value in fields.items() if name in kept and value is not None}


@lru_cache(maxsize=64)
def _policy_text(spot: str, interruptions: int, retries: int) -> str:
    """The policy as JSON for the annotation."""
    policy = {"spot": spot, "interruptions": {"max": interruptions}, "errors": {"retries": retries}}
    return json.dumps(policy, separators=(",", ":"))
