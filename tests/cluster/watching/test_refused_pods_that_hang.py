"""A refused pod that does not start is shown with a remedy: its workload does not end before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import job, pod

TRAIN = job(backoffLimit=3)
MARKS = {
    "spotwright.dev/refused": "true",
    "spotwright.dev/attempt": "2",
    "spotwright.dev/why": "no retry is left (errors.retries is 0) (attempt 1)",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def held_up(reason: str, message: str) -> dict[str, Any]:
    """The refused pod, whose container waits on its node."""
    made = pod("second", TRAIN, made=60, node="n1", annotations=MARKS)
    waiting = {"reason": reason, "message": message}
    made["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": {"waiting": waiting}}]
    return made


def test_an_image_that_cannot_be_pulled_is_said_once_with_the_option_that_names_another(cluster: Cluster) -> None:
    first = pod("first", TRAIN, node="n1", phase="Failed", exit_code=1)
    for reason, message in (
        ("ErrImagePull", "failed to pull image busybox:1: no route to host"),
        ("ImagePullBackOff", "Back-off pulling image busybox:1"),
        ("ErrImagePull", "failed to pull image busybox:1: timeout"),
    ):
        cluster.look(TRAIN, first, held_up(reason, message))
    _, note = [each for each in cluster.state().notes if "refus" in each]
    begin = "the pod that shows this refusal of train does not start: ImagePullBackOff: failed to pull image busybox:1"
    assert note.startswith(begin)
    assert note.endswith("start the controller with an image that the nodes can pull (--refusal-image)")


def test_another_obstacle_is_said_in_kubernetes_words(cluster: Cluster) -> None:
    words = "container has runAsNonRoot and image will run as root"
    cluster.look(TRAIN, held_up("CreateContainerConfigError", words))
    note = cluster.state().notes[-1]
    assert note.endswith(f"does not start: CreateContainerConfigError: {words}")


def test_a_refused_pod_that_starts_is_no_news(cluster: Cluster) -> None:
    cluster.look(TRAIN, held_up("ContainerCreating", ""))
    assert [each for each in cluster.state().notes if "does not start" in each] == []
