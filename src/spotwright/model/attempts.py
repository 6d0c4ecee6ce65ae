"""Attempts: why one ended, and every signal that was seen of its end.

The vocabulary of causes is closed. :class:`Signals` is what any body (this machine, a simulation, a cluster) can observe of
an ended attempt; :mod:`spotwright.scheduling.cause` turns it into exactly one :class:`Cause`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Cause", "Condition", "ContainerEnd", "Ending", "Signals"]


class Cause(StrEnum):
    """Why an attempt ended. Which budget it spends is decided by the design's table."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the user's code
    INTERRUPTED = "interrupted"  # the provider took the node
    LOST = "lost"  # nothing is heard of it any more: its node or the engine went
    DISRUPTED = "disrupted"  # Kubernetes or we moved it
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    START_UP = "start-up"  # it never ran: image, environment, volume
    UNSCHEDULABLE = "unschedulable"  # no node on any rung
    CANCELLED = "cancelled"

    @property
    def is_interruption(self) -> bool:
        """Whether it spends the interruption budget (row 3 of the table)."""
        return self in (Cause.INTERRUPTED, Cause.LOST)

    @property
    def is_error(self) -> bool:
        """Whether it spends the error budget (row 5 of the table)."""
        return self in (Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.TIMED_OUT, Cause.START_UP)


@dataclass(frozen=True, slots=True)
class Condition:
    """A Kubernetes condition of a pod or node, or a taint or event told in the same shape."""

    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How one container ended, or why it never began. ``waiting`` is the reason of a container that never ran."""

    name: str = "main"
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""  # Completed | Error | OOMKilled | ContainerCannotRun | ...
    message: str = ""
    waiting: str = ""  # ErrImagePull | ImagePullBackOff | CreateContainerConfigError | ...


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything seen of one ended attempt. A field that could not be observed keeps its default.

    Local runs fill the first block; clusters fill the second as well.
    """

    exit_code: int | None = None  # of the user's process; None when a signal ended it or nothing is known
    signal: int | None = None
    outputs_complete: bool | None = None  # every declared output is there; None: not looked at
    missing_outputs: tuple[str, ...] = ()
    noticed: bool = False  # a notice for its node came before it ended
    node_gone: bool = False  # its node was taken away or is not to be found
    heard: bool = True  # False: no exit record, no status; nothing is heard of it
    timed_out: bool = False  # its own time limit passed
    oom_kills: int = 0  # out-of-memory kills in its cgroup, or on the machine where only that can be read
    cancelled: bool = False  # the user cancelled the run or the task
    moved: str = ""  # we or Kubernetes moved it: "drained", "consolidated", ...
    start_error: str = ""  # it could not be started: the environment, the image

    phase: str = ""  # the pod's: Succeeded | Failed | Unknown
    reason: str = ""  # the pod's status.reason: Evicted | NodeShutdown | Terminated | DeadlineExceeded | ...
    message: str = ""  # the pod's status.message, or Argo's node message ("pod deleted")
    conditions: tuple[Condition, ...] = ()  # of the pod: DisruptionTarget, ...
    containers: tuple[ContainerEnd, ...] = ()
    node_conditions: tuple[Condition, ...] = ()  # of the node: Ready, PreemptionScheduled, VMEventScheduled
    node_taints: tuple[str, ...] = ()  # keys of taints seen on the node near the end
    node_events: tuple[Condition, ...] = ()  # events about the node: PreemptScheduled, DeletingNode, ...
    pod_deleted: bool = False  # the pod object vanished while it ran
    spot: bool | None = None  # whether the node belongs to a spot pool; None: not known


@dataclass(frozen=True, slots=True)
class Ending:
    """The one cause of an attempt's end, with the evidence as data and a sentence for people."""

    cause: Cause
    why: str  # one sentence, no trailing stop: "its node was taken 0.0s after the notice"
    evidence: Mapping[str, Any] = field(default_factory=dict)  # the signals that decided it
