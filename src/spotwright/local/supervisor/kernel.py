"""The Linux calls that the standard library lacks: prctl, inotify, and a seccomp filter that stops a process at file changes.

The fork server imports this module, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import struct
from enum import Enum
from typing import NamedTuple

__all__ = [
    "CALLS",
    "CallLayout",
    "FileCall",
    "become_subreaper",
    "die_with_parent",
    "hold_for_tracer",
    "inotify_add_watch",
    "inotify_init",
    "inotify_rm_watch",
    "is_supported_machine",
    "prctl",
]


# Numbers from linux/prctl.h; ABI, the same on every architecture.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]  # prctl is variadic and reads whole words


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    """``prctl(2)``. Raises ``OSError``."""
    _checked(_libc.prctl(option, first, second, 0, 0))


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Request SIGKILL for this process when the parent thread ends; die now if ``parent`` has ended already."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def inotify_init() -> int:
    """Open an inotify descriptor, non-blocking and close-on-exec. Raises ``OSError`` at the user's limit of instances."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(descriptor: int, path: str, mask: int) -> int:
    """Watch a path. Returns the watch number that its events carry. Raises ``OSError``: no such path, limit of watches."""
    return _checked(_libc.inotify_add_watch(descriptor, os.fsencode(path), mask))


def inotify_rm_watch(descriptor: int, watch: int) -> None:
    """Remove a watch. Raises ``OSError`` if the watched file was removed before."""
    _checked(_libc.inotify_rm_watch(descriptor, watch))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class FileCall(Enum):
    """The effect of a system call on a file."""

    OPEN = "open"  # for writing
    WRITE = "write"
    SYNC = "sync"  # to the disk: programs then treat the file as complete
    RENAME = "rename"  # or link, or symlink: a name appears atomically
    REMOVE = "remove"
    MAKE_FOLDER = "make"
    MAP = "map"  # shared: writes to memory change the file without further calls
    CONNECT = "connect"  # a socket, to another process or machine, where data may be changed too
    EXIT = "exit"


class CallLayout(NamedTuple):
    """Which arguments of a system call name its file: the index of a descriptor, or of a folder's descriptor and of a path.

    A ``folder`` of ``-1`` means the current folder. ``flags`` is the index of ``open``'s flags, where the filter can read them.
    ``address`` is the index of a socket address, which its length follows. ``any_bit`` are the flags that matter: a call without
    any of them is not stopped. ``old_folder`` and ``old_path`` name the file that gets a new name.
    """

    call: FileCall
    descriptor: int | None = None
    folder: int = -1
    path: int | None = None
    flags: int | None = None
    address: int | None = None
    any_bit: int = 0
    old_folder: int = -1
    old_path: int | None = None


def _path(call: FileCall, folder: int, path: int) -> CallLayout:
    return CallLayout(call, folder=folder, path=path)


def _rename(old_folder: int, old_path: int, folder: int, path: int) -> CallLayout:
    return CallLayout(FileCall.RENAME, folder=folder, path=path, old_folder=old_folder, old_path=old_path)


def _open(flags: int | None = None) -> CallLayout:
    return CallLayout(FileCall.OPEN, flags=flags, any_bit=os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)


