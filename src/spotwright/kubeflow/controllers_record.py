"""Show the controller's record of a run on KFP, once it exists.

The controller sees the pods, their nodes and the notices, so its record has causes, rungs and costs, unlike KFP. Without it,
and if it is lost, KFP's status is shown. The end of the run always comes from KFP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from spotwright.engine.events import Event, NoteAdded, RunStatus
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError, UnknownRun
from spotwright.records.reader import RunReader
from spotwright.views.run_progress import Shown

__all__ = ["ControllersRecord"]

_POLL = 0.5  # seconds between two looks for the record's end
_LOST = 30.0  # seconds until a lost controller is asked again


class ControllersRecord:
    """Shows one run, from KFP's facts or the controller's. It is a :class:`~spotwright.views.run_progress.Shown`.

    ``open_record`` opens the controller's record, and raises :class:`UnknownRun` without one; None: there is no controller.
    ``reader`` is the record once it exists, ``lost`` why it cannot be read now.
    """

    def __init__(self, show: Shown) -> None:
        self._show = show
        self._state: RunState | None = None
        self.open_record: Callable[[], RunReader] | None = None
        self.reader: RunReader | None = None
        self.lost = ""
        self._again_at = 0.0

    @property
    def has_controller(self) -> bool:
        """Whether a controller can be asked."""
        return self.open_record is not None and not self.lost

    def join(self, state: RunState, /) -> None:
        """Join a running run with KFP's facts."""
        self._state = state
        self._show.join(state)

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Show KFP's facts; with the controller's record, only the notes."""
        self._state = state
        if self.reader is None:
            self._show(state, events)
            return
        notes = [event for event in events if isinstance(event, NoteAdded)]
        if notes:
            self._show(self.reader.state, notes)

    def look(self) -> None:
        """Show the controller's records since the last look."""
        if self.open_record is None or time.monotonic() < self._again_at:
            return
        try:
            if self.reader is None:
                self.reader, self.lost = self.open_record(), ""
                self._show.join(self.reader.state)
            else:
                events = self.reader.refresh()
                if events:
                    self._show(self.reader.state, events)
        except UnknownRun:
            return
        except SpotwrightError as error:
            had_one, self.lost, self.reader = self.reader is not None, str(error), None
            self._again_at = time.monotonic() + _LOST
            if had_one and self._state is not None:
                self._show.join(self._state)

    def wait_for_end(self, seconds: float) -> None:
        """Wait at most this long for the record's end, which the controller sees just after KFP."""
        ends = time.monotonic() + seconds
        self.look()
        while self.reader is not None and self.reader.state.status is RunStatus.RUNNING and time.monotonic() < ends:
            time.sleep(_POLL)
            self.look()
