"""The accounts of the chart for controllers that run beside the API server, so that live tests show which rights they need.

The rights are those of the chart's cluster-wide form, from the same place as the chart's own. Only the registration is made by
the controller itself there, which whoever starts it so has to be allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.settings import Settings
from tests.cluster.live.kube import Kube

from spotwright.cluster import permissions
from spotwright.cluster.node_events import SUFFIX, policy_spec
from spotwright.cluster.permissions import LEASE, PROCESSES, Right, account, rules

_RBAC = "rbac.authorization.k8s.io"
_REGISTRATION = Right(
    ("webhook",), "admissionregistration.k8s.io", ("mutatingwebhookconfigurations",), ("*",), "--webhook-url"
)


def logins_of_the_chart(kube: Kube, bed: Settings, home: str, folder: Path) -> Mapping[str, Path]:
    """Create the accounts with their rights in a namespace, and the objects that they may not create.

    Returns the kubeconfig inside the bed of each process.
    """
    make_accounts(kube, home)
    login = json.loads(bed.inside_kubeconfig.read_text(encoding="utf-8"))
    paths = {process: folder / f"{process}.kubeconfig" for process in PROCESSES}
    for process, path in paths.items():
        token = kube.run("create", "token", account(process), "-n", home, "--duration=8h").strip()
        login["users"][0]["user"] = {"token": token}
        path.write_text(json.dumps(login), encoding="utf-8")
    return paths


def make_accounts(kube: Kube, home: str) -> None:
    """Create the accounts with their rights in a namespace, and the objects that they may not create."""
    kube.apply(*_objects(home))


def _objects(home: str) -> Iterator[dict[str, Any]]:
    yield from node_events_policy(home)
    yield {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": home, "namespace": home}}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "spotwright-reading", "namespace": home}}
    whole = (*permissions.CLUSTER, *permissions.NAMESPACES, *permissions.SERVED, _REGISTRATION)
    roles = {"": whole, home: permissions.HOME, "default": permissions.DEFAULT, "kube-system": permissions.KUBE_SYSTEM}
    roles["kube-node-lease"] = permissions.NODE_LEASES
    for process in PROCESSES:
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account(process), "namespace": home}}
        for namespace, rights in roles.items():
            yield from _role(home, process, namespace, rules(rights, process))


def _role(home: str, process: str, namespace: str, rules: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    kind, name = "Role" if namespace else "ClusterRole", f"{home}-{process}"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    of_this_release = json.loads(json.dumps(rules).replace(f'"{LEASE}', f'"{home}'))
    yield {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": of_this_release}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account(process), "namespace": home}],
    }


def node_events_policy(name: str) -> Iterator[dict[str, Any]]:
    """The chart's policy on Events about nodes with its binding, for a release of this name."""
    common = {"apiVersion": f"{_REGISTRATION.group}/v1", "metadata": {"name": f"{name}{SUFFIX}"}}
    binding = {"policyName": f"{name}{SUFFIX}", "validationActions": ["Deny"]}
    yield {**common, "kind": "ValidatingAdmissionPolicy", "spec": policy_spec()}
    yield {**common, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}


def remove_policy_of(kube: Kube, name: str) -> None:
    """Remove the objects of :func:`node_events_policy`."""
    kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    kube.run("delete", kinds, f"{name}{SUFFIX}", "--wait=false", "--ignore-not-found")


def remove_rights_of(kube: Kube, home: str) -> None:
    """Remove the objects that :func:`logins_of_the_chart` made outside of the namespace."""
    remove_policy_of(kube, home)
    names = [f"{home}-{process}" for process in PROCESSES]
    kube.run("delete", "clusterrole,clusterrolebinding", *names, "--wait=false", "--ignore-not-found")
    for namespace in ("default", "kube-system", "kube-node-lease"):
        kube.run("delete", "role,rolebinding", *names, "-n", namespace, "--wait=false", "--ignore-not-found")
