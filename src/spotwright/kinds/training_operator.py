"""The training operator's jobs (kubeflow.org/v1): TFJob, PyTorchJob, XGBoostJob, PaddleJob, JAXJob, MPIJob, and MPIJob v2beta1.

Each role has a pod template and a restart policy. ``ExitCode`` distinguishes interruptions from errors: the operator recreates
a pod if its code ended with 128 or more, or its node is gone, and fails the job at 1 to 127. It does not count these pods, so
only ``activeDeadlineSeconds`` bounds them. A failed pod of an XGBoostJob fails the job under every other restart policy.
``OnFailure``, the default of PyTorchJob and PaddleJob, survives interruptions too and retries errors, so it stays; others
default to ``Never``, under which an interruption with a notice fails the job. Sources: kubeflow/trainer v1.9.4,
``pkg/controller.v1/common/pod.go`` and ``job.go``, ``pkg/util/train/train_util.go``, ``UpdateJobStatus`` of each kind's
controller; kubeflow/trainer#2045; kubeflow/mpi-operator v0.8.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotwright.kinds.kind import Kind, Reads, Retry, RetryFields, Words, levels_of_pods, pods_at, replicas
from spotwright.model.policy import BUILT_IN, Policy
from spotwright.placing.context import MOST_RETRIES, RETRIES_STAY, Group, Level, OwnRetries, PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import POD_FACTS, Fact, Mechanism, in_object, nothing, waits
from spotwright.placing.patch import value_at
from spotwright.placing.pod_spec import POD_FIELDS, TEMPLATE, check, refuse_at_template, refuse_misplaced
from spotwright.placing.pods import Placed, Role, place_pod
from spotwright.placing.retries import (
    DEFAULT_BACKOFF_LIMIT,
    deadline_seconds,
    no_interruption_text,
    seconds_text,
    whole_number,
    write_unless_set,
)

__all__ = ["KINDS"]


_RUN_DEADLINE = in_object("run:runPolicy.activeDeadlineSeconds", "for all attempts together")
_OPERATOR: Mapping[str, Fact] = {
    **POD_FACTS,
    **waits("the operator creates pods again at once"),
    "interruptions.max": in_object(
        "run:runPolicy.activeDeadlineSeconds",
        "a time instead of a count",
        absent=nothing("pods that are created again are not counted"),
    ),
    "timeout": _RUN_DEADLINE,
}
_RESTARTS = "role:restartPolicy"

_EXIT_CODE = Mechanism(
    "`restartPolicy: ExitCode`",
    {
        **_OPERATOR,
        "errors.retries: 0": in_object(_RESTARTS, "fails the job at exit codes 1 to 127"),
        "errors.retries": nothing("ExitCode fails the job at exit codes 1 to 127", is_reported=True),
    },
)

_ANY_ERROR = Mechanism(
    "`restartPolicy: OnFailure` or `Always`",
    {
        **_OPERATOR,
        "errors.retries": in_object("run:runPolicy.backoffLimit", "restarts of a container in its pod"),
    },
)

_IN_PLACE = Mechanism(
    "its own `OnFailure` or `Always`",
    {
        **_OPERATOR,
        "interruptions.max": nothing("a failed pod fails the job", is_reported=True),
        "errors.retries": in_object("run:runPolicy.backoffLimit", "restarts of a container in its pod"),
    },
)

_NEVER = Mechanism(
    "its own `Never`",
    {
        **_OPERATOR,
        "interruptions.max": nothing("restartPolicy Never fails the job", is_reported=True),
        "errors.retries: 0": in_object(_RESTARTS),
        "errors.retries": nothing("restartPolicy Never fails the job"),
    },
)

_ELASTIC = Mechanism(
    "elastic",
    {
        **_OPERATOR,
        "interruptions.max": in_object("run:elasticPolicy.maxRestarts", "errors count there too"),
        "errors.retries": in_object("run:elasticPolicy.maxRestarts", "interruptions count there too"),
    },
)

_MPI_EVICTED = Mechanism(
    "`kubeflow.org/v1`",
    {
        **_OPERATOR,
        "interruptions.max": nothing("an evicted worker fails the job", is_reported=True),
        "errors.retries": nothing("the operator ignores restartPolicy"),
        "timeout": nothing(),
    },
)

_MPI_LAUNCHER = Mechanism(
    "`kubeflow.org/v2beta1`",
    {
        **_OPERATOR,
        "interruptions.max": in_object(
            "run:runPolicy.backoffLimit", "restarts of the launcher, errors too; an evicted worker fails the job"
        ),
        "errors.retries": in_object("run:runPolicy.backoffLimit", "restarts of the launcher, interruptions too"),
        "timeout": nothing(),
    },
)


_POD_LABEL = "training.kubeflow.org/job-name"
_RUN = f"metadata.labels['{_POD_LABEL}']"
_FROZEN = "all but runPolicy.managedBy can be changed; a changed template applies to pods that are created afterwards"
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
_UNBOUNDED = "; only activeDeadlineSeconds bounds interruptions: give the policy a timeout"
_UNCOUNTED = "; retries are unlimited here; set `timeout` in the policy"
_EVICTED = "a worker that ends as Evicted fails the whole job, whatever its restartPolicy (kubeflow/mpi-operator#647)"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of job: the field with its roles, and the behaviour of its operator.

    ``on_demand_reason``: why a role stays on on-demand, by its lower-case name. ``container``: the name of the container that
    its webhook requires. ``restarts``: whether it honours a role's ``restartPolicy``. ``exit_code_only``: whether a failed pod
    fails the job unless the ``restartPolicy`` of its role is ExitCode. ``retries``: whether its default ``restartPolicy`` is
    OnFailure instead of Never. ``is_elastic``: whether an elasticPolicy has torchrun start it. ``own``: fields of its spec that
    other kinds have in runPolicy.
    """

    replicas: str
    on_demand_reason: Mapping[str, str]
    container: str = ""
    restarts: bool = True
    exit_code_only: bool = False
    retries: bool = False
    is_elastic: bool = False
    own: tuple[str, ...] = ()
    mechanism: Mechanism = _EXIT_CODE


