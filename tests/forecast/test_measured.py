"""Durations that an earlier run measured: read from journals of an earlier version."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.builders import a_body, a_dag, a_loop, a_plan, a_task
from tests.engine.driving import Run

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.errors import InputError
from spotwright.forecast.tasks import measured
from spotwright.graph import DagInput, Loop
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder

RECORDED = Path(__file__).parents[1] / "records" / "journals" / "format_1" / "state"
RUNS = sorted(path.name for path in (RECORDED / "runs").iterdir() if path.name != "cache-2")  # all of it was cached


def reader(run: str) -> RunReader:
    return RunReader(StateFolder.existing(RECORDED).find(run), lambda _: False)


@pytest.mark.parametrize("run", RUNS)
def test_a_task_that_succeeded_takes_the_time_of_its_last_attempt_on_its_node(run: str) -> None:
    state = reader(run).state
    durations = measured(state, run)
    found = 0
    for task in state.tasks.values():
        if task.status is TaskStatus.SUCCEEDED and len(task.attempts) == 1 and task.cached_from is None:
            attempt, found = task.attempts[0], found + 1
            known = durations.of(task.path, "another", None)
            assert known.source == f"measured in {run}"
            assert 0 < known.work <= (attempt.ended_at or 0.0) - (attempt.bound_at or 0.0)
    assert found


def test_an_attempt_that_went_on_at_half_of_the_work_measures_half_of_it() -> None:
    state = reader(RUNS[0]).state
    task = next(t for t in state.tasks.values() if t.attempts and t.status is TaskStatus.SUCCEEDED)
    before = measured(state, "run").of(task.path, task.path, None).work
    task.attempts.insert(0, task.last)
    task.last.first_progress = 0.5
    known = measured(state, "run").of(task.path, task.plan.spec_path or task.path, None)
    assert known.work == pytest.approx(2 * before)
    assert known.saves


def test_a_run_in_which_nothing_succeeded_is_refused() -> None:
    state = reader(RUNS[0]).state
    state.tasks.clear()
    with pytest.raises(InputError, match="no task of it ran and succeeded"):
        measured(state, "gone")


def test_a_loop_in_a_loop_has_the_iterations_of_its_own_iteration_and_their_mean_for_further_ones() -> None:
    outer = a_loop("outer", items=([1], [1, 2, 3]), dag="each")
    inner = a_task("inner", dag="body", parameters={"items": DagInput("item")}, loop=Loop("item", items="items"))
    run = Run(a_plan([outer], each=a_dag(inner), body=a_body(a_task("train"))))
    assert run.start().status is RunStatus.SUCCEEDED
    durations = measured(run.state, "run")
    assert [durations.iterations(f"outer/inner-{index}", "outer/inner") for index in range(3)] == [1, 3, 2]
