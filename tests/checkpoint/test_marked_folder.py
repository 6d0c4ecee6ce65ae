"""Folders of a framework: whole or torn, by the mark that is written last."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spotwright.checkpoint import OtherProgram, PlaceError, StaleWriter
from spotwright.checkpoint.marked_folder import (
    MARK,
    MarkedFolders,
    check_one_place,
    facts_of,
    fault_of,
    folder_at,
    mark_whole,
    unmark,
)


def filled(place: Path, step: int) -> Path:
    """A folder as a framework leaves it."""
    folder = place / f"checkpoint-{step}"
    (folder / "shards").mkdir(parents=True)
    (folder / "weights").write_bytes(b"w" * 100)
    (folder / "shards" / "0").write_bytes(b"s" * 10)
    return folder


def whole(place: Path, step: int, **facts: object) -> Path:
    folder = filled(place, step)
    mark_whole(folder, {"step": step, **facts})
    return folder


def test_a_marked_folder_is_whole_and_has_its_facts(tmp_path: Path) -> None:
    folder = whole(tmp_path, 20)

    assert fault_of(folder) is None
    assert facts_of(folder) == {"step": 20}


@pytest.mark.parametrize("name", ["weights", "shards/0"])
def test_a_file_of_another_size_or_none_is_a_fault_that_names_it(tmp_path: Path, name: str) -> None:
    folder = whole(tmp_path, 20)
    size = (folder / name).stat().st_size
    for length in range(size):
        (folder / name).write_bytes(b"x" * length)
        assert fault_of(folder) == f"{name} has {length} bytes instead of {size}"
    (folder / name).unlink()
    assert fault_of(folder) == f"{name} is missing"


def test_a_mark_that_is_cut_anywhere_is_none(tmp_path: Path) -> None:
    folder = whole(tmp_path, 20)
    text = (folder / MARK).read_bytes()
    for length in range(len(text)):
        (folder / MARK).write_bytes(text[:length])
        assert fault_of(folder) == "it has no completion mark, so its save did not finish"


@pytest.mark.parametrize(
    "text", ["[]", "1", '{"files": []}', '{"files": {}}', "[" * 100_000, '{"files": {}, "facts": 3}']
)
def test_another_text_is_no_mark(tmp_path: Path, text: str) -> None:
    folder = filled(tmp_path, 20)
    (folder / MARK).write_text(text)

    assert fault_of(folder) == "it has no completion mark, so its save did not finish"


def test_a_mark_that_names_files_elsewhere_finds_none(tmp_path: Path) -> None:
    folder = filled(tmp_path, 20)
    (folder / MARK).write_text(json.dumps({"files": {"/etc/passwd": 1}, "facts": {}}))

    assert fault_of(folder) == "/etc/passwd is missing"


def test_files_that_others_add_are_no_fault(tmp_path: Path) -> None:
    folder = whole(tmp_path, 20)
    (folder / "README.md").write_text("mine")

    assert fault_of(folder) is None


def test_the_newest_whole_folder_counts_by_its_number(tmp_path: Path) -> None:
    whole(tmp_path, 9)
    whole(tmp_path, 10)
    filled(tmp_path, 100)
    (tmp_path / "checkpoint-best").mkdir()

    assert MarkedFolders(tmp_path, "checkpoint-").newest() == tmp_path / "checkpoint-10"


def test_torn_folders_are_moved_aside_and_the_latest_of_them_is_kept(tmp_path: Path) -> None:
    whole(tmp_path, 10)
    filled(tmp_path, 20)
    MarkedFolders(tmp_path, "checkpoint-").claim()
    filled(tmp_path, 30)
    lines = MarkedFolders(tmp_path, "checkpoint-").claim()

    assert lines == [
        "checkpoint-30 is torn (it has no completion mark, so its save did not finish); moved it to torn-checkpoint-30"
    ]
    assert sorted(each.name for each in tmp_path.glob("*checkpoint-*")) == ["checkpoint-10", "torn-checkpoint-30"]


def test_folders_from_before_are_used_if_they_look_whole_but_only_the_first_time(tmp_path: Path) -> None:
    filled(tmp_path, 10)
    (filled(tmp_path, 20) / "weights").unlink()
    folders = MarkedFolders(tmp_path, "checkpoint-", lambda folder: (folder / "weights").exists())
    assert [line.split()[0] for line in folders.claim()] == ["checkpoint-20"]
    assert folders.newest() == tmp_path / "checkpoint-10"

    filled(tmp_path, 30)
    folders.claim()
    assert folders.newest() == tmp_path / "checkpoint-10"


def test_an_attempt_that_was_replaced_is_told(tmp_path: Path) -> None:
    old, new = MarkedFolders(tmp_path, "checkpoint-"), MarkedFolders(tmp_path, "checkpoint-")
    old.claim()
    old.check()
    new.claim()

    with pytest.raises(StaleWriter, match="another attempt took over"):
        old.check()
    new.check()


def written(folders: MarkedFolders, step: int, text: str) -> Path:
    """A whole folder that waits to be put in its place."""
    folder = folders.own_folder(step)
    folder.mkdir(parents=True)
    (folder / "weights").write_text(text)
    mark_whole(folder, {"step": step})
    return folder


def test_a_folder_counts_when_it_is_put_in_its_place_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    folders = MarkedFolders(tmp_path, "checkpoint-")
    folders.claim()
    for text in ("first", "second"):
        written(folders, 20, text)
        assert folders.newest() == (None if text == "first" else tmp_path / "checkpoint-20")
        folders.put(20)
        assert (tmp_path / "checkpoint-20" / "weights").read_text() == text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint-20", "spotwright-claims"]


def test_what_an_earlier_attempt_has_not_finished_is_moved_aside(tmp_path: Path) -> None:
    old, new = MarkedFolders(tmp_path, "checkpoint-"), MarkedFolders(tmp_path, "checkpoint-")
    old.claim()
    written(old, 20, "old")

    assert new.claim() == ["checkpoint-20 is torn (its save did not finish); moved it to torn-checkpoint-20"]
    with pytest.raises(StaleWriter):
        old.put(20)
    assert new.newest() is None


@pytest.mark.parametrize("taken_over_before", ["the first move", "the second move"])
@pytest.mark.parametrize("has_same_step", [True, False])
def test_an_attempt_that_is_replaced_while_it_puts_a_folder_in_its_place_puts_back_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_over_before: str, has_same_step: bool
) -> None:
    old, new = MarkedFolders(tmp_path, "checkpoint-"), MarkedFolders(tmp_path, "checkpoint-")
    old.claim()
    written(old, 20, "old")
    rename, moves = os.rename, 0

    def interrupted(source: Path, target: Path) -> None:
        """The process freezes here, until its successor has saved."""
        nonlocal moves
        moves += 1
        if moves == (1 if taken_over_before == "the first move" else 2):
            kept = tmp_path / "kept"
            rename(old.own_folder(20).parent, kept)  # as if it had begun to write after its successor looked
            new.claim()
            rename(kept, old.own_folder(20).parent)
            step = 20 if has_same_step else 30
            written(new, step, "new")
            new.put(step)
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(StaleWriter):
        old.put(20)
    monkeypatch.undo()
    newest = tmp_path / f"checkpoint-{20 if has_same_step else 30}"
    assert new.newest() == newest
    assert (newest / "weights").read_text() == "new"
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1


def test_a_folder_whose_place_was_to_be_taken_comes_back_if_that_did_not_happen(tmp_path: Path) -> None:
    old, new = MarkedFolders(tmp_path, "checkpoint-"), MarkedFolders(tmp_path, "checkpoint-")
    old.claim()
    whole(tmp_path, 20)
    folder = written(old, 20, "new")
    (tmp_path / "checkpoint-20").rename(folder.with_name("replaced-checkpoint-20"))  # and then it was killed

    new.claim()
    assert new.newest() == tmp_path / "checkpoint-20"


def test_the_oldest_whole_folders_are_removed(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        whole(tmp_path, step)
    filled(tmp_path, 25)
    MarkedFolders(tmp_path, "checkpoint-").prune(2)

    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint-15", "checkpoint-20", "checkpoint-25"]


def test_a_folder_that_is_filled_again_is_torn_meanwhile(tmp_path: Path) -> None:
    folder = whole(tmp_path, 20)
    unmark(folder)
    assert fault_of(folder) is not None
    unmark(folder)
    mark_whole(folder, {})
    assert fault_of(folder) is None


def test_the_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    whole(tmp_path, 20, model=1, processes=1)
    folders = MarkedFolders(tmp_path, "checkpoint-")

    assert folders.newest_of({"model": 1}, 1) == tmp_path / "checkpoint-20"
    with pytest.raises(OtherProgram, match="model has other parameters: name another place"):
        folders.newest_of({"model": 2, "shapes": [{"bias": [2]}]}, 1)


def test_the_first_differences_of_the_models_are_told(tmp_path: Path) -> None:
    whole(tmp_path, 20, model=1, processes=1, shapes=[{"a": [1], "b": [2, 3], "c": [4], "d": [5]}])
    now = {"model": 2, "shapes": [{"a": [1], "b": [2, 2], "e": [6], "f": [7]}]}

    with pytest.raises(OtherProgram) as refused:
        MarkedFolders(tmp_path, "checkpoint-").newest_of(now, 1)
    assert (
        "(b is [2, 3] there and [2, 2] here; c is [4] there and missing here; d is [5] there and missing here; and 2 more)"
        in str(refused.value)
    )


@pytest.mark.parametrize("shapes", [None, 5, "b", [5], [{}], [{"a": 5}], {"a": [1]}])
def test_shapes_in_a_mark_that_somebody_has_changed_do_no_harm(tmp_path: Path, shapes: object) -> None:
    whole(tmp_path, 20, model=1, shapes=shapes)

    with pytest.raises(OtherProgram, match="model has other parameters"):
        MarkedFolders(tmp_path, "checkpoint-").newest_of({"model": 2, "shapes": [{"a": [1]}]}, 1)


def test_another_number_of_processes_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole(tmp_path, 20, model=1, processes=4)

    assert MarkedFolders(tmp_path, "checkpoint-").newest_of({"model": 1}, 2) == tmp_path / "checkpoint-20"
    assert "was saved by 4 processes, and 2 are running now" in caplog.text


def test_an_object_store_has_no_folders() -> None:
    with pytest.raises(PlaceError, match=r"memory://place: this framework saves into folders.*mount a volume"):
        folder_at("memory://place")


def test_ranks_that_see_other_checkpoints_are_told(tmp_path: Path) -> None:
    check_one_place(tmp_path, [20, 20])
    with pytest.raises(PlaceError, match=r"\(20, 0\): name a folder on a volume that all nodes mount"):
        check_one_place(tmp_path, [20, 0])
