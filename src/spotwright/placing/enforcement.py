"""Who keeps each value of the policy on a kind, and through which field of the object.

A policy has the same fields for every kind, but no kind can keep all of them. So each kind has a fact for each field, and
``explain`` prints it beside the value: a value without an enforcer is no promise. The table has a row for each way in which
kinds go on after the end of an attempt. A placed object has the fields of its kind with their values; what nothing keeps is
named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any

from spotwright.model.policy import FIELDS, Policy
from spotwright.placing.documents import Path

__all__ = [
    "BY_QUOTA",
    "CONTROLLER_TEXT",
    "IN_A_QUEUE",
    "IN_A_REVERSED_QUEUE",
    "KUBERNETES_GRACE",
    "NOT_NEEDED",
    "ROWS",
    "TABLE",
    "Anchor",
    "Enforced",
    "Enforcer",
    "Fact",
    "Mechanism",
    "in_object",
    "nothing",
    "resolve_fact",
]


class Enforcer(StrEnum):
    """Who keeps a value of the policy while the work runs."""

    OBJECT = "object"  # a field of the placed object, which Kubernetes or the kind's controller reads
    KIND = "kind"  # Kubernetes or the kind's controller, without a field
    CONTROLLER = "controller"  # only a Spotwright controller in the cluster; nothing where none runs
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Fact:
    """Who enforces one field of the policy on one kind.

    ``field``: where the value is written, as ``anchor:path`` (``job:backoffLimit``); the anchor is a part of the object.
    ``name``: the field's name for people, if it is not the path. ``note``: what the enforcer does with the value, as far as it
    is not what the policy says. ``absent``: the fact that holds where the object does not have the field. ``is_reported``: the
    kind's module has a finding of its own about it.
    """

    by: Enforcer
    field: str = ""
    name: str = ""
    note: str = ""
    absent: Fact | None = None
    is_reported: bool = False

    @property
    def label(self) -> str:
        """The field's name for people."""
        return self.name or self.path

    @property
    def path(self) -> str:
        """The path of the field inside its part of the object."""
        return self.field.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A part of an object: its path, and how to read the object after and before the placement."""

    path: Path
    read: Callable[[Path], Any]
    read_before: Callable[[Path, Any], Any]


@dataclass(frozen=True, slots=True)
class Enforced:
    """Who enforces a value in one placed object. ``field`` is empty unless the object has it; ``text`` is for people.

    ``is_silent``: nothing has to be reported, because the kind's module does it, or because the value is about spot capacity
    and the work stays on on-demand.
    """

    by: Enforcer
    field: str
    text: str
    is_silent: bool = False


ROWS: tuple[str, ...] = ("spot: require", "spot: prefer", "spot: never", *(name for name in FIELDS if name != "spot"))
"""The rows of a table of facts: every field of the policy; ``spot`` by its value, because each value is kept in another way.

