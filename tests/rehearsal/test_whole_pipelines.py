"""``spotwright rehearse`` of every task of a pipeline, and of scripts, in the forms that the documentation shows."""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET

import pytest
from tests.e2e.project import Project
from tests.sampling import only

pytestmark = pytest.mark.slow

PIPELINE = """
from kfp import dsl


@dsl.component
def prepare(seconds: float) -> int:
    import time

    time.sleep(seconds)
    return 7


@dsl.component
def train(start: int, seconds: float, model: dsl.Output[dsl.Model]) -> int:
    import json
    import os
    import time
    from pathlib import Path

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "loss": start}
    while state["epoch"] < 10:
        time.sleep(seconds / 10)
        state = {"epoch": state["epoch"] + 1, "loss": state["loss"] * 0.9}
        beside = saved.with_suffix(".new")
        beside.write_text(json.dumps(state))
        beside.rename(saved)
    Path(model.path).write_text(json.dumps(state))
    return state["epoch"]


@dsl.pipeline
def training(seconds: float = 0.5) -> int:
    start = prepare(seconds=seconds)
    return train(start=start.output, seconds=seconds).outputs["Output"]
"""
SCRIPT = """
import json, os, time
from pathlib import Path

saved = Path(os.environ.get("SPOTWRIGHT_CHECKPOINT", "."), "state.json")
state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0}
while state["epoch"] < 10:
    time.sleep(SECONDS / 10)
    state["epoch"] += 1
    saved.with_suffix(".new").write_text(json.dumps(state))
    saved.with_suffix(".new").rename(saved)
Path("model.json").write_text(json.dumps(state))
"""
SECONDS = (0.5, 2.1, 3.0, 20.0)
FEWER = [*SECONDS[:3], pytest.param(SECONDS[3], marks=pytest.mark.many)]
"""Seconds whose longest, which take minutes, `make test-long` tries in the first test alone."""
OVER, RESUMES = "safe but starts over", "safe and resumes"


@pytest.mark.parametrize("seconds", only({2.1}, SECONDS))
def test_every_task_of_a_pipeline_is_rehearsed_however_long_it_takes(seconds: float, project: Project) -> None:
    project.write("training.py", PIPELINE)
    words = ("--arg", f"seconds={seconds}", "--must-resume", "--seed", "7", "--junit", "rehearsal.xml")

    done = project.spotwright("rehearse", "training.py", *words)

    assert f"\nprepare: {OVER}\n" in done.out, done.out + done.err
    assert f"\ntrain: {RESUMES}\n" in done.out, done.out + done.err
    assert (done.code, done.err) == (1, "")
    suites = ET.parse(project.folder / "rehearsal.xml").getroot()  # noqa: S314 (we wrote it)
    failed = {suite.get("name"): suite.get("failures") for suite in suites}
    assert failed == {"prepare": "1", "train": "0"}


@pytest.mark.long
@pytest.mark.parametrize("seconds", FEWER)
@pytest.mark.parametrize("budget", [(), ("--budget", "10m")])
def test_every_task_is_rehearsed_within_a_budget_and_as_json(
    seconds: float, budget: tuple[str, ...], project: Project
) -> None:
    project.write("training.py", PIPELINE)

    done = project.spotwright(
        "rehearse", "training.py", "--arg", f"seconds={seconds}", "--seed", "7", *budget, "--json"
    )

    steps = done.json()["steps"]
    assert [(step["task"], step["verdict"]) for step in steps] == [("prepare", OVER), ("train", RESUMES)]
    assert done.code == 0


@pytest.mark.long
@pytest.mark.parametrize("seconds", FEWER)
@pytest.mark.parametrize("words", [("train.py",), ("--output", "model.json", "--", sys.executable, "train.py")])
def test_a_script_is_rehearsed_however_long_it_takes(seconds: float, words: tuple[str, ...], project: Project) -> None:
    project.write("train.py", SCRIPT.replace("SECONDS", str(seconds)))

    done = project.spotwright("rehearse", "--must-resume", "--seed", "7", *words)

    assert f"\ncommand: {RESUMES}\n" in done.out, done.out + done.err
    assert done.code == 0


@pytest.mark.long
@pytest.mark.parametrize("seconds", FEWER)
def test_one_task_of_a_pipeline_is_rehearsed_however_long_it_takes(seconds: float, project: Project) -> None:
    project.write("training.py", PIPELINE)

    done = project.spotwright(
        "rehearse", "training.py", "--task", "train", "--arg", f"seconds={seconds}", "--seed", "1"
    )

    assert f"\ntrain: {RESUMES}\n" in done.out, done.out + done.err
    assert done.code == 0
