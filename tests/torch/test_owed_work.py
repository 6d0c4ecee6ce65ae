"""What a framework owes after a step, such as a validation or an average of weights, is done once, wherever an attempt ends.

Each training writes down what its user would look at: steps, weights, averages, best scores, learning rates, means of epochs. An
interrupted one must write the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.torch.training_scripts import Forge

LIGHTNING = """\
import json, os, signal, sys
import torch, torchmetrics
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint, StochasticWeightAveraging
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from spotwright.checkpoint.lightning import SpotCheckpoint, SpotCheckpointIO

FEATURES, AT = json.loads(sys.argv[1]), os.environ.get("INTERRUPTED_AT", "")


def here(name):
    if name == AT:
        os.kill(os.getpid(), signal.SIGTERM)


class Interrupt(Callback):
    def on_train_batch_start(self, trainer, *_): here(f"batch {trainer.global_step}")
    def on_train_batch_end(self, trainer, *_): here(f"batch end {trainer.global_step}")
    def on_validation_start(self, trainer, *_): here(f"validation {trainer.global_step}")
    def on_validation_end(self, trainer, *_): here(f"validation end {trainer.global_step}")
    def on_train_epoch_end(self, trainer, *_): here(f"epoch end {trainer.global_step}")


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
        self.right = torchmetrics.MeanMetric()
        self.register_buffer("average", torch.zeros(16, 8))
        self.register_buffer("counts", torch.zeros(3))  # batches, validations, epochs
        self.automatic_optimization = not FEATURES.get("manual")

    def loss_of(self, batch):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def training_step(self, batch, number):
        loss = self.loss_of(batch)
        self.right.update((self.layers(batch[0]).argmax(1) == batch[1]).float())
        self.log("train", loss, on_step=True, on_epoch=True)
        self.log("right", self.right, on_step=False, on_epoch=True)
        if FEATURES.get("manual"):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def on_train_batch_end(self, *_):
        self.average.mul_(0.9).add_(self.layers[0].weight.detach(), alpha=0.1)
        self.counts[0] += 1
        here(f"hook {self.global_step}")

    def validation_step(self, batch, number):
        self.log("val", self.loss_of(batch))

    def on_validation_epoch_end(self):
        self.counts[1] += 1

    def on_train_epoch_end(self):
        self.counts[2] += 1

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        if FEATURES.get("plateau"):
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
            watched = {"scheduler": plateau, "monitor": "val", "strict": False, **FEATURES["plateau"]}
            return {"optimizer": optimizer, "lr_scheduler": watched}
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)]


class Stream(IterableDataset):
    def __iter__(self):
        yield from TensorDataset(rows, labels)


seed_everything(7)
rows = torch.randn(80, 8)
labels = (rows.sum(dim=1) > 0).long()
data = DataLoader(Stream(), 8) if FEATURES.get("stream") else DataLoader(TensorDataset(rows, labels), 8, shuffle=True)
best = ModelCheckpoint("best", monitor="val", save_top_k=1)
more = [eval(text) for text in FEATURES.get("callbacks", [])]
trainer = Trainer(
    accelerator="cpu", logger=False, enable_progress_bar=False, plugins=[SpotCheckpointIO()],
    callbacks=[SpotCheckpoint(every=1e9), best, Interrupt(), *more], **{"max_epochs": 3, **FEATURES.get("trainer", {})},
)
model = Model()
trainer.fit(model, data, DataLoader(TensorDataset(rows, labels), 40), ckpt_path="last")
found = {
    "steps": [trainer.global_step, trainer.current_epoch, model.counts.tolist()],
    "weights": [value.double().sum().item() for value in model.state_dict().values()],
    "best": float(best.best_model_score), "rate": trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else None,
    "metrics": {name: value.item() for name, value in sorted(trainer.callback_metrics.items())},
}
with open("result.json", "w") as file:
    json.dump(found, file)
