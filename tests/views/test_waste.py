"""How much of an attempt was kept: exact where the code reports its progress, a range where it does not."""

from __future__ import annotations

from fractions import Fraction

import pytest

from spotwright.engine.state import AttemptState
from spotwright.model.attempts import Cause
from spotwright.views.account import KeptWork, kept_of

ALL, NONE, UNKNOWN = KeptWork(Fraction(1), Fraction(1)), KeptWork(), KeptWork(Fraction(0), Fraction(1))


def tries(*said: tuple[Cause | None, float | None, float | None]) -> list[AttemptState]:
    """Attempts by cause, first and last report."""
    attempts = []
    for index, (cause, first, last) in enumerate(said):
        attempt = AttemptState(index + 1, 0, 0, ("spot",), 0.0, 0.0, bound_at=1.0)
        attempt.cause, attempt.first_progress, attempt.progress = cause, first, last
        attempts.append(attempt)
    return attempts


INTERRUPTED, FAILED, DONE = Cause.INTERRUPTED, Cause.FAILED, Cause.SUCCEEDED


def test_a_succeeded_attempt_is_kept_whole() -> None:
    assert kept_of(tries((DONE, None, None)), may_succeed=False) == [ALL]


def test_work_that_the_successor_did_not_repeat_is_kept() -> None:
    kept = kept_of(tries((INTERRUPTED, 0.1, 0.5), (DONE, 0.4, 1.0)), may_succeed=False)
    assert kept == [KeptWork(Fraction(3, 4), Fraction(3, 4)), ALL]


def test_a_successor_that_begins_afresh_keeps_nothing() -> None:
    assert kept_of(tries((INTERRUPTED, 0.0, 0.5), (DONE, 0.0, 1.0)), may_succeed=False)[0] == NONE


def test_a_successor_that_begins_at_the_end_keeps_all() -> None:
    assert kept_of(tries((INTERRUPTED, 0.0, 0.5), (DONE, 0.5, 1.0)), may_succeed=False)[0] == ALL


def test_without_progress_anything_may_have_been_kept() -> None:
    assert kept_of(tries((INTERRUPTED, None, None), (DONE, None, None)), may_succeed=False)[0] == UNKNOWN


def test_a_success_that_reports_nothing_leaves_a_range() -> None:
    assert kept_of(tries((INTERRUPTED, 0.0, 0.5), (DONE, None, None)), may_succeed=False)[0] == UNKNOWN


def test_a_success_without_reports_may_have_kept_the_work_that_its_predecessor_resumed() -> None:
    kept = kept_of(tries((INTERRUPTED, 0.0, 0.5), (INTERRUPTED, 0.4, 0.6), (DONE, None, None)), may_succeed=False)
    assert kept[0] == KeptWork(Fraction(0), Fraction(4, 5))


def test_the_lowest_beginning_of_all_successors_counts() -> None:
    kept = kept_of(tries((INTERRUPTED, 0.0, 0.4), (INTERRUPTED, 0.4, 0.8), (DONE, 0.2, 1.0)), may_succeed=False)
    assert kept == [KeptWork(Fraction(1, 2), Fraction(1, 2)), NONE, ALL]


def test_an_attempt_that_died_before_its_first_report_kept_nothing_if_the_next_begins_no_further() -> None:
    kept = kept_of(tries((INTERRUPTED, 0.0, 0.4), (INTERRUPTED, None, None), (DONE, 0.4, 1.0)), may_succeed=False)
    assert kept == [ALL, NONE, ALL]


@pytest.mark.parametrize("may_succeed", [True, False])
def test_a_task_that_can_no_longer_succeed_keeps_nothing(may_succeed: bool) -> None:
    kept = kept_of(tries((INTERRUPTED, 0.0, 0.4), (FAILED, 0.4, 0.6)), may_succeed=may_succeed)
    assert kept == ([ALL, UNKNOWN] if may_succeed else [NONE, NONE])


def test_attempts_after_a_success_are_counted_afresh() -> None:
    """A run that was resumed with mended code runs a task again that had succeeded."""
    kept = kept_of(tries((DONE, 0.0, 1.0), (INTERRUPTED, 0.0, 0.5), (DONE, 0.25, 1.0)), may_succeed=False)
    assert kept == [ALL, KeptWork(Fraction(1, 2), Fraction(1, 2)), ALL]


def test_a_live_attempt_has_kept_nothing_yet() -> None:
    assert kept_of(tries((None, 0.0, 0.5)), may_succeed=True) == [NONE]


def test_an_attempt_that_never_had_a_node_kept_nothing() -> None:
    attempts = tries((Cause.CANCELLED, None, None), (DONE, None, None))
    attempts[0].bound_at = None
    assert kept_of(attempts, may_succeed=False)[0] == NONE
