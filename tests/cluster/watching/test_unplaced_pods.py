"""A pod without a review is named in its run, counted, and reported by an Event, at most one a minute and namespace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, job, pod

from spotwright.cluster.admit_unplaced import why_unplaced
from spotwright.cluster.controller_events import Unplaced
from spotwright.cluster.observer import PodReconciler
from spotwright.cluster.unavailable_pools import Tally
from spotwright.cluster.view import SeenPod
from spotwright.config import from_mapping
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

POLICY, ATTEMPT, LABEL = "spotwright.dev/policy", "spotwright.dev/attempt", "spotwright.dev/spot"


def a_pod(name: str, *, annotations: dict[str, str], namespace: str = "a", **labels: str) -> dict[str, Any]:
    made = pod(name, job("train", uid="uid-train"), node="n1", phase="Running")
    meta = made["metadata"]
    more = {"namespace": namespace, "annotations": annotations, "labels": {**(meta.get("labels") or {}), **labels}}
    return {**made, "metadata": {**meta, **more, "uid": f"uid-{namespace}-{name}"}}


def test_a_pod_without_a_review_is_named_in_its_run_and_the_next_one_is_not(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    first = a_pod("train-1", annotations={POLICY: "{}"})
    cluster.look(job("train", uid="uid-train"), first)
    cluster.look(job("train", uid="uid-train"), first, a_pod("train-2", annotations={POLICY: "{}", ATTEMPT: "2"}))
    (note,) = [note for note in cluster.state().notes if "unplaced" in note]
    assert note == (
        "pod train-1 started unplaced: its admission review timed out or failed; its next attempt will be placed"
    )


def test_of_very_many_pods_the_first_are_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.look(job("train", uid="uid-train"), *(a_pod(f"p{n}", annotations={POLICY: "{}"}) for n in range(80)))
    assert len([note for note in cluster.state().notes if "unplaced" in note]) == 50


@pytest.mark.parametrize(
    ("annotations", "labels", "said"),
    [
        ({POLICY: "{}"}, {}, "its next attempt will be placed"),
        ({}, {LABEL: "prefer"}, "its next attempt will be placed, with the owner's own retries"),
        ({POLICY: "{}", ATTEMPT: "1"}, {LABEL: "prefer"}, ""),
        ({}, {}, ""),
    ],
)
def test_what_is_said_of_a_pod(annotations: dict[str, str], labels: dict[str, str], said: str) -> None:
    made = a_pod("one", annotations=annotations, **labels)
    why = why_unplaced(made)
    assert said in why
    assert bool(why) is bool(said)


@pytest.mark.parametrize(
    ("references", "said"),
    [
        ([], "create it again to have it placed"),
        (
            [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}],
            "create the owner again",
        ),
    ],
)
def test_what_is_said_of_a_pod_that_no_run_makes(references: list[dict[str, Any]], said: str) -> None:
    made = a_pod("one", annotations={}, **{LABEL: "prefer"})
    made["metadata"]["ownerReferences"] = references
    assert said in why_unplaced(made)


DEFAULT = {
    "pools": {
        "spot": {"capacity": "spot", "provider": "aks"},
        "regular": {"capacity": "on-demand", "provider": "aks"},
    },
    "policy": {"default": {"spot": "prefer"}},
}


def a_whole_job(**annotations: str) -> dict[str, Any]:
    container = {"name": "main", "image": "train:1"}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    made = job("train", uid="uid-train")
    metadata = {**made["metadata"], "annotations": annotations}
    return {**made, "apiVersion": "batch/v1", "metadata": metadata, "spec": {**made["spec"], "template": template}}


def a_bare_pod(name: str) -> dict[str, Any]:
    """A pod of a Job that was created while the webhook was down, in a namespace with a default policy."""
    made = a_pod(name, annotations={})
    reference = {**made["metadata"]["ownerReferences"][0], "apiVersion": "batch/v1"}
    spec = {**made["spec"], "containers": [{"name": "main", "image": "train:1"}], "restartPolicy": "Never"}
    return {**made, "apiVersion": "v1", "metadata": {**made["metadata"], "ownerReferences": [reference]}, "spec": spec}


def notes_with_a_default(folder: Path, owner: dict[str, Any], *pods: dict[str, Any], spot: str = "prefer") -> list[str]:
    """The notes about unplaced pods in the run of an object, of a namespace whose default policy says this of spot."""
    cluster = Cluster(folder)
    config = from_mapping({**DEFAULT, "policy": {"default": {"spot": spot} if spot else {}}})
    run = cluster.store.create(owner, (), (), cluster.now)
    for made in pods:
        PodReconciler(run, cluster.view, cluster.now, config=config).record(
            [SeenPod(made, (owner,))], owner, are_all=False
        )
    run.commit()
    written, tally = Written(), Tally()
    unplaced = Unplaced(written, lambda: BEGIN + 10.0, tally)  # type: ignore[arg-type]
    for made in pods:
        unplaced.look(run, SeenPod(made, (owner,)), False)
    notes = [note for note in cluster.state().notes if "unplaced" in note]
    assert tally.unplaced == len(notes)
    cluster.store.close()
    return notes


def test_the_first_pod_that_the_default_policy_alone_would_have_placed_is_named(tmp_path: Path) -> None:
    pods = [a_bare_pod(f"train-{number}") for number in range(3)]
    (note,) = notes_with_a_default(tmp_path, a_whole_job(), *pods)
    assert note.startswith(
        "pod train-0 started unplaced: its admission review timed out or failed, and so did its owner"
    )
    assert note.endswith("the owner's next pods will be placed, with the owner's own retries")


def test_a_pod_that_no_policy_would_have_changed_is_not_named(tmp_path: Path) -> None:
    assert notes_with_a_default(tmp_path, a_whole_job(), a_bare_pod("train-0"), spot="") == []


@pytest.mark.parametrize("annotations", [{"spotwright.dev/ignore": "true"}, {"spotwright.dev/admitted": "{}"}])
def test_a_pod_of_an_object_that_is_left_alone_or_was_placed_is_not_named(
    annotations: dict[str, str], tmp_path: Path
) -> None:
    assert notes_with_a_default(tmp_path, a_whole_job(**annotations), a_bare_pod("train-0")) == []


class Written:
    """Takes Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    async def write(self, about: dict[str, Any], reason: str, message: str, *, is_warning: bool) -> None:
        assert is_warning
        self.events.append((about["metadata"]["namespace"], reason, message))


