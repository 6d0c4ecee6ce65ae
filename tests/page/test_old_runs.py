"""The page agrees with ``show``, ``report`` and the journal about real runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spotwright.engine.event_codec import DECISIONS
from spotwright.page.attempt_panel import attempt_panel, history, nodes
from spotwright.page.heads import head, line
from spotwright.page.money import account_document, totals_document
from spotwright.page.scopes import graph
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.views.account import Account, account
from spotwright.views.account_report import line_rows, report_json
from spotwright.views.run_json import run_view, summary
from spotwright.views.run_text import show_text
from spotwright.views.spending import Totals, totals_json

RECORDED = Path(__file__).parents[1] / "records" / "journals" / "format_1" / "state"
RUNS = sorted(path.name for path in (RECORDED / "runs").iterdir())


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[RunReader, Account]]:
    copy = tmp_path_factory.mktemp("old") / "state"
    shutil.copytree(RECORDED, copy)
    opened = {folder.name: RunReader(folder, lambda _: False) for folder in StateFolder.existing(copy).runs()}
    return {name: (reader, account(reader.state)) for name, reader in opened.items()}


Readers = dict[str, tuple[RunReader, Account]]


def words(text: str) -> str:
    """A text without its line breaks and indents."""
    return " ".join(text.split())


@pytest.mark.parametrize("run", RUNS)
def test_the_head_has_the_summary_of_runs_and_the_outputs_of_show(run: str, readers: Readers) -> None:
    reader, costs = readers[run]
    told, view = head(reader, costs), run_view(reader.state, run)

    assert told["summary"].items() >= summary(reader.state, run).items()
    assert (told["outputs"], told["arguments"], told["notes"]) == (view["outputs"], view["arguments"], view["notes"])
    assert told["seq"] == reader.state.events
    assert json.loads(json.dumps(told)) == told


@pytest.mark.parametrize("run", RUNS)
def test_without_its_account_a_run_has_the_same_line_but_for_money(run: str, readers: Readers) -> None:
    reader, costs = readers[run]
    of_money = ("prices", "has_prices", "cost", "wasted", "saved")
    assert line(reader) == line(reader, costs) | dict.fromkeys(of_money)


@pytest.mark.parametrize("run", RUNS)
def test_every_attempt_has_the_words_of_show_and_its_own_events(run: str, readers: Readers) -> None:
    reader, costs = readers[run]
    view = run_view(reader.state, run)
    shown = words(show_text(view))
    for task in view["tasks"]:
        for attempt in task["attempts"]:
            panel = attempt_panel(reader, task["path"], attempt["number"], costs)
            assert panel["attempt"] == attempt
            kinds = [event["kind"] for event in panel["events"]]
            assert kinds[0] == "placed"
            assert "decided" in kinds
            assert all(event["text"] for event in panel["events"])
            assert json.loads(json.dumps(panel)) == panel
            if attempt["cause"] != "succeeded":
                assert words(panel["sentence"]) in shown
                assert words(panel["followed"]["text"]) in shown
            assert panel["rule"] is not None or attempt["cause"] == "unschedulable"
            if panel["rule"] is not None:
                assert any(signal["decided"] for signal in panel["evidence"]), panel["evidence"]


@pytest.mark.parametrize("run", RUNS)
def test_the_last_attempt_leaves_the_budgets_as_they_are(run: str, readers: Readers) -> None:
    reader, costs = readers[run]
    for task in run_view(reader.state, run)["tasks"]:
        if task["attempts"]:
            followed = attempt_panel(reader, task["path"], len(task["attempts"]), costs)["followed"]
            after = {name: each["spent"] for name, each in followed["budget_after"].items()}
            assert after == task["spent"] | {"moves": task["spent"]["moves"]}


@pytest.mark.parametrize("run", RUNS)
def test_the_history_has_every_event_once_and_its_pages_join(run: str, readers: Readers) -> None:
    reader, _ = readers[run]
    rows, after = [], 0
    while True:
        page = history(reader, after, 7)
        rows += page["rows"]
        if page["next"] is None:
            break
        after = page["next"]
    with reader.source.look(0) as look:
        events = list(look.events)
    assert [row["seq"] for row in rows] == [seq for seq, _ in events]
    assert [row["decision"] for row in rows] == [isinstance(event, DECISIONS) for _, event in events]
    assert all(row["text"] for row in rows), [row for row in rows if not row["text"]]


@pytest.mark.parametrize("run", RUNS)
def test_nodes_are_those_of_show(run: str, readers: Readers) -> None:
    reader, _ = readers[run]
    known = sorted(run_view(reader.state, run)["nodes"], key=lambda node: node["booted_at"])
    assert [{key: node[key] for key in known[0]} for node in nodes(reader)["nodes"]] == known


@pytest.mark.parametrize("run", RUNS)
def test_the_account_is_that_of_report(run: str, readers: Readers) -> None:
    reader, costs = readers[run]
    told = account_document(reader, costs)
    said = report_json(costs, run)

    assert {**told, "attempts_by_start": said["attempts_by_start"]}.items() >= said.items()
    bars = [[bar["words"], bar["time"], bar["cost"], bar["part"]] for bar in told["bar"]]
    assert bars == [list(row) for row in line_rows(costs).rows[:-1]]
    series = told["series"]
    assert len(series["t"]) == len(series["cost"]) == len(series["wasted_high"]) <= 200
    assert series["cost"] == pytest.approx(sorted(series["cost"]), abs=1e-12)
    assert series["cost"][-1] == pytest.approx(said["whole"]["money"])
    high = sum(bar["high"] for bar in told["bar"] if bar["key"] in ("interruptions", "moves", "errors", "stopped"))
    assert series["wasted_high"][-1] == pytest.approx(high)
    assert sum(told["by_task"]["cost"]) == pytest.approx(said["attempts"]["money"])
    assert sum(told["by_task"]["wasted_high"]) == pytest.approx(high)
    assert sum(told["by_task"]["attempts"]) == len(said["attempts_by_start"])


@pytest.mark.parametrize("run", RUNS)
def test_the_graph_counts_what_show_lists(run: str, readers: Readers) -> None:
    reader, costs = readers[run]
    leaves = [task for task in run_view(reader.state, run)["tasks"] if not task["is_pipeline"]]
    drawn = graph(reader, "", costs)
    for node in drawn["nodes"]:
        inside = [t for t in leaves if t["path"] == node["path"] or t["path"].startswith(f"{node['path']}/")]
        assert sum(node["counts"].values()) == len(inside)
        assert node["attempts"] == sum(len(task["attempts"]) for task in inside)
        cost = sum(a["cost"]["money"] for task in inside for a in task["attempts"] if a["cost"] is not None)
        assert node["cost"] == pytest.approx(cost)
    assert sum(sum(node["counts"].values()) for node in drawn["nodes"]) == len(leaves)


def test_totals_are_those_of_report_over_several_runs(readers: Readers) -> None:
    totals = Totals()
    for reader, costs in readers.values():
        totals.add_run(reader.state, reader.folder.name, costs)
    told = totals_document(readers.values())
    [total], [said] = told["totals"], totals_json(totals)["totals"]
    assert total.items() >= said.items()
    assert sum(group["runs"] for group in total["pipelines"]) == len(RUNS)
    assert sum(group["whole"]["money"] for group in total["pipelines"]) == pytest.approx(said["whole"]["money"])


def test_totals_leave_out_runs_that_began_before(readers: Readers) -> None:
    began = sorted(reader.state.started_at for reader, _ in readers.values())
    [total] = totals_document(readers.values(), began[-3])["totals"]
    assert len(total["runs"]) == 3
