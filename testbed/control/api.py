"""A small client of the cluster's API server for the test bed itself: kubectl, and plain GETs by path.

It uses the listener on 127.0.0.1 like any client on this machine. Spotwright has another client.
"""

from __future__ import annotations

import base64
import functools
import json
import ssl
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any

from testbed.building.builds import Cache
from testbed.machine.processes import run
from testbed.settings import Settings

__all__ = ["Api", "has_condition"]

_TIMEOUT = 5.0  # seconds


class Api:
    """Asks the API server of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.kubectl_path = Cache(settings.cache).component("kubectl")

    def get(self, path: str) -> Any:
        """The object at a path of the API, or None."""
        try:
            return json.loads(self._read(path))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def ready(self) -> bool:
        """Whether the API server answers that it is ready."""
        try:
            return self._read("/readyz") == b"ok"
        except OSError:  # URLError and HTTPError too
            return False

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The Node objects by name."""
        return {item["metadata"]["name"]: item for item in self.get("/api/v1/nodes")["items"]}

    def ready_nodes(self) -> set[str]:
        """The names of the nodes that are Ready."""
        return {name for name, node in self.nodes().items() if has_condition(node, "Ready")}

    def heartbeat(self, node: str) -> float:
        """When a node's kubelet last renewed its lease, in Unix time; 0 if never."""
        lease = self.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
        return datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp() if lease else 0.0

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl with ``text`` as its input, and return its output."""
        kubeconfig = ["--kubeconfig", str(self._settings.kubeconfig)]
        return run([self.kubectl_path, *kubeconfig, *arguments], text=text)

    def apply(self, objects: list[dict[str, Any]]) -> None:
        """Create or change objects, on the server's side."""
        document = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(document, default=str))

    def create(self, objects: list[dict[str, Any]]) -> None:
        """Create objects with their status, as their own controllers do."""
        document = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("create", "-f", "-", text=json.dumps(document))

    def _read(self, path: str) -> bytes:
        server, token, context = _access(self._settings.kubeconfig.read_text())
        request = urllib.request.Request(f"{server}{path}", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=_TIMEOUT, context=context) as response:  # noqa: S310  # https alone
            content: bytes = response.read()
            return content


@functools.lru_cache(maxsize=4)
def _access(kubeconfig: str) -> tuple[str, str, ssl.SSLContext]:
    document = json.loads(kubeconfig)
    cluster = document["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    return cluster["server"], document["users"][0]["user"]["token"], ssl.create_default_context(cadata=authority)


def has_condition(item: dict[str, Any], kind: str) -> bool:
    """Whether an object's condition is True."""
    conditions = item.get("status", {}).get("conditions") or []
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)
