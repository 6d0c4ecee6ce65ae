"""Row 4 of the design's table on virtual time: drained attempts move, spend no budget, and are bounded by 20 moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, a_fan, a_pool
from tests.simulation.builders import Simulation, causes, working
from tests.simulation.simulated_attempts import Behavior
from tests.simulation.simulated_cluster import Drains

from spotwright.engine.events import AttemptEnded, NodeChanged, RunStatus
from spotwright.scheduling.budgets import MAX_MOVES, BudgetUse

NO_RETRIES = {"spot": "require", "interruptions": {"max": 0}, "errors": {"retries": 0}}
LONG = working(1000.0, stops_in=1.0)


def test_a_drained_attempt_is_moved_and_spends_no_budget() -> None:
    (state,) = Simulation(policy=NO_RETRIES, drains=Drains(at=[100.0])).add(working(150.0)).drive()
    assert (causes(state), state.tasks["t0"].spent) == (["disrupted", "succeeded"], BudgetUse(moves=1))


def test_the_end_of_a_drained_attempt_carries_the_reason() -> None:
    simulation = Simulation(policy=NO_RETRIES, drains=Drains(at=[100.0], why="consolidated")).add(LONG)
    (state,) = simulation.drive()
    signals = next(event.signals for event in simulation.events() if isinstance(event, AttemptEnded))
    observed = (signals.moved, signals.signal, signals.noticed, signals.node_gone)
    assert observed == ("consolidated", 15, False, False)
    assert state.tasks["t0"].attempts[0].cause_why == "it was moved: consolidated"


def test_a_drained_attempt_that_ignores_sigterm_is_killed_after_its_grace_period() -> None:
    policy = {**NO_RETRIES, "grace_period": "20s"}
    simulation = Simulation(policy=policy, drains=Drains(at=[100.0])).add(working(500.0))
    simulation.drive()
    first = next(event for event in simulation.events() if isinstance(event, AttemptEnded))
    assert (first.at, first.signals.signal) == (120.0, 9)


def test_a_drained_attempt_that_succeeds_in_its_grace_period_has_succeeded() -> None:
    (state,) = Simulation(policy=NO_RETRIES, drains=Drains(at=[100.0])).add(working(110.0)).drive()
    assert causes(state) == ["succeeded"]


def test_a_moved_attempt_goes_on_at_once_on_the_same_rung() -> None:
    policy = {"spot": "prefer", "interruptions": {"max": 3, "backoff": "1h"}}
    simulation = Simulation([a_pool(max_nodes=2, node=None), ON_DEMAND], policy, drains=Drains(at=[100.0])).add(LONG)
    (state,) = simulation.drive()
    first, second = state.tasks["t0"].attempts
    assert (first.pool, second.pool) == ("spot", "spot")
    assert second.placed_at == first.ended_at


def test_a_drained_node_goes_when_its_attempts_have_ended() -> None:
    simulation = Simulation(policy=NO_RETRIES, drains=Drains(at=[100.0])).add(LONG)
    simulation.drive()
    gone = [event for event in simulation.events() if isinstance(event, NodeChanged) and event.state == "gone"]
    assert (gone[0].node, gone[0].at, gone[0].why) == ("spot-1", 101.0, "drained")


def test_a_task_survives_twenty_moves() -> None:
    drains = Drains(at=[10.0 * n for n in range(1, MAX_MOVES + 1)])
    (state,) = Simulation(policy=NO_RETRIES, drains=drains).add(LONG).drive()
    assert (state.status, causes(state)) == (RunStatus.SUCCEEDED, ["disrupted"] * MAX_MOVES + ["succeeded"])


def test_the_twenty_first_move_fails_the_task_and_says_so() -> None:
    drains = Drains(at=[10.0 * n for n in range(1, MAX_MOVES + 2)])
    (state,) = Simulation(policy=NO_RETRIES, drains=drains).add(LONG).drive()
    assert (state.status, causes(state)) == (RunStatus.FAILED, ["disrupted"] * (MAX_MOVES + 1))
    assert state.why == "task t0 failed: moved 21 times, the limit is 20"


def test_an_attempt_without_a_node_is_not_drained() -> None:
    (state,) = Simulation(policy=NO_RETRIES, drains=Drains(at=[1.0])).add(working(5.0)).drive()
    assert causes(state) == ["succeeded"]


def test_a_drain_evicts_every_attempt_of_its_node() -> None:
    (state,) = (
        Simulation(policy=NO_RETRIES, drains=Drains(at=[50.0])).add(working(100.0, stops_in=1.0), a_fan(2)).drive()
    )
    assert [causes(state, path) for path in ("t0", "t1")] == [["disrupted", "succeeded"]] * 2


def moments(drains: Drains, seed: int) -> list[float]:
    """When the attempts of a long task were evicted."""
    simulation = Simulation(drains=drains, seed=seed).add(lambda _: Behavior(5000.0, stops_in=0.5))
    simulation.drive()
    return [event.at for event in simulation.events() if isinstance(event, AttemptEnded) and event.signals.moved]


def test_a_rate_draws_the_moments_by_the_seed() -> None:
    assert moments(Drains(every=2000.0), 1) == moments(Drains(every=2000.0), 1)
    assert len({tuple(moments(Drains(every=2000.0), seed)) for seed in range(8)}) > 4


def test_drains_come_as_often_as_the_rate_says() -> None:
    gaps = [Drains(every=100.0).next_gap(seed, count) for seed in range(50) for count in range(50)]
    assert sum(gaps) / len(gaps) == pytest.approx(100.0, rel=0.05)


@given(st.integers(0, 1000), st.floats(20.0, 500.0), st.integers(1, 6), st.integers(0, 3), st.integers(0, 2))
def test_moves_charge_no_budget_and_are_bounded(
    seed: int, every: float, width: int, interruptions: int, retries: int
) -> None:
    """Only drains happen, so budgets are not charged, and tasks are moved at most as often as allowed."""
    policy = {"spot": "require", "interruptions": {"max": interruptions}, "errors": {"retries": retries}}
    simulation = Simulation(policy=policy, seed=seed, drains=Drains(every=every)).add(LONG, a_fan(width))
    (state,) = simulation.drive()
    for path, task in state.tasks.items():
        assert (task.spent.interruptions, task.spent.errors) == (0, 0)
        assert set(causes(state, path)) <= {"disrupted", "succeeded"}
        assert causes(state, path).count("disrupted") <= MAX_MOVES + 1
        assert (task.spent.moves > MAX_MOVES) == (causes(state, path)[-1] == "disrupted")


@given(st.integers(0, 1000), st.integers(0, 3))
def test_moves_and_interruptions_are_counted_apart(seed: int, most: int) -> None:
    pool = a_pool(simulate={"interrupt_every": 300.0})
    simulation = Simulation(
        [pool], {"spot": "require", "interruptions": {"max": most}}, seed, drains=Drains(every=200.0)
    )
    (state,) = simulation.add(working(400.0, stops_in=2.0), a_fan(3), seed=seed).drive()
    for path, task in state.tasks.items():
        assert task.spent.interruptions == causes(state, path).count("interrupted") <= most + 1
        assert task.spent.moves == causes(state, path).count("disrupted") <= MAX_MOVES + 1
