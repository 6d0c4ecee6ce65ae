"""The folders that stand for a task's persistent volume claims (PVCs) in a rehearsal.

A claim outlives the attempts of a task, and no trial may see the data of another one. A claim is a folder of the state folder,
mounted where the pipeline says. When the step first begins, the content of its claims is copied; each trial begins with that
copy. The content after a trial is an output of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from spotwright.local.protocol import StartOrder
from spotwright.rehearsal.trials.injection_points import SAVES
from spotwright.rehearsal.trials.persisted_paths import KEPT, copy_path, remove_path

__all__ = ["PvcFolders"]


class PvcFolders:
    """The claims of every task that is rehearsed, with their initial content below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mounts: dict[str, list[tuple[str, Path]]] = {}  # by task: mount path, and folder of the claim

    def prepare(self, order: StartOrder) -> dict[Path, str]:
        """Reset the claims before the first attempt of a trial; return the folders and mount paths to watch with their area."""
        mounts = self._mounts[order.task] = list(_claim_mounts(order))
        for target, source in mounts:
            initial = self._folder / _file_name(order.task) / _file_name(target)
            if order.attempt == 1 and initial.exists():
                remove_path(source)
                copy_path(initial, source)
            elif order.attempt == 1:
                copy_path(source, initial)
        return {Path(path): SAVES for mount in mounts for path in mount}

    def has_any(self, task: str) -> bool:
        """Whether the task mounts claims."""
        return bool(self._mounts.get(task))

    def collect(self, run: Path, task: str) -> None:
        """Store the content of a task's claims after a trial, beside its attempts."""
        for target, source in self._mounts.get(task, ()):
            copy_path(source, run / KEPT / "claims" / _file_name(target))

    def outputs(self, run: Path, task: str) -> dict[str, Path]:
        """The content of the claims after a trial, by mount path."""
        return {target: run / KEPT / "claims" / _file_name(target) for target, _ in self._mounts.get(task, ())}


def _claim_mounts(order: StartOrder) -> Iterator[tuple[str, Path]]:
    """Mount path and folder of each claim; the attempt's own empty folders are not claims."""
    for mount in order.mounts:
        source = str(mount.get("source", ""))
        if source and not source.startswith(f"{order.directory}/"):
            yield str(mount["target"]), Path(source)


def _file_name(text: str) -> str:
    return quote(text, safe="")
