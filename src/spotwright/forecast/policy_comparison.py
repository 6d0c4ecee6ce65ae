"""Compares policies on recordings: the cost of one job with a deadline in every window, and its lower bound.

All policies get the same windows and pass the same safety rule. ``spotwright`` is the policy of a run with a deadline
(:mod:`spotwright.deadlines.choice`); the others are formulas (:mod:`spotwright.deadlines.job_policies`). The lower bound is the
cheapest way through each window known in advance (:mod:`spotwright.forecast.deadline_jobs`).

Recordings are either one pool, with windows from each, or together the pools of one job. Our policy uses the shipped hazards,
or with ``fit`` the counts of each recording's first part; windows then come only from the rest, because windows of one part
share their spells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from spotwright.deadlines.choice import Limits, Pool, chooser
from spotwright.deadlines.hazards import SHIPPED, HazardTable, learned
from spotwright.deadlines.job_policies import FORMULAS, Decides, formula
from spotwright.deadlines.jobs import Job, nearest_deadline
from spotwright.errors import InputError
from spotwright.forecast.deadline_jobs import cheapest, simulate
from spotwright.forecast.forecast import Distribution, distribution
from spotwright.forecast.report import length, share
from spotwright.market import TICK, Windows, hazards_of, part, pools_of, windows_of
from spotwright.model.pools import Trace
from spotwright.model.quantities import format_duration
from spotwright.views.text import Rows, plural, table, wrapped

__all__ = [
    "OURS",
    "POLICIES",
    "Comparison",
    "Line",
    "Pools",
    "compare",
    "comparison_json",
    "comparison_text",
    "decider",
    "job_of",
]


OURS = "spotwright"
"""The policy of a run with a deadline."""

POLICIES = (*FORMULAS, OURS)
"""The names of the policies."""

_MOST_TICKS = 4000  # of a window


class Pools(StrEnum):
    """The use of several recordings: each by separate jobs, or all at once as the spot pools of one job."""

    APART = "apart"
    TOGETHER = "together"


class Line(NamedTuple):
    """One policy. ``cost`` is a share of the work's cost on on-demand, ``gap`` its mean's excess over the lower bound's.

    ``late`` is the share of late windows, ``spot`` the share of paid time on spot, ``launches`` the mean number of launches.
    ``decided_by`` names the deciding module.
    """

    name: str
    decided_by: str
    cost: Distribution
    gap: float
    late: float
    spot: float
    launches: float


class Comparison(NamedTuple):
    """The comparison. ``floor`` is the lowest possible cost; ``worth`` the number of non-overlapping windows.

    ``prices`` are spot's per hour, by recording; one if all are the same.
    """

    job: Job
    traces: tuple[str, ...]
    pools: Pools
    prices: tuple[float, ...]
    windows: int
    worth: int
    availability: float
    fit: float
    floor: Distribution
    lines: tuple[Line, ...]
    warnings: tuple[str, ...]


def job_of(work: float, deadline: float | None, changeover: float, prices: tuple[float, float]) -> Job:
    """The job of a comparison; the default deadline is 1.5 times the time that on-demand needs.

    Raises :class:`InputError` for meaningless durations and prices.
    """
    if work <= 0:
        raise InputError("--work: expected a duration above 0, such as 48h")
    if deadline is not None and deadline <= 0:
        raise InputError("--deadline: expected a duration above 0, such as 52h")
    if prices[1] <= 0:
        raise InputError(
            "the price of on-demand is 0, and costs are shares of it; name one above 0, as with --prices 1,3"
        )
    job = Job(work, 0.0, _rounded_up(changeover), prices[0], prices[1])
    return job._replace(deadline=nearest_deadline(job) * 1.5 if deadline is None else deadline).checked()


def _rounded_up(changeover: float) -> float:
    """The overhead, rounded up to tenths of a tick, for which the simulation is exact."""
    return math.ceil(changeover * 10 / TICK - 1e-9) * TICK / 10


def decider(name: str, job: Job, pools: Sequence[Pool], limits: Limits, hazards: HazardTable = SHIPPED) -> Decides:
    """The decider of a job under the policy of this name."""
    return chooser(job, pools, limits, hazards.down, hazards.up) if name == OURS else formula(name, job, pools, limits)


def compare(
    job: Job,
    traces: Mapping[str, Trace],
    policies: Sequence[str],
    *,
    windows: int,
    seed: int,
    fit: float = 0.0,
    pools: Pools = Pools.APART,
    prices: Sequence[float] = (),
) -> Comparison:
    """Run the job under each policy in ``windows`` drawn windows of the recordings.

    ``fit`` is the share of each recording, from its start, on which our policy's hazards are counted; 0: the shipped ones.
    ``prices`` are spot's by recording, if they are the pools of one job; by default the job's. Raises :class:`InputError` for
    an unknown policy, for too short recordings, and for prices without a pool.
    """
    for name in policies:
        if name not in POLICIES:
            raise InputError(f"--policy {name}: expected one of {', '.join(POLICIES)}")
    ticks = math.ceil(max(job.deadline, job.work + job.overhead) / TICK - 1e-9)
    if ticks > _MOST_TICKS:
        raise InputError(f"a deadline of {format_duration(job.deadline)} is too far away to compare: at most 27 days")
    judged = {name: part(trace, fit, 1.0) if fit else trace for name, trace in traces.items()}
    offers = [job.spot_price] if pools is Pools.APART else list(prices or [job.spot_price] * len(judged))
    if len(offers) != (1 if pools is Pools.APART else len(judged)):
        recordings = plural(len(judged), "recording")
        raise InputError(f"--prices: expected a price of spot for each of {recordings}, and one of on-demand")
    if pools is Pools.APART:
        market = windows_of(judged, ticks * TICK, each=-(-windows // len(judged)), seed=seed)
    else:
        market = pools_of(judged, ticks * TICK, each=windows, seed=seed)
    hazards = learned(hazards_of([part(trace, 0.0, fit) for trace in traces.values()])) if fit else SHIPPED
    whole = job.work * job.on_demand_price / 3600.0
    floor = cheapest(job, market, offers) / whole
    spot, limits = [Pool(price, hazards.up) for price in offers], Limits(job.overhead)
    lines = []
    for name in dict.fromkeys(policies or POLICIES):
        found = simulate(decider(name, job, spot, limits, hazards), job, market, hazards=hazards)
        paid = float(found.spot.sum() + found.on_demand.sum())
        lines.append(
            Line(
                name,
                _DECIDED_BY[name == OURS],
                distribution(found.cost / whole),
                float((found.cost / whole).mean() - floor.mean()),
                float(found.late.mean()),
                float(found.spot.sum()) / paid if paid else 0.0,
                float(found.launches.mean()),
            )
        )
    length = ticks * TICK
    seconds = [trace.length for trace in judged.values()]
    worth = max(1, int((sum(seconds) if pools is Pools.APART else min(seconds)) / length))
    return Comparison(
        job, tuple(traces), pools, tuple(offers), market.size, worth, market.availability(), fit, distribution(floor),
        tuple(lines), tuple(_warnings(job, market, min(offers))),
    )  # fmt: skip


_DECIDED_BY = ("spotwright.deadlines.job_policies", "spotwright.deadlines.choice")


def _warnings(job: Job, market: Windows, spot: float) -> list[str]:
    warnings = []
    if not job.is_possible:
        nearest = nearest_deadline(job)
        warnings.append(
            f"the deadline of {format_duration(job.deadline)} cannot be met: on-demand alone takes {format_duration(nearest)}, "
            f"{format_duration(nearest - job.deadline)} more; the nearest deadline that can be promised is "
            f"{format_duration(nearest)}"
        )
    if not np.asarray(market.up).any():
        warnings.append("these windows have no spot: every policy ends on on-demand")
    if spot >= job.on_demand_price:
        warnings.append("spot does not cost less than on-demand here")
    return warnings


def comparison_text(comparison: Comparison) -> str:
    """The comparison as a table, the cheapest policy first."""
    rows = [_row(line) for line in sorted(comparison.lines, key=lambda line: line.cost.mean)]
    rows.append(["cheapest possible", *_costs(comparison.floor), "", "", "", ""])
    parts = [
        [*wrapped(_title(comparison)), *wrapped(_market(comparison))],
        [line for each in comparison.warnings for line in wrapped(each, indent="Warning ", hang=" " * 8)],
        table(
            Rows(
                ["Policy", "Mean cost", "p50", "p90", "p99", "Above the cheapest", "Late", "On spot", "Launches"],
                rows,
                "lrrrrrrrr",
                ("p50", "Launches", "On spot", "p90"),
            )
        ),
        list(wrapped(_words(comparison))),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _title(comparison: Comparison) -> str:
    job, least, most = comparison.job, min(comparison.prices), max(comparison.prices)
    if most <= 0:
        price = "spot is free"
    elif least == most:
        price = f"on-demand at {job.on_demand_price / most:.3g} times the price of spot"
    else:
        price = f"on-demand at {job.on_demand_price:g} an hour, spot at {', '.join(f'{each:g}' for each in comparison.prices)}"
    return f"{length(job.work)} of work, deadline {length(job.deadline)}, changeover {length(job.overhead)}, {price}"


def _market(comparison: Comparison) -> str:
    names = ", ".join(comparison.traces[:3]) + (", ..." if len(comparison.traces) > 3 else "")
    together = comparison.pools is Pools.TOGETHER
    pools = f" as {plural(len(comparison.traces), 'spot pool')} of one job" if together else ""
    return (
        f"{plural(comparison.windows, 'window')} of {names}{pools}, worth about {comparison.worth:,} that do not overlap; spot "
        f"{comparison.availability:.0%} of the time{' in each pool' if together else ''}"
    )


def _row(line: Line) -> list[str]:
    gap = f"{line.gap * 100:.1f} points"
    return [line.name, *_costs(line.cost), gap, share(line.late), share(line.spot), f"{line.launches:.1f}"]


def _costs(cost: Any) -> list[str]:
    return [f"{value:.1%}" for value in (cost.mean, cost.p50, cost.p90, cost.p99)]


def _words(comparison: Comparison) -> str:
    if comparison.fit:
        hazards = f"the hazards of the first {comparison.fit:.0%} of each recording, windows from the rest"
    else:
        hazards = "the shipped hazards"
    return (
        f"Costs are shares of the work on on-demand alone, paid by the second. {OURS} is what decides in a run with a deadline "
        f"({_DECIDED_BY[1]}), here with {hazards}; the other policies are formulas ({_DECIDED_BY[0]}). All of them have the same "
        "safety rule. The cheapest possible knows the future."
    )


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison for machines. Durations are seconds, costs are shares of the work's cost on on-demand.

    - ``comparison``: the version of this document, 1; ``job`` (``work``, ``deadline``, ``overhead``, ``spot_price``,
      ``on_demand_price``), ``traces``, ``pools`` (``apart`` or ``together``), ``prices`` of spot, ``windows``, ``worth``
      (non-overlapping windows), ``availability``, ``fit``;
    - ``policies``: ``name``, ``decided_by`` (the module that decided), ``cost`` (a distribution), ``gap`` to the mean of the
      cheapest possible, ``late`` and ``spot`` (shares), ``launches`` (their mean number);
    - ``cheapest``: the distribution of the cheapest possible cost; ``warnings``: sentences.
    """
    return {
        "comparison": 1,
        "job": comparison.job._asdict(),
        "traces": list(comparison.traces),
        "pools": str(comparison.pools),
        "prices": list(comparison.prices),
        "windows": comparison.windows,
        "worth": comparison.worth,
        "availability": comparison.availability,
        "fit": comparison.fit,
        "policies": [{**line._asdict(), "cost": line.cost._asdict()} for line in comparison.lines],
        "cheapest": comparison.floor._asdict(),
        "warnings": list(comparison.warnings),
    }
