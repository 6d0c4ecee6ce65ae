"""Keeps room for journals: where the disk of the state folder is nearly full, old runs of whoever has most of it are deleted.

Whoever may create Jobs in one namespace can create so many that their journals fill the volume, and then nobody's runs are
recorded any more. Logs give way first (:mod:`spotwright.cluster.log_keeper`). Where that is not enough, the namespace whose runs
take most loses its oldest ones that have ended, until there is room again: a namespace that takes less than its share loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import NamedTuple

from spotwright.cluster.api_client import EventWriter
from spotwright.cluster.log_file import free_and_reserve
from spotwright.cluster.run_store import has_ended
from spotwright.errors import SpotwrightError
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.trash import Trash, disk_use

__all__ = ["RunQuota"]


_LOG = logging.getLogger(__name__)
_LOOK = 60.0  # seconds between two looks at the disk
_AT_ONCE = 2_000  # runs that one look deletes
_FEW_FILES = 20  # the part of all files that the disk can have, of which so few are left that it counts as nearly full


class _Kept(NamedTuple):
    """A run on the disk. ``at`` is when it last changed, ``size`` the bytes that it takes."""

    at: float
    size: int
    folder: RunFolder


class RunQuota:
    """Await :meth:`run`. ``events`` tells a namespace what it has lost."""

    def __init__(self, state: StateFolder, events: EventWriter) -> None:
        self._state, self._events = state, events

    async def run(self) -> None:
        """Look at the disk again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            await self.look()

    async def look(self) -> None:
        """Delete what has to go now."""
        try:
            deleted = await asyncio.to_thread(self._make_room)
        except (OSError, SpotwrightError) as error:
            _LOG.warning("%s: old runs cannot be deleted (%s)", self._state.path, error)
            return
        for namespace, count in deleted.items():
            text = (
                f"the disk of the controller is nearly full, and the runs of namespace {namespace} take most of it: "
                f"{'its oldest one was' if count == 1 else f'the oldest {count} of them were'} deleted with their logs"
            )
            _LOG.warning("%s", text)
            about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "namespace": namespace}}
            await self._events.write(about, "RunsDeleted", text, is_warning=True)

    def _make_room(self) -> Counter[str]:
        """Delete runs until the disk is not nearly full any more. Returns how many of each namespace were deleted."""
        deleted: Counter[str] = Counter()
        if not self._is_nearly_full():
            return deleted
        trash = Trash(self._state.path)
        for left in trash.leftovers():  # of a process that was killed
            trash.remove(left)
        runs = self._runs()
        total = Counter({namespace: sum(run.size for run in kept) for namespace, kept in runs.items()})
        while self._is_nearly_full() and total and deleted.total() < _AT_ONCE:
            namespace = total.most_common(1)[0][0]
            if not runs[namespace]:  # the rest goes on: nobody else pays for it
                break
            run = runs[namespace].popleft()
            if _may_go(run.folder):
                trash.remove(run.folder.path)
                total[namespace] -= run.size
                deleted[namespace] += 1
        return deleted

    def _is_nearly_full(self) -> bool:
        free, reserve = free_and_reserve(self._state.path)
        disk = os.statvfs(self._state.path)
        return free < reserve or disk.f_favail * _FEW_FILES < disk.f_files

    def _runs(self) -> dict[str, deque[_Kept]]:
        """The runs of each namespace, oldest first. The name of a run begins with its namespace, which has no dot."""
        found: defaultdict[str, list[_Kept]] = defaultdict(list)
        for entry in os.scandir(Path(self._state.path, "runs")):
            namespace, dot, _ = entry.name.partition(".")
            if dot and entry.is_dir(follow_symlinks=False):
                size, at = disk_use(Path(entry.path))
                found[namespace].append(_Kept(at, size, RunFolder(Path(entry.path))))
        return {namespace: deque(sorted(kept, key=lambda run: run.at)) for namespace, kept in found.items()}


def _may_go(folder: RunFolder) -> bool:
    """Whether a run has ended; one that cannot be read stays, for whoever mends it."""
    with contextlib.suppress(SpotwrightError):
        return has_ended(folder)
    return False
