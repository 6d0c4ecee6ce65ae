"""Train a small classifier with Lightning; interrupted anywhere, it ends with the same weights.

The data follow a rule, so nothing is downloaded. Try it::

    spotwright run train_lightning.py --interrupt-every 20s
    spotwright rehearse --must-resume --budget 5m -- python train_lightning.py
"""

import argparse
import os

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset

from spotwright.checkpoint.lightning import SpotCheckpoint, SpotCheckpointIO

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=48)
parser.add_argument("--output", default="weights.pt")
options = parser.parse_args()


class Classifier(LightningModule):
    """Tells whether the numbers of a row are positive in sum."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2)
        )

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        rows, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(rows), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


seed_everything(7)
rows = torch.randn(160, 8)
data = DataLoader(TensorDataset(rows, (rows.sum(dim=1) > 0).long()), batch_size=8, shuffle=True)

trainer = Trainer(
    accelerator="cpu",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),  # torchrun sets it
    max_steps=options.steps,
    logger=False,
    plugins=[SpotCheckpointIO()],
    callbacks=[SpotCheckpoint()],
)
model = Classifier()
trainer.fit(model, data, ckpt_path="last")
if trainer.is_global_zero:
    torch.save(model.state_dict(), options.output)
