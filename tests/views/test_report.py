"""An account as text and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.views.builders import POOLS, Story, a_config, a_plan, a_task, tutorial

from spotwright.config import built_in, parse
from spotwright.model.pools import PriceSource
from spotwright.views.account import account
from spotwright.views.account_report import cost_heading, report_json, report_text


def test_amounts_far_below_the_total_are_limits() -> None:
    story = Story(a_plan(a_task("train", requests={"nvidia.com/gpu": 1})))
    story.boots("gpu-spot-1", 0.002).binds("train", "gpu-spot-1").after(5 * 3600).ends("train").gives_back("gpu-spot-1")
    text = report_text(account(story.state))
    assert "  spent   4.50 USD: 4.50 on attempts, <0.01 boot" in text
    assert "0.0000" not in text


def test_the_account_of_the_tutorial() -> None:
    assert (
        report_text(account(tutorial().state), "iris-x7k2p")
        == """\
Account of iris-x7k2p (prices are simulated)

Pool      Capacity  Price/h  Nodes  Node time  Boot  Idle  Unfilled  Attempts  Simulated USD
cpu-spot  spot         0.18      1        28s    2s   19s      4.2s      2.8s         0.0014
gpu-spot  spot         0.90      2        18s    4s    0s        0s       14s         0.0045

Where it went            Node time  Simulated USD  Part
useful work                    15s        0.0033    55%
wasted by interruptions       1.5s        0.00038    6%
boot                            6s        0.0011    19%
idle                           19s        0.00095   16%
unfilled                      4.2s        0.00021    4%
all node time                  46s        0.0059   100%

Cost (prices are simulated)
  spent   0.0059 USD: 0.0036 on attempts, 0.0011 boot, 0.00095 idle, 0.00021 unfilled
  wasted  0.00038 USD by 1 interruption
  saved   0.0094 USD (72%) against 0.013 USD for the useful work on on-demand nodes (cpu, gpu)"""
    )


def test_the_account_of_a_run_on_a_cluster_has_no_time_of_nodes_that_others_use() -> None:
    config = replace(a_config(), pools=parse(POOLS).pools)
    story = Story(a_plan(a_task("train", requests={"cpu": 2000}), config=config), orchestrator="Job")
    story.node("cpu-spot-1", "ready").after(60).binds("train", "cpu-spot-1").after(7200).ends("train").after(3600)
    assert (
        report_text(account(story.state), "train-7")
        == """\
Account of train-7 (prices come from the configuration)

Pool      Capacity  Price/h  Nodes  Node time   USD
cpu-spot  spot         0.18      1      1h00m  0.18

Where it went  Node time   USD  Part
useful work        1h00m  0.18  100%
all node time      1h00m  0.18  100%

