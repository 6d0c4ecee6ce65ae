"""The training operator's jobs (kubeflow.org/v1): TFJob, PyTorchJob, XGBoostJob, PaddleJob, JAXJob, MPIJob, and MPIJob v2beta1.

Each role has a pod template and a restart policy of its own. ``ExitCode`` tells interruptions from errors: the operator makes a
pod again whose code ended with 128 or more, or whose node is gone, and fails the job at 1 to 127. It does not count what it
makes again, so ``activeDeadlineSeconds`` is the only end. Sources: kubeflow/trainer v1.9.4, ``pkg/controller.v1/common/pod.go``
and ``job.go``, ``pkg/util/train/train_util.go``; kubeflow/trainer#2045; kubeflow/mpi-operator v0.8.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.bounds import deadline_seconds, settle, spoken, undisturbed, whole
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.kinds import Place
from spotwright.manifests.levels import POD_FIELDS, refuse_at_template, refuse_misplaced
from spotwright.manifests.pods import Placed, Role, place_pod
from spotwright.model.policy import Policy

__all__ = ["KINDS"]

_RUN = "metadata.labels['training.kubeflow.org/job-name']"
_FROZEN = (
    "nothing is refused but runPolicy.managedBy; a change of a template counts for pods that are made from then on"
)
_OF_RUN_POLICY = frozenset(
    {
        "activeDeadlineSeconds",
        "backoffLimit",
        "cleanPodPolicy",
        "schedulingPolicy",
        "suspend",
        "ttlSecondsAfterFinished",
    }
)
_NO_END = "; only activeDeadlineSeconds ends interruptions: give the policy a timeout"
_UNCOUNTED = "; nothing counts it, and without activeDeadlineSeconds nothing ends it: give the policy a timeout"
_EVICTED = "a worker that ends as Evicted fails the whole job, whatever its restartPolicy (kubeflow/mpi-operator#647)"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a kind calls its roles, and what it does with them.

    ``stays``: roles that others depend on, in small letters. ``container``: the name that its webhook demands. ``restarts``: it
    honours a role's ``restartPolicy``.
    """

    replicas: str
    stays: Mapping[str, str]
    container: str = ""
    restarts: bool = True


@dataclass(frozen=True, slots=True)
class _Member:
    """One role of a job."""

    at: Path  # of its replica spec
    placed: Placed

    @property
    def name(self) -> str:
        return str(self.at[-1])


_MASTER = {"master": "the workers' rendezvous, and it decides whether the job succeeded"}
_LAUNCHER = {"launcher": "when it goes, the whole job starts again"}
_TF = {
    "chief": "it coordinates, and decides whether the job succeeded",
    "master": "it coordinates, and decides whether the job succeeded",
    "ps": "every worker needs every parameter server",
}
_V1: Mapping[str, _Kind] = {
    "TFJob": _Kind("tfReplicaSpecs", _TF, "tensorflow"),
    "PyTorchJob": _Kind("pytorchReplicaSpecs", _MASTER, "pytorch"),
    "XGBoostJob": _Kind("xgbReplicaSpecs", _MASTER, "xgboost"),
    "PaddleJob": _Kind("paddleReplicaSpecs", _MASTER, "paddle"),
    "JAXJob": _Kind("jaxReplicaSpecs", {}, "jax"),
    "MPIJob": _Kind("mpiReplicaSpecs", _LAUNCHER, restarts=False),
}


def _place_v1(ctx: Context) -> None:
    kind = str(ctx.get("kind"))
    table = _V1[kind]
    members = _place_roles(ctx, table, own=("cleanPodPolicy",) if kind == "MPIJob" else ())
    spot = [member for member in members if member.placed.on_spot]
    if not spot:
        return
    elastic = ctx.get("spec", "elasticPolicy") is not None
    for member in spot:
        report = member.placed.report
        report.after_interruption = _settle_restart(ctx, member) if table.restarts else _EVICTED
    if not table.restarts:
        ctx.say(Level.WARNING, spot[0].at, f"{spot[0].name}: {_EVICTED}; and the launcher fails with its mpirun")
    elif elastic:
        _settle_elastic(ctx, spot)
    else:
        _warn_of_peers(ctx, members, spot)
    _settle_run_policy(ctx, _largest(spot), bounded=not table.restarts)
    if table.restarts and ctx.get("spec", "runPolicy", "activeDeadlineSeconds") is None:
        for member in spot:
            member.placed.report.after_interruption += _UNCOUNTED


