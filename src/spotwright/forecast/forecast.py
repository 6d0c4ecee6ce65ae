"""Makes a forecast: runs the tasks through the markets under every policy, and picks the best policy.

The best policy has the lowest mean cost among the policies that a run can follow and that meet the requirement: the run ends,
and by its deadline, in the share of markets given by the certainty. If none meets it, the best policy is the one that is late
least often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spotwright.errors import InputError
from spotwright.forecast.markets import Outcomes, Source, Supply, simulate, supply_of
from spotwright.forecast.rules import OnDemand, Patient, Rule, SpotFirst, UnderDeadline, UniformProgressRule
from spotwright.forecast.tasks import Tasks, TaskToCome, some
from spotwright.model.not_judged import NotJudged
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration

__all__ = [
    "DEADLINE",
    "ON_DEMAND",
    "SPOT",
    "UNIFORM_PROGRESS",
    "Bins",
    "Distribution",
    "Forecast",
    "Market",
    "PolicyForecast",
    "Question",
    "TaskForecast",
    "best_interval",
    "bins",
    "distribution",
    "make",
]


class Distribution(NamedTuple):
    """A figure over all markets: its mean and its 10th, 50th, 90th and 99th percentiles.

    Infinite if the run does not end in enough markets.
    """

    mean: float
    p10: float
    p50: float
    p90: float
    p99: float


class Bins(NamedTuple):
    """A histogram over all markets: 41 edges and the counts of the 40 bins between them; ``beyond`` counts infinite values."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    beyond: int = 0


class PolicyForecast(NamedTuple):
    """One policy. ``finish`` is in seconds from the start, ``late`` the share of markets in which the deadline is missed.

    ``late`` is ``None`` without a deadline; ``fails`` is the share of markets in which the run does not end. ``spot`` is spot's
    share of the cost. ``points`` are costs and ends of some markets, for a picture; ``cost_bins`` and ``finish_bins`` count all
    markets.
    """

    name: str
    cost: Distribution
    finish: Distribution
    late: float | None
    fails: float
    interruptions: float
    spot: float
    points: tuple[tuple[float, float], ...]
    cost_bins: Bins
    finish_bins: Bins


class TaskForecast(NamedTuple):
    """One task, or all iterations of one in a loop (``times``); durations in seconds, costs are means of one iteration.

    ``every`` is the work between two saves (``None``: it does not save, infinite: saving does not pay). ``budget`` is the
    number of interruptions that it does not exceed with the chosen certainty, on spot alone.
    """

    path: str
    times: int
    work: float
    source: str
    every: float | None
    save: float
    budget: int
    on_demand_cost: float | None
    spot_cost: float | None

    @property
    def cheaper_on_demand(self) -> bool:
        """Whether on-demand costs less than spot with its interruptions."""
        return self.on_demand_cost is not None and self.spot_cost is not None and self.on_demand_cost < self.spot_cost


class Market(NamedTuple):
    """The supply of one spot pool over all markets: the share of time with spot, and losses per hour with spot."""

    pool: str
    availability: float
    losses_an_hour: float


