"""Sharded saves in a bucket: a real server that speaks S3 on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tests.checkpoint.s3_server import CREDENTIALS, s3_server
from tests.torch.ranks import Rank, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from spotwright.checkpoint import BrokenCheckpoint, Checkpoint, StaleWriter
from spotwright.checkpoint.dcp import StoreReader, StoreWriter
from spotwright.checkpoint.save_log import SaveLog
from spotwright.checkpoint.store import open_store

PLACE = "s3://shards/run"  # a server in this process knows the buckets of every other one


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of S3."""
    with s3_server("shards") as url:
        yield url


def state_of(number: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(1200.0).reshape(40, 30) + number
    return {"weights": distribute_tensor(whole, mesh, [Shard(1)], src_data_rank=None), "number": number}


def saves_and_loads(rank: Rank, endpoint: str, begun: int, count: int) -> list[Any]:
    """Load the newest save, which must be one of ``begun``, then save a few times."""
    options = {"endpoint_url": endpoint}
    state = state_of(-1)
    if begun:
        dcp.load(state, storage_reader=StoreReader(PLACE, storage_options=options))
    assert torch.equal(state["weights"].to_local(), state_of(begun or -1)["weights"].to_local())
    writer = StoreWriter(PLACE, storage_options=options)
    for number in range(begun + 1, begun + 1 + count):
        dcp.save(state_of(number), storage_writer=writer)
    rank.say(saved=begun + count)
    rank.waits_for("end")
    try:
        dcp.save(state_of(0), storage_writer=writer)
    except dcp.CheckpointException as error:
        return [type(failure).__name__ for failure, _ in error.failures.values()]
    return []


def saves_and_loads_damaged(rank: Rank, endpoint: str, damage: bool) -> str:
    """Save with a checkpoint of the group, or load an existing one; return the message of the error."""
    place, options = "s3://shards/damaged", {"endpoint_url": endpoint}
    with Checkpoint(place, group=dist.group.WORLD, storage_options=options) as ckpt:
        loaded = ckpt.load()
        if not damage:
            ckpt.save(state_of(1))
            return ""
        try:
            loaded.into(state_of(0))
        except BrokenCheckpoint as error:
            return str(error)
    return "nothing"


def test_a_damaged_shard_in_a_bucket_is_named_with_its_place(tmp_path: Path, endpoint: str) -> None:
    with start(tmp_path / "saves", saves_and_loads_damaged, endpoint, False, count=2, environment=CREDENTIALS) as ranks:
        ranks.results()
    store = open_store("s3://shards/damaged", {"endpoint_url": endpoint})
    name, _, _ = next(SaveLog(store).saves()).shards[1]
    content = bytearray(store.read(name) or b"")
    content[len(content) // 4] ^= 1
    store.remove(name)
    assert store.create(name, bytes(content))
    with start(tmp_path / "loads", saves_and_loads_damaged, endpoint, True, count=2, environment=CREDENTIALS) as ranks:
        messages = ranks.results()
    for message in messages:
        assert message.startswith(f"s3://shards/damaged: {name}: the bytes of a value are damaged. Remove state-")
        assert message.endswith("and start again, to load the save before it")


def test_shards_in_a_bucket_are_loaded_by_fewer_ranks_which_end_the_older_attempt(
    tmp_path: Path, endpoint: str
) -> None:
    with start(tmp_path / "older", saves_and_loads, endpoint, 0, 3, count=3, environment=CREDENTIALS) as older:
        older.until(0, saved=3)
        with start(tmp_path / "younger", saves_and_loads, endpoint, 3, 1, count=2, environment=CREDENTIALS) as younger:
            younger.until(0, saved=4)
            older.allow("end")
            assert older.results() == [[StaleWriter.__name__]] * 3
            younger.allow("end")
            assert younger.results() == [[], []]
    store = StoreReader(PLACE, storage_options={"endpoint_url": endpoint}).attempt.manager.store
    assert len([name for name in store.names() if name.startswith("state-")]) == 2 * (1 + 2)
