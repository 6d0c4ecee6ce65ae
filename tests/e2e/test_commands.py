"""A command after ``--`` runs on nodes that are reclaimed; without the dashes, the message shows the working form."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.project import Project


@pytest.mark.slow
def test_a_script_is_rehearsed_as_the_command_that_it_is(project: Project) -> None:
    project.write("train.py", "import pathlib, time; time.sleep(0.2); pathlib.Path('model').write_text('1')")
    done = project.spotwright("rehearse", "train.py", "--seed", "1", "--output", "model")

    assert done.code == 0, done.out + done.err
    assert "command: safe" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run sh train.sh", "a command comes after --: spotwright run -- sh train.sh"),
        (
            "run --interrupt-every 30s env --ignore-environment python train.py",
            "spotwright run --interrupt-every 30s -- env --ignore-environment python train.py",
        ),
        ("run train.py --lr 3", "No such option '--lr'"),
        (
            "run train.py --lr 3",
            "arguments of a script come after -- with it: spotwright run -- python train.py --lr 3",
        ),
        ("run train.py --seed 1 --lr 3", "spotwright run --seed 1 -- python train.py --lr 3"),
        ("run train.py 3", "spotwright run -- python train.py 3"),
        ("run --arg lr=3 train.py", "--arg lr: is for pipelines, and this is a script"),
        ("run --arg lr=3 -- python train.py", "--arg lr: is for pipelines, and this is a command"),
        ("run --on kfp -- python train.py", "a script or a command runs on this machine only"),
        ("run train.py -- python train.py", "expected either a pipeline, or a command after --"),
        ("run", "expected either a pipeline, or a command after --"),
        ("rehearse sh -c true", "a command comes after --: spotwright rehearse -- sh -c true"),
        ("rehearse --must-resume train.py --lr 3", "spotwright rehearse --must-resume -- python train.py --lr 3"),
        ("rehearse train.py --task train", "--task: is for pipelines, and this is a command"),
        ("rehearse pipeline.py train", "name a task with --task: spotwright rehearse pipeline.py --task train"),
        ("rehearse --seed 3 pipeline.py a/train --ranks 2", "rehearse --seed 3 pipeline.py --task a/train --ranks 2"),
        ("rehearse train.py --policy spot", "'spot': expected FIELD=VALUE, for example spot=never"),
    ],
)
def test_a_command_without_the_dashes_is_told_how_it_runs(words: str, message: str, project: Project) -> None:
    project.write("train.py", "print(1)\n")
    project.write("pipeline.py", "from kfp import dsl\n")
    done = project.here(*words.split())

    assert done.code == 2
    assert message in done.err
    assert not Path(project.folder, ".spotwright", "runs").exists()


def test_an_option_of_a_pipeline_that_is_wrong_is_told_alone(project: Project) -> None:
    project.write("pipeline.py", "from kfp import dsl\n")
    done = project.here("run", "pipeline.py", "--lr", "3")

    assert "No such option '--lr'" in done.err
    assert "-- python" not in done.err


def test_the_policy_of_a_rehearsal_is_read_as_that_of_a_run(project: Project) -> None:
    project.write("train.py", "print(1)\n")
    done = project.here("rehearse", "train.py", "--policy", "spot=perhaps")

    assert done.code == 2
    assert "--policy spot: 'perhaps' is wrong; expected require, prefer or never" in done.err
