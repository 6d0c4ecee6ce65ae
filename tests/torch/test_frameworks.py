"""Each framework with one line: interrupted anywhere, a training ends with the weights of an uninterrupted one."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS, Framework
from tests.torch.training_scripts import Forge, Training


@pytest.fixture(scope="module", params=FRAMEWORKS, ids=lambda framework: framework.name)
def framework(request: pytest.FixtureRequest) -> Framework:
    found: Framework = request.param
    return found


@pytest.fixture(scope="module")
def quiet(framework: Framework, trainings: Forge, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of an uninterrupted training."""
    return (trainings.run(framework.script, tmp_path_factory.mktemp("quiet")).folder / framework.output).read_bytes()


def done(training: Training) -> int:
    return round(training.progress() * 48)


def test_killed_it_goes_on_from_the_last_whole_checkpoint(
    framework: Framework, trainings: Forge, quiet: bytes, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path)
    training.until(20 / 48)
    training.send(signal.SIGKILL)
    assert training.end() == [-9]
    assert framework.steps(tmp_path)

    trainings.run(framework.script, tmp_path)
    assert (tmp_path / framework.output).read_bytes() == quiet


def test_after_a_notice_and_sigterm_it_loses_no_step_and_ends_with_143(
    framework: Framework, trainings: Forge, quiet: bytes, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path)
    training.until(10 / 48)
    training.notice(30)
    training.until(training.progress() + 3 / 48)
    assert framework.steps(tmp_path), "the notice alone is a reason to save"
    training.send(signal.SIGTERM)
    assert training.end() == [143], training.log()
    assert framework.steps(tmp_path)[-1] == done(training) < 48
    assert not (tmp_path / framework.output).exists(), "an interrupted training has no output"

    trainings.run(framework.script, tmp_path)
    assert (tmp_path / framework.output).read_bytes() == quiet


@pytest.mark.long
def test_killed_at_every_change_of_a_file_it_goes_on_from_a_whole_checkpoint(
    framework: Framework, trainings: Forge, quiet: bytes, tmp_path: Path
) -> None:
    newest = 0
    for change in range(5, 65, 3):
        training = trainings.start(framework.script, tmp_path, pace=0, die_at=change, SPOTWRIGHT_INTERRUPT_EVERY="0.01")
        if training.end() == [0]:
            break
        steps = framework.steps(tmp_path)
        assert not steps or steps[-1] >= newest, "the next attempt has lost a whole checkpoint"
        newest = max([newest, *steps[:-1]])

    trainings.run(framework.script, tmp_path)
    assert newest > 10
    assert (tmp_path / framework.output).read_bytes() == quiet


@pytest.fixture(scope="module")
def quiet_two(framework: Framework, trainings: Forge, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of an uninterrupted training of two ranks."""
    folder = tmp_path_factory.mktemp("quiet-two")
    training = trainings.run(framework.script, folder, *framework.of_two, ranks=2)
    return (training.folder / framework.output).read_bytes()


@pytest.mark.long
def test_a_notice_at_the_second_rank_saves_one_step_of_both(
    framework: Framework, trainings: Forge, quiet_two: bytes, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path, *framework.of_two, ranks=2)
    training.until(10 / 48)
    before = framework.steps(tmp_path)
    training.notice(30, rank=1)
    training.until(training.progress() + 6 / 48)
    assert framework.steps(tmp_path) > before
    training.send(signal.SIGTERM)
    assert training.end() == [143, 143], training.log()
    assert framework.steps(tmp_path)[-1] == done(training) < 48

    trainings.run(framework.script, tmp_path, *framework.of_two, ranks=2)
    assert (tmp_path / framework.output).read_bytes() == quiet_two


@pytest.mark.long
def test_sigterm_at_the_second_rank_alone_saves_before_it_leaves(
    framework: Framework, trainings: Forge, quiet_two: bytes, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path, *framework.of_two, ranks=2)
    training.until(10 / 48)
    training.send(signal.SIGTERM, [1])
    first, second = training.end()
    assert second == 143, training.log()
    assert first not in {0, None}, "without the other rank it cannot go on"
    assert framework.steps(tmp_path)[-1] >= done(training) - 1

    trainings.run(framework.script, tmp_path, *framework.of_two, ranks=2)
    assert (tmp_path / framework.output).read_bytes() == quiet_two


BEST_AND_PUSHED = [
    ("save_steps=8", "save_steps=8, eval_strategy='steps', eval_steps=8, metric_for_best_model='loss'"),
    ("logging_steps=1", "load_best_model_at_end=True, logging_steps=1"),
    ("train_dataset=data", "train_dataset=data, eval_dataset=data[:16]"),
    (
        "trainer.train(",
        "Trainer._push_from_checkpoint = lambda _, at: print('pushed', at)\nargs.push_to_hub = True\ntrainer.train(",
    ),
    ("trainer.save_model", "args.push_to_hub = False\ntrainer.save_model"),
]


def test_transformers_finds_the_best_checkpoint_and_pushes_each_from_where_it_stays(
    trainings: Forge, tmp_path: Path
) -> None:
    framework = FRAMEWORKS[0]
    text = framework.script.read_text()
    for old, new in BEST_AND_PUSHED:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "train.py").write_text(text)
    training = trainings.run(tmp_path / "train.py", tmp_path)
    place = tmp_path / "place" / "model"

    assert "ould not locate the best model" not in training.log()
    pushed = [line.split()[1] for line in training.log().splitlines() if line.startswith("pushed ")]
    assert pushed == [str(place / f"checkpoint-{step}") for step in range(8, 49, 8)]
    for step in framework.steps(tmp_path):
        state = json.loads((place / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert state["best_model_checkpoint"] == str(place / f"checkpoint-{state['best_global_step']}")
