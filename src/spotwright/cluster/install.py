"""The webhook's registration.

The registration is an object of the chart, into which the controller writes only its authority. With ``--webhook-url`` the
controller creates and removes it itself.

Everything fails open: ``failurePolicy: Ignore`` and a timeout of 10 s, in the listed namespaces, or in namespaces labelled
``spotwright.dev/enabled=true``. CEL conditions exclude reviews that would change nothing: pods without a policy that do not
belong to a run (a Deployment's, for example), and updates without a spec change, such as Argo's status updates of its
Workflows. The versions are the placed ones; the API server converts others (``matchPolicy: Equivalent``).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from spotwright.cluster.admit_objects import ADMITTED_ANNOTATION, IGNORE_ANNOTATION
from spotwright.cluster.admit_unplaced import OWNER_KINDS
from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.certificates import are_same, united
from spotwright.cluster.controller_settings import WebhookSettings
from spotwright.cluster.watched import ENABLED_LABEL
from spotwright.kinds.kind import Kind, all_kinds, kind_of
from spotwright.kube.object_fields import metadata
from spotwright.manifests.record import AT, TRIAL
from spotwright.placing.context import POLICY_ANNOTATION, SPOT_LABEL
from spotwright.placing.documents import Path

__all__ = ["NAME_LABEL", "Obstacle", "Registration", "obstacle", "webhook_configuration"]


NAME_LABEL = "kubernetes.io/metadata.name"
"""The label with a namespace's name, set by the API server: it cannot be removed or forged.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/namespaces/#automatic-labelling.
"""

_NOT_IGNORED = (
    f"!has(object.metadata.annotations) || !('{IGNORE_ANNOTATION}' in object.metadata.annotations) || "
    f"object.metadata.annotations['{IGNORE_ANNOTATION}'] != 'true'"
)
_HAS_POLICY = (
    f"(has(object.metadata.annotations) && '{POLICY_ANNOTATION}' in object.metadata.annotations) || "
    f"(has(object.metadata.labels) && '{SPOT_LABEL}' in object.metadata.labels)"
)
_OWNERS = ", ".join(f"'{kind}.{group}'" for group, kind in sorted(OWNER_KINDS))
_OF_A_RUN = (
    "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(owner, has(owner.controller) && "
    "owner.controller && owner.kind + '.' + owner.apiVersion.split('/')[0] in "
    f"[{_OWNERS}])"
)
"""A run's pod, which may have been created while the webhook was down. Other pods without a policy are not reviewed."""


def _is_marked(at: Path) -> str:
    """Whether the old object has our annotation at a path, in CEL: `has` checks only the last step."""
    steps = [".".join(("oldObject", *map(str, at[: depth + 1]))) for depth in range(len(at))]
    return " && ".join([*(f"has({step})" for step in steps), f"'{ADMITTED_ANNOTATION}' in {steps[-1]}"])


_WAS_PLACED = f"(({_is_marked(AT[:-1])}) || ({_is_marked((*TRIAL, *AT[:-1]))})) && object.spec != oldObject.spec"


def webhook_configuration(
    name: str, where: tuple[str, str] | str, certificate_authority: bytes, namespaces: Sequence[str] = ()
) -> dict[str, Any]:
    """The configuration as an object.

    ``where`` is the namespace and name of the webhook's Service, on port 443, or an ``https`` address for the API server.
    ``certificate_authority`` is the PEM text with which the API server checks the server's certificate; empty: it is written
    later. ``namespaces`` are the served ones; empty: all with the label :data:`ENABLED_LABEL`.
    """
    client: dict[str, Any] = (
        {"caBundle": base64.b64encode(certificate_authority).decode()} if certificate_authority else {}
    )
    if isinstance(where, str):
        client["url"] = f"{where.rstrip('/')}/mutate"
    else:
        client["service"] = {"namespace": where[0], "name": where[1], "path": "/mutate", "port": 443}
    objects = [kind for kind in all_kinds().values() if kind.is_admitted and kind.group]
    pod = kind_of("v1", "Pod")
    selector = _selector(namespaces)
    webhooks = [
        _webhook("objects", client, [_webhook_rule(kind, "CREATE") for kind in objects], {}),
        _webhook(
            "updates",
            client,
            [_webhook_rule(kind, "UPDATE") for kind in (*objects, pod)],
            {"was-placed": _WAS_PLACED},
        ),
        _webhook(
            "pods",
            client,
            [_webhook_rule(pod, "CREATE")],
            {"has-a-policy-or-a-run": f"{_HAS_POLICY} || ({_OF_A_RUN})"},
        ),
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{**webhook, "namespaceSelector": selector} for webhook in webhooks],
    }


