"""``spotwright compile``: the real SDK reads its output, which runs with the policy of the Python file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.kfp.compiled import plan_of

from spotwright import config
from spotwright.engine.plan import Plan
from spotwright.kfp.loader import load
from spotwright.kfp.pipeline_graph import build
from spotwright.manifests.files import unplace_text

PIPELINE = """
from kfp import dsl, kubernetes
import spotwright as spot


@dsl.component(base_image="python:3.11")
def get(url: str) -> str:
    return url


@dsl.component(base_image="python:3.11")
def train(data: str) -> str:
    return data


@dsl.pipeline
def inner(data: str) -> str:
    return train(data=data).output


@dsl.pipeline(name="digits")
def digits(url: str = "x"):
    first = get(url=url)
    inner(data=first.output).set_retry(2)
    last = train(data=first.output).set_retry(3, "30s", 2.0, "1h")
    spot.prefer(last, interruptions=5)
    kubernetes.set_timeout(last, 600)


digits = spot.defaults(retries=1)(digits)
"""
CONFIG = """
version: 1
pools:
  regular: {capacity: on-demand, provider: aks, node: {cpu: 4, memory: 16Gi}}
  spot: {capacity: spot, provider: aks, node: {cpu: 4, memory: 16Gi}}
policy:
  default: {spot: prefer, image_pull_secrets: [acr]}
  tasks:
    "**train*": {checkpoint: "gs://bucket", timeout: 1h}
"""
LOAD_AND_WRITE = """
import sys, warnings
warnings.simplefilter("ignore")
from kfp import compiler, components
compiler.Compiler().compile(components.load_component_from_file(sys.argv[1]), sys.argv[2])
"""


def spotwright(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spotwright", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline, its configuration, and what compile made of both."""
    found = tmp_path_factory.mktemp("digits")
    (found / "digits.py").write_text(PIPELINE)
    (found / "spotwright.yaml").write_text(CONFIG)
    done = spotwright(found, "compile", "digits.py", "--pipeline", "digits", "-o", "digits.yaml")
    assert done.returncode == 0, done.stderr
    (found / "said").write_text(done.stderr)
    return found


def plans(folder: Path) -> tuple[Any, Any]:
    """How a run of the Python file and one of the compiled file are planned."""
    settings = config.find(folder / "digits.yaml")
    plan = Plan(build(load(folder / "digits.py", pipeline="digits")), settings)
    written = {each.path: each for scope in ("", "inner") for each in plan.unfold(scope)}
    return written, plan_of(folder / "copy.yaml", (folder / "digits.yaml").read_text(), settings)


def test_the_real_sdk_takes_the_file_and_keeps_everything_in_it(folder: Path) -> None:
    again = folder / "again.yaml"
    subprocess.run([sys.executable, "-c", LOAD_AND_WRITE, str(folder / "digits.yaml"), str(again)], check=True)

    assert list(plain_yaml.load_all(again.read_text())) == list(
        plain_yaml.load_all((folder / "digits.yaml").read_text())
    )


def test_what_the_sdk_reformatted_can_be_unplaced(folder: Path) -> None:
    again = folder / "once-more.yaml"
    subprocess.run([sys.executable, "-c", LOAD_AND_WRITE, str(folder / "digits.yaml"), str(again)], check=True)
    files = (again, folder / "digits.yaml")

    first, second = (list(plain_yaml.load_all(unplace_text(file.read_text(), str(file)).text)) for file in files)
    assert first == second


def test_the_settings_are_known_to_the_messages_of_kfp_kubernetes(folder: Path) -> None:
    from google.protobuf import json_format
    from kfp.kubernetes import kubernetes_executor_config_pb2 as messages

    _, platform = plain_yaml.load_all((folder / "digits.yaml").read_text())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert len(executors) == 3
    for settings in executors.values():
        json_format.ParseDict(settings, messages.KubernetesExecutorConfig())


def test_a_run_of_it_has_the_policy_of_a_run_of_the_python_file(folder: Path) -> None:
    written, compiled = plans(folder)

    assert {path: each.policy for path, each in written.items()} == {
        path: each.policy for path, each in compiled.items()
    }


def test_a_run_of_it_has_the_pools_of_a_run_of_the_python_file(folder: Path) -> None:
    written, compiled = plans(folder)

    assert {path: each.ladder for path, each in written.items()} == {
        path: each.ladder for path, each in compiled.items()
    }


def test_without_an_output_it_goes_to_standard_output(folder: Path) -> None:
    done = spotwright(folder, "compile", "digits.py", "--pipeline", "digits")

    assert done.stdout == (folder / "digits.yaml").read_text()


def test_compile_and_place_print_the_admins_line_where_retries_are_void(folder: Path, tmp_path: Path) -> None:
    line = (
        """COMPILED_PIPELINE_SPEC_PATCH='{"templateDefaults":{"retryStrategy":{"limit":"0","retryPolicy":"Always"}}}'"""
    )
    (tmp_path / "spotwright.yaml").write_text(CONFIG)
    (tmp_path / "digits.yaml").write_text(unplace_text((folder / "digits.yaml").read_text(), "digits.yaml").text)
    placed = spotwright(tmp_path, "place", "digits.yaml")

    for printed in ((folder / "said").read_text(), placed.stderr):
        assert printed.count(line) == 1
        assert "target.kfp is not set, so 2.17 is assumed" in printed
    assert placed.stdout.count("retries in [") == (folder / "digits.yaml").read_text().count("retries in [") != 0


def test_retries_of_the_pipeline_stay_and_are_named(folder: Path) -> None:
    assert "train: its retryPolicy stays: maxRetryCount 3" in (folder / "said").read_text()


def test_retries_of_the_pipeline_are_replaced_when_asked_for(folder: Path) -> None:
    done = spotwright(folder, "compile", "digits.py", "--pipeline", "digits", "--replace-retries")
    spec, _ = plain_yaml.load_all(done.stdout)

    assert (
        spec["root"]["dag"]["tasks"]["train"]["retryPolicy"]["maxRetryCount"] == 6
    )  # 5 interruptions, and one error as spot.defaults has it


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("digits.yaml",), "this file is compiled already: use spotwright place digits.yaml"),
        (("digits.py", "-o", "x.json"), "placement needs a second document"),
        (("nothing.py",), "there is no such file"),
        (("digits.py", "--pipeline", "digits", "--config", "nowhere.yaml"), "nowhere.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_compiled_is_one_line_and_exit_code_2(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = spotwright(folder, "compile", *arguments)

    assert (done.returncode, words in done.stderr, done.stdout) == (2, True, "")


def test_a_file_that_cannot_be_placed_is_not_written(folder: Path) -> None:
    (folder / "tight.yaml").write_text(CONFIG.replace("{spot: prefer,", "{spot: require, ladder: [regular],"))
    done = spotwright(
        folder, "compile", "digits.py", "--pipeline", "digits", "--config", "tight.yaml", "-o", "new.yaml"
    )

    assert (done.returncode, (folder / "new.yaml").exists()) == (2, False)
