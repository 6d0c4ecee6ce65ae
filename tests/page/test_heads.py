"""The head of a run: its waits, spent budgets, deadline, and the commands to copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.page.reading import AJob, reader_from, reader_of
from tests.views.builders import CPU, Story, a_plan, a_task, tutorial

from spotwright.kubeflow.runs import KfpRun, save_kfp_run
from spotwright.kubeflow.server import Login
from spotwright.model.policy import Deadline, Spot
from spotwright.page.heads import head, line
from spotwright.records.state_folder import RunFolder
from spotwright.views.account import account
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text

FULL = {"cpu": 4 * CPU}


def told(story: Story, *, driven: bool = True) -> dict[str, Any]:
    return head(reader_of(story, driven=driven))


def test_tasks_that_wait_for_the_same_stand_together() -> None:
    story = Story(a_plan(*(a_task(f"t{n}", requests=FULL) for n in range(30)), a_task("last", "t0", "t1")))
    [waits] = told(story.after(5))["waits"]
    assert (waits["kind"], waits["text"], waits["of"]) == ("node", "waits for a node of cpu-spot", 30)
    assert waits["tasks"] == [f"t{n}" for n in range(20)]
    assert (waits["since"], waits["until"]) == (story.at - 5, story.at + 595)


def test_a_backoff_and_a_build_say_since_when() -> None:
    story = Story(a_plan(a_task("a"), a_task("b", packages=("numpy",)))).boots("cpu-spot-1")
    story.binds("a", "cpu-spot-1").after(1).taken("cpu-spot-1", "a")
    waits = {each["kind"]: each for each in told(story)["waits"]}
    assert waits.keys() == {"backoff", "environment"}
    assert (waits["backoff"]["since"], waits["backoff"]["until"]) == (story.at, story.at + 1)
    assert (waits["environment"]["since"], waits["environment"]["until"]) == (story.at - 3, None)


def test_tasks_that_have_spent_of_a_budget_stand_with_what_is_left_of_it() -> None:
    story = Story(a_plan(a_task("a"), a_task("b"), policy={"errors.retries": 2})).boots("cpu-spot-1")
    story.binds("a", "cpu-spot-1").binds("b", "cpu-spot-1").ends("b", exit_code=1).after(1).taken("cpu-spot-1", "a")
    budgets = told(story)["budgets"]
    assert [each["task"] for each in budgets] == ["b", "a"]  # 1 of 2 retries before 1 of 10 interruptions
    assert budgets[0]["errors"] == {"spent": 1, "max": 2}
    assert budgets[1]["interruptions"] == {"spent": 1, "max": 10}
    assert budgets[1]["moves"] == {"spent": 0, "max": 20}


def with_a_deadline(seconds: float = 3600.0, **more: Any) -> Story:
    policy = {"spot": Spot.PREFER, "deadline": Deadline(after=seconds), "expected_duration": 600.0, **more}
    return Story(a_plan(a_task("a"), policy=policy))


def test_a_run_without_a_deadline_has_none() -> None:
    assert told(tutorial())["deadline"] is None
    assert line(reader_of(tutorial()))["late"] is None


def test_a_run_under_a_deadline_says_how_long_on_demand_still_finishes() -> None:
    story = with_a_deadline().boots("cpu-spot-1").binds("a", "cpu-spot-1").after(60)
    deadline = told(story)["deadline"]
    assert (deadline["at"], deadline["late"], deadline["words"], deadline["task"]) == (
        story.state.started_at + 3600, None, "", "a"
    )  # fmt: skip
    assert deadline["left"] == pytest.approx(3600 - story.now)
    assert story.at < deadline["last_moment"] < deadline["at"] - 600
    assert story.at + 540 <= deadline["expected_end"] <= story.at + 600  # it has no progress to go by, and runs
    assert deadline["reckons"] == run_view(story.state, "r", story.at)["tasks"][0]["needs"]["text"]


@pytest.mark.parametrize(("after", "late", "words"), [(60.0, False, "in time"), (4000.0, True, "late")])
def test_a_run_that_is_over_was_in_time_or_late(after: float, late: bool, words: str) -> None:
    story = with_a_deadline().boots("cpu-spot-1").binds("a", "cpu-spot-1")
    story.now += after
    story.ends("a")
    assert story.state.status.value == "succeeded"
    deadline = told(story, driven=False)["deadline"]
    assert (deadline["late"], deadline["words"], deadline["last_moment"]) == (late, words, None)


def test_a_run_is_late_once_the_moment_has_passed_before_its_end() -> None:
    story = with_a_deadline().boots("cpu-spot-1").binds("a", "cpu-spot-1")
    story.now += 4000
    deadline = head(reader_from(story.state.plans[0], story.events, story.at))["deadline"]
    assert (deadline["late"], deadline["words"]) == (True, "late")
    assert deadline["left"] < 0


def test_a_run_that_failed_before_its_deadline_is_neither_late_nor_in_time() -> None:
    story = with_a_deadline().boots("cpu-spot-1").binds("a", "cpu-spot-1").after(5).ends("a", exit_code=1)
    deadline = told(story, driven=False)["deadline"]
    assert (deadline["late"], deadline["words"]) == (None, "")


def test_the_commands_are_those_of_show() -> None:
    story = Story(tutorial().state.plans[0])
    running, left = told(story), told(story, driven=False)
    assert running["commands"] == {
        "show": "spotwright show iris-x7k2p", "logs": "spotwright logs iris-x7k2p", "report": "spotwright report iris-x7k2p",
        "resume": None, "cancel": "spotwright cancel iris-x7k2p",
    }  # fmt: skip
    assert (left["commands"]["resume"], left["commands"]["cancel"]) == ("spotwright resume iris-x7k2p", None)
    assert left["commands"]["resume"] in show_text(run_view(story.state, "iris-x7k2p"))
    assert told(tutorial(), driven=False)["commands"]["resume"] is None


def test_a_run_of_a_cluster_is_read_from_there_and_not_driven_from_here() -> None:
    job = AJob()
    job.adopt(("spot",))
    job.wait(60, "Unschedulable: 0/3 nodes are available")
    found = head(reader_from(job.state.plans[0], job.events, job.state.last_at))
    assert found["commands"]["show"] == "spotwright show iris-x7k2p --cluster"
    assert (found["commands"]["resume"], found["commands"]["cancel"]) == (None, None)
    assert (found["summary"]["namespace"], found["summary"]["orchestrator"]) == ("team-a", "Job")


def test_a_line_has_progress_waste_and_savings() -> None:
    reader = reader_of(tutorial())
    costs = account(reader.state)
    said = line(reader, costs)
    assert said["progress"] == 1.0
    assert said["wasted"]["high"]["money"] == pytest.approx(0.000375)
    assert said["saved"] == {"low": float((costs.saved or (0, 0))[0]), "high": float((costs.saved or (0, 0))[1])}
    assert (said["namespace"], said["driven"]) == ("", False)


def test_artifacts_of_tasks_have_their_type_and_place() -> None:
    found = told(tutorial(), driven=False)
    assert found["artifacts"] == [
        {
            "task": "train", "name": "model", "type": "system.Model",
            "uri": "/state/runs/iris-x7k2p/tasks/train/attempt-2/out/model",
        }
    ]  # fmt: skip
    assert found["artifacts_of"] == 1


def test_a_build_of_an_environment_is_told_once_with_the_tasks_that_wait_for_it() -> None:
    story = Story(a_plan(a_task("a", packages=("numpy",)), a_task("b", packages=("numpy",)))).after(3)
    [built] = told(story)["environments"]
    assert (built["packages"], built["tasks"], built["of"]) == (["numpy"], ["a", "b"], 2)
    assert (built["status"], built["seconds"]) == ("building", 3.0)


def test_secrets_are_shown_as_references() -> None:
    story = tutorial(arguments={"token": "{{$.secret['@env:TOKEN']}}"})
    assert told(story)["arguments"] == {"token": "@env:TOKEN"}


@pytest.mark.parametrize(
    ("page", "linked"), [("https://kfp.example/#/runs/1", True), ("javascript:alert(1)", False), ("", False)]
)
def test_a_page_of_kfp_is_linked_if_it_is_one(page: str, linked: bool, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "iris-x7k2p")
    folder.path.mkdir()
    save_kfp_run(folder, KfpRun("1", Login("https://kfp.example"), page))
    assert head(reader_of(tutorial(), folder=tmp_path))["links"]["kfp"] == (page if linked else None)


def test_a_damaged_file_about_a_run_of_kfp_costs_no_more_than_the_link(tmp_path: Path) -> None:
    (tmp_path / "iris-x7k2p").mkdir()
    (tmp_path / "iris-x7k2p" / "kfp.json").write_text("{", encoding="utf-8")
    assert head(reader_of(tutorial(), folder=tmp_path))["links"]["kfp"] is None
