"""Ways in which a pod ends: what its controller sees of each, and what the API shows of the pod and of its node.

The states are those that Kubernetes 1.35 writes, as recorded in ``tests/cluster/recordings`` and in
``tests/cluster/test_restarted_nodes.py``; the messages are those that Argo 3.7.3 makes of them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.cluster.budgets.controller_models import Ended
from tests.cluster.watching.watched_objects import BEGIN

__all__ = ["DONE", "ENDS", "ERRORS", "LOSSES", "MOVES", "PEER_LOST", "PodEnd", "at"]

Object = dict[str, Any]


class PodEnd(NamedTuple):
    """A way in which a pod ends.

    ``code``: the exit code of its container; None: no container reported an end. ``reason``: that of the container. ``mark``: the
    reason of its condition DisruptionTarget. ``pod_reason``: that of the pod. ``node``: what becomes of its node: ``lives``,
    ``gone`` (the Node object is deleted) or ``restarted``. ``argo``: the phase and the message that Argo gives to its step.
    """

    name: str
    code: int | None
    reason: str = "Error"
    mark: str = ""
    pod_reason: str = ""
    node: str = "lives"
    argo: tuple[str, str] = ("Failed", "")

    def seen_by(self, kind: str) -> Ended:
        """The ending as the controller of a kind sees it."""
        whole = bool(self.mark or self.pod_reason)
        if kind == "workflow":
            phase, message = self.argo
            return Ended(self.code, bool(self.mark), message, phase, whole)
        return Ended(self.code, bool(self.mark), is_whole=whole)

    def pod(self, running: Mapping[str, Any], seconds: float) -> Object:
        """The pod as the API shows it after it has ended so, ``seconds`` after the begin."""
        pod: Object = copy.deepcopy(dict(running))
        status, (container,) = pod["status"], pod["status"]["containerStatuses"]
        status["phase"] = "Succeeded" if self.code == 0 else "Failed"
        if self.pod_reason:
            status["reason"] = self.pod_reason
        if self.code is not None:
            container["state"] = {"terminated": self.terminated(seconds)}
        for kind in ("PodReadyToStartContainers", "Ready", "ContainersReady"):
            told = at(seconds + (2 if self.node == "restarted" else 0))
            status["conditions"].append({"type": kind, "status": "False", "lastTransitionTime": told})
        if self.mark:
            told = at(seconds - 1)
            mark = {"type": "DisruptionTarget", "status": "True", "reason": self.mark, "lastTransitionTime": told}
            status["conditions"].append(mark)
            if self.pod_reason == "":  # the kubelet leaves those that it ends itself
                pod["metadata"] |= {"deletionTimestamp": at(seconds + 29), "deletionGracePeriodSeconds": 30}
        return pod

    def terminated(self, seconds: float) -> Object:
        """The state of its container."""
        reason = "Completed" if self.code == 0 else self.reason
        return {
            "exitCode": self.code,
            "reason": reason,
            "startedAt": at(seconds - 10),
            "finishedAt": at(seconds),
        }


def at(seconds: float) -> str:
    """A time of the API, so many seconds after the begin."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(BEGIN + int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


DONE = PodEnd("done", 0, argo=("Succeeded", ""))
PEER_LOST = PodEnd("its peer is silent", 1)

_GONE = ("Error", "pod deleted")
LOSSES = [
    PodEnd("power cut", None, mark="DeletionByPodGC", node="gone", argo=_GONE),
    PodEnd("Node object deleted", 143, mark="DeletionByPodGC", node="gone"),
    PodEnd("reboot", 255, "Unknown", node="restarted", argo=("Failed", "main: Unknown (exit code 255)")),
    PodEnd("drain, node gone", 143, mark="EvictionByEvictionAPI", node="gone"),
    PodEnd(
        "shutdown",
        143,
        mark="TerminationByKubelet",
        pod_reason="Terminated",
        argo=("Failed", "Pod was terminated in response to imminent node shutdown."),
    ),
]
"""Interruptions on spot."""

MOVES = [
    PodEnd("drain", 143, mark="EvictionByEvictionAPI"),
    PodEnd("drain, seen as deleted", 143, mark="EvictionByEvictionAPI", argo=_GONE),
    PodEnd("drain, ends with 1", 1, mark="EvictionByEvictionAPI"),
    PodEnd("killed after its grace period", 137, mark="EvictionByEvictionAPI"),
    PodEnd("preemption", 143, mark="PreemptionByScheduler"),
    PodEnd(
        "node short of memory",
        137,
        mark="TerminationByKubelet",
        pod_reason="Evicted",
        argo=("Failed", "The node was low on resource: memory."),
    ),
]
"""Disruptions: the node lives."""

ERRORS = [
    PodEnd("error 1", 1),
    PodEnd("error 3", 3),
    PodEnd("error 42", 42),
    PodEnd("its own 255", 255),
    PodEnd("its own 143", 143),
    PodEnd("killed", 137),
    PodEnd("out of memory", 137, "OOMKilled", argo=("Failed", "main: OOMKilled (exit code 137)")),
    PodEnd(
        "deadline of the pod", 143, pod_reason="DeadlineExceeded", argo=("Failed", "Pod was active on the node longer")
    ),
]
"""Errors of the work, which another try mends."""

ENDS = [*LOSSES, *MOVES, *ERRORS]
