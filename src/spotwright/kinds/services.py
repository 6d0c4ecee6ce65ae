"""Kinds whose pods serve and stay off spot pools, with the exception of Deployments that are labelled as workers.

An interruption would hit users of services, datastores and notebooks. A Deployment usually serves requests or stores data, and
stays unchanged then. ``spotwright.dev/role: worker`` on the object or its pod template declares that its replicas take work
from a queue and may come and go; so does its own policy (``spotwright.dev/spot``, ``spotwright.dev/policy``). A Deployment
recreates each lost pod, uncounted, and never ends. Source: Kubernetes, "Deployments".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from spotwright.kinds.kind import (
    Count,
    Kind,
    Sharing,
    claims_in,
    claims_of_each,
    kind_of,
    one_pod,
    pods_at,
    replicas,
)
from spotwright.kinds.unknown import find_pod_specs
from spotwright.model.policy import Spot
from spotwright.placing.context import Group, Level, PlaceContext, name_of
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import NODES_ONLY, POD_FACTS, Mechanism, nothing, waits
from spotwright.placing.merging import place_merged, write
from spotwright.placing.pod_spec import POD, POD_FIELDS, check, refuse_at_template, refuse_misplaced
from spotwright.placing.pods import Placed, PodRole, Role, place_pod
from spotwright.placing.retries import no_interruption_text, whole_number

__all__ = ["KINDS", "SERVES", "duty_of", "has_claim", "is_left", "leave_unchanged"]


_DEPLOYMENT = Mechanism(
    "",
    {
        **POD_FACTS,
        **waits("the Deployment creates pods again at once"),
        "interruptions.max": nothing("a Deployment does not count and never ends"),
        "errors.retries": nothing("a Deployment does not count and never ends"),
    },
)


SERVES = "it serves requests, so an interruption is an outage; keep it on on-demand"
"""The effect of an interruption on the users of a service."""

_STORES = "it is often a datastore, and its volume may be bound to a zone; keep it on on-demand"
_EVERYWHERE = "it runs on every node; where spot nodes need it, give it only a toleration of their taint"
_USED = "it is used interactively, and unsaved work would be lost; keep it on on-demand"

_ON_DEMAND = "label it spotwright.dev/spot: never, and place keeps it on on-demand pools"
_KSERVE = "serving.kserve.io"
_KNATIVE = (
    "in serverless mode Knative takes affinity and tolerations only with its features kubernetes.podspec-affinity and "
    "kubernetes.podspec-tolerations"
)


def leave_unchanged(ctx: PlaceContext, way_out: str = "") -> None:
    """Report that the object stays unchanged, with the reason and any way to have it placed."""
    text = f"{_named(ctx)} stays unchanged: {_reason(ctx)}"
    ctx.add_finding(Level.WARNING, ctx.at("kind"), f"{text}; {way_out}" if way_out else text)


def has_claim(ctx: PlaceContext) -> bool:
    """Whether a Deployment has a volume claim, as MinIO and MySQL in Kubeflow do."""
    claims = claims_in(ctx.get(), ("spec", "template", "spec", "volumes"))
    return any(one.sharing is Sharing.NAMED for one in claims)


def _is_named(ctx: PlaceContext) -> bool:
    """Whether ``--pod-path`` names a pod spec of the object, which is placed there then."""
    return bool(find_pod_specs(ctx.editor.document.get((), None), ctx.options.pod_paths))


def _named(ctx: PlaceContext) -> str:
    return f"{ctx.get('kind')} {name_of(ctx.get('metadata'))}"


def _record(ctx: PlaceContext) -> Kind:
    return kind_of(str(ctx.get("apiVersion")), str(ctx.get("kind")))


def _reason(ctx: PlaceContext) -> str:
    """Why an interruption of the object would do harm."""
    harm = _record(ctx).harm
    return _STORES if harm == SERVES and has_claim(ctx) else harm


def _keep_on_demand(ctx: PlaceContext) -> None:
    """Place the object on on-demand if its own policy says so; refuse one that asks for spot."""
    record = _record(ctx)
    specs = [(*one.steps, "spec") if one.form == "T" else one.steps for one in record.places if record.mechanisms]
    paths = [ctx.at(*path) for path in specs if isinstance(ctx.get(*path), dict)]
    policy = ctx.policy(ctx.name)
    _, tasks = ctx.config.layers_for(ctx.name)
    source = policy.sources.get("spot")
    is_of_tasks = any(layer.source == source for layer in tasks)
    if policy.spot is None or not (is_of_tasks or ctx.has_own_policy) or not paths or _is_named(ctx):
        leave_unchanged(ctx, _ON_DEMAND if paths else "")
        return
    if policy.spot is not Spot.NEVER:
        if is_of_tasks:  # a pattern meant for other work may match too
            leave_unchanged(ctx, _ON_DEMAND)
            return
        text = (
            f"{_named(ctx)} goes to no spot pool (spot: {policy.spot}, {source}): {_reason(ctx)}: write spot: never, or"
        )
        raise ctx.problem(ctx.at("kind"), f"{text} name its pods with --pod-path to place them nevertheless")
    for path in paths:
        check(ctx, path, POD)
        placed = _place(ctx, path, str(path[-1]) if len(paths) > 1 else "")
        placed.report.after_interruption = no_interruption_text(placed.policy)
    if record.group == _KSERVE:
        ctx.add_finding(Level.NOTE, paths[0], _KNATIVE)


def _place(ctx: PlaceContext, path: Path, name: str = "", *, is_everywhere: bool = False) -> Placed:
    """Write only the tolerations and the affinity of the pods at a path.

    ``is_everywhere``: they run on each node, so preferences are void and GPU nodes are allowed.
    """
    pod = ctx.editor.get(path)
    value = {**pod, "containers": pod.get("containers") or list(_containers(pod))}
    policy_path = f"{ctx.name}/{name}" if name else ctx.name
    role = Role(name or str(ctx.get("kind")).lower(), policy_path, path, None, holder=is_everywhere)
    only = replace(ctx.options, only=ctx.options.only & {Group.PLACEMENT})
    findings = len(ctx.findings)
    placed, after = place_merged(replace(ctx, options=only), role, value)
    placed.report.mechanism = NODES_ONLY
    if is_everywhere and placed.policy.spot is Spot.PREFER:
        del ctx.findings[findings:]
        after = {**after, "affinity": pod.get("affinity")}
    for field in ("tolerations", "affinity"):
        if after.get(field) is not None:
            write(ctx.editor, (*path, field), pod.get(field), after[field])
    return placed


def _containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The containers of a predictor that names a model, as ``model`` or by framework, instead."""
    for name, given in pod.items():
        if isinstance(given, dict) and isinstance(given.get("resources"), dict):
            yield {"name": name, "resources": given["resources"]}


