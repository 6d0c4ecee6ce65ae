"""A rank dies: the others end soon, the newest checkpoint is resumed, and where the framework lets it rank 0 saves alone."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS, Framework
from tests.torch.training_scripts import Forge, Training

pytestmark = pytest.mark.long

HUGGINGFACE, LIGHTNING, ACCELERATE = FRAMEWORKS
SOON = 2.0  # seconds

HEAD = """
import os, signal, time
def last_moments(step):
    if step == int(os.environ.get("LAST_STEP", "0")):
        if os.environ["RANK"] == os.environ.get("DEAD"):
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ["RANK"] == os.environ.get("NOTICED"):
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            time.sleep(0.7)  # it has the notice before it ends this step
    if [str(step), os.environ["RANK"]] == os.environ.get("FAILS", "").split():
        raise ValueError("a fault")
"""
"""Before each example: a rank dies, or fails, at the end of a step before the ranks have agreed on anything."""

IN_HUGGINGFACE = """
from transformers import TrainerCallback
class Last(TrainerCallback):
    def on_step_end(self, args, state, control, **_): last_moments(state.global_step)
set_seed(7)
"""

IN_LIGHTNING = """
from lightning.pytorch import Callback
class Last(Callback):
    def on_train_batch_end(self, trainer, *_): last_moments(trainer.global_step)
seed_everything(7)
"""

CHANGES = {
    "huggingface": [("\nset_seed(7)\n", IN_HUGGINGFACE), ("callbacks=[", "callbacks=[Last(), ")],
    "lightning": [("\nseed_everything(7)\n", IN_LIGHTNING), ("callbacks=[", "callbacks=[Last(), ")],
    "accelerate": [("        spot.s", "        last_moments(spot.step + accelerator.sync_gradients)\n        spot.s")],
}

ENDS = {
    "huggingface": "trainer.train(resume_from_checkpoint=True)",
    "lightning": 'trainer.fit(model, data, ckpt_path="last")',
}


def script_of(framework: Framework, folder: Path, *more: tuple[str, str]) -> Path:
    text = framework.script.read_text()
    for old, new in [*CHANGES[framework.name], *more]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    script = folder / f"train_{framework.name}.py"
    script.write_text(HEAD + text)
    return script


def of(framework: Framework, ranks: int) -> tuple[str, ...]:
    """Arguments with which that many ranks take 48 steps too."""
    return ("--epochs", str(4 * ranks)) if framework is ACCELERATE else ()


def seconds_to_end(training: Training) -> float:
    began = time.monotonic()
    training.end()
    return time.monotonic() - began


@pytest.mark.parametrize(("ranks", "dead"), [(2, 0), (2, 1), (4, 2)])
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_others_end_soon_and_the_newest_checkpoint_is_resumed(
    framework: Framework, ranks: int, dead: int, trainings: Forge, tmp_path: Path
) -> None:
    training = trainings.start(framework.script, tmp_path, *of(framework, ranks), ranks=ranks)
    training.until(20 / 48)
    training.send(signal.SIGKILL, [dead])
    assert seconds_to_end(training) < SOON
    codes = training.end()
    assert codes[dead] == -9
    assert 0 not in codes
    (*_, newest) = framework.steps(tmp_path)

    again = trainings.run(framework.script, tmp_path, *of(framework, ranks), ranks=ranks)
    assert (tmp_path / "steps").stat().st_size == 48 - newest
    assert again.progress() == 1.0


@pytest.mark.parametrize(("ranks", "noticed"), [(2, 0), (4, 3)])
@pytest.mark.parametrize("framework", [LIGHTNING, ACCELERATE], ids=lambda framework: framework.name)
def test_rank_0_saves_alone_where_another_is_dead(
    framework: Framework, ranks: int, noticed: int, trainings: Forge, tmp_path: Path
) -> None:
    script = script_of(framework, tmp_path)
    training = trainings.start(
        script, tmp_path, *of(framework, ranks), ranks=ranks, pace=0, LAST_STEP="21", DEAD="1", NOTICED=str(noticed)
    )
    codes = training.end()
    assert codes[1] == -9
    assert 0 not in codes
    assert codes[0] == 143 or noticed != 0, training.log()
    assert framework.steps(tmp_path)[-1] == 21, training.log()

    trainings.run(framework.script, tmp_path, *of(framework, ranks), ranks=ranks)
    assert (tmp_path / "steps").stat().st_size == 48 - 21


@pytest.mark.parametrize(
    ("framework", "dead"),
    [(HUGGINGFACE, 0), (HUGGINGFACE, 1), (LIGHTNING, 0), (ACCELERATE, 0)],
    ids=lambda value: getattr(value, "name", f"rank {value}"),
)
def test_where_no_rank_can_save_alone_the_checkpoint_before_counts(
    framework: Framework, dead: int, trainings: Forge, tmp_path: Path
) -> None:
    script = script_of(framework, tmp_path)
    training = trainings.start(
        script, tmp_path, *of(framework, 2), ranks=2, pace=0, LAST_STEP="21", DEAD=str(dead), NOTICED=str(1 - dead)
    )
    codes = training.end()
    assert codes[dead] == -9
    assert codes[1 - dead] in (1, 143)
    newest = framework.steps(tmp_path)[-1]
    assert newest < 21

    trainings.run(framework.script, tmp_path, *of(framework, 2), ranks=2)
    assert (tmp_path / "steps").stat().st_size == 48 - newest


@pytest.mark.parametrize("framework", [HUGGINGFACE, LIGHTNING], ids=lambda framework: framework.name)
def test_a_rank_that_fails_and_stays_holds_up_no_other(framework: Framework, trainings: Forge, tmp_path: Path) -> None:
    end = ENDS[framework.name]
    stays = f"try:\n    {end}\nexcept ValueError:\n    time.sleep(600)"
    training = trainings.start(script_of(framework, tmp_path, (end, stays)), tmp_path, ranks=2, pace=0, FAILS="21 1")
    codes: list[int | None] = [None]
    end_at = time.monotonic() + 20
    while codes[0] is None:
        assert time.monotonic() < end_at, training.log()
        codes = trainings.ask({"codes": training.pids})["codes"]
        time.sleep(0.02)
    training.send(signal.SIGKILL, [1])

    assert training.end() == [1, -9]
    assert "rank 1 has ended, so rank 0 ends too" in training.log()
