"""Plain lines: what a run says where there is no terminal."""

from __future__ import annotations

import errno
import io
import os

import pytest
from tests.events import an_event
from tests.views.builders import Story, a_plan, a_task, tutorial, tutorial_plan

from spotwright.engine.fold import fold
from spotwright.views.run_progress import PlainProgress, make_progress


def test_the_lines_of_the_tutorial() -> None:
    out = io.StringIO()
    tutorial([PlainProgress(out)])
    assert (
        out.getvalue()
        == """\
+0s     run iris-x7k2p: pipeline iris, seed 7
+0s     3 tasks: download, merge, train
+0s     download: attempt 1 waits for a node of cpu-spot
+0s     cpu-spot-1 boots
+2s     download: attempt 1 runs on cpu-spot-1 (spot)
+5s     download: attempt 1 on cpu-spot-1 succeeded after 3s
+5s     merge: attempt 1 runs on cpu-spot-1 (spot)
+9s     merge: attempt 1 on cpu-spot-1 succeeded after 4s
+9s     train: attempt 1 waits for a node of gpu-spot
+9s     gpu-spot-1 boots
+11s    train: attempt 1 runs on gpu-spot-1 (spot)
+17s    train: attempt 1 on gpu-spot-1 was interrupted: its node is gone, without a notice that was seen (at 40% of its work)
+17s    train: interruption 1 of 10: again on gpu-spot after 1s
+18s    train: attempt 2 waits for a node of gpu-spot
+18s    gpu-spot-2 boots
+20s    train: attempt 2 runs on gpu-spot-2 (spot)
+28s    train: attempt 2 on gpu-spot-2 succeeded after 8s
+28s    the run has succeeded
"""
    )


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def begun(out: io.StringIO, plan: object = None, **meta: object) -> Story:
    """A story whose lines go to ``out``, with a task on a node."""
    story = Story(tutorial_plan() if plan is None else plan, [PlainProgress(out)], **meta)  # type: ignore[arg-type]
    return story.boots("cpu-spot-1").binds("download", "cpu-spot-1")


def test_a_notice_names_the_node_the_time_left_and_its_attempts(out: io.StringIO) -> None:
    story = begun(out)
    story.fact(
        "notice", node="cpu-spot-1", goes_at=story.at + 30, attempts=[["download", 1]], why="after 12s of download"
    )
    assert (
        "+2s     cpu-spot-1 will be reclaimed in 30s, after 12s of download; notified download attempt 1\n"
        in out.getvalue()
    )


def test_a_notice_for_several_attempts_tells_them_in_the_plural(out: io.StringIO) -> None:
    story = begun(out, a_plan(a_task("download"), a_task("train"))).binds("train", "cpu-spot-1")
    attempts = [["download", 1], ["train", 1]]
    story.fact("notice", node="cpu-spot-1", goes_at=story.at + 30, attempts=attempts, why="after 12s of download")
    assert "after 12s of download; notified download attempt 1, train attempt 1\n" in out.getvalue()


def test_a_failure_has_the_reasons_of_the_attempt_and_of_the_task(out: io.StringIO) -> None:
    begun(out).after(1).ends("download", exit_code=1)
    lines = out.getvalue().splitlines()
    assert lines[-3:] == [
        "+3s     download: attempt 1 on cpu-spot-1 failed: it exited with 1",
        "+3s     download fails: no retry is left (errors.retries is 0)",
        "+3s     the run has failed: task download failed: no retry is left (errors.retries is 0)",
    ]


def test_the_last_line_of_a_failed_attempts_log_is_printed(out: io.StringIO) -> None:
    begun(out).after(1).fact("ended", "download", 1, signals={"exit_code": 1}, last_line="KeyError: 'url'")
    assert "+3s     download: its log ends with: KeyError: 'url'\n" in out.getvalue()


def test_a_move_to_the_next_rung_has_its_reason(out: io.StringIO) -> None:
    Story(tutorial_plan(), [PlainProgress(out)]).after(600)
    last = out.getvalue().splitlines()[-1]
    assert last == "+10m00s download: attempt 1 waits for cpu now: no node on cpu-spot for 600s: no node"


def test_an_unschedulable_task_has_one_line(out: io.StringIO) -> None:
    Story(tutorial_plan(), [PlainProgress(out)]).after(600).after(600)
    assert (
        sum("found no node" in line or "unschedulable" in line for line in out.getvalue().splitlines()) == 2
    )  # task, run
    assert "download fails: unschedulable: no node on cpu-spot" in out.getvalue()


def test_an_earlier_result_is_named(out: io.StringIO) -> None:
    Story(tutorial_plan(), [PlainProgress(out)], cached=["download"])
    assert "download: does not run, the result from run iris-before is used" in out.getvalue()


