"""Seeded interruptions and recorded traces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.pools import Simulate, Trace
from spotwright.supply.node_fit import LATEST_SHARE, InterruptionDraw, draw_interruption, next_change, nodes_at, uniform

EVERY_20S = Simulate(interrupt_every=20.0)
TRACE = Trace(60.0, (2, 2, 0, 1))


# Draws


def test_a_draw_is_the_same_on_every_machine() -> None:
    assert uniform(7, "life", "train", 1) == pytest.approx(0.5572134416, abs=1e-9)


def test_the_interruption_of_an_attempt_is_the_same_on_every_machine() -> None:
    drawn = [draw_interruption(EVERY_20S, 7, "train", number) for number in (1, 2, 3)]
    rounded = [(draw.share and round(draw.share, 4), round(draw.age, 3)) for draw in drawn if draw]
    assert rounded == [(0.8147, 16.293), (0.85, 19.377), (None, 45.824)]


def test_another_seed_draws_another_interruption() -> None:
    ages = {drawn.age for seed in range(20) if (drawn := draw_interruption(EVERY_20S, seed, "train", 1))}
    assert len(ages) == 20


def test_without_a_model_nothing_is_drawn() -> None:
    assert draw_interruption(Simulate(), 7, "train", 1) is None


def test_ages_have_the_configured_mean() -> None:
    ages = [drawn.age for n in range(4000) if (drawn := draw_interruption(EVERY_20S, n, "train", 1))]
    assert sum(ages) / len(ages) == pytest.approx(20.0, rel=0.05)


def test_an_attempt_as_long_as_the_mean_keeps_its_node_once_in_e_times() -> None:
    through = [drawn.share is None for n in range(4000) if (drawn := draw_interruption(EVERY_20S, n, "train", 1))]
    assert sum(through) / len(through) == pytest.approx(0.368, abs=0.03)


def test_an_attempt_with_less_stated_work_loses_its_node_less_often() -> None:
    short = Simulate(interrupt_every=20.0, expected_duration=2.0)
    through = [drawn.share is None for n in range(1000) if (drawn := draw_interruption(short, n, "train", 1))]
    assert sum(through) / len(through) > 0.85


# Shares of the work


def test_the_node_goes_at_the_share_of_what_is_left_after_the_first_report() -> None:
    assert InterruptionDraw(0.5, 10.0).threshold(0.2) == pytest.approx(0.6)


def test_an_attempt_that_keeps_its_node_has_no_threshold() -> None:
    assert InterruptionDraw(None, 10.0).threshold(0.0) is None


def test_an_attempt_whose_first_report_is_its_last_keeps_its_node() -> None:
    assert InterruptionDraw(0.5, 10.0).threshold(1.0) is None


@given(st.integers(), st.text(max_size=5), st.integers(1, 50), st.floats(0, 0.999))
def test_no_reporting_attempt_loses_its_node_near_its_end(seed: int, task: str, attempt: int, first: float) -> None:
    drawn = draw_interruption(EVERY_20S, seed, task, attempt)
    assert drawn is not None
    at = drawn.threshold(first)
    assert at is None or first <= at <= first + LATEST_SHARE * (1 - first)


# Traces


def test_a_trace_gives_the_number_of_available_nodes() -> None:
    assert [nodes_at(TRACE, moment) for moment in (0, 59.9, 60, 120, 180)] == [2, 2, 2, 0, 1]


def test_a_trace_starts_again_at_its_end() -> None:
    assert [nodes_at(TRACE, 240.0 + moment) for moment in (0, 120, 180)] == [2, 0, 1]


def test_the_next_change_is_the_next_other_number() -> None:
    assert [next_change(TRACE, moment) for moment in (0.0, 120.0, 180.0)] == [120.0, 180.0, 240.0]


def test_a_trace_that_never_changes_has_no_next_change() -> None:
    assert next_change(Trace(60.0, (3, 3)), 0.0) is None


@given(st.floats(1e-3, 1e4), st.lists(st.integers(0, 5), min_size=2, max_size=50), st.integers(0, 30))
def test_every_change_leads_to_another_number(gap: float, counts: list[int], changes: int) -> None:
    """The moment of a tick lies in its tick however its float was rounded, or a supply would tick there for ever."""
    trace, moments = Trace(gap, tuple(counts)), [0.0]
    for _ in range(changes):
        change = next_change(trace, moments[-1])
        if change is not None:
            moments.append(change)
    for before, later in pairwise(moments):
        assert later > before
        assert nodes_at(trace, later) != nodes_at(trace, before)
