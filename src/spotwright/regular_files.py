"""Read regular files of bounded size, for folders with untrusted files.

A state folder may come from an archive, a shared disk or an untrusted repository. A pipe or a device in place of a file never
ends, and a sparse file may exceed the memory. Symbolic links, which lead elsewhere, are not followed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_regular", "read_regular", "require_regular"]

_FLAGS = os.O_RDONLY
for _name in (
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "O_CLOEXEC",
    "O_BINARY",
):  # a pipe without a writer blocks; Windows has the last
    _FLAGS |= getattr(os, _name, 0)


def open_regular(path: str | Path, at_most: int) -> BinaryIO:
    """Open a regular file of at most ``at_most`` bytes for reading. Raises :class:`OSError` for anything else."""
    require_regular(os.lstat(path), at_most)  # opening a device may have effects
    file = os.fdopen(os.open(path, _FLAGS), "rb")
    try:
        require_regular(os.fstat(file.fileno()), at_most)
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: str | Path, at_most: int) -> bytes:
    """The content of a regular file of at most ``at_most`` bytes. Raises :class:`OSError` for anything else."""
    with open_regular(path, at_most) as file:
        return file.read(at_most)  # it may grow meanwhile


def require_regular(status: os.stat_result, at_most: int) -> None:
    """Raise :class:`OSError` unless this is the status of a regular file of at most ``at_most`` bytes."""
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.EINVAL, "it is a symbolic link, which is not followed")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if status.st_size > at_most:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes; at most {at_most:,} are read")
