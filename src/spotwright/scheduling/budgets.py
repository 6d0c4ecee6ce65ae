"""What happens after an attempt: the design's table, rows 1 to 7, as one pure function.

The engine, the simulation and the cluster all ask here. The input is the cause of the ending, what has been spent so far,
and where the attempt ran; the output says whether the task is finished, tries again (on which rung, after which wait), or
has failed and why. Row 8 (a deadline) is decided in :mod:`spotwright.scheduling.deadline`, which replaces the choice of rung.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy
from spotwright.scheduling.ladder import Ladder

__all__ = [
    "MAX_MOVES",
    "Next",
    "Place",
    "Spent",
    "Then",
    "after_attempt",
    "backoff",
    "first_rung",
    "next_rung_while_pending",
]

MAX_MOVES = 20
"""How many disruptions one task survives: they spend no budget, but nothing may go on for ever."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Endings of one task so far, by budget: i, e and m of the design's table."""

    interruptions: int = 0
    errors: int = 0
    moves: int = 0

    def after(self, cause: Cause) -> Spent:
        """The counts with one more ending of this cause; causes without a budget change nothing."""
        return Spent(
            self.interruptions + cause.is_interruption,
            self.errors + cause.is_error,
            self.moves + (cause is Cause.DISRUPTED),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attempt ran. ``first`` is the rung it was first placed on, ``rung`` the one it ran on (pending moves climb)."""

    first: int
    rung: int
    pool: str | None = None  # None: it was never bound to a node


class Then(StrEnum):
    """What becomes of the task after an attempt ended."""

    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Next:
    """The decision. ``wait`` is the backoff in seconds of the (possibly simulated) world before the next attempt."""

    then: Then
    why: str
    rung: int = 0
    wait: float = 0.0


def after_attempt(cause: Cause, before: Spent, place: Place, policy: Policy, ladder: Ladder) -> Next:
    """Decide what follows an attempt that ended with ``cause``; ``before`` counts the endings before this one."""
    spent = before.after(cause)
    if cause is Cause.CANCELLED:
        return Next(Then.CANCEL, "cancelled")
    if cause is Cause.SUCCEEDED:
        return Next(Then.SUCCEED, "succeeded")
    if cause is Cause.UNSCHEDULABLE:
        return Next(Then.FAIL, "no rung had a node for it")
    if cause.is_interruption:
        return _after_interruption(spent, place, policy, ladder)
    if cause is Cause.DISRUPTED:
        if spent.moves > MAX_MOVES:
            return Next(Then.FAIL, f"moved {spent.moves} times, {MAX_MOVES} are allowed")
        return Next(Then.RETRY, f"moved ({spent.moves} of {MAX_MOVES}), tried again on the same rung", place.rung)
    return _after_error(cause, spent, place, policy, ladder)


def backoff(spent: Spent, place: Place, pools: Sequence[str], policy: Policy) -> float:
    """The wait after an interruption (row 3), ``spent`` with it: none unless it may return to the pool it was taken from."""
    return policy.interruption_backoff.wait(spent.interruptions) if place.pool in pools else 0.0


def first_rung(spent: Spent, policy: Policy, ladder: Ladder) -> int:
    """The rung of an attempt with no predecessor to learn from: the top of what is allowed."""
    return _allowed(spent, policy, ladder)[0]


def next_rung_while_pending(rung: int, spent: Spent, policy: Policy, ladder: Ladder) -> int | None:
    """The next allowed rung below ``rung`` after ``pending_timeout`` (row 7); ``None`` after the last one."""
    return next((index for index in _allowed(spent, policy, ladder) if index > rung), None)


def _allowed(spent: Spent, policy: Policy, ladder: Ladder) -> tuple[int, ...]:
    """Row 6: after ``fall_back_after`` interruptions only on-demand, where there is any."""
    return ladder.allowed(only_on_demand=spent.interruptions >= policy.fall_back_after)


def _after_interruption(spent: Spent, place: Place, policy: Policy, ladder: Ladder) -> Next:
    if spent.interruptions > policy.max_interruptions:
        times = "once" if spent.interruptions == 1 else f"{spent.interruptions} times"
        return Next(Then.FAIL, f"interrupted {times}, interruptions.max is {policy.max_interruptions}")
    allowed = _allowed(spent, policy, ladder)
    rung = _rung_after_interruption(place, allowed, ladder)
    pools = ladder.rungs[rung].pools
    wait = backoff(spent, place, pools, policy)
    count = f"interruption {spent.interruptions} of {policy.max_interruptions}"
    if spent.interruptions == policy.fall_back_after and ladder.rungs[rung].spot is False:
        return Next(Then.RETRY, f"{count}: falls back to {pools[0]}", rung, wait)
    where = "anywhere that fits" if len(pools) > 1 else f"on {pools[0]}"
    return Next(Then.RETRY, f"{count}: again {where}", rung, wait)


def _rung_after_interruption(place: Place, allowed: tuple[int, ...], ladder: Ladder) -> int:
    """The next spot rung in turn, so that a pool that has just lost a node is not the first one asked again.

    An attempt that had climbed while it was pending says nothing about the pools above it: its successor starts at the top
    (row 7). On-demand rungs are reached by ``fall_back_after`` and by pending only, never by turn.
    """
    turn = tuple(index for index in allowed if ladder.rungs[index].spot is not False) or allowed
    if place.first != place.rung or place.rung not in turn:
        return turn[0]
    return turn[(turn.index(place.rung) + 1) % len(turn)]


def _after_error(cause: Cause, spent: Spent, place: Place, policy: Policy, ladder: Ladder) -> Next:
    if spent.errors > policy.retries:
        if policy.retries == 0:
            return Next(Then.FAIL, f"{cause}, and errors.retries is 0")
        return Next(Then.FAIL, f"{cause} (error {spent.errors}), and errors.retries is {policy.retries}")
    allowed = _allowed(spent, policy, ladder)
    rung = place.rung if place.rung in allowed else allowed[0]
    wait = policy.error_backoff.wait(spent.errors)
    return Next(Then.RETRY, f"{cause}: retry {spent.errors} of {policy.retries}", rung, wait)
