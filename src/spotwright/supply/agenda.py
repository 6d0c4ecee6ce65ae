"""An agenda of actions at future moments, on a clock that the caller moves."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Agenda"]


class Agenda:
    """Actions in the order of their moments; actions of the same moment in the order in which they were entered."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[[float], None]]] = []
        self._entered = 0

    def at(self, moment: float, action: Callable[[float], None]) -> None:
        """Call ``action`` with this moment once time has reached it."""
        self._entered += 1
        heapq.heappush(self._entries, (moment, self._entered, action))

    def next_moment(self) -> float | None:
        """The moment of the earliest action; ``None`` without one."""
        return self._entries[0][0] if self._entries else None

    def run_until(self, now: float) -> None:
        """Run the actions that are due, including those that these actions enter."""
        while self._entries and self._entries[0][0] <= now:
            moment, _, action = heapq.heappop(self._entries)
            action(moment)

    def clear(self) -> None:
        """Forget every action."""
        self._entries.clear()