def _place_mpi_v2(ctx: Context) -> None:
    members = _place_roles(ctx, _Kind("mpiReplicaSpecs", _LAUNCHER), own=())
    spot = [member for member in members if member.placed.on_spot]
    if not spot:
        return
    ctx.say(Level.WARNING, spot[0].at, f"{spot[0].name}: {_EVICTED}")
    policy = _largest(spot)
    limit = _count(
        ctx, policy, "it counts how often the launcher starts again, after an interruption or an error alike"
    )
    for member in spot:
        text = f"the launcher starts again, counted, with errors, against runPolicy.backoffLimit {limit}; {_EVICTED}"
        member.placed.report.after_interruption = text
    _settle_cleaning(ctx)


def _place_roles(ctx: Context, table: _Kind, own: Sequence[str]) -> list[_Member]:
    """Place every role of a job; fields at the wrong level are refused before anything is written."""
    specs = ctx.at("spec", table.replicas)
    roles = ctx.editor.get(specs)
    if not isinstance(roles, dict) or not roles:
        raise ctx.problem(ctx.at("spec"), f"expected roles under {table.replicas}")
    first = (*specs, next(iter(roles)), "template", "spec")
    refuse_misplaced(ctx, ctx.at("spec"), first, POD_FIELDS)
    refuse_misplaced(ctx, ctx.at("spec"), ctx.at("spec", "runPolicy"), _OF_RUN_POLICY, own)
    members = []
    for name in roles:
        at = (*specs, name)
        template = (*at, "template")
        refuse_misplaced(ctx, at, template, {"spec", "metadata"})
        refuse_misplaced(ctx, at, (*template, "spec"), POD_FIELDS, {"restartPolicy"})
        refuse_misplaced(ctx, at, ctx.at("spec", "runPolicy"), _OF_RUN_POLICY)
        refuse_at_template(ctx, template)
        _warn_of_template(ctx, table, at)
        stays = table.stays.get(name.lower(), "") if len(roles) > 1 else ""
        path = f"{ctx.name}/{name.lower()}"
        placed = place_pod(ctx, Role(name, path, (*template, "spec"), template, stays, work=ctx.name, run=_RUN))
        placed.report.frozen = _FROZEN
        placed.report.after_interruption = "" if placed.on_spot else undisturbed(placed.policy)
        members.append(_Member(at, placed))
    return members


def _warn_of_template(ctx: Context, table: _Kind, at: Path) -> None:
    spec = (*at, "template", "spec")
    names = [one.get("name") for one in ctx.editor.get((*spec, "containers")) or () if isinstance(one, dict)]
    if table.container and table.container not in names:
        text = f"{at[-1]}: the operator refuses a {ctx.get('kind')} without a container named {table.container}"
        ctx.say(Level.WARNING, (*spec, "containers"), text)
    if ctx.editor.get((*spec, "restartPolicy")) is not None:
        text = (
            f"{at[-1]}: the operator overwrites this with the restartPolicy of the role, one level above the template"
        )
        ctx.say(Level.WARNING, (*spec, "restartPolicy"), text)


def _settle_restart(ctx: Context, member: _Member) -> str:
    """The restart policy of a role on spot, and what an interruption does then."""
    path, policy = (*member.at, "restartPolicy"), member.placed.policy
    holds = settle(ctx, path, "ExitCode")
    if holds == "ExitCode":
        if policy.retries:
            text = f"errors.retries {policy.retries} cannot be had here: ExitCode fails the job at the first code of 1 to 127"
            ctx.say(Level.NOTE, path, f"{member.name}: {text}")
        return (
            "the pod is made again where its code ends with 128 or more (SIGTERM: 143) or its node is gone; "
            "an exit code of 1 to 127 fails the job"
        )
    if holds == "Never":
        text = "restartPolicy Never stays (--replace-retries): an interruption with a notice fails the job"
        ctx.say(Level.WARNING, path, f"{member.name}: {text}")
        return "the job fails, but for a node that goes without a word: then the pod is made again"
    text = f"restartPolicy {holds} stays (--replace-retries): errors of the code are tried again as interruptions are"
    ctx.say(Level.NOTE, path, f"{member.name}: {text}")
    return f"the pod is made again, as after any error (restartPolicy {holds})"


