"""Where the pods of every kind are, what they are for, and which module places them.

A module of this package serves a family of kinds. It has a mapping ``KINDS`` from ``(group, kind)``, or ``(group/version,
kind)`` if versions differ, to a function that places one object. A new kind is a new module in :data:`FAMILIES`. The facts
about pods are here for all kinds, placed or not, because rules of lint and the webhook need them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import NamedTuple

from spotwright.placing.context import PlaceContext
from spotwright.placing.pods import Duty

__all__ = [
    "FAMILIES",
    "KIND_FACTS",
    "NAMESAKES",
    "SERVED",
    "PlaceObject",
    "PodPlace",
    "Retry",
    "facts_of",
    "find_kind",
    "plural_of",
    "served_version",
]


PlaceObject = Callable[[PlaceContext], None]
"""Places one object through its context."""

FAMILIES: tuple[str, ...] = (
    "spotwright.kinds.argo",
    "spotwright.kinds.job",
    "spotwright.kinds.jobset",
    "spotwright.kinds.katib",
    "spotwright.kinds.kfp_pipeline",
    "spotwright.kinds.ray",
    "spotwright.kinds.kueue",
    "spotwright.kinds.spark",
    "spotwright.kinds.tekton",
    "spotwright.kinds.training_operator",
    "spotwright.kinds.trainjob",
    "spotwright.kinds.services",
    "spotwright.kinds.volcano",
)
"""The modules of this package that have ``KINDS``; they are imported when a kind is first looked up."""


SERVED: Mapping[str, str] = {
    **dict.fromkeys(("Pod",), "v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    **dict.fromkeys(("JobSet",), "jobset.x-k8s.io/v1alpha2"),
    **dict.fromkeys(("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), "kubeflow.org/v1"),
    **dict.fromkeys(("Experiment",), "kubeflow.org/v1beta1"),
    **dict.fromkeys(("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"), "trainer.kubeflow.org/v1alpha1"),
    **dict.fromkeys(("RayCluster", "RayJob", "RayCronJob", "RayService"), "ray.io/v1"),
    **dict.fromkeys(("PipelineRun", "TaskRun", "Pipeline"), "tekton.dev/v1"),
    **dict.fromkeys(("SparkApplication", "ScheduledSparkApplication"), "sparkoperator.k8s.io/v1beta2"),
    **dict.fromkeys(
        ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"), "argoproj.io/v1alpha1"
    ),
}
"""The apiVersion under which a kind is placed, for messages about other versions."""

NAMESAKES: Mapping[tuple[str, str], str] = {
    ("batch.volcano.sh", kind): "batch.volcano.sh/v1alpha1" for kind in ("Job", "CronJob")
}
"""The apiVersion of kinds that are placed and share their name with one of :data:`SERVED`, by group and kind."""


def served_version(api_version: str, kind: str) -> str | None:
    """The apiVersion under which a kind of this group is placed; ``None`` if none is: another group's kind is another kind."""
    group = api_version.rpartition("/")[0]
    served = NAMESAKES.get((group, kind)) or SERVED.get(kind, "")
    return served if served and served.rpartition("/")[0] == group else None


def plural_of(kind: str) -> str:
    """The plural of a kind that is placed, as it stands in paths of the API; cluster-wide kinds too."""
    return f"{kind.lower()}s"


def find_kind(api_version: str, kind: str) -> PlaceObject | None:
    """The function that places objects of a kind; ``None`` for kinds that pass through unchanged."""
    kinds = _known_kinds()
    return kinds.get((api_version, kind)) or kinds.get((api_version.rpartition("/")[0], kind))


@cache
def _known_kinds() -> Mapping[tuple[str, str], PlaceObject]:
    """Every kind of every family."""
    kinds: dict[tuple[str, str], PlaceObject] = {}
    for name in FAMILIES:
        kinds.update(import_module(name).KINDS)
    return kinds


class Retry(StrEnum):
    """Who makes a lost pod again."""

    NONE = "none"  # nobody
    JOB = "job"  # a Job, by its backoffLimit and podFailurePolicy
    ROLE = "role"  # the training operator, by the role's restartPolicy
    OTHER = "other"  # the kind's own controller


