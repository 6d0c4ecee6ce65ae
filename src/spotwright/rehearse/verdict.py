"""What the trials of a step add up to: one word, with the evidence for it. Pure.

*Not safe* is anything that an interruption changed: an output that differs, or a step that fails afterwards. *Never finishes*
is a step that, left alone after an interruption, takes many times as long as usual. Everything else is safe; whether it *goes
on* or *starts over* is a matter of how much of the interrupted work had to be done again, by the step's own progress where it
reports any, else by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from spotwright.model.attempts import Cause
from spotwright.rehearse.comparing import Difference
from spotwright.rehearse.points import Learnt, Point
from spotwright.rehearse.trials import Attempt, Trial

__all__ = ["Loss", "Outcome", "Rehearsed", "Verdict", "loss_of", "verdict"]

KEPT = 0.25
"""The share of the interrupted work that must be kept for a step to count as going on: more than chance on a busy machine."""

_INTERRUPTED = (Cause.INTERRUPTED.value, Cause.LOST.value)


class Verdict(StrEnum):
    """What may be expected of a step when its node goes."""

    RESUMES = "safe and resumes"
    STARTS_OVER = "safe but starts over"
    UNSAFE = "not safe"
    NEVER = "never finishes"
    FAILS = "fails without any interruption"

    @property
    def is_safe(self) -> bool:
        """Whether interruptions change nothing but the time it takes."""
        return self in (Verdict.RESUMES, Verdict.STARTS_OVER)


@dataclass(frozen=True, slots=True)
class Loss:
    """What interruptions cost: seconds beyond the usual time; the work that was interrupted, and how much of it was done again.

    Work is in seconds of the undisturbed step.
    """

    interruptions: int
    seconds: float
    work: float
    again: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one point. ``problem`` says in one sentence what an interruption broke; empty: nothing."""

    point: Point
    trial: Trial | None = None
    problem: str = ""
    never: bool = False
    differences: tuple[Difference, ...] = ()
    outputs: tuple[Path, ...] = ()  # where both can be looked at
    loss: Loss | None = None

    @property
    def met(self) -> bool:
        """Whether the step was interrupted at all: it may have been done before."""
        return self.trial is not None and bool(self.trial.landed)


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One step with everything that was found out about it. ``usual`` are the seconds of the undisturbed executions."""

    task: str
    usual: tuple[float, ...]
    learnt: Learnt = field(default_factory=Learnt)
    noise: tuple[Difference, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    notices: tuple[tuple[str, float], ...] = ()  # of the spot pools, seconds
    notice: float = 0.0  # that was given here
    by_progress: bool = False
    fails: str = ""  # why it fails undisturbed: then there is nothing to rehearse
    failed: Trial | None = None

    @property
    def verdict(self) -> Verdict:
        """The one word."""
        return Verdict.FAILS if self.fails else verdict(self.outcomes)

    @property
    def interruptions(self) -> int:
        """How many there were."""
        return sum(loss.interruptions for loss in self._losses())

    @property
    def cost(self) -> float | None:
        """Seconds that one interruption cost beyond the step's usual time, on average; ``None`` where there was none."""
        return sum(loss.seconds for loss in self._losses()) / self.interruptions if self.interruptions else None

    @property
    def again(self) -> float | None:
        """The share of the interrupted work that was done again, from 0 (nothing) to 1 (it started over)."""
        work = sum(loss.work for loss in self._losses())
        return min(1.0, max(0.0, sum(loss.again for loss in self._losses()) / work)) if work > 0 else None

    def _losses(self) -> list[Loss]:
        return [outcome.loss for outcome in self.outcomes if outcome.loss is not None]


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """The worst that happened; where nothing did, whether work was kept."""
    if any(outcome.problem and not outcome.never for outcome in outcomes):
        return Verdict.UNSAFE
    if any(outcome.never for outcome in outcomes):
        return Verdict.NEVER
    losses = [outcome.loss for outcome in outcomes if outcome.loss is not None]
    work, again = sum(loss.work for loss in losses), sum(loss.again for loss in losses)
    return Verdict.RESUMES if work > 0 and again <= (1.0 - KEPT) * work else Verdict.STARTS_OVER


def loss_of(trial: Trial, undisturbed: Attempt, usual: float) -> Loss | None:
    """What the interruptions of a trial that succeeded cost; ``None`` where there was none."""
    interrupted = [attempt for attempt in trial.attempts if attempt.cause in _INTERRUPTED]
    if not interrupted:
        return None
    beyond = trial.seconds - usual
    by_progress = list(_by_progress(trial.attempts, undisturbed, usual))
    if by_progress:
        work, again = (sum(part) for part in zip(*by_progress, strict=True))
    else:
        work, again = sum(attempt.seconds for attempt in interrupted), beyond
    return Loss(len(interrupted), max(0.0, beyond), work, again)


def reports(undisturbed: Attempt) -> bool:
    """Whether a step's reports of its progress can measure its work."""
    first, last = undisturbed.first, undisturbed.progress
    return first is not None and last is not None and last > first


def _by_progress(attempts: Sequence[Attempt], undisturbed: Attempt, usual: float) -> Iterator[tuple[float, float]]:
    """For each interrupted attempt the work that was done when it ended, and what of that its successor did again."""
    if undisturbed.first is None or undisturbed.progress is None or not reports(undisturbed):
        return
    whole = undisturbed.progress - undisturbed.first
    for attempt, following in pairwise(attempts):
        if attempt.cause in _INTERRUPTED and attempt.progress is not None and following.first is not None:
            done, begun = attempt.progress - undisturbed.first, following.first - undisturbed.first
            yield done / whole * usual, max(0.0, done - begun) / whole * usual
