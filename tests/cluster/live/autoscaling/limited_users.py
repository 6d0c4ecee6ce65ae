"""A user of the test bed with the rights of the controller, but without those to read what an autoscaler keeps in kube-system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.settings import Settings
from tests.cluster.live.kube import Kube, Object

from spotwright.cluster import permissions
from spotwright.cluster.permissions import Right

__all__ = ["blind_user"]

_NAME, _BOTH = "blind-controller", permissions.PROCESSES


@contextmanager
def blind_user(kube: Kube, bed: Settings, folder: Path) -> Iterator[Path]:
    """The kubeconfig of this user, for processes beside the API server, while the block runs."""
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _NAME}
    version = "rbac.authorization.k8s.io/v1"
    kube.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _NAME, "namespace": "default"}},
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": _NAME}, "rules": _rules()},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _NAME},
            "roleRef": reference,
            "subjects": [subject],
        },
    )
    config: dict[str, Any] = json.loads(bed.inside_kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": kube.run("create", "token", _NAME, "-n", "default").strip()}
    path = folder / "blind.kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        yield path
    finally:
        kube.run("delete", "clusterrole,clusterrolebinding", _NAME)
        kube.run("delete", "serviceaccount", _NAME, "-n", "default")


def _rules() -> list[Object]:
    """The controller's rights in the whole cluster and at home, in every namespace: the tests' homes have names by chance.

    It makes what the chart makes for a controller in a pod: its registration, and what it writes at home.
    """
    rights = (*permissions.CLUSTER, *permissions.NAMESPACES, *permissions.SERVED, *permissions.HOME)
    made = [
        Right(_BOTH, "", ("configmaps",), ("create",), "made by the chart"),
        Right(_BOTH, "coordination.k8s.io", ("leases",), ("create", "get", "update"), "made by the chart"),
        Right(
            _BOTH,
            "admissionregistration.k8s.io",
            ("mutatingwebhookconfigurations",),
            ("create", "get", "update", "patch", "delete"),
            "made by the chart",
        ),
    ]
    return [right.rule() for right in (*rights, *made)]
