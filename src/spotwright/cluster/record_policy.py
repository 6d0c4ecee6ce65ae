"""The admission policy that lets only the controller write its records, regardless of roles.

The recorder writes all of them; the webhook, whose port is open to the network, writes only attempt numbers.

Roles cannot ensure that: anyone who may grant roles in a namespace may grant rights on these kinds too. Kubernetes' garbage
collectors may delete records with their namespace and owners, and a named group may repair them by hand.

Every release has such a policy for its served namespaces. Pools have no namespace, so their label distinguishes them: a release
leaves another release's pools alone, which that release's policy protects, and every pool has the label.
"""

from __future__ import annotations

from typing import Any

from spotwright.cluster import spot_pools, task_objects
from spotwright.cluster.permissions import PROCESSES, account
from spotwright.cluster.run_objects import KINDS
from spotwright.cluster.spot_pools import RELEASE_LABEL

__all__ = ["GROUP", "HOME", "RELEASE", "RESOURCES", "policy_spec"]


HOME, RELEASE, GROUP = "THE-HOME", "THE-RELEASE", "THE-GROUP"
"""The chart file's placeholders for the controller's namespace, the label of its pools and the repair group."""

RESOURCES = tuple(f"{kind.lower()}s" for kind in (*KINDS, task_objects.KIND, spot_pools.KIND))
"""The kinds of records, as in paths."""

_POOLS, _COUNTERS = (f"{each.KIND.lower()}s" for each in (spot_pools, task_objects))
_COLLECTORS = (
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:kube-controller-manager",
)


def policy_spec(home: str = HOME, release: str = RELEASE, group: str = GROUP) -> dict[str, Any]:
    """The policy's constraints and conditions; it refuses matching requests. An empty group has no members."""
    rule = {
        "apiGroups": ["spotwright.dev"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": [each for resource in RESOURCES for each in (resource, f"{resource}/*")],
    }
    users = {process: f"system:serviceaccount:{home}:{account(process)}" for process in PROCESSES}
    collectors = ", ".join(f"'{each}'" for each in _COLLECTORS)
    pools = " || ".join(_is_of(release, each) for each in ("object", "oldObject"))
    conditions = {
        "not-the-recorder": f"request.userInfo.username != '{users['recorder']}'",
        "no-numbers-of-the-webhook": (
            f"request.resource.resource != '{_COUNTERS}' || request.userInfo.username != '{users['webhook']}'"
        ),
        "not-the-collectors-of-kubernetes": (
            f"request.operation == 'CREATE' || !(request.userInfo.username in [{collectors}])"
        ),
        "nobody-who-repairs": f"!('{group}' in request.userInfo.groups)",
        "no-pool-of-another-release": f"request.resource.resource != '{_POOLS}' || {pools}",
    }
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [rule]},
        "matchConditions": [{"name": name, "expression": test} for name, test in conditions.items()],
    }


def _is_of(release: str, version: str) -> str:
    """Whether a version of a pool exists and belongs to this release, or to none."""
    labels = f"{version}.metadata.labels"
    is_ours = f"!('{RELEASE_LABEL}' in {labels}) || {labels}['{RELEASE_LABEL}'] == '{release}'"
    return f"({version} != null && (!has({labels}) || {is_ours}))"