class Forecast(NamedTuple):
    """A forecast. Costs are in ``currency``; empty: relative to an hour on on-demand, because a pool has no price.

    ``best`` is the name of the best policy and ``why`` the reason. ``budget`` is the ``interruptions.max`` that ``certainty``
    needs. ``nearest`` is the shortest deadline that can be guaranteed, in seconds. ``deadline_costs`` is the mean cost with the
    deadline minus that of the cheapest policy without one. ``prices`` have each price's source. ``not_judged``: the pools that
    may or may not have room for the tasks.
    """

    pipeline: str
    currency: str
    price_source: str
    deadline: float | None
    seed: int
    markets: int
    supply: str
    pools: tuple[Market, ...]
    policies: tuple[PolicyForecast, ...]
    best: str
    why: str
    certainty: float
    budget: int
    nearest: float
    without_deadline: float | None
    deadline_costs: float | None
    tasks: tuple[TaskForecast, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    prices: tuple[str, ...]
    not_judged: tuple[NotJudged, ...] = ()

    def policy(self, name: str) -> PolicyForecast:
        """A policy by name."""
        return next(policy for policy in self.policies if policy.name == name)


def distribution(values: Any) -> Distribution:
    """The distribution of an array. A quantile is a value of the array, so that an infinite value does not spoil others."""
    found = np.quantile(values, (0.1, 0.5, 0.9, 0.99), method="higher")
    return Distribution(float(np.mean(values)), *(float(value) for value in found))


def bins(values: Any) -> Bins:
    """The histogram of an array, from its least to its greatest finite value; equal values are all in the first bin."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    counts, edges = np.histogram(finite, _BINS, (low, high if high > low else low + 0.01 * (abs(low) or 1.0)))
    return Bins(tuple(map(float, edges)), tuple(map(int, counts)), len(values) - len(finite))


def best_interval(save: float, rate: float) -> float:
    """The best work time between saves of ``save`` seconds each, with ``rate`` losses per second; infinite without losses."""
    if rate <= 0:
        return math.inf
    if save <= 0:
        return 0.0
    x = save * rate
    if x > 30:
        return 1 / rate  # y differs from 1 by less than a float's precision
    # With y = 1 + W(-exp(-x - 1)): y solves y + log1p(-y) = -x. Newton's method from Young's term.
    y = min(math.sqrt(2 * x), 1 - 0.5 * math.exp(-x - 1))
    for _ in range(60):
        step = (y + math.log1p(-y) + x) * (1 - y) / y
        y += step
        if abs(step) <= 1e-14 * y:
            break
    return y / rate


ON_DEMAND, SPOT, DEADLINE, UNIFORM_PROGRESS = "on-demand", "spot", "deadline", "uniform-progress"
"""The policies of a forecast: on-demand only, spot as configured, the solved policy, and its published counterpart."""

_CRASHES = 1 / (30 * 86400)  # any node fails about once in thirty days
_POINTS = 150
_BINS = 40  # of a histogram
_MOST_CELLS = 3_000_000  # tasks times markets: a policy takes 32 bytes per cell
_SHOWN = 6  # tasks in one warning


class Question(NamedTuple):
    """The parameters of a forecast. ``deadline`` is in seconds from the start, ``certainty`` a share above 0 and below 1."""

    pipeline: str
    deadline: float | None
    source: Source
    markets: int
    seed: int
    certainty: float


def make(question: Question, tasks: Tasks, pools: Mapping[str, Pool], currency: str, now: float) -> Forecast:
    """Forecast a run of these tasks on these pools; ``now`` dates the prices.

    Raises :class:`InputError` for a market that cannot be sampled, a recording of an unused pool, and too many tasks.
    """
    if len(tasks.tasks) * question.markets > _MOST_CELLS:
        most = max(1, _MOST_CELLS // len(tasks.tasks))
        raise InputError(
            f"{len(tasks.tasks):,} tasks in {question.markets:,} markets need too much memory: --markets {most}"
        )
    names = [name for name in pools if any(name == offer.pool for task in tasks.tasks for offer in task.spot)]
    for pool in question.source.pools:
        if pool not in names:
            used = ", ".join(names) or "none"
            raise InputError(
                f"--trace {pool}=...: no task runs on a spot pool of this name; the spot pools here: {used}"
            )
    span = max(_longest(tasks.tasks), question.deadline or 0.0)
    supply = supply_of(question.source, names, span, question.markets, question.seed)
    runs = _Runs(tasks.tasks, supply, names, pools, question)
    nearest = distribution(runs.quickest.finish).p99
    policies = tuple(_policy(name, runs, question.deadline) for name in runs.outcomes)
    best, why = _best(policies, question)
    without = min(float(runs.patient.total.mean()), _mean(runs.quickest), _mean(runs.outcomes[SPOT]))
    with_deadline = next(policy for policy in policies if policy.name == best).cost.mean
    bounded = question.deadline is not None
    return Forecast(
        question.pipeline,
        "" if tasks.unpriced else currency,
        _price_source(pools, names),
        question.deadline,
        question.seed,
        question.markets,
        supply.words,
        tuple(
            Market(name, supply.availability(index), supply.losses_an_hour(index)) for index, name in enumerate(names)
        ),
        policies,
        best,
        why,
        question.certainty,
        int(_needed_budget(runs.patient, question.certainty)),
        nearest,
        without if bounded else None,
        with_deadline - without if bounded else None,
        tuple(_tasks(tasks.tasks, runs, question.certainty)),
        tuple(_warnings(question, nearest, policies, supply, names, tasks)),
        (*tasks.notes, *_without_on_demand(tasks.tasks), *supply.notes, *_crowded(tasks.tasks, runs.quickest, pools)),
        tuple(_prices(tasks, pools, currency, now)),
        tasks.not_judged,
    )


class _Runs:
    """The outcomes of every policy, on the same markets.

    ``quickest`` runs every task on on-demand if it may run there. It is a separate policy if no task needs spot.
    """

    def __init__(
        self,
        tasks: Sequence[TaskToCome],
        supply: Supply,
        names: Sequence[str],
        pools: Mapping[str, Pool],
        question: Question,
    ) -> None:
        self.supply = supply
        rates = np.array([supply.losses_an_hour(index) / 3600.0 for index in range(len(names))] or [0.0])
        self.every = np.array([_interval(task, rates, names) for task in tasks])
        lifetimes = np.array([pools[name].max_lifetime or math.inf for name in names] or [math.inf])
        rules: dict[str, Rule] = {SPOT: SpotFirst(tasks)}
        if question.deadline is not None:
            rules[DEADLINE] = UnderDeadline(tasks, question.deadline)
            rules[UNIFORM_PROGRESS] = UniformProgressRule(tasks, question.deadline)
        self.quickest = simulate(tasks, supply, names, OnDemand(), self.every, lifetimes)
        self.outcomes = {} if any(map(_needs_spot, tasks)) else {ON_DEMAND: self.quickest}
        for name, rule in rules.items():
            self.outcomes[name] = simulate(tasks, supply, names, rule, self.every, lifetimes)
        self.patient = simulate(tasks, supply, names, Patient(), self.every, lifetimes)


def _needs_spot(task: TaskToCome) -> bool:
    """Whether a task can only run on spot."""
    return bool(task.spot) and task.on_demand is None


def _without_on_demand(tasks: Sequence[TaskToCome]) -> Iterator[str]:
    """Why there is no figure for on-demand alone, if there is none."""
    reasons: dict[str, dict[str, None]] = {}
    for task in filter(_needs_spot, tasks):
        reasons.setdefault(task.needs_spot, {})[task.spec_path] = None
    if reasons:
        named = "; ".join(f"{some(list(paths))} {why}" for why, paths in reasons.items())
        yield f"no figure for on-demand only: {named}"


def _interval(task: TaskToCome, rates: Any, names: Sequence[str]) -> float:
    """The seconds of work between two saves of a task; infinite if it does not save or saving does not pay."""
    if not task.saves or not task.spot:
        return math.inf
    every = best_interval(task.save, float(rates[names.index(task.spot[0].pool)]) + _CRASHES)
    return every if every < task.work else math.inf


def _longest(tasks: Sequence[TaskToCome]) -> float:
    """The time of the longest path through the tasks without interruptions, with a boot for each task."""
    ends: list[float] = []
    for task in tasks:
        boot = task.on_demand.boot if task.on_demand is not None else task.overhead
        ends.append(max((ends[earlier] for earlier in task.after), default=0.0) + (task.work and task.work + boot))
    return max(ends, default=0.0)


def _policy(name: str, runs: _Runs, deadline: float | None) -> PolicyForecast:
    outcomes = runs.outcomes[name]
    finish, cost = outcomes.finish, outcomes.total
    late = None if deadline is None else float((finish > deadline + 1e-3).mean())
    spent = float(cost.sum())
    step = max(1, len(cost) // _POINTS)
    points = tuple(
        (float(money), float(end))
        for money, end in zip(cost[::step], finish[::step], strict=True)
        if math.isfinite(end)
    )
    return PolicyForecast(
        name,
        distribution(cost),
        distribution(finish),
        late,
        float(np.isinf(finish).mean()),
        float(outcomes.taken.sum(axis=0).mean()),
        float(outcomes.spot.sum()) / spent if spent else 0.0,
        points,
        bins(cost),
        bins(finish),
    )


def _mean(outcomes: Outcomes) -> float:
    """The mean cost; infinite for a policy under which a run may fail."""
    return float(outcomes.total.mean()) if np.isfinite(outcomes.finish).all() else math.inf


def _needed_budget(patient: Outcomes, certainty: float) -> float:
    """The number of interruptions that no task exceeds with this certainty, on spot alone."""
    return float(np.quantile(patient.taken.max(axis=0), certainty, method="higher"))


def _best(policies: Sequence[PolicyForecast], question: Question) -> tuple[str, str]:
    """The best policy that a run can follow, and the reason."""
    can = [policy for policy in policies if policy.name != UNIFORM_PROGRESS]
    bad = 1.0 - question.certainty
    holding = [policy for policy in can if _risk(policy) <= bad + 1e-9]
    if not holding:
        best = min(can, key=lambda policy: (_risk(policy), policy.finish.p50, policy.cost.mean))
        said = "is in time" if question.deadline is not None else "ends"
        return best.name, f"no policy {said} with a certainty of {question.certainty * 100:g} %; this one comes nearest"
    best = min(holding, key=lambda policy: (round(policy.cost.mean, 9), policy.finish.p50))
    return best.name, "; ".join(_reasons(best, policies, holding, bad))


def _risk(policy: PolicyForecast) -> float:
    """The share of markets in which the run does not end, or is late."""
    return policy.fails if policy.late is None else policy.late


def _reasons(
    best: PolicyForecast, policies: Sequence[PolicyForecast], holding: Sequence[PolicyForecast], bad: float
) -> Iterator[str]:
    can = [policy for policy in policies if policy.name != UNIFORM_PROGRESS]
    on_demand = next((policy for policy in can if policy.name == ON_DEMAND), None)
    if best is on_demand:
        yield "spot costs more here, its interruptions counted" if len(holding) > 1 else "no other policy is in time"
    elif on_demand is None:
        yield "no other policy costs less" if len(can) > 1 else "tasks need spot, so no other policy applies"
    elif on_demand.cost.mean > 0:
        yield f"it costs {1 - best.cost.mean / on_demand.cost.mean:.0%} less than on-demand on average"
    compared = next((policy for policy in policies if policy.name == UNIFORM_PROGRESS), None)
    if compared is not None and _risk(compared) <= bad + 1e-9 and compared.cost.mean < 0.98 * best.cost.mean:
        saved = 1 - compared.cost.mean / best.cost.mean
        yield f"Uniform Progress, which a run cannot choose, would cost {saved:.0%} less"
    for policy in can:
        if policy not in holding and policy.cost.mean < best.cost.mean:
            what = "does not end" if policy.late is None else "is late"
            yield f"{policy.name} costs less, but {what} in {_risk(policy):.1%} of the markets"


def _tasks(tasks: Sequence[TaskToCome], runs: _Runs, certainty: float) -> Iterator[TaskForecast]:
    """A line for each task of the pipeline; iterations of a loop share one."""
    groups: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        if task.spot or task.on_demand is not None:
            groups.setdefault(task.spec_path, []).append(index)
    for path, indexes in groups.items():
        first = tasks[indexes[0]]
        taken = runs.patient.taken[indexes].max(axis=0)
        works = [tasks[index].work for index in indexes]
        every = float(runs.every[indexes[0]])
        yield TaskForecast(
            path,
            len(indexes),
            sum(works) / len(works),
            first.source,
            every if first.saves and first.spot else None,
            first.save,
            int(np.quantile(taken, certainty, method="higher")),
            float(runs.quickest.cost[indexes].mean()) if all(tasks[i].on_demand for i in indexes) else None,
            float(runs.outcomes[SPOT].cost[indexes].mean()) if first.spot else None,
        )


def _warnings(
    question: Question,
    nearest: float,
    policies: Sequence[PolicyForecast],
    supply: Supply,
    names: Sequence[str],
    tasks: Tasks,
) -> Iterator[str]:
    yield from tasks.failing
    deadline = question.deadline
    if deadline is not None and math.isinf(nearest):
        yield "no deadline can be promised: tasks that may run on spot alone do not end in all of the markets"
    elif deadline is not None and nearest > deadline + 1e-3:
        by_all = any(each.name == ON_DEMAND for each in policies)
        quickest = "on-demand alone" if by_all else "on-demand, with spot for tasks that need it,"
        yield (
            f"the deadline of {format_duration(deadline)} cannot be met: {quickest} takes {format_duration(nearest)}, "
            f"{format_duration(nearest - deadline)} more; the nearest deadline that can be promised is {format_duration(nearest)}"
        )
    yield from _about_rate(question.source.rate, tasks.tasks)
    yield from _about_supply(supply, names)
    spot = next(policy for policy in policies if policy.name == SPOT)
    if spot.fails:
        alone = list(dict.fromkeys(task.spec_path for task in tasks.tasks if _needs_spot(task)))
        advice = f"let {some(alone)} fall back to on-demand, or raise" if alone else "raise"
        yield (
            f"with the policy as it is the run fails, or never ends, in {spot.fails:.1%} of the markets: {advice} "
            "interruptions.max and save checkpoints"
        )
    if deadline is not None:
        yield from _unstated(tasks.tasks)
    if tasks.unpriced:
        yield (
            f"{', '.join(tasks.unpriced)} {'has' if len(tasks.unpriced) == 1 else 'have'} no price: costs count an hour "
            "of an on-demand node as 1 and one of spot as a third; set price or prices"
        )
    if question.certainty > 1.0 - 1.0 / max(1, question.markets):
        yield f"{question.markets:,} markets are too few for a certainty of {question.certainty:.4%}; raise --markets"


def _crowded(tasks: Sequence[TaskToCome], outcomes: Outcomes, pools: Mapping[str, Pool]) -> Iterator[str]:
    """Pools that may have too few nodes for concurrent tasks: the plan does not model their waiting for each other."""
    steps: dict[str, list[tuple[float, float]]] = {}
    for index, task in enumerate(tasks):
        end = float(outcomes.end[index, 0])
        start = max((float(outcomes.end[earlier, 0]) for earlier in task.after), default=0.0)
        for offer in (*task.spot[:1], *filter(None, (task.on_demand,))):
            if math.isfinite(end):
                steps.setdefault(offer.pool, []).extend([(start, offer.share), (end, -offer.share)])
    for name, changes in steps.items():
        at_once = most = 0.0
        for _, share in sorted(changes):  # at the same moment, ends before starts
            at_once += share
            most = max(most, at_once)
        if math.ceil(most - 1e-6) > pools[name].max_nodes:
            yield (
                f"up to {math.ceil(most - 1e-6)} nodes of {name} are wanted at once, and max_nodes is {pools[name].max_nodes}: "
                "tasks will wait for each other, which this plan does not count"
            )


def _about_rate(rate: float | None, tasks: Sequence[TaskToCome]) -> Iterator[str]:
    """A question if spot is lost within an hour, as when a percentage was written as a number."""
    if rate is None or rate < 1.0:
        return
    lasts = 3600.0 / rate
    longer = list(dict.fromkeys(task.spec_path for task in tasks if task.spot and task.work > lasts))
    hardly = f", and {some(longer)} {'takes' if len(longer) == 1 else 'take'} longer than that" if longer else ""
    losses = f"{rate:g} {'loss' if rate == 1 else 'losses'}"
    yield (
        f"a rate of {losses} an hour means that spot lasts {format_duration(lasts)} on average{hardly}: if {rate:g} % an hour is "
        f"meant, write {rate:g}%/h"
    )


def _about_supply(supply: Supply, names: Sequence[str]) -> Iterator[str]:
    """Warnings about unusual markets."""
    for index, name in enumerate(names):
        if supply.availability(index) == 0.0:
            yield f"pool {name} never has spot in these markets"
        elif supply.losses_an_hour(index) == 0.0:
            yield f"pool {name} never loses spot in these markets"
    if not names:
        yield "no task may run on spot"


def _unstated(tasks: Sequence[TaskToCome]) -> Iterator[str]:
    """Tasks' settings that a deadline needs and the policy lacks."""
    missing: dict[str, str] = {}
    for task in tasks:
        policy, needs = task.policy, []
        if policy.expected_duration is None:
            needs.append(f"expected_duration: {math.ceil(task.work)}s")
        if task.saves and policy.checkpoint is None:
            needs.append("checkpoint: FOLDER")
        if needs and task.spot and task.on_demand is not None:
            missing[task.spec_path] = f"{task.spec_path!r}: {{{', '.join(needs)}}}"
    if missing:
        more = f", and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        yield (
            "tasks without expected_duration run on on-demand under --deadline; add to policy.tasks: "
            f"{', '.join(list(missing.values())[:_SHOWN])}{more}"
        )


def _price_source(pools: Mapping[str, Pool], names: Sequence[str]) -> str:
    """The source of prices: ``configured``, ``example`` for the built-in pools, or ``mixed``."""
    sources = {pools[name].price_source.value for name in names} or {pool.price_source.value for pool in pools.values()}
    return sources.pop() if len(sources) == 1 else "mixed"


def _prices(tasks: Tasks, pools: Mapping[str, Pool], currency: str, now: float) -> Iterator[str]:
    """The price of each used pool, with its source and age."""
    used = {offer.pool for task in tasks.tasks for offer in (*task.spot, *filter(None, (task.on_demand,)))}
    for name, pool in pools.items():
        if name in used and pool.price is not None:
            origin = pool.quote.origin(now) if pool.quote is not None else f"{pool.price_source} in spotwright.yaml"
            example = pool.price_source.value == "example"
            yield f"{name} {float(pool.price):g} {currency}/h ({'an example, no offer' if example else origin})"
