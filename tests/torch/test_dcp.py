"""Sharded saves through PyTorch's distributed checkpoints: real ranks with a gloo group, each in a separate process."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tests.torch.ranks import Rank, start
from tests.torch.sharded import save_sharded
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from spotwright.checkpoint import (
    BrokenCheckpoint,
    Checkpoint,
    NotLoaded,
    OtherProgram,
    PlaceError,
    SaveFailed,
    StaleWriter,
    UnstorableState,
)
from spotwright.checkpoint.dcp import StoreReader, StoreWriter
from spotwright.checkpoint.save_manager import SaveManager
from spotwright.checkpoint.sharded_state import load_sharded
from spotwright.checkpoint.store import FolderStore, open_store
from spotwright.checkpoint.torch import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

FACTS = {"step": 0, "finished": False, "age": 0.0, "step_seconds": None}
TYPES = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "half": torch.float16, "double": torch.float64,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "int8": torch.int8, "uint8": torch.uint8,
    "bool": torch.bool, "complex": torch.complex64,
}  # fmt: skip
ALONG = {"columns": 1, "deep": 2, "middle": 1, "of several pieces": 1}
ON_ALL = {"on all", "scalar", "empty"}


def wholes(seed: int) -> dict[str, torch.Tensor]:
    """Tensors of many shapes and types, whose elements say which ones they are."""
    chance = torch.Generator().manual_seed(seed)
    shapes = {
        "rows": (13, 6), "columns": (6, 13), "deep": (1, 1, 11, 4), "middle": (3, 10, 4), "few rows": (2, 3),
        "of several pieces": (700, 1000), "on all": (4, 4), "scalar": (), "empty": (0, 3),
    }  # fmt: skip
    tensors = {name: torch.randn(shape, generator=chance) for name, shape in shapes.items()}
    return tensors | {f"type {name}": torch.randn(9, 5, generator=chance).to(dtype) for name, dtype in TYPES.items()}


def on_ranks(tensors: dict[str, torch.Tensor], mesh: DeviceMesh | None = None) -> dict[str, Any]:
    """The tensors in shards over all ranks, the last dimension of the mesh; some are on all of them."""
    mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    copies = [Replicate()] * (mesh.ndim - 1)
    return {
        name: tensor
        if name in ON_ALL
        else distribute_tensor(tensor, mesh, [*copies, Shard(ALONG.get(name, 0))], src_data_rank=None)
        for name, tensor in tensors.items()
    }


def bits(tensor: Any) -> bytes:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return bytes(local.contiguous().reshape(-1).view(torch.uint8).numpy())


def zeros(mesh: DeviceMesh | None = None) -> dict[str, Any]:
    return on_ranks({name: torch.zeros_like(tensor) for name, tensor in wholes(0).items()}, mesh)


def differing(state: dict[str, Any], seed: int, mesh: DeviceMesh | None = None) -> list[str]:
    """The names of the tensors whose part on this rank is not that of :func:`wholes`."""
    return [name for name, tensor in on_ranks(wholes(seed), mesh).items() if bits(state[name]) != bits(tensor)]


def manager_of(place: str | Path) -> SaveManager:
    return SaveManager(open_store(str(place)), program="", keep=2, allow_pickle=False)


def names_in(place: str | Path) -> list[str]:
    return sorted(path.name for path in Path(place).iterdir())


def raised(error: BaseException, kind: type[Exception]) -> str:
    """The message of an error of this kind that DCP has collected from the ranks."""
    assert isinstance(error, dcp.CheckpointException)
    return next(str(failure) for failure, _ in error.failures.values() if isinstance(failure, kind))


# -- saves and loads with any number of ranks


def saves(rank: Rank, place: str, seeds: list[int]) -> list[str]:
    writer = StoreWriter(place)
    for seed in seeds:
        dcp.save(on_ranks(wholes(seed)), storage_writer=writer)
    return names_in(place)


def loads(rank: Rank, place: str, seed: int) -> list[str]:
    state = zeros()
    dcp.load(state, storage_reader=StoreReader(place))
    return differing(state, seed)


@pytest.mark.parametrize(("before", "after"), [(3, 3), (4, 3), (2, 4)])
def test_what_some_ranks_have_saved_any_number_of_ranks_loads(tmp_path: Path, before: int, after: int) -> None:
    place = str(tmp_path / "place")
    with start(tmp_path / "before", saves, place, [1, 2], count=before) as ranks:
        ranks.results()
    with start(tmp_path / "after", loads, place, 2, count=after) as ranks:
        assert ranks.results() == [[]] * after


def test_one_process_without_a_group_loads_whole_tensors(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with start(tmp_path / "ranks", saves, place, [5], count=3) as ranks:
        ranks.results()
    state = {name: torch.zeros_like(tensor) for name, tensor in wholes(5).items()}
    dcp.load(state, storage_reader=StoreReader(place))
    assert [name for name, tensor in wholes(5).items() if bits(state[name]) != bits(tensor)] == []


def trains_and_saves(rank: Rank, place: str, steps: int) -> dict[str, Any]:
    """A model in shards (FSDP2) with its optimizer: load if there is a save, take some steps, save."""
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 17), torch.nn.Tanh(), torch.nn.Linear(17, 3))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "done": 0}
    reader = StoreReader(place)
    if reader.has_save():
        dcp.load(state, storage_reader=reader)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state["optimizer"])
    begun: int = state["done"]
    batch = torch.randn(48, 10, generator=torch.Generator().manual_seed(3))
    for _ in range(steps):
        share = len(batch) // dist.get_world_size()
        optimizer.zero_grad()
        (model(batch[rank.number * share : (rank.number + 1) * share]) ** 2).mean().backward()
        optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments, "done": begun + steps}, storage_writer=StoreWriter(place))
    whole = [parameter.full_tensor().tolist() for parameter in model.parameters()]
    return {"begun": begun, "whole": whole}


def flat(values: Any) -> Iterator[float]:
    for value in values if isinstance(values, list) else ():
        yield from flat(value) if isinstance(value, list) else [value]


def trained(folder: Path, place: str, counts: list[int]) -> list[float]:
    whole: Any = None
    for number, count in enumerate(counts):
        with start(folder / str(number), trains_and_saves, place, 4, count=count) as ranks:
            first, *_ = ranks.results()
        assert first["begun"] == 4 * number
        whole = first["whole"]
    return list(flat(whole))


@pytest.mark.parametrize(
    "counts",
    [[2, 3, 2], pytest.param([8, 6, 8], marks=pytest.mark.long)],
    ids=lambda counts: "-".join(map(str, counts)),
)
def test_a_training_in_shards_goes_on_with_fewer_and_again_with_more_ranks(tmp_path: Path, counts: list[int]) -> None:
    moved = trained(tmp_path / "moved", str(tmp_path / "moved place"), counts)
    stayed = trained(tmp_path / "stayed", str(tmp_path / "stayed place"), [counts[0]] * len(counts))
    assert moved == pytest.approx(stayed, abs=1e-5)


def saves_one_replica_of_two(rank: Rank, place: str) -> list[str]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    dcp.save(on_ranks(wholes(3), mesh), storage_writer=StoreWriter(place))
    state = zeros(mesh)
    dcp.load(state, storage_reader=StoreReader(place))
    return differing(state, 3, mesh)


def test_replicas_of_shards_are_stored_once(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with start(tmp_path, saves_one_replica_of_two, str(place), count=4) as ranks:
        assert ranks.results() == [[]] * 4
    stored = sum(path.stat().st_size for path in place.iterdir())
    assert stored < 1.1 * sum(tensor.nbytes for tensor in wholes(3).values())


# -- values that are no tensors


VALUES: dict[str, Any] = {
    "step": 7, "rate": 0.1, "name": "größer", "nothing": None, "list": [1, 2.5, "x"], "pair": (1, (2, b"\x00")),
    "nested": {"deep": {"flag": True, "limit": float("inf")}}, "array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "generator": np.random.default_rng(3).bit_generator.state, "tensors in a tuple": (torch.arange(3), 4),
}  # fmt: skip


def test_values_come_back_with_their_types_and_nothing_is_pickled_or_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("pickle was used")

    for module, names in (
        (pickle, ("dump", "dumps", "load", "loads", "Unpickler", "Pickler")),
        (torch, ("save", "load")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    dcp.save(dict(VALUES), storage_writer=StoreWriter(tmp_path))
    loaded: dict[str, Any] = dict.fromkeys(VALUES)
    loaded |= {"nested": {"deep": {"flag": None, "limit": 0}}, "generator": dict(VALUES["generator"])}
    dcp.load(loaded, storage_reader=StoreReader(tmp_path))

    assert np.array_equal(loaded.pop("array"), VALUES["array"])
    tensor, number = loaded.pop("tensors in a tuple")
    assert (tensor.tolist(), number) == ([0, 1, 2], 4)
    assert loaded == {name: value for name, value in VALUES.items() if name in loaded}
    assert type(loaded["pair"]) is tuple


@pytest.mark.parametrize("value", [object(), torch.float32, {1, 2}], ids=["an object", "a type", "a set"])
def test_a_value_that_cannot_be_stored_is_named_and_nothing_is_committed(tmp_path: Path, value: Any) -> None:
    with pytest.raises(dcp.CheckpointException) as error:
        dcp.save({"model": {"odd": value}}, storage_writer=StoreWriter(tmp_path))
    assert "model.odd" in raised(error.value, UnstorableState)
    assert not StoreReader(tmp_path).has_save()


def test_a_sparse_tensor_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(dcp.CheckpointException) as error:
        dcp.save({"odd": torch.eye(3).to_sparse()}, storage_writer=StoreWriter(tmp_path))
    assert "odd" in str(error.value)
    assert not StoreReader(tmp_path).has_save()


# -- the log: tokens, retention


def test_the_newest_two_saves_stay_with_all_their_shards(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with start(tmp_path / "ranks", saves, place, [1, 2, 3, 4, 5], count=3) as ranks:
        names, *_ = ranks.results()
    entries = list(manager_of(place).log.saves())
    stored = [name for name in names if name.startswith("state-")]
    assert len(entries) == 2
    assert sorted(stored) == sorted(
        name for entry in entries for name in (entry.state, *(each[0] for each in entry.shards))
    )
    assert all(len(entry.shards) == 3 for entry in entries)


def saves_late(rank: Rank, place: str) -> list[Any]:
    writer = StoreWriter(place)
    dcp.save(on_ranks(wholes(1)), storage_writer=writer)
    rank.say(saved=1)
    rank.waits_for("the successor has claimed")
    names = names_in(place)
    try:
        dcp.save(on_ranks(wholes(2)), storage_writer=StoreWriter(place))  # a new writer is the same attempt
    except dcp.CheckpointException as error:
        return [raised(error, StaleWriter), names_in(place) == names]
    return []


def test_a_late_save_is_refused_on_every_rank_and_writes_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with start(tmp_path / "ranks", saves_late, place, count=2) as ranks:
        ranks.until(0, saved=1)
        manager_of(place).claim(None)
        ranks.allow("the successor has claimed")
        results = ranks.results()
    assert all("another attempt took over" in message and unchanged for message, unchanged in results)
    with start(tmp_path / "after", loads, place, 1, count=2) as ranks:
        assert ranks.results() == [[], []]


class SlowStore(FolderStore):
    """A place at which one rank's shard takes long."""

    rank: Rank

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        with super().write(name) as file:
            if self.rank.number == 1:
                self.rank.say(writes=name)
                self.rank.waits_for("go on")
            yield file


