"""``Checkpoint(group=...)``: a notice or SIGTERM at any rank saves one step of all, and the training continues unchanged."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.torch.interrupted_trainings import KINDS, committed, interrupted, put_notice, run, saved_steps, uninterrupted
from tests.torch.ranks import Rank, start
from tests.torch.training import STEPS, model_of, train, train_then_stay

from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.errors import OtherProgram, SaveFailed
from spotwright.checkpoint.save_log import SaveLog
from spotwright.checkpoint.store import FolderStore, open_store
from spotwright.checkpoint.torch import restore, state_of


@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_at_the_last_rank_saves_a_step_of_all_from_which_the_training_goes_on_exactly(
    kind: str, tmp_path: Path
) -> None:
    last = KINDS[kind] - 1
    with interrupted(tmp_path, kind, {"pause_at": 8, "pausing": [last]}) as ranks:
        ranks.until(last, paused=8)
        ranks.kill(last, signal.SIGTERM)
        ranks.allow("go")
        assert ranks.code(last) == 143, ranks.log(last)
        others = [ranks.code(rank) for rank in range(last)]
        assert all(others), [ranks.log(rank) for rank in range(last)]
        steps = [max(each["step"] for each in ranks.said(rank) if "step" in each) for rank in range(len(ranks.pids))]
    results = run(tmp_path, kind)
    assert [each["first"] for each in results] == [results[0]["first"]] * KINDS[kind]
    assert 9 <= results[0]["first"] <= 10
    assert max(steps) <= results[0]["first"]  # no more than a step is done again
    assert results[0]["weights"] == pytest.approx(uninterrupted(kind), rel=1e-12)


def test_saves_that_are_due_are_of_one_step_too(tmp_path: Path) -> None:
    with interrupted(tmp_path, "replicated", {"every": 0.0, "seconds": 0.005}) as ranks:
        ranks.results()
        first, other = saved_steps(ranks)
    assert first == other
    assert len(first) > 2
    assert first[-1] == STEPS - 1


def test_a_notice_at_one_rank_saves_and_the_training_goes_on(tmp_path: Path) -> None:
    settings = {"noticed": 1, "pause_at": 6, "pausing": [1], "seconds": 0.01}
    with interrupted(tmp_path, "replicated", settings) as ranks:
        ranks.until(1, paused=6)
        put_notice(ranks, seconds=120)
        ranks.allow("go")
        results = ranks.results()
        first, other = saved_steps(ranks)
    assert first == other
    assert any(6 <= step <= 8 for step in first)
    assert results[0]["weights"] == pytest.approx(uninterrupted("replicated"), rel=1e-12)


def test_a_program_that_swallows_the_exit_after_sigterm_saves_on_and_ends_when_its_work_is_done(tmp_path: Path) -> None:
    settings = {"pause_at": 8, "pausing": [1], "swallows": 1, "seconds": 0.05}
    with interrupted(tmp_path, "sharded", settings) as ranks:
        ranks.until(1, paused=8)
        ranks.kill(1, signal.SIGTERM)
        ranks.allow("go")
        results = ranks.results()
    assert committed(tmp_path)[0] == STEPS
    assert results[0]["weights"] == pytest.approx(uninterrupted("sharded"), rel=1e-12)


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_that_are_blocked_after_the_fault_of_another_one_end_themselves(count: int, tmp_path: Path) -> None:
    place, last = str(tmp_path / "place"), count - 1
    with start(tmp_path / "run", train_then_stay, "replicated", place, {"fails": [last, 5]}, count=count) as ranks:
        assert [ranks.code(rank) for rank in range(last)] == [1] * last
        seconds = time.time() - ranks.said(last)[-1]["failed"]
        sys.stdout.write(f"{count} ranks: the last survivor has ended {seconds:.1f} s after the fault\n")
        assert seconds < 20  # gloo's own time-out is half an hour
        ends = [f"rank {last} has ended, so rank {rank} ends too" in ranks.log(rank) for rank in range(last)]
        assert any(ends)  # the end of the first of them may be the fault that ends the others


def test_where_a_rank_is_dead_a_survivor_of_a_replicated_training_saves_its_step(tmp_path: Path) -> None:
    with interrupted(tmp_path, "replicated", {"pause_at": 8, "pausing": [0, 1]}) as ranks:
        ranks.until_all(paused=8)
        ranks.kill(0)
        ranks.code(0)
        ranks.kill(1, signal.SIGTERM)
        ranks.allow("go")
        assert ranks.code(1) == 143, ranks.log(1)
    results = run(tmp_path, "replicated")
    assert [each["first"] for each in results] == [9, 9]


def test_where_a_rank_is_dead_the_other_replica_of_a_hybrid_training_saves_its_step(tmp_path: Path) -> None:
    with interrupted(tmp_path, "hybrid", {"pause_at": 8, "pausing": [0, 1, 2, 3]}) as ranks:
        ranks.until_all(paused=8)
        ranks.kill(1)
        ranks.code(1)
        ranks.kill(2, signal.SIGTERM)
        time.sleep(1.0)  # the threads of the living ranks publish the step under way
        ranks.allow("go")
        assert ranks.code(2) == 143, ranks.log(2)
        assert ranks.code(0) != 0
        assert ranks.code(3) != 0
        assert [each["step"] for each in ranks.said(3) if each.get("saved")][-1] == 8
    results = run(tmp_path, "hybrid")
    assert [each["first"] for each in results] == [9] * 4


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("replicated", {"evaluates": True}),
        ("replicated", {"accumulates": 2}),
        ("sharded", {"accumulates": 2}),
        ("replicated", {"dtype": "bfloat16"}),
        ("sharded", {"dtype": "bfloat16"}),
    ],
)
def test_sigterm_in_an_evaluation_and_an_accumulation_saves_the_end_of_a_step(
    kind: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    with interrupted(tmp_path, kind, {"pause_at": 8, "pausing": [1], **settings}) as ranks:
        ranks.until(1, paused=8)
        ranks.kill(1, signal.SIGTERM)
        ranks.allow("go")
        assert ranks.code(1) == 143, ranks.log(1)
        assert ranks.code(0) != 0
    results = run(tmp_path, kind, **settings)
    assert results[0]["first"] == results[1]["first"]
    assert 9 <= results[0]["first"] <= 10
    assert results[0]["weights"] == pytest.approx(uninterrupted(kind, **settings), rel=1e-12)


def test_a_survivor_saves_no_more_once_the_successors_have_started(tmp_path: Path) -> None:
    settings = {"every": 0.0, "pause_at": 8, "pausing": [0, 1], "seconds": 0.005}
    with interrupted(tmp_path, "replicated", settings) as ranks:
        ranks.until_all(paused=8)
        ranks.kill(0)
        ranks.code(0)
        run(tmp_path, "replicated")
        ranks.kill(1, signal.SIGTERM)
        ranks.allow("go")
        assert ranks.code(1) not in (0, 143), ranks.log(1)
        assert "StaleWriter" in ranks.log(1)
    with Checkpoint(tmp_path / "place", writer=False) as reader:
        reader.load()
        assert reader.step == STEPS


def test_a_rank_that_was_frozen_while_another_one_saved_alone_saves_again_later(tmp_path: Path) -> None:
    settings = {"noticed": 1, "pause_at": 8, "pausing": [0, 1]}
    with interrupted(tmp_path, "replicated", settings) as ranks:
        ranks.until_all(paused=8)
        ranks.kill(0, signal.SIGSTOP)
        put_notice(ranks, seconds=120)
        ranks.allow("go")
        ranks.until(1, step=8, saved=True)
        ranks.kill(0, signal.SIGCONT)
        results = ranks.results()
        first, other = saved_steps(ranks)
    assert 8 in other
    assert 8 not in first
    assert first[-1] == STEPS - 1
    assert results[0]["weights"] == pytest.approx(uninterrupted("replicated"), rel=1e-12)


@pytest.mark.parametrize(("kind", "dies"), [("replicated", 0), ("sharded", 0), ("sharded", 1)])
def test_a_rank_that_dies_between_claim_and_commit_leaves_the_save_before(kind: str, dies: int, tmp_path: Path) -> None:
    settings = {"every": 0.0, "dies_in_save": dies, "dies_from": 6, "seconds": 0.005}
    with interrupted(tmp_path, kind, settings) as ranks:
        assert ranks.code(dies) == -signal.SIGKILL
        assert ranks.code(1 - dies) != 0
        begun = [step + 1 for step in saved_steps(ranks)[0]]
    newest = committed(tmp_path)[0]
    assert newest in begun[-2:], "only the save in which the rank died may be missing"
    results = run(tmp_path, kind)
    assert [each["first"] for each in results] == [newest] * 2
    if kind == "sharded":
        assert results[0]["weights"] == pytest.approx(uninterrupted(kind), rel=1e-12)


def test_ranks_whose_launcher_was_killed_save_no_more_once_their_successors_have_started(tmp_path: Path) -> None:
    settings = {"every": 0.0, "pause_at": 8, "pausing": [0, 1], "seconds": 0.005}
    with interrupted(tmp_path, "replicated", settings) as ranks:
        ranks.until_all(paused=8)
        successors = run(tmp_path, "replicated")
        ranks.allow("go")
        assert [ranks.code(rank) for rank in (0, 1)] == [1, 1]
        assert "StaleWriter" in ranks.log(0)
    assert successors[0]["weights"] == pytest.approx(uninterrupted("replicated"), rel=1e-12)
    with Checkpoint(tmp_path / "place", writer=False) as reader:
        reader.load()
        assert reader.step == STEPS


def saves_of_which_one_fails(_: Rank, place: str) -> list[bool]:
    """Save often and slowly; the second save fails. Returns each step's report about its save."""
    model = model_of("replicated")
    answers: list[bool] = []
    with Checkpoint(Path(place), group=torch.distributed.group.WORLD, every=0.0) as ckpt:
        restore(ckpt.load(), model=model)
        write, tries = FolderStore.write, itertools.count()

        def slow(store: FolderStore, name: str) -> Any:
            time.sleep(0.1)
            if next(tries) == 1:
                raise SaveFailed("no room")
            return write(store, name)

        setattr(FolderStore, "write", slow)  # noqa: B010  # in this process only
        for _step in ckpt.steps(20):
            torch.distributed.barrier()
            time.sleep(0.05)
            answers.append(ckpt.step_done(lambda: state_of(model=model)))
    return answers


