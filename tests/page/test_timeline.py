"""The bands and the marks of a timeline."""

from __future__ import annotations

from typing import Any

from tests.engine.adopted import AdoptedTask
from tests.engine.builders import START
from tests.views.builders import Story, tutorial

from spotwright.engine.events import AttemptRecalled
from spotwright.engine.state import RunState
from spotwright.page.columns import Marks, RunColumns, timeline
from spotwright.views.run_json import run_view


def timeline_of(state: RunState, now: float | None = None, **marks: Any) -> dict[str, Any]:
    return timeline(state, RunColumns(state, now), now, Marks(**marks))


def test_the_time_without_an_engine_is_a_band() -> None:
    story = Story(tutorial().state.plan)
    story.boots("cpu-spot-1", 2).binds("download", "cpu-spot-1").after(3).reports("download", 0.5)
    assert timeline_of(story.state)["bands"] == [{"kind": "undriven", "from": 5, "until": None, "pool": None}]
    assert timeline_of(story.state, story.at)["bands"] == []
    story.now += 60
    story.fact("engine", epoch=2, pid=43)
    assert timeline_of(story.state, story.at)["bands"] == [{"kind": "undriven", "from": 5, "until": 65, "pool": None}]


def test_a_run_that_has_ended_is_not_called_undriven() -> None:
    assert timeline_of(tutorial().state)["bands"] == []


def an_attempt_taken_back(until: float) -> AdoptedTask:
    one = AdoptedTask()
    one.adopt(("spot",), at=0)
    one.take_back(
        AttemptRecalled(
            START + 60, "work", 1, rung=1, pools=("spot-b",), why="no room", left_out={"spot": (START + until, 1)}
        )
    )
    return one


def test_a_pool_that_is_left_out_is_a_band() -> None:
    one = an_attempt_taken_back(until=900)
    t0 = one.state.started_at
    (band,) = timeline_of(one.state, START + 100)["bands"]
    assert band == {"kind": "left_out", "from": START + 60 - t0, "until": START + 900 - t0, "pool": "spot"}
    (told,) = run_view(one.state, "run", START + 100)["left_out"]
    assert (told["pool"], told["until"] - t0) == (band["pool"], band["until"])


def test_a_pool_is_left_out_until_it_gives_a_node() -> None:
    one = an_attempt_taken_back(until=900)
    one.adopt(("spot",), at=200)
    one.bind("spot", at=300)
    (band,) = timeline_of(one.state, START + 400)["bands"]
    assert band["until"] - band["from"] == 240
    assert run_view(one.state, "run", START + 400)["left_out"] == []


def test_marks_are_seconds_since_the_run_began() -> None:
    state = tutorial().state
    t0 = state.started_at
    marks = timeline_of(state, t0 + 50, deadline=t0 + 100, last_moment=t0 + 60, planned=(t0 + 20, t0 + 90))["marks"]
    assert marks == {"now": 50, "deadline": 100, "last_moment": 60, "planned": [20, 90]}
    assert timeline_of(state)["marks"] == {"now": None, "deadline": None, "last_moment": None, "planned": None}
