"""Tasks, attempts and nodes as columns, and the deltas that keep them right."""

from __future__ import annotations

from tests.page.folded import rows_of
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
