"""Which files a client may name: those of the project's folder. Links are followed before that is decided."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spotwright.config import FILE_NAME
from spotwright.errors import InputError

__all__ = ["Project"]


class Project(NamedTuple):
    """The folder and the state folder that a server reads. ``writes``: it may cancel runs, write files and run Python files."""

    folder: Path
    state: Path
    writes: bool

    def file(self, name: str) -> Path:
        """The file that a client names, with links followed. Raises :class:`InputError` for one outside, and for a folder."""
        try:
            path = (self.folder / name).resolve()
            is_file = path.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # a null byte, a name too long, links in a circle
            raise InputError(f"{name!r} is not the name of a file") from error
        if not path.is_relative_to(self.folder):
            raise InputError(f"{name!r} is outside the project folder {self.folder}: name a file in it")
        if not is_file:
            raise InputError(f"{name!r} is not a file of the project folder {self.folder}")
        return path

    def config(self, file: Path) -> list[str]:
        """The options that name the configuration of a file. Raises :class:`InputError` where that would be one outside."""
        for folder in [each for each in file.parents if each.is_relative_to(self.folder)]:
            if os.path.lexists(folder / FILE_NAME):
                return ["--config", str(self.file(str(folder / FILE_NAME)))]
        outside = next((each for each in self._above() if os.path.lexists(each / FILE_NAME)), None)
        if outside is not None:
            raise InputError(
                f"{outside / FILE_NAME} is outside the project folder: start spotwright mcp --project {outside}"
            )
        return []

    def _above(self) -> Sequence[Path]:
        """The folders above that one's repository has, where a command would look for a configuration."""
        folders = [self.folder, *self.folder.parents]
        root = next((number for number, each in enumerate(folders) if os.path.lexists(each / ".git")), 0)
        return folders[1 : root + 1]
