"""Files written whole or not at all, for the commands whose result is a file of the user's."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from spotwright.errors import InputError

__all__ = ["replace_file", "replace_files"]


def replace_file(path: Path, text: str) -> None:
    """Write a file in one step; the permissions of one that is there stay. Raises :class:`InputError`."""
    replace_files([(path, text)])


def replace_files(texts: Sequence[tuple[Path, str]]) -> None:
    """Write files, none before all of them could be, in the order given. Raises :class:`InputError`.

    A link stays one: what it points to is written. What is no file (``/dev/stdout``, a pipe) is written last, as it is.
    """
    waiting: dict[Path, Path] = {}
    streams: list[tuple[Path, str]] = []
    path = Path()
    try:
        for path, text in texts:
            if path.exists() and not path.is_file() and not path.is_dir():
                streams.append((path, text))
                continue
            target = Path(os.path.realpath(path))
            waiting[target] = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            _write(waiting[target], target, text)
        for path, beside in waiting.items():
            beside.replace(path)
        for path, text in streams:
            path.write_bytes(text.encode())
    except OSError as error:
        for beside in waiting.values():
            beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _write(beside: Path, path: Path, text: str) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    there = path.exists()
    if there and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    beside.write_bytes(text.encode())
    if there:
        beside.chmod(path.stat().st_mode)
