"""Pipelines inside pipelines without end: a file of a few kilobytes from a stranger holds no command up, in CI above all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminals import in_this_process
from tests.kfp.builders import compiled, component, ir, task

from spotwright.errors import PipelineError
from spotwright.kfp.compiled import IrError, require_size, unfold
from spotwright.kfp.pipeline_graph import build

POOLS = """
version: 1
pools: {spot: {capacity: spot, node: {cpu: 4}, simulate: {boot: 1s}}, od: {capacity: on-demand, node: {cpu: 4}}}
"""


def nested(levels: int, innermost: dict[str, Any], *, twice: bool = True) -> dict[str, Any]:
    """A pipeline in a pipeline and so on, each called twice, or once, by the one around it."""
    components = {"comp-step": innermost}
    for level in range(levels):
        inner = "step" if level == levels - 1 else f"level-{level + 1}"
        first, second = task(inner), task(inner, dependentTasks=["a"])
        first["taskInfo"], second["taskInfo"] = {"name": "a"}, {"name": "b"}
        components[f"comp-level-{level}"] = {"dag": {"tasks": {"a": first, "b": second} if twice else {"a": first}}}
    return ir({"top": task("level-0")}, components)


STEP, AGAIN = component("step"), {"dag": {"tasks": {"again": task("level-0")}}}
EMPTY: dict[str, Any] = {"dag": {"tasks": {}}}
FORMS = {
    "40 levels, each twice": (nested(40, STEP), "more than 20,000 tasks"),
    "40 levels of nothing, each twice": (nested(40, EMPTY), "more than 20,000 tasks"),
    "400 levels, each twice": (nested(400, STEP), "inside one another"),
    "60 levels": (nested(60, STEP, twice=False), "inside one another"),
    "10,000 levels": (nested(10_000, STEP, twice=False), "inside one another"),
    "a circle of 40 levels, each twice": (nested(40, AGAIN), "comp-level-0 contains itself"),
}


@pytest.mark.parametrize(("document", "why"), FORMS.values(), ids=FORMS)
def test_nested_pipelines_are_counted_before_they_are_unfolded(document: dict[str, Any], why: str) -> None:
    before = time.process_time()
    with pytest.raises(IrError, match=why):
        next(unfold(document))
    with pytest.raises(PipelineError, match=why):
        build(compiled(document))
    assert time.process_time() - before < 0.5


def test_a_level_that_is_deep_alone_counts_where_it_is_deeper_inside() -> None:
    """``level-0`` is counted first at the top, with 48 levels, and then below two others."""
    document = nested(48, STEP, twice=False)
    document["components"]["comp-one"] = {"dag": {"tasks": {"a": task("two")}}}
    document["components"]["comp-two"] = {"dag": {"tasks": {"a": task("level-0")}}}
    require_size(document)
    document["root"]["dag"]["tasks"]["other"] = task("one")
    with pytest.raises(IrError, match="inside one another"):
        require_size(document)


def test_levels_that_people_write_are_unfolded() -> None:
    assert len(list(unfold(nested(10, STEP)))) == 1024
    assert len(list(unfold(nested(45, STEP, twice=False)))) == 1


@pytest.mark.parametrize("command", ["lint", "plan", "place", "explain", "run", "compile"])
def test_no_command_is_held_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spotwright.yaml").write_text(POOLS)
    Path("p.yaml").write_text(json.dumps(nested(40, STEP)))
    before = time.process_time()
    said = in_this_process(
        monkeypatch, command, "p.yaml", *(("-o", "out.yaml") if command == "compile" else ())
    ).decode()
    assert time.process_time() - before < 3.0
    assert "more than 20,000 tasks" in said or command == "compile"
    assert "Traceback" not in said
