"""What decisions mean to the supply of nodes: attempts wait for a node, move, leave the queue, or leave their room to others.

All of it is bookkeeping in memory, so it may happen before a decision is committed: an engine that is lost takes it along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from spotwright.engine.choosing import effective
from spotwright.engine.events import Event
from spotwright.engine.state import RunState, TaskState
from spotwright.supply.binding import Request
from spotwright.supply.happenings import Key
from spotwright.supply.nodes import Supply

__all__ = ["Queue"]


class Queue:
    """The attempts of one run in front of its supply of nodes. Equal requests are one object."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._requests: dict[str, Request] = {}
        self._withdrawn: set[Key] = set()

    def arrange(self, state: RunState, decisions: Sequence[Event], now: float) -> Iterator[Event]:
        """Follow the decisions in order; the ends of attempts that are stopped before they had a node."""
        for event in decisions:
            arrangement = self._ARRANGEMENTS.get(event.kind)
            if arrangement is not None:
                yield from arrangement(self, state, event, now)

    def submit(self, state: RunState, task: TaskState) -> None:
        """Let the task's newest attempt wait for a node on its rung."""
        planned = effective(state, task)
        rung = planned.ladder.rungs[task.last.rung]
        constraints = replace(
            planned.work.constraints, tolerations=planned.work.constraints.tolerations + rung.tolerations
        )
        request = Request(rung.pools, planned.work.requests, constraints, planned.policy.grace_period)
        same = repr((request.pools, sorted(request.requests.items()), constraints, request.grace))
        self._supply.submit((task.path, task.last.number), self._requests.setdefault(same, request))

    def was_withdrawn(self, key: Key) -> bool:
        """Whether an attempt that was told to stop never had a node; says so once."""
        if key not in self._withdrawn:
            return False
        self._withdrawn.discard(key)
        return True

    def _place(self, state: RunState, event: Event, _now: float) -> Sequence[Event]:
        self.submit(state, state.tasks[event.task])
        return ()

    def _move(self, state: RunState, event: Event, _now: float) -> Sequence[Event]:
        if self._supply.withdraw((event.task, event.attempt)):
            self.submit(state, state.tasks[event.task])
        return ()

    def _make_room(self, _state: RunState, event: Event, now: float) -> Sequence[Event]:
        """The end is decided: only now is its room free, so that nothing starts on it where that end stops the run.

        A decision about an attempt that never had a node (unschedulable) takes it out of the queue.
        """
        key = (event.task, event.attempt)
        self._supply.release(key, now)
        if event.data["then"] != "succeed":
            self._supply.withdraw(key)
        return ()

    def _give_up(self, _state: RunState, event: Event, now: float) -> Sequence[Event]:
        key = (event.task, event.attempt)
        if not self._supply.withdraw(key):
            return ()
        self._withdrawn.add(key)
        return (Event("ended", now, *key, data={"signals": {"cancelled": True}}),)

    _ARRANGEMENTS: Mapping[str, Callable[[Queue, RunState, Event, float], Sequence[Event]]] = {
        "placed": _place,
        "moved": _move,
        "decided": _make_room,
        "halt": _give_up,
    }
