"""Write result files completely or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from spotwright.errors import InputError

__all__ = ["replace_file", "replace_files"]


def replace_file(path: Path, content: str | bytes) -> None:
    """Replace or create a file in one step; an existing file keeps its permissions. Raises :class:`InputError`."""
    replace_files([(path, content)])


def replace_files(contents: Sequence[tuple[Path, str | bytes]]) -> None:
    """Write files in the given order, after all of them could be prepared. Raises :class:`InputError`.

    A symbolic link stays a link, and its target is written. A device or pipe (``/dev/stdout``) is written directly, last.
    """
    temporary: dict[Path, Path] = {}
    streams: list[tuple[Path, bytes]] = []
    path = Path()
    try:
        for path, content in contents:
            data = content if isinstance(content, bytes) else content.encode()
            if path.exists() and not path.is_file() and not path.is_dir():
                streams.append((path, data))
                continue
            target = Path(os.path.realpath(path))
            temporary[target] = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            _prepare(temporary[target], target, data)
        for path, beside in temporary.items():
            beside.replace(path)
        for path, data in streams:
            path.write_bytes(data)
    except OSError as error:
        for beside in temporary.values():
            beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _prepare(beside: Path, path: Path, data: bytes) -> None:
    """Write the new content beside a file, with the permissions of the file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    exists = path.exists()
    if exists and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    beside.write_bytes(data)
    if exists:
        beside.chmod(path.stat().st_mode)
