"""Steps that users of a framework forget or repeat: they work, or one message names the fix."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS
from tests.torch.training_scripts import Forge

HUGGINGFACE, LIGHTNING, _ = FRAMEWORKS
BEGINS_ANEW = "is complete: call train(resume_from_checkpoint=True)"


def changed(script: Path, folder: Path, old: str, new: str) -> Path:
    """A copy of a script with one text replaced."""
    text = script.read_text()
    assert text.count(old) == 1, old
    copy = folder / script.name
    copy.write_text(text.replace(old, new))
    return copy


def test_a_resumption_that_was_forgotten_is_told_once_there_is_a_checkpoint(trainings: Forge, tmp_path: Path) -> None:
    script = changed(HUGGINGFACE.script, tmp_path, "trainer.train(resume_from_checkpoint=True)", "trainer.train()")
    first = trainings.run(script, tmp_path, "--steps", "8").log()
    second = trainings.run(script, tmp_path, "--steps", "8").log()

    assert (first.count(BEGINS_ANEW), second.count(BEGINS_ANEW)) == (0, 1)
    assert "checkpoint-8 is complete" in second


def test_a_callback_that_is_given_twice_saves_as_one(trainings: Forge, tmp_path: Path) -> None:
    script = changed(HUGGINGFACE.script, tmp_path, "[SpotCallback()]", "[SpotCallback(), SpotCallback()]")
    trainings.run(script, tmp_path, "--steps", "8")
    log = trainings.run(script, tmp_path, "--steps", "16").log()

    assert HUGGINGFACE.steps(tmp_path) == [8, 16]
    assert "there is already one" in log  # transformers says so
    assert "Traceback" not in log


def test_without_a_place_in_a_pod_the_folder_that_goes_with_it_is_told(trainings: Forge, tmp_path: Path) -> None:
    def log_of(*arguments: str) -> str:
        host, steps = "10.0.0.1", ("--steps", "8")
        return trainings.run(
            HUGGINGFACE.script, tmp_path, *steps, *arguments, SPOTWRIGHT_CHECKPOINT="", KUBERNETES_SERVICE_HOST=host
        ).log()

    relative, absolute = log_of(), log_of("--output", str(tmp_path / "mounted"))
    told = f"SPOTWRIGHT_CHECKPOINT is not set: checkpoints are saved in {tmp_path / 'model'} and lost with this pod"
    assert (relative.count(told), "lost with this pod" in absolute) == (1, False)


def test_the_labels_sort_is_in_the_model_of_an_attempt_without_a_step_left(trainings: Forge, tmp_path: Path) -> None:
    script = tmp_path / "classify.py"
    script.write_text(CLASSIFIES)
    trainings.run(script, tmp_path)
    config = tmp_path / "final" / "config.json"
    quiet = config.read_text()
    config.unlink()
    trainings.run(script, tmp_path)  # as after a kill between the last save and the output

    assert '"problem_type": "single_label_classification"' in quiet
    assert config.read_text() == quiet


CLASSIFIES = """
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, Trainer, TrainingArguments
from spotwright.checkpoint.huggingface import SpotCallback

torch.manual_seed(7)
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2, num_labels=2, pad_token_id=0)
model = GPT2ForSequenceClassification(config)
data = [{"input_ids": torch.arange(1, 9) + start % 8, "labels": start % 2} for start in range(32)]
args = TrainingArguments(output_dir="model", max_steps=4, save_steps=4, report_to="none", use_cpu=True)
trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[SpotCallback()])
trainer.train(resume_from_checkpoint=True)
trainer.save_model("final")
"""


def test_lightnings_own_checkpoints_beside_ours_are_no_hindrance(trainings: Forge, tmp_path: Path) -> None:
    own = "from lightning.pytorch.callbacks import ModelCheckpoint\nfrom spotwright.checkpoint.lightning import"
    both = changed(LIGHTNING.script, tmp_path, "from spotwright.checkpoint.lightning import", own)
    both.write_text(
        both.read_text().replace(
            "[SpotCheckpoint()]", "[SpotCheckpoint(), ModelCheckpoint('own', every_n_train_steps=8)]"
        )
    )
    quiet = trainings.run(both, tmp_path / "quiet").folder / LIGHTNING.output
    training = trainings.start(both, tmp_path)
    training.until(20 / 48)
    training.notice(30)
    training.until(24 / 48)
    training.send(signal.SIGTERM)
    assert training.end() == [143], training.log()
    trainings.run(both, tmp_path)

    assert (tmp_path / LIGHTNING.output).read_bytes() == quiet.read_bytes()
    assert list((tmp_path / "own").glob("*.ckpt"))


def test_the_callback_of_lightning_without_its_plugin_is_told(trainings: Forge, tmp_path: Path) -> None:
    script = changed(LIGHTNING.script, tmp_path, "    plugins=[SpotCheckpointIO()],\n", "")
    log = trainings.run(script, tmp_path, "--steps", "8").log()

    assert log.count("SpotCheckpoint needs SpotCheckpointIO: without it, a kill during a save leaves a torn file") == 1


OLDER = """
import sys, transformers.trainer_utils
from transformers import Trainer
sys.modules["transformers"].__version__ = "4.40.0"
del transformers.trainer_utils.rotate_checkpoints
import spotwright.checkpoint.huggingface
"""


@pytest.mark.long
def test_a_transformers_that_is_too_old_is_named_with_its_version() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run([sys.executable, "-c", OLDER], env=environment, capture_output=True, text=True, check=False)
    last = ended.stderr.strip().splitlines()[-1]

    assert ended.returncode == 1
    assert "transformers 4.40.0 is installed" in last
    assert last.endswith("pip install --upgrade 'transformers[torch]'")
