"""Every construct of the KFP language comes to the values of the backend, undisturbed and on nodes that are taken away."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from scripts.make_pipelines_page import PAGE, text
from tests.conformance.compiling import PIPELINES
from tests.conformance.expected import EXPECTED
from tests.conformance.running import WORLDS, Ran, run


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_pipeline_comes_to_what_the_backend_gives(name: str, world: str, compiled: Path, tmp_path: Path) -> None:
    expected = EXPECTED[name]
    ran = run(compiled / f"{name}.yaml", world, tmp_path, expected.arguments)
    assert ran.values == expected.values
    assert written(ran.values) == written(expected.values)  # 1 is no 1.0, and no True
    assert ran.outputs == expected.outputs
    assert ran.having("skipped") == expected.skipped
    assert ran.having("failed") == expected.failed
    assert ran.having("waiting") | ran.having("ready") == expected.open
    assert ran.view["status"] == ("failed" if expected.failed else "succeeded")


def written(values: Mapping[str, Any]) -> str:
    """Values as a text that tells types apart; how mappings are ordered has a pipeline of its own."""
    return json.dumps(values, sort_keys=True)


def test_every_pipeline_is_expected_to_come_to_something() -> None:
    named: set[str] = set()
    for path in PIPELINES.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                named.update(ast.literal_eval(node.value))
    assert named - {"placeholders", "importer_of_an_output"} == set(EXPECTED)


@pytest.fixture
def undisturbed(request: pytest.FixtureRequest, compiled: Path, tmp_path: Path) -> Ran:
    """The pipeline that the test names with ``indirect``, run to its end."""
    return run(compiled / f"{request.param}.yaml", "undisturbed", tmp_path, {})


@pytest.mark.parametrize("undisturbed", ["placeholders"], indirect=True)
def test_placeholders_stand_for_the_run_and_the_task(undisturbed: Ran) -> None:
    values, name = undisturbed.values, undisturbed.view["run"]
    assert [values["text"], values["text-2"], str(UUID(values["text-3"]))] == [name, name, values["text-3"]]
    assert [values["text-4"], values["text-6"], values["loop/text-7-0"]] == ["text-4", "given text-6", "1 text-7"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", values["text-5"])


@pytest.mark.parametrize("undisturbed", ["importer_of_an_output"], indirect=True)
def test_an_importer_brings_what_another_task_has_made(undisturbed: Ran) -> None:
    assert undisturbed.outputs == {"Output": "made here"}


@pytest.mark.parametrize("undisturbed", ["loop_limit"], indirect=True)
def test_no_more_iterations_run_at_a_time_than_the_limit_allows(undisturbed: Ran) -> None:
    spans: dict[str, list[float]] = {}
    for task in undisturbed.view["tasks"]:
        for attempt in task["attempts"]:
            spans.setdefault(task["path"][-1], []).extend((attempt["placed_at"], attempt["ended_at"]))
    lives = [(min(moments), max(moments)) for moments in spans.values()]
    assert len(lives) == 5
    assert max(sum(begun <= at < ended for begun, ended in lives) for at, _ in lives) == 2


def test_the_page_of_what_is_supported_is_made_from_these_pipelines() -> None:
    assert PAGE.read_text() == text()
