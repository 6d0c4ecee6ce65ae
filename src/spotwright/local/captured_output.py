"""The output of a child process that was captured in a file."""

from __future__ import annotations

import os

__all__ = ["tail"]

_MAX_BYTES = 2000


def tail(descriptor: int, since: int = 0) -> str:
    """The last lines of the output, at most 2000 bytes and none before the position ``since``, decoded and stripped."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _MAX_BYTES, max(since, size - _MAX_BYTES)).decode(errors="replace").strip()
