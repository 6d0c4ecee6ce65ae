"""The chart's policy on a real API server: who may write Events about nodes that the controller believes, and who may not."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator

import pytest
from tests.cluster.live.chart_account import node_events_policy, remove_policy_of
from tests.cluster.live.kube import Kube, Object

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.node_events import NodeEvents
from spotwright.cluster.watched import WATCHED
from spotwright.notices import Notice
from spotwright.notices.node_event import event_of

pytestmark = [pytest.mark.cluster, pytest.mark.cluster_ci]

_RBAC = "rbac.authorization.k8s.io"
NODE = "a-node"  # it need not exist
NAME = f"policy-{uuid.uuid4().hex[:6]}"
TENANT, HANDLER, AGENT = "tenant", "handler", "agent"
RIGHTS: dict[str, list[Object]] = {
    HANDLER: [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}],
    AGENT: [{"apiGroups": ["spotwright.dev"], "resources": ["notices"], "verbs": ["create"]}],
}
REFUSED = "Spotwright trusts this Event about a node"


def role(namespace: str, name: str, rules: list[Object]) -> Iterator[Object]:
    """A ClusterRole with its binding to the account of this name."""
    meta = {"name": f"{NAME}-{name}"}
    yield {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": meta["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


@pytest.fixture
def accounts(kube: Kube, namespace: str) -> Iterator[str]:
    """The accounts, all of which may edit ``default``, as its tenants do, and the policy."""
    for name in (TENANT, HANDLER, AGENT):
        kube.run("create", "serviceaccount", name, "-n", namespace)
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace} for name in (TENANT, HANDLER, AGENT)]
    subjects.append({"apiGroup": _RBAC, "kind": "User", "name": f"system:node:{NODE}"})
    edit = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "edit"}
    binding = {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "roleRef": edit, "subjects": subjects}
    kube.apply({**binding, "metadata": {"name": NAME, "namespace": "default"}})
    kube.apply(*(each for name, rules in RIGHTS.items() for each in role(namespace, name, rules)))
    kube.apply(*node_events_policy(NAME))
    tenant = f"system:serviceaccount:{namespace}:{TENANT}"
    kube.wait(lambda: REFUSED in written(kube, notice(), tenant), "the policy is in force", 60)
    yield f"system:serviceaccount:{namespace}:"
    remove_policy_of(kube, NAME)
    kube.run("delete", "rolebinding", NAME, "-n", "default")
    for name in RIGHTS:
        kube.run("delete", "clusterrole,clusterrolebinding", f"{NAME}-{name}")


def notice(node: str = NODE, **changes: object) -> Object:
    """The Event of a node agent, in all but its writer."""
    told = Notice(1e10, "interruption", "aws", certain=True, reason="the provider takes it", id="one")
    return {**event_of(told, node, "boot", 1.8e9), **changes}


def written(kube: Kube, event: Object, user: str, *options: str) -> str:
    """Write an Event, or try to by dry run, as another user. Returns kubectl's output."""
    try:
        return kube.run("create", "--dry-run=server", f"--as={user}", *options, "-f", "-", text=json.dumps(event))
    except AssertionError as error:
        return str(error)


OF_NODES: dict[str, Object] = {
    "a notice": {},
    "a handler's": {"reason": "SpotInterruption", "source": {"component": "aws-node-termination-handler"}},
    "a cloud's": {"reason": "DeletingNode"},
    "an autoscaler's": {"reason": "ScaleDown"},
    "a kubelet's": {"reason": "Rebooted", "source": {"component": "kubelet", "host": NODE}},
    "a kubelet's start": {"reason": "Whatever", "message": "Starting kubelet."},
    "Karpenter's, of a pool": {
        "reason": "NoCompatibleInstanceTypes",
        "involvedObject": {"kind": "NodePool", "name": "x"},
    },
}


@pytest.mark.parametrize("said", OF_NODES.values(), ids=OF_NODES)
def test_who_may_edit_namespace_default_writes_nothing_about_a_node_that_is_believed(
    kube: Kube, accounts: str, said: Object
) -> None:
    assert REFUSED in written(kube, notice(**said), accounts + TENANT)
    assert "created" in written(kube, notice(**said), accounts + HANDLER)


def test_the_newer_api_of_events_is_no_way_around_the_policy(kube: Kube, accounts: str) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "forged", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "SpotInterruption",
        "action": "x",
        "note": "x",
        "regarding": {"kind": "Node", "name": NODE},
        "reportingController": "example.com/x",
        "reportingInstance": "x",
    }
    assert REFUSED in written(kube, event, accounts + TENANT)


def test_an_event_that_decides_nothing_becomes_none_that_does(kube: Kube, accounts: str) -> None:
    name = f"harmless-{uuid.uuid4().hex[:6]}"
    harmless = notice(reason="NodeNice", metadata={"name": name, "namespace": "default"})
    kube.run("create", f"--as={accounts}{TENANT}", "-f", "-", text=json.dumps(harmless))
    change = ("patch", "event", name, "-n", "default", "--type=merge", "-p", '{"reason": "SpotInterruption"}')
    with pytest.raises(AssertionError, match=REFUSED):
        kube.run(*change, f"--as={accounts}{TENANT}")
    kube.run("delete", "event", name, "-n", "default")


def test_a_kubelet_and_an_agent_speak_for_their_own_node_alone(kube: Kube, accounts: str) -> None:
    kubelet = (f"system:node:{NODE}", "--as-group=system:nodes", "--as-group=system:authenticated")
    on_its_node = (accounts + AGENT, f"--as-user-extra=authentication.kubernetes.io/node-name={NODE}")
    for writer in (kubelet, on_its_node):
        assert "created" in written(kube, notice(), *writer)
        assert REFUSED in written(kube, notice("another-node"), *writer)
    assert REFUSED in written(kube, notice(), accounts + AGENT)  # a token that was bound to no pod
    tenant = (accounts + TENANT, f"--as-user-extra=authentication.kubernetes.io/node-name={NODE}")
    assert REFUSED in written(kube, notice(), *tenant)  # its pod is on the node, and it has not the right


def test_events_about_other_things_are_left_alone(kube: Kube, accounts: str) -> None:
    about_a_pod = {"kind": "Pod", "name": "one", "namespace": "default"}
    assert "created" in written(kube, notice(involvedObject=about_a_pod), accounts + TENANT)


def test_a_controller_finds_the_policy(kube: Kube, accounts: str) -> None:
    async def ask() -> NodeEvents:
        api = Api(connect(find_cluster(kubeconfig=str(kube.kubeconfig))))
        try:
            events = NodeEvents(api, NAME)
            await events.ask()
            return events
        finally:
            await api.close()

    found = asyncio.run(ask())
    assert (found.state, found.since is not None) == (WATCHED, True)
