"""Runs all tasks of a forecast through all markets at once: a loop over waves of tasks and over their attempts, numpy inside.

A wave is the tasks of one depth of the graph. Every task of a wave in every market is an element of flat arrays; the elements
take one attempt, or one wait, at a time until all of them have ended. Nothing is drawn here, so two policies meet the same luck.

A task that saves its work loses what it did since its last save, and each save takes its time; another one loses all of it.
Losses hit all nodes of a pool at once, because supply is one signal a pool. A node is paid from its request on, with its boot. A
task that follows another one on the same pool takes over its node where that is there still: an empty node stays for ten minutes,
as in the local world and by default under the cluster autoscaler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.forecast.rules import FAILS, NEXT_RUNG, ON_DEMAND, SPOT, WAIT, Launch, Pending, Rule
from spotwright.forecast.supply import Supply
from spotwright.forecast.tasks import TaskToCome

__all__ = ["Outcomes", "heirs", "simulate", "waves"]

_STAYS = 600.0  # seconds that an empty node stays
_NO_POOL, _ON_DEMAND = -1, -2


class Outcomes(NamedTuple):
    """What became of every task in every market: arrays ``[task, market]``; a task that never ends has an infinite end.

    ``end`` is in seconds from the start of the run, ``cost`` in money, ``taken`` counts interruptions, ``spot`` is the cost
    on spot. ``where`` is the index of the spot pool on which it ended, -2 for on-demand, -1 for none.
    """

    end: Any
    cost: Any
    taken: Any
    spot: Any
    where: Any

    @property
    def finish(self) -> Any:
        """When the run ends in each market."""
        return self.end.max(axis=0)

    @property
    def total(self) -> Any:
        """What the run costs in each market."""
        return self.cost.sum(axis=0)


class _Facts:
    """The figures of the tasks as arrays, by task and by place in the ladder."""

    def __init__(self, tasks: Sequence[TaskToCome], pools: Sequence[str], every: Any, lifetimes: Any) -> None:
        places = max((len(task.spot) for task in tasks), default=0)
        self.work = np.array([task.work for task in tasks])
        self.every = np.where(np.isfinite(every), every, np.inf)
        self.slower = 1.0 + np.array([task.save for task in tasks]) / self.every
        self.rungs = np.array([max(1, len(task.spot)) for task in tasks])
        self.pools = np.full((len(tasks), places), -1)
        self.prices, self.boots = np.zeros((len(tasks), places)), np.zeros((len(tasks), places))
        for index, task in enumerate(tasks):
            for place, offer in enumerate(task.spot):
                self.pools[index, place] = pools.index(offer.pool)
                self.prices[index, place], self.boots[index, place] = offer.price, offer.boot
        self.lifetimes = lifetimes
        self.has_spot = np.array([bool(task.spot) for task in tasks])
        self.has_on_demand = np.array([task.on_demand is not None for task in tasks])
        self.price = np.array([task.on_demand.price if task.on_demand else 0.0 for task in tasks])
        self.boot = np.array([task.on_demand.boot if task.on_demand else 0.0 for task in tasks])


def waves(tasks: Sequence[TaskToCome]) -> list[list[int]]:
    """The indexes of the tasks by depth: each task is behind all that it waits for."""
    depths: list[int] = []
    found: list[list[int]] = []
    for index, task in enumerate(tasks):
        depth = 1 + max((depths[earlier] for earlier in task.after), default=-1)
        depths.append(depth)
        if depth == len(found):
            found.append([])
        found[depth].append(index)
    return found


def simulate(
    tasks: Sequence[TaskToCome], supply: Supply, pools: Sequence[str], rule: Rule, every: Any, lifetimes: Any
) -> Outcomes:
    """Run the tasks under a rule.

    ``every`` is each task's work between two saves (infinite: nothing is saved), ``lifetimes`` how long a node of each pool lives
    at most; both in seconds. ``pools`` are the names of the supply's pools.
    """
    facts = _Facts(tasks, pools, every, lifetimes)
    shape = (len(tasks), supply.markets)
    outcomes = Outcomes(
        np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int32), np.zeros(shape), np.full(shape, _NO_POOL, np.int32)
    )
    inherits = heirs(tasks)
    for wave in waves(tasks):
        begins: dict[tuple[int, ...], Any] = {
            (): np.zeros(supply.markets)
        }  # tasks that wait for the same ones begin together
        for after in {tasks[index].after for index in wave if tasks[index].after}:
            begins[after] = outcomes.end[list(after)].max(axis=0)
        elements = _Elements(facts, supply, np.array(wave), np.array([begins[tasks[index].after] for index in wave]))
        for place, index in enumerate(wave):
            elements.inherit(place, outcomes, inherits.get(index, []))
        elements.run(rule)
        outcomes.end[wave] = elements.end.reshape(len(wave), -1)
        outcomes.cost[wave] = elements.cost.reshape(len(wave), -1)
        outcomes.spot[wave] = elements.on_spot.reshape(len(wave), -1)
        outcomes.taken[wave] = elements.taken.reshape(len(wave), -1)
        outcomes.where[wave] = elements.where.reshape(len(wave), -1)
    return outcomes


def heirs(tasks: Sequence[TaskToCome]) -> dict[int, list[int]]:
    """The tasks whose nodes each task may take over: every node goes to one task, and first to one that has none."""
    given: set[int] = set()
    found: dict[int, list[int]] = {}
    for spare in (False, True):
        for index, task in enumerate(tasks):
            free = [earlier for earlier in task.after if earlier not in given]
            taken = free if spare else free[:1]
            given.update(taken)
            if taken:
                found.setdefault(index, []).extend(taken)
    return found


class _Elements:
    """The tasks of one wave in all markets, flat."""

    def __init__(self, facts: _Facts, supply: Supply, wave: Any, starts: Any) -> None:
        self._facts, self._supply = facts, supply
        self.task = np.repeat(wave, supply.markets)
        self.market = np.tile(np.arange(supply.markets), len(wave))
        self.start = starts.reshape(-1)
        self.now, self.since = self.start.copy(), self.start.copy()
        self.left = facts.work[self.task].copy()
        self.taken = np.zeros(len(self.task), np.int32)
        self.cost, self.on_spot = np.zeros(len(self.task)), np.zeros(len(self.task))
        self.end = np.full(len(self.task), np.inf)
        self.where = np.full(len(self.task), _NO_POOL, np.int32)
        self.rung, self.first = (
            np.zeros(len(self.task), int),
            np.zeros(len(self.task), int),
        )  # of the ladder, for rules by rung
        self._warm, self._warm_until = self.where.copy(), np.zeros(len(self.task))

    def inherit(self, place: int, outcomes: Outcomes, earlier: Sequence[int]) -> None:
        """Let a task of the wave take over the node of the last one of these tasks to end, while that node is there."""
        if not earlier:
            return
        markets = np.arange(self._supply.markets)
        ends = outcomes.end[list(earlier)]
        last = ends.argmax(axis=0)
        end, pool = ends[last, markets], outcomes.where[list(earlier)][last, markets]
        until = end + _STAYS
        on_spot = np.flatnonzero((pool >= 0) & np.isfinite(end))
        up, change = self._supply.look(pool[on_spot], markets[on_spot], end[on_spot])
        until[on_spot] = np.where(up, np.minimum(until[on_spot], change), -np.inf)
        mine = slice(place * len(markets), (place + 1) * len(markets))
        self._warm[mine], self._warm_until[mine] = pool, until

    def _boots(self, chosen: Any, pool: Any, boot: Any) -> Any:
        """The seconds until a node is ready: none where one is taken over, on which no attempt was interrupted yet."""
        warm = (self._warm[chosen] == pool) & (self.now[chosen] <= self._warm_until[chosen]) & (self.taken[chosen] == 0)
        return np.where(warm, 0.0, boot)

    def run(self, rule: Rule) -> None:
        """Take one attempt or one wait of every element after the other, until all have ended."""
        facts = self._facts
        nowhere = ~facts.has_spot[self.task] & ~facts.has_on_demand[self.task]
        self.end[nowhere] = self.start[nowhere]
        open_ones = np.flatnonzero(~nowhere & np.isfinite(self.start))
        while open_ones.size:
            task, now = self.task[open_ones], self.now[open_ones]
            place, ends, began, next_up = self._spot(open_ones, task, now, by_rung=rule.by_rung)
            up, rung = place >= 0, self.rung[open_ones]
            boot = self._boots(open_ones, facts.pools[task, rung], facts.boots[task, rung]) if rule.by_rung else None
            pending = Pending(
                task, now, self.start[open_ones], self.since[open_ones], self.left[open_ones], self.taken[open_ones],
                up, began, next_up, rung + 1 < facts.rungs[task], boot,
            )  # fmt: skip
            action, until = rule.decide(pending)
            action = np.where(facts.has_spot[task], action, ON_DEMAND)
            stuck = (action == ON_DEMAND) & ~facts.has_on_demand[task]
            if rule.fails_without_a_node:
                self.now[open_ones[stuck]] = np.inf
                action[stuck], stuck = FAILS, np.zeros(len(stuck), bool)
            action = np.where(stuck, np.where(up, SPOT, WAIT), action)
            until = np.where(stuck, next_up, until)
            waits, falls_back = action == WAIT, action == ON_DEMAND
            if waits.any():
                self._wait(open_ones[waits], until[waits])
            if falls_back.any():
                self._on_demand(open_ones[falls_back])
            climbs = open_ones[action == NEXT_RUNG]
            self.rung[climbs] += 1
            self.since[climbs] = self.now[climbs]
            chosen = action == SPOT
            if chosen.any():
                self._launch(open_ones[chosen], place[chosen], ends[chosen], rule)
            open_ones = open_ones[np.isinf(self.end[open_ones]) & np.isfinite(self.now[open_ones])]

    def _spot(self, chosen: Any, task: Any, now: Any, *, by_rung: bool) -> tuple[Any, Any, Any, Any]:
        """The first place of the ladder whose pool is up (-1: none), when its spell ends and began, and when a pool will be up.

        Without a pool that is up the begin is that of the first pool's spell without spot. ``by_rung``: only the pool of the rung
        on which a task waits counts.
        """
        place = np.full(len(chosen), -1)
        ends, next_up = np.full(len(chosen), np.inf), np.full(len(chosen), np.inf)
        began = np.full(len(chosen), -np.inf)
        for rung in range(self._facts.pools.shape[1]):
            pool = self._facts.pools[task, rung]
            up, change = self._supply.look(np.maximum(pool, 0), self.market[chosen], now)
            there = (pool >= 0) & (self.rung[chosen] == rung) if by_rung else pool >= 0
            takes = there & up & (place < 0)
            place[takes], ends[takes] = rung, change[takes]
            told = takes | (there & (rung == 0))
            began[told] = self._supply.began(pool[told], self.market[chosen[told]], now[told])
            waits = there & ~up
            next_up[waits] = np.minimum(next_up[waits], change[waits])
        return place, ends, began, next_up

    def _wait(self, chosen: Any, until: Any) -> None:
        self.now[chosen] = np.maximum(until, self.now[chosen] + 1e-3)

    def _on_demand(self, chosen: Any) -> None:
        """The rest of the work on on-demand, which is not taken."""
        task = self.task[chosen]
        length = self._boots(chosen, _ON_DEMAND, self._facts.boot[task]) + self.left[chosen]
        self.where[chosen] = _ON_DEMAND
        self.cost[chosen] += length * self._facts.price[task] / 3600.0
        self.end[chosen] = self.now[chosen] + length

    def _launch(self, chosen: Any, place: Any, ends: Any, rule: Rule) -> None:
        """One attempt on spot, until it is done or its pool is lost."""
        facts, task, now = self._facts, self.task[chosen], self.now[chosen]
        pool, slower = facts.pools[task, place], facts.slower[task]
        boot = self._boots(chosen, pool, facts.boots[task, place])
        self.where[chosen] = pool
        lost = np.minimum(ends, now + facts.lifetimes[pool])
        done = now + boot + self.left[chosen] * slower
        leaves, drain = rule.leaves(Launch(task, now, self.left[chosen], boot, slower))
        moved = leaves < np.minimum(lost, done)
        lost = np.where(moved, leaves, lost)
        taken = lost < done
        until = np.minimum(lost, done)
        paid = (until - now) * facts.prices[task, place] / 3600.0
        self.cost[chosen] += paid
        self.on_spot[chosen] += paid
        self.end[chosen[~taken]] = done[~taken]
        worked = np.maximum(0.0, until - now - boot) / slower
        every = facts.every[task]
        kept = np.where(np.isfinite(every), worked - np.mod(worked, every), 0.0)
        kept = np.where(moved, worked, kept)  # it is told to end, and saves
        again = chosen[taken]
        self.left[again] -= np.minimum(kept[taken], self.left[again])
        self.taken[again] += ~moved[taken]
        self.now[again] = self.since[again] = (until + np.where(moved, drain, 0.0))[taken]
        lost_there = chosen[taken & ~moved]
        following = (self.rung[lost_there] + 1) % facts.rungs[self.task[lost_there]]
        self.rung[lost_there] = np.where(self.first[lost_there] != self.rung[lost_there], 0, following)
        self.first[lost_there] = self.rung[lost_there]
        failed = again[rule.gives_up(self.task[again], self.taken[again])]
        self.now[failed] = np.inf
