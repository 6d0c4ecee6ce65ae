"""A budget has room for a trial or not, and the report says which one would do."""

from __future__ import annotations

import json
import sys

import pytest
from tests.e2e.project import Project

from spotwright.rehearsal.rehearsal_settings import TrialBudget


@pytest.mark.parametrize(("elapsed", "is_trial", "has_room"), [(20, True, True), (21, True, False), (40, False, True)])
def test_what_would_end_after_the_budget_does_not_start(elapsed: float, is_trial: bool, has_room: bool) -> None:
    assert TrialBudget(60.0, undisturbed=20.0).has_room(elapsed, is_trial=is_trial) == has_room


def test_without_a_budget_there_is_always_room() -> None:
    assert TrialBudget(None, undisturbed=1e9).has_room(1e9, is_trial=True)
    assert not TrialBudget(None, undisturbed=1e9).is_tight


def test_a_trial_takes_as_long_as_those_before() -> None:
    assert TrialBudget(60.0, undisturbed=20.0).trial == 40.0
    assert TrialBudget(60.0, undisturbed=20.0, longest_trial=25.0).trial == 25.0


@pytest.mark.parametrize(("room", "needed"), [(1, 140.0), (2, 100.0), (3, 60.0)])
def test_trials_side_by_side_need_less(room: int, needed: float) -> None:
    budget = TrialBudget(120.0, undisturbed=20.0, executions=20.0, room=room)

    assert (budget.needed, budget.is_tight) == (needed, room == 1)


def test_an_advice_is_never_less_than_the_budget_that_did_not_suffice() -> None:
    assert "--budget 24m has room" in TrialBudget(600.0, undisturbed=5.0, executions=5.0).advice


def test_a_step_that_is_given_up_is_told_how_long_a_verdict_takes() -> None:
    assert (
        TrialBudget(60.0)
        .given_up(None)
        .endswith("a verdict takes up to 7 times as long as the step; give it less work, or a larger --budget")
    )
    assert TrialBudget(60.0).given_up(0.5).endswith("at 50% of its work: give it less work, or --budget 14m")


HALF = """
import os, pathlib, time
pathlib.Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text("0.5")
time.sleep(600)
"""


def test_a_first_execution_that_takes_longer_than_the_budget_is_given_up(project: Project) -> None:
    project.write("train.py", HALF)
    done = project.spotwright("rehearse", "--budget", "4s", "--", sys.executable, "train.py")

    assert done.code == 1
    assert (
        "command: undecided\n  the undisturbed execution was given up when the budget of 4s was used up, at 50% of its"
        in (done.out)
    )


@pytest.mark.slow
def test_the_most_informative_point_is_tried_and_the_others_are_named(project: Project) -> None:
    project.write("train.py", "import pathlib, time; time.sleep(3); pathlib.Path('model').write_text('1')")
    done = project.spotwright("rehearse", "--budget", "8s", "--seed", "1", "--json", "--", sys.executable, "train.py")
    (step,) = json.loads(done.out)["steps"]

    tried = [point["name"] for point in step["points"] if point["run"] is not None]
    assert tried == ["middle, no notice"]
    assert step["not_tried"][0] == "start, no notice"
    assert "--budget 1m has room" in step["undecided"]
    assert "of the budget of 8s" in done.err
