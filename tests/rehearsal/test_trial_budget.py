"""A budget has room for a trial or not, and the report says which one would do."""

from __future__ import annotations

import json
import re
import sys
import time

import pytest
from tests.e2e.project import Project

from spotwright.rehearsal.rehearsal_settings import TrialBudget


@pytest.mark.parametrize(("elapsed", "expected", "has_room"), [(20, 40, True), (21, 40, False), (40, 20, True)])
def test_what_would_end_after_the_budget_does_not_start(elapsed: float, expected: float, has_room: bool) -> None:
    assert TrialBudget(60.0, undisturbed=20.0).has_room(elapsed, expected) == has_room


def test_without_a_budget_there_is_always_room() -> None:
    assert TrialBudget(None, undisturbed=1e9).has_room(1e9, 1e9)
    assert not TrialBudget(None, undisturbed=1e9).is_tight


def test_a_trial_takes_as_long_as_those_before() -> None:
    assert TrialBudget(60.0, undisturbed=20.0).trial == 40.0
    assert TrialBudget(60.0, undisturbed=20.0, longest_trial=25.0).trial == 25.0
    assert TrialBudget(60.0, undisturbed=20.0).lives == 60.0


@pytest.mark.parametrize(("room", "needed"), [(1, 180.0), (2, 120.0), (3, 80.0)])
def test_trials_side_by_side_need_less(room: int, needed: float) -> None:
    budget = TrialBudget(120.0, undisturbed=20.0, executions=20.0, room=room)

    assert (budget.needed, budget.is_tight) == (needed, room == 1)


def test_an_advice_is_never_less_than_the_budget_that_did_not_suffice() -> None:
    assert "--budget 24m has room" in TrialBudget(600.0, undisturbed=5.0, executions=5.0).advice


def test_a_step_that_is_given_up_is_told_how_long_a_verdict_takes() -> None:
    assert (
        TrialBudget(60.0)
        .given_up(None)
        .endswith("a verdict takes up to 9 times as long as the step; give it less work, or a larger --budget")
    )
    assert TrialBudget(60.0).given_up(0.5).endswith("at 50% of its work: give it less work, or --budget 18m")


HALF = """
import os, pathlib, time
pathlib.Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text("0.5")
time.sleep(600)
"""


@pytest.mark.long
def test_a_first_execution_that_takes_longer_than_the_budget_is_given_up(project: Project) -> None:
    project.write("train.py", HALF)
    done = project.spotwright("rehearse", "--budget", "4s", "--", sys.executable, "train.py")

    assert done.code == 1
    assert (
        "command: undecided\n  the undisturbed execution was given up when the budget of 4s was used up, at 50% of its"
        in (done.out)
    )


QUICKER_AFTER_AN_INTERRUPTION = """
import os, pathlib, time
time.sleep(5 if os.environ["SPOTWRIGHT_ATTEMPT"] == "1" else 3)
pathlib.Path("model").write_text("1")
"""


@pytest.mark.slow
def test_the_most_informative_point_is_tried_and_the_others_are_named(project: Project) -> None:
    project.write("train.py", QUICKER_AFTER_AN_INTERRUPTION)
    kept = project.folder / "kept"  # so that one trial runs at a time
    kept.mkdir()
    options = ("--budget", "30s", "--seed", "1", "--json", "--keep", str(kept))
    done = project.spotwright("rehearse", *options, "--", sys.executable, "train.py", str(kept))
    (step,) = json.loads(done.out)["steps"]

    tried = [point["name"] for point in step["points"] if point["run"] is not None]
    assert "lives of a third, no notice" in tried
    assert {"start, no notice", "lives of a third, with notice"} <= set(step["not_tried"])
    assert re.search(r"--budget \dm has room", step["undecided"])
    assert "of the budget of 30s" in done.err


SLOWER_AFTER_AN_INTERRUPTION = """
import os, pathlib, time
time.sleep(2.5 if os.environ["SPOTWRIGHT_ATTEMPT"] == "1" else 600)
pathlib.Path("model").write_text("1")
"""


@pytest.mark.long
@pytest.mark.slow
def test_trials_that_run_when_the_budget_ends_are_cut_and_undecided(project: Project) -> None:
    project.write("train.py", SLOWER_AFTER_AN_INTERRUPTION)
    began = time.monotonic()
    done = project.spotwright("rehearse", "--budget", "12s", "--seed", "1", "--json", "--", sys.executable, "train.py")
    took = time.monotonic() - began
    (step,) = json.loads(done.out)["steps"]

    assert (done.code, step["verdict"]) == (1, "undecided")
    assert "- lives of a third, no notice undecided, cut after" in done.err
    assert "lives of a third, no notice" in step["not_tried"]
    assert took < 12 + 6  # an attempt would be given up after 10 s, and only then end the trial


NEVER_THE_SAME = """
import os, pathlib, time
time.sleep(600 if "undisturbed-" in os.environ["SPOTWRIGHT_RUN"] else 2.2)
pathlib.Path("model").write_text(str(time.time()))
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_difference_is_undecided_if_the_budget_ends_before_the_outputs_are_known_to_be_repeatable(
    project: Project,
) -> None:
    project.write("train.py", NEVER_THE_SAME)
    kept = project.folder / "kept"  # so that one trial runs at a time
    kept.mkdir()
    command = (sys.executable, "train.py", str(kept))
    done = project.spotwright("rehearse", "--budget", "15s", "--seed", "1", "--keep", str(kept), "--", *command)

    assert done.code == 1
    assert "command: undecided" in done.out
    assert "the budget ended before it was known whether it differs undisturbed too" in done.out
