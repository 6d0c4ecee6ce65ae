"""Observe an attempt's file operations with inotify, for processes that may not be traced.

The process group is stopped at each event in a watched folder, so a large file is caught half written. A small file may be
complete before the event arrives; inotify cannot do better. Source: inotify(7).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
from collections.abc import Callable, Iterator, Mapping

from spotwright.local.supervisor import kernel
from spotwright.local.supervisor.syscalls import FileCall

__all__ = ["watch_folders"]

OperationCallback = Callable[[FileCall, str, str], bool]
"""Receives call, area and path of an operation; returns whether the process may continue."""

_MODIFY, _MOVED_TO, _CREATE, _DELETE, _IS_DIRECTORY = 0x2, 0x80, 0x100, 0x200, 0x40000000
_CALLS = {_MODIFY: FileCall.WRITE, _MOVED_TO: FileCall.RENAME, _CREATE: FileCall.OPEN, _DELETE: FileCall.REMOVE}
_HEADER = struct.Struct("iIII")  # watch descriptor, mask, cookie, length of the name that follows


def watch_folders(
    leader: int, folders: Mapping[str, str], on_operation: OperationCallback, on_ready: Callable[[], None]
) -> None:
    """Report operations below ``folders`` (path: area name) until process ``leader`` has ended and all events are read.

    ``on_ready`` is called once every folder is watched. ``leader`` leads its process group, which is stopped as a whole.
    """
    inotify = kernel.inotify_init()
    process = os.pidfd_open(leader)
    watches: dict[int, tuple[str, str]] = {}  # watch descriptor: area, and path below its folder
    try:
        for folder, area in folders.items():
            _add_watches(inotify, folder, area, "", watches)
        on_ready()
        poller = select.poll()
        poller.register(inotify, select.POLLIN)
        poller.register(process, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if inotify in ready:
                _handle_events(leader, inotify, folders, watches, on_operation)
            elif process in ready:
                return
    finally:
        os.close(inotify)
        os.close(process)


def _handle_events(
    leader: int,
    inotify: int,
    folders: Mapping[str, str],
    watches: dict[int, tuple[str, str]],
    on_operation: OperationCallback,
) -> None:
    """Stop the process group, report the pending events, and continue it unless a callback refused."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGSTOP)
    may_continue = True
    for watch, mask, name in _events(inotify):
        area, path = watches.get(watch, ("", ""))
        call = next((call for bit, call in _CALLS.items() if mask & bit), None)
        if call is None or not area:
            continue
        path = f"{path}/{name}" if path and name else path or name
        if mask & _IS_DIRECTORY and call is FileCall.OPEN:
            call = FileCall.MAKE_FOLDER
            folder = next(folder for folder, its_area in folders.items() if its_area == area)
            _add_watches(inotify, f"{folder}/{path}", area, path, watches)
        may_continue = on_operation(call, area, path) and may_continue
    if may_continue:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGCONT)


def _events(inotify: int) -> Iterator[tuple[int, int, str]]:
    """The pending events as watch descriptor, mask and file name."""
    with contextlib.suppress(BlockingIOError):
        data = os.read(inotify, 1 << 16)
        position = 0
        while position < len(data):
            watch, mask, _, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size + length
            yield watch, mask, os.fsdecode(data[position - length : position].rstrip(b"\0"))


def _add_watches(inotify: int, folder: str, area: str, path: str, watches: dict[int, tuple[str, str]]) -> None:
    """Watch a folder and its subfolders; a folder that was removed meanwhile is skipped."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        watches[kernel.inotify_add_watch(inotify, folder, _MODIFY | _MOVED_TO | _CREATE | _DELETE)] = (area, path)
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                _add_watches(inotify, entry.path, area, f"{path}/{entry.name}" if path else entry.name, watches)
