"""Takes the pod log endpoint's bytes apart: lines, each with the time at which its node received it.

With ``timestamps=true`` the kubelet begins each line with the time of its first part, in nanoseconds (RFC 3339), also where the
runtime has cut a line into parts of 16 KiB (``ReadLogs`` and ``logWriter.write`` of k8s.io/cri-client 0.35.4). A line without a
time holds words of the kubelet itself, such as ``unable to retrieve container logs``, and is no part of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Piece", "StampedLines", "stamp_text"]

_LONG = 65_536  # bytes of a line that are held until its end comes; a longer one is handed on in pieces
_STAMP = 40  # bytes: longer than any time
_BILLION = 1_000_000_000


class Piece(NamedTuple):
    """A line, or a piece of a long one. ``stamp`` is the time of its line, in Unix nanoseconds."""

    stamp: int
    data: bytes
    begins: bool
    ends: bool


class StampedLines:
    """Cuts one answer of the endpoint into pieces. ``words`` are the kubelet's own, which the answer held instead of a line."""

    def __init__(self) -> None:
        self._held = b""
        self._stamp = 0  # of the line that has begun; 0: none has
        self.words = ""

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Add bytes of the answer; yield all lines that are complete, and long ones as far as they are there."""
        lines = (self._held + data).split(b"\n")
        self._held = lines.pop()
        for line in lines:
            yield from self._piece(line + b"\n", ends=True)
        if len(self._held) >= _LONG:
            held, self._held = self._held, b""
            yield from self._piece(held, ends=False)

    def flush(self) -> Iterator[Piece]:
        """The line that was not complete when the container ended."""
        held, self._held = self._held, b""
        if held:
            yield from self._piece(held, ends=False)

    def _piece(self, data: bytes, *, ends: bool) -> Iterator[Piece]:
        begins = not self._stamp
        if begins:
            text, space, rest = data.partition(b" ")
            self._stamp = _nanoseconds(text) if space and len(text) < _STAMP else 0
            data = rest if self._stamp else data
        stamp = self._stamp
        if ends:
            self._stamp = 0
        if stamp:
            yield Piece(stamp, data, begins, ends)
        else:
            self.words = data[:500].decode("utf-8", "replace").strip()


def stamp_text(stamp: int) -> str:
    """A time as people read it, with milliseconds: ``2026-11-22T21:44:31.123Z``."""
    whole = datetime.fromtimestamp(stamp // _BILLION, tz=UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{stamp % _BILLION // 1_000_000:03d}Z"


def _nanoseconds(text: bytes) -> int:
    """A time such as ``2026-11-22T21:44:31.123456789Z`` in Unix nanoseconds; 0 if it is none."""
    rest = text[19:]
    digits, zone = b"", rest
    if rest[:1] == b".":
        digits = rest[1:10] if rest[1:10].isdigit() else rest[1:].rstrip(b"Z").partition(b"+")[0].partition(b"-")[0]
        zone = rest[1 + len(digits) :]
    seconds = _seconds(text[:19], zone)
    if seconds is None or (digits and not digits.isdigit()):
        return 0
    return seconds * _BILLION + int(digits.ljust(9, b"0")[:9] or b"0")


@lru_cache(maxsize=1024)
def _seconds(text: bytes, zone: bytes) -> int | None:
    """The whole seconds of a time; many lines share them."""
    try:
        return int(datetime.fromisoformat(text.decode("ascii") + zone.decode("ascii")).timestamp()) if zone else None
    except ValueError:
        return None
