"""Recorded traces of spot capacity: the number of available nodes over time. :mod:`spotwright.config` reads them from files."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Trace"]


class Trace(NamedTuple):
    """A recording of spot capacity: ``counts[i]`` nodes were available from ``i * gap`` seconds after its start on.

    ``gap`` is more than 0; there is at least one count, and none is negative.
    """

    gap: float
    counts: tuple[int, ...]

    @property
    def length(self) -> float:
        """Duration of the recording in seconds."""
        return self.gap * len(self.counts)
