"""What a task without a node does next, by policy, for many tasks and markets at once: the rules of a forecast.

They are the engine's rules (rows 3, 6 and 7 of the design's table), asked at the same moments: when a task may start, after an
interruption, while it waits.

- :class:`OnDemand`: on-demand from the start.
- :class:`SpotFirst`: the policy without a deadline. Spot, in the order of the ladder; on-demand from ``fall_back_after`` on, or
  after ``pending_timeout`` without a node on every spot rung.
- :class:`Patient`: spot only, however long it takes; it tells the budget that is needed, and what no deadline would cost.

A deadline has rules of its own: :mod:`spotwright.forecast.deadline_rules`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.jobs import Action
from spotwright.forecast.tasks import TaskToCome

__all__ = [
    "FAILS",
    "NEXT_RUNG",
    "ON_DEMAND",
    "SPOT",
    "WAIT",
    "Launch",
    "OnDemand",
    "Patient",
    "Pending",
    "Rule",
    "SpotFirst",
]

_MOST_INTERRUPTIONS = 200  # of one task; a task that is taken more often gets nowhere

WAIT, SPOT, ON_DEMAND = np.int8(Action.WAIT), np.int8(Action.SPOT), np.int8(Action.ON_DEMAND)
"""What a task may do, as numbers of :class:`~spotwright.deadlines.jobs.Action`; an enum is slow in a loop."""

FAILS, NEXT_RUNG = np.int8(3), np.int8(4)
"""What else it may do: fail, or wait on the next spot rung of its ladder."""


class Pending(NamedTuple):
    """Tasks without a node, as arrays of one length; moments in seconds from the start of the run.

    ``task`` is the index of the task, ``start`` when it could start, ``since`` when it began to be without a node. ``left`` is
    the work left, ``taken`` the number of its interruptions. ``up`` tells whether a spot pool of its ladder is up, ``began``
    since when that, or the lack of it, has lasted, and ``next_up`` when one will be up. For rules by rung all of this is about
    the rung on which the task waits since ``since``; ``has_next`` tells whether a spot rung is below it, ``boot`` how long a node
    of it boots.
    """

    task: Any
    now: Any
    start: Any
    since: Any
    left: Any
    taken: Any
    up: Any
    began: Any
    next_up: Any
    has_next: Any
    boot: Any


class Launch(NamedTuple):
    """Attempts that begin on spot, as arrays: the task, the moment, the work left, the boot, and how much saves slow it down."""

    task: Any
    now: Any
    left: Any
    boot: Any
    slower: Any


class Rule(ABC):
    """A policy of a forecast.

    ``fails_without_a_node``: a task fails that wants on-demand where its ladder has none (row 7); else it goes on waiting.
    ``by_rung``: a task waits on one rung after the other; else it takes the first one with room.
    """

    fails_without_a_node = False
    by_rung = False

    @abstractmethod
    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """The action of each task, and for those that wait until when; it is asked again then, or when spot is up."""

    def gives_up(self, task: Any, taken: Any) -> Any:
        """Whether tasks fail after so many interruptions: by default after two hundred, because such a task gets nowhere."""
        del task
        return taken > _MOST_INTERRUPTIONS

    def leaves(self, launch: Launch) -> tuple[Any, Any]:
        """When running attempts are told to leave spot for on-demand, and how long they take to end: by default never."""
        return np.full(len(launch.now), np.inf), np.zeros(len(launch.now))


class OnDemand(Rule):
    """On-demand from the start. Tasks that require spot are patient."""

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """On-demand."""
        return np.full(len(pending.now), ON_DEMAND), pending.next_up


class Patient(Rule):
    """Spot, however long it takes."""

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """Spot where it is up, else a wait until it is."""
        return np.where(pending.up, SPOT, WAIT), pending.next_up


class SpotFirst(Rule):
    """Spot, then on-demand, as the policy of each task says."""

    fails_without_a_node = True
    by_rung = True

    def __init__(self, tasks: Sequence[TaskToCome]) -> None:
        self._falls_back = np.array([task.policy.fall_back_after for task in tasks])
        self._most = np.array([task.policy.max_interruptions for task in tasks])
        self._patience = np.array([task.policy.pending_timeout for task in tasks])

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """Rows 6 and 7 of the design's table; the patience ends with the node that is ready, not with the request for it."""
        spent = pending.taken >= self._falls_back[pending.task]
        until = pending.since + self._patience[pending.task]
        in_time = pending.up & (pending.now + pending.boot <= until + 1e-6)
        late = ~in_time & (pending.now >= until - 1e-6)
        otherwise = np.where(in_time, SPOT, WAIT)
        otherwise = np.where(late & pending.has_next, NEXT_RUNG, otherwise)
        waits = np.where(pending.up, until, np.minimum(until, pending.next_up))
        return np.where(spent | (late & ~pending.has_next), ON_DEMAND, otherwise), waits

    def gives_up(self, task: Any, taken: Any) -> Any:
        """Row 3: more interruptions than the budget."""
        return taken > self._most[task]
