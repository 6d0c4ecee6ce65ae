"""Places outside of the step's own folders to which it writes by itself: a mounted volume, a shared folder.

They outlive an attempt, so a step that appends to one may append twice. A rehearsal must neither touch the real place nor let
one trial see what another left: the step is given the path of a copy, in its arguments, and each trial begins with what was
there when the step first began.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.errors import InputError
from spotwright.local.orders import StartOrder
from spotwright.rehearsal.points import SAVES

__all__ = ["KEPT", "Kept", "copy_anything", "remove_anything"]

KEPT = "kept"
"""The folder of a run with what it left in such places."""


class Kept:
    """Copies of places in ``folder``. ``places`` are absolute paths."""

    def __init__(self, places: Sequence[str], folder: Path) -> None:
        self._folder = folder.absolute()
        self._live = {
            place: self._folder / "live" / f"{n}-{Path(place).name}" for n, place in enumerate(places, start=1)
        }
        self.found: set[str] = set()
        for place, live in self._live.items():
            live.parent.mkdir(parents=True, exist_ok=True)
            copy_anything(Path(place), live)

    def rewritten(self, value: Any) -> Any:
        """A value with the copy's path wherever it names a place or something in it."""
        if isinstance(value, str):
            for place, live in self._live.items():
                if place in value:
                    self.found.add(place)
                    value = value.replace(place, str(live))
            return value
        if isinstance(value, list | tuple):
            return type(value)(self.rewritten(item) for item in value)
        if isinstance(value, Mapping):
            return {key: self.rewritten(item) for key, item in value.items()}
        return value

    def check(self) -> None:
        """Raises :class:`InputError` for a place that no argument names: the step could not be given its copy."""
        for place in self._live.keys() - self.found:
            raise InputError(
                f"--keep {place}: no argument names this place, so the step cannot be given a copy of it; "
                "make the path an argument"
            )

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Before the first attempt: what was there when the step first began. The places to watch."""
        begun = self._folder / "begun"
        if order.attempt == 1:
            for live in self._live.values():
                if begun.exists():
                    remove_anything(live)
                    copy_anything(begun / live.name, live)
                else:
                    copy_anything(live, begun / live.name)
            begun.mkdir(parents=True, exist_ok=True)
        return dict.fromkeys(self._live.values(), SAVES)

    def collect(self, run: Path) -> None:
        """After a trial: keep what it left, beside its attempts."""
        for live in self._live.values():
            copy_anything(live, run / KEPT / live.name)

    def outputs(self, run: Path) -> dict[str, Path]:
        """What a trial left, by the real names."""
        return {place: run / KEPT / live.name for place, live in self._live.items()}


def copy_anything(source: Path, target: Path) -> None:
    """Copy a file or folder; nothing where there is none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.exists():
        shutil.copy2(source, target)


def remove_anything(path: Path) -> None:
    """Remove a file or folder; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
