"""Plan against actual: the saved plan beside the account of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.forecast.builders import HOUR, forecast, task

from spotwright.cli import cli
from spotwright.errors import InputError
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
