"""No policy is late where on-demand could have met its deadline, whatever the market does and however often somebody looks."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.market.builders import decider

from spotwright.deadlines.choice import Pool
from spotwright.deadlines.job_policies import FORMULAS
from spotwright.deadlines.jobs import Job, nearest_deadline
from spotwright.forecast.deadline_jobs import Conditions, simulate
from spotwright.market import Windows

POLICIES = (*FORMULAS, "spotwright")
PLACES = [Pool(1.0, place="a"), Pool(0.4, place="b"), Pool(2.0, place="a")]


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Possible jobs: durations of any length, also no slack at all, and overheads of none up to several ticks."""
    work = draw(st.floats(1.0, 20_000.0))
    overhead = draw(st.sampled_from([0.0, 60.0, 599.0, 600.0, 601.0, 1500.0]) | st.floats(0.0, 3000.0))
    slack = draw(st.sampled_from([0.0]) | st.floats(0.0, 12_000.0))
    spot = draw(st.floats(0.0, 4.0))
    return Job(work, work + overhead + slack, overhead, spot, 3.0)


def adversary(job: Job, tick: float, pools: int, kind: str, chances: Random) -> Windows:
    """Takes spot the tick after it was launched, never gives it, or draws; four windows."""
    ticks = int(job.deadline / tick) + 2

    def state(pool: int, index: int) -> bool:
        if kind == "drawn":
            return chances.random() < 0.5
        return kind == "always" or (kind == "alternating" and (index + pool) % 2 == 0)

    up = [[[state(pool, index) for _ in range(4)] for index in range(ticks)] for pool in range(pools)]
    return Windows(tick, np.array(up), None, tuple("abc"[:pools]))


KINDS = st.sampled_from(["drawn", "alternating", "never", "always"])


@settings(deadline=None, max_examples=80)
@example(Job(2.0, 601.0, 599.0, 0.0, 3.0), 600.0, "greedy", 1, "always", 600.0, 600.0, Random(0))  # noqa: S311
@given(
    job=jobs(),
    tick=st.sampled_from([195.0, 600.0, 3600.0]),
    name=st.sampled_from(POLICIES),
    pools=st.integers(1, 3),
    kind=KINDS,
    every=st.sampled_from([600.0]) | st.floats(100.0, 9000.0),
    phase=st.sampled_from([600.0]) | st.floats(1.0, 9000.0),
    chances=st.randoms(use_true_random=False),
)
def test_no_policy_is_late_where_the_deadline_was_possible(
    job: Job, tick: float, name: str, pools: int, kind: str, every: float, phase: float, chances: Random
) -> None:
    windows = adversary(job, tick, pools, kind, chances)
    policy = decider(name, job, PLACES[:pools], egress=0.2)
    found = simulate(policy, job, windows, Conditions(every=every, phase=phase))
    assert not found.late.any()
    assert (found.finish <= job.deadline + 1e-6).all()


@settings(deadline=None, max_examples=80)
@given(
    job=jobs(),
    name=st.sampled_from(POLICIES),
    kind=KINDS,
    launch=st.floats(0.3, 3.0),
    work=st.floats(0.5, 1.6),
    shown=st.floats(0.0, 1.0),
    phase=st.floats(1.0, 2000.0),
    chances=st.randoms(use_true_random=False),
)
def test_with_wrong_figures_it_is_late_only_where_it_was_too_late_when_that_was_first_seen(
    job: Job, name: str, kind: str, launch: float, work: float, shown: float, phase: float, chances: Random
) -> None:
    """Launches and work are others than stated; the job sees it in its launch, and after some of its work."""
    windows = adversary(job, 600.0, 2, kind, chances)
    day = Conditions(job.overhead * launch, job.work * work, job.work * shown, 600.0, phase)
    found = simulate(decider(name, job, PLACES[:2]), job, windows, day)
    assert not (found.late & ~found.hopeless).any()


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "on-demand"])
def test_a_launch_that_is_reckoned_with_keeps_the_deadline_though_it_takes_longer_than_usual(name: str) -> None:
    job = Job(6 * 3600.0, 9 * 3600.0, 600.0, 1.0, 3.0)
    windows = adversary(job, 600.0, 1, "drawn", Random(4))  # noqa: S311 - a market, not a secret
    policy = decider(name, job, launch=1800.0)
    assert not simulate(policy, job, windows, Conditions(launch=1800.0, phase=77.0)).late.any()


def test_the_nearest_deadline_of_a_job_is_possible_and_none_before_it() -> None:
    given_job = Job(7200.0, 3600.0, 180.0, 1.0, 3.0)
    nearest = nearest_deadline(given_job)
    assert given_job._replace(deadline=nearest).is_possible
    assert not given_job._replace(deadline=nearest - 1.0).is_possible
