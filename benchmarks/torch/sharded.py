"""Sharded saves and loads of 1 GB by two ranks into a folder: ours beside PyTorch's own writer and reader (DCP).

    python -m benchmarks.torch.sharded [MEGABYTES]

Both write and read the same tensors, the one after the other, in the same processes. Before a load the pages of the files are
dropped from memory, as on a node that comes back. The stall of an asynchronous save of ours is beside a save of theirs.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.torch.forked import run_ranks

__all__ = ["measure"]

RANKS = 2
ROUNDS = 5
TENSOR = 32 << 20  # bytes


def measure(megabytes: int = 1024) -> list[tuple[str, float, float]]:
    """Return the measurements: the name, our median seconds, and theirs."""
    for name in ("torch.distributed.checkpoint", "torch.distributed.tensor"):
        importlib.import_module(name)  # once, for all ranks
    folder = Path(tempfile.mkdtemp(prefix="spotwright-sharded-"))
    try:
        run_ranks(RANKS, lambda rank: _run(rank, folder, megabytes << 20))
        return [(name, ours, theirs) for name, ours, theirs in json.loads((folder / "measured.json").read_text())]
    finally:
        shutil.rmtree(folder)


def _run(rank: int, folder: Path, size: int) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    from spotwright.checkpoint.dcp import StoreReader, StoreWriter

    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS)
    state = _state(size)
    times: dict[str, list[float]] = {}

    def timed(name: str, function: Callable[[], Any]) -> Any:
        dist.barrier()
        began = time.monotonic()
        result = function()
        times.setdefault(name, []).append(time.monotonic() - began)
        return result

    ours = StoreWriter(folder / "ours")
    for number in range(ROUNDS):
        theirs = folder / f"theirs-{number % 2}"
        timed("our save", partial(dcp.save, state, storage_writer=ours))
        timed("their save", partial(dcp.save, state, storage_writer=dcp.FileSystemWriter(theirs)))
        dist.barrier()
        _drop(folder)
        timed("our load", partial(dcp.load, state, storage_reader=StoreReader(folder / "ours")))
        timed("their load", partial(dcp.load, state, storage_reader=dcp.FileSystemReader(theirs)))
        timed("our stall", partial(dcp.async_save, state, storage_writer=ours)).result()
        timed("their stall", partial(dcp.async_save, state, storage_writer=dcp.FileSystemWriter(theirs))).result()
    if rank == 0:
        medians = {name: statistics.median(each) for name, each in times.items()}
        rows = [
            ("sharded save", medians["our save"], medians["their save"]),
            ("sharded load", medians["our load"], medians["their load"]),
            (
                "stall of an asynchronous save, beside their synchronous save",
                medians["our stall"],
                medians["their save"],
            ),
            ("stall of an asynchronous save", medians["our stall"], medians["their stall"]),
        ]
        (folder / "measured.json").write_text(json.dumps(rows))
    dist.barrier()


def _state(size: int) -> dict[str, Any]:
    """Tensors of this size in all, in shards, as FSDP has them."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (RANKS,))
    local = TENSOR // RANKS // 4096
    shards = [torch.rand(local, 1024) for _ in range(size // TENSOR)]
    return {f"layer.{number}": DTensor.from_local(each, mesh, [Shard(0)]) for number, each in enumerate(shards)}


def _drop(folder: Path) -> None:
    """Drop the pages of all files from memory; they are on the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    for name, ours, theirs in measure(*map(int, sys.argv[1:])):
        print(f"{name:60} ours {ours:6.2f} s, theirs {theirs:6.2f} s, {theirs / ours:.2f} times as fast")
