"""Keeps room on the disk of the state folder: how much of it the runs of a namespace may take.

Whoever may create Jobs in one namespace can
create so many, too, that their journals fill the volume, and then nobody's runs are recorded any more. So where the disk is
nearly full, the namespace whose runs take most loses its oldest ones that have ended, until there is room again. Where none of
them has ended, the recording of its largest run is cut, which then counts as one that has. A namespace that takes less than its
share loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.cluster.api_client import EventWriter
from spotwright.cluster.run_records import has_ended
from spotwright.cluster.run_store import WorkloadRun
from spotwright.errors import SpotwrightError
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.trash import Trash, disk_use

__all__ = ["RunQuota"]


_LOG = logging.getLogger(__name__)
_RESERVE = 256 << 20  # bytes of a disk that stay free; of a small disk a tenth
_LOOK = 60.0  # seconds between two looks at the disk
_AT_ONCE = 2_000  # runs that one look deletes
_FULL = "the disk of the controller is nearly full, and its namespace takes most of it"
_FEW_FILES = 20  # the part of all files that the disk can have, of which so few are left that it counts as nearly full


class _Kept(NamedTuple):
    """A run on the disk. ``at`` is when it last changed, ``size`` the bytes that it takes."""

    at: float
    size: int
    folder: RunFolder


class RunQuota:
    """Await :meth:`run`. ``events`` tells a namespace what it has lost.

    ``cut`` cuts the recording of the largest run of a namespace that goes on, for a reason; false: there is none.
    """

    def __init__(
        self, state: StateFolder, events: EventWriter, cut: Callable[[str, str], bool] = lambda *_: False
    ) -> None:
        self._state, self._events, self._cut = state, events, cut
        self._cuts: dict[str, tuple[str, int]] = {}  # by namespace: the first one that was not told, and how many

    def heard(self, run: WorkloadRun) -> None:
        """Hear of a run whose recording was cut: its namespace is told with the next look."""
        first, count = self._cuts.get(run.namespace, (f"run {run.folder.name}: {run.state.why}", 0))
        self._cuts[run.namespace] = first, count + 1

    async def run(self) -> None:
        """Look at the disk again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            await self.look()

    async def look(self) -> None:
        """Delete what has to go now, and tell what was lost."""
        deleted: Counter[str] = Counter()
        try:
            while True:
                more, goes_on = await asyncio.to_thread(self._make_room)
                deleted += more
                if not goes_on or not self._cut(goes_on, _FULL):
                    break
        except (OSError, SpotwrightError) as error:
            _LOG.warning("%s: old runs cannot be deleted (%s)", self._state.path, error)
        await self._tell_deleted(deleted)
        await self._tell_cut()

    async def _tell_cut(self) -> None:
        """Write an Event about the first run of each namespace whose recording was cut."""
        cuts, self._cuts = self._cuts, {}
        for namespace, (first, count) in cuts.items():
            text = first if count == 1 else f"{first} (the first of {count} runs that were cut)"
            await self._events.write(_namespace(namespace), "RecordingCut", text, is_warning=True)

    async def _tell_deleted(self, deleted: Mapping[str, int]) -> None:
        for namespace, count in deleted.items():
            text = (
                f"the disk of the controller is nearly full, and the runs of namespace {namespace} take most of it: "
                f"{'its oldest one was' if count == 1 else f'the oldest {count} of them were'} deleted with their logs"
            )
            _LOG.warning("%s", text)
            await self._events.write(_namespace(namespace), "RunsDeleted", text, is_warning=True)

    def _make_room(self) -> tuple[Counter[str], str]:
        """Delete runs until the disk is not nearly full any more.

        Returns how many of each namespace were deleted, and the namespace that takes most though none of its runs has ended;
        empty if there is room again.
        """
        deleted: Counter[str] = Counter()
        if not self._is_nearly_full():
            return deleted, ""
        trash = Trash(self._state.path)
        for left in trash.leftovers():  # of a process that was killed
            trash.remove(left)
        runs = self._runs()
        total = Counter({namespace: sum(run.size for run in kept) for namespace, kept in runs.items()})
        while self._is_nearly_full() and total and deleted.total() < _AT_ONCE:
            namespace = total.most_common(1)[0][0]
            if not runs[namespace]:  # the rest goes on: nobody else pays for it
                return deleted, namespace
            run = runs[namespace].popleft()
            if _may_go(run.folder):
                trash.remove(run.folder.path)
                total[namespace] -= run.size
                deleted[namespace] += 1
        return deleted, ""

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


def free_and_reserve(folder: Path) -> tuple[int, int]:
    """The bytes that are free on the disk of a folder, and those that are left free. Raises :class:`OSError`."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, min(_RESERVE, disk.f_blocks * disk.f_frsize // 10)


def _namespace(name: str) -> dict[str, Any]:
    """A namespace as what an Event in it is about."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "namespace": name}}


def _may_go(folder: RunFolder) -> bool:
    """Whether a run has ended; one that cannot be read stays, for whoever mends it."""
    with contextlib.suppress(SpotwrightError):
        return has_ended(folder)
    return False
