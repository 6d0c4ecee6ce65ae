"""Simulated pools: nodes that boot, fill up, are drained and are reclaimed, and the attempts that run on them.

The supply is a state machine without clock, threads or processes: the caller passes ``now``, and :meth:`Supply.advance` returns
the events up to that moment. The local backend turns them into signals to real processes, the simulation into facts on virtual
time. Attempts are bound as by the Kubernetes scheduler (:mod:`spotwright.supply.node_fit`); nodes are added one at a time for
pending attempts, as by the cluster autoscaler, and removed after ten empty minutes.

Several runs may share the pools. Their attempts wait in one queue for each shape of request, so that a thousand equal attempts
cost no more than one, and run side by side on nodes; :meth:`Supply.join` gives a run its own seed for the interruptions of its
attempts.

All moments are in the caller's seconds; simulated waits are divided by ``scale``, except for the age at which the seeded model
reclaims a node, a share of real work.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from spotwright.model.pools import Drain, Pool, Trace
from spotwright.supply.node_fit import (
    AttemptKey,
    Bound,
    Evicted,
    Growth,
    InterruptionDraw,
    Node,
    NodeBooting,
    NodeGone,
    NodeReady,
    NodeRequest,
    Noticed,
    SigtermDue,
    SupplyEvent,
    choose,
    draw_interruption,
    growth,
    new_node,
    next_change,
    nodes_at,
    uniform,
)

__all__ = ["PoolState", "RequestQueue", "RunningAttempt", "Supply", "TimerQueue"]


@dataclass(slots=True)
class RunningAttempt:
    """An attempt on a node."""

    node: Node
    request: NodeRequest
    progress: float | None = None  # its last report
    draw: InterruptionDraw | None = None  # set while this attempt's draw decides when the node is reclaimed
    threshold: float | None = None  # the progress at which its node is reclaimed


@dataclass(slots=True)
class PoolState:
    """A pool with its nodes. ``available`` is the number of nodes in its trace now; ``None`` without a trace."""

    pool: Pool
    trace: Trace | None
    created: int  # nodes so far: the last number in a name
    available: int | None = None
    nodes: dict[str, Node] = field(default_factory=dict)

    @property
    def zones(self) -> tuple[str | None, ...]:
        """The pool's zones; one zone without a name for a pool without zones."""
        return self.pool.zones or (None,)

    @property
    def is_short(self) -> bool:
        """Whether it has fewer nodes than ``min_nodes`` and can add one."""
        return len(self.nodes) < self.pool.min_nodes and not self.limit()

    def add_node(self, zones: tuple[str | None, ...]) -> Node:
        """Create a node in the next of these zones; the pool's zones take turns."""
        turn = self.zones
        zone = next(z for z in (turn[(self.created + ahead) % len(turn)] for ahead in range(len(turn))) if z in zones)
        self.created += 1
        node = new_node(f"{self.pool.name}-{self.created}", self.pool, zone)
        self.nodes[node.name] = node
        return node

    def has_room(self) -> bool:
        """Whether a node has room or can be added now."""
        return not self.limit() or any(node.is_schedulable and not node.is_full for node in self.nodes.values())

    def limit(self) -> str:
        """Why no node can be added now; empty if one can."""
        if self.available is not None and len(self.nodes) >= self.available:
            return f"no capacity: the trace has {self.available_text()} now"
        most = self.pool.max_nodes
        if len(self.nodes) < most:
            return ""
        in_use = {0: "max_nodes is 0", 1: "its only node is in use (max_nodes is 1)"}
        return in_use.get(most, f"all {most} nodes are in use (max_nodes)")

    def why_pending(self) -> str:
        """Why an attempt has no node of this pool yet."""
        booting = sum(not node.ready and node.is_schedulable for node in self.nodes.values())
        return f"{_count(booting)} booting" if booting else self.limit() or "a node was just requested"

    def available_text(self) -> str:
        """The number of nodes in its trace now, in words."""
        return _count(self.available or 0)


def _count(nodes: int) -> str:
    return f"{nodes} node{'' if nodes == 1 else 's'}"