A table may have the row ``errors.retries: 0`` too, for kinds that retry no error.
"""


def in_object(field: str, note: str = "", *, name: str = "", absent: Fact | None = None) -> Fact:
    """The fact that a field of the object keeps the value."""
    return Fact(Enforcer.OBJECT, field, name, note, absent)


def nothing(note: str = "", *, is_reported: bool = False) -> Fact:
    """The fact that nothing keeps the value."""
    return Fact(Enforcer.NOTHING, note=note, is_reported=is_reported)


class Mechanism(StrEnum):
    """How a kind goes on after the end of an attempt."""

    PODS_ONLY = "pods-only"  # only the fields of the pod are placed
    NODES_ONLY = "nodes-only"  # only where the pods may run is placed
    POD = "pod"
    JOB_IGNORES = "job-ignores"
    JOB_SEPARATES = "job-separates"
    JOB_COUNTS = "job-counts"
    JOB_FAILS = "job-fails"
    SET_RESTARTS = "set-restarts"
    SET_SEPARATES = "set-separates"
    SET_UNCOUNTED = "set-uncounted"
    SET_FAILS = "set-fails"
    SET_ALONE = "set-alone"
    SET_IN_PLACE = "set-in-place"
    RUNTIME_DECIDES = "runtime-decides"
    RUNTIME_PLACED = "runtime-placed"
    EXIT_CODE = "exit-code"
    ANY_ERROR = "any-error"
    IN_PLACE = "in-place"
    NEVER = "never"
    ELASTIC = "elastic"
    MPI_EVICTED = "mpi-evicted"
    MPI_LAUNCHER = "mpi-launcher"
    ARGO = "argo"
    ARGO_OWN = "argo-own"
    ARGO_INLINE = "argo-inline"
    ARGO_TEMPLATES = "argo-templates"
    KFP = "kfp"
    KFP_STOCK = "kfp-stock"
    DEPLOYMENT = "deployment"
    RAY_CLUSTER = "ray-cluster"
    RAY_JOB = "ray-job"
    SPARK = "spark"
    TEKTON = "tekton"
    VOLCANO = "volcano"
    VOLCANO_ENDS = "volcano-ends"
    VOLCANO_OWN = "volcano-own"


NOT_NEEDED = "not needed: it stays on on-demand"
CONTROLLER_TEXT = "nothing without the Spotwright controller"
IN_A_QUEUE = Enforced(Enforcer.KIND, "", "Kueue, by the order of its flavors")
"""Who enforces ``spot: prefer`` for work in a queue of Kueue, which ignores preferred affinity."""

IN_A_REVERSED_QUEUE = Enforced(Enforcer.NOTHING, "", "nothing: its queue has on-demand before spot", is_silent=True)
"""That nothing keeps ``spot: prefer`` in a queue whose flavors have another order; the placement reports it."""

BY_QUOTA = Enforced(Enforcer.NOTHING, "", "nothing: Kueue goes on to the next flavor by quota alone", is_silent=True)
"""That nothing keeps ``fall_back_after`` and ``pending_timeout`` in a queue of Kueue; the placement reports it."""

KUBERNETES_GRACE = 30.0
"""Seconds of a pod's grace period where its spec has none. Source: Kubernetes documentation, "Pod Lifecycle"."""

_ABOUT_SPOT = ("interruptions.", "fall_back_after")


def resolve_fact(
    facts: Mapping[str, Fact], field: str, policy: Policy, anchors: Mapping[str, Anchor], *, on_spot: bool
) -> Enforced:
    """Who enforces a field of the policy in one placed object. ``on_spot``: whether the object may run on spot pools."""
    if policy.spot is None:
        return Enforced(Enforcer.NOTHING, "", "nothing")
    if not on_spot and field.startswith(_ABOUT_SPOT):
        return Enforced(Enforcer.NOTHING, "", NOT_NEEDED, is_silent=True)
    fact: Fact | None = _fact(facts, field, policy)
    while fact is not None and fact.by is Enforcer.OBJECT:
        text = _in_force(fact, anchors)
        if text:
            return Enforced(fact.by, fact.path, _with_note(text, fact.note))
        fact = fact.absent
    if field == "grace_period" and not on_spot:  # it is the time that a notice leaves
        return Enforced(Enforcer.NOTHING, "", NOT_NEEDED, is_silent=True)
    if field == "grace_period" and policy.grace_period == KUBERNETES_GRACE and fact is None:
        return Enforced(Enforcer.KIND, "", "Kubernetes, by its default")
    return _without_field(fact or nothing())


def _in_force(fact: Fact, anchors: Mapping[str, Anchor]) -> str:
    """The field of a fact with its value in the object; empty if the object does not have it."""
    anchor = anchors.get(fact.field.partition(":")[0])
    if anchor is None:
        return ""
    path = (*anchor.path, *_steps(fact.field))
    value = anchor.read(path)
    if value is None:
        return ""
    is_own = anchor.read_before(path, None) == value
    return f"{fact.label}{f' {value}' if _is_short(value) else ''}{' (yours)' if is_own else ''}"


