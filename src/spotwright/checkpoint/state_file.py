"""The state file: the raw bytes, then a table of them with their checksums, then the table's position.

The table comes last, so a state of any size is written in one pass without copies: every piece goes from the user's memory to
the kernel, while a thread computes its checksum. CRC-32 is enough against torn files, which are truncated or contain zeros,
and costs a tenth of a cryptographic hash.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from spotwright.checkpoint.errors import BrokenCheckpoint

if TYPE_CHECKING:
    import queue


__all__ = ["PIECE", "Blob", "Reader", "pieces", "write"]


Blob = Callable[[], Iterable[memoryview]]
"""Gives the bytes of one value, in pieces, when they are to be written."""

_ALIGN = 64  # bytes; a cache line, and the alignment that vector instructions prefer
PIECE = 1 << 20
"""Bytes of a piece."""
_MAGIC = b"spotwr01"
_FOOTER = struct.Struct("<QQL4x8s")  # position, length and checksum of the table
_LARGE = 8 << 20  # bytes above which a thread for the checksums pays
_AHEAD = 16  # pieces that may wait for their checksum, and so stay in memory


def pieces(data: memoryview) -> Iterator[memoryview]:
    """Memory in pieces that fit the processor's cache."""
    flat = data.cast("B") if data.nbytes else memoryview(b"")
    for start in range(0, len(flat), PIECE):
        yield flat[start : start + PIECE]


def write(file: BinaryIO, tree: Any, blobs: Iterable[Blob]) -> dict[str, int]:
    """Write a state; return its ``size`` and the ``sum`` of its table, for its log entry."""
    import json

    position = file.write(_MAGIC)
    extents: list[tuple[int, int]] = []
    with _Checksums() as checksums:
        for blob in blobs:
            gap = -position % _ALIGN
            file.write(bytes(gap))
            start = position = position + gap
            checksums.begin()
            for piece in blob():
                checksums.add(piece)
                file.write(piece)
                position += len(piece)
            extents.append((start, position - start))
    table = [(start, length, total) for (start, length), total in zip(extents, checksums.totals, strict=True)]
    text = json.dumps({"blobs": table, "state": tree}).encode()
    total = zlib.crc32(text)
    file.write(text)
    file.write(_FOOTER.pack(position, len(text), total, _MAGIC))
    return {"size": position + len(text) + _FOOTER.size, "sum": total}


class _Checksums:
    """The CRC-32 of each blob. A thread computes them once the state is large: zlib lets other threads run meanwhile.

    :attr:`totals` is complete after the ``with`` block.
    """

    def __init__(self) -> None:
        self.totals: list[int] = []
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._waiting: queue.Queue[tuple[int, memoryview] | None]
        self._inline = False  # no thread available

    def begin(self) -> None:
        """Begin the next blob."""
        self.totals.append(0)

    def add(self, piece: memoryview) -> None:
        """Add a piece to the current blob."""
        self._bytes += len(piece)
        if self._thread is None and self._bytes >= _LARGE and not self._inline:
            self._start()
        if self._thread is None:
            self._compute(len(self.totals) - 1, piece)
        else:
            self._waiting.put((len(self.totals) - 1, piece))

    def _start(self) -> None:
        import queue

        self._waiting = queue.Queue(_AHEAD)
        thread = threading.Thread(target=self._run, name="spotwright-checksums", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down, or the system has no thread left
            self._inline = True
        else:
            self._thread = thread

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            self._compute(*waiting)

    def _compute(self, index: int, piece: memoryview) -> None:
        self.totals[index] = zlib.crc32(piece, self.totals[index])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()


class Reader:
    """Reads a state file that must have this size and checksum. Raises :class:`BrokenCheckpoint` for anything not whole."""

    def __init__(self, file: BinaryIO, name: str, size: int, expected: int) -> None:
        self._file, self._name = file, name
        self._kept = -1, memoryview(b"")
        import json

        file.seek(0, 2)
        if file.tell() != size or size < _FOOTER.size:
            raise self._broken(f"{file.tell()} bytes long instead of {size}")
        file.seek(size - _FOOTER.size)
        start, length, total, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        if magic != _MAGIC or total != expected or start + length + _FOOTER.size != size:
            raise self._broken("its end differs from the saved state's")
        file.seek(start)
        text = file.read(length)
        if zlib.crc32(text) != total:
            raise self._broken("its table is damaged")
        try:
            table = json.loads(text)
            self.tree: Any = table["state"]
            self._blobs = [(int(begin), int(length), int(total)) for begin, length, total in table["blobs"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._broken(f"its table is malformed ({error!r})") from error
        if any(not 0 <= begin <= begin + length <= start for begin, length, _ in self._blobs):
            raise self._broken("its table refers to bytes beyond its end")

    def size(self, index: int) -> int:
        """Length of a blob in bytes."""
        return self._extent(index)[1]

    def into(self, index: int, target: memoryview) -> None:
        """Fill memory with a blob of exactly this size."""
        start, length, expected = self._extent(index)
        if target.nbytes != length:
            raise self._broken(f"a value has {length} bytes instead of {target.nbytes}")
        self._file.seek(start)
        total = 0
        for piece in pieces(target):
            rest = piece
            while rest:
                count = self._file.readinto(rest)  # type: ignore[attr-defined]  # every binary file here has it
                if not count:
                    raise self._broken("it ends too early")
                rest = rest[count:]
            total = zlib.crc32(piece, total)
        if total != expected:
            raise self._broken("the bytes of a value are damaged")

    def into_pieces(self, first: int, start: int, target: memoryview) -> None:
        """Fill memory with a value's bytes from ``start`` on; its :func:`pieces` are the blobs from ``first`` on."""
        filled = 0
        while filled < target.nbytes:
            number, offset = divmod(start + filled, PIECE)
            size = self.size(first + number)
            count = min(size - offset, target.nbytes - filled)
            if count <= 0 or size > PIECE:
                raise self._broken("a value ends too early")
            if count == size:
                self.into(first + number, target[filled : filled + count])
            else:
                target[filled : filled + count] = self._whole(first + number, size)[offset : offset + count]
            filled += count

    def _whole(self, index: int, size: int) -> memoryview:
        """A piece that is read in parts; the last one is cached."""
        if self._kept[0] != index:
            data = memoryview(bytearray(size))
            self.into(index, data)
            self._kept = index, data
        return self._kept[1]

    def stream(self, index: int) -> Iterator[bytes]:
        """A blob in pieces; the last piece comes only after the whole checksum was verified."""
        start, left, expected = self._extent(index)
        self._file.seek(start)
        total = 0
        held = b""
        while left:
            piece = self._file.read(min(left, PIECE))
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

    def check(self) -> None:
        """Read all blobs, and raise if one of them is damaged."""
        for index in range(len(self._blobs)):
            for _ in self.stream(index):
                pass

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _extent(self, index: int) -> tuple[int, int, int]:
        if type(index) is int and 0 <= index < len(self._blobs):  # it comes from the file
            return self._blobs[index]
        raise self._broken("a value refers to bytes beyond its end")

    def _broken(self, what: str) -> BrokenCheckpoint:
        return BrokenCheckpoint(f"{self._name}: {what}")
