"""``spotwright plan``: a forecast of a compiled pipeline, with pools, prices and durations of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.e2e.building import Of, Param, document, step

import spotwright as spot
from spotwright.cli import cli
from spotwright.errors import InputError

CONFIG = """
version: 1
currency: EUR
pools:
  spot: {capacity: spot, node: {cpu: 4}, price: 1/h, boot: 3m}
  od: {capacity: on-demand, node: {cpu: 4}, price: 3/h, boot: 3m}
policy:
  default: {spot: prefer}
  tasks:
    "train": {checkpoint: ckpt}
"""
DURATIONS = "tasks:\n  load: 20m\n  train: {work: 3h, save: 30s}\n"


def load() -> str:
    return ""


def train(data: str) -> str:
    return data


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A pipeline of two tasks, with a configuration and durations beside it."""
    text = document({"load": step(load), "train": step(train, {"data": Of("load")})}, name="two-steps")
    (tmp_path / "pipeline.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "spotwright.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "durations.yaml").write_text(DURATIONS, encoding="utf-8")
    return tmp_path / "pipeline.yaml"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["plan", *map(str, arguments)], standalone_mode=False)


def plan(pipeline: Path, *arguments: str | Path) -> Any:
    durations = pipeline.with_name("durations.yaml")
    result = invoke(pipeline, "--durations", durations, "--markets", "200", "--json", *arguments)
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def test_a_plan_has_cost_and_end_of_every_policy_and_names_the_best(pipeline: Path) -> None:
    found = plan(pipeline, "--deadline", "8h")
    by_name = {policy["name"]: policy for policy in found["policies"]}

    assert list(by_name) == ["on-demand", "spot", "deadline", "uniform-progress"]
    assert by_name["on-demand"]["finish"]["p99"] == (20 + 180 + 3) * 60.0  # the second task takes over the node
    assert by_name["on-demand"]["cost"]["mean"] == pytest.approx(3.0 * (20 + 180 + 3) / 60.0)
    assert by_name[found["best"]]["cost"]["mean"] < by_name["on-demand"]["cost"]["mean"]
    assert (found["currency"], found["deadline"], found["plan"]) == ("EUR", 8 * 3600.0, 2)


def test_a_task_that_saves_has_an_interval_and_a_budget(pipeline: Path) -> None:
    load_line, train_line = plan(pipeline)["tasks"]
    assert (load_line["path"], load_line["saves"], load_line["every"]) == ("load", False, None)
    assert train_line["saves"]
    assert 60.0 < train_line["every"] < 3 * 3600.0
    assert train_line["budget"] >= load_line["budget"] >= 1


def test_the_table_says_which_policy_is_best_with_the_command_and_where_prices_are_from(pipeline: Path) -> None:
    durations = pipeline.with_name("durations.yaml")
    text = invoke(pipeline, "--durations", durations, "--markets", "200", "--deadline", "8h").stdout
    assert text.startswith("Plan of two-steps, deadline 8h00m: 200 markets, using built-in interruption rates, seed 1")
    assert f"spotwright run {pipeline}" in text
    assert "Price   spot 1 EUR/h (configured in spotwright.yaml)" in text
    assert "given in durations.yaml" in text


def test_prices_of_a_sheet_are_said_with_their_age(pipeline: Path) -> None:
    sheet = "machine,capacity,price,currency,region\n"
    sheet += "".join(
        f"Standard_D4s_v3,{sold},{price},EUR,westeurope\n" for sold, price in (("on-demand", 0.24), ("spot", 0.05))
    )
    (pipeline.parent / "azure.csv").write_text(sheet, encoding="utf-8")
    pools = "machine: Standard_D4s_v3, provider: aks, region: westeurope, node: {cpu: 4}"
    config = "version: 1\ncurrency: EUR\nprices: [azure.csv]\npools:\n"
    config += f"  s: {{capacity: spot, {pools}}}\n  o: {{capacity: on-demand, {pools}}}\n"
    (pipeline.parent / "spotwright.yaml").write_text(config, encoding="utf-8")
    spot, on_demand = plan(pipeline)["prices"]
    assert spot.startswith("s 0.05 EUR/h (azure.csv from today, westeurope")
    assert on_demand.startswith("o 0.24 EUR/h")


