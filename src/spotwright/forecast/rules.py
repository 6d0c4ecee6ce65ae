"""What a task without a node does next, by policy, for many tasks and markets at once: the rules of a forecast.

They are the engine's rules (rows 3, 6, 7 and 8 of the design's table), asked at the same moments: when a task may start, after an
interruption, while it waits. A task that runs is not moved, as in the engine.

- :class:`OnDemand`: on-demand from the start.
- :class:`SpotFirst`: the policy without a deadline. Spot, in the order of the ladder; on-demand from ``fall_back_after`` on, or
  after ``pending_timeout`` without a node on every spot rung.
- :class:`Patient`: spot only, however long it takes; it tells the budget that is needed, and what no deadline would cost.
- :class:`UnderDeadline`: row 8. Tasks that save their work follow a policy of :mod:`spotwright.deadlines`; the others take spot
  until the last moment at which on-demand could still finish them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from spotwright.deadlines.hazards import SHIPPED
from spotwright.deadlines.jobs import Action, Job
from spotwright.deadlines.policies import Learned, Policy, UniformProgress
from spotwright.deadlines.solver import solve
from spotwright.forecast.tasks import TaskToCome
from spotwright.simulation.jobs.launches import Waiting, choices

__all__ = ["OnDemand", "Patient", "Pending", "Rule", "SpotFirst", "UnderDeadline", "UniformProgressRule", "work_after"]

_TICKS = 150  # decisions in the time to the deadline, as in the engine
_PER_TICK = 5  # units of work between two of them


class Pending(NamedTuple):
    """Tasks without a node, as arrays of one length; moments in seconds from the start of the run.

    ``task`` is the index of the task, ``start`` when it could start, ``since`` when it began to be without a node. ``left`` is
    the work left, ``taken`` the number of its interruptions. ``up`` tells whether a spot pool of its ladder is up, ``next_up``
    when one will be.
    """

    task: Any
    now: Any
    start: Any
    since: Any
    left: Any
    taken: Any
    up: Any
    next_up: Any


class Rule(Protocol):
    """A policy of a forecast.

    ``fails_without_a_node``: a task fails that wants on-demand where its ladder has none (row 7); else it goes on waiting.
    """

    fails_without_a_node: bool

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """The action of each task, and for those that wait until when; it is asked again then, or when spot is up."""

    def gives_up(self, task: Any, taken: Any) -> Any:
        """Whether tasks fail after so many interruptions."""


class OnDemand:
    """On-demand from the start."""

    fails_without_a_node = False

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """On-demand."""
        return np.full(len(pending.now), Action.ON_DEMAND, np.int8), pending.next_up

    def gives_up(self, task: Any, taken: Any) -> Any:
        """Tasks that require spot are the only ones that are interrupted here; their forecast is that of patience."""
        del task
        return taken > _MOST_INTERRUPTIONS


_MOST_INTERRUPTIONS = 200  # of one task; a task that is taken more often gets nowhere


class Patient:
    """Spot, however long it takes."""

    fails_without_a_node = False

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """Spot where it is up, else a wait until it is."""
        return np.where(pending.up, np.int8(Action.SPOT), np.int8(Action.WAIT)), pending.next_up

    def gives_up(self, task: Any, taken: Any) -> Any:
        """After two hundred interruptions: such a task gets nowhere."""
        del task
        return taken > _MOST_INTERRUPTIONS


class SpotFirst:
    """Spot, then on-demand, as the policy of each task says."""

    fails_without_a_node = True

    def __init__(self, tasks: Sequence[TaskToCome]) -> None:
        self._falls_back = np.array([task.policy.fall_back_after for task in tasks])
        self._most = np.array([task.policy.max_interruptions for task in tasks])
        self._patience = np.array([task.policy.pending_timeout * max(1, len(task.spot)) for task in tasks])
        self._boot = np.array([min((offer.boot for offer in task.spot), default=0.0) for task in tasks])

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """Rows 6 and 7 of the design's table; the patience ends with the node that is ready, not with the request for it."""
        spent = pending.taken >= self._falls_back[pending.task]
        until = pending.since + self._patience[pending.task]
        in_time = pending.up & (pending.now + self._boot[pending.task] <= until + 1e-6)
        late = ~in_time & (pending.now >= until - 1e-6)
        otherwise = np.where(in_time, np.int8(Action.SPOT), np.int8(Action.WAIT))
        waits = np.where(pending.up, until, np.minimum(until, pending.next_up))
        return np.where(spent | late, np.int8(Action.ON_DEMAND), otherwise), waits

    def gives_up(self, task: Any, taken: Any) -> Any:
        """Row 3: more interruptions than the budget."""
        return taken > self._most[task]


