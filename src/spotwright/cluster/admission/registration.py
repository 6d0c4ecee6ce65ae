"""The MutatingWebhookConfiguration with which an API server asks the webhook.

Everything fails open: ``failurePolicy: Ignore`` and a timeout of 2 s, in namespaces with the label
``spotwright.dev/enabled=true`` alone. Conditions in CEL keep away what nothing would be done about: foreign pods, and updates
that change no spec, such as those with which Argo's controller writes each step into its Workflow. The versions are those that
are placed; the API server converts others (``matchPolicy: Equivalent``).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.cluster.admission.marks import ADMITTED_ANNOTATION, IGNORE_ANNOTATION
from spotwright.manifests.kinds import NAMESAKES, SERVED
from spotwright.manifests.rules.context import POLICY_ANNOTATION, SPOT_LABEL

__all__ = ["ENABLED_LABEL", "plural_of", "webhook_configuration"]

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
        _webhook("objects", client, [_rule(api_version, kind, "CREATE") for api_version, kind in objects], {}),
        _webhook(
            "updates",
            client,
            [_rule(api_version, kind, "UPDATE") for api_version, kind in (*objects, ("v1", "Pod"))],
            {"was-placed": _WAS_PLACED},
        ),
        _webhook("pods", client, [_rule("v1", "Pod", "CREATE")], {"has-a-policy": _HAS_POLICY}),
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


def _rule(api_version: str, kind: str, operation: str) -> dict[str, Any]:
    group, _, version = api_version.rpartition("/")
    return {
        "apiGroups": [group],
        "apiVersions": list(_VERSIONS.get(kind, [version])),
        "operations": [operation],
        "resources": [_PLURALS[kind]],
        "scope": "Namespaced",
    }
