"""The checkpoint's volume, from a training runtime to a pod, is added once, however many objects in between are admitted.

An API server refuses a pod with two mounts at one path, or two volumes of one name, and Trainer or JobSet would retry forever.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_jobset, admitted, owned_by

from spotwright.cluster.admission_server import admit
from spotwright.placing.environment import CHECKPOINT_PATH
from spotwright.placing.merging import strategic

POLICY = "{default: {spot: require, checkpoint: 'pvc://saves/of-team-a'}}"
TRAINER = "trainer.kubeflow.org/v1alpha1"
NODE = ("spec", "replicatedJobs", 0, "template", "spec", "template")


def a_runtime() -> dict[str, Any]:
    """A TrainingRuntime whose nodes mount a volume of their user's as well."""
    spec = copy.deepcopy(a_jobset()["spec"])
    pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    template = {"mlPolicy": {"numNodes": 2}, "template": {"spec": spec}}
    metadata = {"name": "torch", "namespace": "team-a"}
    return {"apiVersion": TRAINER, "kind": "TrainingRuntime", "metadata": metadata, "spec": template}


def a_train_job() -> dict[str, Any]:
    spec = {"runtimeRef": {"name": "torch", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}}
    return {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": "mnist", "namespace": "team-a"},
        "spec": spec,
    }


def at(data: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def what_trainer_makes(train_job: dict[str, Any], runtime: dict[str, Any]) -> dict[str, Any]:
    """The JobSet that Trainer 2.3 makes: the runtime's, with the TrainJob's patches and its environment."""
    spec = copy.deepcopy(runtime["spec"]["template"]["spec"])
    job = spec["replicatedJobs"][0]["template"]["spec"]
    for entry in train_job["spec"].get("runtimePatches") or ():
        patch = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
        job["template"] = strategic(job["template"], patch["template"]["spec"]["template"])
    environment = train_job["spec"]["trainer"].get("env") or []
    containers = [{"name": "node", "env": environment}]
    job["template"]["spec"] = strategic(job["template"]["spec"], {"containers": containers})
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "mnist", "namespace": "team-a"},
        "spec": spec,
    }
    return owned_by(jobset, TRAINER, "TrainJob", "mnist")


def the_pod_of(jobset: dict[str, Any]) -> dict[str, Any]:
    template = at(jobset, NODE)
    metadata = {**template["metadata"], "name": "mnist-node-0-0", "namespace": "team-a"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return owned_by(pod, "batch/v1", "Job", "mnist-node-0")


def folder_of(pod_spec: dict[str, Any]) -> str:
    """The folder of the one mount at the checkpoint's path, of the one volume that the pod has for it."""
    mounts = pod_spec["containers"][0]["volumeMounts"]
    paths, names = [one["mountPath"] for one in mounts], [one["name"] for one in pod_spec["volumes"]]
    variables = [one["name"] for one in pod_spec["containers"][0]["env"]]
    for keys in (paths, names, variables):
        assert len(keys) == len(set(keys)), keys
    (mount,) = (one for one in mounts if one["mountPath"] == CHECKPOINT_PATH)
    assert mount["name"] in names
    return str(mount["subPathExpr"])


@pytest.mark.parametrize("is_runtime_placed", [True, False])
def test_a_train_job_s_pods_mount_the_checkpoint_once(is_runtime_placed: bool) -> None:
    config = a_config(POLICY)
    runtime = admitted(a_runtime(), config)[0] if is_runtime_placed else a_runtime()
    train_job, _ = admitted(a_train_job(), config, runtime)
    made = what_trainer_makes(train_job, runtime)
    jobset, _ = admitted(made, config, train_job)
    folder = folder_of(at(jobset, NODE)["spec"])
    assert folder == folder_of(at(made, NODE)["spec"])
    outcome = admit(the_pod_of(jobset), config, refusal_image="r")
    assert not any("volume" in operation["path"].lower() for operation in outcome.patch)


def test_a_volume_of_a_train_job_whose_runtime_was_placed_is_the_runtime_s() -> None:
    config = a_config(POLICY)
    runtime, _ = admitted(a_runtime(), config)
    train_job, _ = admitted(a_train_job(), config, runtime)
    assert "volume" not in str(train_job["spec"]).lower()


def test_a_mount_of_the_user_s_at_the_checkpoint_s_path_is_the_only_one() -> None:
    jobset = a_jobset()
    pod = at(jobset, NODE)["spec"]
    own = {"name": "own", "mountPath": CHECKPOINT_PATH}
    pod["volumes"] = [{"name": "own", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [own]
    placed = at(admitted(jobset, a_config(POLICY))[0], NODE)["spec"]
    assert (placed["containers"][0]["volumeMounts"], placed["volumes"]) == ([own], [{"name": "own", "emptyDir": {}}])
