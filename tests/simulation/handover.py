"""A run in the simulated cluster whose engines are lost while the cluster, and the attempts in it, go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.engine.driving import CrashingJournal
from tests.engine.scripts import outputs_of_inputs
from tests.simulation.simulated_attempts import AttemptModel, SimulatedAttempts
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.world import SimulatedWorld

from spotwright.engine.events import EngineStarted, Event, RunCreated, RunMeta
from spotwright.engine.fold import fold, replay
from spotwright.engine.loop import DECISIONS_VERSION, Engine
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.model.pools import Trace


class Handover:
    """A run in a cluster that stays, and its engines, one after another."""

    def __init__(
        self,
        plan: Plan,
        model: AttemptModel,
        *,
        seed: int = 1,
        adopts: bool = True,
        traces: Mapping[str, Trace] | None = None,
    ) -> None:
        self.plan, self.adopts = plan, adopts
        self.cluster = SimulatedCluster(plan.config.pools, seed=seed, traces=traces)
        self.attempts = SimulatedAttempts("run", self.cluster, model, seed=seed, make_outputs=outputs_of_inputs)
        self.journal = CrashingJournal()
        self.epoch = 0
        self.world: SimulatedWorld

    def take_up(self) -> tuple[Engine, list[Event]]:
        """The next engine, with the facts of its first turn."""
        self.epoch += 1
        state = replay([self.plan], self.journal.events) if self.journal.events else RunState([self.plan])
        self.world = SimulatedWorld(self.attempts, adopts=self.adopts)
        now = self.cluster.clock.now
        facts: list[Event] = [EngineStarted(now, epoch=self.epoch, decisions=DECISIONS_VERSION)]
        if not self.journal.events:
            facts.insert(0, RunCreated(now, meta=RunMeta(run="run")))
            facts += self.world.recover(state)  # nodes of an engine that was lost before its first commit
            self.world.begin(state)
        else:
            facts += self.world.recover(state)
            for fact in facts:
                fold(state, fact)
            self.journal.append(facts)
            self.world.begin(state)
            facts = []
        return Engine(state, self.journal, self.world, self.cluster.clock), facts

    def drive(self, turns: float = float("inf"), until: float = float("inf")) -> RunState:
        """Let the next engine take this many turns, or those before a moment, and then crash."""
        engine, facts = self.take_up()
        moment = engine.turn(facts)
        while not engine.ended and turns > 1:
            facts = self.world.wait(until if moment is None else min(moment, until))
            if self.cluster.clock.now >= until:
                return engine.state
            moment, turns = engine.turn(facts), turns - 1
        if engine.ended:
            engine.close()
        return engine.state

    def pass_time(self, moment: float) -> None:
        """Let time pass without an engine."""
        while (due := self.cluster.next_moment()) is not None and due <= moment:
            self.cluster.clock.move_to(due)
            self.cluster.advance()
        self.cluster.clock.move_to(moment)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.journal.events if isinstance(event, kind)]

    def causes(self, path: str = "t0") -> list[str]:
        return [str(attempt.cause) for attempt in replay([self.plan], self.journal.events).tasks[path].attempts]