def _place_daemon_set(ctx: PlaceContext) -> None:
    """Place a DaemonSet on the nodes of its own policy."""
    path = ctx.at("spec", "template", "spec")
    if not ctx.has_own_policy or not isinstance(ctx.editor.get(path), dict) or _is_named(ctx):
        leave_unchanged(ctx, "label it spotwright.dev/spot: prefer, and place adds that")
        return
    check(ctx, path, POD)
    placed = _place(ctx, path, is_everywhere=True)
    placed.report.frozen = "everything can be changed; a changed template replaces the pods one after the other"
    text = "its pod ends with the node, and each new node gets one; retries are not counted"
    placed.report.after_interruption = text if placed.on_spot else no_interruption_text(placed.policy)


_ROLE_LABEL = "spotwright.dev/role"
_WORKER = "worker"


def _place_deployment(ctx: PlaceContext) -> None:
    if is_left(ctx):
        return
    template = ctx.at("spec", "template")
    refuse_misplaced(ctx, ctx.at("spec"), (*template, "spec"), POD_FIELDS)
    refuse_at_template(ctx, template)
    check(ctx, (*template, "spec"), POD)
    is_bound = has_claim(ctx)  # by the user's volume
    role = Role("worker", ctx.name, (*template, "spec"), template, run=ctx.name, duty=duty_of(ctx))
    placed = place_pod(ctx, role)
    placed.report.mechanism = _DEPLOYMENT
    placed.report.frozen = "everything can be changed; a changed template replaces the pods one after the other"
    placed.report.after_interruption = no_interruption_text(placed.policy)
    if placed.on_spot:
        _explain(ctx, placed, is_bound=is_bound)


def is_left(ctx: PlaceContext) -> bool:
    """Whether an object of a serving kind stays unchanged, with a report: it is not declared a worker."""
    if ctx.has_own_policy or _is_labelled(ctx):
        return False
    leave_unchanged(ctx, f"if it only takes work from a queue, label it {_ROLE_LABEL}: {_WORKER}")
    return True


def _is_labelled(ctx: PlaceContext) -> bool:
    """Whether an object, or its pods, has the label of workers."""
    of_pods = ctx.get("spec", "template", "metadata", "labels")
    labels = [ctx.get("metadata", "labels"), of_pods]
    return any(isinstance(one, dict) and one.get(_ROLE_LABEL) == _WORKER for one in labels)


def duty_of(ctx: PlaceContext) -> PodRole:
    """The purpose of such an object: one that its own policy only keeps on on-demand serves."""
    return PodRole.WORKER if _is_labelled(ctx) or ctx.policy(ctx.name).spot is not Spot.NEVER else PodRole.SERVING


def _explain(ctx: PlaceContext, placed: Placed, *, is_bound: bool) -> None:
    """Report how a Deployment treats its replicas on spot, and what would harm it."""
    placed.report.after_interruption = (
        "the Deployment creates the pod again, uncounted; the other replicas go on; a message is worked on again if it is "
        "acknowledged only when its work is done"
    )
    replicas = whole_number(ctx.get("spec", "replicas"), 1)
    if replicas == 1:
        text = f"{ctx.name}: no work is done while its only replica is replaced: set replicas to 2 or more"
        ctx.add_finding(Level.NOTE, ctx.at("spec"), text)
    if placed.policy.checkpoint and replicas != 1:
        text = f"{ctx.name}: its replicas share one place for checkpoints: let the code name a distinct file in it"
        ctx.add_finding(Level.WARNING, ctx.at("spec"), text)
    if is_bound:
        text = f"{ctx.name}: its volume may be bound to a zone, or to one node at a time; a pod that is created elsewhere waits"
        ctx.add_finding(Level.WARNING, ctx.at("spec", "template", "spec", "volumes"), text)


