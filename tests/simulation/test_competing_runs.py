"""Runs that compete for the nodes of one cluster, in one virtual time."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, a_chain, a_diamond, a_fan, a_pool, a_task
from tests.simulation.builders import Simulation, causes, working
from tests.simulation.run import simulate
from tests.simulation.simulated_cluster import Drains

from spotwright.engine.events import (
    AttemptBound,
    AttemptEnded,
    CancelRequested,
    Event,
    NodeChanged,
    NoticeGiven,
    RunStatus,
)
from spotwright.engine.fold import replay
from spotwright.engine.loop import replay_decisions
from spotwright.model.pools import Trace

ONE_AT_A_TIME = a_pool(max_nodes=1, node=None)


def spans(simulation: Simulation) -> dict[str, list[tuple[float, float, str, str]]]:
    """When each attempt of all runs had its node, by node: from, to, run, task."""
    held = defaultdict(list)
    for number, run in enumerate(simulation.runs):
        bindings = {}
        for event in simulation.events(number):
            if isinstance(event, AttemptBound):
                bindings[event.task, event.attempt] = event
            elif isinstance(event, AttemptEnded) and (event.task, event.attempt) in bindings:
                bound = bindings[event.task, event.attempt]
                held[bound.node].append((bound.at, event.at, run.name, event.task))
    return {node: sorted(each) for node, each in held.items()}


def test_a_pool_of_one_node_serves_two_runs_in_turn() -> None:
    simulation = Simulation([ONE_AT_A_TIME]).add(working(10), a_chain(2)).add(working(10), a_chain(2))
    states = simulation.drive()
    assert [state.status for state in states] == [RunStatus.SUCCEEDED] * 2
    assert spans(simulation) == {
        "spot-1": [
            (2.0, 12.0, "run-1", "t0"),
            (12.0, 22.0, "run-2", "t0"),
            (22.0, 32.0, "run-1", "t1"),
            (32.0, 42.0, "run-2", "t1"),
        ]
    }


def test_the_run_that_submits_first_is_served_first() -> None:
    simulation = Simulation([ONE_AT_A_TIME]).add(working(10), a_fan(3)).add(working(10), a_fan(1), starts_at=1.0)
    simulation.drive()
    assert [run for _, _, run, _ in spans(simulation)["spot-1"]] == ["run-1"] * 3 + ["run-2"]


def test_a_run_starts_at_its_own_moment() -> None:
    simulation = Simulation().add(working(10)).add(working(10), starts_at=100.0)
    states = simulation.drive()
    assert [state.started_at for state in states] == [0.0, 100.0]


def test_tasks_of_the_same_name_in_two_runs_are_two_tasks() -> None:
    simulation = (
        Simulation([a_pool(max_lifetime=50.0)]).add(working(20)).add(working(100, checkpoint_every=10), name="other")
    )
    states = simulation.drive()
    assert [causes(state) for state in states] == [["succeeded"], ["interrupted", "succeeded"]]


def test_a_cancelled_run_leaves_its_node_to_the_other() -> None:
    simulation = Simulation([ONE_AT_A_TIME]).add(working(1000), facts=[(50.0, CancelRequested)]).add(working(10))
    states = simulation.drive()
    assert [state.status for state in states] == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    assert spans(simulation)["spot-1"][1][:3] == (51.0, 61.0, "run-2")


def test_runs_have_their_own_interruptions() -> None:
    """The same pipeline with two seeds: the interruptions of one run are not those of the other."""
    pool = a_pool(simulate={"interrupt_every": 50.0}, node=None)
    policy = {"spot": "require", "interruptions": {"max": 50}}
    simulation = Simulation([pool], policy).add(working(60), a_fan(4), seed=1).add(working(60), a_fan(4), seed=2)
    first, second = simulation.drive()
    assert [causes(first, path) for path in first.tasks] != [causes(second, path) for path in second.tasks]


def test_two_runs_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two runs have one name"):
        Simulation().add(working(1), name="a").add(working(1), name="a").drive()


# The nodes that a run hears of


def nodes(events: list[Event]) -> list[tuple[float, str, str]]:
    return [(event.at, event.node, event.state) for event in events if isinstance(event, NodeChanged)]


def test_a_run_gets_the_events_of_another_runs_node_once_its_attempt_is_bound_there() -> None:
    simulation = Simulation([ONE_AT_A_TIME]).add(working(10)).add(working(10))
    simulation.drive()
    assert nodes(simulation.events(0)) == [
        (0.0, "spot-1", "booting"),
        (2.0, "spot-1", "ready"),
        (12.0, "spot-1", "gone"),
    ]
    assert nodes(simulation.events(1)) == [(12.0, "spot-1", "ready"), (22.0, "spot-1", "gone")]


def test_a_run_gets_no_events_of_nodes_that_it_does_not_use() -> None:
    simulation = Simulation([a_pool(max_nodes=9, node=None)]).add(working(10), a_fan(3)).add(working(10), a_fan(1))
    simulation.drive()
    assert {node for _, node, _ in nodes(simulation.events(1))} == {"spot-4"}


def test_a_single_run_gets_the_events_of_every_node() -> None:
    simulation = Simulation([a_pool(min_nodes=2)]).add(working(10))
    simulation.drive()
    assert {node for _, node, _ in nodes(simulation.events())} == {"spot-1", "spot-2"}


def test_a_notice_names_only_the_attempts_of_its_receiver() -> None:
    simulation = (
        Simulation([a_pool(max_nodes=1, max_lifetime=20.0)])
        .add(working(100, checkpoint_every=1))
        .add(working(100, checkpoint_every=1))
    )
    simulation.drive()
    for number in (0, 1):
        notices = [event for event in simulation.events(number) if isinstance(event, NoticeGiven)]
        assert notices
        assert [notice.attempts for notice in notices] == [(("t0", n),) for n in range(1, len(notices) + 1)]


def test_the_end_of_one_run_does_not_take_the_node_of_the_other() -> None:
    simulation = Simulation([a_pool(max_nodes=1)]).add(working(10)).add(working(100))
    states = simulation.drive()
    assert [causes(state) for state in states] == [["succeeded"]] * 2


# Whatever happens

SCENARIOS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 99),
        "nodes": st.integers(1, 3),
        "interrupt_every": st.sampled_from([None, 30.0, 200.0]),
        "notice": st.sampled_from([0.0, 10.0]),
        "drained_every": st.sampled_from([None, 60.0]),
        "trace": st.one_of(st.none(), st.lists(st.integers(0, 3), min_size=2, max_size=5)),
        "starts": st.lists(st.integers(0, 100), min_size=2, max_size=5),
        "failure_rate": st.sampled_from([0.0, 0.3]),
    }
)


def scenario(drawn: dict) -> Simulation:  # type: ignore[type-arg]
    """Several diamonds on few nodes of four cores, with everything that may happen to nodes."""
    pool = a_pool(
        max_nodes=drawn["nodes"], notice=drawn["notice"], simulate={"interrupt_every": drawn["interrupt_every"]}
    )
    policy = {"spot": "prefer", "pending_timeout": "120s", "interruptions": {"max": 4}, "errors": {"retries": 1}}
    traces = {"spot": Trace(25.0, tuple(drawn["trace"]))} if drawn["trace"] else {}
    drains = Drains(every=drawn["drained_every"]) if drawn["drained_every"] else None
    simulation = Simulation([pool, ON_DEMAND], policy, drawn["seed"], traces=traces, drains=drains)
    diamond = [a_task(task.name, *task.after, requests={"cpu": 3000}) for task in a_diamond()]
    for number, starts_at in enumerate(drawn["starts"]):
        model = working(
            40.0, number, spread=0.5, reports=4, checkpoint_every=10.0, stops_in=3.0, failure_rate=drawn["failure_rate"]
        )
        simulation.add(model, diamond, seed=number, starts_at=float(starts_at))
    return simulation


@given(SCENARIOS)
def test_no_node_ever_holds_more_than_it_has_room_for(drawn: dict) -> None:  # type: ignore[type-arg]
    """Each attempt asks for three of the four cores of a node, so two attempts on one node at a time are one too many."""
    simulation = scenario(drawn)
    simulation.drive()
    for node, held in spans(simulation).items():
        for (_, until, *_), (since, *_) in pairwise(held):
            assert until <= since, f"{node} is bound twice: {held}"


@given(SCENARIOS)
def test_every_competing_run_ends_and_its_journal_says_so(drawn: dict) -> None:  # type: ignore[type-arg]
    simulation = scenario(drawn)
    states = simulation.drive()
    for number, state in enumerate(states):
        assert state.status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
        again = replay([simulation.runs[number].plan], simulation.events(number))
        again.timers = state.timers = []
        assert again == state


@pytest.mark.long
@given(SCENARIOS)
def test_the_same_seeds_and_traces_give_the_same_journals(drawn: dict) -> None:  # type: ignore[type-arg]
    first, second = scenario(drawn), scenario(drawn)
    first.drive()
    second.drive()
    assert [first.events(n) for n in range(len(first.runs))] == [second.events(n) for n in range(len(second.runs))]


@given(SCENARIOS)
def test_competing_runs_replay_from_their_journals(drawn: dict) -> None:  # type: ignore[type-arg]
    simulation = scenario(drawn)
    simulation.drive()
    for number, run in enumerate(simulation.runs):
        replay_decisions([run.plan], simulation.events(number))


def test_a_run_that_is_planned_on_other_pools_is_refused() -> None:
    simulation = Simulation().add(working(1))
    with pytest.raises(ValueError, match="pools that the simulation does not have: spot"):
        simulate(simulation.runs, {})
