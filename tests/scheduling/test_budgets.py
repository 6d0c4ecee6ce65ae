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
    AttemptLife,
    BudgetUse,
    Decision,
    FollowUp,
    LadderPosition,
    Useless,
    after_attempt,
    backoff,
    count_stalled,
    count_useless,
    first_rung,
    next_rung_while_pending,
)

INTERRUPTIONS = [Cause.INTERRUPTED, Cause.LOST]
ERRORS = [Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.TIMED_OUT, Cause.START_UP]
TOP, SECOND, BOTTOM = (LadderPosition(rung, pool=pool) for rung, pool in enumerate(("spot", "spot-b", "on-demand")))


def after(cause: Cause, spent: BudgetUse | None = None, position: LadderPosition = TOP, **fields: object) -> Decision:
    """The decision on the ladder spot, spot-b, on-demand."""
    policy = a_policy(**{"spot": "prefer", **fields})
    return after_attempt(cause, spent or BudgetUse(), position, policy, a_ladder(policy))


# Rows 1 and 2


def test_a_cancelled_attempt_is_the_end_of_its_task() -> None:
    assert after(Cause.CANCELLED, errors={"retries": 5}).then is FollowUp.CANCEL


def test_a_success_is_the_end_of_its_task() -> None:
    assert after(Cause.SUCCEEDED).then is FollowUp.SUCCEED


# Row 3


@pytest.mark.parametrize("cause", INTERRUPTIONS)
def test_an_interruption_is_followed_by_another_attempt(cause: Cause) -> None:
    assert after(cause).then is FollowUp.RETRY


@pytest.mark.parametrize("cause", INTERRUPTIONS)
def test_one_interruption_more_than_allowed_fails_the_task(cause: Cause) -> None:
    assert after(cause, BudgetUse(interruptions=2), interruptions={"max": 2}).then is FollowUp.FAIL


def test_the_failure_has_the_number_of_interruptions() -> None:
    decision = after(Cause.INTERRUPTED, BudgetUse(interruptions=2), interruptions={"max": 2})
    assert decision.why == "interrupted 3 times, interruptions.max is 2"


def test_the_last_allowed_interruption_is_followed_by_another_attempt() -> None:
    assert after(Cause.INTERRUPTED, BudgetUse(interruptions=1), interruptions={"max": 2}).then is FollowUp.RETRY


def test_interruptions_on_on_demand_count_as_any_other() -> None:
    assert after(Cause.LOST, BudgetUse(interruptions=2), BOTTOM, interruptions={"max": 2}).then is FollowUp.FAIL


def test_an_interruption_moves_on_to_the_next_spot_rung() -> None:
    assert after(Cause.INTERRUPTED, position=TOP).rung == 1


def test_after_the_last_spot_rung_the_first_one_is_next() -> None:
    assert after(Cause.INTERRUPTED, position=SECOND).rung == 0


def test_there_is_no_backoff_on_the_way_to_another_pool() -> None:
    assert after(Cause.INTERRUPTED, position=TOP).wait == 0.0


def test_backoff_comes_before_a_return_to_the_pool_it_was_taken_from() -> None:
    policy = a_policy(spot="prefer", interruptions={"backoff": "4s"})
    assert after_attempt(Cause.INTERRUPTED, BudgetUse(), TOP, policy, a_ladder(policy, SPOT, ON_DEMAND)).wait == 4.0


def test_backoff_grows_with_every_interruption_up_to_its_ceiling() -> None:
    policy = a_policy(spot="require", interruptions={"backoff": "4s", "factor": 3, "max_backoff": "30s"})
    ladder = a_ladder(policy, SPOT)
    waits = [after_attempt(Cause.INTERRUPTED, BudgetUse(n), TOP, policy, ladder).wait for n in range(4)]
    assert waits == [4.0, 12.0, 30.0, 30.0]


def test_an_attempt_lost_before_it_had_a_node_has_no_backoff() -> None:
    policy = a_policy(spot="require")
    assert after_attempt(Cause.LOST, BudgetUse(), LadderPosition(0), policy, a_ladder(policy, SPOT)).wait == 0.0


# Row 4


