"""``run --on kfp``: a pipeline is placed, uploaded, started and followed, and looks like a local run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.kubeflow.conftest import TWO_TASKS, Folder
from tests.kubeflow.flows import Flow, Try
from tests.kubeflow.pipelines import compiled
from tests.kubeflow.stand_in import StandIn, Step


def attempts(view: dict[str, object], path: str) -> list[tuple[object, ...]]:
    tasks = view["tasks"]
    assert isinstance(tasks, list)
    [task] = [each for each in tasks if each["path"] == path]
    return [(each["number"], each["node"], each["cause"]) for each in task["attempts"]]


def test_a_run_ends_with_the_table_and_the_exit_code_of_a_local_run(folder: Folder) -> None:
    done = folder.run()
    assert done.code == 0
    assert "train: attempt 1 on n1 failed: it exited with 1" in done.out
    assert "train: KFP retries it" in done.out
    *_, first, second, third, _, last = done.out.splitlines()
    assert [line.split()[:4] for line in (first, second, third)] == [
        ["train", "1", "n1", "failed"],
        ["train", "2", "n2", "succeeded"],
        ["evaluate", "1", "n3", "succeeded"],
    ]
    assert last.startswith("Run first succeeded after")


def test_the_same_run_is_listed_and_shown_afterwards(folder: Folder) -> None:
    view = folder.run("--json").json()
    assert view["status"] == "succeeded"
    assert view["orchestrator"] == "KFP run"
    assert attempts(view, "train") == [(1, "n1", "failed"), (2, "n2", "succeeded")]
    shown = folder("show", "first", "--json").json()
    assert [task["attempts"] for task in shown["tasks"]] == [task["attempts"] for task in view["tasks"]]
    assert "first" in folder("runs").out


def test_the_policy_and_the_placement_are_in_what_is_uploaded(folder: Folder, server: StandIn) -> None:
    folder.run()
    [text] = server.texts.values()
    _, platform = yaml.safe_load_all(text)
    executor = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"]
    policy = json.loads(executor["podMetadata"]["annotations"]["spotwright.dev/policy"])
    assert policy["spot"] == "prefer"
    assert executor["tolerations"][0]["key"] == "kubernetes.azure.com/scalesetpriority"


def test_equal_content_is_uploaded_once(folder: Folder, server: StandIn) -> None:
    folder.run()
    again = folder.run("--name", "second")
    assert len(server.versions) == len(server.pipelines) == 1
    assert "has this content already: version spotwright-" in again.out
    assert len({run["pipeline_version_reference"]["pipeline_version_id"] for run in server.runs.values()}) == 1


def test_changed_content_is_another_version_of_the_same_pipeline(folder: Folder, server: StandIn) -> None:
    folder.run()
    folder.pipeline.write_text(compiled(TWO_TASKS, steps=4))
    folder.run("--name", "second")
    assert (len(server.pipelines), len(server.versions)) == (1, 2)


def test_arguments_that_are_given_reach_kfp_with_their_types(folder: Folder, server: StandIn) -> None:
    folder.run("--arg", "steps=7")
    [run] = server.runs.values()
    assert run["runtime_config"]["parameters"] == {"steps": 7}
    assert run["display_name"] == "first"


def test_a_run_belongs_to_the_experiment_and_the_service_account_that_are_named(
    folder: Folder, server: StandIn
) -> None:
    folder.run("--experiment", "nightly", "--service-account", "trainer")
    [experiment] = server.experiments.values()
    [run] = server.runs.values()
    assert (experiment["display_name"], run["service_account"]) == ("nightly", "trainer")
    assert run["experiment_id"] == experiment["experiment_id"]


def test_a_run_that_fails_ends_with_1_and_says_which_task(folder: Folder, server: StandIn) -> None:
    flow = Flow()
    flow.task("train", Try("Failed", "main: OOMKilled (exit code 137)", "n1", 1, 3))
    server.steps = [Step("RUNNING", Flow()), Step("FAILED", flow.end("Failed"))]
    done = folder.run()
    assert done.code == 1
    assert "train attempt 1 on n1 ran out of memory" in done.out
    assert done.out.splitlines()[-1].endswith(": train failed")


def test_what_nobody_tells_is_said_in_a_line_each(folder: Folder, server: StandIn) -> None:
    server.serves_v1 = False
    done = folder.run()
    assert done.code == 0
    for words in ("causes come from KFP's messages", "costs are not known", "no longer serves v1beta1"):
        assert sum(words in line for line in done.out.splitlines()) == 1
        assert words in " ".join(folder("show", "first").out.split())


def test_v2beta1_alone_tells_which_tasks_ran_and_how_they_ended(folder: Folder, server: StandIn) -> None:
    server.serves_v1 = False
    view = folder.run("--json").json()
    assert {task["path"]: task["status"] for task in view["tasks"]} == {"train": "succeeded", "evaluate": "succeeded"}


@pytest.mark.parametrize(
    "option", ["--seed=3", "--time-scale=2", "--cache=off", "--deadline=8h", "--policy=spot=never"]
)
def test_an_option_of_local_runs_is_refused(folder: Folder, option: str) -> None:
    done = folder.run(option)
    assert done.code == 2
    assert f"{option.partition('=')[0]} is for runs on this machine" in done.err


def test_an_option_of_kfp_is_refused_for_a_local_run(folder: Folder) -> None:
    done = folder("run", str(folder.pipeline), "--namespace", "team-a")
    assert done.code == 2
    assert "--namespace is for runs on Kubeflow Pipelines: add --on kfp" in done.err


def test_a_secret_is_no_argument_of_a_run_on_kfp(folder: Folder, server: StandIn, tmp_path: Path) -> None:
    text = compiled(TWO_TASKS).replace("NUMBER_INTEGER", "STRING").replace("defaultValue: 3", "defaultValue: none")
    folder.pipeline.write_text(text)
    done = folder.run("--arg", "steps=@env:HOME")
    assert done.code == 2
    assert "KFP shows arguments to everyone" in done.err
    assert server.runs == {}


def test_a_pipeline_without_pools_is_refused_before_anything_is_sent(folder: Folder, server: StandIn) -> None:
    (folder.path / "spotwright.yaml").unlink()
    done = folder.run()
    assert done.code == 2
    assert server.requests == []
    assert folder("runs").out.startswith("no runs yet: ")