@dataclass(frozen=True, slots=True)
class _Replica:
    """One role of a job."""

    at: Path  # of its replica spec
    placed: Placed

    @property
    def name(self) -> str:
        return str(self.at[-1])


_MASTER = {"master": "it is the workers' rendezvous, and it decides whether the job succeeded"}
_LAUNCHER = {"launcher": "if it is lost, the whole job starts again"}
_TF = {
    "chief": "it coordinates, and decides whether the job succeeded",
    "master": "it coordinates, and decides whether the job succeeded",
    "ps": "every worker needs every parameter server",
}


def _place_v1(ctx: PlaceContext, table: _Kind) -> None:
    elastic = ctx.get("spec", "elasticPolicy") is not None
    members = _place_roles(ctx, table, own=table.own, is_torch=elastic and table.is_elastic)
    spot = _on_spot(ctx, members)
    if not spot:
        return
    for member in spot:
        report = member.placed.report
        report.after_interruption = _settle_restart(ctx, table, member) if table.restarts else _EVICTED
    if not table.restarts:
        ctx.add_finding(
            Level.WARNING, spot[0].at, f"{spot[0].name}: {_EVICTED}; the launcher fails too, with its mpirun"
        )
    elif elastic:
        _settle_elastic(ctx, spot)
    else:
        _warn_of_peers(ctx, members, spot)
    is_endless = any(
        max(member.placed.policy.retries, member.placed.policy.max_interruptions) >= MOST_RETRIES for member in spot
    )
    _settle_run_policy(ctx, _largest(spot), bounded=not table.restarts, is_endless=is_endless)
    if table.restarts and ctx.get("spec", "runPolicy", "activeDeadlineSeconds") is None:
        for member in spot:
            member.placed.report.after_interruption += _UNCOUNTED


