"""Several trainings in one process need separate places: a second one in the same place raises instead of skipping the work."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spotwright.checkpoint import Checkpoint, PlaceError
from spotwright.checkpoint.store import open_store


def train(ckpt: Checkpoint, start: int, *, stop_after: int = 99) -> tuple[int, int]:
    """Train ten steps from a start; the state at the end, and how many steps were made now."""
    made = 0
    with ckpt:
        state = ckpt.load(default={"value": start})
        for _ in ckpt.steps(10):
            state["value"] += 1
            made += 1
            ckpt.step_done(state)
            if made == stop_after:
                break
    return state["value"], made


@pytest.mark.parametrize("stop_after", [3, 99])
def test_a_second_training_in_a_place_raises_with_the_line_that_gives_it_its_own(
    tmp_path: Path, stop_after: int
) -> None:
    train(Checkpoint(tmp_path / "place"), 0, stop_after=stop_after)  # by a rule of its own it may end early
    gc.collect()
    with pytest.raises(PlaceError, match=r"another training in this process.*Checkpoint\(name=\"fold1\"\)"):
        train(Checkpoint(tmp_path / "place"), 100)


def test_a_second_training_that_saves_without_loading_raises_too(tmp_path: Path) -> None:
    train(Checkpoint(tmp_path / "place"), 0)
    with pytest.raises(PlaceError, match="another training in this process"):
        Checkpoint(tmp_path / "place").save({"value": 0})


def test_two_trainings_by_default_raise_where_the_variable_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTWRIGHT_CHECKPOINT", str(tmp_path / "place"))
    assert train(Checkpoint(), 0) == (10, 10)
    with pytest.raises(PlaceError, match="another training in this process"):
        train(Checkpoint(), 100)


FOLDS = """\
import sys
from spotwright.checkpoint import Checkpoint

steps_left = int(sys.argv[1])
for fold in range(3):
    with Checkpoint(name=f"fold{fold}", every=0) as ckpt:
        state = ckpt.load(default={"value": 100 * fold})
        for _ in ckpt.steps(10):
            if steps_left == 0:
                sys.exit(9)
            state["value"] += 1
            steps_left -= 1
            ckpt.step_done(state)
    print(state["value"])
"""


def test_folds_with_names_go_on_where_each_was(tmp_path: Path) -> None:
    (tmp_path / "folds.py").write_text(FOLDS)
    environment = {**os.environ, "SPOTWRIGHT_CHECKPOINT": str(tmp_path / "place")}

    def attempt(steps: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(tmp_path / "folds.py"), str(steps)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert [attempt(14).returncode, attempt(8).returncode] == [9, 9]
    last = attempt(8)  # of 30: no step was made twice
    assert (last.returncode, last.stdout.split()) == (0, ["10", "110", "210"])
    assert attempt(0).stdout.split() == ["10", "110", "210"]


def test_the_same_steps_a_second_time_on_one_object_raise(tmp_path: Path) -> None:
    ckpt = Checkpoint(tmp_path / "place")
    train(ckpt, 0)
    with pytest.raises(PlaceError, match=r"steps\(10\) has already ended.*its own place"):
        train(ckpt, 100)


def test_stages_on_one_object_go_on_in_every_attempt(tmp_path: Path) -> None:
    def stages(ckpt: Checkpoint) -> list[int]:
        state = ckpt.load(default={"value": 0})
        made = []
        for total in (4, 10):
            for number in ckpt.steps(total):
                made.append(number)
                ckpt.step_done(state)
        return made

    assert stages(Checkpoint(tmp_path / "place")) == list(range(10))
    assert stages(Checkpoint(tmp_path / "place", again=True)) == []


def test_a_loop_that_an_error_ended_goes_on_with_its_object(tmp_path: Path) -> None:
    ckpt = Checkpoint(tmp_path / "place")
    ckpt.load()
    for number in ckpt.steps(10):
        if number == 4:
            break  # as an exception in a notebook's cell
        ckpt.step_done({"value": number})
    again = []
    for number in ckpt.steps(10):
        again.append(number)
        ckpt.step_done({"value": number})
    assert again == [4, 5, 6, 7, 8, 9]


def test_what_was_saved_is_read_as_often_as_wanted(tmp_path: Path) -> None:
    train(Checkpoint(tmp_path / "place"), 0)
    for _ in range(2):
        assert Checkpoint(tmp_path / "place", writer=False).load() == {"value": 10}


def test_again_goes_on_with_the_same_training(tmp_path: Path) -> None:
    train(Checkpoint(tmp_path / "place", every=0), 0, stop_after=3)
    assert train(Checkpoint(tmp_path / "place", again=True), 100) == (10, 7)


def test_a_training_whose_place_was_removed_begins_anew(tmp_path: Path) -> None:
    train(Checkpoint(tmp_path / "place"), 0)
    shutil.rmtree(tmp_path / "place")
    assert train(Checkpoint(tmp_path / "place"), 100) == (110, 10)


def test_a_forked_process_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    train(Checkpoint(tmp_path / "place"), 0)
    child = os.fork()
    if not child:
        loaded = Checkpoint(tmp_path / "place").load()
        os._exit(0 if loaded == {"value": 10} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("place", "name", "found"),
    [
        ("/data/run", "fold1", "/data/run/fold1"),
        ("/data/run/", "stage 2/fold1", "/data/run/stage 2/fold1"),
        ("file:///data/run", "fold1", "/data/run/fold1"),
        ("memory://run", "fold1", "memory://run/fold1"),
    ],
)
def test_where_a_name_lies(place: str, name: str, found: str) -> None:
    assert open_store(place, name=name).place == found


@pytest.mark.parametrize("name", ["../other", "/other", "a//b", ".", "a\0b"])
def test_a_name_that_leaves_the_place_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="expected a relative path"):
        Checkpoint(tmp_path, name=name)
