"""Decides what follows an attempt (rows 1 to 7 of the design's table), and what to do about one that waits in vain.

The local engine, the simulation and the cluster call :func:`after_attempt`, so that a rehearsed decision is production's.
Its input is the cause of the ending, the counts of earlier endings, and the attempt's position on the ladder. Its output says
whether the task has succeeded, has failed and why, or is retried, on which rung and after which backoff. Row 8 (a deadline)
replaces the choice of the rung: see :mod:`spotwright.scheduling.deadline`. There ``interruptions.max`` bounds the attempts in a
row that did not advance: after more of them on spot, the rest of the work runs on on-demand.

===============================  =====================  =========================  ====================================
cause                            budget                 backoff                    rung of the next attempt
===============================  =====================  =========================  ====================================
interrupted, lost                ``interruptions.max``  if it may return to the    next spot rung in turn; on-demand from
                                                        pool that reclaimed it     ``fall_back_after`` on
disrupted                        20, a constant         none                       the same
failed, out of memory,           ``errors.retries``     ``errors.backoff``         the same
timed out, start-up
succeeded, cancelled,            none                   none                       no next attempt
unschedulable
===============================  =====================  =========================  ====================================

Where an orchestrator makes pods, row 7 is about a pod that waits in vain for a node, and about the pools that had none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy
from spotwright.scheduling.ladder import Ladder

__all__ = [
    "CEILING",
    "FIRST_PAUSE",
    "MAX_MOVES",
    "AttemptLife",
    "BudgetUse",
    "Decision",
    "FollowUp",
    "LadderPosition",
    "Pause",
    "Useless",
    "after_attempt",
    "allowed_rungs",
    "backoff",
    "count_stalled",
    "count_useless",
    "first_rung",
    "left_out",
    "next_rung_while_pending",
    "pause_after",
    "pauses_of",
    "rung_after_waiting",
]


MAX_MOVES = 20
"""Disruptions of one task after which it fails (row 4). They spend no budget of the policy, but need a limit."""


class BudgetUse(NamedTuple):
    """Counts of one task's endings by budget: i, e and m of the design's table."""

    interruptions: int = 0
    errors: int = 0
    moves: int = 0

    def after(self, cause: Cause) -> BudgetUse:
        """Return the counts with one more ending of this cause. Causes without a budget do not count."""
        if cause is Cause.SUCCEEDED:  # by far the most frequent one
            return self
        return BudgetUse(
            self.interruptions + cause.is_interruption,
            self.errors + cause.is_error,
            self.moves + (cause is Cause.DISRUPTED),
        )


class Useless(NamedTuple):
    """The longest rows of interrupted attempts without progress, on spot rungs and on on-demand rungs."""

    spot: int = 0
    on_demand: int = 0


class LadderPosition(NamedTuple):
    """An attempt's position on its ladder.

    ``rung`` is the rung that it ran on. ``has_climbed``: it started on another one, and climbed while it was pending (row 7).
    ``pool`` is the pool of its node, ``None`` if it was never bound to one. ``stalled`` is the result of :func:`count_stalled`
    after an interruption; ``None`` stands for the number of interruptions. ``useless`` is the result of :func:`count_useless`,
    for a task with a deadline.
    """

    rung: int
    has_climbed: bool = False
    pool: str | None = None
    stalled: int | None = None
    useless: Useless = Useless()


class AttemptLife(NamedTuple):
    """The result of one attempt: its last reported progress (0 to 1) and its lifetime in seconds of the backend's time.

    ``on_demand`` says whether its rung is an on-demand rung.
    """

    interrupted: bool
    progress: float | None
    lived: float
    on_demand: bool = False


def count_stalled(lives: Iterable[AttemptLife], ceiling: float) -> int:
    """Count the interruptions in a row in which the task did not advance, including the last one (row 3).

    A task advances in an attempt that reports more progress than all attempts before it, or that lives longer than ``ceiling``,
    the maximum backoff in seconds. The count then restarts at one.
    """
    count, best = 0, 0.0
    for life in lives:
        advanced = (life.progress or 0.0) > best or life.lived > ceiling
        best = max(best, life.progress or 0.0)
        if life.interrupted:
            count = 1 if advanced else count + 1
    return count


def count_useless(lives: Sequence[AttemptLife], ceiling: float, *, saves: bool) -> Useless:
    """Count the interrupted attempts in a row that did not advance; the longest row counts (row 8).

    An attempt advances if the task saves its work and it reports more progress than all attempts before it. If a task saves but
    does not report progress, each attempt that lives longer than ``ceiling`` advances, as in :func:`count_stalled`. A task that
    does not save begins again after each interruption: none of its interrupted attempts advances.
    """
    silent = all(life.progress is None for life in lives)
    most, row, best = Useless(), Useless(), 0.0
    for life in lives:
        if saves and ((life.progress or 0.0) > best or (silent and life.lived > ceiling)):
            row = Useless()
        elif life.interrupted:
            row = Useless(row.spot + (not life.on_demand), row.on_demand + life.on_demand)
        best = max(best, life.progress or 0.0)
        most = Useless(max(most.spot, row.spot), max(most.on_demand, row.on_demand))
    return most


class FollowUp(StrEnum):
    """The engine's next step for a task whose attempt has ended."""

    SUCCEED = "succeed"
    RETRY = "retry"
    FAIL = "fail"
    CANCEL = "cancel"


