"""A pipeline that the local engine really runs, on a trace whose time passes faster, ends within its planned distribution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.e2e.building import Of, step
from tests.e2e.project import Project, a_project

from spotwright.forecast.tasks import measured
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.runs.bodies import is_alive

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCALE = 300
POOLS = """
pools:
  spot: {{capacity: spot, node: {{cpu: 4}}, price: 1/h, boot: 60s, notice: 0s, simulate: {{boot: 60s, {trace}}}}}
  od: {{capacity: on-demand, node: {{cpu: 4}}, price: 3/h, boot: 60s, simulate: {{boot: 60s}}}}
policy:
  default: {{spot: prefer, pending_timeout: 20m, grace_period: 0s, interruptions: {{max: 5, backoff: 1s}}}}
"""


def first() -> str:
    import time

    time.sleep(1.5)
    return "done"


def second(data: str) -> str:
    import time

    time.sleep(2.5)
    return data


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with a_project(tmp_path) as made:
        yield made


def reader(project: Project, run: str) -> RunReader:
    return RunReader(StateFolder.existing(project.state).find(run), is_alive)


def test_real_runs_end_within_the_planned_distribution(project: Project) -> None:
    pipeline = project.pipeline({"first": step(first), "second": step(second, {"data": Of("first")})})
    chances = Random(4)  # noqa: S311 - a market, not a secret
    states: list[int] = []
    while len(states) < 600:
        states += [4] * chances.choice([1, 2, 4, 9]) + [0] * chances.choice([1, 2, 4])
    trace = project.write("zone.json", json.dumps({"metadata": {"gap_seconds": 600}, "data": states}))

    project.write("always.json", json.dumps({"metadata": {"gap_seconds": 600}, "data": [4]}))
    project.config(POOLS.format(trace="trace: always.json"))
    assert project.run(pipeline, "--time-scale", str(SCALE), "--cache", "off", name="quiet").code == 0
    works = measured(reader(project, "quiet").state, "quiet")
    lines = {task: {"work": f"{works.of(task, task, None).work * SCALE:.0f}s"} for task in ("first", "second")}
    durations = project.write("durations.json", json.dumps({"tasks": lines}))
    options = ("--trace", str(trace), "--durations", str(durations), "--json")
    planned = json.loads(project.here("plan", str(pipeline), *options).out)["policies"][1]

    for number, start in enumerate(("7h", "29h", "53h")):
        project.config(POOLS.format(trace=f"trace: zone.json, start: {start}"))
        name = f"real-{number}"
        assert project.run(pipeline, "--time-scale", str(SCALE), "--cache", "off", name=name).code == 0
        state = reader(project, name).state
        end = ((state.finished_at or 0.0) - state.started_at) * SCALE
        assert 0.9 * planned["finish"]["p10"] <= end <= 1.1 * planned["finish"]["p99"], (start, end, planned["finish"])
