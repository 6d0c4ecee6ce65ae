"""Which rung follows one that had no node, and for how long a pool without nodes is left out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.ladders import LADDER, POOLS, a_policy

from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy, Spot
from spotwright.scheduling.budgets import (
    CEILING,
    FIRST_PAUSE,
    BudgetUse,
    Pause,
    left_out,
    pause_after,
    pauses_of,
    rung_after_waiting,
)
from spotwright.scheduling.ladder import PodRequirements, build
from spotwright.scheduling.next_attempt import PastAttempt, next_rung


def rung_after(rung: int, *without: str, policy: Policy | None = None, spent: BudgetUse | None = None) -> int | None:
    return rung_after_waiting(rung, spent or BudgetUse(), policy or a_policy(), LADDER, without)


def test_the_next_rung_follows_and_the_first_one_follows_the_last() -> None:
    assert [rung_after(rung) for rung in range(3)] == [1, 2, 0]


def test_a_rung_without_capacity_is_passed_over() -> None:
    assert rung_after(0, "b") == 2
    assert rung_after(2, "a") == 1


def test_without_another_rung_there_is_nothing_to_try() -> None:
    assert rung_after(0, "b", "od") is None


def test_after_the_fall_back_no_spot_rung_is_tried() -> None:
    assert rung_after(2, spent=BudgetUse(interruptions=2)) is None


def test_policies_that_require_spot_stay_on_spot() -> None:
    policy = a_policy(spot=Spot.REQUIRE, fall_back_after=3)
    ladder = build(PodRequirements(), policy, POOLS)
    assert [rung_after_waiting(rung, BudgetUse(), policy, ladder, ()) for rung in range(2)] == [1, 0]


def test_pauses_of_one_pool_grow_to_a_limit() -> None:
    pause: Pause | None = None
    lengths = []
    for _ in range(7):
        pause = pause_after(pause, 0.0 if pause is None else pause.until + 1.0)
        lengths.append(pause.until - pause.since)
    assert lengths[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert lengths[-1] == CEILING


def test_an_attempt_that_waited_already_makes_a_pause_no_longer() -> None:
    first = pause_after(None, 100.0)
    assert pause_after(first, 100.0 + FIRST_PAUSE / 2) == first


def test_after_hours_a_pool_without_nodes_is_left_out_for_the_first_pause_again() -> None:
    first = pause_after(None, 0.0)
    assert pause_after(first, first.until + 5 * CEILING).times == 1


def test_a_pool_is_tried_again_when_its_pause_is_over() -> None:
    pauses = pauses_of([(0.0, ("a",)), (10.0, ("b",))])
    assert left_out(pauses, 5.0) == {"a", "b"}
    assert left_out(pauses, FIRST_PAUSE) == {"b"}
    assert left_out(pauses, FIRST_PAUSE + 10.0) == frozenset()


@given(st.lists(st.floats(0.0, 1e6), max_size=30))
def test_an_endless_wait_moves_at_most_once_in_a_pause(moments: list[float]) -> None:
    pauses = [pauses_of([(at, ("a",)) for at in sorted(moments)[: count + 1]])["a"] for count in range(len(moments))]
    starts = list(dict.fromkeys(pause.since for pause in pauses))
    assert all(later - earlier >= FIRST_PAUSE for earlier, later in pairwise(starts))


@pytest.mark.parametrize(("then", "expected"), [(("od",), "od"), ((), "b"), (("gone",), "b")])
def test_the_successor_waits_where_it_was_decided(then: tuple[str, ...], expected: str) -> None:
    history = [PastAttempt(pools=("a",), waited_in_vain=True, then=then)]
    assert LADDER.rungs[next_rung(history, a_policy(), LADDER).rung].pools == (expected,)


def test_an_attempt_that_was_sent_past_a_rung_climbs_from_where_it_waited() -> None:
    history = [PastAttempt(pools=("b",), waited_in_vain=True)]
    assert next_rung(history, a_policy(), LADDER).rung == 2


def test_waiting_in_vain_costs_no_budget_whatever_ended_the_pod() -> None:
    history = [PastAttempt(Cause.DISRUPTED, ("a",), waited_in_vain=True)] * 40
    decided = next_rung(history, a_policy(), LADDER)
    assert (decided.refusal, decided.spent) == ("", BudgetUse())
