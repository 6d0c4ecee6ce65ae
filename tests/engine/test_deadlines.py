"""Row 8 through the engine: spot while there is slack, on-demand from the last moment."""

from __future__ import annotations

import pytest
from tests.engine.builders import ON_DEMAND, SPOT, START, a_config, a_dag, a_fan, a_plan, a_pool, a_task
from tests.engine.driving import Run, decided_again
from tests.engine.world import FAILED, MOVED, TAKEN, Does, Script, always, scripted

from spotwright.engine.state import RunStatus
from spotwright.errors import ConfigError
from spotwright.model.policy import Spot
from spotwright.model.pools import Pool
from spotwright.model.traces import Trace


def a_run(*pools: Pool, script: Script | None = None, traces: dict[str, Trace] | None = None, **said: object) -> Run:
    policy = {"spot": "prefer", "deadline": "1000s", "work": "100s", **said}
    config = a_config(*(pools or (SPOT, ON_DEMAND)), policy={k: v for k, v in policy.items() if v is not None})
    return Run(a_plan([a_task("a")], config), script or always(Does(100.0)), traces=traces or {})


def placed(run: Run) -> list[tuple[float, str]]:
    told = [event for event in run.events if event.kind in ("placed", "moved")]
    return [(round(event.at - START, 3), event.data["pools"][0]) for event in told]


def test_with_slack_it_runs_on_spot() -> None:
    run = a_run()
    run.start()
    assert run.pools("a") == ["spot"]


def test_without_stated_work_it_runs_on_demand_at_once() -> None:
    run = a_run(work=None)
    run.start()
    assert run.pools("a") == ["on-demand"]


def test_without_spot_capacity_it_waits_until_the_last_moment() -> None:
    run = a_run(a_pool(max_nodes=0), ON_DEMAND)
    run.start()
    assert placed(run) == [(0, "spot"), (898, "on-demand")]  # 1000 s less 100 s of work less 2 s to boot


def test_the_deadline_is_kept_by_waiting_until_the_last_moment() -> None:
    run = a_run(a_pool(max_nodes=0), ON_DEMAND)
    run.start()
    assert run.world.now - START <= 1000


def test_interruptions_go_on_on_spot_while_there_is_slack() -> None:
    run = a_run(script=scripted({"a": [Does(50, TAKEN)] * 2}, Does(100)))
    run.start()
    assert run.pools("a") == ["spot", "spot", "spot"]


def test_an_interruption_after_the_last_moment_goes_to_on_demand_without_backoff() -> None:
    run = a_run(script=scripted({"a": [Does(950, TAKEN)]}, Does(100)))
    run.start()
    assert (run.pools("a"), "due" in run.told("decided")[0].data) == (["spot", "on-demand"], False)


def test_a_backoff_ends_at_the_last_moment() -> None:
    run = a_run(script=scripted({"a": [Does(850, TAKEN)]}, Does(100)), interruptions={"backoff": "300s"})
    run.start()
    assert placed(run)[-1] == (898, "on-demand")


def test_the_last_allowed_interruption_is_followed_by_on_demand() -> None:
    run = a_run(script=scripted({"a": [Does(1, TAKEN)] * 2}, Does(100)), interruptions={"max": 2})
    run.start()
    assert run.pools("a") == ["spot", "spot", "on-demand"]


def test_a_backoff_comes_before_a_return_to_the_same_pool_only() -> None:
    """The deadline chooses the first rung with room: that is the pool it was taken from, whatever row 6 would say."""
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, script=scripted({"a": [Does(1, TAKEN)]}, Does(100)))
    run.start()
    assert (run.pools("a"), run.told("decided")[0].data["wait"]) == (["spot", "spot"], 1.0)


def test_a_full_pool_is_left_for_one_with_room() -> None:
    run = a_run(a_pool(max_nodes=0), a_pool("spot-b"), ON_DEMAND)
    run.start()
    assert run.pools("a") == ["spot-b"]


