"""Writes one attempt's log, and beside it how far it is, so that a kill at any moment leaves both in agreement.

The file ``log.position`` is written before each piece goes to the log, and names the state before and after it. Whoever opens
the log again sees by its size which of the two holds. A piece that was written in part is written again, but not taken away
before it comes again, because its pod may be gone. A log whose ``log.position`` is missing is complete.

A log above its limit keeps its first half; of the rest, files ``log.tail-N`` hold the last part. They are put behind
the first half when the log is complete, with a line that names how much was left out. So a log only grows for its followers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from spotwright.model.quantities import format_bytes

__all__ = ["POSITION", "LogFile"]

POSITION = "log.position"
"""The file beside a log that is not complete."""

_BLOCK = 8192  # bytes of the position: more than it ever has, so that nothing old stays behind it


class LogFile:
    """One log. ``limit`` is in bytes. ``notes`` are the words of its owner that were saved with the last piece."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._position = path.with_name(POSITION)
        self._limit = limit
        self._sizes = {0: 0}  # bytes of the log, and of each tail by its number
        self._dropped = 0  # bytes
        self._is_checked = True  # the files have the sizes that are expected here
        self._saved = b"null"
        self.notes: dict[str, Any] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the log was finished, by this process or another."""
        return self.path.exists() and not self._position.exists()

    def open(self) -> bool:
        """Take up a log that an earlier process left; False if there is none. Raises :class:`OSError`."""
        try:
            states = msgspec.json.decode(self._position.read_bytes(), type=dict[str, dict[str, Any] | None])
        except FileNotFoundError:
            return False
        except msgspec.DecodeError:  # a power loss of this machine: the log begins again
            states = {}
        before, after = states.get("before"), states.get("after")
        self._is_checked = False
        for state in (after, before):
            if state is not None and self._fits(state):
                self._take(state)
                return True
        if before is not None:  # shorter than it was: so was the machine's power
            self._take(before)
            self._sizes = {number: min(size, self._real_size(number)) for number, size in self._sizes.items()}
        return before is not None

    def append(self, data: bytes, notes: Mapping[str, Any]) -> None:
        """Write a piece together with its owner's notes. Raises :class:`OSError`; then nothing has changed."""
        self._check()
        sizes, dropped, saved, before = dict(self._sizes), self._dropped, self._saved, self.notes
        try:
            target = self._choose(len(data))
            start = self._sizes[target]
            self._sizes[target] += len(data)
            self.notes = dict(notes)
            self._save()
            self._write(target, data, start)
        except OSError:
            self._sizes, self._dropped, self._saved, self.notes = sizes, dropped, saved, before
            self._is_checked = False
            raise
        for number in sizes.keys() - self._sizes.keys():
            self._file(number).unlink(missing_ok=True)

    def finish(self) -> None:
        """Put the tails behind the log, and mark it complete. Raises :class:`OSError`."""
        tails = sorted(self._sizes.keys() - {0})
        if tails:
            self._check()
            with self.path.open("r+b") as log:
                log.seek(self._sizes[0])
                if self._dropped:
                    log.write(f"[spotwright: {format_bytes(self._dropped)} are left out here]\n".encode())
                for number in tails:
                    with self._file(number).open("rb") as tail:
                        shutil.copyfileobj(tail, log, 1 << 20)
        self._position.unlink(missing_ok=True)
        for path in self.path.parent.glob("log.tail-*"):
            path.unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.path.with_name(f"log.tail-{number}") if number else self.path

    def _choose(self, length: int) -> int:
        """The number of the file that gets the next piece. Of the tails the last two are kept."""
        newest = max(self._sizes)
        limit = self._limit // 4 if newest else self._limit // 2
        if not self._sizes[newest] or self._sizes[newest] + length <= limit:
            return newest
        if not newest:
            announcement = self._announcement()
            self._write(0, announcement, self._sizes[0])
            self._sizes[0] += len(announcement)
        elif newest > 1:
            self._dropped += self._sizes.pop(newest - 1)
        self._sizes[newest + 1] = 0
        return newest + 1

    def _announcement(self) -> bytes:
        kept, last = format_bytes(self._limit // 2), format_bytes(self._limit // 4)
        return (
            f"[spotwright: this log is longer than {kept}; of the rest, at least the last {last} follow when it has ended]\n"
        ).encode()

    def _save(self) -> None:
        after = msgspec.json.encode({"sizes": self._sizes, "dropped": self._dropped, "notes": self.notes})
        if self._saved == b"null":
            self.path.parent.mkdir(parents=True, exist_ok=True)
        text = b'{"before":' + self._saved + b',"after":' + after + b"}"
        file = os.open(self._position, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, text.ljust(_BLOCK), 0)  # a kill in the middle of it takes spaces away, at most
        finally:
            os.close(file)
        self._saved = after

    def _write(self, number: int, data: bytes, start: int) -> None:
        file = os.open(self._file(number), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            while data:
                written = os.pwrite(file, data, start)
                data, start = data[written:], start + written
        finally:
            os.close(file)

    def _check(self) -> None:
        """Cut off what an interrupted write left behind."""
        if self._is_checked:
            return
        for number, size in self._sizes.items():
            real = self._real_size(number)
            if real > size:
                os.truncate(self._file(number), size)
            self._sizes[number] = min(size, real)
        self._is_checked = True

    def _fits(self, state: Mapping[str, Any]) -> bool:
        return all(self._real_size(int(number)) >= size for number, size in state["sizes"].items())

    def _real_size(self, number: int) -> int:
        path = self._file(number)
        return path.stat().st_size if path.exists() else 0

    def _take(self, state: Mapping[str, Any]) -> None:
        self._sizes = {int(number): int(size) for number, size in state["sizes"].items()}
        self._dropped, self.notes = int(state["dropped"]), dict(state["notes"])
        self._saved = msgspec.json.encode(state)
