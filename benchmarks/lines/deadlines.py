"""Deadlines: what the learned policy costs beside its comparisons and the cheapest possible, and how fast all of it is computed.

The recordings are read from the folder that ``SPOTWRIGHT_TRACES`` names, else from ``../shared/traces`` beside the repository;
they are not ours and not part of it. Without them only the lines about speed are measured.

The twelve settings are those of the public benchmark of this problem: a job of 48 h, deadlines of 52 h and 70 h, overheads of
0.05 h and 0.20 h, each over the zones with much spot, those with little, and all of them. Costs are shares of 48 h on on-demand,
in percent. The hazards were fitted on the first 60 % of each recording; windows come from the rest.

Times are of this process on the processor, because a machine that does other work too would count it otherwise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from bench import Bench
from results import Judged, Row

from spotwright.config.sections import load_trace
from spotwright.deadlines.hazards import SHIPPED
from spotwright.deadlines.job_policies import FORMULAS, Learned, Policy, decide
from spotwright.deadlines.jobs import Action, Job, Moment
from spotwright.deadlines.solver import solve
from spotwright.forecast.forecast import Forecast, Question, make
from spotwright.forecast.markets import Source
from spotwright.forecast.tasks import Offer, Tasks, TaskToCome
from spotwright.market import MarketModel, Windows, drawn, looks, part, pools_of, windows_of
from spotwright.model.policy import Policy as TaskPolicy
from spotwright.model.policy import Spot
from spotwright.model.pools import Capacity, Pool, Trace
from spotwright.simulation.deadline_jobs import cheapest, compiled, run, simulate

__all__ = ["deadlines"]

_HOUR = 3600.0
_WORK, _ON_DEMAND, _SPOT = 48.0, 3.06, 0.9731
_SETTINGS = [(deadline, overhead) for deadline in (52.0, 70.0) for overhead in (0.05, 0.20)]
_FIT = 0.6
_LIMITS = {"us-east-1": 7.0}  # points above the cheapest possible; elsewhere 3


def deadlines(bench: Bench) -> Iterator[Row]:
    """Costs on recordings, where there are any, and speed."""
    traces = _recordings()
    if traces:
        yield from _single(traces, 10 if bench.quick else 30)
        yield from _pools(traces, 10 if bench.quick else 30)
    yield from _speed(bench)
    yield from _plans(bench)


def _recordings() -> dict[str, Trace]:
    given = os.environ.get("SPOTWRIGHT_TRACES")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "traces"
    files = sorted(folder.glob("availability_1-node_*.json"))
    return {file.stem.split("_")[3]: load_trace(file) for file in files}


def _job(deadline: float, overhead: float) -> Job:
    return Job(_WORK * _HOUR, deadline * _HOUR, overhead * _HOUR, _SPOT, _ON_DEMAND)


def _policies(job: Job) -> list[Policy]:
    return [*FORMULAS.values(), Learned(solve(job))]


def _costs(job: Job, windows: Windows) -> tuple[dict[str, Any], int]:
    """The cost in each window by policy, in percent of on-demand, and how many runs were late."""
    costs, late = {}, 0
    seen = windows.observations(SHIPPED)
    for policy in _policies(job):
        results = simulate(policy, job, windows, observations=seen)
        costs[policy.name] = results.cost / (_WORK * _ON_DEMAND) * 100.0
        late += int(results.late.sum())
    costs["cheapest"] = cheapest(job, windows) / (_WORK * _ON_DEMAND) * 100.0
    return costs, late


def _single(traces: Mapping[str, Trace], each: int) -> Iterator[Row]:
    """One zone at a time, over the twelve settings."""
    judged = {name: part(trace, _FIT, 1.0) for name, trace in traces.items()}
    supply = {name: looks(part(trace, 0.0, _FIT)).mean() for name, trace in traces.items()}
    order = sorted(supply, key=lambda name: float(supply[name]))
    scarce = set(order[: len(order) // 2])
    groups: list[Callable[[str], bool]] = [lambda n: n in scarce, lambda n: n not in scarce, lambda _: True]
    means: dict[str, list[float]] = {}
    late = 0
    for deadline, overhead in _SETTINGS:
        windows = windows_of(judged, deadline * _HOUR, each=each)
        costs, more = _costs(_job(deadline, overhead), windows)
        late += more
        for group in groups:
            chosen = [index for index, name in enumerate(windows.sources) if group(name)]
            for policy, values in costs.items():
                means.setdefault(policy, []).append(float(values[chosen].mean()))
    mean = {policy: sum(values) / len(values) for policy, values in means.items()}
    for policy in [*FORMULAS, "cheapest"]:
        yield Row("deadline", f"mean cost over the 12 settings, {policy}", [mean[policy]], "%")
    ours = [mean["learned"]]
    up = [mean["uniform-progress"]]
    yield Row("deadline", "mean cost, learned", ours, "%", Judged.DIFFERENCE, -3.6, "uniform-progress", up)
    yield Row(
        "deadline", "mean cost, learned", ours, "%", Judged.DIFFERENCE, 2.6, "the cheapest possible", [mean["cheapest"]]
    )
    yield Row("deadline", "late runs of all policies", [float(late)], "runs", Judged.VALUE, 0.0)


def _pools(traces: Mapping[str, Trace], each: int) -> Iterator[Row]:
    """The zones of a region as pools."""
    regions: dict[str, dict[str, Trace]] = {}
    for name, trace in traces.items():
        regions.setdefault(name[:-1], {})[name] = part(trace, _FIT, 1.0)
    for region, zones in regions.items():
        sums: dict[str, float] = {}
        for deadline, overhead in _SETTINGS:
            job, length = _job(deadline, overhead), deadline * _HOUR
            alone, _ = _costs(job, windows_of(zones, length, each=each))
            together, _ = _costs(job, pools_of(zones, length, each=each))
            found = {"one zone": alone["learned"], **together}
            for policy, values in found.items():
                sums[policy] = sums.get(policy, 0.0) + float(values.mean()) / len(_SETTINGS)
        what = f"mean cost, {region}: {len(zones)} zones as pools"
        ours, limit = [sums["learned"]], _LIMITS.get(region, 3.0)
        for policy in ("eager", "uniform-progress"):
            yield Row("pools", f"{what}, {policy}", [sums[policy]], "%")
        yield Row("pools", what, ours, "%", Judged.DIFFERENCE, limit, "the cheapest possible", [sums["cheapest"]])
        if region == "us-east-1":
            yield Row("pools", what, ours, "%", Judged.DIFFERENCE, -20.0, "one zone at a time", [sums["one zone"]])


def _speed(bench: Bench) -> Iterator[Row]:
    rounds, size = (3, 10_000) if bench.quick else (7, 10_000)
    job = _job(70.0, 0.20)
    windows = drawn(MarketModel(), 70.0 * _HOUR, size, seed=1)
    solved = [_spent(lambda: solve(job)) for _ in range(rounds)]
    yield Row("solve", "one policy, 48 h of work in 70 h", solved, "s", Judged.VALUE, 0.2, best=True)
    learned = Learned(solve(job))
    moment = Moment(40.0 * _HOUR, 24.0 * _HOUR, Action.SPOT, 0.0, up=True, age=9000.0)
    decided = [_spent(lambda: [decide(learned, job, moment, 600.0) for _ in range(1000)]) * 1e3 for _ in range(rounds)]
    yield Row("solve", "one decision", decided, "us", Judged.VALUE, 50.0, best=True)
    seen = windows.observations()
    for policy, least in (
        (learned, 300_000.0),
        (FORMULAS["uniform-progress"], 100_000.0),
        (FORMULAS["greedy"], 100_000.0),
    ):
        tables = compiled(policy, job, windows.tick)
        rates = [-size / _spent(lambda tables=tables: run(tables, windows, seen)) for _ in range(rounds)]
        yield Row(
            "jobs",
            f"simulated jobs a second, {policy.name}",
            [-min(rates)],
            "/s",
            Judged.VALUE,
            least,
            at_least=True,
        )
    few = windows.some(list(range(20)))
    floor = [_spent(lambda: cheapest(job, few)) / 20 * 1000.0 for _ in range(rounds)]
    yield Row("jobs", "cheapest possible cost of one window", floor, "ms", Judged.VALUE, 10.0, best=True)


def _plans(bench: Bench) -> Iterator[Row]:
    """A whole pipeline on a thousand markets under all policies: in a chain, where no two tasks can be simulated together."""
    rounds = 2 if bench.quick else 5
    for what, width in (("one after the other", 1), ("ten at a time", 10)):
        many, few = ([_spent(partial(_planned, n, width)) for _ in range(rounds)] for n in (100, 10))
        yield Row(
            "plan", f"100 tasks on 1,000 markets, {what}", many, "s", Judged.VALUE, 3.0, "10 tasks", few, best=True
        )


def _planned(count: int, width: int) -> Forecast:
    """The forecast of so many tasks of 20 minutes and more, with a deadline at twice the time that on-demand takes."""
    pools = {
        "spot": Pool("spot", Capacity.SPOT, price=Fraction(str(_SPOT))),
        "on-demand": Pool("on-demand", Capacity.ON_DEMAND, price=Fraction(str(_ON_DEMAND))),
    }
    offers = (Offer("spot", _SPOT, 180.0),), Offer("on-demand", _ON_DEMAND, 180.0)
    tasks = []
    for number in range(count):
        layer = number // width
        after = tuple(range((layer - 1) * width, layer * width)) if layer else ()
        work, name = 1200.0 + 60.0 * (number % 7), f"task-{number}"
        policy = TaskPolicy(spot=Spot.PREFER)
        tasks.append(TaskToCome(name, name, after, work, "given", number % 2 == 0, 30.0, *offers, policy))
    deadline = 2.0 * 1600.0 * count / width
    question = Question("pipeline", deadline, Source(), 1000, 1, 0.99)
    return make(question, Tasks(tuple(tasks), (), ()), pools, "USD", 0.0)


def _spent(work: Callable[[], Any]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before
