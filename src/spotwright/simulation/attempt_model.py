"""Models of simulated attempts: how long they work, what they report and save, and how they end.

A model gives the behavior of an attempt on a node that stays. The world asks for it when the attempt starts, and cuts it short if
the node is taken, the attempt is evicted or its run is stopped. :class:`WorkModel` draws the behavior from a description of each
task; a test may pass any function (:data:`AttemptModel`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spotwright.model.attempts import Signals
from spotwright.supply.node_fit import uniform

__all__ = ["FAILED", "SUCCEEDED", "AttemptModel", "AttemptStart", "Behavior", "TaskWork", "WorkModel"]

SUCCEEDED = Signals(exit_code=0, outputs_complete=True)
FAILED = Signals(exit_code=1)


@dataclass(frozen=True, slots=True)
class Behavior:
    """The behavior of one attempt on a node that stays. Durations are seconds of virtual time, shares parts of the task's work.

    After ``start_up`` seconds it works evenly from the share ``done_before`` to ``done_after``, reaches that when ``seconds``
    have passed since its start, and ends with ``signals``. On the way it reports its progress ``reports`` times at even
    distances, the last time at its end.
    """

    seconds: float = 1.0
    signals: Signals = SUCCEEDED
    reports: int = 0
    start_up: float = 0.0
    done_before: float = 0.0
    done_after: float = 1.0
    checkpoint_every: float | None = None  # seconds of work between two checkpoints; None: it saves none
    stops_in: float | None = None  # seconds from SIGTERM to its end; None: it ignores SIGTERM
    saves_on_sigterm: bool = False  # it saves its work between SIGTERM and its end

    def progress(self) -> list[tuple[float, float]]:
        """Its reports: seconds after its start, and the share that it reports."""
        work, share = self.seconds - self.start_up, self.done_after - self.done_before
        steps = [step / self.reports for step in range(1, self.reports + 1)]
        return [(self.start_up + work * step, self.done_before + share * step) for step in steps]

    def done(self, elapsed: float) -> float:
        """The share that is done ``elapsed`` seconds after its start."""
        work = self.seconds - self.start_up
        part = min(1.0, max(0.0, elapsed - self.start_up) / work) if work > 0 else 1.0
        return self.done_before + (self.done_after - self.done_before) * part

    def saved(self, elapsed: float, *, by_sigterm: bool) -> float:
        """The share that is in its last checkpoint when it ends ``elapsed`` seconds after its start."""
        if by_sigterm and self.saves_on_sigterm:
            return self.done(elapsed)
        if not self.checkpoint_every:
            return self.done_before
        worked = max(0.0, min(elapsed, self.seconds) - self.start_up)
        return self.done(self.start_up + worked // self.checkpoint_every * self.checkpoint_every)


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """An attempt that starts. ``saved`` is the share of the task's work in the checkpoint that it finds."""

    task: str
    number: int
    pool: str
    saved: float = 0.0


AttemptModel = Callable[[AttemptStart], Behavior]
"""The behavior of each attempt of a run. A pure function: the same start gives the same behavior."""


@dataclass(frozen=True, slots=True)
class TaskWork:
    """The work of a task. ``seconds`` is all of it, without start-up, on a node that stays.

    ``spread`` draws the work of each task between ``seconds * (1 - spread)`` and ``seconds * (1 + spread)``. ``failure_rate``
    is the chance that an attempt fails by its own fault, at a drawn share of its work. The other fields are those of
    :class:`Behavior`.
    """

    seconds: float
    spread: float = 0.0
    start_up: float = 0.0
    reports: int = 0
    checkpoint_every: float | None = None
    stops_in: float | None = None
    saves_on_sigterm: bool = False
    failure_rate: float = 0.0


class WorkModel:
    """Attempts that behave as the description of their task says, with seeded draws.

    ``work`` gives the description of a task by its path: a mapping with every task, or a function. A draw depends on the seed,
    the task's path and the attempt's number alone, like the draws of interruptions.
    """

    def __init__(self, work: Mapping[str, TaskWork] | Callable[[str], TaskWork], seed: int) -> None:
        self._work = work if callable(work) else work.__getitem__
        self._seed = seed

    def __call__(self, start: AttemptStart) -> Behavior:
        """Draw the behavior of an attempt: from its checkpoint it does the rest of the work, or fails on the way."""
        work = self._work(start.task)
        whole = work.seconds * (1.0 + work.spread * (2.0 * uniform(self._seed, "work", start.task) - 1.0))
        fails = uniform(self._seed, "fails", start.task, start.number) < work.failure_rate
        part = uniform(self._seed, "fails at", start.task, start.number) if fails else 1.0
        left = (1.0 - start.saved) * part
        return Behavior(
            seconds=work.start_up + whole * left,
            signals=FAILED if fails else SUCCEEDED,
            reports=work.reports,
            start_up=work.start_up,
            done_before=start.saved,
            done_after=start.saved + left,
            checkpoint_every=work.checkpoint_every,
            stops_in=work.stops_in,
            saves_on_sigterm=work.saves_on_sigterm,
        )
