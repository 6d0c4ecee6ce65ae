"""Notices that node agents posted as Events: each is recorded once, and a withdrawn one no longer counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, at, done, job, node, pod

from spotwright.engine.events import NoticeGiven, RunStatus
from spotwright.model.attempts import Cause
from spotwright.notices import Notice
from spotwright.notices.node_event import event_of, withdrawal_of
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def told(ident: str, seconds: float, *, made: float = 5) -> dict[str, Any]:
    """An Event of the node agent of n1: the node will be reclaimed in so many seconds."""
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


@pytest.mark.parametrize("sign", ["out-of-service", "shutdown", "shutting down"])
def test_nothing_came_after_a_notice_where_the_node_only_says_that_it_is_gone(cluster: Cluster, sign: str) -> None:
    train = job()
    running = pod("one", train, node="n1", phase="Running")
    cluster.look(train, running)
    lost = node("n1", ready="False" if sign == "shutting down" else "Unknown", **SPOT)
    keys = {
        "out-of-service": "node.kubernetes.io/out-of-service",
        "shutdown": "node.cloudprovider.kubernetes.io/shutdown",
    }
    if sign in keys:
        lost["spec"] = {"taints": [{"key": keys[sign], "effect": "NoExecute"}]}
    else:
        lost["status"]["conditions"][0] |= {"reason": "KubeletNotReady", "message": "node is shutting down"}
    cluster.view.put_node(lost)
    cluster.look(train, running)
    cluster.look(
        train, pod("one", train, node="n1", phase="Failed", exit_code=143, deletionTimestamp=at(40)), gone=("one",)
    )
    task = cluster.state().tasks["train"]
    assert task.last.cause is Cause.INTERRUPTED
    assert "after the notice" not in task.last.cause_why
    assert "after a notice" not in task.last.cause_why
    assert not [event for event in cluster.events() if isinstance(event, NoticeGiven)]


def test_an_attempt_that_ended_before_the_notice_did_not_end_after_it(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.view.put_node_event(told("event-7", 60, made=30))
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.look(train, pod("one", train, node="n1", phase="Failed", exit_code=3, ended=20))
    assert cluster.state().tasks["train"].last.cause is Cause.FAILED


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


def told_to_stop(train: dict[str, Any], *, said: str = "", code: int = 0) -> dict[str, Any]:
    """The pod of a Job after SIGTERM: its code exited with 0, and left these words in its termination message."""
    phase = "Failed" if code else "Succeeded"
    ended = pod("one", train, node="n1", phase=phase, exit_code=code, ended=33, deletionTimestamp=at(60))
    ended["metadata"]["deletionGracePeriodSeconds"] = 30
    ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = said
    return ended


def noticed(cluster: Cluster) -> dict[str, Any]:
    """A Job whose pod runs on a node with a notice."""
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.view.put_node_event(told("event-7", 30))
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    return train


def test_exit_0_with_work_left_after_a_notice_is_an_interruption_that_the_job_takes_for_its_end(
    cluster: Cluster,
) -> None:
    train = noticed(cluster)
    cluster.look({**train, "status": done()}, told_to_stop(train, said="spotwright.dev/progress: 0.25\n"))
    state = cluster.state()
    task = state.tasks["train"]
    assert (task.last.cause, task.last.progress, task.spent.interruptions) == (Cause.INTERRUPTED, 0.25, 1)
    assert task.last.cause_why.startswith("it exited with 0 after the notice for its node, with work left")
    assert state.status is RunStatus.FAILED
    shown = " ".join(show_text(run_view(state, "r")).split())
    assert "it exited with 0 with work left, and its Job counts that as done: start it again" in shown
    assert "let the code end with 143" in shown


def test_exit_0_after_a_drain_with_work_left_is_a_disruption(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.look({**train, "status": done()}, told_to_stop(train, said="spotwright.dev/progress: 0.25"))
    state = cluster.state()
    assert (state.tasks["train"].last.cause, state.status) == (Cause.DISRUPTED, RunStatus.FAILED)


def test_an_end_with_work_left_is_made_good_by_another_attempt(cluster: Cluster) -> None:
    train = noticed(cluster)
    first = told_to_stop(train, said="spotwright.dev/progress: 0.25")
    cluster.look(train, first)
    again = pod("two", train, made=70, node="n3", phase="Succeeded", exit_code=0, ended=90)
    cluster.look({**train, "status": done()}, first, again)
    state = cluster.state()
    assert [each.cause for each in state.tasks["train"].attempts] == [Cause.INTERRUPTED, Cause.SUCCEEDED]
    assert state.status is RunStatus.SUCCEEDED


@pytest.mark.parametrize(("said", "is_noted"), [("", True), ("spotwright.dev/progress: 1", False)])
def test_exit_0_after_a_notice_is_a_success_where_no_work_is_known_to_be_left(
    cluster: Cluster, said: str, is_noted: bool
) -> None:
    train = noticed(cluster)
    cluster.look({**train, "status": done()}, told_to_stop(train, said=said))
    state = cluster.state()
    assert (state.tasks["train"].last.cause, state.status) == (Cause.SUCCEEDED, RunStatus.SUCCEEDED)
    assert (
        any("which its Job counts as done; unknown whether work was left" in note for note in state.notes) is is_noted
    )


def test_exit_143_with_work_left_is_an_interruption_as_before(cluster: Cluster) -> None:
    train = noticed(cluster)
    cluster.look(train, told_to_stop(train, said="spotwright.dev/progress: 0.25", code=143))
    last = cluster.state().tasks["train"].last
    assert (last.cause, last.progress) == (Cause.INTERRUPTED, 0.25)
    assert "with work left" not in last.cause_why