def _fact(facts: Mapping[str, Fact], field: str, policy: Policy) -> Fact:
    """The fact for a field, or for its value if the table distinguishes values."""
    if field == "spot":
        return facts[f"spot: {policy.spot}"]
    no_retries = f"{field}: {policy.retries}"
    return facts[no_retries] if field == "errors.retries" and no_retries in facts else facts[field]


def _without_field(fact: Fact) -> Enforced:
    text = f"nothing: {fact.note}" if fact.note else "nothing"
    if fact.by is Enforcer.CONTROLLER:
        text = _with_note(CONTROLLER_TEXT, fact.note)
    elif fact.by is Enforcer.KIND:
        text = fact.note
    return Enforced(fact.by, "", text, fact.is_reported)


@cache
def _steps(field: str) -> tuple[str | int, ...]:
    steps = field.partition(":")[2].split(".")
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _with_note(text: str, note: str) -> str:
    return f"{text}, {note}" if note else text


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _LONGEST)


_LONGEST = 20  # characters of a value that is printed in a column


_REQUIRED = "pod:affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "pod:affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
_BACKOFFS = tuple(f"{kind}.{part}" for kind in ("interruptions", "errors") for part in ("backoff", "factor", "ceiling"))
_WITH_CONTROLLER = Fact(Enforcer.CONTROLLER)


def _required(note: str = "", absent: Fact | None = None) -> Fact:
    return in_object(_REQUIRED, note, name="required node affinity", absent=absent)


_POD: Mapping[str, Fact] = {
    "spot: require": _required(),
    "spot: never": _required(),
    "spot: prefer": in_object(
        _PREFERRED, "a wish, no rule", name="preferred node affinity", absent=_required("for both kinds of capacity")
    ),
    "ladder": _required("these pools, in any order"),
    "interruptions.max": nothing(),
    "errors.retries": nothing(),
    **dict.fromkeys(_BACKOFFS, nothing()),
    "fall_back_after": nothing(),
    "pending_timeout": nothing(),
    "deadline": nothing("only spotwright run keeps it"),
    "work": nothing("only spotwright run reads it, for a deadline"),
    "grace_period": in_object("pod:terminationGracePeriodSeconds"),
    "timeout": nothing(),
    "checkpoint": in_object("pod:containers.0.env", "for code that reads it", name="SPOTWRIGHT_CHECKPOINT"),
    "image_pull_secrets": in_object("pod:imagePullSecrets"),
}
"""The fields of a pod, which every kind takes; nothing else is enforced where only pods are placed."""


def _waits(note: str) -> Mapping[str, Fact]:
    return dict.fromkeys(_BACKOFFS, nothing(note))


_JOB_WAITS = _waits("the Job controller waits 10s, doubled with each failed pod, at most 10m")
_JOB_DEFAULT = nothing("the default of Kubernetes, 6 retries, holds")
_ALL_ATTEMPTS = "for all attempts together"
_POD_DEADLINE = in_object("pod:activeDeadlineSeconds", "for each pod")
_JOB_DEADLINE = replace(_POD_DEADLINE, absent=in_object("job:activeDeadlineSeconds", _ALL_ATTEMPTS))


def _job_limit(note: str = "") -> Fact:
    per_index = in_object("job:backoffLimitPerIndex", note, absent=_JOB_DEFAULT)
    return in_object("job:backoffLimit", note, absent=per_index)