_WRITES = CallLayout(FileCall.WRITE, descriptor=0)
_SYNCS = CallLayout(FileCall.SYNC, descriptor=0)
_MAPS = CallLayout(FileCall.MAP, descriptor=4, flags=3, any_bit=1)  # MAP_SHARED
_CONNECTS = CallLayout(FileCall.CONNECT, address=1)
_TABLES: dict[str, tuple[int, dict[int, CallLayout]]] = {
    "x86_64": (
        0xC000003E,
        {
            2: _open(flags=1), 85: _open(), 257: _open(flags=2), 437: _open(),
            **dict.fromkeys((1, 18, 20, 296, 328, 77, 40), _WRITES), 326: CallLayout(FileCall.WRITE, descriptor=2),
            76: _path(FileCall.WRITE, -1, 0),
            82: _rename(-1, 0, -1, 1), 264: _rename(0, 1, 2, 3), 316: _rename(0, 1, 2, 3),
            86: _path(FileCall.RENAME, -1, 1), 265: _path(FileCall.RENAME, 2, 3),
            88: _path(FileCall.RENAME, -1, 1), 266: _path(FileCall.RENAME, 1, 2),
            87: _path(FileCall.REMOVE, -1, 0), 84: _path(FileCall.REMOVE, -1, 0), 263: _path(FileCall.REMOVE, 0, 1),
            83: _path(FileCall.MAKE_FOLDER, -1, 0), 258: _path(FileCall.MAKE_FOLDER, 0, 1),
            **dict.fromkeys((74, 75), _SYNCS), 9: _MAPS, 42: _CONNECTS, 231: CallLayout(FileCall.EXIT),
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            56: _open(flags=2), 437: _open(),
            **dict.fromkeys((64, 68, 66, 70, 287, 46, 71), _WRITES), 285: CallLayout(FileCall.WRITE, descriptor=2),
            45: _path(FileCall.WRITE, -1, 0),
            38: _rename(0, 1, 2, 3), 276: _rename(0, 1, 2, 3), 37: _path(FileCall.RENAME, 2, 3),
            36: _path(FileCall.RENAME, 1, 2),
            35: _path(FileCall.REMOVE, 0, 1), 34: _path(FileCall.MAKE_FOLDER, 0, 1),
            **dict.fromkeys((82, 83), _SYNCS), 222: _MAPS, 203: _CONNECTS, 94: CallLayout(FileCall.EXIT),
        },
    ),
}  # fmt: skip
_ARCHITECTURE, CALLS = _TABLES.get(platform.machine(), (0, {}))

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ARGUMENTS = 16  # offset of the arguments in struct seccomp_data
_FIRST_FILE = 3  # descriptors 0 to 2 carry the log


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def is_supported_machine() -> bool:
    """Whether this machine's system call numbers are in the table."""
    return bool(CALLS)


def hold_for_tracer() -> None:
    """Stop until another process continues this one; if that one traces it, install the filter for the calls of the table.

    Setuid programs executed later gain no privileges: only root may install a filter without that restriction. If installing
    fails, the process runs without a filter.
    """
    os.kill(os.getpid(), signal.SIGSTOP)
    if _is_traced() and CALLS:
        code = _filter()
        program = _Program(len(code) // 8, ctypes.cast(ctypes.create_string_buffer(code, len(code)), ctypes.c_void_p))
        with contextlib.suppress(OSError):  # the tracer notices that no call stops
            prctl(_PR_SET_NO_NEW_PRIVS, 1)
            prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _is_traced() -> bool:
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123 (after a fork pathlib costs a millisecond)
        return any(line.startswith(b"TracerPid:") and line.split()[1] != b"0" for line in file)


def _filter() -> bytes:
    """The filter as classic BPF: the block of a call returns a verdict, or falls through to the next block."""
    blocks = [_block(number, layout) for number, layout in CALLS.items()]
    code = [_step(_LOAD, 4), _step(_JUMP_EQUAL, _ARCHITECTURE, yes=1), _step(_RETURN, _ALLOW)]
    for number, block in blocks:
        code += [_step(_LOAD, 0), _step(_JUMP_EQUAL, number, no=len(block)), *block]
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _block(number: int, layout: CallLayout) -> tuple[int, list[bytes]]:
    if layout.flags is not None:
        test = [_step(_LOAD, _ARGUMENTS + 8 * layout.flags), _step(_JUMP_ANY_BIT, layout.any_bit, no=1)]
    elif layout.descriptor is not None:
        test = [_step(_LOAD, _ARGUMENTS + 8 * layout.descriptor), _step(_JUMP_AT_LEAST, _FIRST_FILE, no=1)]
    else:
        return number, [_step(_RETURN, _TRACE)]
    return number, [*test, _step(_RETURN, _TRACE), _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """``struct sock_filter``. Arguments are little-endian 64-bit words; the filter reads their low half."""
    return struct.pack("=HBBI", code, yes, no, value)
