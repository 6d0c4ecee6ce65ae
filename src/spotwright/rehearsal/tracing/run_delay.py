"""Measure how long an attempt's processes waited for a processor, so that a busy machine is not taken for a step that hangs.

Source: the Linux kernel's Documentation/scheduler/sched-stats.rst, ``/proc/PID/schedstat``: nanoseconds on a processor, then
nanoseconds in which the thread was ready to run and had none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spotwright.local.supervisor import process_identity

__all__ = ["run_delay"]


def run_delay(process: int) -> float:
    """Seconds that the thread which waited longest, of a process or its descendants, was ready to run without a processor."""
    return max((_thread_delay(thread) for each in _tree(process) for thread in _threads(each)), default=0.0)


def _tree(process: int) -> Iterator[int]:
    yield process
    for child in process_identity.children(process):
        yield from _tree(child)


def _threads(process: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []  # it has ended


def _thread_delay(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0  # it has ended, or the kernel does not count
