"""Train a small classifier in a loop that saves by itself with torch.distributed.checkpoint; interrupted, it loses no step.

The data follow a rule, so nothing is downloaded. Try it::

    torchrun --nproc-per-node 2 train_dcp.py

StoreWriter and StoreReader make each save of DCP whole or absent. When to save is up to this loop: each eighth step, and when the
node of any rank goes. For a loop that leaves this to Spotwright, see train_fsdp.py.
"""

import argparse
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from spotwright.checkpoint import notice, progress
from spotwright.checkpoint.dcp import StoreReader, StoreWriter

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=48)
parser.add_argument("--batch", type=int, default=16, help="rows of a step, of all ranks together")
parser.add_argument("--output", default="weights.pt")
options = parser.parse_args()

sigterm: list[bool] = []
signal.signal(signal.SIGTERM, lambda *_: sigterm.append(True))  # the step under way is finished and saved first
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(7)
rows = torch.randn(192, 8)
labels = (rows.sum(dim=1) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
fully_shard(model.to(device), mesh=init_device_mesh(device.type, (world,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of this rank in a step. They follow from its number, so a new number of ranks sees the same rows."""
    epoch, first = divmod(step * options.batch, len(rows))
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))
    mine = order[first : first + options.batch][rank::world]
    return rows[mine].to(device), labels[mine].to(device)


def state_at(done: int) -> dict[str, Any]:
    """Return the state after so many steps, for DCP."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "done": done}


def is_any_node_going() -> bool:
    """True if any rank has SIGTERM or a notice of its node's end. All ranks hear it at the same step, so they save the same."""
    going = torch.tensor(float(bool(sigterm) or notice() is not None), device=device)
    dist.all_reduce(going)
    return bool(going > 0)


first = 0
reader = StoreReader()
if reader.has_save():
    state = state_at(0)
    dcp.load(state, storage_reader=reader)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    first = state["done"]
if rank == 0:
    print(f"begins with step {first}", flush=True)
progress(first / options.steps)

writer = StoreWriter()
for step in range(first, options.steps):
    features, expected = batch_of(step)
    loss = torch.nn.functional.cross_entropy(model(features), expected)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    done = step + 1
    leaves = is_any_node_going() and done < options.steps
    if leaves or done % 8 == 0 or done == options.steps:
        dcp.save(state_at(done), storage_writer=writer)
    progress(done / options.steps)
    if leaves:
        sys.exit(143)  # as after SIGTERM, so that nobody takes unfinished work for a success

whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    torch.save(whole, options.output)
dist.destroy_process_group()
