"""The costs of runs in JSON: a run's account with bars and a curve over time, its plan, and the totals of many runs.

All figures are ``report``'s own. Amounts are ``{"seconds", "money"}`` of node time as everywhere.
A single number is money, or node-hours if a pool of the run has no price: ``unit`` says which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotwright.engine.events import RunStatus
from spotwright.errors import InputError, StateError
from spotwright.page.heads import expected_end
from spotwright.records.reader import RunReader
from spotwright.views.account import Account, Amount, Range, SpentOn
from spotwright.views.account_report import (
    amount_json,
    cost_range,
    figures,
    heading,
    lines_of,
    money_lines,
    part_of,
    range_json,
    report_json,
    saved_text,
    time_range,
)
from spotwright.views.spending import Line, RunLine, Totals, charges_of, totals_json

if TYPE_CHECKING:
    from spotwright.forecast.report import Beside, StoredPolicy

__all__ = ["account_document", "plan_document", "totals_document"]


_POINTS = 200
"""Points of a curve over time, at most."""


# -- the account of one run


def account_document(reader: RunReader, costs: Account) -> dict[str, Any]:
    """The account of a run: the document of ``report --json`` without its ``attempts_by_start``, and what is drawn of it.

    - ``unit`` (``USD``, ``Simulated USD``, ``Node-hours``), ``figures`` (where prices come from, in words), ``text`` (spent,
      wasted and saved as ``report`` says them, line by line), ``saved_text`` (of these what it says of savings);
    - ``bar``: the lines of the account: ``key``, ``words``, ``low`` and ``high`` (numbers in the unit), ``seconds_low`` and
      ``seconds_high``, and ``time``, ``cost`` and ``part`` as the report has them. What lies between the low and the high end
      of one line may belong to another one; ``whole`` is the sum;
    - ``by_task``: for each task that used a node ``path``, ``attempts``, ``interruptions``, ``seconds``, ``cost``, ``wasted_low``
      and ``wasted_high``, as columns: lists of one length;
    - ``series``: ``t`` (seconds since the start of the run), and up to then ``cost``, ``wasted_low`` and ``wasted_high``. What a
      node or an attempt cost is spread evenly over its time.
    """
    return {
        **report_json(costs, reader.folder.name, with_attempts=False),
        "unit": heading(costs),
        "figures": figures(costs),
        "text": money_lines(costs),
        "saved_text": saved_text(costs),
        "bar": [_bar(costs, *each) for each in lines_of(costs)],
        **_drawn(reader.state.started_at, costs),
    }


def _number(amount: Amount) -> float:
    """An amount as one number: money, or node-hours without prices."""
    return float(amount.seconds / 3600 if amount.money is None else amount.money)


def _bar(costs: Account, key: str, words: str, amounts: Range) -> dict[str, Any]:
    return {
        "key": key,
        "words": words,
        "low": _number(amounts.low),
        "high": _number(amounts.high),
        "seconds_low": float(amounts.low.seconds),
        "seconds_high": float(amounts.high.seconds),
        "time": time_range(amounts),
        "cost": cost_range(amounts, costs.whole),
        "part": part_of(amounts, costs.whole),
    }


def _drawn(t0: float, costs: Account) -> dict[str, Any]:
    """The charges of a run by task and over time, for the drawing. One pass, because a large run has tens of thousands."""
    by_task = {each.task: _Task() for each in costs.attempts_by_start}
    for each in costs.attempts_by_start:
        task = by_task[each.task]
        task.attempts += 1
        task.interruptions += each.spent is SpentOn.INTERRUPTIONS
    end = costs.until - t0 if costs.pools else 0.0
    cost, least, most = (_Curve(max(0.0, end)) for _ in range(3))
    for charge in charges_of(costs):
        begin, ends, value = charge.start - t0, min(charge.end, costs.until) - t0, _number(charge.amount)
        cost.add(begin, ends, value)
        if charge.line is Line.ATTEMPT:
            low, high = (value * float(part) for part in charge.lost)
            least.add(begin, ends, low)
            most.add(begin, ends, high)
            by_task[charge.task].add(float(charge.amount.seconds), value, low, high)
    rows = [[path, *dataclasses.astuple(task)] for path, task in by_task.items()]
    names = ["path", *(each.name for each in dataclasses.fields(_Task))]
    curves = {"cost": cost, "wasted_low": least, "wasted_high": most}
    series = {"t": cost.times(), **{name: curve.values() for name, curve in curves.items()}}
    return {
        "by_task": {name: [row[column] for row in rows] for column, name in enumerate(names)},
        "series": series if end > 0 else {name: [] for name in series},
    }


@dataclass(slots=True)
class _Task:
    """The cost of one task, in the account's unit."""

    attempts: int = 0
    interruptions: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    wasted_low: float = 0.0
    wasted_high: float = 0.0

    def add(self, seconds: float, cost: float, low: float, high: float) -> None:
        """Add an attempt."""
        self.seconds += seconds
        self.cost += cost
        self.wasted_low += low
        self.wasted_high += high


