"""Saves of a group at bad moments: late ones, near the end of a rank, without a store, of states that are hard to copy."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tests.torch.ranks import Rank, Ranks, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from spotwright.checkpoint import Checkpoint, File
from spotwright.checkpoint.errors import SaveFailed, UnstorableState
from spotwright.checkpoint.group_saves import GroupSaves
from spotwright.checkpoint.rank_keys import GroupKeys
from spotwright.checkpoint.save_coordinator import SaveCoordinator
from spotwright.checkpoint.save_manager import SaveManager
from spotwright.checkpoint.sharded_state import copied
from spotwright.checkpoint.store import FolderStore, Store, open_store

FACTS = {"finished": False, "age": 0.0, "step_seconds": 1.0}


def manager_at(place: Store) -> SaveManager:
    return SaveManager(place, program="", keep=2, allow_pickle=False)


def group_of_one(place: Store) -> GroupSaves:
    """Return the saves of a training with one rank, which has claimed a place."""
    saves = GroupSaves(None, manager_at(place), lambda: 0.0)
    saves.claim(None)
    return saves


def forever() -> float:
    return float("inf")


def test_a_rank_that_was_silent_does_not_replace_the_save_of_a_later_step_by_its_own(tmp_path: Path) -> None:
    """It was frozen before its thread had claimed the place again, and another rank has saved alone meanwhile."""
    saves = group_of_one(FolderStore(str(tmp_path)))
    survivor = manager_at(FolderStore(str(tmp_path)))
    survivor.claim(None, ranks=saves._first_token)
    survivor.save({"number": 9}, {**FACTS, "step": 9})
    with pytest.raises(SaveFailed, match="another rank of this training has saved a later step"):
        saves.save(lambda: {"number": 5}, {**FACTS, "step": 5}, forever, later=False)
    newest = next(manager_at(FolderStore(str(tmp_path))).log.saves())
    assert newest.data["step"] == 9
    assert saves.save(lambda: {"number": 10}, {**FACTS, "step": 10}, forever, later=False)


def test_a_save_is_made_at_once_where_the_system_has_no_thread_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = group_of_one(FolderStore(str(tmp_path)))
    assert saves.save(lambda: {"number": 1}, {**FACTS, "step": 1}, forever, later=True)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert saves.save(lambda: {"number": 2}, {**FACTS, "step": 2}, forever, later=True)
    assert [entry.data["step"] for entry in saves._manager.log.saves()] == [2, 1]


def test_a_state_that_names_a_file_only_later_is_not_saved_in_a_thread(tmp_path: Path) -> None:
    saves = group_of_one(FolderStore(str(tmp_path / "place")))
    assert saves.save(lambda: {"number": 1}, {**FACTS, "step": 1}, forever, later=True)
    (tmp_path / "note").write_text("as at step 2")
    state = {"note": File(tmp_path / "note")}
    assert saves.save(lambda: state, {**FACTS, "step": 2}, forever, later=True)


def test_a_copy_keeps_what_is_shared_and_its_types() -> None:
    array, tensor = np.arange(3), torch.arange(3)
    counts: Any = defaultdict(int, a=1)
    copy = copied({"arrays": [array, (array,)], "tensors": {"x": tensor, "y": tensor}, "counts": counts})
    array += 1
    tensor += 1
    counts["a"] = 2
    assert copy["arrays"][0] is copy["arrays"][1][0]
    assert copy["tensors"]["x"] is copy["tensors"]["y"]
    assert copy["arrays"][0].tolist() == copy["tensors"]["x"].tolist() == [0, 1, 2]
    assert type(copy["counts"]) is defaultdict
    assert copy["counts"] == {"a": 1}


def test_a_layout_that_could_not_be_loaded_is_not_committed(tmp_path: Path) -> None:
    manager = manager_at(FolderStore(str(tmp_path)))
    manager.claim(None)
    count = manager.begin_shards()
    with pytest.raises(UnstorableState, match="cannot be loaded: save with fewer ranks"):
        manager.commit_shards(count, {"tensors": {"x" * (64 << 20): {}}}, [], {**FACTS, "step": 1}, 0.0)
    assert manager.is_empty()
    assert not [name for name in manager.store.names() if name.startswith("state-")]


def saves_replicas_of_shards(_: Rank, place: str) -> list[float]:
    """Save a tensor that is sharded in one dimension of the mesh, as tensor parallelism beside data parallelism has it."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    state = {"weight": distribute_tensor(torch.arange(8.0), mesh["tensor"], [Shard(0)]), "bias": torch.ones(2)}
    with Checkpoint(place, group=dist.group.WORLD, every=0.0) as ckpt:
        ckpt.load()
        for _step in ckpt.steps(2):
            ckpt.step_done(state)
    other = {"weight": distribute_tensor(torch.zeros(8), mesh["tensor"], [Shard(0)]), "bias": torch.zeros(2)}
    with Checkpoint(place, group=dist.group.WORLD, again=True) as ckpt:
        ckpt.load().into(other)
    whole: list[float] = other["weight"].full_tensor().tolist()
    return whole


