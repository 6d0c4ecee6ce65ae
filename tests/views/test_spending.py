"""The charges of runs as rows for finance, and the totals of several runs."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.views.builders import POOLS, Story, a_plan, a_task, tutorial
from tests.views.stories import any_story, requests, steps

from spotwright.config import parse
from spotwright.views.account import Account, account, total
from spotwright.views.spending import (
    COLUMNS,
    DECIMALS,
    LEFT_OUT,
    Kind,
    Totals,
    charges_of,
    rows_of,
    totals_json,
    totals_text,
)

HOUR = 3600


def rows(*accounts: Account) -> list[dict[str, str]]:
    return list(rows_of((each, f"run-{number}", "iris") for number, each in enumerate(accounts)))


def column(found: list[dict[str, str]], name: str) -> Decimal:
    return sum((Decimal(row[name]) for row in found if row[name]), Decimal(0))


def rounded(exact: Fraction) -> Decimal:
    return Decimal(round(exact * 10**DECIMALS)).scaleb(-DECIMALS)


def billed(text: str = POOLS) -> Account:
    """An hour on a real spot node after a failed one, which cost as much."""
    story = Story(a_plan(a_task("train"), config=parse(text), policy={"errors.retries": 1}))
    story.boots("cpu-spot-1", 60).binds("train", "cpu-spot-1").after(HOUR).ends("train", exit_code=1)
    story.after(1).binds("train", "cpu-spot-1").after(HOUR).ends("train").gives_back("cpu-spot-1")
    return account(story.state)


@given(steps=steps, asked=st.lists(requests, min_size=1, max_size=5), price=st.fractions(0, 50, max_denominator=1000))
def test_the_charges_of_any_run_add_up_to_node_time_times_price(
    steps: list[tuple[str, float, float, bool]], asked: list[dict[str, int]], price: Fraction
) -> None:
    story = any_story(steps, asked, price)
    counted = account(story.state, story.at)
    found = rows(counted)

    assert total(charge.amount for charge in charges_of(counted)) == counted.whole
    assert counted.whole.money == sum(
        ((Fraction(node.end) - Fraction(node.start)) * (node.pool.price or 0) / HOUR for node in counted.nodes),
        Fraction(0),
    )
    assert column(found, "EffectiveCost") == rounded(counted.whole.money)
    assert column(found, "ConsumedQuantity") == rounded(counted.whole.seconds / HOUR)


def test_rows_of_several_runs_add_up_to_the_rounded_total() -> None:
    third = billed(POOLS.replace("0.18/h", "0.3333333333333/h"))
    found = rows(third, third, third)
    assert third.whole.money is not None
    assert column(found, "EffectiveCost") == rounded(3 * third.whole.money)


def test_every_row_has_every_column_and_no_other() -> None:
    assert all(list(row) == list(COLUMNS) for row in rows(account(tutorial().state), billed()))
    assert not any(name in COLUMNS for names in LEFT_OUT for name in names.split(", "))


def test_simulated_nodes_cost_something_and_nobody_bills_them() -> None:
    simulated, real = rows(account(tutorial().state)), rows(billed())

    assert {row["x_PriceSource"] for row in simulated} == {"simulated"}
    assert column(simulated, "EffectiveCost") > column(simulated, "BilledCost") == 0
    assert column(real, "BilledCost") == column(real, "EffectiveCost") > 0


def test_an_attempt_is_a_row_with_its_task_cause_and_waste() -> None:
    failed, done = [row for row in rows(billed()) if row["x_Line"] == "attempt"]

    assert (failed["x_Task"], failed["x_Attempt"], failed["x_Cause"]) == ("train", "1", "failed")
    assert failed["x_WastedCostHigh"] == failed["EffectiveCost"]
    assert Decimal(failed["x_WastedCostLow"]) == 0  # it reported no progress: all of its work may have been kept
    assert Decimal(done["x_WastedCostHigh"]) == 0
    assert done["ChargePeriodStart"] < done["ChargePeriodEnd"]
    assert json.loads(done["Tags"])["spotwright.dev/task"] == "train"


def test_without_prices_rows_have_hours_and_no_money() -> None:
    found = rows(billed(POOLS.replace(", price: 0.18/h", "")))
    assert {(row["EffectiveCost"], row["BilledCost"]) for row in found} == {("", "")}
    assert column(found, "ConsumedQuantity") > 2


def summed(*accounts: Account) -> Totals:
    totals = Totals()
    for number, each in enumerate(accounts):
        totals.add(each, f"run-{number}", "iris", 1_785_153_600.0 + number)
    return totals


def test_the_total_is_the_sum_of_the_runs_by_pool_task_and_cause() -> None:
    one = billed()
    [(kind, found)] = summed(one, one).by_kind.items()

    assert kind == Kind("USD", "configured")
    assert found.whole == one.whole + one.whole
    assert total([found.boot, found.idle, found.unfilled, *(task.cost for task in found.tasks.values())]) == found.whole
    assert total(pool.whole for pool in found.pools.values()) == found.whole
    assert found.tasks["iris", "train"].attempts == 4


def test_figures_of_different_kinds_are_not_added() -> None:
    euros = billed(POOLS.replace("USD", "EUR"))
    hours = billed(POOLS.replace(", price: 0.18/h", ""))
    kinds = summed(billed(), euros, hours, account(tutorial().state)).by_kind
    assert list(kinds) == [Kind("USD", "configured"), Kind("EUR", "configured"), Kind("", ""), Kind("USD", "simulated")]


def test_a_run_in_which_spot_did_not_pay_is_named() -> None:
    lost = billed(POOLS.replace("0.18/h", "1.00/h"))
    text = totals_text(summed(billed(), lost))

    assert "spot did not pay in run-1" in text
    assert "Saved" in text
    assert [run["spot_did_not_pay"] for run in totals_json(summed(billed(), lost))["totals"][0]["runs"]] == [
        False,
        True,
    ]


def test_the_plan_of_a_run_stands_beside_its_cost() -> None:
    totals = Totals()
    totals.add(billed(), "run-0", "iris", 0.0, planned=(0.1, 0.2, 0.3))
    assert "run-0: 0.363" in totals_text(totals)
    assert "planned 0.2 (0.1 to 0.3): above the plan" in totals_text(totals)


def test_iterations_of_a_loop_are_one_task() -> None:
    totals = Totals()
    one = billed()
    renamed = one._replace(
        attempts_by_start=tuple(cost._replace(task="loop/train-3") for cost in one.attempts_by_start)
    )
    totals.add(renamed, "run", "iris", 0.0, written={"loop/train-3": "loop/train"})
    assert list(totals.by_kind[Kind("USD", "configured")].tasks) == [("iris", "loop/train")]


def test_no_runs_have_a_sentence() -> None:
    assert totals_text(Totals()) == "no run in this time"


def test_the_page_for_finance_names_our_own_columns_and_explains_costs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "money.md").read_text(encoding="utf-8")
    explained = ("BilledCost", "EffectiveCost", "x_PriceSource", "x_WastedCostLow", "x_WastedCostHigh")

    assert [name for name in COLUMNS if name.startswith("x_") and f"`{name}`" not in page] == []
    assert [name for name in explained if f"| `{name}` | {COLUMNS[name]} |" not in page] == []