class _Curve:
    """A sum of amounts that each grow evenly between two moments, at evenly spaced points.

    Each amount changes the slope at its begin and at its end, so all together take one pass over the points.
    """

    def __init__(self, end: float) -> None:
        self._step = end / (_POINTS - 1)
        self._slope, self._offset = [0.0] * _POINTS, [0.0] * _POINTS

    def add(self, start: float, end: float, value: float) -> None:
        """Add an amount; the moments are seconds since the first point."""
        if not value:
            return
        if end <= start:
            self._offset[self._first(start)] += value
            return
        slope = value / (end - start)
        for at, change in ((start, slope), (end, -slope)):
            point = self._first(at)
            self._slope[point] += change
            self._offset[point] -= change * at

    def _first(self, at: float) -> int:
        """The first point at or after a moment."""
        return min(_POINTS - 1, max(0, -int(-at // self._step))) if self._step else _POINTS - 1

    def times(self) -> list[float]:
        """The points, in seconds."""
        return [point * self._step for point in range(_POINTS)]

    def values(self) -> list[float]:
        """The sum at each point."""
        slopes, offsets = accumulate(self._slope), accumulate(self._offset)
        return [max(0.0, slope * at + offset) for at, slope, offset in zip(self.times(), slopes, offsets, strict=True)]


# -- its plan


def plan_document(reader: RunReader, costs: Account, other: Path | None = None) -> dict[str, Any]:
    """The plan that ``run --plan`` put beside the run, else the ``other`` one, and the run's position in it.

    - ``planned``: as in ``report --json`` (``plan``, ``policy``, ``cost``, ``end``, ``why``), or null; ``why``: the reason then;
      ``text``: plan against actual as ``report`` says it, line by line;
    - ``currency`` (null: costs count an hour of an on-demand node as 1), ``policies``: ``name``, ``words``, ``is_own`` (the run
      followed it), ``cost`` and ``end`` (``p10``, ``p50``, ``p90``, ``p99``; null: the run does not end so often), ``bins``
      (``cost`` and ``end``, each with 41 ``edges``, 40 ``counts`` and ``beyond``: the markets without an end; null in a plan of
      version 1);
    - ``actual``: ``cost`` and ``end`` (null: not known), ``cost_words`` and ``end_words`` (``below the plan``,
      ``within the plan``, ``above the plan``, or empty), ``so_far`` (the run goes on, so ``cost`` is what is spent so far), and
      ``seconds`` since its start; ``expected_end`` (seconds) of a run under a deadline that goes on.
    """
    nothing: dict[str, Any] = {"planned": None, "why": "", "text": [], "currency": None, "policies": [], "actual": None}
    if other is None and not reader.folder.forecast.exists():
        return {**nothing, "why": "this run has no plan; to compare one: spotwright run --plan FILE"}
    from spotwright.forecast.report import beside, beside_json, beside_lines, read_forecast  # here: few runs have one

    try:
        plan = read_forecast(reader.folder.own_forecast() or other or reader.folder.forecast)
    except (InputError, StateError) as error:
        return {**nothing, "why": str(error)}
    try:
        found, why = beside(plan, costs, reader.state), ""
    except InputError as error:
        found, why = None, str(error)
    own = "" if found is None else found.policy
    return {
        "planned": None if found is None else beside_json(found),
        "why": why,
        "text": [] if found is None else beside_lines(found),
        "currency": plan.currency,
        "policies": [_policy(name, policy, is_own=name == own) for name, policy in plan.policies.items()],
        "actual": None if found is None else _actual(reader, costs, found),
    }


def _policy(name: str, policy: StoredPolicy, *, is_own: bool) -> dict[str, Any]:
    from spotwright.forecast.report import ALL_QUANTILES, NAMES, bins_json

    bins = policy.bins
    return {
        "name": name,
        "words": NAMES.get(name, name),
        "is_own": is_own,
        "cost": dict(zip(ALL_QUANTILES, policy.cost, strict=True)),
        "end": dict(zip(ALL_QUANTILES, policy.end, strict=True)),
        "bins": None if bins is None else {"cost": bins_json(bins[0]), "end": bins_json(bins[1])},
    }


def _actual(reader: RunReader, costs: Account, found: Beside) -> dict[str, Any]:
    from spotwright.forecast.report import place_words

    expected = expected_end(reader.state, reader.now)

    def words(actual: float | None, planned: tuple[float | None, ...]) -> str:
        return "" if actual is None else place_words(actual, planned)

    return {
        "cost": found.actual_cost,
        "end": found.actual_end,
        "cost_words": words(found.actual_cost, found.cost),
        "end_words": words(found.actual_end, found.end),
        "so_far": reader.state.status is RunStatus.RUNNING,
        "seconds": max(0.0, costs.until - reader.state.started_at),
        "expected_end": None if expected is None else expected - reader.state.started_at,
    }


# -- the totals of many runs


@dataclass(slots=True)
class _Group:
    """The sum of the runs of one pipeline or namespace; ``saved`` of those with a comparison."""

    runs: int = 0
    whole: Amount = field(default_factory=Amount)
    wasted: Range = field(default_factory=Range)
    compared: int = 0
    saved: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))

    def add(self, line: RunLine) -> None:
        """Add a run."""
        self.runs += 1
        self.whole += line.whole
        self.wasted += line.wasted
        if line.saved is not None:
            self.compared += 1
            self.saved = (self.saved[0] + line.saved[0], self.saved[1] + line.saved[1])


def totals_document(runs: Iterable[tuple[RunReader, Account]], since: float | None = None) -> dict[str, Any]:
    """The totals of runs: the document of ``report --json`` for several, and ``since`` (Unix seconds; null: all).

    Each of ``totals`` has two lists more, ``pipelines`` and ``namespaces`` (runs of a cluster alone): ``name``, ``runs``,
    ``whole``, ``wasted``, and ``saved`` (a range of money) of the ``compared`` ones among them. Runs that began before ``since``
    are left out.
    """
    totals, namespaces = Totals(), dict[str, str]()
    for reader, costs in runs:
        state = reader.state
        if since is not None and state.started_at < since:
            continue
        totals.add_run(state, reader.folder.name, costs)
        if state.meta.orchestrator:
            namespaces[reader.folder.name] = str(state.meta.arguments.get("namespace", ""))
    document = totals_json(totals)
    for total_of_kind, total in zip(document["totals"], totals.by_kind.values(), strict=True):
        total_of_kind["pipelines"] = _groups((line.pipeline, line) for line in total.lines)
        total_of_kind["namespaces"] = _groups((namespaces.get(line.run, ""), line) for line in total.lines)
    return {**document, "since": since}


def _groups(named: Iterable[tuple[str, RunLine]]) -> list[dict[str, Any]]:
    """The groups of runs that have a name, the dearest first."""
    groups: dict[str, _Group] = {}
    for name, line in named:
        if name:
            groups.setdefault(name, _Group()).add(line)
    dearest = sorted(groups.items(), key=lambda item: _number(item[1].whole), reverse=True)
    return [
        {
            "name": name,
            "runs": group.runs,
            "whole": amount_json(group.whole),
            "wasted": range_json(group.wasted),
            "compared": group.compared,
            "saved": {"low": float(group.saved[0]), "high": float(group.saved[1])},
        }
        for name, group in dearest
    ]
