"""Decides which Events about nodes are trusted: an admission policy must verify their writer.

Kubernetes keeps Events about nodes in the namespace ``default``, where an account with the role ``edit`` can write one in any
name: an Event does not prove its writer. So the chart has a ValidatingAdmissionPolicy. It admits relevant Events only from the
node's own kubelet, from accounts that may change nodes (node termination handlers, node-problem-detector, autoscalers, cloud
controllers), and from a node agent on that node, by a special right. Events written before or without the policy do not count.
Conditions and taints of nodes need no such proof.

Sources: https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/ (``authorizer``, and that a policy
covers resources of equal storage in other groups, as ``events.k8s.io``);
https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/ (the node's name in the token of a pod).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spotwright.clouds import node_signs
from spotwright.cluster.api_client import FORBIDDEN, Api, ApiFailed
from spotwright.cluster.autoscaler_status import NO_OFFERING, NODE_POOL
from spotwright.cluster.signals import KUBELET_STARTS, REBOOTED
from spotwright.cluster.watched import WATCHED
from spotwright.kube.object_fields import mapping, metadata, seconds, text
from spotwright.notices.node_event import NAMESPACE, REASON

__all__ = ["SPREADS", "SUFFIX", "NodeEvents", "policy_spec"]

SUFFIX = "-node-events"
"""The suffix of the policy's and its binding's name, after the registration's name."""

REASONS = frozenset(
    {
        REASON,
        REBOOTED,
        NO_OFFERING,
        *node_signs.TAKEN_EVENTS,
        *node_signs.GONE_EVENTS,
        *node_signs.REMOVED_EVENTS,
    }
)
"""The reasons of relevant Events. Others are neither read nor refused."""

_KINDS = ("Node", NODE_POOL)
SPREADS = 10.0
"""Seconds until every API server enforces a new policy: they watch it, and compile it within one or two."""

_REGISTERED = "/apis/admissionregistration.k8s.io/v1"
_POLICY, _BINDING = f"{_REGISTERED}/validatingadmissionpolicies", f"{_REGISTERED}/validatingadmissionpolicybindings"
_OF_A_KUBELET = "system:node:"
_NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"  # noqa: S105  # no secret: a key that the API server sets
_RIGHTS: Mapping[str, str] = {
    "patchesNodes": "authorizer.group('').resource('nodes').check('patch').allowed()",
    "updatesNodes": "authorizer.group('').resource('nodes').check('update').allowed()",
    "deletesNodes": "authorizer.group('').resource('nodes').check('delete').allowed()",
    "patchesStatus": "authorizer.group('').resource('nodes').subresource('status').check('patch').allowed()",
    "updatesStatus": "authorizer.group('').resource('nodes').subresource('status').check('update').allowed()",
    "isAgent": (
        "authorizer.group('spotwright.dev').resource('notices').check('create').allowed() && "
        f"request.userInfo.?extra[?'{_NODE_OF_TOKEN}'][?0].orValue('') == object.involvedObject.name"
    ),
}
"""By variable name, the accepted rights of an account; any of them suffices.

Each is a separate expression: one that calls the authorizer three times exceeds the cost limit (Kubernetes,
``apiserver/pkg/cel/config.go``, ``PerCallLimit``; seen on 1.35).
"""

_MAY_SPEAK = (
    f"request.userInfo.username.startsWith('{_OF_A_KUBELET}') "
    f"? request.userInfo.username == '{_OF_A_KUBELET}' + object.involvedObject.name "
    f": ({' || '.join(f'variables.{name}' for name in _RIGHTS)})"
)
_REFUSED = (
    "Spotwright trusts this Event about a node, so only its kubelet, an account that may change nodes, or a node agent on it"
    " with the right to create notices of spotwright.dev may write it: docs/how-to/cluster/run-the-node-agent.md"
)

_LOG = logging.getLogger(__name__)


def policy_spec() -> dict[str, Any]:
    """The ``spec`` of the policy: it refuses relevant Events from accounts without rights on the node."""
    kinds, reasons = (", ".join(f"'{each}'" for each in sorted(of)) for of in (_KINDS, REASONS))
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["events"]}
    conditions = {
        "in-the-namespace-of-nodes": f"request.namespace == '{NAMESPACE}'",
        "about-a-node": f"has(object.involvedObject.kind) && object.involvedObject.kind in [{kinds}]",
        "decides-something": (
            f"(has(object.reason) && object.reason in [{reasons}]) || "
            f"(has(object.message) && object.message.startsWith('{KUBELET_STARTS}'))"
        ),
    }
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [rule]},
        "matchConditions": [{"name": name, "expression": test} for name, test in conditions.items()],
        "variables": [{"name": name, "expression": test} for name, test in _RIGHTS.items()],
        "validations": [{"expression": _MAY_SPEAK, "message": _REFUSED, "reason": "Forbidden"}],
    }


class NodeEvents:
    """Whether Events about nodes count, by the policy of this ``name`` and its binding; :meth:`ask` checks it."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, f"{name}{SUFFIX}"
        self.since: float | None = None
        """Since when (Unix seconds, by the API server's clock) the policy has been in force; None: no policy."""
        self.state = ""
        """:data:`~spotwright.cluster.watched.WATCHED`, or why they do not count; empty before the first answer."""

    def counts(self, event: Mapping[str, Any]) -> bool:
        """Whether an Event of the namespace ``default`` is relevant, and its writer was verified."""
        made_at = seconds(metadata(event).get("creationTimestamp"))
        if self.since is None or made_at is None or made_at <= self.since:
            return False
        return text(event.get("reason")) in REASONS or text(event.get("message")).startswith(KUBELET_STARTS)

    async def ask(self) -> bool:
        """Read the policy and its binding. Returns whether Events became trusted.

        Without an answer, the state is unchanged. Each change is logged once.
        """
        try:
            found = [await self._api.get_or_none(f"{path}/{self._name}") for path in (_POLICY, _BINDING)]
        except ApiFailed as error:
            if error.status not in FORBIDDEN:
                _LOG.debug("cannot tell whether to trust Events about nodes: %s", error)
                return False
            self._note(None, str(error))
            return False
        policy, binding = found
        spec = mapping((binding or {}).get("spec"))
        if policy is None or spec.get("policyName") != self._name:
            return self._note(None, f"the ValidatingAdmissionPolicy {self._name} or its binding is missing")
        if "Deny" not in (spec.get("validationActions") or ()):
            return self._note(None, f"the binding of the ValidatingAdmissionPolicy {self._name} does not deny")
        made = (seconds(metadata(each or {}).get("creationTimestamp")) or 0.0 for each in found)
        return self._note(max(made) + SPREADS, WATCHED)

    def _note(self, since: float | None, state: str) -> bool:
        before, self.since = self.since, since
        if state != self.state:
            self.state = state
            if state == WATCHED:
                _LOG.info(
                    "Events about nodes are trusted: the ValidatingAdmissionPolicy %s proves who wrote them", self._name
                )
            else:
                _LOG.warning(
                    "Events about nodes, including notices of node agents, are ignored, because anyone who may write Events in"
                    " namespace default could forge them: %s; install it with the chart (nodeEvents: true). Conditions and"
                    " taints of nodes are still read",
                    state,
                )
        return since is not None and since != before