def test_a_rank_that_another_one_saves_for_says_whether_that_save_is_committed(tmp_path: Path) -> None:
    with start(tmp_path / "run", saves_of_which_one_fails, str(tmp_path / "place"), count=2) as ranks:
        first, other = ranks.results()
        assert "no room" in ranks.log(0)
    assert first == other
    assert first.count(True) >= 2


def flipped(path: Path) -> None:
    """Change a byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)


def test_a_save_with_a_damaged_shard_is_passed_over(tmp_path: Path) -> None:
    with interrupted(tmp_path, "sharded", {"every": 0.0, "dies_in_save": 1, "dies_from": 12, "seconds": 0.01}) as ranks:
        assert ranks.code(1) == -signal.SIGKILL
        assert ranks.code(0) != 0
    newest, before = SaveLog(open_store(tmp_path / "place")).saves()
    flipped(tmp_path / "place" / newest.shards[1][0])

    with start(tmp_path / "again", train, "sharded", str(tmp_path / "place"), {}, count=2) as again:
        results = again.results()
        assert "skipped an incomplete checkpoint" in again.log(1)
    assert [each["first"] for each in results] == [before.data["step"]] * 2
    assert results[0]["weights"] == pytest.approx(uninterrupted("sharded"), rel=1e-12)


@pytest.mark.long
def test_a_compiled_model_goes_on_exactly(tmp_path: Path) -> None:
    with interrupted(tmp_path, "replicated", {"pause_at": 8, "pausing": [1], "compiled": True}) as ranks:
        ranks.until(1, paused=8)
        ranks.kill(1, signal.SIGTERM)
        ranks.allow("go")
        assert ranks.code(1) == 143, ranks.log(1)
    assert run(tmp_path, "replicated", compiled=True)[0]["weights"] == pytest.approx(
        uninterrupted("replicated"), rel=1e-12
    )


def test_shards_are_refused_by_a_checkpoint_of_one_process(tmp_path: Path) -> None:
    run(tmp_path, "sharded")
    with Checkpoint(tmp_path / "place", writer=False) as reader, pytest.raises(OtherProgram, match="group="):
        reader.load()
