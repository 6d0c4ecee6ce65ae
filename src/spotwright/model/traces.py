"""Recorded traces: how many nodes could be had at each moment of a recording. Read from files by :mod:`spotwright.config`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Trace"]


@dataclass(frozen=True, slots=True)
class Trace:
    """A recording of spot supply: ``counts[i]`` nodes could be had from ``i * gap`` seconds after its start to the next count.

    ``gap`` is in seconds and more than 0; there is at least one count, and none is negative.
    """

    gap: float
    counts: tuple[int, ...]

    @property
    def length(self) -> float:
        """Seconds that the recording covers."""
        return self.gap * len(self.counts)
