"""Data loaders with workers, bfloat16, compiled models: interrupted, a training ends with the weights of a quiet one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.torch.frameworks import FRAMEWORKS, Framework
from tests.torch.training_scripts import Forge, Training

HUGGINGFACE, LIGHTNING, ACCELERATE = FRAMEWORKS

VARIANTS = {
    "workers": {
        "huggingface": [("save_steps=8", "save_steps=8, dataloader_num_workers=2")],
        "lightning": [("batch_size=8, shuffle=True", "batch_size=8, shuffle=True, num_workers=2")],
        "accelerate": [("batch_size=8, shuffle=True", "batch_size=8, shuffle=True, num_workers=2")],
    },
    "bfloat16, mixed": {
        "huggingface": [("save_steps=8", "save_steps=8, bf16=True")],
        "lightning": [("logger=False", "logger=False, precision='bf16-mixed'")],
        "accelerate": [("cpu=True,", "cpu=True, mixed_precision='bf16',")],
    },
    "bfloat16": {
        "huggingface": [("GPT2LMHeadModel(config)", "GPT2LMHeadModel(config).bfloat16()")],
        "lightning": [("logger=False", "logger=False, precision='bf16-true'")],
        "accelerate": [
            ("torch.nn.Linear(32, 2))", "torch.nn.Linear(32, 2)).bfloat16()"),
            ("rows = torch.randn(192, 8)", "rows = torch.randn(192, 8).bfloat16()"),
        ],
    },
    "compiled": {
        "huggingface": [("save_steps=8", "save_steps=8, torch_compile=True, torch_compile_backend='eager'")],
        "lightning": [("model = Classifier()", "model = torch.compile(Classifier(), backend='eager')")],
        "accelerate": [("optimizer = torch", "model = torch.compile(model, backend='eager')\noptimizer = torch")],
    },
}

OWN_LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.torch import restore, state_of
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters())
with Checkpoint() as ckpt:
    restore(ckpt.load(), model=model, optimizer=optimizer)
    first = ckpt.step
    for step in ckpt.steps(48):
        if step % 8 == 0 or step == first:
            batches = iter(DataLoader(data, batch_size=8, num_workers=2))
            for _ in range(step % 8):
                next(batches)
        (batch,) = next(batches)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))
torch.save(model.state_dict(), "weights.pt")
"""


def workers_of(training: Training) -> list[int]:
    pid = training.pids[0]
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def send_to_group(training: Training) -> None:
    """Send SIGTERM to the process and its workers, as a supervisor does to a group of processes."""
    for pid in [training.pids[0], *workers_of(training)]:
        os.kill(pid, signal.SIGTERM)


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_a_variant_is_resumed_exactly(framework: Framework, variant: str, trainings: Forge, tmp_path: Path) -> None:
    text = framework.script.read_text()
    for old, new in VARIANTS[variant][framework.name]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    script = tmp_path / framework.script.name
    script.write_text(text)
    quiet = trainings.run(script, tmp_path / "quiet").folder / framework.output

    training = trainings.start(script, tmp_path)
    training.until(20 / 48)
    send_to_group(training)
    assert training.end() == [143], training.log()
    assert framework.steps(tmp_path)[-1] >= 20
    trainings.run(script, tmp_path)
    assert (tmp_path / framework.output).read_bytes() == quiet.read_bytes()


def test_sigterm_to_the_workers_of_a_loader_too_ends_no_training_before_its_save(
    trainings: Forge, tmp_path: Path
) -> None:
    text = HUGGINGFACE.script.read_text()
    script = tmp_path / "train_huggingface.py"
    script.write_text(text.replace("save_steps=8", "save_steps=8, dataloader_num_workers=2"))
    training = trainings.start(script, tmp_path, pace=0.3)
    training.until(3 / 48)
    workers = workers_of(training)
    assert len(workers) == 2
    for pid in [*workers, training.pids[0]]:  # the workers first
        os.kill(pid, signal.SIGTERM)

    assert training.end() == [143], training.log()
    assert HUGGINGFACE.steps(tmp_path)[-1] >= 3
    end = time.monotonic() + 20  # a worker looks for its training every five seconds
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_loop_of_ones_own_with_workers_saves_after_sigterm_to_all(trainings: Forge, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(OWN_LOOP)
    quiet = trainings.run(tmp_path / "loop.py", tmp_path / "quiet").folder / "weights.pt"
    training = trainings.start(tmp_path / "loop.py", tmp_path)
    training.until(20 / 48)
    send_to_group(training)

    assert training.end() == [143], training.log()
    trainings.run(tmp_path / "loop.py", tmp_path)
    assert (tmp_path / "weights.pt").read_bytes() == quiet.read_bytes()