"""

LIGHTNING_FEATURES: dict[str, dict[str, Any]] = {
    "a validation each epoch": {},
    "a validation every 5 batches, a plateau at each of them": {
        "trainer": {"val_check_interval": 5}, "plateau": {"interval": "step", "frequency": 5},
    },
    "a plateau at each epoch": {"plateau": {"interval": "epoch"}},
    "two batches a step": {"trainer": {"accumulate_grad_batches": 2, "val_check_interval": 5}},
    "steps that end within an epoch": {"trainer": {"max_epochs": -1, "max_steps": 23, "val_check_interval": 5}},
    "early stopping": {"trainer": {"max_epochs": 9}, "callbacks": ["EarlyStopping('val', mode='max', patience=1)"]},
    "early stopping within an epoch": {
        "trainer": {"max_epochs": 9, "val_check_interval": 2}, "callbacks": ["EarlyStopping('val', mode='max', patience=4)"],
    },
    "an average of weights": {"callbacks": ["EMAWeightAveraging(decay=0.9)"]},
    "averages at the end": {"callbacks": ["StochasticWeightAveraging(0.01, swa_epoch_start=1)"]},
    "a validation every second epoch": {"trainer": {"check_val_every_n_epoch": 2, "max_epochs": 4}},
    "an optimizer by hand": {"manual": True, "trainer": {"val_check_interval": 5}},
    "a stream": {"stream": True, "trainer": {"val_check_interval": 5}},
}  # fmt: skip

LIGHTNING_PLACES = [
    "batch 4",
    "hook 5",
    "batch end 10",
    "validation 10",
    "validation end 10",
    "batch 19",
    "epoch end 20",
]

HUGGINGFACE = """\
import json, os, signal, sys
import torch
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_callback import ExportableState
from spotwright.checkpoint.huggingface import SpotCallback

FEATURES, AT = json.loads(sys.argv[1]), os.environ.get("INTERRUPTED_AT", "")


def here(name):
    if name == AT:
        os.kill(os.getpid(), signal.SIGTERM)


class Interrupt(TrainerCallback):
    def on_step_begin(self, args, state, control, **_): here(f"batch {state.global_step}")
    def on_step_end(self, args, state, control, **_): here(f"step {state.global_step}")
    def on_prediction_step(self, args, state, control, **_): here(f"validation {state.global_step}")
    def on_evaluate(self, args, state, control, **_): here(f"validation end {state.global_step}")
    def on_epoch_end(self, args, state, control, **_): here(f"epoch end {state.global_step}")


class Counts(TrainerCallback, ExportableState):
    def __init__(self): self.steps = self.evaluations = self.epochs = 0
    def on_step_end(self, *_, **__): self.steps += 1
    def on_evaluate(self, *_, **__): self.evaluations += 1
    def on_epoch_end(self, *_, **__): self.epochs += 1
    def state(self): return {"args": {}, "attributes": dict(vars(self))}


set_seed(7)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2))
data = [{"input_ids": (text := (start + torch.arange(8)) % 64), "labels": text} for start in range(80)]
options = {
    "output_dir": "model", "num_train_epochs": 3, "save_steps": 1000, "report_to": "none", "use_cpu": True,
    "per_device_train_batch_size": 8, "logging_steps": 4, "metric_for_best_model": "loss", **FEATURES.get("args", {}),
}
counts = Counts()
more = [eval(text) for text in FEATURES.get("callbacks", [])]
trainer = Trainer(
    model=model, args=TrainingArguments(**options), train_dataset=data, eval_dataset=data[:16],
    callbacks=[SpotCallback(every=1e9), counts, Interrupt(), *more],
)
out = trainer.train(resume_from_checkpoint=True)
found = {
    "steps": [trainer.state.global_step, counts.steps, counts.evaluations, counts.epochs],
    "weights": [value.double().sum().item() for value in model.state_dict().values()],
    "best": [trainer.state.best_metric, trainer.state.best_global_step],
    "rate": trainer.lr_scheduler.get_last_lr(), "loss": out.training_loss,
    "log": [{k: v for k, v in each.items() if not k.endswith(("runtime", "second"))} for each in trainer.state.log_history],
}
with open("result.json", "w") as file:
    json.dump(found, file)
