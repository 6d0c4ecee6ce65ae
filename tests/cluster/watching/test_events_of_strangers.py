"""Events of other namespaces are dropped before anything is looked at, and no Event ends the watcher."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import BEGIN, job, node, pod

from spotwright.clouds.cluster_autoscaler import STATUS
from spotwright.cluster.autoscaler_status import PROVISIONER, SCALER
from spotwright.kube.object_fields import seconds
from spotwright.notices.node_event import event_of
from spotwright.notices.notice import Notice

LATER = "2027-01-15T09:00:00Z"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[SilentWatcher]:
    watcher = SilentWatcher(tmp_path / "state")
    yield watcher
    watcher.close()


def running(made: SilentWatcher, name: str = "one") -> None:
    train = job(uid=f"uid-of-{name}", name=f"job-{name}")
    made.put("Job", train)
    made.put("Pod", pod(name, train, node="n1", phase="Running"))


def notice(name: str = "n1", namespace: str = "default") -> dict[str, Any]:
    found = Notice(float(BEGIN + 60), "interruption", "aws", True, "the provider takes it", "notice-1")
    event = event_of(found, name, "boot", float(BEGIN))
    made_at = {"creationTimestamp": "2027-01-15T08:00:00Z", "uid": "uid-of-event"}
    return {**event, "metadata": {**event["metadata"], "namespace": namespace, **made_at}}


def word(
    about: Any, source: str = SCALER, namespace: Any = "team-a", reason: str = "TriggeredScaleUp"
) -> dict[str, Any]:
    meta = {"name": "said", "namespace": namespace, "uid": "uid-said"}
    return {
        "metadata": meta,
        "involvedObject": about,
        "reason": reason,
        "message": "{group 0->1 (max: 9)}",
        "source": {"component": source},
        "lastTimestamp": "2027-01-15T08:00:00Z",
    }


@pytest.mark.parametrize(
    "about", [{}, None, [], "n1", 7, {"kind": "Node"}, {"kind": "Node", "name": None}, {"name": []}]
)
def test_an_event_about_a_node_without_a_name_looks_at_nothing(made: SilentWatcher, about: Any) -> None:
    waiting = job(uid="uid-w", name="waits")
    made.put("Job", waiting)
    made.put("Pod", pod("waiting", waiting))
    before = {uid: run.state.events for uid, run in made.watcher._store.runs.items()}
    made.put("Event", {**notice(), "involvedObject": about})
    assert not made.watcher._view._events
    assert {uid: run.state.events for uid, run in made.watcher._store.runs.items()} == before


def test_an_event_about_a_node_counts_in_namespace_default_alone(made: SilentWatcher) -> None:
    running(made)
    made.put("Event", notice(namespace="team-a"))
    assert made.watcher._view.notice_of("n1") is None
    made.put("Event", notice())
    assert made.watcher._view.notice_of("n1") is not None


def test_no_event_about_a_node_or_a_pool_of_nodes_counts_without_the_policy(made: SilentWatcher) -> None:
    running(made)
    made.watcher._node_events.since = None
    made.put("Event", notice())
    offers_none = word({"kind": "NodePool", "name": "x"}, PROVISIONER, "default", "NoCompatibleInstanceTypes")
    made.put(f"Event of {PROVISIONER}", offers_none)
    assert made.watcher._view.notice_of("n1") is None
    assert not made.watcher._view.words._refusals


def test_an_event_from_before_the_policy_counts_no_more_than_one_without_it(made: SilentWatcher) -> None:
    running(made)
    written_at = seconds("2027-01-15T08:00:00Z")
    made.watcher._node_events.since = written_at
    made.put("Event", notice())
    assert made.watcher._view.notice_of("n1") is None
    made.watcher._node_events.since = (written_at or 0.0) - 1
    made.put("Event", notice())
    assert made.watcher._view.notice_of("n1") is not None


def test_events_that_decide_nothing_displace_no_notice(made: SilentWatcher) -> None:
    """The policy allows other reasons to everyone who may write Events, so none of them replaces a trusted one."""
    running(made)
    made.put("Event", notice())
    for number in range(100):
        meta = {"name": f"x{number}", "namespace": "default", "uid": f"x{number}", "creationTimestamp": LATER}
        made.put("Event", {"metadata": meta, "involvedObject": {"kind": "Node", "name": "n1"}, "reason": "NodeReady"})
    assert made.watcher._view.notice_of("n1") is not None


def test_a_word_about_a_pod_of_another_namespace_changes_nothing_of_it(made: SilentWatcher) -> None:
    """Anyone who knows the UID of another team's pod may write Events about it in their own namespace."""
    theirs = job(uid="uid-theirs", name="theirs")
    made.put("Job", theirs)
    made.put("Pod", (waiting := pod("waiting", theirs)))
    about = {"kind": "Pod", "name": "waiting", "uid": waiting["metadata"]["uid"]}
    made.put(f"Event of {SCALER}", word(about, namespace="team-a"))
    made.put(f"Event of {SCALER}", {**word(about, namespace="team-b", reason="NotTriggerScaleUp"), "message": "no"})
    heard = made.watcher._view.words._word(waiting, SCALER)
    assert heard is not None
    assert heard.reason == "TriggeredScaleUp"


@pytest.mark.parametrize("namespace", ["somewhere", "", None, [], 7, "kube-system"])
def test_a_word_of_a_namespace_that_is_not_served_is_dropped(made: SilentWatcher, namespace: Any) -> None:
    made.put(f"Event of {SCALER}", word({"kind": "Pod", "uid": "uid-one"}, namespace=namespace))
    made.put(
        f"Event of {PROVISIONER}",
        word({"kind": "NodePool", "name": "x"}, PROVISIONER, namespace, "NoCompatibleInstanceTypes"),
    )
    assert not made.watcher._view.words._words
    assert not made.watcher._view.words._refusals


def test_words_of_one_namespace_displace_none_of_another(made: SilentWatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.cluster.autoscaler_status._KEPT_OF_NAMESPACE", 100)
    theirs = job(uid="uid-theirs", name="theirs")
    made.put("Job", theirs)
    made.put("Pod", (waiting := pod("waiting", theirs)))
    made.put(f"Event of {SCALER}", word({"kind": "Pod", "uid": waiting["metadata"]["uid"]}))
    for number in range(500):
        made.put(f"Event of {SCALER}", word({"kind": "Pod", "uid": f"uid-{number}"}, namespace="team-b"))
    assert made.watcher._view.words._word(waiting, SCALER) is not None
    assert sum(map(len, made.watcher._view.words._words.values())) <= 101


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "1e400", "x", "", "1e308"])
def test_a_notice_with_an_odd_number_of_seconds_is_no_fault(made: SilentWatcher, seconds: str) -> None:
    running(made)
    event = notice()
    event["metadata"]["annotations"]["spotwright.dev/notice-seconds-left"] = seconds
    made.put("Event", event)
    running(made, "two")
    assert len(made.watcher._store.runs) == 2


@pytest.mark.parametrize("status", [None, [], 7, {"status": 7}, {"status": "{" * 5000}, {"status": "a: &a [*a]"}])
def test_a_status_that_cannot_be_read_ends_nothing(
    made: SilentWatcher, status: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made.put("Status", {"metadata": {"name": STATUS, "namespace": "kube-system"}, "data": status})
    made.put("Node", node("n2"))
    assert made.watcher._view.node("n2") is not None