def test_the_last_run_of_the_pipeline_gives_the_durations_unless_the_policy_states_them(pipeline: Path) -> None:
    folder = pipeline.parent
    options = "--state", str(folder / "state"), "--config", str(pipeline.with_name("spotwright.yaml"))
    other = folder / "other.yaml"
    other.write_text(pipeline.read_text("utf-8").replace("two-steps", "other"), encoding="utf-8")
    for file, name in ((pipeline, "first"), (pipeline, "newer"), (other, "other")):
        words = [sys.executable, "-m", "spotwright", "run", str(file), "--name", name, "--cache", "off", *options]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
    document_of = json.loads(invoke(pipeline, *options, "--markets", "200", "--json").stdout)
    assert {task["source"] for task in document_of["tasks"]} == {"measured in newer"}
    assert any("durations come from newer, the last run of two-steps" in note for note in document_of["notes"])

    stated = folder / "stated.yaml"
    stated.write_text(CONFIG.replace("checkpoint: ckpt", "expected_duration: 2h"), encoding="utf-8")
    by_policy = json.loads(invoke(pipeline, *options[:2], "--config", str(stated), "--markets", "200", "--json").stdout)
    named = invoke(
        pipeline, *options[:2], "--config", str(stated), "--markets", "200", "--json", "--durations", "first"
    )
    assert [task["source"] for task in by_policy["tasks"]] == ["measured in newer", "expected_duration in the policy"]
    assert {task["source"] for task in json.loads(named.stdout)["tasks"]} == {"measured in first"}
    assert str(spot.plan(pipeline, state=folder / "state", markets=200)).count("measured in newer") == 2


def test_a_plan_takes_the_runtime_of_containers_for_the_command_that_it_prints(pipeline: Path) -> None:
    document_of = plan(pipeline, "--containers", "host")
    assert document_of["command"].startswith(f"spotwright run {pipeline} --containers host")
    assert "--containers" not in plan(pipeline)["command"]


def test_without_durations_ten_minutes_are_assumed_and_said(pipeline: Path) -> None:
    result = invoke(pipeline, "--markets", "20", "--json")
    found = json.loads(result.stdout)
    assert [task["source"] for task in found["tasks"]] == ["assumed", "assumed"]
    assert any("load, train is not known: 10m00s each is assumed" in note for note in found["notes"])


def test_pools_without_a_price_count_on_demand_hours(pipeline: Path) -> None:
    (pipeline.parent / "spotwright.yaml").write_text(CONFIG.replace(", price: 1/h", ""), encoding="utf-8")
    found = plan(pipeline)
    assert found["currency"] is None
    assert any(warning.startswith("spot has no price") for warning in found["warnings"])


def test_arguments_of_the_pipeline_may_be_missing(tmp_path: Path, pipeline: Path) -> None:
    text = document({"load": step(load), "train": step(train, {"data": Param("data")})}, {"data": "str"})
    pipeline.write_text(text, encoding="utf-8")
    assert plan(pipeline)["pipeline"] == "tested"


def test_the_command_has_the_arguments_of_the_plan_because_they_decide_what_runs(
    tmp_path: Path, pipeline: Path
) -> None:
    text = document({"load": step(load), "train": step(train, {"data": Param("data")})}, {"data": "str"})
    pipeline.write_text(text, encoding="utf-8")
    config = pipeline.with_name("spotwright.yaml")
    found = plan(pipeline, "--arg", "data=two words", "--config", config)
    assert found["command"] == f"spotwright run {pipeline} --arg 'data=two words' --config {config}"
    answer = spot.plan(pipeline, {"data": "two words"}, config=config, markets=20)
    assert answer.json()["command"] == found["command"]