class PodPlace(NamedTuple):
    """A place of pods in a kind. ``steps`` is a path with ``*`` for any key or item; ``form`` is T, S or H.

    ``job`` is how many steps above the template its Job spec stands, 0 if it has none. ``inherits`` is the path of the holder
    whose fields hold where this one lacks them.
    """

    steps: tuple[str, ...]
    form: str = "T"
    duty: Duty = Duty.WORKER
    job: int = 0
    inherits: tuple[str, ...] = ()


class KindFacts(NamedTuple):
    """Where a kind has pods, and who makes a lost one again."""

    places: tuple[PodPlace, ...]
    retry: Retry = Retry.OTHER


def _at(path: str, form: str = "T", duty: Duty = Duty.WORKER, job: int = 0, inherits: str = "") -> PodPlace:
    return PodPlace(_steps(path), form, duty, job, _steps(inherits))


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def _ray(prefix: str, workers: Duty = Duty.WORKER) -> tuple[PodPlace, ...]:
    return (
        _at(f"{prefix}.headGroupSpec.template", duty=Duty.COORDINATOR),
        _at(f"{prefix}.workerGroupSpecs.*.template", duty=workers),
    )


def _roles(field: str) -> KindFacts:
    return KindFacts((_at(f"spec.{field}.*.template"),), Retry.ROLE)


_JOB = KindFacts((_at("spec.template", job=1),), Retry.JOB)
_SET = "template.spec.replicatedJobs.*.template.spec.template"
_SERVICE = KindFacts((_at("spec.template", duty=Duty.SERVING),))
_WORKFLOW = KindFacts((_at("spec", "H"), _at("spec.templateDefaults", "H"), _at("spec.templates.*", "H")))
_COORDINATOR, _SERVING, _INTERACTIVE = Duty.COORDINATOR, Duty.SERVING, Duty.INTERACTIVE
_SUBMITTER = _at("spec.submitterPodTemplate", duty=_COORDINATOR)
_KSERVE = KindFacts(tuple(_at(f"spec.{name}", "S", _SERVING) for name in ("predictor", "transformer", "explainer")))

