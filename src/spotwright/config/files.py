"""Text from files that users name: only regular files, of a bounded size, in UTF-8; everything else is one clear line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from spotwright.errors import ConfigError

__all__ = ["read_text"]


def read_text(path: str | Path, most: int) -> str:
    """Read a file of at most ``most`` bytes as it is, line ends kept and a byte order mark left out.

    Raises :class:`ConfigError` that names the file and what is wrong with it.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
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


def _without_waiting(path: str, flags: int) -> int:
    """Open without waiting for a writer, where a user names a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
