"""Runs and tasks of the kinds whose operators the test bed lacks: training operator v1, MPI operator v2, Katib.

The objects are shaped after the operators' sources: labels of ``kubeflow/common`` (``pkg/apis/common/v1/constants.go``), of
mpi-operator v2 (``v2/pkg/controller/mpi_job_controller.go``) and of Katib (``pkg/controller.v1beta1/consts``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import at, job, pod

from spotwright.cluster.katib_trials import trial_values
from spotwright.cluster.view import SeenPod
from spotwright.cluster.workloads import gang_of, lineage, outcome_of, retries_of, task_name
from spotwright.engine.events import RunStatus
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text


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


def a_trial(experiment: dict[str, Any], *, collector: str = "StdOut", metrics: Any = None) -> dict[str, Any]:
    """A Trial as Katib 0.19.0 makes it, with its observation once it has ended."""
    made = owned(
        "Trial",
        "tune-abc",
        experiment,
        objective={
            "type": "maximize",
            "objectiveMetricName": "accuracy",
            "metricStrategies": [{"name": "accuracy", "value": "max"}, {"name": "loss", "value": "latest"}],
        },
        parameterAssignments=[{"name": "lr", "value": "0.01"}, {"name": "layers", "value": "3"}],
        metricsCollector={"collector": {"kind": collector}},
    )
    made["status"] = {} if metrics is None else {"observation": {"metrics": metrics}}
    return made


METRICS = [
    {"name": "accuracy", "min": "0.5", "max": "0.92", "latest": "0.75"},
    {"name": "loss", "min": "0.1", "max": "2.0", "latest": "0.3"},
]


def test_a_trial_has_its_parameters_and_the_values_that_its_experiment_compares() -> None:
    parameters = {"lr": "0.01", "layers": "3"}
    assert trial_values(a_trial(owned("Experiment", "tune"))) == parameters
    assert trial_values(a_trial(owned("Experiment", "tune"), metrics=METRICS)) == {
        **parameters,
        "accuracy": "0.92",
        "loss": "0.3",
    }


@pytest.mark.parametrize("odd", [[1], {"a": []}, None, "text", [{"name": []}], [{"value": {}}], 7])
def test_what_else_users_write_into_a_trial_says_nothing_and_breaks_nothing(odd: Any) -> None:
    trial = {"spec": {"objective": {"metricStrategies": odd, "type": odd}, "parameterAssignments": odd}}
    assert trial_values({**trial, "status": {"observation": {"metrics": odd}}}) == {}


def shown(cluster: Cluster, experiment: dict[str, Any], trial: dict[str, Any], *pods: dict[str, Any]) -> str:
    work = owned("Job", "tune-abc", trial)
    cluster.look_at([SeenPod(each, (work, trial, experiment)) for each in pods], experiment)
    return " ".join(show_text(run_view(cluster.state(), "the-run")).split())


def test_show_has_the_parameters_and_the_metrics_of_a_trial_beside_its_name(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "state")
    experiment = owned("Experiment", "tune")
    experiment["metadata"]["creationTimestamp"] = at(0)
    work = owned("Job", "tune-abc", a_trial(experiment))
    running = pod("x", work, node="n1", phase="Running")

    assert "tune-abc lr=0.01, layers=3" in shown(cluster, experiment, a_trial(experiment), running)
    text = shown(cluster, experiment, a_trial(experiment, metrics=METRICS), running)
    assert "tune-abc lr=0.01, layers=3, accuracy=0.92, loss=0.3" in text
    cluster.store.close()


@pytest.mark.parametrize(("collector", "is_said"), [("StdOut", True), ("File", True), ("Push", False)])
@pytest.mark.parametrize("keeps", [True, False])
def test_show_warns_of_metrics_of_a_trial_that_may_have_resumed(
    tmp_path: Path, collector: str, is_said: bool, keeps: bool
) -> None:
    cluster = Cluster(tmp_path / "state")
    experiment = owned("Experiment", "tune")
    experiment["metadata"]["creationTimestamp"] = at(0)
    trial = a_trial(experiment, collector=collector)
    work = owned("Job", "tune-abc", trial)
    lost = pod("x", work, node="n1", phase="Failed", exit_code=137)
    again = pod("y", work, made=20, node="n2", phase="Running")
    for each in (lost, again):
        each["spec"]["containers"][0]["env"] = [{"name": "SPOTWRIGHT_CHECKPOINT", "value": "/ckpt"}] if keeps else []

    assert "Checkpoint.print" not in shown(cluster, experiment, trial, lost)
    assert ("Checkpoint.print" in shown(cluster, experiment, trial, lost, again)) == (is_said and keeps)
    cluster.store.close()
