"""Engines that crash or detach while attempts run: the next engine adopts, settles or ends these attempts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, a_chain, a_config, a_diamond, a_fan, a_plan, a_pool
from tests.engine.scripts import outputs_of_inputs

from spotwright.engine.events import (
    AttemptBound,
    AttemptEnded,
    EngineStarted,
    Event,
    NodeChanged,
    NoticeGiven,
    RunCreated,
    RunMeta,
    RunStatus,
)
from spotwright.engine.fold import fold, replay
from spotwright.engine.io_resolution import run_outputs
from spotwright.engine.loop import DECISIONS_VERSION, Engine, replay_decisions
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.simulation.run import MemoryJournal
from spotwright.simulation.simulated_attempts import AttemptModel, Behavior, SimulatedAttempts
from spotwright.simulation.simulated_cluster import SimulatedCluster
from spotwright.simulation.world import SimulatedWorld

REQUIRE = {"spot": "require", "pending_timeout": "1d"}


class Handover:
    """A run in a cluster that stays, and its engines, one after another."""

    def __init__(self, plan: Plan, model: AttemptModel, *, seed: int = 1, adopts: bool = True) -> None:
        self.plan, self.adopts = plan, adopts
        self.cluster = SimulatedCluster(plan.config.pools, seed=seed)
        self.attempts = SimulatedAttempts("run", self.cluster, model, seed=seed, make_outputs=outputs_of_inputs)
        self.journal = MemoryJournal()
        self.epoch = 0
        self.world: SimulatedWorld

    def take_up(self) -> tuple[Engine, list[Event]]:
        """The next engine, with the facts of its first turn."""
        self.epoch += 1
        state = replay([self.plan], self.journal.events) if self.journal.events else RunState([self.plan])
        self.world = SimulatedWorld(self.attempts, adopts=self.adopts)
        now = self.cluster.clock.now
        facts: list[Event] = [EngineStarted(now, epoch=self.epoch, decisions=DECISIONS_VERSION)]
        if self.epoch == 1:
            facts.insert(0, RunCreated(now, meta=RunMeta(run="run")))
        else:
            facts += self.world.recover(state)
            for fact in facts:
                fold(state, fact)
            self.journal.append(facts)
            self.world.begin(state)
            facts = []
        return Engine(state, self.journal, self.world, self.cluster.clock), facts

    def drive(self, turns: float = float("inf"), until: float = float("inf")) -> RunState:
        """Let the next engine take this many turns, or those before a moment, and then crash."""
        engine, facts = self.take_up()
        moment = engine.turn(facts)
        while not engine.ended and turns > 1:
            facts = self.world.wait(until if moment is None else min(moment, until))
            if self.cluster.clock.now >= until:
                return engine.state
            moment, turns = engine.turn(facts), turns - 1
        if engine.ended:
            engine.close()
        return engine.state

    def pass_time(self, moment: float) -> None:
        """Let time pass without an engine."""
        while (due := self.cluster.next_moment()) is not None and due <= moment:
            self.cluster.clock.move_to(due)
            self.cluster.advance()
        self.cluster.clock.move_to(moment)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.journal.events if isinstance(event, kind)]

    def causes(self, path: str = "t0") -> list[str]:
        return [str(attempt.cause) for attempt in replay([self.plan], self.journal.events).tasks[path].attempts]


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
    run = one_task(1000.0, lifetime=100.0, notice=10.0)
    run.drive(until=50.0)
    run.pass_time(200.0)
    run.drive(until=300.0)
    gone = [(event.at, event.node) for event in run.of(NodeChanged) if event.state == "gone"]
    assert (gone[0], run.causes()[0]) == ((200.0, "spot-1"), "interrupted")


def test_a_notice_that_came_while_there_was_no_engine_is_reported() -> None:
    run = one_task(1000.0, lifetime=100.0, notice=60.0)
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
    losses: list[tuple[int, float]], adopts: bool, taken_every: float | None, seed: int
) -> None:
    pool = a_pool(simulate={"taken_every": taken_every}, notice=5.0)
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
