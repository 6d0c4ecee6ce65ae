"""The watcher records every attempt once, in order, whenever it is killed and whatever it did not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, SPOT, at, done, job, node, pod

from spotwright.engine.events import Event
from spotwright.errors import Fenced
from spotwright.model.attempts import Cause
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def story(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """A Job whose first attempt loses its spot node, whose second fails, and whose third succeeds; one step after the other."""
    train = job(backoffLimit=3)
    first = pod("one", train)
    yield lambda: cluster.look(train, first)
    yield lambda: cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cut = pod("one", train, node="n1", phase="Running", deletionTimestamp="2027-01-15T08:00:40Z")

    def lose() -> None:
        cluster.view.put_node(node("n1", ready="Unknown", **SPOT))
        cluster.look(train, cut)

    yield lose
    second = pod("two", train, made=50, node="n2", phase="Failed", exit_code=1)
    yield lambda: cluster.look(train, cut, second)
    third = pod("three", train, made=70, node="n3", phase="Running")
    yield lambda: cluster.look(train, second, third)
    ended = pod("three", train, made=70, node="n3", phase="Succeeded", exit_code=0)
    yield lambda: cluster.look(train, second, ended)
    yield lambda: cluster.look(job(backoffLimit=3, status=done()), second, ended)


def test_every_attempt_of_a_job_is_shown_with_pool_node_cause_and_what_followed(cluster: Cluster) -> None:
    for step in story(cluster):
        step()
    state = cluster.state()
    attempts = state.tasks["train"].attempts
    assert [(a.node, a.pool, a.cause) for a in attempts] == [
        ("n1", "gpu-spot", Cause.LOST),
        ("n2", "gpu-spot", Cause.FAILED),
        ("n3", "gpu", Cause.SUCCEEDED),
    ]
    assert (state.status.value, state.tasks["train"].spent.errors) == ("succeeded", 1)
    text = show_text(run_view(state, "train"))
    assert "train attempt 1 on n1 was lost" in text
    assert "retry 1 of 3" in text


def test_a_watcher_that_is_killed_after_any_step_writes_what_an_undisturbed_one_writes(tmp_path: Path) -> None:
    undisturbed = Cluster(tmp_path / "undisturbed")
    for step in story(undisturbed):
        step()
    expected = undisturbed.events()
    steps = 7
    for killed_after in range(steps):
        cluster = Cluster(tmp_path / str(killed_after))
        for number, step in enumerate(story(cluster)):
            step()
            if number == killed_after:
                cluster.kill()
                step()  # what it sees when it looks again
        assert [without_times(event) for event in cluster.events()] == [without_times(event) for event in expected]
        cluster.store.close()


def without_times(event: Event) -> tuple[str, str, int]:
    return event.kind, event.task, event.attempt


def test_a_look_that_finds_nothing_new_writes_nothing(cluster: Cluster) -> None:
    for step in story(cluster):
        step()
        before = len(cluster.events())
        step()
        assert len(cluster.events()) == before


def test_a_watcher_that_lost_its_lease_writes_nothing_more(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    before = cluster.events()

    def is_lost() -> None:
        raise Fenced("lost")

    cluster.store.runs["job-uid"].require = is_lost
    with pytest.raises(Fenced):
        cluster.look(train, pod("one", train, node="n1", phase="Succeeded", exit_code=0))
    assert cluster.events() == before


def test_attempts_that_ended_while_nobody_looked_are_found_with_their_times(cluster: Cluster) -> None:
    train = job(status=done())
    cluster.look(train, pod("one", train, made=5, node="n2", phase="Succeeded", exit_code=0, ended=30))
    (attempt,) = cluster.state().tasks["train"].attempts
    assert (attempt.placed_at, attempt.bound_at, attempt.ended_at) == (BEGIN + 5, BEGIN + 6, BEGIN + 30)
    assert cluster.state().finished_at is not None


def test_a_pod_that_vanished_while_nobody_looked_is_lost_and_the_run_says_so(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.kill()
    cluster.look(train)
    (attempt,) = cluster.state().tasks["train"].attempts
    assert attempt.cause is Cause.LOST
    assert "Kubernetes no longer has its pod" in cluster.state().notes[0]


def test_a_job_deleted_while_nobody_looked_ends_its_run(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.look(train, deleted=True)
    state = cluster.state()
    assert (state.status.value, state.tasks["train"].status.value) == ("cancelled", "cancelled")


def test_the_next_attempt_may_begin_before_the_last_has_ended(cluster: Cluster) -> None:
    train = job()
    stopping = pod("one", train, node="n1", phase="Running", deletionTimestamp="2027-01-15T08:00:20Z")
    second = pod("two", train, made=21, node="n2", phase="Running")
    cluster.look(train, stopping, second)
    assert [attempt.is_live for attempt in cluster.state().tasks["train"].attempts] == [True, True]
    cluster.look(train, stopping, second, gone=("one",))
    task = cluster.state().tasks["train"]
    assert [attempt.cause for attempt in task.attempts] == [Cause.DISRUPTED, None]
    assert (task.status.value, task.spent.moves) == ("running", 1)


def test_a_container_that_was_started_again_in_its_pod_is_a_new_attempt(cluster: Cluster) -> None:
    train = job()
    again = pod("one", train, node="n1", phase="Running")
    again["status"]["containerStatuses"][0] |= {
        "restartCount": 2,
        "lastState": {"terminated": {"exitCode": 3, "finishedAt": "2027-01-15T08:00:30Z", "reason": "Error"}},
    }
    cluster.look(train, again)
    attempts = cluster.state().tasks["train"].attempts
    assert [attempt.cause for attempt in attempts] == [Cause.LOST, Cause.FAILED, None]  # of the first nothing is known


def test_a_clock_that_is_ahead_puts_nothing_into_the_future(cluster: Cluster) -> None:
    train = job()
    cluster.now = BEGIN + 10.0
    cluster.look(train, pod("one", train, made=100, node="n1", phase="Succeeded", exit_code=0, ended=50))
    (attempt,) = cluster.state().tasks["train"].attempts
    assert attempt.bound_at is not None
    assert attempt.ended_at is not None
    assert attempt.placed_at <= attempt.bound_at <= attempt.ended_at <= cluster.now


def test_a_node_of_no_configured_pool_has_the_name_of_its_providers_pool(cluster: Cluster) -> None:
    cluster.view.put_node(
        node("n9", **{"eks.amazonaws.com/nodegroup": "Large", "eks.amazonaws.com/capacityType": "SPOT"})
    )
    train = job()
    cluster.look(train, pod("one", train, node="n9", phase="Running"))
    state = cluster.state()
    assert state.tasks["train"].last.pool == "large"
    (note,) = state.notes
    assert "node n9 matches no configured pool by its labels: it counts as pool large" in note
    assert state.plan.config.pools["large"].is_spot


def test_alike_pods_of_a_parallel_job_are_tasks_of_their_own(cluster: Cluster) -> None:
    train = job(parallelism=2, completions=3)
    pods = [
        pod("a", train, node="n1", phase="Succeeded", exit_code=0),
        pod("b", train, made=2, node="n2", phase="Running"),
    ]
    cluster.look(train, *pods)
    cluster.look(train, *pods, pod("c", train, made=30, node="n1", phase="Running"))
    assert {path: len(task.attempts) for path, task in cluster.state().tasks.items()} == {
        "train-0": 1,
        "train-1": 1,
        "train-2": 1,
    }


def test_a_pod_with_a_policy_is_a_run_of_its_own(cluster: Cluster) -> None:
    alone = pod("alone", node="n1", phase="Succeeded", exit_code=0, annotations={"spotwright.dev/policy": "{}"})
    cluster.look(alone, alone)
    state = cluster.state()
    assert (state.status.value, state.tasks["alone"].last.cause) == ("succeeded", Cause.SUCCEEDED)


def test_a_workload_that_fits_no_pool_is_recorded_all_the_same(cluster: Cluster) -> None:
    train = job()
    train["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "huge"}
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    assert cluster.state().tasks["train"].last.node == "n1"


def test_what_the_configuration_does_not_say_about_a_node_is_taken_from_the_node(cluster: Cluster) -> None:
    train = job()
    requests = {"cpu": "500m", "memory": "3Gi"}
    train["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": requests}
    made = node("n1", **SPOT)  # its pool's configuration has its CPUs alone
    made["status"]["allocatable"] = {"cpu": "64", "memory": "4Gi", "pods": "110", "example.com/odd": "x"}
    cluster.view.put_node(made)
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.look(train, pod("one", train, node="n1", phase="Succeeded", exit_code=0, ended=100))
    (task,) = run_view(cluster.state(), "the-run")["tasks"]
    assert task["attempts"][0]["share"] == 0.75


def test_a_node_that_comes_back_is_told_and_its_lost_attempt_is_not_decided_again(cluster: Cluster) -> None:
    train = job()
    cut = pod("one", train, node="n1", phase="Running", deletionTimestamp=at(40))
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.view.put_node(node("n1", ready="Unknown", **SPOT))
    cluster.look(train, cut)
    successor = pod("two", train, made=50, node="n2", phase="Running")
    cluster.look(train, cut, successor)
    cluster.view.put_node(node("n1", **SPOT))
    cluster.look(train, cut, successor)
    cluster.kill()
    cluster.look(train, cut, successor, gone=("one",))
    state = cluster.state()
    (note,) = state.notes
    assert "attempt 1 of train counts as lost, and its node n1 reports again" in note
    assert [event.kind for event in cluster.events()].count("decided") == 1
    assert [attempt.cause for attempt in state.tasks["train"].attempts] == [Cause.LOST, None]
    assert state.tasks["train"].spent.interruptions == 1


def test_a_pod_that_was_deleted_by_force_was_moved_while_its_node_lives(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.look(train, pod("one", train, node="n1", phase="Running"), gone=("one",))
    task = cluster.state().tasks["train"]
    assert (task.last.cause, task.spent.interruptions, task.spent.moves) == (Cause.DISRUPTED, 0, 1)


def test_a_refused_pod_is_no_attempt_and_a_note_says_which_budget_is_spent(cluster: Cluster) -> None:
    train = job(backoffLimit=3)
    first = pod("one", train, node="n1", phase="Failed", exit_code=1)
    why = "no retry is left (errors.retries is 0) (attempt 1)"
    marks = {"spotwright.dev/refused": "true", "spotwright.dev/attempt": "2", "spotwright.dev/why": why}
    refused = pod("two", train, made=20, node="n1", phase="Failed", exit_code=86, annotations=marks)
    for _ in range(2):
        cluster.look(train, first, refused)
    state = cluster.state()
    assert [len(task.attempts) for task in state.tasks.values()] == [1]
    assert list(state.notes) == [f"attempt 2 of train was refused: {why}"]
