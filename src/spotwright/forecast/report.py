"""A forecast as text and as JSON, and the comparison of a run's account with its plan."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.config.document import read_text
from spotwright.engine.state import RunState
from spotwright.errors import InputError
from spotwright.forecast.forecast import (
    DEADLINE,
    ON_DEMAND,
    SPOT,
    UNIFORM_PROGRESS,
    Bins,
    Distribution,
    Forecast,
    Market,
    PolicyForecast,
    TaskForecast,
)
from spotwright.model.not_judged import not_judged_json, not_judged_lines
from spotwright.model.policy import Spot
from spotwright.model.quantities import format_duration
from spotwright.scheduling.estimates import LAUNCH_MARGIN, STATED_MARGIN
from spotwright.views.account import Account
from spotwright.views.account_report import price_unit
from spotwright.views.text import Rows, plural, table, wrapped

__all__ = [
    "ALL_QUANTILES",
    "NAMES",
    "Beside",
    "StoredForecast",
    "StoredPolicy",
    "beside",
    "beside_json",
    "beside_lines",
    "bins_json",
    "command_for",
    "forecast_json",
    "forecast_text",
    "length",
    "money",
    "pipeline_words",
    "place_words",
    "read_forecast",
    "unit",
]


NAMES = {
    ON_DEMAND: "on-demand only",
    SPOT: "spot, then on-demand",
    DEADLINE: "deadline",
    UNIFORM_PROGRESS: "Uniform Progress",
}
"""The policies, in words."""

_MOST_TASKS = 20
_MANY = 200  # interruptions: a budget above that is unlimited


def forecast_text(forecast: Forecast, pipeline: str) -> str:
    """The forecast as tables of at most 100 columns; ``pipeline`` is for its commands (:func:`pipeline_words`)."""
    bound = f", deadline {length(forecast.deadline)}" if forecast.deadline is not None else ""
    title = f"Plan of {forecast.pipeline}{bound}: {plural(forecast.markets, 'market')}, {forecast.supply}, seed {forecast.seed}"
    parts = [
        list(wrapped(title)),
        [line for each in forecast.warnings for line in wrapped(each, indent="Warning ", hang=" " * 8)],
        _policies(forecast),
        list(_conclusions(forecast, pipeline)),
        _tasks(forecast),
        list(_beside(forecast)),
        [line for each in not_judged_lines(forecast.not_judged) for line in wrapped(each)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def unit(forecast: Forecast) -> str:
    """The unit of costs."""
    return price_unit(forecast.price_source, forecast.currency) if forecast.currency else "on-demand hours"


def money(value: float) -> str:
    """An amount with three digits, at most two of them decimals."""
    if not math.isfinite(value):
        return "no end"
    digits = 2 if abs(value) >= 1 or value == 0 else min(6, 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def length(seconds: float) -> str:
    """A duration, also an infinite one."""
    return format_duration(seconds) if math.isfinite(seconds) else "no end"


def _policies(forecast: Forecast) -> list[str]:
    headers = [
        "Policy",
        f"Mean {unit(forecast)}",
        "p50",
        "p90",
        "p99",
        "Ends after",
        "p90",
        "p99",
        "Late",
        "Fails",
        "Taken",
    ]
    rows = [_row(policy, forecast) for policy in forecast.policies]
    return table(Rows(headers, rows, "l.rrrrrrrrr", ("p50", "Taken", "p90", "Ends after")))


def _row(policy: PolicyForecast, forecast: Forecast) -> list[str]:
    mark = "* " if policy.name == forecast.best else "  "
    cost, finish = policy.cost, policy.finish
    return [
        f"{mark}{NAMES[policy.name]}",
        money(cost.mean),
        *(money(value) for value in (cost.p50, cost.p90, cost.p99)),
        *(length(value) for value in (finish.p50, finish.p90, finish.p99)),
        "" if policy.late is None else share(policy.late),
        share(policy.fails) if policy.fails else "",
        f"{policy.interruptions:.1f}",
    ]


def share(value: float) -> str:
    """A share in percent; a small one is never 0 %."""
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def pipeline_words(
    pipeline: str,
    arguments: Sequence[str] = (),
    *,
    name: str | None = None,
    config: str | None = None,
    more: Sequence[tuple[str, str | None]] = (),
) -> str:
    """The part of a command line for a pipeline: its file with the arguments (``NAME=VALUE``) and the plan's options.

    ``more`` are options that ``run`` has too; options with the value None are omitted.
    """
    given = [("--pipeline", name), *(("--arg", text) for text in arguments), ("--config", config), *more]
    return shlex.join([pipeline, *(word for option, value in given if value is not None for word in (option, value))])


def command_for(forecast: Forecast, pipeline: str) -> str:
    """The command that runs the pipeline under the best policy."""
    if forecast.best == DEADLINE and forecast.deadline is not None:
        return f"spotwright run {pipeline} --deadline {_typed(forecast.deadline)}"
    return f"spotwright run {pipeline}{' --policy spot=never' if forecast.best == ON_DEMAND else ''}"


def _typed(seconds: float) -> str:
    """A duration for a command line."""
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds % 60:
        return f"{seconds:g}s"
    return f"{hours}h{f'{minutes}m' if minutes else ''}" if hours else f"{minutes}m"


def _conclusions(forecast: Forecast, pipeline: str) -> Iterator[str]:
    def said(word: str, text: str) -> Iterator[str]:
        yield from wrapped(text, indent=f"{word:<10}", hang=" " * 10)

    yield from said("Best", f"{NAMES[forecast.best]}: {forecast.why}")
    yield f"{' ' * 10}{command_for(forecast, pipeline)}"  # not wrapped, so that it can be copied
    if forecast.deadline is not None and forecast.without_deadline is not None:
        costs, without = forecast.deadline_costs or 0.0, forecast.without_deadline
        extra = f"{money(costs)} {unit(forecast)} more" if costs > 0.005 * without else "no more"
        yield from said(
            "Deadline",
            f"costs {extra} on average: without one the cheapest policy costs {money(without)}; the shortest that can be "
            f"promised is {length(forecast.nearest)}",
        )
    if forecast.deadline is not None:
        yield from said("Margin", _margin())
    yield from said("Budget", _budget(forecast))


def _margin() -> str:
    """The margin that the engine adds to the stated figures until it has measured."""
    return (
        f"a run keeps free time for work {STATED_MARGIN:.0%} and a launch {LAUNCH_MARGIN:.0%} longer than stated, and for what "
        "it has measured instead once progress is reported and nodes have booted; show has both"
    )


def _budget(forecast: Forecast) -> str:
    percent = f"{forecast.certainty * 100:g} %"
    if forecast.budget > _MANY:
        return (
            f"no budget is enough on spot alone: in more than {100 - forecast.certainty * 100:.2g} % of the markets a task is "
            f"interrupted more than {_MANY} times; save checkpoints, or run it on on-demand"
        )
    return f"interruptions: {{max: {forecast.budget}}} is enough on spot alone with a certainty of {percent}"


def _tasks(forecast: Forecast) -> list[str]:
    rows = [_task_row(task) for task in forecast.tasks]
    headers = ["Task", "Work", "From", "Save every", "Budget", "On-demand", "Spot", ""]
    more = len(rows) - _MOST_TASKS
    lines = table(Rows(headers, rows[:_MOST_TASKS], "lrlrr..l", ("From", "Save every", "Budget")))
    return [*lines, *([f"and {plural(more, 'task')} more; --json has all"] if more > 0 else [])]


def _task_row(task: TaskForecast) -> list[str]:
    return [
        f"{task.path}{f' x {task.times}' if task.times > 1 else ''}",
        length(task.work),
        task.source,
        _every(task),
        "" if task.spot_cost is None else f"over {_MANY}" if task.budget > _MANY else str(task.budget),
        "" if task.on_demand_cost is None else money(task.on_demand_cost),
        "" if task.spot_cost is None else money(task.spot_cost),
        "on-demand is cheaper" if task.cheaper_on_demand else "",
    ]


def _every(task: TaskForecast) -> str:
    if task.every is None:
        return "does not save"
    return length(task.every) if math.isfinite(task.every) else "does not pay"


def _beside(forecast: Forecast) -> Iterator[str]:
    for pool in forecast.pools:
        yield from wrapped(_pool(pool), indent="Supply  ", hang=" " * 8)
    for price in forecast.prices:
        yield from wrapped(price, indent="Price   ", hang=" " * 8)
    for note in forecast.notes:
        yield from wrapped(note, indent="Note    ", hang=" " * 8)


def _pool(pool: Market) -> str:
    return f"{pool.pool}: spot {pool.availability:.0%} of the time, lost {pool.losses_an_hour:.2g} times an hour of it"


def forecast_json(forecast: Forecast, pipeline: str) -> dict[str, Any]:
    """The forecast for machines. Durations are seconds; infinite amounts and ends are null.

    - ``plan``: the version of this document, 2; ``pipeline``, ``command`` (runs the best policy), ``deadline`` (null without),
      ``seed``, ``markets``, ``supply`` (in words), ``currency`` (null: costs count an hour of an on-demand node as 1),
      ``price_source``;
    - ``pools``: ``pool``, ``availability``, ``losses_an_hour`` of the markets;
    - ``policies``: ``name`` (``on-demand``, which is absent where a task runs on spot alone, ``spot``, ``deadline``,
      ``uniform-progress``), the distributions ``cost`` and ``finish`` (``mean``, ``p10``, ``p50``, ``p90``, ``p99``), ``late``
      and ``fails`` (shares of the markets), ``interruptions`` (mean), ``spot`` (the share of the cost), ``bins`` (from version 2
      on) with ``cost`` and ``finish``: 41 ``edges``, the ``counts`` of markets between them, and ``beyond`` (without an end);
    - ``best`` (a name), ``why``, ``certainty``, ``budget`` (of interruptions), ``nearest`` deadline, ``without_deadline`` (mean
      cost), ``deadline_costs``;
    - ``tasks``: ``path``, ``times`` (iterations), ``work``, ``source``, ``saves``, ``every`` (null: no saves, or none that
      pay), ``save``, ``budget``, ``on_demand_cost``, ``spot_cost``, ``cheaper_on_demand``;
    - ``warnings``, ``notes``, ``prices``: sentences; ``not_judged``: pools that may or may not have room for the tasks.
    """
    return {
        "plan": _VERSION,
        "pipeline": forecast.pipeline,
        "command": command_for(forecast, pipeline),
        "deadline": forecast.deadline,
        "seed": forecast.seed,
        "markets": forecast.markets,
        "supply": forecast.supply,
        "currency": forecast.currency or None,
        "price_source": forecast.price_source,
        "pools": [pool._asdict() for pool in forecast.pools],
        "policies": [_policy_json(policy) for policy in forecast.policies],
        "best": forecast.best,
        "why": forecast.why,
        "certainty": forecast.certainty,
        "budget": forecast.budget,
        "nearest": _number(forecast.nearest),
        "without_deadline": _number(forecast.without_deadline),
        "deadline_costs": _number(forecast.deadline_costs),
        "tasks": [_task_json(task) for task in forecast.tasks],
        "warnings": list(forecast.warnings),
        "notes": list(forecast.notes),
        "prices": list(forecast.prices),
        "not_judged": not_judged_json(forecast.not_judged),
    }


def _policy_json(policy: PolicyForecast) -> dict[str, Any]:
    return {
        "name": policy.name,
        "cost": _distribution_json(policy.cost),
        "finish": _distribution_json(policy.finish),
        "late": policy.late,
        "fails": policy.fails,
        "interruptions": policy.interruptions,
        "spot": policy.spot,
        "bins": {"cost": bins_json(policy.cost_bins), "finish": bins_json(policy.finish_bins)},
    }


def bins_json(bins: Bins) -> dict[str, Any]:
    """A histogram for machines."""
    return {"edges": list(bins.edges), "counts": list(bins.counts), "beyond": bins.beyond}


def _distribution_json(values: Distribution) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values._asdict().items()}


def _task_json(task: TaskForecast) -> dict[str, Any]:
    return {
        **task._asdict(),
        "saves": task.every is not None,
        "every": _number(task.every),
        "cheaper_on_demand": task.cheaper_on_demand,
    }


def _number(value: float | None) -> float | None:
    """A number that JSON has."""
    return value if value is not None and math.isfinite(value) else None


_MOST_BYTES = 50_000_000
_QUANTILES = ("p10", "p50", "p90")
ALL_QUANTILES = (*_QUANTILES, "p99")
_VERSION = 2
_READ = (1, 2)
"""The readable versions. Version 1 has no ``bins``."""


class StoredPolicy(NamedTuple):
    """One policy of a saved plan: p10, p50, p90 and p99 of cost and end (``None``: infinite).

    ``bins`` are the histograms of both, ``None`` in a plan of version 1.
    """

    cost: tuple[float | None, ...]
    end: tuple[float | None, ...]
    bins: tuple[Bins, Bins] | None


class StoredForecast(NamedTuple):
    """A saved plan: by policy the p10, p50 and p90 of cost and end, and ``policies`` with everything that is drawn.

    ``text`` is the document.
    """

    name: str
    currency: str | None
    costs: Mapping[str, tuple[float | None, ...]]
    ends: Mapping[str, tuple[float | None, ...]]
    policies: Mapping[str, StoredPolicy]
    text: str


class Beside(NamedTuple):
    """A run beside its plan. ``cost`` and ``end`` are the planned p10, p50 and p90; the others are actual.

    ``actual_cost`` is ``None`` without prices; ``actual_end`` is ``None`` until the run has ended, and if its waits were sped
    up; ``why`` says so.
    """

    plan: str
    policy: str
    currency: str | None
    cost: tuple[float | None, ...]
    end: tuple[float | None, ...]
    actual_cost: float | None
    actual_end: float | None
    why: str


def read_forecast(path: Path) -> StoredForecast:
    """Read the output of ``spotwright plan --json``. Raises :class:`InputError` for anything else."""
    text = read_text(path, _MOST_BYTES)
    try:
        document = json.loads(text)
        version = document["plan"]
        known = document["policies"] if version in _READ else []
        policies = {str(policy["name"]): _read_policy(policy, version) for policy in known}
        stored = StoredForecast(
            path.name,
            None if document["currency"] is None else str(document["currency"]),
            {name: policy.cost[:3] for name, policy in policies.items()},
            {name: policy.end[:3] for name, policy in policies.items()},
            policies,
            text,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise InputError(f"{path}: expected what 'spotwright plan PIPELINE --json' prints") from None
    if version not in _READ:
        raise InputError(f"{path}: a plan of version {version}: a newer Spotwright made it, use that one")
    return stored


def _read_policy(policy: Mapping[str, Any], version: int) -> StoredPolicy:
    """One policy of a saved plan. Raises :class:`KeyError`, :class:`TypeError` and :class:`ValueError` for a wrong document."""
    cost, end = (tuple(_finite(policy[key][each]) for each in ALL_QUANTILES) for key in ("cost", "finish"))
    drawn = None if version < _VERSION else (_read_bins(policy["bins"]["cost"]), _read_bins(policy["bins"]["finish"]))
    return StoredPolicy(cost, end, drawn)


def _read_bins(found: Mapping[str, Any]) -> Bins:
    edges = tuple(float(each) for each in found["edges"])
    counts = tuple(int(each) for each in found["counts"])
    if len(edges) != len(counts) + 1 or any(high < low for low, high in pairwise(edges)) or min(counts) < 0:
        raise ValueError("no histogram")
    return Bins(edges, counts, int(found["beyond"]))


def _finite(value: Any) -> float | None:
    """A number of a document, or null. Raises :class:`TypeError` and :class:`ValueError` for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    return float(value)


