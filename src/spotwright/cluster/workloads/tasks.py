"""Names the task of a pod, and the template of the plan that the task is made from.

==============================  =========================================================================
run                             task
==============================  =========================================================================
Job                             the Job's name; with several completions ``NAME-INDEX``
JobSet, TrainJob                the replicated job's name; with several pods ``NAME-NUMBER``
PyTorchJob, TFJob ..., MPIJob    the role; with several pods ``worker-NUMBER``
Katib Experiment                the trial; of a trial with several pods ``TRIAL/TASK``
Argo Workflow                   the path of its node: ``train``, ``loop/train-3``
KFP run (a Workflow)            the path in the pipeline, as in a local run; driver pods as ``train-driver``
Pod                             the pod's name
==============================  =========================================================================

Node names of Argo are ``workflow.step``, of retried nodes ``workflow.step(2)``, of loops ``workflow.step(0:item)``, with both
``step(0:item)(2)``; steps add ``[1]`` for their group. The KFP backend wraps each task in an executor, each loop in
``iteration-iterations(0:0).iteration-item``, and all in ``root`` (seen in Workflows of the backends 2.16.1 and 2.17.0).
The exit task of an ``ExitHandler`` stands beside it in the pipeline, but in the Workflow it runs in a hook of it:
``exit-handler-1.onExit.done`` (seen on 2.16.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.cluster.workloads.owners import TRAINING_KINDS, metadata

__all__ = ["TaskName", "task_name", "workflow_task"]

_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_NODE_NAME = "workflows.argoproj.io/node-name"
_ROLE, _REPLICA = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_MPI_ROLE = (
    "training.kubeflow.org/job-role"  # of mpi-operator v2; the training operator has it for masters, beside the type
)
_TRIAL = "trial"
_KFP_RUN = "pipeline/runid"
_ITERATION = re.compile(r"\((\d+):")
_KFP_WRAPPERS = frozenset(("root", "executor", "iteration-item"))
_KFP_ITERATIONS = "iteration-iterations"
_KFP_HOOK = "onExit"


class TaskName(NamedTuple):
    """The task of a pod. ``slots`` above one: the pods are alike, and each takes the first of ``PATH-0`` ... that is free."""

    path: str
    template: str
    slots: int = 1


def task_name(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """The task of a pod. ``owners`` are those of :func:`~spotwright.cluster.workloads.owners.lineage`."""
    labels, annotations = (metadata(pod).get(name) or {} for name in ("labels", "annotations"))
    if _NODE_NAME in annotations:
        return workflow_task(annotations[_NODE_NAME], is_kfp=_KFP_RUN in labels)
    if not owners:
        name = str(metadata(pod).get("name", ""))
        return TaskName(name, name)
    if owners[-1].get("kind") == "Experiment":
        return _of_trial(pod, owners)
    if _ROLE in labels or _MPI_ROLE in labels:
        return _of_role(labels, owners)
    job = owners[0]
    if _REPLICATED in labels:
        return _member(labels, annotations, job, owners)
    return _of_job(annotations, job)


def _of_trial(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """A pod of a Katib trial. All trials are made from one template, which the Experiment fills in."""
    index = next((number for number, owner in enumerate(owners) if owner.get("kind") == "Trial"), len(owners) - 1)
    trial = str(metadata(owners[index]).get("name", ""))
    if index == 0:
        return TaskName(trial, _TRIAL)
    inside = task_name(pod, owners[:index])
    if inside.path == trial:
        return TaskName(trial, _TRIAL)
    template = _TRIAL if inside.template == trial else inside.template
    return TaskName(f"{trial}/{inside.path.removeprefix(f'{trial}-')}", template, inside.slots)


def _of_role(labels: Mapping[str, str], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """A pod of the training operator or of the MPI operator: its role, numbered where the role has several pods."""
    role = labels.get(_ROLE) or labels[_MPI_ROLE]
    spec = next((owner.get("spec") or {} for owner in owners if owner.get("kind") in TRAINING_KINDS), {})
    replicas: Mapping[str, Any] = next((value for key, value in spec.items() if key.endswith("ReplicaSpecs")), {})
    count = next((each.get("replicas", 1) for name, each in replicas.items() if name.lower() == role.lower()), 1)
    number = labels.get(_REPLICA)
    return TaskName(role.lower() if count == 1 or number is None else f"{role.lower()}-{number}", role.lower())


def _of_job(annotations: Mapping[str, str], job: Mapping[str, Any]) -> TaskName:
    name, spec = str(metadata(job).get("name", "")), job.get("spec") or {}
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and _INDEX in annotations:
        return TaskName(name if completions == 1 else f"{name}-{annotations[_INDEX]}", name)
    return TaskName(name, name, completions or spec.get("parallelism") or 1)


def _member(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    job: Mapping[str, Any],
    owners: Sequence[Mapping[str, Any]],
) -> TaskName:
    """A pod of a JobSet: its replicated job, numbered through all its Jobs where there are several pods."""
    name = labels[_REPLICATED]
    pods = (job.get("spec") or {}).get("parallelism") or 1
    replicas = 1
    for owner in owners[1:]:
        for replicated in (owner.get("spec") or {}).get("replicatedJobs") or ():
            if replicated.get("name") == name:
                replicas = replicated.get("replicas", 1)
    if pods * replicas == 1:
        return TaskName(name, name)
    number = int(labels.get(_JOB_INDEX, "0")) * pods + int(annotations.get(_INDEX, "0"))
    return TaskName(f"{name}-{number}", name)


def workflow_task(node_name: str, *, is_kfp: bool) -> TaskName:
    """The task of a node of a Workflow, by the whole name of the node."""
    segments = list(_segments(node_name))
    names: list[tuple[str, str | None]] = []
    iteration: str | None = None
    for name, number in segments[1:]:  # the first one is the workflow
        if is_kfp and name == _KFP_ITERATIONS:
            iteration = number  # that of the task inside, as in a local run: loop/train-3
        elif is_kfp and name == _KFP_HOOK:
            names = names[:-1]  # what is in the hook of an exit handler stands beside it
        elif not (is_kfp and name in _KFP_WRAPPERS):
            names.append((name, iteration if number is None else number))
            iteration = None
    names = names or [(segments[0][0], None)]
    path = "/".join(name if number is None else f"{name}-{number}" for name, number in names)
    return TaskName(path, ".".join(name for name, _ in names))  # a template's name holds no slash


def _segments(node_name: str) -> Iterator[tuple[str, str | None]]:
    """The names in a node's name, each with the number of its iteration; dots inside parentheses separate nothing."""
    for text in re.findall(r"(?:\([^)]*\)|\[\d+\]|[^.\[(])+", node_name):
        name = re.sub(r"\([^)]*\)|\[\d+\]", "", text)
        found = _ITERATION.search(text)
        if name:
            yield name, found[1] if found else None
