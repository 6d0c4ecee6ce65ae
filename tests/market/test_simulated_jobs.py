"""The simulation of thousands of windows gives what the readable one gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.deadlines.reference import simulate_one
from tests.market.builders import hours, job, market, random_market

from spotwright.deadlines.job_policies import FORMULAS, named
from spotwright.deadlines.jobs import Job
from spotwright.errors import InputError
from spotwright.market import Windows
from spotwright.simulation.deadline_jobs import simulate

POLICIES = (*FORMULAS, "learned")
JOBS = {
    "an overhead shorter than a tick": (job(), 600.0),
    "an overhead longer than a tick": (job(overhead=0.45), 600.0),
    "no overhead": (job(overhead=0.0), 600.0),
    "other ticks": (Job(hours(5), hours(7.1), 720.0, 0.9731, 3.06), 195.0),
    "a deadline between two ticks": (Job(19_000.0, 30_123.4, 180.0, 0.9731, 3.06), 600.0),
    "no slack": (job(work=6.0, deadline=6.2), 600.0),
    "an impossible deadline": (job(work=6.0, deadline=6.1), 600.0),
    "no work": (job(work=0.0), 600.0),
    "spot that costs more": (job(spot=4.0), 600.0),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", JOBS)
def test_the_fast_simulation_equals_the_readable_one(policy: str, name: str) -> None:
    given, tick = JOBS[name]
    windows = random_market(ticks=int(given.deadline / tick) + 1, size=12, tick=tick)
    _compare(policy, given, windows)


@pytest.mark.parametrize("policy", POLICIES)
def test_with_several_pools_both_take_the_pool_that_has_been_up_the_longest(policy: str) -> None:
    _compare(policy, job(overhead=0.3), random_market(ticks=54, size=12, pools=3))


@pytest.mark.parametrize("pools", [1, 2])
def test_prices_that_change_are_paid_as_they_were(pools: int) -> None:
    windows = random_market(ticks=54, size=12, pools=pools)
    prices = np.random.default_rng(3).uniform(0.5, 2.0, windows.up.shape)
    _compare("learned", job(), windows._replace(prices=prices))


def _compare(name: str, given: Job, windows: Windows) -> None:
    policy = named(name, given, tick=windows.tick)
    fast = simulate(policy, given, windows)
    ages = windows.ages()
    for index in range(windows.size):
        prices = None if windows.prices is None else windows.prices[:, :, index].tolist()
        slow = simulate_one(
            policy, given, windows.up[:, :, index].tolist(), ages[:, :, index].tolist(), windows.tick, prices
        )
        assert fast.cost[index] == pytest.approx(slow.cost, abs=1e-9, rel=1e-9)
        assert fast.finish[index] == pytest.approx(slow.finish, abs=1e-6)
        assert fast.late[index] == slow.late


def test_windows_shorter_than_the_deadline_are_refused() -> None:
    with pytest.raises(InputError, match="too short"):
        simulate(named("greedy", job()), job(), market("#" * 20))


def test_an_unknown_policy_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(InputError, match="uniform-progress"):
        named("cheapest", job())
