"""Policies side by side on recordings: one job with a deadline in every window, what each policy pays, and the floor below it.

All policies meet the same windows. The floor is the cheapest way through each window for somebody who knows it
(:mod:`spotwright.simulation.deadline_jobs`). Hazards of the learned policy are the shipped ones, or with ``fit`` those of the
first part of each recording; then windows come from the rest alone, because windows of one part share their spells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.hazards import SHIPPED, learned
from spotwright.deadlines.job_policies import FORMULAS, named
from spotwright.deadlines.jobs import Job, nearest_deadline
from spotwright.errors import InputError
from spotwright.forecast.forecast import Distribution, distribution
from spotwright.forecast.report import length, share
from spotwright.market import TICK, Windows, hazards_of, part, windows_of
from spotwright.model.pools import Trace
from spotwright.model.quantities import format_duration
from spotwright.simulation.deadline_jobs import cheapest, simulate
from spotwright.views.text import Rows, plural, table, wrapped

__all__ = ["POLICIES", "Comparison", "Line", "compare", "comparison_json", "comparison_text", "job_of"]


POLICIES = (*FORMULAS, "learned")
"""The names of the policies that can be compared."""

_MOST_TICKS = 4000  # of a window: a table of the learned policy has that many rows


class Line(NamedTuple):
    """One policy. ``cost`` is a share of the work on on-demand, ``gap`` by how much its mean is above the floor's.

    ``late`` is the share of windows in which it is late, ``spot`` the share of its paid time on spot.
    """

    name: str
    cost: Distribution
    gap: float
    late: float
    spot: float


class Comparison(NamedTuple):
    """Policies on recordings. ``floor`` is the cheapest possible cost; ``worth`` the number of windows that do not overlap."""

    job: Job
    traces: tuple[str, ...]
    windows: int
    worth: int
    availability: float
    fit: float
    floor: Distribution
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]


def job_of(work: float, deadline: float | None, changeover: float, prices: tuple[float, float]) -> Job:
    """A job to compare with; without a deadline it has half as much time again as on-demand needs.

    Raises :class:`InputError` for durations and prices that mean nothing.
    """
    if work <= 0:
        raise InputError("--work: expected a duration above 0, such as 48h")
    job = Job(work, 0.0, _rounded_up(changeover), prices[0], prices[1])
    return job._replace(deadline=nearest_deadline(job) * 1.5 if deadline is None else deadline).checked()


def _rounded_up(changeover: float) -> float:
    """The overhead in whole tenths of a tick, which the simulation is exact for."""
    return math.ceil(changeover * 10 / TICK - 1e-9) * TICK / 10


def compare(
    job: Job, traces: Mapping[str, Trace], policies: Sequence[str], *, windows: int, seed: int, fit: float = 0.0
) -> Comparison:
    """Run the job under each policy in ``windows`` drawn windows of the recordings.

    ``fit`` is the first share of each recording that the learned policy's hazards are counted on; 0: the shipped ones. Raises
    :class:`InputError` for an unknown policy, and for recordings that are too short.
    """
    for name in policies:
        if name not in POLICIES:
            raise InputError(f"--policy {name}: expected one of {', '.join(POLICIES)}")
    ticks = math.ceil(max(job.deadline, job.work + job.overhead) / TICK - 1e-9)
    if ticks > _MOST_TICKS:
        raise InputError(f"a deadline of {format_duration(job.deadline)} is too far away to compare: at most 27 days")
    judged = {name: part(trace, fit, 1.0) if fit else trace for name, trace in traces.items()}
    each = -(-windows // len(judged))
    market = windows_of(judged, ticks * TICK, each=each, seed=seed)
    hazards = learned(hazards_of([part(trace, 0.0, fit) for trace in traces.values()])) if fit else SHIPPED
    whole = job.work * job.on_demand_price / 3600.0
    floor = cheapest(job, market) / whole
    seen = market.observations(hazards)
    lines = []
    for name in dict.fromkeys(policies or POLICIES):
        found = simulate(named(name, job, hazards), job, market, hazards, seen)
        cost = found.cost / whole
        paid = float(found.spot.sum() + found.on_demand.sum())
        lines.append(
            Line(
                name,
                distribution(cost),
                float(cost.mean() - floor.mean()),
                float(found.late.mean()),
                float(found.spot.sum()) / paid if paid else 0.0,
            )
        )
    worth = max(1, int(sum(trace.length for trace in judged.values()) / (ticks * TICK)))
    return Comparison(
        job, tuple(traces), market.size, worth, market.availability(), fit, distribution(floor), tuple(lines),
        tuple(_warnings(job, market)),
    )  # fmt: skip


def _warnings(job: Job, market: Windows) -> list[str]:
    warnings = []
    if not job.is_possible:
        nearest = nearest_deadline(job)
        warnings.append(
            f"the deadline of {format_duration(job.deadline)} cannot be met: on-demand alone takes {format_duration(nearest)}, "
            f"{format_duration(nearest - job.deadline)} more; the nearest deadline that can be promised is "
            f"{format_duration(nearest)}"
        )
    if not np.asarray(market.up).any():
        warnings.append("there is no spot in these windows: every policy ends on on-demand")
    if not job.is_cheaper_on_spot:
        warnings.append("spot does not cost less than on-demand here")
    return warnings


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
                ["Policy", "Mean cost", "p50", "p90", "p99", "Above the cheapest", "Late", "On spot"],
                rows,
                "lrrrrrrr",
                ("p50", "On spot", "p90"),
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
