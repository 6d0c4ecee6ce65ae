"""Folders are deleted completely or not at all, and files outside of the state folder are not touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotwright.errors import StateError
from spotwright.records.trash import Trash, disk_use


def a_folder(path: Path) -> Path:
    (path / "inside").mkdir(parents=True)
    (path / "inside" / "file").write_text("x" * 10_000)
    return path


def test_a_folder_is_removed_and_the_trash_is_empty_afterwards(tmp_path: Path) -> None:
    trash = Trash(tmp_path)
    trash.remove(a_folder(tmp_path / "runs" / "r"))
    assert not (tmp_path / "runs" / "r").exists()
    assert trash.leftovers() == []


def test_a_folder_that_is_gone_counts_as_deleted(tmp_path: Path) -> None:
    Trash(tmp_path).remove(tmp_path / "runs" / "r")


def test_what_a_killed_process_has_left_is_a_leftover_and_can_be_removed(tmp_path: Path) -> None:
    trash = Trash(tmp_path)
    left = a_folder(trash.folder / "r.0a1b2c3d")
    assert trash.leftovers() == [left]
    trash.remove(left)
    assert trash.leftovers() == []


def test_folders_that_a_task_made_read_only_are_removed(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "r")
    (folder / "inside").chmod(0o555)
    folder.chmod(0o555)
    Trash(tmp_path).remove(folder)
    assert not list(tmp_path.glob("r*"))


def test_a_link_inside_a_folder_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    outside = a_folder(tmp_path / "outside")
    folder = a_folder(tmp_path / "state" / "runs" / "r")
    (folder / "link").symlink_to(outside)
    (folder / "inside" / "file link").symlink_to(outside / "inside" / "file")
    Trash(tmp_path / "state").remove(folder)
    assert (outside / "inside" / "file").read_text() == "x" * 10_000


@pytest.mark.parametrize("linked", ["runs/r", "runs", "trash"])
def test_nothing_is_deleted_through_a_link(tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    a_folder(outside / "r")
    state = tmp_path / "state"
    (state / linked).parent.mkdir(parents=True)
    (state / linked).symlink_to(outside / "r" if linked == "runs/r" else outside)
    if linked == "trash":
        a_folder(state / "runs" / "r")
    with pytest.raises(StateError, match=r"not deleted: .* is a symbolic link"):
        Trash(state).remove(state / "runs" / "r")
    assert (outside / "r" / "inside" / "file").exists()
    assert (state / "runs" / "r" / "inside" / "file").exists()


def test_a_state_folder_that_is_itself_a_link_is_the_users_choice(tmp_path: Path) -> None:
    a_folder(tmp_path / "disk" / "runs" / "r")
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    Trash(tmp_path / "state").remove(tmp_path / "state" / "runs" / "r")
    assert not (tmp_path / "disk" / "runs" / "r").exists()


def test_a_folder_that_may_not_be_deleted_is_named(tmp_path: Path) -> None:
    (tmp_path / "trash").write_text("a file where the trash should be")
    with pytest.raises(StateError, match=r"trash.*: cannot be deleted"):
        Trash(tmp_path).remove(a_folder(tmp_path / "r"))
    assert (tmp_path / "r" / "inside" / "file").exists()


def test_space_is_measured_without_following_links(tmp_path: Path) -> None:
    a_folder(tmp_path / "outside")
    folder = a_folder(tmp_path / "r")
    before = disk_use(folder)
    (folder / "link").symlink_to(tmp_path / "outside")
    assert 10_000 <= before.size <= disk_use(folder).size < before.size + 10_000
    assert before.changed_at >= (folder / "inside" / "file").stat().st_mtime


def test_what_is_not_there_takes_no_space(tmp_path: Path) -> None:
    assert disk_use(tmp_path / "nothing").size == 0
