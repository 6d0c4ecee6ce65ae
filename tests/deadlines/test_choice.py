"""The one decision of a job with a deadline: never late where on-demand could meet it, and it goes where that is cheapest."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.deadlines.choice import Choices, Chooser, Limits, Pool, Situation, chooser
from spotwright.deadlines.hazards import BUCKETS, SHIPPED, Spells
from spotwright.deadlines.jobs import Action, Job

HOUR = 3600.0


class Case(NamedTuple):
    """A drawn job on pools, and how much longer than stated nothing takes."""

    job: Job
    pools: tuple[Pool, ...]
    limits: Limits


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Jobs that on-demand can finish: with no slack and with much, on pools of every price, with and without egress."""
    work = draw(st.floats(60.0, 40_000.0))
    launch = draw(st.sampled_from([0.0, 60.0, 600.0]) | st.floats(0.0, 3000.0))
    slack = draw(st.sampled_from([0.0]) | st.floats(0.0, 20_000.0))
    prices = draw(st.lists(st.floats(0.1, 4.0), min_size=1, max_size=4))
    pools = tuple(Pool(price, place="ab"[index % 2]) for index, price in enumerate(prices))
    drain = draw(st.sampled_from([0.0, 30.0, 300.0]))
    limits = Limits(launch, drain, draw(st.sampled_from([0.0, 1.0, 600.0])), draw(st.sampled_from([0.0, 1.0])))
    return Case(Job(work, work + launch + slack, launch, 1.0, 3.0), pools, limits)


def situation(policy: Chooser, remaining: float, left: float, mode: Action = Action.WAIT, **facts: object) -> Situation:
    """The situation of one job: all pools are up and old, unless ``up`` and ``age`` say otherwise."""
    count = len(policy.pools)
    up = np.array(facts.get("up", [True] * count), bool).reshape(count, 1)
    age = np.array(facts.get("age", [50_000.0] * count), float).reshape(count, 1)
    pool = np.array([facts.get("pool", -1)])
    return Situation(
        np.array([remaining]), np.array([left]), np.array([facts.get("at_most", left)]), np.array([int(mode)]), pool,
        np.array([facts.get("starting", 0.0)]), up, age,
    )  # fmt: skip


def action(choices: Choices) -> Action:
    """What the one job does."""
    return Action(int(choices.action[0]))


@settings(deadline=None)
@given(
    case=cases(), kind=st.sampled_from(["drawn", "never works", "always"]), chances=st.randoms(use_true_random=False)
)
@pytest.mark.hypothesis
def test_nothing_is_late_that_on_demand_could_finish_whenever_somebody_looks(
    case: Case, kind: str, chances: Random
) -> None:
    """Spot comes and goes between two looks, whose moments are drawn up to ``until``; launches take as long as they may."""
    policy = chooser(case.job, case.pools, case.limits)
    now, left, mode, pool, starting = 0.0, case.job.work, Action.WAIT, -1, 0.0
    while left > 1e-6:
        up = [kind != "drawn" or chances.random() < 0.6 for _ in case.pools]
        age = [chances.choice([0.0, 900.0, 20_000.0, 90_000.0]) for _ in case.pools]
        if mode is Action.SPOT and not up[pool]:
            mode, starting = Action.WAIT, 0.0
        given_now = situation(policy, case.job.deadline - now, left, mode, pool=pool, up=up, age=age, starting=starting)
        choices = policy.choose(given_now)
        chosen, where, until = action(choices), int(choices.pool[0]), float(choices.until[0])
        assert chosen is not Action.SPOT or up[where]
        changes = chosen is not mode or (chosen is Action.SPOT and where != pool)
        if changes and mode is not Action.WAIT:
            now += case.limits.drain  # what ran is told to end, and does nothing in that time
            until -= 0.0 if chosen is Action.ON_DEMAND else case.limits.drain
        if changes:
            starting = 0.0 if chosen is Action.WAIT else case.limits.launch
        mode, pool = chosen, where if chosen is Action.SPOT else pool
        if mode is Action.ON_DEMAND:
            look = starting + left if chances.random() < 0.3 else chances.uniform(1.0, 4000.0)
        else:
            assert until > case.limits.look - case.limits.drain - 1e-6
            look = max(1e-3, until * chances.choice([1.0, 0.5, 0.1]))
        works = mode is Action.ON_DEMAND or (mode is Action.SPOT and kind != "never works")
        if works:
            look = min(look, starting + left)
            left -= max(0.0, look - starting)
            starting = max(0.0, starting - look)
        now += look
    assert now <= case.job.deadline + 1e-3


def test_on_demand_is_left_for_spot_that_has_lasted_where_there_is_slack() -> None:
    policy = chooser(Job(48 * HOUR, 70 * HOUR, 720.0, 1.0, 3.0), (Pool(1.0),), Limits(720.0, 30.0))
    rich = situation(policy, 60 * HOUR, 40 * HOUR, Action.ON_DEMAND, pool=0, age=[3 * HOUR])
    choices = policy.choose(rich)
    assert action(choices) is Action.SPOT
    assert choices.spot[0, 0] < choices.on_demand[0]
    poor = situation(policy, 40.5 * HOUR, 40 * HOUR, Action.ON_DEMAND, pool=0, age=[0.0])
    assert action(policy.choose(poor)) is Action.ON_DEMAND


