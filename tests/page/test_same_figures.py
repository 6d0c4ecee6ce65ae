"""Columns have the figures of the JSON view of a run: for recorded runs, for any run and for every cause."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from scripts.make_failure_matrix import read
from tests.engine.builders import a_config, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.random_runs import runs
from tests.engine.scripts import Behavior, scripted
from tests.page.folded import rows_of
from tests.page.made_runs import KINDS, make_run
from tests.page.workload_runs import Workload, workloads
from tests.views.builders import Story, tutorial

from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause
from spotwright.page.columns import RunColumns
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text
from spotwright.views.waiting import status_word

OLD = Path(__file__).parents[1] / "records" / "journals" / "format_1" / "state"


def since(at: float | None, t0: float) -> Any:
    return None if at is None else pytest.approx(at - t0, abs=0.00051)


def compare(state: RunState, now: float | None = None) -> None:
    """Every value of the columns is that of the view, with words, rows and moments as columns have them."""
    view, columns = run_view(state, "run", now), RunColumns(state, now)
    tasks, attempts = rows_of(columns.tasks()), rows_of(columns.attempts())
    told = [*view["left_behind"], *view["tasks"]]
    assert [row["path"] for row in tasks] == [task["path"] for task in told]
    for number, (row, task) in enumerate(zip(tasks, told, strict=True)):
        own = sorted((each for each in attempts if each["task"] == number), key=lambda each: each["number"])
        compare_task(row, task, view["started_at"], is_here=number >= len(view["left_behind"]))
        assert len(own) == len(task["attempts"])
        for each, attempt in zip(own, task["attempts"], strict=True):
            compare_attempt(each, attempt, view["started_at"])
    names = ("name", "pool", "capacity", "state", "why")
    nodes = [[*(row[name] for name in names), row["booted"], row["gone"]] for row in rows_of(columns.nodes())]
    assert nodes == [
        [
            *(node[name] for name in names),
            since(node["booted_at"], view["started_at"]),
            since(node["gone_at"], view["started_at"]),
        ]
        for node in view["nodes"]
    ]


def compare_task(row: dict[str, Any], task: dict[str, Any], t0: float, *, is_here: bool) -> None:
    assert (row["written"], row["why"]) == (task["written"], task["why"])
    waiting = task["waits_for"]
    assert row["status"] == status_word(task["status"], waiting and waiting["kind"], len(task["attempts"]))
    assert row["attempts"] == len(task["attempts"])
    assert (row["interruptions"], row["errors"]) == (task["spent"]["interruptions"], task["spent"]["errors"])
    assert (row["interruptions_max"], row["errors_max"]) == tuple(task["budgets"].values())
    assert (row["kind"] != "task") == task["is_pipeline"]
    assert bool(row["cached"]) == (task["cached_from"] is not None)
    assert bool(row["retired"]) != is_here
    waits = "" if task["waits_for"] is None else task["waits_for"]["text"]
    assert row["waits"] == re.sub(r" \(\d+ nodes? booting\)", "", waits)
    last = task["attempts"][-1] if task["attempts"] else {"pool": None, "node": None, "capacity": None}
    assert [row["pool"], row["node"], row["capacity"]] == [last[name] or None for name in ("pool", "node", "capacity")]
    bound = [attempt["bound_at"] for attempt in task["attempts"] if attempt["bound_at"] is not None]
    assert row["began"] == since(bound[0] if bound else None, t0)
    if row["ended"] is not None:
        assert row["ended"] == since(last["ended_at"], t0)
        seconds = [attempt["seconds"] for attempt in task["attempts"] if attempt["seconds"] is not None]
        assert row["seconds"] == (pytest.approx(sum(seconds), abs=0.00051) if seconds else None)


def compare_attempt(row: dict[str, Any], attempt: dict[str, Any], t0: float) -> None:
    for name in ("number", "cause"):
        assert row[name] == attempt[name]
    assert [row["pool"], row["node"], row["capacity"]] == [
        attempt[name] or None for name in ("pool", "node", "capacity")
    ]
    assert list(row["pools"] or ()) == attempt["pools"]
    moments = {
        "placed": "placed_at",
        "bound": "runs_since",
        "noticed": "noticed_at",
        "goes": "goes_at",
        "ended": "ended_at",
    }
    for name, at in moments.items():
        assert row[name] == since(attempt[at], t0), name
    kept = attempt["kept"] if attempt["cause"] is not None else None
    assert [row["kept_low"], row["kept_high"]] == ([None, None] if kept is None else [kept["low"], kept["high"]])


@pytest.mark.parametrize("name", sorted(path.name for path in (OLD / "runs").iterdir()))
def test_recorded_runs(name: str, tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "state")
    compare(RunReader(RunFolder(tmp_path / "state" / "runs" / name), lambda _holder: False).state)


def test_an_end_of_every_cause() -> None:
    full = a_config(a_pool(max_nodes=0), policy={"spot": "require", "pending_timeout": "5s"})
    signals = [each.signals for each in read()]
    runs = [Run(a_plan([a_task("a")]), scripted({"a": [Behavior(5.0, each, reports=2)]})) for each in signals]
    seen = set()
    for run in [*runs, Run(a_plan([a_task("a")], full))]:
        run.start()
        compare(run.state)
        seen |= {attempt.cause for attempt in run.state.tasks["a"].attempts}
    assert set(Cause) - seen == set()


@given(runs())
def test_any_run(run: Run) -> None:
    run.start()
    compare(run.state)


@given(workloads())
def test_any_workload(workload: Workload) -> None:
    compare(workload.state, workload.at + 5)


def test_a_run_that_goes_on() -> None:
    story = Story(tutorial().state.plan)
    story.boots("cpu-spot-1").binds("download", "cpu-spot-1").after(3).reports("download", 0.5)
    compare(story.state, story.at + 10)
    story.node("cpu-spot-1", "gone", "taken").ends("download", signal=9, node_gone=True, spot=True)
    compare(story.state, story.at + 10)


def test_tasks_that_a_resume_left_behind() -> None:
    run = Run(a_plan([a_task("a")]))
    run.start()
    run.resume(changed=a_plan([a_task("other")]))
    assert rows_of(RunColumns(run.state).tasks())[0]["retired"] == 1
    compare(run.state)


def test_tasks_that_never_start_are_told_as_show_tells_them(tmp_path: Path) -> None:
    state = make_run(tmp_path / "state", "failed", KINDS["failed"])
    told = {row["path"]: row["status"] for row in rows_of(RunColumns(state).tasks())}
    never = [path for path, status in told.items() if status == "not started"]
    shown = show_text(run_view(state, "failed", None))
    assert never == [line.split()[0] for line in shown.splitlines() if line.endswith("not started")]
    assert len(never) > 3
