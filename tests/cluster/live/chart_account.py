"""The account of the chart for controllers that run beside the API server, so that each live test shows the rights that it needs.

The rights are those of the chart's cluster-wide form, from the same place as the chart's own. Only the registration is made by
the controller itself there, which whoever starts it so has to be allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.settings import Settings
from tests.cluster.live.kube import Kube

from spotwright.cluster import permissions
from spotwright.cluster.node_events import SUFFIX, policy_spec
from spotwright.cluster.permissions import LEASE, Right, rules

_ACCOUNT = "spotwright"  # as in every release: the tests of used rights look for it
_RBAC = "rbac.authorization.k8s.io"
_REGISTRATION = Right("admissionregistration.k8s.io", ("mutatingwebhookconfigurations",), ("*",), "--webhook-url")


def login_of_the_chart(kube: Kube, bed: Settings, home: str, folder: Path) -> Path:
    """Make the account with its rights in a namespace, and what it may not create. Returns its kubeconfig inside the bed."""
    make_account(kube, home)
    login = json.loads(bed.inside_kubeconfig.read_text(encoding="utf-8"))
    token = kube.run("create", "token", _ACCOUNT, "-n", home, "--duration=8h").strip()
    login["users"][0]["user"] = {"token": token}
    path = folder / "chart.kubeconfig"
    path.write_text(json.dumps(login), encoding="utf-8")
    return path


def make_account(kube: Kube, home: str) -> None:
    """Make the account ``spotwright`` with its rights in a namespace, and what it may not create."""
    kube.apply(*_objects(home))


def _objects(home: str) -> Iterator[dict[str, Any]]:
    yield from node_events_policy(home)
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, "namespace": home}}
    yield {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": home, "namespace": home}}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "spotwright-reading", "namespace": home}}
    whole = (*permissions.CLUSTER, permissions.NAMESPACES, *permissions.SERVED, _REGISTRATION)
    roles = {"": whole, home: permissions.HOME, "default": permissions.DEFAULT, "kube-system": permissions.KUBE_SYSTEM}
    roles["kube-node-lease"] = permissions.NODE_LEASES
    for namespace, rights in roles.items():
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": home, **({"namespace": namespace} if namespace else {})}
        of_this_release = json.loads(json.dumps(rules(rights)).replace(f'"{LEASE}', f'"{home}'))
        yield {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": of_this_release}
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": home},
            "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": home}],
        }


def node_events_policy(name: str) -> Iterator[dict[str, Any]]:
    """The chart's policy on Events about nodes with its binding, for a release of this name."""
    common = {"apiVersion": f"{_REGISTRATION.group}/v1", "metadata": {"name": f"{name}{SUFFIX}"}}
    binding = {"policyName": f"{name}{SUFFIX}", "validationActions": ["Deny"]}
    yield {**common, "kind": "ValidatingAdmissionPolicy", "spec": policy_spec()}
    yield {**common, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}


def remove_policy_of(kube: Kube, name: str) -> None:
    """Take out what :func:`node_events_policy` describes."""
    kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    kube.run("delete", kinds, f"{name}{SUFFIX}", "--wait=false", "--ignore-not-found")


def remove_rights_of(kube: Kube, home: str) -> None:
    """Take out what :func:`login_of_the_chart` has made outside of the namespace."""
    remove_policy_of(kube, home)
    kube.run("delete", "clusterrole,clusterrolebinding", home, "--wait=false", "--ignore-not-found")
    for namespace in ("default", "kube-system", "kube-node-lease"):
        kube.run("delete", "role,rolebinding", home, "-n", namespace, "--wait=false", "--ignore-not-found")
