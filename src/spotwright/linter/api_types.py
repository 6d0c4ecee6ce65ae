"""The small types of the API in which a misspelt field places or retries nothing: all their fields, and their values.

Affinity, tolerations and the retries of each kind are types that seldom change, so that any other name in them is wrong. Larger
types (pod specs, specs of jobs) gain fields with each release: there only names are found that are nearly one of the fields that
count. Sources: Kubernetes API reference, PodSpec and JobSpec; the custom resource definitions of argo-workflows v3.7 and v4.0,
jobset v0.12, training-operator v1.9, volcano v1.15 (and ``pkg/apis/bus/v1alpha1/actions.go``), spark-operator v2.5;
mpi-operator v0.8, ``pkg/apis/kubeflow/validation``; jobset, ``pkg/webhooks/jobset_webhook.go``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from spotwright.model.scheduling_terms import is_placeholder
from spotwright.placing.documents import Path, show

__all__ = [
    "AFFINITY_PLACES",
    "POD_TYPES",
    "RESOURCES",
    "RETRY_HOMES",
    "RETRY_TYPES",
    "RETRY_VALUES",
    "RETRY_WORDS",
    "Misspelt",
    "RetryHome",
    "TypedPlace",
    "ValuedPlace",
    "misspelt_in",
    "nearly",
]

Type: TypeAlias = Any
"""The fields of a mapping, each with its own type; the type of the items in a list; ``None`` for what is not looked at."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIREMENTS = [dict.fromkeys(("key", "operator", "values"))]
_TERM = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}
_SELECTOR = {"matchLabels": None, "matchExpressions": _REQUIREMENTS}
_POD_TERM = {
    "labelSelector": _SELECTOR,
    "topologyKey": None,
    "namespaces": None,
    "namespaceSelector": _SELECTOR,
    "matchLabelKeys": None,
    "mismatchLabelKeys": None,
}
_OF_PODS = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"weight": None, "podAffinityTerm": _POD_TERM}]}
_AFFINITY = {
    "nodeAffinity": {
        _REQUIRED: {"nodeSelectorTerms": [_TERM]},
        _PREFERRED: [{"weight": None, "preference": _TERM}],
    },
    "podAffinity": _OF_PODS,
    "podAntiAffinity": _OF_PODS,
}
POD_TYPES: Mapping[str, Type] = {
    "affinity": _AFFINITY,
    "tolerations": [dict.fromkeys(("key", "operator", "value", "effect", "tolerationSeconds"))],
    "topologySpreadConstraints": [
        {
            **dict.fromkeys(("maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "matchLabelKeys")),
            **dict.fromkeys(("nodeAffinityPolicy", "nodeTaintsPolicy")),
            "labelSelector": _SELECTOR,
        }
    ],
}
"""The fields of a pod spec by which it is placed."""

RESOURCES: Type = dict.fromkeys(("limits", "requests", "claims"))
"""The resources of a container."""

AFFINITY_PLACES: Mapping[str, tuple[str, ...]] = {
    "nodeAffinity": ("affinity",),
    "podAffinity": ("affinity",),
    "podAntiAffinity": ("affinity",),
    _REQUIRED: ("affinity", "nodeAffinity"),
    _PREFERRED: ("affinity", "nodeAffinity"),
    "nodeSelectorTerms": ("affinity", "nodeAffinity", _REQUIRED),
}
"""Fields of affinity that people write into the pod spec itself, with what they belong under."""


class TypedPlace(NamedTuple):
    """Where the kinds of a group have a type: a path from the object, with ``*`` for every item or key."""

    group: str
    kinds: tuple[str, ...]
    steps: tuple[str, ...]
    type: Type


class ValuedPlace(NamedTuple):
    """Where the kinds of a group have a field with few values."""

    group: str
    kinds: tuple[str, ...]
    steps: tuple[str, ...]
    values: tuple[str, ...]


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


_STRATEGY = {
    **dict.fromkeys(("limit", "retryPolicy", "expression")),
    "backoff": dict.fromkeys(("duration", "factor", "maxDuration", "cap")),
    "affinity": {"nodeAntiAffinity": None},
}
_RUN_POLICY = {
    **dict.fromkeys(("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedBy", "suspend")),
    "ttlSecondsAfterFinished": None,
    "schedulingPolicy": dict.fromkeys(
        ("minAvailable", "minResources", "priorityClass", "queue", "scheduleTimeoutSeconds")
    ),
}
_ELASTIC = {
    **dict.fromkeys(("maxReplicas", "maxRestarts", "metrics", "minReplicas", "nProcPerNode", "standalone")),
    **dict.fromkeys(("rdzvBackend", "rdzvConf", "rdzvHost", "rdzvId", "rdzvPort")),
}
_SET_POLICY = {
    **dict.fromkeys(("maxRestarts", "restartStrategy")),
    "rules": [
        dict.fromkeys(("name", "action", "onJobFailureReasons", "onJobFailureMessagePatterns", "targetReplicatedJobs"))
    ],
}
_POLICIES = [dict.fromkeys(("action", "event", "events", "exitCode", "timeout"))]
_RESTART = {
    **dict.fromkeys(("type", "onFailureRetries", "onFailureRetryInterval")),
    **dict.fromkeys(("onSubmissionFailureRetries", "onSubmissionFailureRetryInterval")),
}
_POD_FAILURE = {
    "rules": [
        {
            "action": None,
            "onExitCodes": dict.fromkeys(("containerName", "operator", "values")),
            "onPodConditions": [dict.fromkeys(("type", "status"))],
        }
    ]
}
_WORKFLOWS = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate")
_OPERATOR = ("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
_VOLCANO: tuple[tuple[str, str, dict[str, tuple[str, ...]]], ...] = (
    ("Job", "spec", {}),
    ("CronJob", "spec.jobTemplate.spec", {"spec": ()}),
)
_SPARK = "sparkoperator.k8s.io"
_SET = "spec.template.spec"
_RUNTIMES = ("TrainingRuntime", "ClusterTrainingRuntime")

RETRY_TYPES: tuple[TypedPlace, ...] = (
    *(
        TypedPlace("argoproj.io", kinds, _steps(f"{top}{level}retryStrategy"), _STRATEGY)
        for kinds, top in ((_WORKFLOWS, "spec."), (("CronWorkflow",), "spec.workflowSpec."))
        for level in ("", "templateDefaults.", "templates.*.")
    ),
    TypedPlace("batch", ("Job",), _steps("spec.podFailurePolicy"), _POD_FAILURE),
    TypedPlace("batch", ("CronJob",), _steps("spec.jobTemplate.spec.podFailurePolicy"), _POD_FAILURE),
    TypedPlace("jobset.x-k8s.io", ("JobSet",), _steps("spec.failurePolicy"), _SET_POLICY),
    TypedPlace(
        "jobset.x-k8s.io", ("JobSet",), _steps("spec.replicatedJobs.*.template.spec.podFailurePolicy"), _POD_FAILURE
    ),
    TypedPlace("trainer.kubeflow.org", _RUNTIMES, _steps(f"{_SET}.failurePolicy"), _SET_POLICY),
    TypedPlace(
        "trainer.kubeflow.org",
        _RUNTIMES,
        _steps(f"{_SET}.replicatedJobs.*.template.spec.podFailurePolicy"),
        _POD_FAILURE,
    ),
    TypedPlace("kubeflow.org", _OPERATOR, _steps("spec.runPolicy"), _RUN_POLICY),
    TypedPlace("kubeflow.org", ("PyTorchJob",), _steps("spec.elasticPolicy"), _ELASTIC),
    *(
        TypedPlace("batch.volcano.sh", (kind,), _steps(f"{top}.{path}"), _POLICIES)
        for kind, top, _ in _VOLCANO
        for path in ("policies", "tasks.*.policies")
    ),
    TypedPlace(_SPARK, ("SparkApplication",), _steps("spec.restartPolicy"), _RESTART),
    TypedPlace(_SPARK, ("ScheduledSparkApplication",), _steps("spec.template.restartPolicy"), _RESTART),
    TypedPlace("ray.io", ("RayJob",), _steps("spec.submitterConfig"), {"backoffLimit": None}),
)
"""Where each kind says what is retried."""

_EVENTS = (
    *("*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed"),
    *("OutOfSync", "CommandIssued", "JobUpdated"),
)
_ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob"),
    *("CompleteJob", "ResumeJob", "SyncJob", "EnqueueJob"),
)
_SET_ACTIONS = (
    *("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
    *("RestartJob", "RestartJobAndIgnoreMaxRestarts"),
)
_REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
_STRATEGIES = ("Recreate", "BlockingRecreate", "InPlaceRestart")
_ARGO_POLICIES = ("Always", "OnFailure", "OnError", "OnTransientError")
_ROLE_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
_CLEANED = ("All", "Running", "None")

RETRY_VALUES: tuple[ValuedPlace, ...] = (
    *(
        ValuedPlace("argoproj.io", kinds, _steps(f"{top}{level}retryStrategy.retryPolicy"), _ARGO_POLICIES)
        for kinds, top in ((_WORKFLOWS, "spec."), (("CronWorkflow",), "spec.workflowSpec."))
        for level in ("", "templateDefaults.", "templates.*.")
    ),
    *(
        ValuedPlace(group, kinds, _steps(f"{at}.failurePolicy.{path}"), values)
        for group, kinds, at in (
            ("jobset.x-k8s.io", ("JobSet",), "spec"),
            ("trainer.kubeflow.org", _RUNTIMES, _SET),
        )
        for path, values in (
            ("restartStrategy", _STRATEGIES),
            ("rules.*.action", _SET_ACTIONS),
            ("rules.*.onJobFailureReasons.*", _REASONS),
        )
    ),
    ValuedPlace("kubeflow.org/v1", _OPERATOR[:-1], _steps("spec.*.*.restartPolicy"), _ROLE_POLICIES),
    ValuedPlace("kubeflow.org/v1", ("MPIJob",), _steps("spec.mpiReplicaSpecs.*.restartPolicy"), _ROLE_POLICIES),
    ValuedPlace(
        "kubeflow.org/v2beta1", ("MPIJob",), _steps("spec.mpiReplicaSpecs.*.restartPolicy"), ("Never", "OnFailure")
    ),
    ValuedPlace("kubeflow.org", _OPERATOR, _steps("spec.runPolicy.cleanPodPolicy"), _CLEANED),
    *(
        ValuedPlace("batch.volcano.sh", (kind,), _steps(f"{top}.{at}{path}"), values)
        for kind, top, _ in _VOLCANO
        for at in ("policies.*.", "tasks.*.policies.*.")
        for path, values in (("event", _EVENTS), ("events.*", _EVENTS), ("action", _ACTIONS))
    ),
    ValuedPlace(_SPARK, ("SparkApplication",), _steps("spec.restartPolicy.type"), ("Never", "Always", "OnFailure")),
    ValuedPlace(
        _SPARK,
        ("ScheduledSparkApplication",),
        _steps("spec.template.restartPolicy.type"),
        ("Never", "Always", "OnFailure"),
    ),
)
"""Where each kind says by one of a few words what is retried. The group may have a version, where versions differ."""


class RetryHome(NamedTuple):
    """Where the kinds of a group say how often they retry, and the other levels at which people write it.

    ``home`` is the field to write, empty where nothing retries. ``levels`` are paths from the object, each with the words for
    retries that it has.
    """

    group: str
    kinds: tuple[str, ...]
    home: str
    levels: Mapping[str, tuple[str, ...]]


RETRY_WORDS: frozenset[str] = frozenset(
    {
        "backoff",
        "backoffLimit",
        "backoffLimitPerIndex",
        "failurePolicy",
        "maxRestarts",
        "maxRetries",
        "maxRetry",
        "onFailureRetries",
        "podFailurePolicy",
        "retries",
        "retry",
        "retryCount",
        "retryLimit",
        "retryOn",
        "retryPolicy",
        "retryStrategy",
    }
)
"""The words that one system or another has for retries. At a level that does not have the word, the API server drops it."""

_JOB = ("backoffLimit", "backoffLimitPerIndex", "podFailurePolicy")


def _in_pods(template: str) -> dict[str, tuple[str, ...]]:
    """The levels of a pod template, which have no retries."""
    return dict.fromkeys((template, f"{template}.spec", f"{template}.spec.containers.*"), ())


def _argo(kinds: tuple[str, ...], top: str) -> RetryHome:
    own = ("retryStrategy",)
    levels: dict[str, tuple[str, ...]] = {top: own, f"{top}.templateDefaults": own, f"{top}.templates.*": own}
    inside = ("dag", "dag.tasks.*", "steps.*.*", "container", "script", "containerSet.containers.*")
    for level in inside:
        levels[f"{top}.templates.*.{level}"] = ()
    above = {} if top == "spec" else {"spec": ()}
    return RetryHome("argoproj.io", kinds, f"{top}.templates[].retryStrategy", {**above, **levels})


def _set(group: str, kinds: tuple[str, ...], top: str) -> RetryHome:
    job = f"{top}.replicatedJobs.*.template"
    above = {} if top == "spec" else dict.fromkeys(("spec", "spec.template"), ())
    levels = {top: ("failurePolicy",), f"{top}.replicatedJobs.*": (), job: (), f"{job}.spec": _JOB}
    inside = _in_pods(f"{job}.spec.template")
    return RetryHome(group, kinds, f"{top}.failurePolicy.maxRestarts", {**above, **levels, **inside})


def _spark(kind: str, top: str) -> RetryHome:
    levels = {top: ("restartPolicy", "failureRetries"), f"{top}.driver": (), f"{top}.executor": ()}
    above = {} if top == "spec" else {"spec": ()}
    return RetryHome(_SPARK, (kind,), f"{top}.restartPolicy.onFailureRetries", {**above, **levels})


_ROLE_FIELDS = tuple(f"spec.{name}ReplicaSpecs.*" for name in ("tf", "pytorch", "xgb", "paddle", "jax", "mpi"))


def _in_roles(field: str) -> dict[str, tuple[str, ...]]:
    return {field: ("restartPolicy",), **_in_pods(f"{field}.template")}


_IN_TASK = ("taskSpec", "taskRef", "taskSpec.steps.*")


def _tekton(kind: str, pipeline: str, *above: str) -> RetryHome:
    tasks = (f"{pipeline}.tasks.*", f"{pipeline}.finally.*")
    inside = dict.fromkeys((f"{task}.{level}" for task in tasks for level in _IN_TASK), ())
    levels = {**dict.fromkeys((*above, pipeline), ()), **dict.fromkeys(tasks, ("retries",)), **inside}
    return RetryHome("tekton.dev", (kind,), f"{pipeline}.tasks[].retries", levels)


RETRY_HOMES: tuple[RetryHome, ...] = (
    RetryHome("", ("Pod",), "", {"spec": (), "spec.containers.*": ()}),
    _argo(_WORKFLOWS, "spec"),
    _argo(("CronWorkflow",), "spec.workflowSpec"),
    RetryHome("batch", ("Job",), "spec.backoffLimit", {"spec": _JOB, **_in_pods("spec.template")}),
    RetryHome(
        "batch",
        ("CronJob",),
        "spec.jobTemplate.spec.backoffLimit",
        {
            "spec": (),
            "spec.jobTemplate": (),
            "spec.jobTemplate.spec": _JOB,
            **_in_pods("spec.jobTemplate.spec.template"),
        },
    ),
    *(
        RetryHome(
            "batch.volcano.sh",
            (kind,),
            f"{top}.maxRetry",
            {
                **above,
                top: ("maxRetry", "policies"),
                f"{top}.tasks.*": ("maxRetry", "policies"),
                **_in_pods(f"{top}.tasks.*.template"),
            },
        )
        for kind, top, above in _VOLCANO
    ),
    _set("jobset.x-k8s.io", ("JobSet",), "spec"),
    _set("trainer.kubeflow.org", _RUNTIMES, _SET),
    RetryHome(
        "kubeflow.org",
        _OPERATOR,
        "spec.runPolicy.backoffLimit",
        {"spec": ("runPolicy",), **{at: own for field in _ROLE_FIELDS for at, own in _in_roles(field).items()}},
    ),
    RetryHome(
        "ray.io",
        ("RayJob",),
        "spec.backoffLimit",
        {
            "spec": ("backoffLimit",),
            "spec.rayClusterSpec": (),
            "spec.rayClusterSpec.headGroupSpec": (),
            "spec.rayClusterSpec.workerGroupSpecs.*": (),
            **_in_pods("spec.rayClusterSpec.headGroupSpec.template"),
            **_in_pods("spec.rayClusterSpec.workerGroupSpecs.*.template"),
            **_in_pods("spec.submitterPodTemplate"),
        },
    ),
    _spark("SparkApplication", "spec"),
    _spark("ScheduledSparkApplication", "spec.template"),
    _tekton("PipelineRun", "spec.pipelineSpec", "spec", "spec.taskRunTemplate", "spec.taskRunSpecs.*"),
    _tekton("Pipeline", "spec"),
    RetryHome(
        "tekton.dev",
        ("TaskRun",),
        "spec.retries",
        {"spec": ("retries",), "spec.taskSpec": (), "spec.taskSpec.steps.*": ()},
    ),
)
"""The kinds that retry, and the levels of each."""


class Misspelt(NamedTuple):
    """A field that a type does not have, or a value of another shape if ``name`` is empty; ``fix`` is advice."""

    path: Path
    name: str
    fix: str


_MEANT: Mapping[str, tuple[str, ...]] = {
    "retryOn": ("retryPolicy",),
    "policy": ("retryPolicy", "action"),
    "restartPolicy": ("retryPolicy", "type"),
    "retries": ("limit", "onFailureRetries", "maxRestarts", "backoffLimit"),
    "retry": ("limit", "maxRestarts", "backoffLimit"),
    "maxRetries": ("limit", "onFailureRetries", "maxRestarts", "backoffLimit"),
    "maxRetry": ("limit", "onFailureRetries", "maxRestarts", "backoffLimit"),
    "attempts": ("limit",),
    "maxAttempts": ("limit",),
    "when": ("expression",),
    "interval": ("duration", "onFailureRetryInterval"),
    "multiplier": ("factor",),
    "maxBackoff": ("maxDuration",),
    "exitCodes": ("onExitCodes", "exitCode"),
    "conditions": ("onPodConditions",),
}
"""Names that other systems have for a field, in the order in which a type is searched for them."""

_ADVICE: Mapping[str, str] = {
    "nodeAntiAffinity": "Write nodeAffinity with the operator NotIn. (In Argo, retryStrategy.affinity.nodeAntiAffinity: {} "
    "sends a retry to another node.)",
    "preference": "Write its matchExpressions here: only preferred terms have a preference.",
    "podAffinityTerm": "Write its fields here: only preferred terms have a podAffinityTerm.",
}
"""Advice for fields of another place whose content belongs here."""

_SEPARATORS = re.compile(r"[-_]")


def misspelt_in(value: Any, kind: Type, path: Path) -> Iterator[Misspelt]:
    """The fields inside a value that its type does not have, and the values of another shape."""
    yield from _misspelt_in(value, kind, path, (kind, path))


def _misspelt_in(value: Any, kind: Type, path: Path, top: tuple[Type, Path]) -> Iterator[Misspelt]:
    if kind is None or value is None or is_placeholder(value):
        return
    if isinstance(kind, list):
        if not isinstance(value, list):
            yield Misspelt(path, "", "Write a list: begin each item with a hyphen.")
            return
        for index, item in enumerate(value):
            yield from _misspelt_in(item, kind[0], (*path, index), top)
    elif not isinstance(value, dict):
        yield Misspelt(path, "", f"Write a mapping with {', '.join(kind)}.")
    else:
        for name, inner in value.items():
            if name in kind:
                yield from _misspelt_in(inner, kind[name], (*path, name), top)
            elif "{{" not in name and "${" not in name:
                yield Misspelt((*path, name), name, _fix(name, kind, path, top))


def _fix(name: str, kind: Mapping[str, Type], path: Path, top: tuple[Type, Path]) -> str:
    """What to write where a type has no field of this name."""
    if name in _ADVICE:
        return _ADVICE[name]
    meant = next((one for one in _MEANT.get(name, ()) if one in kind), None)
    below = next(_paths_to(name, kind), None)
    if meant is None and below is not None:
        return f"Write it under {show((*path, *below))}."
    meant = meant or nearly(name, kind, 0.6)
    if meant is not None:
        return f"Write {meant}."
    elsewhere = next(_paths_to(name, top[0]), None)
    if elsewhere is not None:
        return f"Write it under {show((*top[1], *elsewhere))}."
    return f"The fields here are {', '.join(kind)}."


def _paths_to(name: str, kind: Type) -> Iterator[Path]:
    """The paths inside a type that lead to a field of this name, the first item of each list."""
    if isinstance(kind, list):
        for path in _paths_to(name, kind[0]):
            yield (0, *path)
    elif kind is not None:
        if name in kind:
            yield (name,)
        for step, inner in kind.items():
            for path in _paths_to(name, inner):
                yield (step, *path)


def nearly(name: str, names: Collection[str], alike: float = 0.82) -> str | None:
    """The one of ``names`` that a name nearly is; ``None`` for one of them, and where none is near.

    ``alike`` is how much of both has to be equal, from 0 to 1. Case, separators and the plural make no difference.
    """
    return None if name in names or len(name) > _LONGEST else _nearly(name, tuple(names), alike)


_LONGEST = 80


@lru_cache(maxsize=4096)
def _nearly(name: str, names: tuple[str, ...], alike: float) -> str | None:
    folded = {_folded(one): one for one in reversed(names)}
    return next((folded[one] for one in get_close_matches(_folded(name), folded, 1, alike)), None)


def _folded(name: str) -> str:
    plain = _SEPARATORS.sub("", name.lower())
    return f"{plain.removesuffix('ies')}y" if plain.endswith("ies") else plain.removesuffix("s")
