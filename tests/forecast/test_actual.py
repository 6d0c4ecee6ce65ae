"""Plan against actual: the saved plan beside the account of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.forecast.builders import HOUR, forecast, task

from spotwright.cli import cli
from spotwright.errors import InputError
from spotwright.forecast.forecast import bins
from spotwright.forecast.report import forecast_json, read_forecast

RECORDED = Path(__file__).parents[1] / "records" / "journals" / "format_1" / "state"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("old") / "state"
    shutil.copytree(RECORDED, copy)
    return copy


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(forecast_json(forecast(task(work=HOUR)), "pipeline.py")), encoding="utf-8")
    return path


def changed(plan: Path, **values: Any) -> Path:
    document = {**json.loads(plan.read_text(encoding="utf-8")), **values}
    plan.write_text(json.dumps(document), encoding="utf-8")
    return plan


def report(state: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, arguments), "--state", str(state)], standalone_mode=False)


def run_of(state: Path) -> str:
    return max(path.name for path in (state / "runs").iterdir())


def test_the_account_of_a_run_says_whether_it_is_within_the_plan(state: Path, plan: Path) -> None:
    text = report(state, run_of(state), "--plan", plan).stdout
    assert "Plan against actual (plan.json, spot, then on-demand)" in text
    assert ": below the plan" in text  # a run of seconds beside an hour


def test_the_json_has_the_planned_figures_beside_the_actual_ones(state: Path, plan: Path) -> None:
    planned = json.loads(report(state, run_of(state), "--plan", plan, "--json").stdout)["planned"]
    saved = json.loads(plan.read_text(encoding="utf-8"))["policies"][1]
    assert planned["policy"] == saved["name"] == "spot"
    assert planned["cost"]["p90"] == saved["cost"]["p90"]
    assert 0 < planned["cost"]["actual"] < planned["cost"]["p10"]


def test_several_runs_have_the_plan_in_their_total(state: Path, plan: Path) -> None:
    runs = sorted(path.name for path in (state / "runs").iterdir())[-2:]
    [total] = json.loads(report(state, *runs, "--plan", plan, "--json").stdout)["totals"]
    assert all(run["planned"]["p50"] > 0 for run in total["runs"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected what 'spotwright plan PIPELINE --json' prints"),
        ("[]", "expected what"),
        ('{"plan": 1}', "expected what"),
        ('{"plan": 3, "currency": null}', "a plan of version 3"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_forecast(path)
    assert message in str(error.value)


def test_a_plan_in_another_currency_is_refused(state: Path, plan: Path) -> None:
    result = report(state, run_of(state), "--plan", changed(plan, currency="EUR"))
    assert "is in EUR, the run in USD" in str(result.exception)


def test_a_histogram_has_every_market_once() -> None:
    made = forecast(task(work=HOUR), markets=250)
    for policy in made.policies:
        for found, values in ((policy.cost_bins, policy.cost), (policy.finish_bins, policy.finish)):
            assert (len(found.edges), len(found.counts)) == (41, 40)
            assert sum(found.counts) + found.beyond == 250
            assert found.edges[0] <= values.p10 <= values.p90 <= found.edges[-1] + 1e-9


def test_equal_figures_fill_the_first_bin_of_a_histogram_that_begins_with_them() -> None:
    [on_demand, *_] = forecast(task(work=HOUR), markets=100).policies
    assert on_demand.cost_bins.edges[0] == pytest.approx(3.0)
    assert on_demand.cost_bins.counts == (100, *[0] * 39)


def test_markets_in_which_the_run_does_not_end_are_beyond_the_histogram() -> None:
    found = bins(np.array([1.0, 2.0, np.inf, 2.0]))
    assert (sum(found.counts), found.beyond, found.edges[0], found.edges[-1]) == (3, 1, 1.0, 2.0)
    assert bins(np.array([np.inf])).beyond == 1


def beside_run(state: Path, plan: Path, **values: Any) -> str:
    """Put the plan into the folder of a run, as ``spotwright run --plan`` does."""
    name = run_of(state)
    shutil.copy(changed(plan, **values), state / "runs" / name / "forecast.json")
    return name


@pytest.fixture
def own_state(tmp_path: Path) -> Path:
    shutil.copytree(RECORDED, tmp_path / "state")
    return tmp_path / "state"


def test_a_plan_in_the_folder_of_a_run_is_found_without_an_option(own_state: Path, plan: Path) -> None:
    name = beside_run(own_state, plan)
    document = json.loads(report(own_state, name, "--json").stdout)
    assert document["planned"]["cost"]["p90"] == read_forecast(plan).costs["spot"][2]
    assert "Plan against actual (forecast.json, spot, then on-demand)" in report(own_state, name).stdout

    [total] = json.loads(report(own_state, *(path.name for path in (own_state / "runs").iterdir()), "--json").stdout)[
        "totals"
    ]
    assert [run["run"] for run in total["runs"] if run["planned"]] == [name]


def test_a_plan_in_the_folder_that_does_not_fit_hides_nothing_of_the_account(own_state: Path, plan: Path) -> None:
    name = beside_run(own_state, plan, currency="EUR")
    result = report(own_state, name, "--json")
    assert "planned" not in json.loads(result.stdout)
    assert f"the plan of run {name} is left out: forecast.json is in EUR, the run in USD" in result.stderr


def test_the_plan_that_is_named_counts_before_the_one_in_the_folder(own_state: Path, plan: Path) -> None:
    name = beside_run(own_state, plan, currency="EUR")
    document = json.loads(report(own_state, name, "--plan", changed(plan, currency="USD"), "--json").stdout)
    assert document["planned"]["plan"] == "plan.json"
