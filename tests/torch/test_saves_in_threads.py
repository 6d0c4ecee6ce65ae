"""Saves of a group that are merely due are written in threads: the training continues, and committed saves are complete."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.torch.interrupted_trainings import KINDS, committed, interrupted, put_notice, run, saved_steps, uninterrupted
from tests.torch.ranks import Rank, start
from tests.torch.training import STEPS, model_of

from spotwright.checkpoint import Checkpoint, File
from spotwright.checkpoint.sharded_state import copied
from spotwright.checkpoint.store import FolderStore, open_store
from spotwright.checkpoint.torch import restore, state_of


def assert_exact(folder: Path, kind: str, first: int) -> None:
    """The next attempt resumes from a step, exactly as without an interruption."""
    results = run(folder, kind)
    assert [each["first"] for each in results] == [first] * KINDS[kind]
    assert results[0]["weights"] == pytest.approx(uninterrupted(kind), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_goes_on_while_its_save_is_written_and_is_exact_after_a_kill(kind: str, tmp_path: Path) -> None:
    all_ranks = list(range(KINDS[kind]))
    settings = {"every": 0.0, "slow": 0.5, "seconds": 0.02, "pause_at": 18, "pausing": all_ranks}
    with interrupted(tmp_path, kind, settings) as ranks:
        ranks.until_all(paused=18)
        steps = saved_steps(ranks)
        held = [each["held"] for each in ranks.said(0) if each.get("saved")]
        for rank in all_ranks:
            ranks.kill(rank)
            ranks.code(rank)
    assert steps == [steps[0]] * KINDS[kind]
    assert len(steps[0]) >= 2
    assert held[0] >= 0.5, "the first save shows that the place can be written"
    assert all(each < 0.5 for each in held[1:]), held
    first = committed(tmp_path)[0]
    assert first in [step + 1 for step in steps[0]]
    assert_exact(tmp_path, kind, first)


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_a_save_under_way_ends_before_that_of_sigterm(kind: str, tmp_path: Path) -> None:
    settings = {"every": 0.3, "slow": 1.0, "seconds": 0.05}
    with interrupted(tmp_path, kind, settings) as ranks:
        ranks.until(0 if kind == "replicated" else 1, writes=1)  # the second save, in a thread
        ranks.kill(1, signal.SIGTERM)
        assert ranks.code(1) == 143, ranks.log(1)
        assert ranks.code(0) != 0
        begun = [step + 1 for step in saved_steps(ranks)[0]]
    newest, before = committed(tmp_path)
    assert before in begun
    assert newest > before
    assert_exact(tmp_path, kind, newest)


def test_each_of_two_notices_during_saves_in_threads_is_a_save_of_all(tmp_path: Path) -> None:
    settings = {"every": 0.2, "slow": 0.3, "seconds": 0.35, "noticed": 1}
    with interrupted(tmp_path, "sharded", settings) as ranks:
        ranks.until(0, writes=1)
        for seconds in (120, 60):
            put_notice(ranks, seconds=seconds)
        results = ranks.results()
        first, other = saved_steps(ranks)
        held = [each["held"] for each in ranks.said(1) if each.get("saved")]
    assert first == other
    assert sum(each >= 0.3 for each in held) >= 4, held  # the first save, those of two notices, and the last one
    assert results[0]["weights"] == pytest.approx(uninterrupted("sharded"), rel=1e-12)


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_a_save_in_a_thread_that_fails_is_told_on_every_rank_and_tried_again(kind: str, tmp_path: Path) -> None:
    full = [0, 2] if kind == "replicated" else [1, 1]  # a rank, and the number of a file that it writes
    settings = {"every": 0.0, "slow": 0.05, "seconds": 0.05, "full": full}
    with interrupted(tmp_path, kind, settings) as ranks:
        results = ranks.results()
        for rank in range(2):
            assert "there is no room left; retrying when the next save is due" in ranks.log(rank)
        first, other = saved_steps(ranks)
    assert first == other
    assert len(first) > 3
    assert committed(tmp_path)[0] == STEPS
    kept = [name for name in open_store(tmp_path / "place").names() if name.startswith("state-")]
    assert len(kept) == (2 if kind == "replicated" else 6)
    assert results[0]["weights"] == pytest.approx(uninterrupted(kind), rel=1e-12)


HANGS: list[Any] = [("replicated", [0, 1]), ("sharded", [0, 2]), ("sharded", [1, 1])]


def warnings_of_late_saves(log: str) -> list[str]:
    return [line for line in log.splitlines() if "other saves cannot begin" in line]


@pytest.mark.parametrize(("kind", "hangs"), HANGS)
def test_a_save_that_never_ends_is_told_once_with_its_step_and_holds_neither_the_training_nor_its_end(
    kind: str, hangs: list[int], tmp_path: Path
) -> None:
    with interrupted(tmp_path, kind, {"every": 0.0, "slow": 0.05, "seconds": 0.15, "hangs": hangs}) as ranks:
        results = ranks.results()
        (warning,) = warnings_of_late_saves(ranks.log(0) + ranks.log(1))
        begun = [step + 1 for step in saved_steps(ranks)[0]]
        assert "this one cannot begin until it ends; retrying when the next save is due" in ranks.log(0)
    assert f"the save of step {begun[1]}, begun at 20" in warning
    assert ("rank 1 has not finished its part" in warning) == (hangs[0] == 1)
    assert ("this rank is still writing" in warning) == (hangs[0] == 0)
    assert begun == [begun[0], begun[1]], "the last save cannot begin, and says so"
    assert committed(tmp_path) == begun[:1]
    assert results[0]["weights"] == pytest.approx(uninterrupted(kind), rel=1e-12)


@pytest.mark.parametrize(("kind", "hangs"), HANGS)
def test_beside_a_save_that_never_ends_that_of_sigterm_says_why_it_is_not_made(
    kind: str, hangs: list[int], tmp_path: Path
) -> None:
    settings = {"every": 0.0, "slow": 0.05, "seconds": 0.15, "hangs": hangs, "pause_at": 14, "pausing": [0, 1]}
    with interrupted(tmp_path, kind, settings) as ranks:
        ranks.until_all(paused=14)
        end = time.monotonic() + 20
        while not warnings_of_late_saves(ranks.log(0)) and time.monotonic() < end:
            time.sleep(0.05)
        ranks.kill(1, signal.SIGTERM)
        ranks.allow("go")
        began = time.monotonic()
        assert ranks.code(1) == 143, ranks.log(1)
        assert time.monotonic() - began < 15
        assert ranks.code(0) != 0
        assert "has not ended after" in ranks.log(1)
        assert "this one cannot begin until it ends" in ranks.log(1)
    assert len(committed(tmp_path)) == 1


LEAVES = """
import sys, threading, time, torch
import torch.distributed as dist
from spotwright.checkpoint import Checkpoint, SaveFailed, shared_save
from spotwright.checkpoint.store import FolderStore

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
ckpt = Checkpoint(sys.argv[1], group=dist.group.WORLD, every=0.0)
ckpt.load()
write, how, shared_save._LATE_AFTER = FolderStore.write, sys.argv[2], 1.0
def changed(store, name):
    if ckpt.step == 2:
        time.sleep(0.0 if how == "fails at once" else 0.5)
        if how == "hangs":
            threading.Event().wait()
        if how.startswith("fails"):
            raise SaveFailed("there is no room left")
    return write(store, name)