def _settle_elastic(ctx: Context, spot: Sequence[_Member]) -> None:
    """An elastic job counts lost members by ``maxRestarts``, and meets at worker-0 where nothing else is said."""
    policy, at = _largest(spot), ctx.at("spec", "elasticPolicy")
    total = policy.max_interruptions + policy.retries
    holds = settle(ctx, (*at, "maxRestarts"), total)
    if holds != total:
        text = f"maxRestarts {holds} stays, the policy says {total} (--replace-retries); lost members count there"
        ctx.say(Level.NOTE, (*at, "maxRestarts"), text)
    backend = str(ctx.editor.get((*at, "rdzvBackend")) or "")
    if ctx.get("kind") == "PyTorchJob" and ctx.editor.get((*at, "rdzvHost")) is None and not backend.startswith("etcd"):
        text = (
            "the members meet at worker-0, which shares its template with all workers and cannot be kept on on-demand: when it "
            "goes, all start again; add a Master and write rdzvHost, or use etcd"
        )
        ctx.say(Level.WARNING, at, text)


def _warn_of_peers(ctx: Context, members: Sequence[_Member], spot: Sequence[_Member]) -> None:
    """Without parameter servers and without elasticity, one lost pod stops all others, and their exit codes decide."""
    if any(member.name.lower() == "ps" for member in members):
        return
    for member in spot:
        alone = len(members) == 1 and whole(ctx.editor.get((*member.at, "replicas")), 1) == 1
        if not alone and ctx.editor.get((*member.at, "restartPolicy")) == "ExitCode":
            text = (
                f"{member.name}: when one pod goes, the others lose their peer; what they exit with then must be 128 or more as "
                "well, or the job fails"
            )
            ctx.say(Level.WARNING, member.at, text)


def _largest(spot: Sequence[_Member]) -> Policy:
    """The policy with the largest budgets: the limits of a job are those of all its roles."""
    return max(
        (member.placed.policy for member in spot), key=lambda p: (p.max_interruptions + p.retries, p.timeout or 0)
    )


def _settle_run_policy(ctx: Context, policy: Policy, *, bounded: bool) -> None:
    """The end of all attempts. ``bounded``: nothing was written that tries again."""
    at = ctx.at("spec", "runPolicy")
    wanted, given = deadline_seconds(policy), ctx.editor.get((*at, "activeDeadlineSeconds"))
    if wanted is not None and not bounded:
        holds = settle(ctx, (*at, "activeDeadlineSeconds"), wanted)
        if holds != wanted:
            text = f"activeDeadlineSeconds {holds} stays and bounds all attempts together; the policy allows {spoken(wanted)}"
            ctx.say(Level.WARNING, (*at, "activeDeadlineSeconds"), f"{text} (--replace-retries)")
    elif given is None and not bounded:
        what = "it counts containers that are started again in their pod (errors), but no pod that is made again (interruptions)"
        _count(ctx, policy, what, _NO_END)
    _settle_cleaning(ctx)


def _count(ctx: Context, policy: Policy, what: str, end: str = "") -> Any:
    """The counting form: ``backoffLimit``, with what it counts and what that leaves without an end."""
    path = ctx.at("spec", "runPolicy", "backoffLimit")
    total = policy.max_interruptions + policy.retries
    holds = settle(ctx, path, total)
    said = f"is interruptions.max {policy.max_interruptions} + errors.retries {policy.retries}"
    if holds != total:
        said = f"stays, the policy says {total} (--replace-retries)"
    ctx.say(Level.WARNING, path, f"backoffLimit {holds} {said}; {what}{end}")
    return holds


def _settle_cleaning(ctx: Context) -> None:
    """Pods that still run when the job has ended hold their nodes, which is what spot was to save."""
    path = ctx.at("spec", "runPolicy", "cleanPodPolicy")
    present = ctx.editor.get(path) or ctx.get("spec", "cleanPodPolicy")
    if present is None:
        ctx.editor.add(path, "Running")
    elif present == "None":
        ctx.say(Level.NOTE, path, "pods that still run when the job has ended keep their nodes; Running would end them")


def _wrong_version(ctx: Context) -> None:
    text = f"{ctx.get('apiVersion')} has no {ctx.get('kind')} any more, and nothing is placed: write kubeflow.org/v1"
    ctx.say(Level.WARNING, ctx.at("apiVersion"), text)


KINDS: Mapping[tuple[str, str], Place] = {
    **{("kubeflow.org/v1", kind): _place_v1 for kind in _V1},
    ("kubeflow.org/v2beta1", "MPIJob"): _place_mpi_v2,
    **{("kubeflow.org", kind): _wrong_version for kind in _V1},
}
"""A kind of another version than these is named, not placed."""
