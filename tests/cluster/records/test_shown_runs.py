"""A run's conditions say whether it is recorded completely, which logs are stored and whether it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.reading.recorded import looks_at_train
from tests.cluster.records.kind_schemas import misfits
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import done, job, pod

from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.run_objects import KINDS
from spotwright.cluster.shown_runs import Condition, LogsKept, conditions


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RecordServer, Kubernetes]]:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        yield server, kubernetes
        objects = [each for kind in KINDS for each in server.kept(kind)]
        assert objects
        assert [each for found in objects for each in misfits(found)] == []


def shown(server: RecordServer) -> dict[str, tuple[str, str]]:
    """The conditions of the only run."""
    (run,) = server.kept("SpotRun")
    return {each["type"]: (each["status"], each["reason"]) for each in run["status"]["conditions"]}


def since(server: RecordServer) -> dict[str, str]:
    (run,) = server.kept("SpotRun")
    return {each["type"]: each["lastTransitionTime"] for each in run["status"]["conditions"]}


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        (LogsKept.OBJECT_STORE, ("True", "ObjectStore")),
        (LogsKept.VOLUME, ("True", "Volume")),
        (LogsKept.TAIL_ONLY, ("False", "TailOnly")),
        (LogsKept.NONE, ("False", "None")),
    ],
)
def test_a_run_shows_that_it_goes_on_and_that_it_has_ended(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes], logs: LogsKept, expected: tuple[str, str]
) -> None:
    server, kubernetes = served
    cluster = Cluster(tmp_path / "unused", ApiRecords(kubernetes, logs=logs))
    *steps, last = looks_at_train(cluster)
    for step in steps:
        step()
    both = {"Recorded": ("True", "Whole"), "LogsKept": expected}
    assert shown(server) == {**both, "Complete": ("False", "Running")}
    began = since(server)
    cluster.now += 100.0
    last()
    assert shown(server) == {**both, "Complete": ("True", "Succeeded")}
    after = since(server)
    assert {name for name in after if after[name] != began[name]} == {"Complete"}


def test_a_failed_run_is_complete(tmp_path: Path, served: tuple[RecordServer, Kubernetes]) -> None:
    server, kubernetes = served
    cluster = Cluster(tmp_path / "unused", ApiRecords(kubernetes))
    root = job(status=done("Failed", "BackoffLimitExceeded"))
    cluster.look(root, pod("one", root, node="n1", phase="Failed", exit_code=1))
    assert shown(server)["Complete"] == ("True", "Failed")


def watching(kubernetes: Kubernetes, folder: Path, server: RecordServer) -> tuple[SilentWatcher, Any]:
    """A watcher that records a running Job."""
    made = SilentWatcher(folder, ApiRecords(kubernetes))
    root = job()
    made.put("Job", root)
    made.put("Pod", pod("one", root, node="n1", phase="Running"))
    assert shown(server)["Recorded"] == ("True", "Whole")
    return made, root


def test_a_cut_recording_says_so_and_a_recorder_that_starts_leaves_it(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes]
) -> None:
    server, kubernetes = served
    made, root = watching(kubernetes, tmp_path / "state", server)
    made.watcher.cut_largest("team-a", "its namespace takes too much")
    cut = {"Recorded": ("False", "RecordingCut"), "LogsKept": ("False", "None"), "Complete": ("True", "Stopped")}
    assert shown(server) == cut
    (run,) = server.kept("SpotRun")
    (message,) = (each["message"] for each in run["status"]["conditions"] if each["type"] == "Recorded")
    assert message.startswith("its recording stopped here, because its namespace takes too much.")
    made.close()
    made = SilentWatcher(tmp_path / "state", ApiRecords(kubernetes))
    made.put("Job", root)
    made.put("Pod", pod("one", root, node="n1", phase="Succeeded", exit_code=0))
    assert server.kept("SpotRun") == [run]
    made.close()


def test_what_is_too_large_to_be_recorded_ends_the_recording_of_its_run_alone(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes]
) -> None:
    server, kubernetes = served
    made, root = watching(kubernetes, tmp_path / "state", server)
    (run,) = made.watcher._store.runs.values()
    made.watcher.note(run.folder.name, "x" * 60_000)
    assert shown(server)["Recorded"] == ("False", "TooLarge")
    assert shown(server)["Complete"] == ("True", "Stopped")
    made.put("Pod", pod("one", root, node="n1", phase="Failed", exit_code=1))
    other = job("other", uid="other-uid")
    made.put("Job", other)
    made.put("Pod", pod("two", other, node="n1", phase="Running"))
    assert {each["status"]["phase"] for each in server.kept("SpotRun")} == {"stopped", "running"}
    assert made.recorder.problem == ""
    made.close()


def test_deleted_events_are_shown_until_the_end(tmp_path: Path, served: tuple[RecordServer, Kubernetes]) -> None:
    server, kubernetes = served

    def records() -> ApiRecords:
        return ApiRecords(kubernetes)

    cluster = Cluster(tmp_path / "unused", records())
    steps = list(looks_at_train(cluster))
    for step in steps[:3]:
        step()
    gone = next(each["metadata"]["name"] for each in server.kept("SpotAttempt") if each["spec"]["attempt"] == 1)
    server.take_away("SpotAttempt", gone)
    for _ in range(2):
        cluster.records = records()
        cluster.kill()
    (run,) = cluster.store.runs.values()
    run.tell(cluster.now)
    assert shown(server)["Recorded"] == ("False", "EventsDeleted")
    steps[3]()
    assert shown(server)["Recorded"] == ("False", "EventsDeleted")


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    one = Condition("Recorded", True, "Whole")
    first = conditions((), [one], 1_800_000_000.0)
    assert first[0]["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    assert conditions(first, [one], 1_800_000_100.0) == first
    changed = conditions(first, [one._replace(holds=False, reason="RecordingCut")], 1_800_000_100.0)
    assert changed[0]["lastTransitionTime"] == "2027-01-15T08:01:40Z"
