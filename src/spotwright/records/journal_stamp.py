"""Tells from a journal's files whether it may have changed, so that thousands of journals need not be opened to look.

A kernel counts the times of files in steps of some milliseconds, and SQLite writes its log over from the beginning. So two writes
within a step leave the same time and the same size: a stamp tells something only once the last write is a while ago.
"""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["JournalStamp", "journal_stamp"]

JournalStamp = tuple[int, ...]

_WHILE = 2_000_000_000  # nanoseconds after which another write surely gives a file another time


def journal_stamp(journal: Path) -> JournalStamp | None:
    """What changes whenever the journal does. None where it was written so shortly ago that the next write may not show.

    Take it before the journal is read: what is written meanwhile changes the next one.
    """
    now = time.time_ns()
    stamp: list[int] = []
    for path in (journal, journal.with_name(f"{journal.name}-wal")):
        try:
            status = path.stat()
        except FileNotFoundError:
            stamp += [0, 0, 0]
            continue
        if now - status.st_mtime_ns < _WHILE:
            return None
        stamp += [status.st_mtime_ns, status.st_size, status.st_ino]
    return tuple(stamp)
