"""A pod that has a node and does not start there waits, costs nothing, and `show` gives the kubelet's reason."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, at, job, pod

from spotwright.cluster import pod_starts
from spotwright.cluster.api_client import ApiFailed
from spotwright.cluster.pod_starts import PodStarts
from spotwright.cluster.signals import PodWaits, started_at
from spotwright.cluster.view import ClusterView
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def held_up(train: dict[str, Any], reason: str = "ContainerCreating", name: str = "one") -> dict[str, Any]:
    waiting = pod(name, train, made=0, node="n1")
    state = {"waiting": {"reason": reason, "message": "as the kubelet says"}}
    waiting["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": state}]
    return waiting


def running(train: dict[str, Any], since: float, name: str = "one") -> dict[str, Any]:
    begun = pod(name, train, made=0, node="n1", phase="Running")
    begun["status"]["containerStatuses"][0]["state"] = {"running": {"startedAt": at(since)}}
    return begun


def ended(train: dict[str, Any], since: float, until: float) -> dict[str, Any]:
    over = pod("one", train, made=0, node="n1", phase="Succeeded", exit_code=0, ended=until)
    over["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"] = at(since)
    return over


def task_of(cluster: Cluster) -> dict[str, Any]:
    (task,) = run_view(cluster.state(), "the-run", cluster.now)["tasks"]
    return dict(task)


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "InvalidImageName"]
)
def test_a_pod_whose_image_or_configuration_is_missing_waits_and_costs_nothing(cluster: Cluster, reason: str) -> None:
    train = job()
    cluster.now = BEGIN + 1000.0
    cluster.look(train, held_up(train, reason))
    task = task_of(cluster)
    (attempt,) = task["attempts"]
    assert (task["status"], attempt["status"], attempt["node"]) == ("pending", "pending", "n1")
    assert (task["waits_for"]["kind"], attempt["seconds"], attempt["cost"]["money"]) == ("start", 0.0, 0)
    text = " ".join(show_text(run_view(cluster.state(), "the-run", cluster.now)).split())
    assert f"train has a node and does not start: {reason.replace('ErrImagePull', 'ImagePullBackOff')}" in text


def test_a_pod_that_starts_after_a_while_is_charged_from_its_start(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, held_up(train, "ErrImagePull"))
    cluster.look(train, running(train, 500))
    assert task_of(cluster)["status"] == "running"
    cluster.kill()
    cluster.look(train, ended(train, 500, 560))
    (attempt,) = task_of(cluster)["attempts"]
    assert attempt["seconds"] == 60.0


def test_a_pod_that_starts_and_ends_between_two_looks_is_charged_from_its_start(cluster: Cluster) -> None:
    train = job()
    cluster.now = BEGIN + 100.0
    cluster.look(train, held_up(train, "ErrImagePull"))
    cluster.now = BEGIN + 600.0
    cluster.look(train, ended(train, 500, 560))
    (attempt,) = task_of(cluster)["attempts"]
    assert (attempt["seconds"], attempt["cause"]) == (60.0, "succeeded")


def test_a_pod_that_never_started_has_cost_nothing(cluster: Cluster) -> None:
    train = job()
    waiting = held_up(train, "ImagePullBackOff")
    cluster.view.put_pod(waiting)
    cluster.look(train, waiting)
    cluster.look(train, {**waiting, "metadata": {**waiting["metadata"], "deletionTimestamp": at(900)}}, gone=("one",))
    (attempt,) = task_of(cluster)["attempts"]
    assert (attempt["cause"], attempt["seconds"], attempt["cost"]["money"]) == ("start-up", 0.0, 0)


def test_an_image_that_is_being_pulled_uses_the_node(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, held_up(train))
    cluster.look(train, ended(train, 100, 160))
    (attempt,) = task_of(cluster)["attempts"]
    assert attempt["seconds"] == 159.0


def test_what_was_in_the_way_is_over_only_once_the_pod_has_started(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, held_up(train, "CreateContainerConfigError"))
    cluster.look(train, held_up(train))
    assert task_of(cluster)["status"] == "pending"


# What stands in events alone

MISSING = 'MountVolume.SetUp failed for volume "data" : configmap "data" not found'


def event(reason: str, message: str, kind: str = "Warning", second: float = 20) -> dict[str, Any]:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": at(second)}


class Api:
    """An API server that has the events of pods, or refuses them."""

    def __init__(self, *events: dict[str, Any], status: int = 0) -> None:
        self.events, self.status, self.asked = list(events), status, 0
        self.time = BEGIN + 100.0

    def now(self) -> float:
        return self.time

    async def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        self.asked += 1
        assert path == "/api/v1/namespaces/team-a/events"
        assert "involvedObject.uid=uid-one" in query["fieldSelector"]
        if self.status:
            raise ApiFailed("events is forbidden", self.status)
        return {"items": self.events}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_starts, "_ROUND", 0.01)


def heard(api: Api, view: ClusterView) -> list[str]:
    """The pods that are looked at again in some rounds."""
    found: list[str] = []

    async def some_rounds() -> None:
        rounds = asyncio.create_task(PodStarts(api, view).run(found.extend))  # type: ignore[arg-type]
        await asyncio.sleep(0.2)
        rounds.cancel()

    asyncio.run(some_rounds())
    return found


@pytest.mark.usefixtures("fast")
def test_a_volume_that_cannot_be_mounted_holds_a_pod_up_until_it_starts(cluster: Cluster) -> None:
    train = job()
    view = cluster.view
    view.put_pod(held_up(train))
    api = Api(event("Scheduled", "assigned", "Normal", 1), event("FailedMount", MISSING))
    assert heard(api, view) == ["uid-one"]
    assert api.asked == 1
    cluster.look(train, held_up(train))
    assert task_of(cluster)["waits_for"]["text"] == f"has a node and does not start: FailedMount: {MISSING}"
    view.put_pod(running(train, 500))
    cluster.look(train, running(train, 500))
    cluster.look(train, ended(train, 500, 560))
    (attempt,) = task_of(cluster)["attempts"]
    assert attempt["seconds"] == 60.0


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    "api",
    [
        Api(),
        Api(event("FailedMount", MISSING, second=10), event("Pulling", "", "Normal", 20)),
        Api(status=403),
        Api(status=500),
    ],
)
def test_where_no_event_says_so_nothing_holds_a_pod_up(api: Api) -> None:
    view = ClusterView()
    view.put_pod(held_up(job()))
    assert heard(api, view) == []
    assert api.asked == 1


@pytest.mark.usefixtures("fast")
def test_nobody_asks_about_pods_that_have_just_come_or_have_started_or_say_it_themselves() -> None:
    api, view, train = Api(), ClusterView(), job()
    api.time = BEGIN + 5.0
    view.put_pod(held_up(train))
    view.put_pod(held_up(train, "ErrImagePull", "two"))
    view.put_pod(running(train, 3, "three"))
    view.put_pod(pod("four", train))
    assert [each["metadata"]["name"] for each in view.starting] == ["one", "two"]
    heard(api, view)
    assert api.asked == 0
    view.delete_pod(held_up(train))
    assert not view.hold_up(held_up(train), PodWaits("FailedMount"))


def test_a_pod_has_started_with_its_first_container() -> None:
    two = running(job(), 9)
    two["status"]["containerStatuses"].append({"name": "b", "state": {"terminated": {"startedAt": at(7)}}})
    assert started_at(two) == BEGIN + 7
    assert started_at(held_up(job())) is None
    assert started_at({"status": {"containerStatuses": [3, None]}}) is None