def test_shards_that_each_row_of_the_mesh_has_are_saved_and_loaded(tmp_path: Path) -> None:
    with start(tmp_path / "run", saves_replicas_of_shards, str(tmp_path / "place"), count=4) as ranks:
        assert ranks.results() == [list(range(8))] * 4


def waits_for_a_frozen_rank(rank: Rank, place: str, seconds: float) -> list[Any]:
    """Save with a rank 0 that freezes, ``seconds`` before the end of rank 1.

    Return whether that fails, and the number of entries.
    """
    saves = GroupSaves(dist.group.WORLD, manager_at(open_store(place)), lambda: 30.0)
    saves.claim(None)
    saves.save(lambda: {"number": 1}, {**FACTS, "step": 1}, forever, later=False)
    end = time.monotonic() + seconds

    def freeze() -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)

    if rank.number == 1:
        rank.say(waits=True)
    try:
        saves.save(freeze, {**FACTS, "step": 2}, lambda: max(0.0, end - time.monotonic()), later=False)
    except Exception as error:  # noqa: BLE001  # its type is what is tested
        entries = [name for name in saves._manager.store.names() if name.startswith("entry-")]
        return [isinstance(error, SaveFailed) or repr(error), len(entries)]
    return ["it has saved", 0]


def returned(ranks: Ranks) -> Any:
    """Return the result of rank 1; rank 0 is frozen."""
    assert ranks.code(1) == 0, ranks.log(1)
    return ranks.said(1)[-1]["returned"]


def test_a_rank_without_the_time_for_a_save_claims_no_place_in_which_another_one_may_be_saving(tmp_path: Path) -> None:
    with start(tmp_path / "run", waits_for_a_frozen_rank, str(tmp_path / "place"), 4.0, count=2) as ranks:
        is_failed, entries = returned(ranks)
    assert is_failed
    assert entries == 2  # the claim of rank 0 and the first save


def test_a_store_that_dies_while_a_rank_is_asked_whether_it_answers_fails_the_save_alone(tmp_path: Path) -> None:
    with start(tmp_path / "run", waits_for_a_frozen_rank, str(tmp_path / "place"), 12.0, count=2) as ranks:
        ranks.until(1, waits=True)
        time.sleep(4.0)
        os.kill(ranks.store, signal.SIGKILL)
        assert returned(ranks)[0] is True


def calls_often(rank: Rank) -> int:
    agreement = SaveCoordinator.of_group()
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    counts = []
    for _ in range(6):
        if rank.number == 0:
            assert all(agreement.answers(each, 0.5) for each in (1, 2))
            counts.append(store.num_keys())
            time.sleep(0.6)  # a call of the last half second would count
    dist.barrier()
    agreement.close()
    return counts[-1] - counts[1] if counts else 0


def test_the_answers_of_ranks_to_calls_do_not_stay_in_the_store(tmp_path: Path) -> None:
    """A rank that waits for a long save asks again and again."""
    with start(tmp_path, calls_often, count=3) as ranks:
        assert ranks.results()[0] <= 8  # one key for each call


def asks_for_two_hundred_saves(rank: Rank) -> list[int]:
    agreement = SaveCoordinator.of_group()
    store = dist.distributed_c10d._get_default_store()
    counts: list[int] = []
    step = 0
    while len(counts) < 200:
        step += 1
        if rank.number == step % rank.count:
            agreement.ask("a save is due")
        dist.barrier()
        if agreement.step_done(step):
            agreement.saved()
            counts.append(store.num_keys())
    dist.barrier()
    agreement.close()
    return counts


def test_the_keys_of_a_save_do_not_stay_in_the_store(tmp_path: Path) -> None:
    with start(tmp_path, asks_for_two_hundred_saves, count=2) as ranks:
        counts = ranks.results()[0]
    assert max(counts[100:]) <= 32 * (2 + 2) + 32  # for each kept event two keys, and one of each rank


def operations_of_looks(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Let all ranks but one ask that one together; return how many answers they have looked for, and how many there were."""
    found: dict[str, set[tuple[int, str]]] = {"read": set(), "create": set()}
    for name, seen in found.items():
        original = getattr(GroupKeys, name)

        def noted(keys: GroupKeys, key: str, *rest: Any, _of: Any = original, _seen: set[Any] = seen) -> Any:
            if "/step/" in key:
                _seen.add((id(keys), key))
            return _of(keys, key, *rest)

        monkeypatch.setattr(GroupKeys, name, noted)
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    agreements = [SaveCoordinator(GroupKeys(store, "looks", rank, count), rank, count) for rank in range(count)]
    try:
        with ThreadPoolExecutor(count) as pool:
            assert all(pool.map(lambda each: each.answers(0, 20.0), agreements[1:]))
    finally:
        for each in agreements:
            each.close()
        monkeypatch.undo()
    return len(found["read"]), len(found["create"])


def test_looks_of_all_ranks_at_one_cost_each_rank_as_much_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for count in (4, 24):
        reads, answers = operations_of_looks(count, monkeypatch)
        assert reads <= 3 * count
        assert answers <= 4
