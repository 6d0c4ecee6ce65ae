"""Simulated pools: nodes that boot, fill up and are taken away, and the scheduler that puts attempts on them.

The supply is a state machine without clock, threads or processes: every call is given ``now``, and :meth:`Supply.advance`
answers with what happened. The local world turns that into signals to real processes, the simulation into events on virtual
time. Attempts are bound as the Kubernetes scheduler does it (:mod:`spotwright.supply.binding`); nodes are added one at a time
for what is pending, as the cluster autoscaler does it, and go when they have been empty for ten minutes.

All moments are in the caller's seconds; the waits of the simulated world are divided by ``scale``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from spotwright.model.pools import Drain, Pool
from spotwright.model.traces import Trace
from spotwright.supply.binding import Node, Request, choose, new_node, order_of_growth
from spotwright.supply.market import Fate, fate, next_change, nodes_at, uniform

__all__ = [
    "IDLE_TIMEOUT",
    "Bound",
    "Drained",
    "Happening",
    "Key",
    "NodeBooting",
    "NodeGone",
    "NodeReady",
    "Noticed",
    "Supply",
]

IDLE_TIMEOUT = 600.0
"""After how many seconds an empty node above ``min_nodes`` is given back: the cluster autoscaler's default for
``--scale-down-unneeded-time``."""

Key = tuple[str, int]
"""An attempt: the task's path and the attempt's number."""


@dataclass(frozen=True, slots=True)
class NodeBooting:
    """A node was asked for and is billed from now on."""

    node: str
    pool: str


@dataclass(frozen=True, slots=True)
class NodeReady:
    """A node takes work."""

    node: str
    pool: str


@dataclass(frozen=True, slots=True)
class Bound:
    """An attempt has its node."""

    key: Key
    node: str
    pool: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """The provider says when a node goes; ``keys`` are the attempts on it."""

    node: str
    pool: str
    keys: tuple[Key, ...]
    goes_at: float
    why: str


@dataclass(frozen=True, slots=True)
class Drained:
    """An attempt gets SIGTERM, because its node is about to go."""

    key: Key


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node is gone. ``keys`` are the attempts that were on it to the end; empty when it was given back."""

    node: str
    pool: str
    keys: tuple[Key, ...]
    why: str


Happening = NodeBooting | NodeReady | Bound | Noticed | Drained | NodeGone


@dataclass(slots=True)
class _Running:
    """An attempt on a node."""

    node: Node
    request: Request
    fate: Fate | None
    threshold: float | None = None
    reported: bool = False


@dataclass(slots=True)
class _PoolState:
    """One pool at play."""

    pool: Pool
    trace: Trace | None
    nodes: dict[str, Node] = field(default_factory=dict)
    made: int = 0
    zone: int = 0


