"""``spotwright run --plan``: the plan lies beside the run, and ``report`` finds it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.building import Param, step
from tests.e2e.project import QUICK, Project

PRICED = QUICK.replace("capacity: spot,", "capacity: spot, price: 1/h,").replace("on-demand,", "on-demand, price: 3/h,")


def adds(number: int) -> int:
    return number + 1


def a_pipeline(project: Project) -> Path:
    project.config(PRICED)
    return project.pipeline({"one": step(adds, {"number": Param("number")})}, {"number": "int"})


def test_a_plan_that_is_given_to_a_run_lies_beside_it_and_report_finds_it(project: Project) -> None:
    pipeline = a_pipeline(project)
    durations = project.write("durations.yaml", "tasks: {one: 10m}\n")
    made = project.spotwright("plan", str(pipeline), "--arg", "number=1", "--durations", str(durations), "--json")
    assert made.code == 0, made
    plan = project.write("plan.json", made.out)

    assert project.run(pipeline, "--arg", "number=1", "--plan", str(plan)).code == 0
    kept = project.state / "runs" / "r" / "forecast.json"
    assert json.loads(kept.read_text(encoding="utf-8")) == made.json()

    planned = project.spotwright("report", "r", "--json").json()["planned"]
    assert (planned["policy"], planned["plan"]) == ("spot", "forecast.json")
    assert 0 < planned["cost"]["actual"] < planned["cost"]["p10"]


def test_a_file_that_is_no_plan_is_refused_before_the_run_begins(project: Project) -> None:
    pipeline = a_pipeline(project)
    done = project.run(pipeline, "--arg", "number=1", "--plan", str(project.write("plan.json", "{}")))
    assert done.code == 2
    [line] = done.error_lines
    assert "expected what 'spotwright plan PIPELINE --json' prints" in line
    assert not (project.state / "runs").exists()
