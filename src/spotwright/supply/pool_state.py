"""The state of one simulated pool (its nodes, its trace, why it cannot grow), and of an attempt on a node."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotwright.model.pools import Pool, Trace
from spotwright.supply.interruption_model import InterruptionDraw
from spotwright.supply.node_fit import Node, NodeRequest, new_node

__all__ = ["PoolState", "RunningAttempt"]


@dataclass(slots=True)
class RunningAttempt:
    """An attempt on a node."""

    node: Node
    request: NodeRequest
    progress: float | None = None  # its last report
    draw: InterruptionDraw | None = None  # set while this attempt's draw decides when the node is taken
    threshold: float | None = None  # the progress at which its node is taken


@dataclass(slots=True)
class PoolState:
    """A pool with its nodes. ``available`` is the number of nodes in its trace now; ``None`` without a trace."""

    pool: Pool
    trace: Trace | None
    created: int  # nodes that it has had so far: the last number in a name
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
        """Create a node in the next of these zones; the pool takes its zones in turn."""
        turn = self.zones
        zone = next(z for z in (turn[(self.created + ahead) % len(turn)] for ahead in range(len(turn))) if z in zones)
        self.created += 1
        node = new_node(f"{self.pool.name}-{self.created}", self.pool, zone)
        self.nodes[node.name] = node
        return node

    def has_room(self) -> bool:
        """Whether a node has room, or one could be added now."""
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
