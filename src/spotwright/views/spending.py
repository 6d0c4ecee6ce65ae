"""The spending of runs: their charges as a list, rows for finance, and totals by pool, task and cause.

In the list every second of every node is on exactly one line. An attempt is one charge. The boot, the idle and the unfilled
time of a node are one charge each. So all charges sum up to node time times price, as in the account. For finance the columns
are FOCUS 1.2's, the FinOps Open Cost and Usage Specification. Accounts are added one at a time, so that thousands of runs need
the memory of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

from spotwright.clouds.provider_records import PROVIDERS
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.model.pools import Pool, PriceSource
from spotwright.model.quantities import format_money
from spotwright.views.account import NOTHING, Account, Amount, KeptWork, Range, SpentOn
from spotwright.views.account_report import SPENT, amount_json, cost, cost_range, price_unit, range_json, time_range
from spotwright.views.text import Rows, plural, span, table, wrapped

__all__ = [
    "COLUMNS",
    "DECIMALS",
    "LEFT_OUT",
    "VERSION",
    "Charge",
    "Kind",
    "Line",
    "PoolTotal",
    "RunLine",
    "TaskTotal",
    "Total",
    "Totals",
    "charges_of",
    "pipeline_of",
    "rows_of",
    "tasks_table",
    "totals_json",
    "totals_text",
]


class Line(StrEnum):
    """The line of the account to which a charge belongs."""

    ATTEMPT = "attempt"  # the part of a node that an attempt used
    BOOT = "boot"  # from the request for a node until it is ready
    IDLE = "idle"  # ready and empty
    UNFILLED = "unfilled"  # the unrequested part while another part was in use


class Charge(NamedTuple):
    """One charge: node time between two moments (Unix seconds) on one node. ``task``, ``attempt`` and ``cause``: of an attempt.

    ``amount`` may be less than the time between the moments: an attempt pays its share of the node.
    """

    line: Line
    node: str
    pool: Pool
    start: float
    end: float
    amount: Amount
    task: str = ""
    attempt: int = 0
    cause: Cause | None = None
    kept: KeptWork | None = None

    @property
    def lost(self) -> tuple[Fraction, Fraction]:
        """The least and the most share that went to unkept work, from 0 to 1; empty while it runs."""
        if self.cause is None or self.kept is None:
            return _NOTHING_LOST
        return 1 - self.kept.high, 1 - self.kept.low


_NOTHING_LOST = (Fraction(0), Fraction(0))


def charges_of(account: Account) -> Iterator[Charge]:
    """All charges of a run with node time, node by node."""
    pools = {node.name: node.pool for node in account.nodes}
    for node in account.nodes:
        for line, amount in ((Line.BOOT, node.boot), (Line.IDLE, node.idle), (Line.UNFILLED, node.unfilled)):
            if amount.seconds:
                yield Charge(line, node.name, node.pool, node.start, node.end, amount)
    for cost_ in account.attempts_by_start:
        if cost_.cost.seconds:
            end = float(cost_.started_at + cost_.seconds)
            yield Charge(
                Line.ATTEMPT, cost_.node, pools[cost_.node], cost_.started_at, end, cost_.cost,
                cost_.task, cost_.number, cost_.cause, cost_.kept,
            )  # fmt: skip


VERSION = "1.2"
"""The version of FOCUS whose names are used."""

DECIMALS = 12
"""Decimals of money and quantities."""

COLUMNS: Mapping[str, str] = {
    "AvailabilityZone": "the pool's zone, where it has one only",
    "BilledCost": "money for real nodes; 0 for simulated nodes and example prices, which are not billed; empty without a price",
    "BillingCurrency": "`currency` of the configuration",
    "ChargeCategory": "always `Usage`",
    "ChargeClass": "always empty: no charge corrects an earlier invoice",
    "ChargeDescription": "the line in words",
    "ChargeFrequency": "always `Usage-Based`",
    "ChargePeriodStart": "begin of the attempt; for the other lines, of the node",
    "ChargePeriodEnd": "its end",
    "ConsumedQuantity": "hours of the node that this line uses",
    "ConsumedUnit": "always `Hours`",
    "ContractedCost": "as EffectiveCost: no discount is known beside the price",
    "ContractedUnitPrice": "price of a node hour",
    "EffectiveCost": "node time times price, of simulated nodes too; empty without a price",
    "ListCost": "as EffectiveCost",
    "ListUnitPrice": "price of a node hour",
    "PricingCategory": "`Dynamic` for spot, `Standard` for on-demand",
    "PricingQuantity": "as ConsumedQuantity",
    "PricingUnit": "always `Hours`",
    "ProviderName": "by the pool's `provider`; empty for karpenter and generic",
    "RegionId": "the pool's region",
    "ResourceId": "the run and the node",
    "ResourceName": "the node",
    "ResourceType": "always `Virtual Machine`",
    "ServiceCategory": "always `Compute`",
    "ServiceSubcategory": "always `Virtual Machines`",
    "Tags": "run, pipeline, task and pool as one JSON object",
    "x_Line": "`attempt`, `boot`, `idle` or `unfilled`",
    "x_Run": "the run",
    "x_Pipeline": "the pipeline",
    "x_Task": "the task of an attempt",
    "x_Attempt": "its number",
    "x_Cause": "why it ended; empty while it runs",
    "x_Pool": "the pool",
    "x_CapacityType": "`spot` or `on-demand`",
    "x_MachineType": "the pool's machine type",
    "x_PriceSource": "`configured`, `simulated` or `example`",
    "x_WastedCostLow": "the least of EffectiveCost that was spent on work which was not kept",
    "x_WastedCostHigh": "the most of it; the same where progress was reported",
}
"""The columns in their order, each with its meaning here."""

LEFT_OUT: Mapping[str, str] = {
    "BillingAccountId, BillingAccountName, SubAccountId, SubAccountName": "the account is the provider's, and is not asked for",
    "BillingPeriodStart, BillingPeriodEnd, InvoiceId, InvoiceIssuerName": "there are no invoices",
    "CommitmentDiscount... and CapacityReservation...": "commitments and reservations are not known",
    "ServiceName, PublisherName, SkuId, SkuPriceId": "they are names and numbers in the provider's own catalogue",
    "PricingCurrency...": "prices are in the billing currency",
}
"""Columns of FOCUS that the rows lack, and why."""

_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_UNIT = Decimal(1).scaleb(-DECIMALS)


class _Rounded:
    """A running sum; each step is the difference of two rounded sums."""

    def __init__(self) -> None:
        self._exact = Fraction(0)
        self._given = Decimal(0)

    def step(self, amount: Fraction) -> str:
        self._exact += amount
        whole = round(self._exact * 10**DECIMALS)
        following = Decimal(whole).scaleb(-DECIMALS, _CONTEXT)
        difference = _CONTEXT.subtract(following, self._given)
        self._given = following
        return format(difference, "f")


class _FocusRows:
    """Makes the rows of one run after another; all rows that one object made add up exactly."""

    def __init__(self) -> None:
        self._billed = _Rounded()
        self._effective = _Rounded()
        self._hours = _Rounded()
        self._least = _Rounded()
        self._most = _Rounded()

    def rows(self, account: Account, run: str, pipeline: str) -> Iterator[dict[str, str]]:
        """The rows of a run: a text for every column of :data:`COLUMNS`."""
        for charge in charges_of(account):
            yield self._row(charge, account.currency, run, pipeline)

    def _row(self, charge: Charge, currency: str, run: str, pipeline: str) -> dict[str, str]:
        pool, money = charge.pool, charge.amount.money
        hours = self._hours.step(charge.amount.seconds / 3600)
        cost = "" if money is None else self._effective.step(money)
        is_billed = pool.price_source is PriceSource.CONFIGURED
        billed = "" if money is None else self._billed.step(money if is_billed else Fraction(0))
        price = "" if money is None or pool.price is None else _decimal(pool.price)
        row = dict.fromkeys(COLUMNS, "") | {
            "AvailabilityZone": pool.zones[0] if len(pool.zones) == 1 else "",
            "BilledCost": billed,
            "BillingCurrency": currency,
            "ChargeCategory": "Usage",
            "ChargeDescription": _description(charge),
            "ChargeFrequency": "Usage-Based",
            "ChargePeriodStart": _moment(charge.start),
            "ChargePeriodEnd": _moment(charge.end),
            "ConsumedQuantity": hours,
            "ConsumedUnit": "Hours",
            "ContractedCost": cost,
            "ContractedUnitPrice": price,
            "EffectiveCost": cost,
            "ListCost": cost,
            "ListUnitPrice": price,
            "PricingCategory": "Dynamic" if pool.is_spot else "Standard",
            "PricingQuantity": hours,
            "PricingUnit": "Hours",
            "ProviderName": PROVIDERS[pool.provider].billed_by,
            "RegionId": pool.region or (pool.quote.region if pool.quote is not None else ""),
            "ResourceId": f"{run}/{charge.node}",
            "ResourceName": charge.node,
            "ResourceType": "Virtual Machine",
            "ServiceCategory": "Compute",
            "ServiceSubcategory": "Virtual Machines",
            "Tags": _tags(charge, run, pipeline),
            "x_Line": charge.line.value,
            "x_Run": run,
            "x_Pipeline": pipeline,
            "x_Pool": pool.name,
            "x_CapacityType": pool.capacity.value,
            "x_MachineType": pool.machine,
            "x_PriceSource": pool.price_source.value if price else "",
        }
        return row | (self._of_attempt(charge) if charge.line is Line.ATTEMPT else {})

    def _of_attempt(self, charge: Charge) -> dict[str, str]:
        money, wasted = charge.amount.money, {}
        if money is not None and charge.cause is not None:
            least, most = charge.lost
            wasted = {
                "x_WastedCostLow": self._least.step(money * least),
                "x_WastedCostHigh": self._most.step(money * most),
            }
        cause = charge.cause.value if charge.cause is not None else ""
        return {"x_Task": charge.task, "x_Attempt": str(charge.attempt), "x_Cause": cause, **wasted}


def _description(charge: Charge) -> str:
    if charge.line is Line.ATTEMPT:
        return f"Attempt {charge.attempt} of {charge.task} on {charge.node}"
    return f"{charge.line.value.capitalize()} time of {charge.node}"


def _tags(charge: Charge, run: str, pipeline: str) -> str:
    tags = {"run": run, "pipeline": pipeline, "task": charge.task, "pool": charge.pool.name}
    return json.dumps({f"spotwright.dev/{key}": value for key, value in tags.items() if value}, ensure_ascii=False)


def _moment(seconds: float) -> str:
    """A moment in UTC, as FOCUS writes dates."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decimal(value: Fraction) -> str:
    exact = _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))
    return format(exact.quantize(_UNIT, context=_CONTEXT).normalize(_CONTEXT), "f")


