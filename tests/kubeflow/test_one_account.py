"""Our record of a run on KFP and the controller's record have the same cost: one computation per pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.folder_records import FolderRecords
from tests.cluster.watching.watched_cluster import Cluster as Watched
from tests.kubeflow.flows import BEGIN, Flow, Try
from tests.kubeflow.pipelines import POOLS
from tests.kubeflow.recorded_runs import Recorded, of_workflow
from tests.kubeflow.shown_pods import SPOT, TRAINING, Cluster, a_pod, moment

from spotwright import config
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.view import SeenPod
from spotwright.kubeflow.recorder import PodsSeen
from spotwright.records.state_folder import StateFolder
from spotwright.views.run_json import run_view

UNSIZED = POOLS.replace(", node: {cpu: 8, memory: 16Gi}", "")
NODE: dict[str, Any] = {
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "n1-uid", "labels": SPOT},
    "status": {
        "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def training(phase: str, *, bound: float, ended: float | None = None) -> dict[str, Any]:
    """A pod of KFP's with Argo's container beside the user's, as Kubernetes shows it."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(bound)}
    state: dict[str, Any] = {"running": {"startedAt": moment(bound + 2)}}
    if ended is not None:
        state = {"terminated": {"exitCode": 0, "startedAt": moment(bound + 2), "finishedAt": moment(ended)}}
    status = [{"name": "main", "restartCount": 0, "state": state}]
    made = a_pod(TRAINING, phase=phase, conditions=[scheduled], containerStatuses=status)
    made["spec"]["containers"] = [
        {"name": "wait", "resources": {"requests": {"cpu": "10m"}}},
        {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}},
    ]
    made["metadata"] |= {"creationTimestamp": moment(1), "labels": {"pipeline/runid": "run-1"}, "namespace": "team-a"}
    return made


def of_kfp(cluster: Cluster, configured: str) -> dict[str, Any]:
    """The training of a run that ``run --on kfp`` followed."""
    pods = PodsSeen(cluster.read, "run-1", config.parse(configured, "spotwright.yaml").pools, pause=0.0)
    recorded = Recorded(of_workflow, configured)
    recorded.recorder.pods = pods
    for flow_try, pod in (
        (Try("Running", host="n1", began=1, ended=None), training("Running", bound=3)),
        (Try("Succeeded", "", "n1", 1, 45), training("Succeeded", bound=3, ended=41)),
    ):
        cluster.has_pods(pod)
        pods.look("team-a")
        flow = Flow()
        flow.task("train", flow_try)
        recorded.look(flow)
    view = run_view(recorded.state, "here", BEGIN + 60)
    return next(task["attempts"][0] for task in view["tasks"] if task["path"] == "train")


def of_controller(folder: Path, configured: str) -> dict[str, Any]:
    """The training as the controller records it, with the same configuration."""
    watched = Watched(folder)
    watched.store.close()
    watched.store = RunStore(FolderRecords(StateFolder.open(folder)), config.parse(configured, "spotwright.yaml"))
    watched.view.put_node(NODE)
    watched.now = BEGIN + 60.0
    workflow = {
        "kind": "Workflow",
        "metadata": {
            "name": "digits-abcde",
            "namespace": "team-a",
            "uid": "wf-uid",
            "creationTimestamp": moment(0),
            "labels": {"pipeline/runid": "run-1"},
            "annotations": {"pipelines.kubeflow.org/run_name": "my digits"},
        },
        "status": {"phase": "Running"},
    }
    for pod in (training("Running", bound=3), training("Succeeded", bound=3, ended=41)):
        watched.look_at([SeenPod(pod, (workflow,))], workflow)
    view = run_view(watched.state(), "there", BEGIN + 60)
    assert view["arguments"]["kfp_name"] == "my digits"
    watched.store.close()
    (task,) = view["tasks"]
    return dict(task["attempts"][0])


@pytest.mark.parametrize(("configured", "cpus"), [(POOLS, 8), (UNSIZED, 4)])
def test_the_account_of_an_attempt_is_the_same_here_and_in_the_controllers_record(
    tmp_path: Path, configured: str, cpus: int
) -> None:
    cluster = Cluster()
    cluster.objects["/api/v1/nodes/n1"] = NODE
    here, there = of_kfp(cluster, configured), of_controller(tmp_path / "state", configured)
    same = ("pool", "node", "capacity", "bound_at", "ended_at", "seconds", "share", "cost", "cause")
    assert {name: here[name] for name in same} == {name: there[name] for name in same}
    assert (here["seconds"], here["share"]) == (38.0, pytest.approx(1.01 / cpus))
