"""The statuses of runs and tasks."""

from __future__ import annotations

from enum import Enum

__all__ = ["RunStatus", "TaskStatus"]


class TaskStatus(Enum):
    """The status of a task."""

    WAITING = "waiting"  # upstream tasks have not succeeded yet
    READY = "ready"  # may start; a decision is due
    PREPARING = "preparing"  # its Python environment is being built
    PENDING = "pending"  # its attempt waits for a node
    RUNNING = "running"  # its attempt has a node
    BACKOFF = "backoff"  # waits before its next attempt
    OPEN = "open"  # a DAG whose tasks are under way
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"  # its condition did not hold, or it follows a task that was skipped
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the task has ended; only a resume can run it again."""
        return self.is_good or self in (TaskStatus.FAILED, TaskStatus.CANCELLED)

    @property
    def is_good(self) -> bool:
        """Whether the task has ended in a way that lets its DAG succeed."""
        return self in (TaskStatus.SUCCEEDED, TaskStatus.SKIPPED)


class RunStatus(Enum):
    """The status of a run. A ``STOPPED`` run is unfinished: ``resume`` continues it."""

    RUNNING = "running"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