FolderStore.write = changed
for step in ckpt.steps(9):
    ckpt.step_done({"weights": torch.ones(3)})
    if step == 1:
        time.sleep(0.3)
        break
"""


@pytest.mark.parametrize(
    ("how", "words", "steps"),
    [
        ("fails", "the save of step 2 failed: there is no room left", [1]),
        ("fails at once", "the save of step 2 failed: there is no room left", [1]),
        ("hangs", "the save of step 2, begun at ", [1]),
        ("ends", "", [2, 1]),
    ],
)
def test_a_program_that_leaves_without_closing_logs_what_became_of_its_last_save_and_ends(
    how: str, words: str, steps: list[int], tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(LEAVES)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "place"), how]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert words in ended.stderr
    assert ("the program ends without this save" in ended.stderr) == (how == "hangs")
    assert committed(tmp_path) == steps


def leaves_during_a_save(_: Rank, place: str) -> int:
    """Leave the block while a save is written in a thread; return the number of steps of that save."""
    write = FolderStore.write

    def slow(store: FolderStore, name: str) -> Any:
        time.sleep(0.5)
        return write(store, name)

    setattr(FolderStore, "write", slow)  # noqa: B010  # in this process only
    model = model_of("replicated")
    with Checkpoint(place, group=torch.distributed.group.WORLD, every=0.0) as ckpt:
        restore(ckpt.load(), model=model)
        for step in ckpt.steps(100):
            torch.distributed.barrier()
            if ckpt.step_done(lambda: state_of(model=model)) and step > 0:
                break
    return ckpt.step


def test_leaving_waits_for_the_save_under_way(tmp_path: Path) -> None:
    with start(tmp_path / "run", leaves_during_a_save, str(tmp_path / "place"), count=2) as ranks:
        steps = ranks.results()
    assert steps == [committed(tmp_path)[0]] * 2


def test_where_a_rank_dies_while_a_save_is_written_the_one_before_counts(tmp_path: Path) -> None:
    settings = {"every": 0.0, "slow": 0.5, "seconds": 0.02}
    with interrupted(tmp_path, "sharded", settings) as ranks:
        ranks.until(1, writes=1)
        ranks.kill(1)
        began = time.monotonic()
        assert ranks.code(0) != 0
        assert time.monotonic() - began < 20
        begun = [step + 1 for step in saved_steps(ranks)[0]]
    first = committed(tmp_path)[0]
    assert first == begun[0]
    assert_exact(tmp_path, "sharded", first)


def saves_a_file(rank: Rank, place: str) -> bool:
    note = rank.folder / f"note-{rank.number}"
    with Checkpoint(place, group=torch.distributed.group.WORLD, every=0.0) as ckpt:
        ckpt.load()
        for step in ckpt.steps(6):
            note.write_text(str(step))
            torch.distributed.barrier()
            ckpt.step_done({"note": File(note)})
            assert ckpt._ranks is not None
            assert not ckpt._ranks.is_writing
    return True


def test_a_save_of_a_file_is_not_made_in_a_thread(tmp_path: Path) -> None:
    """Its content is read while it is saved, and the training may change it afterwards."""
    with start(tmp_path / "run", saves_a_file, str(tmp_path / "place"), count=2) as ranks:
        assert all(ranks.results())


def test_a_copy_stays_as_it_is_and_the_next_one_takes_its_memory_where_it_fits() -> None:
    tensor, array, groups = torch.ones(3), np.ones(4), [{"lr": 0.5, "betas": (0.9, 0.99)}]
    state = {"tensor": tensor, "arrays": [array], "groups": groups, "half": torch.ones(2).bfloat16()}
    first = copied(state)
    tensor.zero_()
    array[:] = 0
    groups[0]["lr"] = 0.1
    assert first["tensor"].tolist() == [1, 1, 1]
    assert first["arrays"][0].tolist() == [1] * 4
    assert first["groups"] == [{"lr": 0.5, "betas": (0.9, 0.99)}]

    second = copied({**state, "half": torch.ones(3)}, first)
    assert second["tensor"] is first["tensor"]
    assert second["arrays"][0] is first["arrays"][0]
    assert second["tensor"].tolist() == [0, 0, 0]
    assert second["arrays"][0].tolist() == [0] * 4
    assert second["groups"] == groups
    assert second["half"].tolist() == [1, 1, 1]


def test_the_memory_that_two_names_shared_is_used_again_for_one_of_them() -> None:
    shared = torch.zeros(2)
    old = copied({"x": shared, "y": shared})
    assert old["x"] is old["y"]

    new = copied({"x": torch.tensor([1.0, 1.0]), "y": torch.tensor([2.0, 2.0])}, old)
    assert (new["x"].tolist(), new["y"].tolist()) == ([1, 1], [2, 2])