def _selector(namespaces: Sequence[str]) -> dict[str, Any]:
    """The namespaces for which the API server calls the webhook."""
    if not namespaces:
        return {"matchLabels": {ENABLED_LABEL: "true"}}
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": sorted(namespaces)}]}


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
        "timeoutSeconds": 10,  # Kubernetes' default; with 2, half of a burst of pods on two busy cores stayed unplaced
        "rules": list(rules),
        "matchConditions": [{"name": key, "expression": text} for key, text in expressions.items()],
    }


def _webhook_rule(kind: Kind, operation: str) -> dict[str, Any]:
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version, *kind.more_versions],
        "operations": [operation],
        "resources": [kind.plural],
        "scope": "Namespaced",
    }


_LOG = logging.getLogger(__name__)
_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_TRIES = 5  # replicas may write at once
_CONFLICTS = (409, 422)  # the object has changed, or the webhook at this index has another name
_AGAIN = 5.0  # seconds until the chart's object is looked up again
_EVERY = 60.0  # seconds between checks of the authority


class Registration:
    """The registration named ``name``. ``where`` is the namespace and name of a Service, or an ``https`` address.

    With a Service, the chart created the object, and only the CA is written into it. With an address, this process creates all
    of it, for ``namespaces``. Unless it ``writes``, another process does, and this one leaves it alone. If ``unites``, it joins
    its CA with the other replicas' CAs.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        where: tuple[str, str] | str,
        *,
        namespaces: Sequence[str] = (),
        writes: bool = True,
        unites: bool = False,
    ) -> None:
        self._api, self._name, self._where, self._namespaces = api, name, where, namespaces
        self._writes, self._unites = writes, unites
        self._written = b""

    @classmethod
    def of(cls, settings: WebhookSettings, api: Api) -> Registration:
        """The registration of a process; if it signs its own certificate, it unites its authority with the other replicas'."""
        return cls(
            api,
            settings.name,
            settings.where,
            namespaces=settings.namespaces,
            writes=settings.registers,
            unites=settings.files is None,
        )

    async def put(self, authority: bytes) -> None:
        """Write this certificate authority, unless already written by this process; waits for the chart's object.

        Raises :class:`ApiFailed`.
        """
        if authority == self._written or not self._writes:
            return
        is_missing = False
        while not await self._written_once(authority):
            if not is_missing:
                _LOG.error(
                    "pods are not reviewed: the chart's MutatingWebhookConfiguration %s is missing; helm upgrade creates it"
                    " again (see docs/how-to/cluster/install.md)",
                    self._name,
                )
            is_missing = True
            await asyncio.sleep(_AGAIN)
        self._written = authority
        _LOG.info("the webhook is registered as %s", self._name)

    async def follow(self) -> None:
        """Rewrite the authority wherever it was removed, until cancelled. Failures are logged."""
        while True:
            await asyncio.sleep(_EVERY)
            if not self._written or not self._writes:
                continue
            try:
                is_there = await self._written_once(self._written)
            except ApiFailed as error:
                _LOG.warning("%s", error)
            else:
                if not is_there:
                    _LOG.error(
                        "the MutatingWebhookConfiguration %s is gone: API servers do not ask for reviews", self._name
                    )

    async def _written_once(self, authority: bytes) -> bool:
        """Whether the object has the authority now. False: the chart's object does not exist. Raises :class:`ApiFailed`."""
        for attempt in range(1, _TRIES + 1):
            try:
                return await (self._put_whole(authority) if isinstance(self._where, str) else self._patch(authority))
            except ApiFailed as error:
                if error.status not in _CONFLICTS or attempt == _TRIES:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _patch(self, authority: bytes) -> bool:
        """Write only the authority, into each webhook of the chart's object that has another one."""
        found = await self._api.get_or_none(f"{_PATH}/{self._name}")
        if found is None:
            return False
        changes: list[dict[str, Any]] = []
        for number, webhook in enumerate(found.get("webhooks") or ()):
            known = _bundle_of(webhook)
            wanted = united(authority, known, datetime.now(UTC)) if self._unites else authority
            if not (are_same(wanted, known) if self._unites else wanted == known):
                place, bundle = f"/webhooks/{number}", base64.b64encode(wanted).decode()
                changes.append({"op": "test", "path": f"{place}/name", "value": webhook.get("name")})
                changes.append({"op": "add", "path": f"{place}/clientConfig/caBundle", "value": bundle})
        if changes and self._unites:  # another replica may add its own concurrently
            version = metadata(found).get("resourceVersion")
            changes.insert(0, {"op": "test", "path": "/metadata/resourceVersion", "value": version})
        if changes:
            await self._api.send("PATCH", f"{_PATH}/{self._name}", changes)
        return True

    async def _put_whole(self, authority: bytes) -> bool:
        wanted = webhook_configuration(self._name, self._where, authority, self._namespaces)
        found = await self._api.get_or_none(f"{_PATH}/{self._name}")
        if found is None:
            await self._api.send("POST", _PATH, wanted)
        elif self._written != authority or not _has(found, authority):
            await self._api.send("PUT", f"{_PATH}/{self._name}", {**found, "webhooks": wanted["webhooks"]})
        return True

    async def remove(self) -> bool:
        """Remove it; false if it did not exist. Raises :class:`ApiFailed`."""
        try:
            await self._api.send("DELETE", f"{_PATH}/{self._name}")
        except ApiFailed as error:
            if error.status == 404:
                return False
            raise
        return True


