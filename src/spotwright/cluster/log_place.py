"""The port to the place of attempts' logs: keepers and followers depend on it instead of a store or the API.

It has two implementations: parts in an object store or a folder (:mod:`spotwright.cluster.log_store`), and without one the last
bytes of each attempt in its SpotAttempt (:mod:`spotwright.cluster.log_tails`). Both store a log with its owner's notes,
including the read position in the pod's log, so that a successor continues after the last stored bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from spotwright.errors import SpotwrightError
from spotwright.records.state_folder import RunFolder

__all__ = [
    "KeptLog",
    "LogName",
    "LogPlace",
    "Overtaken",
    "PlaceAway",
    "WrittenLog",
    "drop_note",
    "logs_to_drop",
    "owner_notes",
]


SMALL = 8192
"""Bytes: shorter logs are dropped without a note."""


class PlaceAway(OSError):
    """The place is unreachable now. It reports that itself, once for all logs."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EIO, why)

    def __str__(self) -> str:
        return str(self.strerror)


class Overtaken(SpotwrightError):
    """Another process has already written this part of a log."""


class LogName(NamedTuple):
    """The log of one attempt. ``task`` is its path as the name of a folder; see :meth:`of`. Empty: see :attr:`is_archive`."""

    run: str
    task: str
    attempt: int

    @classmethod
    def of(cls, folder: RunFolder, task: str, attempt: int) -> LogName:
        """The log of an attempt of a run, by the path of its task."""
        return cls(folder.name, folder.attempt(task, attempt).parent.name, attempt)

    @property
    def namespace(self) -> str:
        """The namespace: the name of a workload's run begins with it, and names of namespaces do not contain dots. Else empty."""
        namespace, dot, _ = self.run.partition(".")
        return namespace if dot else ""

    @property
    def is_archive(self) -> bool:
        """Whether this names the archive of a run together with all logs of the run."""
        return not self.task

    @property
    def title(self) -> str:
        """Its task and attempt, for people."""
        if self.is_archive:
            return "the archive of the run and all its logs"
        return f"{unquote(self.task.replace('+', '/'))} attempt {self.attempt}"


class KeptLog(NamedTuple):
    """A stored log. ``at`` is when it was last written, in Unix seconds; ``size`` its bytes."""

    at: float
    size: int
    name: LogName
    is_complete: bool


class WrittenLog(Protocol):
    """One log, for its writer."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """Its owner's notes that came with the last bytes."""

    async def is_complete(self) -> bool:
        """Whether the log was finished, by this process or another. Raises :class:`OSError`."""

    async def open(self) -> bool:
        """Resume an earlier process's log; False without one. Raises :class:`OSError`."""

    async def append(self, data: bytes, notes: Mapping[str, Any]) -> None:
        """Write bytes together with its owner's notes, or queue them until the place accepts them."""

    def seal(self) -> None:
        """Write without delay from now on: its pod was notified of an interruption, or is being deleted."""

    async def finish(self) -> None:
        """Mark the log complete. Raises :class:`OSError`."""

    async def close(self) -> None:
        """Stop writing; discard unwritten bytes."""


class LogPlace(Protocol):
    """Where logs are stored. ``about`` names it in messages."""

    @property
    def about(self) -> str:
        """The folder, or the address without secrets."""

    def log(self, name: LogName, task: str) -> WrittenLog:
        """The log of this name, for writing. ``task`` is the path of its task; empty for a log from :meth:`unfinished`."""

    async def unfinished(self) -> Sequence[tuple[LogName, Mapping[str, Any]]]:
        """The logs that an earlier process did not finish, with their owners' notes. Raises :class:`OSError`."""

    async def kept(self) -> Mapping[str, Sequence[KeptLog]]:
        """All logs by namespace. Raises :class:`OSError`."""

    def limit(self, wanted: int, found: Mapping[str, Sequence[KeptLog]]) -> int:
        """The limit of each namespace in bytes: ``wanted``, or less if the place has less room."""

    async def drop(self, logs: Collection[KeptLog], why: str) -> list[KeptLog]:
        """Replace each log by a line that says why it was dropped; a shorter log is just deleted.

        Returns the dropped logs: some may already be gone, and others cannot be dropped now.
        """

    async def close(self) -> None:
        """Write the queued bytes, for at most a few seconds."""


def logs_to_drop(logs: Sequence[KeptLog], limit: int) -> list[KeptLog]:
    """The logs to drop, oldest first: archived runs, dropped logs' lines, short ones, active ones."""
    left, dropped = sum(log.size for log in logs) - limit, list[KeptLog]()
    order = sorted(logs, key=lambda log: (not log.name.is_archive, not log.is_complete, log.size <= SMALL, log.at))
    for log in order:
        if left <= 0:
            break
        if log.size:
            dropped.append(log)
            left -= log.size
    return dropped


def drop_note(size: str, why: str) -> str:
    """The line that replaces a dropped log."""
    return f"[spotwright: this log of {size} was dropped: {why}]\n"


def owner_notes(text: bytes | str) -> Mapping[str, Any] | None:
    """The notes of an incomplete log's owner; None if they do not name the owner."""
    try:
        notes = msgspec.json.decode(text, type=dict[str, Any])
    except ValueError:
        return None
    wanted = {"uid", "restart", "namespace", "pod"}
    return notes if wanted <= notes.keys() and str(notes["restart"]).isdecimal() else None
