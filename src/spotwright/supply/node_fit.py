"""Choose a simulated node for an attempt as the Kubernetes scheduler does, and decide when nodes are reclaimed.

Nodes are reclaimed by a seeded model of interruptions, or by a recorded trace of available nodes. Filter: taints (NoSchedule,
NoExecute), node selector, required node affinity, and room for the requests. Score: the weights of matching preferred terms
first, then fewer untolerated ``PreferNoSchedule`` taints, then the emptier node; ties go to the older node. Source: Kubernetes
scheduler plugins NodeAffinity, TaintToleration, NodeResourcesFit (LeastAllocated).

Two deviations. If no node exists yet, the preferred terms also choose the pool that grows; the cluster autoscaler ignores them,
and its choice depends on its expander, which is unknown here. And an attempt without requests takes a default share of its node
(``DEFAULT_CPU``): kube-scheduler would pack ``maxPods`` of them onto one node, and one interruption would end them all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spotwright.clouds import node_labels, providers
from spotwright.frozen import Frozen
from spotwright.model.pools import DEFAULT_CPU, Pool, Resources, Simulate, Trace
from spotwright.model.scheduling_terms import Constraints, Taint
from spotwright.scheduling.ladder import EVERYWHERE

__all__ = [
    "LATEST_SHARE",
    "PODS",
    "AttemptKey",
    "Bound",
    "Evicted",
    "Growth",
    "InterruptionDraw",
    "Node",
    "NodeBooting",
    "NodeGone",
    "NodeReady",
    "NodeRequest",
    "Noticed",
    "SigtermDue",
    "SupplyEvent",
    "choose",
    "draw_interruption",
    "growth",
    "new_node",
    "next_change",
    "nodes_at",
    "uniform",
]


LATEST_SHARE = 0.85
"""The latest share of its work at which a reporting attempt loses its node: with a later one, an attempt could end before the
interruption on a fast machine and after it on a slow one."""


class InterruptionDraw:
    """The moment of one attempt's interruption: at a ``share`` of its reported work, or at an ``age`` in seconds."""

    __slots__ = ("age", "share")

    def __init__(self, share: float | None, age: float) -> None:
        self.share = share  # None: a reporting attempt keeps its node
        self.age = age

    def threshold(self, first: float) -> float | None:
        """The progress at which the node is reclaimed, for an attempt whose first report was ``first``; ``None``: never."""
        if self.share is None or first >= 1.0:
            return None
        return first + self.share * (1.0 - first)


def uniform(seed: int, *parts: object) -> float:
    """A number in [0, 1) that depends only on its arguments, on every machine and version of Python."""
    text = "\x1f".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2.0**64


def draw_interruption(simulate: Simulate, seed: int, task: str, attempt: int) -> InterruptionDraw | None:
    """Draw the interruption of one attempt on a pool; ``None`` if the model reclaims no nodes of the pool."""
    if simulate.interrupt_every is None:
        return None
    life = -math.log1p(-uniform(seed, "life", task, attempt))
    share = life * simulate.interrupt_every / (simulate.expected_duration or simulate.interrupt_every or 1.0)
    return InterruptionDraw(min(share, LATEST_SHARE) if share < 1.0 else None, life * simulate.interrupt_every)


def nodes_at(trace: Trace, moment: float) -> int:
    """The number of available nodes ``moment`` seconds into the trace."""
    return trace.counts[_tick(trace, moment) % len(trace.counts)]


def next_change(trace: Trace, moment: float) -> float | None:
    """The next moment at which the number changes, in seconds into the trace; ``None`` for a trace that never changes."""
    tick = _tick(trace, moment)
    size = len(trace.counts)
    now = trace.counts[tick % size]
    for ahead in range(1, size + 1):
        if trace.counts[(tick + ahead) % size] != now:
            return (tick + ahead) * trace.gap
    return None


def _tick(trace: Trace, moment: float) -> int:
    """The tick in which a moment lies. A tick's own moment belongs to it, however its float was rounded."""
    return math.floor(moment / trace.gap + 1e-9)


