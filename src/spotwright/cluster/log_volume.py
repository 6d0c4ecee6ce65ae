"""Logs as files on the volume of the state folder, beside the journals of their runs.

The volume belongs to one machine, so the logs go with it. They leave the last part of it to journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.cluster.log_file import POSITION, LogFile, Position, free_and_reserve, saved_states
from spotwright.cluster.log_place import SMALL, KeptLog, LogName, drop_note
from spotwright.model.quantities import format_bytes
from spotwright.records.state_folder import StateFolder

__all__ = ["LogVolume"]


_LOG = logging.getLogger(__name__)


class LogVolume:
    """The logs of a state folder, a :class:`~spotwright.cluster.log_place.LogPlace`. ``limit`` is in bytes, for each log."""

    def __init__(self, state: StateFolder, limit: int) -> None:
        self._runs, self._limit = state.path / "runs", limit

    @property
    def about(self) -> str:
        """See :class:`LogPlace`."""
        return str(self._runs)

    def log(self, name: LogName) -> _FileLog:
        """See :class:`LogPlace`."""
        return _FileLog(LogFile(self._path(name), self._limit))

    async def unfinished(self) -> Sequence[tuple[LogName, Mapping[str, Any]]]:
        """See :class:`LogPlace`."""
        return await asyncio.to_thread(self._unfinished)

    def _unfinished(self) -> Sequence[tuple[LogName, Mapping[str, Any]]]:
        found = []
        for path in sorted(self._runs.glob(f"*/tasks/*/attempt-*/{POSITION}")):
            name, notes = _name(path.parent), _notes(path)
            if name is not None and notes is not None:
                found.append((name, notes))
        return found

    def last_line(self, name: LogName) -> float:
        """See :class:`LogPlace`: the file beside it tells."""
        path = self._path(name).with_name(POSITION)
        try:
            states = saved_states(path.read_bytes())
        except FileNotFoundError:
            return 0.0
        except OSError as error:
            _LOG.warning("%s cannot be read: %s", path, error)
            return 0.0
        notes = (states.get("after") or {}).get("notes") or {}
        return Position.from_json(notes["position"]).last / 1e9 if "position" in notes else 0.0

    async def kept(self) -> Mapping[str, Sequence[KeptLog]]:
        """See :class:`LogPlace`."""
        return await asyncio.to_thread(self._kept)

    def _kept(self) -> dict[str, list[KeptLog]]:
        found: dict[str, list[KeptLog]] = {}
        for run in os.scandir(self._runs):
            namespace, dot, _ = run.name.partition(".")
            for attempt in Path(run.path).glob("tasks/*/attempt-*") if dot else ():
                with contextlib.suppress(OSError):  # its run is deleted
                    files = {each.name: each.stat() for each in os.scandir(attempt) if each.name.startswith("log.")}
                    name = _name(attempt)
                    if "log.txt" in files and name is not None:
                        size = sum(status.st_blocks * 512 for status in files.values())
                        at = max(status.st_mtime for status in files.values())
                        found.setdefault(namespace, []).append(KeptLog(at, size, name, POSITION not in files))
        return found

    def limit(self, wanted: int, found: Mapping[str, Sequence[KeptLog]]) -> int:
        """See :class:`LogPlace`: less where the disk is nearly full, so that no namespace takes the room of the others."""
        free, reserve = free_and_reserve(self._runs)
        if not found or free >= 2 * reserve:
            return wanted
        used = sum(log.size for logs in found.values() for log in logs)
        return min(wanted, max(0, used + free - 2 * reserve) // len(found))

    async def drop(self, logs: Collection[KeptLog], why: str) -> None:
        """See :class:`LogPlace`."""
        await asyncio.to_thread(self._drop, logs, why)

    def _drop(self, logs: Collection[KeptLog], why: str) -> None:
        for log in logs:
            path = self._path(log.name)
            new = path.with_name("log.dropped")
            try:
                new.write_text("" if log.size <= SMALL else drop_note(format_bytes(log.size), why), encoding="utf-8")
                new.replace(path)
                for beside in path.parent.glob("log.tail-*"):
                    beside.unlink(missing_ok=True)
                path.with_name(POSITION).unlink(missing_ok=True)
            except OSError as error:
                _LOG.warning("%s: cannot be dropped (%s)", path, error.strerror)

    async def close(self) -> None:
        """See :class:`LogPlace`: nothing waits."""

    def _path(self, name: LogName) -> Path:
        return self._runs / name.run / "tasks" / name.task / f"attempt-{name.attempt}" / "log.txt"


class _FileLog:
    """A :class:`~spotwright.cluster.log_place.WrittenLog` in a file. Every write is done when it returns."""

    def __init__(self, file: LogFile) -> None:
        self._file = file

    @property
    def notes(self) -> Mapping[str, Any]:
        return self._file.notes

    async def is_complete(self) -> bool:
        return self._file.is_complete

    async def open(self) -> bool:
        return self._file.open()

    async def append(self, data: bytes, notes: Mapping[str, Any]) -> None:
        self._file.append(data, notes)

    def seal(self) -> None:
        """Nothing is delayed."""

    async def finish(self) -> None:
        self._file.finish()

    async def close(self) -> None:
        """Nothing waits."""


def _name(attempt: Path) -> LogName | None:
    """The log in the folder of an attempt; None for a folder that none has made."""
    number = attempt.name.removeprefix("attempt-")
    return LogName(attempt.parents[2].name, attempt.parent.name, int(number)) if number.isdecimal() else None


def _notes(path: Path) -> Mapping[str, Any] | None:
    """Whose log it is; None if that was never written in full."""
    try:
        states = saved_states(path.read_bytes())
    except OSError as error:
        _LOG.warning("%s cannot be read: %s", path, error)
        return None
    both = (state["notes"] for state in (states.get("before"), states.get("after")) if state)
    wanted = {"uid", "restart", "namespace", "pod"}
    return next((notes for notes in both if wanted <= notes.keys() and str(notes["restart"]).isdecimal()), None)
