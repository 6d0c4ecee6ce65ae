"""The loop of the engine: take facts, decide, commit both in one transaction, then let the backend act.

A turn folds the backend's facts into the state, calls :mod:`spotwright.engine.decide` until no decision follows, appends
everything to the journal in one transaction, and only then performs the *effects*: the backend's part of the committed events
(start, halt, clean up, complete). The journal records each start and stop before it happens. After ``kill -9`` at any point at
most the effects of the last commit are missing; the next engine settles them.

The node supply applies the decisions about attempts: it queues them, moves them to another rung, withdraws them and frees room.
:func:`replay_decisions` takes every decision of a journal again, to check that the current code decides the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from spotwright.engine.decide import decide, next_moment
from spotwright.engine.event_codec import DECISIONS
from spotwright.engine.events import (
    AttemptBound,
    AttemptDecided,
    AttemptEnded,
    AttemptHalted,
    AttemptMoved,
    AttemptPlaced,
    EngineStarted,
    EnvironmentAsked,
    EnvironmentChanged,
    Event,
    NoteAdded,
    RunStatus,
    SnapshotTaken,
    TaskCompleted,
)
from spotwright.engine.fold import fold, rare_collections
from spotwright.engine.next_rung import Snapshot, effective_plan
from spotwright.engine.plan import Plan
from spotwright.engine.ports import Backend, Clock, EventLog, LeaseKeeper, Outcome, Refused, TryAgain
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import Fenced, SpotwrightError, StateError
from spotwright.model.attempts import Signals
from spotwright.scheduling.budgets import FollowUp
from spotwright.supply.node_fit import AttemptKey, NodeRequest
from spotwright.supply.simulated_pools import Supply

__all__ = ["DECISIONS_VERSION", "AttemptQueue", "Engine", "Observer", "ReplayDiverged", "drive", "replay_decisions"]


Observer = Callable[[RunState, Sequence[Event]], None]
"""Called with the state and every batch of events, after the batch is folded, committed and performed."""

_PATIENCE = 600.0
"""The seconds for which an effect is retried before it counts as refused."""

_SHORTEST_DELAY = 0.05
"""The least seconds before a retry of an effect: a body that asks for 0 would keep the engine busy."""


@dataclass(order=True, slots=True)
class _Retry:
    """An effect to retry. ``number`` orders effects that are due at the same time."""

    due: float
    number: int
    event: Event = field(compare=False)
    give_up_at: float = field(compare=False)


@dataclass(slots=True)
class Engine:
    """The loop of one run, turn by turn, for a caller that waits for several runs at once.

    :func:`drive` is the same loop for one run, with a backend that blocks.
    """

    state: RunState
    journal: EventLog
    backend: Backend
    clock: Clock
    observers: Sequence[Observer] = ()
    lease: LeaseKeeper | None = None
    _retries: list[_Retry] = field(default_factory=list)  # a heap
    _retry_count: int = 0
    _facts: list[Event] = field(default_factory=list)  # of refused effects

    @property
    def ended(self) -> bool:
        """Whether the run has ended or the engine leaves it to the next one: only :meth:`close` follows."""
        return self.state.status is not RunStatus.RUNNING or self.state.detached

    def turn(self, facts: Sequence[Event]) -> float | None:
        """Renew the lease, fold the facts, decide, commit and perform.

        Returns the time (Unix seconds) of the next turn even without facts; ``None``: the engine waits only for facts. Raises
        :class:`~spotwright.errors.Fenced` after another engine took the run, before any effect.
        """
        renewal = self.lease.renew(self.clock()) if self.lease is not None else None
        batch = [*facts, *self._facts]
        self._facts = []
        self._decide(batch)
        if batch:
            self.journal.append(batch)
            for event in batch:
                self._perform(event)
            self._show(batch)  # after the effects, so that tasks do not wait for the display
        if self.ended:
            return None
        self._try_again()
        if self._facts:
            return self.clock()
        moments = [next_moment(self.state), renewal, self._retries[0].due if self._retries else None]
        moment = min((each for each in moments if each is not None), default=None)
        if moment is None and not (self.state.under_way or self.state.todo or self.state.preparing):
            raise SpotwrightError(
                "the run can neither go on nor end: this is a defect of spotwright; report it with the journal"
            )
        return moment

    def close(self) -> None:
        """End everything that the run still has in the backend, unless it is detached. Commit the last facts.

        Pending cleanup is tried a last time; if it fails, a note is added, because no later engine retries it.
        """
        self._try_last_time()
        last, self._facts = self._facts, []
        if self.state.detached and self.state.status is RunStatus.RUNNING:
            self.backend.detach()
        else:
            last += self.backend.close()
        if last:
            for event in last:
                fold(self.state, event)
            self.journal.append(last)
            self._show(last)

    def _decide(self, batch: list[Event]) -> None:
        """Fold the facts in ``batch``, and append the decisions and the backend's facts in reply."""
        facts: Sequence[Event] = tuple(batch)
        while True:
            for event in facts:
                fold(self.state, event)
            decided = self._decide_all()
            batch += decided
            facts = self.backend.on_decisions(self.state, decided) if decided else ()
            if not facts:
                return
            batch += facts

    def _decide_all(self) -> list[Event]:
        decided: list[Event] = []
        while True:
            snapshot, now = Snapshot(self.backend), self.clock()
            decisions = decide(self.state, snapshot, now)
            if not decisions:
                return decided
            taken = snapshot.as_event(now)
            round_of_decisions = decisions if taken is None else [taken, *decisions]
            for event in round_of_decisions:
                fold(self.state, event)
            decided += round_of_decisions

    def _show(self, events: list[Event]) -> None:
        for observe in self.observers:
            observe(self.state, events)

    # -- effects

    def _perform(self, event: Event) -> None:
        """Perform the effect of a committed event; most events have none."""
        outcome = self._effect(event)
        if outcome is not None:
            now = self.clock()
            self._retry_count += 1
            self._retry_later(_Retry(now, self._retry_count, event, now + _PATIENCE), outcome)

    def _effect(self, event: Event) -> Outcome:
        """Call the backend for an event."""
        match event:
            case AttemptBound():
                return self.backend.start(self.state, event)
            case AttemptHalted():
                return self.backend.halt(self.state, event)
            case AttemptDecided():
                return self.backend.cleanup(self.state, event)
            case TaskCompleted():
                return self.backend.complete(self.state, event)
            case EnvironmentAsked():
                return self.backend.prepare(self.state, event)
        return None

    def _retry_later(self, retry: _Retry, outcome: Outcome) -> None:
        """Schedule the retry of an effect; one that is refused or was tried for too long becomes a fact."""
        now = self.clock()
        due = now + max(outcome.after, _SHORTEST_DELAY) if isinstance(outcome, TryAgain) else None
        if due is not None and due < retry.give_up_at:
            retry.due = due
            heapq.heappush(self._retries, retry)
        elif outcome is not None:
            why = outcome.why if isinstance(outcome, Refused) else f"{outcome.why} (for {_PATIENCE:g}s)"
            self._facts.append(_consequence(retry.event, why, now))

    def _try_again(self) -> None:
        """Retry the due effects, unless their attempt has ended meanwhile."""
        now = self.clock()
        while self._retries and self._retries[0].due <= now:
            retry = heapq.heappop(self._retries)
            if self._is_wanted(retry.event):
                self._retry_later(retry, self._effect(retry.event))

    def _try_last_time(self) -> None:
        """Try the pending cleanup. Starts and halts are not tried: the next engine recovers their attempts."""
        for retry in sorted(self._retries):
            if isinstance(retry.event, AttemptDecided | TaskCompleted):
                outcome = self._effect(retry.event)
                if outcome is not None:
                    self._facts.append(_consequence(retry.event, outcome.why, self.clock()))
        self._retries.clear()

    def _is_wanted(self, event: Event) -> bool:
        """Whether an effect is still needed: starting or halting an attempt only while it is live."""
        task = self.state.tasks.get(event.task)
        if isinstance(event, EnvironmentAsked):
            return event.task in self.state.preparing
        if not isinstance(event, AttemptBound | AttemptHalted):
            return task is not None
        return task is not None and len(task.attempts) == event.attempt and task.last.is_live


