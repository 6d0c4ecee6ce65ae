"""A world on virtual time: the real supply, and attempts that are told how they end.

It implements the engine's port, so whole runs are driven by the real loop in milliseconds. What an attempt computes depends
on its inputs alone; so the outputs of a run show whether every task ran on the right values.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from tests.engine.builders import START

from spotwright.engine.events import Event
from spotwright.engine.plan import Plan
from spotwright.engine.signals import write_signals
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.values import inputs_of
from spotwright.model.attempts import Signals
from spotwright.supply.binding import Request
from spotwright.supply.happenings import Bound, Drained, Happening, Key, NodeBooting, NodeGone, NodeReady, Noticed
from spotwright.supply.nodes import Supply

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
    answers: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._facts: list[Event] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._requests: dict[str, Request] = {}
        self._inputs: dict[Key, dict[str, Any]] = {}
        self._noticed: set[Key] = set()
        self._withdrawn: set[Key] = set()
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

    def arrange(self, state: RunState, decisions: Sequence[Event]) -> list[Event]:
        for event in decisions:
            key = (event.task, event.attempt)
            if event.kind == "placed":
                self.submit(state, state.tasks[event.task])
            elif event.kind == "moved":
                if self.supply.withdraw(key):
                    self.submit(state, state.tasks[event.task])
            elif event.kind == "decided":
                self.supply.release(key, self.now)
                self.supply.withdraw(key)
            elif event.kind == "halt":
                self._give_up(key)
        self._happen(self.supply.advance(self.now))
        facts, self._facts = self._facts, []
        return facts

    def perform(self, state: RunState, event: Event) -> None:
        self.performed.append(event)
        key = (event.task, event.attempt)
        if event.kind == "bound":
            self._start(state, key)
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

    def _give_up(self, key: Key) -> None:
        if self.supply.withdraw(key):
            self._withdrawn.add(key)
            self._facts.append(Event("ended", self.now, *key, data={"signals": {"cancelled": True}}))

    def _halt(self, key: Key) -> None:
        if key in self._withdrawn:
            self._withdrawn.discard(key)
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
