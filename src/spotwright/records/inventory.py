"""The items of a state folder that take space: ``prune`` decides about them, and its report shows them."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

__all__ = ["DiskUse", "Item", "Sort", "disk_use"]


class Sort(StrEnum):
    """The sorts of items, in the order in which they are deleted."""

    RUN = "runs"
    REHEARSAL = "rehearsals"
    CHECKPOINT = "checkpoints"
    RESULT = "cached results"
    ENVIRONMENT = "environments"
    LEFTOVER = "leftovers"  # of a killed prune, and of runs that were killed before they began


@dataclass(frozen=True, slots=True)
class Item:
    """One item that takes space. ``used_at`` is in Unix seconds, ``size`` in bytes; ``kept`` is the reason why it stays.

    ``detail`` is the status of a run.
    """

    sort: Sort
    name: str
    path: Path
    used_at: float
    size: int
    kept: str = ""
    detail: str = ""


_BLOCK = 512  # bytes in a unit of st_blocks on every file system; see stat(2)


class DiskUse(NamedTuple):
    """The space that a file or folder takes on its disk, in bytes, and its last change, in Unix seconds."""

    size: int
    changed_at: float


def disk_use(path: Path) -> DiskUse:
    """Measure a file or folder without following links. Files that vanish meanwhile or cannot be read do not count."""
    size, changed_at = 0, 0.0
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            status = here.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += here.iterdir()
        except OSError:
            continue
        size += getattr(status, "st_blocks", status.st_size // _BLOCK) * _BLOCK
        changed_at = max(changed_at, status.st_mtime)
    return DiskUse(size, changed_at)
