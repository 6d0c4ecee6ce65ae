"""A member of a gang that fails for want of its peer is charged for the peer's node, of which Kubernetes tells later.

Two workers on two nodes. The node of one loses power; the other exits with 1 some seconds later, as NCCL and gloo do; JobSet
deletes both, to start again; and after 50 seconds Kubernetes says that the node is silent. The same with an error of the code:
then the other worker's node lives, and tells its end.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admissions import admission_of
from tests.cluster.folder_records import FolderHistories
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, node

from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.view import SeenPod
from spotwright.cluster.workloads import templates_of
from spotwright.model.attempts import Cause
from spotwright.records.state_folder import StateFolder
from spotwright.scheduling.budgets import BudgetUse

SET_NAME, SET_UID, JOB_UID = "train", "the-set", "the-job"
POLICY = '{"spot":"prefer","interruptions":{"max":3},"errors":{"retries":0}}'


def time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Gang:
    """Two workers of a JobSet on two nodes; ``at`` is in seconds after their start, by both clocks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.set: dict[str, Any] = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": SET_NAME, "namespace": "team-a", "uid": SET_UID, "creationTimestamp": time(BEGIN)},
            "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": self._job_spec()}}]},
            "status": {},
        }
        self.job: dict[str, Any] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "train-node-0",
                "namespace": "team-a",
                "uid": JOB_UID,
                "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node"},
                "ownerReferences": [self._reference("jobset.x-k8s.io/v1alpha2", "JobSet", SET_NAME, SET_UID)],
            },
            "spec": self._job_spec(),
            "status": {},
        }
        self.pods = {name: self._pod(index, name) for index, name in enumerate(("n1", "n2"))}
        for pod in self.pods.values():
            cluster.view.put_pod(pod)
        self.look(1.0)

    @staticmethod
    def _job_spec() -> dict[str, Any]:
        template = {"metadata": {"annotations": {"spotwright.dev/policy": POLICY}}, "spec": {"containers": []}}
        return {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": template}

    @staticmethod
    def _reference(version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}

    def _pod(self, index: int, node_name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"train-node-0-{index}",
                "namespace": "team-a",
                "uid": f"pod-{index}",
                "creationTimestamp": time(BEGIN),
                "labels": {
                    "jobset.sigs.k8s.io/jobset-name": SET_NAME,
                    "jobset.sigs.k8s.io/replicatedjob-name": "node",
                    "jobset.sigs.k8s.io/restart-attempt": "0",
                    "jobset.sigs.k8s.io/job-index": "0",
                },
                "annotations": {
                    "batch.kubernetes.io/job-completion-index": str(index),
                    "spotwright.dev/policy": POLICY,
                },
                "ownerReferences": [self._reference("batch/v1", "Job", "train-node-0", JOB_UID)],
            },
            "spec": {
                "nodeName": node_name,
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "train:1"}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time(BEGIN)}],
                "containerStatuses": [
                    {"name": "main", "restartCount": 0, "state": {"running": {"startedAt": time(BEGIN)}}}
                ],
            },
        }

    def fails(self, on: str, at: float, code: int = 1) -> None:
        self._change(
            on, at, phase="Failed", ended={"exitCode": code, "reason": "Error", "finishedAt": time(BEGIN + at)}
        )

    def is_deleted(self, on: str, at: float) -> None:
        """The set starts again: its Job has failed, and is deleted with its pods."""
        self.job["status"] = {
            "conditions": [{"type": "Failed", "status": "True", "reason": "X", "lastTransitionTime": time(BEGIN + at)}]
        }
        self._change(on, at, deletion=time(BEGIN + at + 30))

    def is_silent(self, name: str, at: float) -> None:
        self.cluster.view.clock = at
        silent = node(name, **SPOT)
        (ready,) = [one for one in silent["status"]["conditions"] if one["type"] == "Ready"]
        ready |= {"status": "Unknown", "lastTransitionTime": time(BEGIN + at)}
        self.cluster.view.put_node(silent)
        self.look(at)

    def _change(self, on: str, at: float, phase: str = "", ended: Any = None, deletion: str = "") -> None:
        pod = copy.deepcopy(self.pods[on])
        if phase:
            pod["status"]["phase"] = phase
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
        if deletion:
            pod["metadata"] |= {"deletionTimestamp": deletion, "deletionGracePeriodSeconds": 30}
        self.pods[on] = pod
        self.cluster.view.clock = at
        self.cluster.view.put_pod(pod)
        self.look(at)

    def look(self, at: float) -> None:
        """Look at all pods that are there, as the watcher does after a change or when something had to settle."""
        view, store = self.cluster.view, self.cluster.store
        view.clock, now = at, BEGIN + at
        owners = [self.job, self.set]
        run = store.runs.get(SET_UID) or store.create(self.set, templates_of(owners), (), now)
        seen = [SeenPod(view.pods[uid], owners) for uid in sorted(view.pods)]
        PodReconciler(run, view, now, admission=admission_of).record(seen, self.set, are_all=True)
        run.commit()

    @property
    def causes(self) -> list[Cause | None]:
        return [task.last.cause for _, task in sorted(self.cluster.state().tasks.items())]

    @property
    def spent(self) -> BudgetUse:
        (found,) = {task.spent for task in self.cluster.state().tasks.values()}
        return found

    def webhook_sees(self) -> list[Cause | None]:
        histories = FolderHistories(StateFolder.open(self.cluster.folder))
        history = histories.of(self.set)
        return [each.cause for path in sorted(history.tasks) for each in history.tasks[path].attempts]


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    cluster = Cluster(tmp_path / "state")
    cluster.now = BEGIN
    yield Gang(cluster)
    cluster.store.close()


