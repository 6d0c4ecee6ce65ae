"""Runs are recorded alike in a state folder and in the Kubernetes API; there they outlive writers that die or hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.folder_records import FolderRecords
from tests.cluster.reading.recorded import iris_workflow, looks_at_train, pod_of_step
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.watched_cluster import CONFIG, Cluster
from tests.cluster.watching.watched_objects import SPOT, done, job, node, pod

from spotwright import config as configuration
from spotwright.cluster.api_run_records import ApiRecords, ApiRun
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.run_objects import PAGE, records_path
from spotwright.cluster.run_records import RunRecords
from spotwright.cluster.run_store import RunStore
from spotwright.engine.events import NoteAdded
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError, StateError
from spotwright.manifests.pod_graph import PodTask
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[RecordServer, Kubernetes]]:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        yield server, kubernetes


Open = Callable[[], RunRecords]
"""The records as a process sees them that has just started."""


@pytest.fixture
def in_api(server: tuple[RecordServer, Kubernetes], tmp_path: Path) -> Open:
    return lambda: ApiRecords(server[1])


@pytest.fixture(params=["folder", "api"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "folder":
        return lambda: FolderRecords(StateFolder.open(tmp_path / "state"))
    found: Open = request.getfixturevalue("in_api")
    return found


def read(records: RunRecords, root: dict[str, Any]) -> RunState:
    record = records.of(root)
    return RunReader(record.folder, record.source()).state


def shown(state: RunState) -> dict[str, Any]:
    """A reader's knowledge of a run, without its recorder."""
    attempts = {
        (path, attempt.number): (
            attempt.node,
            attempt.pool,
            attempt.cause,
            attempt.ended_at,
            attempt.cause_why,
            attempt.then,
        )
        for path, task in state.tasks.items()
        for attempt in task.attempts
    }
    tasks = {path: (task.status, task.why) for path, task in state.tasks.items()}
    return {"status": state.status, "tasks": tasks, "attempts": attempts, "meta": state.meta, "notes": state.notes}


def test_a_run_is_the_same_wherever_it_is_recorded(tmp_path: Path, in_api: Open) -> None:
    folder = FolderRecords(StateFolder.open(tmp_path / "folder"))
    there = in_api()
    for records in (folder, there):
        cluster = Cluster(tmp_path / "unused", records)
        for step in looks_at_train(cluster):
            step()
        workflow = iris_workflow()
        cluster.look(workflow, pod_of_step(workflow, "p-load", "load", node="n3", phase="Succeeded", exit_code=0))
    for root in (job(), workflow):
        assert shown(read(there, root)) == shown(read(folder, root))
        assert shown(read(there, root))["attempts"]


def test_a_process_that_starts_goes_on_where_the_last_one_was_killed(tmp_path: Path, records: Open) -> None:
    whole = Cluster(tmp_path / "whole")
    for step in looks_at_train(whole):
        step()
    killed = Cluster(tmp_path / "unused", records())
    for step in looks_at_train(killed):
        killed.records = records()
        killed.kill()
        step()
    state = read(records(), job())
    assert shown(state)["attempts"] == shown(whole.state())["attempts"]
    assert state.epoch == 4
    assert list(RunStore(records(), configuration.from_mapping(CONFIG)).open_unfinished(0.0)) == []
    assert RunStore(records(), configuration.from_mapping(CONFIG)).has_ended(job())


@pytest.mark.parametrize("digits", ["same", "others"])
def test_another_workload_with_the_same_beginning_of_its_uid_has_a_run_of_its_own(
    tmp_path: Path, records: Open, digits: str
) -> None:
    uids = {"same": "11111111-2222-4333-8444-555555555555", "others": "11111111-9999-4333-8444-555555555555"}
    cluster = Cluster(tmp_path / "unused", records())
    first, second = (job("train", uid=uid) for uid in uids.values())
    cluster.look(first, pod("one", first, node="n1", phase="Running"))
    cluster.look(second, pod("two", second, node="n2", phase="Running"))
    root = first if digits == "same" else second
    assert [attempt.pod for task in read(records(), root).tasks.values() for attempt in task.attempts] == [
        "one" if digits == "same" else "two"
    ]


def test_facts_of_late_runs_are_found(tmp_path: Path, records: Open) -> None:
    cluster = Cluster(tmp_path / "unused", records())
    cluster.look(job(), pod("one", job(), node="n1", phase="Running"))
    found = [record.facts(("bound",), 0.0) for record in records().recent(0.0)]
    assert [(each.arguments["name"], [event.kind for event in each.events]) for each in found if each is not None] == [
        ("train", ["bound"])
    ]


