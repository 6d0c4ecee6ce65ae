"""Runs with a deadline, for real: attempts are moved, decisions are reported, and observations of pools are stored."""

from __future__ import annotations

import time

import pytest
from tests.e2e.building import step
from tests.e2e.inside import attempt
from tests.e2e.project import Project

from spotwright.engine.events import MarketKnown
from spotwright.engine.loop import replay_decisions
from spotwright.records.state_folder import StateFolder
from spotwright.records.stored_plan import load_plans

POOLS = """
pools:
  spot: {capacity: spot, price: 1/h, node: {cpu: 8}, simulate: {boot: 0s}}
  od: {capacity: on-demand, price: 3/h, node: {cpu: 8}, simulate: {boot: 0s}}
policy:
  default: {grace_period: 500ms, checkpoint: pvc://saved, expected_duration: WORK}
"""


def gets_nowhere_at_first(number: int) -> int:
    if attempt() == 1:
        time.sleep(100.0)
    return number


def does_half_and_half(number: int) -> int:
    """Saves half of its work when asked to stop, and resumes from there."""
    import os
    import signal
    import sys
    from pathlib import Path

    half = Path(os.environ["SPOTWRIGHT_CHECKPOINT"]) / "half"
    progress = Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"])

    def save(*_: object) -> None:
        half.touch()
        progress.write_text("0.5")
        sys.exit(1)

    signal.signal(signal.SIGTERM, save)
    if not half.exists():
        time.sleep(100.0)
    progress.write_text("0.6")
    return number


def returns(number: int) -> int:
    return number


def reports_each_percent(number: int) -> int:
    import os
    from pathlib import Path

    for percent in range(100):
        Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(percent / 100))
        time.sleep(0.02)
    return number


@pytest.mark.parametrize(("options", "least", "most"), [((), 10, 25), (("--deadline", "60s"), 50, 102)])
def test_under_a_deadline_progress_is_written_down_in_small_steps(
    project: Project, options: tuple[str, ...], least: int, most: int
) -> None:
    """Slack is kept free for the work between two reports: with reports of a twentieth little of it would be left for spot."""
    project.config(POOLS.replace("WORK", "2s"))
    done = project.run(project.pipeline({"train": step(reports_each_percent, {"number": 1})}), *options)
    assert done.code == 0, done.err
    assert least <= sum(event.kind == "progress" for event in project.events()) <= most


def test_an_attempt_that_gets_nowhere_on_spot_is_moved_and_the_deadline_is_kept(project: Project) -> None:
    project.config(POOLS.replace("WORK", "500ms"))
    pipeline = project.pipeline({"train": step(gets_nowhere_at_first, {"number": 1})})
    done = project.run(pipeline, "--deadline", "4s")
    assert done.code == 0, done.err
    view = project.show()
    first, second = view["tasks"]["train"]["attempts"]
    assert (first["cause"], first["pool"], second["cause"], second["pool"]) == ("disrupted", "spot", "succeeded", "od")
    assert view["finished_at"] - view["started_at"] <= 4.0
    assert view["tasks"]["train"]["spent"] == {"interruptions": 0, "errors": 0, "moves": 0}
    shown = project.here("show", "r").out
    text = " ".join(shown.split())
    for sentence in (
        "train attempt 1 spot: ",  # why it was launched there
        "of slack, ",
        "left spot for on-demand",
        "was moved: to on-demand, at the last safe moment: 0.5s of work is left",
        "goes on on on-demand; the move spends no budget",
        "train attempt 2 on-demand: the attempt before was moved here",
    ):
        assert sentence in text
    plans = [stored.plan for stored in load_plans(StateFolder(project.state).find("r"))]
    replay_decisions(plans, project.events())


@pytest.mark.long
def test_a_moved_attempt_saves_within_its_grace_period_and_the_next_goes_on_from_there(project: Project) -> None:
    project.config(POOLS.replace("WORK", "1s"))
    done = project.run(project.pipeline({"train": step(does_half_and_half, {"number": 1})}), "--deadline", "4s")
    assert done.code == 0, done.err
    first, second = project.show()["tasks"]["train"]["attempts"]
    assert (first["progress"], second["first_progress"], second["pool"]) == (0.5, 0.6, "od")


def test_an_impossible_deadline_is_told_before_the_run_begins_and_the_run_goes_on(project: Project) -> None:
    project.config(POOLS.replace("WORK", "1h"))
    steps = {"train": step(returns, {"number": 2})}
    done = project.run(project.pipeline(steps), "--deadline", "50m")
    assert done.code == 0, done.err
    assert (
        "note: the deadline cannot be met: on on-demand alone the stated work on the longest path through train takes 1h00m"
        in " ".join(done.out.split())
    )
    assert "10m00s too long; the nearest deadline that can be met is 1h00m after the start" in " ".join(
        done.out.split()
    )


def test_a_later_run_begins_with_what_earlier_runs_have_seen_of_the_pools(project: Project) -> None:
    project.config(POOLS.replace("WORK", "500ms"))
    pipeline = project.pipeline({"train": step(returns, {"number": 1})})
    for name in ("one", "two"):
        assert project.run(pipeline, "--deadline", "1h", "--cache", "off", name=name).code == 0
    known = [event for event in project.events("two") if isinstance(event, MarketKnown)]
    own = [event for event in project.events("one") if isinstance(event, MarketKnown)]
    assert [(event.own, event.runs) for event in known] == [(False, 1), (True, 0)]
    assert known[0].pools == {"spot": own[-1].pools["spot"]}
    assert sum(own[-1].pools["spot"]) > 0


def test_a_later_run_begins_with_the_launches_of_earlier_runs_and_show_tells_its_margins(project: Project) -> None:
    project.config(POOLS.replace("WORK", "500ms"))
    pipeline = project.pipeline({"train": step(returns, {"number": 1})})
    for name in ("one", "two"):
        assert project.run(pipeline, "--deadline", "1h", "--cache", "off", name=name).code == 0
    [known, own] = [event for event in project.events("two") if isinstance(event, MarketKnown)]
    assert len(known.boots["spot"]) == len(own.boots["spot"]) == 1
    text = " ".join(project.here("show", "two").out.split())
    assert "train reckons with work 0.5s at most (stated), launch" in text
    assert "at most (slowest of 2)" in text
