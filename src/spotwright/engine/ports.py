"""The ports of the engine: the body that executes attempts, the log of events, the lease of a run, and requests to its engine.

A *body* is where attempts run: this machine, a simulation, a cluster. The engine decides, and its :class:`Backend` acts.
The suite in ``tests/bodies`` is the contract in executable form; every body passes it.

One engine calls a backend in this order: for a run that exists :meth:`Backend.recover`, then :meth:`Backend.begin`, then in turns
:meth:`Backend.wait`, :meth:`Backend.on_decisions` and the *effects* (:meth:`Backend.prepare`, :meth:`Backend.start`,
:meth:`Backend.halt`, :meth:`Backend.cleanup`, :meth:`Backend.complete`), and at last :meth:`Backend.close` or
:meth:`Backend.detach`. The lease is held from the first call to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from spotwright.engine.events import AttemptBound, AttemptDecided, AttemptHalted, EnvironmentAsked, Event, TaskCompleted
from spotwright.engine.next_rung import Answers
from spotwright.engine.state import RunState
from spotwright.frozen import Frozen

__all__ = [
    "REQUESTS",
    "Backend",
    "Clock",
    "EventLog",
    "Holder",
    "Lease",
    "LeaseKeeper",
    "Liveness",
    "Outcome",
    "Refused",
    "Requests",
    "TryAgain",
]

Clock = Callable[[], float]
"""Unix time in seconds that never goes back while an engine runs."""


class TryAgain(Frozen):
    """An effect failed for now: a conflict, a rate limit, a server that does not answer. The engine tries it again."""

    after: float  # seconds until the next try
    why: str


class Refused(Frozen):
    """An effect failed for good. An attempt whose start is refused has ended; ``why`` is its start error."""

    why: str


Outcome = TryAgain | Refused | None
"""The outcome of an effect; ``None``: it is done or under way, and later facts report the rest."""


class Backend(Answers, Protocol):
    """A body of the engine. It also answers the questions of :class:`~.decisions.snapshot.Answers` about its pools."""

    def recover(self, state: RunState) -> Sequence[Event]:
        """Settle the attempts of earlier engines, and return the facts about them.

        Called before anything is decided. Every attempt that has a node (``bound_at``) either goes on under this body, which
        later reports its end like any other, or it has ended when this returns, with an ``AttemptEnded`` that is ``settled``.
        A body that cannot take an attempt over ends it. The facts include the nodes that are gone.
        """

    def begin(self, state: RunState) -> None:
        """Take up the run: queue the attempts that wait for a node. Called once, before the first turn."""

    def on_decisions(self, state: RunState, decisions: Sequence[Event]) -> Sequence[Event]:
        """Note decisions before they are committed, without an effect outside of the body's memory.

        Returns the facts that follow at once: an attempt that gets a free node (``AttemptBound``), the end of a halted attempt
        that had no node, for every ``CacheAsked`` its ``TaskCached`` or ``CacheMissed``, and for every ``EnvironmentAsked`` an
        ``EnvironmentChanged``: it is ready, or building.
        """

    def prepare(self, state: RunState, event: EnvironmentAsked) -> Outcome:
        """Build the environment of a task unless it is ready. An ``EnvironmentChanged`` reports the end of the build.

        Only engines whose ``EngineStarted`` has ``environments`` ask. Tasks with the same packages share one build.
        """

    def start(self, state: RunState, event: AttemptBound) -> Outcome:
        """Start the attempt on its node. Exactly one ``AttemptEnded`` follows, also where the attempt never runs."""

    def halt(self, state: RunState, event: AttemptHalted) -> Outcome:
        """Ask the attempt to end (SIGTERM), and end it after its grace period. An attempt that has not started never works."""

    def cleanup(self, state: RunState, event: AttemptDecided) -> Outcome:
        """Tidy up after an attempt whose end is decided: keep its result, hide secrets in its outputs."""

    def complete(self, state: RunState, event: TaskCompleted) -> Outcome:
        """Perform a task that has no attempts, such as the deletion of a persistent volume claim."""

    def kill(self) -> None:
        """End halted attempts now, without their grace periods: the user asked for the stop a second time."""

    def wait(self, until: float | None) -> Sequence[Event]:
        """The facts since the last call. Blocks without using the CPU until there is one, or until ``until`` (Unix seconds)."""

    def detach(self) -> None:
        """Leave the attempts running: another engine recovers them. Also after the lease is lost."""

    def close(self) -> Sequence[Event]:
        """End everything that the run has in the backend. Returns the last facts: nodes given back."""


class EventLog(Protocol):
    """The journal of a run, as far as the engine writes it."""

    def append(self, events: Sequence[Event]) -> None:
        """Append events in one durable transaction.

        Raises :class:`~spotwright.errors.Fenced` after another engine took the run.
        """


Holder = Mapping[str, Any]
"""The engine that holds a lease, as plain JSON: its process on this machine, or in a cluster the name of its pod."""

Liveness = Callable[[Holder], bool]
"""Says whether the holder of a lease without expiry is alive; each body has its own test."""


class Lease(NamedTuple):
    """The right to drive a run.

    ``epoch`` grows with every holder and fences earlier ones: a write with an older epoch is refused. A lease with
    ``expires_at`` (Unix seconds) ends by itself unless it is renewed; a lease without it ends with its holder.
    """

    holder: Holder
    epoch: int
    renewed_at: float
    expires_at: float | None = None

    def is_held(self, now: float, is_alive: Liveness) -> bool:
        """Whether an engine drives the run."""
        return is_alive(self.holder) if self.expires_at is None else now < self.expires_at


class LeaseKeeper(Protocol):
    """Keeps the lease of a run while an engine drives it."""

    def renew(self, now: float) -> float | None:
        """Renew the lease if it is due. Returns the moment of the next call; ``None`` for a lease without expiry.

        Raises :class:`~spotwright.errors.Fenced` after another engine took the run.
        """


REQUESTS = ("cancel", "detach")
"""Requests to an engine: to cancel the run, or to detach, which means to end and leave the attempts running."""


class Requests(Protocol):
    """Requests from other processes to the engine of a run. The body wakes its engine when one comes."""

    def request(self, kind: str, at: float) -> None:
        """Leave a request, one of :data:`REQUESTS`."""

    def take_requests(self) -> list[str]:
        """Remove and return the requests, oldest first."""
