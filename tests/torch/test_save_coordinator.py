"""All ranks save one agreed step, whichever of them asks: real processes with a gloo group."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.checkpoint.s3_server import CREDENTIALS, s3_server
from tests.torch.ranks import Rank, Ranks, start

from spotwright.checkpoint.errors import CheckpointError
from spotwright.checkpoint.save_coordinator import SaveCoordinator
from spotwright.checkpoint.store import open_store


def steps_of(
    rank: Rank, agreement: SaveCoordinator, count: int, *, seconds: float = 0.001, together: int = 1, first: int = 1
) -> list[int]:
    """Do steps with a collective in each (or in each ``together``-th); return those at which this rank was to save."""
    chance = random.Random(rank.number)  # noqa: S311
    saved = []
    for step in range(first, first + count):
        time.sleep(seconds * chance.random())
        if step % together == 0:
            dist.all_reduce(torch.ones(1))
        if agreement.step_done(step):
            saved.append(step)
            rank.say(saved=step, why=agreement.why, savers=list(agreement.savers))
            agreement.saved()
        rank.say(step=step)
    return saved


def asks_once(rank: Rank, asker: int, count: int, seconds: float, together: int) -> list[int]:
    agreement = SaveCoordinator.of_group()
    if rank.number == asker:
        wait = random.Random(count).random() * seconds * count / 2  # noqa: S311
        threading.Timer(wait, agreement.ask, ["its node is going away"]).start()
    saved = steps_of(rank, agreement, count, seconds=seconds, together=together)
    agreement.close()
    return saved


@pytest.mark.parametrize(("count", "asker", "together"), [(2, 1, 1), (4, 0, 1), (4, 3, 8)])
def test_a_notice_at_one_rank_lets_all_save_one_step(tmp_path: Path, count: int, asker: int, together: int) -> None:
    with start(tmp_path, asks_once, asker, 240, 0.004, together, count=count) as ranks:
        first, *others = ranks.results()
    assert len(first) == 1
    assert others == [first] * (count - 1)
    assert ranks.said(0)[first[0] - 1]["why"] == "its node is going away"


def asks_often(rank: Rank, rounds: int) -> list[int]:
    """Each save is requested by a rank that all draw alike, at its own step, and again if too few ranks have answered."""
    agreement = SaveCoordinator.of_group()
    chance = random.Random(7)  # noqa: S311
    saved: list[int] = []
    step = 0
    for number in range(rounds):
        asker, at = chance.randrange(rank.count), step + 1 + chance.randrange(3)
        while len(saved) == number:
            step += 1
            if rank.number == asker and step >= at and (step - at) % 500 == 0:
                agreement.ask(f"notice {number}")
            dist.all_reduce(torch.ones(1))
            if agreement.step_done(step):
                saved.append(step)
                agreement.saved()
    dist.barrier()
    agreement.close()
    return saved


def same_steps(ranks: Ranks, rounds: int) -> None:
    results = ranks.results()
    assert all(each == results[0] for each in results), results
    assert len(results[0]) == rounds


def test_each_of_twelve_notices_saves_one_step_of_all(tmp_path: Path) -> None:
    with start(tmp_path, asks_often, 12, count=4) as ranks:
        same_steps(ranks, 12)


@pytest.mark.long
def test_each_of_two_hundred_notices_saves_one_step_of_all(tmp_path: Path) -> None:
    with start(tmp_path, asks_often, 200, count=4) as ranks:
        same_steps(ranks, 200)


def all_ask_at_once(rank: Rank) -> list[int]:
    agreement = SaveCoordinator.of_group()
    dist.barrier()
    agreement.ask(f"rank {rank.number}")
    saved = steps_of(rank, agreement, 60)
    agreement.close()
    return saved


def test_notices_of_all_ranks_at_once_are_one_save(tmp_path: Path) -> None:
    with start(tmp_path, all_ask_at_once, count=4) as ranks:
        first, *others = ranks.results()
    assert others == [first] * 3
    assert len(first) in {1, 2}  # a rank may have asked after the save


def asks_before_the_first_step(rank: Rank) -> list[int]:
    agreement = SaveCoordinator.of_group()
    if rank.number == 1:
        agreement.ask("early")
    dist.barrier()
    time.sleep(0.3)
    saved = []
    for step in range(8, 12):
        dist.all_reduce(torch.ones(1))
        if agreement.step_done(step):
            saved.append(step)
            agreement.saved()
    agreement.close()
    return saved


def test_a_notice_during_the_first_step_saves_its_end(tmp_path: Path) -> None:
    with start(tmp_path, asks_before_the_first_step, count=3) as ranks:
        assert ranks.results() == [[8]] * 3


def asks_during_a_save(rank: Rank) -> list[int]:
    agreement = SaveCoordinator.of_group()
    saved = []
    for step in range(1, 30):
        dist.all_reduce(torch.ones(1))
        if step == 3 and rank.number == 0:
            agreement.ask("first")
        time.sleep(0.01)
        if agreement.step_done(step):
            saved.append(step)
            if len(saved) == 1 and rank.number == 1:
                agreement.ask("second")
            dist.barrier()
            agreement.saved()
    agreement.close()
    return saved


def test_a_notice_during_a_save_is_granted_after_it(tmp_path: Path) -> None:
    with start(tmp_path, asks_during_a_save, count=2) as ranks:
        first, other = ranks.results()
    assert first == other
    assert len(first) == 2
    assert first[0] < first[1]


def goes_on_beside_a_frozen_rank(rank: Rank, frozen: int, left: float | None) -> dict[str, Any]:
    agreement = SaveCoordinator.of_group()
    agreement.needed = lambda: 1.9  # so none of those two seconds is left for a second try
    dist.barrier()
    for step in range(1, 4):
        agreement.step_done(step)
    rank.say(ready=True)
    rank.waits_for("go")
    began = time.monotonic()
    if rank.number == 0:
        agreement.ask("its node is going away", *([left] if left else []))
    if rank.number != frozen:
        time.sleep(0.1)
        agreement.step_done(4)
        rank.say(seconds=time.monotonic() - began, reason=agreement.reason)
    rank.waits_for("thawed")
    time.sleep(0.2)
    saved = agreement.step_done(5)
    agreement.close()
    return {"saved": saved, "reason": agreement.reason}


@pytest.mark.parametrize(("left", "limit"), [(None, 2.0), (2.0, 0.5)])
def test_beside_a_frozen_rank_all_decide_to_save_nothing(tmp_path: Path, left: float | None, limit: float) -> None:
    with start(tmp_path, goes_on_beside_a_frozen_rank, 2, left, count=3) as ranks:
        ranks.until_all(ready=True)
        ranks.kill(2, signal.SIGSTOP)
        ranks.allow("go")
        said = [ranks.until(rank, reason="ranks [2] do not answer") for rank in (0, 1)]
        ranks.kill(2, signal.SIGCONT)
        ranks.allow("thawed")
        assert ranks.results() == [{"saved": False, "reason": "ranks [2] do not answer"}] * 3
    assert all(limit - 0.2 < each["seconds"] < limit + 3 for each in said)


def goes_on_until_it_saves(rank: Rank) -> int:
    agreement = SaveCoordinator.of_group()
    dist.barrier()
    rank.say(ready=True)
    rank.waits_for("go")
    if rank.number == 0:
        agreement.ask("its node is going away", 60.0)
    for step in range(1, 1000):
        if rank.number == 2 and step == 1:
            rank.waits_for("thawed")
        if agreement.step_done(step):
            break
        rank.say(reason=agreement.reason)
        dist.barrier()
        time.sleep(0.05)
    agreement.saved()
    dist.barrier()
    agreement.close()
    return step


def test_after_an_ask_in_vain_a_rank_asks_again_as_its_end_is_still_near(tmp_path: Path) -> None:
    with start(tmp_path, goes_on_until_it_saves, count=3) as ranks:
        ranks.until_all(ready=True)
        ranks.kill(2, signal.SIGSTOP)
        ranks.allow("go")
        ranks.until(0, reason="ranks [2] do not answer")
        ranks.kill(2, signal.SIGCONT)
        ranks.allow("thawed")
        first, *others = ranks.results()
    assert others == [first] * 2
    assert first < 999


def asks_a_silent_store(rank: Rank) -> list[Any]:
    agreement = SaveCoordinator.of_group()
    dist.barrier()
    rank.say(ready=True)
    rank.waits_for("go")
    if rank.number == 0:
        agreement.ask("its node is going away", 120.0)
    began = time.monotonic()
    saved = [agreement.step_done(step) for step in range(1, 6)]
    held = time.monotonic() - began
    agreement.end(143)
    agreement.close()
    return [any(saved), held, time.monotonic() - began]


def test_a_store_that_is_silent_holds_one_step_and_lets_the_process_end(tmp_path: Path) -> None:
    with start(tmp_path, asks_a_silent_store, count=2) as ranks:
        ranks.until_all(ready=True)
        os.kill(ranks.store, signal.SIGSTOP)
        ranks.allow("go")
        results = ranks.results()
    assert [saved for saved, _, _ in results] == [False, False]
    assert max(held for _, held, _ in results) < 4
    assert max(ended for _, _, ended in results) < 20


def asks_beside_a_rank_that_has_finished(rank: Rank) -> list[Any]:
    agreement = SaveCoordinator.of_group()
    agreement.step_done(1)
    dist.barrier()
    if rank.number == 0:
        agreement.close()
    dist.barrier()
    began, saved = time.monotonic(), []
    if rank.number == 1:
        agreement.ask("its node is going away", 60.0)
        saved = [agreement.step_done(step) for step in range(2, 6)]
    seconds = time.monotonic() - began
    dist.barrier()
    agreement.close()
    return [saved, seconds < 6]


def test_beside_a_rank_that_has_finished_an_ask_holds_for_two_seconds(tmp_path: Path) -> None:
    with start(tmp_path, asks_beside_a_rank_that_has_finished, count=2) as ranks:
        assert ranks.results() == [[[], True], [[False] * 4, True]]


def asks_a_thousand_steps_behind(rank: Rank) -> list[int]:
    agreement = SaveCoordinator.of_group()
    behind = rank.number == 1
    if not behind:
        for step in range(1, 1001):
            agreement.step_done(step)
    dist.barrier()
    if behind:
        agreement.ask("its node is going away", 60.0)
    time.sleep(0.3)
    saved = []
    for step in range(1 if behind else 1001, 1101):
        if agreement.step_done(step):
            saved.append(step)
            agreement.saved()
    dist.barrier()
    agreement.close()
    return saved


def test_a_rank_that_is_a_thousand_steps_behind_saves_the_step_of_the_first_one(tmp_path: Path) -> None:
    with start(tmp_path, asks_a_thousand_steps_behind, count=2) as ranks:
        assert ranks.results() == [[1001], [1001]]


def survives(rank: Rank, replicas: list[list[int]], dead: list[int]) -> list[Any]:
    agreement = SaveCoordinator.of_group()
    agreement.replicas = replicas
    for step in range(1, 4):
        agreement.step_done(step)
    dist.barrier()
    rank.say(ready=True)
    if rank.number in dead:
        rank.waits_for("never")
    rank.waits_for("go")
    alive = [each for each in range(4) if agreement.answers(each)]
    rank.say(alive=alive)
    rank.waits_for("ask")
    dist.destroy_process_group()
    agreement.ask(f"rank {rank.number} lost its peers", 4.0)
    time.sleep(0.05)
    savers: list[int] = []
    for step in range(4, 8):
        if agreement.step_done(step):
            savers = list(agreement.savers)
            agreement.saved()
    agreement.close()
    return [bool(savers), savers]


def after_deaths(tmp_path: Path, replicas: list[list[int]], dead: list[int]) -> list[Any]:
    with start(tmp_path, survives, replicas, dead, count=4) as ranks:
        ranks.until_all(ready=True)
        for rank in dead:
            ranks.kill(rank)
            assert ranks.code(rank) == -signal.SIGKILL
        ranks.allow("go")
        living = [rank for rank in range(4) if rank not in dead]
        for rank in living:
            ranks.until(rank, alive=living)
        ranks.allow("ask")
        assert [ranks.code(rank) for rank in living] == [0] * len(living), [ranks.log(rank) for rank in living]
        return [ranks.said(rank)[-1]["returned"] for rank in living]


def test_where_a_rank_is_dead_one_survivor_of_a_replicated_training_saves(tmp_path: Path) -> None:
    results = after_deaths(tmp_path, [[0], [1], [2], [3]], [0])
    saved = [savers for saves, savers in results if saves]
    assert len(saved) == 1
    assert len(saved[0]) == 1


def test_where_a_rank_is_dead_one_whole_replica_of_a_hybrid_training_saves(tmp_path: Path) -> None:
    results = after_deaths(tmp_path, [[0, 1], [2, 3]], [1])
    assert [savers for saves, savers in results if saves] == [[2, 3], [2, 3]]


def test_where_a_rank_of_each_replica_is_dead_nobody_saves(tmp_path: Path) -> None:
    assert [saves for saves, _ in after_deaths(tmp_path, [[0, 1], [2, 3]], [1, 2])] == [False, False]


def a_slow_save(rank: Rank) -> list[Any]:
    agreement = SaveCoordinator.of_group()
    agreement.needed = lambda: 10.0 + rank.number
    dist.barrier()
    if rank.number == 0:
        agreement.ask("too late", 10.5)
    end = time.monotonic() + 30
    while not agreement.reason and time.monotonic() < end:
        time.sleep(0.01)
    reason, late = agreement.reason, agreement.step_done(1)
    dist.barrier()
    if rank.number == 1:
        agreement.ask("in time", 120.0)
    saved = steps_of(rank, agreement, 400, seconds=0.005, first=2)
    agreement.close()
    return [reason, late, saved]


def test_nobody_saves_if_the_slowest_recent_save_of_any_rank_would_end_too_late(tmp_path: Path) -> None:
    with start(tmp_path, a_slow_save, count=2) as ranks:
        (reason, late, saved), other = ranks.results()
    assert other == [reason, late, saved]
    assert not late
    assert reason.startswith("a save takes 11.0 s, and ")
    assert len(saved) == 1


def asks_during_a_long_save(rank: Rank) -> list[Any]:
    agreement = SaveCoordinator.of_group()
    agreement.needed = lambda: 1.0
    if rank.number == 0:
        agreement.ask("a save is due")
    time.sleep(0.2)
    assert agreement.step_done(1)
    agreement.ask("its node is going away", 2.0)
    time.sleep(1.5)
    dist.barrier()
    agreement.saved()
    time.sleep(0.2)
    dist.barrier()
    result = [agreement.step_done(2), agreement.reason.partition(",")[0]]
    agreement.close()
    return result


def test_the_seconds_that_a_save_under_way_takes_are_not_left_after_it(tmp_path: Path) -> None:
    with start(tmp_path, asks_during_a_long_save, count=2) as ranks:
        assert ranks.results() == [[False, "a save takes 1.0 s"]] * 2


def makes_the_group_again(rank: Rank, port: int) -> list[list[int]]:
    results = []
    for _ in range(2):
        agreement = SaveCoordinator.of_group()
        if rank.number == 1:
            agreement.ask("again")
        time.sleep(0.05)
        results.append(steps_of(rank, agreement, 20))
        agreement.close()
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("gloo", store=dist.PrefixStore("2", store), rank=rank.number, world_size=rank.count)
    return results


def test_a_process_group_that_was_made_again_agrees_again(tmp_path: Path) -> None:
    with start(tmp_path, makes_the_group_again, 0, count=2) as ranks:
        first, other = ranks.results()
    assert first == other
    assert [len(each) for each in first] == [1, 1]


class StoreOfOneClient(dist.Store):
    """A store of a user's own, which has no second client."""

    def __init__(self, store: dist.Store) -> None:
        super().__init__()
        self.store = store

    def set(self, key: str, value: str) -> None:
        self.store.set(key, value)

    def get(self, key: str) -> bytes:
        return bytes(self.store.get(key))

    def add(self, key: str, value: int) -> int:
        return int(self.store.add(key, value))

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        self.store.wait(keys, *([timeout] if timeout else []))

    def check(self, keys: list[str]) -> bool:
        return bool(self.store.check(keys))