def test_a_move_retries_at_once_on_the_same_rung() -> None:
    assert after(Cause.DISRUPTED, position=SECOND) == Decision(
        FollowUp.RETRY, "moved (1 of 20), tried again on the same rung", rung=1, wait=0.0
    )


def test_twenty_moves_are_survived() -> None:
    assert after(Cause.DISRUPTED, BudgetUse(moves=MAX_MOVES - 1)).then is FollowUp.RETRY


def test_the_move_after_the_twentieth_fails_the_task() -> None:
    assert after(Cause.DISRUPTED, BudgetUse(moves=MAX_MOVES)).then is FollowUp.FAIL


# Row 5


@pytest.mark.parametrize("cause", ERRORS)
def test_an_error_fails_the_task_without_retries(cause: Cause) -> None:
    assert after(cause).then is FollowUp.FAIL


@pytest.mark.parametrize("cause", ERRORS)
def test_an_error_is_tried_again_on_the_same_rung(cause: Cause) -> None:
    decision = after(cause, position=SECOND, errors={"retries": 1})
    assert (decision.then, decision.rung) == (FollowUp.RETRY, 1)


@pytest.mark.parametrize("cause", ERRORS)
def test_one_error_more_than_the_retries_fails_the_task(cause: Cause) -> None:
    assert after(cause, BudgetUse(errors=1), errors={"retries": 1}).then is FollowUp.FAIL


def test_every_error_is_followed_by_its_backoff() -> None:
    decision = [after(Cause.FAILED, BudgetUse(errors=n), errors={"retries": 9, "backoff": "2s"}).wait for n in range(3)]
    assert decision == [2.0, 4.0, 8.0]


def test_an_error_on_the_last_spot_attempt_stays_on_demand_after_the_fallback() -> None:
    policy = a_policy(spot="prefer", fall_back_after=1, errors={"retries": 3})
    decision = after_attempt(Cause.FAILED, BudgetUse(interruptions=1), SECOND, policy, a_ladder(policy))
    assert decision.rung == 2


# Budgets of their own


@pytest.mark.parametrize("cause", INTERRUPTIONS)
def test_an_interruption_never_spends_the_error_budget(cause: Cause) -> None:
    assert BudgetUse(1, 1, 1).after(cause) == BudgetUse(2, 1, 1)


@pytest.mark.parametrize("cause", ERRORS)
def test_an_error_never_spends_the_interruption_budget(cause: Cause) -> None:
    assert BudgetUse(1, 1, 1).after(cause) == BudgetUse(1, 2, 1)


def test_a_move_spends_neither_budget() -> None:
    assert BudgetUse(1, 1, 1).after(Cause.DISRUPTED) == BudgetUse(1, 1, 2)


@pytest.mark.parametrize("cause", [Cause.SUCCEEDED, Cause.UNSCHEDULABLE, Cause.CANCELLED])
def test_other_endings_spend_nothing(cause: Cause) -> None:
    assert BudgetUse(1, 1, 1).after(cause) == BudgetUse(1, 1, 1)


# Row 6


def test_preferred_spot_falls_back_to_on_demand_after_so_many_interruptions() -> None:
    decision = [after(Cause.INTERRUPTED, BudgetUse(n), fall_back_after=3).rung for n in range(4)]
    assert decision == [1, 1, 2, 2]


def test_the_last_allowed_attempt_is_on_demand_by_default() -> None:
    assert after(Cause.INTERRUPTED, BudgetUse(interruptions=1), interruptions={"max": 2}).rung == 2


def test_the_fallback_needs_no_backoff() -> None:
    assert after(Cause.INTERRUPTED, position=TOP, fall_back_after=1).wait == 0.0


def test_the_fallback_is_explained() -> None:
    assert "falls back to on-demand" in after(Cause.INTERRUPTED, position=TOP, fall_back_after=1).why


def test_a_fallback_after_nothing_begins_on_demand() -> None:
    policy = a_policy(spot="prefer", fall_back_after=0)
    assert first_rung(BudgetUse(), policy, a_ladder(policy)) == 2


def test_after_the_fallback_it_stays_on_demand() -> None:
    assert after(Cause.LOST, BudgetUse(interruptions=5), BOTTOM, fall_back_after=2).rung == 2