def rows_of(accounts: Iterable[tuple[Account, str, str]]) -> Iterator[dict[str, str]]:
    """The rows of several runs, one after another: each with its account, its name and its pipeline."""
    made = _FocusRows()
    for account, run, pipeline in accounts:
        yield from made.rows(account, run, pipeline)


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
    """One run in a list. ``saved`` is ``None`` without a comparison; then ``why`` says why.

    ``planned`` is the forecast of its cost (p10, p50, p90), if a plan was made before the run.
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

    ``on_demand`` and ``saved`` cover the runs with a comparison, ``compared`` in number.
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
    """The totals of the added runs, by kind of figures."""

    def __init__(self) -> None:
        self.by_kind: dict[Kind, Total] = {}

    def add_run(
        self, state: RunState, run: str, account: Account, planned: tuple[float, float, float] | None = None
    ) -> None:
        """Add a run with its account. ``planned`` as in :class:`RunLine`."""
        tasks = state.retired | state.tasks
        written = {path: task.plan.spec_path or path for path, task in tasks.items()}
        self.add(account, run, pipeline_of(state), state.started_at, written=written, planned=planned)

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
        """Add a run. ``written`` has the tasks' paths without numbers of iterations."""
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


def pipeline_of(state: RunState) -> str:
    """The name of a run's pipeline, or of its object."""
    return state.meta.pipeline or state.plan.graph.name


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
    for cost_ in account.attempts_by_start:
        sums = total.tasks.setdefault((pipeline, written.get(cost_.task, cost_.task)), TaskTotal())
        sums.attempts += 1
        sums.interruptions += cost_.spent is SpentOn.INTERRUPTIONS
        sums.cost += cost_.cost
        if cost_.cause is not None:
            sums.wasted += Range(cost_.cost * (1 - cost_.kept.high), cost_.cost * (1 - cost_.kept.low))


