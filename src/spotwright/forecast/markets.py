"""Runs all tasks of a forecast through all markets at once: a loop over waves of tasks and over their attempts, numpy inside.

A market is a sampled window of every spot pool, with the end of each spell. A wave is the tasks of one depth of the graph.
Every task of a wave in every market is an element of flat arrays; each step is one attempt or one wait of every element, until
all have ended. Policies draw no random numbers, so they face the same market.

A task that saves its work loses the work since its last save, and each save takes time; any other task loses all of it. Losses
hit all nodes of a pool at once, because supply is one signal per pool. A node is paid from its request on, including its boot.
A task that follows another one on the same pool reuses its node if it still exists: an empty node stays for ten minutes, as in
local runs and by default under the cluster autoscaler.

The policy (:mod:`spotwright.forecast.rules`) decides the next action of a task without a node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.choice import Situation
from spotwright.errors import InputError
from spotwright.forecast.rules import (
    FAILS,
    FIRST_DOWN,
    FIRST_UP,
    NEXT_RUNG,
    ON_DEMAND,
    SPOT,
    WAIT,
    Pending,
    Rule,
    Watched,
    WatchingRule,
)
from spotwright.forecast.tasks import TaskToCome
from spotwright.market import MarketModel, drawn, windows_of
from spotwright.model.pools import Trace
from spotwright.model.quantities import format_duration

__all__ = ["Outcomes", "Source", "Supply", "heirs", "simulate", "supply_from", "supply_of", "waves"]


_SHORTEST, _LONGEST = 60.0, 600.0  # seconds of a tick
_MARKET_TICKS = 1500  # ticks of a market, about, within these bounds of a tick
_MOST_TICKS = 4000
_LEAST_DAYS = 5.0  # a shorter market would repeat the same short spells
_NEVER = 1 << 30


class Source(NamedTuple):
    """The source of markets: recordings by name, or the model with a mean ``rate`` of losses per hour with spot.

    ``pools`` assigns recordings to single pools, by the pool's name. Without a rate the model uses the shipped hazards.
    """

    traces: Mapping[str, Trace] = {}
    pools: Mapping[str, Trace] = {}
    rate: float | None = None


class Supply(NamedTuple):
    """Markets of all spot pools, with each market's shift in seconds.

    ``up[pool, tick, market]``: whether spot is up; ``change``: the ticks until that changes; ``lasted``: the ticks since it
    did.

    ``words`` describe the source of the markets, ``notes`` are for readers of the forecast.
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
        """When the current spells began, in seconds from the start of the run; minus infinity if they never changed."""
        index = np.floor((now + self.shift[market]) / self.tick + 1e-9).astype(np.int64)
        lasted = self.lasted[pool, index % self.up.shape[1], market]
        return np.where(lasted >= _NEVER, -np.inf, (index - lasted) * self.tick - self.shift[market])

    def look(self, pool: Any, market: Any, now: Any) -> tuple[Any, Any]:
        """Whether pools are up at these moments, and when that changes (infinite: never); arrays of equal length."""
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
    """Sample markets of independent pools for runs of about ``span`` seconds.

    A market is three times as long, at least five days. The same seed gives the same markets. Raises :class:`InputError` for a
    rate out of range.
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
    """The supply of given markets: ``up[pool, tick, market]`` with each market's shift in seconds."""
    change = _until_change(up)
    return Supply(tick, up, change, _until_change(up[:, ::-1])[:, ::-1] - 1, shift)


