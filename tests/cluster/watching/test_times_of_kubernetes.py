"""A run and its attempts end when Kubernetes says so, however late the controller looks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, at, job, node, pod

from spotwright.cluster.workloads import attempts_of, outcome_of
from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def finished(kind: str, **status: Any) -> dict[str, Any]:
    """An object of a kind that has ended, with its status."""
    return {**job(), "kind": kind, "status": status}


def condition(kind: str, second: int) -> dict[str, Any]:
    return {"type": kind, "status": "True", "lastTransitionTime": at(second)}


ENDED = {
    "Job": finished(
        "Job", conditions=[condition("SuccessCriteriaMet", 4), condition("Complete", 5)], completionTime=at(5)
    ),
    "JobSet": finished("JobSet", conditions=[condition("Completed", 5)]),
    "TrainJob": finished("TrainJob", conditions=[condition("Failed", 5)]),
    "PyTorchJob": finished("PyTorchJob", conditions=[{"type": "Succeeded", "status": "True"}], completionTime=at(5)),
    "Workflow": finished("Workflow", phase="Succeeded", finishedAt=at(5)),
}


@pytest.mark.parametrize("kind", ENDED)
@pytest.mark.parametrize("was_away", [False, True])
def test_a_run_ends_when_its_object_says_so(cluster: Cluster, kind: str, was_away: bool) -> None:
    root = ENDED[kind]
    if not was_away:
        cluster.look({**root, "status": {}}, pod("one", root, made=0, node="n1", phase="Running"))
    cluster.now = BEGIN + 27.0
    cluster.look(root, pod("one", root, made=0, node="n1", phase="Succeeded", exit_code=0, ended=4))
    state = cluster.state()
    assert (state.started_at, state.finished_at) == (BEGIN, BEGIN + 5)


def test_a_run_does_not_end_before_its_last_pod(cluster: Cluster) -> None:
    root = ENDED["JobSet"]
    cluster.look(root, pod("one", root, made=0, node="n1", phase="Succeeded", exit_code=0, ended=9))
    assert cluster.state().finished_at == BEGIN + 9


def test_an_object_that_does_not_say_when_it_ended_has_ended_with_its_last_pod(cluster: Cluster) -> None:
    root = finished("Job", conditions=[{"type": "Complete", "status": "True"}])
    cluster.look(root, pod("one", root, made=0, node="n1", phase="Succeeded", exit_code=0, ended=9))
    assert cluster.state().finished_at == BEGIN + 9


def test_a_pod_that_is_its_own_run_ends_with_its_last_container() -> None:
    alone = pod("one", node="n1", phase="Failed", exit_code=1, ended=7)
    sidecar = {"name": "log", "state": {"terminated": {"exitCode": 0, "finishedAt": at(9)}}}
    alone["status"]["containerStatuses"].append(sidecar)
    outcome = outcome_of(alone)
    assert outcome is not None
    assert outcome.at == BEGIN + 9


def ended_within(attempt: AttemptState) -> tuple[float | None, float | None]:
    """The range of an unreported end."""
    assert attempt.ended is not None
    return attempt.ended_at, attempt.ended.ended_by


def test_an_attempt_on_a_lost_node_ended_before_the_node_was_found_silent_and_overlaps_nobody(cluster: Cluster) -> None:
    train = job(backoffLimit=3)
    running = pod("one", train, made=0, node="n1", phase="Running")
    cluster.look(train, running)
    silent = node("n1", ready="Unknown", **SPOT)
    silent["status"]["conditions"][0]["lastTransitionTime"] = at(95)
    cluster.view.put_node(silent)
    second = pod("two", train, made=100, node="n2", phase="Running")
    cluster.now = BEGIN + 150.0
    cluster.look(train, running, second)
    cut = pod("one", train, made=0, node="n1", phase="Running", deletionTimestamp=at(128))
    cluster.look(train, cut, second, gone=("one",))
    first, last = cluster.state().tasks["train"].attempts
    assert (first.cause, last.placed_at) == (Cause.LOST, BEGIN + 100)
    assert ended_within(first) == (BEGIN + 1, BEGIN + 95)
    assert first.following == "the next attempt is attempt 2"


def test_a_pod_that_is_gone_ended_before_its_grace_period_was_over(cluster: Cluster) -> None:
    train = job(backoffLimit=3)
    cluster.look(train, pod("one", train, made=0, node="n1", phase="Running"))
    cluster.look(train, pod("one", train, made=0, node="n1", phase="Running", deletionTimestamp=at(40)), gone=("one",))
    assert cluster.state().tasks["train"].last.ended_at == BEGIN + 40


def test_an_attempt_that_vanished_while_nobody_looked_ended_before_the_next_one_began(cluster: Cluster) -> None:
    train = job(backoffLimit=3)
    cluster.look(train, pod("one", train, made=0, node="n1", phase="Running"))
    cluster.kill()
    cluster.look(train, pod("two", train, made=60, node="n2", phase="Running"))
    first, _ = cluster.state().tasks["train"].attempts
    assert (ended_within(first), first.following) == ((BEGIN + 1, BEGIN + 60), "the next attempt is attempt 2")
    assert len(cluster.state().notes) == 1


def test_an_attempt_that_goes_on_beside_its_successor_is_said_to(cluster: Cluster) -> None:
    train = job(backoffLimit=3)
    cluster.look(train, pod("one", train, made=0, node="n1", phase="Running"))
    second = pod("two", train, made=20, node="n2", phase="Running")
    cluster.look(train, pod("one", train, made=0, node="n1", phase="Running"), second)
    cluster.look(train, pod("one", train, made=0, node="n1", phase="Failed", exit_code=143, ended=40), second)
    first, _ = cluster.state().tasks["train"].attempts
    assert first.following == "the next attempt was created before it ended"


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(30)}]},
        {"startTime": at(30)},
        {"initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 4, "finishedAt": at(30)}}}]},
    ],
)
def test_a_pod_without_an_end_of_its_main_container_tells_its_end_otherwise(status: dict[str, Any]) -> None:
    unknown = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
    evicted = pod("one", node="n1", phase="Failed")
    evicted["status"] = {"phase": "Failed", "reason": "Evicted", "containerStatuses": [unknown], **status}
    (attempt,) = attempts_of(evicted)
    assert attempt.ended_at == BEGIN + 30


@given(
    made=st.integers(-100, 200), bound=st.integers(-100, 200), ended=st.integers(-100, 200), over=st.integers(-100, 200)
)
def test_whatever_clocks_say_nothing_is_before_the_start_or_in_the_future(
    tmp_path_factory: pytest.TempPathFactory, made: int, bound: int, ended: int, over: int
) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("clocks") / "state")
    cluster.now = BEGIN + 100.0
    train = job(status={"conditions": [{**condition("Complete", 0), "lastTransitionTime": moment(over)}]})
    one = pod("one", train, node="n1", phase="Succeeded", exit_code=0)
    one["metadata"]["creationTimestamp"] = moment(made)
    one["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(bound)}]
    one["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = moment(ended)
    cluster.look(train, one)
    state = cluster.state()
    attempt = state.tasks["train"].last
    times = [state.started_at, attempt.placed_at, attempt.bound_at, attempt.ended_at, state.finished_at, cluster.now]
    cluster.store.close()
    known = [each for each in times if each is not None]
    assert len(known) == len(times)
    assert known == sorted(known)


def moment(seconds: int) -> str:
    """So many seconds after the begin, or before it."""
    hour, rest = divmod(seconds + 3600, 3600)
    return f"2027-01-15T{7 + hour:02}:{rest // 60:02}:{rest % 60:02}Z"