def _place_mpi_v2(ctx: PlaceContext) -> None:
    members = _place_roles(ctx, _Kind("mpiReplicaSpecs", _LAUNCHER, mechanism=_MPI_LAUNCHER), own=())
    spot = _on_spot(ctx, members)
    if not spot:
        return
    ctx.add_finding(Level.WARNING, spot[0].at, f"{spot[0].name}: {_EVICTED}")
    policy = _largest(spot)
    limit = _count(ctx, policy, "it counts the restarts of the launcher after interruptions and errors")
    for member in spot:
        text = f"the launcher restarts, which counts, together with errors, against runPolicy.backoffLimit {limit}; {_EVICTED}"
        member.placed.report.after_interruption = text
    _settle_cleaning(ctx)


def _on_spot(ctx: PlaceContext, members: Sequence[_Replica]) -> list[_Replica]:
    """The roles on spot, whose retries are to be written; none if retries stay as they are."""
    spot = [member for member in members if member.placed.on_spot]
    if ctx.writes(Group.RETRIES):
        return spot
    for member in spot:
        member.placed.report.after_interruption = RETRIES_STAY
    return []


def _place_roles(ctx: PlaceContext, table: _Kind, own: Sequence[str], *, is_torch: bool = False) -> list[_Replica]:
    """Place every role of a job; ``is_torch``: its pods get torchrun's options. Misplaced fields are refused first."""
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
        check(ctx, template, TEMPLATE)
        _warn_of_template(ctx, table, at)
        on_demand_reason = table.on_demand_reason.get(name.lower(), "") if len(roles) > 1 else ""
        path = f"{ctx.name}/{name.lower()}"
        spec = (*template, "spec")
        retries = _own_retries(ctx, table, at)
        role = Role(
            name, path, spec, template, on_demand_reason, work=ctx.name, run=_RUN, is_elastic=is_torch, retries=retries
        )
        placed = place_pod(ctx, role)
        placed.report.frozen = _FROZEN
        placed.report.mechanism = table.mechanism
        placed.report.anchor("role", ctx.editor, at)
        placed.report.anchor("run", ctx.editor, ctx.at("spec"))
        placed.report.after_interruption = "" if placed.on_spot else no_interruption_text(placed.policy)
        members.append(_Replica(at, placed))
    return members


def _own_retries(ctx: PlaceContext, table: _Kind, at: Path) -> OwnRetries | None:
    """The operator's retries of a role's errors, by its restart policy; ``None`` for ExitCode and Never."""
    given = ctx.editor.get((*at, "restartPolicy"))
    if not table.restarts or table.exit_code_only:
        return None
    if given not in ("OnFailure", "Always") and not (given is None and table.retries):
        return None
    counted = ctx.editor.get(ctx.at("spec", "runPolicy", "backoffLimit"))
    if counted is not None:
        limit = whole_number(counted, MOST_RETRIES)
        return OwnRetries(MOST_RETRIES if limit is None else max(limit, 0), "its own backoffLimit")
    name = "its own restartPolicy" if given else "the operator's default restartPolicy OnFailure"
    return OwnRetries(MOST_RETRIES, name, is_default=given is None)


def _warn_of_template(ctx: PlaceContext, table: _Kind, at: Path) -> None:
    spec = (*at, "template", "spec")
    names = [one.get("name") for one in ctx.editor.get((*spec, "containers")) or () if isinstance(one, dict)]
    if table.container and table.container not in names:
        text = f"{at[-1]}: the operator refuses a {ctx.get('kind')} without a container named {table.container}"
        ctx.add_finding(Level.WARNING, (*spec, "containers"), text)
    if ctx.editor.get((*spec, "restartPolicy")) is not None:
        text = f"{at[-1]}: the operator replaces this by the restartPolicy of the role, one level above the template"
        ctx.add_finding(Level.WARNING, (*spec, "restartPolicy"), text)


