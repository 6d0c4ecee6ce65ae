"""Of which machines it is certain that they are gone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.watching.watched_objects import BEGIN, at, node

from spotwright.clouds.providers import commands_to_free
from spotwright.cluster.descheduler import NodeSeen, not_ready_since, why_gone
from spotwright.notices import Notice
from spotwright.notices.node_event import NodeNotice

NOW = BEGIN + 600.0
SHUT_DOWN, OUT_OF_SERVICE = "node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/out-of-service"


def silent(*taints: str, since: float = 300) -> dict[str, Any]:
    made = node("n1", ready="Unknown")
    made["metadata"]["creationTimestamp"] = at(0)
    made["status"]["conditions"][0]["lastTransitionTime"] = at(since)
    made["spec"] = {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}
    return made


def announced(ends: float, kind: str = "interruption", *, certain: bool = True) -> NodeNotice:
    return NodeNotice("id", BEGIN + 200.0, Notice(BEGIN + ends, kind, "azure", certain, "taken"))


@pytest.mark.parametrize("taint", [SHUT_DOWN, OUT_OF_SERVICE])
def test_a_taint_of_the_provider_or_of_a_person_is_certain_on_a_node_that_does_not_report(taint: str) -> None:
    assert taint in why_gone(NodeSeen("n1", silent(taint)), NOW)
    reporting = {**silent(taint), "status": node("n1")["status"]}
    assert why_gone(NodeSeen("n1", reporting), NOW) == ""


def test_a_node_that_only_does_not_report_may_run_on() -> None:
    assert why_gone(NodeSeen("n1", silent("node.kubernetes.io/unreachable")), NOW) == ""


def test_the_machine_of_a_deleted_node_is_gone_if_it_was_silent_and_may_run_on_if_it_reported() -> None:
    assert why_gone(NodeSeen("n1", silent(), is_deleted=True), NOW) == "the Node object n1 was deleted"
    assert why_gone(NodeSeen("n1", node("n1"), is_deleted=True), NOW) == ""


@pytest.mark.parametrize(("second", "is_gone"), [(400, True), (-400, False)])
def test_the_providers_word_counts_for_this_node_and_not_for_an_earlier_one_of_its_name(
    second: float, is_gone: bool
) -> None:
    made = silent()
    made["metadata"]["creationTimestamp"] = at(10)
    event = {"reason": "DeletingNode", "lastTimestamp": at(second) if second > 0 else "2027-01-15T07:00:00Z"}
    assert bool(why_gone(NodeSeen("n1", made, [event]), NOW)) is is_gone


@pytest.mark.parametrize(
    ("notice", "since", "is_gone"),
    [
        (announced(320), 325, True),
        (announced(320), 10, False),  # silent long before
        (announced(590), 580, False),  # its end has hardly passed
        (announced(320, certain=False), 325, False),
        (announced(320, "disruption"), 325, False),
    ],
)
def test_a_notice_whose_end_has_passed_is_certain_where_the_node_does_not_report_since(
    notice: NodeNotice, since: float, is_gone: bool
) -> None:
    assert bool(why_gone(NodeSeen("n1", silent(since=since), notice=notice), NOW)) is is_gone


def test_what_people_read_of_a_silent_node() -> None:
    assert not_ready_since(silent(since=300)) == BEGIN + 300
    assert not_ready_since(node("n1")) is None
    assert commands_to_free("n1") == (
        "kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        "kubectl delete node n1",
    )
