"""A controller of ours with one workload: it reviews each pod by its records, and records how each one ends.

The review, the recorder and the journal are the real ones; the pods and nodes are objects as the API shows them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.admissions import admission_of
from tests.cluster.admitted_pods import IMAGE
from tests.cluster.budgets.pod_ends import DONE, PodEnd, at
from tests.cluster.folder_records import FolderHistories, FolderRecords
from tests.cluster.json_patches import apply_patch
from tests.cluster.watching.watched_objects import BEGIN, SPOT, node

from spotwright.cluster.admit_pods import AdmissionContext, admit_pod
from spotwright.cluster.attempt_lookup import before
from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.view import ClusterView, SeenPod
from spotwright.cluster.workloads import task_name, templates_of
from spotwright.config import Config
from spotwright.engine.attempt_history import set_history
from spotwright.records.state_folder import StateFolder

__all__ = ["RecordedWorkload", "reference"]

Object = dict[str, Any]
ON_DEMAND = {"kubernetes.azure.com/agentpool": "gpu"}
RESTART = "jobset.sigs.k8s.io/restart-attempt"
ATTEMPT = 400.0  # seconds between the pods of an index: all news of one has come before the next


def reference(owner: Mapping[str, Any]) -> Object:
    """The reference by which an object names its controller."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


class RecordedWorkload:
    """One workload under the controller. ``owners`` are those of its pods, nearest first, ``template`` is that of the pods."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        owners: Sequence[Object],
        template: Mapping[str, Any],
        labels: Mapping[str, str],
    ) -> None:
        self._config, self._owners, self._template, self._labels = config, owners, template, labels
        self._view = ClusterView()
        self._view.nodes_are_complete = True
        self._store = RunStore(FolderRecords(StateFolder.open(folder)), config)
        self._run = self._store.create(owners[-1], templates_of(owners), (), BEGIN)
        self._histories = FolderHistories(StateFolder.open(folder))
        self._pods: dict[int, Object] = {}  # by index: the pod that is there
        self._begun: set[str] = set()
        self._made = 0
        self._at = 0.0

    def close(self) -> None:
        """Close the journal."""
        self._store.close()

    def review(self, index: int, restart: int = 0) -> bool:
        """Let the pod of an index be made, unless it is refused; it runs on a node of its rung."""
        self._made += 1
        pod = self._new_pod(index, restart)
        name = task_name(pod, self._owners).path
        history = self._histories.of(self._owners[-1])
        gang = f"{self._owners[1]['metadata']['uid']}/{restart}" if len(self._owners) > 1 and self._is_set else ""
        made = len(history.tasks[name].attempts) if name in history.tasks else 0
        past = set_history(history, gang, name) if gang else before(history, name, made + 1)
        outcome = admit_pod(pod, self._config, AdmissionContext(past, has_begun=gang in self._begun), IMAGE)
        if outcome.verdict == "pod is refused":
            return False
        assert outcome.verdict == "pod is admitted", outcome
        self._begun |= {gang} - {""}
        pod = apply_patch(pod, outcome.patch)
        self._start(index, pod)
        return True

    @property
    def _is_set(self) -> bool:
        return any(owner["kind"] == "JobSet" for owner in self._owners)

    def _new_pod(self, index: int, restart: int) -> Object:
        meta = copy.deepcopy(dict(self._template.get("metadata") or {}))
        labels = {**meta.get("labels", {}), **self._labels, **({RESTART: str(restart)} if self._is_set else {})}
        indexed = {"batch.kubernetes.io/job-completion-index": str(index)}
        name = f"train-{self._made}"
        metadata = {
            **meta,
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "creationTimestamp": at(self._at),
            "labels": labels,
            "annotations": {**meta.get("annotations", {}), **indexed},
            "ownerReferences": [reference(self._owners[0])],
        }
        if self._owners[-1]["kind"] == "Workflow":
            metadata["annotations"]["workflows.argoproj.io/node-name"] = "train(0)"
        spec = {"terminationGracePeriodSeconds": 30, **copy.deepcopy(dict(self._template["spec"]))}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _start(self, index: int, pod: Object) -> None:
        rung = pod["metadata"]["annotations"]["spotwright.dev/rung"].split(",")
        where = node(f"n{self._made}", **(SPOT if "gpu-spot" in rung else ON_DEMAND))
        where["metadata"]["creationTimestamp"] = "2027-01-15T07:50:00Z"
        where["status"]["conditions"][0]["lastTransitionTime"] = "2027-01-15T07:50:09Z"
        self._view.put_node(where)
        pod["spec"]["nodeName"] = where["metadata"]["name"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(self._at + 1)}
        name = pod["spec"]["containers"][0]["name"]
        running = {"name": name, "restartCount": 0, "state": {"running": {"startedAt": at(self._at + 2)}}}
        pod["status"] = {
            "phase": "Running",
            "startTime": at(self._at + 1),
            "conditions": [scheduled],
            "containerStatuses": [running],
        }
        self._pods[index] = pod
        self._view.put_pod(pod)
        self._look(index)

    def end(self, index: int, end: PodEnd = DONE, *, stays: bool = False, news_after: float = 5.0) -> None:
        """Let the pod of an index end, or its container where it ``stays``; of its node one hears ``news_after`` seconds."""
        self._at += 10
        pod = self._pods[index]
        if stays:
            pod = copy.deepcopy(pod)
            (container,) = pod["status"]["containerStatuses"]
            container["restartCount"] += 1
            container["lastState"] = {"terminated": end.terminated(self._at)}
            container["state"] = {"running": {"startedAt": at(self._at + 3)}}
        else:
            pod = end.pod(pod, self._at)
        self._pods[index] = pod
        self._view.put_pod(pod)
        self._at += news_after
        where = copy.deepcopy(dict(self._view.node(pod["spec"]["nodeName"]) or {}))
        if end.node == "gone":
            self._view.delete_node(where)
        elif end.node == "restarted":
            where["status"]["conditions"][0]["lastTransitionTime"] = at(self._at - news_after + 1)
            self._view.put_node(where)
        self._look(index)

    def delete(self, index: int, end: PodEnd) -> None:
        """Let the controller of the pod delete it, because the set starts again; ``end`` is how it ends meanwhile."""
        failed = {"type": "Failed", "status": "True", "reason": "X", "lastTransitionTime": at(self._at)}
        self._owners[0]["status"] = {"conditions": [failed]}
        pod = copy.deepcopy(self._pods[index])
        pod["metadata"] |= {"deletionTimestamp": at(self._at + 30), "deletionGracePeriodSeconds": 30}
        self._pods[index] = pod
        if end.code is None:  # nothing more is heard of it
            self._view.put_pod(pod)
            self._view.delete_node(self._view.node(pod["spec"]["nodeName"]) or {})
            self._look(index)
        else:
            self.end(index, end)
        self._owners[0].pop("status")

    def go_on(self) -> None:
        """Let time pass until the next pods are made."""
        self._at += ATTEMPT
        for index in list(self._pods):
            self._look(index)

    def _look(self, index: int) -> None:
        self._view.clock = self._at
        PodReconciler(self._run, self._view, BEGIN + self._at, admission=admission_of).record(
            [SeenPod(self._pods[index], self._owners)], self._owners[-1], are_all=False
        )
        self._run.commit()