_MOST = 20  # rows of tasks and runs: the dearest


def totals_text(totals: Totals) -> str:
    """The totals as tables of at most 100 columns, one block for each kind of figures."""
    if not totals.by_kind:
        return "no run in this time"
    return "\n\n".join("\n\n".join("\n".join(part) for part in _block(*item)) for item in totals.by_kind.items())


def _block(kind: Kind, total: Total) -> Iterator[list[str]]:
    unit = price_unit(kind.prices, kind.currency) if kind.currency else "Node-hours"
    yield list(wrapped(f"Account of {plural(len(total.lines), 'run')} ({unit})"))
    yield table(_pools(total, unit))
    yield tasks_table(total, unit)
    yield table(_causes(total, unit))
    if len(total.lines) > 1:
        yield _runs(total, unit)
    planned = list(_planned(total, unit))
    if planned:
        yield planned
    yield list(_saved(total, unit))


def _pools(total: Total, unit: str) -> Rows:
    rows = [
        [
            name, pool.capacity, str(pool.nodes), span(pool.whole.seconds), span(pool.attempts.seconds),
            cost(pool.whole, total.whole),
        ]
        for name, pool in total.pools.items()
    ]  # fmt: skip
    return Rows(
        ["Pool", "Capacity", "Nodes", "Node time", "Attempts", unit], rows, "llrrr.", ("Attempts", "Nodes", "Capacity")
    )


