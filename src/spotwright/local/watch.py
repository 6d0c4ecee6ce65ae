"""Progress of attempts as it is written: inotify instead of asking every file every second.

User code writes a number from 0 to 1 into ``SPOTWRIGHT_PROGRESS_FILE``, in place or by renaming a new file over it. The file
itself is watched for writes and its directory for a new file of that name; the log beside it makes no events. The
descriptor sits in the engine's selector, so an idle run uses no processor time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import stat
import struct
from pathlib import Path

from spotwright.local import kernel
from spotwright.local.orders import PROGRESS

__all__ = ["Watch", "read_progress"]

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
_LONGEST = 64  # bytes of a number that are read
_MOST_STALE = 250
"""Watches of ended attempts that are left where they are: taking one out makes the kernel wait a millisecond."""

Attempt = tuple[str, int]


class Watch:
    """Tells which attempts have reported progress. Task paths and attempt numbers name them."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._descriptor: int | None = None
        self._watched: dict[int, Attempt] = {}
        self._watches: dict[Attempt, dict[str, int]] = {}
        self._directories: dict[Attempt, Path] = {}
        self._changed: dict[Attempt, None] = {}
        self._last: dict[Attempt, float] = {}
        self._stale = 0  # watches of attempts that have ended

    def add(self, task: str, attempt: int, directory: str | Path) -> bool:
        """Watch an attempt's progress file, which need not exist yet.

        ``False`` at the machine's limit of watches (``fs.inotify.max_user_watches``): the attempt then runs unwatched.
        """
        key, folder = (task, attempt), Path(directory)
        self._directories[key], self._watches[key] = folder, {}
        try:
            if self._descriptor is None:
                self._descriptor = kernel.inotify_init()
                self._selector.register(self._descriptor, selectors.EVENT_READ, self._drain)
            self._follow(key, folder, _MOVED_TO | _CREATE | _ONLYDIR)
            self._follow_file(key)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EMFILE, errno.ENFILE):
                raise
            self.remove(task, attempt)
            return False
        return True

    def remove(self, task: str, attempt: int) -> None:
        """Stop watching an attempt; nothing when it was not watched."""
        key = (task, attempt)
        for watch in self._watches.pop(key, {}).values():
            self._stale += self._watched.pop(watch, None) is not None
        for known in (self._directories, self._changed, self._last):
            known.pop(key, None)
        if self._stale > _MOST_STALE:
            self._renew()

    def _renew(self) -> None:
        """Watch what is left with a new descriptor: closing the old one costs as much as taking one watch out of it."""
        if self._descriptor is None:
            return
        self._selector.unregister(self._descriptor)
        os.close(self._descriptor)
        self._descriptor, self._stale = kernel.inotify_init(), 0
        self._selector.register(self._descriptor, selectors.EVENT_READ, self._drain)
        self._watched.clear()
        for key, folder in self._directories.items():
            self._watches[key] = {}
            with contextlib.suppress(OSError):  # it has gone, and no progress can come from there
                self._follow(key, folder, _MOVED_TO | _CREATE | _ONLYDIR)
                self._follow_file(key)
            self._changed[key] = None  # whatever the old one still held

    def changes(self) -> list[tuple[str, int, float]]:
        """Task, attempt and value for every progress that is new since the last call."""
        changed, self._changed = self._changed, {}
        found: list[tuple[str, int, float]] = []
        for key in changed:
            value = read_progress(self._directories[key] / PROGRESS)
            if value is not None and value != self._last.get(key):
                self._last[key] = value
                found.append((*key, value))
        return found

    def close(self) -> None:
        """Stop watching everything."""
        if self._descriptor is not None:
            self._selector.unregister(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        for known in (self._watched, self._watches, self._directories, self._changed, self._last):
            known.clear()

    def _drain(self) -> None:
        """Take every event out of the descriptor; called when the selector says that there are some."""
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
            if mask & _OVERFLOW:  # events were lost: look at everything once
                self._changed.update(dict.fromkeys(self._directories))
            elif key is not None:
                self._on_event(key, watch, mask, name)

    def _on_event(self, key: Attempt, watch: int, mask: int, name: str) -> None:
        if mask & _IGNORED:  # the file or the directory has gone, and the watch with it
            del self._watched[watch]
        elif name == PROGRESS:
            with contextlib.suppress(OSError):  # no watch left: writes in place go unseen, renames do not
                self._follow_file(key)
            self._changed[key] = None
        elif mask & (_MODIFY | _CLOSE_WRITE):
            self._changed[key] = None

    def _follow_file(self, key: Attempt) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._follow(key, self._directories[key] / PROGRESS, _MODIFY | _CLOSE_WRITE)

    def _follow(self, key: Attempt, path: Path, mask: int) -> None:
        if self._descriptor is None:
            return
        watch = kernel.inotify_add_watch(self._descriptor, str(path), mask)
        old = self._watches[key].get(path.name)
        if old is not None and old != watch:
            self._unfollow(old)
        self._watches[key][path.name] = watch
        self._watched[watch] = key

    def _unfollow(self, watch: int) -> None:
        if self._watched.pop(watch, None) is not None and self._descriptor is not None:
            with contextlib.suppress(OSError):  # it went with its file
                kernel.inotify_rm_watch(self._descriptor, watch)


def read_progress(path: str | Path) -> float | None:
    """The number in a progress file, put between 0 and 1; ``None`` where there is none, or none that can be read.

    A file that is being written may be empty or hold something else for a moment.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe of that name must not stop us
    except OSError:
        return None
    try:
        text = os.read(descriptor, _LONGEST) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        value = float(text)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return min(1.0, max(0.0, value)) if value == value else None  # noqa: PLR0124 (not a number)
