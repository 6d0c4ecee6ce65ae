"""The JSON facts of a run."""

from __future__ import annotations

import json

from tests.views.builders import START, Story, a_config, a_plan, a_task, tutorial, tutorial_plan

from spotwright.engine.plan import Plan
from spotwright.graph import Dag, TaskGraph, TaskSpec
from spotwright.views.run_json import run_view, summary


def test_the_view_is_plain_json() -> None:
    story = tutorial()
    assert json.loads(json.dumps(run_view(story.state, "iris-x7k2p"))) == run_view(story.state, "iris-x7k2p")


def test_an_interrupted_attempt_has_its_node_its_cause_and_the_decision_after_it() -> None:
    task = run_view(tutorial().state, "iris-x7k2p")["tasks"][2]
    first = task["attempts"][0]
    assert (first["pool"], first["node"], first["capacity"], first["cause"]) == (
        "gpu-spot",
        "gpu-spot-1",
        "spot",
        "interrupted",
    )
    assert first["why"] == "its node is gone, without a notice that was seen"
    assert first["next"] == "interruption 1 of 10: again on gpu-spot"
    assert (first["placed_at"], first["bound_at"], first["ended_at"]) == (START + 9, START + 11, START + 17)
    assert (first["seconds"], first["share"], first["progress"], first["signal"]) == (6.0, 1.0, 0.4, 9)
    assert first["cost"] == {"seconds": 6.0, "money": 0.0015}
    assert first["log"] == "spotwright logs iris-x7k2p train 1"
    assert task["spent"] == {"interruptions": 1, "errors": 0, "moves": 0}
    assert task["budgets"] == {"interruptions": 10, "errors": 0}


def test_the_view_has_nodes_and_outputs() -> None:
    view = run_view(tutorial().state, "iris-x7k2p")
    assert [(node["name"], node["state"], node["why"]) for node in view["nodes"]][1] == (
        "gpu-spot-1",
        "gone",
        "taken by the provider",
    )
    assert view["outputs"]["accuracy"] == {"kind": "parameter", "value": 0.9736842105263158}
    assert view["outputs"]["model"]["kind"] == "artifact"
    assert view["outputs"]["model"]["type"] == "system.Model"


def test_only_tasks_that_succeeded_have_outputs() -> None:
    assert run_view(Story(tutorial_plan()).state, "iris-x7k2p")["outputs"] == {}


def test_secrets_are_shown_as_references() -> None:
    story = tutorial(arguments={"token": "{{$.secret['@env:TOKEN']}}", "url": ["a {{$.secret['@file:/etc/key']}}"]})
    assert run_view(story.state, "x")["arguments"] == {"token": "@env:TOKEN", "url": ["a @file:/etc/key"]}


def test_each_reason_to_wait_has_its_word() -> None:
    story = Story(a_plan(a_task("a"), a_task("b"), a_task("c", "a", "b"), a_task("d")), cached=[])
    story.boots("cpu-spot-1").binds("a", "cpu-spot-1").after(1).taken("cpu-spot-1", "a").boots("cpu-spot-2").binds(
        "d", "cpu-spot-2"
    )
    waits = {task["path"]: task["waits_for"] for task in run_view(story.state, "x", story.at)["tasks"]}
    assert (waits["a"]["kind"], waits["a"]["pools"]) == ("node", ["cpu-spot"])
    assert (waits["b"]["kind"], waits["b"]["pools"], waits["b"]["until"]) == ("node", ["cpu-spot"], START + 600)
    assert (waits["c"]["kind"], waits["c"]["tasks"]) == ("tasks", ["a", "b"])
    assert waits["d"] is None


def test_a_backoff_has_its_end() -> None:
    story = Story(a_plan(a_task("a"))).boots("cpu-spot-1").binds("a", "cpu-spot-1").after(1).taken("cpu-spot-1", "a")
    (task,) = run_view(story.state, "x", story.at)["tasks"]
    assert (task["waits_for"]["kind"], task["waits_for"]["until"]) == ("backoff", START + 4)


def test_tasks_after_a_failed_one_wait_for_nothing() -> None:
    story = Story(a_plan(a_task("a"), a_task("b"), a_task("c", "a"))).boots("cpu-spot-1").binds("a", "cpu-spot-1")
    story.binds("b", "cpu-spot-1").ends("a", exit_code=1)
    waits = {task["path"]: task["waits_for"] for task in run_view(story.state, "x", story.at)["tasks"]}
    assert waits["c"] == {
        "kind": "nothing", "text": "does not start any more: a failed", "tasks": [], "pools": [], "until": None
    }  # fmt: skip


def test_a_task_that_is_a_pipeline_is_marked_and_its_tasks_wait_by_path() -> None:
    inner = Dag("inner", tasks={"first": a_task("first"), "second": a_task("second", "first")})
    root = Dag("root", tasks={"loop": TaskSpec("loop", "inner", dag="inner")})
    story = Story(Plan(TaskGraph("nested", root, {"root": root, "inner": inner}), a_config()))
    tasks = {task["path"]: task for task in run_view(story.state, "x", story.at)["tasks"]}
    assert (tasks["loop"]["is_pipeline"], tasks["loop"]["status"]) == (True, "open")
    assert tasks["loop/second"]["waits_for"]["tasks"] == ["loop/first"]


def test_a_summary_counts_tasks_attempts_and_interruptions() -> None:
    said = summary(tutorial().state, "iris-x7k2p")
    assert (said["tasks"], said["attempts"], said["interruptions"], said["errors"]) == (
        {"all": 3, "succeeded": 3},
        4,
        1,
        0,
    )
    assert (said["status"], said["seconds"], said["cost"]["seconds"]) == ("succeeded", 28.0, 46.0)