def _consequence(event: Event, why: str, now: float) -> Event:
    """The fact after an impossible effect: a start that fails ends the attempt or the task, anything else is a note."""
    if isinstance(event, AttemptBound):
        return AttemptEnded(now, event.task, event.attempt, signals=Signals(start_error=why))
    if isinstance(event, EnvironmentAsked):
        return EnvironmentChanged(now, event.task, state="failed", why=why)
    about = f"attempt {event.attempt} of {event.task}" if event.attempt else event.task
    return NoteAdded(now, text=f"{about}: {_FAILED_DEEDS[type(event)]}: {why}")


_FAILED_DEEDS = {
    AttemptHalted: "it could not be asked to end",
    AttemptDecided: "what it left could not be tidied up",
    TaskCompleted: "its work could not be done",
}


def drive(
    state: RunState,
    journal: EventLog,
    backend: Backend,
    clock: Clock,
    *,
    facts: Sequence[Event] = (),
    observers: Sequence[Observer] = (),
    lease: LeaseKeeper | None = None,
) -> RunState:
    """Drive a run to its end. ``facts`` belong to the first turn: the run's creation and its engine.

    After an error the backend is closed and nothing more is committed: the error may have come from the journal. An engine that
    lost its lease ends no attempts: they belong to the engine that took the run.
    """
    engine = Engine(state, journal, backend, clock, observers, lease)
    try:
        with rare_collections():
            until = engine.turn(facts)
            while not engine.ended:
                until = engine.turn(backend.wait(until))
    except Fenced:
        backend.detach()
        raise
    except BaseException:
        backend.close()
        raise
    engine.close()
    return state


