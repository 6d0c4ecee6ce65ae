"""The events of runs that an orchestrator drives: Kubernetes makes their attempts, and the journal records them.

A pipeline that the local engine drives is unfolded, and its attempts are placed, by decisions. The tasks and attempts of a
workload on a cluster are facts instead. Causes, budgets and everything after an attempt has a node are the same events for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.engine.events import Event

__all__ = [
    "WORKLOAD_EVENTS",
    "AttemptAdopted",
    "AttemptHeld",
    "AttemptReleased",
    "AttemptTakenBack",
    "AttemptWaits",
    "NoticeWithdrawn",
    "OutputsRead",
    "PlanExtended",
]


class AttemptAdopted(Event, kw_only=True):
    """Fact: the orchestrator has made an attempt, which waits for a node. The task is new if no attempt of it came before.

    ``key`` is unique among all attempts, so that nothing is recorded twice by a watcher that looks again after a crash.
    ``template`` is the task of the plan from which this one was made. ``pod`` is the pod's name; ``pools`` may take it.
    ``gang``: the restart of a set of tasks that end together, as ``SET/RESTART``. The tasks of a set share their budgets, and a
    restart is charged once, for the worst of its ends.
    """

    kind = "adopted"

    key: str
    template: str
    pod: str = ""
    rung: int = 0
    pools: Sequence[str] = ()
    gang: str = ""


class AttemptWaits(Event, kw_only=True):
    """Fact: why an attempt has no node yet, or does not start on its node; an empty ``why``: nothing holds it up any more."""

    kind = "waits"

    why: str


class AttemptTakenBack(Event, kw_only=True):
    """Decision: an attempt that waits in vain for a node is taken back, so that the next one waits on another rung.

    It spends no budget. ``rung`` and ``pools`` are those of the next attempt. ``left_out`` are the pools that no attempt is
    sent to for a while, each with the moment at which that ends (Unix seconds) and how often in a row it was left out.
    """

    kind = "taken-back"

    rung: int
    pools: Sequence[str]
    why: str
    left_out: Mapping[str, tuple[float, int]] = {}


class AttemptHeld(Event, kw_only=True):
    """Fact: the pod of an attempt stays, because its node does not report since ``since``, so no successor starts.

    An empty ``node``: it is held no more.
    """

    kind = "held"

    node: str = ""
    since: float | None = None


class AttemptReleased(Event, kw_only=True):
    """Decision: the pod of an attempt whose machine is certainly gone is deleted, so that its successor can start."""

    kind = "released"

    why: str


class NoticeWithdrawn(Event, kw_only=True):
    """Fact: the provider has withdrawn the notice ``id`` of a node: the node stays, and its attempts are under no notice."""

    kind = "withdrawn"

    node: str
    id: str = ""


class PlanExtended(Event, kw_only=True):
    """Fact: the next version of the plan is in force: more is known of the cluster's pools, or of the workload's tasks.

    Unlike a reset it begins no budget anew. A task whose own number of retries has become known has it from then on.
    """

    kind = "extended"

    version: int


class OutputsRead(Event, kw_only=True):
    """Fact: output parameters of a task that has succeeded, which were found only after its end."""

    kind = "outputs"

    parameters: Mapping[str, Any] = {}


WORKLOAD_EVENTS = (
    AttemptAdopted,
    AttemptWaits,
    AttemptTakenBack,
    AttemptHeld,
    AttemptReleased,
    NoticeWithdrawn,
    OutputsRead,
    PlanExtended,
)
"""The kinds of event of this module, all of them facts."""