def test_a_dear_pool_is_left_for_a_cheap_one_if_the_gain_pays_the_launch_and_the_egress() -> None:
    job = Job(48 * HOUR, 70 * HOUR, 720.0, 1.0, 3.0)
    for egress, moves in ((0.0, True), (1000.0, False)):
        policy = chooser(job, (Pool(2.0, place="a"), Pool(0.7, place="b")), Limits(720.0, 30.0, egress=egress))
        choices = policy.choose(situation(policy, 60 * HOUR, 40 * HOUR, Action.SPOT, pool=0))
        assert action(choices) is Action.SPOT
        assert (int(choices.pool[0]) == 1) is moves
    nearly_done = policy.choose(situation(policy, 60 * HOUR, 0.1 * HOUR, Action.SPOT, pool=0))
    assert int(nearly_done.pool[0]) == 0


def test_a_dear_pool_is_left_for_a_cheaper_one_that_is_up_although_the_cheapest_may_come_back_soon() -> None:
    job = Job(48 * HOUR, 70 * HOUR, 720.0, 2.0, 12.0)
    policy = chooser(job, (Pool(5.0), Pool(4.0), Pool(2.0)), Limits(720.0, 30.0))
    facts = {"up": [True, True, False], "age": [5 * HOUR, 5 * HOUR, 600.0]}
    choices = policy.choose(situation(policy, 60 * HOUR, 40 * HOUR, Action.SPOT, pool=0, **facts))
    assert action(choices) is Action.SPOT
    assert int(choices.pool[0]) == 1


def test_a_pool_that_flaps_is_not_moved_to() -> None:
    policy = chooser(Job(48 * HOUR, 70 * HOUR, 720.0, 1.0, 3.0), (Pool(1.0), Pool(0.95)), Limits(720.0))
    flapping = situation(policy, 60 * HOUR, 40 * HOUR, Action.SPOT, pool=0, age=[30_000.0, 0.0])
    assert int(policy.choose(flapping).pool[0]) == 0


def test_a_pool_with_a_better_history_of_its_own_is_chosen_among_equals() -> None:
    often = Spells(tuple(each * 10.0 for each in SHIPPED.up.seen), tuple(each * 20.0 for each in SHIPPED.up.ended))
    rarely = Spells(often.seen, tuple(each * 2.0 for each in SHIPPED.up.ended))
    policy = chooser(Job(48 * HOUR, 70 * HOUR, 720.0, 1.0, 3.0), (Pool(1.0, often), Pool(1.0, rarely)), Limits(720.0))
    choices = policy.choose(situation(policy, 60 * HOUR, 40 * HOUR, age=[2 * HOUR, 2 * HOUR]))
    assert int(choices.pool[0]) == 1


def test_without_spot_a_job_with_slack_waits_longer_when_spot_has_just_gone() -> None:
    policy = chooser(Job(48 * HOUR, 70 * HOUR, 720.0, 1.0, 3.0), (Pool(1.0),), Limits(720.0))
    gone = [policy.choose(situation(policy, 45 * HOUR, 40 * HOUR, up=[False], age=[age])) for age in (0.0, 80_000.0)]
    assert [action(each) for each in gone] == [Action.WAIT, Action.ON_DEMAND]


def test_work_that_may_be_more_than_expected_forces_on_demand_in_time() -> None:
    policy = chooser(Job(10 * HOUR, 14 * HOUR, 300.0, 1.0, 3.0), (Pool(1.0),), Limits(300.0))
    expected = policy.choose(situation(policy, 12 * HOUR, 10 * HOUR))
    assert action(expected) is Action.SPOT
    at_worst = policy.choose(situation(policy, 12 * HOUR, 10 * HOUR, at_most=11.99 * HOUR))
    assert action(at_worst) is Action.ON_DEMAND


def test_the_costs_are_finite_where_an_action_is_possible_and_many_jobs_are_decided_at_once() -> None:
    policy = chooser(Job(48 * HOUR, 70 * HOUR, 720.0, 1.0, 3.0), (Pool(1.0), Pool(1.5)), Limits(720.0))
    many = Situation(
        np.full(3, 60 * HOUR), np.full(3, 40 * HOUR), np.full(3, 40 * HOUR), np.array([0, 1, 2]), np.array([-1, 1, 0]),
        np.zeros(3), np.array([[True, False, True], [False, True, True]]), np.full((2, 3), 1000.0),
    )  # fmt: skip
    choices = policy.choose(many)
    assert np.isfinite(choices.wait).tolist() == [True, False, False]  # no node is left in order to wait
    assert np.isfinite(choices.on_demand).all()
    assert np.isfinite(choices.spot).tolist() == [[True, False, True], [False, True, True]]
    assert policy.table.size < 3_000_000
    assert policy.table.wait.shape[1] == 2 * BUCKETS
