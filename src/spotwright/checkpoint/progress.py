"""Tells how far the work is, where an attempt is asked to: a number from 0 to 1 in ``SPOTWRIGHT_PROGRESS_FILE``."""

from __future__ import annotations

import os
import time
from contextlib import suppress

__all__ = ["Progress"]

_SELDOM = 0.05
"""Seconds between two reports: a loop with a million steps must not become a loop that writes files."""


class Progress:
    """Reports ``done`` of ``total`` steps. A report that cannot be written is left out: the work is worth more than its gauge."""

    def __init__(self) -> None:
        self._path = os.environ.get("SPOTWRIGHT_PROGRESS_FILE", "")
        self._next = 0.0

    def report(self, done: int, total: int) -> None:
        """Write it, unless the last report is too recent; the last step is always told."""
        now = time.monotonic()
        if not self._path or (now < self._next and done < total):
            return
        self._next = now + _SELDOM
        beside = f"{self._path}.{os.getpid()}"
        with suppress(OSError):
            with open(beside, "w", encoding="ascii") as file:
                file.write(repr(done / total if total else 1.0))
            os.replace(beside, self._path)
