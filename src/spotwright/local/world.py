"""This machine as the engine's world: real processes on simulated nodes, in real time.

The :class:`~spotwright.supply.nodes.Supply` says which node an attempt gets and when the node goes; the
:class:`~spotwright.local.processes.Processes` run the attempts. This module joins the two: a binding starts a process, a
notice becomes a file, a node that goes becomes SIGKILL, an exit record becomes the signals of an ended attempt. Everything
waits in one selector, so an idle run uses no CPU.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.engine.choosing import effective
from spotwright.engine.claims import deleted
from spotwright.engine.events import Event
from spotwright.engine.loop import Clock
from spotwright.engine.snapshot import Snapshot
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.values import inputs_of
from spotwright.errors import SpotwrightError
from spotwright.local.attempts import Places, attempt_key, start_order, write_notice
from spotwright.local.endings import Seen, end_data, hide_secrets, keep_reason
from spotwright.local.metadata import Metadata
from spotwright.local.orders import Ended, Started, StartFailed
from spotwright.local.processes import Processes
from spotwright.local.queue import Queue
from spotwright.local.taking import Taker
from spotwright.local.watch import Watch
from spotwright.model.pools import Pool
from spotwright.pipelines.identity import fingerprint
from spotwright.supply.happenings import Bound, Drained, Happening, Key, NodeBooting, NodeGone, NodeReady, Noticed
from spotwright.supply.nodes import Supply

__all__ = ["Machine", "Results", "World"]

PROGRESS_STEP = 0.05
"""How much progress must change before it is written to the journal again."""

HALT_GRACE = 10.0
"""How long a stopped run waits for its attempts after SIGTERM, seconds; less where their own grace period is shorter."""


@dataclass(frozen=True, slots=True)
class Results:
    """Earlier results: how to look one up and how to keep one. Both do nothing where caching is off."""

    find: Callable[[str], Mapping[str, Any] | None]
    keep: Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Machine:
    """What of this machine a run uses: its processes, the watch over their progress, and the selector both wait in.

    ``metadata`` serves the nodes of clouds, where the run has pools with such nodes.
    """

    selector: selectors.BaseSelector
    processes: Processes
    watch: Watch
    metadata: Metadata | None = None


class World:
    """The local world of one run. ``wakes`` tells what was asked for from outside (a stop, a cancel) since the last call."""

    def __init__(
        self,
        machine: Machine,
        supply: Supply,
        places: Places,
        clock: Clock,
        *,
        pools: Mapping[str, Pool],
        results: Results | None = None,
        wakes: Callable[[], list[Event]] = list,
        taker: Taker | None = None,
    ) -> None:
        self._selector, self._processes, self._watch = machine.selector, machine.processes, machine.watch
        self._supply, self._places, self._clock = supply, places, clock
        self._pools, self._results, self._wakes = pools, results, wakes
        self._taker, self._metadata = taker, machine.metadata
        self._facts: list[Event] = []
        self._queue = Queue(supply)
        self._seen: dict[Key, Seen] = {}
        self._tasks: dict[str, TaskState] = {}
        self._progress: dict[Key, float] = {}
        self._kills: dict[Key, float] = {}
        self._fingerprints: dict[str, str] = {}
        self._state: RunState | None = None

    # -- the engine's side

    def observe(self) -> Snapshot:
        """The world is its own snapshot: nothing changes between two calls to :meth:`wait`."""
        return self

    def cached(self, task: TaskState) -> Mapping[str, Any] | None:
        """An earlier result of the same code on the same inputs."""
        spec = task.plan.spec
        if self._results is None or self._state is None or not spec.caching or spec.executor is None:
            return None
        inputs = inputs_of(self._state, task)
        if self._places.secrets.mentioned(inputs.parameters):
            return None  # what a secret stands for may change behind the same reference
        known = self._fingerprints[task.path] = fingerprint(spec, inputs.parameters, inputs.artifacts)
        found = self._results.find(known)
        if found is None:
            return None
        return {name: found[name] for name in ("parameters", "artifacts", "run", "task")}

    def why_pending(self, task: TaskState) -> str:
        """Why an attempt has no node yet."""
        return self._supply.why_pending((task.path, task.last.number), self._clock())

    def has_room(self, pool: str) -> bool:
        """Whether a node of the pool could be had now."""
        return self._supply.has_room(pool, self._clock())

    def arrange(self, state: RunState, decisions: Sequence[Event]) -> list[Event]:
        """Put attempts into the queue and take them out; room that is free goes to those that wait."""
        self._facts += self._queue.arrange(state, decisions, self._clock())
        self._advance()
        facts, self._facts = self._facts, []
        return facts

    def perform(self, state: RunState, event: Event) -> None:
        """Do what a committed event asks for."""
        deed = self._DEEDS.get(event.kind)
        if deed is not None:
            deed(self, state, event)

    def wait(self, until: float | None) -> list[Event]:
        """Block until something happens or ``until`` has come."""
        while True:
            self._collect()
            if self._facts:
                facts, self._facts = self._facts, []
                return facts
            now = self._clock()
            if until is not None and now >= until:
                return []
            taking = self._taker.next_moment() if self._taker is not None else None
            moments = [m for m in (until, taking, self._supply.next_moment(), *self._kills.values()) if m is not None]
            timeout = max(0.0, min(moments) - now) if moments else None
            for key, _ in self._selector.select(timeout):
                self._serve(key)

    def close(self) -> list[Event]:
        """End what still runs, give the nodes back."""
        self._processes.close()
        self._watch.close()
        self._happen(self._supply.close(self._clock()))
        facts, self._facts = self._facts, []
        return facts

    def begin(self, state: RunState) -> None:
        """Know the run before its first turn: attempts that waited for a node when the last engine went wait again."""
        self._state = state
        for path in state.under_way:
            task = state.tasks[path]
            if task.last.bound_at is None:
                self._queue.submit(state, task)

    def hurry(self) -> None:
        """Wait for no grace period any more: the user asked a second time."""
        for key in self._kills:
            self._kills[key] = 0.0

    # -- deeds

    def _start(self, state: RunState, event: Event) -> None:
        task, key = state.tasks[event.task], (event.task, event.attempt)
        seen = self._seen.setdefault(key, Seen())
        self._tasks[event.task] = task
        pool = self._pools[event.data["pool"]]
        seen.spot = pool.is_spot
        if seen.node_gone:
            self._end(key, None)
            return
        try:
            told = self._metadata.environment(event.data["node"]) if self._metadata is not None else None
            order = start_order(state, task, self._places, pool, self._supply.scale, told)
        except SpotwrightError as error:
            self._end(key, None, start_error=str(error))
            return
        self._watch.add(event.task, event.attempt, order.directory)
        self._processes.order(order if self._taker is None else self._taker.starting(key, order))

    def _conclude(self, state: RunState, event: Event) -> None:
        hide_secrets(self._places.attempt(event.task, event.attempt), self._places.secrets)
        if event.data["then"] != "succeed":
            return
        known = self._fingerprints.pop(event.task, None)
        if known is not None and self._results is not None:
            task = state.tasks[event.task]
            result = {
                "parameters": task.parameters,
                "artifacts": task.artifacts,
                "run": self._places.run,
                "task": task.path,
            }
            self._results.keep(known, result)

    def _halt(self, state: RunState, event: Event) -> None:
        key = (event.task, event.attempt)
        if self._queue.was_withdrawn(key):
            return
        seen = self._seen.setdefault(key, Seen())
        seen.cancelled, seen.only_stopped = True, not state.cancelling
        grace = min(HALT_GRACE, effective(state, state.tasks[event.task]).policy.grace_period)
        self._kills[key] = self._clock() + grace
        self._processes.terminate(attempt_key(*key))

    def _complete(self, state: RunState, event: Event) -> None:
        claim = deleted(state, state.tasks[event.task])
        if claim:
            self._places.volumes.delete(state, claim)

    _DEEDS: Mapping[str, Callable[[World, RunState, Event], None]] = {
        "bound": _start,
        "completed": _complete,
        "decided": _conclude,
        "halt": _halt,
    }

    # -- facts

    def _serve(self, key: selectors.SelectorKey) -> None:
        """Empty what woke the selector; what it means is collected in one place afterwards."""
        if callable(key.data):
            key.data()

    def _collect(self) -> None:
        now = self._clock()
        self._facts += self._wakes()
        for happened in self._processes.pump():
            self._process(happened)
        for task, number, value in self._watch.changes():
            self._report(task, number, value, now)
        if self._taker is not None:
            self._be_taken(self._taker)
        if self._metadata is not None:
            for node in self._metadata.approved():
                self._supply.approve(node)
        self._advance()
        for key, at in list(self._kills.items()):
            if at <= now:
                self._kill(key)

    def _advance(self) -> None:
        self._happen(self._supply.advance(self._clock()))
        if self._taker is not None:
            self._taker.taken()

    def _be_taken(self, taker: Taker) -> None:
        """Somebody beside the pools takes nodes, or asks something of the run."""
        now = self._clock()
        self._facts += taker.asks(now)
        for take in taker.due(now):
            self._supply.take(take.key, take.notice, take.why, now)

    def _process(self, happened: Started | Ended | StartFailed) -> None:
        path, _, number = happened.key.rpartition("#")
        key = (path, int(number))
        if isinstance(happened, Started):
            if self._taker is not None:
                self._taker.started(key, happened.pid)
            return
        if isinstance(happened, Ended):
            self._end(key, happened)
        elif happened.ours:
            self._end(key, None)
        else:
            self._end(key, None, start_error=keep_reason(self._places.attempt(*key), happened.reason))

    def _end(self, key: Key, ended: Ended | None, *, start_error: str = "") -> None:
        now = self._clock()
        if self._taker is not None:
            self._taker.ended(key)
        task = self._tasks.pop(key[0])
        self._watch.remove(*key)
        self._kills.pop(key, None)
        folder = self._places.attempt(*key)
        record = ended.record if ended is not None else None
        data = end_data(
            task.plan.spec, folder, record, self._seen.pop(key, Seen()), self._places, start_error=start_error
        )
        progress = data.get("progress")
        if progress is not None and key not in self._progress:
            data["first_progress"] = progress
        self._progress.pop(key, None)
        self._facts.append(Event("ended", now, *key, data=data))

    def _report(self, task: str, number: int, value: float, now: float) -> None:
        key = (task, number)
        self._supply.report(key, value, now)
        if self._taker is not None:
            self._taker.reported(key, value)
        last = self._progress.get(key)
        if last is None or abs(value - last) >= PROGRESS_STEP:
            self._progress[key] = value
            self._facts.append(Event("progress", now, task, number, {"value": value}))

    def _happen(self, happenings: list[Happening]) -> None:
        for happening in happenings:
            self._ON[type(happening)](self, happening)

    def _node_event(self, name: str, pool: str, state: str, why: str = "") -> None:
        data = {"node": name, "pool": pool, "state": state}
        if why:
            data["why"] = why
        self._facts.append(Event("node", self._clock(), data=data))

    def _on_booting(self, happening: NodeBooting) -> None:
        if self._metadata is not None:
            self._metadata.boot(happening.node, self._pools[happening.pool])
        self._node_event(happening.node, happening.pool, "booting")

    def _on_ready(self, happening: NodeReady) -> None:
        self._node_event(happening.node, happening.pool, "ready")

    def _on_bound(self, happening: Bound) -> None:
        data = {"node": happening.node, "pool": happening.pool}
        self._facts.append(Event("bound", self._clock(), *happening.key, data=data))

    def _on_noticed(self, happening: Noticed) -> None:
        now = self._clock()
        if self._metadata is not None:
            self._metadata.notice(happening.node, happening.goes_at - now)
        for key in happening.keys:
            self._seen.setdefault(key, Seen()).noticed = True
            if key[0] in self._tasks:
                write_notice(self._places.attempt(*key), now, happening.goes_at, happening.why)
        data = {
            "node": happening.node, "goes_at": happening.goes_at, "why": happening.why,
            "attempts": [list(key) for key in happening.keys],
        }  # fmt: skip
        self._facts.append(Event("notice", now, data=data))

    def _on_drained(self, happening: Drained) -> None:
        if happening.key[0] in self._tasks:
            self._processes.terminate(attempt_key(*happening.key))

    def _on_gone(self, happening: NodeGone) -> None:
        if self._metadata is not None:
            self._metadata.gone(happening.node)
        self._node_event(happening.node, happening.pool, "gone", happening.why)
        for key in happening.keys:
            seen = self._seen.setdefault(key, Seen())
            seen.node_gone = True
            if key[0] in self._tasks:
                self._kill(key)

    def _kill(self, key: Key) -> None:
        self._kills.pop(key, None)
        self._seen.setdefault(key, Seen()).killed = True
        self._processes.kill(attempt_key(*key))

    _ON: Mapping[type, Callable[[World, Any], None]] = {
        NodeBooting: _on_booting,
        NodeReady: _on_ready,
        Bound: _on_bound,
        Noticed: _on_noticed,
        Drained: _on_drained,
        NodeGone: _on_gone,
    }