def test_a_trace_for_one_pool_and_a_seed_give_the_same_answer_again(pipeline: Path, tmp_path: Path) -> None:
    trace = tmp_path / "zone.json"
    trace.write_text(
        json.dumps({"metadata": {"gap_seconds": 300}, "data": ([1] * 50 + [0] * 9) * 40}), encoding="utf-8"
    )
    one, again, other = (plan(pipeline, "--trace", f"spot={trace}", "--seed", seed) for seed in ("7", "7", "8"))
    assert one == again
    assert one["policies"] != other["policies"]


@pytest.mark.parametrize("rate", ["0%/h", "100%/h", "10%", "0.1/h", "0.1"])
def test_rates_of_nothing_and_of_everything_can_be_planned(pipeline: Path, rate: str) -> None:
    assert plan(pipeline, "--rate", rate)["policies"]


def test_the_mean_time_between_interruptions_is_a_rate_and_is_in_the_command_to_run(pipeline: Path) -> None:
    every, rate = plan(pipeline, "--interrupt-every", "6h"), plan(pipeline, "--rate", "0.166666667/h")
    assert [policy["cost"] for policy in every["policies"]] == [policy["cost"] for policy in rate["policies"]]
    assert "--interrupt-every 6h" in every["command"]


def test_a_policy_of_the_command_line_is_planned_and_is_in_the_command_to_run(pipeline: Path) -> None:
    found = plan(pipeline, "--policy", "spot=require", "--policy", "interruptions.max=7")
    assert [policy["name"] for policy in found["policies"]] == ["spot"]
    assert "--policy spot=require --policy interruptions.max=7" in found["command"]


def test_a_rate_without_its_percent_sign_is_questioned_in_text_and_json(pipeline: Path) -> None:
    [question] = [each for each in plan(pipeline, "--rate", "10")["warnings"] if "a rate of" in each]
    assert "spot lasts 6m00s on average, and load, train take longer than that" in question
    text = invoke(pipeline, "--rate", "10", "--markets", "20").stdout
    assert "Warning a rate of 10 losses an hour" in text
    assert "write 10%/h" in text


def test_a_task_that_must_run_on_spot_leaves_no_column_and_no_figure_for_on_demand_only(pipeline: Path) -> None:
    config = CONFIG.replace('"train": {', '"train": {spot: require, ')
    (pipeline.parent / "spotwright.yaml").write_text(config, encoding="utf-8")
    found = plan(pipeline)
    assert [policy["name"] for policy in found["policies"]] == ["spot"]
    assert "no figure for on-demand only: train must run on spot (spot: require)" in found["notes"]
    assert [task["on_demand_cost"] is None for task in found["tasks"]] == [False, True]
    text = invoke(pipeline, "--markets", "20").stdout
    assert "on-demand only  " not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "often"], "--rate 'often': expected losses an hour of spot, such as 10%/h"),
        (["--rate", "99999%/h"], "rate: expected 0 to"),
        (["--rate", "-0.1"], "--rate '-0.1': expected losses an hour of spot, such as 10%/h or 0.1/h"),
        (["--rate", "nan"], "--rate 'nan': expected losses an hour of spot"),
        (["--rate", "inf"], "--rate 'inf': expected losses an hour of spot"),
        (["--rate", "1000"], "rate: expected 0 to 12.5 losses an hour"),
        (["--rate", "10%/h", "--trace", "x.json"], "name one of them"),
        (["--trace", "missing.json"], "missing.json"),
        (["--certainty", "100%"], "--certainty '100%': expected a share above 0 and below 100%"),
        (["--seed", "-1"], "--seed -1: expected a whole number from 0"),
        (["--markets", "0"], "0 is not in the range"),
        (["--durations", "nothing"], "nothing"),
        (["--durations", "missing.yaml"], "missing.yaml"),
        (["--deadline", "2020-01-01T08:00:00Z"], "the deadline passed"),
        (["--deadline", "soon"], "deadline"),
    ],
)
def test_wrong_input_is_refused_with_one_message(pipeline: Path, arguments: list[str], message: str) -> None:
    result = invoke(pipeline, *arguments, "--state", str(pipeline.parent / "none"))
    assert isinstance(result.exception, (InputError, click.UsageError))
    assert message in str(result.exception)


