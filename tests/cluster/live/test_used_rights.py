"""The rights that controllers used on this test bed, in all earlier tests, beside the ones that the chart grants.

The API server logs the requests of pods' accounts. None may have been refused, and unused rights are granted for a reason that
is listed here: an unneeded right is removed from ``permissions.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from testbed.settings import Settings

from spotwright.cluster import permissions
from spotwright.cluster.permissions import Right

pytestmark = pytest.mark.cluster

ACCOUNTS = {permissions.account(each): each for each in permissions.PROCESSES}
"""The processes by the accounts of every release; the namespace before it in a user's name is the release's."""
REACHED_BY_THE_WHOLE_SUITE = {
    *(("pods/eviction", "create"), ("pods", "delete"), ("pods/status", "patch"), ("pods/log", "get")),
}
NOT_ON_THE_BED = {"karpenter.sh", "kubeflow.org", "ray.io", "sparkoperator.k8s.io", "tekton.dev", "batch.volcano.sh"}
"""API groups that no test bed with the default controllers serves."""
OTHERS_ASK_SELDOM = {
    "get": "an owner or a template is read by name where a stream of its kind has not shown it yet",
    "update": "a Lease and the authority of readers are written only by the replica that has them",
    "watch": "a stream begins after its list, so a controller that ends at once has none",
}


class Asked(NamedTuple):
    """One request: of which release and process, for what, with which answer."""

    release: str
    process: str
    group: str
    resource: str
    verb: str
    is_forbidden: bool
    uri: str


def requests(bed: Settings) -> Iterator[Asked]:
    """The requests of the releases' controllers."""
    for line in bed.audit.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        user, about = event["user"]["username"], event.get("objectRef") or {}
        release, _, account = user.rpartition(":")
        process = ACCOUNTS.get(account)
        if process is None or "resource" not in about:
            continue
        resource = "/".join(part for part in (about["resource"], about.get("subresource")) if part)
        forbidden = event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        yield Asked(
            release, process, about.get("apiGroup", ""), resource, event["verb"], forbidden, event["requestURI"]
        )


@pytest.fixture
def asked(bed: Settings) -> list[Asked]:
    """All requests so far."""
    if not bed.audit.exists():
        pytest.skip("this test bed was started without an audit log")
    found = list(requests(bed))
    if not found:
        pytest.skip("no release has run on this test bed")
    return found


def test_no_controller_has_asked_for_what_it_may_not_have(asked: list[Asked]) -> None:
    # A release that is taken out loses its roles while its pod still ends: what was refused counts while the Lease was renewed.
    last = {each.release: number for number, each in enumerate(asked) if is_renewal(each)}
    alive = [each for number, each in enumerate(asked) if number < last.get(each.release, 0)]
    allowed = {
        (each.release, each.process, each.verb, each.group, each.resource) for each in alive if not each.is_forbidden
    }
    refused = {
        (each.process, each.verb, each.group, each.resource, each.uri.partition("?")[0])
        for each in alive
        if each.is_forbidden and (each.release, each.process, each.verb, each.group, each.resource) not in allowed
    }
    assert allowed
    assert refused == set()


def is_renewal(each: Asked) -> bool:
    return (each.resource, each.verb, each.is_forbidden) == ("leases", "update", False)


def granted() -> Iterator[Right]:
    yield from (*permissions.CLUSTER, *permissions.NAMESPACES, *permissions.SERVED, *permissions.HOME)
    yield from (*permissions.DEFAULT, *permissions.NODE_LEASES, *permissions.KUBE_SYSTEM, *permissions.REGISTRATION)


def test_every_right_is_used_or_has_a_reason(asked: list[Asked]) -> None:
    used = {(each.process, each.group, each.resource, each.verb) for each in asked if not each.is_forbidden}
    if not {(resource, verb) for _, _, resource, verb in used} >= REACHED_BY_THE_WHOLE_SUITE:
        pytest.skip("only a part of the tests has run on this test bed")
    unused = {
        (process, right.group, resource, verb)
        for right in granted()
        for process in right.processes
        for resource in right.resources
        for verb in right.verbs
        if (process, right.group, resource, verb) not in used
    }
    assert {each for each in unused if each[1] not in NOT_ON_THE_BED and each[3] not in OTHERS_ASK_SELDOM} == set()