class AttemptKey(NamedTuple):
    """The key of an attempt. Several runs may share a supply, so it contains the run."""

    run: str
    task: str  # the task's path in its run
    number: int  # of the attempt, from one


class NodeBooting(Frozen):
    """A node was requested, and is billed from now, for an attempt of ``run``; empty: for ``min_nodes``."""

    node: str
    pool: str
    run: str = ""


class NodeReady(Frozen):
    """A node accepts attempts."""

    node: str
    pool: str


class Bound(Frozen):
    """An attempt has its node."""

    key: AttemptKey
    node: str
    pool: str


class Noticed(Frozen):
    """The provider announces the reclaim of a node (``goes_at``); ``keys`` are the attempts on it."""

    node: str
    pool: str
    keys: tuple[AttemptKey, ...]
    goes_at: float
    why: str


class SigtermDue(Frozen):
    """An attempt gets SIGTERM, because its node will be reclaimed soon."""

    key: AttemptKey


class Evicted(Frozen):
    """A drain evicts an attempt from its node: SIGTERM now, SIGKILL at ``ends_by`` (the end of its grace period).

    The node stays until it is empty. ``why`` becomes ``Signals.moved``.
    """

    key: AttemptKey
    node: str
    ends_by: float
    why: str


class NodeGone(Frozen):
    """A node is gone. ``keys`` are the attempts on it at that moment; empty for a returned node."""

    node: str
    pool: str
    keys: tuple[AttemptKey, ...]
    why: str


SupplyEvent = NodeBooting | NodeReady | Bound | Noticed | SigtermDue | Evicted | NodeGone


PODS = 110
"""The most attempts on a node: the kubelet's default ``maxPods``."""


_UNKNOWN = dict.fromkeys(EVERYWHERE, 1 << 62)  # unlimited if the size lacks them


@dataclass(frozen=True, slots=True, eq=False)
class NodeRequest:
    """The node that an attempt needs. Attempts of one shape share one object, so that one queue per object is enough.

    ``pools`` are in the order of preference; ``constraints`` include the tolerations that Spotwright adds; ``grace`` is the
    grace period in simulated seconds.
    """

    pools: tuple[str, ...]
    requests: Resources = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    grace: float = 30.0
    _scores: dict[tuple[str, str], int | None] = field(default_factory=dict, init=False)
    names_resources: bool = field(default=False, init=False)  # it has requests

    def __post_init__(self) -> None:
        object.__setattr__(self, "names_resources", any(self.requests.values()))

    def score_of(self, node: Node) -> int | None:
        """The score of a node, higher is better; ``None`` if the constraints refuse it. Cached per pool and zone."""
        kind = (node.pool.name, node.zone or "")
        if kind not in self._scores:
            self._scores[kind] = _score(self.constraints, node)
        return self._scores[kind]