class Decision(NamedTuple):
    """The decision about a task. ``rung`` and ``wait``, the backoff in seconds of the backend's time, belong to ``RETRY``."""

    then: FollowUp
    why: str
    rung: int = 0
    wait: float = 0.0


def after_attempt(
    cause: Cause, before: BudgetUse, position: LadderPosition, policy: Policy, ladder: Ladder
) -> Decision:
    """Decide what follows an attempt that ended with ``cause``. ``before`` counts the endings before this one."""
    spent = before.after(cause)
    if cause is Cause.CANCELLED:
        return Decision(FollowUp.CANCEL, "cancelled")
    if cause is Cause.SUCCEEDED:
        return Decision(FollowUp.SUCCEED, "succeeded")
    if cause is Cause.UNSCHEDULABLE:
        return Decision(FollowUp.FAIL, "none of its rungs had a node")
    if cause.is_interruption:
        return _after_interruption(spent, position, policy, ladder)
    if cause is Cause.DISRUPTED:
        if spent.moves > MAX_MOVES:
            return Decision(FollowUp.FAIL, f"moved {spent.moves} times, the limit is {MAX_MOVES}")
        return Decision(
            FollowUp.RETRY, f"moved ({spent.moves} of {MAX_MOVES}), tried again on the same rung", position.rung
        )
    return _after_error(cause, spent, position, policy, ladder)


def backoff(spent: BudgetUse, position: LadderPosition, pools: Sequence[str], policy: Policy) -> float:
    """Return the backoff after an interruption, in seconds (row 3); ``spent`` counts that interruption too.

    It is 0 unless ``pools``, the next rung's, include the pool that reclaimed the attempt's node. It grows only while
    attempts do not advance the task.
    """
    stalled = spent.interruptions if position.stalled is None else min(position.stalled, spent.interruptions)
    return policy.interruption_backoff.wait(stalled) if position.pool in pools else 0.0


def first_rung(spent: BudgetUse, policy: Policy, ladder: Ladder) -> int:
    """Return the rung of a task's first attempt: the first one that is allowed."""
    return allowed_rungs(spent, policy, ladder)[0]


def next_rung_while_pending(rung: int, spent: BudgetUse, policy: Policy, ladder: Ladder) -> int | None:
    """Return the next allowed rung after ``rung``, when ``pending_timeout`` is over (row 7); ``None`` after the last rung."""
    return next((index for index in allowed_rungs(spent, policy, ladder) if index > rung), None)


def allowed_rungs(spent: BudgetUse, policy: Policy, ladder: Ladder) -> tuple[int, ...]:
    """Return the allowed rungs: after ``fall_back_after`` interruptions only the on-demand ones, if there are any (row 6)."""
    return ladder.allowed(only_on_demand=spent.interruptions >= policy.fall_back_after)


def _after_interruption(spent: BudgetUse, position: LadderPosition, policy: Policy, ladder: Ladder) -> Decision:
    if policy.deadline is not None:
        return _after_interruption_under_deadline(spent, position, policy, ladder)
    if spent.interruptions > policy.max_interruptions:
        times = "once" if spent.interruptions == 1 else f"{spent.interruptions} times"
        return Decision(FollowUp.FAIL, f"interrupted {times}, interruptions.max is {policy.max_interruptions}")
    allowed = allowed_rungs(spent, policy, ladder)
    rung = _rung_after_interruption(position, allowed, ladder)
    pools = ladder.rungs[rung].pools
    wait = backoff(spent, position, pools, policy)
    count = f"interruption {spent.interruptions} of {policy.max_interruptions}"
    if spent.interruptions == policy.fall_back_after and ladder.rungs[rung].spot is False:
        return Decision(FollowUp.RETRY, f"{count}: falls back to {pools[0]}", rung, wait)
    where = "anywhere that fits" if len(pools) > 1 else f"on {pools[0]}"
    return Decision(FollowUp.RETRY, f"{count}: again {where}", rung, wait)


