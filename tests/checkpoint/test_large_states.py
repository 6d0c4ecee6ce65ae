"""Large states: checksums from a thread, and replaced saves that a thread removes."""

from __future__ import annotations

import io
import logging
import os
import threading
from pathlib import Path

import pytest

from spotwright.checkpoint import BrokenCheckpoint, Checkpoint, state_file
from spotwright.checkpoint.store import FolderStore

PART = 5 << 20  # bytes; the second of three parts is where the thread begins
THREADS = {"spotwright-checksums", "spotwright-removal"}


def state(mark: int) -> dict[str, bytes]:
    return {name: bytes([mark + index]) * PART for index, name in enumerate("abc")}


def state_files(place: Path) -> list[Path]:
    return sorted(place.glob("state-*"))


def wait_for_removals() -> None:
    for thread in threading.enumerate():
        if thread.name in THREADS:
            thread.join()


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.save(state(1))

    assert Checkpoint(tmp_path, writer=False).load() == state(1)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_one_wrong_byte_in_any_part_is_found(tmp_path: Path, part: int) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.save(state(1))
    with state_files(tmp_path)[0].open("r+b") as file:
        file.seek(part * PART + PART // 2)
        file.write(b"\xff")

    with pytest.raises(BrokenCheckpoint, match="the bytes of a value are damaged"):
        Checkpoint(tmp_path, writer=False).load()


def test_a_save_that_cannot_start_a_thread_computes_checksums_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Checkpoint(tmp_path, keep=1) as ckpt:
        for mark in (1, 4, 7):
            ckpt.save(state(mark))

    assert len(state_files(tmp_path)) == 1
    assert Checkpoint(tmp_path, writer=False).load() == state(7)


def test_an_error_while_writing_leaves_no_thread_behind() -> None:
    def unreadable() -> list[memoryview]:
        assert "spotwright-checksums" in {thread.name for thread in threading.enumerate()}
        raise OSError("unreadable")

    with pytest.raises(OSError, match="unreadable"):
        state_file.write(io.BytesIO(), {}, [lambda: [memoryview(bytes(9 << 20))], unreadable])

    assert "spotwright-checksums" not in {thread.name for thread in threading.enumerate()}


def test_replaced_saves_are_removed(tmp_path: Path) -> None:
    with Checkpoint(tmp_path, keep=2) as ckpt:
        for mark in (1, 4, 7, 10):
            ckpt.save(state(mark))
    wait_for_removals()

    assert len(state_files(tmp_path)) == 2


def test_the_space_of_a_replaced_save_is_free_before_the_next_save_is_written(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    for name in ("old", "older"):
        (tmp_path / name).write_bytes(bytes(9 << 20))
        store.remove(name)
    with store.write("new") as file:
        assert sorted(store.names()) == ["new"]
        file.write(b"1")


def test_a_large_file_that_cannot_be_removed_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(str(tmp_path))
    (tmp_path / "old").write_bytes(bytes(9 << 20))

    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "unlink", refuse)
    with caplog.at_level(logging.WARNING, logger="spotwright.checkpoint"):
        store.remove("old")
        wait_for_removals()

    assert f"{tmp_path / 'old'}: cannot be changed (Operation not permitted)" in caplog.text
