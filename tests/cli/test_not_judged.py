"""What a command could not judge: the same words, JSON and exit code of --strict for every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from spotwright.cli import cli
from spotwright.model.not_judged import NotJudged, Subject, counted, not_judged_json, not_judged_lines

_RUNNER = """\
apiVersion: actions.github.com/v1alpha1
kind: AutoscalingRunnerSet
metadata: {name: arc}
spec: {template: {spec: {containers: [{name: runner, image: x}]}}}
"""
_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: x, resources: {requests: {cpu: 1}}}]}}}
"""
_CONFIG = """\
version: 1
pools:
  spot: {capacity: spot, provider: eks}
  base: {capacity: on-demand, provider: eks, node: {cpu: 4}}
policy: {default: {spot: prefer}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spotwright.yaml").write_text(_CONFIG, encoding="utf-8")
    (tmp_path / "runner.yaml").write_text(_RUNNER, encoding="utf-8")
    (tmp_path / "job.yaml").write_text(_JOB, encoding="utf-8")
    return tmp_path


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)
    code = result.return_value
    assert isinstance(code, int), result.output
    return code, result.output


@pytest.mark.parametrize("command", ["lint", "place", "explain"])
def test_an_unknown_kind_is_counted_and_strict_fails(command: str, folder: Path) -> None:
    code, output = run(command, folder / "runner.yaml")
    assert code == 0
    assert "not judged:" in output
    assert "AutoscalingRunnerSet arc" in output
    assert run(command, "--strict", folder / "runner.yaml")[0] == 1


@pytest.mark.parametrize("command", ["lint", "place", "explain"])
def test_a_pool_of_unknown_size_is_named(command: str, folder: Path) -> None:
    code, output = run(command, folder / "job.yaml")
    assert code == 0
    assert "not judged:" in output
    assert "spot" in output.rpartition("not judged:")[2]
    assert run(command, "--strict", folder / "job.yaml")[0] == 1


def test_the_json_of_lint_and_explain_has_the_same_form(folder: Path) -> None:
    linted = json.loads(run("lint", "--format", "json", folder / "runner.yaml")[1])["not_judged"]
    explained = json.loads(run("explain", "--json", folder / "runner.yaml")[1])["not_judged"]
    assert [{**one, "line": 0} for one in linted] == [{**one, "line": 0} for one in explained]
    assert linted[0]["remedy"] == "name the path of the pod spec: --pod-path spec.template.spec"
    pools = json.loads(run("explain", "--json", folder / "job.yaml")[1])["files"][str(folder / "job.yaml")]["roles"][0][
        "pools"
    ]
    assert [(one["name"], bool(one["maybe"])) for one in pools] == [("spot", True), ("base", False)]


def test_lint_names_pools_as_explain_does(folder: Path) -> None:
    linted = json.loads(run("lint", "--format", "json", folder / "job.yaml")[1])["not_judged"]
    assert linted == json.loads(run("explain", "--json", folder / "job.yaml")[1])["not_judged"] != []
    (folder / "spotwright.yaml").write_text(
        f"{_CONFIG}lint:\n  off: {{place-refuses: tried elsewhere}}\n", encoding="utf-8"
    )
    assert linted == json.loads(run("lint", "--format", "json", folder / "job.yaml")[1])["not_judged"]


def test_sarif_has_a_notification_for_what_was_not_judged(folder: Path) -> None:
    [run_] = json.loads(run("lint", "--format", "sarif", folder / "runner.yaml")[1])["runs"]
    [note] = run_["invocations"][0]["toolExecutionNotifications"]
    assert note["level"] == "note"
    assert "AutoscalingRunnerSet arc" in note["message"]["text"]


def test_nothing_is_said_where_all_was_judged(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(_CONFIG.replace("eks}", "eks, node: {cpu: 4}}"), encoding="utf-8")
    for command in ("lint", "place", "explain"):
        code, output = run(command, "--strict", folder / "job.yaml")
        assert code == 0
        assert "not judged" not in output


def test_a_file_of_another_orchestrator_is_not_judged(folder: Path) -> None:
    (folder / "flow.py").write_text("from prefect import flow\n\n\n@flow\ndef main(): ...\n", encoding="utf-8")
    assert "not judged: 1 object (flow.py)" in run("lint", folder / "flow.py")[1]


def test_equal_reasons_are_one_line_and_names_are_counted_once() -> None:
    found = [NotJudged(Subject.POOL, name, "unknown", "state it") for name in ("a", "b", "a", "c", "d")]
    assert counted(found) == "not judged: 4 pools (a, b, c, ...)"
    assert not_judged_lines(found) == ["not judged: pools a, b, c, d: unknown: state it"]
    assert len(not_judged_json(found)) == 4
    assert counted([]) == ""
