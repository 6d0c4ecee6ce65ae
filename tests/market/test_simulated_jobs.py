"""The simulation of thousands of windows gives what the readable one gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.deadlines.reference import simulate_one
from tests.market.builders import decider, hours, job, market, random_market

from spotwright.deadlines.choice import Pool
from spotwright.deadlines.job_policies import FORMULAS, formula
from spotwright.deadlines.jobs import Job
from spotwright.errors import InputError
from spotwright.forecast.deadline_jobs import AS_STATED, Conditions, simulate
from spotwright.market import Windows

POLICIES = (*FORMULAS, "spotwright")
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
BAD_DAYS = {
    "launches twice as long": Conditions(launch=hours(0.4)),
    "launches half as long": Conditions(launch=hours(0.1)),
    "a quarter more work": Conditions(work=hours(7.5), shown=600.0),
    "less work than stated": Conditions(work=hours(4), shown=1700.0),
    "looks at another phase": Conditions(every=600.0, phase=130.0),
    "rare looks, and all of it": Conditions(hours(0.5), hours(7), 900.0, 2000.0, 70.0),
}
POOLS = [Pool(1.0, place="a"), Pool(1.3, place="b"), Pool(1.0, place="b")]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", JOBS)
def test_the_fast_simulation_equals_the_readable_one(policy: str, name: str) -> None:
    given, tick = JOBS[name]
    windows = random_market(ticks=int(given.deadline / tick) + 1, size=12, tick=tick)
    _compare(policy, given, windows)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("day", BAD_DAYS)
def test_on_a_bad_day_too(policy: str, day: str) -> None:
    _compare(policy, job(), random_market(ticks=54, size=12), day=BAD_DAYS[day])


@pytest.mark.parametrize("policy", POLICIES)
def test_with_pools_of_several_prices_and_places_too(policy: str) -> None:
    _compare(policy, job(overhead=0.3), random_market(ticks=54, size=12, pools=3), POOLS, egress=0.4)


@pytest.mark.parametrize("pools", [1, 2])
def test_prices_that_change_are_paid_as_they_were(pools: int) -> None:
    windows = random_market(ticks=54, size=12, pools=pools)
    prices = np.random.default_rng(3).uniform(0.5, 2.0, windows.up.shape)
    _compare("spotwright", job(), windows._replace(prices=prices))


def _compare(
    name: str,
    given: Job,
    windows: Windows,
    pools: list[Pool] | None = None,
    day: Conditions = AS_STATED,
    egress: float = 0.0,
) -> None:
    policy = decider(name, given, pools or [Pool(given.spot_price)] * windows.pools, egress=egress, drain=30.0)
    fast = simulate(policy, given, windows, day)
    for index in range(windows.size):
        prices = None if windows.prices is None else windows.prices[:, :, index].tolist()
        slow = simulate_one(policy, given, windows.up[:, :, index].tolist(), windows.tick, day, prices)
        assert fast.cost[index] == pytest.approx(slow.cost, abs=1e-9, rel=1e-9)
        assert fast.finish[index] == pytest.approx(slow.finish, abs=1e-5)
        assert (fast.launches[index], fast.moves[index]) == (slow.launches, slow.moves)


def test_a_node_is_paid_by_the_second_from_its_request_on() -> None:
    """An hour and 12 minutes on spot, which is never lost: the last ten minutes are not paid as a whole."""
    given = job(work=1.05, deadline=3.0, overhead=0.2)
    found = simulate(decider("greedy", given), given, market("#" * 18))
    assert found.cost[0] == pytest.approx(1.25)
    assert (found.finish[0], found.spot[0], found.launches[0]) == (hours(1.25), hours(1.25), 1)


def test_a_move_to_a_cheaper_pool_pays_its_launch_and_the_way_of_the_checkpoint() -> None:
    given = job(work=20.0, deadline=21.5, overhead=0.2)
    pools = [Pool(0.3, place="far"), Pool(1.5, place="near")]
    windows = market("." * 6 + "#" * 240, "#" * 246)
    found = simulate(decider("spotwright", given, pools, egress=0.5), given, windows)
    assert (found.moves[0], found.launches[0]) == (1, 2)
    assert found.spot[0] == pytest.approx(hours(20.4))
    near = (found.cost[0] - 0.5 - 20.4 * 0.3) / (1.5 - 0.3)  # the hours on the dear pool
    assert 1.0 <= near <= 1.5  # it moves once the cheap one has lasted for a few looks


def test_on_demand_is_left_for_spot_where_that_pays() -> None:
    given = job(work=20.0, deadline=24.0, overhead=0.1)
    windows = market("." * 24 + "#" * 120)
    found = simulate(decider("spotwright", given), given, windows)
    assert found.on_demand[0] > 0
    assert found.spot[0] > hours(15)
    assert not found.late[0]


def test_published_uniform_progress_stays_on_on_demand_while_spot_is_down() -> None:
    """It is ahead for hours before its spot comes; one that left in order to wait would launch again."""
    given = job(work=6.0, deadline=12.0, overhead=0.0)
    found = simulate(
        formula("uniform-progress", given, [Pool(1.0)], decider("greedy", given).limits), given, market("." * 72)
    )
    assert (found.launches[0], found.moves[0]) == (1, 0)
    assert found.finish[0] == hours(6) + 600.0  # it is behind from the second look on


def test_windows_shorter_than_the_deadline_are_refused() -> None:
    with pytest.raises(InputError, match="too short"):
        simulate(decider("greedy", job()), job(), market("#" * 20))


def test_windows_with_other_pools_than_the_policy_are_refused() -> None:
    with pytest.raises(InputError, match="the windows have 2 pools, and the policy decides for 1"):
        simulate(decider("greedy", job()), job(), market("#" * 60, "#" * 60))


def test_an_unknown_formula_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(InputError, match="uniform-progress"):
        decider("cheapest", job())
