"""Every construct of the KFP language gives the values of the backend, on undisturbed and on interrupted nodes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from scripts.make_pipelines_page import page
from tests.conformance.compiling import PIPELINES
from tests.conformance.expected import EXPECTED
from tests.conformance.running import FinishedRun, run
from tests.sampling import every


@pytest.mark.parametrize("name", every(3, EXPECTED))
def test_a_pipeline_gives_the_values_of_the_backend(name: str, compiled: Path, tmp_path: Path) -> None:
    assert_expected(name, "undisturbed", compiled, tmp_path)


@pytest.mark.parametrize("name", every(8, EXPECTED))
def test_a_pipeline_gives_the_same_values_on_interrupted_nodes(name: str, compiled: Path, tmp_path: Path) -> None:
    assert_expected(name, "interrupted every second", compiled, tmp_path)


def assert_expected(name: str, pools: str, compiled: Path, folder: Path) -> None:
    """Run a pipeline on pools, and compare all results."""
    expected = EXPECTED[name]
    ran = run(compiled / f"{name}.yaml", pools, folder, expected.arguments)
    assert ran.values == expected.values
    assert typed_text(ran.values) == typed_text(expected.values)  # 1 is no 1.0, and no True
    assert ran.outputs == expected.outputs
    assert ran.tasks_with("skipped") == expected.skipped
    assert ran.tasks_with("failed") == expected.failed
    assert ran.tasks_with("waiting") | ran.tasks_with("ready") == expected.open
    assert ran.view["status"] == ("failed" if expected.failed else "succeeded")


def typed_text(values: Mapping[str, Any]) -> str:
    """Values as a text that shows their types; the order of mappings is tested by a pipeline of its own."""
    return json.dumps(values, sort_keys=True)


def named_pipelines() -> set[str]:
    """The names in ``__all__`` of the suite's modules."""
    named: set[str] = set()
    for path in PIPELINES.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                named.update(ast.literal_eval(node.value))
    return named


def test_every_pipeline_has_an_expected_result() -> None:
    assert named_pipelines() - {"placeholders", "importer_of_an_output"} == set(EXPECTED)


@pytest.fixture
def undisturbed(request: pytest.FixtureRequest, compiled: Path, tmp_path: Path) -> FinishedRun:
    """The pipeline that the test names with ``indirect``, run to its end."""
    return run(compiled / f"{request.param}.yaml", "undisturbed", tmp_path, {})


@pytest.mark.parametrize("undisturbed", ["placeholders"], indirect=True)
def test_placeholders_stand_for_the_run_and_the_task(undisturbed: FinishedRun) -> None:
    values, name = undisturbed.values, undisturbed.view["run"]
    assert [values["text"], values["text-2"], str(UUID(values["text-3"]))] == [name, name, values["text-3"]]
    assert [values["text-4"], values["text-6"], values["loop/text-7-0"]] == ["text-4", "given text-6", "1 text-7"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", values["text-5"])


@pytest.mark.parametrize("undisturbed", ["importer_of_an_output"], indirect=True)
def test_an_importer_reads_the_output_of_another_task(undisturbed: FinishedRun) -> None:
    assert undisturbed.outputs == {"Output": "made here"}


@pytest.mark.parametrize("undisturbed", ["loop_limit"], indirect=True)
def test_no_more_iterations_run_at_a_time_than_the_limit_allows(undisturbed: FinishedRun) -> None:
    spans: dict[str, list[float]] = {}
    for task in undisturbed.view["tasks"]:
        for attempt in task["attempts"]:
            spans.setdefault(task["path"][-1], []).extend((attempt["placed_at"], attempt["ended_at"]))
    lives = [(min(moments), max(moments)) for moments in spans.values()]
    assert len(lives) == 5
    assert max(sum(begun <= at < ended for begun, ended in lives) for at, _ in lives) == 2


def test_the_reference_page_has_a_row_for_each_pipeline() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ") and not line.startswith("| |")]

    assert len(rows) == len(named_pipelines())
