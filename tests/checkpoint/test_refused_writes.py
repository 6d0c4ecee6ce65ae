"""The error of a framework's save: a refused write, with the reason in words, or something else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spotwright.checkpoint.refused_write import what_refused

PLACE = Path("/there/checkpoint-8")


def of_system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (of_system(errno.ENOSPC), "No space left on device"),
        (of_system(errno.EROFS), "Read-only file system"),
        (Exception("Error while serializing: I/O error: Disk quota exceeded (os error 122)"), "Disk quota exceeded"),
        (
            RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos 576 vs 534"),
            "a write by PyTorch failed",
        ),
    ],
)
def test_a_refused_write_is_told_with_place_reason_and_fix(error: Exception, reason: str) -> None:
    assert what_refused(error, PLACE) == f"{PLACE}: cannot be written ({reason}); free this place, or name another one"


def test_the_error_of_the_system_counts_below_one_of_torch() -> None:
    error = RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos")
    error.__context__ = of_system(errno.EFBIG)

    assert "(File too large)" in (what_refused(error, PLACE) or "")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("size mismatch"),
        RuntimeError("Connection closed by peer"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        OSError("We couldn't connect to the hub"),
    ],
)
def test_any_other_error_is_not_taken_for_one(error: Exception) -> None:
    assert what_refused(error, PLACE) is None
