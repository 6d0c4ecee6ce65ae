"""Reads text files that users name: regular files of a bounded size in UTF-8; anything else is refused with one line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from spotwright.errors import ConfigError

__all__ = ["read_text"]


def read_text(path: str | Path, most: int) -> str:
    """Read a file of at most ``most`` bytes, with its line ends and without its byte order mark.

    Raises :class:`ConfigError` that names the file and its problem.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: expected a file, found a folder or a device")
            data = file.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    if len(data) > most:
        raise ConfigError(f"{path}: expected at most {most} bytes, found more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: expected UTF-8 text, found the byte 0x{data[error.start]:02x}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that a user names is opened without waiting for its writer. Windows has no such flag or file."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