def test_of_a_template_that_is_too_large_nothing_but_its_containers_is_recorded(tmp_path: Path, records: Open) -> None:
    cluster = Cluster(tmp_path / "unused", records())
    cluster.look(job(), pod("one", job(), node="n1", phase="Running"))
    (run,) = cluster.store.runs.values()
    tolerations = [{"key": f"key-{number}", "value": "x" * 60, "operator": "Equal"} for number in range(8_000)]
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}], "tolerations": tolerations}
    run.add_template(cluster.now, PodTask("Workflow", "large", spec))
    run.commit()
    assert run.record.size < 100_000
    assert "large" in read(records(), job()).plan.graph.root.tasks


# In the API


def test_objects_say_what_people_ask_of_them(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open
) -> None:
    cluster = Cluster(tmp_path / "unused", in_api())
    for step in looks_at_train(cluster):
        step()
    (run,) = server[0].kept("SpotRun")
    assert run["metadata"]["labels"] == {
        "spotwright.dev/workload": job()["metadata"]["uid"],
        "spotwright.dev/ended": "true",
    }
    status = {key: run["status"][key] for key in ("phase", "attempts", "interruptions", "errors")}
    assert status == {"phase": "succeeded", "attempts": 3, "interruptions": 1, "errors": 1}
    assert run["status"]["cost"].endswith(" USD")
    causes = {each["spec"]["attempt"]: each["status"].get("cause") for each in server[0].kept("SpotAttempt")}
    assert causes == {1: "lost", 2: "failed", 3: "succeeded"}
    owners = {each["metadata"]["ownerReferences"][0]["uid"] for each in server[0].kept("SpotAttempt")}
    assert owners == {run["metadata"]["uid"]}


@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize("is_heard", [False, True])
def test_nothing_is_lost_or_counted_twice_where_any_write_fails(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open, after: int, is_heard: bool
) -> None:
    whole = Cluster(tmp_path / "whole")
    for step in looks_at_train(whole):
        step()
    cluster = Cluster(tmp_path / "unused", in_api())
    writes = 0

    def refuse(_method: str, _path: str) -> int | None:
        nonlocal writes
        writes += 1
        server[0].is_blind = is_heard and writes > after
        return 500 if not is_heard and writes > after else None

    server[0].refuse = refuse
    for step in looks_at_train(cluster):
        try:
            step()
        except StateError:
            server[0].refuse, server[0].is_blind = lambda *_: None, False
            cluster.records = in_api()
            cluster.kill()
            step()
    assert shown(read(in_api(), job()))["attempts"] == shown(whole.state())["attempts"]
    numbers = [(each["spec"]["task"], each["spec"]["attempt"]) for each in server[0].kept("SpotAttempt")]
    assert len(numbers) == len(set(numbers)) == 3


def test_a_process_that_wakes_after_another_has_begun_changes_nothing(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open
) -> None:
    frozen = Cluster(tmp_path / "unused", in_api())
    root = job()
    frozen.look(root, pod("one", root, node="n1", phase="Running"))
    other = Cluster(tmp_path / "unused", in_api())
    before = shown(read(in_api(), root))
    (run,) = frozen.store.runs.values()
    run.add(NoteAdded(frozen.now, text="written late"))
    with pytest.raises(StateError, match="cannot be written"):
        run.commit()
    failed = pod("one", root, node="n1", phase="Failed", exit_code=1)
    assert shown(read(in_api(), root)) == before
    other.look(root, failed)
    assert "written late" not in read(in_api(), root).notes


def test_an_attempt_that_a_process_writes_late_does_not_count(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open
) -> None:
    """It is a separate object, which no other write has changed: the epoch shows it."""
    frozen = Cluster(tmp_path / "unused", in_api())
    root = job()
    frozen.look(root, pod("one", root, node="n1", phase="Running"))
    other = Cluster(tmp_path / "unused", in_api())
    failed = pod("one", root, node="n1", phase="Failed", exit_code=1)
    frozen.look(root, failed)  # writes the attempt, and nothing of the run
    state = read(in_api(), root)
    assert [attempt.ended_at for task in state.tasks.values() for attempt in task.attempts] == [None]
    with pytest.raises(StateError):
        other.look(root, failed)  # the object is another one than it knows
    other.records = in_api()
    other.kill()
    other.look(root, failed)
    (attempt,) = [attempt for task in read(in_api(), root).tasks.values() for attempt in task.attempts]
    assert attempt.ended_at is not None


