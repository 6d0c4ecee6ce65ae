"""Train a small classifier in a loop of one's own with accelerate; interrupted anywhere, it ends with the same weights.

The data follow a rule, so nothing is downloaded. Try it::

    spotwright run train_accelerate.py --interrupt-every 20s
    spotwright rehearse --must-resume --budget 5m -- python train_accelerate.py
"""

import argparse

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

from spotwright.checkpoint.accelerate import SpotState

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=2, help="batches for each step of the optimizer")
parser.add_argument("--output", default="weights.pt")
options = parser.parse_args()

set_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
rows = torch.randn(192, 8)
loader = DataLoader(TensorDataset(rows, (rows.sum(dim=1) > 0).long()), batch_size=8, shuffle=True)

accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=options.accumulate,
    dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7),
)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

spot = SpotState(accelerator, total=options.epochs * len(loader) // options.accumulate)
spot.load()
for _epoch in spot.epochs(options.epochs):
    for batch, labels in spot.batches(loader):
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        spot.step_done()

accelerator.save(accelerator.unwrap_model(model).state_dict(), options.output)
