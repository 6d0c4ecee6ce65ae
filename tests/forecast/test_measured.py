"""Durations that an earlier run measured: read from journals of an earlier version."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotwright.engine.events import TaskStatus
from spotwright.errors import InputError
from spotwright.forecast.tasks import measured
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
