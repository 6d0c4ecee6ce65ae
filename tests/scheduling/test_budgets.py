"""Rows 1 to 7 of the design's table: what happens after an attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, SPOT, SPOT_B, a_ladder, a_policy, a_pool

from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy
from spotwright.scheduling.budgets import (
    MAX_MOVES,
    Next,
    Place,
    Spent,
    Then,
    after_attempt,
    first_rung,
    next_rung_while_pending,
)

INTERRUPTIONS = [Cause.INTERRUPTED, Cause.LOST]
ERRORS = [Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.TIMED_OUT, Cause.START_UP]
TOP, SECOND, BOTTOM = Place(0, 0, "spot"), Place(1, 1, "spot-b"), Place(2, 2, "on-demand")


def after(cause: Cause, spent: Spent | None = None, place: Place = TOP, **said: object) -> Next:
    """The decision on the ladder spot, spot-b, on-demand."""
    policy = a_policy(**{"spot": "prefer", **said})
    return after_attempt(cause, spent or Spent(), place, policy, a_ladder(policy))


# Rows 1 and 2


def test_a_cancelled_attempt_is_the_end_of_its_task() -> None:
    assert after(Cause.CANCELLED, errors={"retries": 5}).then is Then.CANCEL


def test_a_success_is_the_end_of_its_task() -> None:
    assert after(Cause.SUCCEEDED).then is Then.SUCCEED


# Row 3


@pytest.mark.parametrize("cause", INTERRUPTIONS)
def test_an_interruption_is_followed_by_another_attempt(cause: Cause) -> None:
    assert after(cause).then is Then.RETRY


@pytest.mark.parametrize("cause", INTERRUPTIONS)
def test_one_interruption_more_than_allowed_fails_the_task(cause: Cause) -> None:
    assert after(cause, Spent(interruptions=2), interruptions={"max": 2}).then is Then.FAIL


def test_the_failure_says_how_often_it_was_interrupted() -> None:
    said = after(Cause.INTERRUPTED, Spent(interruptions=2), interruptions={"max": 2})
    assert said.why == "interrupted 3 times, interruptions.max is 2"


def test_the_last_allowed_interruption_is_followed_by_another_attempt() -> None:
    assert after(Cause.INTERRUPTED, Spent(interruptions=1), interruptions={"max": 2}).then is Then.RETRY


def test_interruptions_on_on_demand_count_as_any_other() -> None:
    assert after(Cause.LOST, Spent(interruptions=2), BOTTOM, interruptions={"max": 2}).then is Then.FAIL


def test_an_interruption_moves_on_to_the_next_spot_rung() -> None:
    assert after(Cause.INTERRUPTED, place=TOP).rung == 1


def test_after_the_last_spot_rung_the_first_one_is_next() -> None:
    assert after(Cause.INTERRUPTED, place=SECOND).rung == 0


def test_there_is_no_backoff_on_the_way_to_another_pool() -> None:
    assert after(Cause.INTERRUPTED, place=TOP).wait == 0.0


def test_backoff_comes_before_a_return_to_the_pool_it_was_taken_from() -> None:
    policy = a_policy(spot="prefer", interruptions={"backoff": "4s"})
    assert after_attempt(Cause.INTERRUPTED, Spent(), TOP, policy, a_ladder(policy, SPOT, ON_DEMAND)).wait == 4.0


def test_backoff_grows_with_every_interruption_up_to_its_ceiling() -> None:
    policy = a_policy(spot="require", interruptions={"backoff": "4s", "factor": 3, "ceiling": "30s"})
    ladder = a_ladder(policy, SPOT)
    waits = [after_attempt(Cause.INTERRUPTED, Spent(n), TOP, policy, ladder).wait for n in range(4)]
    assert waits == [4.0, 12.0, 30.0, 30.0]


def test_an_attempt_that_was_lost_before_it_had_a_node_waits_for_nothing() -> None:
    policy = a_policy(spot="require")
    assert after_attempt(Cause.LOST, Spent(), Place(0, 0, None), policy, a_ladder(policy, SPOT)).wait == 0.0


# Row 4


def test_a_move_goes_on_at_once_on_the_same_rung() -> None:
    assert after(Cause.DISRUPTED, place=SECOND) == Next(
        Then.RETRY, "moved (1 of 20), tried again on the same rung", rung=1, wait=0.0
    )


def test_twenty_moves_are_survived() -> None:
    assert after(Cause.DISRUPTED, Spent(moves=MAX_MOVES - 1)).then is Then.RETRY


def test_the_move_after_the_twentieth_fails_the_task() -> None:
    assert after(Cause.DISRUPTED, Spent(moves=MAX_MOVES)).then is Then.FAIL


# Row 5


@pytest.mark.parametrize("cause", ERRORS)
def test_an_error_fails_the_task_where_no_retry_was_asked_for(cause: Cause) -> None:
    assert after(cause).then is Then.FAIL


@pytest.mark.parametrize("cause", ERRORS)
def test_an_error_is_tried_again_on_the_same_rung(cause: Cause) -> None:
    said = after(cause, place=SECOND, errors={"retries": 1})
    assert (said.then, said.rung) == (Then.RETRY, 1)


@pytest.mark.parametrize("cause", ERRORS)
def test_one_error_more_than_the_retries_fails_the_task(cause: Cause) -> None:
    assert after(cause, Spent(errors=1), errors={"retries": 1}).then is Then.FAIL


def test_every_error_is_followed_by_its_backoff() -> None:
    said = [after(Cause.FAILED, Spent(errors=n), errors={"retries": 9, "backoff": "2s"}).wait for n in range(3)]
    assert said == [2.0, 4.0, 8.0]


def test_an_error_on_the_last_spot_attempt_stays_on_demand_after_the_fallback() -> None:
    policy = a_policy(spot="prefer", fall_back_after=1, errors={"retries": 3})
    said = after_attempt(Cause.FAILED, Spent(interruptions=1), SECOND, policy, a_ladder(policy))
    assert said.rung == 2


# Budgets of their own


@pytest.mark.parametrize("cause", INTERRUPTIONS)
def test_an_interruption_never_spends_the_error_budget(cause: Cause) -> None:
    assert Spent(1, 1, 1).after(cause) == Spent(2, 1, 1)


@pytest.mark.parametrize("cause", ERRORS)
def test_an_error_never_spends_the_interruption_budget(cause: Cause) -> None:
    assert Spent(1, 1, 1).after(cause) == Spent(1, 2, 1)


def test_a_move_spends_neither_budget() -> None:
    assert Spent(1, 1, 1).after(Cause.DISRUPTED) == Spent(1, 1, 2)


@pytest.mark.parametrize("cause", [Cause.SUCCEEDED, Cause.UNSCHEDULABLE, Cause.CANCELLED])
def test_other_endings_spend_nothing(cause: Cause) -> None:
    assert Spent(1, 1, 1).after(cause) == Spent(1, 1, 1)


# Row 6


def test_preferred_spot_falls_back_to_on_demand_after_so_many_interruptions() -> None:
    said = [after(Cause.INTERRUPTED, Spent(n), fall_back_after=3).rung for n in range(4)]
    assert said == [1, 1, 2, 2]


def test_the_last_allowed_attempt_is_on_demand_by_default() -> None:
    assert after(Cause.INTERRUPTED, Spent(interruptions=1), interruptions={"max": 2}).rung == 2


def test_the_fallback_needs_no_backoff() -> None:
    assert after(Cause.INTERRUPTED, place=TOP, fall_back_after=1).wait == 0.0


def test_the_fallback_is_said() -> None:
    assert "falls back to on-demand" in after(Cause.INTERRUPTED, place=TOP, fall_back_after=1).why


def test_a_fallback_after_nothing_begins_on_demand() -> None:
    policy = a_policy(spot="prefer", fall_back_after=0)
    assert first_rung(Spent(), policy, a_ladder(policy)) == 2


def test_after_the_fallback_it_stays_on_demand() -> None:
    assert after(Cause.LOST, Spent(interruptions=5), BOTTOM, fall_back_after=2).rung == 2


def test_preferred_spot_without_on_demand_goes_on_like_required_spot() -> None:
    policy = a_policy(spot="prefer", fall_back_after=1)
    said = after_attempt(Cause.INTERRUPTED, Spent(3), TOP, policy, a_ladder(policy, SPOT, SPOT_B))
    assert (said.then, said.rung) == (Then.RETRY, 1)


def test_required_spot_never_leaves_spot() -> None:
    policy = a_policy(spot="require")
    ladder = a_ladder(policy)
    rungs = {after_attempt(Cause.INTERRUPTED, Spent(n), TOP, policy, ladder).rung for n in range(10)}
    assert all(ladder.rungs[rung].spot for rung in rungs)


def test_never_spot_never_leaves_on_demand() -> None:
    policy = a_policy(spot="never")
    ladder = a_ladder(policy)
    assert [rung.pools for rung in ladder.rungs] == [("on-demand",)]


def test_a_named_ladder_falls_back_although_nothing_was_said_of_spot() -> None:
    policy = a_policy(ladder=["spot", "on-demand"], fall_back_after=1)
    said = after_attempt(Cause.INTERRUPTED, Spent(), TOP, policy, a_ladder(policy))
    assert said.rung == 1


def test_without_any_policy_an_interrupted_attempt_may_go_anywhere_again_after_its_backoff() -> None:
    policy = Policy()
    said = after_attempt(Cause.INTERRUPTED, Spent(), Place(0, 0, "spot"), policy, a_ladder(policy))
    assert (said.then, said.rung, said.wait) == (Then.RETRY, 0, 1.0)


# Row 7


def test_pending_too_long_climbs_rung_by_rung() -> None:
    policy = a_policy(spot="prefer")
    ladder = a_ladder(policy)
    assert [next_rung_while_pending(rung, Spent(), policy, ladder) for rung in range(3)] == [1, 2, None]


def test_pending_after_the_fallback_does_not_climb_back_to_spot() -> None:
    policy = a_policy(spot="prefer", fall_back_after=1)
    assert next_rung_while_pending(2, Spent(interruptions=1), policy, a_ladder(policy)) is None


def test_an_attempt_that_climbed_while_pending_is_followed_by_one_at_the_top() -> None:
    assert after(Cause.INTERRUPTED, place=Place(first=0, rung=2, pool="on-demand")).rung == 0


def test_also_where_it_climbed_to_a_spot_rung() -> None:
    policy = a_policy(spot="prefer")
    ladder = a_ladder(policy, SPOT, SPOT_B, a_pool("spot-c"), ON_DEMAND)
    said = [
        after_attempt(Cause.INTERRUPTED, Spent(), Place(first, 1, "spot-b"), policy, ladder).rung for first in (0, 1)
    ]
    assert said == [0, 2]


def test_an_unschedulable_attempt_fails_its_task() -> None:
    assert after(Cause.UNSCHEDULABLE, errors={"retries": 5}).then is Then.FAIL


# For any sequence of endings

ENDINGS = st.lists(st.sampled_from(list(Cause)), max_size=60)
POLICIES = st.builds(
    lambda spot, most, retries, ladder: a_policy(
        **({"spot": spot} if spot else {}),
        **({"ladder": ladder} if ladder else {}),
        interruptions={"max": most},
        errors={"retries": retries},
    ),
    st.sampled_from(["prefer", None]),
    st.integers(0, 6),
    st.integers(0, 4),
    st.sampled_from([None, ["spot", "on-demand"], ["on-demand", "spot-b", "spot"]]),
)


@given(POLICIES, ENDINGS)
def test_budgets_are_bounded_whatever_happens(policy: Policy, endings: list[Cause]) -> None:
    ladder, spent = a_ladder(policy), Spent()
    rung = first_rung(spent, policy, ladder)
    attempts = 0
    for cause in endings:
        attempts += 1
        said = after_attempt(cause, spent, Place(rung, rung, ladder.rungs[rung].pools[0]), policy, ladder)
        spent = spent.after(cause)
        assert spent.interruptions <= policy.max_interruptions + 1
        assert spent.errors <= policy.retries + 1
        assert spent.moves <= MAX_MOVES + 1
        if said.then is not Then.RETRY:
            break
        rung = said.rung
        assert rung in range(len(ladder.rungs))
    assert attempts <= policy.max_interruptions + policy.retries + MAX_MOVES + 1


@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from(list(Cause)), st.integers(0, 2), st.integers(0, 2))
def test_the_rung_respects_the_fallback(most: int, spent: int, cause: Cause, first: int, rung: int) -> None:
    policy = a_policy(spot="prefer", interruptions={"max": most}, fall_back_after=most // 2, errors={"retries": 99})
    ladder = a_ladder(policy)
    before = Spent(interruptions=spent)
    said = after_attempt(cause, before, Place(first, rung, ladder.rungs[rung].pools[0]), policy, ladder)
    moved = cause is Cause.DISRUPTED  # it goes back where it was
    if said.then is Then.RETRY and not moved and before.after(cause).interruptions >= policy.fall_back_after:
        assert ladder.rungs[said.rung].spot is False
