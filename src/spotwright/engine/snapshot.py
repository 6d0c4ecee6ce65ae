"""What a decision may know of the world beside the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spotwright.engine.state import TaskState

__all__ = ["Snapshot", "StillSnapshot"]


class Snapshot(Protocol):
    """What a decision may know of the world beside the journal, taken once per turn."""

    def cached(self, task: TaskState) -> Mapping[str, Any] | None:
        """An earlier result of the same work (``parameters``, ``artifacts``, ``run``, ``task``), where one may be used."""

    def why_pending(self, task: TaskState) -> str:
        """Why the task's attempt has no node yet, for people."""

    def has_room(self, pool: str) -> bool:
        """Whether a node of the pool could be had now, as far as is known."""


@dataclass(frozen=True, slots=True)
class StillSnapshot:
    """A snapshot of a world that says nothing: no results to reuse, room everywhere. For replays and tests."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    full: frozenset[str] = frozenset()

    def cached(self, task: TaskState) -> Mapping[str, Any] | None:  # noqa: ARG002  # a port's method takes what it takes
        """No earlier results."""
        return None

    def why_pending(self, task: TaskState) -> str:
        """The reason that was given for the task's path."""
        return self.reasons.get(task.path, "no node")

    def has_room(self, pool: str) -> bool:
        """Room everywhere but in ``full``."""
        return pool not in self.full
