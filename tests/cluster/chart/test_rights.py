"""The rights of the controller: small, by name where a name is known, each with its reason."""

from __future__ import annotations

import pytest
from tests.cluster.granted_rights import is_allowed

from spotwright.cluster import permissions
from spotwright.cluster.permissions import Right

READING = {"get", "list", "watch"}
PLACES = {
    "cluster": (*permissions.CLUSTER, permissions.NAMESPACES),
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


def writing(rights: tuple[Right, ...]) -> set[tuple[str, str]]:
    return {(resource, verb) for each in rights for resource in each.resources for verb in set(each.verbs) - READING}


@pytest.mark.parametrize("right", ALL, ids=lambda each: f"{each.resources[0]}-{each.verbs[0]}")
def test_a_right_says_why_and_names_no_secrets_and_no_wildcards(right: Right) -> None:
    words = {right.group, *right.resources, *right.verbs, *right.names}
    assert right.reason
    assert not words & {"*", "secrets", "serviceaccounts/token", "pods/exec", "pods/portforward", "nodes/proxy"}
    assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(right.verbs)
    assert right.group != "rbac.authorization.k8s.io"


def test_what_is_written_is_little_and_its_own() -> None:
    reviews = {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
    pools = {("spotpools", verb) for verb in ("create", "patch", "delete")}
    moves = {("pods", "delete"), ("pods/status", "patch"), ("pods/eviction", "create"), ("events", "create")}
    records = {(f"spot{kind}s", verb) for kind in ("run", "task", "attempt", "counter") for verb in ("create", "patch")}
    assert {place: writing(rights) for place, rights in PLACES.items()} == {
        "cluster": {*reviews, *pools},
        "served": {*moves, *records, ("spotruns", "delete")},
        "library": {("configmaps", "create")},
        "claims": {("persistentvolumeclaims", "create")},
        "home": {("configmaps", "update"), ("events", "create"), ("leases", "update")},
        "default": set(),
        "kube-node-lease": set(),
        "kube-system": set(),
        "registration": {("mutatingwebhookconfigurations", "patch")},
    }


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
        assert is_allowed(line.format("team-a"), served=["team-a"])
        assert not is_allowed(line.format("team-b"), served=["team-a"])
    for what in ("pods", "events", "namespaces", "configmaps?fieldSelector=metadata.name=spotwright"):
        assert not is_allowed(f"GET /api/v1/{what}", served=["team-a"])
        assert is_allowed(f"GET /api/v1/{what}")


def test_a_listed_namespace_is_followed_by_its_name_alone() -> None:
    line = "GET /api/v1/namespaces?watch=true&fieldSelector=metadata.name={}"
    assert is_allowed(line.format("team-a"), served=["team-a"])
    assert not is_allowed(line.format("team-b"), served=["team-a"])


def test_other_config_maps_and_secrets_are_read_nowhere() -> None:
    for path in ("configmaps", "configmaps/other", "secrets", "secrets/a"):
        for namespace in ("team-a", "spotwright", "kube-system", "default"):
            assert not is_allowed(f"GET /api/v1/namespaces/{namespace}/{path}"), (namespace, path)
