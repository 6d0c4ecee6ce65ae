"""Fingerprints of executions and of code."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.kfp.builders import restored, stored

from spotwright.graph import Constant, DagInput, OutputSpecs, ParameterSpec, TaskSpec
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.executors import PythonComponent, code_fingerprint, fingerprint
from spotwright.kfp.pipeline_graph import build
from spotwright.model.policy import Layer
from spotwright.model.scheduling_terms import Constraints, Toleration

TASK = TaskSpec(
    "step",
    "comp-step",
    executor=PythonComponent("def f(): ...", "f", packages=("a",), env={"A": "1"}, image="i", command=("sh",)),
    parameters={"x": DagInput("x"), "c": Constant(1)},
    outputs=OutputSpecs({"o": ParameterSpec("STRING")}),
)


def with_executor(**changes: Any) -> TaskSpec:
    assert TASK.executor is not None
    return dataclasses.replace(TASK, executor=dataclasses.replace(TASK.executor, **changes))


CODE = {
    "source": with_executor(module="def f(): return 1"),
    "function": with_executor(function="g"),
    "packages": with_executor(packages=("b",)),
    "environment": with_executor(env={"A": "2"}),
    "image": with_executor(image="j"),
}


@pytest.mark.parametrize("changed", CODE.values(), ids=CODE)
def test_other_code_has_another_fingerprint(changed: TaskSpec) -> None:
    assert fingerprint(changed, {}, {}) != fingerprint(TASK, {}, {})
    assert code_fingerprint(changed) != code_fingerprint(TASK)


def test_other_values_change_the_fingerprint_of_the_execution_only() -> None:
    assert fingerprint(TASK, {"x": 1}, {}) != fingerprint(TASK, {"x": 2}, {})
    assert fingerprint(TASK, {"x": 1, "y": 2}, {}) == fingerprint(TASK, {"y": 2, "x": 1}, {})


WIRING = {
    "constant": dataclasses.replace(TASK, parameters={"x": DagInput("x"), "c": Constant(2)}),
    "source of an input": dataclasses.replace(TASK, parameters={"x": DagInput("y"), "c": Constant(1)}),
    "declared output": dataclasses.replace(TASK, outputs=OutputSpecs({"p": ParameterSpec("STRING")})),
}


@pytest.mark.parametrize("changed", WIRING.values(), ids=WIRING)
def test_other_constants_and_wiring_have_another_fingerprint(changed: TaskSpec) -> None:
    assert code_fingerprint(changed) != code_fingerprint(TASK)


PLACE = {
    "requests": dataclasses.replace(TASK, requests={"cpu": 1}, limits={"cpu": 1}),
    "placement": dataclasses.replace(TASK, constraints=Constraints((Toleration("a"),))),
    "policy": dataclasses.replace(TASK, policy=Layer("the pipeline", {"spot": "never"}), retry=Layer("set_retry", {})),
    "name": dataclasses.replace(TASK, display_name="other"),
    "placement input": dataclasses.replace(TASK, parameters={**TASK.parameters, "placement:t": DagInput("t")}),
}


@pytest.mark.parametrize("changed", PLACE.values(), ids=PLACE)
def test_placement_and_retries_do_not_change_the_fingerprint(changed: TaskSpec) -> None:
    assert code_fingerprint(changed) == code_fingerprint(TASK)
    assert fingerprint(changed, {"x": 1, "placement:t": 5}, {}) == fingerprint(TASK, {"x": 1}, {})


def test_a_cache_key_counts_instead_of_code_and_values() -> None:
    keyed = dataclasses.replace(TASK, cache_key="k")
    other = dataclasses.replace(with_executor(module="else"), cache_key="k")
    assert fingerprint(keyed, {"x": 1}, {}) == fingerprint(other, {"x": 2}, {})
    assert fingerprint(dataclasses.replace(TASK, cache_key="l"), {}, {}) != fingerprint(keyed, {}, {})


def artifact(path: Path) -> dict[str, Any]:
    return {"d": {"name": "d", "uri": str(path), "metadata": {}}}


def test_a_changed_file_changes_the_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "data"
    seen = []
    for text in ("one", "two", None):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        seen.append(fingerprint(TASK, {}, artifact(file)))
    assert len(set(seen)) == 3
    file.write_text("one")
    assert fingerprint(TASK, {}, artifact(file)) == seen[0]


def test_a_changed_file_in_a_folder_changes_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("one")
    first = fingerprint(TASK, {}, artifact(tmp_path / "a"))
    (tmp_path / "a" / "b" / "c").rename(tmp_path / "a" / "d")
    assert fingerprint(TASK, {}, artifact(tmp_path / "a")) != first


def test_a_remote_artifact_counts_by_its_address_and_metadata() -> None:
    one = {"d": {"uri": "s3://b/x", "metadata": {}}}
    assert fingerprint(TASK, {}, one) != fingerprint(TASK, {}, {"d": {"uri": "s3://b/y", "metadata": {}}})
    assert fingerprint(TASK, {}, one) != fingerprint(TASK, {}, {"d": {"uri": "s3://b/x", "metadata": {"a": 1}}})
    assert fingerprint(TASK, {}, {"d": [one["d"]]}) == fingerprint(TASK, {}, one)


def test_a_pipeline_compiled_again_has_the_same_fingerprints(training: Compiled) -> None:
    first, again = build(training), build(restored(stored(training)))
    for name, task in first.root.tasks.items():
        assert code_fingerprint(task) == code_fingerprint(again.root.tasks[name])
    assert len({code_fingerprint(task) for task in first.root.tasks.values()}) == len(first.root.tasks)
