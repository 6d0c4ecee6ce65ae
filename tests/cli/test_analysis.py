"""``spot.plan``, ``spot.lint`` and ``spot.explain``: the same facts as the commands, from paths, objects and functions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.e2e.building import Of, Param, document, step

import spotwright as spot
from spotwright.cli import cli

POOLS = {"spot": {"capacity": "spot", "provider": "gke"}, "od": {"capacity": "on-demand", "provider": "gke"}}
CONFIG: dict[str, Any] = {"pools": POOLS, "policy": {"default": {"spot": "prefer"}}}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"cloud.google.com/gke-spot": "true"},
                "containers": [{"name": "main", "image": "python:3.11"}],
            }
        },
    },
}


def load(token: str) -> str:
    return token


def train(data: str) -> str:
    return data


def printed(*command: str) -> Any:
    done = CliRunner().invoke(cli, [*command], standalone_mode=False)
    assert done.exception is None, done.output
    return json.loads(done.stdout)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a pipeline, a manifest and a configuration."""
    steps = {"load": step(load, {"token": Param("token")}), "train": step(train, {"data": Of("load")})}
    (tmp_path / "pipeline.yaml").write_text(document(steps, {"token": "str"}, name="two-steps"))
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    (tmp_path / "spotwright.yaml").write_text(json.dumps({"version": 1, **CONFIG}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_has_the_facts_of_the_command(files: Path) -> None:
    answer = spot.plan(files / "pipeline.yaml", rate="10%/h", markets=50, seed=3)
    facts = printed("plan", str(files / "pipeline.yaml"), "--rate", "10%/h", "--markets", "50", "--seed", "3", "--json")

    assert answer.json() == facts
    assert repr(answer).startswith("Plan of two-steps: 50 markets")
    assert answer._repr_html_().startswith("<pre")


def test_a_plan_knows_its_deadline_and_refuses_a_wrong_one(files: Path) -> None:
    told = spot.plan("pipeline.yaml", {"token": "x"}, deadline="8h", config=CONFIG, markets=20, certainty=0.9)

    assert told.json()["deadline"] == 8 * 3600
    with pytest.raises(spot.SpotwrightError, match="deadline"):
        spot.plan("pipeline.yaml", deadline="soon")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "often"}, "^rate 'often': expected losses an hour"),
        ({"certainty": 1.5}, "^certainty '1.5': expected a share"),
        ({"durations": "nothing"}, "^durations nothing: neither a file nor a run"),
        ({"markets": 0}, "^markets 0: expected a number from 1"),
        ({"seed": -1}, "^seed -1: expected a whole number from 0"),
        ({"config": "missing.yaml"}, r"missing\.yaml"),
    ],
)
def test_a_wrong_argument_of_a_plan_is_named(files: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(spot.SpotwrightError, match=message):
        spot.plan(files / "pipeline.yaml", **options)


def test_lint_finds_in_an_object_what_it_finds_in_its_file(files: Path) -> None:
    def facts(answer: spot.Answer) -> list[tuple[str, str]]:
        return sorted((each["rule"], each["text"]) for each in answer.json()["findings"])

    by_path, by_object = spot.lint(files / "job.yaml"), spot.lint(JOB, CONFIG)

    assert by_path.json() == json.loads(
        CliRunner().invoke(cli, ["lint", str(files / "job.yaml"), "--format", "json"], standalone_mode=False).stdout
    )
    assert facts(by_path) == facts(by_object) != []
    assert "[" in repr(by_path).splitlines()[0]


def test_lint_counts_objects_beside_the_source() -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"pods": 0}}}

    assert "quota-refuses-pods" not in repr(spot.lint(JOB))
    assert "ResourceQuota team allows no pods" in repr(spot.lint(JOB, beside=[quota]))


def test_lint_of_what_is_no_manifest_is_one_message(files: Path) -> None:
    with pytest.raises(spot.SpotwrightError, match="expected a dict, or a model"):
        spot.lint(7)
    with pytest.raises(spot.SpotwrightError, match=r"missing\.yaml"):
        spot.lint("missing.yaml")


def test_a_notebook_shows_one_sentence_of_an_error() -> None:
    """IPython prints what ``_render_traceback_`` gives; ``spot.lint(7)`` in IPython 9.17 was tried by hand."""
    with pytest.raises(spot.SpotwrightError) as caught:
        spot.lint(7)
    assert caught.value._render_traceback_() == [
        "InputError: int: expected a dict, or a model of the kubernetes client or a Kubeflow SDK"
    ]


def test_explain_says_of_a_file_and_of_an_object_where_its_roles_may_run(files: Path) -> None:
    answer = spot.explain(files / "job.yaml")

    assert answer.json() == printed("explain", str(files / "job.yaml"), "--json")
    (role,) = spot.explain(JOB, CONFIG).json()["files"]["object"]["roles"]
    assert [pool["name"] for pool in role["pools"]] == ["spot"]
    assert "train" in repr(answer)


IN_PYTHON = """
from kfp import dsl
import spotwright as spot


@dsl.component
def work() -> int:
    return 1


@dsl.pipeline
def one():
    work()


config = {"pools": {"spot": {"capacity": "spot"}, "od": {"capacity": "on-demand"}}}
if __name__ == "__main__":
    (task,) = spot.explain(one, config).json()["files"]["pipeline"]["roles"]
    assert (task["path"], task["line"]) == ("work", None), task
    assert spot.lint(one, config).json()["unread"] == []
    assert spot.plan(one, config=config, markets=20).json()["pipeline"] == "one"
    (task,) = spot.explain(__file__, config).json()["files"][__file__]["roles"]
    assert (task["path"], task["line"]) == ("work", None), task
"""


@pytest.mark.slow
def test_a_function_with_a_pipeline_and_a_python_file_are_linted_explained_and_planned(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(IN_PYTHON)
    done = subprocess.run([sys.executable, tmp_path / "one.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
