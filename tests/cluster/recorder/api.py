"""Talks to the API server of a test cluster over HTTPS with the standard library: requests, and a list with its watch.

The recorder must see what the server sends, unchanged and in its order, so no client library stands between.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

__all__ = ["PATHS", "Api", "ApiError", "collection"]

PATHS: Mapping[str, str] = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/api/v1/namespaces/{}/events",
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs",
    "TrainingRuntime": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainingruntimes",
    "Workflow": "/apis/argoproj.io/v1alpha1/namespaces/{}/workflows",
}
_WATCH_SECONDS = 900


class ApiError(Exception):
    """The server refused a request; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def collection(kind: str, namespace: str) -> str:
    """The path of all objects of a kind."""
    return PATHS[kind].format(namespace)


class Api:
    """The API server that a kubeconfig with a token names."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self._server = urlsplit(cluster["server"])
        self._token = config["users"][0]["user"]["token"]
        self._context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode("ascii")
        )

    def request(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        """The answer as JSON; raises :class:`ApiError` where the server refuses."""
        answer = self._send(method, path, body, content, timeout=30)
        text = answer.read().decode("utf-8")
        if answer.status >= 300:
            raise ApiError(answer.status, text[:500])
        return json.loads(text) if text else None

    def create(self, item: Mapping[str, Any], namespace: str) -> Any:
        """Create an object in the namespace."""
        return self.request("POST", collection(item["kind"], namespace), item)

    def patch(self, path: str, change: Mapping[str, Any]) -> Any:
        """Merge a change into an object."""
        return self.request("PATCH", path, change, "application/merge-patch+json")

    def list_and_watch(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every object that exists as ``ADDED``, then each change, until the watch ends; bookmarks and errors end it too."""
        listed = self.request("GET", path)
        kind = listed["kind"].removesuffix("List")
        for item in listed["items"]:
            yield "ADDED", {"kind": kind, **item}
        version = listed["metadata"]["resourceVersion"]
        query = f"?watch=1&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
        stream = self._send("GET", path + query, None, "application/json", timeout=_WATCH_SECONDS)
        while line := stream.readline():
            change = json.loads(line)
            if change["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                return
            yield change["type"], change["object"]

    def _send(self, method: str, path: str, body: Any, content: str, timeout: float) -> HTTPResponse:
        connection = HTTPSConnection(
            str(self._server.hostname), self._server.port, timeout=timeout, context=self._context
        )
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content, "Connection": "close"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection.getresponse()
