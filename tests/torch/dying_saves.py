"""Sharded saves in which a rank dies after any number of bytes, and the loads after them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tests.torch.ranks import Rank, Ranks, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from spotwright.checkpoint.dcp import StoreReader, StoreWriter
from spotwright.checkpoint.store import FolderStore

RANKS = 2
ROWS = 1500


def state_of(number: int) -> dict[str, Any]:
    """A state in shards, every part of which says which one it is."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    local = torch.full((ROWS // dist.get_world_size(), 100), float(number))
    return {
        "number": number,
        "weights": DTensor.from_local(local, mesh, [Shard(0)]),
        "on all": torch.full((50,), number),
    }


def saved_at(place: str) -> int | None:
    """The number of the loaded save, which must be complete; 0 if there is none."""
    reader = StoreReader(place, again=True)
    if not reader.has_save():
        return 0
    state: dict[str, Any] = {
        "number": -1,
        "weights": torch.zeros(ROWS, 100),
        "on all": torch.zeros(50, dtype=torch.int64),
    }
    dcp.load(state, storage_reader=reader)
    number: int = state["number"]
    is_whole = bool((state["weights"] == number).all()) and bool((state["on all"] == number).all())
    return number if is_whole else None


class DyingStore(FolderStore):
    """A place at which this process dies in the middle of an operation."""

    def __init__(self, path: str, after: int) -> None:
        super().__init__(path)
        self._left = after  # bytes that it still writes to shards, then operations on the log

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _new(self, name: str) -> Any:
        file: Any = super()._new(name)
        write = file.write

        class Counted:
            def __getattr__(self, attribute: str) -> Any:
                return getattr(file, attribute)

            def __enter__(self) -> Any:
                file.__enter__()
                return self

            def __exit__(self, *about: object) -> Any:
                return file.__exit__(*about)

        counted: Any = Counted()

        def dying_write(data: Any) -> int:
            room = memoryview(data).nbytes
            if room > dying._left:
                write(memoryview(data).cast("B")[: max(dying._left, 0)])
                file.flush()
            dying._spend(room)
            return int(write(data))

        dying = self
        counted.write = dying_write
        self._spend(1)
        return counted


def saves_until_it_dies(rank: Rank, place: str, victim: int, after: int) -> None:
    """Load, then save; one of the ranks dies in the third save at some byte, and the others are killed by the test."""
    state = state_of(0)
    reader = StoreReader(place)
    if reader.has_save():
        dcp.load(state, storage_reader=reader)
    number = state["number"]
    writer = StoreWriter(place)
    for save in range(3):
        number += 1
        if save == 2 and rank.number == victim:
            writer.attempt.manager.store = writer.attempt.manager.log._store = DyingStore(place, after)
        rank.say(begun=number)
        dcp.save(state_of(number), storage_writer=writer)
        rank.say(confirmed=number)


def last(ranks: Ranks, word: str) -> int:
    return max([each[word] for rank in range(RANKS) for each in ranks.said(rank) if word in each], default=0)


def killed(folder: Path, place: str, victim: int, after: int) -> tuple[int, int]:
    """Start ranks of which one dies; return the last save that one of them confirmed, and the last one that was begun."""
    with start(folder, saves_until_it_dies, place, victim, after, count=RANKS) as ranks:
        ranks.code(victim)
        time.sleep(0.01)
    return last(ranks, "confirmed"), last(ranks, "begun")


SHARD = ROWS * 100 * 4 // RANKS


def bytes_of(kills: int, seed: int) -> list[tuple[int, int]]:
    """Who dies after how many bytes: in the shard, in the layout, in the entry, or in the removal of older saves."""
    chance = random.Random(seed)  # noqa: S311
    places: list[Callable[[], int]] = [lambda: chance.randrange(SHARD), lambda: SHARD + chance.randrange(3000)]
    return [(chance.randrange(RANKS) if number % 2 else 0, places[number % 2]()) for number in range(kills)]
