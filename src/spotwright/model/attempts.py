"""Attempts: the causes of an ending, and its observed signals.

The set of causes is closed. :class:`Signals` has all that a backend (this machine, a simulation, a cluster) can observe of an
ended attempt; :mod:`spotwright.scheduling.cause` decides exactly one :class:`Cause` from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["Cause", "ContainerEnd", "Ending", "Signals", "StatusCondition", "has_work_left"]


class Cause(StrEnum):
    """Why an attempt ended. The design's table says which budget each cause spends."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the user's code
    INTERRUPTED = "interrupted"  # the provider reclaimed the node
    LOST = "lost"  # silent: its node or the engine is gone
    DISRUPTED = "disrupted"  # Kubernetes or Spotwright moved it
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    START_UP = "start-up"  # it never ran: image, environment, volume
    UNSCHEDULABLE = "unschedulable"  # no node on any rung
    CANCELLED = "cancelled"

    @property
    def is_interruption(self) -> bool:
        """True if the ending spends the interruption budget (row 3 of the table)."""
        return self in (Cause.INTERRUPTED, Cause.LOST)

    @property
    def is_error(self) -> bool:
        """True if the ending spends the error budget (row 5 of the table)."""
        return self in (Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.TIMED_OUT, Cause.START_UP)

    @property
    def row(self) -> int | None:
        """The row for what follows in the table of ``docs/explanation/decisions.md``; ``None``: no node was found."""
        if self.is_interruption or self.is_error:
            return 3 if self.is_interruption else 5
        return {Cause.CANCELLED: 1, Cause.SUCCEEDED: 2, Cause.DISRUPTED: 4}.get(self)


class StatusCondition(NamedTuple):
    """A Kubernetes condition of a pod or node, or an event about a node in the same shape."""

    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""


class ContainerEnd(NamedTuple):
    """The end of one container. ``waiting`` is the reason why a container never started."""

    name: str = "main"
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""  # Completed | Error | OOMKilled | ContainerCannotRun | ...
    message: str = ""
    waiting: str = ""  # ErrImagePull | ImagePullBackOff | CreateContainerConfigError | ...

    @property
    def is_untold(self) -> bool:
        """Whether its end was not reported, so that its exit code is made up.

        The kubelet writes 137 with the reason ``ContainerStatusUnknown`` for a container that its runtime has forgotten.
        containerd writes 255 with the reason ``Unknown`` for one that ran when containerd itself ended, and whose process is
        gone at its restart, mostly after a loss of power (containerd, ``restart.go`` of its CRI plugin). A program that exits
        with 255 has the reason ``Error``.
        """
        return self.reason == "ContainerStatusUnknown" or (self.reason == "Unknown" and self.exit_code == 255)


class Signals(NamedTuple):
    """All observations of one ended attempt. A field that could not be observed keeps its default.

    Local runs fill the first block; clusters fill the second as well.
    """

    exit_code: int | None = None  # of the user's process; None: a signal ended it, or it is unknown
    signal: int | None = None
    outputs_complete: bool | None = None  # True: every declared output exists; None: not checked
    missing_outputs: tuple[str, ...] = ()
    progress: float | None = None  # the share of its work (0 to 1) that its code last reported; filled in from the end
    accepted_by_kfp: bool = False  # it exited with 0 without its outputs, which the KFP backend counts as a success
    noticed: bool = False  # a notice for its node came before it ended
    node_gone: bool = False  # its node was reclaimed or cannot be found
    heard: bool = True  # False: neither an exit record nor a status
    timed_out: bool = False  # its own time limit has passed
    oom_kills: int = 0  # out-of-memory kills in its cgroup, or on the machine if only that is readable
    cancelled: bool = False  # the user cancelled the run or the task
    moved: str = ""  # Spotwright or Kubernetes moved it: "drained", "consolidated", ...
    start_error: str = ""  # why it could not be started: the environment, the image

    phase: str = ""  # the pod's: Succeeded | Failed | Unknown
    reason: str = ""  # the pod's status.reason: Evicted | NodeShutdown | Terminated | DeadlineExceeded | ...
    message: str = ""  # the pod's status.message, or Argo's node message ("pod deleted")
    conditions: tuple[StatusCondition, ...] = ()  # of the pod: DisruptionTarget, ...
    containers: tuple[ContainerEnd, ...] = ()
    node_conditions: tuple[StatusCondition, ...] = ()  # of the node: Ready, PreemptionScheduled, VMEventScheduled
    node_taints: tuple[str, ...] = ()  # keys of taints seen on the node near the end
    node_events: tuple[StatusCondition, ...] = ()  # events about the node: PreemptScheduled, DeletingNode, ...
    accepted_by_controller: bool = False  # it exited with 0 when it was asked to stop, which a Job counts as a success
    pod_deleted: bool = False  # the pod object was deleted while it ran
    node_restarted: str = ""  # evidence that its node restarted while it ran: "the boot ID of its node changed"
    spot: bool | None = None  # True: the node belongs to a spot pool; None: unknown


_ALL_DONE = 1.0 - 1e-9  # a sum of shares, such as ten times 0.1, may miss 1 by rounding


def has_work_left(progress: float | None) -> bool:
    """Whether code that last reported this share of its work (0 to 1) has work left; ``None``: no report."""
    return progress is not None and progress < _ALL_DONE


@dataclass(frozen=True, slots=True)
class Ending:
    """The one cause of an attempt's ending, with its evidence as data and a sentence for people."""

    cause: Cause
    why: str  # one sentence without a full stop: "its node was taken 0.0s after the notice"
    evidence: Mapping[str, Any] = field(default_factory=dict)  # the signals that decided it
