"""Estimates the part of an attempt's work that later attempts did not repeat, from the progress that the code reported.

The rules, for the attempts of one task:

- all of a succeeded attempt is kept;
- an attempt that went from 0.1 to 0.5, and whose successors began at 0.4 or later, keeps three quarters: work is assumed to
  advance evenly between two reports. First reports are compared with first reports, so that code which reports after each step
  does not seem to have skipped one;
- an attempt that got no further than earlier ones, and whose successors began there, keeps nothing;
- without reported progress, anything between nothing and all of it may be kept;
- nothing is kept of a task that can no longer succeed.

Each result is a pair of parts of one, the least and the most, rounded to a millionth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause

__all__ = ["KeptWork", "kept_of"]

_NONE, _ALL = Fraction(0), Fraction(1)
_GRAINS = 1_000_000  # progress is an estimate: sums of parts with one denominator stay small numbers


class KeptWork(NamedTuple):
    """The least and the most that was kept of an attempt, as parts of one."""

    low: Fraction = _NONE
    high: Fraction = _NONE

    @property
    def is_exact(self) -> bool:
        """Whether both ends are equal."""
        return self.low == self.high


@dataclass(slots=True)
class _After:
    """The attempts after one: the lowest progress at which they began, and whether one succeeded."""

    lowest: float | None = None
    is_blind: bool = False  # the succeeded attempt reported no progress
    succeeded: bool = False


def kept_of(attempts: Sequence[AttemptState], *, may_succeed: bool) -> list[KeptWork]:
    """The kept part of each attempt, in their order; nothing of a live attempt yet.

    ``may_succeed``: the task has not ended, so that work of its last attempts may still be kept.
    """
    reached = _reached_before(attempts)
    after, kept = _After(), []
    for attempt, base in zip(reversed(attempts), reversed(reached), strict=True):
        if attempt.cause is Cause.SUCCEEDED:
            after = _After(attempt.first_progress, attempt.first_progress is None, succeeded=True)
            kept.append(KeptWork(_ALL, _ALL))
            continue
        if attempt.cause is None or attempt.bound_at is None or not (after.succeeded or may_succeed):
            kept.append(KeptWork())
        else:
            kept.append(_kept(attempt, base, after))
        if attempt.first_progress is not None:
            after.lowest = min(attempt.first_progress, 1.0 if after.lowest is None else after.lowest)
    return kept[::-1]


def _reached_before(attempts: Sequence[AttemptState]) -> list[float]:
    """For each attempt, the highest progress of earlier attempts since the last success."""
    reached, highest = [], 0.0
    for attempt in attempts:
        reached.append(highest)
        highest = 0.0 if attempt.cause is Cause.SUCCEEDED else max(highest, attempt.progress or 0.0)
    return reached


def _kept(attempt: AttemptState, base: float, after: _After) -> KeptWork:
    most = _most_kept(attempt, base, after.lowest)
    if after.lowest is None or most is None:
        return KeptWork(_NONE, _ALL if most is None else most)
    return KeptWork(_NONE if after.is_blind else most, most)


def _most_kept(attempt: AttemptState, base: float, lowest: float | None) -> Fraction | None:
    """The part of the attempt below the lowest begin of its successors; ``None`` if that is unknown."""
    if lowest is None:
        return None
    first, last = attempt.first_progress, attempt.progress
    if first is None or last is None:
        return _NONE if lowest <= base else None
    if lowest <= first:
        return _NONE
    if lowest >= last:
        return _ALL
    return Fraction(round((lowest - first) / (last - first) * _GRAINS), _GRAINS)