class AttemptQueue:
    """The attempts of one run in its supply's queue, which other runs may share. ``run`` is the run's name."""

    def __init__(self, supply: Supply, run: str) -> None:
        self._supply, self._run = supply, run
        self._withdrawn: set[AttemptKey] = set()

    def on_decisions(self, state: RunState, decisions: Sequence[Event], now: float) -> Iterator[Event]:
        """Apply the decisions in order. Yields the ends of attempts halted before they had a node."""
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
        """Whether a halted attempt was withdrawn from the queue before it had a node. True only once per attempt."""
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
        """Free the room of an attempt whose end is decided, and not before, so that no other attempt takes its place.

        An attempt decided without ever having had a node (unschedulable) leaves the queue.
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


DECISIONS_VERSION = 3
"""The version of the decision functions. It grows when they decide differently on events in existing journals.
"""


class ReplayDiverged(StateError):
    """The decision functions decide differently from the journal."""


def replay_decisions(plans: Sequence[Plan], events: Sequence[Event]) -> RunState:
    """Fold a whole journal and repeat every decision in it. Returns the final state.

    Raises :class:`ReplayDiverged` at the first decision that differs, and :class:`StateError` for a journal of another version of
    the decision functions.
    """
    state, snapshot, index = RunState(plans), Snapshot(), 0
    taken: list[Event] = []
    while index < len(events):
        event = events[index]
        if isinstance(event, DECISIONS):
            decided = decide(state, snapshot, event.at)
            _compare(decided, events, index)
            for each in (*taken, *decided):
                fold(state, each)
            taken, snapshot, index = [], Snapshot(), index + len(decided)
            continue
        if isinstance(event, EngineStarted) and event.decisions != DECISIONS_VERSION:
            raise StateError(_other_version(event))
        index += 1
        if isinstance(event, SnapshotTaken):  # the engine folds it with the decisions that used it
            taken, snapshot = [event], Snapshot(room=event.room, waiting=event.waiting, coming=event.coming)
            continue
        fold(state, event)
    for each in taken:
        fold(state, each)
    return state


def _compare(decided: Sequence[Event], events: Sequence[Event], index: int) -> None:
    recorded = events[index : index + max(1, len(decided))]
    for number, (before, now) in enumerate(zip_longest(recorded, decided), index + 1):
        if now != before:
            raise ReplayDiverged(
                f"event {number} of the journal is {before or 'missing'}; decided again it is {now or 'missing'}"
            )


def _other_version(event: EngineStarted) -> str:
    if not event.decisions:
        return "this journal does not name the version of its decision functions: it can be read, not replayed"
    return (
        f"this journal was decided by version {event.decisions} of the decision functions (spotwright {event.version}), and "
        f"this one has version {DECISIONS_VERSION}: replay it with that version of spotwright"
    )
