"""Takes the nodes of one rehearsal at its points, through the same door by which the simulated pools take theirs.

The world tells the killer what attempts do and asks whose node goes; see :mod:`spotwright.local.taking`. A blow that waits for
an operation on files has the attempt traced; the tracer holds everything still until the world has done what the blow asks.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from spotwright.engine.events import Event
from spotwright.engine.loop import Clock
from spotwright.errors import StateError
from spotwright.local.orders import StartOrder
from spotwright.local.syscalls import Call
from spotwright.local.taking import Take
from spotwright.rehearsal.points import SAVES, At, Blow, Share
from spotwright.rehearsal.tracer import Op, Tracer
from spotwright.supply.happenings import Key

__all__ = ["Killer", "Landed", "Pace", "needs_look"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a rehearsal goes, in seconds: ``usual`` is the step's undisturbed time, ``limit`` what one attempt may take."""

    usual: float
    notice: float = 0.0
    limit: float = 1e9

    @property
    def environment(self) -> dict[str, str]:
        """What code may know that paces its saves: here nodes are taken once in the step's own time, at times without notice."""
        return {"SPOTWRIGHT_TAKEN_EVERY": f"{self.usual:g}", "SPOTWRIGHT_NOTICE": "0"}


@dataclass(slots=True)
class Landed:
    """A blow that came: in which attempt, at which age of it in seconds, at which operation."""

    attempt: int
    blow: Blow
    age: float
    op: Op | None = None
    in_save: bool = False  # the node went inside the save after its notice


@dataclass(slots=True)
class _Attempt:
    """The attempt under way. ``hits`` come from the tracer's thread; everything else belongs to the world's."""

    key: Key
    blow: Blow | None
    folders: Mapping[Path, str]
    started_at: float | None = None
    first: float | None = None  # progress
    progress: float | None = None
    tracer: Tracer | None = None
    seen: dict[str, int] = field(default_factory=dict)  # operations by place
    noticed: bool = False
    hits: list[tuple[Op, bool]] = field(default_factory=list)
    taking: bool = False
    going: bool = False


def needs_look(blow: Blow) -> bool:
    """Whether a blow waits for an operation on files."""
    return isinstance(blow.when, At) or blow.in_save