class RequestQueue:
    """Attempts in the order of their submission. Equal requests must be one object."""

    def __init__(self) -> None:
        self._shapes: dict[NodeRequest, dict[AttemptKey, int]] = {}
        self._requests: dict[AttemptKey, NodeRequest] = {}
        self._submitted = 0

    def add(self, key: AttemptKey, request: NodeRequest) -> None:
        """Put an attempt at the end."""
        self._submitted += 1
        self._requests[key] = request
        self._shapes.setdefault(request, {})[key] = self._submitted

    def remove(self, key: AttemptKey) -> bool:
        """Take an attempt out. Returns False if it does not wait (any more)."""
        request = self._requests.pop(key, None)
        if request is None:
            return False
        waiting = self._shapes[request]
        del waiting[key]
        if not waiting:
            del self._shapes[request]
        return True

    def remove_run(self, run: str) -> None:
        """Take out every attempt of a run."""
        for key in [key for key in self._requests if key.run == run]:
            self.remove(key)

    def request_of(self, key: AttemptKey) -> NodeRequest | None:
        """The request of a waiting attempt; ``None`` if it does not wait."""
        return self._requests.get(key)

    def bind(self, find: Callable[[NodeRequest], Node | None]) -> Iterator[tuple[AttemptKey, NodeRequest, Node]]:
        """Take out the attempts for which ``find`` returns a node, one by one. The caller fills each node before it continues."""
        heads = [self._head(request) for request in self._shapes]
        heapq.heapify(heads)
        while heads:
            _, key, request = heads[0]
            node = find(request)
            if node is None:
                heapq.heappop(heads)
                continue
            self.remove(key)
            if request in self._shapes:
                heapq.heapreplace(heads, self._head(request))
            else:
                heapq.heappop(heads)
            yield key, request, node

    def plan(self, find: Callable[[AttemptKey, NodeRequest], bool]) -> None:
        """Call ``find`` for each attempt, shape by shape, until it returns False for that shape."""
        for _, _, request in sorted(self._head(request) for request in self._shapes):
            for key in self._shapes[request]:
                if not find(key, request):
                    break

    def _head(self, request: NodeRequest) -> tuple[int, AttemptKey, NodeRequest]:
        key, order = next(iter(self._shapes[request].items()))
        return order, key, request


