"""A cluster that shows the pods and nodes of a run on KFP."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.kubeflow.flows import BEGIN

from spotwright.cluster.api_client import ApiFailed

PODS = "/api/v1/namespaces/team-a/pods"
SPOT = {"kubernetes.azure.com/scalesetpriority": "spot", "kubernetes.azure.com/agentpool": "spot"}
TRAINING = "digits-abcde(0).root(0).train(0).executor(0)"


def moment(seconds: float) -> str:
    """A time of the API, so many seconds after the begin."""
    return datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Cluster:
    """The API of a cluster: its objects by path, and paths that it refuses."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.refused: set[str] = set()
        self.queries: list[Mapping[str, str]] = []

    def read(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        self.queries.append(params)
        if path in self.refused:
            raise ApiFailed("pods is forbidden", 403)
        if path not in self.objects:
            raise ApiFailed("not found", 404)
        return dict(self.objects[path])

    def has_pods(self, *pods: dict[str, Any]) -> None:
        self.objects[PODS] = {"items": list(pods)}

    def has_node(self, name: str, *, ready: str = "True", labels: Mapping[str, str] = SPOT) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        self.objects[f"/api/v1/nodes/{name}"] = {"metadata": {"name": name, "labels": dict(labels)}, "status": status}


def a_pod(node_name: str, host: str = "n1", phase: str = "Running", **status: Any) -> dict[str, Any]:
    meta = {"name": "p", "uid": f"uid-{node_name}", "annotations": {"workflows.argoproj.io/node-name": node_name}}
    containers = [{"name": "main", "state": {"running": {"startedAt": "2026-09-21T14:13:21Z"}}}]
    return {
        "metadata": meta,
        "spec": {"nodeName": host, "containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }
