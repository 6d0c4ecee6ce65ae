"""Times and costs of attempts end with their node, and a machine that comes back by the same name is another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, job, node, pod

from spotwright.records.reader import RunReader
from spotwright.views.run_json import run_view

TRAIN = job(backoffLimit=3)


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def attempts(cluster: Cluster, seconds_later: float) -> list[dict[str, Any]]:
    """The attempts of the run as ``show`` has them so many seconds after the last look."""
    state = RunReader(cluster._run_folder(), lambda _: False).state
    found: list[dict[str, Any]] = run_view(state, "train", cluster.now + seconds_later)["tasks"][0]["attempts"]
    return found


def run_on_a_node_that_goes(cluster: Cluster) -> dict[str, Any]:
    """An attempt runs on n1 for 100 s; then the Node object is deleted, and its pod stays. Returns the pod."""
    running = pod("one", TRAIN, node="n1", phase="Running")
    cluster.now = BEGIN + 20.0
    cluster.look(TRAIN, running)
    cluster.now = attempts(cluster, 0.0)[0]["bound_at"] + 100.0
    cluster.view.delete_node(node("n1", **SPOT))
    cluster.look(TRAIN, running)
    return running


def test_an_attempt_takes_no_time_on_a_node_that_is_gone(cluster: Cluster) -> None:
    run_on_a_node_that_goes(cluster)
    for seconds_later in (0.0, 600.0):
        (attempt,) = attempts(cluster, seconds_later)
        assert (attempt["status"], attempt["seconds"]) == ("running", 100.0)
        assert attempt["cost"] == {"seconds": 50.0, "money": pytest.approx(50 / 3600)}  # half of the node


def test_a_node_that_comes_back_by_its_name_is_paid_for_again(cluster: Cluster) -> None:
    running = run_on_a_node_that_goes(cluster)
    cluster.view.put_node(node("n1", **SPOT))
    cluster.now += 50.0
    cluster.look(TRAIN, running, pod("two", TRAIN, made=200, node="n1", phase="Running"), gone=("one",))
    first, second = attempts(cluster, 30.0)
    until = cluster.now + 30.0
    assert (first["seconds"], second["seconds"]) == (100.0, pytest.approx(until - second["bound_at"]))
    assert second["cost"]["seconds"] == pytest.approx(second["seconds"] / 2)
    state = RunReader(cluster._run_folder(), lambda _: False).state
    assert [each["state"] for each in run_view(state, "train", until)["nodes"]] == ["gone", "ready"]
