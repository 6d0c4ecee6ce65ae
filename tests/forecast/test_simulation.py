"""Tasks in markets that are written out: what each attempt costs, loses and waits for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.forecast.builders import HOUR, run, supply, task
from tests.market.builders import random_market

from spotwright.deadlines.choice import Chooser, safe
from spotwright.deadlines.jobs import Action
from spotwright.forecast.markets import heirs, supply_from, waves
from spotwright.forecast.rules import OnDemand, Patient, SpotFirst, UnderDeadline, UniformProgressRule, Watched
from spotwright.forecast.tasks import Offer

ALWAYS, NEVER = supply("#" * 60), supply("." * 60)


def test_on_demand_pays_the_boot_and_the_work() -> None:
    one = task(work=HOUR, boot=360.0)
    found = run(OnDemand(), ALWAYS, one)
    assert found.finish[0] == HOUR + 360.0
    assert found.total[0] == pytest.approx(3.0 * 1.1)


def test_spot_that_is_not_lost_costs_its_price() -> None:
    one = task(work=2 * HOUR)
    found = run(SpotFirst([one]), ALWAYS, one)
    assert (found.finish[0], found.total[0], found.taken[0, 0]) == (2 * HOUR, 2.0, 0)


def test_the_time_in_which_a_node_boots_is_no_part_of_the_patience() -> None:
    one = task(boot=900.0, pending_timeout=600.0)
    found = run(SpotFirst([one]), ALWAYS, one)
    assert (found.finish[0], found.where[0, 0]) == (900.0 + HOUR, 0)


def test_without_spot_a_task_goes_to_on_demand_after_its_patience() -> None:
    one = task(pending_timeout=900.0)
    found = run(SpotFirst([one]), NEVER, one)
    assert (found.finish[0], found.total[0]) == (900.0 + HOUR, 3.0)


def test_work_that_is_not_saved_is_lost_and_done_again() -> None:
    one = task(work=2400.0)
    found = run(SpotFirst([one]), supply("###.." + "#" * 20), one)  # lost at 1,800 s, back at 3,000 s
    assert found.taken[0, 0] == 1
    assert found.finish[0] == 1800.0 + 600.0 + 2400.0  # patience of ten minutes, then on-demand from the beginning
    assert found.total[0] == pytest.approx((1800.0 * 1 + 2400.0 * 3) / HOUR)


def test_work_that_is_saved_goes_on_from_the_last_save() -> None:
    one = task(work=2400.0, saves=True, save=0.0)
    found = run(Patient(), supply("###.." + "#" * 20), one, every=700.0)
    assert found.finish[0] == 3000.0 + (2400.0 - 1400.0)  # two saves in 1,800 s


def test_saves_take_their_time() -> None:
    one = task(work=1000.0, saves=True, save=10.0)
    assert run(Patient(), ALWAYS, one, every=100.0).finish[0] == pytest.approx(1100.0)


def test_from_fall_back_after_on_it_is_on_demand() -> None:
    one = task(work=2 * HOUR, fall_back_after=1, pending_timeout=HOUR)
    found = run(SpotFirst([one]), supply("###." + "#" * 20), one)
    assert found.finish[0] == 1800.0 + 2 * HOUR


def test_a_task_that_requires_spot_fails_when_its_budget_is_spent_and_what_follows_never_ends() -> None:
    first = task(work=2 * HOUR, on_demand=False, max_interruptions=1)
    second = task("after", after=[0])
    found = run(SpotFirst([first, second]), supply("###." * 10), first, second)
    assert np.isinf(found.finish[0])
    assert found.taken[0, 0] == 2
    assert found.cost[1, 0] == 0.0


def test_the_next_pool_of_the_ladder_is_taken_when_the_first_is_down() -> None:
    one = task(spot=("spot", "spot-1"))
    found = run(SpotFirst([one]), supply("." * 60, "#" * 60), one)
    assert (found.finish[0], found.where[0, 0]) == (600.0 + HOUR, 1)  # after its patience on the first rung
    found = run(UnderDeadline([one], 4 * HOUR), supply("." * 60, "#" * 60), one)
    assert (found.finish[0], found.where[0, 0]) == (HOUR, 1)  # under a deadline the rung with room


def test_after_a_loss_the_next_rung_is_asked_first() -> None:
    one = task(work=2 * HOUR, spot=("spot", "spot-1"), pending_timeout=HOUR)
    found = run(SpotFirst([one]), supply("###." + "#" * 56, "#" * 60), one)
    assert (found.finish[0], found.where[0, 0]) == (1800.0 + 2 * HOUR, 1)


def test_a_node_is_lost_at_the_end_of_its_lifetime() -> None:
    one = task(work=2 * HOUR, saves=True, save=0.0)
    assert run(Patient(), ALWAYS, one, every=600.0, lifetime=HOUR).taken[0, 0] == 1


def test_a_task_begins_when_all_before_it_have_ended() -> None:
    tasks = [task("a", work=600.0), task("b", work=1200.0), task("c", work=60.0, after=[0, 1])]
    assert run(OnDemand(), ALWAYS, *tasks).end[:, 0].tolist() == [600.0, 1200.0, 1260.0]
    assert waves(tasks) == [[0, 1], [2]]


def test_a_task_takes_over_the_node_of_the_one_before_and_only_one_does() -> None:
    tasks = [task("a", boot=300.0), task("b", boot=300.0, after=[0]), task("c", boot=300.0, after=[0])]
    found = run(OnDemand(), ALWAYS, *tasks)
    assert heirs(tasks) == {1: [0]}
    assert found.end[:, 0].tolist() == [HOUR + 300.0, 2 * HOUR + 300.0, 2 * HOUR + 600.0]


def test_a_spot_node_that_is_gone_is_not_taken_over() -> None:
    tasks = [task("a", boot=300.0, work=1500.0, spot=("spot",)), task("b", boot=300.0, work=300.0, after=[0])]
    assert run(Patient(), supply("###." + "#" * 9), *tasks).end[1, 0] == 2400.0 + 600.0


def test_under_a_deadline_what_saves_nothing_waits_only_while_all_of_it_could_be_done_twice() -> None:
    one = task(work=HOUR, grace_period=0.0)
    found = run(UnderDeadline([one], 3 * HOUR), NEVER, one)
    assert found.finish[0] == pytest.approx(2 * HOUR, abs=75.0)


class SpotWhileItIsSafe(UnderDeadline):
    """Takes spot whatever it costs, so that the last safe moment comes while it runs."""

    def _chosen(self, decides: Chooser, watched: Watched) -> tuple[Any, Any, Any]:
        action, until = safe(self._situation(watched), np.full(len(watched.task), Action.SPOT), decides.limits)
        return action, np.zeros(len(watched.task), int), until


def test_under_a_deadline_an_attempt_leaves_spot_at_the_last_safe_moment_in_its_boot() -> None:
    """It has 200 s of slack and 300 s of boot, for which 75 s more are kept free; it is told to end, has 30 s for that, and
    on-demand does all of it in time.
    """
    one = task(work=HOUR, boot=300.0, saves=True, save=0.0, grace_period=30.0)
    found = run(SpotWhileItIsSafe([one], HOUR + 300.0 + 230.0), ALWAYS, one, every=600.0)
    assert found.finish[0] == pytest.approx(HOUR + 530.0 - 75.0)
    assert found.total[0] == pytest.approx((200.0 - 75.0 + 3 * (HOUR + 300.0)) / HOUR)
    assert (found.taken[0, 0], found.where[0, 0]) == (0, -2)


def test_under_a_deadline_saves_use_up_slack_until_it_leaves_with_what_it_has_done() -> None:
    """A save of 100 s after each 100 s of work: of two seconds one is lost, and 600 s of slack are gone after 1,200 s."""
    one = task(work=HOUR, saves=True, save=100.0, grace_period=0.0)
    found = run(SpotWhileItIsSafe([one], HOUR + 600.0), ALWAYS, one, every=100.0)
    assert HOUR + 500.0 < found.finish[0] <= HOUR + 600.0  # what is not saved yet counts as work to be done again
    assert found.spot[0, 0] == pytest.approx(1200.0 / HOUR, abs=200.0 / HOUR)


@pytest.mark.parametrize("rule", [UnderDeadline, UniformProgressRule, SpotWhileItIsSafe])
@pytest.mark.parametrize("slack", [0.0, 61.0, 900.0, 3 * HOUR, 20 * HOUR])
@pytest.mark.parametrize("every", [0.5, 250.0, 3000.0, np.inf])
def test_no_run_of_tasks_that_save_is_late_where_on_demand_could_meet_the_deadline(
    rule: type[UnderDeadline], slack: float, every: float
) -> None:
    """In 60 drawn markets of two pools; a save takes its time, and the end of a move too."""
    up = random_market(ticks=200, size=60, pools=2, seed=int(slack) + 1).up
    market = supply_from(600.0, up, np.random.default_rng(7).uniform(0.0, 600.0, 60))
    spot = Offer("spot", 2.0, 180.0), Offer("spot-1", 0.7, 180.0)
    works = 1500.0, 2 * HOUR, 400.0
    tasks = [
        task(str(index), work, [index - 1] if index else [], saves=True, save=20.0, boot=180.0, grace_period=30.0)
        for index, work in enumerate(works)
    ]
    tasks = [each._replace(spot=spot) for each in tasks]
    deadline = sum(works) + 3 * 180.0 + slack
    found = run(rule(tasks, deadline), market, *tasks, every=every)
    assert (found.finish <= deadline + 1e-3).all()


def test_under_a_deadline_on_demand_is_left_for_spot_that_comes_up() -> None:
    """It is on on-demand for want of slack, until spot comes; it saves when it is told to, and does the rest on spot."""
    one = task(work=10 * HOUR, boot=60.0, saves=True, save=0.0, grace_period=0.0)
    found = run(UnderDeadline([one], 11 * HOUR), supply("." * 18 + "#" * 120), one, every=600.0)
    assert found.finish[0] <= 11 * HOUR
    assert found.spot[0, 0] > 6.0
    assert (found.taken[0, 0], found.where[0, 0]) == (0, 0)


def test_under_a_deadline_a_dear_spot_pool_is_left_for_a_cheap_one() -> None:
    one = task(work=10 * HOUR, saves=True, save=0.0, grace_period=0.0)
    one = one._replace(spot=(Offer("spot", 2.0, 0.0), Offer("spot-1", 0.5, 0.0)))
    found = run(UnderDeadline([one], 11 * HOUR), supply("#" * 120, "." * 12 + "#" * 108), one, every=600.0)
    assert (found.where[0, 0], found.taken[0, 0]) == (1, 0)
    assert found.total[0] < 0.5 * 8 + 2.0 * 2.5


def test_under_a_deadline_attempts_that_keep_nothing_spend_the_budget_and_others_do_not() -> None:
    """Spot lasts ten minutes at a time: enough for a save where one comes every five, not where one comes every hour."""
    one = task(work=6 * HOUR, saves=True, save=0.0, grace_period=0.0, max_interruptions=2)
    market = supply("#." * 120)
    keeps = run(SpotWhileItIsSafe([one], 30 * HOUR), market, one, every=300.0)
    keeps_nothing = run(SpotWhileItIsSafe([one], 30 * HOUR), market, one, every=HOUR)
    assert keeps.taken[0, 0] > 30
    assert (keeps_nothing.taken[0, 0], keeps_nothing.where[0, 0]) == (3, -2)


def test_under_a_deadline_the_work_that_follows_is_left_free() -> None:
    tasks = [task("a", grace_period=0.0, saves=True), task("b", grace_period=0.0, saves=True, after=[0])]
    found = run(UnderDeadline(tasks, 4 * HOUR), NEVER, *tasks)
    assert found.end[0, 0] <= 3 * HOUR
    assert found.end[1, 0] <= 4 * HOUR


def test_under_a_deadline_losses_of_attempts_that_get_on_do_not_lead_to_on_demand() -> None:
    one = task(work=6 * HOUR, saves=True, save=0.0, max_interruptions=1, spot=("spot",))
    found = run(UnderDeadline([one], 30 * HOUR), supply("#####." * 20), one, every=600.0)
    assert found.taken[0, 0] > 2
    assert (found.where[0, 0], found.total[0]) == (0, found.spot[0, 0])


def test_under_a_deadline_attempts_in_a_row_that_get_nowhere_lead_to_on_demand() -> None:
    one = task(work=6 * HOUR, saves=True, save=0.0, max_interruptions=1, spot=("spot",))
    found = run(UnderDeadline([one], 30 * HOUR), supply("#####." * 20), one, every=2 * HOUR)
    assert (found.taken[0, 0], found.where[0, 0]) == (2, -2)


def test_under_a_deadline_attempts_in_a_row_that_get_nowhere_end_a_task_that_has_no_on_demand() -> None:
    one = task(work=6 * HOUR, max_interruptions=1, spot=("spot",))._replace(on_demand=None)
    found = run(UnderDeadline([one], 30 * HOUR), supply("#####." * 20), one)
    assert (found.taken[0, 0], found.finish[0]) == (2, np.inf)


def test_a_node_of_another_on_demand_pool_is_not_taken_over_and_goes_to_a_task_of_its_own_pool() -> None:
    """A task on GPU nodes follows one on CPU nodes, and so does another one on CPU nodes."""
    first = task("load", boot=300.0, spot=[])
    gpu = task("train", boot=300.0, spot=[], after=[0])._replace(on_demand=Offer("gpu", 9.0, 300.0))
    tasks = [first, gpu, task("report", boot=300.0, spot=[], after=[0])]
    found = run(OnDemand(), ALWAYS, *tasks)
    assert found.end[:, 0].tolist() == [HOUR + 300.0, 2 * HOUR + 600.0, 2 * HOUR + 300.0]
    assert found.cost[1, 0] == pytest.approx(9.0 * (HOUR + 300.0) / HOUR)
