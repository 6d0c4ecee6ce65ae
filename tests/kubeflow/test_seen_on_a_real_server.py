"""Answers of a real backend (2.16.1, Argo 3.7.3) that our stand-in did not give: each test has the shape of one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.kubeflow.conftest import Folder
from tests.kubeflow.flows import BEGIN, Flow, Try
from tests.kubeflow.pipelines import compiled, task
from tests.kubeflow.recorded_runs import Recorded, of_workflow
from tests.kubeflow.stand_in import StandIn, Step

from spotwright.kubeflow.following import SILENT, hold_up
from spotwright.kubeflow.task_status import Node
from spotwright.views.narration import Narrator

RUNS = Try("Running", began=1, ended=None)
ENDED = Try("Failed", "Step exceeded its deadline", "n2", 1, 3)

WITH_EXIT_TASK = {
    "exit-handler-1": task("handler"),
    "done": task("done", ("exit-handler-1",), triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}),
}


def trains(one: Try, phase: str = "") -> Flow:
    flow = Flow(retried=False)
    flow.task("train", one, phase=phase)
    return flow


def test_a_run_that_somebody_ended_between_two_looks_was_cancelled(folder: Folder, server: StandIn) -> None:
    """Its history is PENDING, RUNNING, FAILED: CANCELING is a state of some tenths of a second, and is not kept."""
    server.steps = [Step("RUNNING", trains(RUNS)), Step("FAILED", trains(ENDED).terminated().end("Failed"))]
    done = folder.run("--json")
    view = done.json()
    [train, _] = view["tasks"]
    assert (done.code, view["status"]) == (130, "cancelled")
    assert (train["status"], train["attempts"][0]["cause"]) == ("cancelled", "cancelled")


def test_a_deadline_of_the_pipeline_s_own_is_no_cancellation(folder: Folder, server: StandIn) -> None:
    flow = trains(ENDED).end("Failed")
    flow.spec["activeDeadlineSeconds"] = 600
    server.steps = [Step("FAILED", flow)]
    assert folder.run("--json").json()["status"] == "failed"


@pytest.mark.parametrize("retried", [False, True])
def test_an_exit_task_runs_in_a_hook_of_its_handler(folder: Folder, server: StandIn, *, retried: bool) -> None:
    folder.pipeline.write_text(compiled(WITH_EXIT_TASK, inside={"handler": {"train": task("train")}}))
    flow = Flow(retried=retried)
    flow.task(
        "train", Try("Failed", "main: Error (exit code 1)", "n1", 1, 2), place=flow.pipeline("exit-handler-1", "Failed")
    )
    flow.task("done", Try("Succeeded", "", "n3", 3, 4), place=flow.exit_hook("exit-handler-1", "Succeeded"))
    server.steps = [Step("FAILED", flow.end("Failed"))]
    done = folder.run("--json")
    attempts = {
        each["path"]: [(one["node"], one["cause"]) for one in each["attempts"]] for each in done.json()["tasks"]
    }
    assert done.code == 1
    assert attempts["exit-handler-1/train"] == [("n1", "failed")]
    assert attempts["done"] == [("n3", "succeeded")]


def test_a_server_for_one_team_takes_every_namespace_and_looks_at_none(folder: Folder, server: StandIn) -> None:
    done = folder.run("-n", "team-b", "--json")
    assert done.code == 0
    assert "this server has no namespaces for teams; -n team-b has no effect" in done.json()["notes"]
    named = [each.get("namespace") for each in (*server.pipelines.values(), *server.experiments.values())]
    assert not any(named)


def test_the_version_of_the_server_is_the_target(folder: Folder) -> None:
    done = folder.run()
    assert "(seen on KFP 2.16.1)" in done.err
    assert "target.kfp is not set" not in done.err


def test_a_target_that_the_configuration_names_is_kept(folder: Folder) -> None:
    file = Path("spotwright.yaml")
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "target": {"kfp": "2.17"}}))
    assert "(seen on KFP 2.17.0" in folder.run().err


def test_the_seconds_of_an_attempt_are_not_those_until_its_end_is_told() -> None:
    """The persistence agent reports an end some seconds late, and Argo's controller too."""
    run = Recorded(of_workflow)
    begun = len(run.events)
    run.look(trains(Try("Succeeded", "", "n2", 1, 9), phase="Succeeded"))  # sixty seconds after the begin
    told = [sentence.text for sentence in Narrator().narrate(run.state, run.events[begun:])]
    assert "train: attempt 1 on n2 succeeded after 8s" in told


def test_no_command_for_a_log_is_named_that_nobody_has(folder: Folder) -> None:
    done = folder.run()
    assert "spotwright logs" not in done.out
    attempts = [each for one in folder("show", "first", "--json").json()["tasks"] for each in one["attempts"]]
    assert {each["log"] for each in attempts} == {None}


def test_a_run_without_a_node_says_what_may_be_wrong_after_a_minute() -> None:
    assert hold_up([], SILENT - 1, BEGIN, has_pods=False) == ""
    assert "it has not begun" in hold_up([], SILENT, BEGIN, has_pods=False)
    assert "check its persistence agent" in hold_up([], SILENT, BEGIN, has_pods=True)


def test_a_driver_that_does_not_start_is_named_with_argo_s_reason() -> None:
    root = Node("w.root-driver", "Pending", BEGIN, kind="Pod", message="Unschedulable: 0/3 nodes are available")
    tried = Node("w(0).root(0).train-driver", "Pending", BEGIN, kind="Pod")
    assert hold_up([root], 0, BEGIN + SILENT - 1, has_pods=True) == ""
    assert hold_up([root], 0, BEGIN + SILENT, has_pods=True) == (
        "the pod root-driver of KFP waits: Unschedulable: 0/3 nodes are available"
    )
    assert "the pod train-driver of KFP waits" in hold_up([tried], 0, BEGIN + SILENT, has_pods=True)
    assert hold_up([root._replace(phase="Succeeded")], 0, BEGIN + SILENT, has_pods=True) == ""
