"""KFP's status of a run becomes the events of a local run, from either answer and for either shape of Workflows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.kubeflow.flows import BEGIN, Flow, Try
from tests.kubeflow.recorded_runs import Recorded, of_workflow

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.kubeflow.task_status import Node, nodes_of_details
from spotwright.model.attempts import Cause


@pytest.fixture(params=[True, False], ids=["2.17", "2.16"])
def flow(request: pytest.FixtureRequest) -> Flow:
    return Flow(retried=request.param)


def of_details(flow: Flow) -> list[Node]:
    return nodes_of_details(flow.details())


@pytest.fixture(params=[of_workflow, of_details], ids=["v1beta1", "v2beta1"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


@pytest.fixture
def told(flow: Flow) -> Recorded:
    """A run of which v1beta1 tells."""
    return Recorded(of_workflow)


RUNS = Try("Running", began=1, ended=None)
FAILED = Try("Failed", "main: Error (exit code 1)", "n1", 1, 3)


def test_a_task_waits_runs_and_succeeds(recorded: Recorded, flow: Flow) -> None:
    recorded.look(flow)
    assert (recorded.statuses()["train"], recorded.statuses()["evaluate"]) == ("ready", "waiting")
    flow.task("train", RUNS)
    recorded.look(flow)
    assert recorded.task("train").status is TaskStatus.RUNNING
    flow.task("train", Try("Succeeded", "", "n1", 1, 9))
    recorded.look(flow)
    assert recorded.causes("train") == [Cause.SUCCEEDED]
    assert recorded.task("evaluate").status is TaskStatus.READY


def test_looking_twice_records_nothing_new(recorded: Recorded, flow: Flow) -> None:
    flow.task("train", FAILED, Try("Succeeded", "", "n2", 4, 9))
    flow.loop("loop", 2)
    recorded.look(flow)
    before = len(recorded.events)
    recorded.look(flow)
    assert len(recorded.events) == before


def test_tasks_of_loops_and_inner_pipelines_have_the_paths_of_a_local_run(recorded: Recorded, flow: Flow) -> None:
    flow.task("env", RUNS, place=flow.pipeline("inner"))
    for place in flow.loop("loop", 2):
        flow.task("env", RUNS, place=place)
    recorded.look(flow)
    running = {path for path, status in recorded.statuses().items() if status == "running"}
    assert running == {"inner/env", "loop/env-0", "loop/env-1"}


def test_a_loop_and_an_inner_pipeline_end_after_what_is_inside(recorded: Recorded, flow: Flow) -> None:
    done = Try("Succeeded", "", "n1", 1, 2)
    flow.task("env", done, place=flow.pipeline("inner", "Succeeded"))
    for place in flow.loop("loop", 2, "Succeeded"):
        flow.task("env", done, place=place)
    recorded.look(flow)
    ended = {path for path, status in recorded.statuses().items() if status == "succeeded"}
    assert ended == {"inner", "inner/env", "loop", "loop/env-0", "loop/env-1"}


def test_a_task_whose_condition_does_not_hold_is_skipped(recorded: Recorded, flow: Flow) -> None:
    flow.left_out("maybe")
    recorded.look(flow)
    assert recorded.task("maybe").status is TaskStatus.SKIPPED


def test_a_failure_that_is_not_explained_has_no_cause(flow: Flow) -> None:
    recorded = Recorded(of_details)
    flow.task("train", FAILED)
    recorded.look(flow)
    recorded.recorder.finish(RunStatus.FAILED, "train failed", BEGIN + 61)
    assert recorded.causes("train") == [None]
    assert recorded.task("train").why == "KFP reports a failure without a reason"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("main: Error (exit code 1)", Cause.FAILED),
        ("main: OOMKilled (exit code 137)", Cause.OUT_OF_MEMORY),
        ("Pod was active on the node longer than the specified deadline", Cause.TIMED_OUT),
        ("pod deleted", Cause.LOST),
        ("init: Error (exit code 64)", Cause.START_UP),
    ],
)
def test_a_cause_is_read_off_argo_s_message(told: Recorded, flow: Flow, message: str, cause: Cause) -> None:
    flow.task("train", FAILED._replace(message=message))
    told.look(flow)
    assert told.causes("train") == [cause]
    assert told.task("train").status is TaskStatus.FAILED


def test_every_pod_of_a_task_is_an_attempt_on_its_node(told: Recorded, flow: Flow) -> None:
    tries: Sequence[Try] = (FAILED, FAILED._replace(host="n2"), Try("Succeeded", "", "n3", 5, 9))
    flow.task("train", *tries, phase="Running")
    told.look(flow)
    attempts = told.task("train").attempts
    assert [(each.node, each.cause) for each in attempts] == [("n1", Cause.FAILED), ("n2", Cause.FAILED), ("n3", None)]
    flow.task("train", *tries)
    told.look(flow)
    assert told.causes("train") == [Cause.FAILED, Cause.FAILED, Cause.SUCCEEDED]


def test_a_pod_that_waits_says_why(told: Recorded, flow: Flow) -> None:
    flow.task("train", Try("Pending", "Unschedulable: 0/3 nodes are available", "", 1, None), phase="Running")
    told.look(flow)
    assert told.task("train").status is TaskStatus.PENDING
    assert told.task("train").last.waits == "Unschedulable: 0/3 nodes are available"


def test_an_earlier_result_that_kfp_used_is_no_attempt(told: Recorded, flow: Flow) -> None:
    flow.task("train", cached=True, artifacts={"model": "minio://earlier/model"})
    told.look(flow)
    train = told.task("train")
    assert (train.status, train.attempts, train.cached_from) == (TaskStatus.SUCCEEDED, [], ("an earlier run", "train"))


def test_artifacts_are_named_by_their_uris(told: Recorded, flow: Flow) -> None:
    flow.task("train", Try(), artifacts={"model": "gs://bucket/model"})
    told.look(flow)
    assert {name: value["uri"] for name, value in told.task("train").artifacts.items()} == {
        "model": "gs://bucket/model"
    }


def test_times_are_moved_to_our_clock(told: Recorded, flow: Flow) -> None:
    flow.task("train", Try("Succeeded", "", "n1", 31, 51))
    told.look(flow, ahead=30.0)
    last = told.task("train").last
    assert (last.bound_at, last.ended_at) == (BEGIN + 1, BEGIN + 21)


def test_what_still_runs_when_a_run_is_cancelled_was_stopped(recorded: Recorded, flow: Flow) -> None:
    flow.task("train", RUNS)
    recorded.look(flow)
    recorded.recorder.finish(RunStatus.CANCELLED, "", BEGIN + 61)
    assert recorded.state.status is RunStatus.CANCELLED
    assert recorded.causes("train") == [Cause.CANCELLED]


def test_an_attempt_is_the_same_in_either_answer(flow: Flow) -> None:
    recorded = Recorded(of_details)
    flow.task("train", RUNS)
    for read in (of_details, of_workflow, of_details):
        recorded._read = read
        recorded.look(flow)
    flow.task("train", FAILED, Try("Succeeded", "", "n2", 4, 9))
    recorded._read = of_workflow
    recorded.look(flow)
    assert recorded.causes("train") == [Cause.FAILED, Cause.SUCCEEDED]


def test_a_run_ends_when_the_server_says_so_and_not_before_its_last_task(told: Recorded, flow: Flow) -> None:
    flow.task("train", Try("Succeeded", "", "n1", 1, 9))
    told.look(flow)
    told.recorder.finish(RunStatus.SUCCEEDED, "", BEGIN + 60, BEGIN + 12)
    assert told.state.finished_at == BEGIN + 12


def test_a_server_that_does_not_say_when_a_run_ended_ends_it_now(told: Recorded, flow: Flow) -> None:
    flow.task("train", Try("Succeeded", "", "n1", 1, 9))
    told.look(flow)
    told.recorder.finish(RunStatus.SUCCEEDED, "", BEGIN + 60, None)
    assert told.state.finished_at == BEGIN + 60