class TimerQueue:
    """Actions in the order of their moments; actions of the same moment in the order of entry."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[[float], None]]] = []
        self._entered = 0

    def at(self, moment: float, action: Callable[[float], None]) -> None:
        """Call ``action`` with this moment once time has reached it."""
        self._entered += 1
        heapq.heappush(self._entries, (moment, self._entered, action))

    def next_moment(self) -> float | None:
        """The moment of the earliest action; ``None`` without one."""
        return self._entries[0][0] if self._entries else None

    def run_until(self, now: float) -> None:
        """Run the actions that are due, including those that these actions enter."""
        while self._entries and self._entries[0][0] <= now:
            moment, _, action = heapq.heappop(self._entries)
            action(moment)

    def clear(self) -> None:
        """Forget every action."""
        self._entries.clear()


_IDLE_TIMEOUT = 600.0
"""Seconds after which an empty node above ``min_nodes`` is returned: the cluster autoscaler's default for
``--scale-down-unneeded-time``."""


class Supply:
    """The nodes of all pools. ``seed`` decides every draw; ``scale`` is the time scale; ``now`` is the start.

    ``made`` counts the nodes of earlier engines of the run in each pool, so that names are never reused.
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
        self._seeds: dict[str, int] = {}
        traces, made = traces or {}, made or {}
        self._pools = {name: PoolState(pool, traces.get(name), made.get(name, 0)) for name, pool in pools.items()}
        self._queue = RequestQueue()
        self._shapes: dict[str, NodeRequest] = {}
        self._running: dict[AttemptKey, RunningAttempt] = {}
        self._growth: dict[NodeRequest, Growth] = {}
        self._planned: dict[AttemptKey, str] = {}  # waiting attempts, each with its booting node
        self._agenda = TimerQueue()
        self._events: list[SupplyEvent] = []
        self._dirty = False  # an attempt may get a node, or a node may have to be added
        for state in self._pools.values():
            self._open(state, now)

    @property
    def scale(self) -> float:
        """The time scale."""
        return self._scale

    def join(self, run: str, seed: int) -> None:
        """Give a run its own seed for the interruptions of its attempts."""
        self._seeds[run] = seed

    def leave(self, run: str, now: float) -> None:
        """End a run: withdraw its waiting attempts and free the room of the others. The nodes stay for other runs."""
        self.withdraw_run(run)
        for key in self.placements(run):
            self.release(key, now)

    def placements(self, run: str) -> dict[AttemptKey, Node]:
        """The attempts of a run that have a node, with that node."""
        return {key: running.node for key, running in self._running.items() if key.run == run}

    def shared(self, request: NodeRequest) -> NodeRequest:
        """The request object for this shape: only attempts that share it wait in one queue."""
        shape = repr((request.pools, sorted(request.requests.items()), request.constraints, request.grace))
        return self._shapes.setdefault(shape, request)

    def submit(self, key: AttemptKey, request: NodeRequest) -> None:
        """Queue an attempt for a node. Attempts of one shape should share one request object (:meth:`shared`)."""
        self._queue.add(key, request)
        self._dirty = True

    def withdraw(self, key: AttemptKey) -> bool:
        """Take a waiting attempt out of the queue. Returns False if it does not wait (any more)."""
        return self._queue.remove(key)

    def withdraw_run(self, run: str) -> None:
        """Take all waiting attempts of a run out of the queue."""
        self._queue.remove_run(run)

    def release(self, key: AttemptKey, now: float) -> None:
        """Free the room of an ended attempt, once the decision about its end is made.

        Earlier, a waiting attempt would get the room even after a failure that forbids further attempts.
        """
        running = self._running.pop(key, None)
        if running is None:
            return
        node = running.node
        node.remove(key, running.request)
        self._dirty = True
        if running.draw is not None and node.keys:
            self._use_draw_of(next(iter(node.keys)), now)
        if node.keys or node.goes_at is not None:
            return
        if node.draining:
            self._remove(node, node.draining)
        else:
            self._watch_idle(node, now)

    def report(self, key: AttemptKey, progress: float, now: float) -> None:
        """Note the progress (0 to 1) of an attempt; its node is reclaimed at the drawn share of its work."""
        running = self._running.get(key)
        if running is None:
            return
        if running.draw is not None and running.progress is None:
            running.threshold = running.draw.threshold(progress)
        running.progress = progress
        if running.threshold is not None and progress >= running.threshold:
            self._take(running.node, f"at {progress:.0%} of the work of {key.task}", now)

    # -- interruptions and disruptions from outside the pools

    def take(self, key: AttemptKey, notice: float, why: str, now: float) -> None:
        """Reclaim the node of an attempt, if it has one, after ``notice`` seconds, regardless of its pool's notice.

        With a notice of zero the node is reclaimed at once, even after an earlier notice.
        """
        running = self._running.get(key)
        if running is None:
            return
        if notice <= 0:
            self._remove(running.node, why)
        else:
            self._take(running.node, why, now, notice)

    def approve(self, node: str) -> None:
        """Let the provider reclaim a node with a notice now, because its event was approved; no effect without a notice."""
        noticed = self._node(node)
        if noticed is not None and noticed.goes_at is not None:
            self._remove(noticed, "before its time, as was approved")

    def drain(self, node: str, why: str, now: float) -> bool:
        """Evict every attempt from a node, as ``kubectl drain`` or a consolidation does; the empty node is removed.

        ``why`` ("drained", "consolidated") is the reason of the disruption. Returns False and does nothing for a node that is
        gone, not ready, already drained or under notice.
        """
        drained = self._node(node)
        if drained is None or not drained.ready or not drained.is_schedulable:
            return False
        drained.draining = why
        for key in drained.keys:
            grace = self._running[key].request.grace / self._scale
            self._events.append(Evicted(key, node, now + grace, why))
        if not drained.keys:
            self._remove(drained, why)
        return True

    def nodes(self) -> dict[str, Node]:
        """The existing nodes by name, booting ones included."""
        return {name: node for state in self._pools.values() for name, node in state.nodes.items()}

    # -- events and answers

    def advance(self, now: float) -> list[SupplyEvent]:
        """Let time pass until ``now`` and return the events, in order."""
        self._agenda.run_until(now)
        if self._dirty:
            self._dirty = False
            self._bind(now)
        events, self._events = self._events, []
        return events

    def next_moment(self) -> float | None:
        """The moment of the next event that only needs time to pass."""
        return self._agenda.next_moment()

    def close(self) -> list[SupplyEvent]:
        """Return every node at the end of the run. Waiting attempts get no node."""
        self._agenda.clear()
        for state in self._pools.values():
            for node in list(state.nodes.values()):
                self._remove(node, "given back at the end of the run")
        events, self._events, self._dirty = self._events, [], False
        return events

    def has_room(self, pool: str) -> bool:
        """Whether the pool has a node with room or could add one, as of the last :meth:`advance`."""
        return self._pools[pool].has_room()

    def why_pending(self, key: AttemptKey) -> str:
        """Why an attempt has no node yet, pool by pool, as of the last :meth:`advance`."""
        request = self._queue.request_of(key)
        if request is None:
            return "it does not wait"
        return "; ".join(f"{name}: {self._pools[name].why_pending()}" for name in request.pools)

    def node_on_its_way(self, key: AttemptKey) -> str:
        """The booting node for a waiting attempt, as of the last :meth:`advance`; empty without one."""
        name = self._planned.get(key, "") if self._queue.request_of(key) is not None else ""
        node = self._node(name) if name else None
        return name if node is not None and node.is_schedulable else ""

    # -- nodes

    def _node(self, name: str) -> Node | None:
        return next((state.nodes[name] for state in self._pools.values() if name in state.nodes), None)

    def _open(self, state: PoolState, now: float) -> None:
        """Create the nodes from before the run, and start to follow the pool's trace."""
        if state.trace is not None:
            self._tick(state, state.pool.simulate.start, now)
        while state.is_short:
            self._become_ready(self._add_node(state, state.zones), now)

    def _add_node(self, state: PoolState, zones: tuple[str | None, ...], run: str = "") -> Node:
        node = state.add_node(zones)
        self._events.append(NodeBooting(node.name, state.pool.name, run))
        return node

    def _boot(self, state: PoolState, zones: tuple[str | None, ...], now: float, run: str = "") -> Node:
        node = self._add_node(state, zones, run)
        self._agenda.at(now + state.pool.simulate.boot / self._scale, lambda at: self._become_ready(node, at))
        return node

    def _become_ready(self, node: Node, now: float) -> None:
        if node.gone:
            return
        node.ready, self._dirty = True, True
        self._events.append(NodeReady(node.name, node.pool.name))
        if node.pool.max_lifetime is not None:
            why = f"at the end of its lifetime of {node.pool.max_lifetime:g}s"
            self._agenda.at(now + node.pool.max_lifetime / self._scale, lambda at: self._take(node, why, at))
        self._watch_idle(node, now)

    def _watch_idle(self, node: Node, now: float) -> None:
        node.empty_since = now
        if not node.idle_timer:
            node.idle_timer = True
            self._agenda.at(now + _IDLE_TIMEOUT / self._scale, lambda at: self._check_idle(node, at))

    def _check_idle(self, node: Node, now: float) -> None:
        node.idle_timer = False
        if node.gone or node.keys or node.goes_at is not None:
            return
        due = node.empty_since + _IDLE_TIMEOUT / self._scale
        if now < due:
            node.idle_timer = True
            self._agenda.at(due, lambda at: self._check_idle(node, at))
        elif len(self._pools[node.pool.name].nodes) > node.pool.min_nodes:
            self._remove(node, f"empty for {(now - node.empty_since) * self._scale:.3g}s")

    def _take(self, node: Node, why: str, now: float, notice: float | None = None) -> None:
        """Let the provider reclaim a node: notice, SIGTERM, gone."""
        if node.gone or node.goes_at is not None:
            return
        notice = node.pool.notice / self._scale if notice is None else notice
        node.goes_at = now + notice
        if notice <= 0:
            self._remove(node, why)
            return
        self._events.append(Noticed(node.name, node.pool.name, tuple(node.keys), node.goes_at, why))
        for key in node.keys:
            grace = self._running[key].request.grace / self._scale
            at_once = node.pool.simulate.drain is Drain.AT_NOTICE
            sigterm = now if at_once else max(now, node.goes_at - grace)
            self._agenda.at(sigterm, lambda _, key=key: self._terminate(key, node))  # type: ignore[misc]
        self._agenda.at(node.goes_at, lambda _: self._remove(node, why))

    def _terminate(self, key: AttemptKey, node: Node) -> None:
        if not node.gone and key in node.keys:
            self._events.append(SigtermDue(key))

    def _remove(self, node: Node, why: str) -> None:
        if node.gone:
            return
        node.gone, self._dirty = True, True
        del self._pools[node.pool.name].nodes[node.name]
        self._events.append(NodeGone(node.name, node.pool.name, tuple(node.keys), why))
        for key in node.keys:
            del self._running[key]

    # -- traces

    def _tick(self, state: PoolState, moment: float, now: float) -> None:
        """Follow the trace to ``moment`` of its own time: reclaim surplus nodes.

        The seed draws their order.
        """
        if state.trace is None:
            return
        state.available = nodes_at(state.trace, moment)
        staying = [node for node in state.nodes.values() if node.goes_at is None]
        staying.sort(key=lambda node: uniform(self._seed, "taken", node.name))
        for node in staying[state.available :]:
            self._take(node, f"the trace has {state.available_text()} left", now)
        change = next_change(state.trace, moment)
        if change is not None:
            at = self._start + (change - state.pool.simulate.start) / self._scale
            self._agenda.at(at, lambda at: self._tick(state, change, at))
        self._dirty = True

    # -- the scheduler

    def _bind(self, now: float) -> None:
        """Bind attempts to ready nodes; plan the others on booting nodes, and add nodes for the rest."""
        for key, request, node in self._queue.bind(lambda request: choose(request, self._ready_nodes(request))):
            self._bind_to(key, request, node, now)
        for state in self._pools.values():
            while state.is_short:
                self._boot(state, state.zones, now)
        self._planned = {}
        booting = [
            node.copy()
            for state in self._pools.values()
            for node in state.nodes.values()
            if not node.ready and node.goes_at is None
        ]
        self._queue.plan(lambda key, request: self._plan(key, request, booting, now))

    def _ready_nodes(self, request: NodeRequest) -> Iterator[Node]:
        for name in request.pools:
            for node in self._pools[name].nodes.values():
                if node.ready and node.is_schedulable:
                    yield node

    def _bind_to(self, key: AttemptKey, request: NodeRequest, node: Node, now: float) -> None:
        node.add(key, request)
        self._running[key] = RunningAttempt(node, request)
        self._events.append(Bound(key, node.name, node.pool.name))
        if len(node.keys) == 1:
            self._use_draw_of(key, now)

    def _use_draw_of(self, key: AttemptKey, now: float) -> None:
        """Let the draw of this attempt decide when its node is reclaimed.

        Only the oldest attempt's draw counts; otherwise a node with ten attempts would be reclaimed ten times as often.
        """
        running = self._running[key]
        pool = running.node.pool
        seed = self._seeds.get(key.run, self._seed)
        draw = draw_interruption(pool.simulate, seed, key.task, key.number) if pool.is_spot else None
        running.draw = draw
        if draw is None:
            return
        if running.progress is not None:
            running.threshold = draw.threshold(running.progress)
        else:
            self._agenda.at(now + draw.age, lambda at: self._take_at_age(key, draw, at))

    def _take_at_age(self, key: AttemptKey, draw: InterruptionDraw, now: float) -> None:
        running = self._running.get(key)
        if running is not None and running.draw is draw and running.progress is None:
            self._take(running.node, f"after {draw.age:.3g}s of {key.task}", now)

    def _plan(self, key: AttemptKey, request: NodeRequest, booting: list[Node], now: float) -> bool:
        """Plan one more attempt on a booting node, or add a node for it. Returns False if no node can be added.

        ``booting`` holds copies of the booting nodes, filled with the attempts that are planned on them.
        """
        node = choose(request, (node for node in booting if node.pool.name in request.pools))
        if node is None:
            booted = self._grow(key, request, now)
            if booted is None:
                return False
            node = booted.copy()
            booting.append(node)
        node.add(key, request)
        self._planned[key] = node.name
        return True

    def _grow(self, key: AttemptKey, request: NodeRequest, now: float) -> Node | None:
        """Add a node for a request, in the best pool that can grow."""
        options = self._growth.get(request)
        if options is None:
            pools = {name: self._pools[name].pool for name in request.pools}
            options = self._growth[request] = growth(request, pools)
        best = next(((name, zones) for name, zones in options if not self._pools[name].limit()), None)
        return None if best is None else self._boot(self._pools[best[0]], best[1], now, key.run)
