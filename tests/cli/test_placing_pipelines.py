"""place, unplace and explain on pipelines: what run and compile take, explain takes too, and place names compile."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml

CONFIG = """\
version: 1
pools:
  spotpool: {capacity: spot, provider: aks, node: {cpu: 4, memory: 16Gi}}
  agentpool: {capacity: on-demand, provider: aks, node: {cpu: 4, memory: 16Gi}}
policy: {default: {spot: prefer}}
"""
PIPELINE = """\
from kfp import dsl


@dsl.component(base_image="python:3.11")
def train(data: str) -> str:
    return data


@dsl.pipeline(name="digits")
def digits(data: str = "x"):
    train(data=data)


@dsl.pipeline(name="other")
def other(data: str = "x"):
    train(data=data).set_display_name("again")
    train(data=data)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration beside two pipelines in Python, and one of them compiled to YAML and to JSON."""
    made = tmp_path_factory.mktemp("digits")
    (made / "spotwright.yaml").write_text(CONFIG)
    (made / "digits.py").write_text(PIPELINE)
    compiled = spotwright(made, "compile", "digits.py", "--pipeline", "digits", "-o", "placed.yaml")
    assert compiled.returncode == 0, compiled.stderr
    unplaced = spotwright(made, "unplace", "placed.yaml", "-o", "digits.yaml")
    assert unplaced.returncode == 0, unplaced.stderr
    (made / "digits.json").write_text(json.dumps(next(plain_yaml.load_all((made / "digits.yaml").read_text()))))
    return made


def spotwright(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spotwright", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def roles(folder: Path, *arguments: str) -> list[Any]:
    """The roles that ``explain --json`` reports for one file."""
    result = spotwright(folder, "explain", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    [file] = json.loads(result.stdout)["files"].values()
    return list(file["roles"])


def test_explain_takes_a_pipeline_in_python_and_names_no_line_of_it(folder: Path) -> None:
    result = spotwright(folder, "explain", "digits.py", "--pipeline", "digits")

    assert result.returncode == 0, result.stderr
    assert "digits.py: train (task)" in result.stdout
    assert "pools, in order: spotpool (spot), agentpool (on-demand)" in result.stdout
    assert re.search(r"\bline \d", result.stdout) is None


def test_python_and_compiled_forms_of_a_pipeline_are_explained_alike(folder: Path) -> None:
    forms = (
        roles(folder, "digits.py", "--pipeline", "digits"),
        roles(folder, "digits.yaml"),
        roles(folder, "digits.json"),
        roles(folder, "placed.yaml"),
    )
    without_lines = [[{key: role[key] for key in role if key != "line"} for role in form] for form in forms]

    assert forms[0][0]["line"] is None
    assert forms[1][0]["line"] > 1
    assert without_lines == [without_lines[0]] * 4


def test_explain_asks_which_of_several_pipelines_is_meant(folder: Path) -> None:
    result = spotwright(folder, "explain", "digits.py")

    assert result.returncode == 2
    assert "digits, other" in result.stderr


def test_explain_places_nothing_beside_the_pipeline(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    spotwright(folder, "explain", "digits.py", "--pipeline", "digits")

    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_place_sends_a_pipeline_in_python_to_compile(folder: Path) -> None:
    result = spotwright(folder, "place", "digits.py")

    assert result.returncode == 2
    assert "use spotwright compile digits.py" in result.stderr


def test_unplace_asks_for_the_file_that_compile_wrote(folder: Path) -> None:
    result = spotwright(folder, "unplace", "digits.py")

    assert result.returncode == 2
    assert "name the YAML file that compile wrote" in result.stderr


def test_compile_prints_each_finding_of_explain_once_in_the_same_words(folder: Path) -> None:
    compiled = spotwright(folder, "compile", "digits.py", "--pipeline", "other", "-o", "other.yaml")
    explained = spotwright(folder, "explain", "digits.py", "--pipeline", "other", "--json")
    [file] = json.loads(explained.stdout)["files"].values()
    findings = [f"{finding['level']}: {finding['text']}" for finding in file["findings"]]

    assert compiled.stderr.splitlines() == findings
    assert len(set(findings)) == len(findings)
    assert any("retries neither errors of the code nor drained pods" in finding for finding in findings)


BUSY = """\
from kfp import dsl


@dsl.component(base_image="python:3.11")
def train(data: str) -> str:
    from spotwright.checkpoint import checkpoint
    return data


@dsl.component(base_image="python:3.11")
def check(data: str):
    print(data)


@dsl.pipeline(name="busy")
def busy():
    with dsl.ParallelFor(["a", "b", "c"]) as data:
        train(data=data).set_retry(2)
        check(data=data).set_retry(3)