"""

BY_EPOCH = {"eval_strategy": "epoch", "save_strategy": "epoch", "logging_strategy": "epoch"}
BY_STEP = {"eval_strategy": "steps", "eval_steps": 5, "save_steps": 5}

HUGGINGFACE_FEATURES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "an evaluation each epoch": {"args": {"eval_strategy": "epoch"}},
    "all by epochs": {"args": BY_EPOCH},
    "the best of epochs": {"args": {**BY_EPOCH, "load_best_model_at_end": True}},
    "the best of steps": {"args": {**BY_STEP, "load_best_model_at_end": True}},
    "early stopping": {
        "args": {**BY_STEP, "num_train_epochs": 9, "greater_is_better": True, "load_best_model_at_end": True},
        "callbacks": ["EarlyStoppingCallback(3)"],
    },
    "early stopping by epochs": {
        "args": {**BY_EPOCH, "num_train_epochs": 9, "greater_is_better": True, "load_best_model_at_end": True},
        "callbacks": ["EarlyStoppingCallback(2)"],
    },
    "a plateau": {"args": {**BY_STEP, "lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 0}}},
    "two batches a step": {"args": {**BY_EPOCH, "gradient_accumulation_steps": 2}},
    "steps that end within an epoch": {"args": {**BY_EPOCH, "max_steps": 23}},
    "saves of the best": {"args": {"eval_strategy": "steps", "eval_steps": 5, "save_strategy": "best"}},
    "no saves": {"args": {"save_strategy": "no", "eval_strategy": "epoch"}},
}  # fmt: skip

HUGGINGFACE_PLACES = ["batch 4", "step 5", "step 10", "validation 10", "validation end 10", "batch 19", "epoch end 20"]


def short_or_long(number: int, position: int) -> Any:
    """Of each framework two features are tried in one place each, and all in all places by the long tests."""
    return () if (number, position) in {(1, 4), (5, 2)} else pytest.mark.long


PARTS: list[tuple[str, str, dict[str, dict[str, Any]], list[str]]] = [
    ("lightning", LIGHTNING, LIGHTNING_FEATURES, LIGHTNING_PLACES),
    ("huggingface", HUGGINGFACE, HUGGINGFACE_FEATURES, HUGGINGFACE_PLACES),
]
CASES = [
    pytest.param(text, features, place, id=f"{framework}, {name}, {place}", marks=short_or_long(number, position))
    for framework, text, table, places in PARTS
    for number, (name, features) in enumerate(table.items())
    for position, place in enumerate(places)
]


class Trainings:
    """Runs a script with features; its undisturbed result is found once for all places."""

    def __init__(self, forge: Forge, folder: Path) -> None:
        self._forge, self._folder, self._quiet = forge, folder, dict[str, Any]()

    def quiet(self, text: str, features: str) -> Any:
        key = text + features
        if key not in self._quiet:
            self._quiet[key] = self.result_of(text, features, self._folder / f"quiet-{len(self._quiet)}")
        return self._quiet[key]

    def result_of(self, text: str, features: str, folder: Path) -> Any:
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(text)
        self._forge.run(folder / "train.py", folder, features)
        return json.loads((folder / "result.json").read_text())

    def interrupt(self, text: str, features: str, place: str, folder: Path) -> None:
        (folder / "train.py").write_text(text)
        training = self._forge.start(folder / "train.py", folder, features, pace=0, INTERRUPTED_AT=place)
        (code,) = training.end()
        assert code in (0, 143), training.log()
        (folder / "result.json").unlink(missing_ok=True)  # where SIGTERM came too late to matter, the outputs are lost


@pytest.fixture(scope="module")
def runs(trainings: Forge, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(trainings, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(("text", "features", "place"), CASES)
def test_what_is_owed_is_done_once_wherever_an_attempt_ends(
    text: str, features: dict[str, Any], place: str, runs: Trainings, tmp_path: Path
) -> None:
    said = json.dumps(features)
    quiet = runs.quiet(text, said)
    runs.interrupt(text, said, place, tmp_path)
    assert runs.result_of(text, said, tmp_path) == quiet
