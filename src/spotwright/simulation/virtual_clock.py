"""A clock that its owner moves: virtual time jumps from one event to the next."""

from __future__ import annotations

__all__ = ["VirtualClock"]


class VirtualClock:
    """The present of a simulation, in Unix seconds. Call it to read it."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def __call__(self) -> float:
        """The present moment."""
        return self.now

    def move_to(self, moment: float) -> None:
        """Move time forward to ``moment``; it never goes back."""
        self.now = max(self.now, moment)
