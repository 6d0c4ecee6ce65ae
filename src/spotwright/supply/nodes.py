"""Simulated pools: nodes that boot, fill up and are taken away, and the attempts that are put on them.

The supply is a state machine without clock, threads or processes: every call is given ``now``, and :meth:`Supply.advance`
answers with what happened. The local world turns that into signals to real processes, the simulation into events on virtual
time. Attempts are bound as the Kubernetes scheduler does it (:mod:`spotwright.supply.binding`); nodes are added one at a time
for what is pending, as the cluster autoscaler does it, and go when they have been empty for ten minutes.

All moments are in the caller's seconds; the waits of the simulated world are divided by ``scale``. The age at which the
seeded model takes a node is not: it is a share of real work.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from spotwright.model.pools import Drain, Pool
from spotwright.model.traces import Trace
from spotwright.supply.binding import Growth, Node, Request, choose, growth, new_node
from spotwright.supply.happenings import Bound, Drained, Happening, Key, NodeBooting, NodeGone, NodeReady, Noticed
from spotwright.supply.market import Fate, fate, next_change, nodes_at, uniform
from spotwright.supply.queue import Queue

__all__ = ["Supply"]

_IDLE_TIMEOUT = 600.0
"""After how many seconds an empty node above ``min_nodes`` is given back: the cluster autoscaler's default for
``--scale-down-unneeded-time``."""


@dataclass(slots=True)
class _Running:
    """An attempt on a node."""

    node: Node
    request: Request
    progress: float | None = None  # as it was last reported
    fate: Fate | None = None  # of its node, while this attempt is the one whose work tells when that goes
    threshold: float | None = None


@dataclass(slots=True)
class _PoolState:
    """One pool at play. ``available`` is how many nodes its trace has now; ``None`` without a trace."""

    pool: Pool
    trace: Trace | None
    made: int
    available: int | None = None
    nodes: dict[str, Node] = field(default_factory=dict)


class Supply:
    """The nodes of a run's pools. ``seed`` decides every draw; ``scale`` is the time scale; ``now`` when the run starts.

    ``made`` counts the nodes that earlier engines of the run had in each pool, so that no name is given twice.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        *,
        seed: int,
        scale: float,
        now: float,
        traces: Mapping[str, Trace] | None = None,
        made: Mapping[str, int] | None = None,
    ) -> None:
        self._seed, self._scale, self._start = seed, scale, now
        traces, made = traces or {}, made or {}
        self._pools = {name: _PoolState(pool, traces.get(name), made.get(name, 0)) for name, pool in pools.items()}
        self._queue = Queue()
        self._running: dict[Key, _Running] = {}
        self._growth: dict[Request, Growth] = {}
        self._timers: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._out: list[Happening] = []
        self._dirty = False
        for state in self._pools.values():
            self._open(state, now)

    @property
    def scale(self) -> float:
        """The time scale."""
        return self._scale

    # -- what the world tells the supply

    def submit(self, key: Key, request: Request) -> None:
        """An attempt waits for a node. Attempts of one kind should share one ``request``: it is what they queue for."""
        self._queue.add(key, request)
        self._dirty = True

    def withdraw(self, key: Key) -> bool:
        """Take back an attempt that waits. False: it does not wait (any more)."""
        return self._queue.remove(key)

    def release(self, key: Key, now: float) -> None:
        """An attempt has ended, and what follows is decided: its room is free again.

        Released before the decision, it would be given to a waiting attempt even where that end is a failure after which
        nothing may start.
        """
        running = self._running.pop(key, None)
        if running is None:
            return
        node = running.node
        node.give_back(key, running.request)
        self._dirty = True
        if running.fate is not None and node.keys:
            self._carry(next(iter(node.keys)), now)
        if not node.keys and node.goes_at is None:
            self._watch_idle(node, now)

    def report(self, key: Key, progress: float, now: float) -> None:
        """An attempt reported its progress (0 to 1); this may be the moment its node goes."""
        running = self._running.get(key)
        if running is None:
            return
        if running.fate is not None and running.progress is None:
            running.threshold = running.fate.threshold(progress)
        running.progress = progress
        if running.threshold is not None and progress >= running.threshold:
            self._take(running.node, f"at {progress:.0%} of the work of {key[0]}", now)

    def take(self, key: Key, notice: float, why: str, now: float) -> None:
        """Take the node of an attempt with so many seconds of notice, whatever its pool gives; nothing where it has none.

        With no notice it goes at once, also where it has been announced before.
        """
        running = self._running.get(key)
        if running is None:
            return
        if notice <= 0:
            self._remove(running.node, why)
        else:
            self._take(running.node, why, now, notice)

    def approve(self, node: str) -> None:
        """The provider may take a node that it has announced before its time; nothing where it has announced none."""
        found = next((state.nodes[node] for state in self._pools.values() if node in state.nodes), None)
        if found is not None and found.goes_at is not None:
            self._remove(found, "before its time, as was approved")

    # -- what the supply tells the world

    def advance(self, now: float) -> list[Happening]:
        """Let time pass until ``now`` and return what happened, in order."""
        while self._timers and self._timers[0][0] <= now:
            at, _, action = heapq.heappop(self._timers)
            action(at)
        if self._dirty:
            self._dirty = False
            self._bind(now)
        happened, self._out = self._out, []
        return happened

    def next_moment(self) -> float | None:
        """When something happens next by itself."""
        return self._timers[0][0] if self._timers else None

    def close(self, now: float) -> list[Happening]:  # noqa: ARG002  # every other call takes it too
        """Give every node back at the end of the run. What still waits gets none."""
        self._timers.clear()
        for state in self._pools.values():
            for node in list(state.nodes.values()):
                self._remove(node, "given back at the end of the run")
        happened, self._out, self._dirty = self._out, [], False
        return happened

    def has_room(self, pool: str, now: float) -> bool:  # noqa: ARG002  # the present is what advance() has seen
        """Whether a node of the pool is there and not full, or could be had now."""
        state = self._pools[pool]
        return not _limit(state) or any(node.goes_at is None and not node.is_full for node in state.nodes.values())

    def why_pending(self, key: Key, now: float) -> str:  # noqa: ARG002  # the present is what advance() has seen
        """Why an attempt has no node yet, pool by pool."""
        request = self._queue.request_of(key)
        if request is None:
            return "it does not wait"
        return "; ".join(f"{name}: {_reason(self._pools[name])}" for name in request.pools)

    # -- nodes

    def _open(self, state: _PoolState, now: float) -> None:
        """The nodes that are there before the run begins, and the pool's first look at its trace."""
        if state.trace is not None:
            self._tick(state, state.pool.simulate.start, now)
        while len(state.nodes) < state.pool.min_nodes and not _limit(state):
            self._become_ready(self._add_node(state, state.pool.zones or (None,)), now)

    def _add_node(self, state: _PoolState, zones: tuple[str | None, ...]) -> Node:
        """A new node in the next of these zones, in the pool's turn."""
        turn = state.pool.zones or (None,)
        zone = next(z for z in (turn[(state.made + ahead) % len(turn)] for ahead in range(len(turn))) if z in zones)
        state.made += 1
        node = new_node(f"{state.pool.name}-{state.made}", state.pool, zone)
        state.nodes[node.name] = node
        self._out.append(NodeBooting(node.name, state.pool.name))
        return node

    def _boot(self, state: _PoolState, zones: tuple[str | None, ...], now: float) -> Node:
        node = self._add_node(state, zones)
        self._at(now + state.pool.simulate.boot / self._scale, lambda at: self._become_ready(node, at))
        return node

    def _become_ready(self, node: Node, now: float) -> None:
        if node.gone:
            return
        node.ready, self._dirty = True, True
        self._out.append(NodeReady(node.name, node.pool.name))
        if node.pool.lifetime is not None:
            why = f"at the end of its lifetime of {node.pool.lifetime:g}s"
            self._at(now + node.pool.lifetime / self._scale, lambda at: self._take(node, why, at))
        self._watch_idle(node, now)

    def _watch_idle(self, node: Node, now: float) -> None:
        node.empty_since = now
        if not node.watched:
            node.watched = True
            self._at(now + _IDLE_TIMEOUT / self._scale, lambda at: self._look_idle(node, at))

    def _look_idle(self, node: Node, now: float) -> None:
        node.watched = False
        if node.gone or node.keys or node.goes_at is not None:
            return
        due = node.empty_since + _IDLE_TIMEOUT / self._scale
        if now < due:
            node.watched = True
            self._at(due, lambda at: self._look_idle(node, at))
        elif len(self._pools[node.pool.name].nodes) > node.pool.min_nodes:
            self._remove(node, f"empty for {(now - node.empty_since) * self._scale:.3g}s")

    def _take(self, node: Node, why: str, now: float, notice: float | None = None) -> None:
        """The provider takes a node: notice, SIGTERM, gone."""
        if node.gone or node.goes_at is not None:
            return
        notice = node.pool.notice / self._scale if notice is None else notice
        node.goes_at = now + notice
        if notice <= 0:
            self._remove(node, why)
            return
        self._out.append(Noticed(node.name, node.pool.name, tuple(node.keys), node.goes_at, why))
        for key in node.keys:
            grace = self._running[key].request.grace / self._scale
            drains = now if node.pool.simulate.drain is Drain.AT_NOTICE else max(now, node.goes_at - grace)
            self._at(drains, lambda _, key=key: self._drain(key, node))  # type: ignore[misc]
        self._at(node.goes_at, lambda _: self._remove(node, why))

    def _drain(self, key: Key, node: Node) -> None:
        if not node.gone and key in node.keys:
            self._out.append(Drained(key))

    def _remove(self, node: Node, why: str) -> None:
        if node.gone:
            return
        node.gone, self._dirty = True, True
        del self._pools[node.pool.name].nodes[node.name]
        self._out.append(NodeGone(node.name, node.pool.name, tuple(node.keys), why))
        for key in node.keys:
            del self._running[key]

    # -- the market

    def _tick(self, state: _PoolState, moment: float, now: float) -> None:
        """The trace changes at ``moment`` of its own time: nodes beyond what can be had go, in an order that the seed draws."""
        if state.trace is None:
            return
        state.available = nodes_at(state.trace, moment)
        staying = [node for node in state.nodes.values() if node.goes_at is None]
        staying.sort(key=lambda node: uniform(self._seed, "taken", node.name))
        for node in staying[state.available :]:
            self._take(node, f"the trace has {_nodes(state.available)} left", now)
        change = next_change(state.trace, moment)
        if change is not None:
            at = self._start + (change - state.pool.simulate.start) / self._scale
            self._at(at, lambda at: self._tick(state, change, at))
        self._dirty = True

    # -- the scheduler

    def _bind(self, now: float) -> None:
        """Bind what fits on ready nodes; for the rest, count on booting nodes or add some."""
        for key, request, node in self._queue.bind(lambda request: choose(request, self._ready_nodes(request))):
            self._bind_to(key, request, node, now)
        for state in self._pools.values():
            while len(state.nodes) < state.pool.min_nodes and not _limit(state):
                self._boot(state, state.pool.zones or (None,), now)
        planned = [
            node.copy()
            for state in self._pools.values()
            for node in state.nodes.values()
            if not node.ready and node.goes_at is None
        ]
        self._queue.plan(lambda request: self._plan(request, planned, now))

    def _ready_nodes(self, request: Request) -> Iterator[Node]:
        for name in request.pools:
            for node in self._pools[name].nodes.values():
                if node.ready and node.goes_at is None:
                    yield node

    def _bind_to(self, key: Key, request: Request, node: Node, now: float) -> None:
        node.take_in(key, request)
        self._running[key] = _Running(node, request)
        self._out.append(Bound(key, node.name, node.pool.name))
        if len(node.keys) == 1:
            self._carry(key, now)

    def _carry(self, key: Key, now: float) -> None:
        """From now on the work of this attempt tells when its node goes.

        One attempt of each node does: the oldest. Did each of them, ten attempts on a node would lose it ten times as often.
        """
        running = self._running[key]
        drawn = fate(running.node.pool.simulate, self._seed, *key) if running.node.pool.is_spot else None
        running.fate = drawn
        if drawn is None:
            return
        if running.progress is not None:
            running.threshold = drawn.threshold(running.progress)
        else:
            self._at(now + drawn.age, lambda at: self._come_of_age(key, drawn, at))

    def _come_of_age(self, key: Key, drawn: Fate, now: float) -> None:
        running = self._running.get(key)
        if running is not None and running.fate is drawn and running.progress is None:
            self._take(running.node, f"after {drawn.age:.3g}s of {key[0]}", now)

    def _plan(self, request: Request, planned: list[Node], now: float) -> bool:
        """Make sure that a node is on its way for one more attempt; False when none can be had.

        ``planned`` holds copies of the booting nodes, filled with the attempts that wait for them.
        """
        node = choose(request, (node for node in planned if node.pool.name in request.pools))
        if node is None:
            booted = self._grow(request, now)
            if booted is None:
                return False
            node = booted.copy()
            planned.append(node)
        node.take_in(("", len(node.keys)), request)
        return True

    def _grow(self, request: Request, now: float) -> Node | None:
        """Add a node for a request, in the best pool that can grow."""
        where = self._growth.get(request)
        if where is None:
            where = self._growth[request] = growth(request, {name: self._pools[name].pool for name in request.pools})
        found = next(((name, zones) for name, zones in where if not _limit(self._pools[name])), None)
        return None if found is None else self._boot(self._pools[found[0]], found[1], now)

    def _at(self, moment: float, action: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._timers, (moment, self._count, action))


def _limit(state: _PoolState) -> str:
    """Why no node can be added to the pool now; empty when one can."""
    if state.available is not None and len(state.nodes) >= state.available:
        return f"no capacity: the trace has {_nodes(state.available)} now"
    most = state.pool.max_nodes
    if len(state.nodes) < most:
        return ""
    in_use = {0: "max_nodes is 0", 1: "its only node is in use (max_nodes is 1)"}
    return in_use.get(most, f"all {most} nodes are in use (max_nodes)")


def _reason(state: _PoolState) -> str:
    booting = sum(not node.ready and node.goes_at is None for node in state.nodes.values())
    return f"{_nodes(booting)} booting" if booting else _limit(state) or "a node was just asked for"


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