@pytest.mark.parametrize("name", ["plan.svg", "plan.png"])
def test_the_picture_is_written_to_the_file_that_is_named(pipeline: Path, name: str) -> None:
    path = pipeline.with_name(name)
    plan(pipeline, "--deadline", "8h", "--picture", path)
    assert path.read_bytes()[:5] == (b"<?xml" if name.endswith("svg") else b"\x89PNG\r")


def test_a_picture_of_another_kind_is_refused_before_anything_is_computed(pipeline: Path) -> None:
    result = invoke(pipeline, "--picture", "plan.pdf")
    assert "plan.pdf: expected a file that ends in .svg or .png" in str(result.exception)


@pytest.mark.parametrize("name", ["plan.svg", "plan.png"])
def test_without_matplotlib_the_message_says_what_to_install(
    pipeline: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = invoke(pipeline, "--picture", pipeline.with_name(name))
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == "--picture needs matplotlib: pip install 'spotwright[plot]'"
    assert not result.stdout


@pytest.mark.slow
def test_a_picture_needs_no_home_folder_and_leaves_no_other_file(pipeline: Path, tmp_path: Path) -> None:
    temporary, path = tmp_path / "temporary", tmp_path / "plan.png"
    temporary.mkdir()
    home = {
        "HOME": str(pipeline / "no-folder"),
        "TMPDIR": str(temporary),
    }  # below a file, so that not even root can make it
    others = {
        name: value for name, value in os.environ.items() if name not in {"MPLCONFIGDIR", *home} and "XDG" not in name
    }
    command = [sys.executable, "-m", "spotwright", "plan", str(pipeline), "--markets", "20", "--picture", str(path)]
    before = set(tmp_path.iterdir())
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=others | home, cwd=tmp_path)
    assert done.stderr == f"picture: {path}\n"
    assert set(tmp_path.iterdir()) == before | {path}
    assert list(temporary.iterdir()) == []


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "zone.json"
    states = ([1] * 50 + [0] * 9) * 40
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": states}), encoding="utf-8")
    return path


def test_without_a_pipeline_policies_are_compared_on_a_trace(trace: Path) -> None:
    options = (
        "--work",
        "6h",
        "--deadline",
        "9h",
        "--prices",
        "1,4",
        "--markets",
        "20",
        "--policy",
        "greedy",
        "--policy",
        "eager",
    )
    found = json.loads(invoke("--trace", trace, *options, "--json").stdout)
    assert [policy["name"] for policy in found["policies"]] == ["greedy", "eager"]
    assert found["job"]["on_demand_price"] == 4.0
    text = invoke("--trace", trace, *options).stdout
    assert text.startswith("6h00m of work, deadline 9h00m, changeover 12m00s, on-demand at 4 times the price of spot")
    assert "cheapest possible" in text


def test_recordings_together_are_the_pools_of_one_job_with_prices_of_their_own(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / trace.name  # of the same name in another folder
    other.parent.mkdir()
    other.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [0, 1] * 1200}), encoding="utf-8")
    options = ("--work", "6h", "--deadline", "9h", "--markets", "10", "--policy", "spotwright")
    together = ("--trace", trace, "--trace", other, *options, "--pools", "together", "--prices", "1,0.5,4")
    found = json.loads(invoke(*together, "--json").stdout)
    assert (found["pools"], found["prices"], found["windows"]) == ("together", [1.0, 0.5], 10)
    assert found["traces"] == [str(trace), str(other)]
    assert found["policies"][0]["decided_by"] == "spotwright.deadlines.choice"
    assert "as 2 spot pools of one job" in " ".join(invoke(*together).stdout.split())


