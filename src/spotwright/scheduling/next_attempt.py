"""Decides the next attempt of a task from the endings of those before: its number, its rung, or that a budget is spent.

The local engine follows a task from decision to decision. In a cluster an orchestrator starts the attempts, and a webhook meets
each new pod with nothing but what was recorded. Both ask :mod:`spotwright.scheduling.budgets`, ending by ending, so that the same
endings lead to the same rung.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy
from spotwright.scheduling.budgets import (
    BudgetUse,
    FollowUp,
    LadderPosition,
    after_attempt,
    first_rung,
    next_rung_while_pending,
    rung_after_waiting,
)
from spotwright.scheduling.ladder import Ladder

__all__ = ["NextAttempt", "PastAttempt", "next_attempt"]


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One recorded attempt of a task.

    ``cause`` is ``None`` while it runs, and as long as its ending is not known. ``pools`` are those of the rung for which it was
    admitted, or of all rungs, ``pool`` that of its node. ``waited_in_vain``: it was taken back because it had no node and none
    was on its way; the next attempt waits for a node of the pools ``then``.
    """

    cause: Cause | None = None
    pools: tuple[str, ...] = ()
    pool: str | None = None
    waited_in_vain: bool = False
    then: tuple[str, ...] = ()
    has_ended: bool = True


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """The decision about the next attempt.

    ``number`` counts from 1. ``rung`` is its index on the ladder. ``refusal`` says which budget is spent and which attempts spent
    it; empty if the attempt may run. ``is_certain`` is false where the cause of an attempt that has ended is not known: then the
    rung is the last certain one. ``is_first``: for certain, neither an interruption nor a wait in vain has decided about
    its rung.
    """

    number: int
    rung: int
    why: str = ""
    refusal: str = ""
    spent: BudgetUse = field(default_factory=BudgetUse)
    is_certain: bool = True
    is_first: bool = False


def next_attempt(
    history: Sequence[PastAttempt], policy: Policy, ladder: Ladder, without: Collection[str] = ()
) -> NextAttempt:
    """Decide about the attempt after those in ``history``, which are in order of their creation.

    ``without`` are pools that are left out for now because they have no capacity; if every allowed rung is left out, the first of
    them counts. A budget is spent only by known causes, so missing facts never refuse an attempt.
    """
    spent = BudgetUse()
    rung = first = first_rung(spent, policy, ladder)
    why = "first attempt"
    for number, past in enumerate(history, 1):
        if past.waited_in_vain:
            waited_on = _index(past, ladder, rung)
            first = first if waited_on == rung else waited_on
            climbed = rung_after_waiting(waited_on, spent, policy, ladder, ())
            rung = _index(PastAttempt(pools=past.then), ladder, waited_on if climbed is None else climbed)
            why = f"attempt {number} had no node, and none was on its way"
            continue
        if past.cause is None:
            continue
        admitted = _index(past, ladder, rung)
        position = LadderPosition(first if admitted == rung else admitted, admitted, past.pool)
        decision = after_attempt(past.cause, spent, position, policy, ladder)
        spent = spent.after(past.cause)
        if decision.then is FollowUp.FAIL:
            refusal = f"{decision.why} ({_listed(history, past.cause)})"
            return NextAttempt(len(history) + 1, rung, decision.why, refusal, spent)
        if decision.then is FollowUp.RETRY:
            rung = first = decision.rung
            why = decision.why
    rung = _with_capacity(rung, spent, policy, ladder, without)
    known = all(past.cause is not None or past.waited_in_vain or not past.has_ended for past in history)
    is_first = known and not any(past.waited_in_vain or (past.cause and past.cause.is_interruption) for past in history)
    return NextAttempt(len(history) + 1, rung, why, "", spent, known, is_first)


def _index(past: PastAttempt, ladder: Ladder, rung: int) -> int:
    """The index of an attempt's rung: that with its pools, or that of its node's pool where it was open to several rungs.

    ``rung`` if the ladder of today has neither.
    """
    exact = (index for index, one in enumerate(ladder.rungs) if one.pools == past.pools)
    of_node = (index for index, one in enumerate(ladder.rungs) if past.pool in one.pools)
    return next(exact, next(of_node, rung))


def _with_capacity(rung: int, spent: BudgetUse, policy: Policy, ladder: Ladder, without: Collection[str]) -> int:
    """The rung, or the next allowed one that has a pool which is not left out."""
    candidate: int | None = rung
    while candidate is not None:
        if any(pool not in without for pool in ladder.rungs[candidate].pools):
            return candidate
        candidate = next_rung_while_pending(candidate, spent, policy, ladder)
    return rung


def _listed(history: Sequence[PastAttempt], cause: Cause) -> str:
    """The attempts that spent the same budget as this cause: ``attempts 1, 3``."""
    spent = BudgetUse().after(cause)
    numbers = [
        str(number)
        for number, past in enumerate(history, 1)
        if past.cause is not None and BudgetUse().after(past.cause) == spent
    ]
    return f"attempt{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