def _settle_restart(ctx: PlaceContext, table: _Kind, member: _Replica) -> str:
    """Write the restart policy of a role on spot; returns the effect of an interruption."""
    path, policy = (*member.at, "restartPolicy"), member.placed.policy
    is_ended = policy.retries == 0 and policy.sources.get("errors.retries", BUILT_IN.source) != BUILT_IN.source
    if ctx.editor.get(path) is None and table.retries and not is_ended:
        member.placed.report.mechanism = _ANY_ERROR
        text = "restartPolicy OnFailure, the operator's default, stays: errors of the code are retried as interruptions are"
        ctx.add_finding(
            Level.NOTE, member.at, f"{member.name}: {text}; errors.retries 0 in the policy ends the job at an error"
        )
        return "the pod is created again, as after any error (restartPolicy OnFailure)"
    if ctx.editor.get(path) is None and table.retries:
        text = "restartPolicy ExitCode replaces the operator's default, OnFailure: errors.retries 0 ends the job at an error"
        ctx.add_finding(Level.NOTE, member.at, f"{member.name}: {text}")
    in_force = write_unless_set(ctx, path, "ExitCode")
    if in_force == "ExitCode":
        member.placed.report.mechanism = _EXIT_CODE
        if policy.retries:
            text = f"errors.retries {policy.retries} has no effect here: ExitCode fails the job at any exit code of 1 to 127"
            ctx.add_finding(Level.WARNING, path, f"{member.name}: {text}")
        return (
            "the pod is created again if its exit code is 128 or more (SIGTERM: 143) or its node is gone; "
            "an exit code of 1 to 127 fails the job"
        )
    if in_force == "Never" or table.exit_code_only:
        member.placed.report.mechanism = _NEVER if in_force == "Never" else _IN_PLACE
        text = f"restartPolicy {in_force} stays (--replace-retries): an interruption with a notice fails the job"
        ctx.add_finding(Level.WARNING, path, f"{member.name}: {text}")
        return "the job fails; only if the node goes without notice, the pod is created again"
    member.placed.report.mechanism = _ANY_ERROR
    text = f"restartPolicy {in_force} stays (--replace-retries): errors of the code are retried as interruptions are"
    ctx.add_finding(Level.WARNING, path, f"{member.name}: {text}")
    return f"the pod is created again, as after any error (restartPolicy {in_force})"


def _settle_elastic(ctx: PlaceContext, spot: Sequence[_Replica]) -> None:
    """Write ``maxRestarts``, which counts lost members of an elastic job, and warn if worker-0 is the rendezvous."""
    policy, at = _largest(spot), ctx.at("spec", "elasticPolicy")
    for member in spot:
        member.placed.report.mechanism = _ELASTIC
    total = policy.max_interruptions + policy.retries
    in_force = write_unless_set(ctx, (*at, "maxRestarts"), total)
    if in_force != total:
        text = f"maxRestarts {in_force} stays; the policy allows {total} (--replace-retries); lost members count there"
        ctx.add_finding(Level.WARNING, (*at, "maxRestarts"), text)
    backend = str(ctx.editor.get((*at, "rdzvBackend")) or "")
    if ctx.get("kind") == "PyTorchJob" and ctx.editor.get((*at, "rdzvHost")) is None and not backend.startswith("etcd"):
        text = (
            "the rendezvous is worker-0, which shares its template with all workers and cannot stay on on-demand: if it is lost, "
            "all restart; add a Master and set rdzvHost, or use etcd"
        )
        ctx.add_finding(Level.WARNING, at, text)


def _warn_of_peers(ctx: PlaceContext, members: Sequence[_Replica], spot: Sequence[_Replica]) -> None:
    """Warn that a lost pod stops all others, whose exit codes then decide, unless there are parameter servers."""
    if any(member.name.lower() == "ps" for member in members):
        return
    for member in spot:
        alone = len(members) == 1 and whole_number(ctx.editor.get((*member.at, "replicas")), 1) == 1
        if not alone and ctx.editor.get((*member.at, "restartPolicy")) == "ExitCode":
            text = (
                f"{member.name}: if one pod is lost, the others lose their peer; they must exit with 128 or more too, or the job "
                "fails"
            )
            ctx.add_finding(Level.WARNING, member.at, text)


def _largest(spot: Sequence[_Replica]) -> Policy:
    """The policy with the largest budgets, because the limits of a job apply to all its roles.

    If the operator's retries are unlimited, the deadline has room for the policy's interruptions and Kubernetes' default of six
    errors.
    """
    policy = max(
        (member.placed.policy for member in spot), key=lambda p: (p.max_interruptions + p.retries, p.timeout or 0)
    )
    if policy.max_interruptions >= MOST_RETRIES:
        is_before = policy.sources.get("fall_back_after") == "interruptions.max"
        before = policy.fall_back_after if is_before else BUILT_IN.values["interruptions.max"]
        policy = replace(policy, max_interruptions=before)
    return replace(policy, retries=DEFAULT_BACKOFF_LIMIT) if policy.retries >= MOST_RETRIES else policy


