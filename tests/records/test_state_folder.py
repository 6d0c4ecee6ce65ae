"""The state folder: names, versions, and refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records.children import Foreign

from spotwright.errors import InputError, StateError, UnknownRun
from spotwright.records.state_folder import LAYOUT, RunFolder, StateFolder, write_atomically


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder.open(tmp_path / ".spotwright")


def a_run(state: StateFolder, name: str) -> RunFolder:
    """A run with the files that a run has once it began."""
    folder = state.create(name)
    folder.plan(1).write_text("{}")
    folder.journal.write_bytes(b"")
    made = len(list(state.path.glob("runs/*")))
    os.utime(folder.plan(1), ns=(made, made))
    return folder


# Making it


def test_a_missing_state_folder_is_made(state: StateFolder) -> None:
    assert (state.path / "format").read_text() == f"{LAYOUT}\n"


def test_git_ignores_a_state_folder(state: StateFolder) -> None:
    assert (state.path / ".gitignore").read_text() == "*\n"


def test_a_folder_with_files_of_the_user_is_not_ignored(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    StateFolder.open(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n"


def test_opening_a_state_folder_again_changes_nothing(state: StateFolder) -> None:
    (state.path / ".gitignore").unlink()
    StateFolder.open(state.path)
    assert not (state.path / ".gitignore").exists()


def test_reading_a_missing_state_folder_does_not_create_it(tmp_path: Path) -> None:
    assert StateFolder.existing(tmp_path / "none").runs() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opening", [StateFolder.open, StateFolder.existing])
def test_a_newer_layout_is_refused(state: StateFolder, opening: object) -> None:
    (state.path / "format").write_text(f"{LAYOUT + 1}\n")
    with pytest.raises(
        StateError, match=r"written by a newer version of spotwright \(layout 2, this one reads up to 1\): upgrade"
    ):
        opening(state.path)  # type: ignore[operator]


@pytest.mark.parametrize("content", ["", "one", "²", "\udcff"])
def test_a_layout_that_is_not_a_number_is_refused(state: StateFolder, content: str) -> None:
    (state.path / "format").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StateError, match="expected the number of a layout"):
        StateFolder.existing(state.path)


def test_a_file_in_place_of_the_state_folder_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="choose another folder with --state"):
        StateFolder.open(tmp_path / "file")


def test_a_read_only_folder_is_refused_with_the_fix(tmp_path: Path, foreign: Foreign) -> None:
    message = foreign(lambda: str(StateFolder.open(tmp_path / "state")))
    assert message.startswith(f"StateError: {tmp_path / 'state'}: cannot be written")
    assert message.endswith("choose another folder with --state")


def test_a_read_only_state_folder_is_refused_for_writing(state: StateFolder, foreign: Foreign) -> None:
    message = foreign(lambda: str(StateFolder.open(state.path)))
    assert message.startswith(f"StateError: {state.path}: cannot be written")


def test_a_read_only_state_folder_can_be_read(state: StateFolder, foreign: Foreign) -> None:
    a_run(state, "iris-a")
    assert foreign(lambda: StateFolder.existing(state.path).find("last").name) == "iris-a"


# Names of runs


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../escape", "a b", "-x", "last", "é", "x" * 101, "a\n"])
def test_unsafe_and_ambiguous_run_names_are_refused(state: StateFolder, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a run"):
        state.create(name)
    assert list((state.path / "runs").iterdir()) == []


def test_the_name_of_an_existing_run_is_refused(state: StateFolder) -> None:
    state.create("iris-x7k2p")
    with pytest.raises(InputError, match="run iris-x7k2p exists already"):
        state.create("iris-x7k2p")


# Finding runs


def test_runs_are_listed_oldest_first(state: StateFolder) -> None:
    for name in ("zeta", "alpha", "mid"):
        a_run(state, name)
    assert [run.name for run in state.runs()] == ["zeta", "alpha", "mid"]


def test_a_folder_without_a_journal_is_not_a_run(state: StateFolder) -> None:
    state.create("never-began")
    assert state.runs() == []


def test_a_run_without_a_plan_is_listed(state: StateFolder) -> None:
    a_run(state, "whole")
    broken = state.create("broken")
    broken.journal.write_bytes(b"")
    assert {run.name for run in state.runs()} == {"whole", "broken"}


@pytest.mark.parametrize(
    ("text", "expected"), [("iris-a", "iris-a"), ("iris-ab", "iris-ab"), ("wine", "wine-x"), ("w", "wine-x")]
)
def test_a_run_is_found_by_its_name_or_a_unique_beginning(state: StateFolder, text: str, expected: str) -> None:
    for name in ("iris-a", "iris-ab", "wine-x"):
        a_run(state, name)
    assert state.find(text).name == expected


def test_the_last_run_is_the_newest(state: StateFolder) -> None:
    for name in ("zeta", "alpha"):
        a_run(state, name)
    assert state.find("last").name == "alpha"


def test_an_ambiguous_beginning_is_refused_with_the_names(state: StateFolder) -> None:
    for name in ("iris-a", "iris-b"):
        a_run(state, name)
    with pytest.raises(UnknownRun, match="'iris' is the beginning of several runs: iris-a, iris-b"):
        state.find("iris")


def test_an_unknown_run_names_the_newest(state: StateFolder) -> None:
    a_run(state, "iris-a")
    with pytest.raises(UnknownRun, match=r"no run 'wine' in .*: the newest are iris-a"):
        state.find("wine")


@pytest.mark.parametrize("name", ["last", "iris"])
def test_the_error_for_an_unknown_run_mentions_that_there_are_no_runs(state: StateFolder, name: str) -> None:
    with pytest.raises(UnknownRun, match="none exists yet"):
        state.find(name)


# Paths


@given(st.text(min_size=1, max_size=300))
def test_no_task_path_leaves_its_run(task: str) -> None:
    run = RunFolder(Path("/state/runs/r"))
    folder = run.attempt(task, 3)
    assert folder.parent.parent == run.path / "tasks"
    assert folder.name == "attempt-3"
    assert run.checkpoint(task).parent == run.path / "checkpoints"
    assert not run.checkpoint(task).name.startswith(".")
    assert len(os.fsencode(run.checkpoint(task).name)) <= 255
    assert "\0" not in str(folder)


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))
def test_two_tasks_never_share_a_folder(one: str, other: str) -> None:
    run = RunFolder(Path("/state/runs/r"))
    assert (run.attempt(one, 1) == run.attempt(other, 1)) == (one == other)


def test_names_of_kfp_stay_readable() -> None:
    assert RunFolder(Path("r")).attempt("loop/train-3", 2) == Path("r/tasks/loop+train-3/attempt-2")


@pytest.mark.parametrize("name", ["..", "../../etc", "/etc", "a/../.."])
def test_no_volume_leaves_the_state_folder(state: StateFolder, name: str) -> None:
    assert state.volume(name).parent == state.path / "volumes"
    assert state.volume(name).name not in (".", "..")


def test_versions_of_a_plan_are_read_oldest_first(state: StateFolder) -> None:
    run = a_run(state, "r")
    run.plan(2).write_text("{}")
    assert [path.name for path in run.plans()] == ["plan-1.json", "plan-2.json"]


# Files that are whole or absent


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_atomically(tmp_path / "f", "old")
    write_atomically(tmp_path / "f", {"new": 1})
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("f", '{"new":1}')]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "f", "old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "f", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("f", "old")]
