"""How much of an attempt's work the next one did not have to do again, from the progress that the code reported.

The rules, for the attempts of one task:

- a succeeded attempt is kept whole;
- an attempt that was taken from 0.1 to 0.5, and whose successors began no lower than 0.4, keeps three quarters: work is taken
  to go on evenly between two reports. First reports are compared with first reports, so that code which reports after
  each step is not read as if it had skipped one;
- an attempt that began no higher than earlier ones had come and was followed from there added nothing;
- where the progress is not known, anything from none of it to all of it may have been kept;
- nothing is kept of a task that did not succeed, once it cannot any more.

Each answer is a pair of parts of one, the least and the most that was kept, to a millionth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause

__all__ = ["Kept", "kept_of"]

_NONE, _ALL = Fraction(0), Fraction(1)
_GRAINS = 1_000_000  # progress is an estimate: sums of parts with one denominator stay small numbers


@dataclass(frozen=True, slots=True)
class Kept:
    """The least and the most of an attempt that was kept, as parts of one."""

    low: Fraction = _NONE
    high: Fraction = _NONE

    @property
    def is_exact(self) -> bool:
        """Whether it is known exactly."""
        return self.low == self.high


@dataclass(slots=True)
class _After:
    """What is known of the attempts after one: where they began at the lowest, and whether their work came to an end."""

    lowest: float | None = None
    is_blind: bool = False  # the attempt that succeeded said nothing of where it began
    succeeded: bool = False


def kept_of(attempts: Sequence[AttemptState], *, may_succeed: bool) -> list[Kept]:
    """What was kept of each attempt, in their order; live attempts have none yet.

    ``may_succeed``: the task has not ended, so that work of its last attempts may still turn out to be kept.
    """
    reached = _reached_before(attempts)
    after, kept = _After(), []
    for attempt, base in zip(reversed(attempts), reversed(reached), strict=True):
        if attempt.cause is Cause.SUCCEEDED:
            after = _After(attempt.first_progress, attempt.first_progress is None, succeeded=True)
            kept.append(Kept(_ALL, _ALL))
            continue
        if attempt.cause is None or attempt.bound_at is None or not (after.succeeded or may_succeed):
            kept.append(Kept())
        else:
            kept.append(_kept(attempt, base, after))
        if attempt.first_progress is not None:
            after.lowest = min(attempt.first_progress, 1.0 if after.lowest is None else after.lowest)
    return kept[::-1]


def _reached_before(attempts: Sequence[AttemptState]) -> list[float]:
    """How far earlier attempts of the same work had come when each began; a success is the end of one piece of work."""
    reached, highest = [], 0.0
    for attempt in attempts:
        reached.append(highest)
        highest = 0.0 if attempt.cause is Cause.SUCCEEDED else max(highest, attempt.progress or 0.0)
    return reached


def _kept(attempt: AttemptState, base: float, after: _After) -> Kept:
    most = _most_kept(attempt, base, after.lowest)
    if after.lowest is None or most is None:
        return Kept(_NONE, _ALL if most is None else most)
    return Kept(_NONE if after.is_blind else most, most)


def _most_kept(attempt: AttemptState, base: float, lowest: float | None) -> Fraction | None:
    """The part of the attempt below the point where its successors began at the lowest; ``None``: not known."""
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
