"""The one loop that performs: facts in, decisions out, one durable commit, then the deeds.

A turn takes the facts that the world has, folds them, asks :func:`~spotwright.engine.decide.decide` until it has nothing
more to say, appends everything to the journal in one transaction, and only then lets the world act. So a process is never
started, stopped or forgotten without the journal saying so first; after ``kill -9`` at any point the journal is never behind
what was done by more than deeds that the next engine finds and settles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from spotwright.engine.decide import decide
from spotwright.engine.events import Event
from spotwright.engine.fold import fold, rare_collections
from spotwright.engine.snapshot import Snapshot
from spotwright.engine.state import RunState, RunStatus
from spotwright.engine.timers import next_moment
from spotwright.errors import SpotwrightError

__all__ = ["Clock", "Journal", "Observer", "World", "drive"]

Clock = Callable[[], float]
"""Unix time in seconds that never goes back while an engine runs."""

Observer = Callable[[RunState, Sequence[Event]], None]
"""Told about every batch of events after it is committed and folded."""


class Journal(Protocol):
    """Where the events go."""

    def append(self, events: Sequence[Event]) -> None:
        """Append events in one durable transaction."""


class World(Protocol):
    """A body of the engine: this machine, a simulation, a cluster."""

    def observe(self) -> Snapshot:
        """What decisions may know of the world now."""

    def arrange(self, state: RunState, decisions: Sequence[Event]) -> list[Event]:
        """Take note of decisions that are not committed yet, with no effect outside; the facts that follow from them at once."""

    def perform(self, state: RunState, event: Event) -> None:
        """Do what a committed event asks for; events that ask for nothing are ignored."""

    def wait(self, until: float | None) -> list[Event]:
        """Facts since the last call. Blocks, without using the CPU, until there is one or ``until`` (Unix seconds) has come."""

    def close(self) -> list[Event]:
        """End everything the run still has in the world; the last facts (nodes given back)."""


def drive(
    state: RunState,
    journal: Journal,
    world: World,
    clock: Clock,
    *,
    facts: Sequence[Event] = (),
    observers: Sequence[Observer] = (),
) -> RunState:
    """Drive a run to its end. ``facts`` is what is known at the start (created, engine, settled attempts)."""
    try:
        with rare_collections():
            _until_ended(state, journal, world, clock, list(facts), observers)
    finally:
        last = world.close()
    if last:
        _commit(state, journal, last, observers)
    return state


def _until_ended(
    state: RunState, journal: Journal, world: World, clock: Clock, batch: list[Event], observers: Sequence[Observer]
) -> None:
    while True:
        _turn(state, journal, world, clock, batch, observers)
        if state.status is not RunStatus.RUNNING:
            return
        moment = next_moment(state)
        if moment is None and not state.under_way and not state.todo:
            raise SpotwrightError("the run can neither go on nor end: this is a defect; the journal tells how it came")
        batch = world.wait(moment)


def _turn(
    state: RunState, journal: Journal, world: World, clock: Clock, batch: list[Event], observers: Sequence[Observer]
) -> None:
    facts: Sequence[Event] = batch
    while True:
        for event in facts:
            fold(state, event)
        decided = _decide(state, world, clock)
        batch += decided
        facts = world.arrange(state, decided) if decided else ()
        if not facts:
            break
        batch += facts
    if not batch:
        return
    journal.append(batch)
    for observe in observers:
        observe(state, batch)
    for event in batch:
        world.perform(state, event)


def _decide(state: RunState, world: World, clock: Clock) -> list[Event]:
    decided: list[Event] = []
    while decisions := decide(state, world.observe(), clock()):
        for event in decisions:
            fold(state, event)
        decided += decisions
    return decided


def _commit(state: RunState, journal: Journal, events: list[Event], observers: Sequence[Observer]) -> None:
    for event in events:
        fold(state, event)
    journal.append(events)
    for observe in observers:
        observe(state, events)
