"""Row 8 of the design's table through the engine: spot while there is slack, on-demand from the last moment."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest
from tests.engine.builders import (
    ON_DEMAND,
    SPOT,
    START,
    a_body,
    a_config,
    a_dag,
    a_fan,
    a_loop,
    a_plan,
    a_pool,
    a_task,
)
from tests.engine.driving import Crash, Run
from tests.engine.scripts import FAILED, MOVED, TAKEN, Behavior, Script, always, scripted
from tests.events import data_of

from spotwright.engine.events import NodeChanged, RunStatus
from spotwright.engine.fold import fold
from spotwright.engine.loop import replay_decisions
from spotwright.errors import ConfigError
from spotwright.model.policy import Spot
from spotwright.model.pools import Pool, Trace

GETS_ON = [Behavior(5, TAKEN, reports=2, done_before=done / 20, done_after=(done + 1) / 20) for done in range(15)]
"""Attempts of which each does another twentieth of the work and is interrupted then."""


def a_run(
    *pools: Pool, script: Script | None = None, traces: dict[str, Trace] | None = None, **settings: object
) -> Run:
    policy = {"spot": "prefer", "deadline": "1000s", "expected_duration": "100s", **settings}
    config = a_config(*(pools or (SPOT, ON_DEMAND)), policy={k: v for k, v in policy.items() if v is not None})
    return Run(a_plan([a_task("a")], config), script or always(Behavior(100.0)), traces=traces or {})


def placed(run: Run) -> list[tuple[float, str]]:
    placements = [event for event in run.events if event.kind in ("placed", "moved")]
    return [(round(event.at - START, 3), data_of(event)["pools"][0]) for event in placements]


def test_with_slack_it_runs_on_spot() -> None:
    run = a_run()
    run.start()
    assert run.pools("a") == ["spot"]


def test_without_stated_work_it_runs_on_demand_at_once() -> None:
    run = a_run(expected_duration=None)
    run.start()
    assert run.pools("a") == ["on-demand"]


def test_without_spot_capacity_it_waits_while_an_attempt_on_spot_and_another_one_would_fit() -> None:
    run = a_run(a_pool(max_nodes=0), ON_DEMAND)
    run.start()
    assert placed(run) == [
        (0, "spot"),
        (760, "on-demand"),
    ]  # two attempts of 103.5 s at most, 30.5 s to leave spot, in steps of 5 s


def test_the_deadline_is_kept_by_waiting_until_the_last_moment() -> None:
    run = a_run(a_pool(max_nodes=0), ON_DEMAND)
    run.start()
    assert run.world.now - START <= 1000


def test_interruptions_go_on_on_spot_while_there_is_slack() -> None:
    run = a_run(script=scripted({"a": [Behavior(50, TAKEN)] * 2}, Behavior(100)))
    run.start()
    assert run.pools("a") == ["spot", "spot", "spot"]


def test_an_interruption_after_the_last_moment_goes_to_on_demand_without_backoff() -> None:
    run = a_run(script=scripted({"a": [Behavior(950, TAKEN)]}, Behavior(100)))
    run.start()
    assert (run.pools("a"), "due" in data_of(run.events_of("decided")[0])) == (["spot", "on-demand"], False)


def test_a_backoff_ends_at_the_last_moment_for_spot() -> None:
    run = a_run(script=scripted({"a": [Behavior(600, TAKEN)]}, Behavior(100)), interruptions={"backoff": "300s"})
    run.start()
    assert placed(run)[-1] == (762.5, "on-demand")  # 1000 s less two attempts of 103.5 s and 30.5 s to leave spot


def test_after_more_interruptions_in_a_row_than_allowed_work_that_is_not_saved_goes_to_on_demand_for_the_rest() -> None:
    does = scripted({"a": [Behavior(1, TAKEN)] * 3}, Behavior(100))
    run = a_run(script=does, interruptions={"max": 2})
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.pools("a") == ["spot", "spot", "spot", "on-demand"]
    assert data_of(run.events_of("placed")[-1])["why"] == (
        "on-demand: 3 attempts in a row on spot got nowhere, and interruptions.max is 2"
    )


def test_interruptions_of_attempts_that_get_on_never_lead_to_on_demand_nor_to_a_failure() -> None:
    does = scripted({"a": GETS_ON}, Behavior(25, done_before=0.75))
    run = a_run(script=does, interruptions={"max": 1}, checkpoint="pvc://ckpt", deadline="2000s")
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.pools("a") == ["spot"] * 16


def test_spot_stays_left_after_its_useless_attempts_whatever_happens_on_on_demand() -> None:
    useless = [Behavior(1, TAKEN)] * 2
    does = scripted({"a": [*useless, Behavior(50, TAKEN, reports=5, done_after=0.5)]}, Behavior(50, done_before=0.5))
    run = a_run(script=does, interruptions={"max": 1}, checkpoint="pvc://ckpt", deadline="2000s")
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.pools("a") == ["spot", "spot", "on-demand", "on-demand"]


def test_losses_of_on_demand_nodes_are_bounded_by_their_own_number() -> None:
    run = a_run(script=always(Behavior(1, TAKEN)), interruptions={"max": 1})
    assert run.start().status is RunStatus.FAILED
    assert run.pools("a") == ["spot", "spot", "on-demand", "on-demand"]
    assert run.state.tasks["a"].why.endswith(
        "2 attempts in a row were interrupted on on-demand and got nowhere, interruptions.max is 1"
    )


def test_without_on_demand_a_task_fails_after_more_useless_attempts_in_a_row_than_allowed() -> None:
    run = a_run(
        SPOT,
        script=always(Behavior(1, TAKEN)),
        interruptions={"max": 2},
        spot="require",
        deadline="1000s best-effort",
    )
    assert run.start().status is RunStatus.FAILED
    assert run.pools("a") == ["spot"] * 3
    assert run.state.tasks["a"].why.endswith(
        "3 attempts in a row were interrupted and got nowhere, interruptions.max is 2"
    )


def test_without_on_demand_a_task_that_gets_on_goes_on() -> None:
    run = a_run(
        SPOT,
        script=scripted({"a": GETS_ON}, Behavior(25, done_before=0.75)),
        interruptions={"max": 1},
        spot="require",
        deadline="1000s best-effort",
        checkpoint="pvc://ckpt",
    )
    assert run.start().status is RunStatus.SUCCEEDED


def test_a_pool_that_was_just_lost_is_left_for_one_of_the_same_price_without_a_backoff() -> None:
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, script=scripted({"a": [Behavior(1, TAKEN)]}, Behavior(100)))
    run.start()
    assert (run.pools("a"), "wait" in data_of(run.events_of("decided")[0])) == (["spot", "spot-b"], False)


def test_the_cheaper_pool_comes_first_also_after_a_loss() -> None:
    pools = (
        a_pool("dear", price=Fraction(2)),
        a_pool("cheap", price=Fraction(1)),
        a_pool("on-demand", spot=False, price=Fraction(9)),
    )
    run = a_run(*pools, script=scripted({"a": [Behavior(1, TAKEN)]}, Behavior(100)))
    run.start()
    assert run.pools("a") == ["cheap", "cheap"]


@pytest.mark.parametrize(("spot", "on_demand"), [("12", None), (None, "0.2")])
def test_where_one_pool_has_no_price_the_others_are_not_compared_with_a_guess(
    spot: str | None, on_demand: str | None
) -> None:
    prices = [price and Fraction(price) for price in (spot, on_demand)]
    pools = [a_pool(price=prices[0]), a_pool("on-demand", spot=False, price=prices[1])]
    policy = {"deadline": "1000s", "expected_duration": "100s", "checkpoint": "pvc://ckpt"}
    run = Run(a_plan([a_task("a")], a_config(*pools, policy=policy)), always(Behavior(100)))
    run.start()
    assert run.pools("a") == ["spot"]
    assert "the price of" in str(data_of(run.events_of("placed")[0])["why"])


def test_a_full_pool_is_left_for_one_with_room() -> None:
    run = a_run(a_pool(max_nodes=0), a_pool("spot-b"), ON_DEMAND)
    run.start()
    assert run.pools("a") == ["spot-b"]


def test_an_attempt_that_waits_goes_to_another_spot_pool_soon_after_that_has_room() -> None:
    traces = {"spot": Trace(2000.0, (0,)), "spot-b": Trace(650.0, (0, 1))}
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, traces=traces)
    run.start()
    [(_, first), (moment, second)] = placed(run)
    assert (first, second) == ("spot", "spot-b")
    assert 650 <= moment < 670
    assert run.pools("a") == ["spot-b"]


@pytest.mark.parametrize("ending", [FAILED, MOVED])
def test_errors_and_disruptions_stay_on_the_same_rung_under_a_deadline(ending: object) -> None:
    traces = {"spot": Trace(50.0, (0, *[4] * 40)), "spot-b": Trace(2000.0, (4,))}
    does = scripted({"a": [Behavior(100, ending)]}, Behavior(100))  # type: ignore[arg-type]
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, script=does, traces=traces, errors={"retries": 1})
    run.start()
    assert run.pools("a") == ["spot-b", "spot-b"]


def test_progress_without_a_checkpoint_does_not_move_the_last_moment() -> None:
    run = a_run(script=scripted({"a": [Behavior(920, TAKEN, reports=10)]}, Behavior(100)))
    run.start()
    assert run.pools("a") == ["spot", "on-demand"]


def test_progress_with_a_checkpoint_moves_the_last_moment() -> None:
    does = scripted({"a": [Behavior(920, TAKEN, reports=40)]}, Behavior(10))
    run = a_run(script=does, checkpoint="pvc://ckpt", deadline="1040s")
    run.start()
    assert run.pools("a") == ["spot", "spot"]


def test_an_attempt_does_not_wait_for_ever_for_an_on_demand_node() -> None:
    run = a_run(a_pool(max_nodes=0), a_pool("on-demand", spot=False, max_nodes=0))
    run.start()
    assert (run.state.status, run.causes("a")) == (RunStatus.FAILED, ["unschedulable"])


def test_an_attempt_whose_engine_was_lost_until_after_the_deadline_still_gets_its_on_demand_node() -> None:
    run = a_run(a_pool(max_nodes=0), ON_DEMAND, deadline="102s")
    run.journal.crash_on, run.journal.before = "bound", True
    with pytest.raises(Crash):
        run.start()
    assert run.resume(after=300.0).status is RunStatus.SUCCEEDED
    assert run.pools("a") == ["on-demand"]


NO_ON_DEMAND = a_pool("on-demand", spot=False, max_nodes=0)


@pytest.mark.parametrize("checkpoint", [None, "pvc://ckpt"])
def test_an_attempt_stays_on_spot_where_on_demand_cannot_be_had_and_it_is_told(checkpoint: str | None) -> None:
    run = a_run(SPOT, NO_ON_DEMAND, script=always(Behavior(990)), checkpoint=checkpoint)
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.pools("a") == ["spot"]
    assert "no on-demand pool has room now, and in " in data_of(run.events_of("placed")[0])["why"]
    assert run.events_of("halted") == []


def test_at_the_last_moment_spot_is_taken_where_on_demand_cannot_be_had() -> None:
    run = a_run(SPOT, NO_ON_DEMAND, deadline="110s")
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.pools("a") == ["spot"]


def test_spot_that_comes_back_while_on_demand_cannot_be_had_is_taken_before_the_deadline() -> None:
    run = a_run(SPOT, NO_ON_DEMAND, traces={"spot": Trace(850.0, (0, 1))})
    assert run.start().status is RunStatus.SUCCEEDED
    assert (run.pools("a"), run.world.now - START <= 1000) == (["spot"], True)


def test_an_on_demand_node_that_is_free_again_is_taken() -> None:
    """The first task holds the only on-demand node when the second one needs it, and spot is gone."""
    pool = a_pool("on-demand", spot=False, max_nodes=1, node=None)
    config = a_config(
        a_pool(max_nodes=0), pool, policy={"spot": "prefer", "deadline": "30m", "expected_duration": "700s"}
    )
    run = Run(a_plan(a_fan(2), config), always(Behavior(700.0)))
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.world.now - START <= 1800 + 702  # one of them has to be late by the other


def test_of_two_tasks_with_deadlines_that_want_one_on_demand_node_the_other_takes_spot() -> None:
    """Both ask at once, so the other one sees at its next look that the node is taken."""
    pool = a_pool("on-demand", spot=False, max_nodes=1, node=None)
    config = a_config(
        a_pool(node=None), pool, policy={"spot": "prefer", "deadline": "705s", "expected_duration": "700s"}
    )
    run = Run(a_plan(a_fan(2), config), always(Behavior(700.0)))
    assert (run.start().status, run.world.now - START) == (RunStatus.SUCCEEDED, 120 + 702)
    assert {pool for task in run.state.tasks.values() for pool in run.pools(task.path)} == {"on-demand", "spot"}


def test_an_attempt_waits_for_on_demand_nodes_that_its_own_run_holds() -> None:
    pool = a_pool("on-demand", spot=False, max_nodes=1, node=None)
    config = a_config(pool, policy={"spot": "prefer", "deadline": "1h", "expected_duration": "700s"})
    run = Run(a_plan(a_fan(2), config), always(Behavior(700.0)))
    assert (run.start().status, run.world.now - START) == (RunStatus.SUCCEEDED, 1402)


def test_required_spot_with_a_best_effort_deadline_waits_for_spot_up_to_the_deadline() -> None:
    run = a_run(SPOT, traces={"spot": Trace(950.0, (0, 1))}, spot="require", deadline="1000s best-effort")
    run.start()
    assert (run.pools("a"), run.causes("a")) == (["spot"], ["succeeded"])


def test_required_spot_is_given_up_after_the_deadline() -> None:
    run = a_run(a_pool(max_nodes=0), spot="require", deadline="1000s best-effort")
    run.start()
    assert (run.causes("a"), run.world.now - START) == (["unschedulable"], 1000)


def test_a_deadline_beside_required_spot_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be guaranteed with spot: require"):
        a_run(spot="require").start()


def test_a_deadline_leaves_room_for_downstream_tasks() -> None:
    """Task a has 1000 s, which include 700 s of work after it on the longest path."""
    stated = {
        "a": {"expected_duration": "100s"},
        "b": {"expected_duration": "200s"},
        "loop/*": {"expected_duration": "250s"},
        "c": {"expected_duration": "50s"},
    }
    config = a_config(a_pool(max_nodes=0), ON_DEMAND, policy={"deadline": "1000s"}, tasks=stated)
    inside = a_dag(a_task("x"), a_task("y", "x"), out="y")
    root = [a_task("a"), a_task("b", "a"), a_task("loop", "a", dag="inside", parameters={}), a_task("c", "b", "loop")]
    plan = a_plan(root, config, inside=inside)
    downstream = {p.path: p.downstream for p in (*plan.unfold(""), *plan.unfold("loop"))}
    assert downstream == {"a": 550, "b": 50, "loop": 50, "c": 0, "loop/x": 300, "loop/y": 50}


def test_a_deadline_leaves_room_for_the_iterations_of_a_loop_that_follow_under_its_limit() -> None:
    """Five iterations of 100 s, two at a time, and 50 s after them: three rounds."""
    stated = {
        "before": {"expected_duration": "10s"},
        "**/x*": {"expected_duration": "100s"},
        "c": {"expected_duration": "50s"},
    }
    config = a_config(a_pool(), ON_DEMAND, policy={"deadline": "1000s"}, tasks=stated)
    root = [a_task("before"), a_loop("loop", "before", items=(1,) * 5, limit=2), a_task("c", "loop")]
    run = Run(a_plan(root, config, body=a_body(a_task("x"))))
    run.start()
    found = {path: (task.plan.downstream, task.plan.steps_after) for path, task in run.state.tasks.items()}
    rounds = {f"loop/x-{index}": (50 + 100 * later, 1 + later) for index, later in enumerate((2, 1, 1, 0, 0))}
    assert found == {"before": (350, 4), "loop": (50, 1), "c": (0, 0), **rounds}


def test_a_deadline_alone_prefers_spot() -> None:
    config = a_config(policy={"deadline": "1000s", "expected_duration": "100s"})
    planned = a_plan([a_task("a")], config).unfold("")[0]
    assert (planned.policy.spot, planned.policy.sources["spot"]) == (Spot.PREFER, "default")


def test_a_run_under_a_deadline_replays_from_its_journal() -> None:
    traces = {"spot": Trace(70.0, (0, 1, 2)), "spot-b": Trace(650.0, (0, 1))}
    script = scripted({"a": [Behavior(50, TAKEN), Behavior(30, MOVED), Behavior(200, TAKEN)]}, Behavior(100))
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, script=script, traces=traces)
    run.start()
    replay_decisions(run.plans, run.events)


def test_a_pool_that_is_not_simulated_leaves_room_for_the_boot_that_it_expects() -> None:
    run = a_run(a_pool(max_nodes=0), a_pool("on-demand", spot=False, boot=90.0))
    run.start()
    assert placed(run) == [
        (0, "spot"),
        (530, "on-demand"),
    ]  # the last look before 1000 s less two of 213.5 s at most and 30.5 s to leave spot


def test_a_measured_boot_replaces_the_expected_one() -> None:
    slow = a_pool("on-demand", spot=False, boot=90.0, simulate={"boot": 20.0})
    tasks = {"a": {"spot": "never"}, "b": {"spot": "prefer", "deadline": "1000s", "expected_duration": "100s"}}
    config = a_config(a_pool(max_nodes=0), slow, tasks=tasks)
    run = Run(a_plan([a_task("a"), a_task("b", "a")], config), always(Behavior(100.0)))
    run.start()
    assert placed(run) == [
        (0, "on-demand"),
        (120, "spot"),
        (715, "on-demand"),
    ]  # two attempts of 126 s at most, not of 190 s


def test_a_node_that_was_ready_when_it_was_first_seen_measures_no_boot() -> None:
    run = a_run()
    fold(run.state, NodeChanged(START, node="n1", pool="on-demand", state="ready"))
    assert run.state.boots == {}


# Tasks that save their work: the solved policy decides


def test_a_task_that_saves_its_work_waits_for_spot_and_names_its_numbers() -> None:
    run = a_run(a_pool(max_nodes=0), ON_DEMAND, checkpoint="pvc://ckpt")
    run.start()
    [first, second] = [data_of(event) for event in run.events if event.kind in ("placed", "moved")]
    assert (
        first["why"]
        == "waits for spot: 14m58s of slack, expected to save the price of 4.2s on on-demand over going to on-demand now"
    )
    assert "on-demand: a later switch could not finish in time: 1m41s of work" in second["why"]
    assert run.world.now - START <= 1000


@pytest.mark.parametrize(("scale", "saved"), [(1.0, "0.34 USD"), (600.0, "0.0006 USD")])
def test_what_a_decision_saves_is_told_in_the_real_time_that_the_account_counts(scale: float, saved: str) -> None:
    work = 36_000 / scale
    policy = {
        "deadline": f"{60_000 / scale}s",
        "expected_duration": f"{work}s",
        "checkpoint": "pvc://ckpt",
        "grace_period": "30s",
    }
    config = a_config(a_pool(price=Fraction(1)), a_pool("on-demand", spot=False, price=Fraction(3)), policy=policy)
    run = Run(a_plan([a_task("a")], config), always(Behavior(work)), scale=scale)
    run.start()
    assert f"spot is expected to save {saved} over going to on-demand now" in str(
        data_of(run.events_of("placed")[0])["why"]
    )


def test_a_task_that_saves_its_work_goes_to_on_demand_before_waiting_has_used_up_its_slack() -> None:
    run = a_run(a_pool(max_nodes=0), ON_DEMAND, checkpoint="pvc://ckpt")
    run.start()
    [(_, first), (moment, second)] = placed(run)
    assert (first, second) == ("spot", "on-demand")
    assert 0 < moment < 898


def test_a_task_that_saves_its_work_meets_its_deadline_after_interruptions_and_replays() -> None:
    script = scripted({"a": [Behavior(35, TAKEN, reports=5, done_after=0.3)] * 3}, Behavior(70))
    run = a_run(script=script, checkpoint="pvc://ckpt", deadline="600s")
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.world.now - START <= 600
    replay_decisions(run.plans, run.events)


def test_an_impossible_deadline_says_by_how_much() -> None:
    run = a_run(deadline="50s")
    run.start()
    why = data_of(run.events_of("placed")[0])["why"]
    assert why == "on-demand: it ends 52s after its deadline at the earliest; a deadline later by that can be met"


def test_an_engine_without_a_deadline_never_imports_numpy() -> None:
    code = (
        "import sys, spotwright.engine.loop, spotwright.engine.decide, spotwright.cli.run_session, "
        "spotwright.local.backend; sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