def _recorded(
    traces: Mapping[str, Trace], tick: float, ticks: int, markets: int, seed: Sequence[int], notes: list[str]
) -> Any:
    """Windows of recordings, equally often from each, in random order."""
    length = ticks * tick
    whole = {name: _repeated(name, trace, length, tick, notes) for name, trace in traces.items()}
    rng = np.random.default_rng([*seed, 1])
    found = windows_of(whole, length, each=-(-markets // len(whole)), tick=tick, seed=int(rng.integers(1 << 30))).up[0]
    return found[:, rng.permutation(found.shape[1])[:markets]]


def _overlap(traces: Mapping[str, Trace], span: float, markets: int) -> list[str]:
    """A note if the recordings hold fewer non-overlapping runs than there are markets."""
    worth = max(1, int(sum(trace.length for trace in traces.values()) / max(span, 1.0)))
    if worth >= markets:
        return []
    return [f"windows of the recordings overlap: {markets:,} of them are worth about {worth:,} that do not"]


def _repeated(name: str, trace: Trace, length: float, tick: float, notes: list[str]) -> Trace:
    """The recording, repeated if a window does not fit into it."""
    if trace.length >= length + tick:
        return trace
    notes.append(
        f"the recording {name} of {format_duration(trace.length)} is shorter than the {format_duration(length)} of a market: "
        "it begins again after its end"
    )
    times = math.ceil((length + trace.length + tick) / trace.length)
    return trace._replace(counts=trace.counts * times)


def _until_change(up: Any) -> Any:
    """The number of ticks until the state changes, in a window that repeats."""
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
    return "using built-in interruption rates"


_STAYS = 600.0  # seconds that an empty node stays
_NO_POOL = -1


class Outcomes(NamedTuple):
    """The results of every task in every market: arrays ``[task, market]``; a task that never ends has an infinite end.

    ``end`` is in seconds from the start of the run, ``cost`` in money, ``taken`` counts interruptions, ``spot`` is the cost on
    spot. ``where`` is the index of the spot pool on which it ended, -1 for none; on-demand pools have numbers below -1.
    """

    end: Any
    cost: Any
    taken: Any
    spot: Any
    where: Any

    @property
    def finish(self) -> Any:
        """The end of the run in each market."""
        return self.end.max(axis=0)

    @property
    def total(self) -> Any:
        """The cost of the run in each market."""
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
    """The indexes of the tasks by depth: each task is deeper than its dependencies."""
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

    ``every`` is each task's work between two saves (infinite: it does not save), ``lifetimes`` the longest lifetime of each
    pool's nodes; both in seconds. ``pools`` are the names of the supply's pools.
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
        }  # tasks with the same dependencies start together
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
    """The tasks whose nodes each task may reuse: each node goes to one task on its pool, first to one without a node."""
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
        self.useless = np.zeros(len(self.task), np.int32)  # the most consecutive no-progress attempts
        self._row = np.zeros(len(self.task), np.int32)  # the consecutive no-progress attempts up to the newest one
        self.cost, self.on_spot = np.zeros(len(self.task)), np.zeros(len(self.task))
        self.end = np.full(len(self.task), np.inf)
        self.where = np.full(len(self.task), _NO_POOL, np.int32)
        self.rung, self.first = (
            np.zeros(len(self.task), int),
            np.zeros(len(self.task), int),
        )  # of the ladder, for rules by rung
        self.mode, self.place = np.full(len(self.task), WAIT), np.full(len(self.task), -1)  # of watched tasks
        self.starting, self.worked = np.zeros(len(self.task)), np.zeros(len(self.task))  # of their current attempt
        self.useless = np.zeros(len(self.task), np.int32)
        self._warm, self._warm_until = self.where.copy(), np.zeros(len(self.task))

    def inherit(self, place: int, outcomes: Outcomes, earlier: Sequence[int]) -> None:
        """Let a task of the wave reuse the node of the last of these tasks to end, while the node exists."""
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
        """The seconds until a node is ready: 0 on a reused node on which no attempt was interrupted."""
        warm = (self._warm[chosen] == pool) & (self.now[chosen] <= self._warm_until[chosen]) & (self.taken[chosen] == 0)
        return np.where(warm, 0.0, boot)

    def run(self, rule: Rule) -> None:
        """Step every element by one attempt or one wait at a time, until all have ended."""
        facts = self._facts
        nowhere = ~facts.has_spot[self.task] & ~facts.has_on_demand[self.task]
        self.end[nowhere] = self.start[nowhere]
        open_ones = np.flatnonzero(~nowhere & np.isfinite(self.start))
        watched = rule.watches(self.task) if isinstance(rule, WatchingRule) else np.zeros(len(self.task), bool)
        while open_ones.size:
            again = watched[open_ones]
            if isinstance(rule, WatchingRule) and again.any():
                self._watch(open_ones[again], rule)
            if not again.all():
                self._take(open_ones[~again], rule)
            open_ones = open_ones[np.isinf(self.end[open_ones]) & np.isfinite(self.now[open_ones])]

    def _take(self, open_ones: Any, rule: Rule) -> None:
        """Simulate one attempt or one wait of tasks that are decided when they have no node."""
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

    def _watch(self, chosen: Any, rule: WatchingRule) -> None:
        """Decide watched tasks, and let them run or wait until their next decision, their end or the loss of their node."""
        watched, ends, next_up = self._seen(chosen)
        action, place, until = rule.choose(watched)
        until = np.minimum(watched.now + until, next_up)
        mode = watched.seen.mode
        stays = (action == mode) & ((action != SPOT) | (place == watched.seen.pool))
        leaves = ~stays & (mode != WAIT)
        self._leave(chosen[leaves], rule)
        self._begin(chosen, place, ~stays & ~leaves & (action != WAIT), action)
        waits = ~leaves & (action == WAIT)
        self._wait(chosen[waits], until[waits])
        runs = ~leaves & ~waits
        lost = np.where(action == SPOT, ends[np.maximum(place, 0), np.arange(len(chosen))], np.inf)
        self._run_on(chosen[runs], until[runs], lost[runs])

    def _seen(self, chosen: Any) -> tuple[Watched, Any, Any]:
        """The situation of watched tasks; when spot of each place ends, and when a place that is down will be up."""
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
            age[place] = now - np.maximum(began, -np.where(up[place], FIRST_UP, FIRST_DOWN))
        next_up = np.where(up, np.inf, ends).min(axis=0)
        worked = self.worked[chosen]
        left = self.left[chosen]
        seen = Situation(
            np.full(len(chosen), np.inf), left - worked, left - self._saved(task, worked), self.mode[chosen], self.place[chosen],
            self.starting[chosen], up, age,
        )  # fmt: skip
        return Watched(task, now, self.start[chosen], self.useless[chosen], seen), ends, next_up

    def _saved(self, task: Any, worked: Any) -> Any:
        """The part of an attempt's work that its saves keep."""
        every = self._facts.every[task]
        return np.where(np.isfinite(every), worked - np.mod(worked, every), 0.0)

    def _leave(self, chosen: Any, rule: WatchingRule) -> None:
        """Let watched tasks leave their node: they save all their work, and have no node after their grace period."""
        self.left[chosen] = np.maximum(0.0, self.left[chosen] - self.worked[chosen])
        self._without_node(chosen)
        self.now[chosen] += rule.drain(self.task[chosen])

    def _lose(self, chosen: Any, kept: Any) -> None:
        """Count the interruption of attempts whose kept work is ``kept``."""
        self.taken[chosen] += 1
        self._row[chosen] = np.where(kept > 0.0, 0, self._row[chosen] + 1)
        self.useless[chosen] = np.maximum(self.useless[chosen], self._row[chosen])

    def _without_node(self, chosen: Any) -> None:
        self.mode[chosen], self.worked[chosen], self.starting[chosen] = WAIT, 0.0, 0.0

    def _begin(self, chosen: Any, place: Any, launches: Any, action: Any) -> None:
        """Launch watched tasks on a place of their ladder, or on on-demand."""
        facts, begin, place = self._facts, chosen[launches], place[launches]
        task, spot = self.task[begin], action[launches] == SPOT
        pool = np.where(spot, facts.pools[task, place], facts.other[task])
        self.starting[begin] = self._boots(begin, pool, np.where(spot, facts.boots[task, place], facts.boot[task]))
        self._warm[begin] = _NO_POOL
        self.mode[begin], self.where[begin], self.since[begin] = action[launches], pool, self.now[begin]
        self.place[begin[spot]] = place[spot]

    def _run_on(self, chosen: Any, until: Any, lost: Any) -> None:
        """Run watched tasks with a node until they are done, lose it, or decide again."""
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

        If no pool is up, the spell that began is the first pool's without spot. ``by_rung``: only the pool of the rung on which
        a task waits counts.
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
        """Do the rest of the work on on-demand, which is not reclaimed."""
        task = self.task[chosen]
        pool = self._facts.other[task]
        length = self._boots(chosen, pool, self._facts.boot[task]) + self.left[chosen]
        self.where[chosen] = pool
        self.cost[chosen] += length * self._facts.price[task] / 3600.0
        self.end[chosen] = self.now[chosen] + length

    def _launch(self, chosen: Any, place: Any, ends: Any, rule: Rule) -> None:
        """Simulate one attempt on spot, until it is done or its pool is lost."""
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