def agrees_through_the_place(rank: Rank, place: str, options: dict[str, str]) -> list[Any]:
    store = StoreOfOneClient(dist.PrefixStore("2", dist.distributed_c10d._get_default_store()))
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=store, rank=rank.number, world_size=rank.count)
    with pytest.raises(CheckpointError, match="this process group has no store"):
        SaveCoordinator.of_group()
    agreement = SaveCoordinator.of_group(store=open_store(place, options))
    if rank.number == 1:
        agreement.ask("by files")
    saved = steps_of(rank, agreement, 30, seconds=0.1)
    dist.barrier()
    agreement.close()
    return saved


def test_without_a_store_of_the_group_the_place_of_the_checkpoints_holds_the_keys(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "key-0011-0-event").write_text("of a killed attempt")
    with start(tmp_path, agrees_through_the_place, str(tmp_path / "place"), {}, count=3) as ranks:
        first, *others = ranks.results()
    assert others == [first] * 2
    assert len(first) == 1
    assert list((tmp_path / "place").iterdir()) == []


def has_no_store_of_the_group(rank: Rank, place: str, lonely: int) -> list[Any]:
    """Let the store of the group have no second client for one rank alone."""
    store = dist.PrefixStore("2", dist.distributed_c10d._get_default_store())
    mine = StoreOfOneClient(store) if rank.number == lonely else store
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=mine, rank=rank.number, world_size=rank.count)
    with pytest.raises(CheckpointError, match="this process group has no store"):
        SaveCoordinator.of_group()
    agreement = SaveCoordinator.of_group(store=open_store(place))
    if rank.number == 1:
        agreement.ask("by files")
    saved = []
    for step in range(1, 30):
        time.sleep(0.1)
        dist.barrier()
        if agreement.step_done(step):
            saved.append(step)
            agreement.saved()
    agreement.close()
    return saved


