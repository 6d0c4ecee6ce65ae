"""Give each trial copies of the outside paths to which a step writes, such as a mounted volume.

So every trial begins alike, and the user's data is not changed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.errors import InputError
from spotwright.local.protocol import StartOrder
from spotwright.rehearsal.injection_points import SAVES

__all__ = ["KEPT", "PersistedPaths", "copy_path", "remove_path", "size_of"]


KEPT = "kept"
"""The folder of a run with the final content of the persisted paths."""


class PersistedPaths:
    """Copies, below ``folder``, of the absolute ``paths`` that outlive an attempt.

    ``outputs`` are paths in them whose content is stored after each trial.
    """

    def __init__(self, paths: Sequence[str], folder: Path, outputs: Sequence[str] = ()) -> None:
        self._folder = folder.absolute()
        self._copies = {
            path: self._folder / "live" / f"{number}-{Path(path).name}" for number, path in enumerate(paths, start=1)
        }
        self._outputs = tuple(outputs)
        self._named_paths: set[str] = set()

    def copy(self) -> None:
        """Make the copies, which may take long. Raises :class:`InputError` if the disk is too small."""
        for path, copy in self._copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                copy_path(Path(path), copy)
            except (OSError, shutil.Error) as error:
                raise InputError(f"--keep {path}: cannot be copied for the rehearsal: {error}") from error

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._copies)

    def replace_in(self, value: Any) -> Any:
        """Replace each persisted path in an argument, also as the beginning of a longer path, by its copy."""
        if isinstance(value, str):
            for path, copy in self._copies.items():
                if path in value:
                    self._named_paths.add(path)
                    value = value.replace(path, str(copy))
            return value
        if isinstance(value, list | tuple):
            return type(value)(self.replace_in(item) for item in value)
        if isinstance(value, Mapping):
            return {key: self.replace_in(item) for key, item in value.items()}
        return value

    def require_all_named(self) -> None:
        """Raise :class:`InputError` for a path in no argument: the step could not be redirected to its copy."""
        for path in self._copies.keys() - self._named_paths:
            raise InputError(
                f"--keep {path}: no argument names this path, so the step cannot be given a copy of it; "
                "make the path an argument"
            )

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Reset the copies before the first attempt of a trial; return the paths to watch with their area."""
        initial = self._folder / "begun"
        if order.attempt == 1:
            for copy in self._copies.values():
                if initial.exists():
                    remove_path(copy)
                    copy_path(initial / copy.name, copy)
                else:
                    copy_path(copy, initial / copy.name)
            initial.mkdir(parents=True, exist_ok=True)
        return dict.fromkeys(self._copies.values(), SAVES)

    def collect(self, run: Path) -> None:
        """Store the outputs in it after a trial beside its attempts; the rest is state and is not compared."""
        for output in self._outputs:
            for path, copy in self._copies.items():
                if Path(output).is_relative_to(path):
                    inside = Path(output).relative_to(path)
                    copy_path(copy / inside, run / KEPT / copy.name / inside)

    def content(self, run: Path) -> dict[str, Path]:
        """The content after a trial, by the real paths."""
        return {path: run / KEPT / copy.name for path, copy in self._copies.items()}


def copy_path(source: Path, target: Path) -> None:
    """Copy a file or folder; do nothing if it does not exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=_copy_file)
    elif source.exists():
        _copy_file(str(source), str(target))


_CLONE = 0x40049409  # FICLONE of ioctl_ficlone(2)


def _copy_file(source: str, target: str) -> None:
    """Copy a file with its times; on Btrfs and XFS both share their blocks until one changes."""
    if not Path(source).is_file():
        return  # a socket or a pipe cannot be copied
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        try:
            fcntl.ioctl(new.fileno(), _CLONE, old.fileno())
        except OSError:  # not supported, or the two are on different file systems
            shutil.copyfileobj(old, new, 1 << 20)
    shutil.copystat(source, target)


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; 0 if there is none."""
    if not path.is_dir():
        return path.lstat().st_size if path.exists() else 0
    return sum(os.lstat(Path(here, name)).st_size for here, _, names in os.walk(path) for name in names)


def remove_path(path: Path) -> None:
    """Remove a file or folder; do nothing if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