def tasks_table(total: Total, unit: str) -> list[str]:
    """A line for each task, the dearest first."""
    dearest = sorted(total.tasks.items(), key=lambda item: _size(item[1].cost), reverse=True)
    with_pipeline = len({pipeline for pipeline, _ in total.tasks}) > 1
    rows = [
        [
            f"{pipeline}: {task}" if with_pipeline else task, str(sums.attempts), str(sums.interruptions),
            cost(sums.cost, total.whole), cost_range(sums.wasted, total.whole),
        ]
        for (pipeline, task), sums in dearest[:_MOST]
    ]  # fmt: skip
    lines = table(
        Rows(["Task", "Attempts", "Interruptions", unit, "Wasted"], rows, "lrr.r", ("Attempts", "Interruptions"))
    )
    return [*lines, *_left_out(len(dearest), "task")]


def _causes(total: Total, unit: str) -> Rows:
    lines = [("useful work", total.useful), *((SPENT[spent], part) for spent, part in total.spent.items())]
    lines += [
        (word, Range(amount, amount))
        for word, amount in (("boot", total.boot), ("idle", total.idle), ("unfilled", total.unfilled))
    ]
    rows = [[word, time_range(part), cost_range(part, total.whole)] for word, part in lines if part]
    rows.append(["all node time", span(total.whole.seconds), cost(total.whole, total.whole)])
    return Rows(["Where it went", "Node time", unit], rows, "lr.")


def _runs(total: Total, unit: str) -> list[str]:
    dearest = sorted(total.lines, key=lambda line: _size(line.whole), reverse=True)
    rows = [
        [
            line.run, datetime.fromtimestamp(line.began, UTC).date().isoformat(), cost(line.whole, total.whole),
            cost_range(line.wasted, total.whole), _saved_cell(line, total.whole),
        ]
        for line in dearest[:_MOST]
    ]  # fmt: skip
    lines = table(Rows(["Run", "Began", unit, "Wasted", "Saved"], rows, "ll.rr", ("Began",)))
    return [*lines, *_left_out(len(dearest), "run")]


def _left_out(count: int, noun: str) -> list[str]:
    more = count - _MOST
    return [f"and {plural(more, noun)} that cost less; --json has all"] if more > 0 else []


def _saved_cell(line: RunLine, whole: Amount) -> str:
    if line.saved is None:
        return ""
    return _money(*line.saved, whole)


