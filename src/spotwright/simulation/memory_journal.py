"""A journal in memory, for runs that end with their process."""

from __future__ import annotations

from collections.abc import Sequence

from spotwright.engine.events import Event

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """The events of a run, in the order in which they were committed."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Sequence[Event]) -> None:
        """Append events."""
        self.events += events
