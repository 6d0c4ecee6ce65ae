"""Runs all tasks of a forecast through all markets at once: a loop over waves of tasks and over their attempts, numpy inside.

A market is a sampled window of every spot pool, with the moment at which each spell ends. A wave is the tasks of one depth of
the graph. Every task of a wave in every market is an element of flat arrays; the elements take one attempt, or one wait, at a
time until all of them have ended. Nothing is drawn here, so two policies meet the same luck.

A task that saves its work loses what it did since its last save, and each save takes its time; another one loses all of it.
Losses hit all nodes of a pool at once, because supply is one signal a pool. A node is paid from its request on, with its boot. A
task that follows another one on the same pool takes over its node where that is there still: an empty node stays for ten minutes,
as in the local world and by default under the cluster autoscaler.

What a task without a node does next is decided by policy, for arrays; under a deadline by row 8 of the design's table, as in
the engine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.choice import Chooser, Limits, Pool, Situation, chooser, safe
from spotwright.deadlines.hazards import AGES, BUCKETS, SHIPPED
from spotwright.deadlines.job_policies import cheapest_pool, uniform_progress
from spotwright.deadlines.jobs import DUST, Action, Job
from spotwright.deadlines.solver import RestartTable, solve_restarts
from spotwright.errors import InputError
from spotwright.forecast.tasks import TaskToCome
from spotwright.market import MarketModel, drawn, windows_of
from spotwright.model.pools import Trace
from spotwright.model.quantities import format_duration
from spotwright.scheduling.estimates import LAUNCH_MARGIN, STATED_MARGIN

__all__ = [
    "FAILS",
    "NEXT_RUNG",
    "ON_DEMAND",
    "SPOT",
    "WAIT",
    "OnDemand",
    "Outcomes",
    "Patient",
    "Pending",
    "Rule",
    "Source",
    "SpotFirst",
    "Supply",
    "UnderDeadline",
    "UniformProgressRule",
    "Watched",
    "heirs",
    "kept_free",
    "simulate",
    "supply_from",
    "supply_of",
    "waves",
]


_SHORTEST, _LONGEST = 60.0, 600.0  # seconds of a tick
_MARKET_TICKS = 1500  # a market has about so many ticks, where they are no shorter and no longer than that
_MOST_TICKS = 4000
_LEAST_DAYS = 5.0  # a market that begins again too soon would have the same short spells for ever
_NEVER = 1 << 30


class Source(NamedTuple):
    """Where markets come from: recordings by name, or the model with a mean ``rate`` of losses an hour with spot.

    ``pools`` gives single pools their own recording, by the pool's name. Without a rate the model has the shipped hazards.
    """

    traces: Mapping[str, Trace] = {}
    pools: Mapping[str, Trace] = {}
    rate: float | None = None


class Supply(NamedTuple):
    """Markets of all spot pools, with each market's shift in seconds.

    ``up[pool, tick, market]`` tells whether spot is up, ``change`` the ticks until that changes, ``lasted`` those since it did.

    ``words`` say where the markets come from, ``notes`` what a reader of the forecast should know of them.
    """

    tick: float
    up: Any
    change: Any
    lasted: Any
    shift: Any
    words: str = ""
    notes: tuple[str, ...] = ()

    @property
    def markets(self) -> int:
        """The number of markets."""
        return int(self.up.shape[2])

    def began(self, pool: Any, market: Any, now: Any) -> Any:
        """When the present spells began, in seconds from the start of the run; minus infinity if they always were."""
        index = np.floor((now + self.shift[market]) / self.tick + 1e-9).astype(np.int64)
        lasted = self.lasted[pool, index % self.up.shape[1], market]
        return np.where(lasted >= _NEVER, -np.inf, (index - lasted) * self.tick - self.shift[market])

    def look(self, pool: Any, market: Any, now: Any) -> tuple[Any, Any]:
        """Whether pools are up at these moments, and when that changes (infinite: never); arrays of one length."""
        index = np.floor((now + self.shift[market]) / self.tick + 1e-9).astype(np.int64)
        place = pool, index % self.up.shape[1], market
        left = self.change[place]
        ends = (index + left) * self.tick - self.shift[market]
        return self.up[place], np.where(left >= _NEVER, np.inf, np.maximum(ends, now + 1e-3))

    def losses_an_hour(self, pool: int) -> float:
        """The mean number of losses in an hour with spot, over all markets of a pool."""
        up = self.up[pool]
        hours = float(up.sum()) * self.tick / 3600.0
        losses = float((up & ~np.roll(up, -1, axis=0))[:-1].sum())
        return losses / hours if hours else 0.0

    def availability(self, pool: int) -> float:
        """The share of time with spot, over all markets of a pool."""
        return float(self.up[pool].mean())


def supply_of(source: Source, pools: Sequence[str], span: float, markets: int, seed: int) -> Supply:
    """Sample markets for pools, which come and go independently of each other, for runs that take about ``span`` seconds.

    A market is three times as long, and five days at least. The same seed gives the same markets. Raises
    :class:`InputError` for a rate out of range.
    """
    if markets < 1:
        raise InputError(f"--markets {markets}: expected 1 or more")
    horizon = max(3.0 * span, _LEAST_DAYS * 86400.0)
    gaps = [trace.gap for trace in (*source.traces.values(), *source.pools.values())]
    tick = max(min([_SHORTEST, *gaps]), min(_LONGEST, horizon / _MARKET_TICKS))
    ticks = max(2, math.ceil(horizon / tick) + 1)
    if source.rate is not None and source.rate > 3600.0 / tick:
        raise InputError(
            f"rate: expected 0 to {3600.0 / tick:g} losses an hour, as markets change once in {format_duration(tick)}, "
            f"found {source.rate:g}; 10 in a hundred an hour is 10%/h"
        )
    notes: list[str] = []
    if ticks > _MOST_TICKS:
        ticks = _MOST_TICKS
        notes.append(f"markets are {format_duration(ticks * tick)} long and begin again after that")
    states = np.empty((max(1, len(pools)), ticks, markets), bool)
    for index, pool in enumerate(pools or ("spot",)):
        own = {pool: source.pools[pool]} if pool in source.pools else source.traces
        if own:
            states[index] = _recorded(own, tick, ticks, markets, [seed, index], notes)
            notes += _overlap(own, span, markets)
        else:
            model = MarketModel(rate=source.rate)
            states[index] = drawn(model, ticks * tick, markets, seed=seed + 7919 * index, tick=tick).up[0]
    shift = np.random.default_rng([seed, 1 << 20]).uniform(0.0, tick, markets)
    return supply_from(tick, states, shift)._replace(words=_words(source), notes=tuple(dict.fromkeys(notes)))


def supply_from(tick: float, up: Any, shift: Any) -> Supply:
    """The supply of markets that are there already: ``up[pool, tick, market]`` with each market's shift in seconds."""
    change = _until_change(up)
    return Supply(tick, up, change, _until_change(up[:, ::-1])[:, ::-1] - 1, shift)


