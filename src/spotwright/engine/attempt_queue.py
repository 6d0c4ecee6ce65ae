"""Apply the decisions of one run to the supply of nodes: queue attempts, move them to another rung, withdraw them, free room.

All of it is bookkeeping in memory, so it may happen before a decision is committed: it is lost together with the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotwright.engine.decisions.rung_selection import effective_plan
from spotwright.engine.events import AttemptDecided, AttemptEnded, AttemptHalted, AttemptMoved, AttemptPlaced, Event
from spotwright.engine.state import RunState, TaskState
from spotwright.model.attempts import Signals
from spotwright.scheduling.budgets import FollowUp
from spotwright.supply.node_fit import AttemptKey, NodeRequest
from spotwright.supply.simulated_pools import Supply

__all__ = ["AttemptQueue"]


class AttemptQueue:
    """The attempts of one run in the queue of its supply, which other runs may share. ``run`` is the run's name."""

    def __init__(self, supply: Supply, run: str) -> None:
        self._supply, self._run = supply, run
        self._withdrawn: set[AttemptKey] = set()

    def arrange(self, state: RunState, decisions: Sequence[Event], now: float) -> Iterator[Event]:
        """Apply the decisions in order. Yields the ends of attempts that are halted before they had a node."""
        for event in decisions:
            arrangement = self._ARRANGEMENTS.get(type(event))
            if arrangement is not None:
                yield from arrangement(self, state, event, now)

    def submit(self, state: RunState, task: TaskState) -> None:
        """Queue the task's newest attempt for a node of its rung."""
        planned = effective_plan(state, task)
        rung = planned.ladder.rungs[task.last.rung]
        constraints = planned.work.constraints
        if rung.tolerations:
            constraints = replace(constraints, tolerations=constraints.tolerations + rung.tolerations)
        request = NodeRequest(rung.pools, planned.work.requests, constraints, planned.policy.grace_period)
        self._supply.submit(AttemptKey(self._run, task.path, task.last.number), self._supply.shared(request))

    def was_withdrawn(self, key: AttemptKey) -> bool:
        """Whether a halted attempt was withdrawn from the queue before it had a node. True only once for each attempt."""
        if key not in self._withdrawn:
            return False
        self._withdrawn.discard(key)
        return True

    def _place(self, state: RunState, event: AttemptPlaced, _now: float) -> Sequence[Event]:
        self.submit(state, state.tasks[event.task])
        return ()

    def _move(self, state: RunState, event: AttemptMoved, _now: float) -> Sequence[Event]:
        if self._supply.withdraw(self._key(event)):
            self.submit(state, state.tasks[event.task])
        return ()

    def _make_room(self, _state: RunState, event: AttemptDecided, now: float) -> Sequence[Event]:
        """Free the room of an attempt whose end is decided; before that decision, no other attempt may start in its place.

        An attempt that is decided without ever having had a node (unschedulable) leaves the queue.
        """
        key = self._key(event)
        self._supply.release(key, now)
        if event.then is not FollowUp.SUCCEED:
            self._supply.withdraw(key)
        return ()

    def _give_up(self, _state: RunState, event: AttemptHalted, now: float) -> Sequence[Event]:
        key = self._key(event)
        if not self._supply.withdraw(key):
            return ()
        self._withdrawn.add(key)
        return (AttemptEnded(now, event.task, event.attempt, signals=Signals(cancelled=True)),)

    def _key(self, event: Event) -> AttemptKey:
        return AttemptKey(self._run, event.task, event.attempt)

    _ARRANGEMENTS: Mapping[type[Event], Callable[[AttemptQueue, RunState, Any, float], Sequence[Event]]] = {
        AttemptPlaced: _place,
        AttemptMoved: _move,
        AttemptDecided: _make_room,
        AttemptHalted: _give_up,
    }
