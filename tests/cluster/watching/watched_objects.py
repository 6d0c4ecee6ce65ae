"""Builders of the objects that the watcher's tests show it."""

from __future__ import annotations

from typing import Any

BEGIN = 1_800_000_000  # Unix seconds of 2027-01-15T08:00:00Z


def at(seconds: float) -> str:
    """A time of the API, so many seconds after the begin."""
    minutes, rest = divmod(int(seconds), 60)
    return f"2027-01-15T08:{minutes:02}:{rest:02}Z"


def job(name: str = "train", *, uid: str = "job-uid", status: Any = None, **spec: Any) -> dict[str, Any]:
    """A Job of one container."""
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
    meta = {"name": name, "namespace": "team-a", "uid": uid, "creationTimestamp": at(0)}
    return {"kind": "Job", "metadata": meta, "spec": {"template": template, **spec}, "status": status or {}}


def done(kind: str = "Complete", reason: str = "") -> dict[str, Any]:
    """The status of a Job that has ended."""
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": ""}]}


def pod(
    name: str,
    owner: dict[str, Any] | None = None,
    *,
    made: float = 1,
    node: str = "",
    phase: str = "Pending",
    exit_code: int | None = None,
    ended: float | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A pod of an owner; with a node it is scheduled a second after it was made."""
    references = [] if owner is None else [
        {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True}
    ]  # fmt: skip
    meta = {
        "name": name,
        "namespace": "team-a",
        "uid": f"uid-{name}",
        "creationTimestamp": at(made),
        "ownerReferences": references,
    }
    status: dict[str, Any] = {"phase": phase}
    if node:
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(made + 1)}
        status["conditions"] = [condition]
        status["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": {"running": {}}}]
    if exit_code is not None:
        finished = at(made + 10 if ended is None else ended)
        terminated = {"exitCode": exit_code, "finishedAt": finished, "reason": "Error" if exit_code else "Completed"}
        status["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": {"terminated": terminated}}]
    spec: dict[str, Any] = {"containers": [{"name": "main"}], **({"nodeName": node} if node else {})}
    return {"kind": "Pod", "metadata": {**meta, **metadata}, "spec": spec, "status": status}


def node(name: str, *, ready: str = "True", **labels: str) -> dict[str, Any]:
    """A node with labels; underscores in their names replace characters that Python does not allow."""
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"kind": "Node", "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "status": status}


SPOT = {"kubernetes.azure.com/agentpool": "gpu-spot", "kubernetes.azure.com/scalesetpriority": "spot"}
"""Labels of a spot node of AKS."""