def _settle_run_policy(ctx: PlaceContext, policy: Policy, *, bounded: bool, is_endless: bool) -> None:
    """Write the bound of all attempts. ``bounded``: no retries were written. ``is_endless``: its own retries are unlimited."""
    at = ctx.at("spec", "runPolicy")
    wanted, given = deadline_seconds(policy), ctx.editor.get((*at, "activeDeadlineSeconds"))
    if wanted is not None and not bounded:
        in_force = write_unless_set(ctx, (*at, "activeDeadlineSeconds"), wanted)
        if in_force == wanted and given is None and is_endless:
            room = f"{policy.max_interruptions} interruptions and {policy.retries} errors"
            text = f"activeDeadlineSeconds {wanted} has room for {room}, each after the policy's timeout"
            ctx.add_finding(Level.NOTE, at, f"{text}: the operator alone bounds neither")
        if in_force != wanted:
            text = f"activeDeadlineSeconds {in_force} stays and bounds all attempts; the policy allows {seconds_text(wanted)}"
            ctx.add_finding(Level.WARNING, (*at, "activeDeadlineSeconds"), f"{text} (--replace-retries)")
    elif given is None and is_endless and not bounded:
        ctx.add_finding(Level.WARNING, at[:-1], "errors and interruptions have no bound: give the policy a timeout")
    elif given is None and not bounded:
        what = "it counts containers that restart in their pod (errors), but no pods that are created again (interruptions)"
        _count(ctx, policy, what, _UNBOUNDED)
    _settle_cleaning(ctx)


def _count(ctx: PlaceContext, policy: Policy, what: str, consequence: str = "") -> Any:
    """Write ``backoffLimit`` and report ``what`` it counts; returns the value in force."""
    path = ctx.at("spec", "runPolicy", "backoffLimit")
    total = policy.max_interruptions + policy.retries
    in_force = write_unless_set(ctx, path, total)
    origin = f"is interruptions.max {policy.max_interruptions} + errors.retries {policy.retries}"
    if in_force != total:
        origin = f"stays; the policy allows {total} (--replace-retries)"
    ctx.add_finding(Level.WARNING, path, f"backoffLimit {in_force} {origin}; {what}{consequence}")
    return in_force


def _settle_cleaning(ctx: PlaceContext) -> None:
    """Write a cleaning policy: pods that outlive the job keep paid nodes."""
    path = ctx.at("spec", "runPolicy", "cleanPodPolicy")
    present = ctx.editor.get(path) or ctx.get("spec", "cleanPodPolicy")
    if present is None:
        ctx.editor.add(path, "Running")
    elif present == "None":
        ctx.add_finding(
            Level.NOTE, path, "pods that still run after the job has ended keep their nodes; Running ends them"
        )


def _place_mpi(ctx: PlaceContext, table: _Kind) -> None:
    if str(ctx.get("apiVersion")) == "kubeflow.org/v2beta1":
        _place_mpi_v2(ctx)
    else:
        _place(ctx, table)


def _place(ctx: PlaceContext, table: _Kind) -> None:
    if str(ctx.get("apiVersion")) == "kubeflow.org/v1":
        _place_v1(ctx, table)
    else:
        text = f"{ctx.get('apiVersion')} has no {ctx.get('kind')} any more, so it is not placed: write kubeflow.org/v1"
        ctx.add_finding(Level.WARNING, ctx.at("apiVersion"), text)


