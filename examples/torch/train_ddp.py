"""Train a small classifier on several ranks with DistributedDataParallel; interrupted anywhere, it ends with the same weights.

The data follow a rule, so nothing is downloaded. Try it::

    torchrun --nproc-per-node 2 train_ddp.py

A notice or SIGTERM at any rank saves one step of all ranks. Start it again, and it goes on after that step.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.torch import restore, state_of

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=48)
parser.add_argument("--batch", type=int, default=16, help="rows of a step, of all ranks together")
parser.add_argument("--output", default="weights.pt")
options = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(7)
rows = torch.randn(192, 8)
labels = (rows.sum(dim=1) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 2))
model = DistributedDataParallel(model.to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank)  # so that the ranks drop out different neurons


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of this rank in a step. They follow from its number, so a new number of ranks sees the same rows."""
    epoch, first = divmod(step * options.batch, len(rows))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))
    mine = order[first : first + options.batch][rank::world]
    return rows[mine].to(device), labels[mine].to(device)


with Checkpoint(group=dist.group.WORLD) as ckpt:  # every rank makes one, and calls the same methods
    restore(ckpt.load(), model=model, optimizer=optimizer)
    if rank == 0:
        print(f"begins with step {ckpt.step}", flush=True)
    for step in ckpt.steps(options.steps):
        features, expected = batch_of(step)
        loss = torch.nn.functional.cross_entropy(model(features), expected)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))

if rank == 0:
    torch.save(model.module.state_dict(), options.output)
dist.destroy_process_group()
