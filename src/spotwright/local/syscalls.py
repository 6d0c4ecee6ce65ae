"""The system calls that change files, and a filter that stops a process at them and at no other: what a rehearsal looks at.

An attempt that is *held* stops itself before the user's code begins and lets whoever rehearses it attach as its tracer. Only
if somebody did, it installs a seccomp filter, so that it runs at full speed but for calls that open files for writing, write,
rename, remove, or end the process. Without a tracer those calls would fail, so without one nothing is installed.

Numbers are ABI: ``asm/unistd_64.h`` (x86-64), ``asm-generic/unistd.h`` (aarch64), ``linux/filter.h``, ``linux/seccomp.h``.
Read by the fork server too, so it imports nothing outside the standard library.
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

from . import kernel

__all__ = ["CALLS", "Call", "Spec", "hold", "is_known_machine"]


class Call(Enum):
    """What a system call does to a file."""

    OPEN = "open"  # for writing
    WRITE = "write"
    RENAME = "rename"  # or link: a name appears in one step
    REMOVE = "remove"
    MAKE = "make"  # a folder
    EXIT = "exit"


class Spec(NamedTuple):
    """Where a call's file is: the argument that is its descriptor, or those that are its folder's and its path.

    A folder of ``-1`` is the current one. ``flags`` is the argument with the flags of ``open``, where the filter can see it.
    """

    call: Call
    descriptor: int | None = None
    folder: int = -1
    path: int | None = None
    flags: int | None = None


def _path(call: Call, folder: int, path: int) -> Spec:
    return Spec(call, folder=folder, path=path)


_WRITES = Spec(Call.WRITE, descriptor=0)
_TABLES: dict[str, tuple[int, dict[int, Spec]]] = {
    "x86_64": (
        0xC000003E,
        {
            2: Spec(Call.OPEN, flags=1), 85: Spec(Call.OPEN), 257: Spec(Call.OPEN, flags=2), 437: Spec(Call.OPEN),
            **dict.fromkeys((1, 18, 20, 296, 328, 77, 40), _WRITES), 326: Spec(Call.WRITE, descriptor=2),
            76: _path(Call.WRITE, -1, 0),
            82: _path(Call.RENAME, -1, 1), 264: _path(Call.RENAME, 2, 3), 316: _path(Call.RENAME, 2, 3),
            86: _path(Call.RENAME, -1, 1), 265: _path(Call.RENAME, 2, 3),
            87: _path(Call.REMOVE, -1, 0), 84: _path(Call.REMOVE, -1, 0), 263: _path(Call.REMOVE, 0, 1),
            83: _path(Call.MAKE, -1, 0), 258: _path(Call.MAKE, 0, 1), 231: Spec(Call.EXIT),
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            56: Spec(Call.OPEN, flags=2), 437: Spec(Call.OPEN),
            **dict.fromkeys((64, 68, 66, 70, 287, 46, 71), _WRITES), 285: Spec(Call.WRITE, descriptor=2),
            45: _path(Call.WRITE, -1, 0),
            38: _path(Call.RENAME, 2, 3), 276: _path(Call.RENAME, 2, 3), 37: _path(Call.RENAME, 2, 3),
            35: _path(Call.REMOVE, 0, 1), 34: _path(Call.MAKE, 0, 1), 94: Spec(Call.EXIT),
        },
    ),
}  # fmt: skip
_ARCHITECTURE, CALLS = _TABLES.get(platform.machine(), (0, {}))

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ARGUMENTS = 16  # where they begin in struct seccomp_data
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FIRST_FILE = 3  # what is written to standard output and error is a log


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def is_known_machine() -> bool:
    """Whether the numbers of this machine's system calls are known here."""
    return bool(CALLS)


def hold() -> None:
    """Stop until somebody lets this process go on; where that is its tracer by then, stop for it at every call of the table.

    Setuid programs that are executed later gain no privileges: without that the kernel takes a filter from root alone. Where no
    filter can be installed, the process runs as it is.
    """
    os.kill(os.getpid(), signal.SIGSTOP)
    if _is_traced() and CALLS:
        code = _filter()
        program = _Program(len(code) // 8, ctypes.cast(ctypes.create_string_buffer(code, len(code)), ctypes.c_void_p))
        with contextlib.suppress(OSError):  # its tracer sees that no call stops
            kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1)
            kernel.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _is_traced() -> bool:
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123 (after a fork pathlib costs a millisecond)
        return any(line.startswith(b"TracerPid:") and line.split()[1] != b"0" for line in file)


def _filter() -> bytes:
    """The filter as classic BPF: each block ends the program or falls through to the next one."""
    blocks = [_block(number, spec) for number, spec in CALLS.items()]
    code = [_step(_LOAD, 4), _step(_JUMP_EQUAL, _ARCHITECTURE, yes=1), _step(_RETURN, _ALLOW)]
    for number, block in blocks:
        code += [_step(_LOAD, 0), _step(_JUMP_EQUAL, number, no=len(block)), *block]
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _block(number: int, spec: Spec) -> tuple[int, list[bytes]]:
    if spec.flags is not None:
        test = [_step(_LOAD, _ARGUMENTS + 8 * spec.flags), _step(_JUMP_ANY_BIT, _FOR_WRITING, no=1)]
    elif spec.descriptor is not None:
        test = [_step(_LOAD, _ARGUMENTS + 8 * spec.descriptor), _step(_JUMP_AT_LEAST, _FIRST_FILE, no=1)]
    else:
        return number, [_step(_RETURN, _TRACE)]
    return number, [*test, _step(_RETURN, _TRACE), _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """``struct sock_filter``; arguments are little-endian 64-bit words, of which the low half is looked at."""
    return struct.pack("=HBBI", code, yes, no, value)
