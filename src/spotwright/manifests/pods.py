"""The shared rules of a placed pod: tolerations, affinity, grace period, annotations, environment.

Every kind calls :func:`place_pod` for each of its roles. The rules add and never drop: tolerations are united, the affinity is
joined to every term that is there (terms are alternatives, so a condition counts only if each of them has it), and what
contradicts the user's own words is refused with both lines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from spotwright import clouds
from spotwright.manifests.blame import blamed
from spotwright.manifests.context import POLICY_ANNOTATION, QUEUE_LABEL, SPOT_LABEL, Context, Level, RoleReport
from spotwright.manifests.documents import Path
from spotwright.manifests.environment import Identity, tell_the_code
from spotwright.manifests.expander import EXPANDER
from spotwright.manifests.podspec import PREFERRED_TERMS, REQUIRED_TERMS, read_constraints, read_requests
from spotwright.manifests.shapes import POD, check
from spotwright.model.policy import BUILT_IN, Policy
from spotwright.model.pools import Pool, Provider
from spotwright.scheduling.ladder import Ladder, Work

__all__ = ["Placed", "Role", "fits_nowhere", "is_queued", "mark", "place_pod", "tolerations_of", "warn_of_preference"]

_RESERVE = 5  # seconds between the end of the grace period and the moment the node goes, for the kubelet's own work


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of pod of an object. ``spec`` is the path of its pod spec, ``template`` that of what holds its metadata.

    ``path`` names it in policies; ``stays`` says why it is kept on on-demand unless the user says otherwise; ``holder`` is
    true for objects that carry tolerations and affinity but are no pod specs (Argo), where nothing else can be set. ``work``,
    ``run`` and ``index`` are those of :class:`~spotwright.manifests.environment.Identity`; ``work`` is ``path`` by default.
    """

    name: str
    path: str
    spec: Path
    template: Path | None
    stays: str = ""
    holder: bool = False
    work: str = ""
    run: str = "metadata.name"
    index: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """What was decided for a role; ``ladder`` is empty where nobody said anything about spot."""

    policy: Policy
    ladder: Ladder
    report: RoleReport

    @property
    def on_spot(self) -> bool:
        """Whether an interruption can happen to it."""
        return any(rung.spot for rung in self.ladder.rungs)


def place_pod(ctx: Context, role: Role) -> Placed:
    """Place the pods of one role and report it. Raises :class:`ManifestError` where they fit no pool."""
    check(ctx, role.spec, POD)
    policy = ctx.policy(role.path, stays=role.stays)
    work = Work({} if role.holder else read_requests(ctx, role.spec), read_constraints(ctx, role.spec))
    ladder = ctx.choices.ladder(work, policy)
    pools = tuple(name for rung in ladder.rungs for name in rung.pools)
    report = RoleReport(role.name, role.path, ctx.editor.document.line(role.spec), policy, pools, ladder.refusals)
    ctx.roles.append(report)
    if policy.spot is None:
        return Placed(policy, Ladder(()), report)
    if not ladder.rungs:
        raise ctx.problem(blamed(ctx, role.spec, ladder.refusals), fits_nowhere(role.name, policy, ladder))
    if ladder.note:
        ctx.say(Level.WARNING, role.spec, f"{role.name}: {ladder.note}")
    if not role.holder and ctx.editor.get((*role.spec, "nodeName")):
        text = f"{role.name}: nodeName names the node, past the scheduler: no affinity leads it to another; remove it"
        ctx.say(Level.WARNING, (*role.spec, "nodeName"), text)
    placed = Placed(policy, ladder, report)
    used = [ctx.config.pools[name] for name in pools]
    ctx.editor.extend((*role.spec, "tolerations"), tolerations_of(ladder))
    _attract(ctx, role, placed, work)
    if not role.holder:
        _limit_grace(ctx, role, placed, used)
        who = Identity(role.path, role.work or role.path, role.run, role.index)
        tell_the_code(ctx, role.spec, who, policy.checkpoint)
        if policy.image_pull_secrets:
            ctx.editor.extend((*role.spec, "imagePullSecrets"), [{"name": name} for name in policy.image_pull_secrets])
    if role.template is not None:
        mark(ctx, (*role.template, "metadata"), placed, used)
    return placed


def is_queued(ctx: Context, metadata: Any) -> bool:
    """Whether Kueue admits the object, or its pods one by one: the queue's name may be a label of the pods alone."""
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return ctx.is_queued or (isinstance(labels, dict) and QUEUE_LABEL in labels)


def fits_nowhere(name: str, policy: Policy, ladder: Ladder) -> str:
    """Why a role can run in no pool, with the reason of each."""
    reasons = "; ".join(f"{pool}: {why}" for pool, why in ladder.refusals.items())
    said = f"spot: {policy.spot} ({policy.sources['spot']})"
    by_label = any("node selector asks" in why or "required node affinity" in why for why in ladder.refusals.values())
    hint = "; if a pool's nodes have that label, say it under its labels: in spotwright.yaml" if by_label else ""
    return f"{name} fits no pool with {said}: {reasons}{hint}"


