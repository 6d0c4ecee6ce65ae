"""Reads a run without driving it: its plans, its state, and whether an engine drives it now.

Listing, showing, following and reporting need no body of the engine, so this module imports none. A reader folds each event once:
it keeps the state and the last sequence number, so the cost of a look depends on the number of new events only.

The journal is opened for each look and closed again: the last connection that closes removes SQLite's log file, and a reader may
not do that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from spotwright.engine.events import Event, RunStatus
from spotwright.engine.fold import fold
from spotwright.engine.ports import Liveness
from spotwright.engine.state import RunState
from spotwright.records.run_source import RunFiles, RunSource
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import PlanVersions

__all__ = ["RunReader"]


class RunReader:
    """The state of one run, read from its journal. Nothing is written.

    ``source``: where the run is read from, or whether the holder of a lease is alive, for a run in a state folder here.

    ``state`` and ``is_driven`` are those of the last :meth:`refresh`; the constructor makes the first one.
    Raises :class:`StateError` where the run cannot be read.
    """

    def __init__(self, folder: RunFolder, source: Liveness | RunSource) -> None:
        self.folder = folder
        self.source: RunSource = RunFiles(folder, source) if callable(source) else source
        self._begin()
        for _ in self._fold():
            continue  # without holding all events: a large run has hundreds of thousands

    def _begin(self) -> None:
        self._made_at = self.source.made_at()
        self._last = 0  # sequence number of the last event that is folded
        self.state = RunState(PlanVersions(self.folder, self.source))
        self.is_driven = False

    def refresh(self) -> list[Event]:
        """Fold the events since the last look, and return them.

        A run that was deleted and started again under the same name is read from its start.
        """
        if self.source.made_at() != self._made_at:
            self._begin()
        return list(self._fold())

    def _fold(self) -> Iterator[Event]:
        with self.source.look(self._last) as look, _no_collection():
            self.is_driven = look.is_driven
            for number, event in look.events:
                fold(self.state, event)
                self._last = number
                yield event

    def follow(self, pause: float) -> Iterator[list[Event]]:
        """The events of each further look, one every ``pause`` seconds, until no engine drives the run any more."""
        while self.is_driven and self.state.status is RunStatus.RUNNING:
            self.source.pause(pause)
            yield self.refresh()

    @property
    def now(self) -> float | None:
        """The present while an engine drives the run, else ``None``: views then count until the last event."""
        return self.source.now() if self.is_driven else None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch the garbage collector off: all objects of a fold stay, and checking them would double the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
