"""Runs and tasks of the kinds whose operators the test bed lacks: training operator v1, MPI operator v2, Katib.

The objects are shaped after the operators' sources: labels of ``kubeflow/common`` (``pkg/apis/common/v1/constants.go``), of
mpi-operator v2 (``v2/pkg/controller/mpi_job_controller.go``) and of Katib (``pkg/controller.v1beta1/consts``).
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.workloads import gang_of, lineage, outcome_of, retries_of, task_name
from spotwright.engine.events import RunStatus


def owned(kind: str, name: str, above: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    references = [] if above is None else [
        {"kind": above["kind"], "name": above["metadata"]["name"], "uid": above["metadata"]["uid"], "controller": True}
    ]  # fmt: skip
    meta = {"name": name, "namespace": "team-a", "uid": f"{kind}-uid", "ownerReferences": references}
    return {"kind": kind, "metadata": meta, "spec": spec, "status": {}}


def owners_of(made: dict[str, Any], *owners: dict[str, Any]) -> list[Any]:
    by_key = {(owner["kind"], owner["metadata"]["uid"]): owner for owner in owners}
    found = lineage(made, lambda kind, _namespace, uid: by_key.get((kind, uid)))
    assert found.is_complete
    return list(found.owners)


def of_role(role: str, index: int, owner: dict[str, Any]) -> dict[str, Any]:
    labels = {
        "training.kubeflow.org/job-name": owner["metadata"]["name"],
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    return pod(f"{role}-{index}", owner, labels=labels)


@pytest.mark.parametrize(
    ("kind", "roles"),
    [("PyTorchJob", "pytorch"), ("TFJob", "tf"), ("XGBoostJob", "xgb"), ("PaddleJob", "paddle"), ("JAXJob", "jax")],
)
def test_each_role_of_a_training_job_is_a_task(kind: str, roles: str) -> None:
    train = owned(kind, "train", **{f"{roles}ReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}})
    master, worker = of_role("master", 0, train), of_role("worker", 1, train)
    assert owners_of(worker, train) == [train]
    assert task_name(master, [train])[:2] == ("master", "master")
    assert task_name(worker, [train])[:2] == ("worker-1", "worker")
    assert retries_of(worker, [train]) is None
    assert gang_of(worker, [train], []) == ""


def test_a_job_of_the_mpi_operator_has_a_launcher_in_a_job_and_workers() -> None:
    mpi = owned("MPIJob", "train", mpiReplicaSpecs={"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}})
    launcher_job = owned("Job", "train-launcher", mpi, backoffLimit=4)
    launcher = pod("l", launcher_job, labels={"training.kubeflow.org/job-role": "launcher"})
    worker = pod(
        "w",
        mpi,
        labels={"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": "1"},
    )
    assert owners_of(launcher, mpi, launcher_job) == [launcher_job, mpi]
    assert task_name(launcher, [launcher_job, mpi]).path == "launcher"
    assert task_name(worker, [mpi]).path == "worker-1"


def test_an_experiment_is_a_run_and_each_of_its_trials_a_task() -> None:
    experiment = owned("Experiment", "tune")
    trial = owned("Trial", "tune-abc", experiment)
    work = owned("Job", "tune-abc", trial, backoffLimit=0)
    made = pod("tune-abc-x", work)
    owners = owners_of(made, experiment, trial, work)
    assert owners == [work, trial, experiment]
    assert task_name(made, owners)[:2] == ("tune-abc", "trial")


def test_a_trial_with_several_pods_has_a_task_for_each() -> None:
    experiment = owned("Experiment", "tune")
    trial = owned("Trial", "tune-abc", experiment)
    train = owned(
        "PyTorchJob", "tune-abc", trial, pytorchReplicaSpecs={"Master": {"replicas": 1}, "Worker": {"replicas": 2}}
    )
    made = of_role("worker", 1, train)
    owners = owners_of(made, experiment, trial, train)
    assert task_name(made, owners)[:2] == ("tune-abc/worker-1", "worker")


def test_a_trial_that_is_an_indexed_job_numbers_its_pods() -> None:
    experiment = owned("Experiment", "tune")
    trial = owned("Trial", "tune-abc", experiment)
    work = owned("Job", "tune-abc", trial, completions=2, completionMode="Indexed")
    made = pod("p", work, annotations={"batch.kubernetes.io/job-completion-index": "1"})
    assert task_name(made, [work, trial, experiment])[:2] == ("tune-abc/1", "trial")


def test_the_condition_of_an_operator_ends_its_run() -> None:
    ended = {"conditions": [{"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": "master"}]}
    outcome = outcome_of({**owned("PyTorchJob", "train"), "status": ended})
    assert outcome is not None
    assert (outcome.status, outcome.why) == (RunStatus.FAILED, "PyTorchJobFailed: master")
    running = {"conditions": [{"type": "Running", "status": "True"}]}
    assert outcome_of({**owned("Experiment", "tune"), "status": running}) is None


def test_a_trial_whose_job_has_retries_has_those() -> None:
    experiment, trial = owned("Experiment", "tune"), owned("Trial", "tune-abc")
    assert retries_of({}, [job(backoffLimit=2), trial, experiment]) == 2