"""
TO_DO = ["the claim ckpt, for the checkpoints of", "mount the ConfigMap", "retries neither errors of the code"]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of which more is to be said than fits on five lines."""
    made = tmp_path_factory.mktemp("busy")
    policy = CONFIG.replace("prefer}", "prefer, grace_period: 1m, checkpoint: pvc://ckpt}")
    (made / "spotwright.yaml").write_text(policy + "target: {package: configmap}\n")
    (made / "busy.py").write_text(BUSY)
    compiled = spotwright(made, "compile", "busy.py", "-o", "busy.yaml")
    assert compiled.returncode == 0, compiled.stderr
    (made / "said").write_text(compiled.stderr)
    assert spotwright(made, "unplace", "busy.yaml", "-o", "plain.yaml").returncode == 0
    return made


def test_compile_and_place_say_on_five_lines_what_is_to_be_done_first_and_explain_says_the_rest(busy: Path) -> None:
    compiled = (busy / "said").read_text().splitlines()
    placed = spotwright(busy, "place", "plain.yaml", "-o", "again.yaml").stderr.splitlines()
    explained = spotwright(busy, "explain", "busy.py", "--json")
    [file] = json.loads(explained.stdout)["files"].values()
    texts = {finding["text"] for finding in file["findings"]}

    for lines in (compiled, placed):
        assert len(lines) == 5
        assert all(any(part in line for line in lines[:3]) for part in TO_DO), lines
        assert sum(any(text in line for text in texts) for line in lines) == 4
    assert re.fullmatch(r"[1-9] more findings?: spotwright explain busy.py", compiled[-1])
    assert re.search(r"\(\d warnings?, \d notes?; explain shows [1-9] more\)", placed[-1])
    assert len(texts) > 4


def test_a_claim_that_many_pods_mount_is_asked_for_and_one_beside_the_pipeline_is_not(busy: Path) -> None:
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: ckpt}\nspec: {accessModes: [MODE]}\n"
    (busy / "claim.yaml").write_text(claim.replace("MODE", "ReadWriteMany"))
    (busy / "disk.yaml").write_text(claim.replace("MODE", "ReadWriteOnce"))
    said = {
        beside: spotwright(busy, "explain", "plain.yaml", *(("--with", beside) if beside else ())).stdout
        for beside in ("", "claim.yaml", "disk.yaml")
    }

    needed = "has to be in the namespace of the runs, and iterations of a loop mount it, each on its node"
    assert [needed in text for text in said.values()] == [True, False, True]


def test_values_of_retries_have_a_comment_that_says_what_they_are(folder: Path) -> None:
    text = (folder / "placed.yaml").read_text()

    assert "maxRetryCount: 10  # interruptions.max 10 + errors.retries 0\n" in text
    assert 'backoffMaxDuration: "2592000s"  # 30 days from the first attempt on, in which others may begin\n' in text
    assert "#" not in (folder / "digits.yaml").read_text().replace("# PIPELINE", "")


@pytest.mark.parametrize(("pattern", "code"), [("trian*", 2), ("tra*", 0), ("train-2", 0)])
def test_compile_refuses_a_pattern_that_matches_no_task_as_run_does(
    folder: Path, tmp_path: Path, pattern: str, code: int
) -> None:
    config, out = tmp_path / "spotwright.yaml", tmp_path / "out.yaml"
    config.write_text(CONFIG.replace("prefer}}", f"prefer}}, tasks: {{{pattern!r}: {{spot: never}}}}}}"))
    compiled = spotwright(
        folder, "compile", "digits.py", "--pipeline", "digits", "--config", str(config), "-o", str(out)
    )

    said = "spotwright.yaml:5: policy.tasks 'trian*' matches no task: did you mean 'train'?; the tasks are train\n"
    assert (compiled.returncode, out.exists()) == (code, not code)
    assert (compiled.stderr.endswith(said) and compiled.stderr.count("\n") == 1) == bool(code)


@pytest.mark.parametrize("arguments", [["compile", "more.py"], ["place", "more.yaml"]])
def test_code_that_would_not_find_its_imports_is_refused_and_nothing_is_written(
    folder: Path, tmp_path: Path, arguments: list[str]
) -> None:
    text = (folder / "digits.yaml").read_text()
    (folder / "more.yaml").write_text(
        text.replace("  return data", "  import spotwright as spot; return spot.run(data)")
    )
    (folder / "more.py").write_text(
        PIPELINE.partition('@dsl.pipeline(name="other")')[0].replace(
            "return data", "import spotwright as spot\n    return spot.run(data)"
        )
    )
    result = spotwright(folder, *arguments, "-o", str(tmp_path / "out.yaml"))

    assert result.returncode == 2
    assert "train: its code imports spotwright.run" in result.stderr
    assert "packages_to_install" in result.stderr
    assert not (tmp_path / "out.yaml").exists()
