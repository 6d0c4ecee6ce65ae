"""Row 7 of the design's table through the engine: pending, climbing, unschedulable."""

from __future__ import annotations

from tests.engine.builders import ON_DEMAND, START, a_config, a_fan, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, TAKEN, Behavior, Script, always, scripted
from tests.events import data_of

from spotwright.engine.events import RunStatus
from spotwright.engine.loop import replay_decisions
from spotwright.model.pools import Pool, Trace
from spotwright.supply.node_fit import AttemptKey

NO_SPOT, NO_ON_DEMAND = a_pool(max_nodes=0), a_pool("on-demand", spot=False, max_nodes=0)
SPOT_B = a_pool("spot-b")


def a_run(*pools: Pool, script: Script | None = None, scale: float = 1.0, **settings: object) -> Run:
    config = a_config(*pools, policy={"spot": "prefer", "pending_timeout": "60s", **settings})
    return Run(a_plan([a_task("a")], config), script or always(Behavior()), scale=scale)


def waits(run: Run) -> list[tuple[float, str]]:
    """When the attempt was put on which pool, in seconds since the start."""
    placements = [event for event in run.events if event.kind in ("placed", "moved")]
    return [(event.at - START, data_of(event)["pools"][0]) for event in placements]


def test_without_a_node_it_climbs_after_the_timeout() -> None:
    run = a_run(NO_SPOT, ON_DEMAND)
    run.start()
    assert waits(run) == [(0, "spot"), (60, "on-demand")]


def test_climbing_charges_nothing() -> None:
    run = a_run(NO_SPOT, ON_DEMAND)
    run.start()
    assert (run.causes("a"), len(run.events_of("decided"))) == (["succeeded"], 1)


def test_it_climbs_every_rung_in_order() -> None:
    run = a_run(NO_SPOT, a_pool("spot-b", max_nodes=0), ON_DEMAND)
    run.start()
    assert waits(run) == [(0, "spot"), (60, "spot-b"), (120, "on-demand")]


def test_after_the_last_rung_it_is_unschedulable() -> None:
    run = a_run(NO_SPOT, NO_ON_DEMAND)
    assert (run.start().status, run.causes("a"), run.world.now - START) == (RunStatus.FAILED, ["unschedulable"], 120)


def test_unschedulable_names_the_reason_of_each_rung() -> None:
    run = a_run(NO_SPOT, NO_ON_DEMAND)
    run.start()
    assert run.state.tasks["a"].last.cause_why == (
        "no node on spot for 60s: spot: max_nodes is 0; no node on on-demand for 60s: on-demand: max_nodes is 0"
    )


def test_an_unschedulable_attempt_waits_for_no_node_any_more() -> None:
    run = a_run(NO_SPOT, NO_ON_DEMAND)
    run.start()
    assert run.world.supply.why_pending(AttemptKey("run", "a", 1)) == "it does not wait"


def test_the_last_rung_of_required_spot_is_a_spot_rung() -> None:
    run = a_run(NO_SPOT, ON_DEMAND, spot="require")
    run.start()
    assert (waits(run), run.causes("a")) == ([(0, "spot")], ["unschedulable"])


# A node that boots is not waited for in vain


def stays(run: Run) -> list[tuple[float, str]]:
    """When an attempt that waited was left on its rung, in seconds since the start, and why."""
    return [(event.at - START, data_of(event)["why"]) for event in run.events_of("kept")]


def test_the_time_to_boot_does_not_count_as_waiting() -> None:
    run = a_run(a_pool(simulate={"boot": 90.0}), ON_DEMAND)
    run.start()
    assert (waits(run), run.pools("a")) == ([(0, "spot")], ["spot"])
    assert stays(run) == [(60, "waits on for spot: spot-1 is on its way")]


def test_a_boot_that_takes_longer_than_the_timeout_does_not_fail_a_task_on_its_last_rung() -> None:
    run = a_run(a_pool("on-demand", spot=False, simulate={"boot": 900.0}), spot="never", pending_timeout="600s")
    assert run.start().status is RunStatus.SUCCEEDED


def test_an_attempt_for_which_no_node_boots_waits_in_vain_beside_one_for_which_one_does() -> None:
    config = a_config(
        a_pool(simulate={"boot": 90.0}, max_nodes=1, node=None),
        ON_DEMAND,
        policy={"spot": "prefer", "pending_timeout": "60s"},
    )
    run = Run(a_plan(a_fan(2), config), always(Behavior(500.0)))
    run.start()
    assert waits(run) == [(0, "spot"), (0, "spot"), (60, "on-demand")]


def test_a_node_that_is_lost_while_it_boots_is_waited_for_no_longer() -> None:
    traces = {"spot": Trace(100.0, (4, *[0] * 40))}
    config = a_config(
        a_pool(boot=900.0, simulate={"boot": 900.0}, notice=0.0),
        ON_DEMAND,
        policy={"pending_timeout": "60s", "spot": "prefer"},
    )
    run = Run(a_plan([a_task("a")], config), always(Behavior()), traces=traces)
    assert run.start().status is RunStatus.SUCCEEDED
    assert waits(run) == [(0, "spot"), (172.5, "on-demand")]