def test_preferred_spot_without_on_demand_goes_on_like_required_spot() -> None:
    policy = a_policy(spot="prefer", fall_back_after=1)
    decision = after_attempt(Cause.INTERRUPTED, BudgetUse(3), TOP, policy, a_ladder(policy, SPOT, SPOT_B))
    assert (decision.then, decision.rung) == (FollowUp.RETRY, 1)


def test_required_spot_never_leaves_spot() -> None:
    policy = a_policy(spot="require")
    ladder = a_ladder(policy)
    rungs = {after_attempt(Cause.INTERRUPTED, BudgetUse(n), TOP, policy, ladder).rung for n in range(10)}
    assert all(ladder.rungs[rung].spot for rung in rungs)


def test_never_spot_never_leaves_on_demand() -> None:
    policy = a_policy(spot="never")
    ladder = a_ladder(policy)
    assert [rung.pools for rung in ladder.rungs] == [("on-demand",)]


def test_a_named_ladder_falls_back_where_no_policy_names_spot() -> None:
    policy = a_policy(ladder=["spot", "on-demand"], fall_back_after=1)
    decision = after_attempt(Cause.INTERRUPTED, BudgetUse(), TOP, policy, a_ladder(policy))
    assert decision.rung == 1


def test_without_any_policy_an_interrupted_attempt_may_go_anywhere_again_after_its_backoff() -> None:
    policy = Policy()
    decision = after_attempt(Cause.INTERRUPTED, BudgetUse(), LadderPosition(0, pool="spot"), policy, a_ladder(policy))
    assert (decision.then, decision.rung, decision.wait) == (FollowUp.RETRY, 0, 1.0)


# Row 7


def test_pending_too_long_climbs_rung_by_rung() -> None:
    policy = a_policy(spot="prefer")
    ladder = a_ladder(policy)
    assert [next_rung_while_pending(rung, BudgetUse(), policy, ladder) for rung in range(3)] == [1, 2, None]


def test_pending_after_the_fallback_does_not_climb_back_to_spot() -> None:
    policy = a_policy(spot="prefer", fall_back_after=1)
    assert next_rung_while_pending(2, BudgetUse(interruptions=1), policy, a_ladder(policy)) is None


def test_an_attempt_that_climbed_while_pending_is_followed_by_one_at_the_top() -> None:
    assert after(Cause.INTERRUPTED, position=LadderPosition(2, has_climbed=True, pool="on-demand")).rung == 0


def test_also_where_it_climbed_to_a_spot_rung() -> None:
    policy = a_policy(spot="prefer")
    ladder = a_ladder(policy, SPOT, SPOT_B, a_pool("spot-c"), ON_DEMAND)
    decision = [
        after_attempt(
            Cause.INTERRUPTED, BudgetUse(), LadderPosition(1, has_climbed=has_climbed, pool="spot-b"), policy, ladder
        ).rung
        for has_climbed in (True, False)
    ]
    assert decision == [0, 2]


def test_an_unschedulable_attempt_fails_its_task() -> None:
    assert after(Cause.UNSCHEDULABLE, errors={"retries": 5}).then is FollowUp.FAIL


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
    ladder, spent = a_ladder(policy), BudgetUse()
    rung = first_rung(spent, policy, ladder)
    attempts = 0
    for cause in endings:
        attempts += 1
        decision = after_attempt(cause, spent, LadderPosition(rung, pool=ladder.rungs[rung].pools[0]), policy, ladder)
        spent = spent.after(cause)
        assert spent.interruptions <= policy.max_interruptions + 1
        assert spent.errors <= policy.retries + 1
        assert spent.moves <= MAX_MOVES + 1
        if decision.then is not FollowUp.RETRY:
            break
        rung = decision.rung
        assert rung in range(len(ladder.rungs))
    assert attempts <= policy.max_interruptions + policy.retries + MAX_MOVES + 1


