"""What the controller needs in a cluster: the webhook's registration, which it writes and takes out, and the rights to print.

Everything fails open: ``failurePolicy: Ignore`` and a timeout of 2 s, in namespaces with the label
``spotwright.dev/enabled=true`` alone. Conditions in CEL keep away what nothing would be done about: foreign pods, and updates
that change no spec, such as those with which Argo's controller writes each step into its Workflow. The versions are those that
are placed; the API server converts others (``matchPolicy: Equivalent``).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS
from spotwright.cluster.admit_objects import ADMITTED_ANNOTATION, IGNORE_ANNOTATION
from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.configurations import CONFIG_MAP
from spotwright.cluster.run_api_client import CONFIG_MAP as READING
from spotwright.cluster.workloads import RUN_KINDS
from spotwright.kinds.kind import NAMESAKES, SERVED
from spotwright.placing.context import POLICY_ANNOTATION, SPOT_LABEL
from spotwright.pools.autoscaler_config_maps import NAMESPACE as KUBE_SYSTEM

__all__ = ["ENABLED_LABEL", "Registration", "permissions", "plural_of", "webhook_configuration"]


ENABLED_LABEL = "spotwright.dev/enabled"
"""The label, with the value ``true``, of namespaces whose workloads are placed."""

_PLURALS: Mapping[str, str] = {
    kind: f"{kind.lower()}s" for kind in (*SERVED, "Deployment") if not kind.startswith("Cluster")
}
_VERSIONS: Mapping[str, Sequence[str]] = {
    "MPIJob": ("v1", "v2beta1"),
    "RayCluster": ("v1", "v1alpha1"),
    **dict.fromkeys(("Pipeline", "PipelineRun", "TaskRun"), ("v1", "v1beta1")),
}
"""The versions of kinds that a cluster may serve in one version or the other; of the rest, the one that is placed."""

_NOT_IGNORED = (
    f"!has(object.metadata.annotations) || !('{IGNORE_ANNOTATION}' in object.metadata.annotations) || "
    f"object.metadata.annotations['{IGNORE_ANNOTATION}'] != 'true'"
)
_HAS_POLICY = (
    f"(has(object.metadata.annotations) && '{POLICY_ANNOTATION}' in object.metadata.annotations) || "
    f"(has(object.metadata.labels) && '{SPOT_LABEL}' in object.metadata.labels)"
)
_WAS_PLACED = (
    f"has(oldObject.metadata.annotations) && '{ADMITTED_ANNOTATION}' in oldObject.metadata.annotations && "
    "object.spec != oldObject.spec"
)


def plural_of(kind: str) -> str:
    """The plural of a kind that is placed, as it stands in paths of the API; cluster-wide kinds too."""
    return f"{kind.lower()}s"


def webhook_configuration(name: str, where: tuple[str, str] | str, certificate_authority: bytes) -> dict[str, Any]:
    """The configuration as an object.

    ``where`` is the namespace and name of the webhook's Service, on port 443, or an ``https`` address that the API server
    reaches. ``certificate_authority`` is the PEM text with which the API server checks the server's certificate.
    """
    client: dict[str, Any] = {"caBundle": base64.b64encode(certificate_authority).decode()}
    if isinstance(where, str):
        client["url"] = f"{where.rstrip('/')}/mutate"
    else:
        client["service"] = {"namespace": where[0], "name": where[1], "path": "/mutate", "port": 443}
    api_versions = {**SERVED, "Deployment": "apps/v1"}
    objects = [(api_versions[kind], kind) for kind in api_versions if kind in _PLURALS and kind != "Pod"]
    objects += [(api_version, kind) for (_, kind), api_version in NAMESAKES.items()]
    webhooks = [
        _webhook("objects", client, [_webhook_rule(api_version, kind, "CREATE") for api_version, kind in objects], {}),
        _webhook(
            "updates",
            client,
            [_webhook_rule(api_version, kind, "UPDATE") for api_version, kind in (*objects, ("v1", "Pod"))],
            {"was-placed": _WAS_PLACED},
        ),
        _webhook("pods", client, [_webhook_rule("v1", "Pod", "CREATE")], {"has-a-policy": _HAS_POLICY}),
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": webhooks,
    }


def _webhook(
    name: str, client: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], conditions: Mapping[str, str]
) -> dict[str, Any]:
    expressions = {"not-ignored": _NOT_IGNORED, **conditions}
    return {
        "name": f"{name}.spotwright.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": dict(client),
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 2,
        "namespaceSelector": {"matchLabels": {ENABLED_LABEL: "true"}},
        "rules": list(rules),
        "matchConditions": [{"name": key, "expression": text} for key, text in expressions.items()],
    }


def _webhook_rule(api_version: str, kind: str, operation: str) -> dict[str, Any]:
    group, _, version = api_version.rpartition("/")
    return {
        "apiGroups": [group],
        "apiVersions": list(_VERSIONS.get(kind, [version])),
        "operations": [operation],
        "resources": [_PLURALS[kind]],
        "scope": "Namespaced",
    }


_LOG = logging.getLogger(__name__)
_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_TRIES = 5  # replicas may write at once


class Registration:
    """The registration named ``name``. ``where`` is the namespace and name of a Service, or an ``https`` address."""

    def __init__(self, api: Api, name: str, where: tuple[str, str] | str) -> None:
        self._api, self._name, self._where = api, name, where
        self._written = b""

    async def put(self, authority: bytes) -> None:
        """Write it with this certificate authority, unless this process has done so already. Raises :class:`ApiFailed`."""
        if authority == self._written:
            return
        wanted = webhook_configuration(self._name, self._where, authority)
        for attempt in range(1, _TRIES + 1):
            try:
                await self._put_once(wanted)
                break
            except ApiFailed as error:
                if error.status != 409 or attempt == _TRIES:
                    raise
        self._written = authority
        _LOG.info("the webhook is registered as %s", self._name)

    async def _put_once(self, wanted: dict[str, Any]) -> None:
        found = await self._api.get_or_none(f"{_PATH}/{self._name}")
        if found is None:
            await self._api.send("POST", _PATH, wanted)
            return
        await self._api.send("PUT", f"{_PATH}/{self._name}", {**found, "webhooks": wanted["webhooks"]})

    async def remove(self) -> bool:
        """Take it out; false if it was not there. Raises :class:`ApiFailed`."""
        try:
            await self._api.send("DELETE", f"{_PATH}/{self._name}")
        except ApiFailed as error:
            if error.status == 404:
                return False
            raise
        return True


_FOLLOW = ["list", "watch"]
_READ = ["get", *_FOLLOW]
_REGISTRATIONS = "mutatingwebhookconfigurations"


def permissions(namespace: str, account: str, name: str) -> list[dict[str, Any]]:
    """A service account with its roles. ``name`` is that of the registration and of the Lease."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    bound = {"apiGroup": "rbac.authorization.k8s.io", "name": account}
    rbac = "rbac.authorization.k8s.io/v1"
    here, autoscalers = {"name": account, "namespace": namespace}, f"{account}-autoscalers"
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
        {
            "apiVersion": rbac,
            "kind": "Role",
            "metadata": {"name": autoscalers, "namespace": KUBE_SYSTEM},
            "rules": [_policy_rule("", ["configmaps"], _READ, [STATUS, PRIORITIES])],
        },
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": {"name": autoscalers, "namespace": KUBE_SYSTEM},
            "roleRef": {**bound, "kind": "Role", "name": autoscalers},
            "subjects": [dict(subject)],
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
        _policy_rule("", ["namespaces", "nodes", "events"], _FOLLOW),
        _policy_rule("", ["pods"], _READ),
        _policy_rule("", ["pods/log"], ["get"]),
        _policy_rule("", ["events"], ["create"]),
        _policy_rule("", ["pods/eviction"], ["create"]),
        _policy_rule("", ["pods"], ["delete"]),
        _policy_rule("", ["configmaps"], _FOLLOW, [CONFIG_MAP]),  # asked for by this name alone
        *_kinds(),
        _policy_rule("karpenter.sh", ["nodeclaims", "nodepools"], _FOLLOW),
        _policy_rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _policy_rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
        _policy_rule("admissionregistration.k8s.io", [_REGISTRATIONS], ["create"]),
        _policy_rule("admissionregistration.k8s.io", [_REGISTRATIONS], ["get", "update", "delete"], [name]),
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
        rules += [_policy_rule(group, watched, _READ)] if watched else []
        rules += [_policy_rule(group, others, ["get"])] if others else []
    return rules


def _at_home(name: str) -> list[dict[str, Any]]:
    """The rules in the controller's own namespace: its Lease, and the authority that it publishes."""
    return [
        _policy_rule("", ["configmaps"], ["create"]),
        _policy_rule("", ["configmaps"], ["get", "update"], [READING]),
        _policy_rule("coordination.k8s.io", ["leases"], ["create"]),
        _policy_rule("coordination.k8s.io", ["leases"], ["get", "update"], [name]),
    ]


def _policy_rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return rule if names is None else {**rule, "resourceNames": names}
