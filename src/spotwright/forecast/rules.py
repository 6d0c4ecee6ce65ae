"""The policies of a forecast: the next action of tasks without a node, in all markets at once.

They are the engine's decisions as arrays, because a forecast takes thousands of decisions at a time. Under a deadline (row 8 of
the design's table) the engine's own function, which takes arrays too, decides for tasks that save their work. A policy sees the
present, and of the future market only the event that it may wait for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.choice import Chooser, Limits, Pool, Situation, chooser, safe
from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED
from spotwright.deadlines.job_policies import cheapest_pool, uniform_progress
from spotwright.deadlines.jobs import DUST, Action, Job
from spotwright.deadlines.solver import RestartTable, solve_restarts
from spotwright.forecast.tasks import TaskToCome
from spotwright.scheduling.estimates import LAUNCH_MARGIN, STATED_MARGIN

__all__ = [
    "FAILS",
    "FIRST_DOWN",
    "FIRST_UP",
    "NEXT_RUNG",
    "ON_DEMAND",
    "SPOT",
    "WAIT",
    "OnDemand",
    "Patient",
    "Pending",
    "Rule",
    "SpotFirst",
    "UnderDeadline",
    "UniformProgressRule",
    "Watched",
    "WatchingRule",
    "kept_free",
]


_MOST_INTERRUPTIONS = 200  # of one task; more mean that it makes no progress

WAIT, SPOT, ON_DEMAND = np.int8(Action.WAIT), np.int8(Action.SPOT), np.int8(Action.ON_DEMAND)
"""The actions as numbers of :class:`~spotwright.deadlines.jobs.Action`; an enum is slow in a loop."""

FAILS, NEXT_RUNG = np.int8(3), np.int8(4)
"""The other actions: fail, or wait on the next spot rung of its ladder."""

FIRST_UP, FIRST_DOWN = SHIPPED.up.first_age(), SHIPPED.down.first_age()
"""The assumed age in seconds, with spot up or down, of a spell that began before the run."""


class Pending(NamedTuple):
    """Tasks without a node, as arrays of equal length; moments in seconds from the start of the run.

    ``task`` is the index of the task, ``start`` when it could start, ``since`` when it lost its node. ``left`` is the work
    left, ``taken`` the number of its interruptions, ``useless`` its most consecutive no-progress attempts. ``up``: whether a
    spot pool of its ladder is up; ``began``: when this state began; ``next_up``: when a pool will be up. For rules by rung
    these describe the rung on which the task has waited since ``since``; ``has_next``: whether a spot rung is below it.
    """

    task: Any
    now: Any
    start: Any
    since: Any
    left: Any
    taken: Any
    useless: Any
    up: Any
    began: Any
    next_up: Any
    has_next: Any


class Watched(NamedTuple):
    """Tasks that are decided again while they run, as arrays of equal length; moments in seconds from the start of the run.

    ``task`` is the index of the task, ``start`` when it could start, ``useless`` its most consecutive no-progress attempts. In
    ``seen`` a pool is a place in the task's ladder (never up if missing), and the remaining time is infinite: only a rule knows
    the deadline.
    """

    task: Any
    now: Any
    start: Any
    useless: Any
    seen: Situation

    def some(self, chosen: Any, pools: int) -> Watched:
        """Some of the tasks, by their indexes here; ``pools`` is the number of places in their ladders."""
        seen = Situation(*(each[:pools, chosen] if each.ndim > 1 else each[chosen] for each in self.seen))
        return Watched(self.task[chosen], self.now[chosen], self.start[chosen], self.useless[chosen], seen)


class Rule(ABC):
    """A policy of a forecast.

    ``fails_without_a_node``: a task that wants on-demand without having it in its ladder fails (row 7); else it keeps waiting.
    ``by_rung``: a task waits on one rung after the other; else it takes the first one with room.
    """

    fails_without_a_node = False
    by_rung = False

    @abstractmethod
    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """The action of each task, and the end of each wait; the next decision is then, or when spot is up."""

    def gives_up(self, task: Any, taken: Any, useless: Any) -> Any:
        """Whether tasks fail after these interruptions: by default after 200, because such a task makes no progress."""
        del task, useless
        return taken > _MOST_INTERRUPTIONS


class WatchingRule(Rule):
    """A policy that re-decides some tasks while they run."""

    @abstractmethod
    def watches(self, task: Any) -> Any:
        """Whether tasks are re-decided while they run."""

    @abstractmethod
    def choose(self, watched: Watched) -> tuple[Any, Any, Any]:
        """The actions of watched tasks, their places in the ladder, and the most seconds until the next decision."""

    @abstractmethod
    def drain(self, task: Any) -> Any:
        """The time that a watched task takes to leave its node."""


class OnDemand(Rule):
    """On-demand from the start. Tasks that require spot wait for it."""

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """On-demand."""
        return np.full(len(pending.now), ON_DEMAND), pending.next_up


class Patient(Rule):
    """Spot only, without a limit on waiting."""

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """Spot if it is up, else a wait until it is."""
        return np.where(pending.up, SPOT, WAIT), pending.next_up


class SpotFirst(Rule):
    """Spot, then on-demand, by each task's policy."""

    fails_without_a_node = True
    by_rung = True

    def __init__(self, tasks: Sequence[TaskToCome]) -> None:
        self._falls_back = np.array([task.policy.fall_back_after for task in tasks])
        self._most = np.array([task.policy.max_interruptions for task in tasks])
        self._patience = np.array([task.policy.pending_timeout for task in tasks])

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """Rows 6 and 7 of the design's table; a node's boot does not count as patience."""
        spent = pending.taken >= self._falls_back[pending.task]
        until = pending.since + self._patience[pending.task]
        late = ~pending.up & (pending.now >= until - 1e-6)
        otherwise = np.where(pending.up, SPOT, WAIT)
        otherwise = np.where(late & pending.has_next, NEXT_RUNG, otherwise)
        waits = np.minimum(until, pending.next_up)
        return np.where(spent | (late & ~pending.has_next), ON_DEMAND, otherwise), waits

    def gives_up(self, task: Any, taken: Any, useless: Any) -> Any:
        """Row 3: more interruptions than the budget."""
        del useless
        return taken > self._most[task]


