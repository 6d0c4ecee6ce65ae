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
    """Write files, none before all of them could be, in the order given. Raises :class:`InputError`."""
    waiting: list[tuple[Path, Path]] = []
    path = Path()
    try:
        for path, text in texts:
            waiting.append((path.with_name(f".{path.name}.{os.getpid()}.tmp"), path))
            _write(*waiting[-1], text)
        for beside, path in waiting:
            beside.replace(path)
    except OSError as error:
        for beside, _ in waiting:
            beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _write(beside: Path, path: Path, text: str) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    beside.write_bytes(text.encode())
    if path.exists():
        beside.chmod(path.stat().st_mode)
