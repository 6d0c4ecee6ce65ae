"""What the controller may do in a cluster, as objects to apply: ``spotwright controller --print-rbac`` prints them.

The rights are those that the code uses, and a test holds the paths that a controller asked for against them. Pods are read;
those that wait in vain are evicted, and those of machines that are gone are deleted. Everything else but its own Lease, its
registration and Events is read as well, ConfigMaps by their name alone, and Secrets not at all.
"""

from __future__ import annotations

from typing import Any

from spotwright.cluster.admission.configurations import CONFIG_MAP
from spotwright.cluster.admission.registration import plural_of
from spotwright.cluster.reading.find_controller import CONFIG_MAP as READING
from spotwright.cluster.workloads.owners import RUN_KINDS
from spotwright.manifests.kinds import SERVED

__all__ = ["permissions"]

_FOLLOW = ["list", "watch"]
_READ = ["get", *_FOLLOW]
_REGISTRATIONS = "mutatingwebhookconfigurations"


def permissions(namespace: str, account: str, name: str) -> list[dict[str, Any]]:
    """A service account with its roles. ``name`` is that of the registration and of the Lease."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    bound = {"apiGroup": "rbac.authorization.k8s.io", "name": account}
    rbac = "rbac.authorization.k8s.io/v1"
    here = {"name": account, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": account}, "rules": _everywhere(name)},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": {**bound, "kind": "ClusterRole"},
            "subjects": [subject],
        },
        {"apiVersion": rbac, "kind": "Role", "metadata": here, "rules": _at_home(name)},
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": here,
            "roleRef": {**bound, "kind": "Role"},
            "subjects": [subject],
        },
        {  # the authority of client certificates, which the API server publishes
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": {"name": account, "namespace": "kube-system"},
            "roleRef": {**bound, "kind": "Role", "name": "extension-apiserver-authentication-reader"},
            "subjects": [dict(subject)],
        },
    ]


def _everywhere(name: str) -> list[dict[str, Any]]:
    """The rules in all namespaces: reading what is placed and watched, Events, who reads, and the one registration."""
    return [
        _rule("", ["namespaces", "nodes", "events"], _FOLLOW),
        _rule("", ["pods"], _READ),
        _rule("", ["pods/log"], ["get"]),
        _rule("", ["events"], ["create"]),
        _rule("", ["pods/eviction"], ["create"]),
        _rule("", ["pods"], ["delete"]),
        _rule("", ["configmaps"], _FOLLOW, [CONFIG_MAP]),  # asked for by this name alone
        *_kinds(),
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
        _rule("admissionregistration.k8s.io", [_REGISTRATIONS], ["create"]),
        _rule("admissionregistration.k8s.io", [_REGISTRATIONS], ["get", "update", "delete"], [name]),
    ]


def _kinds() -> list[dict[str, Any]]:
    """Reading the kinds that are placed: runs are watched, and the others are read where an object refers to them."""
    groups: dict[str, list[str]] = {}
    for kind, version in (*SERVED.items(), ("Trial", SERVED["Experiment"])):
        if kind != "Pod":
            groups.setdefault(version.rpartition("/")[0], []).append(kind)
    rules = []
    for group, kinds in groups.items():
        watched = [plural_of(kind) for kind in kinds if kind in RUN_KINDS]
        others = [plural_of(kind) for kind in kinds if kind not in RUN_KINDS]
        rules += [_rule(group, watched, _READ)] if watched else []
        rules += [_rule(group, others, ["get"])] if others else []
    return rules


def _at_home(name: str) -> list[dict[str, Any]]:
    """The rules in the controller's own namespace: its Lease, and the authority that it publishes."""
    return [
        _rule("", ["configmaps"], ["create"]),
        _rule("", ["configmaps"], ["get", "update"], [READING]),
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "update"], [name]),
    ]


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return rule if names is None else {**rule, "resourceNames": names}
