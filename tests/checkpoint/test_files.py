"""Files and folders in a state are restored whole, at the path of the program's choice and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.places import FACTS, MemoryStore, round_trip

from spotwright.checkpoint import BrokenCheckpoint, Checkpoint, Directory, File, UnstorableState
from spotwright.checkpoint import file_values as module
from spotwright.checkpoint.save_manager import SaveManager


def tree(folder: Path) -> dict[str, Any]:
    """The content of a folder: files, targets of links, and executable bits."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = (path.read_bytes(), os.access(path, os.X_OK) and bool(path.stat().st_mode & 0o100))
    return found


def a_folder(at: Path) -> Path:
    (at / "deep" / "er").mkdir(parents=True)
    (at / "empty").mkdir()
    (at / "deep" / "er" / "large").write_bytes(os.urandom(3 << 20))
    (at / "nothing").write_bytes(b"")
    (at / "run.sh").write_text("#!/bin/sh\n")
    (at / "run.sh").chmod(0o755)
    (at / "deep" / "link").symlink_to("../run.sh")
    return at


def test_a_file_comes_back_with_its_content(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\x00\x01" * 999_999)
    (tmp_path / "model.bin").chmod(0o755)

    loaded = round_trip({"model": File(tmp_path / "model.bin")})["model"]
    (tmp_path / "model.bin").unlink()
    loaded.restore(tmp_path / "new" / "model.bin")
    assert loaded.read_bytes() == (tmp_path / "new" / "model.bin").read_bytes() == b"\x00\x01" * 999_999
    assert os.access(tmp_path / "new" / "model.bin", os.X_OK)


def test_a_folder_comes_back_as_it_was(tmp_path: Path) -> None:
    before = tree(a_folder(tmp_path / "tokenizer"))

    round_trip([Directory(tmp_path / "tokenizer")])[0].restore(tmp_path / "again")
    assert tree(tmp_path / "again") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "tokenizer"]


def test_loading_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_folder(tmp_path / "source")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")

    round_trip([Directory(tmp_path / "source"), File(tmp_path / "source" / "run.sh")])
    assert list((tmp_path / "cwd").iterdir()) == []


@pytest.mark.usefixtures("attempts_in_one_process")
def test_what_was_loaded_can_be_saved_again(tmp_path: Path) -> None:
    before = tree(a_folder(tmp_path / "source"))
    with Checkpoint(tmp_path / "place") as ckpt:
        ckpt.save({"d": Directory(tmp_path / "source"), "f": File(tmp_path / "source" / "run.sh")})
    with Checkpoint(tmp_path / "place", keep=1) as ckpt:
        ckpt.save(ckpt.load())

    loaded = Checkpoint(tmp_path / "place", writer=False).load()
    loaded["d"].restore(tmp_path / "again")
    assert tree(tmp_path / "again") == before
    assert loaded["f"].read_bytes() == b"#!/bin/sh\n"


def test_reading_the_content_of_a_replaced_checkpoint_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with Checkpoint(tmp_path / "place", keep=1) as ckpt:
        ckpt.save(File(tmp_path / "f"))
        loaded = ckpt.load()
        ckpt.save(1)

        with pytest.raises(BrokenCheckpoint, match="no longer exists"):
            loaded.read_bytes()


def test_a_folder_with_content_is_replaced_only_on_request(tmp_path: Path) -> None:
    before = tree(a_folder(tmp_path / "source"))
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "precious").write_text("mine")
    loaded = round_trip([Directory(tmp_path / "source")])[0]

    with pytest.raises(FileExistsError, match="replace=True"):
        loaded.restore(tmp_path / "target")
    assert (tmp_path / "target" / "precious").exists()
    loaded.restore(tmp_path / "target", replace=True)
    assert tree(tmp_path / "target") == before


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("new")
    (tmp_path / "victim").write_text("old")
    (tmp_path / "target").symlink_to("victim")

    round_trip(File(tmp_path / "source")).restore(tmp_path / "target")
    assert (tmp_path / "victim").read_text() == "old"
    assert not (tmp_path / "target").is_symlink()


@pytest.mark.parametrize("link", ["/etc/passwd", "../outside", "deep/../../outside", "."])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path, link: str) -> None:
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "source" / "link").symlink_to(link)

    with pytest.raises(UnstorableState, match=r"state\['d'\].*points out of the folder"):
        round_trip({"d": Directory(tmp_path / "source")})


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "../evil", "x": False, "b": 0}, {"path": "/evil", "x": False, "b": 0}, {"path": "a/../../e", "x": False, "b": 0},
        {"path": "", "x": False, "b": 0}, {"path": "a//b", "x": False, "b": 0}, {"path": "./a", "x": False, "b": 0},
        {"path": "a\0b", "x": False, "b": 0}, {"path": 7, "x": False, "b": 0}, {"path": "link", "link": "/etc"},
        {"path": "link", "link": "../.."}, {"path": "link", "link": ""}, {"path": "..", "link": "a"},
    ],
    ids=str,
)  # fmt: skip
def test_a_name_in_a_checkpoint_that_would_leave_the_target_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any]
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "f").write_text("x")
    store = MemoryStore()
    manager = SaveManager(store, program="", keep=1, allow_pickle=False)
    manager.claim(None)
    walk = module._walk

    def forged(*args: Any) -> Any:
        list(walk(*args))
        yield entry

    monkeypatch.setattr(module, "_walk", forged)
    manager.save([Directory(tmp_path / "source")], FACTS)

    with pytest.raises(BrokenCheckpoint):
        manager.load()


def test_a_file_through_a_link_in_the_checkpoint_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source" / "inner").mkdir(parents=True)
    (tmp_path / "source" / "f").write_text("x")
    store = MemoryStore()
    manager = SaveManager(store, program="", keep=1, allow_pickle=False)
    manager.claim(None)
    walk = module._walk

    def forged(*args: Any) -> Any:
        list(walk(*args))
        yield {"path": "inner"}
        yield {"path": "link", "link": "inner"}
        yield {"path": "link", "x": False, "b": 0}

    monkeypatch.setattr(module, "_walk", forged)
    manager.save([Directory(tmp_path / "source")], FACTS)

    with pytest.raises(BrokenCheckpoint, match="holds a name twice: 'link'"):
        manager.load()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize("kind", ["missing", "folder for a file", "file for a folder", "pipe"])
def test_a_file_that_cannot_be_read_is_named_with_its_path_in_the_state(tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "folder" / "pipe")
    value = {
        "missing": File(tmp_path / "nothing"),
        "folder for a file": File(tmp_path / "folder"),
        "file for a folder": Directory(tmp_path / "file"),
        "pipe": Directory(tmp_path / "folder"),
    }[kind]

    with pytest.raises(UnstorableState, match=r"state\['logs'\]\[0\]"):
        round_trip({"logs": [value]})


def test_damage_in_a_files_content_is_found_when_loading(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"content" * 1000)
    with Checkpoint(tmp_path / "place") as ckpt:
        ckpt.save("before")
        ckpt.save(File(tmp_path / "f"))
    newest = max((tmp_path / "place").glob("state-*"))
    data = bytearray(newest.read_bytes())
    data[500] ^= 1
    newest.write_bytes(data)

    assert Checkpoint(tmp_path / "place", writer=False).load() == "before"