def test_a_peer_of_a_lost_node_fails_first_and_the_restart_is_charged_for_the_node(gang: Gang) -> None:
    gang.fails("n1", at=20.0)
    gang.is_deleted("n2", at=21.0)
    gang.look(40.0)
    assert gang.webhook_sees() == [None, None], "a pod that is made meanwhile must not be refused"
    gang.is_silent("n2", at=62.0)
    gang.look(64.0)
    assert gang.causes == [Cause.FAILED, Cause.LOST]
    assert gang.spent == BudgetUse(interruptions=1)
    assert gang.webhook_sees() == [Cause.FAILED, Cause.LOST]


def test_an_error_of_the_code_is_charged_as_soon_as_the_peer_s_node_tells_its_end(gang: Gang) -> None:
    gang.fails("n1", at=20.0)
    gang.is_deleted("n2", at=21.0)
    assert gang.causes == [None, None]
    gang.fails("n2", at=24.0, code=143)
    gang.look(25.0)
    assert gang.causes == [Cause.FAILED, Cause.DISRUPTED]
    assert gang.spent == BudgetUse(errors=1)


def test_an_error_is_charged_after_the_time_in_which_kubernetes_tells_of_a_silent_node(gang: Gang) -> None:
    gang.fails("n1", at=20.0)
    gang.look(79.0)
    assert gang.causes == [None, None]
    assert gang.cluster.view.unsettled_until() == 80.0
    assert gang.cluster.view.ending() == []
    gang.look(80.0)
    assert gang.causes == [Cause.FAILED, None]
    assert gang.spent == BudgetUse(errors=1)


def test_an_error_on_the_node_of_its_peers_waits_for_nothing(gang: Gang) -> None:
    gang.pods["n2"]["spec"]["nodeName"] = "n1"
    gang.cluster.view.put_pod(gang.pods["n2"])
    gang.fails("n1", at=20.0)
    assert gang.causes == [Cause.FAILED, None]


def test_a_drained_member_waits_for_no_peer(gang: Gang) -> None:
    drained = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    gang.pods["n1"]["status"]["conditions"].append({**drained, "lastTransitionTime": time(BEGIN + 19)})
    gang.fails("n1", at=20.0, code=143)
    gang.look(21.0)
    assert gang.causes == [Cause.DISRUPTED, None]
