"""Nodes that the provider takes: the seeded model, traces, lifetimes; notice, SIGTERM and the end of the node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import a_pool
from tests.supply.builders import Lab, key

from spotwright.model.pools import Drain, Trace
from spotwright.supply.node_fit import NodeBooting, NodeGone, NodeRequest, Noticed, SigtermDue, draw_interruption

WHOLE_NODE = NodeRequest(("spot",), {"cpu": 4000}, grace=3.0)
LIVES_100S = a_pool(max_lifetime=100.0, max_nodes=1)


def traced(*counts: int, gap: float = 60.0, scale: float = 1.0, **pool: Any) -> Lab:
    return Lab(a_pool(max_nodes=9, **pool), traces={"spot": Trace(gap, counts)}, scale=scale)


# Notice


def test_a_notice_comes_before_the_node_goes() -> None:
    lab = Lab(LIVES_100S).submit("a").until(200)
    assert (lab.notices, lab.seen(NodeGone)) == ([(102, 112)], [(112, "spot-1")])


def test_the_notice_names_the_attempts_on_the_node() -> None:
    lab = Lab(LIVES_100S).submit("a").submit("b").until(200)
    assert [event.keys for _, event in lab.log if isinstance(event, Noticed)] == [(key("a"), key("b"))]


def test_a_node_of_a_pool_without_notice_goes_at_once() -> None:
    lab = Lab(a_pool(max_lifetime=100.0, max_nodes=1, notice=0.0)).submit("a").until(103)
    assert (lab.notices, lab.seen(SigtermDue), lab.seen(NodeGone)) == ([], [], [(102, "spot-1")])


def test_the_end_of_a_node_names_the_attempts_that_were_on_it() -> None:
    lab = Lab(LIVES_100S).submit("a").submit("b").until(105).release("b").until(200)
    assert [event.keys for _, event in lab.log if isinstance(event, NodeGone)] == [(key("a"),)]


def test_the_end_of_a_node_names_its_reason() -> None:
    lab = Lab(LIVES_100S).submit("a").until(200)
    assert [event.why for _, event in lab.log if isinstance(event, NodeGone)] == ["at the end of its lifetime of 100s"]


def test_no_attempt_is_bound_to_a_node_with_a_notice() -> None:
    lab = Lab(a_pool(max_lifetime=100.0)).submit("a").until(105).submit("b").until(120)
    assert lab.bound == [(2, "a", "spot-1"), (107, "b", "spot-2")]


def test_a_node_with_a_notice_counts_as_a_node_until_it_is_gone() -> None:
    lab = Lab(LIVES_100S).submit("a").until(105).submit("b").until(120)
    assert lab.bound[-1] == (114, "b", "spot-2")


# SIGTERM


def test_sigterm_comes_at_the_end_of_the_notice_minus_the_grace_period() -> None:
    assert Lab(LIVES_100S).submit("a", WHOLE_NODE).until(200).seen(SigtermDue) == [(109, "a")]


def test_a_grace_period_longer_than_the_notice_begins_with_it() -> None:
    lab = Lab(LIVES_100S).submit("a", NodeRequest(("spot",), {}, grace=60.0)).until(200)
    assert lab.seen(SigtermDue) == [(102, "a")]


def test_without_a_grace_period_sigterm_comes_with_the_end() -> None:
    lab = Lab(LIVES_100S).submit("a", NodeRequest(("spot",), {}, grace=0.0)).until(200)
    assert lab.seen(SigtermDue) == [(112, "a")]


def test_a_provider_that_drains_at_the_notice_sends_sigterm_at_once() -> None:
    pool = a_pool(max_lifetime=100.0, simulate={"drain": Drain.AT_NOTICE})
    assert Lab(pool).submit("a", WHOLE_NODE).until(200).seen(SigtermDue) == [(102, "a")]


def test_an_attempt_that_ended_during_the_notice_gets_no_sigterm() -> None:
    assert Lab(LIVES_100S).submit("a", WHOLE_NODE).until(105).release("a").until(200).seen(SigtermDue) == []


# The seeded model


def test_an_attempt_without_reports_loses_its_node_at_the_drawn_age() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    drawn = draw_interruption(pool.simulate, 7, "a", 1)
    assert drawn is not None
    assert Lab(pool).submit("a").until(100).notices[0][0] == pytest.approx(2 + drawn.age, abs=0.002)


def test_an_attempt_with_reports_loses_its_node_at_the_drawn_share_however_long_that_takes() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    drawn = draw_interruption(pool.simulate, 7, "train", 1)
    assert drawn is not None
    assert drawn.share is not None
    slow = Lab(pool).submit("train").until(3).report("train", 0.0).until(5000).report("train", drawn.share - 0.01)
    assert slow.notices == []
    assert slow.report("train", drawn.share).notices == [(5000, 5010)]


def test_an_attempt_whose_share_is_one_or_more_keeps_its_node() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    lab = Lab(pool)
    name = next(
        name
        for name in map(str, range(99))
        if (drawn := draw_interruption(pool.simulate, 7, name, 1)) and drawn.share is None
    )
    lab.submit(name).until(3).report(name, 0.0).until(900).report(name, 1.0).until(1000)
    assert lab.notices == []


def test_the_draw_does_not_depend_on_when_an_attempt_starts() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    early = Lab(pool).submit("a").until(100).notices[0][0] - 2
    late = Lab(pool).until(50).submit("a").until(200).notices[0][0] - 52
    assert early == pytest.approx(late, abs=0.002)


def test_on_demand_nodes_are_never_taken_by_the_model() -> None:
    pool = a_pool(spot=False, simulate={"interrupt_every": 1.0})
    assert Lab(pool).submit("a").until(500).notices == []


def ages(*names: str) -> list[float]:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    drawn = [draw_interruption(pool.simulate, 7, name, 1) for name in names]
    return [draw.age for draw in drawn if draw is not None]


def test_attempts_that_share_a_node_lose_it_no_more_often_than_one_alone() -> None:
    lab = Lab(a_pool(simulate={"interrupt_every": 20.0}))
    for name in ("a", "b", "c", "d"):
        lab.submit(name)
    assert ages("a")[0] > min(ages("b", "c", "d"))
    assert lab.until(200).notices[0][0] == pytest.approx(2 + ages("a")[0], abs=0.002)


def test_when_the_oldest_attempt_ends_the_draw_of_the_next_one_counts() -> None:
    lab = Lab(a_pool(simulate={"interrupt_every": 20.0})).submit("a").submit("b").until(3).release("a").until(200)
    assert lab.notices[0][0] == pytest.approx(3 + ages("b")[0], abs=0.002)


def test_the_draw_of_the_next_one_applies_to_the_rest_of_its_work() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    thresholds = {
        name: drawn.threshold(0.5) for name in "bcdefgh" if (drawn := draw_interruption(pool.simulate, 7, name, 1))
    }
    name, at = next((name, at) for name, at in thresholds.items() if at is not None and at < 0.7)
    lab = Lab(pool).submit("a").submit(name).until(3).report(name, 0.5).until(3.5).release("a").until(4)
    assert lab.report(name, at - 0.001).notices == []
    assert lab.report(name, at).notices != []


def test_the_draw_of_an_ended_attempt_takes_no_node() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0})
    assert Lab(pool).submit("a").until(3).release("a").until(500).notices == []


# Traces


def test_the_trace_limits_how_many_nodes_boot() -> None:
    lab = traced(1, 1)
    assert len(lab.submit("a", WHOLE_NODE).submit("b", WHOLE_NODE).until(50).seen(NodeBooting)) == 1


def test_a_waiting_attempt_gets_capacity_when_it_returns() -> None:
    assert traced(0, 0, 1).submit("a").until(200).bound == [(122, "a", "spot-1")]


def test_the_reason_for_waiting_names_the_count_of_the_trace() -> None:
    assert traced(0, 1).submit("a").why("a") == "spot: no capacity: the trace has 0 nodes now"


def test_nodes_beyond_the_count_of_the_trace_are_taken() -> None:
    lab = traced(3, 1)
    for name in "abc":
        lab.submit(name, WHOLE_NODE)
    lab.until(100)
    assert (lab.notices, len(lab.seen(NodeGone))) == ([(60, 70), (60, 70)], 2)


def test_the_seed_draws_which_nodes_are_taken() -> None:
    gone = set()
    for seed in range(10):
        lab = Lab(a_pool(max_nodes=9), traces={"spot": Trace(60.0, (3, 2))}, seed=seed)
        for name in "abc":
            lab.submit(name, WHOLE_NODE)
        gone.add(lab.until(80).seen(NodeGone)[0][1])
    assert gone == {"spot-1", "spot-2", "spot-3"}


def test_a_booting_node_beyond_the_count_of_the_trace_never_gets_an_attempt() -> None:
    lab = traced(1, 0, 0, 0, gap=1.0, simulate={"boot": 3.0}, notice=0.5)
    assert lab.submit("a").until(3.5).bound == []


def test_a_run_may_begin_in_the_middle_of_a_trace() -> None:
    assert traced(0, 0, 1, 1, simulate={"start": 90.0}).submit("a").until(200).bound == [(32, "a", "spot-1")]


def test_a_trace_starts_again_at_its_end() -> None:
    lab = traced(0, 1).submit("a").until(100).release("a").until(130).submit("b").until(200)
    assert lab.bound == [(62, "a", "spot-1"), (182, "b", "spot-2")]


def test_the_time_scale_divides_notice_lifetime_and_trace() -> None:
    lab = traced(1, 0, scale=10.0).submit("a").until(20)
    assert (lab.bound, lab.notices) == ([(0.2, "a", "spot-1")], [(6, 7)])
    assert Lab(LIVES_100S, scale=10.0).submit("a").until(20).notices[0] == (10.2, 11.2)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.floats(0.5, 100),
    st.sampled_from([1.0, 3.0, 7.0, 60.0]),
    st.integers(0, 20),
)
def test_the_nodes_follow_any_trace_at_any_scale(counts: list[int], gap: float, scale: float, start: int) -> None:
    """The supply never ticks at one moment for ever, and its count is the one of the trace at every moment."""
    pool = a_pool(max_nodes=9, notice=0.0, simulate={"start": start * gap})
    lab = Lab(pool, traces={"spot": Trace(gap, tuple(counts))}, scale=scale)
    for name in "abcd":
        lab.submit(name, WHOLE_NODE)
    state = lab.supply._pools["spot"]
    for tick in range(30):
        lab.until((tick + 0.5) * gap / scale)
        assert state.available == counts[(tick + start) % len(counts)]
        assert len(state.nodes) <= state.available


# Taken by a rehearsal


def test_a_rehearsal_takes_a_node_with_a_notice_of_its_choice() -> None:
    lab = Lab(a_pool()).submit("a", WHOLE_NODE).until(10).take("a", notice=5.0).until(20)

    assert (lab.notices, lab.seen(SigtermDue), lab.seen(NodeGone)) == ([(10, 15)], [(12, "a")], [(15, "spot-1")])


def test_a_rehearsal_without_notice_takes_a_node_at_once_even_where_it_was_announced() -> None:
    lab = Lab(a_pool()).submit("a").until(10).take("a", notice=5.0).until(11).take("a", notice=0.0).until(20)

    assert lab.seen(NodeGone) == [(11, "spot-1")]


def test_a_rehearsal_takes_nothing_from_an_attempt_without_a_node() -> None:
    assert Lab(a_pool()).submit("a").take("a", notice=0.0).until(10).seen(NodeGone) == []
