"""Workloads as a watcher records them: a Job whose node was lost and whose code failed once, a Workflow, another team's Job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import SPOT, done, job, node, pod

from spotwright.records.state_folder import RunFolder, StateFolder

KFP_RUN = "5b51d1a4-8c33-4a08-9a35-0f0a3f2d7b11"
KFP_NAME = "my nightly iris"
LOGS = {
    1: b"step 1\nstep 2\n",
    2: "Z\u00fcge \u2713\n".encode() + b"\xff broken",
    3: b"step 3\n" * 50_000 + "\u00fc".encode(),
}
"""The logs of the attempts of team-a's Job; the third one takes several requests less than its size."""


def record_two_teams(state: Path) -> None:
    """Record the three workloads, with logs."""
    cluster = Cluster(state)
    for step in looks_at_train(cluster):
        step()
    workflow = iris_workflow()
    cluster.look(workflow, pod_of_step(workflow, "p-load", "load", node="n3", phase="Succeeded", exit_code=0))
    other = job("serve", uid="uid-serve", status=done())
    other["metadata"]["namespace"] = "team-b"
    cluster.look(other, _of_team_b(pod("serve-1", other, node="n3", phase="Succeeded", exit_code=0)))
    cluster.store.close()
    (run,) = [each for each in StateFolder.existing(state).runs() if each.name.startswith("team-a.train")]
    for number, data in LOGS.items():
        write_log(run, "train", number, data)


def write_log(run: RunFolder, task: str, attempt: int, data: bytes) -> None:
    """Write the log of an attempt, as the keeper of logs does."""
    path = run.log(task, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def looks_at_train(cluster: Cluster) -> Any:
    train = job(backoffLimit=3)
    yield lambda: cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cut = pod("one", train, node="n1", phase="Running", deletionTimestamp="2027-01-15T08:00:40Z")

    def lose() -> None:
        cluster.view.put_node(node("n1", ready="Unknown", **SPOT))
        cluster.look(train, cut)

    yield lose
    failed = pod("two", train, made=50, node="n2", phase="Failed", exit_code=1)
    yield lambda: cluster.look(train, cut, failed)
    succeeded = pod("three", train, made=70, node="n3", phase="Succeeded", exit_code=0)
    yield lambda: cluster.look({**train, "status": done()}, failed, succeeded)


def iris_workflow() -> dict[str, Any]:
    meta = {
        "name": "iris",
        "namespace": "team-a",
        "uid": "uid-iris-0123",
        "creationTimestamp": "2027-01-15T08:00:00Z",
        "labels": {"pipeline/runid": KFP_RUN},
        "annotations": {"pipelines.kubeflow.org/run_name": KFP_NAME},
    }
    status = {"phase": "Succeeded", "startedAt": "2027-01-15T08:00:00Z", "finishedAt": "2027-01-15T08:00:20Z"}
    return {"kind": "Workflow", "metadata": meta, "spec": {}, "status": status}


def pod_of_step(workflow: dict[str, Any], name: str, step: str, **more: Any) -> dict[str, Any]:
    made = pod(name, workflow, **more)
    made["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": f"iris.{step}"}
    return made


def _of_team_b(made: dict[str, Any]) -> dict[str, Any]:
    made["metadata"]["namespace"] = "team-b"
    return made