def test_waiting_goes_from_one_spot_pool_to_the_other() -> None:
    traces = {"spot": Trace(2000.0, (0,)), "spot-b": Trace(650.0, (0, 1))}
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, traces=traces)
    run.start()
    assert placed(run)[:2] == [(0, "spot"), (600, "spot-b")]
    assert run.pools("a") == ["spot-b"]


@pytest.mark.parametrize("ending", [FAILED, MOVED])
def test_rows_4_and_5_stay_the_same_rung(ending: object) -> None:
    traces = {"spot": Trace(50.0, (0, *[4] * 40)), "spot-b": Trace(2000.0, (4,))}
    does = scripted({"a": [Does(100, ending)]}, Does(100))  # type: ignore[arg-type]
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, script=does, traces=traces, errors={"retries": 1})
    run.start()
    assert run.pools("a") == ["spot-b", "spot-b"]


def test_progress_that_nothing_saves_does_not_move_the_last_moment() -> None:
    run = a_run(script=scripted({"a": [Does(920, TAKEN, reports=10)]}, Does(100)))
    run.start()
    assert run.pools("a") == ["spot", "on-demand"]


def test_progress_that_a_checkpoint_saves_moves_the_last_moment() -> None:
    run = a_run(script=scripted({"a": [Does(920, TAKEN, reports=10)]}, Does(10)), checkpoint="pvc://ckpt")
    run.start()
    assert run.pools("a") == ["spot", "spot"]


def test_on_demand_that_has_no_node_is_not_waited_for_for_ever() -> None:
    run = a_run(a_pool(max_nodes=0), a_pool("on-demand", spot=False, max_nodes=0))
    run.start()
    assert (run.state.status, run.causes("a")) == (RunStatus.FAILED, ["unschedulable"])


def test_on_demand_that_the_runs_own_attempts_hold_is_waited_for() -> None:
    pool = a_pool("on-demand", spot=False, max_nodes=1, node=None)
    config = a_config(pool, policy={"spot": "prefer", "deadline": "1h", "work": "700s"})
    run = Run(a_plan(a_fan(2), config), always(Does(700.0)))
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
    with pytest.raises(ConfigError, match="cannot be kept beside spot: require"):
        a_run(spot="require").start()


def test_a_deadline_leaves_room_for_what_follows() -> None:
    """a has 1000 s for itself and 700 s of what comes after it, on the longest path."""
    stated = {"a": {"work": "100s"}, "b": {"work": "200s"}, "loop/*": {"work": "250s"}, "c": {"work": "50s"}}
    config = a_config(a_pool(max_nodes=0), ON_DEMAND, policy={"deadline": "1000s"}, tasks=stated)
    inside = a_dag(a_task("x"), a_task("y", "x"), out="y")
    root = [a_task("a"), a_task("b", "a"), a_task("loop", "a", dag="inside", parameters={}), a_task("c", "b", "loop")]
    plan = a_plan(root, config, inside=inside)
    downstream = {p.path: p.downstream for p in (*plan.unfold(""), *plan.unfold("loop"))}
    assert downstream == {"a": 550, "b": 50, "loop": 50, "c": 0, "loop/x": 300, "loop/y": 50}


def test_a_deadline_alone_prefers_spot() -> None:
    config = a_config(policy={"deadline": "1000s", "work": "100s"})
    planned = a_plan([a_task("a")], config).unfold("")[0]
    assert (planned.policy.spot, planned.policy.sources["spot"]) == (Spot.PREFER, "default")


def test_a_run_under_a_deadline_replays_from_its_journal() -> None:
    traces = {"spot": Trace(70.0, (0, 1, 2)), "spot-b": Trace(650.0, (0, 1))}
    script = scripted({"a": [Does(50, TAKEN), Does(30, MOVED), Does(200, TAKEN)]}, Does(100))
    run = a_run(SPOT, a_pool("spot-b"), ON_DEMAND, script=script, traces=traces)
    run.start()
    assert decided_again(run.plans, run.events, run.answers) == run.events