_DECISIONS = 150  # decisions on a task until the deadline
_WORK_MOST, _LAUNCH_MOST = 1.0 + STATED_MARGIN, 1.0 + LAUNCH_MARGIN  # that the engine allows for
_STEP = 1.2  # works within this factor share a table


class UnderDeadline(WatchingRule):
    """The deadline policy of the engine. ``deadline`` is in seconds from the start of the run.

    Tasks that save their work are decided when a pool comes up or is lost, regularly in between, and at the last moment,
    whatever they run on; tasks that do not save are decided when they have no node.
    """

    def __init__(self, tasks: Sequence[TaskToCome], deadline: float) -> None:
        self._work = np.array([task.work for task in tasks])
        self._overhead = np.array([task.overhead for task in tasks])
        self._drain = np.array([task.policy.grace_period for task in tasks])
        self._saves = np.array([task.saves for task in tasks])
        self._most = np.array([task.policy.max_interruptions for task in tasks])
        self._only_spot = np.array([task.on_demand is None for task in tasks])
        work, steps = kept_free(tasks)
        self._ends = deadline - work - steps * self._overhead
        self._tick = max(deadline / _DECISIONS, 1e-3)
        self._group = np.full(len(tasks), -1)
        self._choosers: dict[int, Chooser] = {}
        self._tables: dict[int, RestartTable] = {}
        groups: dict[Hashable, list[int]] = {}
        for index, task in enumerate(tasks):
            if task.spot and task.on_demand is not None:
                groups.setdefault(_figures(task), []).append(index)
        for group, members in enumerate(groups.values()):
            self._group[members] = group
            some = [tasks[index] for index in members]
            if some[0].saves:
                self._choosers[group] = _saving(some, float(self._ends[members].max()))
            else:
                self._tables[group] = _restarting(some, deadline)

    def watches(self, task: Any) -> Any:
        """Whether tasks save their work, and may run on spot and on on-demand."""
        return self._saves[task] & (self._group[task] >= 0)

    def choose(self, watched: Watched) -> tuple[Any, Any, Any]:
        """The engine's decision; after a budget of consecutive interruptions without kept work, on-demand."""
        action, until = np.full(len(watched.task), ON_DEMAND), np.full(len(watched.task), np.inf)
        place = watched.seen.pool.copy()
        asked = np.where(watched.useless > self._most[watched.task], -1, self._group[watched.task])
        for group, decides in self._choosers.items():
            chosen = np.flatnonzero(asked == group)
            if chosen.size:
                some = watched.some(chosen, len(decides.pools))
                action[chosen], place[chosen], until[chosen] = self._chosen(decides, some)
        tick = np.maximum(self._tick, self._overhead[watched.task] / 4)
        return action, place, np.minimum(until, np.where(asked < 0, np.inf, tick))

    def _chosen(self, decides: Chooser, watched: Watched) -> tuple[Any, Any, Any]:
        choices = decides.choose(self._situation(watched))
        return choices.action, choices.pool, choices.until

    def _situation(self, watched: Watched) -> Situation:
        return watched.seen._replace(remaining=self._ends[watched.task] - watched.now)

    def drain(self, task: Any) -> Any:
        """The grace period."""
        return self._drain[task]

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """On-demand from the last moment for spot on, the solved policies before it, for tasks that do not save."""
        task, now = pending.task, pending.now
        last = self._spot_ends(task, pending.left)
        forced = (now >= last) | (pending.useless > self._most[task])
        action = np.where(pending.up, SPOT, WAIT)
        until = np.minimum(last, pending.next_up)
        groups = np.where(forced, -1, self._group[task])
        first = np.where(pending.up, FIRST_UP, FIRST_DOWN)
        age = now - np.maximum(pending.began, -first)  # the age of a spell that began before the run is assumed
        for group, table in self._tables.items():
            chosen = np.flatnonzero(groups == group)
            if chosen.size:
                remaining = self._ends[task[chosen]] - now[chosen]
                action[chosen] = _restart(table, remaining, pending.up[chosen], age[chosen])
                until[chosen] = np.minimum(until[chosen], now[chosen] + max(table.tick, self._tick))
        return np.where(forced, ON_DEMAND, action), until

    def _spot_ends(self, task: Any, left: Any) -> Any:
        """The last moment at which an attempt may start on spot or wait for it."""
        launch = self._overhead[task] * _LAUNCH_MOST
        once = np.where(self._saves[task], left, self._work[task] * _WORK_MOST)  # saved progress is also measured
        again = np.where(self._saves[task], 0.0, once + launch)
        return self._ends[task] - once - launch - self._drain[task] - again

    def gives_up(self, task: Any, taken: Any, useless: Any) -> Any:
        """Row 8: more consecutive no-progress attempts than the budget, if the task has no on-demand pool."""
        del taken
        return self._only_spot[task] & (useless > self._most[task])