@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from(list(Cause)), st.integers(0, 2), st.integers(0, 2))
def test_the_rung_respects_the_fallback(most: int, spent: int, cause: Cause, first: int, rung: int) -> None:
    policy = a_policy(spot="prefer", interruptions={"max": most}, fall_back_after=most // 2, errors={"retries": 99})
    ladder = a_ladder(policy)
    before = BudgetUse(interruptions=spent)
    decision = after_attempt(
        cause, before, LadderPosition(rung, first != rung, ladder.rungs[rung].pools[0]), policy, ladder
    )
    moved = cause is Cause.DISRUPTED  # it goes back where it was
    if decision.then is FollowUp.RETRY and not moved and before.after(cause).interruptions >= policy.fall_back_after:
        assert ladder.rungs[decision.rung].spot is False


# Backoff grows only while attempts get nowhere (row 3)


def interrupted(progress: float | None = None, lived: float = 1.0) -> AttemptLife:
    return AttemptLife(interrupted=True, progress=progress, lived=lived)


@pytest.mark.parametrize(
    ("lives", "stalled"),
    [
        ([interrupted(), interrupted(), interrupted()], 3),
        ([interrupted(0.2), interrupted(0.4), interrupted(0.6)], 1),
        ([interrupted(0.2), interrupted(0.2), interrupted(0.1)], 3),
        ([interrupted(), interrupted(), interrupted(0.1)], 1),
        ([interrupted(0.5), interrupted(0.1), interrupted(0.5)], 3),
        ([interrupted(), interrupted(lived=301.0)], 1),
        ([interrupted(), interrupted(lived=300.0)], 2),
        ([interrupted(), AttemptLife(interrupted=False, progress=0.5, lived=1.0), interrupted(0.5)], 2),
    ],
)
def test_an_interruption_that_follows_progress_begins_the_count_again(lives: list[AttemptLife], stalled: int) -> None:
    assert count_stalled(lives, 300.0) == stalled


def on_demand(progress: float | None = None) -> AttemptLife:
    return AttemptLife(interrupted=True, progress=progress, lived=1.0, on_demand=True)


@pytest.mark.parametrize(
    ("lives", "useless"),
    [
        ([interrupted(), interrupted(), interrupted()], Useless(3)),
        ([interrupted(0.2), interrupted(0.4), interrupted(0.6)], Useless()),
        ([interrupted(0.2), interrupted(0.2), interrupted(0.1), interrupted(0.3)], Useless(2)),
        ([interrupted(), AttemptLife(interrupted=False, progress=0.5, lived=1.0), interrupted(0.5)], Useless(1)),
        ([interrupted(0.1), interrupted(0.1), on_demand(0.1), on_demand(0.5), interrupted(0.5)], Useless(1, 1)),
        ([interrupted(), interrupted(lived=301.0), interrupted()], Useless(1)),
        ([interrupted(0.5), interrupted(lived=301.0), interrupted()], Useless(2)),
    ],
)
def test_attempts_are_useless_that_were_interrupted_without_more_progress_than_before(
    lives: list[AttemptLife], useless: Useless
) -> None:
    assert count_useless(lives, 300.0, saves=True) == useless


def test_each_interrupted_attempt_of_a_task_that_saves_nothing_is_useless() -> None:
    assert count_useless([interrupted(0.2), interrupted(0.4, 9999.0)], 300.0, saves=False) == Useless(2)


def test_backoff_grows_with_stalled_interruptions_only() -> None:
    policy = a_policy(interruptions={"max": 9, "backoff": "1s", "factor": 2})
    spent, pools = BudgetUse(interruptions=4), ["spot"]
    waits = [
        backoff(spent, LadderPosition(0, pool="spot", stalled=stalled), pools, policy) for stalled in (1, 2, 4, 9, None)
    ]
    assert waits == [1.0, 2.0, 8.0, 8.0, 8.0]


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (Cause.FAILED, "no retry is left (errors.retries is 0)"),
        (Cause.OUT_OF_MEMORY, "out of memory, and no retry is left (errors.retries is 0)"),
        (Cause.START_UP, "start-up, and no retry is left (errors.retries is 0)"),
    ],
)
def test_the_reason_of_a_failure_names_the_cause_unless_it_is_the_word_failed(cause: Cause, why: str) -> None:
    assert after(cause).why == why


def test_a_retry_is_counted_without_the_cause() -> None:
    assert after(Cause.OUT_OF_MEMORY, BudgetUse(), TOP, **{"errors.retries": 2}).why == "retry 1 of 2"
