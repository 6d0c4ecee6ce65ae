"""One process on a GPU: what a step costs with a checkpoint beside it, and how long a save keeps the training waiting.

Without a GPU there is nothing to measure here. The state is a model with AdamW in the GPU's memory, so that each save copies it
to the memory of the host first, as that of a user does.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.dcp import StoreWriter
from spotwright.checkpoint.torch import restore, state_of

_STEPS = 300
_WIDTH = 2048
_BYTES_OF_A_LAYER = 4 * _WIDTH * _WIDTH * 3  # float32: a weight, and the two moments of AdamW


def measure(megabytes: int, rounds: int = 5) -> list[tuple[str, float, float, str]]:
    """Return lines of name, ours, theirs and unit; empty without a GPU. ``megabytes`` is about the size of the state."""
    if not torch.cuda.is_available():
        return []
    layers = max(1, megabytes * 1_000_000 // _BYTES_OF_A_LAYER)
    model, optimizer = _made(layers)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        lines = [_steps(place, *_made(1)), _whole(place, model, optimizer, rounds)]
        return [*lines, *_sharded(place, model, optimizer, rounds)]


def name() -> str:
    """The GPU's name."""
    return str(torch.cuda.get_device_name())


def _made(layers: int) -> tuple[Any, Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(layers))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    _train(model, optimizer)
    return model, optimizer


def _train(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(16, _WIDTH, device="cuda")).square().mean().backward()
    optimizer.step()


def _seconds(do: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    do()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def _steps(place: Path, model: Any, optimizer: Any) -> tuple[str, float, float, str]:
    """The median step, with and without ``step_done``."""
    with Checkpoint(place / "steps", every=1e9) as ckpt:
        restore(ckpt.load(), model=model, optimizer=optimizer)
        ours: list[float] = []
        theirs: list[float] = []
        numbers = ckpt.steps(_STEPS + 2)
        for _ in range(_STEPS):
            theirs.append(_seconds(lambda: _train(model, optimizer)))
            next(numbers)

            def step() -> None:
                _train(model, optimizer)
                ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer))

            ours.append(_seconds(step))
    return "a step, median", statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6, "µs"


def _whole(place: Path, model: Any, optimizer: Any, rounds: int) -> tuple[str, float, float, str]:
    """A save of the whole state, beside ``torch.save`` into a file that is durable after it. It loads as it was."""
    ours, theirs = [], []
    with Checkpoint(place / "whole") as ckpt:
        ckpt.load()
        for _ in range(rounds):
            ours.append(_seconds(lambda: ckpt.save(state_of(model=model, optimizer=optimizer))))
            theirs.append(_seconds(lambda: _torch_save(place / "theirs.pt", model, optimizer)))
    expected = [each.detach().clone() for each in model.parameters()]
    with Checkpoint(place / "whole") as ckpt, torch.no_grad():
        state = ckpt.load()
        for each in model.parameters():
            each.zero_()
        restore(state, model=model, optimizer=optimizer)
    if not all(torch.equal(one, other) for one, other in zip(model.parameters(), expected, strict=True)):
        raise AssertionError("the state that was loaded is not the one that was saved")
    return "save of a whole state", statistics.median(ours), statistics.median(theirs), "s"


def _torch_save(path: Path, model: Any, optimizer: Any) -> None:
    with path.open("wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())


def _sharded(place: Path, model: Any, optimizer: Any, rounds: int) -> list[tuple[str, float, float, str]]:
    """PyTorch's distributed checkpoints in one process: saves, and how long the asynchronous ones keep the caller."""
    ours, theirs, stalls = list[float](), list[float](), list[float]()
    pending: list[Any] = []
    for number in range(rounds):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        ours.append(_seconds(partial(dcp.save, state, storage_writer=StoreWriter(place / "dcp"), no_dist=True)))
        theirs.append(_seconds(partial(dcp.save, state, checkpoint_id=place / f"theirs-{number}", no_dist=True)))
        begin = partial(dcp.async_save, state, storage_writer=StoreWriter(place / "dcp"), no_dist=True)
        stalls.append(_seconds(lambda begin=begin: pending.append(begin())))  # type: ignore[misc]
        pending.pop().result()
    ours_median, theirs_median = statistics.median(ours), statistics.median(theirs)
    return [
        ("save by dcp.save", ours_median, theirs_median, "s"),
        ("stall of dcp.async_save, beside their dcp.save", statistics.median(stalls), theirs_median, "s"),
    ]
