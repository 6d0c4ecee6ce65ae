"""The plan of a run: policies by precedence, ladders, refusals before the start, and notes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engine.builders import ON_DEMAND, SPOT, a_config, a_dag, a_loop, a_pipeline, a_plan, a_task
from tests.engine.driving import Run

from spotwright.config import Config
from spotwright.engine.events import RunStatus
from spotwright.engine.plan import Plan
from spotwright.errors import ConfigError, InputError, PipelineError
from spotwright.graph import TaskGraph, TaskOutput
from spotwright.model.policy import Layer, Policy, Spot

RETRIES = "errors.retries"


def layer(source: str, **values: Any) -> Layer:
    return Layer(source, {name.replace("__", "."): value for name, value in values.items()})


def policy_of(plan: Plan, path: str = "a") -> Policy:
    scope, _, _ = path.rpartition("/")
    return next(planned.policy for planned in plan.unfold(scope) if planned.path == path)


# Precedence: flags > policy.tasks > the pipeline > KFP's own settings > policy.default > built in


@pytest.mark.parametrize("weaker", range(6))
def test_the_stronger_layer_of_a_policy_wins(weaker: int) -> None:
    places = [
        ("built in", 0), ("default", 1), ("set_retry", 2), ("pipeline", 3), ("a", 4), ("--retries", 5),
    ]  # fmt: skip
    given = dict(places[1 : weaker + 1])
    spec = a_task("a", retry=layer("set_retry", errors__retries=2) if "set_retry" in given else None)
    pipeline = a_pipeline([spec])
    if "pipeline" in given:
        pipeline = TaskGraph("pipeline", pipeline.root, pipeline.dags, layer("pipeline", errors__retries=3))
    config = a_config(
        policy={"errors": {"retries": 1}} if "default" in given else None,
        tasks={"a": {"errors": {"retries": 4}}} if "a" in given else None,
    )
    flags = layer("--retries", errors__retries=5) if "--retries" in given else None
    policy = policy_of(Plan(pipeline, config, flags))
    assert (policy.sources[RETRIES], policy.retries) == places[weaker]


def test_the_policy_of_a_task_is_stronger_than_that_of_its_pipeline() -> None:
    pipeline = a_pipeline([a_task("a", policy=layer("spot.never", spot=Spot.NEVER))])
    pipeline = TaskGraph("pipeline", pipeline.root, pipeline.dags, layer("pipeline", spot=Spot.PREFER))
    assert policy_of(Plan(pipeline, a_config())).spot is Spot.NEVER


def test_an_exit_handler_is_kept_on_on_demand_as_place_keeps_it() -> None:
    inner = a_dag(a_task("x"))
    handler = replace(a_task("report", dag="inner"), after=("a",), after_all=True)
    default = {"spot": "prefer", "fall_back_after": 1}

    def spot_of(config: Config) -> list[Spot | None]:
        return [policy_of(a_plan([a_task("a"), handler], config, inner=inner), path).spot for path in ("a", "report/x")]

    assert spot_of(a_config(policy=default)) == [Spot.PREFER, Spot.NEVER]
    assert spot_of(a_config(policy=default, tasks={"x": {"spot": "require"}})) == [Spot.PREFER, Spot.REQUIRE]
    assert spot_of(a_config(SPOT, policy={"spot": "require"})) == [Spot.REQUIRE, Spot.REQUIRE]
    assert spot_of(a_config()) == [None, None]


def test_set_retry_raises_the_maximum_of_interruptions() -> None:
    plan = a_plan([a_task("a", retry=layer("set_retry", errors__retries=30))], a_config())
    assert (policy_of(plan).max_interruptions, policy_of(plan).sources["interruptions.max"]) == (30, "set_retry")


def test_tasks_inside_a_pipeline_inherit_its_set_retry() -> None:
    inner = a_dag(a_task("x"), a_task("y", retry=layer("of y", errors__retries=1)))
    plan = a_plan([a_task("loop", dag="inner", retry=layer("of loop", errors__retries=4))], a_config(), inner=inner)
    assert [policy_of(plan, path).retries for path in ("loop/x", "loop/y")] == [4, 1]


def test_a_task_with_its_own_timeout_still_inherits_retries() -> None:
    inner = a_dag(a_task("x", retry=layer("set_timeout", timeout=60.0)))
    plan = a_plan([a_task("loop", dag="inner", retry=layer("of loop", errors__retries=4))], a_config(), inner=inner)
    policy = policy_of(plan, "loop/x")
    assert (policy.retries, policy.timeout, policy.max_interruptions) == (4, 60.0, 10)


def test_tasks_deeper_inside_inherit_the_nearest_set_retry() -> None:
    root = [a_task("out", dag="middle", retry=layer("of out", errors__retries=4))]
    plan = a_plan(root, a_config(), middle=a_dag(a_task("in", dag="inner")), inner=a_dag(a_task("x")))
    assert policy_of(plan, "out/in/x").retries == 4


def test_a_pattern_matches_the_path_of_a_task_inside_a_pipeline() -> None:
    config = a_config(tasks={"loop/*": {"spot": "never"}})
    plan = a_plan([a_task("loop", dag="inner")], config, inner=a_dag(a_task("x")))
    assert policy_of(plan, "loop/x").spot is Spot.NEVER


@pytest.mark.parametrize("settings", [{"deadline": "8h", "expected_duration": "1h"}, {"fall_back_after": 2}])
def test_a_deadline_or_a_fallback_alone_prefers_spot(settings: dict[str, Any]) -> None:
    assert policy_of(a_plan([a_task("a")], a_config(policy=settings))).spot is Spot.PREFER


def test_without_settings_the_policy_has_no_spot_preference() -> None:
    assert policy_of(a_plan([a_task("a")], a_config(policy={"errors": {"retries": 3}}))).spot is None


# Refused before anything starts


def test_a_contradiction_names_the_task_and_the_places() -> None:
    config = a_config(policy={"interruptions": {"max": 2}}, tasks={"a": {"spot": "prefer", "fall_back_after": 5}})
    with pytest.raises(ConfigError, match=r"policy of task a: fall_back_after is 5 \(a\)"):
        a_plan([a_task("a")], config).check()


def test_a_ladder_of_unknown_pools_is_refused() -> None:
    flags = layer("--ladder", ladder=("nowhere",))
    with pytest.raises(
        InputError, match="ladder names the pool 'nowhere', which is not configured; the pools are spot"
    ):
        a_plan([a_task("a")], flags=flags).check()


def test_a_task_larger_than_any_node_is_refused() -> None:
    with pytest.raises(
        PipelineError, match="task a fits no pool: spot: it asks for 64 cpu, a node has 4 cpu; on-demand"
    ):
        a_plan([a_task("a", requests={"cpu": 64000})]).check()


def test_required_spot_without_a_spot_pool_is_refused_with_the_fix() -> None:
    with pytest.raises(
        PipelineError, match=r"task a requires spot \(default\), and no spot pool is configured: add one"
    ):
        a_plan([a_task("a")], a_config(ON_DEMAND, policy={"spot": "require"})).check()


def test_a_task_inside_a_pipeline_is_checked_too() -> None:
    inner = a_dag(a_task("x", requests={"cpu": 64000}))
    with pytest.raises(PipelineError, match="task loop/x fits no pool"):
        a_plan([a_task("loop", dag="inner")], inner=inner).check()


# Said once


def test_a_missing_fallback_is_one_note_for_all_tasks() -> None:
    tasks = [a_task(name, requests={"cpu": 1}) for name in "abcde"]
    assert a_plan(tasks, a_config(SPOT, policy={"spot": "prefer"})).check() == (
        "no on-demand pool fits: spot is preferred, but has no fallback (task a, b, c and 2 more)",
    )


SHARE = "tasks without resource requests take 1 cpu each of a simulated node"


def test_the_default_share_of_tasks_without_requests_is_said_once_with_what_changes_it() -> None:
    tasks = [a_task("asks", requests={"memory": 1}), *(a_task(name) for name in "abcde")]
    assert a_plan(tasks, a_config()).check() == (
        f"{SHARE} (a, b, c and 2 more); set_cpu_request and set_memory_request in the pipeline change that",
    )


def test_the_default_share_of_a_task_in_a_loop_is_said() -> None:
    plan = a_plan([a_loop("loop")], a_config(), body=a_dag(a_task("train")))
    assert [note.startswith(f"{SHARE} (loop/train)") for note in plan.check()] == [True]


def test_nothing_is_said_of_shares_where_one_task_runs_or_all_have_requests() -> None:
    assert a_plan([a_task("a")], a_config()).check() == ()
    assert a_plan([a_task(name, requests={"cpu": 1}) for name in "ab"], a_config()).check() == ()


def test_settings_without_an_effect_are_a_note() -> None:
    made = a_pipeline([a_task("a")])
    plan = Plan(TaskGraph("pipeline", made.root, made.dags, None, ("image_pull_policy",)), a_config())
    assert plan.check() == ("settings that have no effect on one machine and are ignored: image_pull_policy",)


# Unfolding


def test_upstream_tasks_come_before_downstream_tasks() -> None:
    plan = a_plan([a_task("loop", dag="inner")], inner=a_dag(a_task("x"), a_task("y", "x")))
    assert [planned.path for planned in plan.unfold("loop")] == ["loop/x", "loop/y"]


def test_a_task_is_planned_once() -> None:
    plan = a_plan([a_task("a")])
    assert plan.unfold("")[0] is plan.unfold("")[0]


# Settings that are known only while the run goes on


def deferred_run(cpu: str) -> Run:
    """a says how much cpu b asks for."""
    spec = a_task(
        "b",
        parameters={"cpu": TaskOutput("a", "out")},
        deferred={"resources": {"resourceCpuLimit": "{{$.inputs.parameters['cpu']}}"}, "kubernetes": {}},
    )
    spec = a_task("b", "a", parameters=spec.parameters, deferred=spec.deferred)
    run = Run(a_plan([a_task("a"), spec]))
    run.world.cache("a", parameters={"out": cpu}, artifacts={})
    return run


def test_resources_that_an_upstream_task_computes_are_read_before_placement() -> None:
    run = deferred_run("2")
    run.start()
    task = run.state.tasks["b"]
    assert dict(run.plan.read_deferred(task.plan, {"cpu": "2"}).work.requests) == {"cpu": 2000}


@pytest.mark.parametrize(("cpu", "message"), [("64", "it asks for 64 cpu"), ("many", "cannot be read")])
def test_resources_that_no_node_has_fail_the_task_not_the_engine(cpu: str, message: str) -> None:
    run = deferred_run(cpu)
    assert run.start().status is RunStatus.FAILED
    assert message in run.state.why
