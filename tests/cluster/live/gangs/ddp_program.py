"""What the pods of a training run: ``ddp_program.py KEEPING FOLDER STEP EVERY``, with the seconds of a step and between saves.

KEEPING is how it is kept: ``ours`` by ``Checkpoint(group=...)``, ``plain`` as people write it by hand, ``none`` not at all. Each
rank writes ``TIME STEP`` into a file of FOLDER for each step that is done, so that the test knows what was lost, and until when.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 100_000  # more than any test awaits
STEP, SAVED_EVERY = (float(argument) for argument in sys.argv[3:])  # seconds


def meet(folder: Path) -> None:
    """Create the process group. Its ranks find the first one by a file, as the test bed has no DNS; those of torchrun know it."""
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
        return
    attempt, rank = os.environ["RESTART"], os.environ["JOB_COMPLETION_INDEX"]
    meeting = folder / f"address-{attempt}"
    if rank == "0":
        (folder / "address.new").write_text(os.environ["ADDRESS"])
        (folder / "address.new").rename(meeting)
    while not meeting.exists():
        time.sleep(0.1)
    os.environ |= {"MASTER_ADDR": meeting.read_text(), "MASTER_PORT": "29500", "RANK": rank}
    dist.init_process_group("gloo")


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make a step, of all ranks."""
    optimizer.zero_grad()
    features = torch.randn(8, 64)
    (model(features) - features).square().mean().backward()
    optimizer.step()
    time.sleep(STEP)


def steps_of_ours(model: nn.Module, optimizer: torch.optim.Optimizer, _: Path) -> Iterator[int]:
    from spotwright.checkpoint import Checkpoint
    from spotwright.checkpoint.torch import restore, state_of

    with Checkpoint(group=dist.group.WORLD, every=SAVED_EVERY) as ckpt:
        restore(ckpt.load(), model=model, optimizer=optimizer)
        for step in ckpt.steps(STEPS):
            yield step
            ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))


def steps_of_plain(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> Iterator[int]:
    file, first = folder / "saved.pt", 0
    if file.exists():
        saved: dict[str, Any] = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    at = time.monotonic()
    for step in range(first, STEPS):
        yield step
        if dist.get_rank() == 0 and time.monotonic() - at >= SAVED_EVERY:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, folder / "saved.new")
            (folder / "saved.new").rename(file)
            at = time.monotonic()


def steps_of_none(*_: object) -> Iterator[int]:
    yield from range(STEPS)


KEEPING: dict[str, Callable[[nn.Module, torch.optim.Optimizer, Path], Iterator[int]]] = {
    "ours": steps_of_ours,
    "plain": steps_of_plain,
    "none": steps_of_none,
}


def main() -> None:
    keeping, folder = KEEPING[sys.argv[1]], Path(sys.argv[2])
    meet(folder)
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    with (folder / f"steps-{os.environ['RESTART']}-{dist.get_rank()}").open("a", buffering=1) as done:
        for step in keeping(model, optimizer, folder):
            train(model, optimizer)
            done.write(f"{time.time():.3f} {step}\n")


if __name__ == "__main__":
    main()
