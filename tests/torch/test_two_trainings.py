"""Folds in one script: each trains, each resumes where it was, and a finished one gives the result of an undisturbed run."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.torch.training_scripts import Forge, Training

END = """
    RESULTS.append([SCORE, float(sum(value.double().sum() for value in model.state_dict().values()))])
    with open("results.json", "w") as file:
        json.dump(RESULTS, file)
"""

HUGGINGFACE = """\
import json, os, sys
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from spotwright.checkpoint.huggingface import SpotCallback
import torch

RESULTS = []
for fold in range(3):
    set_seed(fold)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2))
    data = [{"input_ids": (text := (fold + start + torch.arange(16)) % 64), "labels": text} for start in range(96)]
    args = TrainingArguments(
        output_dir=sys.argv[1].format(fold=fold), max_steps=10, save_steps=3, save_total_limit=2,
        logging_steps=4, report_to="none", use_cpu=True, lr_scheduler_type="constant",
    )
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[SpotCallback()])
    out = trainer.train(resume_from_checkpoint=True)
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    SCORE = [out.global_step, out.training_loss, out.metrics["train_loss"], logged]
"""

LIGHTNING = """\
import json, os, sys
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset
from spotwright.checkpoint.lightning import SpotCheckpoint, SpotCheckpointIO

class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2))

    def loss_of(self, batch):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def training_step(self, batch):
        return self.loss_of(batch)

    def validation_step(self, batch):
        self.log("val_loss", self.loss_of(batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

RESULTS = []
for fold in range(3):
    seed_everything(fold)
    rows = torch.randn(40, 8)
    data = TensorDataset(rows, (rows.sum(dim=1) > 0).long())
    model = Classifier()
    trainer = Trainer(
        accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False,
        plugins=[SpotCheckpointIO()], callbacks=[SpotCheckpoint(**eval(sys.argv[1].format(fold=fold)), every=0)],
    )
    trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=20), ckpt_path="last")
    SCORE = [trainer.global_step, trainer.current_epoch, float(trainer.callback_metrics["val_loss"])]
"""

ACCELERATE = """\
import json, os, sys
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from spotwright.checkpoint.accelerate import SpotState

RESULTS = []
for fold in range(3):
    set_seed(fold)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rows = torch.randn(40, 8)
    loader = DataLoader(TensorDataset(rows, (rows.sum(dim=1) > 0).long()), batch_size=8, shuffle=True)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    spot = SpotState(accelerator, **eval(sys.argv[1].format(fold=fold)), total=10, every=0)
    spot.load()
    for _epoch in spot.epochs(2):
        for batch, labels in spot.batches(loader):
            accelerator.backward(torch.nn.functional.cross_entropy(model(batch), labels))
            optimizer.step()
            optimizer.zero_grad()
            spot.step_done()
    SCORE = [spot.step]
"""

DCP = """\
import json, os, sys
import torch
import torch.distributed.checkpoint as dcp
from spotwright.checkpoint import progress
from spotwright.checkpoint.dcp import StoreReader, StoreWriter

RESULTS = []
for fold in range(3):
    torch.manual_seed(fold)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    settings = eval(sys.argv[1].format(fold=fold))
    reader, state = StoreReader(**settings), {"model": model.state_dict(), "done": 0}
    if reader.has_save():
        dcp.load(state, storage_reader=reader)
    for step in range(state["done"], 10):
        torch.manual_seed(step)
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        dcp.save({"model": model.state_dict(), "done": step + 1}, storage_writer=StoreWriter(**settings))
        progress((step + 1) / 10)
    SCORE = [10]
"""

LOOP = """\
import json, os, sys
import torch
import torch.distributed as dist
from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.torch import restore, state_of

dist.init_process_group("gloo")
RESULTS = []
for fold in range(3):
    torch.manual_seed(fold)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with Checkpoint(group=dist.group.WORLD, every=0, **eval(sys.argv[1].format(fold=fold))) as ckpt:
        restore(ckpt.load(), model=model, optimizer=optimizer)
        for step in ckpt.steps(10):
            torch.manual_seed(step * 2 + dist.get_rank())
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))
    SCORE = [ckpt.step]
    if dist.get_rank():
        continue
"""

NAMED, UNNAMED = "dict(name='fold{fold}')", "dict()"

KINDS = {
    "huggingface": (HUGGINGFACE, "runs/fold{fold}/checkpoints", "runs/checkpoints", 1),
    "lightning": (LIGHTNING, NAMED, UNNAMED, 1),
    "accelerate": (ACCELERATE, NAMED, UNNAMED, 1),
    "dcp": (DCP, NAMED, UNNAMED, 1),
    "ddp": (LOOP, NAMED, UNNAMED, 2),
}


def script_of(kind: str, folder: Path) -> tuple[Path, str, str, int]:
    """The script of a kind with its arguments for folds that have places, and for those that have one; its ranks."""
    text, own, shared, ranks = KINDS[kind]
    script = folder / f"folds_{kind}.py"
    script.write_text(text + END)
    return script, own, shared, ranks


def results(folder: Path) -> Any:
    """The results of a script's folds."""
    return json.loads((folder / "results.json").read_text())


def steps(training: Training) -> int:
    """The steps of the optimizer that this attempt has made."""
    path = training.folder / "steps"
    return path.stat().st_size if path.exists() else 0


def until_step(training: Training, count: int) -> None:
    """Wait until an attempt has made so many steps."""
    while steps(training) < count:
        assert not training.ended(), training.log()
        time.sleep(0.002)


@pytest.mark.parametrize("kind", KINDS)
def test_folds_with_places_all_train_and_go_on(trainings: Forge, tmp_path: Path, kind: str) -> None:
    script, own, _, ranks = script_of(kind, tmp_path)
    trainings.run(script, tmp_path / "undisturbed", own, ranks=ranks)
    expected = results(tmp_path / "undisturbed")
    assert len({str(result) for result in expected}) == 3

    folder = tmp_path / "taken"
    first = trainings.start(script, folder, own, ranks=ranks, pace=0.05)
    until_step(first, 16)
    first.send(signal.SIGKILL)
    first.end()
    assert not (folder / "results.json").exists() or len(results(folder)) == 1
    second = trainings.run(script, folder, own, ranks=ranks)
    assert 14 <= steps(second) < 20  # the first fold is finished, and most of what the second had done is kept
    assert results(folder) == expected
    (folder / "results.json").unlink()
    third = trainings.run(script, folder, own, ranks=ranks)
    assert steps(third) == 0
    assert results(folder) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_folds_in_one_place_end_with_the_line_that_mends_it(trainings: Forge, tmp_path: Path, kind: str) -> None:
    script, _, shared, ranks = script_of(kind, tmp_path)
    for _ in range(2):  # a retry of the failed task fails too
        training = trainings.start(script, tmp_path / "shared", shared, ranks=ranks, pace=0)
        assert training.end() == [1] * ranks
        log = training.log()
        assert "another training in this process" in log
        assert 'name="fold1"' in log or 'output_dir="runs/fold1"' in log