_RUN_POLICY = {
    **dict.fromkeys(("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedBy", "suspend")),
    "ttlSecondsAfterFinished": None,
    "schedulingPolicy": dict.fromkeys(
        ("minAvailable", "minResources", "priorityClass", "queue", "scheduleTimeoutSeconds")
    ),
}
_ELASTIC_FIELDS = {
    **dict.fromkeys(("maxReplicas", "maxRestarts", "metrics", "minReplicas", "nProcPerNode", "standalone")),
    **dict.fromkeys(("rdzvBackend", "rdzvConf", "rdzvHost", "rdzvId", "rdzvPort")),
}
_ROLE_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_CLEANED = ("All", "Running", "None")


def _retries(table: _Kind, more: Sequence[Words]) -> RetryFields:
    """The retry fields of a job.

    Sources: the custom resource definitions of training-operator v1.9; mpi-operator v0.8, ``pkg/apis/kubeflow/validation``.
    """
    role = f"spec.{table.replicas}.*"
    return RetryFields(
        "spec.runPolicy.backoffLimit",
        {"spec": ("runPolicy",), role: ("restartPolicy",), **levels_of_pods(f"{role}.template")},
        {"spec.runPolicy": _RUN_POLICY, **({"spec.elasticPolicy": _ELASTIC_FIELDS} if table.is_elastic else {})},
        (
            Words(f"{role}.restartPolicy", _ROLE_POLICIES, "v1"),
            *more,
            Words("spec.runPolicy.cleanPodPolicy", _CLEANED),
        ),
    )


def _pods_of_role(data: Mapping[str, Any], path: Path) -> int | None:
    """The pods of a role at one time; of elastic workers, the most."""
    most = whole_number(value_at(data, ("spec", "elasticPolicy", "maxReplicas"))) if path[-2] == "Worker" else None
    return replicas(data, path) if most is None else most


def _kind(
    name: str,
    table: _Kind,
    mechanisms: tuple[Mechanism, ...],
    roles: tuple[str, ...],
    place: Callable[[PlaceContext, _Kind], None] = _place,
    words: Sequence[Words] = (),
    **more: Any,
) -> Kind:
    return Kind(
        group="kubeflow.org",
        name=name,
        version="v1",
        takes_any_version=True,
        place=lambda ctx: place(ctx, table),
        places=(pods_at(f"spec.{table.replicas}.*.template", at_once=_pods_of_role),),
        is_gang=True,
        mechanisms=mechanisms,
        retries=_retries(table, words),
        reads=Reads.RUNS,
        is_queued=True,
        roles=roles,
        container=table.container,
        leads=lambda role: role.lower() in table.on_demand_reason,
        pods_label=_POD_LABEL,
        suspended_by=("spec", "runPolicy", "suspend"),
        default_policy="OnFailure" if table.retries else "Never",
        **{"page": f"training/{name.lower()}", "retry": Retry.ROLE, **more},
    )


_WITH_MASTER = ("Master", "Worker")
_RESTARTED = (_EXIT_CODE, _ANY_ERROR, _NEVER)
_RETRIED = (_ANY_ERROR, _EXIT_CODE, _NEVER, _ELASTIC)
_TORCH = _Kind("pytorchReplicaSpecs", _MASTER, "pytorch", retries=True, is_elastic=True, mechanism=_ANY_ERROR)
_PADDLE = _Kind("paddleReplicaSpecs", _MASTER, "paddle", retries=True, mechanism=_ANY_ERROR)
_XGB = _Kind("xgbReplicaSpecs", _MASTER, "xgboost", exit_code_only=True)
_MPI = _Kind("mpiReplicaSpecs", _LAUNCHER, restarts=False, own=("cleanPodPolicy",), mechanism=_MPI_EVICTED)

