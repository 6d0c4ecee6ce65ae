"""Models of simulated attempts: reports, checkpoints, failures and their seeded draws."""

from __future__ import annotations

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.simulated_attempts import FAILED, SUCCEEDED, AttemptStart, Behavior, TaskWork, WorkModel


def start(number: int = 1, *, task: str = "train", saved: float = 0.0) -> AttemptStart:
    return AttemptStart(task, number, "spot", saved)


def model(seed: int = 1, **work: float) -> WorkModel:
    return WorkModel({"train": TaskWork(100.0, **work)}, seed)  # type: ignore[arg-type]


# One behavior


def test_reports_are_spread_evenly_over_the_work_and_end_with_it() -> None:
    assert Behavior(10.0, reports=4).progress() == [(2.5, 0.25), (5.0, 0.5), (7.5, 0.75), (10.0, 1.0)]


def test_no_work_is_done_during_the_start_up() -> None:
    behavior = Behavior(30.0, start_up=10.0, reports=2)
    assert (behavior.done(10.0), behavior.done(20.0), behavior.progress()) == (0.0, 0.5, [(20.0, 0.5), (30.0, 1.0)])


def test_a_resumed_attempt_reports_from_its_checkpoint_on() -> None:
    assert Behavior(10.0, done_before=0.5, reports=2).progress() == [(5.0, 0.75), (10.0, 1.0)]


@pytest.mark.parametrize(("elapsed", "saved"), [(0.0, 0.0), (29.0, 0.0), (30.0, 0.3), (59.9, 0.3), (100.0, 0.9)])
def test_a_checkpoint_holds_the_work_of_whole_intervals(elapsed: float, saved: float) -> None:
    assert Behavior(100.0, checkpoint_every=30.0).saved(elapsed, by_sigterm=False) == pytest.approx(saved)


def test_without_checkpoints_the_saved_share_does_not_grow() -> None:
    assert Behavior(10.0, done_before=0.4).saved(9.0, by_sigterm=True) == 0.4


def test_an_attempt_that_saves_on_sigterm_keeps_all_of_its_work() -> None:
    behavior = Behavior(10.0, saves_on_sigterm=True)
    assert (behavior.saved(7.0, by_sigterm=True), behavior.saved(7.0, by_sigterm=False)) == (0.7, 0.0)


@given(st.floats(0.1, 1e5), st.floats(0, 0.99), st.floats(0, 1e5), st.floats(0, 1.0), st.floats(0.1, 1e4))
def test_a_checkpoint_never_holds_more_work_than_was_done_nor_less_than_before(
    seconds: float, part: float, elapsed: float, before: float, every: float
) -> None:
    behavior = Behavior(seconds, start_up=seconds * part, done_before=before, checkpoint_every=every)
    assert before <= behavior.saved(elapsed, by_sigterm=False) <= behavior.done(elapsed) + 1e-9


# Draws


def test_an_attempt_works_as_long_as_is_left_after_its_checkpoint() -> None:
    assert (model()(start()).seconds, model()(start(saved=0.75)).seconds) == (100.0, 25.0)


def test_every_attempt_pays_its_start_up() -> None:
    assert model(start_up=8.0)(start(2, saved=0.5)).seconds == 58.0


def test_the_same_seed_draws_the_same_behavior() -> None:
    one, other = model(5, spread=0.5, failure_rate=0.5), model(5, spread=0.5, failure_rate=0.5)
    assert [one(start(n)) for n in range(1, 50)] == [other(start(n)) for n in range(1, 50)]


def test_another_seed_draws_another_length() -> None:
    assert len({model(seed, spread=0.5)(start()).seconds for seed in range(20)}) == 20


def test_the_attempts_of_a_task_have_one_length() -> None:
    assert len({model(spread=0.5)(start(number)).seconds for number in range(1, 20)}) == 1


def test_lengths_are_spread_around_the_stated_one() -> None:
    lengths = [model(seed, spread=0.5)(start()).seconds for seed in range(2000)]
    assert mean(lengths) == pytest.approx(100, rel=0.03)
    assert 50 <= min(lengths) <= max(lengths) <= 150


def test_attempts_fail_at_the_stated_rate() -> None:
    ends = [model(seed, failure_rate=0.3)(start()).signals for seed in range(2000)]
    assert ends.count(FAILED) / 2000 == pytest.approx(0.3, abs=0.04)
    assert ends.count(FAILED) + ends.count(SUCCEEDED) == 2000


def test_a_failing_attempt_ends_on_its_way() -> None:
    behavior = model(failure_rate=1.0)(start(saved=0.5))
    assert behavior.signals == FAILED
    assert 0.5 <= behavior.done_after < 1.0
    assert behavior.seconds == pytest.approx(100 * (behavior.done_after - 0.5))


def test_the_work_of_a_task_may_come_from_a_function() -> None:
    by_name = WorkModel(lambda path: TaskWork(float(len(path))), 1)
    assert by_name(start(task="abc")).seconds == 3.0
