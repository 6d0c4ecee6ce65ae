"""The ports of the engine: the body that executes attempts, the log of events, the lease of a run, and requests to its engine.

A *body* is where attempts run: this machine, a simulation, a cluster. The engine decides, and its :class:`Backend` acts. The
suite in ``tests/bodies`` is the executable contract; every body passes it.

An engine calls a backend in this order: for an existing run :meth:`Backend.recover`, then :meth:`Backend.begin`, then in turns
:meth:`Backend.wait`, :meth:`Backend.on_decisions` and the *effects* (:meth:`Backend.prepare`, :meth:`Backend.start`,
:meth:`Backend.halt`, :meth:`Backend.cleanup`, :meth:`Backend.complete`), and finally :meth:`Backend.close` or
:meth:`Backend.detach`. The engine holds the lease from the first call to the last.
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
    """An effect failed for now: a conflict, a rate limit, an unresponsive server. The engine retries it."""

    after: float  # seconds until the next try
    why: str


class Refused(Frozen):
    """An effect failed for good. An attempt whose start is refused has ended; ``why`` is its start error."""

    why: str


Outcome = TryAgain | Refused | None
"""The outcome of an effect; ``None``: done or in progress; later facts report the rest."""


class Backend(Answers, Protocol):
    """A body of the engine. It also answers the questions of :class:`~.decisions.snapshot.Answers` about its pools."""

    def recover(self, state: RunState) -> Sequence[Event]:
        """Settle the attempts of earlier engines, and return the facts about them.

        Called before any decision. Every attempt with a node (``bound_at``) either continues under this body, which later
        reports its end like any other, or has ended when this returns, with a ``settled`` ``AttemptEnded``. A body ends
        attempts that it cannot take over. The facts include the nodes that are gone.
        """

    def begin(self, state: RunState) -> None:
        """Start driving the run: queue the attempts that wait for a node. Called once, before the first turn."""

    def on_decisions(self, state: RunState, decisions: Sequence[Event]) -> Sequence[Event]:
        """Note decisions before they are committed, without effects outside the body's memory.

        Returns the immediate facts: an attempt that gets a free node (``AttemptBound``), the end of a halted attempt without a
        node, a ``TaskCached`` or ``CacheMissed`` for every ``CacheAsked``, and an ``EnvironmentChanged`` (ready or building)
        for every ``EnvironmentAsked``.
        """

    def prepare(self, state: RunState, event: EnvironmentAsked) -> Outcome:
        """Build a task's environment unless it is ready. An ``EnvironmentChanged`` reports the end of the build.

        Only engines whose ``EngineStarted`` has ``environments`` ask. Tasks with the same packages share one build.
        """

    def start(self, state: RunState, event: AttemptBound) -> Outcome:
        """Start the attempt on its node. Exactly one ``AttemptEnded`` follows, even if the attempt never runs."""

    def halt(self, state: RunState, event: AttemptHalted) -> Outcome:
        """Send the attempt SIGTERM, and kill it after its grace period. An attempt that has not started never runs."""

    def cleanup(self, state: RunState, event: AttemptDecided) -> Outcome:
        """Clean up after an attempt whose end is decided: keep its result, hide secrets in its outputs."""

    def complete(self, state: RunState, event: TaskCompleted) -> Outcome:
        """Perform a task without attempts, such as the deletion of a persistent volume claim."""

    def kill(self) -> None:
        """Kill halted attempts now, without their grace periods: the user has asked twice to stop."""

    def wait(self, until: float | None) -> Sequence[Event]:
        """Return the facts since the last call.

        Blocks without using the CPU until there is one, or ``until`` (Unix seconds).
        """

    def detach(self) -> None:
        """Leave the attempts running: another engine recovers them. Also after the lease is lost."""

    def close(self) -> Sequence[Event]:
        """End everything that the run has in the backend. Returns the last facts: returned nodes."""


class EventLog(Protocol):
    """The engine's side of a run's journal."""

    def append(self, events: Sequence[Event]) -> None:
        """Append events in one durable transaction.

        Raises :class:`~spotwright.errors.Fenced` after another engine took the run.
        """


Holder = Mapping[str, Any]
"""The engine that holds a lease, as JSON: its process on this machine, or its pod's name in a cluster."""

Liveness = Callable[[Holder], bool]
"""Tells whether the holder of a lease without expiry is alive; each body has its own check."""


class Lease(NamedTuple):
    """The right to drive a run.

    ``epoch`` grows with every holder and fences earlier ones: a write with an older epoch is refused. A lease with
    ``expires_at`` (Unix seconds) expires unless it is renewed; a lease without it ends with its holder.
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
        """Renew the lease if it is due. Returns the time of the next call; ``None`` for a lease without expiry.

        Raises :class:`~spotwright.errors.Fenced` after another engine took the run.
        """


REQUESTS = ("cancel", "detach")
"""Requests to an engine: cancel the run, or detach: end and leave the attempts running."""


class Requests(Protocol):
    """Requests from other processes to a run's engine. The body wakes its engine for each."""

    def request(self, kind: str, at: float) -> None:
        """Leave a request, one of :data:`REQUESTS`."""

    def take_requests(self) -> list[str]:
        """Remove and return the requests, oldest first."""
