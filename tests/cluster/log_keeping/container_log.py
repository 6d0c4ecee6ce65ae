"""A container's log as a kubelet serves it: lines with times, from a whole second on, without files that were rotated away."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

BILLION = 1_000_000_000
START = 1_780_000_000 * BILLION


class Line(NamedTuple):
    """A line: the time of its first part in Unix nanoseconds, and its text with the line end."""

    stamp: int
    text: bytes


def stamped(line: Line) -> bytes:
    """A line as the kubelet writes it with ``timestamps=true``."""
    whole = datetime.fromtimestamp(line.stamp // BILLION, tz=UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{line.stamp % BILLION:09d}Z ".encode() + line.text


def answer(lines: list[Line], since_time: str, *, file_begins: int = 0) -> bytes:
    """All lines of the file that are not older. ``file_begins`` is the first line that was not rotated away."""
    since = int(datetime.fromisoformat(since_time).timestamp()) * BILLION if since_time else 0
    return b"".join(stamped(line) for line in lines[file_begins:] if line.stamp >= since)
