"""The rights of webhook and recorder: small, by name where a name is known, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.chart.rendered import Helm
from tests.cluster.granted_rights import is_allowed

from spotwright.cluster import permissions
from spotwright.cluster.permissions import LEASE, Right, rules

READING = {"get", "list", "watch"}
PLACES = {
    "cluster": (*permissions.CLUSTER, *permissions.NAMESPACES, *permissions.NAMESPACES_TO_FILL),
    "served": permissions.SERVED,
    "library": permissions.LIBRARY,
    "claims": permissions.CLAIMS,
    "home": permissions.HOME,
    "default": permissions.DEFAULT,
    "kube-node-lease": permissions.NODE_LEASES,
    "kube-system": permissions.KUBE_SYSTEM,
    "registration": permissions.REGISTRATION,
}
ALL = [right for rights in PLACES.values() for right in rights]


def writing(rights: tuple[Right, ...], process: str) -> set[tuple[str, str]]:
    own = [each for each in rights if process in each.processes]
    return {(resource, verb) for each in own for resource in each.resources for verb in set(each.verbs) - READING}


@pytest.mark.parametrize("right", ALL, ids=lambda each: f"{each.resources[0]}-{each.verbs[0]}")
def test_a_right_says_why_and_names_no_secrets_and_no_wildcards(right: Right) -> None:
    words = {right.group, *right.resources, *right.verbs, *right.names}
    assert right.reason
    assert right.processes
    assert set(right.processes) <= set(permissions.PROCESSES)
    assert not words & {"*", "secrets", "serviceaccounts/token", "pods/exec", "pods/portforward", "nodes/proxy"}
    assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(right.verbs)
    assert right.group != "rbac.authorization.k8s.io"


def test_the_webhook_writes_numbers_events_and_its_own_registration() -> None:
    counters = {("spotcounters", "create"), ("spotcounters", "patch")}
    assert {place: found for place, rights in PLACES.items() if (found := writing(rights, "webhook"))} == {
        "served": {("events", "create"), *counters},
        "library": {("configmaps", "create")},
        "claims": {("persistentvolumeclaims", "create")},
        "home": {("events", "create")},
        "registration": {("mutatingwebhookconfigurations", "patch")},
    }


def test_the_recorder_writes_records_and_moves_pods() -> None:
    reviews = {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
    pools = {("spotpools", verb) for verb in ("create", "patch", "delete")}
    moves = {("pods", "delete"), ("pods/status", "patch"), ("pods/eviction", "create"), ("events", "create")}
    records = {(f"spot{kind}s", verb) for kind in ("run", "task", "attempt", "counter") for verb in ("create", "patch")}
    assert {place: found for place, rights in PLACES.items() if (found := writing(rights, "recorder"))} == {
        "cluster": {*reviews, *pools},
        "served": {*moves, *records, ("spotruns", "delete")},
        "home": {("configmaps", "update"), ("events", "create"), ("leases", "update")},
    }


@pytest.mark.parametrize(
    "line",
    [
        "GET /api/v1/namespaces/team-a/pods/a/log",
        "DELETE /api/v1/namespaces/team-a/pods/a",
        "POST /api/v1/namespaces/team-a/pods/a/eviction",
        "DELETE /apis/spotwright.dev/v1alpha1/namespaces/team-a/spotruns/a",
        "PUT /apis/coordination.k8s.io/v1/namespaces/spotwright/leases/spotwright",
        "POST /apis/authentication.k8s.io/v1/tokenreviews",
        "GET /api/v1/nodes",
    ],
)
def test_what_the_recorder_alone_may(line: str) -> None:
    assert is_allowed(line, "recorder")
    assert not is_allowed(line, "webhook")


@pytest.mark.parametrize("values", [{"namespaces": ["team-a", "team-b"]}, {"clusterWide": True}])
@pytest.mark.parametrize("process", permissions.PROCESSES)
@pytest.mark.parametrize("checkpoints", [{}, {"library": True, "claimSize": "20Gi"}])
def test_the_chart_gives_each_account_its_own_rights_alone(
    helm: Helm, values: dict[str, Any], process: str, checkpoints: dict[str, Any]
) -> None:
    objects = helm.render({**values, "checkpoints": checkpoints})
    served = [*permissions.SERVED, *((*permissions.LIBRARY, *permissions.CLAIMS) if checkpoints else ())]
    names = values.get("namespaces", [])
    whole = [
        *permissions.CLUSTER,
        *(replace(each, names=tuple(names)) for each in permissions.NAMESPACES),
        *(permissions.NAMESPACES_TO_FILL if checkpoints and not names else ()),
        *permissions.REGISTRATION,
    ]
    expected = {
        "": whole if names else [*whole, *served],
        "spotwright": permissions.HOME,
        "default": permissions.DEFAULT,
        "kube-node-lease": permissions.NODE_LEASES,
        "kube-system": permissions.KUBE_SYSTEM,
        **dict.fromkeys(names, served),
    }
    found = granted(objects, permissions.account(process))
    assert found == {where: made for where, rights in expected.items() if (made := as_set(rules(rights, process)))}
    (deployment,) = [
        each for each in objects if each["metadata"]["name"] == f"spotwright-{process}" and each["kind"] == "Deployment"
    ]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == permissions.account(process)


def granted(objects: Sequence[dict[str, Any]], account: str) -> dict[str, set[str]]:
    """The rules that bindings give to an account, by namespace; without one in the whole cluster."""
    by_name = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects
    }
    found: dict[str, set[str]] = {}
    for (kind, namespace, _), each in by_name.items():
        if kind.endswith("RoleBinding") and [one["name"] for one in each["subjects"]] == [account]:
            role = by_name[each["roleRef"]["kind"], namespace, each["roleRef"]["name"]]
            found.setdefault(namespace, set()).update(as_set(role["rules"]))
    return found


def as_set(rules: Sequence[dict[str, Any]]) -> set[str]:
    return {json.dumps(each, sort_keys=True).replace(f'"{LEASE}', '"spotwright') for each in rules}


def test_a_cloud_knows_the_recorder_alone(helm: Helm) -> None:
    annotations = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/logs"}
    objects = helm.render({"namespaces": ["team-a"], "serviceAccountAnnotations": annotations})
    accounts = {
        each["metadata"]["name"]: each["metadata"].get("annotations")
        for each in objects
        if each["kind"] == "ServiceAccount"
    }
    assert accounts["spotwright-recorder"] == annotations
    assert accounts["spotwright-webhook"] is None


def test_config_maps_leases_and_the_registration_are_granted_by_name_alone() -> None:
    by_name = {"configmaps", "leases", "mutatingwebhookconfigurations", "validatingadmissionpolicies"}
    unnamed = [right for right in ALL if by_name & set(right.resources) and not right.names]
    created = permissions.LIBRARY  # a right to create cannot be limited to a name; it is granted where it is asked for
    assert unnamed == [
        *created,
        *permissions.NODE_LEASES,
    ]  # the names of nodes are not known before; they are read alone


def test_nothing_of_a_namespace_that_is_not_listed_is_allowed() -> None:
    for what in ("pods", "pods/a", "pods/a/log", "events", "configmaps?fieldSelector=metadata.name=spotwright"):
        line = f"GET /api/v1/namespaces/{{}}/{what}"
        assert is_allowed(line.format("team-a"), "recorder", served=["team-a"])
        assert not is_allowed(line.format("team-b"), "recorder", served=["team-a"])
    for what in ("pods", "events", "namespaces", "configmaps?fieldSelector=metadata.name=spotwright"):
        assert not is_allowed(f"GET /api/v1/{what}", "recorder", served=["team-a"])
        assert is_allowed(f"GET /api/v1/{what}", "recorder")


def test_a_listed_namespace_is_followed_by_its_name_alone() -> None:
    line = "GET /api/v1/namespaces?watch=true&fieldSelector=metadata.name={}"
    assert is_allowed(line.format("team-a"), "recorder", served=["team-a"])
    assert not is_allowed(line.format("team-b"), "recorder", served=["team-a"])


def test_other_config_maps_and_secrets_are_read_nowhere() -> None:
    for path in ("configmaps", "configmaps/other", "secrets", "secrets/a"):
        for namespace in ("team-a", "spotwright", "kube-system", "default"):
            for process in permissions.PROCESSES:
                assert not is_allowed(f"GET /api/v1/namespaces/{namespace}/{path}", process), (namespace, path)
