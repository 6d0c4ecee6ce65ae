"""The table of enforcement: for each way in which a kind retries, who enforces each field of the policy.

This is the only place that says so: ``explain``, the findings of ``place`` and ``compile``, and the pages of ``docs/kinds`` are
made from it. A table belongs to a *mechanism*, and :data:`~spotwright.manifests.enforcement.mechanisms.KINDS` names the
mechanisms of each kind.

The sources of the facts are named in the kinds' modules, which write the fields. Waits between the pods of a Job: Kubernetes
documentation, "Jobs", "Pod backoff failure policy".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spotwright.manifests.enforcement.facts import Enforcer, Fact, in_object, nothing
from spotwright.manifests.enforcement.mechanisms import Mechanism

__all__ = ["TABLE"]

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


_JOB_WAITS = _waits("the Job controller waits 10s, doubled each time, at most 6m")
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
        "errors.retries": _job_limit(),
        "pending_timeout": _WITH_CONTROLLER,
    },
    Mechanism.JOB_SEPARATES: {
        **_JOB,
        "interruptions.max": _job_limit("exit codes 137 and 143 count there too"),
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
        "interruptions.max": in_object(_SET_LIMIT, "of the whole set; exit codes 137 and 143 count there too"),
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
}
"""Every fact, by the mechanism and the field of the policy."""
