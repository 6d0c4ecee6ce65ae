"""``.spotwright`` is found above the current folder, within the project and among the user's own folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spotwright.errors import UnknownRun
from spotwright.records.state_folder import StateFolder, nearest_state


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a state folder and two levels below it, the lowest of which is the current one."""
    root = tmp_path / "home" / "project"
    (root / "sub" / "lower").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(root / "sub" / "lower")
    return root


def with_runs(folder: Path) -> Path:
    return StateFolder.open(folder / ".spotwright").path


def test_the_one_of_the_current_folder_is_the_nearest(project: Path) -> None:
    with_runs(project)
    Path(".spotwright").mkdir()
    assert nearest_state() == Path(".spotwright")


def test_without_one_it_is_the_nearest_above(project: Path) -> None:
    with_runs(project)
    nearer = with_runs(project / "sub")
    assert nearest_state() == nearer
    assert nearest_state(project / "sub" / "lower") == nearer


def test_without_any_it_is_the_one_that_the_current_folder_may_get(project: Path) -> None:
    assert nearest_state() == Path(".spotwright")
    assert nearest_state(project / "sub") == project / "sub" / ".spotwright"


def test_a_folder_without_runs_is_passed_over(project: Path) -> None:
    found = with_runs(project)
    (project / "sub" / ".spotwright").mkdir()
    assert nearest_state() == found


@pytest.mark.parametrize("git", ["folder", "file"])
def test_the_search_ends_at_the_root_of_the_repository(project: Path, git: str) -> None:
    with_runs(project)
    if git == "folder":
        (project / "sub" / ".git").mkdir()
    else:
        (project / "sub" / ".git").write_text("gitdir: elsewhere\n")
    assert nearest_state() == Path(".spotwright")
    found = with_runs(project / "sub")
    assert nearest_state() == found


def test_the_one_of_the_home_folder_is_for_the_home_folder_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_runs(project.parent)
    assert nearest_state() == Path(".spotwright")
    with_runs(project.parents[1])
    monkeypatch.chdir(project.parent)
    assert nearest_state() == Path(".spotwright")
    assert nearest_state(project.parent) == project.parent / ".spotwright"


def test_a_user_without_a_home_folder_is_served(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    found = with_runs(project)
    assert nearest_state() == found


def test_a_folder_that_others_may_write_to_ends_the_search(project: Path) -> None:
    with_runs(project)
    project.chmod(0o1777)
    assert nearest_state() == Path(".spotwright")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("owned", [".", ".spotwright"])
def test_what_another_user_owns_is_never_used(project: Path, owned: str) -> None:
    with_runs(project)
    os.chown(project / owned, 12345, 12345)
    assert nearest_state() == Path(".spotwright")


def test_a_command_of_an_attempt_does_not_write_among_the_runs_of_its_engine(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = with_runs(project) / "runs" / "a-run" / "tasks" / "train" / "attempt-1" / "work"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    assert nearest_state() == Path(".spotwright")


def test_the_message_of_a_missing_run_names_every_folder_that_was_searched(project: Path) -> None:
    with pytest.raises(UnknownRun) as caught:
        StateFolder.existing(nearest_state()).find("last")
    assert str(caught.value) == (
        f"no run 'last': there is no .spotwright in {project}/sub/lower or in a folder above, up to {project}; "
        "--state names another folder"
    )


def test_the_message_names_the_nearest_folder_where_another_one_was_asked_for(project: Path) -> None:
    found = with_runs(project)
    with pytest.raises(UnknownRun, match=f"the nearest one above is {found};"):
        StateFolder.existing(Path(".spotwright")).find("last")
    with pytest.raises(UnknownRun, match=f"folder not found: {project}/sub/lower/other;"):
        StateFolder.existing(Path("other")).find("last")
