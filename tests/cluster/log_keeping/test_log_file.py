"""A log on disk agrees with its position after a kill at any system call, and above its limit keeps its head and its tail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from spotwright.cluster import log_file
from spotwright.cluster.log_file import LogFile
from spotwright.model.quantities import format_bytes

PIECES = [f"piece {number}\n".encode() * (number % 5 + 1) for number in range(12)]


class Killed(BaseException):
    """The process ends here."""


def write_all(path: Path, limit: int = 10_000) -> None:
    """Write the pieces from where an earlier process was killed."""
    file = LogFile(path, limit)
    file.open()
    for number in range(int(file.notes.get("next", 0)), len(PIECES)):
        file.append(PIECES[number], {"next": number + 1})
    file.finish()


@pytest.mark.parametrize("limit", [10_000, 200])
def test_a_kill_at_any_write_leaves_no_gap_and_no_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    whole = tmp_path / "whole" / "log.txt"
    write_all(whole, limit)
    for killed_at in range(2 * len(PIECES)):
        for part in (0.0, 0.5, 1.0):
            path = tmp_path / f"{killed_at}-{part}" / "log.txt"
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", dying_write(killed_at, part))
                with pytest.raises(Killed):
                    write_all(path, limit)
            write_all(path, limit)
            assert path.read_bytes() == whole.read_bytes()


def dying_write(killed_at: int, part: float) -> Callable[[int, bytes, int], int]:
    calls = iter(range(killed_at + 1))
    real = os.pwrite

    def write(file: int, data: bytes, offset: int) -> int:
        if next(calls, killed_at) < killed_at:
            return real(file, data, offset)
        position = len(data) == log_file._BLOCK  # a page is written whole or not at all
        if (length := len(data) if position and part == 1.0 else 0 if position else int(part * len(data))) > 0:
            real(file, data[:length], offset)
        raise Killed

    return write


def test_a_piece_that_cannot_be_written_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile(tmp_path / "log.txt", 10_000)
    file.append(b"one\n", {})
    real = os.pwrite

    def full(number: int, data: bytes, offset: int) -> int:
        if data == b"two\n":
            real(number, b"tw", offset)
            raise OSError(28, "No space left on device")
        return real(number, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            file.append(b"two\n", {})
    file.append(b"two\n", {})
    assert file.path.read_bytes() == b"one\ntwo\n"


def test_above_the_limit_head_and_tail_are_kept_and_the_cut_is_named(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "log.txt", 4096)
    lines = [f"line {number:05}\n".encode() for number in range(2000)]
    for line in lines:
        file.append(line, {})
    assert b"[spotwright: this log is longer than 2Ki" in file.path.read_bytes()
    file.finish()
    text = file.path.read_bytes()
    assert len(text) < 4096 + 300
    assert text.startswith(b"".join(lines[:100]))
    assert text.endswith(b"".join(lines[-80:]))
    (cut,) = (line for line in text.splitlines() if b"left out" in line)
    left = [line for line in text.splitlines() if line.startswith(b"line")]
    assert cut == f"[spotwright: {format_bytes(11 * (2000 - len(left)))} are left out here]".encode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt"]


def test_a_finished_log_is_told_from_one_that_is_written(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "log.txt", 4096)
    assert not file.is_complete
    file.append(b"one\n", {})
    assert not LogFile(file.path, 4096).is_complete
    file.finish()
    assert LogFile(file.path, 4096).is_complete
