"""How simulated attempts end: notice, SIGTERM, checkpoints, halts."""

from __future__ import annotations

import pytest
from tests.engine.builders import a_chain, a_pool
from tests.simulation.builders import Simulation, causes, working
from tests.simulation.simulated_attempts import Behavior

from spotwright.engine.events import AttemptEnded, CancelRequested, ProgressReported, RunStatus
from spotwright.errors import SpotwrightError

LIVES_60S = a_pool(max_nodes=1, max_lifetime=60.0, notice=10.0)


def ends(simulation: Simulation) -> list[AttemptEnded]:
    simulation.drive()
    return [event for event in simulation.events() if isinstance(event, AttemptEnded)]


def seconds(simulation: Simulation) -> list[float]:
    """How long each attempt ran."""
    return [round(end.seconds or 0.0, 3) for end in ends(simulation)]


def test_an_attempt_that_ignores_sigterm_is_killed_with_its_node() -> None:
    simulation = Simulation([LIVES_60S]).add(lambda start: Behavior(100.0 if start.number == 1 else 1.0))
    first = ends(simulation)[0]
    assert (first.seconds, first.signals.signal, first.signals.node_gone) == (70.0, 9, True)


def test_an_attempt_that_handles_sigterm_ends_before_its_node() -> None:
    """SIGTERM comes with the notice, because the grace period of 30 s is longer than the notice of 10 s."""
    simulation = Simulation([LIVES_60S])
    simulation.add(lambda start: Behavior(100.0 if start.number == 1 else 1.0, stops_in=3.0))
    first = ends(simulation)[0]
    assert (first.seconds, first.signals.signal, first.signals.noticed) == (63.0, 15, True)


def test_the_next_attempt_does_the_work_that_the_checkpoint_does_not_hold() -> None:
    assert seconds(Simulation([LIVES_60S]).add(working(100.0, checkpoint_every=20.0))) == [70.0, 40.0]


def test_work_that_is_saved_on_sigterm_is_not_done_again() -> None:
    assert seconds(Simulation([LIVES_60S]).add(working(100.0, stops_in=4.0, saves_on_sigterm=True))) == [64.0, 36.0]


def test_without_checkpoints_a_long_task_never_ends_on_short_lived_nodes() -> None:
    simulation = Simulation([LIVES_60S], {"spot": "require", "interruptions": {"max": 3}}).add(working(100.0))
    (state,) = simulation.drive()
    assert (state.status, causes(state)) == (RunStatus.FAILED, ["interrupted"] * 4)


def test_a_failure_spends_the_error_budget() -> None:
    (state,) = Simulation(policy={"spot": "require", "errors": {"retries": 2}}).add(working(9, failure_rate=1)).drive()
    assert (causes(state), state.tasks["t0"].spent.errors) == (["failed"] * 3, 3)


@pytest.mark.parametrize(("stops_in", "finished_at"), [(None, 51.0), (5.0, 55.0)])
def test_a_cancelled_attempt_ends_as_it_handles_sigterm(stops_in: float | None, finished_at: float) -> None:
    simulation = Simulation().add(lambda _: Behavior(500.0, stops_in=stops_in), facts=[(50.0, CancelRequested)])
    (state,) = simulation.drive()
    assert (state.status, state.finished_at, causes(state)) == (RunStatus.CANCELLED, finished_at, ["cancelled"])


def test_a_cancelled_run_withdraws_its_waiting_attempts() -> None:
    simulation = Simulation([a_pool(max_nodes=0)]).add(working(5), facts=[(50.0, CancelRequested)])
    (state,) = simulation.drive()
    assert (state.status, state.finished_at) == (RunStatus.CANCELLED, 50.0)


def test_reports_become_progress_in_the_journal() -> None:
    simulation = Simulation().add(working(10.0, reports=2))
    simulation.drive()
    reports = [(event.at, event.value) for event in simulation.events() if isinstance(event, ProgressReported)]
    assert reports == [(7.0, 0.5), (12.0, 1.0)]


def test_reported_progress_decides_when_the_seeded_model_takes_the_node() -> None:
    pool = a_pool(simulate={"interrupt_every": 30.0}, notice=0.0)
    simulation = Simulation([pool], {"spot": "require", "interruptions": {"max": 50}})
    (state,) = simulation.add(working(100.0, reports=100, checkpoint_every=10.0), seed=4).drive()
    reported_at = {event.at for event in simulation.events() if isinstance(event, ProgressReported)}
    interrupted = [attempt for attempt in state.tasks["t0"].attempts if str(attempt.cause) == "interrupted"]
    assert interrupted
    assert {attempt.ended_at for attempt in interrupted} <= reported_at


def test_a_run_that_can_never_end_is_an_error_and_not_an_endless_loop() -> None:
    simulation = Simulation([a_pool(max_nodes=0)], {"spot": "require", "pending_timeout": "30d"}, horizon=1000.0)
    with pytest.raises(SpotwrightError, match=r"the horizon of the simulation is reached, and runs .*: run-1"):
        simulation.add(working(5)).drive()


def test_later_tasks_get_the_outputs_of_earlier_ones() -> None:
    simulation = Simulation().add(working(5), a_chain(3))
    (state,) = simulation.drive()
    assert [state.tasks[f"t{n}"].parameters["out"] for n in range(3)] == [1, 1, 1]
