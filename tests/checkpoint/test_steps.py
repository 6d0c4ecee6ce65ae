"""The loop of a training continues after the saved step, and refuses every order of calls that would lose work."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

import pytest

from spotwright.checkpoint import Checkpoint, NotLoaded, PlaceError, SaveFailed, UnstorableState
from spotwright.notices import Notice


def train(place: Path, total: int, stop_after: int | None = None, **options: Any) -> list[int]:
    """Go through the steps; give their numbers. Ends before the step ``stop_after`` as a kill would."""
    done = []
    with Checkpoint(place, **options) as ckpt:
        state = ckpt.load(default={"sum": 0})
        for step in ckpt.steps(total):
            if step == stop_after:
                break
            state["sum"] += step
            done.append(step)
            ckpt.step_done(state)
    return done


@pytest.mark.usefixtures("attempts_in_one_process")
def test_it_goes_on_after_the_last_saved_step(tmp_path: Path) -> None:
    assert train(tmp_path, 10, stop_after=4, every=0) == [0, 1, 2, 3]
    assert train(tmp_path, 10, every=0) == [4, 5, 6, 7, 8, 9]
    assert Checkpoint(tmp_path, writer=False).load() == {"sum": 45}


@pytest.mark.usefixtures("attempts_in_one_process")
def test_steps_since_the_last_save_are_done_again(tmp_path: Path) -> None:
    train(tmp_path, 10, stop_after=4, every=3600)  # the first step is saved to learn what it costs

    assert train(tmp_path, 10) == list(range(1, 10))


@pytest.mark.usefixtures("attempts_in_one_process")
def test_the_last_step_is_always_saved(tmp_path: Path) -> None:
    train(tmp_path, 10, every=3600)

    assert train(tmp_path, 10) == []
    assert train(tmp_path, 12) == [10, 11]


def test_steps_refuse_to_begin_when_nothing_was_loaded(tmp_path: Path) -> None:
    with pytest.raises(NotLoaded, match=r"load\(\) first"):
        Checkpoint(tmp_path).steps(3)


def test_a_step_that_was_not_ended_is_refused_at_the_next_one(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        steps = ckpt.steps(3)
        next(steps)

        with pytest.raises(NotLoaded, match="step 0 was not ended"):
            next(steps)


def test_the_state_is_made_only_for_a_save(tmp_path: Path) -> None:
    made = []

    def state() -> int:
        made.append(1)
        return 1

    with Checkpoint(tmp_path, every=3600) as ckpt:
        ckpt.load()
        saved = [ckpt.step_done(state) for _ in ckpt.steps(5)]

    assert saved == [True, False, False, False, True]
    assert len(made) == 2


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_save_in_the_middle_of_a_step_lets_the_step_be_done_again_from_there(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        for step in ckpt.steps(5):
            if step == 2:
                ckpt.save("in the middle of step 2")
                break
            ckpt.step_done(step)

    with Checkpoint(tmp_path) as ckpt:
        assert ckpt.load() == "in the middle of step 2"
        assert ckpt.step == 2


@pytest.mark.usefixtures("attempts_in_one_process")
def test_progress_is_reported_from_the_loaded_step_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = tmp_path / "progress"
    monkeypatch.setenv("SPOTWRIGHT_PROGRESS_FILE", str(progress))
    train(tmp_path / "place", 10, stop_after=4, every=0)

    with Checkpoint(tmp_path / "place") as ckpt:
        ckpt.load()
        steps = ckpt.steps(10)
        next(steps)
        assert float(progress.read_text()) == 0.4
        ckpt.step_done(0)
        for _ in steps:
            ckpt.step_done(0)
    assert float(progress.read_text()) == 1


def test_progress_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTWRIGHT_PROGRESS_FILE", str(tmp_path / "nowhere" / "progress"))

    assert train(tmp_path / "place", 2) == [0, 1]


class Full:
    """Makes the saves of a checkpoint fail while it is on."""

    def __init__(self, ckpt: Checkpoint, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.on = False
        save = ckpt._manager.save

        def fail(*args: Any) -> Any:
            if self.on:
                raise error
            return save(*args)

        monkeypatch.setattr(ckpt._manager, "save", fail)


@pytest.mark.parametrize("error", [SaveFailed("no space left"), PlaceError("no permission")])
def test_a_step_whose_save_fails_is_logged_and_saved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    with Checkpoint(tmp_path, every=0) as ckpt, caplog.at_level(logging.WARNING, "spotwright.checkpoint"):
        ckpt.load()
        disk = Full(ckpt, monkeypatch, error)
        saved = []
        for step in ckpt.steps(4):
            disk.on = step in {1, 2}
            saved.append(ckpt.step_done(step))

    assert saved == [True, False, False, True]
    assert str(error) in caplog.text
    assert Checkpoint(tmp_path, writer=False).load() == 3


def test_a_save_for_a_notice_that_fails_is_tried_again_at_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpoint(tmp_path, every=3600) as ckpt:
        ckpt.load()
        disk = Full(ckpt, monkeypatch, SaveFailed("no space left"))
        saved = []
        for step in ckpt.steps(9):
            if step == 2:
                ckpt._termination._on_notice(
                    Notice(time.time() + 600, "interruption", "test", certain=True, reason="taken")
                )
            disk.on = step == 2
            saved.append(ckpt.step_done(step))

    assert saved == [True, False, False, True, False, False, False, False, True]


def test_the_time_to_make_the_state_is_part_of_the_cost_of_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed[0])

    def state() -> int:
        passed[0] += 100
        return 1

    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        next(ckpt.steps(9))
        ckpt.step_done(state)
        assert (ckpt._policy.cost or 0) >= 100


def test_a_step_is_saved_if_sigterm_comes_at_its_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checkpoint(tmp_path, every=3600) as ckpt:
        ckpt.load()
        steps = ckpt.steps(9)
        next(steps)
        ckpt.step_done(0)
        next(steps)

        def pays(_: float) -> bool:
            ckpt._termination.terminated = True  # comes when it has just been decided that no save is due
            return False

        monkeypatch.setattr(ckpt, "_pays", pays)
        with pytest.raises(SystemExit) as end:
            ckpt.step_done("saved all the same")
        assert end.value.code == 143
        ckpt._finished = True  # the block's own end is not what this is about
    assert Checkpoint(tmp_path, writer=False).load() == "saved all the same"


def test_a_first_save_that_fails_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        Full(ckpt, monkeypatch, SaveFailed("no space left")).on = True

        for step in ckpt.steps(4):
            with pytest.raises(SaveFailed):
                ckpt.step_done(step)
            break


def test_a_state_that_cannot_be_stored_is_raised_at_the_first_step(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        next(ckpt.steps(1000))

        with pytest.raises(UnstorableState, match=r"state\['model'\]"):
            ckpt.step_done({"model": object()})


@pytest.mark.parametrize("rank", ["1", "7"])
def test_ranks_other_than_0_load_and_never_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    train(tmp_path, 10, stop_after=4, every=0)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setenv("RANK", rank)

    assert train(tmp_path, 10, every=0) == [4, 5, 6, 7, 8, 9]
    assert sorted(tmp_path.iterdir()) == before


def test_a_reader_replaces_no_writer(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as writer, Checkpoint(tmp_path, writer=False) as reader:
        writer.save(1)
        reader.load()
        writer.save(2)


def test_the_environment_gives_the_time_between_interruptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTWRIGHT_INTERRUPT_EVERY", "600")
    monkeypatch.setenv("SPOTWRIGHT_NOTICE", "30")
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        for _ in ckpt.steps(2):
            ckpt.step_done(0)

    assert (
        "nodes are reclaimed every 10 min (as the pool's configuration says), with a notice of 30 s" in ckpt.explain()
    )


@pytest.mark.parametrize("given", ["", "often", "0", "-5", "nan"])
def test_a_malformed_variable_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("SPOTWRIGHT_INTERRUPT_EVERY", given)

    assert Checkpoint(tmp_path)._policy.hazard.interrupt_every is None


def test_an_argument_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTWRIGHT_INTERRUPT_EVERY", "600")

    assert Checkpoint(tmp_path, interrupt_every=math.inf)._policy.hazard.interrupt_every == math.inf


@pytest.mark.parametrize("options", [{"keep": 0}, {"every": -1}, {"interrupt_every": 0}, {"every": math.nan}])
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Checkpoint(tmp_path, **options)


@pytest.mark.usefixtures("attempts_in_one_process")
def test_earlier_attempts_that_were_taken_count(tmp_path: Path) -> None:
    for stop in (2, 4):
        train(tmp_path, 10, stop_after=stop, every=0)

    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        assert ckpt._policy.hazard.taken == 2
    assert train(tmp_path, 10) == [4, 5, 6, 7, 8, 9]
    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        assert ckpt._policy.hazard.taken == 2, "the one that came to its end was not taken"
