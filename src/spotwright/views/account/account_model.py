"""The lines of an account. :func:`spotwright.views.account.compute.account` computes them, every report shows them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from spotwright.model.attempts import Cause
from spotwright.model.pools import Capacity, Pool, PriceSource
from spotwright.views.account.amounts import Amount, Range
from spotwright.views.account.waste import KeptWork

__all__ = ["Account", "AttemptCost", "NodeCost", "PoolCost", "SpentOn"]


class SpentOn(StrEnum):
    """Where the time of an attempt went as far as its work was not kept, by the cause of its end."""

    INTERRUPTIONS = "interruptions"  # interrupted or lost
    MOVES = "moves"  # disrupted
    ERRORS = "errors"  # failed, out of memory, timed out, start-up
    STOPPED = "stopped"  # cancelled, or stopped together with the engine
    UNDER_WAY = "under way"  # it runs, or its cause is not decided yet


_SPENT: Mapping[Cause, SpentOn] = {
    Cause.INTERRUPTED: SpentOn.INTERRUPTIONS,
    Cause.LOST: SpentOn.INTERRUPTIONS,
    Cause.DISRUPTED: SpentOn.MOVES,
    Cause.FAILED: SpentOn.ERRORS,
    Cause.OUT_OF_MEMORY: SpentOn.ERRORS,
    Cause.TIMED_OUT: SpentOn.ERRORS,
    Cause.START_UP: SpentOn.ERRORS,
    Cause.CANCELLED: SpentOn.STOPPED,
}


class AttemptCost(NamedTuple):
    """One attempt. ``seconds`` is its time on the node by the clock, ``cost`` the node time that it pays.

    ``share`` is the share of its node that it requests. Where the shares on a node add up to more than one, each pays less: see
    ``cost``.
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
    kept: KeptWork

    @property
    def spent(self) -> SpentOn | None:
        """The line of the part that was not kept; ``None`` for a succeeded attempt."""
        if self.cause is Cause.SUCCEEDED:
            return None
        return _SPENT.get(self.cause, SpentOn.UNDER_WAY) if self.cause is not None else SpentOn.UNDER_WAY


class PoolCost(NamedTuple):
    """One pool of the run: ``attempts + boot + idle + unfilled == whole``. ``price`` is per node hour."""

    name: str
    capacity: Capacity
    price: Fraction | None
    price_source: PriceSource
    nodes: int
    whole: Amount
    boot: Amount
    idle: Amount
    unfilled: Amount
    attempts: Amount


class NodeCost(NamedTuple):
    """One node, from the request for it until it was gone (Unix seconds): the part of its time that no attempt used.

    ``pool`` is its pool as it was configured when the node was requested.
    """

    name: str
    pool: Pool
    start: float
    end: float
    boot: Amount
    idle: Amount
    unfilled: Amount


class Account(NamedTuple):
    """The account of a run until ``until`` (Unix seconds).

    ``whole`` is all node time: the sum of ``attempts``, ``boot``, ``idle`` and ``unfilled``. ``attempts`` is the sum of
    ``useful`` and ``spent``; the low end of the one belongs to the high end of the other. ``on_demand`` is the counterfactual
    and ``saved`` the money by which it exceeds the cost of the ended attempts; both are ``None`` with a reason in
    ``why_no_comparison``. ``builds`` are the Python environments that were built: packages, and seconds by the clock;
    a build is on no node. ``unpriced`` names the pools without a price; if there are any, no amount has money. ``cached`` names
    the tasks that used an earlier result (task, run, task of that run) and cost nothing. ``prices`` says where prices come
    from: ``simulated``, ``configured``, or ``mixed``. ``has_own_nodes``: nobody else uses the nodes. In a cluster
    others do, and then ``boot``, ``idle`` and ``unfilled`` are nothing.
    """

    currency: str
    prices: str
    time_scale: float
    until: float
    under_way: bool
    pools: tuple[PoolCost, ...]
    nodes: tuple[NodeCost, ...]
    attempts_by_start: tuple[AttemptCost, ...]
    whole: Amount
    boot: Amount
    idle: Amount
    unfilled: Amount
    attempts: Amount
    useful: Range
    spent: Mapping[SpentOn, Range]
    unpriced: tuple[str, ...]
    cached: tuple[tuple[str, str, str], ...]
    builds: tuple[tuple[tuple[str, ...], float], ...] = ()
    on_demand: Range | None = None
    on_demand_pools: tuple[tuple[str, Fraction], ...] = ()
    saved: tuple[Fraction, Fraction] | None = None
    why_no_comparison: str = ""
    has_own_nodes: bool = True

    def attempt(self, task: str, number: int) -> AttemptCost | None:
        """The cost of one attempt; ``None`` if it never had a node."""
        return next((cost for cost in self.attempts_by_start if (cost.task, cost.number) == (task, number)), None)
