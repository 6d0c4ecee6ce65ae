"""What the trials of a step add up to: one word, with the evidence for it. Pure.

*Not safe* is anything that an interruption changed: an output that differs, or a step that fails afterwards. *Never finishes*
is a step that, left alone after an interruption, takes many times as long as usual. Everything else is safe; whether it *goes
on* or *starts over* is a matter of how much of the interrupted work had to be done again: see :mod:`.losses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from spotwright.rehearsal.comparing import Difference
from spotwright.rehearsal.losses import By, Loss, best
from spotwright.rehearsal.points import Learnt, Point
from spotwright.rehearsal.trials import Trial

__all__ = ["Outcome", "Rehearsed", "Verdict", "verdict"]

KEPT = 0.25
"""The share of the interrupted work that must be kept for a step to count as going on: more than chance on a busy machine."""


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
        return _again(self._losses())

    @property
    def by(self) -> By | None:
        """How that was measured."""
        return next((loss.by for loss in best(self._losses())), None)

    def _losses(self) -> list[Loss]:
        return [outcome.loss for outcome in self.outcomes if outcome.loss is not None]


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """The worst that happened; where nothing did, whether work was kept."""
    if any(outcome.problem and not outcome.never and outcome.met for outcome in outcomes):
        return Verdict.UNSAFE
    if any(outcome.problem and not outcome.met for outcome in outcomes):  # before any interruption came
        return Verdict.FAILS
    if any(outcome.never for outcome in outcomes):
        return Verdict.NEVER
    again = _again([outcome.loss for outcome in outcomes if outcome.loss is not None])
    return Verdict.RESUMES if again is not None and again <= 1.0 - KEPT else Verdict.STARTS_OVER


def _again(losses: Sequence[Loss]) -> float | None:
    counting = best(losses)
    work = sum(loss.work for loss in counting)
    return min(1.0, sum(loss.again for loss in counting) / work) if work > 0 else None