def _after_interruption_under_deadline(
    spent: BudgetUse, position: LadderPosition, policy: Policy, ladder: Ladder
) -> Decision:
    """Row 8: the budget bounds the attempts in a row that did not advance, on spot and on on-demand each.

    Before the task fails, on-demand is tried, if there is any. The caller chooses the rung, and with it the backoff.
    """
    useless = position.useless
    last = useless.on_demand if ladder.on_demand else useless.spot
    if last > policy.max_interruptions:
        where = " on on-demand" if ladder.on_demand else ""
        attempts = "1 attempt was" if last == 1 else f"{last} attempts in a row were"
        why = f"{attempts} interrupted{where} and got nowhere, interruptions.max is {policy.max_interruptions}"
        return Decision(FollowUp.FAIL, why)
    count = f"interruption {spent.interruptions}; the deadline decides the rung"
    if ladder.on_demand and useless.spot > policy.max_interruptions:
        count = f"interruption {spent.interruptions}: on-demand for the rest"
    rung = _rung_after_interruption(position, tuple(range(len(ladder.rungs))), ladder)
    return Decision(FollowUp.RETRY, count, rung)


def _rung_after_interruption(position: LadderPosition, allowed: tuple[int, ...], ladder: Ladder) -> int:
    """Return the next spot rung in turn, so that a pool which has just lost a node is not the next one asked.

    The successor of an attempt that climbed while it was pending starts at the top again (row 7). Taking turns never leads
    to an on-demand rung: only ``fall_back_after`` and ``pending_timeout`` lead there.
    """
    turn = tuple(index for index in allowed if ladder.rungs[index].spot is not False) or allowed
    if position.has_climbed or position.rung not in turn:
        return turn[0]
    return turn[(turn.index(position.rung) + 1) % len(turn)]


def _after_error(cause: Cause, spent: BudgetUse, position: LadderPosition, policy: Policy, ladder: Ladder) -> Decision:
    if spent.errors > policy.retries:
        named = "" if cause is Cause.FAILED else f"{cause}, and "  # the reader already knows that the task has failed
        return Decision(FollowUp.FAIL, f"{named}no retry is left (errors.retries is {policy.retries})")
    allowed = allowed_rungs(spent, policy, ladder)
    rung = position.rung if position.rung in allowed else allowed[0]
    wait = policy.error_backoff.wait(spent.errors)
    return Decision(FollowUp.RETRY, f"retry {spent.errors} of {policy.retries}", rung, wait)


FIRST_PAUSE = 300.0
"""Seconds for which a pool is skipped after the first attempt that got no node there."""

CEILING = 3600.0
"""The longest pause in seconds."""

_FORGOTTEN = 4 * CEILING  # seconds after a pause: then an attempt without a node counts as the first again


class Pause(NamedTuple):
    """The time for which a pool is left out. ``times`` counts the pauses in a row; moments are Unix seconds."""

    times: int
    since: float
    until: float


def pause_after(before: Pause | None, at: float) -> Pause:
    """The pause of a pool after an attempt was recalled at ``at`` without a node. ``before`` is its last pause.

    An attempt that was already waiting when the pause began does not lengthen it.
    """
    if before is not None and at < before.until:
        return before
    times = 1 if before is None or at > before.until + _FORGOTTEN else before.times + 1
    return Pause(times, at, at + min(CEILING, FIRST_PAUSE * 2.0 ** min(times - 1, 30)))


def pauses_of(vain: Iterable[tuple[float, Collection[str]]]) -> Mapping[str, Pause]:
    """The pauses after recalled attempts, each given by the time of its recall and its pools."""
    pauses: dict[str, Pause] = {}
    for at, pools in vain:
        for pool in pools:
            pauses[pool] = pause_after(pauses.get(pool), at)
    return pauses


def left_out(pauses: Mapping[str, Pause], now: float) -> frozenset[str]:
    """The pools that are left out now."""
    return frozenset(pool for pool, pause in pauses.items() if now < pause.until)


def rung_after_waiting(
    rung: int, spent: BudgetUse, policy: Policy, ladder: Ladder, without: Collection[str]
) -> int | None:
    """The rung for the attempt after one that got no node on ``rung``: the next allowed one, after the last the first.

    A rung whose pools are all ``without`` capacity is skipped. ``None``: no other rung can be tried now.
    """
    allowed = allowed_rungs(spent, policy, ladder)
    below, above = (index for index in allowed if index > rung), (index for index in allowed if index < rung)
    return next((i for i in (*below, *above) if any(pool not in without for pool in ladder.rungs[i].pools)), None)
