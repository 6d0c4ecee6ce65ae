"""Deadlines under wrong numbers: what a run measures of its work and its launches decides, and what earlier runs measured."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import ON_DEMAND, START, a_config, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import TAKEN, Behavior, Script, always, scripted
from tests.events import data_of

from spotwright.engine.event_codec import Row, decode, encode
from spotwright.engine.events import Event, MarketKnown, RunStatus
from spotwright.engine.fold import replay
from spotwright.engine.loop import replay_decisions
from spotwright.engine.next_rung import needs_of
from spotwright.scheduling.estimates import Estimate, Needs

SAVED = {"deadline": "2000s", "expected_duration": "1000s", "checkpoint": "pvc://ckpt"}


def a_run(script: Script, *pools: Any, **settings: Any) -> Run:
    return Run(a_plan([a_task("a")], a_config(*(pools or (a_pool(), ON_DEMAND)), policy={**SAVED, **settings})), script)


def needs(run: Run) -> Needs:
    found = needs_of(run.state, run.state.tasks["a"])
    assert found is not None
    return found


def moves(run: Run) -> list[float]:
    return [round(event.at - START, 3) for event in run.events_of("halt") if data_of(event).get("moves")]


def ending(run: Run) -> float:
    return run.world.now - START


# Work


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.25, 1.5])
def test_reports_correct_stated_work(factor: float) -> None:
    run = a_run(always(Behavior(1000.0 * factor, reports=50)))
    run.start()
    assert needs(run).whole.expected == pytest.approx(1000.0 * factor, rel=0.01)


def test_work_that_takes_longer_than_stated_leaves_spot_in_time() -> None:
    """By the stated 1000 s the attempt might stay on spot until 1460 s after the start; on-demand needs 500 s more than that."""
    stuck = Behavior(750.0, TAKEN, reports=25, done_after=0.5)
    run = a_run(scripted({"a": [stuck, Behavior(10_000.0, stops_in=1.0)]}, Behavior(750.0, done_before=0.5)))
    assert run.start().status is RunStatus.SUCCEEDED
    assert ending(run) <= 2000.0
    assert run.pools("a") == ["spot", "spot", "on-demand"]
    replay_decisions(run.plans, run.events)


def test_an_attempt_that_turns_out_slower_is_looked_at_before_the_moment_that_was_set() -> None:
    """It reports every 1250 s. Once the second report shows that all of it takes 10,000 s, no third one can be waited for."""
    run = a_run(scripted({"a": [Behavior(10_000.0, reports=8, stops_in=1.0)]}, Behavior(100.0)), deadline="11000s")
    run.start()
    assert run.pools("a")[:2] == ["spot", "on-demand"]
    moved = moves(run)[0]
    assert 2502 < moved < 3752  # by the stated work it would have been about 10,000 s


def test_stated_work_that_makes_the_deadline_impossible_is_corrected_by_progress_and_spot_is_used_again() -> None:
    """The stated 1000 s do not fit into 800 s, so it begins on on-demand; it really takes 400 s."""
    run = a_run(
        scripted({"a": [Behavior(100.0, TAKEN, reports=25, done_after=0.25)]}, Behavior(300.0)), deadline="800s"
    )
    run.start()
    assert run.pools("a") == ["on-demand", "spot"]
    assert ending(run) <= 800.0


def test_a_task_that_never_reports_has_its_stated_work_and_a_margin() -> None:
    run = a_run(always(Behavior(900.0, reports=0)))
    run.start()
    assert (needs(run).whole, needs(run).work_from) == (Estimate(1000.0, 1010.0), "stated")


def test_the_pace_of_an_attempt_counts_for_the_next_one() -> None:
    run = a_run(
        scripted({"a": [Behavior(300.0, TAKEN, reports=20, done_after=0.2)]}, Behavior(1200.0)), deadline="4000s"
    )
    run.start()
    why = data_of(run.events_of("placed")[1])["why"]
    assert why.startswith("spot: 41m35s of slack")  # 3700 s are left, and four fifths of 1500 s of work, and a launch


def test_looks_because_of_reports_are_bounded() -> None:
    run = a_run(always(Behavior(1000.0, reports=5000)))
    run.start()
    assert len(run.events_of("kept")) <= 202


# Launches


def test_a_launch_that_takes_twice_as_long_as_stated_is_learned_from_the_first_one() -> None:
    slow = a_pool("on-demand", spot=False, boot=60.0, simulate={"boot": 120.0})
    tasks = {"a": SAVED, "b": {"spot": "never"}}
    run = Run(a_plan([a_task("b"), a_task("a")], a_config(a_pool(), slow, tasks=tasks)), always(Behavior(500.0)))
    run.start()
    assert (needs(run).launch, needs(run).launch_from) == (Estimate(120.0, 150.0), "slowest of 1")


def test_the_time_until_an_attempt_works_again_belongs_to_a_launch() -> None:
    first = Behavior(500.0, TAKEN, reports=50, done_after=0.5)
    again = Behavior(580.0, start_up=80.0, reports=50, done_before=0.5)
    run = a_run(scripted({"a": [first, again]}))
    run.start()
    assert needs(run).launch.at_most == pytest.approx(2.0 * (1 + 0.25 / 2**0.5) + 80.0, abs=1.0)


class Later(Run):
    """A run that begins with the boots of earlier runs."""

    boots: tuple[float, ...] = ()

    def first_facts(self) -> list[Event]:
        return [*super().first_facts(), MarketKnown(START, runs=1, boots={"on-demand": self.boots})]


def test_launches_of_earlier_runs_count_from_the_start() -> None:
    run = Later(a_plan([a_task("a")], a_config(policy=SAVED)), always(Behavior(500.0)))
    run.boots = (40.0, 50.0, 60.0)
    run.start()
    assert (needs(run).launch.expected, needs(run).launch_from) == (50.0, "slowest of 3")
    assert run.state.boots == {"spot": (2.0,)}


# Journals


def test_counts_of_runs_before_launches_were_measured_are_read() -> None:
    row = Row(START, "market", "", 0, {"pools": {"spot": [0.0] * 44}, "own": True, "kinds": {"spot": "k"}})
    event = decode(row)
    assert isinstance(event, MarketKnown)
    assert (dict(event.boots), encode(event)) == ({}, row)


def test_a_journal_of_before_folds_to_the_same_run() -> None:
    """Events that journals had before are enough for every figure."""
    run = a_run(scripted({"a": [Behavior(300.0, TAKEN, reports=20, done_after=0.3)]}, Behavior(700.0)))
    run.start()
    before = [event for event in run.events if event.kind not in ("kept", "market")]
    assert replay(run.plans, before).tasks["a"].pace == run.state.tasks["a"].pace
