"""The build of a Python environment as a phase of its own: live, in plain lines, in ``show``, in JSON and in the account."""

from __future__ import annotations

import io

from rich.console import Console
from tests.views.builders import START, Story, a_plan, a_task

from spotwright.engine.loop import Observer
from spotwright.views.account import account
from spotwright.views.account_report import report_json, report_text
from spotwright.views.live_table import LiveState, Picture
from spotwright.views.run_json import run_view
from spotwright.views.run_progress import PlainProgress
from spotwright.views.run_text import show_text, summary_text

PACKAGES = ("pandas>=2", "torch")


def a_story(*observers: Observer) -> Story:
    return Story(a_plan(a_task("train", packages=PACKAGES)), list(observers))


def test_plain_lines_tell_the_build_and_how_long_it_took() -> None:
    out = io.StringIO()
    a_story(PlainProgress(out)).after(12).builds("train").boots("cpu-spot-1").binds("train", "cpu-spot-1")
    assert out.getvalue().splitlines()[2:] == [
        "+0s     train: its Python environment is being built, on no node: pandas>=2, torch",
        "+12s    train: its Python environment is ready after 12s",
        "+12s    train: attempt 1 waits for a node of cpu-spot",
        "+12s    cpu-spot-1 boots",
        "+14s    train: attempt 1 runs on cpu-spot-1 (spot)",
    ]


def test_of_tasks_that_share_a_build_one_has_lines_also_for_an_observer_that_joins() -> None:
    plan = a_plan(a_task("a", packages=PACKAGES), a_task("b", packages=PACKAGES), a_task("c", packages=("x",)))
    early, late = io.StringIO(), io.StringIO()
    story = Story(plan, [PlainProgress(early)])
    joined = PlainProgress(late)
    joined.join(story.state)
    story.observers.append(joined)
    story.after(3).builds("a", "b").after(1).builds("c")
    told = [line for line in early.getvalue().splitlines() if "environment" in line]
    assert [line.split()[1] for line in told] == ["a:", "c:", "a:", "c:"]
    assert [line for line in late.getvalue().splitlines() if "environment" in line] == told[2:]


def test_the_live_display_shows_the_build_and_its_age() -> None:
    content, out = LiveState(), io.StringIO()
    story = a_story(content.update)
    console = Console(file=out, width=100, height=30, color_system=None, legacy_windows=False)
    for line in Picture(content, story.at + 7.2, console).lines():
        console.print(line)
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        " iris-x7k2p  7s  0 of 1 task done, 0 running",
        " \N{WHITE DIAMOND} train  builds its Python environment (pandas>=2, torch)  7s",
    ]


def test_show_has_the_builds_with_their_time_and_log() -> None:
    story = a_story().after(12).builds("train").boots("cpu-spot-1").binds("train", "cpu-spot-1").after(3).ends("train")
    text = show_text(run_view(story.state, "iris-x7k2p"))
    assert (
        "Python environments\n"
        "  train  pandas>=2, torch: built in 12s, on no node\n"
        "    log   spotwright logs iris-x7k2p train environment"
    ) in text


def test_the_time_of_a_build_is_neither_the_tasks_nor_a_nodes() -> None:
    story = a_story().after(100).builds("train").boots("cpu-spot-1").binds("train", "cpu-spot-1").after(3).ends("train")
    (attempt,) = account(story.state).attempts_by_start
    (task,) = run_view(story.state, "x")["tasks"]
    assert (float(attempt.seconds), attempt.started_at) == (3.0, START + 102)
    assert task["environment"] == {
        "status": "ready",
        "packages": ["pandas>=2", "torch"],
        "began_at": START,
        "ended_at": START + 100,
        "seconds": 100.0,
        "why": "",
        "last_lines": [],
        "log": "spotwright logs x train environment",
    }
    assert float(account(story.gives_back("cpu-spot-1").state).whole.seconds) == 5.0


def test_a_build_that_goes_on_is_what_its_task_waits_for() -> None:
    story = a_story()
    (task,) = run_view(story.state, "x", story.at + 4)["tasks"]
    assert (task["status"], task["waits_for"]["kind"]) == ("preparing", "environment")
    assert (task["environment"]["status"], task["environment"]["seconds"]) == ("building", 4.0)


def test_a_build_that_failed_is_told_once_with_the_end_of_its_log() -> None:
    out = io.StringIO()
    story = a_story(PlainProgress(out)).after(2)
    story.builds("train", why="no package index has torch", last_lines=["ERROR: no versions", "ERROR: no torch"])
    assert out.getvalue().splitlines()[3:] == [
        "+2s     train: the log of its environment ends after 2s with: ERROR: no torch",
        "+2s     train fails: its Python environment cannot be built: no package index has torch",
        "+2s     the run has failed: task train failed: its Python environment cannot be built: no package index has torch",
    ]
    reason = (
        "Why tasks have failed\n"
        "  train: its Python environment cannot be built: no package index has torch\n"
        "    said  ERROR: no versions\n"
        "    said  ERROR: no torch\n"
        "    log   spotwright logs iris-x7k2p train environment"
    )
    assert reason in summary_text(story.state, "iris-x7k2p")
    assert reason in show_text(run_view(story.state, "iris-x7k2p"))


def test_the_account_has_a_line_for_each_build() -> None:
    plan = a_plan(a_task("a", packages=PACKAGES), a_task("b", packages=PACKAGES), a_task("c", packages=("x",)))
    story = Story(plan).after(3).builds("a", "b").after(1).builds("c").boots("cpu-spot-1").binds("a", "cpu-spot-1")
    costs = account(story.state)

    assert "Built   the Python environment with pandas>=2, torch took 3s, on no node\n" in report_text(costs)
    assert report_json(costs)["builds"] == [
        {"packages": ["pandas>=2", "torch"], "seconds": 3.0},
        {"packages": ["x"], "seconds": 4.0},
    ]


def test_an_account_without_builds_has_no_line_for_them() -> None:
    costs = account(Story(a_plan(a_task("train"))).boots("cpu-spot-1").binds("train", "cpu-spot-1").state)

    assert "Built" not in report_text(costs)
