"""A workload ended by its user is cancelled and spends no budget; one that Argo gives up fails with Argo's reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.watched_cluster import Cluster
from tests.cluster.watching.watched_objects import BEGIN, at, done, job, pod

from spotwright.cluster.signals import as_gone
from spotwright.cluster.view import SeenPod
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text, summary_text


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "state")
    yield made
    made.store.close()


def shown(cluster: Cluster) -> str:
    return " ".join(show_text(run_view(cluster.state(), "the-run")).split())


def workflow(*nodes: dict[str, Any], phase: str = "Running", message: str = "", **spec: Any) -> dict[str, Any]:
    """A Workflow of KFP, whose templates are tried again up to 20 times."""
    meta = {
        "name": "wf",
        "namespace": "team-a",
        "uid": "wf-uid",
        "creationTimestamp": at(0),
        "labels": {"pipeline/runid": "r"},
    }
    templates = [{"name": "importer", "retryStrategy": {"limit": "20"}}]
    status = {"phase": phase, "message": message, "nodes": {node["id"]: node for node in nodes}}
    if phase != "Running":
        status["finishedAt"] = at(194)
    return {"kind": "Workflow", "metadata": meta, "spec": {"templates": templates, **spec}, "status": status}


def step(name: str, phase: str, kind: str = "Pod", message: str = "") -> dict[str, Any]:
    return {
        "id": name.replace(".", "-"),
        "name": name,
        "type": kind,
        "phase": phase,
        "message": message,
        "templateName": "importer",
        "startedAt": at(1),
        "finishedAt": at(20),
    }


def step_pod(wf: dict[str, Any], name: str, **state: Any) -> dict[str, Any]:
    marks = {"workflows.argoproj.io/node-name": name, "workflows.argoproj.io/node-id": name.replace(".", "-")}
    return pod(name, wf, annotations=marks, labels={"pipeline/runid": "r"}, **state)


@pytest.mark.parametrize("spec", [{"activeDeadlineSeconds": 0}, {"shutdown": "Terminate"}])
@pytest.mark.parametrize("code", [143, 1])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_workflow_that_is_ended_while_a_step_runs_is_cancelled(
    cluster: Cluster, spec: dict[str, Any], code: int, is_killed: bool
) -> None:
    running, ending = workflow(), workflow(**spec)
    cluster.look(running, step_pod(running, "wf.train", node="n1", phase="Running"))
    cluster.look(ending, step_pod(ending, "wf.train", node="n1", phase="Running"))
    if is_killed:
        cluster.kill()
    stopped = step_pod(ending, "wf.train", node="n1", phase="Failed", exit_code=code)  # Argo deletes no pod that runs
    cluster.look(ending, stopped)
    cluster.look(workflow(step("wf.train", "Failed"), phase="Failed", **spec), stopped)
    state = cluster.state()
    (task,) = state.tasks.values()
    assert (task.last.cause, task.spent, task.status.value) == (Cause.CANCELLED, BudgetUse(), "cancelled")
    assert state.status.value == "cancelled"
    assert "backoff" not in shown(cluster)
    assert "retry" not in shown(cluster)


def test_a_step_that_waited_for_its_retry_when_the_workflow_was_ended_waits_no_more(cluster: Cluster) -> None:
    running = workflow(step("wf.train(0)", "Failed"), step("wf.train", "Running", "Retry"))
    failed = step_pod(running, "wf.train(0)", node="n1", phase="Failed", exit_code=1)
    cluster.look(running, failed)
    assert "retry 1 of 20" in shown(cluster)
    cluster.look(workflow(phase="Failed", shutdown="Stop"), failed)
    (task,) = cluster.state().tasks.values()
    assert (task.status.value, task.last.cause, task.due) == ("cancelled", Cause.FAILED, None)
    assert "retry" not in shown(cluster)
    cluster.kill()
    assert cluster.state().why == "its Workflow was shut down"


@pytest.mark.parametrize("kinds", [("Job",), ("Job", "JobSet"), ("Job", "JobSet", "TrainJob")])
def test_a_workload_that_is_deleted_in_the_background_is_cancelled(cluster: Cluster, kinds: tuple[str, ...]) -> None:
    owners = [{**job(kind.lower(), uid=f"uid-{kind}"), "kind": kind} for kind in kinds]
    root = owners[-1]
    running = pod("one", owners[0], node="n1", phase="Running")
    cluster.look(root, running)
    stopped = pod("one", owners[0], node="n1", phase="Failed", exit_code=143, deletionTimestamp=at(41))
    stopped["metadata"]["deletionGracePeriodSeconds"] = 30
    cluster.look_at([SeenPod(stopped, tuple(map(as_gone, owners)), is_gone=True)], root, deleted=True)
    state = cluster.state()
    (task,) = state.tasks.values()
    assert (task.last.cause, task.spent, task.status.value) == (Cause.CANCELLED, BudgetUse(), "cancelled")
    assert (state.status.value, state.finished_at) == ("cancelled", BEGIN + 11)
    assert f"its {kinds[-1]} was deleted" in task.last.cause_why


def test_a_suspended_job_goes_on_when_it_is_resumed_and_has_spent_nothing(cluster: Cluster) -> None:
    train = job(backoffLimit=0)
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    suspended = job(backoffLimit=0, suspend=True)
    stopped = pod("one", suspended, node="n1", phase="Failed", exit_code=143, ended=21, deletionTimestamp=at(50))
    stopped["metadata"]["deletionGracePeriodSeconds"] = 30
    cluster.look(suspended, stopped, gone=("one",))
    state = cluster.state()
    assert state.status.value == "running"
    assert (state.tasks["train"].last.cause, state.tasks["train"].spent) == (Cause.CANCELLED, BudgetUse())
    assert "attempt 1 on n1 was stopped: its Job was suspended then again, once it is resumed" in shown(cluster)
    assert "train waits until its Job makes attempt 2" in shown(cluster)
    cluster.look(
        job(backoffLimit=0, status=done()), pod("two", train, made=60, node="n1", phase="Succeeded", exit_code=0)
    )
    assert cluster.state().status.value == "succeeded"


def test_an_attempt_whose_pod_and_job_vanished_while_nobody_looked_spends_nothing(cluster: Cluster) -> None:
    train = job()
    cluster.look(train, pod("one", train, node="n1", phase="Running"))
    cluster.kill()
    cluster.look(train, deleted=True)
    (task,) = cluster.state().tasks.values()
    assert (task.last.cause, task.spent) == (Cause.CANCELLED, BudgetUse())


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_step_that_argo_does_not_try_again_ends_as_argo_ended_it(
    cluster: Cluster, is_over: bool, is_known: bool
) -> None:
    running = workflow(step("wf.load-driver(0)", "Running")) if is_known else workflow()
    failed = step_pod(running, "wf.load-driver(0)", node="n1", phase="Failed", exit_code=1)
    cluster.look(running, failed)
    assert ("retry 1 of 20" if is_known else "its Workflow decides") in shown(cluster)
    nodes = (
        step("wf.load-driver(0)", "Failed", message="main: Error (exit code 1)"),
        step("wf.load-driver", "Failed", "Retry", "retryStrategy.expression evaluated to false"),
    )
    message = "child 'wf-123' failed" if is_over else ""
    cluster.look(workflow(*nodes, phase="Failed" if is_over else "Running", message=message), failed)
    state = cluster.state()
    task = state.tasks["load-driver"]
    why = "its Workflow does not retry it (retryStrategy.expression evaluated to false)"
    assert (task.status.value, task.why, task.last.following) == ("failed", why, why)
    assert "retry 1 of" not in shown(cluster)
    assert "decides" not in shown(cluster)
    if is_over:
        assert state.why == f"task load-driver failed: it exited with 1, {why}".replace(", its", "; its")


def test_the_reason_of_a_refusal_is_the_end_of_its_task_and_of_the_run(cluster: Cluster) -> None:
    running = workflow(step("wf.train(0)", "Failed"), step("wf.train", "Running", "Retry"))
    failed = step_pod(running, "wf.train(0)", node="n1", phase="Failed", exit_code=1)
    refused = step_pod(running, "wf.train(1)", made=30, node="n1", phase="Failed", exit_code=86)
    why = "no retry is left (errors.retries is 0) (attempt 1)"
    refused["metadata"]["annotations"] |= {
        "spotwright.dev/refused": "true",
        "spotwright.dev/attempt": "2",
        "spotwright.dev/why": why,
    }
    cluster.look(running, failed, refused)
    cluster.look(workflow(phase="Failed", message="Error (exit code 86)"), failed, refused)
    state = cluster.state()
    assert state.tasks["train"].why == f"attempt 2 was refused: {why}"
    assert state.why == f"task train failed: it exited with 1; attempt 2 was refused: {why}"
    assert why in " ".join(summary_text(state, "the-run").split())


def test_a_step_that_argo_tries_again_in_a_part_that_it_repeats_is_under_way_again(cluster: Cluster) -> None:
    given_up = workflow(step("wf.root(0).load", "Failed", "Retry"), step("wf.root(0).load(0)", "Failed"))
    first = step_pod(given_up, "wf.root(0).load(0)", node="n1", phase="Failed", exit_code=1)
    cluster.look(given_up, first)
    assert cluster.state().tasks["load"].status.value == "failed"
    again = workflow(
        *given_up["status"]["nodes"].values(), {**step("wf.root(1).load", "Running", "Retry"), "startedAt": at(30)}
    )
    cluster.look(again, first, step_pod(again, "wf.root(1).load(0)", made=30, node="n1", phase="Running"))
    assert cluster.state().tasks["load"].status.value == "running"


def test_a_workflow_that_fails_without_a_word_names_the_step_of_which_no_pod_was_seen(cluster: Cluster) -> None:
    running = workflow()
    good = step_pod(running, "wf.train", node="n1", phase="Succeeded", exit_code=0)
    nodes = (step("wf.train", "Succeeded"), step("wf.load", "Error", message="pod deleted"))
    cluster.look(workflow(*nodes, phase="Error", message="child 'wf-1' failed"), good)
    assert cluster.state().why == "task load failed: pod deleted"


SUSPENDABLE: dict[str, dict[str, Any]] = {
    "Job": {"suspend": True},
    "JobSet": {"suspend": True},
    "TrainJob": {"suspend": True},
    "PyTorchJob": {"runPolicy": {"suspend": True}},
    "MPIJob": {"runPolicy": {"suspend": True}},
}


def suspendable(kind: str, *, queue: str, is_on: bool, gone_on: float | None = None) -> dict[str, Any]:
    """An object that is suspended now, or that went on from a suspension at a time."""
    spec = SUSPENDABLE[kind] if is_on else {}
    made = {**job("train", backoffLimit=6, **spec), "kind": kind}
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    if gone_on is not None:
        condition = {"type": "Suspended", "status": "False", "reason": "Resumed", "lastTransitionTime": at(gone_on)}
        made["status"] = {"conditions": [condition]}
    return made


@pytest.mark.parametrize("kind", SUSPENDABLE)
@pytest.mark.parametrize("queue", ["", "team"])
@pytest.mark.parametrize(
    "seen", ["told", "gone at once", "gone on again", "while nobody looked", "away, and gone on again"]
)
def test_a_suspension_spends_nothing_and_is_named(cluster: Cluster, kind: str, queue: str, seen: str) -> None:
    running = suspendable(kind, queue=queue, is_on=False, gone_on=0.5 if queue else None)
    cluster.look(running, pod("one", running, node="n1", phase="Running"))
    now = suspendable(kind, queue=queue, is_on="again" not in seen, gone_on=24 if "again" in seen else None)
    if seen in ("while nobody looked", "away, and gone on again"):
        cluster.kill()
        cluster.look(now)
    else:
        stopped = pod("one", now, node="n1", phase="Running")
        if seen != "gone at once":
            stopped = pod("one", now, node="n1", phase="Failed", exit_code=143, ended=21, deletionTimestamp=at(50))
            stopped["metadata"]["deletionGracePeriodSeconds"] = 30
        cluster.look(now, stopped, gone=("one",))
    state = cluster.state()
    (task,) = state.tasks.values()
    assert state.status.value == "running"
    assert (task.last.cause, task.spent) == (Cause.CANCELLED, BudgetUse())
    assert task.last.cause_why == f"it was cancelled: its {kind} was suspended{' by Kueue' if queue else ''}"
    assert "again, once it is resumed" in task.last.following
    cluster.look(running, pod("two", running, made=60, node="n1", phase="Running"))
    assert cluster.state().tasks[task.path].status.value == "running"


def test_a_pod_that_is_drained_long_after_a_job_went_on_was_not_suspended(cluster: Cluster) -> None:
    resumed = suspendable("Job", queue="team", is_on=False, gone_on=0.5)
    cluster.look(resumed, pod("one", resumed, node="n1", phase="Running"))
    cluster.look(resumed, pod("one", resumed, node="n1", phase="Running"), gone=("one",))
    (task,) = cluster.state().tasks.values()
    assert task.last.cause is Cause.DISRUPTED


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_workflow_that_is_deleted_between_two_steps_has_not_succeeded(cluster: Cluster, is_seen: bool) -> None:
    made = workflow()
    one = pod("one", made, node="n1", phase="Succeeded", exit_code=0)
    one["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": "wf.load"}
    cluster.look(made, one)
    if is_seen:
        cluster.view.delete_owner(made)
    cluster.look(made, deleted=True)
    state = cluster.state()
    assert state.status.value == "cancelled"
    assert "was deleted before it ended: 1 of its tasks succeeded" in state.why


@pytest.mark.parametrize(("completions", "status"), [(1, "succeeded"), (3, "cancelled")])
def test_a_job_that_is_deleted_has_succeeded_if_all_of_its_pods_have(
    cluster: Cluster, completions: int, status: str
) -> None:
    train = job(completions=completions, parallelism=1)
    cluster.look(train, pod("one", train, node="n1", phase="Succeeded", exit_code=0))
    cluster.view.delete_owner(train)
    cluster.look(train, deleted=True)
    assert cluster.state().status.value == status


def test_a_workload_that_says_how_it_ended_and_is_deleted_at_once_has_ended_so(cluster: Cluster) -> None:
    made = workflow()
    one = pod("one", made, node="n1", phase="Succeeded", exit_code=0)
    one["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": "wf.load"}
    cluster.look(made, one)
    cluster.view.delete_owner(workflow(phase="Succeeded"))
    cluster.look(made, deleted=True)
    assert cluster.state().status.value == "succeeded"
