"""Pipelines of strangers: deep, wide and doubled ones end with one sentence, and cost no more than their own size."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spotwright.cli import cli
from spotwright.errors import PipelineError, SpotwrightError
from spotwright.kfp import dsl_compiler
from spotwright.kinds.kind import calls_after

CONFIG = """\
version: 1
pools:
  spot: {capacity: spot, provider: gke, machine: n2-standard-8}
  usual: {capacity: on-demand, provider: gke, machine: n2-standard-8}
policy: {default: {spot: prefer}}
"""


def nested(levels: int, width: int) -> dict[str, Any]:
    """A compiled pipeline of pipelines inside pipelines, each of which is called ``width`` times."""
    names = [f"comp-{number}" for number in range(levels)]

    def dag(inner: str) -> dict[str, Any]:
        tasks = {
            f"t{number}": {"taskInfo": {"name": f"t{number}"}, "componentRef": {"name": inner}}
            for number in range(width)
        }
        return {"dag": {"tasks": tasks}}

    inner = [*names[1:], "comp-leaf"]
    container = {"image": "python:3.11", "command": ["python", "-c", "print(1)"]}
    return {
        "components": {
            **{name: dag(below) for name, below in zip(names[1:], inner[1:], strict=True)},
            "comp-leaf": {"executorLabel": "exec-leaf"},
        },
        "deploymentSpec": {"executors": {"exec-leaf": {"container": container}}},
        "pipelineInfo": {"name": "p"},
        "root": dag(inner[0]),
        "schemaVersion": "2.1.0",
        "sdkVersion": "kfp-2.14.0",
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "spotwright.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*words: str) -> str:
    result = CliRunner().invoke(cli, words)
    if isinstance(result.exception, SpotwrightError):
        return str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


@pytest.mark.parametrize("command", ["plan", "lint", "place", "explain"])
@pytest.mark.parametrize(
    ("levels", "width", "text"),
    [
        (40, 2, "more than 20,000 tasks"),
        (60, 1, "more than 50 pipelines inside one another"),
        (10, 5, "more than 20,000 tasks"),
    ],
)
def test_a_pipeline_that_unfolds_to_too_much_is_one_sentence(
    folder: Path, command: str, levels: int, width: int, text: str
) -> None:
    (folder / "deep.yaml").write_text(json.dumps(nested(levels, width)))
    assert text in said(command, "deep.yaml")


@pytest.mark.parametrize("command", ["plan", "lint", "place", "explain"])
@pytest.mark.parametrize("opening", ['{"a":', "[", '{"a":['])
@pytest.mark.parametrize("levels", [300, 100_000])
def test_a_document_that_is_nested_too_deep_is_one_sentence(
    folder: Path, command: str, opening: str, levels: int
) -> None:
    closing = opening.replace('"a":', "").translate(str.maketrans("{[", "}]"))[::-1]
    (folder / "deep.json").write_text(opening * levels + "1" + closing * levels)
    assert "nested deeper than 200 levels" in said(command, "deep.json")


DOUBLED = """\
from kfp import dsl

@dsl.component
def leaf():
    pass

def level(inner, number):
    def calls():
        inner()
        inner()
    return dsl.pipeline(name=f"p{number}")(calls)

made, count = leaf, 0
for count in range(40):
    made = level(made, count)
"""


def test_copies_of_pipelines_by_the_sdk_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kfp")
    file = folder / "doubled.py"
    file.write_text(DOUBLED)
    spec = importlib.util.spec_from_file_location("doubled", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(dsl_compiler, "MAX_COPIES", 16)
    with (
        dsl_compiler.patched_compiler(),
        pytest.raises(PipelineError, match="pipelines inside pipelines make more than 16 tasks"),
    ):
        spec.loader.exec_module(module)
    assert module.count < 6


def test_a_workflow_of_thousands_of_tasks_that_wait_for_each_other_is_linted(folder: Path) -> None:
    tasks = [
        {
            "name": f"t{number}",
            "template": "leaf",
            "dependencies": [f"t{one}" for one in range(max(0, number - 20), number)],
        }
        for number in range(2_000)
    ]
    templates = [{"name": "all", "dag": {"tasks": tasks}}, {"name": "leaf", "container": {"image": "i"}}]
    spec = {"entrypoint": "all", "templates": templates}
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec}
    (folder / "wide.yaml").write_text(json.dumps(workflow))
    assert "1 object in 1 file" in said("lint", "wide.yaml")


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ({"a": (), "b": "a", "c": "b"}, {"a": "", "b": "a", "c": "ab"}),
        ({"c": "b", "b": "a", "a": ()}, {"a": "", "b": "a", "c": "ab"}),
        ({"a": "b", "b": "a", "c": "a"}, {"a": "b", "b": "a", "c": "ab"}),
        ({"a": "a", "b": "ax"}, {"a": "", "b": "a"}),
    ],
    ids=["a chain", "a chain backwards", "a circle", "itself and an unknown one"],
)
def test_a_call_comes_after_all_that_it_waits_for_at_any_distance(
    after: dict[str, Any], before: dict[str, str]
) -> None:
    calls = calls_after(("tasks",), after)
    assert {name: "".join(one for one in "abc" if one in call.after) for name, call in calls.items()} == before
