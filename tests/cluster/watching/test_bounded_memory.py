"""Tenants may create and delete pods without end: the watcher's memory for them does not grow."""

from __future__ import annotations

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import done, job, pod

from spotwright.cluster import view, watcher, workload_recorder
from spotwright.cluster.autoscaler_status import SCALER
from spotwright.cluster.kept_objects import Quarantine, Sharing

Turn = Callable[[SilentWatcher, str], None]


def sizes(made: SilentWatcher) -> dict[str, int]:
    """How many entries each table has of which the watcher and its parts consist, also inside them."""
    watching = made.watcher
    parts = {
        "watcher": watching,
        "namespaces": watching._namespaces,
        "streams": watching._streams,
        "recorder": watching._recorder,
        "view": watching._view,
        "words": watching._view.words,
    }
    found: dict[str, int] = {}
    for part, thing in parts.items():
        for name, value in vars(thing).items():
            if isinstance(value, (dict, set, list)):
                inside = value.values() if isinstance(value, dict) else value
                found[f"{part}.{name}"] = len(value) + sum(len(each) for each in inside if _is_table(each))
    return found


def _is_table(value: Any) -> bool:
    return (isinstance(value, Sized) and isinstance(value, (set, list))) or type(value).__name__ == "OrderedDict"


def an_ended_job(made: SilentWatcher, name: str) -> None:
    owner = job(name, uid=f"uid-{name}")
    one = pod(f"pod-{name}", owner, node="n1", phase="Succeeded", exit_code=0)
    made.put("Job", owner)
    made.put("Pod", one)
    made.put("Job", job(name, uid=f"uid-{name}", status=done()))
    made.pass_time(1)
    made.delete("Pod", one)
    made.delete("Job", owner)


def a_pod_that_never_had_a_node(made: SilentWatcher, name: str) -> None:
    owner = job(name, uid=f"uid-{name}")
    made.put("Job", owner)
    made.put("Pod", pod(f"pod-{name}", owner))
    made.put(f"Event of {SCALER}", _word(f"uid-pod-{name}"))
    made.delete("Pod", pod(f"pod-{name}", owner, node="n1"))  # its last state alone has a node
    made.delete("Job", owner)


def a_pod_on_a_node_that_nobody_has(made: SilentWatcher, name: str) -> None:
    one = pod(f"pod-{name}", None, node=f"node-{name}", phase="Running")
    made.put("Pod", one)
    made.delete("Pod", one)


def a_pod_of_an_owner_that_nobody_has(made: SilentWatcher, name: str) -> None:
    one = pod(f"pod-{name}", job("none", uid=f"nobody-{name}"), phase="Failed", node="n1", exit_code=1)
    made.put("Pod", one)
    made.delete("Pod", one)


def a_pod_that_is_held_up(made: SilentWatcher, name: str) -> None:
    one = pod(f"pod-{name}", None, node="n1", annotations={"spotwright.dev/policy": "{}"})
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    one["status"]["containerStatuses"] = [waiting]
    made.put("Pod", one)
    made.delete("Pod", one)


def an_event_about_a_node_that_nobody_has(made: SilentWatcher, name: str) -> None:
    made_at = "2027-01-15T08:00:00Z"
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": made_at}
    about = {"kind": "Node", "name": f"node-{name}"}
    made.put("Event", {"metadata": meta, "involvedObject": about, "reason": "Rebooted"})


def a_workload_that_cannot_be_read(made: SilentWatcher, name: str) -> None:
    owner = job(name, uid=f"uid-{name}", parallelism=2)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "x", "jobset.sigs.k8s.io/job-index": "first"}
    made.put("Job", owner)
    made.put("Pod", one := pod(f"pod-{name}", owner, node="n1", labels=labels))
    made.delete("Pod", one)
    made.delete("Job", owner)


def a_namespace_that_comes_and_goes(made: SilentWatcher, name: str) -> None:
    labels = {"spotwright.dev/enabled": "true"}
    namespace = {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}}
    made.put("Namespace", namespace)
    made.put(f"Event of {SCALER}", _word(f"uid-of-{name}", name))
    going = {"metadata": {**namespace["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}}
    made.put("Namespace", going)
    made.delete("Namespace", going)
    made.watcher._close_namespaces()


def _word(uid: str, namespace: str = "team-a") -> dict[str, Any]:
    return {
        "metadata": {"name": "said", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "reason": "TriggeredScaleUp",
        "source": {"component": SCALER},
    }


TURNS: tuple[Turn, ...] = (
    an_ended_job,
    a_pod_that_never_had_a_node,
    a_pod_on_a_node_that_nobody_has,
    a_pod_of_an_owner_that_nobody_has,
    a_pod_that_is_held_up,
    an_event_about_a_node_that_nobody_has,
    a_workload_that_cannot_be_read,
    a_namespace_that_comes_and_goes,
)


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.__name__)
def test_what_is_made_and_deleted_again_and_again_leaves_nothing(
    tmp_path: Path, turn: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_KEPT", 5)
    monkeypatch.setattr(workload_recorder, "_REFUSED_KEPT", 5)
    monkeypatch.setattr(watcher, "_CLOSES", 0.0)
    made = SilentWatcher(tmp_path / "state")

    def after(rounds: range) -> dict[str, int]:
        for number in rounds:
            turn(made, f"n{number}")
        made.pass_time(60)
        made.pass_time(60)
        return sizes(made)

    first, second = after(range(20)), after(range(20, 60))
    made.close()
    assert {name: size for name, size in second.items() if size > first[name]} == {}


def test_uids_of_ended_workloads_are_forgotten_and_their_runs_are_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotwright.cluster.run_store._OVER_KEPT", 10)
    made = SilentWatcher(tmp_path / "state")
    for number in range(30):
        an_ended_job(made, f"n{number}")
    store = made.watcher._store
    assert len(store._over) <= 10
    made.put("Job", first := job("n0", uid="uid-n0", status=done()))
    made.put("Pod", pod("pod-n0", first, node="n1", phase="Succeeded", exit_code=0))
    assert not store.runs
    made.close()


def test_the_log_has_a_line_for_each_object_that_cannot_be_read_and_remembers_few(
    caplog: pytest.LogCaptureFixture,
) -> None:
    aside = Quarantine()
    for number in range(3_000):
        for _ in range(2):
            aside.say("pods", {"metadata": {"name": f"n{number}" + "x" * 1_000}})
    assert len(aside._said) == 1_000
    assert len(caplog.records) == 3_000


def test_the_first_unexpected_error_of_a_line_is_told_with_its_traceback_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    aside = Quarantine()
    for number in range(5):
        for text in ("7", "x"):
            try:
                assert int(text) < 0, "a number"
            except (ValueError, AssertionError) as error:
                aside.say("Pod", {"metadata": {"namespace": "team-a", "name": f"n{number}"}}, because=error)
    first = [record for record in caplog.records if record.exc_info]
    assert [record.levelname for record in first] == ["ERROR", "ERROR"]
    assert "the object team-a/n0 is set aside" in first[0].getMessage()
    assert "AssertionError in test_bounded_memory.py" in caplog.records[2].getMessage()
    assert "2 times" in caplog.records[2].getMessage()
    assert len(aside._defects) == 2


def test_parts_of_pods_that_are_gone_stay_for_a_while_only() -> None:
    share = Sharing()
    for number in range(300):
        share.shared({"spec": {"text": str(number) * 100_000}, "metadata": {}})
    assert share._size <= 17_000_000
    assert sum(len(part) for part in share._known if isinstance(part, str)) <= 17_000_000
