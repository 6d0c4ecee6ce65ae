"""The state file: raw bytes one after the other, then a table of them with their checksums, then where that table is.

The table comes last, so a state is written in one pass, whatever its size, and nothing is copied on the way: every piece goes
from the user's memory to the kernel, and is summed while it is warm in the processor's cache. CRC-32 is enough against torn
files, which are cut or hold zeros, and costs a tenth of what a cryptographic hash does.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from spotwright.checkpoint.errors import BrokenCheckpoint

__all__ = ["Blob", "Reader", "pieces", "write"]

Blob = Callable[[], Iterable[memoryview]]
"""Gives the bytes of one value, in pieces, when they are to be written."""

_ALIGN = 64  # bytes; a cache line, and what vector instructions like
_PIECE = 1 << 20
_MAGIC = b"spotwr01"
_FOOTER = struct.Struct("<QQL4x8s")  # where the table is, its length, its sum


def pieces(data: memoryview) -> Iterator[memoryview]:
    """A stretch of memory in pieces that fit a processor's cache."""
    flat = data.cast("B") if data.nbytes else memoryview(b"")
    for start in range(0, len(flat), _PIECE):
        yield flat[start : start + _PIECE]


def write(file: BinaryIO, tree: Any, blobs: Iterable[Blob]) -> dict[str, int]:
    """Write a state; give its ``size`` and the ``sum`` of its table, which its entry in the log repeats."""
    import json

    place = file.write(_MAGIC)
    table: list[tuple[int, int, int]] = []
    for blob in blobs:
        gap = -place % _ALIGN
        file.write(bytes(gap))
        start = place = place + gap
        total = 0
        for piece in blob():
            total = zlib.crc32(piece, total)
            file.write(piece)
            place += len(piece)
        table.append((start, place - start, total))
    text = json.dumps({"blobs": table, "state": tree}).encode()
    total = zlib.crc32(text)
    file.write(text)
    file.write(_FOOTER.pack(place, len(text), total, _MAGIC))
    return {"size": place + len(text) + _FOOTER.size, "sum": total}


class Reader:
    """Reads a state file that must be of this size, with this sum. Raises :class:`BrokenCheckpoint` for whatever is not whole."""

    def __init__(self, file: BinaryIO, name: str, size: int, expected: int) -> None:
        self._file, self._name = file, name
        import json

        file.seek(0, 2)
        if file.tell() != size or size < _FOOTER.size:
            raise self._broken(f"{file.tell()} bytes long instead of {size}")
        file.seek(size - _FOOTER.size)
        start, length, total, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        if magic != _MAGIC or total != expected or start + length + _FOOTER.size != size:
            raise self._broken("its end is not that of the state that was saved")
        file.seek(start)
        text = file.read(length)
        if zlib.crc32(text) != total:
            raise self._broken("its table is damaged")
        found = json.loads(text)
        self.tree: Any = found["state"]
        self._blobs: list[tuple[int, int, int]] = found["blobs"]

    def size(self, index: int) -> int:
        """The bytes of a blob."""
        return self._blobs[index][1]

    def into(self, index: int, target: memoryview) -> None:
        """Fill memory with a blob of just this size."""
        start, length, expected = self._blobs[index]
        if target.nbytes != length:
            raise self._broken(f"a value has {length} bytes instead of {target.nbytes}")
        self._file.seek(start)
        total = 0
        for piece in pieces(target):
            left = piece
            while left:
                count = self._file.readinto(left)  # type: ignore[attr-defined]  # every binary file here has it
                if not count:
                    raise self._broken("it ends too early")
                left = left[count:]
            total = zlib.crc32(piece, total)
        if total != expected:
            raise self._broken("the bytes of a value are damaged")

    def stream(self, index: int) -> Iterator[bytes]:
        """A blob in pieces; the last one comes only when all were whole."""
        start, left, expected = self._blobs[index]
        self._file.seek(start)
        total = 0
        held = b""
        while left:
            piece = self._file.read(min(left, _PIECE))
            if not piece:
                raise self._broken("it ends too early")
            total, left = zlib.crc32(piece, total), left - len(piece)
            if held:
                yield held
            held = piece
        if total != expected:
            raise self._broken("the bytes of a value are damaged")
        if held:
            yield held

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _broken(self, what: str) -> BrokenCheckpoint:
        return BrokenCheckpoint(f"{self._name}: {what}")