def _kept(
    group: str,
    name: str,
    harm: str,
    duty: PodRole,
    *paths: str,
    form: str = "T",
    is_placed: bool = False,
    at_once: Count | None = None,
) -> Kind:
    """A kind that stays on on-demand. ``is_placed``: its pods have fields that can say so."""
    mechanisms = (NODES_ONLY,) if is_placed else ()
    places = tuple(pods_at(path, form, duty, at_once=at_once) for path in paths)
    return Kind(
        group=group, name=name, place=_keep_on_demand, places=places, mechanisms=mechanisms, harm=harm, page="services"
    )


_TEMPLATE = "spec.template"
_PREDICTOR = ("spec.predictor", "spec.transformer", "spec.explainer")
_SERVING = (SERVES, PodRole.SERVING)
_INTERACTIVE = (_USED, PodRole.INTERACTIVE)

KINDS = (
    _kept("", "ReplicationController", *_SERVING, _TEMPLATE, is_placed=True, at_once=replicas),
    Kind(
        group="apps",
        name="DaemonSet",
        place=_place_daemon_set,
        places=(pods_at(_TEMPLATE, duty=PodRole.SYSTEM),),
        mechanisms=(NODES_ONLY,),
        harm=_EVERYWHERE,
        leaves_pods=True,
        page="services",
        notes=(
            "Drivers, device plugins and log collectors of spot nodes need a toleration: `spotwright.dev/spot: "
            "prefer` adds it. `require` keeps the DaemonSet to spot nodes, `never` to on-demand; a `ladder` that "
            "names a GPU pool tolerates its taints."
        ),
    ),
    Kind(
        group="apps",
        name="Deployment",
        version="v1",
        place=_place_deployment,
        places=(pods_at(_TEMPLATE, duty=PodRole.SERVING, at_once=replicas),),
        mechanisms=(_DEPLOYMENT,),
        page="deployment",
        notes=(
            "A Deployment usually serves, so it stays unchanged. One that only takes work from a queue says so "
            "with the label `spotwright.dev/role: worker`; a policy on the object has the same effect.\n"
            "The Deployment creates a lost pod again, uncounted: `interruptions.max`, `errors.retries` and "
            "`fall_back_after` have no effect. Acknowledge a message only when its work is done.\n"
            "Use two replicas or more. Replicas share one place for checkpoints, and a volume claim may be bound "
            "to a zone; messages say so."
        ),
        tried=("Seen on Kubernetes 1.35.4."),
        may_change=True,
        may_work=True,
        harm=SERVES,
    ),
    _kept("apps", "ReplicaSet", *_SERVING, _TEMPLATE, is_placed=True, at_once=replicas)._replace(
        may_work=True, leaves_pods=True
    ),
    _kept("apps", "StatefulSet", _STORES, PodRole.DATASTORE, _TEMPLATE, is_placed=True, at_once=replicas)._replace(
        leaves_pods=True,
        claims=claims_of_each("spec.volumeClaimTemplates"),
        notes=(
            "Services, datastores and notebooks stay unchanged, with the reason, because an interruption is an "
            "outage or lost work. `spotwright.dev/spot: never` keeps them on on-demand pools. A label that asks "
            "for spot is refused; `--pod-path spec.template.spec` overrides that.\n"
            "The parts of an InferenceService are roles: `iris/predictor`. In serverless mode Knative applies "
            "affinity and tolerations only with `kubernetes.podspec-affinity` and "
            "`kubernetes.podspec-tolerations`."
        ),
    ),
    _kept("kubeflow.org", "Notebook", *_INTERACTIVE, _TEMPLATE, is_placed=True, at_once=one_pod),
    _kept("kubeflow.org", "PVCViewer", *_INTERACTIVE, "spec.podSpec", form="S", is_placed=True, at_once=one_pod),
    _kept("machinelearning.seldon.io", "SeldonDeployment", *_SERVING, "spec.predictors.*.componentSpecs.*"),
    _kept("serving.knative.dev", "Service", *_SERVING, _TEMPLATE),
    _kept(_KSERVE, "ClusterServingRuntime", *_SERVING, "spec", form="S"),
    _kept(_KSERVE, "InferenceService", *_SERVING, *_PREDICTOR, form="S", is_placed=True),
    _kept(_KSERVE, "LLMInferenceService", *_SERVING, "spec.template", "spec.worker", form="S"),
    _kept(_KSERVE, "ServingRuntime", *_SERVING, "spec", form="S"),
    _kept("tensorboard.kubeflow.org", "Tensorboard", *_INTERACTIVE),
)