class Killer:
    """The blows of one rehearsal. ``blows`` are for attempts 1, 2, ...; ``trace``: look at every attempt's operations."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        clock: Clock,
        *,
        blows: Sequence[Blow],
        pace: Pace | None,
        prepare: Callable[[StartOrder], Mapping[Path, str]],
        trace: bool = False,
    ) -> None:
        self._clock, self._blows, self._pace, self._prepare, self._trace = clock, blows, pace, prepare, trace
        self._attempt: _Attempt | None = None
        self._wake, theirs = socket.socketpair()
        self._signal = theirs
        for end in (self._wake, theirs):
            end.setblocking(False)
        selector.register(self._wake, selectors.EVENT_READ, self._drain)
        self.landed: list[Landed] = []
        self.ops: list[list[Op]] = []
        self.untraced = ""
        self.overdue = False

    def close(self) -> None:
        """After the run: nothing of it may wake a selector any more."""
        self._wake.close()
        self._signal.close()

    # -- what the world tells

    def starting(self, key: Key, order: StartOrder) -> StartOrder:
        """Prepare the attempt's folders, and hold it where somebody must look from its first call on."""
        blow = self._blows[key[1] - 1] if key[1] <= len(self._blows) else None
        try:
            self._attempt = _Attempt(key, blow, self._prepare(order))
        except OSError as error:
            raise StateError(f"{order.directory}: what the attempt needs cannot be copied there: {error}") from error
        env = {**order.env, **(self._pace.environment if self._pace is not None else {})}
        return replace(order, hold=self._trace, env=env)

    def started(self, key: Key, shim: int) -> None:
        """Begin to look."""
        attempt = self._attempt
        if attempt is None or attempt.key != key:
            return
        attempt.started_at = self._clock()
        if self._trace:
            attempt.tracer = Tracer(shim, attempt.folders, lambda op: self._wanted(attempt, op))
            attempt.tracer.start()

    def reported(self, key: Key, progress: float) -> None:
        """How far it is decides where it is measured by its work."""
        attempt = self._attempt
        if attempt is not None and attempt.key == key:
            attempt.progress = progress
            if attempt.first is None:
                attempt.first = progress

    def ended(self, key: Key) -> None:
        """Nothing of it is left: nor is there anything to trace."""
        attempt, self._attempt = self._attempt, None
        if attempt is None or attempt.key != key or attempt.tracer is None:
            return
        attempt.tracer.finish()
        self.untraced = self.untraced or attempt.tracer.failed
        self.ops.append(attempt.tracer.ops)

    # -- what the world asks

    def next_moment(self) -> float | None:
        """When the attempt is old enough for its blow, or too old."""
        attempt = self._attempt
        if attempt is None or attempt.started_at is None or self._pace is None or attempt.taking:
            return None
        moments = [attempt.started_at + self._pace.limit]
        at = self._due_at(attempt)
        if at is not None and not attempt.noticed:
            moments.append(at)
        return min(moments)

    def asks(self, now: float) -> list[Event]:
        """Give the run up where one attempt takes too long."""
        attempt = self._attempt
        if attempt is None or attempt.started_at is None or self._pace is None or self.overdue:
            return []
        if now < attempt.started_at + self._pace.limit:
            return []
        self.overdue = True
        return [Event("cancel", now)]

    def due(self, now: float) -> list[Take]:
        """The node of the attempt, where its moment has come."""
        attempt = self._attempt
        if attempt is None or attempt.started_at is None or attempt.taking or self._pace is None:
            return []
        if self.overdue:
            attempt.taking = True
            return [Take(attempt.key, 0.0, "the rehearsal gives it up")]
        if attempt.hits:
            return [self._strike(attempt, now, *attempt.hits.pop(0))]
        at = self._due_at(attempt)
        if at is not None and now >= at and not attempt.noticed:
            return [self._strike(attempt, now, None, False)]
        return []

    def taken(self) -> None:
        """Let go what the tracer holds, where it lives on for now."""
        attempt = self._attempt
        if attempt is not None and attempt.going and attempt.tracer is not None:
            attempt.going = False
            attempt.tracer.let_go(resume=not attempt.taking)

    # -- moments

    def _due_at(self, attempt: _Attempt) -> float | None:
        """When a blow that waits for a share of the work comes: now, later by the clock, or when more is reported."""
        if attempt.blow is None or attempt.started_at is None or self._pace is None:
            return None
        when = attempt.blow.when
        if not isinstance(when, Share):
            return None
        if attempt.first is None or attempt.progress is None or when.by_time:
            return attempt.started_at + when.share * self._pace.usual
        reached = attempt.progress >= attempt.first + when.share * (1.0 - attempt.first)
        return attempt.started_at if reached else None

    def _strike(self, attempt: _Attempt, now: float, op: Op | None, in_save: bool) -> Take:
        blow, pace, began = attempt.blow, self._pace, attempt.started_at
        if blow is None or pace is None or began is None:
            raise ValueError("an attempt without a blow is left alone")
        attempt.going = op is not None
        if in_save:
            self.landed[-1].in_save, self.landed[-1].op = True, op
            attempt.taking = True
            return Take(attempt.key, 0.0, "inside the save after its notice")
        self.landed.append(Landed(attempt.key[1], blow, now - began, op))
        notice = pace.notice if blow.notice else 0.0
        attempt.noticed, attempt.taking = True, notice <= 0
        return Take(attempt.key, notice, f"rehearsed: {blow.kind}")

    # -- the tracer's thread

    def _wanted(self, attempt: _Attempt, op: Op) -> bool:
        """Whether the attempt must stand still after this operation."""
        blow = attempt.blow
        number = attempt.seen.get(op.place, 0)
        attempt.seen[op.place] = number + 1
        if blow is None:
            return False
        at = isinstance(blow.when, At) and (blow.when.place, blow.when.number) == (op.place, number)
        follows = attempt.noticed and blow.in_save and op.place == SAVES and op.call in (Call.OPEN, Call.WRITE)
        if not at and not follows:
            return False
        attempt.hits.append((op, not at))
        with contextlib.suppress(OSError):  # it is full, so it wakes already; or closed, and nobody cares any more
            self._signal.send(b"!")
        return True

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
