"""``spotwright run finetune.py``: a plain training script is interrupted, started again, and leaves its results where it ran."""

from __future__ import annotations

import json
import sys

import pytest
from tests.e2e.project import Project

SCRIPT = """
import json, pathlib, sys, time
from spotwright.checkpoint import Checkpoint

def main():
    checkpoint = Checkpoint()
    state = checkpoint.load(default={"steps": 0, "attempts": 0})
    state["attempts"] += 1
    for step in checkpoint.steps(30):
        time.sleep(0.05)
        state["steps"] += 1
        checkpoint.step_done(state)
    pathlib.Path("model.json").write_text(json.dumps({**state, "arguments": sys.argv[1:]}))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["finetune.py"], ["--", sys.executable, "finetune.py", "--lr", "3"]])
def test_a_script_or_command_is_interrupted_resumes_and_leaves_its_model_in_the_current_folder(
    words: list[str], project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.extra["HOME"] = str(tmp_path_factory.mktemp("home"))  # the home folder itself keeps nothing
    project.write("finetune.py", SCRIPT)
    often = ("--interrupt-every", "2s", "--seed", "1", "--policy", "interruptions.max=1000")
    done = project.spotwright("run", *often, *words)

    assert done.code == 0, done.out + done.err
    assert "run finetune-py-" in done.out
    model = json.loads((project.folder / "model.json").read_text())
    assert model["steps"] == 30
    assert model["attempts"] > 1
    assert model["arguments"] == words[3:]


def test_a_script_with_a_pipelines_options_or_on_a_cluster_is_refused(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.extra["HOME"] = str(tmp_path_factory.mktemp("home"))
    project.write("finetune.py", "print(1)\nopen('ran', 'w')\n")
    argument = project.spotwright("run", "finetune.py", "--arg", "epochs=3")
    cluster = project.spotwright("run", "finetune.py", "--on", "kfp", "--host", "http://127.0.0.1:9")

    assert [argument.code, cluster.code] == [2, 2]
    assert "epochs" in argument.err
    assert "runs on this machine only" in cluster.err
    assert not (project.folder / "ran").exists()


def test_a_script_in_the_home_folder_is_refused_because_it_would_keep_nothing(project: Project) -> None:
    project.write("finetune.py", "open('ran', 'w')\n")
    done = project.spotwright("run", "finetune.py")

    assert done.code == 2
    assert "run it in another folder" in done.err
    assert not (project.folder / "ran").exists()
