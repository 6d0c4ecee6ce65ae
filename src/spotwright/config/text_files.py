"""Reads the texts that users name, of a bounded size and in UTF-8; anything else is refused with one line that names the file.

Two sorts of names differ. A configuration names regular files, so that a pipe or a device there is a mistake. A command line may
also name a pipe, as shells do for the output of another command, and ``-``, which is standard input.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from spotwright.errors import ConfigError, InputError
from spotwright.model.quantities import format_bytes

__all__ = ["MOST_MANIFESTS", "STANDARD_INPUT", "name_of", "read_bounded", "read_input", "read_text"]

MOST_MANIFESTS = 64 * 2**20
"""Bytes of the largest file of manifests: a list of all pods of a large cluster has half of it."""

STANDARD_INPUT = Path("-")
"""The name of standard input on a command line."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: str | Path, most: int) -> str:
    """Read a file of at most ``most`` bytes, with its line ends and without its byte order mark.

    Raises :class:`ConfigError` that names the file and its problem.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: expected a file, found a folder or a device")
            return _decoded(read_bounded(file, most, str(path)), str(path)).removeprefix("\ufeff")
    except InputError as error:
        raise ConfigError(str(error)) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ConfigError(f"{path}: cannot be read: {_reason(error)}") from None


def read_input(path: Path, most: int = MOST_MANIFESTS, advice: str = "split it") -> str:
    """Read a file, a pipe or standard input whole, with its line ends and its byte order mark.

    ``advice`` says what to do with a larger one. Raises :class:`InputError` that names the file and its problem.
    """
    name = name_of(path)
    try:
        if path == STANDARD_INPUT:
            return _decoded(read_bounded(sys.stdin.buffer, most, name, advice), name)
        with path.open("rb") as file:
            return _decoded(read_bounded(file, most, name, advice), name)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be read: {_reason(error)}") from None


def name_of(path: Path) -> str:
    """A file of the command line as messages name it."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def read_bounded(file: BinaryIO, most: int, name: str, advice: str = "") -> bytes:
    """Read a file to its end, of which no more than ``most`` bytes are taken. Raises :class:`InputError` if there are more."""
    data = file.read(most + 1)
    if len(data) > most:
        limit = f"{most} bytes" if most % 2**20 else format_bytes(most)
        raise InputError(f"{name}: expected at most {limit}, found more{advice and f': {advice}'}")
    return data


def _decoded(data: bytes, name: str) -> str:
    if b"\0" in data[:8192] and not data.startswith(_UTF_16):
        raise InputError(f"{name}: expected text, found a binary file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        found = f"found the byte 0x{data[error.start]:02x}: save it as UTF-8 (in PowerShell, > writes UTF-16)"
        raise InputError(f"{name}:{line}: expected UTF-8 text, {found}") from None


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that a user names is opened without waiting for its writer. Windows has no such flag or file."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
