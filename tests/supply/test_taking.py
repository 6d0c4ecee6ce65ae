"""Nodes that are taken away: the seeded model, traces, lifetimes; notice, SIGTERM and the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import a_pool
from tests.supply.builders import Lab

from spotwright.model.pools import Drain
from spotwright.model.traces import Trace
from spotwright.supply.binding import Request
from spotwright.supply.happenings import Drained, NodeBooting, NodeGone, Noticed
from spotwright.supply.market import fate

WHOLE_NODE = Request(("spot",), {"cpu": 4000}, grace=3.0)
LIVES_100S = a_pool(lifetime=100.0, max_nodes=1)


def traced(*counts: int, gap: float = 60.0, scale: float = 1.0, **said: Any) -> Lab:
    return Lab(a_pool(max_nodes=9, **said), traces={"spot": Trace(gap, counts)}, scale=scale)


# Notice


def test_a_notice_comes_before_the_node_goes() -> None:
    lab = Lab(LIVES_100S).submit("a").until(200)
    assert (lab.notices, lab.told(NodeGone)) == ([(102, 112)], [(112, "spot-1")])


def test_the_notice_names_the_attempts_on_the_node() -> None:
    lab = Lab(LIVES_100S).submit("a").submit("b").until(200)
    assert [one.keys for _, one in lab.log if isinstance(one, Noticed)] == [(("a", 1), ("b", 1))]


def test_a_node_without_notice_goes_without_a_word() -> None:
    lab = Lab(a_pool(lifetime=100.0, max_nodes=1, notice=0.0)).submit("a").until(103)
    assert (lab.notices, lab.told(Drained), lab.told(NodeGone)) == ([], [], [(102, "spot-1")])


def test_the_end_of_a_node_names_the_attempts_that_were_on_it() -> None:
    lab = Lab(LIVES_100S).submit("a").submit("b").until(105).release("b").until(200)
    assert [one.keys for _, one in lab.log if isinstance(one, NodeGone)] == [(("a", 1),)]


def test_why_a_node_goes_is_said() -> None:
    lab = Lab(LIVES_100S).submit("a").until(200)
    assert [one.why for _, one in lab.log if isinstance(one, NodeGone)] == ["at the end of its lifetime of 100s"]


def test_nothing_is_bound_to_a_node_that_has_been_noticed() -> None:
    lab = Lab(a_pool(lifetime=100.0)).submit("a").until(105).submit("b").until(120)
    assert lab.bound == [(2, "a", "spot-1"), (107, "b", "spot-2")]


def test_a_noticed_node_is_counted_until_it_is_gone() -> None:
    lab = Lab(LIVES_100S).submit("a").until(105).submit("b").until(120)
    assert lab.bound[-1] == (114, "b", "spot-2")


# SIGTERM


def test_sigterm_comes_at_the_end_of_the_notice_minus_the_grace_period() -> None:
    assert Lab(LIVES_100S).submit("a", WHOLE_NODE).until(200).told(Drained) == [(109, "a")]


def test_a_grace_period_longer_than_the_notice_begins_with_it() -> None:
    lab = Lab(LIVES_100S).submit("a", Request(("spot",), {}, grace=60.0)).until(200)
    assert lab.told(Drained) == [(102, "a")]


def test_without_a_grace_period_sigterm_comes_with_the_end() -> None:
    lab = Lab(LIVES_100S).submit("a", Request(("spot",), {}, grace=0.0)).until(200)
    assert lab.told(Drained) == [(112, "a")]


def test_a_provider_that_drains_at_the_notice_sends_sigterm_at_once() -> None:
    pool = a_pool(lifetime=100.0, simulate={"drain": Drain.AT_NOTICE})
    assert Lab(pool).submit("a", WHOLE_NODE).until(200).told(Drained) == [(102, "a")]


def test_an_attempt_that_ended_during_the_notice_gets_no_sigterm() -> None:
    assert Lab(LIVES_100S).submit("a", WHOLE_NODE).until(105).release("a").until(200).told(Drained) == []


# The seeded model


def test_an_attempt_that_reports_nothing_loses_its_node_at_the_age_that_was_drawn() -> None:
    pool = a_pool(simulate={"taken_every": 20.0})
    drawn = fate(pool.simulate, 7, "a", 1)
    assert drawn is not None
    assert Lab(pool).submit("a").until(100).notices[0][0] == pytest.approx(2 + drawn.age, abs=0.002)


def test_an_attempt_that_reports_loses_its_node_at_its_share_however_long_that_takes() -> None:
    pool = a_pool(simulate={"taken_every": 20.0})
    drawn = fate(pool.simulate, 7, "train", 1)
    assert drawn is not None
    assert drawn.share is not None
    slow = Lab(pool).submit("train").until(3).report("train", 0.0).until(5000).report("train", drawn.share - 0.01)
    assert slow.notices == []
    assert slow.report("train", drawn.share).notices == [(5000, 5010)]


def test_an_attempt_that_is_let_through_keeps_its_node() -> None:
    pool = a_pool(simulate={"taken_every": 20.0})
    lab = Lab(pool)
    name = next(
        name for name in map(str, range(99)) if (drawn := fate(pool.simulate, 7, name, 1)) and drawn.share is None
    )
    lab.submit(name).until(3).report(name, 0.0).until(900).report(name, 1.0).until(1000)
    assert lab.notices == []


def test_the_draw_does_not_depend_on_when_an_attempt_starts() -> None:
    pool = a_pool(simulate={"taken_every": 20.0})
    early = Lab(pool).submit("a").until(100).notices[0][0] - 2
    late = Lab(pool).until(50).submit("a").until(200).notices[0][0] - 52
    assert early == pytest.approx(late, abs=0.002)


def test_on_demand_nodes_are_never_taken_by_the_model() -> None:
    pool = a_pool(spot=False, simulate={"taken_every": 1.0})
    assert Lab(pool).submit("a").until(500).notices == []


def ages(*names: str) -> list[float]:
    pool = a_pool(simulate={"taken_every": 20.0})
    drawn = [fate(pool.simulate, 7, name, 1) for name in names]
    return [one.age for one in drawn if one is not None]


def test_attempts_that_share_a_node_lose_it_no_more_often_than_one_alone() -> None:
    lab = Lab(a_pool(simulate={"taken_every": 20.0}))
    for name in ("a", "b", "c", "d"):
        lab.submit(name)
    assert ages("a")[0] > min(ages("b", "c", "d"))
    assert lab.until(200).notices[0][0] == pytest.approx(2 + ages("a")[0], abs=0.002)


def test_when_the_oldest_attempt_ends_the_next_one_tells_when_the_node_goes() -> None:
    lab = Lab(a_pool(simulate={"taken_every": 20.0})).submit("a").submit("b").until(3).release("a").until(200)
    assert lab.notices[0][0] == pytest.approx(3 + ages("b")[0], abs=0.002)


def test_the_next_one_goes_on_from_the_progress_it_has() -> None:
    pool = a_pool(simulate={"taken_every": 20.0})
    thresholds = {name: drawn.threshold(0.5) for name in "bcdefgh" if (drawn := fate(pool.simulate, 7, name, 1))}
    name, at = next((name, at) for name, at in thresholds.items() if at is not None and at < 0.7)
    lab = Lab(pool).submit("a").submit(name).until(3).report(name, 0.5).until(3.5).release("a").until(4)
    assert lab.report(name, at - 0.001).notices == []
    assert lab.report(name, at).notices != []


def test_an_ended_attempt_takes_no_node_with_it() -> None:
    pool = a_pool(simulate={"taken_every": 20.0})
    assert Lab(pool).submit("a").until(3).release("a").until(500).notices == []


# Traces


def test_no_more_nodes_boot_than_the_trace_has() -> None:
    lab = traced(1, 1)
    assert len(lab.submit("a", WHOLE_NODE).submit("b", WHOLE_NODE).until(50).told(NodeBooting)) == 1


def test_what_waits_for_capacity_gets_it_when_it_returns() -> None:
    assert traced(0, 0, 1).submit("a").until(200).bound == [(122, "a", "spot-1")]


def test_why_there_is_no_capacity_is_said() -> None:
    assert traced(0, 1).submit("a").why("a") == "spot: no capacity: the trace has 0 nodes now"


def test_nodes_beyond_what_the_trace_has_are_taken() -> None:
    lab = traced(3, 1)
    for name in "abc":
        lab.submit(name, WHOLE_NODE)
    lab.until(100)
    assert (lab.notices, len(lab.told(NodeGone))) == ([(60, 70), (60, 70)], 2)


def test_which_nodes_are_taken_is_drawn_by_the_seed() -> None:
    gone = set()
    for seed in range(10):
        lab = Lab(a_pool(max_nodes=9), traces={"spot": Trace(60.0, (3, 2))}, seed=seed)
        for name in "abc":
            lab.submit(name, WHOLE_NODE)
        gone.add(lab.until(80).told(NodeGone)[0][1])
    assert gone == {"spot-1", "spot-2", "spot-3"}


def test_a_booting_node_beyond_what_the_trace_has_never_gets_work() -> None:
    lab = traced(1, 0, 0, 0, gap=1.0, simulate={"boot": 3.0}, notice=0.5)
    assert lab.submit("a").until(3.5).bound == []


def test_a_trace_may_begin_later() -> None:
    assert traced(0, 0, 1, 1, simulate={"start": 90.0}).submit("a").until(200).bound == [(32, "a", "spot-1")]


def test_a_trace_starts_again_when_it_is_over() -> None:
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
def test_any_trace_is_followed_at_any_scale(counts: list[int], gap: float, scale: float, start: int) -> None:
    """It never ticks at one moment for ever, and what it has is what the trace says at every moment."""
    pool = a_pool(max_nodes=9, notice=0.0, simulate={"start": start * gap})
    lab = Lab(pool, traces={"spot": Trace(gap, tuple(counts))}, scale=scale)
    for name in "abcd":
        lab.submit(name, WHOLE_NODE)
    state = lab.supply._pools["spot"]
    for tick in range(30):
        lab.until((tick + 0.5) * gap / scale)
        assert state.available == counts[(tick + start) % len(counts)]
        assert len(state.nodes) <= state.available


# Taken by somebody else: a rehearsal


def test_a_node_is_taken_on_demand_with_the_notice_that_is_asked_for() -> None:
    lab = Lab(a_pool()).submit("a", WHOLE_NODE).until(10).take("a", notice=5.0).until(20)

    assert (lab.notices, lab.told(Drained), lab.told(NodeGone)) == ([(10, 15)], [(12, "a")], [(15, "spot-1")])


def test_without_notice_it_goes_at_once_also_where_it_was_announced() -> None:
    lab = Lab(a_pool()).submit("a").until(10).take("a", notice=5.0).until(11).take("a", notice=0.0).until(20)

    assert lab.told(NodeGone) == [(11, "spot-1")]


def test_an_attempt_without_a_node_has_none_to_be_taken() -> None:
    assert Lab(a_pool()).submit("a").take("a", notice=0.0).until(10).told(NodeGone) == []
