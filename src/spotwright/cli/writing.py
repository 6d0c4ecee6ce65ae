"""Files written whole or not at all, for the commands whose result is a file of the user's."""

from __future__ import annotations

import os
from pathlib import Path

from spotwright.errors import InputError

__all__ = ["replace_file"]


def replace_file(path: Path, text: str) -> None:
    """Write a file in one step; the permissions of one that is there stay. Raises :class:`InputError`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(text.encode())
        if path.exists():
            beside.chmod(path.stat().st_mode)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
