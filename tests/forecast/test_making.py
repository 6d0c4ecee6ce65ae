"""What a forecast concludes: the best policy, the budget, what a deadline costs, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.forecast.builders import HOUR, POOLS, forecast, task

from spotwright.checkpoint import save_policy
from spotwright.errors import InputError
from spotwright.forecast.forecast import DEADLINE, ON_DEMAND, SPOT, Question, best_interval, make
from spotwright.forecast.markets import Source
from spotwright.forecast.report import forecast_text
from spotwright.forecast.tasks import Tasks
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Trace

UP, DOWN = Trace(600.0, (1,)), Trace(600.0, (0,))


def test_the_same_question_has_the_same_answer() -> None:
    given = task(work=3 * HOUR, saves=True)
    assert forecast(given, deadline=8 * HOUR) == forecast(given, deadline=8 * HOUR)


def test_where_spot_is_never_lost_it_is_the_best_and_costs_a_third() -> None:
    found = forecast(task(boot=180.0), source=Source({"up": UP}))
    assert (found.best, found.budget) == (SPOT, 0)
    assert found.policy(SPOT).cost.mean == pytest.approx(found.policy(ON_DEMAND).cost.mean / 3)
    assert "pool spot never loses spot in these markets" in found.warnings


def test_where_spot_is_missing_the_tasks_that_have_nothing_else_are_named() -> None:
    train, other = task("train", on_demand=False, max_interruptions=1), task("other", max_interruptions=1)
    [warning] = [
        each for each in forecast(train, other, source=Source({"down": DOWN})).warnings if "of the markets:" in each
    ]
    assert warning.endswith("let train fall back to on-demand, or raise interruptions.max and save checkpoints")


def test_where_there_is_no_spot_on_demand_is_the_best_and_the_warning_says_it() -> None:
    found = forecast(task(), deadline=8 * HOUR, source=Source({"down": DOWN}))
    assert found.best == ON_DEMAND
    assert found.policy(ON_DEMAND).late == 0.0
    assert any("never has spot" in warning for warning in found.warnings)


def test_an_impossible_deadline_is_said_with_the_nearest_one() -> None:
    found = forecast(task(work=3 * HOUR, boot=180.0), deadline=2 * HOUR)
    [warning] = [each for each in found.warnings if "cannot be met" in each]
    assert "on-demand alone takes 3h03m, 1h03m more; the nearest deadline that can be promised is 3h03m" in warning
    assert found.nearest == 3 * HOUR + 180.0
    assert found.best == ON_DEMAND


def test_the_deadline_policy_of_one_task_that_saves_costs_less_than_on_demand() -> None:
    found = forecast(task(work=3 * HOUR, saves=True, boot=180.0), deadline=8 * HOUR)
    assert found.policy(DEADLINE).cost.mean < 0.7 * found.policy(ON_DEMAND).cost.mean
    assert found.policy(DEADLINE).late == pytest.approx(0.0, abs=0.01)
    assert found.deadline_costs is not None
    assert found.deadline_costs > 0


def test_long_work_that_is_not_saved_is_cheaper_on_demand_where_spot_is_lost_often() -> None:
    often = Trace(600.0, tuple([1] * 10 + [0]) * 50)
    found = forecast(task(work=3 * HOUR), source=Source({"often": often}))
    [line] = found.tasks
    assert line.cheaper_on_demand
    assert line.budget > 100


def test_a_higher_certainty_needs_no_smaller_budget() -> None:
    given = task(work=6 * HOUR, saves=True)
    budgets = [forecast(given, certainty=certainty).budget for certainty in (0.5, 0.9, 0.99)]
    assert budgets == sorted(budgets)
    assert budgets[-1] > budgets[0]


@pytest.mark.parametrize("save", [1.0, 30.0, 600.0])
@pytest.mark.parametrize("rate", [0.0, 1e-6, 1e-4, 0.2])
def test_the_interval_is_that_of_the_checkpoint_library(save: float, rate: float) -> None:
    assert best_interval(save, rate) == pytest.approx(save_policy.optimum(save, rate))


def test_iterations_of_a_loop_share_a_line() -> None:
    tasks = [
        task("loop/train-0")._replace(spec_path="loop/train"),
        task("loop/train-1")._replace(spec_path="loop/train"),
    ]
    [line] = forecast(*tasks).tasks
    assert (line.path, line.times) == ("loop/train", 2)


def test_what_a_run_with_a_deadline_must_be_told_is_named() -> None:
    stated = task("stated", work=HOUR)._replace(policy=Policy(spot=Spot.PREFER, expected_duration=HOUR))
    warnings = forecast(stated, task("train", work=HOUR, saves=True), deadline=8 * HOUR).warnings
    assert any("'train': {expected_duration: 3600s, checkpoint: FOLDER}" in warning for warning in warnings)
    assert not any("'stated'" in warning for warning in warnings)


def test_more_tasks_at_once_than_a_pool_has_nodes_are_told() -> None:
    few = {**POOLS, "spot": replace(POOLS["spot"], max_nodes=2)}
    notes = forecast(*[task(f"t{number}") for number in range(3)], pools=few).notes
    assert any("up to 3 nodes of spot are wanted at once, and max_nodes is 2" in note for note in notes)
    assert forecast(task("a"), task("b", after=[0]), pools=few).notes == ()


def test_a_recording_for_a_pool_that_is_not_used_is_refused() -> None:
    with pytest.raises(InputError, match="no task runs on a spot pool of this name; the spot pools here: spot"):
        forecast(task(), source=Source({}, {"gpu": UP}))


def test_more_than_memory_holds_is_refused_with_what_it_holds() -> None:
    with pytest.raises(InputError, match="3 tasks in 1,500,000 markets need too much memory: --markets 1000000"):
        forecast(task("a"), task("b"), task("c"), markets=1_500_000)


def test_there_is_no_figure_for_on_demand_only_where_a_task_must_run_on_spot_and_that_is_said() -> None:
    required = task("train", on_demand=False)._replace(needs_spot="must run on spot (spot: require)")
    found = forecast(task("load"), required, source=Source({"up": UP}))
    assert [policy.name for policy in found.policies] == [SPOT]
    assert "no figure for on-demand only: train must run on spot (spot: require)" in found.notes
    assert [line.on_demand_cost for line in found.tasks] == [pytest.approx(3.0), None]
    assert found.why == "tasks need spot, so no other policy applies"


def test_on_demand_only_is_at_on_demand_prices_also_where_no_task_may_run_on_spot() -> None:
    found = forecast(task("a", spot=[]), task("b", after=[0]))
    assert found.policy(ON_DEMAND).cost.mean == pytest.approx(6.0)
    assert found.policy(ON_DEMAND).spot == 0.0


def test_a_deadline_that_tasks_on_spot_alone_cannot_meet_is_not_said_to_be_one_of_on_demand_alone() -> None:
    found = forecast(task(work=3 * HOUR, on_demand=False), deadline=2 * HOUR, source=Source({"up": UP}))
    [warning] = [each for each in found.warnings if "cannot be met" in each]
    assert "on-demand, with spot for tasks that need it, takes 3h00m, 1h00m more" in warning


@pytest.mark.parametrize(("rate", "lasts"), [(10.0, "6m00s"), (1.0, "1h00m"), (12.5, "4m48s")])
def test_a_rate_that_looks_like_a_share_in_percent_is_questioned(rate: float, lasts: str) -> None:
    found = forecast(task("train", work=2 * HOUR), task("load", work=30.0), source=Source(rate=rate))
    [warning] = [each for each in found.warnings if "a rate of" in each]
    losses = "1 loss" if rate == 1 else f"{rate:g} losses"
    assert warning == (
        f"a rate of {losses} an hour means that spot lasts {lasts} on average, and train takes longer than that: if {rate:g} % "
        f"an hour is meant, write {rate:g}%/h"
    )


def test_a_rate_that_is_usual_is_not_questioned() -> None:
    assert not any("a rate of" in each for each in forecast(task(), source=Source(rate=0.9)).warnings)


@pytest.mark.parametrize("rate", [61.0, 1000.0, float("inf")])
def test_a_rate_of_more_than_markets_can_have_is_refused_with_how_a_share_is_written(rate: float) -> None:
    with pytest.raises(InputError, match=r"expected 0 to 12\.5 losses an hour.*10 in a hundred an hour is 10%/h"):
        forecast(task(), source=Source(rate=rate))


def test_that_the_run_will_fail_is_the_first_warning() -> None:
    question = Question("tested", None, Source({"up": UP}), 20, 1, 0.9)
    found = make(question, Tasks((task(),), (), (), ("the run will fail at loop",)), POOLS, "USD", 0.0)
    assert found.warnings[0] == "the run will fail at loop"


@pytest.mark.parametrize(("deadline", "told"), [(8 * HOUR, True), (None, False)])
def test_the_margin_of_stated_figures_is_told_under_a_deadline(deadline: float | None, told: bool) -> None:
    text = " ".join(forecast_text(forecast(task(), deadline=deadline), "p.py").split())
    assert ("Margin a run keeps free time for work 1% and a launch 25% longer than stated" in text) is told