def tolerations_of(ladder: Ladder) -> list[dict[str, object]]:
    """The tolerations that a ladder needs, as Kubernetes writes them."""
    wanted = [toleration for rung in ladder.rungs for toleration in rung.tolerations]
    items = []
    for toleration in dict.fromkeys(wanted):
        item: dict[str, object] = {"key": toleration.key, "operator": "Equal" if toleration.value else "Exists"}
        if toleration.value:
            item["value"] = toleration.value
        item["effect"] = toleration.effect
        items.append(item)
    return items


def _attract(ctx: Context, role: Role, placed: Placed, work: Work) -> None:
    """Node affinity by the ladder: required for one kind of capacity, preferred for both, none under Kueue."""
    if is_queued(ctx, None if role.template is None else ctx.editor.get((*role.template, "metadata"))):
        ctx.say(
            Level.NOTE, role.spec, f"{role.name}: Kueue decides by the order of its flavors, so no affinity is added"
        )
        return
    wanted = ctx.choices.attraction(placed.policy, [ctx.config.pools[name] for name in placed.report.pools])
    off = [] if role.holder else ctx.choices.off_idle_gpus(work, placed.ladder, wanted)
    for expression in (*wanted.required, *off):
        _require(ctx, role, expression)
    items = [{"weight": 100, "preference": {"matchExpressions": [expression]}} for expression in wanted.preferred]
    ctx.editor.extend((*role.spec, *PREFERRED_TERMS), items)
    if items:
        warn_of_preference(ctx, role.spec, role.name)


def _require(ctx: Context, role: Role, expression: dict[str, object]) -> None:
    """Join a condition to every required term; the terms are alternatives, so a new one beside them would allow more."""
    terms = (*role.spec, *REQUIRED_TERMS)
    present = ctx.editor.get(terms)
    if present is None:
        ctx.editor.add(terms, [{"matchExpressions": [expression]}])
        return
    if not present:
        raise ctx.problem(terms, "the API server refuses an empty list here: write a term, or remove the list")
    for index, term in enumerate(present):
        if any(term.values()):  # a term without a condition matches no node, and must not begin to
            ctx.editor.extend((*terms, index, "matchExpressions"), [expression])


def warn_of_preference(ctx: Context, path: Path, name: str) -> None:
    """Say what makes the autoscaler obey a preference."""
    if ctx.config.target.get("autoscaler", "cluster-autoscaler") == "cluster-autoscaler":
        text = "the cluster autoscaler passes over preferred affinity when it chooses a pool to grow; give it"
        ctx.say(Level.WARNING, path, f"{name}: {text} {EXPANDER}")


def _limit_grace(ctx: Context, role: Role, placed: Placed, used: Sequence[Pool]) -> None:
    """Keep the grace period within the shortest notice of its spot pools."""
    notices = [_notice_of_pods(pool, simulated=ctx.config.is_built_in) for pool in used if pool.is_spot]
    if not notices:
        return
    path = (*role.spec, "terminationGracePeriodSeconds")
    limit = max(1, int(min(notices) - _RESERVE))
    given = ctx.editor.get(path)
    said = placed.policy.sources.get("grace_period") != BUILT_IN.source
    if given is not None:
        if isinstance(given, int) and given > min(notices):
            text = f"{role.name}: a grace period of {given}s is longer than the notice of {min(notices):g}s; it will be cut"
            ctx.say(Level.WARNING, path, text)
        return
    wanted = int(placed.policy.grace_period)
    if said or wanted > limit:
        ctx.editor.add(path, min(wanted, limit))


def _notice_of_pods(pool: Pool, *, simulated: bool) -> float:
    """How much of a pool's notice a pod gets: GKE's kubelet keeps 15 of the 30 seconds for its own pods.

    ``simulated``: the notice of the built-in pools is short, so that runs on one machine are; a cluster's is its provider's.
    """
    notice = clouds.default_notice(pool.provider) if simulated else pool.notice
    if pool.provider is Provider.GKE and notice <= clouds.default_notice(Provider.GKE):
        return notice / 2
    return notice


def mark(ctx: Context, metadata: Path, placed: Placed, used: Sequence[Pool]) -> None:
    """The label and the policy on the pod, and the annotations that keep autoscalers from moving it without need."""
    spot = str(placed.policy.spot)
    _add_new(ctx, (*metadata, "labels", SPOT_LABEL), spot)
    said = _said(spot, placed.policy.max_interruptions, placed.policy.retries)
    _add_new(ctx, (*metadata, "annotations", POLICY_ANNOTATION), said)
    if not placed.on_spot:
        return
    if any(pool.provider is Provider.KARPENTER for pool in used):
        _add_new(ctx, (*metadata, "annotations", "karpenter.sh/do-not-disrupt"), "true")
    if ctx.config.target.get("autoscaler", "cluster-autoscaler") == "cluster-autoscaler":
        _add_new(ctx, (*metadata, "annotations", "cluster-autoscaler.kubernetes.io/safe-to-evict"), "false")


@lru_cache(maxsize=64)
def _said(spot: str, interruptions: int, retries: int) -> str:
    """What the annotation says of a policy."""
    said = {"spot": spot, "interruptions": {"max": interruptions}, "errors": {"retries": retries}}
    return json.dumps(said, separators=(",", ":"))


def _add_new(ctx: Context, path: Path, value: str) -> None:
    """Add a label or annotation; one that the user wrote stays."""
    if ctx.editor.get(path) is None:
        ctx.editor.add(path, value)