class UnderDeadline:
    """Row 8 of the design's table, with the policy that the engine solves for tasks that save their work.

    ``deadline`` is in seconds from the start of the run. Tasks with the same overhead and prices share a table: that of the most
    work among them, with a deadline later by that work, holds the states of all, since a task with less work is one that has done
    some.
    """

    fails_without_a_node = False

    def __init__(self, tasks: Sequence[TaskToCome], deadline: float) -> None:
        self._work = np.array([task.work for task in tasks])
        self._overhead = np.array([task.overhead for task in tasks])
        self._saves = np.array([task.saves and task.on_demand is not None and bool(task.spot) for task in tasks])
        self._most = np.array([task.policy.max_interruptions for task in tasks])
        self._ends = deadline - work_after(tasks)
        self._deadline = deadline
        self._tick = max(deadline / _TICKS, 1e-3)
        self._group, self._policies = self._solved(tasks, deadline)

    def _solved(self, tasks: Sequence[TaskToCome], deadline: float) -> tuple[Any, list[Policy]]:
        keys = [(task.overhead, _ratio(task)) for task in tasks]
        saving = [key for key, task in zip(keys, tasks, strict=True) if task.saves]
        groups = {key: index for index, key in enumerate(dict.fromkeys(saving))}
        most = {
            key: max(task.work for task, mine in zip(tasks, keys, strict=True) if task.saves and mine == key)
            for key in groups
        }
        policies = [self._policy(Job(most[key], deadline + most[key], key[0], 1.0, key[1])) for key in groups]
        return np.array([groups.get(key, -1) for key in keys]), policies

    def _policy(self, job: Job) -> Policy:
        """The policy of jobs with this overhead and these prices."""
        return Learned(solve(job, tick=self._ticks(job.overhead), per_tick=_PER_TICK))

    def _ticks(self, overhead: float) -> float:
        """The seconds between two decisions, as the engine has them."""
        return max(self._tick, overhead / 4)

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """The last safe moment for all, the solved policy for those that save."""
        task, now = pending.task, pending.now
        last = self._ends[task] - pending.left - self._overhead[task]
        forced = (now >= last) | (pending.taken >= self._most[task])
        action = np.where(pending.up, np.int8(Action.SPOT), np.int8(Action.WAIT))
        until = np.minimum(last, pending.next_up)
        for group, policy in enumerate(self._policies):
            chosen = np.flatnonzero((self._group[task] == group) & self._saves[task] & ~forced)
            if chosen.size:
                tick = self._ticks(float(self._overhead[task[chosen[0]]]))
                action[chosen] = self._advised(policy, Pending(*(each[chosen] for each in pending)), tick)
                until[chosen] = np.minimum(until[chosen], now[chosen] + tick)
        return np.where(forced, np.int8(Action.ON_DEMAND), action), until

    def _advised(self, policy: Policy, pending: Pending, tick: float) -> Any:
        """The policy's choice. The age of a spell of spot is not known to the engine, that of a wait is."""
        task = pending.task
        waits = np.where(pending.taken > 0, 0.0, SHIPPED.down.first_age()) + pending.now - pending.since
        age = np.where(pending.up, SHIPPED.up.first_age(), waits) + tick
        ends, began = self._ends[task], self._begins(pending)
        moment = Waiting(
            self._work[task], ends - began, self._overhead[task], ends - pending.now, pending.left, pending.up, age
        )
        return choices(policy, moment, tick)

    def _begins(self, pending: Pending) -> Any:
        """When the time of each task begins to count: with the run."""
        return np.zeros(len(pending.now))

    def gives_up(self, task: Any, taken: Any) -> Any:
        """Row 3: more interruptions than the budget."""
        return taken > self._most[task]


class UniformProgressRule(UnderDeadline):
    """Uniform Progress in the place of the solved policy; each task is to make even progress from when it could start."""

    def _policy(self, job: Job) -> Policy:
        del job
        return UniformProgress()

    def _begins(self, pending: Pending) -> Any:
        return pending.start


def work_after(tasks: Sequence[TaskToCome]) -> Any:
    """The longest work that follows each task, in seconds: the engine leaves that much time free before the deadline."""
    after = np.zeros(len(tasks))
    for index in range(len(tasks) - 1, -1, -1):
        tail = after[index] + tasks[index].work
        for earlier in tasks[index].after:
            after[earlier] = max(after[earlier], tail)
    return after


def _ratio(task: TaskToCome) -> float:
    """The price of on-demand over that of the first spot pool."""
    if task.on_demand is None or not task.spot or task.spot[0].price <= 0:
        return 3.0
    return round(task.on_demand.price / task.spot[0].price, 4)
