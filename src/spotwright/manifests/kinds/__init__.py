"""A module for each family of kinds: where its pods are, and what the kind does when one of them is interrupted.

A module has a mapping ``KINDS`` from ``(group, kind)``, or ``(group/version, kind)`` if versions differ, to a function that
places one object. A new kind is a new module in :data:`FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

from spotwright.manifests.rules.context import PlaceContext

__all__ = ["FAMILIES", "NAMESAKES", "SERVED", "PlaceObject", "find_kind", "served_version"]

PlaceObject = Callable[[PlaceContext], None]
"""Places one object through its context."""

FAMILIES: tuple[str, ...] = (
    "spotwright.manifests.kinds.argo.workflows",
    "spotwright.manifests.kinds.core",
    "spotwright.manifests.kinds.deployment",
    "spotwright.manifests.kinds.jobset",
    "spotwright.manifests.kinds.katib",
    "spotwright.manifests.kinds.kfp.compiled_pipelines",
    "spotwright.manifests.kinds.ray",
    "spotwright.manifests.kinds.resource_flavor",
    "spotwright.manifests.kinds.spark",
    "spotwright.manifests.kinds.tekton",
    "spotwright.manifests.kinds.trainer.training_operator",
    "spotwright.manifests.kinds.trainer.trainjob",
    "spotwright.manifests.kinds.unsupported",
    "spotwright.manifests.kinds.volcano",
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
    """The apiVersion under which a kind is placed, by its group if the name has several; ``None`` if unknown."""
    return NAMESAKES.get((api_version.rpartition("/")[0], kind)) or SERVED.get(kind)


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
