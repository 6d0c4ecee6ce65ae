"""A missed deadline is told by every view, with how much and where the time went, and by an exit code where that is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import document, step
from tests.e2e.project import Project, a_project
from tests.views.builders import Story, a_plan, a_task

from spotwright.model.policy import Deadline, Spot
from spotwright.views.account import account
from spotwright.views.account_report import report_json, report_text
from spotwright.views.notebook import account_html, run_html
from spotwright.views.run_deadline import run_deadline
from spotwright.views.run_json import run_view, summary
from spotwright.views.run_text import runs_text, show_text, summary_text


def under_a_deadline(*tasks: Any, seconds: float = 100.0) -> Story:
    policy = {"spot": Spot.PREFER, "deadline": Deadline(after=seconds), "expected_duration": 60.0}
    return Story(a_plan(*(tasks or (a_task("a"),)), policy=policy))


def late() -> Story:
    """A run that loses its node after 90 s and ends 70 s after its deadline."""
    story = under_a_deadline().boots("cpu-spot-1").binds("a", "cpu-spot-1").after(90).taken("cpu-spot-1", "a")
    story.boots("cpu-2").after(20).binds("a", "cpu-2").after(60)
    return story.ends("a")


def test_a_run_that_met_its_deadline_or_has_none_says_nothing() -> None:
    story = under_a_deadline(seconds=3600.0).boots("cpu-spot-1").binds("a", "cpu-spot-1").after(30).ends("a")

    found = run_deadline(story.state)
    assert found is not None
    assert (found.missed, found.late, found.task, found.why) == (False, 0.0, "", "")
    for view in (summary_text(story.state, "r"), show_text(run_view(story.state, "r"))):
        assert "missed by" not in view
        assert " late" not in view.partition("\n")[0]
    assert run_deadline(Story(a_plan(a_task("a"))).state) is None


def test_a_missed_deadline_says_by_how_much_and_where_the_time_went() -> None:
    state = late().state

    found = run_deadline(state)

    assert found is not None
    assert found.missed
    assert found.task == "a"
    assert state.finished_at is not None
    assert found.late == pytest.approx(state.finished_at - state.started_at - 100)
    assert found.why.startswith("1m30s in 1 interrupted attempt, ")
    assert "1m00s in its last attempt (its work is stated as 1m00s)" in found.why


def test_the_last_task_after_the_deadline_is_named_with_the_time_before_it() -> None:
    story = under_a_deadline(a_task("a"), a_task("b", "a")).boots("cpu-spot-1").binds("a", "cpu-spot-1").after(120)
    story.ends("a").binds("b", "cpu-spot-1").after(30)
    state = story.ends("b").state

    found = run_deadline(state)

    assert found is not None
    assert found.task == "b"
    assert found.why.startswith("2m02s until it could start, ")


def test_a_run_that_goes_on_after_its_deadline_has_missed_it_already() -> None:
    story = under_a_deadline().boots("cpu-spot-1").binds("a", "cpu-spot-1").after(40)

    assert run_deadline(story.state, story.state.started_at + 50)[1] is None  # type: ignore[index]
    found = run_deadline(story.state, story.state.started_at + 150)

    assert found is not None
    assert (found.missed, found.late) == (True, 50.0)


def test_every_view_tells_it() -> None:
    state = late().state
    view, costs = run_view(state, "r"), account(state)
    what, how_long = "in 1 interrupted attempt", " late"

    for text in (summary_text(state, "r"), show_text(view), run_html(view, costs)):
        assert what in " ".join(text.split())
        assert how_long in text
    assert "succeeded, " in runs_text([summary(state, "r")])
    for text in (report_text(costs, "r"), account_html(costs)):
        assert what in " ".join(text.split())
    for told in (view, summary(state, "r"), report_json(costs, "r")):
        assert told["deadline"]["missed"]
        assert told["deadline"]["late"] > 0
        assert what in told["deadline"]["why"]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with a_project(tmp_path) as made:
        yield made


def works() -> None:
    """Works for more than a second."""
    import time

    time.sleep(1.2)


@pytest.mark.slow
def test_the_exit_code_says_it_where_that_is_wanted(project: Project) -> None:
    project.write("pipeline.yaml", document({"works": step(works)}))
    words = ("run", "pipeline.yaml", "--cache", "off", "--fail-on-missed-deadline")

    late = project.spotwright(*words[:-1], "--deadline", "1s", "--name", "late")
    fails = project.spotwright(*words, "--deadline", "1s", "--name", "fails")
    in_time = project.spotwright(*words, "--deadline", "1h", "--name", "in-time")

    assert [late.code, fails.code, in_time.code] == [0, 1, 0]
    assert "Deadline missed by" in late.out
    assert "Deadline missed by" in fails.out
    assert "Deadline missed" not in in_time.out
    runs = project.spotwright("runs").out
    assert runs.count("succeeded, ") == 2
    assert "missed by" in project.spotwright("show", "late").out
    assert "Deadline missed by" in project.spotwright("report", "late").out
    assert project.spotwright("show", "late", "--json").json()["deadline"]["task"] == "works"
    assert project.spotwright("resume", "late", "--fail-on-missed-deadline").code == 1
    assert project.spotwright("resume", "late").code == 0