def beside(plan: StoredForecast, account: Account, state: RunState) -> Beside:
    """Compare a run with its plan, under the run's policy. Raises :class:`InputError` for a plan without that policy."""
    policy = _policy(state)
    if policy not in plan.costs:
        fix = "--deadline" if policy == DEADLINE else "the configuration of the run"
        raise InputError(f"{plan.name} has no forecast of the policy of this run ({NAMES[policy]}): plan with {fix}")
    paid = (account.attempts.money, account.boot.money)
    actual = None if account.unpriced or plan.currency is None else float(sum(each or 0 for each in paid))
    ended = None if state.finished_at is None else state.finished_at - state.started_at
    why = ""
    if actual is None:
        why = "no cost to compare: a pool has no price"
    elif plan.currency != account.currency:
        raise InputError(
            f"{plan.name} is in {plan.currency}, the run in {account.currency}: plan with its configuration"
        )
    if ended is None:
        why = "the run has not ended"
    elif state.time_scale != 1:
        ended, why = (
            None,
            f"waits passed {state.time_scale:g} times faster in this run, so its end cannot be compared with the plan",
        )
    return Beside(plan.name, policy, plan.currency, plan.costs[policy], plan.ends[policy], actual, ended, why)


def _policy(state: RunState) -> str:
    """The policy of a forecast that the run followed."""
    policies = [task.plan.policy for task in state.tasks.values() if task.plan.ladder.rungs]
    if any(policy.deadline is not None for policy in policies):
        return DEADLINE
    return ON_DEMAND if policies and all(policy.spot is Spot.NEVER for policy in policies) else SPOT