@dataclass(slots=True)
class Node:
    """A simulated node. ``room`` is the free amount of each resource; ``None`` for a node of unknown size.

    ``default_share`` is the share of an attempt without requests.
    """

    name: str
    pool: Pool
    zone: str | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    room: dict[str, int] | None
    pods: int = PODS
    default_share: Resources = field(default_factory=dict)
    ready: bool = False
    gone: bool = False
    goes_at: float | None = None  # when the provider reclaims the node, by its notice
    draining: str = ""  # the reason of its drain; empty: not drained
    empty_since: float = 0.0
    idle_timer: bool = False  # a timer will check that it is still empty
    keys: dict[AttemptKey, None] = field(default_factory=dict)  # the attempts on it, oldest first

    @property
    def is_schedulable(self) -> bool:
        """Whether it accepts new attempts once it is ready: it has neither a notice nor a drain."""
        return self.goes_at is None and not self.draining

    def has_room_for(self, request: NodeRequest) -> bool:
        """Whether an attempt fits beside the attempts on it; a node of unknown size takes one attempt at a time."""
        if self.room is None:
            return not self.keys
        if self.pods <= 0:
            return False
        for name, amount in self._taken_by(request).items():  # noqa: SIM110  # the hottest loop: twice as fast as all()
            if amount > self.room.get(name, 0):
                return False
        return True

    @property
    def is_full(self) -> bool:
        """Whether one of its resources is used up."""
        if self.room is None:
            return bool(self.keys)
        offered = self.pool.node or {}
        return self.pods <= 0 or any(left <= 0 < offered.get(name, 0) for name, left in self.room.items())

    def _taken_by(self, request: NodeRequest) -> Resources:
        """The share of the room that an attempt takes."""
        return request.requests if request.names_resources else self.default_share

    def add(self, key: AttemptKey, request: NodeRequest) -> None:
        """Put an attempt on the node."""
        self.keys[key] = None
        self.pods -= 1
        if self.room is not None:
            for name, amount in self._taken_by(request).items():
                self.room[name] = self.room.get(name, 0) - amount

    def remove(self, key: AttemptKey, request: NodeRequest) -> None:
        """Take an attempt off the node."""
        del self.keys[key]
        self.pods += 1
        if self.room is not None:
            for name, amount in self._taken_by(request).items():
                self.room[name] = self.room.get(name, 0) + amount

    def copy(self) -> Node:
        """A copy with the same room and attempts, for planning."""
        room = dict(self.room) if self.room is not None else None
        share = self.default_share
        return Node(
            self.name, self.pool, self.zone, self.labels, self.taints, room, self.pods, share, keys=dict(self.keys)
        )


def new_node(name: str, pool: Pool, zone: str | None) -> Node:
    """An empty node of a pool, in one of its zones."""
    labels = node_labels.known_in(pool, zone)
    room = None if pool.node is None else {**_UNKNOWN, **pool.node}
    pods = room.pop("pods", PODS) if room is not None else PODS
    share = _default_share(pool.node or {})
    return Node(name, pool, zone, labels, tuple(providers.taints(pool)), room, pods, share)


def choose(request: NodeRequest, nodes: Iterable[Node]) -> Node | None:
    """The best node that the request accepts and that has room, or ``None``."""
    best: Node | None = None
    best_rank: tuple[int, int] | None = None
    for node in nodes:
        score = request.score_of(node)
        if score is None or not node.has_room_for(request):
            continue
        rank = (score, -len(node.keys))
        if best_rank is None or rank > best_rank:
            best, best_rank = node, rank
    return best


Growth = tuple[tuple[str, tuple[str | None, ...]], ...]
"""The pools that could grow for a request, best first, each with its best zones for the request."""


def growth(request: NodeRequest, pools: Mapping[str, Pool]) -> Growth:
    """The pools in which this request accepts new nodes, best first."""
    ranked: list[tuple[int, str, tuple[str | None, ...]]] = []
    for name, pool in pools.items():
        scores = {zone: request.score_of(new_node("", pool, zone)) for zone in pool.zones or (None,)}
        accepted = [score for score in scores.values() if score is not None]
        if accepted:
            best = max(accepted)
            ranked.append((best, name, tuple(zone for zone, score in scores.items() if score == best)))
    ranked.sort(key=lambda item: -item[0])
    return tuple((name, zones) for _, name, zones in ranked)


def _default_share(node: Resources) -> Resources:
    """The share of an attempt without requests on a node of this size: one CPU, or all of a smaller node's CPU."""
    cpu = min(DEFAULT_CPU, node.get("cpu", 0))
    return {"cpu": cpu} if cpu else {}


def _score(constraints: Constraints, node: Node) -> int | None:
    if constraints.refusal(node.labels, node.taints, node_labels.unknown(node.pool)):
        return None
    preferred = sum(p.weight for p in constraints.preferred if p.term.matches(node.labels))
    avoided = sum(t.effect == "PreferNoSchedule" and not constraints.tolerates(t) for t in node.taints)
    return preferred * 100 - avoided