KIND_FACTS: Mapping[tuple[str, str], KindFacts] = {
    ("", "Pod"): KindFacts((_at(""),), Retry.NONE),
    ("", "ReplicationController"): _SERVICE,
    ("apps", "DaemonSet"): KindFacts((_at("spec.template", duty=Duty.SYSTEM),)),
    ("apps", "Deployment"): _SERVICE,
    ("apps", "ReplicaSet"): _SERVICE,
    ("apps", "StatefulSet"): KindFacts((_at("spec.template", duty=Duty.DATASTORE),)),
    ("argoproj.io", "ClusterWorkflowTemplate"): _WORKFLOW,
    ("argoproj.io", "CronWorkflow"): KindFacts(
        (
            _at("spec.workflowSpec", "H"),
            _at("spec.workflowSpec.templateDefaults", "H"),
            _at("spec.workflowSpec.templates.*", "H"),
        )
    ),
    ("argoproj.io", "Workflow"): _WORKFLOW,
    ("argoproj.io", "WorkflowTemplate"): _WORKFLOW,
    ("batch", "CronJob"): KindFacts((_at("spec.jobTemplate.spec.template", job=1),), Retry.JOB),
    ("batch", "Job"): _JOB,
    ("batch.volcano.sh", "CronJob"): KindFacts((_at("spec.jobTemplate.spec.tasks.*.template"),)),
    ("batch.volcano.sh", "Job"): KindFacts((_at("spec.tasks.*.template"),)),
    ("jobset.x-k8s.io", "JobSet"): KindFacts((_at("spec.replicatedJobs.*.template.spec.template", job=1),)),
    ("kubeflow.org", "JAXJob"): _roles("jaxReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): KindFacts((_at("spec.mpiReplicaSpecs.*.template"),)),
    ("kubeflow.org", "Notebook"): KindFacts((_at("spec.template", duty=_INTERACTIVE),)),
    ("kubeflow.org", "PVCViewer"): KindFacts((_at("spec.podSpec", "S", _INTERACTIVE),)),
    ("kubeflow.org", "PaddleJob"): _roles("paddleReplicaSpecs"),
    ("kubeflow.org", "PyTorchJob"): _roles("pytorchReplicaSpecs"),
    ("kubeflow.org", "TFJob"): _roles("tfReplicaSpecs"),
    ("kubeflow.org", "XGBoostJob"): _roles("xgbReplicaSpecs"),
    ("kubernetes.dask.org", "DaskCluster"): KindFacts(
        (_at("spec.scheduler", duty=_COORDINATOR), _at("spec.worker")),
    ),
    ("kubernetes.dask.org", "DaskJob"): KindFacts(
        (
            _at("spec.job", duty=_COORDINATOR),
            _at("spec.cluster.spec.scheduler", duty=_COORDINATOR),
            _at("spec.cluster.spec.worker"),
        )
    ),
    ("kubernetes.dask.org", "DaskWorkerGroup"): KindFacts((_at("spec.worker"),)),
    ("machinelearning.seldon.io", "SeldonDeployment"): KindFacts(
        (_at("spec.predictors.*.componentSpecs.*", duty=_SERVING),)
    ),
    ("ray.io", "RayCluster"): KindFacts(_ray("spec")),
    ("ray.io", "RayJob"): KindFacts((*_ray("spec.rayClusterSpec"), _SUBMITTER)),
    ("ray.io", "RayService"): KindFacts(_ray("spec.rayClusterConfig", _SERVING)),
    ("serving.knative.dev", "Service"): _SERVICE,
    ("serving.kserve.io", "ClusterServingRuntime"): KindFacts((_at("spec", "S", _SERVING),)),
    ("serving.kserve.io", "InferenceService"): _KSERVE,
    ("serving.kserve.io", "LLMInferenceService"): KindFacts(
        tuple(_at(f"spec.{name}", "S", _SERVING) for name in ("template", "worker"))
    ),
    ("serving.kserve.io", "ServingRuntime"): KindFacts((_at("spec", "S", _SERVING),)),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): KindFacts(
        (_at("spec.template.driver", "H", _COORDINATOR), _at("spec.template.executor", "H"))
    ),
    ("sparkoperator.k8s.io", "SparkApplication"): KindFacts(
        (_at("spec.driver", "H", _COORDINATOR), _at("spec.executor", "H"))
    ),
    ("sparkoperator.k8s.io", "SparkConnect"): KindFacts(
        (_at("spec.server.template", duty=_COORDINATOR), _at("spec.executor.template"))
    ),
    ("tekton.dev", "PipelineRun"): KindFacts(
        (
            _at("spec.taskRunTemplate.podTemplate", "H"),
            _at("spec.taskRunSpecs.*.podTemplate", "H", inherits="spec.taskRunTemplate.podTemplate"),
            _at("spec.podTemplate", "H"),  # of v1beta1
            _at("spec.taskRunSpecs.*.taskPodTemplate", "H", inherits="spec.podTemplate"),
        )
    ),
    ("tekton.dev", "TaskRun"): KindFacts((_at("spec.podTemplate", "H"),)),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): KindFacts((_at(f"spec.{_SET}", job=1),)),
    ("trainer.kubeflow.org", "TrainJob"): KindFacts(
        (
            _at("spec.podSpecOverrides.*", "H"),
            _at("spec.podTemplateOverrides.*.spec", "H"),
            _at(f"spec.runtimePatches.*.trainingRuntimeSpec.{_SET}.spec", "H"),
        )
    ),
    ("trainer.kubeflow.org", "TrainingRuntime"): KindFacts((_at(f"spec.{_SET}", job=1),)),
}
"""Every known kind with pods, by its group and its name."""

_NONE = KindFacts(())


def facts_of(group: str, kind: str) -> KindFacts:
    """The facts about a kind; without any place for a kind that is not known."""
    return KIND_FACTS.get((group, kind), _NONE)