def test_progress_has_a_line_at_each_quarter_and_at_most_every_ten_seconds(out: io.StringIO) -> None:
    story = begun(out)
    for value in (0.1, 0.3, 0.6):
        story.after(4).reports("download", value)
    for value in (0.65, 0.9):
        story.after(20).reports("download", value)
    said = [line for line in out.getvalue().splitlines() if "has done" in line]
    assert said == ["+14s    download: attempt 1 has done 60%", "+54s    download: attempt 1 has done 90%"]


def test_only_an_empty_node_has_a_line_when_it_is_gone(out: io.StringIO) -> None:
    story = begun(out).boots("cpu-spot-2").node("cpu-spot-2", "gone", "empty for 600s").taken("cpu-spot-1", "download")
    assert story.state.tasks["download"].attempts
    assert [line[8:] for line in out.getvalue().splitlines() if "is gone" in line] == [
        "cpu-spot-2 is gone: empty for 600s",
        "download: attempt 1 on cpu-spot-1 was interrupted: its node is gone, without a notice that was seen",
    ]


def test_a_node_that_goes_after_its_notice_has_one_line(out: io.StringIO) -> None:
    story = begun(out)
    story.fact("notice", node="cpu-spot-1", goes_at=story.at + 1, attempts=[["download", 1]], why="taken")
    story.ends("download", signal=15, noticed=True, spot=True).after(1).node("cpu-spot-1", "gone", "taken")
    assert "is gone" not in out.getvalue()


def test_a_stop_has_its_reason_and_the_stopped_attempts(out: io.StringIO) -> None:
    begun(out).fact("stop", why="Ctrl-C").ends("download", cancelled=True)
    assert [line[8:] for line in out.getvalue().splitlines()][-4:] == [
        "the engine stops: Ctrl-C",
        "download: attempt 1 is asked to stop: Ctrl-C",
        "download: attempt 1 on cpu-spot-1 was stopped",
        "the run has been stopped: Ctrl-C",
    ]


def test_a_resumed_run_begins_with_the_number_of_tasks_done(out: io.StringIO) -> None:
    story = (
        Story(tutorial_plan())
        .boots("cpu-spot-1")
        .binds("download", "cpu-spot-1")
        .ends("download")
        .binds("merge", "cpu-spot-1")
    )
    story.ends("merge", exit_code=1).gives_back("cpu-spot-1")
    story.observers = [PlainProgress(out)]
    story.now += 3600
    story.fact("reset", version=1, again=[])
    assert out.getvalue().splitlines()[0] == "+0s     run iris-x7k2p goes on: 1 of 3 tasks done"


def test_a_time_scale_is_printed_at_the_beginning(out: io.StringIO) -> None:
    begun(out, time_scale=60)
    assert out.getvalue().splitlines()[0].endswith("seed 7, waits pass 60 times faster")


def test_nothing_is_coloured_or_overwritten(out: io.StringIO) -> None:
    tutorial([PlainProgress(out)])
    assert "\x1b" not in out.getvalue()
    assert "\r" not in out.getvalue()


def test_a_reader_that_goes_away_does_not_disturb_the_run() -> None:
    class Gone(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    assert tutorial([PlainProgress(Gone())]).state.status.value == "succeeded"


def test_a_full_disk_under_the_output_does_not_disturb_the_run() -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert tutorial([PlainProgress(Full())]).state.status.value == "succeeded"


def test_an_attempt_of_a_retired_task_still_has_its_lines(out: io.StringIO) -> None:
    story = begun(out, a_plan(a_task("download"), a_task("train")))
    shown = PlainProgress(out)
    batch = [
        an_event("ended", story.at, "download", 1, {"signals": {"exit_code": 1}}),
        an_event(
            "decided",
            story.at,
            "download",
            1,
            {"cause": "failed", "why": "it exited with 1", "then": "fail", "next": "x"},
        ),
        an_event("reset", story.at, data={"version": 2, "again": []}),
    ]
    story.state.plans = [*story.state.plans, a_plan(a_task("train"))]
    for event in batch:
        fold(story.state, event)
    shown(story.state, batch)
    assert "download: attempt 1 on cpu-spot-1 failed: it exited with 1" in out.getvalue()


def test_lines_are_plain_without_a_terminal(out: io.StringIO) -> None:
    assert isinstance(make_progress(out), PlainProgress)


def test_lines_of_a_joined_run_begin_with_the_next_event(out: io.StringIO) -> None:
    story = Story(tutorial_plan()).boots("cpu-spot-1").binds("download", "cpu-spot-1")
    progress = PlainProgress(out)
    progress.join(story.state)
    story.observers.append(progress)
    story.after(3).ends("download")
    assert out.getvalue().splitlines() == [
        "+5s     download: attempt 1 on cpu-spot-1 succeeded after 3s",
    ]
