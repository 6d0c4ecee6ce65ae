"""A node agent on a node of the test bed, beside its metadata server, with no rights but its own."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.control.api import Api
from testbed.settings import Settings
from tests import plain_yaml
from tests.cluster.live.kube import Kube

__all__ = ["node_agent"]

_RBAC = "rbac.authorization.k8s.io"
_META = {"name": "node-agent", "namespace": "default"}
_ROLE: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _META},
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _META,
        "rules": [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}],
    },
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "node-agent"},
        "rules": [{"apiGroups": ["spotwright.dev"], "resources": ["notices"], "verbs": ["create"]}],
    },
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "node-agent"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "node-agent"},
        "subjects": [{"kind": "ServiceAccount", **_META}],
    },
    {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _META,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "node-agent"},
        "subjects": [{"kind": "ServiceAccount", **_META}],
    },
]
"""All that the node agent may do."""


@contextmanager
def node_agent(kube: Kube, bed: Settings, folder: Path, number: int, *, listen: str = "127.0.0.1:0") -> Iterator[Path]:
    """The log of a node agent that runs on a node while the block runs. ``folder`` is made for it.

    Its notices are deleted afterwards: the bed starts the machine again under the same Node object, and they are about that.
    """
    folder.mkdir()
    log, environment = folder / "agent.log", {**os.environ, "KUBERNETES_SERVICE_HOST": "10.89.0.1"}
    environment |= {
        "KUBERNETES_SERVICE_PORT": "6443",
        "SPOTWRIGHT_SERVICE_ACCOUNT": str(_account(kube, folder, f"n{number}")),
    }
    options = ["node-agent", "--provider", bed.cloud, "--listen", listen, "--node", f"n{number}"]
    if bed.cloud == "aks":
        provider = Api(bed).get(f"/api/v1/nodes/n{number}")
        options += ["--provider-id", str((provider or {})["spec"]["providerID"])]
    command = ["ip", "netns", "exec", bed.node_namespace(number), sys.executable, "-m", "spotwright", *options]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)
        kube.run("delete", "events", "-n", "default", "--field-selector", f"involvedObject.name=n{number}")


def _account(kube: Kube, folder: Path, node: str) -> Path:
    """The folder of a service account, as a kubelet mounts it: the token names the node."""
    kube.apply(*_ROLE)
    made = folder / "account"
    made.mkdir()
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    (made / "token").write_text(kube.run("create", "token", "node-agent", "-n", "default", *bound), encoding="ascii")
    cluster = plain_yaml.load(kube.kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    data = cluster.get("certificate-authority-data")
    authority = base64.b64decode(data) if data else Path(cluster["certificate-authority"]).read_bytes()
    (made / "ca.crt").write_bytes(authority)
    return made
