"""The events of runs that an orchestrator drives: Kubernetes makes their attempts, and the journal records them.

A pipeline that the local engine drives is unfolded, and its attempts are placed, by decisions. The tasks and attempts of a
workload on a cluster are facts instead. Causes, budgets and everything after an attempt has a node are the same events for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spotwright.engine.events import Event

__all__ = ["AttemptAdopted", "PlanExtended"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AttemptAdopted(Event):
    """Fact: the orchestrator has made an attempt, which waits for a node. The task is new if no attempt of it came before.

    ``key`` is unique among all attempts, so that nothing is recorded twice by a watcher that looks again after a crash.
    ``template`` is the task of the plan from which this one was made. ``pod`` is the pod's name; ``pools`` may take it.
    """

    kind: ClassVar[str] = "adopted"

    key: str
    template: str
    pod: str = ""
    rung: int = 0
    pools: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PlanExtended(Event):
    """Fact: the next version of the plan is in force, because the cluster has pools or the workload has tasks that it lacked.

    Unlike a reset it changes no task and no budget.
    """

    kind: ClassVar[str] = "extended"

    version: int
