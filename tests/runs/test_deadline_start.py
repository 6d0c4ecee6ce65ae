"""The start of a run with a deadline: an infeasible one is reported, with the shortfall and the nearest feasible one."""

from __future__ import annotations

import pytest
from tests.engine.builders import ON_DEMAND, SPOT, a_config, a_dag, a_fan, a_plan, a_task

from spotwright.engine.plan import Plan
from spotwright.runs.planning import deadline_notes

NOW = 1_800_000_000.0


def a_chain_of(works: dict[str, str], deadline: str) -> Plan:
    tasks = {name: {"expected_duration": work} for name, work in works.items()}
    names = list(works)
    specs = [a_task(name, *names[max(0, index - 1) : index]) for index, name in enumerate(names)]
    return a_plan(specs, a_config(SPOT, ON_DEMAND, policy={"deadline": deadline}, tasks=tasks))


def test_a_deadline_that_can_be_met_needs_no_word() -> None:
    assert list(deadline_notes(a_chain_of({"a": "1h", "b": "1h"}, "2h1m"), NOW)) == []


def test_a_path_that_is_too_long_is_told_with_by_how_much_and_the_nearest_deadline() -> None:
    [note] = deadline_notes(a_chain_of({"a": "1h", "b": "1h"}, "90m"), NOW)
    assert "the longest path through a takes 2h00m with a launch, 30m02s too long" in note
    assert "the nearest deadline that can be met is 2h00m after the start" in note


def test_work_inside_a_pipeline_counts() -> None:
    config = a_config(policy={"deadline": "90m"}, tasks={"inner/*": {"expected_duration": "1h"}})
    plan = a_plan([a_task("inner", dag="inside")], config, inside=a_dag(a_task("x"), a_task("y", "x"), out="y"))
    assert len(list(deadline_notes(plan, NOW))) == 1


@pytest.mark.parametrize(("at", "notes"), [("2027-01-15T08:00:00Z", 1), ("2027-01-15T10:00:00Z", 0)])
def test_a_moment_is_measured_from_now(at: str, notes: int) -> None:
    """1,800,000,000 is 2027-01-15 08:00 UTC."""
    assert len(list(deadline_notes(a_chain_of({"a": "1h"}, at), NOW))) == notes


def test_the_boot_of_a_simulated_pool_passes_faster_with_a_time_scale() -> None:
    plan = a_chain_of({"a": "1h"}, "3601s")
    assert [len(list(deadline_notes(plan, NOW, scale))) for scale in (1.0, 2.0)] == [1, 0]


def test_tasks_that_state_no_work_are_named() -> None:
    [note] = deadline_notes(a_plan(a_fan(5), a_config(policy={"deadline": "1h"})), NOW)
    assert note == "tasks without 'expected_duration' run on on-demand under a deadline: t0, t1, t2 and 2 more"


def test_a_run_without_a_deadline_needs_no_word() -> None:
    assert list(deadline_notes(a_plan(a_fan(2)), NOW)) == []
