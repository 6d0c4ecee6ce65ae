"""Finds the workload that a pod belongs to: the topmost owner of a kind that is a run, or the pod itself.

A pod of a JobSet belongs to a Job, the Job to the JobSet, and that perhaps to a TrainJob; all of them may belong to a Trial of a
Katib Experiment. The run is the topmost of them. A CronJob starts Jobs again and again: each Job is a run of its own. A pod
without an owner is a run if it carries a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.manifests.kinds import NAMESAKES
from spotwright.manifests.rules.context import POLICY_ANNOTATION

__all__ = [
    "RUN_KINDS",
    "TRAINING_KINDS",
    "FindOwner",
    "Lineage",
    "controller_reference",
    "is_own_run",
    "lineage",
    "metadata",
    "uid_of",
]

TRAINING_KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
"""Kinds of the training operator v1 and of the MPI operator v2."""

RUN_KINDS = ("Job", "JobSet", "TrainJob", "Workflow", *TRAINING_KINDS, "Trial", "Experiment")
"""Kinds of owners that are runs."""

FindOwner = Callable[[str, str, str], Mapping[str, Any] | None]
"""Finds an object by kind, namespace and UID; None: it is not there, or it is not known yet."""


class Lineage(NamedTuple):
    """The owners of a pod of kinds that are runs, nearest first; the last one is the run. Empty: the pod is the run."""

    owners: Sequence[Mapping[str, Any]]
    is_complete: bool  # False: an owner is named that was not found

    def root(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object that is the run."""
        return self.owners[-1] if self.owners else pod


def lineage(pod: Mapping[str, Any], find: FindOwner) -> Lineage:
    """The owners of a pod, as far as they can be found. Users may write owners that own each other: the circle is left out."""
    owners: list[Mapping[str, Any]] = []
    here: Mapping[str, Any] = pod
    while (reference := controller_reference(here)) is not None and reference.get("uid") not in [*map(uid_of, owners)]:
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        if reference.get("kind") not in RUN_KINDS or (group, reference.get("kind")) in NAMESAKES:
            break
        owner = find(str(reference["kind"]), str(metadata(pod).get("namespace", "")), str(reference.get("uid", "")))
        if owner is None:
            return Lineage(owners, is_complete=False)
        owners.append(owner)
        here = owner
    return Lineage(owners, is_complete=True)


def is_own_run(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is a run by itself: nobody owns it, and it carries a policy."""
    return controller_reference(pod) is None and POLICY_ANNOTATION in (metadata(pod).get("annotations") or {})


def metadata(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of an object."""
    found: Mapping[str, Any] = data.get("metadata") or {}
    return found


def uid_of(data: Mapping[str, Any]) -> str:
    """The UID of an object."""
    return str(metadata(data).get("uid", ""))


def controller_reference(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference to the controller that owns an object; None if a user made it."""
    references = metadata(data).get("ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)