class UniformProgressRule(UnderDeadline):
    """Uniform Progress instead of the engine's function; each task is to progress evenly from when it could start."""

    def _chosen(self, decides: Chooser, watched: Watched) -> tuple[Any, Any, Any]:
        task, now = watched.task, self._situation(watched)
        span = self._ends[task] - watched.start
        wish = uniform_progress(now, self._work[task], span, self._overhead[task], keeps=True)
        action, until = safe(now, wish, decides.limits)
        return action, cheapest_pool(decides.pools, now), until


def _figures(task: TaskToCome) -> Hashable:
    """The figures of a task; tasks with equal figures share a table."""
    assert task.on_demand is not None  # noqa: S101 - the caller has checked
    if task.saves:
        prices = (*(offer.price for offer in task.spot), task.on_demand.price)
        return task.overhead, prices, task.policy.grace_period, _rounded(task.work)
    return task.overhead, _ratio(task), task.policy.grace_period, _rounded(task.work)


def _saving(tasks: Sequence[TaskToCome], deadline: float) -> Chooser:
    """The engine's function for tasks of about the same work that save it; ``deadline`` is the latest of them.

    It is made for the most work, with the deadline extended by the same amount: a task with less work counts as having done
    some.
    """
    first, most = tasks[0], max(task.work for task in tasks)
    deadline = max(0.0, deadline) + most - min(task.work for task in tasks)
    other = first.on_demand.price if first.on_demand is not None else 0.0
    job = Job(most, deadline, first.overhead, 0.0, other)
    pools = [Pool(offer.price) for offer in first.spot]
    return chooser(job, pools, Limits(first.overhead * _LAUNCH_MOST, first.policy.grace_period))


def _restarting(tasks: Sequence[TaskToCome], deadline: float) -> RestartTable:
    """The table of tasks of about the same work that do not save."""
    first = tasks[0]
    work = max(task.work for task in tasks) * _WORK_MOST
    job = Job(work, deadline, first.overhead * _LAUNCH_MOST, 1.0, _ratio(first))
    return _solved_restarts(job, first.policy.grace_period)


@lru_cache(maxsize=64)
def _solved_restarts(job: Job, drain: float) -> RestartTable:
    """A table, shared by the rules of one forecast."""
    return solve_restarts(job, drain=drain)


def _restart(table: RestartTable, remaining: Any, up: Any, age: Any) -> Any:
    """:meth:`RestartTable.action` for arrays; the caller knows that a launch is safe."""
    row = np.clip(np.floor(remaining / table.tick + 1e-9).astype(int), 0, len(table.actions) - 1)
    row = np.maximum(row, _first_row(table))
    seen = np.searchsorted(np.array(AGES), age - 1e-6, side="left") + np.where(up, 0, BUCKETS)
    return table.actions[row, seen]


def _first_row(table: RestartTable) -> int:
    """The first row of a table in which a launch is safe for the most work of its tasks."""
    needs = 2.0 * (table.job.work + table.job.overhead) + table.drain
    return min(len(table.actions) - 1, int(np.ceil((needs - DUST) / table.tick)))


def _rounded(work: float) -> int:
    """The number of the table for this work."""
    return round(float(np.log(max(work, 1e-3)) / np.log(_STEP)))


def kept_free(tasks: Sequence[TaskToCome]) -> tuple[Any, Any]:
    """The engine's reserve after each task before the deadline: the longest work in seconds, and the most launches."""
    work, steps = np.zeros(len(tasks)), np.zeros(len(tasks))
    for index in range(len(tasks) - 1, -1, -1):
        for earlier in tasks[index].after:
            work[earlier] = max(work[earlier], work[index] + tasks[index].work)
            steps[earlier] = max(steps[earlier], steps[index] + bool(tasks[index].work))
    return work, steps


def _ratio(task: TaskToCome) -> float:
    """The price of on-demand over that of the first spot pool."""
    if task.on_demand is None or not task.spot or task.spot[0].price <= 0:
        return 3.0
    return round(task.on_demand.price / task.spot[0].price, 4)