def _recorded(
    traces: Mapping[str, Trace], tick: float, ticks: int, markets: int, seed: Sequence[int], notes: list[str]
) -> Any:
    """Windows of recordings, each of them as often, in a drawn order."""
    length = ticks * tick
    whole = {name: _repeated(name, trace, length, tick, notes) for name, trace in traces.items()}
    rng = np.random.default_rng([*seed, 1])
    found = windows_of(whole, length, each=-(-markets // len(whole)), tick=tick, seed=int(rng.integers(1 << 30))).up[0]
    return found[:, rng.permutation(found.shape[1])[:markets]]


def _overlap(traces: Mapping[str, Trace], span: float, markets: int) -> list[str]:
    """A note where recordings hold fewer runs that do not overlap than there are markets."""
    worth = max(1, int(sum(trace.length for trace in traces.values()) / max(span, 1.0)))
    if worth >= markets:
        return []
    return [f"windows of the recordings overlap: {markets:,} of them are worth about {worth:,} that do not"]


def _repeated(name: str, trace: Trace, length: float, tick: float, notes: list[str]) -> Trace:
    """The recording, repeated where a window does not fit into it."""
    if trace.length >= length + tick:
        return trace
    notes.append(
        f"the recording {name} of {format_duration(trace.length)} is shorter than the {format_duration(length)} of a market: "
        "it begins again after its end"
    )
    times = math.ceil((length + trace.length + tick) / trace.length)
    return trace._replace(counts=trace.counts * times)


def _until_change(up: Any) -> Any:
    """The number of ticks until the state changes, in a window that begins again after its end."""
    left = np.full(up.shape, _NEVER, np.int32)
    ticks = up.shape[1]
    for index in (*range(ticks - 1, -1, -1), *range(ticks - 1, -1, -1)):  # a second time for spells across the end
        following = (index + 1) % ticks
        same = up[:, index] == up[:, following]
        left[:, index] = np.where(same, np.minimum(left[:, following] + 1, _NEVER), 1)
    return left


def _words(source: Source) -> str:
    names = list(dict.fromkeys([*source.traces, *source.pools]))
    if names:
        return f"windows of {', '.join(names) if len(names) <= 3 else f'{len(names)} recordings'}"
    if source.rate is not None:
        return f"drawn with losses of {float(f'{source.rate * 100:.3g}'):,g} %/h"
    return "drawn with the shipped hazards"


_MOST_INTERRUPTIONS = 200  # of one task; a task that is taken more often gets nowhere

WAIT, SPOT, ON_DEMAND = np.int8(Action.WAIT), np.int8(Action.SPOT), np.int8(Action.ON_DEMAND)
"""What a task may do, as numbers of :class:`~spotwright.deadlines.jobs.Action`; an enum is slow in a loop."""

FAILS, NEXT_RUNG = np.int8(3), np.int8(4)
"""What else it may do: fail, or wait on the next spot rung of its ladder."""


class Pending(NamedTuple):
    """Tasks without a node, as arrays of one length; moments in seconds from the start of the run.

    ``task`` is the index of the task, ``start`` when it could start, ``since`` when it began to be without a node. ``left`` is
    the work left, ``taken`` the number of its interruptions, ``useless`` how many of them in a row got nowhere at most. ``up``
    tells whether a spot pool of its ladder is up, ``began`` since when that, or the lack of it, has lasted, and ``next_up`` when
    one will be up. For rules by rung all of this is about the rung on which the task waits since ``since``; ``has_next`` tells
    whether a spot rung is below it.
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
    """Tasks that are decided again while they run, as arrays of one length; moments in seconds from the start of the run.

    ``task`` is the index of the task, ``start`` when it could start, ``useless`` how many interruptions in a row kept nothing
    of its work. The rest is as in :class:`~spotwright.deadlines.choice.Situation`; a pool is a place in the ladder of the task,
    which is not up where the ladder has none.
    """

    task: Any
    now: Any
    start: Any
    useless: Any
    left: Any
    at_most: Any
    mode: Any
    pool: Any
    starting: Any
    up: Any
    age: Any


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

    def gives_up(self, task: Any, taken: Any, useless: Any) -> Any:
        """Whether tasks fail after so many interruptions: by default after two hundred, because such a task gets nowhere."""
        del task, useless
        return taken > _MOST_INTERRUPTIONS

    def watches(self, task: Any) -> Any:
        """Whether tasks are decided again while they run: by default none is."""
        return np.zeros(len(task), bool)

    def choose(self, watched: Watched) -> tuple[Any, Any, Any]:
        """What watched tasks do now, on which place of their ladder, and the seconds until they are asked again at the latest."""
        raise NotImplementedError

    def drain(self, task: Any) -> Any:
        """How long a watched task takes to end when it is told to leave its node."""
        return np.zeros(len(task))


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
        """Rows 6 and 7 of the design's table; the time in which a node boots is no part of the patience."""
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


_STAYS = 600.0  # seconds that an empty node stays
_NO_POOL = -1


class Outcomes(NamedTuple):
    """What became of every task in every market: arrays ``[task, market]``; a task that never ends has an infinite end.

    ``end`` is in seconds from the start of the run, ``cost`` in money, ``taken`` counts interruptions, ``spot`` is the cost
    on spot. ``where`` is the index of the spot pool on which it ended, -1 for none; each on-demand pool has a number below that.
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
        others = list(dict.fromkeys(task.on_demand.pool for task in tasks if task.on_demand))
        self.other = np.array(
            [_NO_POOL - 1 - others.index(t.on_demand.pool) if t.on_demand else _NO_POOL for t in tasks]
        )


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
    """The tasks whose nodes each task may take over: every node goes to one task on its pool, and first to one that has none."""
    given: set[int] = set()
    found: dict[int, list[int]] = {}
    pools = [{offer.pool for offer in (*task.spot, *filter(None, (task.on_demand,)))} for task in tasks]
    for spare in (False, True):
        for index, task in enumerate(tasks):
            free = [each for each in task.after if each not in given and not pools[each].isdisjoint(pools[index])]
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
        self.useless = np.zeros(len(self.task), np.int32)  # the most attempts in a row that got nowhere
        self._row = np.zeros(len(self.task), np.int32)  # the attempts in a row that got nowhere, up to the newest one
        self.cost, self.on_spot = np.zeros(len(self.task)), np.zeros(len(self.task))
        self.end = np.full(len(self.task), np.inf)
        self.where = np.full(len(self.task), _NO_POOL, np.int32)
        self.rung, self.first = (
            np.zeros(len(self.task), int),
            np.zeros(len(self.task), int),
        )  # of the ladder, for rules by rung
        self.mode, self.place = np.full(len(self.task), WAIT), np.full(len(self.task), -1)  # of watched tasks
        self.starting, self.worked = np.zeros(len(self.task)), np.zeros(len(self.task))  # of their present attempt
        self.useless = np.zeros(len(self.task), np.int32)
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
        watched = rule.watches(self.task)
        while open_ones.size:
            for some, step in ((watched[open_ones], self._watch), (~watched[open_ones], self._take)):
                if some.any():
                    step(open_ones[some], rule)
            open_ones = open_ones[np.isinf(self.end[open_ones]) & np.isfinite(self.now[open_ones])]

    def _take(self, open_ones: Any, rule: Rule) -> None:
        """One attempt or one wait of tasks that are decided when they have no node."""
        facts = self._facts
        task, now = self.task[open_ones], self.now[open_ones]
        place, ends, began, next_up = self._spot(open_ones, task, now, by_rung=rule.by_rung)
        up, rung = place >= 0, self.rung[open_ones]
        pending = Pending(
            task, now, self.start[open_ones], self.since[open_ones], self.left[open_ones], self.taken[open_ones],
            self.useless[open_ones], up, began, next_up, rung + 1 < facts.rungs[task],
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

    def _watch(self, chosen: Any, rule: Rule) -> None:
        """Decide watched tasks, and let them run or wait until they are asked again, are done or lose their node."""
        watched, ends, next_up = self._seen(chosen)
        action, place, until = rule.choose(watched)
        until = np.minimum(watched.now + until, next_up)
        stays = (action == watched.mode) & ((action != SPOT) | (place == watched.pool))
        leaves = ~stays & (watched.mode != WAIT)
        self._leave(chosen[leaves], rule)
        self._begin(chosen, place, ~stays & ~leaves & (action != WAIT), action)
        waits = ~leaves & (action == WAIT)
        self._wait(chosen[waits], until[waits])
        runs = ~leaves & ~waits
        lost = np.where(action == SPOT, ends[np.maximum(place, 0), np.arange(len(chosen))], np.inf)
        self._run_on(chosen[runs], until[runs], lost[runs])

    def _seen(self, chosen: Any) -> tuple[Watched, Any, Any]:
        """The situation of watched tasks; when spot of each place ends, and when one that is down will be up."""
        facts, task, now, market = self._facts, self.task[chosen], self.now[chosen], self.market[chosen]
        pools = facts.pools[task].T
        up, ends = np.zeros(pools.shape, bool), np.full(pools.shape, np.inf)
        age = np.zeros(pools.shape)
        for place, pool in enumerate(pools):
            there = pool >= 0
            up[place], ends[place] = self._supply.look(np.maximum(pool, 0), market, now)
            up[place] &= there
            ends[place, ~there] = np.inf
            began = self._supply.began(np.maximum(pool, 0), market, now)
            age[place] = now - np.maximum(began, -np.where(up[place], _FIRST_UP, _FIRST_DOWN))
        next_up = np.where(up, np.inf, ends).min(axis=0)
        worked = self.worked[chosen]
        left = self.left[chosen]
        watched = Watched(
            task, now, self.start[chosen], self.useless[chosen], left - worked, left - self._saved(task, worked),
            self.mode[chosen], self.place[chosen], self.starting[chosen], up, age,
        )  # fmt: skip
        return watched, ends, next_up

    def _saved(self, task: Any, worked: Any) -> Any:
        """What of the work of an attempt its saves keep."""
        every = self._facts.every[task]
        return np.where(np.isfinite(every), worked - np.mod(worked, every), 0.0)

    def _leave(self, chosen: Any, rule: Rule) -> None:
        """Watched tasks are told to end: they save all they have done, and have no node after their grace."""
        self.left[chosen] = np.maximum(0.0, self.left[chosen] - self.worked[chosen])
        self._without_node(chosen)
        self.now[chosen] += rule.drain(self.task[chosen])

    def _lose(self, chosen: Any, kept: Any) -> None:
        """Count the interruption of attempts of which so much work is kept."""
        self.taken[chosen] += 1
        self._row[chosen] = np.where(kept > 0.0, 0, self._row[chosen] + 1)
        self.useless[chosen] = np.maximum(self.useless[chosen], self._row[chosen])

    def _without_node(self, chosen: Any) -> None:
        self.mode[chosen], self.worked[chosen], self.starting[chosen] = WAIT, 0.0, 0.0

    def _begin(self, chosen: Any, place: Any, launches: Any, action: Any) -> None:
        """Watched tasks launch on a place of their ladder, or on on-demand."""
        facts, begin, place = self._facts, chosen[launches], place[launches]
        task, spot = self.task[begin], action[launches] == SPOT
        pool = np.where(spot, facts.pools[task, place], facts.other[task])
        self.starting[begin] = self._boots(begin, pool, np.where(spot, facts.boots[task, place], facts.boot[task]))
        self._warm[begin] = _NO_POOL
        self.mode[begin], self.where[begin], self.since[begin] = action[launches], pool, self.now[begin]
        self.place[begin[spot]] = place[spot]

    def _run_on(self, chosen: Any, until: Any, lost: Any) -> None:
        """Watched tasks with a node go on until they are done, lose it, or are asked again."""
        facts, task, now, spot = self._facts, self.task[chosen], self.now[chosen], self.mode[chosen] == SPOT
        place = np.maximum(self.place[chosen], 0)
        slower = np.where(spot, facts.slower[task], 1.0)
        lives = facts.lifetimes[np.maximum(facts.pools[task, place], 0)]
        lost = np.where(spot, np.minimum(lost, self.since[chosen] + lives), np.inf)
        starting = self.starting[chosen]
        done = now + starting + (self.left[chosen] - self.worked[chosen]) * slower
        stop = np.minimum(np.minimum(until, lost), done)
        paid = (stop - now) * np.where(spot, facts.prices[task, place], facts.price[task]) / 3600.0
        self.cost[chosen] += paid
        self.on_spot[chosen] += np.where(spot, paid, 0.0)
        self.worked[chosen] += np.maximum(0.0, stop - now - starting) / slower
        self.starting[chosen] = np.maximum(0.0, starting - (stop - now))
        self.now[chosen] = stop
        ended = done <= stop
        self.end[chosen[ended]] = done[ended]
        taken = chosen[~ended & (lost <= stop)]
        kept = np.minimum(self._saved(self.task[taken], self.worked[taken]), self.left[taken])
        self.left[taken] -= kept
        self._lose(taken, kept)
        self._without_node(taken)

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
        pool = self._facts.other[task]
        length = self._boots(chosen, pool, self._facts.boot[task]) + self.left[chosen]
        self.where[chosen] = pool
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
        taken = lost < done
        until = np.minimum(lost, done)
        paid = (until - now) * facts.prices[task, place] / 3600.0
        self.cost[chosen] += paid
        self.on_spot[chosen] += paid
        self.end[chosen[~taken]] = done[~taken]
        worked = np.maximum(0.0, until - now - boot) / slower
        again = chosen[taken]
        self.left[again] -= np.minimum(self._saved(task, worked)[taken], self.left[again])
        self._lose(again, self._saved(task, worked)[taken])
        self.now[again] = self.since[again] = until[taken]
        following = (self.rung[again] + 1) % facts.rungs[self.task[again]]
        self.rung[again] = np.where(self.first[again] != self.rung[again], 0, following)
        self.first[again] = self.rung[again]
        failed = again[rule.gives_up(self.task[again], self.taken[again], self.useless[again])]
        self.now[failed] = np.inf


_DECISIONS = 150  # looks at a task in the time to the deadline
_FIRST_UP, _FIRST_DOWN = SHIPPED.up.first_age(), SHIPPED.down.first_age()
_WORK_MOST, _LAUNCH_MOST = 1.0 + STATED_MARGIN, 1.0 + LAUNCH_MARGIN  # that the engine leaves room for
_STEP = 1.2  # works that differ by less share a table


class UnderDeadline(Rule):
    """The deadline policy of the engine. ``deadline`` is in seconds from the start of the run.

    Tasks that save their work are asked when a pool comes up or is lost, some times in between, and at the last moment, whatever
    they run on; those that save nothing are decided when they have no node.
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
        """Tasks that save their work, and may run on spot and on on-demand."""
        return self._saves[task] & (self._group[task] >= 0)

    def choose(self, watched: Watched) -> tuple[Any, Any, Any]:
        """What the engine's function says; after a budget of interruptions in a row that kept nothing, on-demand."""
        action, until = np.full(len(watched.task), ON_DEMAND), np.full(len(watched.task), np.inf)
        place = watched.pool.copy()
        asked = np.where(watched.useless > self._most[watched.task], -1, self._group[watched.task])
        for group, decides in self._choosers.items():
            chosen = np.flatnonzero(asked == group)
            if chosen.size:
                pools = len(decides.pools)
                some = Watched(*(each[:pools, chosen] if each.ndim > 1 else each[chosen] for each in watched))
                action[chosen], place[chosen], until[chosen] = self._chosen(decides, some)
        tick = np.maximum(self._tick, self._overhead[watched.task] / 4)
        return action, place, np.minimum(until, np.where(asked < 0, np.inf, tick))

    def _chosen(self, decides: Chooser, watched: Watched) -> tuple[Any, Any, Any]:
        choices = decides.choose(self._situation(watched))
        return choices.action, choices.pool, choices.until

    def _situation(self, watched: Watched) -> Situation:
        return Situation(
            self._ends[watched.task] - watched.now, watched.left, watched.at_most, watched.mode, watched.pool, watched.starting,
            watched.up, watched.age,
        )  # fmt: skip

    def drain(self, task: Any) -> Any:
        """The grace period."""
        return self._drain[task]

    def decide(self, pending: Pending) -> tuple[Any, Any]:
        """The last moment for spot for all tasks that save nothing, the solved policies before it."""
        task, now = pending.task, pending.now
        last = self._spot_ends(task, pending.left)
        forced = (now >= last) | (pending.useless > self._most[task])
        action = np.where(pending.up, SPOT, WAIT)
        until = np.minimum(last, pending.next_up)
        groups = np.where(forced, -1, self._group[task])
        first = np.where(pending.up, _FIRST_UP, _FIRST_DOWN)
        age = now - np.maximum(pending.began, -first)  # a spell that began before the run has an assumed age
        for group, table in self._tables.items():
            chosen = np.flatnonzero(groups == group)
            if chosen.size:
                remaining = self._ends[task[chosen]] - now[chosen]
                action[chosen] = _restart(table, remaining, pending.up[chosen], age[chosen])
                until[chosen] = np.minimum(until[chosen], now[chosen] + max(table.tick, self._tick))
        return np.where(forced, ON_DEMAND, action), until

    def _spot_ends(self, task: Any, left: Any) -> Any:
        """The last moment at which an attempt may begin on spot, or wait for it."""
        launch = self._overhead[task] * _LAUNCH_MOST
        once = np.where(
            self._saves[task], left, self._work[task] * _WORK_MOST
        )  # progress that is saved is measured, too
        again = np.where(self._saves[task], 0.0, once + launch)
        return self._ends[task] - once - launch - self._drain[task] - again

    def gives_up(self, task: Any, taken: Any, useless: Any) -> Any:
        """Row 8: more attempts in a row that got nowhere than the budget, where there is no on-demand to go to."""
        del taken
        return self._only_spot[task] & (useless > self._most[task])


class UniformProgressRule(UnderDeadline):
    """Uniform Progress in the place of the engine's function; each task is to make even progress from when it could start."""

    def _chosen(self, decides: Chooser, watched: Watched) -> tuple[Any, Any, Any]:
        task, now = watched.task, self._situation(watched)
        span = self._ends[task] - watched.start
        wish = uniform_progress(now, self._work[task], span, self._overhead[task], keeps=True)
        action, until = safe(now, wish, decides.limits)
        return action, cheapest_pool(decides.pools, now), until


def _figures(task: TaskToCome) -> Hashable:
    """Tasks with the same figures are decided by one table."""
    assert task.on_demand is not None  # noqa: S101 - the caller has looked
    if task.saves:
        prices = (*(offer.price for offer in task.spot), task.on_demand.price)
        return task.overhead, prices, task.policy.grace_period, _rounded(task.work)
    return task.overhead, _ratio(task), task.policy.grace_period, _rounded(task.work)


def _saving(tasks: Sequence[TaskToCome], deadline: float) -> Chooser:
    """The engine's function for tasks of about the same work that save it; ``deadline`` is the latest of them.

    It is made for the most work, with a deadline as much later: a task with less work is one that has done some.
    """
    first, most = tasks[0], max(task.work for task in tasks)
    deadline = max(0.0, deadline) + most - min(task.work for task in tasks)
    other = first.on_demand.price if first.on_demand is not None else 0.0
    job = Job(most, deadline, first.overhead, 0.0, other)
    pools = [Pool(offer.price) for offer in first.spot]
    return chooser(job, pools, Limits(first.overhead * _LAUNCH_MOST, first.policy.grace_period))


def _restarting(tasks: Sequence[TaskToCome], deadline: float) -> RestartTable:
    """The table of tasks of about the same work that save nothing."""
    first = tasks[0]
    work = max(task.work for task in tasks) * _WORK_MOST
    job = Job(work, deadline, first.overhead * _LAUNCH_MOST, 1.0, _ratio(first))
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
    return round(float(np.log(max(work, 1e-3)) / np.log(_STEP)))


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