def test_the_prices_of_a_comparison_are_those_of_the_configuration(trace: Path, pipeline: Path) -> None:
    options = (
        "--work",
        "6h",
        "--markets",
        "4",
        "--policy",
        "greedy",
        "--config",
        pipeline.with_name("spotwright.yaml"),
    )
    job = json.loads(invoke("--trace", trace, *options, "--json").stdout)["job"]
    assert (job["spot_price"], job["on_demand_price"]) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a PIPELINE, or --trace"),
        (["--trace", "TRACE", "--rate", "10%/h"], "--rate belongs to the plan of a pipeline"),
        (["--trace", "TRACE", "--interrupt-every", "20s"], "--interrupt-every belongs to the plan of a pipeline"),
        (["--trace", "TRACE", "--policy", "spot=never"], "--policy spot=never: expected one of on-demand, greedy"),
        (["PIPELINE", "--policy", "greedy"], "'greedy': expected FIELD=VALUE, for example spot=never"),
        (["PIPELINE", "--interrupt-every", "20s", "--rate", "10%/h"], "--rate and --interrupt-every both say how spot"),
        (["PIPELINE", "--interrupt-every", "20s", "--trace", "TRACE"], "--trace and --interrupt-every both say how"),
        (["PIPELINE", "--interrupt-every", "0s"], "--interrupt-every 0s: expected a duration above 0, for example 20s"),
        (["--trace", "TRACE", "--prices", "3"], "--prices '3': expected two prices"),
        (["--trace", "TRACE", "--prices", "1,,3"], "--prices '1,,3': expected two prices"),
        (["--trace", "TRACE", "--prices", "1,2,3"], "--prices '1,2,3': several prices of spot need --pools together"),
        (
            ["--trace", "TRACE", "--prices", "1,2,3", "--pools", "together"],
            "expected a price of spot for each of 1 recording,",
        ),
        (["--trace", "TRACE", "--policy", "learned"], "--policy learned: expected one of on-demand, greedy, eager"),
        (["PIPELINE", "--pools", "together"], "--pools compares policies on recordings"),
        (["--trace", "TRACE", "--work", "0s"], "--work: expected a duration above 0"),
        (["--trace", "TRACE", "--policy", "best"], "--policy best: expected one of"),
        (["--trace", "TRACE", "--fit", "2"], "--fit '2': expected a share"),
        (["--trace", "TRACE", "--deadline", "2030-01-01T00:00:00Z"], "expected a duration such as 52h"),
        (["PIPELINE", "--work", "3h"], "--work compares policies on recordings"),
    ],
)
def test_options_that_do_not_fit_are_refused(trace: Path, pipeline: Path, arguments: list[str], message: str) -> None:
    named = {"TRACE": str(trace), "PIPELINE": str(pipeline)}
    result = invoke(*(named.get(each, each) for each in arguments))
    assert isinstance(result.exception, (InputError, click.UsageError))
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,count\n0,4\n", "zone.json:1: not valid JSON"),
        ("[4, 4, 3]", 'expected {"metadata": {"gap_seconds": n}, "data": [counts]}'),
        (
            '{"metadata": {"gap_seconds": 300}, "data": []}',
            "data: expected a list of numbers of available nodes, one or more",
        ),
        (
            '{"metadata": {"gap_seconds": 300}, "data": [4, null, 3]}',
            "data[1]: expected a whole number, 0 or more, found null",
        ),
        (
            '{"metadata": {"gap_seconds": 0}, "data": [4]}',
            "metadata.gap_seconds: expected the seconds between two counts",
        ),
        (
            '{"metadata": {"gap_seconds": 60}, "data": [1], "prices": [-1]}',
            "prices[0]: expected an amount per hour, 0 or more",
        ),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused_with_its_place(
    pipeline: Path, trace: Path, text: str, message: str
) -> None:
    trace.write_text(text, encoding="utf-8")
    for arguments in ((pipeline, "--trace", trace), ("--trace", trace)):
        result = invoke(*arguments)
        assert isinstance(result.exception, InputError)
        assert message in str(result.exception)


@pytest.mark.parametrize("states", [[0], [1], [0, 1], [1] * 7 + [0] * 3])
def test_traces_of_other_lengths_and_without_any_spot_can_be_planned(
    pipeline: Path, trace: Path, states: list[int]
) -> None:
    trace.write_text(json.dumps({"metadata": {"gap_seconds": 77}, "data": states}), encoding="utf-8")
    assert plan(pipeline, "--trace", trace, "--deadline", "8h", "--markets", "20")["best"]
