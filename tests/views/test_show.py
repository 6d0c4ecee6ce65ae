"""Runs as text: what a person reads of a run, of many runs, and at the end of one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.views.builders import Story, a_model, a_plan, a_task, tutorial, tutorial_plan

from spotwright.model.attempts import Cause
from spotwright.views.run_json import run_view, summary
from spotwright.views.run_text import runs_text, show_text, summary_text
from spotwright.views.text import ended

NAME = "iris-x7k2p"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Moments are shown in local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def shown(story: Story, now: float | None = None) -> str:
    return show_text(run_view(story.state, NAME, now))


def test_a_run_in_full() -> None:
    story = tutorial(arguments={"url": "https://example.com/iris.tar.gz", "token": "{{$.secret['@env:TOKEN']}}"})
    assert (
        shown(story)
        == """\
Run iris-x7k2p succeeded after 28s
  pipeline  iris
  started   2026-07-27 12:00:00 +0000, seed 7
  argument  url = https://example.com/iris.tar.gz
  argument  token = @env:TOKEN

Task      Status     Attempt  Pool      Node        Cause        Began  Seconds  Simulated USD
download  succeeded        1  cpu-spot  cpu-spot-1  succeeded      +2s      3.0       0.000037
merge     succeeded        1  cpu-spot  cpu-spot-1  succeeded      +5s      4.0       0.00010
train     succeeded        1  gpu-spot  gpu-spot-1  interrupted   +11s      6.0       0.0015
                           2  gpu-spot  gpu-spot-2  succeeded     +20s      8.0       0.0020

Why attempts ended, and what followed
  train attempt 1 on gpu-spot-1 was interrupted: its node is gone, without a notice that was seen
    (at 40% of its work)
    then  interruption 1 of 10: again on gpu-spot
    log   spotwright logs iris-x7k2p train 1

Outputs
  accuracy  0.9736842105263158
  model     /state/runs/iris-x7k2p/tasks/train/attempt-2/out/model"""
    )


def test_the_summary_at_the_end_of_a_run() -> None:
    assert (
        summary_text(tutorial().state, NAME)
        == """\
Outputs
  accuracy  0.9736842105263158
  model     /state/runs/iris-x7k2p/tasks/train/attempt-2/out/model

Task      Attempt  Pool      Node        Cause        Began  Seconds  Simulated USD
download        1  cpu-spot  cpu-spot-1  succeeded      +2s      3.0       0.000037
merge           1  cpu-spot  cpu-spot-1  succeeded      +5s      4.0       0.00010
train           1  gpu-spot  gpu-spot-1  interrupted   +11s      6.0       0.0015
train           2  gpu-spot  gpu-spot-2  succeeded     +20s      8.0       0.0020

Cost (prices are simulated)
  spent   0.0059 USD: 0.0036 on attempts, 0.0011 boot, 0.00095 idle, 0.00021 unfilled
  wasted  0.00038 USD by 1 interruption
  saved   0.0094 USD (72%) against 0.013 USD for the useful work on on-demand nodes (cpu, gpu)

Run iris-x7k2p succeeded after 28s"""
    )


def test_a_list_of_runs() -> None:
    others = [tutorial().state, Story(tutorial_plan()).boots("cpu-spot-1").state]
    text = runs_text([summary(others[0], NAME), summary(others[1], "iris-q8m4t", others[1].last_at)])
    assert (
        text
        == """\
Run         Status     Started           Took  Tasks  Attempts  Interruptions  Simulated cost
iris-x7k2p  succeeded  2026-07-27 12:00   28s    3/3         4              1      0.0059 USD
iris-q8m4t  running    2026-07-27 12:00    2s    0/3         1              0     0.00010 USD"""
    )


def test_an_empty_list_of_runs_is_a_sentence() -> None:
    assert runs_text([]) == "no runs yet"


def test_a_running_run_shows_why_every_task_waits() -> None:
    story = (
        Story(tutorial_plan())
        .boots("cpu-spot-1")
        .binds("download", "cpu-spot-1")
        .after(1.2)
        .taken("cpu-spot-1", "download")
    )
    text = shown(story, story.at)
    assert "has been running for 3.2s" in text
    assert text.endswith(
        """\