@pytest.mark.parametrize("lonely", [0, 2])
def test_where_one_rank_alone_cannot_use_the_store_of_the_group_all_use_the_place(lonely: int, tmp_path: Path) -> None:
    with start(tmp_path / "run", has_no_store_of_the_group, str(tmp_path / "place"), lonely, count=3) as ranks:
        first, *others = ranks.results()
        said = [f"rank {each} has no process group store" in ranks.log(each) for each in range(3)]
    assert others == [first] * 2
    assert len(first) == 1
    assert said == [each == lonely for each in range(3)]


def test_without_a_store_of_the_group_an_object_store_holds_the_keys(tmp_path: Path) -> None:
    with s3_server("keys") as endpoint:
        options = {"endpoint_url": endpoint}
        arguments = ("s3://keys/run", options)
        with start(tmp_path, agrees_through_the_place, *arguments, count=2, environment=CREDENTIALS) as ranks:
            first, other = ranks.results()
        assert first == other
        assert len(first) == 1
        assert open_store("s3://keys/run", options).names() == []


def test_a_single_process_is_granted_each_ask_at_its_next_step() -> None:
    agreement = SaveCoordinator.of_group()
    assert not agreement.step_done(1)
    agreement.ask("a notice")
    assert agreement.step_done(2)
    agreement.ask("another")
    assert agreement.why == "a notice"
    agreement.saved()
    assert agreement.step_done(3)
    assert agreement.why == "another"
    agreement.saved()
    assert not agreement.step_done(4)
    assert agreement.answers(0)
    agreement.close()


def the_cost_of_a_step(_: Rank) -> float:
    agreement = SaveCoordinator.of_group()
    dist.barrier()
    times = []
    for step in range(2000):
        began = time.perf_counter()
        agreement.step_done(step)
        times.append(time.perf_counter() - began)
    agreement.close()
    return sorted(times)[len(times) // 2]


def test_a_step_without_a_notice_costs_at_most_fifty_microseconds(tmp_path: Path) -> None:
    with start(tmp_path, the_cost_of_a_step, count=2) as ranks:
        assert max(ranks.results()) <= 50e-6
