"""The items of a state folder that take space, and their deletion: a kill at any moment leaves each folder whole or in the trash.

``prune`` decides about items and reports them. A folder is first renamed into the trash, atomically, and removed from there, so
that processes never read half of a run. The next ``prune`` removes the remains of a killed one from the trash. Symbolic links
are never followed: a link inside a folder is removed as a link, and a path through a link is refused, because its target may
belong to another user.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from spotwright.errors import StateError

__all__ = ["DiskUse", "Item", "Sort", "Trash", "disk_use"]


class Trash:
    """A folder for deleted folders, in the home folder; it deletes only paths in the home folder."""

    def __init__(self, home: Path, name: str = "trash") -> None:
        self._home, self.folder = home, home / name

    def leftovers(self) -> list[Path]:
        """The remains of killed processes in the trash."""
        if self.folder.is_symlink() or not self.folder.is_dir():
            return []
        return sorted(self.folder.iterdir())

    def refusal(self, path: Path) -> str:
        """Why this path may not be deleted; empty if it may."""
        link = next((each for each in (path, *self._between(path)) if each.is_symlink()), None)
        return f"{link} is a symbolic link" if link is not None else ""

    def _between(self, path: Path) -> list[Path]:
        """The folders between the home folder and the path, which may not be links; the home folder itself may be one."""
        names = path.relative_to(self._home).parts[:-1]
        return [self._home.joinpath(*names[: count + 1]) for count in range(len(names))]

    def remove(self, path: Path) -> None:
        """Delete a file or folder below the home folder; a missing one counts as deleted.

        Raises :class:`StateError` if it cannot be deleted, or only through a symbolic link.
        """
        refusal = self.refusal(path) or self.refusal(self.folder)
        if refusal:
            raise StateError(f"{path}: not deleted: {refusal}")
        try:
            if path.parent != self.folder:
                self.folder.mkdir(exist_ok=True)
                path = path.rename(self.folder / f"{path.name}.{secrets.token_hex(4)}")
            _delete(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(f"{error.filename or path}: cannot be deleted ({error.strerror})") from error


def _delete(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        _make_writable(path)
        shutil.rmtree(path)


def _make_writable(path: Path) -> None:
    """Let the owner empty the folders below this one: a task may have made its outputs read-only."""
    path.chmod(0o700)
    for folder, names, _ in os.walk(path):
        for name in names:
            inside = Path(folder, name)
            if not inside.is_symlink():
                inside.chmod(0o700)


class Sort(StrEnum):
    """The sorts of items, in the order in which they are deleted."""

    RUN = "runs"
    REHEARSAL = "rehearsals"
    CHECKPOINT = "checkpoints"
    RESULT = "cached results"
    ENVIRONMENT = "environments"
    LEFTOVER = "leftovers"  # of a killed prune, and of runs that were killed before they began


@dataclass(frozen=True, slots=True)
class Item:
    """One item. ``used_at`` is in Unix seconds, ``size`` in bytes; ``kept`` is the reason why it stays.

    ``detail`` is the status of a run.
    """

    sort: Sort
    name: str
    path: Path
    used_at: float
    size: int
    kept: str = ""
    detail: str = ""


_BLOCK = 512  # bytes in a unit of st_blocks on every file system; see stat(2)


class DiskUse(NamedTuple):
    """The bytes that a file or folder takes on its disk, and its last change, in Unix seconds."""

    size: int
    changed_at: float


def disk_use(path: Path) -> DiskUse:
    """Measure a file or folder without following links. Files that vanish meanwhile or cannot be read do not count."""
    size, changed_at = 0, 0.0
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            status = here.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += here.iterdir()
        except OSError:
            continue
        size += getattr(status, "st_blocks", status.st_size // _BLOCK) * _BLOCK
        changed_at = max(changed_at, status.st_mtime)
    return DiskUse(size, changed_at)