def test_a_node_that_never_gets_ready_is_waited_for_up_to_a_bound_which_is_told() -> None:
    never = a_pool("on-demand", spot=False, boot=60.0, simulate={"boot": 1e6})
    run = a_run(never, spot="never")
    assert run.start().status is RunStatus.FAILED
    assert run.world.now - START == 960
    assert run.state.tasks["a"].last.cause_why == (
        "no node on on-demand for 960s: on-demand: 1 node booting, and on-demand-1 is not waited for any longer"
    )


def test_nodes_that_are_lost_while_they_boot_again_and_again_are_waited_for_up_to_the_same_bound() -> None:
    traces = {"spot": Trace(30.0, (1, 0, *[1, 1, 1, 0] * 100))}
    slow = a_pool(simulate={"boot": 100.0}, notice=0.0)
    config = a_config(slow, ON_DEMAND, policy={"pending_timeout": "60s", "spot": "prefer"})
    run = Run(a_plan([a_task("a")], config), always(Behavior()), traces=traces)
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.pools("a") == ["on-demand"]
    assert run.world.now - START < 1000


def test_a_run_that_waits_for_a_node_that_boots_replays_from_its_journal() -> None:
    run = a_run(a_pool(simulate={"boot": 90.0}), ON_DEMAND)
    run.start()
    replay_decisions(run.plans, run.events)


def test_a_backoff_does_not_count_as_waiting() -> None:
    script = scripted({"a": [Behavior(1, TAKEN)]})
    run = a_run(
        a_pool(max_nodes=1, notice=0.0), script=script, interruptions={"backoff": "300s", "max_backoff": "300s"}
    )
    run.start()
    assert [data_of(event)["until"] - event.at for event in run.events_of("placed")] == [60, 60]


def test_the_time_scale_divides_the_timeout() -> None:
    run = a_run(NO_SPOT, ON_DEMAND, scale=10.0)
    run.start()
    assert waits(run) == [(0, "spot"), (6, "on-demand")]


def test_after_a_climb_and_an_interruption_the_next_attempt_begins_at_the_first_rung() -> None:
    trace = {"spot": Trace(100.0, (0, 4, 4, 4, 4, 4))}
    run = a_run(a_pool(), ON_DEMAND, script=scripted({"a": [Behavior(100, TAKEN)]}))
    run.traces = trace
    run.world = run.a_world(run.state)
    run.start()
    assert run.pools("a") == ["on-demand", "spot"]


def test_after_a_climb_and_an_error_the_next_attempt_stays_on_the_same_rung() -> None:
    run = a_run(NO_SPOT, ON_DEMAND, script=scripted({"a": [Behavior(1, FAILED)]}), errors={"retries": 1})
    run.start()
    assert waits(run)[-1] == (64, "on-demand")


def test_capacity_that_comes_back_in_time_is_used() -> None:
    run = a_run(a_pool(), ON_DEMAND)
    run.traces = {"spot": Trace(50.0, (0, 1))}
    run.world = run.a_world(run.state)
    run.start()
    assert run.pools("a") == ["spot"]


# What waits for this run's own attempts only waits its turn


def a_queue(*pools: Pool, **settings: object) -> Run:
    config = a_config(*pools, policy={"spot": "require", "pending_timeout": "60s", **settings})
    return Run(a_plan(a_fan(3), config), always(Behavior(100.0)))


def test_a_queue_that_takes_longer_than_the_timeout_is_served() -> None:
    run = a_queue(a_pool(max_nodes=1, node=None))
    assert (run.start().status, run.world.now - START) == (RunStatus.SUCCEEDED, 302)


def test_an_attempt_that_waits_for_its_own_run_says_so() -> None:
    run = a_queue(a_pool(max_nodes=1, node=None))
    run.start()
    assert data_of(run.events_of("moved")[0])["why"] == (
        "no node on spot for 60s: spot: its only node is in use (max_nodes is 1)"
    )


def test_an_attempt_that_waits_for_its_own_run_begins_at_the_first_rung_again() -> None:
    run = a_queue(a_pool(max_nodes=1, node=None), NO_ON_DEMAND, spot="prefer")
    run.start()
    assert [data_of(event)["pools"][0] for event in run.events if event.task == "t2" and "pools" in data_of(event)][
        :4
    ] == [
        "spot",
        "on-demand",
        "spot",
        "on-demand",
    ]


def test_an_attempt_does_not_wait_for_nodes_that_no_attempt_holds() -> None:
    """The first attempt has ended and the trace has no node any more, so the second attempt waits for capacity."""
    run = a_queue(a_pool(max_nodes=1, node=None, notice=0.0))
    run.traces = {"spot": Trace(110.0, (1, 0, 0, 0, 0, 0, 0, 0, 0))}
    run.world = run.a_world(run.state)
    run.start()
    assert run.state.status is RunStatus.FAILED
    assert "no capacity: the trace has 0 nodes now" in run.state.why
