"""The lines of an account: what :func:`spotwright.views.account.account` computes and every report shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from spotwright.model.attempts import Cause
from spotwright.model.pools import Capacity
from spotwright.views.amounts import Amount, Range
from spotwright.views.waste import Kept

__all__ = ["Account", "AttemptCost", "PoolCost", "Spent"]


class Spent(StrEnum):
    """What the time of an attempt that was not kept went into, by the cause that ended it."""

    INTERRUPTIONS = "interruptions"  # interrupted or lost
    MOVES = "moves"  # disrupted
    ERRORS = "errors"  # failed, out of memory, timed out, start-up
    STOPPED = "stopped"  # cancelled, or stopped together with the engine
    UNDER_WAY = "under way"  # it has not ended, or nothing has been decided yet


_SPENT: Mapping[Cause, Spent] = {
    Cause.INTERRUPTED: Spent.INTERRUPTIONS,
    Cause.LOST: Spent.INTERRUPTIONS,
    Cause.DISRUPTED: Spent.MOVES,
    Cause.FAILED: Spent.ERRORS,
    Cause.OUT_OF_MEMORY: Spent.ERRORS,
    Cause.TIMED_OUT: Spent.ERRORS,
    Cause.START_UP: Spent.ERRORS,
    Cause.CANCELLED: Spent.STOPPED,
}


@dataclass(frozen=True, slots=True)
class AttemptCost:
    """One attempt. ``seconds`` is its time on the node by the clock, ``cost`` the node time it paid for.

    ``share`` is what it asked of its node; where shares add up to more than one node it paid less (see ``cost``).
    """

    task: str
    number: int
    pool: str
    node: str
    capacity: Capacity
    cause: Cause | None
    started_at: float
    seconds: Fraction
    share: Fraction
    cost: Amount
    kept: Kept

    @property
    def spent(self) -> Spent | None:
        """Which line the part that was not kept is on; ``None`` for a succeeded attempt."""
        if self.cause is Cause.SUCCEEDED:
            return None
        return _SPENT.get(self.cause, Spent.UNDER_WAY) if self.cause is not None else Spent.UNDER_WAY


@dataclass(frozen=True, slots=True)
class PoolCost:
    """One pool of the run: ``attempts + boot + idle + unfilled == whole``. ``price`` is per node hour."""

    name: str
    capacity: Capacity
    price: Fraction | None
    nodes: int
    whole: Amount
    boot: Amount
    idle: Amount
    unfilled: Amount
    attempts: Amount


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a run until ``until`` (Unix seconds).

    ``whole`` is all node time; it is the sum of ``attempts``, ``boot``, ``idle`` and ``unfilled``, and ``attempts`` that of
    ``useful`` and ``spent`` (the low end of one belongs to the high end of the other). ``on_demand`` is the counterfactual,
    ``saved`` what it costs more than the ended attempts did, in money; both ``None`` with a reason in ``why_no_comparison``.
    Pools without a price are in ``unpriced``: then no amount has money. ``cached`` names the tasks that used an earlier
    result (task, run, task of that run): they cost nothing. ``prices`` are ``simulated`` in a world of simulated pools.
    """

    currency: str
    prices: str
    time_scale: float
    until: float
    under_way: bool
    pools: tuple[PoolCost, ...]
    attempts_by_start: tuple[AttemptCost, ...]
    whole: Amount
    boot: Amount
    idle: Amount
    unfilled: Amount
    attempts: Amount
    useful: Range
    spent: Mapping[Spent, Range]
    unpriced: tuple[str, ...]
    cached: tuple[tuple[str, str, str], ...]
    on_demand: Range | None = None
    on_demand_pools: tuple[tuple[str, Fraction], ...] = ()
    saved: tuple[Fraction, Fraction] | None = None
    why_no_comparison: str = ""

    def attempt(self, task: str, number: int) -> AttemptCost | None:
        """What one attempt cost; ``None`` where it never had a node."""
        return next((cost for cost in self.attempts_by_start if (cost.task, cost.number) == (task, number)), None)