class Obstacle(NamedTuple):
    """A reason why a pod is not placed, with the fix. ``may_pass``: a controller that has just started fixes it itself."""

    text: str
    may_pass: bool = True


async def obstacle(api: Api, name: str, namespace: str) -> Obstacle | None:
    """Why a pod of a namespace would not be placed; None: it would be.

    ``name`` is the registration's. The pod is created by dry run, so it is not stored. Raises :class:`ApiFailed` if the API
    server does not answer.
    """
    registration = f"the MutatingWebhookConfiguration {name}"
    found = await api.get_or_none(f"{_PATH}/{name}")
    if found is None:
        text = (
            f"{registration} is missing, so API servers do not ask for reviews: install the chart, or run helm upgrade"
        )
        return Obstacle(text, may_pass=False)
    if not all((each.get("clientConfig") or {}).get("caBundle") for each in found.get("webhooks") or ()):
        return Obstacle(
            f"{registration} has no caBundle yet, so API servers do not trust the controller. The controller (or cert-manager)"
            " writes it once it is ready: see the controller's log"
        )
    try:
        made = await api.send("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", _small_pod())
    except ApiFailed as error:
        if error.may_pass:
            raise
        return Obstacle(f"pods cannot be created in namespace {namespace}: {error}")
    if ADMITTED_ANNOTATION in ((made.get("metadata") or {}).get("annotations") or {}):
        return None
    return Obstacle(
        f"a new pod in namespace {namespace} stays unchanged. Three common reasons: the namespace is not served "
        f"(see namespaceSelector of {registration}); a configuration with pools is not in force (kubectl get events -A "
        "--field-selector reason=NotInForce); API servers cannot reach the Service (see the controller's log)"
    )


def _small_pod() -> dict[str, Any]:
    """A pod with a policy that every namespace admits: small, and valid under `restricted`."""
    little = {"cpu": "1m", "memory": "1Mi"}
    security = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": little, "limits": little},
        "securityContext": security,
    }
    metadata = {"generateName": "spotwright-check-", "labels": {SPOT_LABEL: "prefer"}}
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _bundle_of(webhook: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(str((webhook.get("clientConfig") or {}).get("caBundle") or ""))
    except ValueError:
        return b""


def _has(found: Mapping[str, Any], authority: bytes) -> bool:
    bundle = base64.b64encode(authority).decode()
    return all((each.get("clientConfig") or {}).get("caBundle") == bundle for each in found.get("webhooks") or ())
