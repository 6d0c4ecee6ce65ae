"""The totals of several runs as text and as JSON: by pool, by task, by cause, and run by run where that helps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from spotwright.model.quantities import format_money
from spotwright.views.account.account_model import SpentOn
from spotwright.views.account.amounts import NOTHING, Amount, Range
from spotwright.views.account_report import amount_json, range_json
from spotwright.views.amount_phrasing import SPENT, cost, cost_range, price_unit, time_range
from spotwright.views.phrasing import plural, span
from spotwright.views.spending.totals import Kind, RunLine, Total, Totals
from spotwright.views.table import Rows, table, wrapped

__all__ = ["tasks_table", "totals_json", "totals_text"]

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
    return Rows(["Pool", "Capacity", "Nodes", "Node time", "Attempts", unit], rows, "llrrr.")


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
    lines = table(Rows(["Task", "Attempts", "Interruptions", unit, "Wasted"], rows, "lrr.r"))
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
    lines = table(Rows(["Run", "Began", unit, "Wasted", "Saved"], rows, "ll.rr"))
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
    """Plan against actual, for the runs before which a plan was made."""
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
            text = f"nothing: spot did not pay, it cost {_money(-high, -low, total.whole)} {unit} more than on-demand ({there})"
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
