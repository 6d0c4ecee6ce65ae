"""The account of a run: its lines add up, waste has a cause, and spot is compared with on-demand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.views.builders import CPU, POOLS, START, Story, a_config, a_plan, a_task, tutorial
from tests.views.stories import any_story, requests, steps

from spotwright.config import parse
from spotwright.errors import StateError
from spotwright.model.policy import Spot
from spotwright.model.pools import Pool
from spotwright.views.account import Account, Amount, SpentOn, account, total
from spotwright.views.spending import Line, charges_of

HOUR = 3600


def lines_of(counted: Account, *, useful_is_low: bool) -> Amount:
    """Every line once: the low end of useful work belongs to the high end of what was wasted."""
    useful = counted.useful.low if useful_is_low else counted.useful.high
    spent = [line.high if useful_is_low else line.low for line in counted.spent.values()]
    return total([counted.boot, counted.idle, counted.unfilled, useful, *spent])


def one_task(config: str = POOLS, *, spot: str = "prefer") -> Story:
    return Story(
        a_plan(a_task("train", requests={"cpu": 2 * CPU}), config=a_config(config), policy={"spot": Spot(spot)})
    )


def test_an_attempt_pays_its_share_from_binding_to_end() -> None:
    story = (
        one_task().boots("cpu-spot-1").binds("train", "cpu-spot-1").after(HOUR).ends("train").gives_back("cpu-spot-1")
    )
    (cost,) = account(story.state).attempts_by_start
    assert (cost.seconds, cost.share) == (Fraction(HOUR), Fraction(1, 2))
    assert cost.cost == Amount(Fraction(HOUR, 2), Fraction("0.09"))


def test_boot_idle_and_unfilled_time_are_lines_of_their_own() -> None:
    counted = account(tutorial().state)
    assert [counted.boot.seconds, counted.idle.seconds, counted.unfilled.seconds] == [6, 19, Fraction(17, 4)]


def test_a_run_on_a_cluster_pays_for_its_pods_alone() -> None:
    """Others use the nodes before, after and beside its pods."""
    plan = a_plan(a_task("train", requests={"cpu": 2 * CPU}), policy={"spot": Spot("prefer")})
    story = Story(plan, orchestrator="Job").node("cpu-spot-1", "ready").after(600)
    story.binds("train", "cpu-spot-1").after(HOUR).ends("train").after(2 * HOUR)
    counted = account(story.state)
    assert counted.whole == counted.attempts == Amount(Fraction(HOUR, 2), Fraction("0.09"))
    assert not any((counted.boot, counted.idle, counted.unfilled))
    assert lines_of(counted, useful_is_low=True) == lines_of(counted, useful_is_low=False) == counted.whole
    assert [charge.line for charge in charges_of(counted)] == [Line.ATTEMPT]


def test_what_others_do_on_a_cluster_s_node_changes_no_run_s_cost() -> None:
    """Two runs on one node at different times: their accounts add up to the time of their pods."""
    wholes = []
    for before, after in ((0, 3 * HOUR), (2 * HOUR, HOUR)):
        plan = a_plan(a_task("train", requests={"cpu": 4 * CPU}), policy={"spot": Spot("prefer")})
        story = Story(plan, orchestrator="KFP run").node("cpu-spot-1", "ready").after(before)
        story.binds("train", "cpu-spot-1").after(HOUR).ends("train").after(after)
        wholes.append(account(story.state).whole)
    assert wholes == [Amount(Fraction(HOUR), Fraction("0.18"))] * 2


def test_the_lines_of_the_tutorial_add_up_to_node_time_times_price() -> None:
    counted = account(tutorial().state)
    assert counted.whole.money == (28 * Fraction("0.18") + 18 * Fraction("0.9")) / HOUR
    assert lines_of(counted, useful_is_low=True) == lines_of(counted, useful_is_low=False) == counted.whole


def test_waste_is_exact_where_the_code_reports_progress() -> None:
    counted = account(tutorial().state)
    wasted = counted.spent[SpentOn.INTERRUPTIONS]
    assert wasted.is_exact
    assert wasted.low.seconds == Fraction(6, 4)  # from 0 to 0.4 in 6 seconds, taken up again at 0.3


def test_waste_is_a_range_where_the_code_reports_nothing() -> None:
    story = one_task().boots("cpu-spot-1").binds("train", "cpu-spot-1").after(8).taken("cpu-spot-1", "train")
    story.after(1).boots("cpu-spot-2").binds("train", "cpu-spot-2").after(10).ends("train").gives_back("cpu-spot-2")
    counted = account(story.state)
    wasted = counted.spent[SpentOn.INTERRUPTIONS]
    assert [wasted.low.seconds, wasted.high.seconds] == [0, 4]
    assert [counted.useful.low.seconds, counted.useful.high.seconds] == [5, 9]
    assert lines_of(counted, useful_is_low=True) == lines_of(counted, useful_is_low=False) == counted.whole


def test_time_spent_on_errors_does_not_count_as_wasted_by_interruptions() -> None:
    story = one_task().boots("cpu-spot-1").binds("train", "cpu-spot-1").after(8).ends("train", exit_code=1)
    counted = account(story.gives_back("cpu-spot-1").state)
    assert counted.spent.keys() == {SpentOn.ERRORS}
    assert counted.spent[SpentOn.ERRORS].low.seconds == counted.spent[SpentOn.ERRORS].high.seconds == 4


def test_a_failed_tasks_time_is_never_useful() -> None:
    story = one_task().boots("cpu-spot-1").binds("train", "cpu-spot-1").after(1).reports("train", 0.0).after(7)
    story.reports("train", 0.5).taken("cpu-spot-1", "train").after(1).boots("cpu-spot-2").binds("train", "cpu-spot-2")
    counted = account(story.reports("train", 0.5).after(1).ends("train", exit_code=1).gives_back("cpu-spot-2").state)
    assert counted.useful.high.seconds == 0
    assert counted.saved is None


def test_the_counterfactual_is_the_useful_work_on_the_pool_of_the_fallback() -> None:
    counted = account(tutorial().state)
    useful_gpu, useful_cpu = 8 + Fraction(6 * 3, 4), 3 * Fraction(1, 4) + 4 * Fraction(1, 2)
    assert counted.on_demand is not None
    assert counted.on_demand.low.money == (useful_gpu * Fraction("3.6") + useful_cpu * Fraction("0.72")) / HOUR
    assert dict(counted.on_demand_pools) == {"cpu": Fraction("0.72"), "gpu": Fraction("3.6")}


def test_the_counterfactual_uses_the_share_of_the_on_demand_node() -> None:
    story = one_task(
        POOLS.replace("machine: D4, node: {cpu: 4, memory: 16Gi}, price: 0.72/h", "node: {cpu: 16}, price: 0.72/h")
    )
    story.boots("cpu-spot-1").binds("train", "cpu-spot-1").after(HOUR).ends("train").gives_back("cpu-spot-1")
    on_demand = account(story.state).on_demand
    assert on_demand is not None
    assert on_demand.low == Amount(Fraction(HOUR, 8), Fraction("0.09"))  # half of a spot node is an eighth of that one


def test_savings_are_the_counterfactual_minus_the_cost_of_the_attempts() -> None:
    counted = account(tutorial().state)
    assert counted.on_demand is not None
    assert counted.on_demand.low.money is not None
    assert counted.attempts.money is not None
    assert counted.saved == (counted.on_demand.low.money - counted.attempts.money,) * 2


def test_spot_that_did_not_pay_is_a_negative_saving() -> None:
    story = (
        one_task(POOLS.replace("0.18/h", "0.70/h"))
        .boots("cpu-spot-1")
        .binds("train", "cpu-spot-1")
        .reports("train", 0.0)
    )
    story.after(60).reports("train", 0.9).taken("cpu-spot-1", "train").after(1).boots("cpu-spot-2")
    story.binds("train", "cpu-spot-2").reports("train", 0.0).after(60).ends("train").gives_back("cpu-spot-2")
    counted = account(story.state)
    assert counted.saved is not None
    assert counted.saved[1] < 0


def test_work_on_on_demand_alone_is_compared_with_nothing() -> None:
    story = one_task(spot="never").boots("cpu-1").binds("train", "cpu-1").after(5).ends("train").gives_back("cpu-1")
    counted = account(story.state)
    assert (counted.saved, counted.why_no_comparison) == (None, "no attempt ran on spot")


def test_required_spot_is_compared_with_on_demand_of_the_same_machine() -> None:
    extra = "  big: {capacity: on-demand, machine: D8, node: {cpu: 8, memory: 32Gi}, price: 0.1/h}\npolicy:"
    story = one_task(POOLS.replace("policy:", extra), spot="require").boots("cpu-spot-1").binds("train", "cpu-spot-1")
    counted = account(story.after(5).ends("train").gives_back("cpu-spot-1").state)
    assert dict(counted.on_demand_pools) == {"cpu": Fraction("0.72")}


def test_without_a_pool_with_room_there_is_a_reason_instead_of_a_comparison() -> None:
    without = "\n".join(line for line in POOLS.splitlines() if "on-demand" not in line)
    story = one_task(without).boots("cpu-spot-1").binds("train", "cpu-spot-1").after(5).ends("train")
    assert (
        account(story.gives_back("cpu-spot-1").state).why_no_comparison
        == "no on-demand pool has room for it (task train)"
    )


def test_without_prices_there_are_node_hours_and_no_money() -> None:
    plan = a_plan(a_task("train"), config=parse("version: 1\npools: {spot: {capacity: spot}}\n"))
    story = Story(plan).boots("spot-1").binds("train", "spot-1").after(HOUR).ends("train").gives_back("spot-1")
    counted = account(story.state)
    assert counted.unpriced == ("spot",)
    assert [counted.attempts.seconds, counted.attempts.money, counted.whole.money] == [HOUR, None, None]
    assert counted.why_no_comparison == "spot has no price"


def test_a_live_run_is_counted_until_now() -> None:
    story = one_task().boots("cpu-spot-1").binds("train", "cpu-spot-1")
    counted = account(story.state, START + 2 + 10)
    assert counted.under_way
    assert [counted.whole.seconds, counted.spent[SpentOn.UNDER_WAY].low.seconds, counted.useful.high.seconds] == [
        12,
        5,
        0,
    ]


def test_a_run_whose_engine_is_gone_is_counted_until_its_last_event() -> None:
    story = one_task().boots("cpu-spot-1").binds("train", "cpu-spot-1").after(4).reports("train", 0.5)
    assert account(story.state).whole.seconds == 6


def test_an_ended_run_costs_nothing_more() -> None:
    story = tutorial()
    assert account(story.state, START + 10**6) == account(story.state)


def test_a_run_without_attempts_costs_nothing() -> None:
    counted = account(Story(a_plan(a_task("train"))).state)
    assert (counted.whole, counted.pools, counted.why_no_comparison) == (Amount(), (), "no attempt ran on spot")


def test_a_task_that_used_an_earlier_result_cost_nothing_and_is_named() -> None:
    counted = account(Story(a_plan(a_task("train")), cached=["train"]).state)
    assert counted.cached == (("train", "iris-before", "train"),)
    assert not counted.whole


def test_attempts_before_a_reset_and_of_retired_tasks_count_too() -> None:
    story = Story(a_plan(a_task("old"), a_task("train")))
    story.boots("cpu-spot-1").binds("old", "cpu-spot-1").after(4).ends("old", exit_code=1).ends(
        "train", cancelled=True
    ).gives_back("cpu-spot-1")
    story.state.plans = [*story.state.plans, a_plan(a_task("train"))]
    story.fact("engine", epoch=2, pid=43).fact("reset", version=2, again=[])
    counted = account(
        story.boots("cpu-spot-2").binds("train", "cpu-spot-2").after(6).ends("train").gives_back("cpu-spot-2").state
    )
    assert [(cost.task, cost.number) for cost in counted.attempts_by_start] == [("old", 1), ("train", 2)]
    assert lines_of(counted, useful_is_low=True) == counted.whole


def test_an_attempt_whose_end_was_noticed_late_pays_until_its_exit_record() -> None:
    story = one_task().boots("cpu-spot-1").binds("train", "cpu-spot-1").after(100)
    signals = {"exit_code": 0, "outputs_complete": True}
    story.fact("ended", "train", 1, signals=signals, ended_at=START + 2 + 8)
    (cost,) = account(story.gives_back("cpu-spot-1").state).attempts_by_start
    assert cost.seconds == 8


def test_a_pool_that_no_version_of_the_plan_has_is_an_error_with_its_name() -> None:
    story = one_task()
    story.state.plans[0].config = a_config(POOLS.replace("cpu-spot:", "other:"))
    with pytest.raises(StateError, match="'cpu-spot'"):
        account(story.boots("cpu-spot-1").state)


# Any history


@given(steps=steps, asked=st.lists(requests, min_size=1, max_size=5), price=st.fractions(0, 50, max_denominator=1000))
def test_the_lines_of_any_run_add_up_to_node_time_times_price(
    steps: list[tuple[str, float, float, bool]], asked: list[dict[str, int]], price: Fraction
) -> None:
    story = any_story(steps, asked, price)
    counted = account(story.state, story.at)
    node_time = sum(
        (Fraction(node.gone_at or story.at) - Fraction(node.booted_at)) * pool_price(story, node.pool)
        for node in story.state.nodes.values()
    )
    assert counted.whole.money == node_time / HOUR
    assert lines_of(counted, useful_is_low=True) == lines_of(counted, useful_is_low=False) == counted.whole
    assert (
        total([counted.boot, counted.idle, counted.unfilled, *(cost.cost for cost in counted.attempts_by_start)])
        == counted.whole
    )


@given(steps=steps, asked=st.lists(requests, min_size=1, max_size=5), price=st.fractions(0, 50, max_denominator=1000))
def test_pools_nodes_and_attempts_of_any_run_are_each_the_whole_account(
    steps: list[tuple[str, float, float, bool]], asked: list[dict[str, int]], price: Fraction
) -> None:
    """All of these sums are exact, however the time of a node was divided."""
    story = any_story(steps, asked, price)
    counted = account(story.state, story.at)
    costs = counted.attempts_by_start
    for line in ("whole", "boot", "idle", "unfilled", "attempts"):
        assert total(getattr(pool, line) for pool in counted.pools) == getattr(counted, line)
    for line in ("boot", "idle", "unfilled"):
        assert total(getattr(node, line) for node in counted.nodes) == getattr(counted, line)
    assert total(cost.cost for cost in costs) == counted.attempts
    assert total(cost.cost * cost.kept.low for cost in costs) == counted.useful.low
    assert total(cost.cost * cost.kept.high for cost in costs) == counted.useful.high
    for spent, amounts in counted.spent.items():
        of_this = [cost for cost in costs if cost.spent is spent]
        assert total(cost.cost * (1 - cost.kept.high) for cost in of_this) == amounts.low
        assert total(cost.cost * (1 - cost.kept.low) for cost in of_this) == amounts.high
    assert sum(pool.nodes for pool in counted.pools) == len(counted.nodes)


def test_attempts_that_ask_for_more_than_their_node_leave_nothing_unfilled() -> None:
    tasks = [a_task(name, requests={"cpu": 2800}) for name in ("a", "b", "c")]
    story = Story(a_plan(*tasks, policy={"spot": Spot("prefer")})).boots("cpu-spot-1")
    for task in ("a", "b", "c"):
        story.binds(task, "cpu-spot-1")
    story.after(10)
    counted = account(story.ends("a").ends("b").ends("c").gives_back("cpu-spot-1").state)
    assert counted.attempts.seconds == 10
    assert counted.unfilled == Amount()


def test_each_machine_of_one_name_pays_for_its_own_attempts() -> None:
    story = one_task()
    for seconds in (3, 5, 7):
        story.boots("cpu-spot-1").binds("train", "cpu-spot-1").after(seconds).taken("cpu-spot-1", "train").after(1)
    costs = account(story.state).attempts_by_start
    assert [cost.seconds for cost in costs] == [3, 5, 7]
    assert [node.unfilled.seconds * 2 for node in account(story.state).nodes] == [3, 5, 7]


def pool_price(story: Story, name: str) -> Fraction:
    pool: Pool = story.state.plan.config.pools[name]
    assert pool.price is not None
    return pool.price


def test_a_node_keeps_the_price_of_the_moment_when_it_was_requested() -> None:
    story = Story(a_plan(a_task("train"))).boots("cpu-spot-1").binds("train", "cpu-spot-1")
    story.after(HOUR).ends("train", exit_code=1).gives_back("cpu-spot-1")
    dearer = a_plan(a_task("train"), config=a_config(POOLS.replace("0.18/h", "0.36/h")))
    story.state.plans = [*story.state.plans, dearer]
    story.fact("reset", version=2, again=[])
    story.boots("cpu-spot-2").binds("train", "cpu-spot-2").after(HOUR).ends("train").gives_back("cpu-spot-2")
    costs = [cost.cost.money for cost in account(story.state).attempts_by_start]
    assert costs == [Fraction("0.18"), Fraction("0.36")]
