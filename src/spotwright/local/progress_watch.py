"""Watch the progress files of attempts with inotify instead of polling them.

User code writes a number from 0 to 1 to ``SPOTWRIGHT_PROGRESS_FILE``, in place or by renaming a new file over it. So the file
is watched for writes, and its directory for a new file of that name; writes to the log cause no events. The descriptor is
registered in the engine's selector, so an idle run uses no processor time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import stat
import struct
from pathlib import Path

from spotwright.local.protocol import PROGRESS
from spotwright.local.supervisor import kernel

__all__ = ["ProgressWatch", "read_progress"]

# From sys/inotify.h; see inotify(7).
_MODIFY, _CLOSE_WRITE, _MOVED_TO, _CREATE, _OVERFLOW, _IGNORED, _ONLYDIR = (
    0x2,
    0x8,
    0x80,
    0x100,
    0x4000,
    0x8000,
    0x1000000,
)
_HEADER = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_MAX_BYTES = 64  # of a progress file that are read
_MAX_STALE = 250
"""The number of watches of ended attempts to keep: removing a watch blocks for a millisecond in the kernel."""

Attempt = tuple[str, int]


class ProgressWatch:
    """Reports new progress of attempts, which are identified by task path and attempt number."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._descriptor: int | None = None
        self._watched: dict[int, Attempt] = {}
        self._watches: dict[Attempt, dict[str, int]] = {}
        self._folders: dict[Attempt, str] = {}
        self._changed: dict[Attempt, None] = {}
        self._last_values: dict[Attempt, float] = {}
        self._stale = 0  # watches of attempts that have ended

    def add(self, task: str, attempt: int, directory: str | Path) -> bool:
        """Watch an attempt's progress file, which need not exist yet.

        Returns ``False`` at the machine's limit of watches (``fs.inotify.max_user_watches``): its progress is then unseen.
        """
        key = (task, attempt)
        self._folders[key], self._watches[key] = str(directory), {}
        try:
            if self._descriptor is None:
                self._descriptor = kernel.inotify_init()
                self._selector.register(self._descriptor, selectors.EVENT_READ, self._drain)
            self._watch_folder(key)
            self._watch_file(key)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EMFILE, errno.ENFILE):
                raise
            self.remove(task, attempt)
            return False
        return True

    def remove(self, task: str, attempt: int) -> None:
        """Stop watching an attempt; do nothing if it is not watched."""
        key = (task, attempt)
        for watch in self._watches.pop(key, {}).values():
            self._stale += self._watched.pop(watch, None) is not None
        for mapping in (self._folders, self._changed, self._last_values):
            mapping.pop(key, None)
        if self._stale > _MAX_STALE:
            self._renew()

    def _renew(self) -> None:
        """Move the remaining watches to a new descriptor: closing the old one costs as much as removing a single watch."""
        if self._descriptor is None:
            return
        self._selector.unregister(self._descriptor)
        os.close(self._descriptor)
        self._descriptor, self._stale = kernel.inotify_init(), 0
        self._selector.register(self._descriptor, selectors.EVENT_READ, self._drain)
        self._watched.clear()
        for key in self._folders:
            self._watches[key] = {}
            with contextlib.suppress(OSError):  # the folder was removed, so progress has ended
                self._watch_folder(key)
                self._watch_file(key)
            self._changed[key] = None  # the old descriptor may have had unread events

    def changes(self) -> list[tuple[str, int, float]]:
        """Task, attempt number and value of every progress that is new since the last call."""
        changed, self._changed = self._changed, {}
        new: list[tuple[str, int, float]] = []
        for key in changed:
            value = read_progress(f"{self._folders[key]}/{PROGRESS}")
            if value is not None and value != self._last_values.get(key):
                self._last_values[key] = value
                new.append((*key, value))
        return new

    def close(self) -> None:
        """Stop watching everything."""
        if self._descriptor is not None:
            self._selector.unregister(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        for mapping in (self._watched, self._watches, self._folders, self._changed, self._last_values):
            mapping.clear()

    def _drain(self) -> None:
        """Read all pending events; called when the selector reports the descriptor as readable."""
        with contextlib.suppress(BlockingIOError):
            while self._descriptor is not None:
                self._read_events(os.read(self._descriptor, 1 << 16))

    def _read_events(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            name = data[position - length : position].rstrip(b"\0").decode(errors="replace")
            key = self._watched.get(watch)
            if mask & _OVERFLOW:  # events were lost: check every file once
                self._changed.update(dict.fromkeys(self._folders))
            elif key is not None:
                self._on_event(key, watch, mask, name)

    def _on_event(self, key: Attempt, watch: int, mask: int, name: str) -> None:
        if mask & _IGNORED:  # the file or directory was removed, and with it the watch
            del self._watched[watch]
        elif name == PROGRESS:
            with contextlib.suppress(OSError):  # limit of watches: writes in place are missed, renames are not
                self._watch_file(key)
            self._changed[key] = None
        elif mask & (_MODIFY | _CLOSE_WRITE):
            self._changed[key] = None

    def _watch_folder(self, key: Attempt) -> None:
        self._add_watch(key, self._folders[key], _MOVED_TO | _CREATE | _ONLYDIR)

    def _watch_file(self, key: Attempt) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._add_watch(key, f"{self._folders[key]}/{PROGRESS}", _MODIFY | _CLOSE_WRITE)

    def _add_watch(self, key: Attempt, path: str, mask: int) -> None:
        if self._descriptor is None:
            return
        watch = kernel.inotify_add_watch(self._descriptor, path, mask)
        old = self._watches[key].get(path)
        if old is not None and old != watch:
            self._remove_watch(old)
        self._watches[key][path] = watch
        self._watched[watch] = key

    def _remove_watch(self, watch: int) -> None:
        if self._watched.pop(watch, None) is not None and self._descriptor is not None:
            with contextlib.suppress(OSError):  # it was removed with its file
                kernel.inotify_rm_watch(self._descriptor, watch)


def read_progress(path: str | Path) -> float | None:
    """The number in a progress file, clamped to 0..1; ``None`` if the file is missing or holds no number.

    A file may be empty or incomplete while it is written.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # must not block on a named pipe
    except OSError:
        return None
    try:
        text = os.read(descriptor, _MAX_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        value = float(text)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return min(1.0, max(0.0, value)) if value == value else None  # noqa: PLR0124 (false for NaN)
