"""The account over time for any story, and the plan of a run beside the actual figures."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.forecast.builders import HOUR, forecast, task
from tests.page.reading import AJob, StoryReader, reader_from, reader_of
from tests.views.builders import POOLS, Story, a_config, a_plan, a_task, tutorial
from tests.views.stories import any_story, requests, steps

from spotwright.forecast.report import forecast_json
from spotwright.model.attempts import Signals
from spotwright.page.money import account_document, plan_document, totals_document
from spotwright.views.account import account
from spotwright.views.account_report import money_lines, report_json


@given(steps, st.lists(requests, min_size=1, max_size=3))
def test_the_curve_of_any_run_grows_to_its_cost_and_the_tasks_add_up(
    told: list[tuple[str, float, float, bool]], asked: list[dict[str, int]]
) -> None:
    reader = reader_of(any_story(told, asked, Fraction(18, 100)))
    costs = account(reader.state)
    found, said = account_document(reader, costs), report_json(costs, reader.folder.name)

    assert json.loads(json.dumps(found)) == found
    for name, last in (("cost", said["whole"]["money"]), ("wasted_high", None), ("wasted_low", None)):
        curve = found["series"][name]
        slack = 1e-9 * (1 + max(curve, default=0.0))
        assert all(after >= before - slack for before, after in pairwise(curve))
        assert last is None or not curve or curve[-1] == pytest.approx(last, abs=1e-12)
    low, high = (sum(found["by_task"][name]) for name in ("wasted_low", "wasted_high"))
    assert low <= high + 1e-12
    assert sum(found["by_task"]["cost"]) == pytest.approx(said["attempts"]["money"], abs=1e-12)
    whole = said["whole"]["money"]
    assert sum(bar["low"] for bar in found["bar"]) <= whole + 1e-12
    assert sum(bar["high"] for bar in found["bar"]) >= whole - 1e-12


def test_a_cost_is_spread_over_the_time_in_which_it_arose() -> None:
    story = Story(a_plan(a_task("a", requests={"cpu": 4000}))).boots("cpu-spot-1", 100).binds("a", "cpu-spot-1")
    story.after(100).ends("a").gives_back("cpu-spot-1")
    reader = reader_of(story)
    series = account_document(reader, account(reader.state))["series"]
    cost = dict(zip(series["t"], series["cost"], strict=True))
    whole = 200 * 0.18 / 3600
    for at, spent in cost.items():
        # the boot is spread over the life of its node, the attempt over its own time
        assert spent == pytest.approx(whole / 2 * at / 200 + max(0.0, at - 100) * 0.18 / 3600, abs=1e-12)


def test_without_prices_numbers_are_node_hours() -> None:
    config = a_config(POOLS.replace(", price: 0.18/h", ""))
    story = Story(a_plan(a_task("a", requests={"cpu": 4000}), config=config)).boots("cpu-spot-1", 60)
    story.binds("a", "cpu-spot-1").after(3540).ends("a").gives_back("cpu-spot-1")
    reader = reader_of(story)
    found = account_document(reader, account(reader.state))
    assert (found["unit"], found["whole"]["money"]) == ("Node-hours", None)
    assert found["series"]["cost"][-1] == pytest.approx(1.0)
    assert sum(bar["low"] for bar in found["bar"]) == pytest.approx(1.0)


def test_a_run_without_a_node_has_no_curve() -> None:
    reader = reader_of(Story(a_plan(a_task("a"))))
    found = account_document(reader, account(reader.state))
    assert (found["series"], found["text"]) == ({"t": [], "cost": [], "wasted_low": [], "wasted_high": []}, [])


def test_the_words_are_those_of_report() -> None:
    reader = reader_of(tutorial())
    costs = account(reader.state)
    document = account_document(reader, costs)
    assert document["text"] == money_lines(costs)
    assert " ".join(" ".join(document["text"]).split()).endswith(" saved " + document["saved_text"])


# -- plans


def a_plan_document(currency: str = "USD") -> dict[str, Any]:
    return {**forecast_json(forecast(task(work=HOUR)), "pipeline.py"), "currency": currency}


def beside(folder: Path, document: dict[str, Any] | str | None, *, driven: bool = False) -> StoryReader:
    """The tutorial's run with this plan beside it."""
    path = folder / "iris-x7k2p"
    path.mkdir(exist_ok=True)
    if document is not None:
        text = document if isinstance(document, str) else json.dumps(document)
        (path / "forecast.json").write_text(text, encoding="utf-8")
    return reader_of(tutorial(), folder=folder, driven=driven)


