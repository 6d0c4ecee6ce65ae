"""Engines that crash or detach while attempts run: the next engine adopts, settles or ends these attempts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, a_chain, a_config, a_diamond, a_fan, a_plan, a_pool
from tests.engine.driving import Crash
from tests.simulation.handover import Handover
from tests.simulation.simulated_attempts import Behavior

from spotwright.engine.events import (
    AttemptBound,
    AttemptEnded,
    NodeChanged,
    NoticeGiven,
    RunStatus,
)
from spotwright.engine.io_resolution import run_outputs
from spotwright.engine.loop import replay_decisions
from spotwright.engine.state import RunState

REQUIRE = {"spot": "require", "pending_timeout": "1d"}


def one_task(seconds: float = 100.0, *, adopts: bool = True, reports: int = 0, **pool: Any) -> Handover:
    plan = a_plan(a_chain(1), a_config(a_pool(**pool), policy=REQUIRE))
    return Handover(plan, lambda _: Behavior(seconds, reports=reports), adopts=adopts)


def test_an_attempt_that_still_runs_is_adopted() -> None:
    run = one_task()
    run.drive(until=50.0)
    assert run.drive().status is RunStatus.SUCCEEDED
    assert ([event.at for event in run.of(AttemptEnded)], run.causes()) == ([102.0], ["succeeded"])


def test_a_body_that_does_not_adopt_ends_running_attempts() -> None:
    run = one_task(adopts=False)
    run.drive(until=50.0)
    assert run.drive().status is RunStatus.SUCCEEDED
    assert run.causes() == ["lost", "succeeded"]
    assert [event.settled for event in run.of(AttemptEnded)] == [True, False]


@pytest.mark.parametrize("adopts", [True, False])
def test_an_attempt_that_ended_while_there_was_no_engine_counts(adopts: bool) -> None:
    run = one_task(adopts=adopts)
    run.drive(until=50.0)
    run.pass_time(500.0)
    assert run.drive().status is RunStatus.SUCCEEDED
    assert [(event.at, event.settled) for event in run.of(AttemptEnded)] == [(500.0, True)]


def test_a_node_that_went_while_there_was_no_engine_is_reported_with_the_end_of_its_attempt() -> None:
    run = one_task(1000.0, max_lifetime=100.0, notice=10.0)
    run.drive(until=50.0)
    run.pass_time(200.0)
    run.drive(until=300.0)
    gone = [(event.at, event.node) for event in run.of(NodeChanged) if event.state == "gone"]
    assert (gone[0], run.causes()[0]) == ((200.0, "spot-1"), "interrupted")


def test_a_notice_that_came_while_there_was_no_engine_is_reported() -> None:
    run = one_task(1000.0, max_lifetime=100.0, notice=60.0)
    run.drive(until=50.0)
    run.pass_time(110.0)
    run.drive(until=120.0)
    assert [(e.at, e.node, e.goes_at, e.attempts) for e in run.of(NoticeGiven)] == [
        (110.0, "spot-1", 162.0, (("t0", 1),))
    ]


def test_progress_goes_on_while_there_is_no_engine() -> None:
    run = one_task(100.0, reports=10)
    run.drive(until=50.0)
    run.pass_time(80.0)
    assert run.drive(turns=1).tasks["t0"].last.progress == pytest.approx(0.7)


def test_a_node_that_the_lost_engine_did_not_commit_is_reported_to_the_next_one() -> None:
    run = one_task(1000.0, node=None, max_nodes=1, max_lifetime=100.0, notice=30.0)
    run.journal.crash_on, run.journal.before = "placed", True
    with pytest.raises(Crash):
        run.drive()
    run.pass_time(5.0)
    run.drive(until=110.0)
    assert [(event.node, event.state) for event in run.of(NodeChanged)] == [("spot-1", "ready")]
    assert [event.node for event in run.of(NoticeGiven)] == ["spot-1"]


def test_a_node_that_became_ready_while_there_was_no_engine_is_reported() -> None:
    run = one_task()
    run.drive(turns=1)
    run.pass_time(5.0)
    run.drive(turns=1)
    assert [(event.at, event.state) for event in run.of(NodeChanged)] == [(0.0, "booting"), (5.0, "ready")]


def test_a_binding_that_was_not_committed_is_undone() -> None:
    """The engine is lost between the binding and its commit: the room is free, and the attempt is bound again."""
    run = one_task(node=None, max_nodes=1)
    run.drive(turns=1)  # the node boots
    run.pass_time(5.0)
    assert run.of(AttemptBound) == []
    assert run.drive().status is RunStatus.SUCCEEDED
    assert [(event.at, event.node) for event in run.of(AttemptBound)] == [(5.0, "spot-1")]


def test_an_engine_that_detaches_leaves_its_attempts_running_and_the_queue_empty() -> None:
    plan = a_plan(a_fan(2), a_config(a_pool(node=None, max_nodes=1), policy=REQUIRE))
    run = Handover(plan, lambda _: Behavior(100.0))
    run.drive(until=50.0)
    run.world.detach()
    run.pass_time(300.0)
    assert run.attempts.live == {}
    assert run.drive().status is RunStatus.SUCCEEDED
    assert [(event.task, event.at) for event in run.of(AttemptBound)] == [("t0", 2.0), ("t1", 300.0)]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from([0.0, 0.4, 30.0])), max_size=4),
    st.booleans(),
    st.sampled_from([None, 25.0]),
    st.integers(0, 20),
)
def test_crashes_of_engines_change_no_output_and_start_no_attempt_twice(
    losses: list[tuple[int, float]], adopts: bool, interrupt_every: float | None, seed: int
) -> None:
    pool = a_pool(simulate={"interrupt_every": interrupt_every}, notice=5.0)
    config = a_config(pool, ON_DEMAND, policy={"spot": "prefer", "interruptions": {"max": 9}, "fall_back_after": 3})
    run = Handover(a_plan(a_diamond(), config), lambda _: Behavior(20.0, reports=2), seed=seed, adopts=adopts)
    state = RunState([run.plan])
    for turns, away in losses:
        if state.status is RunStatus.RUNNING:
            state = run.drive(turns)
            run.pass_time(run.cluster.clock.now + away)
    state = run.drive() if state.status is RunStatus.RUNNING else state
    assert run_outputs(state) == {"bottom.out": "bottom(left=left(top=top()),right=right(top=top()))"}
    replay_decisions([run.plan], run.journal.events)
    ends = Counter((event.task, event.attempt) for event in run.of(AttemptEnded))
    assert set(ends.values()) == {1}
    for task in state.tasks.values():
        assert [str(attempt.cause) for attempt in task.attempts].count("succeeded") == 1
