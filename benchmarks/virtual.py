"""A run on virtual time, without processes: what is left is the engine itself. ``virtual.py FILE STATE RESULT [COUNT] [taken]``.

Every attempt takes a second of a clock that nobody waits for. With ``taken`` the first attempt of every task reports progress
and is interrupted, so that the journal holds what a run on spot nodes leaves. Real are the plan, the fold, the decisions, the
supply of nodes and the journal on disk; the run is driven COUNT times, and the processor time of each drive is the result.
"""

from __future__ import annotations

import heapq
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.engine.events import Event
from spotwright.engine.loop import drive
from spotwright.engine.state import RunState, TaskState
from spotwright.pipelines.source import load
from spotwright.records.folders import StateFolder
from spotwright.records.journal import Journal
from spotwright.runs.engine import Prepared, prepare
from spotwright.runs.options import RunOptions
from spotwright.runs.plans import save_plan
from spotwright.supply.binding import Request
from spotwright.supply.happenings import Bound, Happening, Key, NodeBooting, NodeGone, NodeReady
from spotwright.supply.nodes import Supply

_START = 1_000_000.0
_SECONDS = 1.0  # an attempt
_STATES = {NodeBooting: "booting", NodeReady: "ready", NodeGone: "gone"}


class Clock:
    """Time that passes only when it is told to."""

    now = _START

    def __call__(self) -> float:
        """Give the moment."""
        return self.now


class World:
    """A world whose attempts are entries of a heap. Its own snapshot."""

    def __init__(self, supply: Supply, clock: Clock, *, taken: bool) -> None:
        self._supply, self._clock, self._taken = supply, clock, taken
        self._due: list[tuple[float, int, Event]] = []
        self._count = 0
        self._requests: dict[tuple[str, ...], Request] = {}

    def observe(self) -> World:
        """The world itself: nothing changes between two waits."""
        return self

    def cached(self, _task: TaskState) -> Mapping[str, Any] | None:
        """No earlier results."""
        return None

    def why_pending(self, task: TaskState) -> str:
        """What the supply says."""
        return self._supply.why_pending((task.path, task.last.number), self._clock.now)

    def has_room(self, pool: str) -> bool:
        """What the supply says."""
        return self._supply.has_room(pool, self._clock.now)

    def arrange(self, _state: RunState, decisions: Sequence[Event]) -> list[Event]:
        """Submit what was placed; what has ended leaves its room."""
        for event in decisions:
            if event.kind == "placed":
                pools = tuple(event.data["pools"])
                request = self._requests.setdefault(pools, Request(pools))
                self._supply.submit((event.task, event.attempt), request)
            elif event.kind == "decided":
                self._supply.release((event.task, event.attempt), self._clock.now)
        return [self._fact(happening) for happening in self._supply.advance(self._clock.now)]

    def perform(self, _state: RunState, event: Event) -> None:
        """Plan the life of what has a node."""
        if event.kind == "bound":
            for share, fact in self._life((event.task, event.attempt)):
                self._count += 1
                heapq.heappush(self._due, (self._clock.now + share * _SECONDS, self._count, fact))

    def _life(self, key: Key) -> Iterator[tuple[float, Event]]:
        """The facts of one attempt, each at a share of its life."""
        if self._taken:
            yield 0.3, Event("progress", 0.0, *key, data={"value": 0.3})
            yield 0.6, Event("progress", 0.0, *key, data={"value": 0.6})
        if self._taken and key[1] == 1:
            signals: dict[str, Any] = {"signal": 15, "noticed": True, "spot": True, "heard": True}
            yield 1.0, Event("ended", 0.0, *key, data={"seconds": _SECONDS, "progress": 0.6, "signals": signals})
        else:
            signals = {"exit_code": 0, "outputs_complete": True, "spot": False, "heard": True}
            outputs = {"parameters": {"Output": 1}, "artifacts": {}}
            yield 1.0, Event("ended", 0.0, *key, data={"seconds": _SECONDS, **outputs, "signals": signals})

    def wait(self, until: float | None) -> list[Event]:
        """The next facts; time passes until there are some."""
        while True:
            facts = [*self._ended(), *map(self._fact, self._supply.advance(self._clock.now))]
            if facts:
                return facts
            moments = [until, self._supply.next_moment(), self._due[0][0] if self._due else None]
            known = [moment for moment in moments if moment is not None]
            self._clock.now = max(self._clock.now, min(known))
            if until is not None and self._clock.now >= until:
                return []

    def _ended(self) -> Iterator[Event]:
        while self._due and self._due[0][0] <= self._clock.now:
            fact = heapq.heappop(self._due)[2]
            fact.at = self._clock.now
            yield fact

    def _fact(self, happening: Happening) -> Event:
        if isinstance(happening, Bound):
            return Event(
                "bound", self._clock.now, *happening.key, data={"node": happening.node, "pool": happening.pool}
            )
        if not isinstance(happening, NodeBooting | NodeReady | NodeGone):
            raise TypeError(f"{happening}: no node is taken here")
        data = {"node": happening.node, "pool": happening.pool, "state": _STATES[type(happening)]}
        return Event("node", self._clock.now, data=data)

    def close(self) -> list[Event]:
        """Give the nodes back."""
        return [self._fact(happening) for happening in self._supply.close(self._clock.now)]


def drive_once(prepared: Prepared, state_folder: Path, name: str, *, taken: bool) -> dict[str, Any]:
    """Drive one run to its end. Gives the processor time of the drive in seconds, and what it came to."""
    folder = StateFolder.open(state_folder).create(name)
    save_plan(folder, 1, prepared.stored)
    plan = prepared.stored.plan
    clock = Clock()
    journal = Journal.create(folder.journal)
    journal.take({"pid": 0, "starttime": 0, "boot_id": ""}, lambda _: False)
    facts = [
        Event("created", clock.now, data={"run": name, "arguments": {}, "seed": 1, "time_scale": 1.0}),
        Event("engine", clock.now, data={"epoch": 1, "pid": 0}),
    ]
    world = World(Supply(plan.config.pools, seed=1, scale=1.0, now=clock.now), clock, taken=taken)
    before = time.process_time()
    state = drive(RunState([plan]), journal, world, clock, facts=facts)
    spent = time.process_time() - before
    journal.close()
    if state.status.value != "succeeded":
        sys.exit(f"the run {state.status.value}: {state.why}")
    return {"spent": spent, "tasks": len(state.tasks), "events": state.events, "folder": str(folder.path)}


def main(file: str, state: str, result: str, count: str = "1", taken: str = "") -> None:
    """Drive the runs, a small one first so that nothing is done for the first time when it counts."""
    prepared = prepare(load(file), RunOptions(cache="off"))
    small = prepare(load(Path(file).with_name("independent.yaml")), RunOptions(cache="off"))
    drive_once(small, Path(state), "warm-up", taken=bool(taken))
    runs = [drive_once(prepared, Path(state), f"run-{number}", taken=bool(taken)) for number in range(int(count))]
    Path(result).write_text(json.dumps({"runs": runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
