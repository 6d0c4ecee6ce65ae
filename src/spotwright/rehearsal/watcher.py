"""What an attempt does to its files where it may not be traced: seen from outside, by inotify.

It is stopped whenever something happens in a watched folder, so a large file that is being written is caught half written. A
small one may be whole by the time anybody hears of it; nothing here can do better. Source: inotify(7).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
from collections.abc import Callable, Iterator, Mapping

from spotwright.local import kernel
from spotwright.local.syscalls import Call

__all__ = ["watch"]

Done = Callable[[Call, str, str], bool]
"""Told of an operation on a place; whether the process may go on."""

_MODIFY, _MOVED_TO, _CREATE, _DELETE, _DIRECTORY = 0x2, 0x80, 0x100, 0x200, 0x40000000
_CALLS = {_MODIFY: Call.WRITE, _MOVED_TO: Call.RENAME, _CREATE: Call.OPEN, _DELETE: Call.REMOVE}
_HEADER = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows


def watch(main: int, folders: Mapping[str, str], done: Done, begin: Callable[[], None]) -> None:
    """Watch the folders, each with the name of its place, until the process and what it has told of itself have ended.

    ``begin`` is called once everything is watched. The process is the leader of its group, which is stopped as a whole.
    """
    watching = kernel.inotify_init()
    ended = os.pidfd_open(main)
    known: dict[int, tuple[str, str]] = {}  # watch: place and path in it
    try:
        for folder, place in folders.items():
            _follow(watching, folder, place, "", known)
        begin()
        poller = select.poll()
        poller.register(watching, select.POLLIN)
        poller.register(ended, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if watching in ready:
                _serve(main, watching, folders, known, done)
            elif ended in ready:
                return
    finally:
        os.close(watching)
        os.close(ended)


def _serve(main: int, watching: int, folders: Mapping[str, str], known: dict[int, tuple[str, str]], done: Done) -> None:
    """Stop the process, tell what has happened, and let it go on unless it must stand still for good."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(main, signal.SIGSTOP)
    goes_on = True
    for descriptor, mask, name in _events(watching):
        place, path = known.get(descriptor, ("", ""))
        call = next((call for bit, call in _CALLS.items() if mask & bit), None)
        if call is None or not place:
            continue
        path = f"{path}/{name}" if path and name else path or name
        if mask & _DIRECTORY and call is Call.OPEN:
            call = Call.MAKE
            folder = next(folder for folder, its in folders.items() if its == place)
            _follow(watching, f"{folder}/{path}", place, path, known)
        goes_on = done(call, place, path) and goes_on
    if goes_on:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(main, signal.SIGCONT)


def _events(watching: int) -> Iterator[tuple[int, int, str]]:
    with contextlib.suppress(BlockingIOError):
        data = os.read(watching, 1 << 16)
        position = 0
        while position < len(data):
            descriptor, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            yield descriptor, mask, os.fsdecode(data[position - length : position].rstrip(b"\0"))


def _follow(watching: int, folder: str, place: str, path: str, known: dict[int, tuple[str, str]]) -> None:
    """Watch a folder and those in it; one that is gone again is not missed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        known[kernel.inotify_add_watch(watching, folder, _MODIFY | _MOVED_TO | _CREATE | _DELETE)] = (place, path)
        for each in os.scandir(folder):
            if each.is_dir(follow_symlinks=False):
                _follow(watching, each.path, place, f"{path}/{each.name}" if path else each.name, known)
