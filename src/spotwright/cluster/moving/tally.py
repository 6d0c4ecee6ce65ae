"""Counts what the mover did and what waits, for the metrics of this process.

The mover writes on the event loop that watches, and metrics are read on another one: each question is answered from a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

__all__ = ["Move", "Tally"]

Move = Literal["taken-back", "evicted", "deleted"]
"""Decided about an attempt that waited in vain; its pod evicted; a pod deleted whose machine is gone."""


class Tally:
    """Since this process has begun. ``is_leading``: this replica watches and moves now."""

    def __init__(self) -> None:
        self._moves: Counter[Move] = Counter({"taken-back": 0, "evicted": 0, "deleted": 0})
        self._waiting: dict[str, tuple[str, str]] = {}  # pod UID -> namespace and Kubernetes' reason
        self.is_leading = False

    def moved(self, what: Move) -> None:
        """Count one move."""
        self._moves[what] += 1

    def waits(self, uid: str, namespace: str, reason: str) -> None:
        """Note that a pod waits for a node; without a reason the scheduler has not said why."""
        self._waiting[uid] = (namespace, reason or "NotScheduledYet")

    def waits_no_more(self, uid: str) -> None:
        """Note that a pod has a node, or is gone."""
        self._waiting.pop(uid, None)

    def begin(self) -> None:
        """This replica begins to watch: what waits is found anew."""
        self._waiting.clear()
        self.is_leading = True

    def end(self) -> None:
        """This replica watches no more, and knows nothing of what waits."""
        self.is_leading = False
        self._waiting.clear()

    @property
    def moves(self) -> Mapping[Move, int]:
        """How often each move happened."""
        return dict(self._moves)

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """How many pods wait, by namespace and reason."""
        return Counter(dict(self._waiting).values())
