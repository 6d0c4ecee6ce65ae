"""A pipeline that the local engine really runs on a market, compressed in time, ends within what the simulation foretells."""

from __future__ import annotations

import json
import time
from typing import NamedTuple

import pytest
from tests.e2e.building import Of, step
from tests.e2e.project import Project
from tests.simulation.run import SimulatedRun, simulate
from tests.simulation.simulated_attempts import TaskWork, WorkModel

from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.kfp.loader import load
from spotwright.market import MarketModel, drawn
from spotwright.model.pools import Trace
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.runs.bodies import is_alive
from spotwright.runs.planning import plan_run
from spotwright.runs.run_options import PlanOptions
from spotwright.views.account import account

SCALE = 1200.0  # 20 minutes of the market in a second
WORK = 3.0  # real seconds of each of the two tasks: an hour of the market
DEADLINE = 22.0  # more than seven hours
STEPS = 30
WINDOWS = 40
TICK = 600.0
POOLS = """
pools:
  spot: {capacity: spot, price: 1/h, node: {cpu: 8}, notice: 30s, simulate: {boot: 3m, trace: market.json}}
  od: {capacity: on-demand, price: 3/h, node: {cpu: 8}, simulate: {boot: 3m}}
policy:
  default: {deadline: 22s, expected_duration: 4500ms, grace_period: 2m, checkpoint: pvc://saved, interruptions: {max: 50}}
"""


def works(number: int) -> int:
    """Three seconds of work in thirty steps, each saved and reported."""
    import os
    import time
    from pathlib import Path

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"]) / "steps"
    progress = Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"])
    done = int(saved.read_text()) if saved.exists() else 0
    while done < 30:
        time.sleep(0.1)
        done += 1
        beside = saved.with_suffix(".new")
        beside.write_text(str(done))
        beside.replace(saved)
        progress.write_text(str(done / 30))
    return number


class End(NamedTuple):
    """The result of a run: real seconds from its start, and the cost of its nodes."""

    seconds: float
    cost: float


def traces() -> list[Trace]:
    """Windows of a market that is lost once in two hours and there for three quarters of the time."""
    windows = drawn(MarketModel(rate=0.5, availability=0.75), 12 * 3600.0, WINDOWS, seed=11, tick=TICK)
    return [Trace(TICK, tuple(int(up) for up in windows.up[0, :, index])) for index in range(WINDOWS)]


def foretold(plan: Plan, trace: Trace, seed: int) -> End:
    work = TaskWork(WORK + 0.1, start_up=0.1, reports=STEPS, checkpoint_every=WORK / STEPS, stops_in=0.05)
    run = SimulatedRun("run", plan, WorkModel(lambda _: work, seed), seed=seed)
    pools = plan.config.pools
    return end_of(simulate([run], pools, seed=seed, scale=SCALE, start=1.8e9, traces={"spot": trace})["run"])


def end_of(state: RunState) -> End:
    assert state.finished_at is not None
    money = account(state).whole.money
    assert money is not None
    return End(state.finished_at - state.started_at, float(money))


@pytest.mark.long
def test_real_runs_on_a_compressed_market_end_within_the_foretold_distribution(project: Project) -> None:
    market = traces()
    project.config(POOLS)
    pipeline = project.pipeline({"first": step(works, {"number": 1}), "second": step(works, {"number": Of("first")})})
    project.write("market.json", json.dumps({"metadata": {"gap_seconds": TICK}, "data": list(market[0].counts)}))
    options = PlanOptions(arguments={}, textual=True, config=project.folder / "spotwright.yaml")
    plan = plan_run(load(pipeline), options).stored.plan
    began = time.monotonic()
    ends = [foretold(plan, trace, seed) for seed, trace in enumerate(market)]
    assert time.monotonic() - began < 120.0
    assert max(end.seconds for end in ends) <= DEADLINE + 1e-3
    assert len({round(end.cost, 6) for end in ends}) > 5  # the market makes a difference
    for index in (0, 1, 2):
        project.write(
            "market.json", json.dumps({"metadata": {"gap_seconds": TICK}, "data": list(market[index].counts)})
        )
        name = f"real-{index}"
        done = project.run(pipeline, "--time-scale", f"{SCALE:g}", "--cache", "off", name=name)
        assert done.code == 0, done.err
        real = end_of(RunReader(StateFolder(project.state).find(name), is_alive).state)
        assert real.seconds <= DEADLINE
        assert min(end.seconds for end in ends) * 0.9 <= real.seconds <= max(end.seconds for end in ends) * 1.1
        assert min(end.cost for end in ends) * 0.9 <= real.cost <= max(end.cost for end in ends) * 1.1
