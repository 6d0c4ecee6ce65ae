"""Delete folders so that a kill at any moment leaves each of them whole or in the trash.

A folder is first renamed into the trash, in one atomic step, and removed from there. So no process ever reads half of a run.
The next ``prune`` removes the remains of a killed one from the trash. Symbolic links are never followed: a link inside a folder
is removed as a link, and a path through a link is refused, because its target may belong to another user.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from spotwright.errors import StateError

__all__ = ["Trash"]


class Trash:
    """A folder for deleted folders. It is in the home folder, and may only delete what is in the home folder too."""

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
        """Delete a file or folder below the home folder; one that is gone already counts as deleted.

        Raises :class:`StateError` if it cannot be deleted, or only through a symbolic link.
        """
        refusal = self.refusal(path) or self.refusal(self.folder)
        if refusal:
            raise StateError(f"{path}: is left alone: {refusal}")
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
