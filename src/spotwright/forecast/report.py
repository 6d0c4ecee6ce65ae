"""A forecast as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from spotwright.forecast.making import DEADLINE, ON_DEMAND, SPOT, UNIFORM_PROGRESS
from spotwright.forecast.model import Distribution, Forecast, Market, PolicyForecast, TaskForecast
from spotwright.model.quantities import format_duration
from spotwright.views.amount_phrasing import price_unit
from spotwright.views.phrasing import plural
from spotwright.views.table import Rows, table, wrapped

__all__ = ["NAMES", "command_for", "forecast_json", "forecast_text", "length", "money", "unit"]

NAMES = {
    ON_DEMAND: "on-demand only",
    SPOT: "spot, then on-demand",
    DEADLINE: "deadline",
    UNIFORM_PROGRESS: "Uniform Progress",
}
"""The policies, in words."""

_MOST_TASKS = 20
_MANY = 200  # interruptions: a budget above that is no budget


def forecast_text(forecast: Forecast, pipeline_file: str) -> str:
    """The forecast as tables of at most 100 columns; ``pipeline_file`` is what the commands in it name."""
    bound = f", deadline {length(forecast.deadline)}" if forecast.deadline is not None else ""
    title = f"Plan of {forecast.pipeline}{bound}: {plural(forecast.markets, 'market')}, {forecast.supply}, seed {forecast.seed}"
    parts = [
        list(wrapped(title)),
        [line for each in forecast.warnings for line in wrapped(each, indent="Warning ", hang=" " * 8)],
        _policies(forecast),
        list(_conclusions(forecast, pipeline_file)),
        _tasks(forecast),
        list(_beside(forecast)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def unit(forecast: Forecast) -> str:
    """The unit of costs."""
    return price_unit(forecast.price_source, forecast.currency) if forecast.currency else "on-demand hours"


def money(value: float) -> str:
    """An amount with three digits, two decimals at most."""
    if not math.isfinite(value):
        return "no end"
    digits = 2 if abs(value) >= 1 or value == 0 else min(6, 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def length(seconds: float) -> str:
    """A duration; what does not end has none."""
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
    return table(Rows(headers, rows, "l.rrrrrrrrr"))


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
    """A share in percent; a small one is not 0 %."""
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def command_for(forecast: Forecast, pipeline_file: str) -> str:
    """The command that runs the pipeline under the best policy."""
    if forecast.best == DEADLINE and forecast.deadline is not None:
        return f"spotwright run {pipeline_file} --deadline {_typed(forecast.deadline)}"
    return f"spotwright run {pipeline_file}{' --policy spot=never' if forecast.best == ON_DEMAND else ''}"


def _typed(seconds: float) -> str:
    """A duration as a command line takes it."""
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds % 60:
        return f"{seconds:g}s"
    return f"{hours}h{f'{minutes}m' if minutes else ''}" if hours else f"{minutes}m"


def _conclusions(forecast: Forecast, pipeline_file: str) -> Iterator[str]:
    def said(word: str, text: str) -> Iterator[str]:
        yield from wrapped(text, indent=f"{word:<10}", hang=" " * 10)

    yield from said("Best", f"{NAMES[forecast.best]}: {forecast.why}")
    yield f"{' ' * 10}{command_for(forecast, pipeline_file)}"  # not wrapped, so that it can be copied
    if forecast.deadline is not None and forecast.without_deadline is not None:
        costs, without = forecast.deadline_costs or 0.0, forecast.without_deadline
        extra = f"{money(costs)} {unit(forecast)} more" if costs > 0.005 * without else "nothing"
        yield from said(
            "Deadline",
            f"costs {extra} on average: without one the cheapest policy costs {money(without)}; the shortest that can be "
            f"promised is {length(forecast.nearest)}",
        )
    yield from said("Budget", _budget(forecast))


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
    lines = table(Rows(headers, rows[:_MOST_TASKS], "lrlrr..l"))
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
        return "saves nothing"
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


def forecast_json(forecast: Forecast, pipeline_file: str) -> dict[str, Any]:
    """The forecast for machines. Durations are seconds; an amount or an end that is infinite is null.

    - ``plan``: the version of this document, 1; ``pipeline``, ``command`` (runs the best policy), ``deadline`` (null without),
      ``seed``, ``markets``, ``supply`` (in words), ``currency`` (null: costs count an hour of an on-demand node as 1),
      ``price_source``;
    - ``pools``: ``pool``, ``availability``, ``losses_an_hour`` of the markets;
    - ``policies``: ``name`` (``on-demand``, ``spot``, ``deadline``, ``uniform-progress``), the distributions ``cost`` and
      ``finish`` (``mean``, ``p10``, ``p50``, ``p90``, ``p99``), ``late`` and ``fails`` (shares of the markets), ``interruptions``
      (mean), ``spot`` (the share of the cost);
    - ``best`` (a name), ``why``, ``certainty``, ``budget`` (of interruptions), ``nearest`` deadline, ``without_deadline`` (mean
      cost), ``deadline_costs``;
    - ``tasks``: ``path``, ``times`` (iterations), ``work``, ``source``, ``saves``, ``every`` (null: no saves, or none that
      pay), ``save``, ``budget``, ``on_demand_cost``, ``spot_cost``, ``cheaper_on_demand``;
    - ``warnings``, ``notes``, ``prices``: sentences.
    """
    return {
        "plan": 1,
        "pipeline": forecast.pipeline,
        "command": command_for(forecast, pipeline_file),
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
    }


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