def _money(low: Fraction, high: Fraction, whole: Amount) -> str:
    texts = [format_money(money, beside=whole.money or Fraction(0)) for money in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _planned(total: Total, unit: str) -> Iterator[str]:
    """Plan against actual, for the runs with a plan."""
    for line in total.lines:
        if line.planned is None or line.whole.money is None:
            continue
        low, middle, high = line.planned
        actual = float(line.whole.money)
        place = "below" if actual < low else "above" if actual > high else "within"
        text = f"{line.run}: {actual:.4g} {unit}, planned {middle:.4g} ({low:.4g} to {high:.4g}): {place} the plan"
        yield from wrapped(text, indent="Planned ", hang=" " * 8)


def _saved(total: Total, unit: str) -> Iterator[str]:
    if total.compared:
        low, high = total.saved
        there = cost_range(total.on_demand, total.whole)
        if high < 0:
            text = f"none: spot did not pay; it cost {_money(-high, -low, total.whole)} {unit} more than on-demand ({there})"
        else:
            text = f"{_money(low, high, total.whole)} {unit} against {there} for the useful work on on-demand nodes"
        yield from wrapped(f"{text}, in {plural(total.compared, 'run')}", indent="Saved   ", hang=" " * 8)
    for why in sorted({line.why for line in total.lines if line.saved is None and line.why}):
        count = sum(line.why == why for line in total.lines if line.saved is None)
        yield from wrapped(f"{plural(count, 'run')}: {why}", indent="No comparison of ", hang=" " * 8)
    losers = [line for line in total.lines if line.spot_did_not_pay]
    if losers:
        names = ", ".join(line.run for line in losers[:_MOST]) + (", ..." if len(losers) > _MOST else "")
        yield from wrapped(f"spot did not pay in {names}", indent="Note    ", hang=" " * 8)


def _size(amount: Amount) -> Fraction:
    return amount.seconds if amount.money is None else amount.money


def totals_json(totals: Totals) -> dict[str, Any]:
    """The totals for machines: ``totals`` is a list with one element for each kind of figures.

    - ``currency`` and ``prices`` (``configured``, ``simulated``, ``example``, ``mixed``), both null for node-hours;
    - the amounts ``whole``, ``boot``, ``idle``, ``unfilled`` and the ranges ``useful``, ``spent`` by cause, as in the account;
    - ``pools`` (``name``, ``capacity``, ``nodes``, ``whole``, ``attempts``), ``tasks`` (``pipeline``, ``task``, ``attempts``,
      ``interruptions``, ``cost``, ``wasted``);
    - ``on_demand`` and ``saved`` of the ``compared`` runs (``low``, ``high``);
    - ``runs``: ``run``, ``pipeline``, ``began`` (Unix seconds), ``whole``, ``wasted``, ``saved`` (null with the reason in
      ``why_no_comparison``), ``spot_did_not_pay``, ``planned`` (null, or ``p10``, ``p50``, ``p90`` of the cost before the run).
    """
    return {"totals": [_total_json(kind, total) for kind, total in totals.by_kind.items()]}


def _total_json(kind: Kind, total: Total) -> dict[str, Any]:
    return {
        "currency": kind.currency or None,
        "prices": kind.prices or None,
        "whole": amount_json(total.whole),
        "boot": amount_json(total.boot),
        "idle": amount_json(total.idle),
        "unfilled": amount_json(total.unfilled),
        "useful": range_json(total.useful),
        "spent": {spent.value: range_json(total.spent.get(spent, Range(NOTHING, NOTHING))) for spent in SpentOn},
        "pools": [
            {
                "name": name,
                "capacity": pool.capacity,
                "nodes": pool.nodes,
                "whole": amount_json(pool.whole),
                "attempts": amount_json(pool.attempts),
            }
            for name, pool in total.pools.items()
        ],
        "tasks": [
            {
                "pipeline": pipeline,
                "task": task,
                "attempts": sums.attempts,
                "interruptions": sums.interruptions,
                "cost": amount_json(sums.cost),
                "wasted": range_json(sums.wasted),
            }
            for (pipeline, task), sums in total.tasks.items()
        ],
        "compared": total.compared,
        "on_demand": range_json(total.on_demand),
        "saved": {"low": float(total.saved[0]), "high": float(total.saved[1])},
        "runs": [_run_json(line) for line in total.lines],
    }


def _run_json(line: RunLine) -> dict[str, Any]:
    return {
        "run": line.run,
        "pipeline": line.pipeline,
        "began": line.began,
        "whole": amount_json(line.whole),
        "wasted": range_json(line.wasted),
        "saved": {"low": float(line.saved[0]), "high": float(line.saved[1])} if line.saved is not None else None,
        "why_no_comparison": line.why,
        "spot_did_not_pay": line.spot_did_not_pay,
        "planned": dict(zip(("p10", "p50", "p90"), line.planned, strict=True)) if line.planned is not None else None,
    }
