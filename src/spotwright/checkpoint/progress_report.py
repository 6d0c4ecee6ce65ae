"""Reports the progress of an attempt, a number from 0 to 1, in the file that ``SPOTWRIGHT_PROGRESS_FILE`` names.

The engine reads the file to count wasted work exactly. If the variable is not set (outside of Spotwright, in pods), a report does
nothing. A report that cannot be written is dropped: it must not end the work.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress

__all__ = ["ProgressFile", "progress"]

_SECONDS_BETWEEN = 0.05  # a loop with a million steps must not spend its time on writing files
_LARGE_STEP = 0.01  # a report that differs by this share from the one before is always written


class ProgressFile:
    """The progress file of the attempt in whose environment this process runs."""

    def __init__(self) -> None:
        self._path = os.environ.get("SPOTWRIGHT_PROGRESS_FILE", "")
        self._next = 0.0
        self._written = math.nan

    def report(self, share: float) -> None:
        """Write the share of the work that is done, from 0 to 1; small changes at most 20 times a second, 1 always."""
        share = min(max(float(share), 0.0), 1.0)
        now = time.monotonic()
        is_small = abs(share - self._written) < _LARGE_STEP and share < 1
        if not self._path or math.isnan(share) or (is_small and now < self._next):
            return
        self._next, self._written = now + _SECONDS_BETWEEN, share
        temporary = f"{self._path}.{os.getpid()}"
        with suppress(OSError):
            with open(temporary, "w", encoding="ascii") as file:
                file.write(repr(share))
            os.replace(temporary, self._path)


_files: dict[str, ProgressFile] = {}  # by the variable's value, so that a report goes where the variable says now


def progress(share: float) -> None:
    """Report the share of the work that is done, a number from 0 to 1; larger and smaller ones count as 1 and 0.

    Call it where the attempt starts (with what the checkpoint has) and after each step; :meth:`Checkpoint.steps` does so itself.
    Does nothing where ``SPOTWRIGHT_PROGRESS_FILE`` is not set, and never raises because of the file.
    """
    path = os.environ.get("SPOTWRIGHT_PROGRESS_FILE", "")
    if path not in _files:
        _files[path] = ProgressFile()
    _files[path].report(share)
