"""Runs on virtual time: a journal in memory, engines that crash and are followed by others, and replays."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.engine.builders import START
from tests.engine.world import LOST, Does, Script, World, always

from spotwright.engine.decide import decide
from spotwright.engine.events import DECISIONS, Event
from spotwright.engine.fold import fold, replay
from spotwright.engine.loop import Observer, drive
from spotwright.engine.plan import Plan
from spotwright.engine.signals import write_signals
from spotwright.engine.snapshot import StillSnapshot
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.values import run_outputs
from spotwright.model.traces import Trace
from spotwright.supply.happenings import Key
from spotwright.supply.nodes import Supply


class Crash(Exception):
    """The engine is gone, as after kill -9: nothing is cleaned up."""


@dataclass
class MemoryJournal:
    """Events in memory. The engine crashes ``before`` or after one append is durable.

    Which one: ``crash_at`` counts them; ``crash_on`` is the kind of an event in it.
    """

    events: list[Event] = field(default_factory=list)
    batches: int = 0
    crash_at: int | None = None
    crash_on: str = ""
    before: bool = False
    answers: list[Any] = field(default_factory=list)  # what the world said to the decisions in it
    _known: int = 0

    def append(self, events: Sequence[Event]) -> None:
        self.batches += 1
        crashes = self.batches == self.crash_at or any(event.kind == self.crash_on for event in events)
        if crashes:
            self.crash_on = ""
        if crashes and self.before:
            del self.answers[self._known :]
            raise Crash
        self.events += events
        self._known = len(self.answers)
        if crashes:
            raise Crash


@dataclass
class Run:
    """One run and the engines that drive it, one after another."""

    plan: Plan
    script: Script = field(default_factory=lambda: always(Does()))
    seed: int = 7
    scale: float = 1.0
    traces: Mapping[str, Trace] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    observers: Sequence[Observer] = ()

    def __post_init__(self) -> None:
        self.plans = [self.plan]
        self.records: dict[Key, dict[str, Any]] = {}
        self.now = START
        self.epoch = 0
        self.state = RunState(self.plans)
        self.world = self.a_world(self.state)

    def a_world(self, state: RunState) -> World:
        made = Counter(node.pool for node in state.nodes.values())
        pools = self.plans[-1].config.pools
        supply = Supply(pools, seed=self.seed, scale=self.scale, now=self.now, traces=self.traces, made=made)
        return World(self.plans[-1], self.script, supply, self.now, self.records)

    def start(self) -> RunState:
        """Drive it from the beginning to its end (or until an engine crashes)."""
        data = {"seed": self.seed, "time_scale": self.scale, "arguments": dict(self.arguments)}
        return self._drive([Event("created", self.now, data=data), self._engine()])

    def resume(
        self, *, after: float = 5.0, mended: Plan | None = None, again: Iterable[str] = (), afresh: bool | None = None
    ) -> RunState:
        """What ``spotwright resume`` does: fold, settle, close, begin afresh where that is due, go on.

        ``after`` is how long no engine was there. ``afresh`` defaults to whether the run had failed, was cancelled or mended.
        """
        self.now = self.world.now + after
        self.state = state = replay(self.plans, self.journal.events)
        self._settle(state)
        if mended is not None:
            self.plans.append(mended)
        if (bool(state.failed) or state.cancelling or mended is not None) if afresh is None else afresh:
            self._append(state, [Event("reset", self.now, data={"version": len(self.plans), "again": list(again)})])
        self.world = self.a_world(state)
        for path in state.under_way:
            self.world.submit(state, state.tasks[path])
        return self._drive([])

    def _settle(self, state: RunState) -> None:
        ended = []
        for task in [state.tasks[path] for path in state.under_way]:
            key = (task.path, task.last.number)
            if task.last.bound_at is not None:
                data = self.records.setdefault(key, {"signals": write_signals(LOST)})
                ended.append(Event("ended", self.now, *key, data={**data, "settled": True}))
        gone = [node for node in state.nodes.values() if node.gone_at is None]
        nodes = [Event("node", self.now, data={"node": n.name, "pool": n.pool, "state": "gone"}) for n in gone]
        self._append(state, [self._engine(), *ended, *nodes])
        self._append(state, [e for e in decide(state, StillSnapshot(), self.now) if e.kind == "decided"])

    def _append(self, state: RunState, events: list[Event]) -> None:
        for event in events:
            fold(state, event)
        self.journal.append(events)

    def _engine(self) -> Event:
        self.epoch += 1
        return Event("engine", self.now, data={"epoch": self.epoch, "pid": 1})

    def _drive(self, facts: list[Event]) -> RunState:
        world = self.world
        world.answers = self.journal.answers
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
    def answers(self) -> list[Any]:
        return self.journal.answers

    @property
    def outputs(self) -> dict[str, Any]:
        return run_outputs(self.state)

    def causes(self, path: str) -> list[str]:
        """Why each attempt of a task ended, in order."""
        return [str(attempt.cause) for attempt in self.state.tasks[path].attempts]

    def pools(self, path: str) -> list[str | None]:
        """Where each attempt of a task ran, in order."""
        return [attempt.pool for attempt in self.state.tasks[path].attempts]

    def told(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


class Recorded:
    """The answers of a world once more, in the order in which they were given."""

    def __init__(self, answers: Iterable[Any]) -> None:
        self._answers = deque(answers)

    def cached(self, task: TaskState) -> Mapping[str, Any] | None:
        return self._answers.popleft()

    def why_pending(self, task: TaskState) -> str:
        return self._answers.popleft()

    def has_room(self, pool: str) -> bool:
        return self._answers.popleft()


def decided_again(plans: Sequence[Plan], events: Sequence[Event], answers: Iterable[Any]) -> list[Event]:
    """Replay a journal: fold its facts, decide where it holds decisions. What comes out must be the journal itself."""
    state, snapshot, told = RunState(plans), Recorded(answers), []
    place = 0
    while place < len(events):
        event = events[place]
        batch = [event]
        if event.kind in DECISIONS:
            batch = decide(state, snapshot, event.at)
            assert batch, f"event {place} was decided, and is not decided again: {event}"
        for each in batch:
            fold(state, each)
        told += batch
        place += len(batch)
    return told
