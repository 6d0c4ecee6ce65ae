"""``spotwright report`` of several runs, of those of some days, and as rows for finance: over runs of an earlier version."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from decimal import Decimal
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from spotwright.cli import cli
from spotwright.errors import UnknownRun
from spotwright.views.spending import COLUMNS

RECORDED = Path(__file__).parents[1] / "records" / "journals" / "format_1" / "state"
RUNS = sorted(path.name for path in (RECORDED / "runs").iterdir())


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the recorded runs; one of them began long ago."""
    copy = tmp_path_factory.mktemp("old") / "state"
    shutil.copytree(RECORDED, copy)
    for run in RUNS:
        os.utime(copy / "runs" / run / "plan-1.json")
    os.utime(copy / "runs" / RUNS[0] / "plan-1.json", (0, 0))
    return copy


def report(state: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["report", *arguments, "--state", str(state)], standalone_mode=False)
    assert result.exception is None, result.output
    return result


def test_since_reports_the_runs_that_began_within_the_time(state: Path) -> None:
    [total] = json.loads(report(state, "--since", "30d", "--json").stdout)["totals"]
    assert sorted(run["run"] for run in total["runs"]) == RUNS[1:]


def test_the_total_of_several_runs_is_the_sum_of_their_reports(state: Path) -> None:
    [total] = json.loads(report(state, *RUNS, "--json").stdout)["totals"]
    each = [json.loads(report(state, run, "--json").stdout) for run in RUNS]

    assert total["whole"]["money"] == pytest.approx(sum(one["whole"]["money"] for one in each), abs=1e-12)
    assert total["whole"]["seconds"] == pytest.approx(sum(one["whole"]["seconds"] for one in each))
    assert total["saved"]["high"] == pytest.approx(sum(one["saved"]["high"] for one in each if one["saved"]), abs=1e-12)


def test_a_total_says_what_each_pool_task_and_cause_cost(state: Path) -> None:
    text = report(state, *RUNS).stdout

    assert f"Account of {len(RUNS)} runs (Simulated USD)" in text
    for heading in ("Pool ", "Task ", "Where it went", "Run ", "Saved "):
        assert f"\n{heading}" in text


def test_rows_for_finance_add_up_as_csv_and_as_json(state: Path) -> None:
    read = list(csv.DictReader(io.StringIO(report(state, *RUNS, "--focus", "csv").stdout)))
    [total] = json.loads(report(state, *RUNS, "--json").stdout)["totals"]

    assert list(read[0]) == list(COLUMNS)
    assert json.loads(report(state, *RUNS, "--focus", "json").stdout) == read
    assert float(sum(Decimal(row["EffectiveCost"]) for row in read)) == pytest.approx(
        total["whole"]["money"], abs=1e-12
    )


def test_a_run_that_cannot_be_read_hides_no_other(state: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "state"
    shutil.copytree(state, damaged)
    (damaged / "runs" / RUNS[1] / "plan-1.json").write_text("{")

    result = report(damaged, *RUNS, "--json")

    assert f"run {RUNS[1]} is left out" in result.stderr
    assert len(json.loads(result.stdout)["totals"][0]["runs"]) == len(RUNS) - 1


def test_without_a_run_and_without_a_time_the_usage_is_said(state: Path) -> None:
    result = CliRunner().invoke(cli, ["report", "--state", str(state)], standalone_mode=False)
    assert isinstance(result.exception, click.UsageError)
    assert "expected a RUN, 'last', or --since" in str(result.exception)


def test_an_unknown_run_is_refused_before_anything_is_printed(state: Path) -> None:
    result = CliRunner().invoke(cli, ["report", RUNS[0], "nothing", "--state", str(state)], standalone_mode=False)
    assert isinstance(result.exception, UnknownRun)
    assert result.stdout == ""
