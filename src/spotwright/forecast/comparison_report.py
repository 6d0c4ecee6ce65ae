"""A comparison of policies as text and as JSON."""

from __future__ import annotations

from typing import Any

from spotwright.forecast.comparison import Comparison, Line
from spotwright.forecast.report import length, share
from spotwright.views.phrasing import plural
from spotwright.views.table import Rows, table, wrapped

__all__ = ["comparison_json", "comparison_text"]


def comparison_text(comparison: Comparison) -> str:
    """The comparison as a table, the cheapest policy first."""
    job = comparison.job
    names = ", ".join(comparison.traces[:3]) + (", ..." if len(comparison.traces) > 3 else "")
    title = (
        f"{length(job.work)} of work, deadline {length(job.deadline)}, changeover {length(job.overhead)}, on-demand at "
        f"{job.on_demand_price / job.spot_price:.3g} times the price of spot"
        if job.spot_price
        else f"{length(job.work)} of work, deadline {length(job.deadline)}, changeover {length(job.overhead)}, spot costs nothing"
    )
    market = (
        f"{plural(comparison.windows, 'window')} of {names}, worth about {comparison.worth:,} that do not overlap; spot "
        f"{comparison.availability:.0%} of the time"
    )
    rows = [_row(line) for line in sorted(comparison.lines, key=lambda line: line.cost.mean)]
    rows.append(["cheapest possible", *_costs(comparison.floor), "", "", ""])
    parts = [
        [*wrapped(title), *wrapped(market)],
        [line for each in comparison.warnings for line in wrapped(each, indent="Warning ", hang=" " * 8)],
        table(
            Rows(
                ["Policy", "Mean cost", "p50", "p90", "p99", "Above the cheapest", "Late", "On spot"], rows, "lrrrrrrr"
            )
        ),
        list(wrapped(_words(comparison))),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _row(line: Line) -> list[str]:
    return [line.name, *_costs(line.cost), f"{line.gap * 100:.1f} points", share(line.late), share(line.spot)]


def _costs(cost: Any) -> list[str]:
    return [f"{value:.1%}" for value in (cost.mean, cost.p50, cost.p90, cost.p99)]


def _words(comparison: Comparison) -> str:
    if comparison.fit:
        hazards = f"the hazards of the first {comparison.fit:.0%} of each recording, windows from the rest"
    else:
        hazards = "the shipped hazards"
    return (
        f"Costs are shares of the work on on-demand alone; every ten minutes are paid as a whole. The learned policy has "
        f"{hazards}. The cheapest possible knows the future."
    )


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison for machines. Durations are seconds, costs shares of the work on on-demand.

    - ``comparison``: the version of this document, 1; ``job`` (``work``, ``deadline``, ``overhead``, ``spot_price``,
      ``on_demand_price``), ``traces``, ``windows``, ``worth`` (windows that do not overlap), ``availability``, ``fit``;
    - ``policies``: ``name``, ``cost`` (a distribution), ``gap`` to the mean of the cheapest possible, ``late`` and ``spot``
      (shares);
    - ``cheapest``: the distribution of the cheapest possible cost; ``warnings``: sentences.
    """
    return {
        "comparison": 1,
        "job": comparison.job._asdict(),
        "traces": list(comparison.traces),
        "windows": comparison.windows,
        "worth": comparison.worth,
        "availability": comparison.availability,
        "fit": comparison.fit,
        "policies": [{**line._asdict(), "cost": line.cost._asdict()} for line in comparison.lines],
        "cheapest": comparison.floor._asdict(),
        "warnings": list(comparison.warnings),
    }
