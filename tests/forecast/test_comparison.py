"""Policies side by side on recordings: none beats the floor, none is late, and what cannot be is said."""

from __future__ import annotations

from random import Random

import pytest
from tests.forecast.builders import HOUR

from spotwright.errors import InputError
from spotwright.forecast.policy_comparison import (
    OURS,
    POLICIES,
    Pools,
    compare,
    comparison_json,
    comparison_text,
    job_of,
)
from spotwright.model.pools import Trace

JOB = job_of(6 * HOUR, 9 * HOUR, 600.0, (1.0, 3.0))


def recording(seed: int) -> Trace:
    """Two weeks of spells of very different lengths, a state every five minutes."""
    chances = Random(seed)  # noqa: S311 - a recording, not a secret
    states: list[int] = []
    while len(states) < 14 * 288:
        states += [1] * chances.choice([1, 3, 12, 80]) + [0] * chances.choice([1, 3, 12, 40])
    return Trace(300.0, tuple(states[: 14 * 288]))


TRACES = {"a": recording(1), "b": recording(2)}


def test_every_policy_is_in_time_and_above_the_floor() -> None:
    found = compare(JOB, TRACES, (), windows=60, seed=1)
    assert [line.name for line in found.lines] == list(POLICIES)
    assert all(line.late == 0.0 for line in found.lines)
    assert all(line.gap >= -1e-9 for line in found.lines)
    assert found.floor.mean < next(line.cost.mean for line in found.lines if line.name == OURS) < 1.0


def test_the_same_seed_gives_the_same_comparison() -> None:
    assert compare(JOB, TRACES, ("greedy",), windows=20, seed=3) == compare(
        JOB, TRACES, ("greedy",), windows=20, seed=3
    )


def test_with_a_fit_windows_come_from_the_rest_of_each_recording() -> None:
    found = compare(JOB, TRACES, (OURS,), windows=20, seed=1, fit=0.6)
    assert found.worth == int(0.4 * 28 * 24 / 9)
    assert found.lines[0].late == 0.0


def test_recordings_together_are_the_pools_of_one_job_which_costs_less_than_on_each_alone() -> None:
    apart = compare(JOB, TRACES, (OURS,), windows=60, seed=1)
    together = compare(JOB, TRACES, (OURS,), windows=60, seed=1, pools=Pools.TOGETHER)
    assert together.windows == apart.windows == 60
    assert together.lines[0].cost.mean < 0.95 * apart.lines[0].cost.mean
    assert together.floor.mean < apart.floor.mean
    assert together.worth == apart.worth / 2
    assert "60 windows of a, b as 2 spot pools of one job" in comparison_text(together)


def test_pools_of_one_job_have_prices_of_their_own() -> None:
    def cost(*prices: float) -> float:
        found = compare(JOB, TRACES, (OURS,), windows=30, seed=1, pools=Pools.TOGETHER, prices=prices)
        return found.lines[0].cost.mean

    assert cost(0.5, 1.0) < cost(1.0, 1.0) < cost(1.0, 2.0) < cost(2.0, 2.0)


def test_prices_for_other_pools_than_there_are_recordings_are_refused() -> None:
    with pytest.raises(InputError, match="expected a price of spot for each of 2 recordings, and one of on-demand"):
        compare(JOB, TRACES, (), windows=5, seed=1, pools=Pools.TOGETHER, prices=(1.0, 2.0, 3.0))


def test_each_policy_says_which_code_decided() -> None:
    document = comparison_json(compare(JOB, TRACES, (OURS, "greedy"), windows=5, seed=1))
    assert [each["decided_by"] for each in document["policies"]] == [
        "spotwright.deadlines.choice",
        "spotwright.deadlines.job_policies",
    ]


def test_an_impossible_deadline_is_said_by_how_much() -> None:
    found = compare(JOB._replace(deadline=5 * HOUR), TRACES, ("greedy",), windows=10, seed=1)
    assert found.warnings[0].startswith("the deadline of 5h00m cannot be met: on-demand alone takes 6h10m, 1h10m more")
    assert found.lines[0].late == 1.0


def test_recordings_without_spot_cost_what_on_demand_costs_and_are_told() -> None:
    found = compare(JOB, {"none": Trace(300.0, (0,) * 3000)}, ("eager",), windows=5, seed=1)
    assert found.lines[0].spot == 0.0
    assert found.warnings == ("these windows have no spot: every policy ends on on-demand",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policies": ("cheapest",)}, "--policy cheapest: expected one of on-demand, greedy"),
        ({"traces": {"short": Trace(300.0, (1, 0))}}, "short: a window of 54 ticks does not fit"),
        ({"job": JOB._replace(deadline=1e7)}, "too far away to compare"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, object], message: str) -> None:
    asked = {"job": JOB, "traces": TRACES, "policies": (), **change}
    with pytest.raises(InputError) as error:
        compare(asked["job"], asked["traces"], asked["policies"], windows=5, seed=1)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_a_deadline_at_once_and_free_on_demand_are_refused() -> None:
    with pytest.raises(InputError, match="--deadline: expected a duration above 0"):
        job_of(HOUR, 0.0, 600.0, (1.0, 3.0))
    with pytest.raises(InputError, match="the price of on-demand is 0"):
        job_of(HOUR, 9 * HOUR, 600.0, (1.0, 0.0))


def test_work_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="--work: expected a duration above 0"):
        job_of(0.0, None, 60.0, (1.0, 3.0))