KINDS = (
    _kind(
        "TFJob",
        _Kind("tfReplicaSpecs", _TF, "tensorflow"),
        _RESTARTED,
        ("Chief", "Master", "PS", "Worker", "Evaluator"),
        notes=(
            "Parameter servers and the chief stay on on-demand. A role is `JOB/ROLE` in lower case: `mnist/ps`. "
            "The only role of a job goes to spot.\n"
            "`restartPolicy: ExitCode` is added: a pod is created again at an exit code of 128 or more, or when "
            "its node is gone; 1 to 127 fails the job. So exit with 143 on SIGTERM.\n"
            "The operator does not count pods that it creates again (trainer#2045). Set `timeout`: "
            "`activeDeadlineSeconds` then bounds interruptions.\n"
            "`cleanPodPolicy: Running` is added, so that pods release their nodes after the end."
        ),
        tried=(
            "Read in the source of the training operator 1.9.4 and checked against its schema. Its operator was "
            "not run."
        ),
    ),
    _kind(
        "PyTorchJob",
        _TORCH,
        _RETRIED,
        _WITH_MASTER,
        notes=(
            "The master stays on on-demand, unless it is the whole job.\n"
            "The operator's default, `restartPolicy: OnFailure`, stays: a pod is created again after an "
            "interruption, and after an error of the code without a bound. With `errors: {retries: 0}` the policy "
            "writes `ExitCode` as on a TFJob: exit codes 1 to 127 fail the job.\n"
            "`activeDeadlineSeconds` is added with room for six errors. Without a `timeout` interruptions are "
            "unlimited.\n"
            "`elasticPolicy.maxRestarts` becomes `interruptions.max` + `errors.retries`. Without `rdzvHost` or "
            "etcd the members meet at worker-0, which shares its template with all workers and cannot stay on "
            "on-demand."
        ),
        tried=(
            "Read in the source of the training operator 1.9.4 and checked against its schema. Its operator was "
            "not run."
        ),
    ),
    _kind(
        "XGBoostJob",
        _XGB,
        (_EXIT_CODE, _IN_PLACE, _NEVER),
        _WITH_MASTER,
        notes=(
            "The master starts the tracker and ends the job, so it stays on on-demand unless it is the whole job.\n"
            "Only `restartPolicy: ExitCode` survives an interruption with a notice here; with `OnFailure` or "
            "`Always` the whole job fails. `--replace-retries` writes `ExitCode`.\n"
            "A lost worker stops the others, which must exit with 128 or more as well. Every attempt begins at "
            "the last saved booster."
        ),
        tried=(
            "Read in the source of the training operator 1.9.4 and checked against its schema. Its operator was "
            "not run."
        ),
    ),
    _kind(
        "PaddleJob",
        _PADDLE,
        _RETRIED,
        _WITH_MASTER,
        notes=(
            "With a master the job succeeds when the master does, so the master stays on on-demand. Without one "
            "the workers meet at the first worker, which shares their template and goes to spot with them.\n"
            "`restartPolicy: OnFailure` stays, as on a PyTorchJob. With `elasticPolicy`, `maxRestarts` becomes "
            "`interruptions.max` + `errors.retries`."
        ),
        tried=(
            "Read in the source of the training operator 1.9.4 and checked against its schema. Its operator was "
            "not run."
        ),
    ),
    _kind(
        "JAXJob",
        _Kind("jaxReplicaSpecs", {}, "jax"),
        _RESTARTED,
        ("Worker",),
        notes=(
            "Worker 0 coordinates `jax.distributed` and shares its template with all workers, so all of them go "
            "to spot.\n"
            "`restartPolicy: ExitCode` and `activeDeadlineSeconds` are added, as on a TFJob.\n"
            "When one process is gone, the others end with an error. Exit with 143 then, so that all are created "
            "again from the last checkpoint."
        ),
        tried=(
            "Read in the source of the training operator 1.9.4 and checked against its schema. Its operator was "
            "not run."
        ),
    ),
    _kind(
        "MPIJob",
        _MPI,
        (_MPI_EVICTED, _MPI_LAUNCHER),
        ("Launcher", "Worker"),
        _place_mpi,
        more_versions=("v2beta1",),
        words=[
            Words("spec.mpiReplicaSpecs.*.restartPolicy", ("Never", "OnFailure"), "v2beta1"),
            Words("spec.cleanPodPolicy", _CLEANED),
        ],
        retry=Retry.OTHER,
        makes=("Job",),
        page="training/tfjob",
        notes=(
            "The launcher stays on on-demand. A worker that ends as Evicted fails an MPIJob, whatever its "
            "`restartPolicy` (mpi-operator#647); a warning says so. In `v2beta1` the launcher is a Job with "
            "`backoffLimit`."
        ),
    ),
)
"""A job of another version is reported, not placed."""
