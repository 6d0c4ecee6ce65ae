"""Snapshots: the answers of the world that one round of decisions uses.

A decision may ask whether a pool has room and why an attempt has no node. Each question is asked once a round, so all decisions
of a round see the same world. The answers that were used go into the journal as a
:class:`~spotwright.engine.events.SnapshotTaken` before the decisions, so a replay needs no world.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from spotwright.engine.events import SnapshotTaken
from spotwright.engine.state import TaskState

__all__ = ["Answers", "Snapshot"]


class Answers(Protocol):
    """The questions of decisions; the world answers them."""

    def has_room(self, pool: str) -> bool:
        """Whether the pool has or could add a node with room now, as far as the body knows."""

    def why_pending(self, task: TaskState) -> str:
        """Why the task's newest attempt has no node yet, as text for the user."""


class Snapshot:
    """The answers of one round of decisions.

    Without a world (in replays, and when a run is recovered) the answers are those of ``room`` and ``waiting``; by default every
    pool has room, and an attempt waits because there is "no node".
    """

    def __init__(
        self,
        world: Answers | None = None,
        *,
        room: Mapping[str, bool] | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> None:
        self._world = world
        self._room, self._waiting = dict(room or {}), dict(waiting or {})

    def has_room(self, pool: str) -> bool:
        """Whether the pool had or could add a node with room when the round began."""
        if pool not in self._room:
            self._room[pool] = True if self._world is None else self._world.has_room(pool)
        return self._room[pool]

    def why_pending(self, task: TaskState) -> str:
        """Why the task's newest attempt had no node when the round began, as text for the user."""
        if task.path not in self._waiting:
            self._waiting[task.path] = "no node" if self._world is None else self._world.why_pending(task)
        return self._waiting[task.path]

    def as_event(self, at: float) -> SnapshotTaken | None:
        """The answers that were used, as an event for the journal; ``None`` if no question was asked."""
        if not self._room and not self._waiting:
            return None
        return SnapshotTaken(at, room=self._room, waiting=self._waiting)
