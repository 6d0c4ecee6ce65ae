"""Saves in which all processes of a training fill a framework's folder: each is complete, or removed with a warning.

A full disk may fail one process's write after the others have written their part. So all processes exchange the result twice:
after their files, and after the mark. The folder of a failed save is removed, because it would keep the disk full; the previous
checkpoint stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from spotwright.checkpoint import marked_folder
from spotwright.checkpoint.attended_training import AttendedTraining
from spotwright.checkpoint.errors import SaveFailed, StaleWriter
from spotwright.checkpoint.marked_folder import MarkedFolders
from spotwright.checkpoint.place_owners import PlaceOwner
from spotwright.checkpoint.refused_write import what_refused

__all__ = ["FolderSaves", "claim_together", "is_replicated"]


def claim_together(folders: MarkedFolders, accelerator: Any, owner: PlaceOwner, *, marks: bool) -> list[str]:
    """Claim the place in the marking processes, and share the claim with all; see :meth:`MarkedFolders.claim`."""
    lines = folders.claim(owner) if marks else []
    accelerator.wait_for_everyone()
    claims = accelerator.gather(torch.tensor([folders.writer], device=accelerator.device))
    folders.writer = int(claims.max().item())
    return lines


def is_replicated(accelerator: Any) -> bool:
    """True if every process of accelerate's ``Accelerator`` has the whole model, and so can write it alone."""
    kind = str(accelerator.distributed_type.value)
    return kind == "NO" or kind.startswith("MULTI_")


class FolderSaves:
    """The saves of one training. All its processes make one, and call :meth:`save` at the same steps.

    ``accelerator`` is accelerate's. ``marks`` is True in the process that marks folders as whole.
    """

    def __init__(self, folders: MarkedFolders, training: AttendedTraining, accelerator: Any, *, marks: bool) -> None:
        self._folders, self._training, self._accelerator, self._marks = folders, training, accelerator, marks

    def save(
        self, step: int, write: Callable[[Path], object], facts: Mapping[str, Any], *, is_independent: bool = True
    ) -> bool:
        """Let ``write`` fill the folder of a step, and mark the folder as complete. Returns whether it is.

        If it is, call :meth:`AttendedTraining.end_save`; otherwise the training is notified of the failed save.
        ``is_independent``: ``write`` does not wait for other processes, so that all can continue after a failure. Raises
        :class:`StaleWriter`, and :class:`SaveFailed` if it is the first save, or others wait inside ``write``.
        """
        try:
            return self._save(step, write, facts, is_independent=is_independent)
        except StaleWriter:
            self._folders.discard()
            raise

    def _save(
        self, step: int, write: Callable[[Path], object], facts: Mapping[str, Any], *, is_independent: bool
    ) -> bool:
        folder, written = self._folders.folder_of(step), self._folders.own_folder(step)
        self._training.begin_save()
        if self._marks:
            self._folders.check()
        problem = _problem_of(lambda: _fill(written, write), folder)
        if problem and self._marks:
            self._folders.check()  # a successor has moved the folder aside
        if problem and not is_independent and self._accelerator.num_processes > 1:
            raise SaveFailed(f"{problem}; the other processes are waiting in this save, so the training ends")
        has_failed = self._is_of_any(bool(problem))
        saved_before = False
        if self._marks:
            problem = problem or ("" if has_failed else _problem_of(lambda: self._commit(step, facts), folder))
            has_failed = has_failed or bool(problem)
            if has_failed:
                self._folders.discard()
                saved_before = self._folders.newest() is not None
        has_failed = self._is_of_any(has_failed)  # a process that leaves earlier takes the others with it
        if has_failed:
            self._training.fail_save(problem, saved_before=self._is_of_any(saved_before))
        return not has_failed

    def _commit(self, step: int, facts: Mapping[str, Any]) -> None:
        marked_folder.mark_whole(self._folders.own_folder(step), facts)
        self._folders.put(step)

    def _is_of_any(self, mine: bool) -> bool:
        """True if this is true in any process."""
        if self._training.is_alone:
            return mine
        value = torch.tensor([int(mine)], device=self._accelerator.device)
        return bool(self._accelerator.gather(value).max().item())


def _fill(folder: Path, write: Callable[[Path], object]) -> None:
    write(folder)
    marked_folder.sync_files(folder)


def _problem_of(act: Callable[[], object], folder: Path) -> str:
    """Return why a write failed, in words; empty if it succeeded."""
    try:
        act()
    except Exception as error:
        if (refused := what_refused(error, folder)) is None:
            raise
        return refused
    return ""
