"""Copies of the paths outside its own folders to which a step writes by itself: a mounted volume, a shared folder.

Such paths outlive an attempt, so a step that appends to one may append twice. A rehearsal must neither change the real path nor
let one trial see the data of another. So the step's arguments name a copy instead, and each trial begins with the content
that the copy had when the step first began.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.errors import InputError
from spotwright.local.protocol import StartOrder
from spotwright.rehearsal.trials.injection_points import SAVES

__all__ = ["KEPT", "PersistedPaths", "copy_path", "remove_path"]

KEPT = "kept"
"""The folder of a run with the final content of the persisted paths."""


class PersistedPaths:
    """Copies, below ``folder``, of the absolute ``paths`` that outlive an attempt."""

    def __init__(self, paths: Sequence[str], folder: Path) -> None:
        self._folder = folder.absolute()
        self._copies = {
            path: self._folder / "live" / f"{number}-{Path(path).name}" for number, path in enumerate(paths, start=1)
        }
        self._named_paths: set[str] = set()
        for path, copy in self._copies.items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy_path(Path(path), copy)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._copies)

    def replace_in(self, value: Any) -> Any:
        """An argument with each persisted path in it, or the beginning of a longer path, replaced by its copy."""
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
        """Store the content after a trial beside its attempts."""
        for copy in self._copies.values():
            copy_path(copy, run / KEPT / copy.name)

    def outputs(self, run: Path) -> dict[str, Path]:
        """The content after a trial, by the real paths."""
        return {path: run / KEPT / copy.name for path, copy in self._copies.items()}


def copy_path(source: Path, target: Path) -> None:
    """Copy a file or folder; do nothing if it does not exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.exists():
        shutil.copy2(source, target)


def remove_path(path: Path) -> None:
    """Remove a file or folder; do nothing if it does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
