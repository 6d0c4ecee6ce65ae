"""The composite action: its steps, run as GitHub's runner runs them, on files that pass and files that do not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integrations.projects import CONFIG, JOB, ROOT, a_path, run

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
_INPUT = re.compile(r"\$\{\{ inputs\.(\w+) \}\}")
_CONDITION = re.compile(r"inputs\.(\w+) != '(\w*)'")


def acted(folder: Path, **inputs: str) -> tuple[int, str]:
    """The exit code and output of the action: steps in order until one fails, by bash as the runner calls it."""
    given = {name: str(one["default"]) for name, one in ACTION["inputs"].items()} | {"install": "false"} | inputs
    path, printed = a_path(folder), ""
    for step in ACTION["runs"]["steps"]:
        condition = _CONDITION.fullmatch(step["if"])
        assert condition is not None
        if given[condition[1]] == condition[2]:
            continue
        values = {name: _INPUT.sub(lambda found: given[found[1]], text) for name, text in step.get("env", {}).items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = run(command, folder, PATH=path, **values)
        printed += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, printed
    return 0, printed


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "manifests" / "deep").mkdir(parents=True)
    (tmp_path / "manifests" / "deep" / "job.yaml").write_text(JOB)
    (tmp_path / "spotwright.yaml").write_text(CONFIG)
    run(["git", "init", "-q"], tmp_path)  # the configuration is looked for up to the root of the repository
    return tmp_path


def test_the_action_is_composite_and_every_input_is_described() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert all(one["description"] and isinstance(one["default"], str) for one in ACTION["inputs"].values())
    assert all(step["shell"] == "bash" for step in ACTION["runs"]["steps"])


def test_no_input_becomes_part_of_a_script() -> None:
    assert not any("${{" in step["run"] for step in ACTION["runs"]["steps"])


def test_files_that_are_not_placed_fail_with_the_changes_and_the_command(project: Path) -> None:
    code, printed = acted(project, placed="manifests/**/*.yaml")

    assert code == 1
    assert "+      tolerations:" in printed
    assert "::error::run spotwright place --in-place" in printed


def test_placed_files_pass_lint_and_the_check(project: Path) -> None:
    run(["spotwright", "place", "--in-place", "manifests/deep/job.yaml"], project, PATH=a_path(project))

    assert acted(project, lint="manifests/**/*.yaml", placed="manifests/**/*.yaml")[0] == 0


def test_a_pattern_that_matches_nothing_is_an_error(project: Path) -> None:
    code, printed = acted(project, lint="elsewhere/*.yaml")

    assert code == 2
    assert "::error::lint: no file matches elsewhere/*.yaml" in printed


def test_the_configuration_may_be_named(project: Path) -> None:
    (project / "spotwright.yaml").rename(project / "other.yaml")

    assert acted(project, placed="manifests/**/*.yaml", config="other.yaml")[0] == 1
    assert acted(project, placed="manifests/**/*.yaml", config="missing/other.yaml")[0] == 2