def test_events_are_written_at_most_once_a_minute_and_namespace() -> None:
    written, tally, now = Written(), Tally(), BEGIN + 10.0

    async def turn(unplaced: Unplaced) -> None:
        task = asyncio.create_task(unplaced.tell())
        await asyncio.sleep(0.01)
        task.cancel()

    async def scenario() -> None:
        nonlocal now
        unplaced = Unplaced(written, lambda: now, tally)  # type: ignore[arg-type]
        for number in range(3):
            for namespace in ("a", "b"):
                made = a_pod(f"p{number}", annotations={POLICY: "{}"}, namespace=namespace)
                for _ in range(2):  # it is looked at again and again
                    unplaced.look(None, SeenPod(made, ()), False)  # type: ignore[arg-type]
        await turn(unplaced)
        assert [event[0] for event in written.events] == ["a", "b"]
        assert "pod p0, and 2 more started unplaced: its admission review timed out" in written.events[0][2]
        unplaced.look(None, SeenPod(a_pod("p9", annotations={POLICY: "{}"}), ()), False)  # type: ignore[arg-type]
        now += 59.0
        await turn(unplaced)
        assert len(written.events) == 2
        now += 2.0
        await turn(unplaced)
        assert written.events[2][1:] == (
            "StartedUnplaced",
            "pod p9 started unplaced: its admission review timed out or failed; its next attempt will be placed",
        )
        now += 3600.0
        unplaced.look(None, SeenPod(a_pod("old", annotations={POLICY: "{}"}), ()), False)  # type: ignore[arg-type]
        await turn(unplaced)
        assert len(written.events) == 3, "what was made an hour ago is no news"

    asyncio.run(scenario())
    assert tally.unplaced == 7


def test_a_watcher_names_it(tmp_path: Path) -> None:
    async def test(day: Day) -> None:
        day.put(JOBS, job("train", uid="uid-train"))
        day.put(PODS, a_pod("train-1", annotations={POLICY: "{}"}))
        await day.start()
        await day.until(lambda: day.is_recorded("train"), "the attempt")
        assert any("pod train-1 started unplaced" in note for note in day.runs()["train"].notes)

    day(tmp_path / "state", test)


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed"])
def test_a_bare_pod_that_was_made_while_the_controller_was_away_is_recorded_when_it_is_back(
    tmp_path: Path, phase: str
) -> None:
    made = SilentWatcher(tmp_path / "state")
    code = {"Succeeded": 0, "Failed": 1}.get(phase)
    one = pod("bare", None, node="n1", phase=phase, exit_code=code, labels={"spotwright.dev/spot": "prefer"})
    made.put("Pod", one)
    made.put("Pod", pod("system", None, node="n1", phase=phase, exit_code=code))
    made.pass_time(1)
    made.close()
    (folder,) = StateFolder.existing(tmp_path / "state").runs()
    state = RunReader(folder, lambda _: False).state
    assert state.meta.pipeline == "Pod team-a/bare"
    assert state.status.value == {"Succeeded": "succeeded", "Failed": "failed"}.get(phase, "running")
    assert state.tasks["bare"].last.node == "n1"
    assert any("started unplaced" in note for note in state.notes)
