"""The simulated cluster: one virtual time, one supply of nodes, and the runs that share them.

It drains nodes, as upgrades, consolidations or ``kubectl drain`` do, and passes each event of the supply to the runs that it
concerns:

* A run that has the cluster for itself gets the events of every node, like a run in the local world.
* A run that shares the cluster gets the events of nodes that boot for its attempts, and of another node once one of its
attempts is
  bound there. Its account shows the nodes that it used. The time in which shared nodes boot or idle for others is in no account;
  the time of a node that several runs use is in the account of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spotwright.model.pools import Pool, Trace
from spotwright.supply.node_fit import (
    Bound,
    Evicted,
    NodeBooting,
    NodeGone,
    NodeReady,
    Noticed,
    SigtermDue,
    SupplyEvent,
    uniform,
)
from spotwright.supply.simulated_pools import Supply, TimerQueue

__all__ = ["Drains", "SimulatedCluster", "Tenant", "VirtualClock"]


@dataclass(frozen=True, slots=True)
class Drains:
    """Drains at given moments, at a rate, or both. Durations are seconds of virtual time after the start.

    ``at`` lists moments; ``every`` is the mean time between drawn ones (exponential, as for independent arrivals). Each time one
    node with attempts is drained, drawn by the seed of the simulation; nothing happens if there is none. ``why`` is the reason in
    the signals of evicted attempts: "drained", "consolidated", ...
    """

    at: Sequence[float] = ()
    every: float | None = None
    why: str = "drained"

    def next_gap(self, seed: int, count: int) -> float:
        """Seconds between the drawn drains ``count - 1`` and ``count``. Only where there is a rate."""
        return -math.log1p(-uniform(seed, "drain", count)) * (self.every or math.inf)

    def choose(self, seed: int, count: int, nodes: Sequence[str]) -> str:
        """The node that the drain of this count takes."""
        return min(nodes, key=lambda node: uniform(seed, "drain", count, node))


class VirtualClock:
    """The present of a simulation, in Unix seconds. Call it to read it."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def __call__(self) -> float:
        """The present moment."""
        return self.now

    def move_to(self, moment: float) -> None:
        """Move time forward to ``moment``; it never goes back."""
        self.now = max(self.now, moment)


class Tenant(Protocol):
    """The part of a run's world that receives events of nodes."""

    def receive(self, event: SupplyEvent) -> None:
        """Receive an event; the attempts in it are the run's own."""


class SimulatedCluster:
    """Nodes on virtual time. ``seed`` is for drains and for draws that are not of one run; ``scale`` is the time scale.

    ``start`` is the first moment in Unix seconds. ``made`` counts the nodes that earlier engines had in each pool.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        *,
        seed: int,
        scale: float = 1.0,
        start: float = 0.0,
        traces: Mapping[str, Trace] | None = None,
        made: Mapping[str, int] | None = None,
        drains: Drains | None = None,
        shared: bool = False,
    ) -> None:
        self.clock, self.agenda = VirtualClock(start), TimerQueue()
        self.supply = Supply(pools, seed=seed, scale=scale, now=start, traces=traces, made=made)
        self.pools, self.shared = pools, shared
        self._seed, self._drains, self._drain_count = seed, drains or Drains(), 0
        self._tenants: dict[str, Tenant] = {}
        self._audience: dict[str, dict[str, None]] = {}  # by node: the runs that get its events
        self._early: list[SupplyEvent] = []  # events before the only run joined
        for moment in self._drains.at:
            self.agenda.at(start + moment, self._drain)
        self._expect_drain(1)

    # -- runs

    def join(self, run: str, seed: int, tenant: Tenant) -> None:
        """Let a run join, with its own seed for the interruptions of its attempts; nothing if it has joined already."""
        if self._tenants.get(run) is tenant:
            return
        if run in self._tenants:
            raise ValueError(f"two runs are named {run}")
        if self._tenants and not self.shared:
            raise ValueError("this cluster is for one run: make it with shared=True")
        self._tenants[run] = tenant
        self.supply.join(run, seed)
        early, self._early = self._early, []
        self._deliver(early)

    def leave(self, run: str) -> None:
        """Let a run leave. Nodes that it had for itself are given back; shared nodes stay."""
        if self.shared:
            self.supply.leave(run, self.clock.now)
        else:
            self._deliver(self.supply.close())
        del self._tenants[run]
        for runs in self._audience.values():
            runs.pop(run, None)

    # -- time

    def advance(self) -> None:
        """Run what is due now, and deliver the events to the runs."""
        self.agenda.run_until(self.clock.now)
        self._deliver(self.supply.advance(self.clock.now))

    def next_moment(self) -> float | None:
        """The moment of the next event that only needs time to pass."""
        moments = [m for m in (self.agenda.next_moment(), self.supply.next_moment()) if m is not None]
        return min(moments, default=None)

    # -- drains

    def _expect_drain(self, count: int) -> None:
        if self._drains.every:
            due = self.clock.now + self._drains.next_gap(self._seed, count)
            self.agenda.at(due, lambda at: self._drain_and_expect(count, at))

    def _drain_and_expect(self, count: int, now: float) -> None:
        self._drain(now)
        self._expect_drain(count + 1)

    def _drain(self, now: float) -> None:
        nodes = [name for name, node in self.supply.nodes().items() if node.keys and node.is_schedulable]
        if not nodes:
            return
        self._drain_count += 1
        self.supply.drain(self._drains.choose(self._seed, self._drain_count, nodes), self._drains.why, now)

    # -- delivery of events

    def _deliver(self, events: list[SupplyEvent]) -> None:
        if not self._tenants and not self.shared:
            self._early += events
            return
        for event in events:
            for run in self._concerned(event):
                self._tenants[run].receive(_part_of(run, event))

    def _concerned(self, event: SupplyEvent) -> list[str]:
        """The runs that receive an event."""
        if isinstance(event, Bound):
            self._introduce(event)
        if isinstance(event, Bound | SigtermDue | Evicted):
            return [run for run in (event.key.run,) if run in self._tenants]
        if isinstance(event, NodeBooting):
            runs = [event.run] if self.shared else list(self._tenants)
            self._audience[event.node] = {run: None for run in runs if run in self._tenants}
        gone = isinstance(event, NodeGone)
        return list(self._audience.pop(event.node, {}) if gone else self._audience.get(event.node, {}))

    def _introduce(self, event: Bound) -> None:
        """Report a node to a run that gets its first attempt there; it may have booted for another run or ``min_nodes``."""
        runs = self._audience.setdefault(event.node, {})
        if event.key.run not in runs:
            runs[event.key.run] = None
            self._tenants[event.key.run].receive(NodeReady(event.node, event.pool))


def _part_of(run: str, event: SupplyEvent) -> SupplyEvent:
    """The event, reduced to the attempts of one run."""
    if not isinstance(event, Noticed | NodeGone):
        return event
    return event.replaced(keys=tuple(key for key in event.keys if key.run == run))
