"""No policy is ever late where its deadline was possible at the start, whatever the market does."""

from __future__ import annotations

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.deadlines.reference import simulate_one

from spotwright.deadlines.job_policies import FORMULAS, named
from spotwright.deadlines.jobs import Job, nearest_deadline

POLICIES = (*FORMULAS, "learned")


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Possible jobs: durations of any length, also no slack at all, and overheads of none up to several ticks."""
    work = draw(st.floats(1.0, 20_000.0))
    overhead = draw(st.sampled_from([0.0, 60.0, 599.0, 600.0, 601.0, 1500.0]) | st.floats(0.0, 3000.0))
    slack = draw(st.sampled_from([0.0]) | st.floats(0.0, 12_000.0))
    spot = draw(st.floats(0.0, 4.0))
    return Job(work, work + overhead + slack, overhead, spot, 3.0)


@settings(deadline=None, max_examples=60)
@example(Job(2.0, 601.0, 599.0, 0.0, 3.0), 600.0, "greedy", 1, "always", Random(0))  # noqa: S311  # a launch that would end late
@given(
    given_job=jobs(),
    tick=st.sampled_from([195.0, 600.0, 3600.0]),
    name=st.sampled_from(POLICIES),
    pools=st.integers(1, 3),
    kind=st.sampled_from(["drawn", "alternating", "never", "always"]),
    chances=st.randoms(use_true_random=False),
)
def test_no_policy_is_late_where_the_deadline_was_possible(
    given_job: Job, tick: float, name: str, pools: int, kind: str, chances: Random
) -> None:
    """The adversary takes spot the tick after it was launched, never gives it, or draws; ages tell nothing."""
    ticks = int(given_job.deadline / tick) + 2
    policy = named(name, given_job, tick=tick)

    def state(pool: int, index: int) -> bool:
        if kind == "drawn":
            return chances.random() < 0.5
        return kind == "always" or (kind == "alternating" and (index + pool) % 2 == 0)

    up = [[state(pool, index) for index in range(ticks)] for pool in range(pools)]
    ages = [[chances.choice([0.0, 600.0, 5000.0, 90_000.0]) for _ in range(ticks)] for _ in up]
    result = simulate_one(policy, given_job, up, ages, tick)
    assert not result.late
    assert result.finish <= given_job.deadline + 1e-6


def test_the_nearest_deadline_of_a_job_is_possible_and_none_before_it() -> None:
    given_job = Job(7200.0, 3600.0, 180.0, 1.0, 3.0)
    nearest = nearest_deadline(given_job)
    assert given_job._replace(deadline=nearest).is_possible
    assert not given_job._replace(deadline=nearest - 1.0).is_possible