class Supply:
    """The nodes of a run's pools. ``seed`` decides every draw; ``scale`` is the time scale; ``now`` when the run starts."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        *,
        seed: int,
        scale: float,
        now: float,
        traces: Mapping[str, Trace] | None = None,
    ) -> None:
        self._seed, self._scale, self._start = seed, scale, now
        traces = traces or {}
        self._pools = {name: _PoolState(pool, traces.get(name)) for name, pool in pools.items()}
        self._queues: dict[Request, dict[Key, None]] = {}
        self._requests: dict[Key, Request] = {}
        self._running: dict[Key, _Running] = {}
        self._timers: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._out: list[Happening] = []
        self._dirty = False
        for state in self._pools.values():
            self._open(state, now)

    # -- what the world tells the supply

    def submit(self, key: Key, request: Request) -> None:
        """An attempt waits for a node."""
        self._requests[key] = request
        self._queues.setdefault(request, {})[key] = None
        self._dirty = True

    def withdraw(self, key: Key) -> bool:
        """Take back an attempt that waits. False: it does not wait (any more)."""
        request = self._requests.pop(key, None)
        if request is None:
            return False
        queue = self._queues[request]
        del queue[key]
        if not queue:
            del self._queues[request]
        return True

    def release(self, key: Key, now: float) -> None:
        """An attempt has ended: its room is free again."""
        running = self._running.pop(key, None)
        if running is None:
            return
        node = running.node
        node.give_back(key, running.request)
        self._dirty = True
        if not node.keys and node.goes_at is None:
            self._watch_idle(node, now)

    def report(self, key: Key, progress: float, now: float) -> None:
        """An attempt reported its progress (0 to 1); this may be the moment its node goes."""
        running = self._running.get(key)
        if running is None or running.fate is None:
            return
        if not running.reported:
            running.reported, running.threshold = True, running.fate.threshold(progress)
        if running.threshold is not None and progress >= running.threshold:
            self._take(running.node, f"at {progress:.0%} of the work of {key[0]}", now)

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

    def close(self, now: float) -> list[Happening]:
        """Give every node back at the end of the run."""
        for state in self._pools.values():
            for node in list(state.nodes.values()):
                self._remove(node, "given back at the end of the run")
        self._timers.clear()
        return self.advance(now)

    def has_room(self, pool: str, now: float) -> bool:
        """Whether a node of the pool is there, or could be had now."""
        state = self._pools[pool]
        return any(node.goes_at is None for node in state.nodes.values()) or not self._limit(state, now)

    def why_pending(self, key: Key, now: float) -> str:
        """Why an attempt has no node yet, pool by pool."""
        request = self._requests.get(key)
        if request is None:
            return "it does not wait"
        return "; ".join(f"{name}: {self._pool_reason(self._pools[name], request, now)}" for name in request.pools)

    # -- nodes

    def _open(self, state: _PoolState, now: float) -> None:
        """The nodes that are there before the run begins, and the pool's first look at its trace."""
        if state.trace is not None:
            self._tick(state, now)
        for _ in range(state.pool.min_nodes):
            if self._limit(state, now):
                break
            node = self._add_node(state, now)
            self._out.append(NodeBooting(node.name, state.pool.name))
            self._become_ready(node, now)

    def _add_node(self, state: _PoolState, now: float) -> Node:
        state.made += 1
        zones = state.pool.zones
        zone = zones[state.zone % len(zones)] if zones else None
        state.zone += 1
        node = new_node(f"{state.pool.name}-{state.made}", state.pool, zone)
        state.nodes[node.name] = node
        node.made_at = now
        return node

    def _boot(self, state: _PoolState, now: float) -> Node:
        node = self._add_node(state, now)
        self._out.append(NodeBooting(node.name, state.pool.name))
        self._at(now + state.pool.simulate.boot / self._scale, lambda at: self._become_ready(node, at))
        return node

    def _become_ready(self, node: Node, now: float) -> None:
        if node.gone or node.ready:
            return
        node.ready, self._dirty = True, True
        self._out.append(NodeReady(node.name, node.pool.name))
        if node.pool.lifetime is not None:
            why = f"at the end of its lifetime of {node.pool.lifetime:g}s"
            self._at(now + node.pool.lifetime / self._scale, lambda at: self._take(node, why, at))
        self._watch_idle(node, now)

    def _watch_idle(self, node: Node, now: float) -> None:
        node.empty_since = now
        self._at(now + IDLE_TIMEOUT / self._scale, lambda at: self._give_back(node, now, at))

    def _give_back(self, node: Node, since: float, now: float) -> None:
        state = self._pools[node.pool.name]
        if node.gone or node.keys or node.empty_since != since or len(state.nodes) <= state.pool.min_nodes:
            return
        self._remove(node, f"empty for {now - since:.3g}s")

    def _take(self, node: Node, why: str, now: float) -> None:
        """The provider takes a node: notice, SIGTERM, gone."""
        if node.gone or node.goes_at is not None:
            return
        notice = node.pool.notice / self._scale
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
        state = self._pools[node.pool.name]
        if node.gone:
            return
        node.gone = True
        del state.nodes[node.name]
        self._out.append(NodeGone(node.name, node.pool.name, tuple(node.keys), why))
        for key in node.keys:
            self._running.pop(key, None)
        self._dirty = True

    # -- the market

    def _moment(self, state: _PoolState, now: float) -> float:
        return (now - self._start) * self._scale + state.pool.simulate.start

    def _tick(self, state: _PoolState, now: float) -> None:
        """The trace changes: nodes beyond what can be had go, the newest or the oldest as the seed says."""
        trace = state.trace
        if trace is None:
            return
        moment = self._moment(state, now) + 1e-6  # the tick itself, not the float just before it
        available = nodes_at(trace, moment)
        staying = [node for node in state.nodes.values() if node.goes_at is None]
        staying.sort(key=lambda node: uniform(self._seed, "taken", node.name))
        for node in staying[available:]:
            self._take(node, f"the trace has {available} nodes left", now)
        change = next_change(trace, moment)
        if change is not None:
            at = self._start + (change - state.pool.simulate.start) / self._scale
            self._at(at, lambda at: self._tick(state, at))
        self._dirty = True

    def _limit(self, state: _PoolState, now: float) -> str:
        """Why no node can be added to the pool now; empty when one can."""
        if len(state.nodes) >= state.pool.max_nodes:
            return f"all {state.pool.max_nodes} nodes are in use (max_nodes)"
        if state.trace is not None:
            available = nodes_at(state.trace, self._moment(state, now) + 1e-6)
            if len(state.nodes) >= available:
                return f"no capacity: the trace has {available} nodes now"
        return ""

    def _pool_reason(self, state: _PoolState, request: Request, now: float) -> str:
        booting = sum(not node.ready for node in state.nodes.values())
        if booting:
            return f"{booting} node{'s' if booting > 1 else ''} booting"
        return self._limit(state, now) or "a node was just asked for"

    # -- the scheduler

    def _bind(self, now: float) -> None:
        """Bind what fits on ready nodes, in the order of submission; for the rest, count on booting nodes or add one."""
        planned: dict[str, Node] = {}
        for request, queue in list(self._queues.items()):
            while queue:
                node = choose(request, self._candidates(request))
                if node is None:
                    break
                self._bind_to(next(iter(queue)), request, node, now)
            for _ in queue:
                if not self._plan(request, planned, now):
                    break

    def _candidates(self, request: Request) -> Iterable[Node]:
        for name in request.pools:
            for node in self._pools[name].nodes.values():
                if node.ready and node.goes_at is None:
                    yield node

    def _bind_to(self, key: Key, request: Request, node: Node, now: float) -> None:
        self.withdraw(key)
        node.take_in(key, request)
        drawn = fate(node.pool.simulate, self._seed, *key) if node.pool.is_spot else None
        self._running[key] = _Running(node, request, drawn)
        self._out.append(Bound(key, node.name, node.pool.name))
        if drawn is not None:
            self._at(now + drawn.age, lambda at: self._come_of_age(key, node, at))

    def _come_of_age(self, key: Key, node: Node, now: float) -> None:
        running = self._running.get(key)
        if running is not None and running.node is node and not running.reported:
            self._take(node, f"after {running.fate.age if running.fate else 0.0:.3g}s of {key[0]}", now)

    def _plan(self, request: Request, planned: dict[str, Node], now: float) -> bool:
        """Make sure that a node is on its way for one more attempt; False when none can be had.

        ``planned`` holds copies of the booting nodes, filled with the attempts that wait for them.
        """
        for name in request.pools:
            for node in self._pools[name].nodes.values():
                if not node.ready and node.name not in planned and node.goes_at is None:
                    planned[node.name] = node.copy()
        node_for_it = choose(request, planned.values())
        if node_for_it is None:
            for name in order_of_growth(request, {name: self._pools[name].pool for name in request.pools}):
                state = self._pools[name]
                if not self._limit(state, now):
                    node_for_it = planned.setdefault((booted := self._boot(state, now)).name, booted.copy())
                    break
        if node_for_it is None:
            return False
        node_for_it.take_in(("", len(node_for_it.keys)), request)
        return True

    def _at(self, moment: float, action: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._timers, (moment, self._count, action))