What waits
  download waits before attempt 2, until +4.2s
  merge waits for download
  train waits for merge"""
    )


def test_an_attempt_without_a_node_shows_its_pools() -> None:
    story = Story(tutorial_plan()).node("cpu-spot-1", "booting")
    text = shown(story, story.at)
    assert "download waits for a node of cpu-spot (1 node booting), until +10m00s" in text


def test_a_failed_run_shows_the_reason_the_log_and_the_command_to_resume() -> None:
    story = (
        Story(tutorial_plan())
        .boots("cpu-spot-1")
        .binds("download", "cpu-spot-1")
        .after(1)
        .ends("download", exit_code=1)
    )
    text = shown(story.gives_back("cpu-spot-1"))
    title = "Run iris-x7k2p failed after 3s: task download failed: no retry is left (errors.retries is 0)"
    assert text.startswith(f"{title}\n")
    assert "  go on     spotwright resume iris-x7k2p\n" in text
    assert "download attempt 1 on cpu-spot-1 failed: it exited with 1" in text
    assert "    log   spotwright logs iris-x7k2p download 1" in text
    assert "merge     not started" in text
    assert "spotwright logs iris-x7k2p download 1" in summary_text(story.state, NAME)


def test_the_cause_of_a_failed_attempt_stands_once() -> None:
    story = Story(tutorial_plan()).boots("cpu-spot-1").binds("download", "cpu-spot-1").after(1)
    story.ends("download", exit_code=137, oom_kills=1)
    text = shown(story)
    assert "download failed: out of memory, and no retry is left (errors.retries is 0)" in text
    assert "    then  no retry is left (errors.retries is 0)\n" in text


def test_the_last_line_of_a_failed_attempts_log_is_shown() -> None:
    story = Story(tutorial_plan()).boots("cpu-spot-1").binds("download", "cpu-spot-1").after(1)
    story.fact("ended", "download", 1, signals={"exit_code": 1}, last_line="KeyError: 'url'")
    assert "    said  KeyError: 'url'\n" in shown(story)
    assert "    said  KeyError: 'url'\n" in summary_text(story.state, NAME)


def test_a_run_whose_engine_is_gone_is_not_called_running() -> None:
    story = Story(tutorial_plan()).boots("cpu-spot-1").binds("download", "cpu-spot-1").after(1).reports("download", 0.5)
    text = shown(story)
    assert text.startswith("Run iris-x7k2p was left unfinished by its engine after 3s\n")
    assert "spotwright resume iris-x7k2p" in text


def test_a_cancelled_run_is_called_cancelled() -> None:
    story = Story(tutorial_plan()).boots("cpu-spot-1").binds("download", "cpu-spot-1").fact("cancel")
    text = shown(story.ends("download", cancelled=True).gives_back("cpu-spot-1"))
    assert text.startswith("Run iris-x7k2p was cancelled after 2s: the run was cancelled\n")
    assert "download attempt 1 on cpu-spot-1 was stopped" in text


def test_a_run_that_has_just_begun_can_be_shown() -> None:
    story = Story(tutorial_plan())
    assert "download  pending" in shown(story, story.at)
    assert summary_text(story.state, NAME, story.at).endswith("Run iris-x7k2p has been running for 0s")


def test_a_task_with_a_cached_result_names_the_run_of_that_result() -> None:
    story = Story(tutorial_plan(), cached=["download"])
    assert "download  result of iris-before" in shown(story, story.at)


def test_an_unschedulable_task_names_every_rung() -> None:
    story = Story(tutorial_plan()).after(601).after(601)
    text = " ".join(summary_text(story.state, NAME).split())
    assert (
        "download attempt 1 found no node: no node on cpu-spot for 601s: no node; no node on cpu for 601s: no node"
        in text
    )


def test_long_values_are_cut_in_text_and_whole_in_json() -> None:
    long = "x" * 5000
    story = Story(a_plan(a_task("train"))).boots("cpu-spot-1").binds("train", "cpu-spot-1")
    view = run_view(story.ends("train", {"parameters": {"text": long}}).state, NAME)
    assert max(len(line) for line in show_text(view).splitlines()) <= 100
    assert view["outputs"]["train.text"]["value"] == long


def test_a_time_scale_stands_beside_the_figures() -> None:
    text = summary_text(tutorial(time_scale=60).state, NAME)
    assert "Cost (prices are simulated; waits passed 60 times faster; seconds are real)" in text


@pytest.mark.parametrize("story", [tutorial(), Story(tutorial_plan())])
def test_no_line_is_wider_than_a_hundred_columns_or_ends_in_blanks(story: Story) -> None:
    lines = [*shown(story, story.at).splitlines(), *summary_text(story.state, NAME, story.at).splitlines()]
    assert [line for line in lines if len(line) > 100 or line != line.rstrip()] == []


def test_artifacts_are_shown_by_their_address() -> None:
    outputs: dict[str, Any] = {"artifacts": {"model": a_model("s3://models/7")}}
    story = Story(a_plan(a_task("train"))).boots("cpu-spot-1").binds("train", "cpu-spot-1").ends("train", outputs)
    assert "  train.model  s3://models/7" in shown(story)


def test_the_summary_has_no_column_for_the_status_of_few_tasks() -> None:
    story = Story(tutorial_plan()).boots("cpu-spot-1").binds("download", "cpu-spot-1").after(1)
    text = summary_text(story.ends("download", exit_code=1).state, NAME)

    assert "Status" not in text
    assert re.search(r"^merge +not started$", text, re.MULTILINE)
    assert re.search(r"^download +1 +cpu-spot +cpu-spot-1 +failed ", text, re.MULTILINE)


def test_a_reason_that_repeats_how_the_attempt_ended_is_said_once() -> None:
    assert ended(Cause.DISRUPTED, "it was moved: its Job failed", None) == "was moved: its Job failed"
    assert ended(Cause.DISRUPTED, "its pod was deleted", 0.5) == "was moved: its pod was deleted (at 50% of its work)"
