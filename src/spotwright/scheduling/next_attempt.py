"""Decide the next attempt of a task from the endings of earlier ones: its number, its rung, or that a budget is spent.

The local engine, the recorder of a workload and the webhook ask :func:`next_rung`, so that the same endings lead to the same
rung. The webhook has only the record for each new pod: a recorded decision applies, and if the record is late, the same
function computes it. :mod:`spotwright.scheduling.budgets` decides what follows one ending.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy
from spotwright.scheduling.budgets import (
    BudgetUse,
    Decision,
    FollowUp,
    LadderPosition,
    Useless,
    after_attempt,
    first_rung,
    next_rung_while_pending,
    rung_after_waiting,
)
from spotwright.scheduling.ladder import Ladder

__all__ = ["ByDeadline", "NextAttempt", "PastAttempt", "next_rung"]


class PastAttempt(NamedTuple):
    """One recorded attempt of a task.

    ``cause`` is ``None`` while it runs or its ending is unknown. ``pools`` belong to the rung for which it was admitted, or to
    all rungs; ``pool`` is the pool of its node. ``has_climbed``: it left the rung on which it began to wait.
    ``waited_in_vain``: it was recalled without a node present or booting. ``then`` are the pools of the rung that was recorded
    for the next attempt; empty: none. ``rung`` is its index on the ladder, if the ladder has not changed since. ``stalled`` and
    ``useless`` as in :class:`~spotwright.scheduling.budgets.LadderPosition`. ``is_recorded``: false for an observed ending that
    is not recorded yet: it moves the rung, but does not refuse a pod.
    """

    cause: Cause | None = None
    pools: tuple[str, ...] = ()
    pool: str | None = None
    waited_in_vain: bool = False
    then: tuple[str, ...] = ()
    has_ended: bool = True
    has_climbed: bool = False
    rung: int | None = None
    stalled: int | None = None
    useless: Useless = Useless()
    is_recorded: bool = True


class NextAttempt(NamedTuple):
    """The decision about the next attempt.

    ``number`` counts from 1. ``rung`` is its index on the ladder. ``following`` is the decision after the last known ending;
    ``None`` before the first one. ``refusal`` says which budget is spent and which attempts spent it; empty if the attempt may
    run. ``is_certain`` is false if the cause of an ended attempt is unknown: then the rung is the last certain one.
    ``is_first``: certainly neither an interruption nor a wait in vain has decided its rung.
    """

    number: int
    rung: int
    why: str = ""
    refusal: str = ""
    spent: BudgetUse = BudgetUse()
    is_certain: bool = True
    is_first: bool = False
    following: Decision | None = None


ByDeadline = Callable[[Decision, LadderPosition], Decision]
"""Replaces the decision after the last attempt, which is retried, by its deadline's decision: row 8 in place of row 6."""


def next_rung(
    history: Sequence[PastAttempt],
    policy: Policy,
    ladder: Ladder,
    without: Collection[str] = (),
    deadline: ByDeadline | None = None,
) -> NextAttempt:
    """Decide about the attempt after the ones in ``history``, which are in order of their creation.

    ``without`` are pools that have no capacity for now; if this leaves out every allowed rung, the first of them counts. Only
    known causes spend a budget, so missing facts never refuse an attempt. A spent budget stays spent; an attempt that ran
    anyway moves the rung like any other.
    """
    spent, rung = BudgetUse(), first_rung(BudgetUse(), policy, ladder)
    why, refusal, following = "first attempt", "", None
    for number, past in enumerate(history, 1):
        if past.waited_in_vain:
            waited_on = _index(past, ladder, rung)
            climbed = rung_after_waiting(waited_on, spent, policy, ladder, ())
            no_node = f"attempt {number} got no node, and none was on its way"
            following = Decision(FollowUp.RETRY, no_node, waited_on if climbed is None else climbed)
        elif past.cause is not None:
            admitted = _index(past, ladder, rung)
            position = LadderPosition(admitted, past.has_climbed, past.pool, past.stalled, past.useless)
            following = after_attempt(past.cause, spent, position, policy, ladder)
            spent = spent.after(past.cause)
            if deadline is not None and number == len(history) and following.then is FollowUp.RETRY:
                following = deadline(following, position)
        else:
            continue
        if following.then is FollowUp.RETRY:
            rung = _with_pools(past.then, ladder, following.rung)
            if rung != following.rung:
                following = _as_recorded(following, rung, ladder, past)
        elif following.then is FollowUp.FAIL and not refusal and all(one.is_recorded for one in history[:number]):
            refusal = f"{following.why} ({_listed(history, past.cause)})"
        if following.then in (FollowUp.RETRY, FollowUp.FAIL):
            why = following.why
    rung = _with_capacity(rung, spent, policy, ladder, without)
    known = all(
        (past.cause is not None and past.is_recorded) or past.waited_in_vain or not past.has_ended for past in history
    )
    is_first = known and not any(past.waited_in_vain or (past.cause and past.cause.is_interruption) for past in history)
    return NextAttempt(len(history) + 1, rung, why, refusal, spent, known, is_first and not refusal, following)


def _index(past: PastAttempt, ladder: Ladder, rung: int) -> int:
    """The index of an attempt's rung: the rung with its pools, or with its node's pool if several rungs were open to it.

    ``rung`` if the present ladder has neither.
    """
    if past.rung is not None:
        return past.rung
    of_node = (index for index, one in enumerate(ladder.rungs) if past.pool in one.pools)
    return _with_pools(past.pools, ladder, next(of_node, rung))


def _with_pools(pools: tuple[str, ...], ladder: Ladder, rung: int) -> int:
    """The index of the rung with these pools; ``rung`` if the ladder has none."""
    return next((index for index, one in enumerate(ladder.rungs) if one.pools == pools), rung)


def _as_recorded(following: Decision, rung: int, ladder: Ladder, past: PastAttempt) -> Decision:
    """The decision with the recorded rung, if the present ladder or policy would choose another one."""
    if past.waited_in_vain:
        return following._replace(rung=rung)
    where = ", ".join(ladder.rungs[rung].pools)
    return following._replace(rung=rung, why=f"{following.why.partition(':')[0]}: on {where}, as was recorded")


def _with_capacity(rung: int, spent: BudgetUse, policy: Policy, ladder: Ladder, without: Collection[str]) -> int:
    """The rung, or the next allowed one with a pool that is not left out."""
    candidate: int | None = rung if without else None
    while candidate is not None:
        if any(pool not in without for pool in ladder.rungs[candidate].pools):
            return candidate
        candidate = next_rung_while_pending(candidate, spent, policy, ladder)
    return rung


def _listed(history: Sequence[PastAttempt], cause: Cause | None) -> str:
    """The attempts that spent the same budget as this cause: ``attempts 1, 3``."""
    spent = BudgetUse().after(cause) if cause is not None else None
    numbers = [
        str(number)
        for number, past in enumerate(history, 1)
        if past.cause is not None and BudgetUse().after(past.cause) == spent
    ]
    return f"attempt{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
