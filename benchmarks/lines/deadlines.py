"""Deadlines: what the policy of a run costs beside its comparisons and the cheapest possible, and how fast all of it is computed.

The recordings are read from the folder that ``SPOTWRIGHT_TRACES`` names, else from ``../shared/traces`` beside the repository;
they are not ours and not part of it. Without them only the lines about speed are measured.

The settings are those of the public benchmark of this problem: a job of 48 h, deadlines of 52 h and 70 h, overheads of 3 and 12
minutes. Costs are means over these four, in percent of 48 h on on-demand, paid by the second. The shipped hazards were fitted on
the first 60 % of each recording; windows come from the rest. ``spotwright`` is the function that decides in a run
(:mod:`spotwright.deadlines.choice`); the other policies are formulas (:mod:`spotwright.deadlines.job_policies`) under the same
safety rule.

On a bad day a job is told wrong figures, and finds out in its first launch, or after ten minutes of work. A late run was
avoidable if on-demand could have finished in time from the moment when the truth was first seen.

Times are of this process on the processor, because a machine that does other work too would count it otherwise.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench import Bench
from results import Judged, Row
from tests.simulation.run import SimulatedRun
from tests.simulation.run import simulate as simulate_runs
from tests.simulation.simulated_attempts import AttemptStart, Behavior

from spotwright.config import Config
from spotwright.config.sections import load_trace
from spotwright.deadlines.choice import Limits, Pool, Situation
from spotwright.deadlines.cost_table import solve
from spotwright.deadlines.job_policies import FORMULAS
from spotwright.deadlines.jobs import Action, Job
from spotwright.engine.plan import Plan
from spotwright.forecast.deadline_jobs import AS_STATED, Conditions, Results, cheapest, simulate
from spotwright.forecast.forecast import Forecast, Question, make
from spotwright.forecast.markets import Source
from spotwright.forecast.policy_comparison import OURS, POLICIES, decider
from spotwright.forecast.tasks import Offer, Tasks, TaskToCome
from spotwright.graph import Dag, TaskGraph, TaskSpec
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.pipeline_graph import KFP
from spotwright.market import TICK, MarketModel, Windows, drawn, part, pools_of, windows_of
from spotwright.model.policy import Policy as TaskPolicy
from spotwright.model.policy import Spot, parse_policy
from spotwright.model.pools import Capacity, Simulate, Trace
from spotwright.model.pools import Pool as NodePool

__all__ = ["deadlines"]

_HOUR = 3600.0
_WORK, _ON_DEMAND, _SPOT = 48.0, 3.06, 0.9731
_SETTINGS = [(deadline, overhead) for deadline in (52.0, 70.0) for overhead in (0.05, 0.20)]
_FIT = 0.6
_LIMITS = {"us-east-1": 5.5}  # points above the cheapest possible; elsewhere 3.5


def deadlines(bench: Bench) -> Iterator[Row]:
    """Costs on recordings, where there are any, and speed."""
    traces = {name: part(trace, _FIT, 1.0) for name, trace in _recordings().items()}
    if traces:
        each = 10 if bench.quick else 30
        yield from _single(traces, each)
        yield from _pools(traces, each)
        yield from _bad_days(traces, each)
        yield from _engine(traces, 1 if bench.quick else 3)
    yield from _speed(bench)
    yield from _plans(bench)


def _recordings() -> dict[str, Trace]:
    given = os.environ.get("SPOTWRIGHT_TRACES")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "traces"
    files = sorted(folder.glob("availability_1-node_*.json"))
    return {file.stem.split("_")[3]: load_trace(file) for file in files}


def _job(deadline: float, overhead: float) -> Job:
    return Job(_WORK * _HOUR, deadline * _HOUR, overhead * _HOUR, _SPOT, _ON_DEMAND)


def _run(policy: str, job: Job, windows: Windows, day: Conditions = AS_STATED) -> Results:
    return simulate(decider(policy, job, [Pool(_SPOT)] * windows.pools, Limits(job.overhead)), job, windows, day)


class _Means(NamedTuple):
    """Means over the settings: the cost by policy, in percent of on-demand, and the number of late runs of all of them."""

    costs: dict[str, float]
    late: int


def _means(windows_for: Callable[[float], Windows]) -> _Means:
    costs, late = dict.fromkeys([*POLICIES, "cheapest"], 0.0), 0
    for deadline, overhead in _SETTINGS:
        job, windows = _job(deadline, overhead), windows_for(deadline * _HOUR)
        for policy in POLICIES:
            results = _run(policy, job, windows)
            costs[policy] += _percent(results.cost)
            late += int(results.late.sum())
        costs["cheapest"] += _percent(cheapest(job, windows))
    return _Means(costs, late)


def _percent(cost: Any) -> float:
    return float(cost.mean()) / (_WORK * _ON_DEMAND) * 100.0 / len(_SETTINGS)


def _single(traces: Mapping[str, Trace], each: int) -> Iterator[Row]:
    """One zone at a time."""
    costs, late = _means(lambda length: windows_of(traces, length, each=each))
    what = f"mean cost, {len(traces)} zones one at a time"
    yield from _beside("deadline", what, costs)
    ours, formula = costs[OURS], "uniform-progress-0"
    yield Row("deadline", f"{what}, {OURS}", [ours], "%", Judged.DIFFERENCE, -1.3, formula, [costs[formula]])
    yield Row(
        "deadline", f"{what}, {OURS}", [ours], "%", Judged.DIFFERENCE, 3.0, "the cheapest possible", [costs["cheapest"]]
    )
    yield Row("deadline", "late runs of all policies", [float(late)], "runs", Judged.VALUE, 0.0)


def _beside(line: str, what: str, costs: Mapping[str, float]) -> Iterator[Row]:
    for policy in [*FORMULAS, "cheapest"]:
        yield Row(line, f"{what}, {policy}", [costs[policy]], "%")


def _pools(traces: Mapping[str, Trace], each: int) -> Iterator[Row]:
    """The zones of a region, and all of them, as the pools of one job."""
    groups: dict[str, dict[str, Trace]] = {}
    for name, trace in traces.items():
        groups.setdefault(name[:-1], {})[name] = trace
    late = 0
    for group, zones in {**groups, "all": dict(traces)}.items():
        costs, more = _means(partial(pools_of, zones, each=each))
        late += more
        what = f"mean cost, {group}: {len(zones)} zones as pools"
        yield from _beside("pools", what, costs)
        ours, limit = [costs[OURS]], _LIMITS.get(group, 3.5)
        yield Row(
            "pools",
            f"{what}, {OURS}",
            ours,
            "%",
            Judged.DIFFERENCE,
            limit,
            "the cheapest possible",
            [costs["cheapest"]],
        )
    yield Row("pools", "late runs of all policies", [float(late)], "runs", Judged.VALUE, 0.0)


class _Day(NamedTuple):
    """A bad day: what the job states in place of the truth, what it meets, and what both are called."""

    what: str
    states: Callable[[Job], Job]
    meets: Callable[[Job], Conditions]


_BAD_DAYS = (
    _Day(
        "launches twice as long as stated",
        lambda job: job,
        lambda job: Conditions(launch=2.0 * job.overhead),
    ),
    _Day(
        "a fifth more work than stated",
        lambda job: job._replace(work=job.work * 0.8),
        lambda job: Conditions(work=job.work, shown=600.0),
    ),
    _Day(
        "looks at another phase than the market",
        lambda job: job,
        lambda _: Conditions(every=600.0, phase=290.0),
    ),
)


def _bad_days(traces: Mapping[str, Trace], each: int) -> Iterator[Row]:
    """Wrong figures, beside the same policy when it is told the truth."""
    for day in _BAD_DAYS:
        for policy in (OURS, "greedy"):
            cost = told = 0.0
            late = hopeless = 0
            for deadline, overhead in _SETTINGS:
                job, windows = _job(deadline, overhead), windows_of(traces, deadline * _HOUR, each=each)
                meets = day.meets(job)
                results = _run(policy, day.states(job), windows, meets)
                cost += _percent(results.cost)
                late += int((results.late & ~results.hopeless).sum())
                hopeless += int((results.late & results.hopeless).sum())
                truth = job if meets.launch is None else job._replace(overhead=meets.launch)
                told += _percent(_run(policy, truth, windows).cost)
            judged = (Judged.RATIO, 1.1) if policy == OURS else (Judged.NOTHING, 0.0)
            yield Row("bad day", f"{day.what}, {policy}", [cost], "%", *judged, "told the truth", [told])
            yield Row(
                "bad day",
                f"{day.what}, {policy}, late",
                [float(late)],
                "runs",
                Judged.VALUE,
                0.0,
                "that were not avoidable",
                [float(hopeless)],
            )


def _engine(traces: Mapping[str, Trace], each: int) -> Iterator[Row]:
    """The engine of a run itself, in virtual time: its attempts, nodes, looks, margins and grace, beside the function alone."""
    costs, alone, late = 0.0, 0.0, 0
    for deadline, overhead in _SETTINGS:
        job, windows = _job(deadline, overhead), windows_of(traces, deadline * _HOUR, each=each)
        ended = [_engine_run(job, tuple(map(int, windows.up[0, :, index]))) for index in range(windows.size)]
        costs += _percent(np.array([cost for cost, _ in ended]))
        late += sum(finish > job.deadline + 1.0 for _, finish in ended)
        alone += _percent(_run(OURS, job, windows).cost)
    what = f"mean cost, {len(traces)} zones one at a time, the engine of a run, {each} windows a zone"
    yield Row("engine", what, [costs], "%", Judged.DIFFERENCE, 1.0, "its function alone", [alone])
    yield Row("engine", "late runs of the engine", [float(late)], "runs", Judged.VALUE, 0.0)


def _engine_run(job: Job, up: tuple[int, ...]) -> tuple[float, float]:
    """The cost of one run of the engine, and its end in seconds. It saves every minute, and when it is told to end."""
    boots: dict[str, Any] = {"boot": job.overhead, "simulate": Simulate(boot=job.overhead), "node": None}
    pools = {
        "spot": NodePool("spot", Capacity.SPOT, price=Fraction(str(job.spot_price)), **boots),
        "on-demand": NodePool("on-demand", Capacity.ON_DEMAND, price=Fraction(str(job.on_demand_price)), **boots),
    }
    says = {
        "spot": "prefer",
        "checkpoint": "pvc://saves",
        "deadline": f"{job.deadline:.0f}s",
        "work": f"{job.work:.0f}s",
    }
    config = Config(1, "USD", {}, pools, parse_policy(says, "bench"), (), "spotwright.yaml", "")
    spec = TaskSpec("train", "train", executor=PythonComponent("def train(): ...", "train"))
    dag = Dag("train", tasks={"train": spec})
    plan = Plan(TaskGraph("train", dag, {"root": dag}, dialect=KFP), config)

    def does(start: AttemptStart) -> Behavior:
        left = job.work * (1.0 - start.saved)
        saves = max(1, int(left / 60.0))
        return Behavior(
            left, reports=saves, done_before=start.saved, checkpoint_every=left / saves * (1 - 1e-9), saves_on_sigterm=True,
            stops_in=1.0,
        )  # fmt: skip

    trace = Trace(TICK, up)
    state = simulate_runs([SimulatedRun("bench", plan, does)], pools, traces={"spot": trace})["bench"]
    cost = 0.0
    for attempt in state.tasks["train"].attempts:
        if attempt.pool is not None and attempt.node is not None and attempt.ended_at is not None:
            begin = max(attempt.rung_at, state.nodes[attempt.node].booted_at)
            cost += (attempt.ended_at - begin) / _HOUR * float(pools[attempt.pool].price or 0)
    return cost, (state.finished_at or math.inf) - state.started_at


def _speed(bench: Bench) -> Iterator[Row]:
    rounds, size = (3, 10_000) if bench.quick else (7, 10_000)
    job = _job(70.0, 0.20)
    table = solve(job)
    solved = [_spent(lambda: solve(job)) * 1e3 for _ in range(rounds)]
    yield Row("solve", "one table, 48 h of work in 70 h", solved, "ms", Judged.VALUE, 50.0, best=True)
    yield Row("solve", "its size", [table.size / 1e6], "MB", Judged.VALUE, 3.0)
    pools, limits = [Pool(_SPOT + 0.1 * index) for index in range(8)], Limits(job.overhead)
    ours, now = decider(OURS, job, pools, limits), _situation(len(pools))
    decided = [_spent(lambda: [ours.choose(now) for _ in range(100)]) * 10.0 for _ in range(rounds)]
    yield Row("solve", "one decision with eight pools", decided, "ms", Judged.VALUE, 5.0, best=True)
    windows = drawn(MarketModel(), 70.0 * _HOUR, size, seed=1)
    for policy, least in ((OURS, 2_000.0), ("uniform-progress", 2_000.0), ("greedy", 2_000.0)):
        rates = [-size / _spent(lambda policy=policy: _run(policy, job, windows)) for _ in range(min(3, rounds))]
        what = f"simulated jobs a second, {policy}"
        yield Row("jobs", what, [-min(rates)], "/s", Judged.VALUE, least, at_least=True)
    few = windows.some(list(range(20)))
    floor = [_spent(lambda: cheapest(job, few)) / 20 * 1000.0 for _ in range(rounds)]
    yield Row("jobs", "cheapest possible cost of one window", floor, "ms", Judged.VALUE, 10.0, best=True)


def _situation(pools: int) -> Situation:
    """One job on on-demand, with a pool in two up."""
    up = np.arange(pools)[:, None] % 2 == 0
    one = np.ones(1)
    return Situation(
        40.0 * _HOUR * one, 24.0 * _HOUR * one, 24.0 * _HOUR * one, np.array([Action.ON_DEMAND]), np.array([0]), 0.0 * one,
        up, np.full((pools, 1), 9000.0),
    )  # fmt: skip


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
        "spot": NodePool("spot", Capacity.SPOT, price=Fraction(str(_SPOT))),
        "on-demand": NodePool("on-demand", Capacity.ON_DEMAND, price=Fraction(str(_ON_DEMAND))),
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
