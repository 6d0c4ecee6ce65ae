"""A JobSet of a leader and two workers that a watcher recorded, pod by pod: ended, waiting and recalled ones."""

from __future__ import annotations

from typing import Any

from tests.cluster.admissions import admission_of
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import at, job, pod

from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.run_store import WorkloadRun
from spotwright.cluster.view import SeenPod
from spotwright.cluster.workloads import templates_of

__all__ = ["API", "RecordedSet"]

API = "jobset.x-k8s.io/v1alpha2"
_NAME, _RESTART = "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/restart-attempt"
_POOLS = {"leader": "gpu", "workers": "gpu-spot"}
_NODES = {"gpu": "n3", "gpu-spot": "n1"}


class RecordedSet:
    """The set. Its leader is on on-demand; its workers prefer spot, ``workers-0`` and ``workers-1``."""

    def __init__(self, cluster: Cluster, uid: str = "set-uid") -> None:
        meta = {"name": uid, "namespace": "team-a", "uid": uid, "creationTimestamp": at(0)}
        self.cluster, self.uid = cluster, uid
        jobs = [{"name": role, "replicas": 1, "template": self._template(role)} for role in _POOLS]
        self.object = {"kind": "JobSet", "apiVersion": API, "metadata": meta, "spec": {"replicatedJobs": jobs}}

    def _template(self, role: str) -> dict[str, Any]:
        pods = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"} if role == "workers" else {}
        made = job(f"{self.uid}-{role}-0", uid=f"{self.uid}-{role}", **pods)
        made["spec"]["template"] |= {"metadata": {"labels": {"spotwright.dev/spot": "prefer"}}}
        return made

    def job(self, role: str) -> dict[str, Any]:
        """The Job of a role."""
        made = self._template(role)
        owner = {"apiVersion": API, "kind": "JobSet", "name": self.uid, "uid": self.uid, "controller": True}
        made["metadata"] |= {"ownerReferences": [owner], "labels": {_NAME: role}}
        return made

    def pod(self, role: str, restart: int, index: int = 0, *, rung: str = "", **more: Any) -> dict[str, Any]:
        """A pod of a role in a restart, which was admitted for a pool."""
        labels = {_NAME: role, _RESTART: str(restart)}
        indexes = {"batch.kubernetes.io/job-completion-index": str(index)}
        annotations = {"spotwright.dev/rung": rung or _POOLS[role], **indexes}
        name = f"{role}-{restart}-{index}"
        return pod(name, self.job(role), labels=labels, annotations=annotations, **more)

    @property
    def run(self) -> WorkloadRun:
        """Its run."""
        return self.cluster.store.runs[self.uid]

    def look(self, role: str, made: dict[str, Any]) -> None:
        """Let the watcher see a pod."""
        cluster, owners = self.cluster, (self.job(role), self.object)
        cluster.view.clock += 10.0
        run = cluster.store.runs.get(self.uid) or cluster.store.create(self.object, templates_of(owners), (), 0.0)
        PodReconciler(run, cluster.view, cluster.now, admission=admission_of).record(
            [SeenPod(made, owners)], self.object, are_all=False
        )
        run.commit()

    def begin(self, role: str, restart: int, index: int = 0, *, rung: str = "") -> None:
        """Let a pod of a restart run on a node of its pool."""
        node = _NODES[rung or _POOLS[role]]
        self.look(role, self.pod(role, restart, index, rung=rung, node=node, phase="Running"))

    def end(self, role: str, restart: int, index: int = 0, *, exit_code: int = 3, rung: str = "") -> None:
        """Let a pod of a restart end by an error; with the exit code 143 somebody has evicted it."""
        node = _NODES[rung or _POOLS[role]]
        ended = self.pod(role, restart, index, rung=rung, node=node, phase="Failed", exit_code=exit_code)
        if exit_code == 143:
            evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            ended["status"]["conditions"].append(evicted)
            ended["metadata"]["deletionTimestamp"] = at(8)
        self.look(role, ended)

    def wait(self, restart: int, index: int = 0, *, rung: str = "") -> None:
        """Let a worker of a restart wait for a node."""
        waits = self.pod("workers", restart, index, rung=rung)
        waits["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        self.look("workers", waits)