def beside_lines(found: Beside) -> list[str]:
    """Plan and actual as text."""
    lines = [f"Plan against actual ({found.plan}, {NAMES[found.policy]})"]
    rows = []
    if found.actual_cost is not None:
        shown = [_or_none(value, money) for value in found.cost]
        place = place_words(found.actual_cost, found.cost)
        rows.append(
            (
                "cost",
                f"{money(found.actual_cost)} {found.currency} on attempts and boots; planned {_range(shown)}: {place}",
            )
        )
    if found.actual_end is not None:
        shown = [_or_none(value, length) for value in found.end]
        rows.append(
            (
                "end",
                f"after {length(found.actual_end)}; planned {_range(shown)}: {place_words(found.actual_end, found.end)}",
            )
        )
    rows += [("note", found.why)] if found.why else []
    return [*lines, *(line for word, text in rows for line in wrapped(text, indent=f"  {word:<8}", hang=" " * 10))]


def _range(shown: list[str]) -> str:
    low, middle, high = shown
    return f"{middle} (p50), {low} to {high} (p10 to p90)"


def _or_none(value: float | None, words: Any) -> str:
    return "no end" if value is None else str(words(value))


def place_words(actual: float, planned: tuple[float | None, ...]) -> str:
    """The position of the actual figure in the planned p10, p50 and p90, bounds included."""
    low, _, high = planned
    slack = 1e-9 + 0.001 * abs(actual)
    if low is not None and actual < low - slack:
        return "below the plan"
    return "above the plan" if high is not None and actual > high + slack else "within the plan"


def beside_json(found: Beside) -> dict[str, Any]:
    """Plan and actual for machines, the key ``planned`` of an account.

    ``plan`` (the file), ``policy``, ``cost`` and ``end`` with ``p10``, ``p50``, ``p90`` and ``actual`` (null: unknown, with the
    reason in ``why``), in seconds and in the currency of the account.
    """
    return {
        "plan": found.plan,
        "policy": found.policy,
        "cost": {**dict(zip(_QUANTILES, found.cost, strict=True)), "actual": found.actual_cost},
        "end": {**dict(zip(_QUANTILES, found.end, strict=True)), "actual": found.actual_end},
        "why": found.why,
    }
