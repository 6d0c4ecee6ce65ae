"""A rehearsal compares the step with one that has none of our variables: what differs, the library itself has changed."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.e2e.project import Project

PLACE = """
import json, os, pathlib, time
def train(fold):
    place = pathlib.Path(PLACE)
    place.mkdir(parents=True, exist_ok=True)
    saved = place / "state.json"
    step, value = json.loads(saved.read_text()) if saved.exists() else (0, fold)
    while step < 10:
        time.sleep(0.01)
        step, value = step + 1, value + 1
        (place / "new").write_text(json.dumps([step, value]))
        (place / "new").rename(saved)
    return value
pathlib.Path("scores.json").write_text(json.dumps([train(fold) for fold in (0, 100)]))
"""
ONE_PLACE = PLACE.replace("PLACE", "os.environ.get('SPOTWRIGHT_CHECKPOINT') or f'checkpoints/{fold}'")
OWN_PLACES = PLACE.replace("PLACE", "f\"{os.environ.get('SPOTWRIGHT_CHECKPOINT', 'checkpoints')}/{fold}\"")
NEEDS_THEM = PLACE.replace("PLACE", "f\"{os.environ['SPOTWRIGHT_CHECKPOINT']}/{fold}\"")
VARIES = OWN_PLACES.replace("return value", "return time.time()")


def rehearse(project: Project, code: str, *options: str) -> dict[str, Any]:
    project.write("train.py", code)
    words = ("--seed", "5", "--interruptions", "1", "--stdout", *options, "--json", "--", sys.executable, "train.py")
    done = project.spotwright("rehearse", *words)
    (step,) = done.json()["steps"]
    return {**step, "code": done.code}


def test_two_trainings_that_only_the_variable_makes_one_are_not_safe(project: Project) -> None:
    step = rehearse(project, ONE_PLACE)

    assert (step["code"], step["verdict"]) == (1, "not safe")
    assert step["changed_by_library"] == ["scores.json[1]: 110 instead of 10"]


@pytest.mark.long
def test_places_of_their_own_are_safe_although_the_place_is_another_without_variables(project: Project) -> None:
    step = rehearse(project, OWN_PLACES)

    assert (step["verdict"], step["changed_by_library"], step["not_compared_without_variables"]) == (
        "safe and resumes", [], None,
    )  # fmt: skip


@pytest.mark.long
def test_a_step_that_needs_the_variables_is_not_compared_and_not_blamed(project: Project) -> None:
    step = rehearse(project, NEEDS_THEM)

    assert (step["verdict"], step["changed_by_library"]) == ("safe and resumes", [])
    assert "KeyError: 'SPOTWRIGHT_CHECKPOINT'" in step["not_compared_without_variables"]


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--budget", "1s")])
def test_what_differs_by_itself_or_the_budget_cuts_is_not_blamed(project: Project, options: tuple[str, ...]) -> None:
    assert rehearse(project, VARIES, *options)["changed_by_library"] == []
