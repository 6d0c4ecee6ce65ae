"""What a save lacks where every file is whole, random numbers or the order of the data, is not taken for a torn file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.project import Project
from tests.sampling import every

from spotwright.rehearsal.generator_states import changed_generators, recording_environment, writing_lines

LOOP = """
import json, os, pathlib, random, sys, time
saved = pathlib.Path(os.environ["SPOTWRIGHT_CHECKPOINT"]) / "state.json"
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "seen": [], "sum": 0}
random.seed(3)
{before}
while state["step"] < 20:
    time.sleep(0.03)
    state["step"] += 1
    {step}
    new = saved.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.rename(saved)
pathlib.Path("model.json").write_text(json.dumps({output}))
"""
FORGETS_NUMBERS = {"before": "", "step": 'state["sum"] += random.random()', "output": 'state["sum"]'}
SAVES_NUMBERS = {
    "before": 'last = state.get("random"); last and random.setstate((last[0], tuple(last[1]), last[2]))',
    "step": 'state["sum"] += random.random(); state["random"] = random.getstate()',
    "output": 'state["sum"]',
}
DATA = "order = random.Random(7).sample(range(20), 20); samples = iter(order)"
FORGETS_ORDER = {"before": DATA, "step": 'state["seen"].append(next(samples))', "output": 'state["seen"]'}
HIDES_ORDER = {"before": DATA, "step": 'state["sum"] += next(samples) * state["step"]', "output": 'state["sum"]'}
SAVES_ORDER = {
    "before": 'order = random.Random(7).sample(range(20), 20); samples = iter(order[state["step"]:])',
    "step": 'state["seen"].append(next(samples))',
    "output": 'state["seen"]',
}


def rehearsed(project: Project, parts: dict[str, str]) -> dict[str, Any]:
    code = LOOP
    for name, text in parts.items():
        code = code.replace(f"{{{name}}}", text)
    project.write("train.py", code)
    done = project.spotwright(
        "rehearse", "--seed", "5", "--interruptions", "1", "--json", "--", sys.executable, "train.py"
    )
    (step,) = json.loads(done.out)["steps"]
    return dict(step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "words"),
    every(
        3,
        [
            (FORGETS_NUMBERS, "the random numbers of random are not in the save"),
            (FORGETS_ORDER, "the order of the data is not in the save, because rows such as"),
            (HIDES_ORDER, "compare what the step changes as it goes with what it saves"),
        ],
    ),
)
def test_what_the_save_lacks_is_named_and_no_file_is_called_torn(
    parts: dict[str, str], words: str, project: Project
) -> None:
    step = rehearsed(project, parts)

    assert step["verdict"] == "not safe"
    assert words in step["probable_cause"]
    assert "in place" not in step["probable_cause"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("parts", every(2, [SAVES_NUMBERS, SAVES_ORDER]))
def test_a_step_that_saves_them_resumes(parts: dict[str, str], project: Project) -> None:
    assert rehearsed(project, parts)["verdict"] == "safe and resumes"


def record(attempt: Path, **states: str) -> Path:
    folder = attempt / "generators" / "states"
    folder.mkdir(parents=True)
    (folder / "7.json").write_text(json.dumps({"who": ["", "train.py"], "states": states}))
    return attempt


def test_only_a_generator_that_ends_alike_without_interruptions_can_have_changed(tmp_path: Path) -> None:
    undisturbed = [
        record(tmp_path / "1", random="a", torch="b", **{"numpy.random": "c"}),
        record(tmp_path / "2", random="a", torch="x", **{"numpy.random": "c"}),
    ]

    assert changed_generators(undisturbed, record(tmp_path / "3", random="z", torch="y", **{"numpy.random": "c"})) == (
        "random",
    )
    assert changed_generators(undisturbed, record(tmp_path / "4", random="a", torch="y")) == ()
    assert changed_generators(undisturbed, tmp_path / "none") is None
    assert changed_generators(undisturbed[:1], undisturbed[0]) is None


@pytest.mark.parametrize("content", ["", "[]", '{"who": 1}', '{"who": [], "states": 5}', "\0"])
def test_a_record_that_is_none_tells_nothing(content: str, tmp_path: Path) -> None:
    undisturbed = [record(tmp_path / name, random="a") for name in ("1", "2")]
    (record(tmp_path / "3") / "generators" / "states" / "7.json").write_text(content)

    assert changed_generators(undisturbed, tmp_path / "3") is None


def test_a_sitecustomize_of_the_user_is_executed_too(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('mine')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "own")}
    env |= recording_environment(tmp_path, env, is_command=True)
    done = subprocess.run(
        [sys.executable, "-c", "import random; random.seed(1); print(1)"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["mine", "1"]
    (states,) = (tmp_path / "generators" / "states").glob("*.json")
    assert "random" in json.loads(states.read_text())["states"]


def test_without_a_sitecustomize_of_the_user_nothing_is_printed(tmp_path: Path) -> None:
    env = {**os.environ, **recording_environment(tmp_path, os.environ, is_command=True)}
    done = subprocess.run([sys.executable, "-c", ""], env=env, capture_output=True, text=True, check=True)

    assert done.stdout + done.stderr == ""
    assert len(list((tmp_path / "generators" / "states").glob("*.json"))) == 1


def test_the_line_that_writes_a_file_is_recorded_and_those_of_the_library_are_not(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import pathlib, sys\n\npathlib.Path(sys.argv[1]).write_text('1')\nopen(sys.argv[1]).read()\n")
    env = {**os.environ, **recording_environment(tmp_path, os.environ, is_command=True)}
    subprocess.run([sys.executable, str(program), str(tmp_path / "state")], env=env, check=True)

    assert writing_lines(tmp_path)[str(tmp_path / "state")] == "train.py:3"
