"""Where the facts of one run come from: its files on this machine, or a controller that serves those of a cluster.

A reader, and with it every view, asks a source alone, so a run that is read from a cluster shows what it would show locally.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import NamedTuple, Protocol

from spotwright.engine.events import Event
from spotwright.engine.ports import Liveness
from spotwright.records.journal import Journal
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import PlanTexts

__all__ = ["Look", "RunFiles", "RunSource"]


class Look(NamedTuple):
    """One look at a run: whether an engine drives it, and its new events, each with its sequence number."""

    is_driven: bool
    events: Iterator[tuple[int, Event]]


class RunSource(PlanTexts, Protocol):
    """The facts of one run. Every method may raise :class:`~spotwright.errors.SpotwrightError`."""

    def made_at(self) -> int:
        """When the run was made, in nanoseconds: another number means that another run has the name now."""

    def look(self, after: int) -> AbstractContextManager[Look]:
        """The events after a sequence number, as long as the context is open."""

    def pause(self, seconds: float) -> None:
        """Wait until the next look, which finds at least what happened up to then."""

    def now(self) -> float:
        """The present on the clock of whoever records the run, in Unix seconds."""

    def read_log(self, task: str, attempt: int, environment: str, offset: int) -> bytes:
        """What a log has from an offset on, in bytes; nothing where there is no log.

        ``environment``: the file of a build's log, or empty for the log of an attempt.
        """

    def other_run(self, name: str) -> RunSource | None:
        """Another run beside this one, if it is there."""


class RunFiles:
    """A run in a state folder on this machine."""

    def __init__(self, folder: RunFolder, is_alive: Liveness) -> None:
        self._folder, self._is_alive = folder, is_alive

    def made_at(self) -> int:
        """See :meth:`RunSource.made_at`."""
        return self._folder.made_at()

    def plan_count(self) -> int:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_count`."""
        return self._folder.plan_count()

    def plan_text(self, version: int) -> tuple[str, str]:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_text`."""
        return self._folder.plan_text(version)

    @contextmanager
    def look(self, after: int) -> Iterator[Look]:
        """See :meth:`RunSource.look`."""
        with closing(Journal.read(self._folder.journal)) as journal:
            # First the lease: once the engine is gone, the journal is complete.
            lease = journal.lease()
            is_driven = lease is not None and lease.is_held(time.time(), self._is_alive)
            yield Look(is_driven, journal.events(after))

    def pause(self, seconds: float) -> None:
        """See :meth:`RunSource.pause`."""
        time.sleep(seconds)

    def now(self) -> float:
        """See :meth:`RunSource.now`."""
        return time.time()

    def read_log(self, task: str, attempt: int, environment: str, offset: int, at_most: int = -1) -> bytes:
        """See :meth:`RunSource.read_log`. ``at_most``: bytes; -1 for all."""
        path = self._folder.environment_log(environment) if environment else self._folder.log(task, attempt)
        try:
            if path.stat().st_size <= offset:  # three times as cheap as opening it
                return b""
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(at_most)
        except FileNotFoundError:
            return b""

    def other_run(self, name: str) -> RunFiles | None:
        """See :meth:`RunSource.other_run`."""
        folder = RunFolder(self._folder.path.parent / name)
        return RunFiles(folder, self._is_alive) if folder.journal.exists() else None
