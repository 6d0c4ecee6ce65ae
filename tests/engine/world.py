"""A world on virtual time: the real supply, attempts that are told how they end, a journal in memory, and engines that crash.

It implements the engine's ports, so whole runs are driven by the real loop in milliseconds. What an attempt computes depends
on its inputs alone; so the outputs of a run show whether every task ran on the right values.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from tests.engine.builders import START

from spotwright.engine.decide import StillSnapshot, decide
from spotwright.engine.events import DECISIONS, Event
from spotwright.engine.fold import fold, replay
from spotwright.engine.loop import Observer, drive
from spotwright.engine.plan import Plan
from spotwright.engine.signals import write_signals
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.values import inputs_of, run_outputs
from spotwright.model.attempts import Signals
from spotwright.model.traces import Trace
from spotwright.supply.binding import Request
from spotwright.supply.nodes import Bound, Drained, Happening, Key, NodeBooting, NodeGone, NodeReady, Noticed, Supply

DONE = Signals(exit_code=0, outputs_complete=True)
FAILED = Signals(exit_code=1)
TAKEN = Signals(signal=9, noticed=True, node_gone=True, spot=True)
LOST = Signals(heard=False)
MOVED = Signals(signal=15, moved="drained")


@dataclass(frozen=True, slots=True)
class Does:
    """What one attempt does: it works for some seconds, reports its progress so many times, and ends in this way."""

    seconds: float = 1.0
    signals: Signals = DONE
    reports: int = 0


Script = Callable[[str, int], Does]
"""What each attempt does, by the task's path and the attempt's number."""


def always(does: Does) -> Script:
    return lambda _path, _number: does


def scripted(endings: Mapping[str, Sequence[Does]], otherwise: Does | None = None) -> Script:
    """The endings of each named task in order; everything after them succeeds."""
    last = otherwise or Does()

    def script(path: str, number: int) -> Does:
        said = endings.get(path, ())
        return said[number - 1] if number <= len(said) else last

    return script


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


@dataclass
class World:
    """The engine's world. ``records`` are the exit records on disk: they outlive an engine."""

    plan: Plan
    script: Script
    supply: Supply
    now: float = START
    records: dict[Key, dict[str, Any]] = field(default_factory=dict)
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    performed: list[Event] = field(default_factory=list)
    live: dict[str, int] = field(default_factory=dict)  # task: the attempt that has a process
    answers: deque[Any] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._facts: list[Event] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._requests: dict[str, Request] = {}
        self._inputs: dict[Key, dict[str, Any]] = {}
        self._noticed: set[Key] = set()
        self._progress: dict[Key, float] = {}

    # -- the engine's side

    def clock(self) -> float:
        return self.now

    def observe(self) -> World:
        return self

    def cached(self, task: TaskState) -> Mapping[str, Any] | None:
        return self._said(self.results.get(task.path))

    def why_pending(self, task: TaskState) -> str:
        return self._said(self.supply.why_pending((task.path, task.last.number), self.now))

    def has_room(self, pool: str) -> bool:
        return self._said(self.supply.has_room(pool, self.now))

    def _said(self, answer: Any) -> Any:
        self.answers.append(answer)
        return answer

    def perform(self, state: RunState, event: Event) -> None:
        self.performed.append(event)
        key = (event.task, event.attempt)
        if event.kind == "placed":
            self.submit(state, state.tasks[event.task])
        elif event.kind == "moved":
            if self.supply.withdraw(key):
                self.submit(state, state.tasks[event.task])
        elif event.kind == "bound":
            self._start(state, key)
        elif event.kind == "decided":
            self.supply.release(key, self.now)
            self.supply.withdraw(key)
        elif event.kind == "halt":
            self._halt(key)

    def submit(self, state: RunState, task: TaskState) -> None:
        planned = task.plan
        rung = planned.ladder.rungs[task.last.rung]
        constraints = replace(
            planned.work.constraints, tolerations=planned.work.constraints.tolerations + rung.tolerations
        )
        request = Request(rung.pools, planned.work.requests, constraints, planned.policy.grace_period)
        same = repr((request.pools, request.requests, constraints, request.grace))
        self.supply.submit((task.path, task.last.number), self._requests.setdefault(same, request))

    def wait(self, until: float | None) -> list[Event]:
        while True:
            self._collect()
            if self._facts:
                facts, self._facts = self._facts, []
                return facts
            if until is not None and self.now >= until:
                return []
            agenda = self._agenda[0][0] if self._agenda else None
            moments = [moment for moment in (until, self.supply.next_moment(), agenda) if moment is not None]
            assert moments, "the run waits for ever"
            self.now = max(self.now, *[min(moments)])

    def close(self) -> list[Event]:
        self.live.clear()  # whatever still runs goes with its engine and leaves no record
        self._happen(self.supply.close(self.now))
        facts, self._facts = self._facts, []
        return facts

    # -- the test's side

    def at(self, seconds: float, kind: str, **data: Any) -> None:
        """A fact that comes so many seconds after the start: ``cancel``, ``stop``."""
        self._at(START + seconds, lambda: self._facts.append(Event(kind, self.now, data=data)))

    # -- inside

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (moment, self._count, action))

    def _collect(self) -> None:
        while self._agenda and self._agenda[0][0] <= self.now:
            heapq.heappop(self._agenda)[2]()
        self._happen(self.supply.advance(self.now))

    def _start(self, state: RunState, key: Key) -> None:
        path, number = key
        assert path not in self.live, f"two live attempts of {path}"
        assert key not in self.records, f"{key} ran before"
        self.live[path] = number
        self._inputs[key] = inputs_of(state, state.tasks[path]).parameters
        does = self.script(*key)
        for step in range(1, does.reports + 1):
            share = step / does.reports
            self._at(self.now + does.seconds * share, lambda share=share: self._report(key, share))  # type: ignore[misc]
        self._at(self.now + does.seconds, lambda: self._end(key, does.signals))

    def _report(self, key: Key, value: float) -> None:
        if self.live.get(key[0]) == key[1]:
            self._progress[key] = value
            self.supply.report(key, value, self.now)
            self._facts.append(Event("progress", self.now, *key, data={"value": value}))

    def _end(self, key: Key, signals: Signals) -> None:
        if self.live.get(key[0]) != key[1]:
            return
        del self.live[key[0]]
        if key in self._noticed:
            signals = replace(signals, noticed=True)
        data: dict[str, Any] = {"signals": write_signals(signals)}
        if signals.exit_code == 0 and signals.outputs_complete:
            given = ",".join(f"{name}={value}" for name, value in sorted(self._inputs[key].items()))
            short = given if len(given) < 200 else f"#{crc32(given.encode()):x}"
            data["parameters"] = {"out": f"{key[0]}({short})"}
        if key in self._progress:
            data["progress"] = self._progress[key]
        self.records[key] = data
        self._facts.append(Event("ended", self.now, *key, data=data))

    def _halt(self, key: Key) -> None:
        if self.supply.withdraw(key):
            self._facts.append(Event("ended", self.now, *key, data={"signals": {"cancelled": True}}))
        else:
            self._at(self.now + 1.0, lambda: self._end(key, Signals(signal=15, cancelled=True)))

    def _happen(self, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            match happening:
                case NodeBooting(node, pool):
                    self._node(node, pool, "booting")
                case NodeReady(node, pool):
                    self._node(node, pool, "ready")
                case Bound(key, node, pool):
                    self._facts.append(Event("bound", self.now, *key, data={"node": node, "pool": pool}))
                case Noticed(node, _, keys, goes_at, why):
                    self._noticed.update(keys)
                    attempts = [list(key) for key in keys]
                    data = {"node": node, "goes_at": goes_at, "attempts": attempts, "why": why}
                    self._facts.append(Event("notice", self.now, data=data))
                case Drained():
                    pass  # these attempts do not listen to SIGTERM
                case NodeGone(node, pool, keys, why):
                    self._node(node, pool, "gone", why)
                    for key in keys:
                        self._end(key, Signals(signal=9, node_gone=True, spot=True))

    def _node(self, node: str, pool: str, state: str, why: str = "") -> None:
        self._facts.append(Event("node", self.now, data={"node": node, "pool": pool, "state": state, "why": why}))


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
        self.answers: deque[Any] = deque()
        self.state = RunState(self.plans)
        self.world = self.a_world(self.state)

    def a_world(self, state: RunState) -> World:
        made = Counter(node.pool for node in state.nodes.values())
        pools = self.plans[-1].config.pools
        supply = Supply(pools, seed=self.seed, scale=self.scale, now=self.now, traces=self.traces, made=made)
        return World(self.plans[-1], self.script, supply, self.now, self.records, answers=self.answers)

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
                ended.append(Event("ended", self.now, *key, data=data))
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
        return drive(self.state, self.journal, world, world.clock, facts=facts, observers=self.observers)

    def until_done(self) -> RunState:
        """Start it, and resume it after every crash."""
        try:
            return self.start()
        except Crash:
            return self.until_resumed()

    def until_resumed(self) -> RunState:
        while True:
            try:
                return self.resume()
            except Crash:
                continue

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
