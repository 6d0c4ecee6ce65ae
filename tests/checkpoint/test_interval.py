"""The interval between saves is the exact optimum for the measurements, and is explained."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.checkpoint.save_policy import CRASHES, USABLE, Hazard, SavePolicy, expected_time, optimum, unannounced


@given(cost=st.floats(1e-4, 1e4), every=st.floats(1, 1e7), other=st.floats(0.2, 5))
def test_no_other_interval_takes_less_time(cost: float, every: float, other: float) -> None:
    best = optimum(cost, 1 / every)
    if (best * 5 + cost) / every > 500:
        return  # beyond what a float can say

    def time(interval: float) -> float:
        return expected_time(1.0, interval, cost, 0.0, 1 / every)

    assert time(best) <= time(best * other) * (1 + 1e-9)


def test_the_worked_example_of_the_literature_is_met() -> None:
    assert optimum(60, 1 / 6000) == pytest.approx(809.0085, abs=1e-3)  # Young says 849


@given(cost=st.floats(1e-6, 1e6), rate=st.floats(1e-12, 1e3), restart=st.floats(0, 1e4))
def test_it_grows_with_the_cost_and_stays_below_the_time_between_losses(
    cost: float, rate: float, restart: float
) -> None:
    assert 0 < optimum(cost, rate) <= optimum(cost * 2, rate) <= 1 / rate * (1 + 1e-12)


def test_without_losses_no_save_pays() -> None:
    assert optimum(1, 0) == math.inf


def test_a_save_without_cost_always_pays() -> None:
    assert optimum(0, 1) == 0


def test_a_notice_that_fits_leaves_only_losses_without_notice() -> None:
    assert unannounced(0.01, notice_fits=False) == 0.01 + CRASHES
    assert unannounced(0.01, notice_fits=True) == pytest.approx(0.01 * (1 - USABLE) + CRASHES)


def test_a_node_that_has_lived_long_is_less_likely_to_go() -> None:
    ages = [0, 900, 2700, 5400, 10800, 20000, 40000, 80000]
    rates = [Hazard(None).rate(age) for age in ages]

    assert rates == sorted(rates, reverse=True)


def test_interruptions_of_attempts_weigh_against_the_pools_rate() -> None:
    stated = Hazard(3600)

    assert stated.rate(0) == 1 / 3600
    assert Hazard(3600, taken=4, lived=1.0).rate(0) == pytest.approx(2 / 3600)
    assert Hazard(3600, taken=0, lived=6.0).rate(0) == pytest.approx(0.25 / 3600)


@given(age=st.floats(0, 1e6), more=st.floats(0, 1e6))
def test_exposure_is_the_sum_of_the_rates(age: float, more: float) -> None:
    hazard = Hazard(None)

    grown = hazard.exposure(age + more) - hazard.exposure(age)
    assert hazard.rate(age + more) * more * (1 - 1e-6) - 1e-9 <= grown <= hazard.rate(age) * more * (1 + 1e-6) + 1e-9


def policy_of(hazard: Hazard, *, notice: float = 0.0, cost: float = 2.0, step: float = 1.0) -> SavePolicy:
    policy = SavePolicy(hazard, notice=notice)
    for _ in range(5):
        policy.record_save(cost)
        policy.record_step(step)
    return policy


def test_the_first_step_is_saved_and_then_when_it_pays() -> None:
    policy = SavePolicy(Hazard(3600))

    assert policy.is_due(0.1, 0.1)
    policy.record_save(2.0)
    policy.record_step(10.0)
    due = [since for since in range(0, 300, 10) if policy.is_due(since, since)]
    assert due[0] == 120  # the optimum is 119.6 s; the end of a step that is next to it


def test_one_slow_save_changes_little() -> None:
    policy = policy_of(Hazard(3600))
    before = policy.interval(0)
    policy.record_save(60.0)

    assert policy.interval(0) == before


def test_saves_that_become_slow_become_seldom() -> None:
    policy = policy_of(Hazard(3600))
    before = policy.interval(0)
    for _ in range(5):
        policy.record_save(20.0)

    assert policy.interval(0) > 2.5 * before


def test_a_notice_long_enough_for_a_step_and_a_save_makes_saves_rare() -> None:
    assert policy_of(Hazard(3600), notice=30).interval(0) > 4 * policy_of(Hazard(3600)).interval(0)


@pytest.mark.parametrize(("cost", "step"), [(40.0, 1.0), (2.0, 60.0)])
def test_a_notice_too_short_for_a_step_and_a_save_changes_nothing(cost: float, step: float) -> None:
    with_notice, without = (policy_of(Hazard(3600), notice=seconds, cost=cost, step=step) for seconds in (30, 0))

    assert with_notice.interval(0) == without.interval(0)
    assert "too short for the step under way and a save" in with_notice.explain(0)


def test_the_last_chance_is_when_one_step_more_would_be_too_many() -> None:
    policy = policy_of(Hazard(3600), notice=30)

    assert not policy.is_last_chance(25)
    assert policy.is_last_chance(5)


@pytest.mark.parametrize(
    ("policy", "part"),
    [
        (SavePolicy(Hazard(None)), "not measured yet"),
        (SavePolicy(Hazard(None), every=90), "every 90 s of work, as set by `every`"),
        (policy_of(Hazard(None)), "a save costs 2 s and nodes are reclaimed every 28 min (typical for a spot node"),
        (policy_of(Hazard(7200, taken=1)), "as the pool's configuration says, and 1 earlier attempt was interrupted"),
        (policy_of(Hazard(math.inf)), "nodes are reclaimed never (this pool's nodes are not)"),
        (policy_of(Hazard(7200), notice=120), "with a notice of 2 min, enough for the step under way and a save"),
    ],
)
def test_the_explanation_has_the_numbers(policy: SavePolicy, part: str) -> None:
    assert part in policy.explain(0)


@pytest.mark.parametrize(("cost", "every"), [(0.1, 1.0), (3.0, 3.0), (1e-6, optimum(1e-6, 1 / 10 + CRASHES))])
def test_a_rehearsal_has_saves_within_a_part_of_its_work_unless_they_would_take_most_of_the_time(
    cost: float, every: float
) -> None:
    policy = SavePolicy(Hazard(10.0), within=1.0)
    policy.record_save(cost)

    assert policy.interval(0.0) == pytest.approx(every)
    assert ("as often as a rehearsal needs" in policy.explain(0.0)) is (cost > 0.05)
