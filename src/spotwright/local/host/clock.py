"""The clock of a run on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["steady_clock"]


def steady_clock() -> Callable[[], float]:
    """A clock of Unix time that never goes back: the wall clock at this call, continued by the monotonic clock."""
    wall, start = time.time(), time.monotonic()
    return lambda: wall + time.monotonic() - start
