"""What a task with a deadline does next, for many tasks and markets at once: row 8 of the design's table, as in the engine.

Tasks that save their work follow the policy of :mod:`spotwright.deadlines.solver`, and leave spot at the last moment at which
on-demand could still finish them. The others follow that of :mod:`spotwright.deadlines.solver`: spot only while on-demand could
do everything again. The tables are made with the shipped hazards; what the engine learns of its pools during a run is left out.

Solving a table for each of hundreds of tasks would take longer than anything else, so tasks share tables. Safety never does: the
last moments are those of each task.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED
from spotwright.deadlines.job_policies import Learned, Policy, UniformProgress
from spotwright.deadlines.jobs import DUST, Job
from spotwright.deadlines.solver import RestartTable, solve, solve_restarts
from spotwright.forecast.rules import ON_DEMAND, SPOT, WAIT, Launch, Pending, Rule
from spotwright.forecast.tasks import TaskToCome
from spotwright.simulation.jobs.launches import Waiting, choices

__all__ = ["UnderDeadline", "UniformProgressRule", "kept_free"]

_TICKS = 150  # decisions in the time to the deadline, as in the engine
_PER_TICK = 5  # units of work between two of them
_FIRST_UP, _FIRST_DOWN = SHIPPED.up.first_age(), SHIPPED.down.first_age()
_STEP = 1.2  # works of unsaved tasks that differ by less share a table


class UnderDeadline(Rule):
    """The deadline policy of the engine. ``deadline`` is in seconds from the start of the run."""

    def __init__(self, tasks: Sequence[TaskToCome], deadline: float) -> None:
        self._work = np.array([task.work for task in tasks])
        self._overhead = np.array([task.overhead for task in tasks])
        self._drain = np.array([task.policy.grace_period for task in tasks])
        self._saves = np.array([task.saves for task in tasks])
        self._most = np.array([task.policy.max_interruptions for task in tasks])
        work, steps = kept_free(tasks)
        self._ends = deadline - work - steps * self._overhead
        self._tick = max(deadline / _TICKS, 1e-3)
        self._group = np.full(len(tasks), -1)
        self._tables: list[Policy | RestartTable] = []
        for saves, key_of, made in (
            (True, lambda task: (task.overhead, _ratio(task)), self._saving),
            (
                False,
                lambda task: (task.overhead, _ratio(task), task.policy.grace_period, _rounded(task.work)),
                _restarting,
            ),
        ):
            self._solve(
                [index for index, task in enumerate(tasks) if task.saves is saves], tasks, deadline, key_of, made
            )

    def _solve(
        self,
        indexes: Sequence[int],
        tasks: Sequence[TaskToCome],
        deadline: float,
        key_of: Callable[[TaskToCome], Hashable],
        made: Callable[[Sequence[TaskToCome], float], Policy | RestartTable],
    ) -> None:
        """Make a table for each group of tasks with spot and on-demand that have the same key."""
        groups: dict[Hashable, list[int]] = {}
        for index in indexes:
            if tasks[index].spot and tasks[index].on_demand is not None:
                groups.setdefault(key_of(tasks[index]), []).append(index)
        for members in groups.values():
            self._group[members] = len(self._tables)
            self._tables.append(made([tasks[index] for index in members], deadline))

    def _saving(self, tasks: Sequence[TaskToCome], deadline: float) -> Policy:
        """The table of the most work, with a deadline later by that work: it holds the states of all of these tasks.

        A task with less work is one that has done some.
        """
        most, overhead = max(task.work for task in tasks), tasks[0].overhead
        job = Job(most, deadline + most, overhead, 1.0, _ratio(tasks[0]))
        return Learned(solve(job, tick=self._ticks(overhead), per_tick=_PER_TICK))

    def _ticks(self, overhead: float) -> float:
        """The seconds between two decisions, as the engine has them."""
        return max(self._tick, overhead / 4)

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """The last moment for spot for all, the solved policies before it."""
        task, now = pending.task, pending.now
        last = self._spot_ends(task, pending.left)
        forced = (now >= last) | (pending.taken >= self._most[task])
        action = np.where(pending.up, SPOT, WAIT)
        until = np.minimum(last, pending.next_up)
        groups = self._group[task]
        asked = np.where(forced, -1, groups)
        for group in range(len(self._tables)):
            chosen = np.flatnonzero(asked == group)
            if not chosen.size:
                continue
            some = Pending(*(each if each is None else each[chosen] for each in pending))
            action[chosen], tick = self._advised(self._tables[group], some)
            until[chosen] = np.minimum(until[chosen], now[chosen] + tick)
        return np.where(forced, ON_DEMAND, action), until

    def _spot_ends(self, task: Any, left: Any) -> Any:
        """The last moment at which an attempt may begin on spot, or wait for it."""
        again = np.where(self._saves[task], 0.0, self._work[task] + self._overhead[task])
        return self._ends[task] - left - self._overhead[task] - self._drain[task] - again

    def _advised(self, table: Policy | RestartTable, pending: Pending) -> tuple[Any, float]:
        """The choice of a table, and the seconds until it is asked again."""
        task, ends = pending.task, self._ends[pending.task]
        first = np.where(pending.up, _FIRST_UP, _FIRST_DOWN)
        age = pending.now - np.maximum(pending.began, -first)  # a spell that began before the run has an assumed age
        if isinstance(table, RestartTable):
            return _restart(table, ends - pending.now, pending.up, age), max(table.tick, self._tick)
        tick, began = self._ticks(float(self._overhead[task[0]])), self._begins(pending)
        moment = Waiting(
            self._work[task],
            ends - began,
            self._overhead[task],
            ends - pending.now,
            pending.left,
            pending.up,
            age + tick,
        )
        return choices(table, moment, tick), tick

    def _begins(self, pending: Pending) -> Any:
        """When the time of each task begins to count: with the run."""
        return np.zeros(len(pending.now))

    def gives_up(self, task: Any, taken: Any) -> Any:
        """Row 3: more interruptions than the budget."""
        return taken > self._most[task]

    def leaves(self, launch: Launch) -> tuple[Any, Any]:
        """At the last safe moment, for tasks that save their work: time passes without progress in a boot and in saves."""
        task = launch.task
        spare = self._spot_ends(task, launch.left) - launch.now
        with np.errstate(divide="ignore", invalid="ignore"):  # without saves nothing slows it down
            working = (spare - launch.boot) * launch.slower / (launch.slower - 1.0)
        gone = np.where(spare < launch.boot, spare, launch.boot + working)
        moves = self._saves[task] & (self._group[task] >= 0)
        return np.where(moves, launch.now + np.maximum(0.0, gone), np.inf), self._drain[task]


class UniformProgressRule(UnderDeadline):
    """Uniform Progress in the place of the solved policy; each task is to make even progress from when it could start."""

    def _saving(self, tasks: Sequence[TaskToCome], deadline: float) -> Policy:
        del tasks, deadline
        return UniformProgress()

    def _begins(self, pending: Pending) -> Any:
        return pending.start


def _restarting(tasks: Sequence[TaskToCome], deadline: float) -> RestartTable:
    """The table of tasks of about the same work that save nothing."""
    first = tasks[0]
    job = Job(max(task.work for task in tasks), deadline, first.overhead, 1.0, _ratio(first))
    return _solved_restarts(job, first.policy.grace_period)


@lru_cache(maxsize=64)
def _solved_restarts(job: Job, drain: float) -> RestartTable:
    """A table; the rules of one forecast share it."""
    return solve_restarts(job, drain=drain)


def _restart(table: RestartTable, remaining: Any, up: Any, age: Any) -> Any:
    """What :meth:`RestartTable.action` says, for arrays; the caller knows that a launch is safe."""
    row = np.clip(np.floor(remaining / table.tick + 1e-9).astype(int), 0, len(table.actions) - 1)
    row = np.maximum(row, _first_row(table))
    seen = np.searchsorted(np.array(AGES), age - 1e-6, side="left") + np.where(up, 0, BUCKETS)
    return table.actions[row, seen]


def _first_row(table: RestartTable) -> int:
    """The first row of a table in which a launch is safe for the most work of those who share it."""
    needs = 2.0 * (table.job.work + table.job.overhead) + table.drain
    return min(len(table.actions) - 1, int(np.ceil((needs - DUST) / table.tick)))


def _rounded(work: float) -> int:
    """Works that share a table have the same number."""
    return round(float(np.log(work) / np.log(_STEP)))


def kept_free(tasks: Sequence[TaskToCome]) -> tuple[Any, Any]:
    """What the engine leaves free after each task before the deadline: the longest work in seconds, and the most launches."""
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
