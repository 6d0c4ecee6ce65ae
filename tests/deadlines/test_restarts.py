"""The policy of jobs that cannot save their work: never late where that was possible, and no dearer than the alternatives."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.deadlines.hazards import BUCKETS, SHIPPED, HazardTable, Spells
from spotwright.deadlines.jobs import Action, Job
from spotwright.deadlines.solver import RestartTable, may_launch, solve_restarts, spot_ends

HOUR = 3600.0
JOB = Job(2 * HOUR, 12 * HOUR, 180.0, 1.0, 3.0)
NEVER_LOST = Spells((1000.0,) * BUCKETS, (0.0,) * BUCKETS)
ALWAYS_LOST = Spells((1000.0,) * BUCKETS, (1000.0,) * BUCKETS)


def finish(table: RestartTable, states: list[tuple[float, bool]]) -> float:
    """Let the job run over an adversary's spells: lengths in seconds and whether spot is up. Returns when it is done.

    It decides when a spell begins, when its attempt is lost, and while it waits at every tick of the table.
    """
    job, now = table.job, 0.0
    attempt = job.work + job.overhead
    for length, up in states:
        end = now + length
        while now < end:
            action = table.action(job.deadline - now, up=up, age=1e6)
            if action is Action.ON_DEMAND:
                return now + attempt
            if action is Action.SPOT:
                if now + attempt <= end:
                    return now + attempt
                now = end  # lost
            else:
                now = min(end, now + table.tick)
    return now + attempt


@settings(deadline=None, max_examples=80)
@given(
    work=st.floats(1.0, 10_000.0),
    overhead=st.sampled_from([0.0, 60.0, 1500.0]),
    slack=st.floats(0.0, 30_000.0),
    drain=st.sampled_from([0.0, 30.0]),
    prices=st.sampled_from([(1.0, 3.0), (0.0, 3.0), (3.0, 3.0)]),
    states=st.lists(st.tuples(st.floats(1.0, 8000.0), st.booleans()), max_size=30),
)
def test_it_is_never_late_where_the_deadline_was_possible(
    work: float,
    overhead: float,
    slack: float,
    drain: float,
    prices: tuple[float, float],
    states: list[tuple[float, bool]],
) -> None:
    job = Job(work, work + overhead + slack, overhead, *prices)
    table = solve_restarts(job, drain=drain)
    assert finish(table, [*states, (job.deadline * 2, False)]) <= job.deadline + 1e-6


def test_a_launch_leaves_time_for_a_whole_attempt_after_it() -> None:
    table = solve_restarts(JOB, drain=30.0)
    last = spot_ends(JOB, 30.0)
    assert last == 2 * (2 * HOUR + 180.0) + 30.0
    assert may_launch(JOB, last, 30.0)
    assert table.action(last - 1.0, up=True, age=1e6) is Action.ON_DEMAND


def test_spot_that_lasts_is_taken_and_without_it_the_job_waits_while_there_is_time() -> None:
    table = solve_restarts(JOB)
    assert table.action(12 * HOUR, up=True, age=1e6) is Action.SPOT
    assert table.action(12 * HOUR, up=False, age=0.0) is Action.WAIT
    assert table.action(4 * HOUR, up=False, age=0.0) is Action.ON_DEMAND


def test_where_spot_is_never_lost_the_job_costs_one_attempt_on_spot() -> None:
    table = solve_restarts(JOB, HazardTable(NEVER_LOST, NEVER_LOST))
    assert table.cost(12 * HOUR, up=True, age=0.0) == pytest.approx((2 * HOUR + 180.0) / 3600.0)


def test_where_spot_is_lost_at_once_it_is_not_used() -> None:
    table = solve_restarts(JOB, HazardTable(ALWAYS_LOST, NEVER_LOST))
    assert table.action(12 * HOUR, up=True, age=0.0) is Action.ON_DEMAND


def test_spot_at_the_price_of_on_demand_is_not_used() -> None:
    assert solve_restarts(JOB._replace(spot_price=3.0)).action(12 * HOUR, up=True, age=1e6) is Action.ON_DEMAND


def test_it_never_expects_to_pay_more_than_on_demand_alone() -> None:
    paid = (JOB.work + JOB.overhead) / 3600.0 * JOB.on_demand_price
    assert float(solve_restarts(JOB).expected.max()) <= paid + 1e-9


def test_a_short_work_makes_spot_pay_where_a_long_one_would_be_lost() -> None:
    """The chance that an attempt comes to its end falls with its length; a young spell is lost often."""
    prices = {"spot_price": 2.5, "on_demand_price": 3.0}
    short = Job(300.0, 20 * HOUR, 60.0, **prices)
    long = Job(6 * HOUR, 20 * HOUR, 60.0, **prices)
    actions = [solve_restarts(job).action(20 * HOUR, up=True, age=0.0) for job in (short, long)]
    assert actions == [Action.SPOT, Action.ON_DEMAND]


def by_hand(job: Job, hazards: HazardTable, tick: float) -> float:
    """The same in plain recursion, for hazards that do not depend on the age."""
    ends, back = hazards.up.chance(0, tick), hazards.down.chance(0, tick)
    parts = round((job.work + job.overhead) / tick)
    paid = parts * tick / 3600.0 * job.on_demand_price

    @cache
    def running(left: int, parts_left: int) -> float:
        if parts_left == 0:
            return 0.0
        price = tick / 3600.0 * job.spot_price
        return price + ends * down(left - 1) + (1 - ends) * running(left - 1, parts_left - 1)

    @cache
    def up(left: int) -> float:
        return min(paid, running(left, parts)) if left >= 2 * parts else paid

    @cache
    def down(left: int) -> float:
        return min(paid, back * up(left - 1) + (1 - back) * down(left - 1)) if left >= 2 * parts else paid

    return [up(left) for left in range(round(job.deadline / tick) + 1)][-1]


def test_the_expected_cost_is_that_of_a_plain_recursion() -> None:
    flat = HazardTable(Spells((100.0,) * BUCKETS, (9.0,) * BUCKETS), Spells((100.0,) * BUCKETS, (20.0,) * BUCKETS))
    job = Job(1800.0, 12_000.0, 0.0, 1.0, 3.0)
    table = solve_restarts(job, flat)
    assert table.tick == 60.0
    assert table.cost(job.deadline, up=True, age=0.0) == pytest.approx(by_hand(job, flat, 60.0), rel=1e-9)


def test_a_deadline_without_room_for_two_attempts_is_met_on_on_demand() -> None:
    tight = JOB._replace(deadline=3 * HOUR)
    table = solve_restarts(tight, SHIPPED)
    assert {table.action(left, up=True, age=1e6) for left in (3 * HOUR, 2 * HOUR, 0.0)} == {Action.ON_DEMAND}
