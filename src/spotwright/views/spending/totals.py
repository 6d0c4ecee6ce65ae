"""Adds up the accounts of several runs, one at a time, so that thousands of runs need the memory of one.

Amounts of different currencies, or of real and simulated prices, have no sum. So there is a total for each kind of figure, and
one in node-hours for the runs without prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from spotwright.views.account.account_model import Account, SpentOn
from spotwright.views.account.amounts import NOTHING, Amount, Range

__all__ = ["Kind", "PoolTotal", "RunLine", "TaskTotal", "Total", "Totals"]

_NO_RANGE = Range(NOTHING, NOTHING)


class Kind(NamedTuple):
    """A kind of figures that can be added: the currency, empty for node-hours, and the source of the prices."""

    currency: str
    prices: str


@dataclass(slots=True)
class PoolTotal:
    """The total of one pool."""

    capacity: str
    nodes: int = 0
    whole: Amount = NOTHING
    attempts: Amount = NOTHING


@dataclass(slots=True)
class TaskTotal:
    """The total of one task of a pipeline, over all its attempts, iterations and runs."""

    attempts: int = 0
    interruptions: int = 0
    cost: Amount = NOTHING
    wasted: Range = _NO_RANGE


class RunLine(NamedTuple):
    """One run in a list. ``saved`` is ``None`` where there is no comparison; then ``why`` says so.

    ``planned`` is the forecast of its cost (p10, p50, p90), where a plan was made before the run.
    """

    run: str
    pipeline: str
    began: float
    whole: Amount
    wasted: Range
    saved: tuple[Fraction, Fraction] | None
    why: str
    planned: tuple[float, float, float] | None = None

    @property
    def spot_did_not_pay(self) -> bool:
        """Whether the run cost more than its useful work on on-demand nodes, at the best."""
        return self.saved is not None and self.saved[1] < 0


@dataclass(slots=True)
class Total:
    """The sum of runs whose figures are of one kind. ``whole`` is the sum of the other amounts, as in an account.

    ``on_demand`` and ``saved`` are those of the runs with a comparison, ``compared`` in number.
    """

    lines: list[RunLine] = field(default_factory=list)
    whole: Amount = NOTHING
    boot: Amount = NOTHING
    idle: Amount = NOTHING
    unfilled: Amount = NOTHING
    useful: Range = _NO_RANGE
    spent: dict[SpentOn, Range] = field(default_factory=dict)
    pools: dict[str, PoolTotal] = field(default_factory=dict)
    tasks: dict[tuple[str, str], TaskTotal] = field(default_factory=dict)
    on_demand: Range = _NO_RANGE
    saved: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    compared: int = 0


class Totals:
    """The totals of the runs that were added, by kind of figures."""

    def __init__(self) -> None:
        self.by_kind: dict[Kind, Total] = {}

    def add(
        self,
        account: Account,
        run: str,
        pipeline: str,
        began: float,
        *,
        written: Mapping[str, str] | None = None,
        planned: tuple[float, float, float] | None = None,
    ) -> None:
        """Add a run. ``written`` has the paths of tasks as the pipeline has them, without the number of an iteration."""
        kind = Kind("", "") if account.unpriced else Kind(account.currency, account.prices)
        total = self.by_kind.setdefault(kind, Total())
        _add_lines(total, account)
        _add_pools(total, account)
        _add_tasks(total, account, pipeline, written or {})
        wasted = sum((part for spent, part in account.spent.items() if spent is not SpentOn.UNDER_WAY), _NO_RANGE)
        if account.saved is not None and account.on_demand is not None:
            total.on_demand += account.on_demand
            total.saved = (total.saved[0] + account.saved[0], total.saved[1] + account.saved[1])
            total.compared += 1
        total.lines.append(
            RunLine(run, pipeline, began, account.whole, wasted, account.saved, account.why_no_comparison, planned)
        )


def _add_lines(total: Total, account: Account) -> None:
    total.whole += account.whole
    total.boot += account.boot
    total.idle += account.idle
    total.unfilled += account.unfilled
    total.useful += account.useful
    for spent, part in account.spent.items():
        total.spent[spent] = total.spent.get(spent, _NO_RANGE) + part


def _add_pools(total: Total, account: Account) -> None:
    for pool in account.pools:
        sums = total.pools.setdefault(pool.name, PoolTotal(pool.capacity.value))
        sums.nodes += pool.nodes
        sums.whole += pool.whole
        sums.attempts += pool.attempts


def _add_tasks(total: Total, account: Account, pipeline: str, written: Mapping[str, str]) -> None:
    for cost in account.attempts_by_start:
        sums = total.tasks.setdefault((pipeline, written.get(cost.task, cost.task)), TaskTotal())
        sums.attempts += 1
        sums.interruptions += cost.spent is SpentOn.INTERRUPTIONS
        sums.cost += cost.cost
        if cost.cause is not None:
            sums.wasted += Range(cost.cost * (1 - cost.kept.high), cost.cost * (1 - cost.kept.low))
