"""The walk over raw IR: paths as in a run, loops, exit handlers, retries of pipelines, documents that contradict themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.kfp.builders import component, ir, task

from spotwright.graph import Dag, TaskGraph
from spotwright.kfp.compiled import Compiled, IrError, UnfoldedTask, dag_tasks, unfold
from spotwright.kfp.pipeline_graph import build


def pipeline(**tasks: Any) -> dict[str, Any]:
    """A component that is a pipeline."""
    return {"dag": {"tasks": tasks}}


def by_path(document: dict[str, Any]) -> dict[str, UnfoldedTask]:
    return {found.path: found for found in unfold(document)}


def graph_paths(graph: TaskGraph, dag: Dag, above: str = "") -> Iterator[str]:
    for name, spec in dag.tasks.items():
        if spec.dag is None:
            yield f"{above}{name}"
        else:
            yield from graph_paths(graph, graph.dags[spec.dag], f"{above}{name}/")


def test_the_paths_are_those_of_the_graph(training: Compiled) -> None:
    graph = build(training)

    assert sorted(by_path(training.ir)) == sorted(graph_paths(graph, graph.root))


def test_a_pipeline_that_is_used_twice_has_tasks_with_equal_keys_and_different_paths() -> None:
    components = {"comp-inner": pipeline(train=task("train")), "comp-train": component("train")}
    found = by_path(ir({"a": task("inner"), "b": task("inner")}, components))

    assert list(found) == ["a/train", "b/train"]
    assert {each.keys for each in found.values()} == {("components", "comp-inner", "dag", "tasks", "train")}
    assert {each.label for each in found.values()} == {"exec-train"}


def test_a_named_loop_gives_its_name_to_the_path() -> None:
    loop: dict[str, Any] = {"componentRef": {"name": "comp-for-loop-1"}, "taskInfo": {"name": "sweep"}}
    loop["parameterIterator"] = {"itemInput": "item", "items": {"raw": "[1]"}}
    components = {"comp-for-loop-1": pipeline(train=task("train")), "comp-train": component("train")}
    found = by_path(ir({"for-loop-1": loop, "other": task("train")}, components))

    assert {path: each.in_loop for path, each in found.items()} == {"sweep/train": True, "other": False}


def test_tasks_of_a_pipeline_that_is_an_exit_task_are_in_the_exit_handler() -> None:
    after_all = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    tasks = {
        "exit-handler-1": task("exit-handler-1"),
        "clean": task("cleaning", dependentTasks=["exit-handler-1"], triggerPolicy=after_all),
        "report": task("train", dependentTasks=["clean"], triggerPolicy=after_all),
    }
    components = {
        "comp-exit-handler-1": pipeline(train=task("train")),
        "comp-cleaning": pipeline(delete=task("train")),
        "comp-train": component("train"),
    }
    found = by_path(ir(tasks, components))

    assert {path for path, each in found.items() if each.in_exit_handler} == {"clean/delete"}
    assert set(found) == {"exit-handler-1/train", "clean/delete", "report"}


def test_the_retry_of_the_nearest_pipeline_counts() -> None:
    components = {
        "comp-outer": pipeline(inner=task("inner", retryPolicy={"maxRetryCount": 2}), train=task("train")),
        "comp-inner": pipeline(train=task("train")),
        "comp-train": component("train"),
    }
    found = by_path(ir({"outer": task("outer", retryPolicy={"maxRetryCount": 5}), "alone": task("train")}, components))
    retries = {
        path: each.enclosing_retry.values["errors.retries"] if each.enclosing_retry else None
        for path, each in found.items()
    }

    assert retries == {"outer/inner/train": 2, "outer/train": 5, "alone": None}


@pytest.mark.parametrize(
    ("executor", "has_pod"),
    [
        ({"container": {"image": "python:3.11"}}, True),
        ({"container": {"image": "argostub/createpvc"}}, False),
        ({"container": {"image": "argostub/deletepvc"}}, False),
        ({"importer": {"artifactUri": {"constant": "gs://b/x"}}}, False),
        ({"container": {}}, False),
    ],
)
def test_importers_and_claim_steps_have_no_pod(executor: dict[str, Any], *, has_pod: bool) -> None:
    document = ir({"step": task("step")})
    document["deploymentSpec"]["executors"]["exec-step"] = executor

    assert by_path(document)["step"].has_pod is has_pod


def _without_component(document: dict[str, Any]) -> None:
    del document["components"]["comp-a"]


def _without_executor(document: dict[str, Any]) -> None:
    document["deploymentSpec"]["executors"].clear()


def _task_that_is_text(document: dict[str, Any]) -> None:
    document["root"]["dag"]["tasks"]["a"] = "train"


def _component_reference_that_is_text(document: dict[str, Any]) -> None:
    document["root"]["dag"]["tasks"]["a"]["componentRef"] = "comp-a"


def _pipeline_in_itself(document: dict[str, Any]) -> None:
    document["components"]["comp-a"] = pipeline(again=task("a"))


def _retry_that_is_no_duration(document: dict[str, Any]) -> None:
    document["root"]["dag"]["tasks"]["a"]["retryPolicy"] = {"maxRetryCount": 1, "backoffDuration": "soon"}
    document["components"]["comp-a"] = pipeline(train=task("train"))


ROOT_TASK = ("root", "dag", "tasks", "a")


@pytest.mark.parametrize(
    ("spoil", "keys", "text"),
    [
        (_without_component, ROOT_TASK, "its component 'comp-a' is not in components"),
        (_without_executor, ("components", "comp-a"), "its executor 'exec-a' is not in deploymentSpec.executors"),
        (_task_that_is_text, ROOT_TASK, "expected a mapping, found 'train'"),
        (_component_reference_that_is_text, (*ROOT_TASK, "componentRef"), "expected a mapping, found 'comp-a'"),
        (
            _pipeline_in_itself,
            ("components", "comp-a", "dag", "tasks", "again"),
            "the pipeline comp-a contains itself",
        ),
        (_retry_that_is_no_duration, (*ROOT_TASK, "retryPolicy"), "cannot be read"),
    ],
)
def test_a_contradiction_is_named_with_its_keys(spoil: Any, keys: tuple[str, ...], text: str) -> None:
    document = ir({"a": task("a")})
    spoil(document)
    with pytest.raises(IrError, match=text) as caught:
        list(unfold(document))

    assert caught.value.keys == keys


def test_pipelines_that_multiply_are_refused_also_where_they_hold_no_task() -> None:
    components: dict[str, Any] = {f"comp-p{n}": pipeline(a=task(f"p{n + 1}"), b=task(f"p{n + 1}")) for n in range(30)}
    components["comp-p30"] = {"dag": {}}
    with pytest.raises(IrError, match="more than 20,000 tasks"):
        list(unfold(ir({"p": task("p0")}, components)))


def test_each_task_of_the_document_is_visited_once() -> None:
    components = {"comp-inner": pipeline(train=task("train")), "comp-train": component("train")}
    document = ir({"a": task("inner"), "b": task("inner")}, components)

    assert [(where, key) for where, key, _ in dag_tasks(document)] == [("", "a"), ("", "b"), ("comp-inner", "train")]


def test_a_document_of_other_kinds_has_no_tasks() -> None:
    assert list(dag_tasks({"root": [], "components": {"comp-a": "text", "comp-b": {"dag": {"tasks": 3}}}})) == []