def plan_of(reader: StoryReader) -> dict[str, Any]:
    return plan_document(reader, account(reader.state, reader.now))


def test_a_plan_has_every_policy_with_its_histograms_and_the_run_has_its_place(tmp_path: Path) -> None:
    document = a_plan_document()
    found = plan_of(beside(tmp_path, document))

    assert [policy["name"] for policy in found["policies"]] == [policy["name"] for policy in document["policies"]]
    assert [policy["words"] for policy in found["policies"] if policy["is_own"]] == ["spot, then on-demand"]
    for told, saved in zip(found["policies"], document["policies"], strict=True):
        assert told["cost"] == {name: saved["cost"][name] for name in ("p10", "p50", "p90", "p99")}
        assert told["bins"]["end"] == {**saved["bins"]["finish"], "edges": list(saved["bins"]["finish"]["edges"]),
                                       "counts": list(saved["bins"]["finish"]["counts"])}  # fmt: skip
        for bins in told["bins"].values():
            assert (len(bins["edges"]), len(bins["counts"])) == (41, 40)
            assert sum(bins["counts"]) + bins["beyond"] == document["markets"]
    assert found["planned"]["cost"]["actual"] == found["actual"]["cost"] > 0
    assert (found["actual"]["cost_words"], found["actual"]["end_words"]) == ("below the plan", "below the plan")
    assert found["text"][0] == "Plan against actual (forecast.json, spot, then on-demand)"
    assert not found["actual"]["so_far"]
    assert json.loads(json.dumps(found)) == found


def test_a_plan_of_version_1_is_read_without_histograms(tmp_path: Path) -> None:
    document = a_plan_document()
    old = {
        **document,
        "plan": 1,
        "policies": [{key: value for key, value in each.items() if key != "bins"} for each in document["policies"]],
    }
    found = plan_of(beside(tmp_path, old))
    assert [policy["bins"] for policy in found["policies"]] == [None] * len(document["policies"])
    assert found["actual"]["cost_words"] == "below the plan"


def test_a_run_without_a_plan_says_how_to_have_one(tmp_path: Path) -> None:
    found = plan_of(beside(tmp_path, None))
    assert (found["planned"], found["policies"]) == (None, [])
    assert "spotwright run --plan FILE" in found["why"]


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "{",
        "[]",
        "null",
        '{"plan": 2}',
        '{"plan": 3, "currency": null}',
        '{"plan": 2, "currency": 5, "policies": 7}',
    ],
)
def test_a_damaged_plan_says_what_is_wrong_with_it(damaged: str, tmp_path: Path) -> None:
    found = plan_of(beside(tmp_path, damaged))
    assert (found["planned"], found["policies"]) == (None, [])
    assert "forecast.json" in found["why"]


@pytest.mark.parametrize(
    "change",
    [
        {"edges": [0, 1]}, {"edges": list(range(41, 0, -1))}, {"counts": [-1] * 40}, {"counts": []}, {"counts": "x"},
        {"beyond": None}, {"edges": ["a"] * 41}, {"counts": [1e400] * 40},
    ],
)  # fmt: skip
def test_a_histogram_that_is_none_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    document = json.loads(json.dumps(a_plan_document()))
    document["policies"][0]["bins"]["cost"].update(change)
    assert plan_of(beside(tmp_path, document))["policies"] == []


def test_a_plan_that_does_not_fit_the_run_is_shown_with_the_reason(tmp_path: Path) -> None:
    found = plan_of(beside(tmp_path, a_plan_document("EUR")))
    assert found["planned"] is None
    assert "is in EUR, the run in USD" in found["why"]
    assert len(found["policies"]) == 2


def test_totals_have_the_namespaces_of_runs_in_a_cluster() -> None:
    job = AJob()
    job.adopt(("spot",))
    job.bind("spot", 5)
    job.end(Signals(exit_code=0, outputs_complete=True), 65)
    reader = reader_from(job.state.plans[0], job.events)
    [total] = totals_document([(reader, account(reader.state))])["totals"]
    assert [(group["name"], group["runs"]) for group in total["namespaces"]] == [("team-a", 1)]
