"""The next attempt of a task, from the endings of those before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.ladders import LADDER, a_policy

from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import MAX_MOVES
from spotwright.scheduling.next_attempt import PastAttempt, next_rung


def ended(*causes: Cause, pools: tuple[str, ...] = ("a",)) -> list[PastAttempt]:
    """Attempts with these causes, each on the rung that the ones before lead to."""
    history: list[PastAttempt] = []
    for cause in causes:
        rung = LADDER.rungs[next_rung(history, a_policy(**{"errors.retries": 9}), LADDER).rung].pools
        history.append(PastAttempt(cause, rung, rung[0]))
    return history


def rung_after(*causes: Cause) -> str:
    decided = next_rung(ended(*causes), a_policy(**{"errors.retries": 1}), LADDER)
    return LADDER.rungs[decided.rung].pools[0]


def test_the_first_attempt_is_on_the_first_rung() -> None:
    decided = next_rung([], a_policy(), LADDER)
    assert (decided.number, decided.rung, decided.refusal, decided.is_certain) == (1, 0, "", True)


@pytest.mark.parametrize(
    ("causes", "pool"),
    [
        ((Cause.INTERRUPTED,), "b"),
        ((Cause.LOST,), "b"),
        ((Cause.INTERRUPTED, Cause.INTERRUPTED), "od"),
        ((Cause.FAILED,), "a"),
        ((Cause.INTERRUPTED, Cause.FAILED), "b"),
        ((Cause.DISRUPTED,), "a"),
        ((Cause.DISRUPTED, Cause.INTERRUPTED), "b"),
    ],
)
def test_the_rung_follows_from_the_endings(causes: tuple[Cause, ...], pool: str) -> None:
    assert rung_after(*causes) == pool


def test_a_spent_budget_for_interruptions_refuses_and_names_the_attempts_that_spent_it() -> None:
    causes = [Cause.INTERRUPTED, Cause.FAILED, Cause.LOST, Cause.INTERRUPTED, Cause.INTERRUPTED]
    decided = next_rung(ended(*causes), a_policy(**{"errors.retries": 1}), LADDER)
    assert decided.refusal == "interrupted 4 times, interruptions.max is 3 (attempts 1, 3, 4, 5)"
    assert decided.number == 6


def test_endings_that_are_not_recorded_move_the_rung_and_refuse_nothing() -> None:
    causes = [Cause.INTERRUPTED] * 4
    recorded = ended(*causes)
    seen = [*recorded[:3], recorded[3]._replace(is_recorded=False)]
    decided = next_rung(seen, a_policy(), LADDER)
    assert next_rung(recorded, a_policy(), LADDER).refusal != ""
    assert (decided.refusal, decided.is_certain, decided.is_first) == ("", False, False)
    assert next_rung([recorded[0]._replace(is_recorded=False), *recorded[1:]], a_policy(), LADDER).refusal == ""
    first = next_rung([recorded[0]._replace(is_recorded=False)], a_policy(), LADDER)
    assert LADDER.rungs[first.rung].pools == ("b",)


def test_a_spent_budget_for_errors_refuses_though_interruptions_are_left() -> None:
    decided = next_rung(ended(Cause.OUT_OF_MEMORY), a_policy(), LADDER)
    assert decided.refusal.startswith("out of memory, and no retry is left (errors.retries is 0)")


def test_moves_spend_neither_budget_and_have_a_bound_of_their_own() -> None:
    moved = ended(*[Cause.DISRUPTED] * MAX_MOVES)
    assert next_rung(moved, a_policy(), LADDER).refusal == ""
    assert next_rung([*moved, PastAttempt(Cause.DISRUPTED)], a_policy(), LADDER).refusal != ""


def test_an_attempt_that_waited_in_vain_leads_to_the_next_rung_and_costs_nothing() -> None:
    decided = next_rung([PastAttempt(waited_in_vain=True, pools=("a",))], a_policy(), LADDER)
    assert (LADDER.rungs[decided.rung].pools, decided.spent.interruptions) == (("b",), 0)


def test_after_an_interruption_on_a_rung_that_was_climbed_to_the_top_is_tried_again() -> None:
    history = [
        PastAttempt(waited_in_vain=True, pools=("a",)),
        PastAttempt(Cause.INTERRUPTED, ("b",), "b", has_climbed=True),
    ]
    assert LADDER.rungs[next_rung(history, a_policy(), LADDER).rung].pools == ("a",)


def test_an_unknown_ending_leaves_the_last_certain_rung() -> None:
    decided = next_rung([*ended(Cause.INTERRUPTED), PastAttempt(None, ("b",))], a_policy(), LADDER)
    assert (LADDER.rungs[decided.rung].pools, decided.is_certain) == (("b",), False)


def test_an_attempt_that_still_runs_is_no_missing_fact() -> None:
    assert next_rung([PastAttempt(None, ("a",), has_ended=False)], a_policy(), LADDER).is_certain


def test_a_pool_without_capacity_is_left_out() -> None:
    assert LADDER.rungs[next_rung([], a_policy(), LADDER, {"a"}).rung].pools == ("b",)
    assert LADDER.rungs[next_rung([], a_policy(), LADDER, {"a", "b", "od"}).rung].pools == ("a",)


def test_a_rung_that_is_no_longer_on_the_ladder_counts_as_the_one_expected_then() -> None:
    gone = [PastAttempt(Cause.INTERRUPTED, ("old",), "old")]
    assert LADDER.rungs[next_rung(gone, a_policy(), LADDER).rung].pools == ("b",)


CAUSES = st.sampled_from([Cause.INTERRUPTED, Cause.LOST, Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.DISRUPTED, None])


@given(st.lists(CAUSES, max_size=40), st.integers(0, 4), st.integers(0, 4))
def test_a_task_is_refused_exactly_where_one_of_its_budgets_is_spent(
    causes: list[Cause | None], interruptions: int, errors: int
) -> None:
    policy = a_policy(**{"interruptions.max": interruptions, "errors.retries": errors, "fall_back_after": 0})
    decided = next_rung([PastAttempt(cause, ("a",), "a") for cause in causes], policy, LADDER)
    taken = sum(cause is not None and cause.is_interruption for cause in causes)
    failed = sum(cause is not None and cause.is_error for cause in causes)
    moved = causes.count(Cause.DISRUPTED)
    assert bool(decided.refusal) == (taken > interruptions or failed > errors or moved > MAX_MOVES)