def saves_slowly(rank: Rank, place: str) -> str:
    writer = StoreWriter(place)
    store = SlowStore(place)
    store.rank = rank
    writer.attempt.manager.store = store
    try:
        dcp.save(on_ranks(wholes(4)), storage_writer=writer)
    except dcp.CheckpointException as error:
        return raised(error, StaleWriter)
    return "saved"


@pytest.mark.parametrize("replaced", [False, True], ids=["", "and is replaced meanwhile"])
def test_a_save_waits_for_the_slowest_rank(tmp_path: Path, replaced: bool) -> None:
    place = tmp_path / "place"
    with start(tmp_path / "ranks", saves_slowly, str(place), count=3) as ranks:
        while not any("writes" in each for each in ranks.said(1)):
            time.sleep(0.01)
        time.sleep(0.2)
        assert not StoreReader(place).has_save(), "a save counts when all of it is there"
        if replaced:
            manager_of(place).claim(None)
        ranks.allow("go on")
        results = ranks.results()
    assert all(("another attempt" in result) if replaced else result == "saved" for result in results)
    assert StoreReader(place).has_save() is not replaced
    if replaced:
        assert [name for name in names_in(place) if name.startswith("state-")] == [], "it takes no room"


def test_a_save_without_a_load_does_not_replace_what_is_there(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with start(tmp_path / "ranks", saves, place, [1], count=1) as ranks:
        ranks.results()
    with pytest.raises(dcp.CheckpointException) as error:
        dcp.save({"x": torch.ones(1)}, storage_writer=StoreWriter(place))
    assert "dcp.load(state" in raised(error.value, NotLoaded)

    state = {"rows": torch.zeros(13, 6)}
    dcp.load(state, storage_reader=StoreReader(place))
    dcp.save(state, storage_writer=StoreWriter(place))


def saves_elsewhere(rank: Rank, place: str) -> str:
    try:
        dcp.save(on_ranks(wholes(1)), storage_writer=StoreWriter(f"{place}-{rank.number}"))
    except dcp.CheckpointException as error:
        return raised(error, PlaceError)
    return "saved"


def test_folders_of_several_nodes_that_are_not_one_are_noticed(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    manager_of(f"{place}-1").claim(None)  # from an attempt whose rank 0 was on this node
    with start(tmp_path / "ranks", saves_elsewhere, place, count=2) as ranks:
        assert all("a volume that all nodes mount" in result for result in ranks.results())


def loads_while_another_saves(rank: Rank, place: str) -> list[str]:
    state = zeros()
    reader = StoreReader(place)
    if rank.number == 1:  # it looks before the newest save is committed
        saves = reader.attempt.manager.log.saves
        entries = list(saves())
        looks = iter([entries[1:], entries])
        reader.attempt.manager.log.saves = lambda: iter(next(looks))  # type: ignore[method-assign]
    dcp.load(state, storage_reader=reader)
    return differing(state, 1)


def test_all_ranks_load_the_same_save(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with start(tmp_path / "before", saves, place, [1, 2], count=2) as ranks:
        ranks.results()
    with start(tmp_path / "after", loads_while_another_saves, place, count=3) as ranks:
        assert ranks.results() == [[], [], []]


# -- what goes wrong


def saves_on_a_full_disk(rank: Rank, place: str) -> list[Any]:
    writer = StoreWriter(place)
    dcp.save(on_ranks(wholes(1)), storage_writer=writer)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank.number == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    message = ""
    try:
        dcp.save(on_ranks(wholes(2)), storage_writer=writer)
    except dcp.CheckpointException as error:
        message = raised(error, SaveFailed)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    state = zeros()
    dcp.load(state, storage_reader=StoreReader(place, again=True))
    before = differing(state, 1)
    dcp.save(on_ranks(wholes(3)), storage_writer=writer)
    dcp.load(state, storage_reader=StoreReader(place, again=True))
    return [message, before, differing(state, 3)]


def test_a_full_disk_of_one_rank_fails_the_save_and_not_the_one_before_or_after_it(tmp_path: Path) -> None:
    place = tmp_path / "place"
    with start(tmp_path / "ranks", saves_on_a_full_disk, str(place), count=3) as ranks:
        results = ranks.results()
    assert all("the previous one is untouched" in message for message, _, _ in results)
    assert [result[1:] for result in results] == [[[], []]] * 3
    kept = {
        name for entry in manager_of(place).log.saves() for name in (entry.state, *(each[0] for each in entry.shards))
    }
    assert {name for name in names_in(place) if name.startswith("state-")} == kept


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A save of two ranks."""
    folder = tmp_path_factory.mktemp("saved")
    with start(folder / "ranks", saves, str(folder / "place"), [6], count=2) as ranks:
        ranks.results()
    return folder / "place"


def copied(place: Path, tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    target.mkdir()
    for path in place.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def loaded_whole(place: Path) -> list[str]:
    state = {name: torch.zeros_like(tensor) for name, tensor in wholes(6).items()}
    dcp.load(state, storage_reader=StoreReader(place))
    return [name for name, tensor in wholes(6).items() if bits(state[name]) != bits(tensor)]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("part", ["a value", "its last bytes", "the table", "the end"])
def test_a_damaged_byte_of_a_shard_is_noticed(saved: Path, tmp_path: Path, number: int, part: str) -> None:
    place = copied(saved, tmp_path)
    name, size, _ = next(manager_of(place).log.saves()).shards[number]
    data = bytearray((place / name).read_bytes())
    start, length, _ = max(json.loads(data[data.rindex(b'{"blobs"') : -32])["blobs"], key=lambda blob: blob[1])
    where = {"a value": start, "its last bytes": start + length - 1, "the table": size - 40, "the end": size - 1}
    data[where[part]] ^= 1
    (place / name).write_bytes(data)

    with pytest.raises(dcp.CheckpointException) as error:
        loaded_whole(place)
    assert name in raised(error.value, BrokenCheckpoint)


def test_a_cut_or_missing_shard_is_noticed(saved: Path, tmp_path: Path) -> None:
    place = copied(saved, tmp_path)
    (name, size, _), *_ = next(manager_of(place).log.saves()).shards
    os.truncate(place / name, size - 1)
    with pytest.raises(dcp.CheckpointException) as error:
        loaded_whole(place)
    assert f"{name}: {size - 1} bytes long" in raised(error.value, BrokenCheckpoint)

    (place / name).unlink()
    with pytest.raises(dcp.CheckpointException) as error:
        loaded_whole(place)
    assert f"{name} no longer exists" in raised(error.value, BrokenCheckpoint)


def test_a_place_with_the_state_of_one_process_says_how_to_load_it(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.save(1)
    with pytest.raises(dcp.CheckpointException, match=r"load it with spotwright\.checkpoint\.Checkpoint"):
        dcp.load({"x": torch.zeros(1)}, storage_reader=StoreReader(tmp_path))


def test_a_place_with_shards_says_how_to_load_them(saved: Path) -> None:
    with pytest.raises(OtherProgram, match="StoreReader"):
        Checkpoint(saved, writer=False).load()


class CountingFile:
    """A file that counts the bytes that are read."""

    def __init__(self, file: BinaryIO, counts: list[int]) -> None:
        self._file, self._counts = file, counts

    def readinto(self, target: memoryview) -> int:
        count: int = self._file.readinto(target)  # type: ignore[attr-defined]
        self._counts.append(count)
        return count

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._counts.append(len(data))
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def reads_its_share(rank: Rank, place: str) -> list[int]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(24 << 20, dtype=torch.uint8).reshape(24 << 10, 1 << 10)
    if rank.count == 2:
        dcp.save({"large": distribute_tensor(whole, mesh, [Shard(0)])}, storage_writer=StoreWriter(place))
    state = {"large": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(0)])}
    reader = StoreReader(place)
    counts: list[int] = []
    store: Any = reader.attempt.manager.store
    opens = store.open
    store.open = lambda name: CountingFile(opens(name), counts)
    dcp.load(state, storage_reader=reader)
    assert bits(state["large"]) == bits(distribute_tensor(whole, mesh, [Shard(0)]))
    return [sum(counts), state["large"].to_local().nbytes]


def test_each_rank_reads_only_what_it_needs(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    for count in (2, 3):
        with start(tmp_path / str(count), reads_its_share, place, count=count) as ranks:
            for read, needed in ranks.results():
                assert needed <= read < needed + (4 << 20)  # the ends of its part are in pieces of 1 MiB


# -- asynchronous saves, and planners with settings


def saves_asynchronously(rank: Rank, place: str) -> list[Any]:
    group = dist.new_group()
    tensors = wholes(1)
    state = on_ranks(tensors)
    writer = StoreWriter(place)
    future = dcp.async_save(state, storage_writer=writer, process_group=group)
    for tensor in state.values():
        (tensor.to_local() if hasattr(tensor, "to_local") else tensor).zero_()
    future.result()
    loaded = zeros()
    dcp.load(loaded, storage_reader=StoreReader(place))
    return differing(loaded, 1)


def test_an_asynchronous_save_has_the_state_of_its_call(tmp_path: Path) -> None:
    with start(tmp_path / "ranks", saves_asynchronously, str(tmp_path / "place"), count=2) as ranks:
        assert ranks.results() == [[], []]


def saves_twice_at_once(rank: Rank, place: str) -> list[Any]:
    writer = StoreWriter(place)
    writer.attempt.manager.store = store = SlowStore(place)
    store.rank = rank
    first = dcp.async_save(on_ranks(wholes(1)), storage_writer=writer, process_group=dist.new_group())
    if rank.number == 1:
        while not any("writes" in line for line in (rank.folder / "rank-1.said").read_text().splitlines()):
            time.sleep(0.01)
    dist.barrier()
    if rank.number == 1:
        (rank.folder / "go on").touch()
    try:
        dcp.save(on_ranks(wholes(2)), storage_writer=writer)
        first.result()
    except dcp.CheckpointException as error:
        message = raised(error, SaveFailed)
    else:
        message = ""
    state = zeros()
    dcp.load(state, storage_reader=StoreReader(place))
    return [message, differing(state, 1) and differing(state, 2)]


def test_two_saves_of_one_process_at_once_leave_a_whole_one(tmp_path: Path) -> None:
    with start(tmp_path / "ranks", saves_twice_at_once, str(tmp_path / "place"), count=2) as ranks:
        results = ranks.results()
    assert all(not message or "async_save" in message for message, _ in results)
    assert [differs for _, differs in results] == [[], []]


def saves_with_cached_plans(rank: Rank, place: str) -> list[str]:
    for seed in (1, 2, 3):
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(on_ranks(wholes(seed)), storage_writer=StoreWriter(place), planner=planner)
    return loads(rank, place, 3)


def test_plans_that_dcp_keeps_from_one_save_to_the_next_are_saved(tmp_path: Path) -> None:
    with start(tmp_path / "ranks", saves_with_cached_plans, str(tmp_path / "place"), count=2) as ranks:
        assert ranks.results() == [[], []]


def test_the_process_of_an_asynchronous_save_gets_a_writer_that_knows_what_was_loaded(tmp_path: Path) -> None:
    dcp.save({"x": torch.ones(3)}, storage_writer=StoreWriter(tmp_path, program="digits/1", keep=1))
    given = pickle.dumps(StoreWriter(tmp_path, program="digits/1", keep=1))
    state = {"x": torch.zeros(3)}
    with pytest.raises(dcp.CheckpointException) as error:
        dcp.load(state, storage_reader=StoreReader(tmp_path / "elsewhere"))
    assert "no save here yet" in str(error.value)
    dcp.save({"x": torch.full((3,), 2.0)}, storage_writer=pickle.loads(given))  # noqa: S301  # our own bytes
    dcp.load(state, storage_reader=StoreReader(tmp_path, program="digits/1"))
    assert state["x"].tolist() == [2.0, 2.0, 2.0]


# -- the functions for Checkpoint(group=...)


def saves_a_state(rank: Rank, place: str) -> Any:
    manager = manager_of(place)
    if rank.number == 0:
        manager.claim(None)
    state = {"model": on_ranks(wholes(2)), "optimizer": {0: {"step": 5, "names": ("a", "b")}, "groups": [{"lr": 0.5}]}}
    entry = save_sharded(
        manager, state, {**FACTS, "step": 9}, own={"rank": rank.number, "random": torch.arange(rank.number)}
    )
    return entry and entry.data["step"]


def loads_a_state(rank: Rank, place: str) -> Any:
    manager = manager_of(place)
    state: Any = {"model": zeros(), "optimizer": {0: {"step": 0, "names": None}, "groups": [{"lr": 0.1}]}}
    own = load_sharded(manager, next(manager.log.saves()), state)
    assert state["optimizer"] == {0: {"step": 5, "names": ("a", "b")}, "groups": [{"lr": 0.5}]}
    return [differing(state["model"], 2), own and [own["rank"], len(own["random"])]]


def test_a_state_is_filled_in_place_and_each_rank_gets_what_is_its_own(tmp_path: Path) -> None:
    place = str(tmp_path / "place")
    with start(tmp_path / "before", saves_a_state, place, count=2) as ranks:
        assert ranks.results() == [9, None]
    with start(tmp_path / "after", loads_a_state, place, count=3) as ranks:
        assert ranks.results() == [[[], [0, 0]], [[], [1, 1]], [[], None]]


def goes_on_in_a_new_group(rank: Rank, place: str, sharded: bool) -> list[str]:
    """Save tensors of all types, in a thread too; create the process group again, and load them. Returns the differences."""

    def state(seed: int) -> Any:
        return {"tensors": on_ranks(wholes(seed)) if sharded else pack(wholes(seed)), "numbers": [1, 2.5, None]}

    store = dist.distributed_c10d._get_default_store()
    with Checkpoint(place, group=dist.group.WORLD, every=0.0) as ckpt:
        assert ckpt.load() is None
        for step in ckpt.steps(100):
            dist.barrier()
            if ckpt.step_done(state(step)) and step > 0:
                break
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.PrefixStore("2", store), rank=rank.number, world_size=rank.count)
    with Checkpoint(place, group=dist.group.WORLD, again=True) as again:
        loaded = again.load()
        assert again.step == ckpt.step
        found = state(99)
        if sharded:
            loaded.into(found)
        else:
            found = {**loaded, "tensors": unpack(loaded["tensors"])}
    assert found["numbers"] == [1, 2.5, None]
    expected = on_ranks(wholes(step)) if sharded else wholes(step)
    return [name for name, tensor in expected.items() if bits(found["tensors"][name]) != bits(tensor)]


@pytest.mark.parametrize("sharded", [False, True])
def test_tensors_of_all_types_come_back_in_a_process_group_that_was_made_again(sharded: bool, tmp_path: Path) -> None:
    with start(tmp_path / "ranks", goes_on_in_a_new_group, str(tmp_path / "place"), sharded, count=2) as ranks:
        assert ranks.results() == [[], []]


def test_another_model_is_refused_with_the_names_of_its_tensors(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.claim(None)
    entry = save_sharded(manager, {"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(4)}, FACTS)
    assert entry is not None
    with pytest.raises(OtherProgram) as refused:
        load_sharded(manager, entry, {"a": torch.ones(2), "b": torch.ones(5), "d": torch.ones(4)})
    message = str(refused.value)
    assert "d is not in the checkpoint" in message
    assert "c is only in the checkpoint" in message
    assert "b has the shape [3] in the checkpoint, and [5] in this program" in message
