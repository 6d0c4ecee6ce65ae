"""Runs in the simulation whose engines crash and are followed by other engines, which recover the attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.engine.builders import START
from tests.engine.scripts import Behavior, Script, always, outputs_of_inputs
from tests.events import an_event
from tests.simulation.simulated_attempts import SimulatedAttempts, Storage
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.world import SimulatedWorld

from spotwright.engine.decide import close_ended
from spotwright.engine.events import EngineStarted, Event, RunReset, TaskCached
from spotwright.engine.fold import fold, replay
from spotwright.engine.io_resolution import run_outputs
from spotwright.engine.loop import DECISIONS_VERSION, Observer, drive
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.plan import Plan
from spotwright.engine.ports import Clock
from spotwright.engine.state import RunState
from spotwright.model.pools import Trace
from spotwright.supply.simulated_pools import Supply

RUN = "run"


class Crash(Exception):
    """The engine is gone, as after kill -9: nothing is cleaned up."""


@dataclass
class CrashingJournal:
    """Events in memory. The engine crashes ``before`` or after one append is durable.

    Which one: ``crash_at`` counts them; ``crash_on`` is the kind of an event in it.
    """

    events: list[Event] = field(default_factory=list)
    batches: int = 0
    crash_at: int | None = None
    crash_on: str = ""
    before: bool = False

    def append(self, events: Sequence[Event]) -> None:
        self.batches += 1
        crashes = self.batches == self.crash_at or any(event.kind == self.crash_on for event in events)
        if crashes:
            self.crash_on = ""
        if crashes and self.before:
            raise Crash
        self.events += events
        if crashes:
            raise Crash


class ScriptedWorld(SimulatedWorld):
    """The simulated world, with access for tests to its time and supply, and with facts from outside."""

    @property
    def clock(self) -> Clock:
        return self.cluster.clock

    @property
    def now(self) -> float:
        return self.cluster.clock.now

    @property
    def supply(self) -> Supply:
        return self.cluster.supply

    def at(self, seconds: float, kind: str, **data: Any) -> None:
        """Schedule a fact for this many seconds after the start: ``cancel``, ``stop``."""
        self.schedule(START + seconds, lambda at: an_event(kind, at, data=data))

    def close(self) -> list[Event]:
        self.left_running = list(self.attempts.live)
        return super().close()

    def cache(self, task: str, parameters: Mapping[str, Any], artifacts: Mapping[str, Any] | None = None) -> None:
        """Add an earlier result of a task."""
        self.results[task] = TaskCached(
            0.0, task, run="old", of_task=task, parameters=parameters, artifacts=artifacts or {}
        )


@dataclass
class Run:
    """One run and the engines that drive it, one after another."""

    plan: Plan
    script: Script = field(default_factory=lambda: always(Behavior()))
    seed: int = 7
    scale: float = 1.0
    traces: Mapping[str, Trace] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    journal: CrashingJournal = field(default_factory=CrashingJournal)
    observers: Sequence[Observer] = ()
    world_type: type[ScriptedWorld] = ScriptedWorld
    environments: bool = False
    """Whether its engines ask for Python environments."""

    def __post_init__(self) -> None:
        self.plans = [self.plan]
        self.storage = Storage()
        self.now = START
        self.epoch = 0
        self.state = RunState(self.plans)
        self.world = self.a_world(self.state)

    def a_world(self, state: RunState) -> ScriptedWorld:
        """A world for the next engine: new nodes, the old exit records."""
        made = Counter(node.pool for node in state.nodes.values())
        pools = self.plans[-1].config.pools
        cluster = SimulatedCluster(
            pools, seed=self.seed, scale=self.scale, start=self.now, traces=self.traces, made=made
        )
        attempts = SimulatedAttempts(
            RUN,
            cluster,
            lambda start: self.script(start.task, start.number),  # a test may change the script later
            seed=self.seed,
            make_outputs=outputs_of_inputs,
            storage=self.storage,
        )
        return self.world_type(attempts)

    def start(self) -> RunState:
        """Drive it from the beginning to its end (or until an engine crashes)."""
        return self._drive(self.first_facts())

    def first_facts(self) -> list[Event]:
        """The run is created and an engine drives it."""
        meta = {"run": RUN, "seed": self.seed, "time_scale": self.scale, "arguments": dict(self.arguments)}
        return [an_event("created", self.now, data=meta), self._engine()]

    def resume(
        self, *, after: float = 5.0, changed: Plan | None = None, again: Iterable[str] = (), afresh: bool | None = None
    ) -> RunState:
        """Do what ``spotwright resume`` does: fold, recover, close, reset if that is due, go on.

        ``after`` is how long there was no engine. ``afresh`` defaults to whether the run had failed, was cancelled or has a
        ``changed`` plan.
        """
        self.now = self.world.now + after
        self.state = state = replay(self.plans, self.journal.events)
        results = self.world.results
        self.world = self.a_world(state)
        self.world.results.update(results)
        self._settle(state)
        if changed is not None:
            self.plans.append(changed)
        if (bool(state.failed) or state.cancelling or changed is not None) if afresh is None else afresh:
            self._append(state, [RunReset(self.now, version=len(self.plans), again=tuple(again))])
        if changed is not None:
            self.world = self.a_world(state)  # on the pools of that plan
            self.world.results.update(results)
        self.world.begin(state)
        return self._drive([])

    def _settle(self, state: RunState) -> None:
        self._append(state, [self._engine(), *self.world.recover(state)])
        self._append(state, close_ended(state, Snapshot(), self.now))

    def _append(self, state: RunState, events: list[Event]) -> None:
        for event in events:
            fold(state, event)
        self.journal.append(events)

    def _engine(self) -> Event:
        self.epoch += 1
        caching = bool(self.world.results)
        return EngineStarted(
            self.now,
            epoch=self.epoch,
            pid=1,
            decisions=DECISIONS_VERSION,
            caching=caching,
            environments=self.environments,
        )

    def _drive(self, facts: list[Event]) -> RunState:
        world = self.world
        return drive(self.state, self.journal, world, world.clock, facts=facts, observers=self.observers)

    def start_with_crashes(self, crashes: Iterable[tuple[int, bool]]) -> RunState:
        """Start it, and resume it after every crash. The engines crash at these of their appends, before or after each."""
        for engine, (append, before) in enumerate(crashes):
            self.journal.crash_at, self.journal.before = self.journal.batches + append, before
            try:
                return self.start() if engine == 0 else self.resume()
            except Crash:
                pass
        self.journal.crash_at = None
        return self.resume() if self.epoch else self.start()

    # -- what came out

    @property
    def events(self) -> list[Event]:
        return self.journal.events

    @property
    def outputs(self) -> dict[str, Any]:
        return run_outputs(self.state)

    def causes(self, path: str) -> list[str]:
        """Why each attempt of a task ended, in order."""
        return [str(attempt.cause) for attempt in self.state.tasks[path].attempts]

    def pools(self, path: str) -> list[str | None]:
        """The pool of each attempt of a task, in order."""
        return [attempt.pool for attempt in self.state.tasks[path].attempts]

    def events_of(self, kind: str) -> list[Event]:
        """The events of one kind, by its name in the journal."""
        return [event for event in self.events if event.kind == kind]