Cost (prices come from the configuration)
  spent   0.18 USD: 0.18 on attempts; the other time of the nodes is the cluster's
  saved   0.54 USD (75%) against 0.72 USD for the useful work on on-demand nodes (cpu)"""
    )


def test_the_prices_of_the_built_in_pools_are_called_examples() -> None:
    story = Story(a_plan(a_task("train"), config=built_in()))
    story.boots("spot-1").binds("train", "spot-1").after(3600).ends("train").gives_back("spot-1")
    text = report_text(account(story.state))
    assert "(prices are examples)" in text
    assert "Example USD" in text
    assert "saved   0.70 USD (70%) against 1.00 USD" in text
    assert "imulated" not in text


@pytest.mark.parametrize(
    ("sources", "heading"),
    [
        (["example"], "Example cost"),
        (["simulated", "simulated"], "Simulated cost"),
        (["simulated", "example"], "Example or simulated cost"),
        (["example", "configured"], "Cost"),
    ],
)
def test_the_list_of_runs_says_whether_costs_are_examples(sources: list[str], heading: str) -> None:
    assert cost_heading(sources) == heading


def test_without_prices_the_report_is_in_node_hours() -> None:
    story = Story(a_plan(a_task("train"), config=parse("version: 1\npools: {spot: {capacity: spot}}\n")))
    story.boots("spot-1").binds("train", "spot-1").after(3600).ends("train").gives_back("spot-1")
    text = report_text(account(story.state))
    assert "figures are node-hours: spot has no price" in text
    assert "Node-hours" in text
    assert "saved   not known: spot has no price" in text
    assert "simulated" not in text


def test_a_range_is_shown_as_one_and_explained() -> None:
    story = (
        Story(a_plan(a_task("train")))
        .boots("cpu-spot-1")
        .binds("train", "cpu-spot-1")
        .after(8)
        .taken("cpu-spot-1", "train")
    )
    story.after(1).boots("cpu-spot-2").binds("train", "cpu-spot-2").after(10).ends("train").gives_back("cpu-spot-2")
    text = report_text(account(story.state))
    assert "wasted  0.00 to 0.00040 USD by 1 interruption; a range, since only reported progress" in text
    assert "0s to 8s" in next(line for line in text.splitlines() if line.startswith("wasted by interruptions"))


def test_a_report_admits_that_spot_did_not_pay() -> None:
    plan = a_plan(a_task("train"), config=a_config(POOLS.replace("0.18/h", "0.71/h")))
    story = Story(plan).boots("cpu-spot-1").binds("train", "cpu-spot-1").reports("train", 0.0).after(60)
    story.reports("train", 0.5).taken("cpu-spot-1", "train").after(1).boots("cpu-spot-2").binds("train", "cpu-spot-2")
    text = report_text(account(story.reports("train", 0.0).after(60).ends("train").gives_back("cpu-spot-2").state))
    assert "saved   none: spot did not pay here; its attempts cost 0.012 USD more than 0.012 USD for" in text


def test_the_savings_of_a_running_run_are_so_far() -> None:
    story = Story(a_plan(a_task("merge"), a_task("train"))).boots("cpu-spot-1").binds("merge", "cpu-spot-1").after(8)
    story.ends("merge").binds("train", "cpu-spot-1").after(2)
    text = report_text(account(story.state, story.at))
    assert "(75%) so far against" in text
    assert "under way" in text


def test_a_cached_task_costs_nothing() -> None:
    text = report_text(account(Story(a_plan(a_task("train")), cached=["train"]).state))
    assert "no node was used" in text
    assert "train cost nothing: its result is that of train in run iris-before" in text


def test_the_json_report_has_the_same_numbers() -> None:
    counted = account(tutorial(time_scale=60).state)
    said = json.loads(json.dumps(report_json(counted, "iris-x7k2p")))
    assert (said["run"], said["currency"], said["prices"], said["time_scale"]) == ("iris-x7k2p", "USD", "simulated", 60)
    assert said["whole"] == {"seconds": 46, "money": pytest.approx(0.0059)}
    assert (
        said["spent"]["interruptions"]["low"]
        == said["spent"]["interruptions"]["high"]
        == {"seconds": 1.5, "money": 0.000375}
    )
    assert said["saved"]["low"] == pytest.approx(753 / 80000)
    assert [(each["task"], each["attempt"], each["cause"]) for each in said["attempts_by_start"]] == [
        ("download", 1, "succeeded"),
        ("merge", 1, "succeeded"),
        ("train", 1, "interrupted"),
        ("train", 2, "succeeded"),
    ]
    assert said["attempts_by_start"][2]["kept"] == {"low": 0.75, "high": 0.75}


def priced_by(**sources: PriceSource) -> str:
    """The report of a run on ``cpu-spot`` and ``cpu``, with where the price of each comes from."""
    config = a_config()
    pools = {
        name: replace(pool, price_source=sources.get(name.replace("-", "_"), pool.price_source))
        for name, pool in config.pools.items()
    }
    plan = a_plan(a_task("merge"), a_task("train"), config=replace(config, pools=pools))
    story = Story(plan).boots("cpu-spot-1").boots("cpu-1").binds("merge", "cpu-spot-1").binds("train", "cpu-1").after(8)
    return report_text(account(story.ends("merge").ends("train").state))


def test_prices_of_real_nodes_are_not_called_simulated() -> None:
    text = priced_by(cpu_spot=PriceSource.CONFIGURED, cpu=PriceSource.CONFIGURED)
    assert "(prices come from the configuration)" in text
    assert "imulated" not in text


def test_a_run_on_simulated_and_on_real_nodes_says_which_prices_are_simulated() -> None:
    text = priced_by(cpu=PriceSource.CONFIGURED)
    assert "(prices of cpu-spot are simulated, the others come from the configuration)" in text
    assert "USD, partly simulated" in text


def test_pools_of_a_run_on_this_machine_are_simulated_and_those_of_the_configuration_are_not() -> None:
    pool = parse(POOLS).pools["cpu"]
    assert (pool.price_source, pool.simulated.price_source) == (PriceSource.CONFIGURED, PriceSource.SIMULATED)
