"""Which node an attempt is bound to: filter and score as the Kubernetes scheduler does, on simulated nodes.

Filter: taints (NoSchedule, NoExecute), node selector, required node affinity, and room for the requests. Score: the
weights of matching preferred terms first, then fewer untolerated ``PreferNoSchedule`` taints, then the emptier node; ties go
to the older node. Source: Kubernetes scheduler plugins NodeAffinity, TaintToleration, NodeResourcesFit (LeastAllocated).

One deviation: where no node exists yet, the preferred terms also choose the pool that grows. The cluster autoscaler ignores
them; which pool it would take is its expander's business and cannot be known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spotwright import clouds
from spotwright.model.placing import Constraints, Taint
from spotwright.model.pools import Pool, Resources
from spotwright.scheduling.ladder import node_labels

__all__ = ["PODS", "Growth", "Node", "Request", "choose", "growth", "new_node"]

PODS = 110
"""How many attempts a node holds whatever they ask for: the kubelet's default ``maxPods``."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What an attempt needs of a node. Attempts of one kind share one object, so that a queue per object is enough.

    ``pools`` in the order of preference; ``constraints`` include the tolerations that Spotwright adds; ``grace`` is the
    grace period in seconds of the simulated world.
    """

    pools: tuple[str, ...]
    requests: Resources = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    grace: float = 30.0
    _suits: dict[tuple[str, str], int | None] = field(default_factory=dict, init=False)
    _by_name: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", _names_nodes(self.constraints))

    def score_of(self, node: Node) -> int | None:
        """How well a node's kind suits, higher is better; ``None`` where it is refused. Remembered per pool and zone."""
        if self._by_name:
            return _suit(self.constraints, node)
        kind = (node.pool.name, node.zone or "")
        if kind not in self._suits:
            self._suits[kind] = _suit(self.constraints, node)
        return self._suits[kind]


@dataclass(slots=True)
class Node:
    """A simulated node. ``room`` is what is left of each resource; ``None`` for a node of unknown size."""

    name: str
    pool: Pool
    zone: str | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    room: dict[str, int] | None
    pods: int = PODS
    ready: bool = False
    gone: bool = False
    goes_at: float | None = None
    empty_since: float = 0.0
    watched: bool = False  # a timer will look whether it is still empty
    keys: dict[tuple[str, int], None] = field(default_factory=dict)

    def has_room_for(self, requests: Resources) -> bool:
        """Whether the requests fit beside what is there; a node of unknown size takes one attempt at a time."""
        if self.room is None:
            return not self.keys
        return self.pods > 0 and all(amount <= self.room.get(name, 0) for name, amount in requests.items())

    @property
    def is_full(self) -> bool:
        """Whether something that it offers is used up."""
        if self.room is None:
            return bool(self.keys)
        offered = self.pool.node or {}
        return self.pods <= 0 or any(left <= 0 < offered.get(name, 0) for name, left in self.room.items())

    def take_in(self, key: tuple[str, int], request: Request) -> None:
        """Put an attempt on the node."""
        self.keys[key] = None
        self.pods -= 1
        if self.room is not None:
            for name, amount in request.requests.items():
                self.room[name] = self.room.get(name, 0) - amount

    def give_back(self, key: tuple[str, int], request: Request) -> None:
        """Take an attempt off the node."""
        del self.keys[key]
        self.pods += 1
        if self.room is not None:
            for name, amount in request.requests.items():
                self.room[name] = self.room.get(name, 0) + amount

    def copy(self) -> Node:
        """A node with the same room, to plan with."""
        room = dict(self.room) if self.room is not None else None
        return Node(self.name, self.pool, self.zone, self.labels, self.taints, room, self.pods, keys=dict(self.keys))


def new_node(name: str, pool: Pool, zone: str | None) -> Node:
    """An empty node of a pool, in one of its zones."""
    labels = {**node_labels(pool, zone), "kubernetes.io/hostname": name}
    room = dict(pool.node) if pool.node is not None else None
    pods = room.pop("pods", PODS) if room is not None else PODS
    return Node(name, pool, zone, labels, tuple(clouds.taints(pool)), room, pods)


def choose(request: Request, nodes: Iterable[Node]) -> Node | None:
    """The best node that is not refused and has room; ``None`` when there is none."""
    best: Node | None = None
    best_score: tuple[int, int] | None = None
    for node in nodes:
        suits = request.score_of(node)
        if suits is None or not node.has_room_for(request.requests):
            continue
        score = (suits, -len(node.keys))
        if best_score is None or score > best_score:
            best, best_score = node, score
    return best


Growth = tuple[tuple[str, tuple[str | None, ...]], ...]
"""The pools that could grow for a request, best first, each with the zones whose nodes suit it best."""


def growth(request: Request, pools: Mapping[str, Pool]) -> Growth:
    """Where a node could be added for this request; pools whose nodes would be refused are left out."""
    found: list[tuple[int, str, tuple[str | None, ...]]] = []
    for name, pool in pools.items():
        scores = {zone: request.score_of(new_node("", pool, zone)) for zone in pool.zones or (None,)}
        suiting = [score for score in scores.values() if score is not None]
        if suiting:
            best = max(suiting)
            found.append((best, name, tuple(zone for zone, score in scores.items() if score == best)))
    found.sort(key=lambda item: -item[0])
    return tuple((name, zones) for _, name, zones in found)


def _suit(constraints: Constraints, node: Node) -> int | None:
    if constraints.refusal(node.labels, node.taints, node.name):
        return None
    preferred = sum(p.weight for p in constraints.preferred if p.term.matches(node.labels, node.name))
    avoided = sum(t.effect == "PreferNoSchedule" and not constraints.tolerates(t) for t in node.taints)
    return preferred * 100 - avoided


def _names_nodes(constraints: Constraints) -> bool:
    """Whether the constraints tell nodes of one pool apart: by name, or by the hostname label."""
    terms = [*constraints.required, *(p.term for p in constraints.preferred)]
    named = any(term.fields or any(e.key == "kubernetes.io/hostname" for e in term.expressions) for term in terms)
    return named or "kubernetes.io/hostname" in constraints.selector
