"""Simulates one run, or many runs that compete for the same pools, in one virtual time.

Each run has its own engine with the same decisions, fold and journal as everywhere else. The runner only decides whose turn is
next: in the order in which facts come; at the same moment, in the order of the list of runs. So the same runs, seeds and
traces give the same journals. Their journals are in memory, and end with the process.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.simulated_attempts import AttemptModel, MakeOutputs, SimulatedAttempts, declared_outputs
from tests.simulation.simulated_cluster import Drains, SimulatedCluster
from tests.simulation.world import SimulatedWorld

from spotwright.engine.events import EngineStarted, Event, RunCreated, RunMeta
from spotwright.engine.fold import rare_collections
from spotwright.engine.loop import DECISIONS_VERSION, Engine, Observer
from spotwright.engine.plan import Plan
from spotwright.engine.ports import EventLog
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError
from spotwright.model.pools import Pool, Trace

__all__ = ["MemoryJournal", "SimulatedRun", "simulate"]


class MemoryJournal:
    """The events of a run, in the order in which they were committed."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, events: Sequence[Event]) -> None:
        """Append events."""
        self.events += events


_YEAR = 365.0 * 24 * 3600


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A run to simulate. ``seed`` draws its interruptions; ``starts_at`` is in seconds after the start of the simulation.

    ``facts`` come from outside of the cluster, such as a cancel by the user: pairs of seconds after the run's start and a
    function from the moment to the fact. Runs may share a plan, unless its placement depends on values that tasks compute.
    """

    name: str
    plan: Plan
    model: AttemptModel
    seed: int = 0
    starts_at: float = 0.0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    facts: Sequence[tuple[float, Callable[[float], Event]]] = ()
    make_outputs: MakeOutputs = declared_outputs
    journal: EventLog = field(default_factory=MemoryJournal)
    observers: Sequence[Observer] = ()


def simulate(
    runs: Sequence[SimulatedRun],
    pools: Mapping[str, Pool],
    *,
    seed: int = 0,
    scale: float = 1.0,
    start: float = 0.0,
    traces: Mapping[str, Trace] | None = None,
    drains: Drains | None = None,
    horizon: float = _YEAR,
) -> dict[str, RunState]:
    """Drive every run to its end on shared pools. Returns the final states by name. A single run has the pools for itself.

    ``seed`` draws the nodes that traces take and the nodes that are drained. ``start`` is the first moment in Unix seconds.
    Raises :class:`SpotwrightError` if a run has not ended after ``horizon`` seconds of virtual time, or can never end.
    """
    unknown = {pool for run in runs for pool in run.plan.config.pools} - pools.keys()
    if unknown:
        raise ValueError(f"runs are planned on pools that the simulation does not have: {', '.join(sorted(unknown))}")
    cluster = SimulatedCluster(
        pools, seed=seed, scale=scale, start=start, traces=traces, drains=drains, shared=len(runs) > 1
    )
    with rare_collections():
        return _Simulation(runs, cluster).drive(start + horizon)


class _Simulation:
    """Gives turns to the engines of the runs. ``_due`` holds the runs that wait for a moment, ``_awake`` those with new facts."""

    def __init__(self, runs: Sequence[SimulatedRun], cluster: SimulatedCluster) -> None:
        self._runs, self._cluster = {run.name: run for run in runs}, cluster
        if len(self._runs) < len(runs):
            raise ValueError("two runs have one name")
        self._order = {run.name: number for number, run in enumerate(runs)}
        self._engines: dict[str, Engine] = {}
        self._worlds: dict[str, SimulatedWorld] = {}
        self._awake: dict[str, None] = {}
        self._due: list[tuple[float, int, str]] = []
        self._until: dict[str, float | None] = {}
        self._states: dict[str, RunState] = {}

    def drive(self, horizon: float) -> dict[str, RunState]:
        for run in self._runs.values():
            self._wait(run.name, self._cluster.clock.now + run.starts_at)
        while len(self._states) < len(self._runs):
            self._pass_time(horizon)
            self._cluster.advance()
            self._wake_due()
            while self._awake:
                self._turn(next(iter(self._awake)))
        return {name: self._states[name] for name in self._runs}

    def _pass_time(self, horizon: float) -> None:
        """Move time to the next event of the cluster or the next turn of a run."""
        moments = [m for m in (self._cluster.next_moment(), self._next_due()) if m is not None]
        moment = min(moments, default=None)
        if moment is None or moment > horizon:
            why = "no further event can happen" if moment is None else "the horizon of the simulation is reached"
            left = [name for name in self._runs if name not in self._states]
            raise SpotwrightError(f"{why}, and runs have not ended: {', '.join(left[:5])}")
        self._cluster.clock.move_to(moment)

    def _turn(self, name: str) -> None:
        del self._awake[name]
        engine = self._engines.get(name)
        if engine is None:
            engine, facts = self._open(name)
        else:
            facts = self._worlds[name].take_facts()
        until = engine.turn(facts)
        self._awake.pop(name, None)  # the facts that came during the turn were taken in it
        if engine.ended:
            self._close(name)
        else:
            self._wait(name, until)

    def _open(self, name: str) -> tuple[Engine, list[Event]]:
        run, cluster, now = self._runs[name], self._cluster, self._cluster.clock.now
        attempts = SimulatedAttempts(name, cluster, run.model, seed=run.seed, make_outputs=run.make_outputs)
        world = self._worlds[name] = SimulatedWorld(attempts, on_facts=lambda: self._awake.setdefault(name))
        for seconds, make_fact in run.facts:
            world.schedule(now + seconds, make_fact)
        engine = Engine(RunState([run.plan]), run.journal, world, cluster.clock, run.observers)
        self._engines[name] = engine
        meta = RunMeta(run=name, arguments=run.arguments, seed=run.seed, time_scale=cluster.supply.scale)
        started = EngineStarted(now, epoch=1, decisions=DECISIONS_VERSION)
        return engine, [RunCreated(now, meta=meta), started, *world.take_facts()]

    def _close(self, name: str) -> None:
        engine = self._engines.pop(name)
        engine.close()
        self._cluster.advance()  # other runs get its room
        self._states[name] = engine.state
        del self._worlds[name]
        self._awake.pop(name, None)  # the last facts are committed
        self._until[name] = None

    def _wait(self, name: str, until: float | None) -> None:
        if until is not None and until != self._until.get(name):
            heapq.heappush(self._due, (until, self._order[name], name))
        self._until[name] = until

    def _next_due(self) -> float | None:
        while self._due and self._until.get(self._due[0][2]) != self._due[0][0]:
            heapq.heappop(self._due)  # the run waits for another moment now
        return self._due[0][0] if self._due else None

    def _wake_due(self) -> None:
        while (moment := self._next_due()) is not None and moment <= self._cluster.clock.now:
            name = heapq.heappop(self._due)[2]
            self._until[name] = None
            self._awake.setdefault(name)
