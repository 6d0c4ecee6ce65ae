"""The graph of one scope: its content, its counts, and very large, deep and oddly named pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.engine.builders import a_body, a_config, a_loop, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import TAKEN, Behavior, scripted
from tests.page.reading import AJob, reader_from, reader_of
from tests.views import builders
from tests.views.builders import Story

from spotwright.engine.events import Event
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.errors import UnknownRun
from spotwright.graph import Dag, TaskGraph, TaskSpec
from spotwright.page.scopes import graph
from spotwright.records.reader import RunReader
from spotwright.views.account import account
from spotwright.views.run_json import run_view

ROOM = a_config(a_pool(max_nodes=200), policy={"spot": "require"})


def a_reader(tasks: Sequence[TaskSpec], body: Dag, behaviors: dict[str, list[Behavior]]) -> RunReader:
    """A run of this pipeline that was driven to its end."""
    events: list[Event] = []

    def listen(_: RunState, batch: Sequence[Event]) -> None:
        events.extend(batch)

    plan = a_plan(list(tasks), ROOM, body=body)
    Run(plan, scripted(behaviors), observers=[listen]).start()
    return reader_from(plan, events)


def of_plan(root: Dag, **dags: Dag) -> RunReader:
    """A run of this pipeline that has just begun."""
    plan = Plan(TaskGraph("nested", root, {"root": root, **dags}), builders.a_config())
    return reader_of(Story(plan))


def nodes(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["id"]: node for node in found["nodes"]}


def test_a_pipeline_has_its_tasks_with_their_dependencies() -> None:
    found = graph(reader_of(builders.tutorial()))
    assert (found["as"], found["of"], found["path"]) == ("graph", 3, [{"id": "", "name": "iris"}])
    assert list(nodes(found)) == ["download", "merge", "train"]
    assert found["edges"] == [["download", "merge"], ["merge", "train"]]
    train = nodes(found)["train"]
    assert (train["kind"], train["status"], train["interruptions"], train["attempts"]) == ("task", "succeeded", 1, 2)
    assert (train["counts"], train["opens"], train["cost"]) == ({"succeeded": 1}, None, None)


def test_before_the_pipeline_is_unfolded_its_tasks_wait() -> None:
    story = builders.tutorial()
    found = graph(reader_from(story.state.plans[0], story.events[:2]))
    assert [(node["id"], node["status"]) for node in found["nodes"]] == [
        ("download", "waiting"), ("merge", "waiting"), ("train", "waiting"),
    ]  # fmt: skip
    assert len(found["edges"]) == 2


LOOPED = [a_task("first"), a_loop("l", "first", items=[{"lr": 0.1}, {"lr": 0.2}, "third"]), a_task("last", "l")]


def looped() -> RunReader:
    body = a_body(a_task("a"), a_task("b", "a"), out="b")
    return a_reader(LOOPED, body, {"l/a-1": [Behavior(1, TAKEN), Behavior(1)]})


def test_a_loop_is_one_node_that_counts_what_is_in_it() -> None:
    reader = looped()
    found = graph(reader, "", account(reader.state))
    loop = nodes(found)["l"]
    assert (loop["kind"], loop["iterations"], loop["opens"]) == ("loop", 3, "l")
    assert (loop["counts"], loop["attempts"], loop["interruptions"]) == ({"succeeded": 6}, 7, 1)
    inside = [task for task in run_view(reader.state, "r")["tasks"] if task["path"].startswith("l/")]
    assert loop["cost"] == pytest.approx(
        sum((a["cost"]["money"] or 0) or a["cost"]["seconds"] / 3600 for task in inside for a in task["attempts"])
    )


def test_an_opened_loop_lists_its_iterations_and_an_iteration_has_its_own_graph() -> None:
    reader = looped()
    found = graph(reader, "l")
    assert (found["as"], found["edges"], found["of"]) == ("list", [], 3)
    assert [node["name"] for node in found["nodes"]] == ['0: {"lr": 0.1}', '1: {"lr": 0.2}', "2: third"]
    assert [(node["opens"], node["status"], node["attempts"]) for node in found["nodes"]] == [
        ("l#0", "succeeded", 2), ("l#1", "succeeded", 3), ("l#2", "succeeded", 2),
    ]  # fmt: skip
    second = graph(reader, "l#1")
    assert second["edges"] == [["l/a-1", "l/b-1"]]
    assert [each["id"] for each in second["path"]] == ["", "l", "l#1"]
    assert nodes(second)["l/a-1"]["interruptions"] == 1


def test_a_loop_that_is_not_open_has_no_iterations_yet() -> None:
    root = Dag("root", tasks={"first": builders.a_task("first"), "l": a_loop("l", "first", items=[1, 2])})
    reader = of_plan(root, body=a_body(builders.a_task("a"), out="a"))
    found = graph(reader, "l")
    assert (found["as"], found["nodes"], found["of"]) == ("list", [], 0)
    with pytest.raises(UnknownRun, match="has 0 iterations"):
        graph(reader, "l#0")


def test_a_pipeline_that_is_not_open_has_the_tasks_that_it_will_have() -> None:
    inner = Dag("inner", tasks={"x": builders.a_task("x"), "y": builders.a_task("y", "x")})
    nested = TaskSpec("in", "inner", dag="inner", after=("first",))
    root = Dag("root", tasks={"first": builders.a_task("first"), "in": nested})
    found = graph(of_plan(root, inner=inner), "in")
    assert [(node["id"], node["status"]) for node in found["nodes"]] == [("in/x", "waiting"), ("in/y", "waiting")]
    assert found["edges"] == [["in/x", "in/y"]]


@pytest.mark.parametrize(
    "scope", ["x", "first", "l#3", "l#-1", "l#", "l#x", "l#1_0", "l#²", "first#0", "#0", "l#1#1", "l/a-1"]
)
def test_a_scope_that_is_not_there_is_refused(scope: str) -> None:
    with pytest.raises(UnknownRun):
        graph(looped(), scope)


def test_a_task_whose_name_looks_like_an_iteration_is_itself() -> None:
    inner = Dag("inner", tasks={"x": builders.a_task("x")})
    root = Dag("root", tasks={"l#0": TaskSpec("l#0", "inner", dag="inner")})
    assert list(nodes(graph(of_plan(root, inner=inner), "l#0"))) == ["l#0/x"]


def wide(count: int) -> RunReader:
    return reader_of(Story(builders.a_plan(*(builders.a_task(f"t{number}") for number in range(count)))))


@pytest.mark.parametrize(("count", "form"), [(600, "graph"), (601, "table")])
def test_a_scope_with_many_nodes_is_a_table(count: int, form: str) -> None:
    found = graph(wide(count))
    assert (found["as"], found["of"], len(found["nodes"]), found["edges"]) == (form, count, count, [])


def test_a_very_large_scope_is_told_in_pages() -> None:
    reader = wide(2500)
    pages = [graph(reader, first=first) for first in (0, 1000, 2000)]
    assert [len(page["nodes"]) for page in pages] == [1000, 1000, 500]
    assert pages[2]["nodes"][-1]["id"] == "t2499"
    assert graph(reader, first=-5, count=10**9)["first"] == 0


def test_a_scope_with_very_many_dependencies_is_a_table() -> None:
    first = [builders.a_task(f"a{number}") for number in range(100)]
    second = [builders.a_task(f"b{number}", *(task.name for task in first)) for number in range(100)]
    found = graph(reader_of(Story(builders.a_plan(*first, *second))))
    assert (found["as"], found["edges"]) == ("table", [])


def test_pods_of_an_orchestrator_are_nodes_of_the_root() -> None:
    job = AJob()
    job.adopt(("spot",))
    found = graph(reader_from(job.state.plans[0], job.events))
    assert [(node["id"], node["status"]) for node in found["nodes"]] == [("work", "pending")]


def test_a_deep_pipeline_is_counted_in_one_pass() -> None:
    depth = 150
    dags = {f"d{n}": Dag("d", tasks={"i": TaskSpec("i", "i", dag=f"d{n + 1}")}) for n in range(depth)}
    dags[f"d{depth}"] = Dag("d", tasks={"leaf": builders.a_task("leaf")})
    reader = of_plan(dags["d0"], **dags)
    assert nodes(graph(reader))["i"]["counts"] == {"pending": 1}
    last = graph(reader, "/".join(["i"] * depth))
    assert len(last["path"]) == depth + 1
    assert [node["kind"] for node in last["nodes"]] == ["task"]


def test_an_exit_task_is_marked() -> None:
    root = Dag("root", tasks={"a": builders.a_task("a"), "exit": builders.a_task("exit", "a", after_all=True)})
    assert nodes(graph(of_plan(root)))["exit"]["kind"] == "exit"
