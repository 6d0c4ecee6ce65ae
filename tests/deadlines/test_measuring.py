"""A job whose work may be other than stated measures it before it waits, and what a move costs counts in its price."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.deadlines.choice import DOUBT, Chooser, Limits, Pool, Situation, chooser
from spotwright.deadlines.jobs import Action, Job
from spotwright.forecast.deadline_jobs import Conditions, Results, cheapest, simulate
from spotwright.market import MarketModel, Windows, drawn

HOUR = 3600.0
JOB = Job(48.0 * HOUR, 52.0 * HOUR, 0.2 * HOUR, 1.0, 3.0)
FIRST_RUN = Conditions(shown=600.0)


def decides(job: Job, pools: int = 1) -> Chooser:
    return chooser(job, [Pool(job.spot_price)] * pools, Limits(job.overhead))


def situation(
    *, remaining: float, left: float, mode: Action, up: bool, pool: int = -1, measured: bool = False, loses: float = 0.0
) -> Situation:
    one = np.ones(1)
    return Situation(
        remaining * one, left * one, left * one, np.array([mode]), np.array([pool]), 0.0 * one, np.array([[up]]),
        np.full((1, 1), 4.0 * HOUR), np.array([measured]), loses * one,
    )  # fmt: skip


def act(decider: Chooser, now: Situation) -> Action:
    return Action(int(decider.choose(now).action[0]))


WAITS: dict[str, Any] = {"remaining": 70.0 * HOUR, "left": 48.0 * HOUR, "mode": Action.WAIT, "up": False}


def test_a_job_does_not_wait_for_spot_before_its_work_is_measured() -> None:
    decider = decides(JOB._replace(deadline=70.0 * HOUR))
    assert act(decider, situation(**WAITS, measured=True)) is Action.WAIT
    assert act(decider, situation(**WAITS)) is Action.ON_DEMAND


def test_a_job_that_could_do_several_times_its_work_waits_unmeasured() -> None:
    job = JOB._replace(work=4.0 * HOUR, deadline=40.0 * HOUR)
    assert act(decides(job), situation(**{**WAITS, "remaining": 40.0 * HOUR, "left": 4.0 * HOUR})) is Action.WAIT


def test_spot_at_the_start_measures_too_but_a_job_that_lost_it_does_not_try_again() -> None:
    decider, now = decides(JOB._replace(deadline=70.0 * HOUR)), {**WAITS, "up": True}
    assert act(decider, situation(**now)) is Action.SPOT
    assert act(decider, situation(**now, pool=0)) is Action.ON_DEMAND


def test_a_job_on_on_demand_stays_there_until_it_is_measured() -> None:
    decider, now = decides(JOB._replace(deadline=70.0 * HOUR)), {**WAITS, "up": True, "mode": Action.ON_DEMAND}
    assert act(decider, situation(**now)) is Action.ON_DEMAND
    assert act(decider, situation(**now, measured=True)) is Action.SPOT


@given(
    remaining=st.floats(0.0, 100.0 * HOUR),
    left=st.floats(0.0, 48.0 * HOUR),
    mode=st.sampled_from(list(Action)),
    up=st.booleans(),
    pool=st.sampled_from([-1, 0]),
    measured=st.booleans(),
    loses=st.floats(0.0, 10.0 * HOUR),
)
@settings(deadline=None, max_examples=200)
def test_every_situation_has_a_safe_action(
    remaining: float, left: float, mode: Action, up: bool, pool: int, measured: bool, loses: float
) -> None:
    now = situation(remaining=remaining, left=left, mode=mode, up=up, pool=pool, measured=measured, loses=loses)
    action = act(decides(JOB._replace(idle=600.0)), now)
    if action is not Action.ON_DEMAND:
        assert remaining - left > JOB.overhead
    if action is Action.WAIT and not measured:
        assert remaining > DOUBT * left + JOB.overhead
    if action is Action.SPOT:
        assert up


MARKET = drawn(MarketModel(), 70.0 * HOUR, 60, seed=4)
BAD_DAYS = {
    "a fifth more work": (0.8, Conditions(work=JOB.work, shown=600.0)),
    "launches twice as long": (1.0, Conditions(launch=2.0 * JOB.overhead, shown=600.0)),
    "looks out of phase": (1.0, Conditions(every=600.0, phase=290.0, shown=600.0)),
    "all of it": (0.8, Conditions(launch=2.0 * JOB.overhead, work=JOB.work, shown=600.0, every=600.0, phase=290.0)),
}


def ran(job: Job, day: Conditions, market: Windows = MARKET) -> Results:
    return simulate(decides(job, market.pools), job, market, day)


@pytest.mark.parametrize("deadline", [52.0, 70.0])
@pytest.mark.parametrize("what", BAD_DAYS)
def test_no_run_is_late_on_a_bad_day(what: str, deadline: float) -> None:
    share, day = BAD_DAYS[what]
    job = JOB._replace(work=JOB.work * share, deadline=deadline * HOUR)
    assert not ran(job, day).late.any()


def test_measuring_costs_little_where_the_figures_are_right() -> None:
    job = JOB._replace(deadline=70.0 * HOUR)
    assert ran(job, FIRST_RUN).cost.mean() <= 1.02 * ran(job, Conditions()).cost.mean()


def test_a_job_that_counts_idle_minutes_moves_less_than_one_that_does_not() -> None:
    pays = Conditions(idle=600.0)
    counts, ignores = ran(JOB._replace(idle=600.0), pays), ran(JOB, pays)
    assert counts.moves.sum() < ignores.moves.sum()
    assert counts.cost.mean() <= 1.01 * ignores.cost.mean()
    assert (cheapest(JOB._replace(idle=600.0), MARKET) <= counts.cost + 1e-6).all()


def test_a_job_does_not_leave_its_node_for_less_than_it_would_do_again() -> None:
    decider = decides(JOB._replace(deadline=70.0 * HOUR))
    now = {
        **WAITS,
        "up": True,
        "mode": Action.ON_DEMAND,
        "left": 10.0 * HOUR,
        "remaining": 20.0 * HOUR,
        "measured": True,
    }
    assert act(decider, situation(**now)) is Action.SPOT
    assert act(decider, situation(**now, loses=9.0 * HOUR)) is Action.ON_DEMAND


def test_a_dear_pool_is_not_used_beside_a_cheap_one_that_is_up() -> None:
    """Also while a third one, cheaper than the dear one, is about to come back."""
    prices = (19.0, 70.0, 30.0)
    job = Job(48.0 * HOUR, 70.0 * HOUR, 0.2 * HOUR, 0.0, 98.0)
    decider = chooser(job, [Pool(price) for price in prices], Limits(job.overhead))
    one = np.ones(1)
    now = Situation(
        70.0 * HOUR * one, 40.0 * HOUR * one, 40.0 * HOUR * one, np.array([Action.WAIT]), np.array([-1]), 0.0 * one,
        np.array([[True], [True], [False]]), np.array([[600.0], [20.0 * HOUR], [600.0]]), np.array([True]),
    )  # fmt: skip
    choices = decider.choose(now)
    assert (int(choices.action[0]), int(choices.pool[0])) == (Action.SPOT, 0)


def test_prices_that_change_hourly_make_no_run_late() -> None:
    prices = np.random.default_rng(3).uniform(0.5, 2.5, MARKET.up.shape)
    assert not ran(JOB, FIRST_RUN, MARKET._replace(prices=prices)).late.any()


def test_one_decision_takes_less_than_a_millisecond() -> None:
    decider, now = decides(JOB), situation(**WAITS, measured=True)
    decider.choose(now)
    took = []
    for _ in range(20):
        began = time.process_time()
        decider.choose(now)
        took.append(time.process_time() - began)
    assert min(took) < 1e-3
