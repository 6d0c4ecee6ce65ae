"""The times of a trial: how long the step takes undisturbed, the notice, and when an attempt or the trial is given up. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spotwright.rehearsal.own_work import OwnWork
from spotwright.rehearsal.work_phase import WorkPhase

__all__ = ["BUSY_LIMIT_FACTOR", "LIMIT_FACTOR", "LIMIT_SECONDS", "TrialTiming"]


LIMIT_FACTOR, LIMIT_SECONDS = 2.0, 5.0
"""The limit of an attempt that is left alone: times the undisturbed time, plus these seconds and its waits for a processor. The
docs pages name both."""
BUSY_LIMIT_FACTOR = 10.0
"""Replaces :data:`LIMIT_FACTOR` if the attempt waited for a processor all that time."""


@dataclass(frozen=True, slots=True)
class TrialTiming:
    """Times of a trial, in seconds: the step's undisturbed time (0: unknown), the notice, and the limits of one attempt.

    ``limit`` is without an attempt's waits for a processor, ``last_limit`` is with them. After ``left``, the budget's rest at
    the start of the trial, the trial is cut.
    """

    undisturbed: float
    notice: float = 0.0
    limit: float = 1e9
    last_limit: float = 1e9
    left: float = math.inf
    phase: WorkPhase | None = None
    own: OwnWork | None = None  # by which lives are measured

    @property
    def work(self) -> WorkPhase:
        """The undisturbed step's work phase; all of its time if unknown."""
        return self.phase if self.phase is not None else WorkPhase(0.0, self.undisturbed)

    def before_end(self, share: float) -> float:
        """The share of the work after which this share of the notice suffices for the rest of the step."""
        if self.work.seconds <= 0:
            return 1.0
        stretch = self.own.seconds / self.work.seconds if self.own is not None else 1.0  # waits count in neither
        left = share * min(self.notice, self.undisturbed) - stretch * (self.undisturbed - self.work.end)
        return min(1.0, max(0.0, 1.0 - left / (stretch * self.work.seconds)))

    @property
    def environment(self) -> dict[str, str]:
        """Variables for code that adapts its saves: one node is reclaimed while it is at work, possibly without notice.

        A rate over all of the time would make saves not pay in a training that imports for ten seconds and works for one. A
        rehearsal's work is short and a busy machine slows saves: even if they do not pay, each life has some.
        """
        if not self.undisturbed:
            return {}
        work = self.work.seconds or self.undisturbed
        return {
            "SPOTWRIGHT_INTERRUPT_EVERY": f"{work:g}",
            "SPOTWRIGHT_NOTICE": "0",
            "SPOTWRIGHT_SAVE_WITHIN": f"{_SAVE_WITHIN * work:g}",
        }


_SAVE_WITHIN = 0.1  # of the work: several saves in a life of a third of it, also where the machine is half as busy
