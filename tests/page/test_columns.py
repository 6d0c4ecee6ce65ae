"""Tasks, attempts and nodes as columns, and the deltas that keep them right."""

from __future__ import annotations

import pytest
from tests.engine.builders import ON_DEMAND, a_body, a_config, a_dag, a_fan, a_loop, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import TAKEN, Behavior, scripted
from tests.events import data_of
from tests.page.folded import rows_of
from tests.views import builders as stories
from tests.views.builders import Story, tutorial

from spotwright.engine.state import RunState
from spotwright.page.columns import RunColumns


def columns_of(story: Story) -> RunColumns:
    return RunColumns(story.state, story.at)


def test_the_tutorial_has_a_row_for_each_task() -> None:
    download, merge, train = rows_of(columns_of(tutorial()).tasks())
    assert (download["path"], merge["status"], train["attempts"]) == ("download", "succeeded", 2)
    assert (train["interruptions"], train["pool"], train["node"]) == (1, "gpu-spot", "gpu-spot-2")
    assert (train["capacity"], train["kind"], train["parent"]) == ("spot", "task", -1)


def test_the_tutorial_has_a_row_for_each_attempt() -> None:
    attempts = rows_of(columns_of(tutorial()).attempts())
    taken = next(each for each in attempts if each["cause"] == "interrupted")
    assert (taken["task"], taken["number"], taken["node"], taken["pools"]) == (2, 1, "gpu-spot-1", ("gpu-spot",))
    assert 0 < taken["kept_low"] == taken["kept_high"] < 1
    assert taken["placed"] < taken["bound"] < taken["ended"]


def test_the_tutorial_has_a_row_for_each_node() -> None:
    nodes = rows_of(columns_of(tutorial()).nodes())
    assert [(each["name"], each["state"], each["capacity"]) for each in nodes] == [
        ("cpu-spot-1", "gone", "spot"),
        ("gpu-spot-1", "gone", "spot"),
        ("gpu-spot-2", "gone", "spot"),
    ]
    assert nodes[1]["why"] == "taken by the provider"


def test_a_run_that_has_just_begun_has_columns_without_rows() -> None:
    table = RunColumns(RunState(())).tasks()
    assert set(map(len, table["columns"].values())) == {0}


def test_a_wait_on_another_rung_and_a_backoff_have_their_moments() -> None:
    crowded = a_config(a_pool(max_nodes=1, node=None), ON_DEMAND, policy={"spot": "prefer", "pending_timeout": "15s"})
    run = Run(a_plan(a_fan(4), crowded), scripted({"t0": [Behavior(5.0, TAKEN), Behavior(5.0, TAKEN)]}, Behavior(60.0)))
    run.start()
    attempts = rows_of(RunColumns(run.state).attempts())
    moves = sorted(at for each in attempts for at in each["moves"])
    assert moves == [round(event.at - run.state.started_at, 3) for event in run.events_of("moved")] != []
    decided = [data_of(event) for event in run.events_of("decided")]
    dues = sorted(round(each["due"] - run.state.started_at, 3) for each in decided if each.get("due") is not None)
    assert sorted(each["due"] for each in attempts if each["due"] is not None) == dues != []


def test_a_loop_has_rows_for_its_tasks() -> None:
    run = Run(
        a_plan(
            [a_loop("l", items=[1, 2]), a_task("p", dag="dag")],
            body=a_body(a_task("x"), out="x"),
            dag=a_dag(a_task("y")),
        )
    )
    run.start()
    rows = rows_of(RunColumns(run.state).tasks())
    kinds = {row["path"]: (row["kind"], row["written"], row["parent"]) for row in rows}
    loop, pipeline = list(kinds).index("l"), list(kinds).index("p")
    assert kinds == {
        "l": ("loop", "l", -1),
        "p": ("pipeline", "p", -1),
        "l/x-0": ("task", "l/x", loop),
        "l/x-1": ("task", "l/x", loop),
        "p/y": ("task", "p/y", pipeline),
    }


def test_a_look_costs_what_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 tasks under way, the event of one is looked at for that one alone."""
    story = Story(stories.a_plan(*(stories.a_task(f"t{number}") for number in range(300))))
    columns, looked_at = RunColumns(story.state, story.at), []
    monkeypatch.setattr(
        "spotwright.page.columns.waiting_for", lambda _state, task, _booting: looked_at.append(task.path)
    )
    before = len(story.events)
    story.boots("cpu-spot-1").binds("t7", "cpu-spot-1").reports("t7", 0.5)
    changes = columns.update(story.state, story.events[before:], story.at)
    assert changes is not None
    assert changes.tasks is not None
    assert looked_at == ["t7"] == [values[0] for values in changes.tasks["rows"].values()]
