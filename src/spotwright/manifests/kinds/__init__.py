"""One small module a family of kinds: how each carries its pods, and what it does when one of them is interrupted.

A module has a ``KINDS`` mapping from ``(group, kind)``, or ``(group/version, kind)`` where versions differ, to a function that
places one object: ``place(ctx) -> None``. A new kind is a new module in :data:`FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

from spotwright.manifests.context import Context

__all__ = ["FAMILIES", "SERVED", "Place", "find_kind"]

Place = Callable[[Context], None]
"""Places one object through its context."""

FAMILIES: tuple[str, ...] = (
    "argo",
    "core",
    "jobset",
    "katib",
    "kfp",
    "training",
    "trainjob",
    "untouched",
)
"""The modules of this package, imported when a kind is first looked up."""


SERVED: Mapping[str, str] = {
    **dict.fromkeys(("Pod",), "v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    **dict.fromkeys(("JobSet",), "jobset.x-k8s.io/v1alpha2"),
    **dict.fromkeys(("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), "kubeflow.org/v1"),
    **dict.fromkeys(("Experiment",), "kubeflow.org/v1beta1"),
    **dict.fromkeys(("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"), "trainer.kubeflow.org/v1alpha1"),
    **dict.fromkeys(
        ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"), "argoproj.io/v1alpha1"
    ),
}
"""The apiVersion under which a kind is placed, for messages about others."""


def find_kind(api_version: str, kind: str) -> Place | None:
    """What places objects of a kind; ``None`` for kinds that pass through untouched."""
    kinds = _known_kinds()
    return kinds.get((api_version, kind)) or kinds.get((api_version.rpartition("/")[0], kind))


@cache
def _known_kinds() -> Mapping[tuple[str, str], Place]:
    """Every kind of every family."""
    found: dict[tuple[str, str], Place] = {}
    for name in FAMILIES:
        found.update(import_module(f"spotwright.manifests.kinds.{name}").KINDS)
    return found