def test_what_an_administrator_deletes_is_noted_and_the_rest_goes_on(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open
) -> None:
    cluster = Cluster(tmp_path / "unused", in_api())
    steps = looks_at_train(cluster)
    for _ in range(3):
        next(steps)()
    gone = next(each["metadata"]["name"] for each in server[0].kept("SpotAttempt") if each["spec"]["attempt"] == 1)
    server[0].take_away("SpotAttempt", gone)
    cluster.records = in_api()
    cluster.kill()
    (found,) = server[0].kept("SpotRun")
    assert found["absent"]
    state = read(in_api(), job())
    assert any("were deleted" in note for note in state.notes)


def test_a_run_whose_object_is_deleted_is_recorded_anew(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open
) -> None:
    cluster = Cluster(tmp_path / "unused", in_api())
    root = job()
    cluster.look(root, pod("one", root, node="n1", phase="Running"))
    (found,) = server[0].kept("SpotRun")
    server[0].take_away("SpotRun", found["metadata"]["name"])
    cluster.records = in_api()
    cluster.kill()
    cluster.look(root, pod("one", root, node="n1", phase="Running"))
    assert [attempt.pod for task in read(in_api(), root).tasks.values() for attempt in task.attempts] == ["one"]


def test_events_fill_further_pages_and_none_is_larger_than_its_limit(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open
) -> None:
    cluster = Cluster(tmp_path / "unused", in_api())
    root = job()
    cluster.look(root, pod("one", root, node="n1", phase="Running"))
    (run,) = cluster.store.runs.values()
    for number in range(10):
        for part in range(3):
            run.add(NoteAdded(cluster.now, text=f"{number}.{part} " + "x" * 5_000))
        run.commit()
    sizes = [sum(map(len, each["journal"])) for kind in ("SpotRun", "SpotTask") for each in server[0].kept(kind)]
    assert len(sizes) >= 4
    assert max(sizes) <= PAGE
    cluster.records = in_api()
    cluster.kill()
    (run,) = cluster.store.runs.values()
    run.add(NoteAdded(cluster.now, text="the last one"))
    run.commit()
    notes = read(in_api(), root).notes
    assert [note.split()[0] for note in notes[:-1]] == [f"{number}.{part}" for number in range(10) for part in range(3)]
    assert notes[-1] == "the last one"


def test_an_event_that_is_too_large_is_refused_with_its_size(tmp_path: Path, in_api: Open) -> None:
    cluster = Cluster(tmp_path / "unused", in_api())
    cluster.look(job(), pod("one", job(), node="n1", phase="Running"))
    (run,) = cluster.store.runs.values()
    run.add(NoteAdded(cluster.now, text="x" * 60_000))
    with pytest.raises(SpotwrightError, match=r"an event \(note of the run\) has 58.*Ki, and the limit is 48Ki"):
        run.commit()


def test_a_reader_follows_a_run_and_a_deleted_one_is_said_to_be_gone(
    tmp_path: Path, server: tuple[RecordServer, Kubernetes], in_api: Open
) -> None:
    cluster = Cluster(tmp_path / "unused", in_api())
    root = job()
    cluster.look(root, pod("one", root, node="n1", phase="Running"))
    (run,) = cluster.store.runs.values()
    reader = RunReader(RunFolder(Path(run.folder.name)), ApiRun(server[1].get, "team-a", run.folder.name))
    assert reader.refresh() == []
    cluster.view.put_node(node("n1", ready="Unknown", **SPOT))
    cluster.look({**root, "status": done()}, pod("one", root, node="n1", phase="Succeeded", exit_code=0))
    assert reader.refresh()
    assert reader.now is None
    server[0].take_away("SpotRun", run.folder.name)
    with pytest.raises(StateError, match="its SpotRun was deleted"):
        reader.refresh()


def test_the_end_of_a_log_that_is_written_beside_the_recorder_stays_and_costs_no_event(
    server: tuple[RecordServer, Kubernetes], tmp_path: Path, in_api: Open
) -> None:
    cluster = Cluster(tmp_path / "unused", in_api())
    tail = [{"op": "add", "path": "/status/logTail", "value": "step 1\n"}]
    for step in looks_at_train(cluster):
        step()
        for each in server[0].kept("SpotAttempt"):
            name = each["metadata"]["name"]
            server[1].call(server[1].api.send("PATCH", records_path("SpotAttempt", "team-a", name), tail))
    whole = Cluster(tmp_path / "whole")
    for step in looks_at_train(whole):
        step()
    state = read(in_api(), job())
    assert shown(state) == shown(whole.state())
    assert state.epoch == 1, "the record was never opened anew"
    kept = [each["status"] for each in server[0].kept("SpotAttempt")]
    assert [(each["phase"], each["logTail"]) for each in kept] == [("ended", "step 1\n")] * 3