_JOB: Mapping[str, Fact] = {
    **_POD,
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

_SET_WAITS = _waits("the set restarts at once")
_SET_LIMIT = "set:failurePolicy.maxRestarts"
_JOBSET: Mapping[str, Fact] = {
    **_POD,
    **_SET_WAITS,
    "interruptions.max": in_object(_SET_LIMIT, "of the whole set; errors count there too"),
    "errors.retries": in_object(_SET_LIMIT, "of the whole set; interruptions count there too"),
    "fall_back_after": _WITH_CONTROLLER,
    "pending_timeout": _WITH_CONTROLLER,
    "timeout": in_object("job:activeDeadlineSeconds", "for each start of the set, with pending_timeout"),
}

_IN_TEMPLATES = Fact(Enforcer.KIND, note="its templates, as their own policy says")
_IN_RUNTIME = Fact(Enforcer.KIND, note="the runtime, as its own policy says")

_RUN_DEADLINE = in_object("run:runPolicy.activeDeadlineSeconds", _ALL_ATTEMPTS)
_OPERATOR: Mapping[str, Fact] = {
    **_POD,
    **_waits("the operator creates pods again at once"),
    "interruptions.max": in_object(
        "run:runPolicy.activeDeadlineSeconds",
        "a time instead of a count",
        absent=nothing("pods that are created again are not counted"),
    ),
    "timeout": _RUN_DEADLINE,
}
_RESTARTS = "role:restartPolicy"

_ARGO_LIMIT = "retry:retryStrategy.limit"
_ARGO_WAITS: Mapping[str, Fact] = {
    "interruptions.backoff": in_object("retry:retryStrategy.backoff.duration"),
    "interruptions.factor": in_object("retry:retryStrategy.backoff.factor"),
    "interruptions.ceiling": in_object("retry:retryStrategy.backoff.cap"),
    **dict.fromkeys(("errors.backoff", "errors.factor", "errors.ceiling"), nothing("Argo has one backoff for both")),
}
_ARGO: Mapping[str, Fact] = {
    **_POD,
    **_ARGO_WAITS,
    "interruptions.max": in_object(_ARGO_LIMIT, "errors count there too, lost nodes do not"),
    "errors.retries: 0": in_object(
        "retry:retryStrategy.expression",
        "interruptions only",
        absent=in_object(
            _ARGO_LIMIT, "interruptions count there too", absent=Fact(Enforcer.KIND, note="Argo, by default")
        ),
    ),
    "errors.retries": in_object(
        "retry:retryStrategy.expression",
        "only as one of the first retries",
        absent=in_object(_ARGO_LIMIT, "interruptions count there too"),
    ),
    "fall_back_after": in_object("fallback:podSpecPatch", "counts errors too, no lost nodes", absent=_WITH_CONTROLLER),
    "pending_timeout": _WITH_CONTROLLER,
    "grace_period": in_object("pod:terminationGracePeriodSeconds", "in podSpecPatch"),
    "timeout": in_object(
        "deadline:activeDeadlineSeconds",
        "for each attempt",
        absent=in_object("limit:timeout", "for each attempt", absent=nothing("only code that runs to its end gets it")),
    ),
}

_KFP_LIMIT = "task:retryPolicy.maxRetryCount"
_KFP_WAITS: Mapping[str, Fact] = {
    "interruptions.backoff": in_object("task:retryPolicy.backoffDuration"),
    "interruptions.factor": in_object("task:retryPolicy.backoffFactor"),
    "interruptions.ceiling": nothing("backoffMaxDuration of KFP is a window over all attempts"),
    **dict.fromkeys(("errors.backoff", "errors.factor", "errors.ceiling"), nothing("KFP has one backoff for both")),
}
_KFP_GRACE = "which gives spotwright.checkpoint this time before SIGTERM; code has about 0.3s after it"
_KFP_AFFINITY = in_object("settings:nodeAffinity", name="required node affinity")
_KFP: Mapping[str, Fact] = {
    **_POD,
    **_KFP_WAITS,
    "spot: require": _KFP_AFFINITY,
    "spot: never": _KFP_AFFINITY,
    "spot: prefer": in_object("settings:nodeAffinity", "a wish, no rule", name="preferred node affinity"),
    "ladder": in_object("settings:nodeAffinity", "these pools, in any order", name="required node affinity"),
    "interruptions.max": in_object(_KFP_LIMIT, "errors count there too, lost nodes do not"),
    "errors.retries: 0": in_object(
        _KFP_LIMIT, "interruptions count there too", absent=Fact(Enforcer.KIND, note="KFP, by default")
    ),
    "errors.retries": in_object(_KFP_LIMIT, "interruptions count there too"),
    "fall_back_after": in_object(
        "fallback:nodeAffinity", "counts errors too, no lost nodes", name="nodeAffinity", absent=_WITH_CONTROLLER
    ),
    "pending_timeout": _WITH_CONTROLLER,
    "grace_period": replace(_WITH_CONTROLLER, note=_KFP_GRACE, is_reported=True),
    "timeout": in_object("settings:activeDeadlineSeconds", "for each attempt"),
    "checkpoint": in_object("settings:podMetadata", "for code that reads it", name="SPOTWRIGHT_CHECKPOINT"),
    "image_pull_secrets": in_object("settings:imagePullSecret"),
}

_RAY: Mapping[str, Fact] = {
    **_POD,
    **_waits("KubeRay creates pods again at once"),
    "interruptions.max": nothing("KubeRay does not count lost workers"),
    "errors.retries": nothing("Ray runs failed tasks again, by their max_retries"),
    "fall_back_after": nothing("KubeRay creates workers from one template", is_reported=True),
}
_TRIES = "each on a new RayCluster"
_RUNS = "app:restartPolicy.onFailureRetries"
_INTERVAL = nothing("the operator waits 5s, longer with each retry")

_IN_PIPELINE = Fact(Enforcer.KIND, note="the retries of its Pipeline")
_VOLCANO: Mapping[str, Fact] = {
    **_POD,
    **_waits("Volcano restarts at once"),
    "interruptions.max": in_object("job:maxRetry", "the count that fails the Job; errors count there too"),
    "errors.retries: 0": Fact(Enforcer.KIND, note="Volcano, by default"),
    "errors.retries": in_object("job:maxRetry", "the count that fails the Job; interruptions count there too"),
    "timeout": in_object("pod:activeDeadlineSeconds", "for each pod"),
}

TABLE: Mapping[Mechanism, Mapping[str, Fact]] = {
    Mechanism.PODS_ONLY: {
        **_POD,
        **_waits("the kind's own retries decide"),
        "interruptions.max": nothing("the kind's own retries decide"),
        "errors.retries": nothing("the kind's own retries decide"),
    },
    Mechanism.NODES_ONLY: {
        **dict.fromkeys(_POD, nothing("only the nodes of its pods are placed", is_reported=True)),
        **{row: fact for row, fact in _POD.items() if row.startswith("spot: ") or row == "ladder"},
    },
    Mechanism.POD: {
        **_POD,
        **_waits("the kubelet waits 10s, doubled each time, at most 5m"),
        "interruptions.max": nothing("a bare Pod is never scheduled again", is_reported=True),
        "errors.retries": nothing("its restartPolicy decides, on the same node"),
        "timeout": in_object("pod:activeDeadlineSeconds", "for all restarts of its containers together"),
    },
    Mechanism.JOB_IGNORES: {
        **_JOB,
        "interruptions.max": _JOB_UNCOUNTED,
        "errors.retries": _job_limit("nodes that restart count there too"),
        "pending_timeout": _WITH_CONTROLLER,
    },
    Mechanism.JOB_SEPARATES: {
        **_JOB,
        "interruptions.max": _job_limit("exit codes 137, 143 and 255 count there too"),
        "errors.retries: 0": in_object("job:podFailurePolicy", "any other exit code ends it"),
        "errors.retries": _job_limit("interruptions count there too"),
    },
    Mechanism.JOB_COUNTS: _JOB,
    Mechanism.JOB_FAILS: {
        **_JOB,
        "interruptions.max": nothing("its own rule fails the Job", is_reported=True),
        "errors.retries": _job_limit(),
    },
    Mechanism.SET_RESTARTS: _JOBSET,
    Mechanism.SET_SEPARATES: {
        **_JOBSET,
        "interruptions.max": in_object(_SET_LIMIT, "of the whole set; exit codes 137, 143 and 255 count there too"),
        "errors.retries: 0": in_object("set:failurePolicy.rules", "any other exit code fails the set"),
    },
    Mechanism.SET_UNCOUNTED: {
        **_JOBSET,
        "interruptions.max": nothing("its own rule restarts without counting", is_reported=True),
    },
    Mechanism.SET_FAILS: {**_JOBSET, "interruptions.max": nothing("its own rule fails the set", is_reported=True)},
    Mechanism.SET_ALONE: {
        **_JOBSET,
        "interruptions.max": nothing("its Job replaces the pod alone", is_reported=True),
        "pending_timeout": nothing(),
    },
    Mechanism.SET_IN_PLACE: {
        **_JOBSET,
        **_waits("the pods that stay start again as soon as the new one is there"),
        "fall_back_after": nothing("the pods that stay keep their nodes, and the new one goes where they may be"),
        "pending_timeout": nothing(),
    },
    Mechanism.RUNTIME_DECIDES: {
        **_JOBSET,
        "interruptions.max": nothing("the runtime decides", is_reported=True),
        "errors.retries": nothing("the runtime decides"),
        "timeout": nothing("the runtime decides"),
        "pending_timeout": nothing(),
    },
    Mechanism.RUNTIME_PLACED: {
        **_JOBSET,
        **dict.fromkeys(("interruptions.max", "errors.retries", "timeout"), _IN_RUNTIME),
        "pending_timeout": nothing(),
    },
    Mechanism.EXIT_CODE: {
        **_OPERATOR,
        "errors.retries: 0": in_object(_RESTARTS, "fails the job at exit codes 1 to 127"),
        "errors.retries": nothing("ExitCode fails the job at exit codes 1 to 127", is_reported=True),
    },
    Mechanism.ANY_ERROR: {
        **_OPERATOR,
        "errors.retries": in_object("run:runPolicy.backoffLimit", "restarts of a container in its pod"),
    },
    Mechanism.IN_PLACE: {
        **_OPERATOR,
        "interruptions.max": nothing("a failed pod fails the job", is_reported=True),
        "errors.retries": in_object("run:runPolicy.backoffLimit", "restarts of a container in its pod"),
    },
    Mechanism.NEVER: {
        **_OPERATOR,
        "interruptions.max": nothing("restartPolicy Never fails the job", is_reported=True),
        "errors.retries: 0": in_object(_RESTARTS),
        "errors.retries": nothing("restartPolicy Never fails the job"),
    },
    Mechanism.ELASTIC: {
        **_OPERATOR,
        "interruptions.max": in_object("run:elasticPolicy.maxRestarts", "errors count there too"),
        "errors.retries": in_object("run:elasticPolicy.maxRestarts", "interruptions count there too"),
    },
    Mechanism.MPI_EVICTED: {
        **_OPERATOR,
        "interruptions.max": nothing("an evicted worker fails the job", is_reported=True),
        "errors.retries": nothing("the operator ignores restartPolicy"),
        "timeout": nothing(),
    },
    Mechanism.MPI_LAUNCHER: {
        **_OPERATOR,
        "interruptions.max": in_object(
            "run:runPolicy.backoffLimit", "restarts of the launcher, errors too; an evicted worker fails the job"
        ),
        "errors.retries": in_object("run:runPolicy.backoffLimit", "restarts of the launcher, interruptions too"),
        "timeout": nothing(),
    },
    Mechanism.ARGO: _ARGO,
    Mechanism.ARGO_OWN: {
        **_ARGO,
        **_waits("its own retryStrategy decides"),
        "errors.retries: 0": in_object(_ARGO_LIMIT, "interruptions count there too"),
        "errors.retries": in_object(_ARGO_LIMIT, "interruptions count there too"),
    },
    Mechanism.ARGO_INLINE: {
        **_ARGO,
        **_waits("an inline template gets no retries"),
        "interruptions.max": nothing("an inline template gets no retries", is_reported=True),
        "errors.retries: 0": Fact(Enforcer.KIND, note="Argo, by default"),
        "errors.retries": nothing("an inline template gets no retries", is_reported=True),
        "fall_back_after": nothing("an inline template gets no retries", is_reported=True),
    },
    Mechanism.ARGO_TEMPLATES: {
        **_ARGO,
        **dict.fromkeys((*_BACKOFFS, "interruptions.max", "errors.retries: 0", "errors.retries"), _IN_TEMPLATES),
        **dict.fromkeys(("fall_back_after", "timeout"), _IN_TEMPLATES),
    },
    Mechanism.KFP: _KFP,
    Mechanism.KFP_STOCK: {
        **_KFP,
        "interruptions.max": nothing("a stock KFP 2.17 retries no drain and counts no lost node", is_reported=True),
        "errors.retries: 0": Fact(Enforcer.KIND, note="a stock KFP 2.17, for every task"),
        "fall_back_after": in_object(
            "fallback:nodeAffinity", "counts Argo's Errors alone", name="nodeAffinity", absent=_WITH_CONTROLLER
        ),
        "errors.retries": nothing("a stock KFP 2.17 retries no error of the code", is_reported=True),
    },
    Mechanism.DEPLOYMENT: {
        **_POD,
        **_waits("the Deployment creates pods again at once"),
        "interruptions.max": nothing("a Deployment counts nothing and never ends"),
        "errors.retries": nothing("a Deployment counts nothing and never ends"),
    },
    Mechanism.RAY_CLUSTER: _RAY,
    Mechanism.RAY_JOB: {
        **_RAY,
        "interruptions.max": in_object("job:backoffLimit", f"{_TRIES}; errors count there too"),
        "errors.retries": in_object("job:backoffLimit", f"{_TRIES}; interruptions count there too"),
        "timeout": in_object("job:activeDeadlineSeconds", "for each try, with pending_timeout"),
    },
    Mechanism.SPARK: {
        **_POD,
        **_waits("the operator waits 5s, longer with each retry"),
        "errors.backoff": in_object(
            "app:restartPolicy.onFailureRetryInterval", "longer with each retry", absent=_INTERVAL
        ),
        "interruptions.max": in_object(_RUNS, "of the application; errors count there too"),
        "errors.retries": in_object(_RUNS, "of the application; interruptions count there too"),
        "fall_back_after": nothing("a new executor has the fields of the old one"),
    },
    Mechanism.TEKTON: {
        **_POD,
        **_waits("Tekton tries again at once"),
        "interruptions.max": in_object(
            "task:retries",
            "errors count there too, pods that vanish do not",
            absent=_IN_PIPELINE,
        ),
        "errors.retries": in_object("task:retries", "interruptions count there too", absent=_IN_PIPELINE),
        "grace_period": nothing("Tekton's pod templates have none; Kubernetes gives 30s"),
        "timeout": nothing("Tekton's own timeouts hold, 1h unless you set them"),
        "checkpoint": in_object(
            "template:env",
            "for code that reads it, where it is a URL",
            name="SPOTWRIGHT_CHECKPOINT",
            absent=nothing("Tekton's pod templates mount nothing: use a URL, or a workspace"),
        ),
    },
    Mechanism.VOLCANO: _VOLCANO,
    Mechanism.VOLCANO_ENDS: {**_VOLCANO, "interruptions.max": nothing("its own policy ends the Job", is_reported=True)},
    Mechanism.VOLCANO_OWN: {
        **_VOLCANO,
        **dict.fromkeys(("errors.retries: 0", "errors.retries"), nothing("its own policies decide", is_reported=True)),
    },
}
"""Every fact, by the mechanism and the field of the policy."""
