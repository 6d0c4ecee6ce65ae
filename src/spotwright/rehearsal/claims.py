"""Persistent volume claims of a task in a rehearsal: they outlive its attempts, and no trial may see what another one left.

A claim is a folder of the state folder, mounted where the pipeline says. When the step first begins, what is in its claims is
copied; each trial begins with that again. What the claims hold at the end is an output of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from spotwright.local.orders import StartOrder
from spotwright.rehearsal.kept import KEPT, copy_anything, remove_anything
from spotwright.rehearsal.points import SAVES

__all__ = ["Claims"]


class Claims:
    """The claims of every task that is rehearsed, copied below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mounted: dict[str, list[tuple[str, Path]]] = {}

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Before the first attempt: what the claims held when the step first began. The places to watch, from both sides."""
        mounted = self._mounted[order.task] = list(_claims(order))
        for target, source in mounted:
            begun = self._folder / _name(order.task) / _name(target)
            if order.attempt == 1 and begun.exists():
                remove_anything(source)
                copy_anything(begun, source)
            elif order.attempt == 1:
                copy_anything(source, begun)
        return {Path(path): SAVES for pair in mounted for path in pair}

    def collect(self, run: Path, task: str) -> None:
        """After a trial of a task: keep what its claims hold, beside its attempts."""
        for target, source in self._mounted.get(task, ()):
            copy_anything(source, run / KEPT / "claims" / _name(target))

    def outputs(self, run: Path, task: str) -> dict[str, Path]:
        """What a trial left in the claims, by where they are mounted."""
        return {target: run / KEPT / "claims" / _name(target) for target, _ in self._mounted.get(task, ())}


def _claims(order: StartOrder) -> Iterator[tuple[str, Path]]:
    """Where each claim is mounted, and the folder that stands for it; an attempt's own empty folders are none."""
    for mount in order.mounts:
        source = str(mount.get("source", ""))
        if source and not source.startswith(f"{order.directory}/"):
            yield str(mount["target"]), Path(source)


def _name(text: str) -> str:
    return quote(text, safe="")
