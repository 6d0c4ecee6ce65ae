"""Notices that node agents told as Events: each is recorded once, and one that was withdrawn counts no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, at, job, node, pod

from spotwright.engine.events import NoticeGiven
from spotwright.model.attempts import Cause
from spotwright.notices import Notice
from spotwright.notices.node_event import event_of, withdrawal_of


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def told(ident: str, seconds: float, *, made: float = 5) -> dict[str, Any]:
    """An Event of the node agent of n1: the node goes in so many seconds."""
    notice = Notice(BEGIN + seconds, "interruption", "azure", certain=True, reason="Azure takes this machine", id=ident)
    event = event_of(notice, "n1", "boot", BEGIN)
    return {**event, "metadata": {**event["metadata"], "uid": f"event-{ident}", "creationTimestamp": at(made)}}


def test_a_notice_of_the_node_agent_is_recorded_once_by_its_id(cluster: Cluster) -> None:
    train = job()
    running = pod("one", train, node="n1", phase="Running")
    cluster.look(train, running)
    cluster.view.put_node_event(told("event-7", 30))
    cluster.look(train, running)
    cluster.kill()
    cluster.look(train, running)
    cluster.view.put_node_event(told("event-8", 60, made=6))
    cluster.look(train, running)
    notices = [event for event in cluster.events() if isinstance(event, NoticeGiven)]
    assert [(event.id, event.goes_at) for event in notices] == [("event-7", BEGIN + 35), ("event-8", BEGIN + 66)]


def test_an_attempt_that_fails_after_the_notice_of_its_agent_was_interrupted(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.view.put_node_event(told("event-7", 30))
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.look(train, pod("one", train, node="n1", phase="Failed", exit_code=143, ended=33))
    task = cluster.state().tasks["train"]
    assert (task.last.cause, task.spent.interruptions, task.spent.errors) == (Cause.INTERRUPTED, 1, 0)


def test_an_event_of_a_teams_namespace_announces_nothing(cluster: Cluster) -> None:
    train = job()
    running = pod("one", train, node="n1", phase="Running")
    cluster.look(train, running)
    event = told("event-7", 30)
    cluster.view.put_node_event({**event, "metadata": {**event["metadata"], "namespace": "team-a"}})
    cluster.look(train, running)
    cluster.look(train, pod("one", train, node="n1", phase="Failed", exit_code=143, ended=33))
    task = cluster.state().tasks["train"]
    assert not [event for event in cluster.events() if isinstance(event, NoticeGiven)]
    assert (task.spent.interruptions, task.spent.errors) == (0, 1)


def withdrawn(ident: str, *, made: float = 8) -> dict[str, Any]:
    """An Event of the node agent of n1: this notice was withdrawn."""
    notice = Notice(BEGIN + 30.0, "interruption", "azure", certain=True, reason="Azure takes this machine", id=ident)
    event = withdrawal_of(notice, "n1", "boot", BEGIN)
    return {**event, "metadata": {**event["metadata"], "uid": f"withdrawn-{ident}", "creationTimestamp": at(made)}}


def test_an_attempt_that_fails_after_its_notice_was_withdrawn_has_failed(cluster: Cluster) -> None:
    train = job(backoffLimit=3)
    running = pod("one", train, node="n1", phase="Running")
    cluster.look(train, running)
    cluster.view.put_node_event(told("event-7", 30))
    cluster.look(train, running)
    assert cluster.state().tasks["train"].last.noticed_at is not None
    cluster.view.put_node_event(withdrawn("event-7"))
    cluster.look(train, running)
    cluster.kill()
    cluster.look(train, running)
    assert [event.kind for event in cluster.events()].count("withdrawn") == 1
    assert cluster.state().tasks["train"].last.noticed_at is None
    cluster.look(train, pod("one", train, node="n1", phase="Failed", exit_code=1, ended=40))
    task = cluster.state().tasks["train"]
    assert (task.last.cause, task.spent.interruptions, task.spent.errors) == (Cause.FAILED, 0, 1)


def test_a_notice_after_a_withdrawn_one_counts(cluster: Cluster) -> None:
    train = job()
    running = pod("one", train, node="n1", phase="Running")
    cluster.look(train, running)
    for event in (told("event-7", 30), withdrawn("event-7"), told("event-9", 90, made=9)):
        cluster.view.put_node_event(event)
        cluster.look(train, running)
    cluster.look(train, pod("one", train, node="n1", phase="Failed", exit_code=143, ended=93))
    assert cluster.state().tasks["train"].last.cause is Cause.INTERRUPTED


def test_a_notice_that_was_withdrawn_before_anybody_looked_is_not_recorded(cluster: Cluster) -> None:
    train = job()
    cluster.view.put_node_event(told("event-7", 30))
    cluster.view.put_node_event(withdrawn("event-7"))
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    assert not [event for event in cluster.events() if isinstance(event, NoticeGiven)]


def test_a_notice_about_an_earlier_node_of_the_same_name_tells_nothing(cluster: Cluster) -> None:
    train = job()
    again = node("n1", **SPOT)
    again["metadata"]["creationTimestamp"] = at(50)
    cluster.view.put_node(again)
    cluster.view.put_node_event(told("event-7", 30))
    cluster.look(train, pod("one", train, made=60, node="n1", phase="Running"))
    assert not [event for event in cluster.events() if isinstance(event, NoticeGiven)]
