"""The clock of a run on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["steady_clock"]


def steady_clock() -> Callable[[], float]:
    """Unix time that never goes back: the wall clock at this moment, carried on by the monotonic clock."""
    wall, start = time.time(), time.monotonic()
    return lambda: wall + time.monotonic() - start
