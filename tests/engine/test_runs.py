"""Whole runs on virtual time, driven by the real loop: order, outputs, failures, retries."""

from __future__ import annotations

import pytest
from tests.engine.builders import (
    ON_DEMAND,
    START,
    a_chain,
    a_config,
    a_dag,
    a_diamond,
    a_fan,
    a_plan,
    a_pool,
    a_task,
    constants,
    from_outside,
)
from tests.engine.driving import Crash, CrashingJournal, Run
from tests.engine.scripts import FAILED, SUCCEEDED, TAKEN, Behavior, always, scripted
from tests.events import data_of

from spotwright.engine.events import Event, RunStatus, TaskStatus
from spotwright.engine.loop import Engine
from spotwright.graph import TaskOutput
from spotwright.kfp.cel import read_condition
from spotwright.model.attempts import Signals

ONE_AT_A_TIME = a_config(a_pool(max_nodes=1, node=None), policy={"spot": "require", "pending_timeout": "1d"})


def succeeded(run: Run) -> list[str]:
    """The tasks in the order in which they succeeded."""
    return [event.task for event in run.events if data_of(event).get("then") == "succeed" or event.kind == "completed"]


# Order and values


def test_a_pipeline_without_tasks_succeeds() -> None:
    assert Run(a_plan([])).start().status is RunStatus.SUCCEEDED


def test_a_chain_runs_in_order() -> None:
    run = Run(a_plan(a_chain(5)))
    run.start()
    assert succeeded(run) == ["t0", "t1", "t2", "t3", "t4"]


def test_each_task_of_a_chain_gets_the_output_of_the_one_before() -> None:
    run = Run(a_plan(a_chain(3)))
    run.start()
    assert run.outputs == {"t2.out": "t2(t1=t1(t0=t0()))"}


def test_a_diamond_joins_both_sides() -> None:
    run = Run(a_plan(a_diamond()))
    run.start()
    assert run.outputs == {"bottom.out": "bottom(left=left(top=top()),right=right(top=top()))"}


def test_both_sides_of_a_diamond_run_at_the_same_time() -> None:
    run = Run(a_plan(a_diamond()))
    run.start()
    bound = {event.task: event.at for event in run.events_of("bound")}
    assert bound["left"] == bound["right"]


def test_independent_tasks_run_as_far_as_there_is_room() -> None:
    run = Run(a_plan(a_fan(6), ONE_AT_A_TIME), always(Behavior(10.0)))
    run.start()
    assert [event.at - START for event in run.events_of("bound")] == [2, 12, 22, 32, 42, 52]


def test_a_run_has_the_outputs_of_its_pipeline() -> None:
    run = Run(a_plan(a_dag(*a_chain(3), out="t1")))
    run.start()
    assert run.outputs == {"out": "t1(t0=t0())"}


def test_the_arguments_of_a_run_reach_its_tasks() -> None:
    run = Run(a_plan([a_task("a", parameters=from_outside("url"))]), arguments={"url": "http://x"})
    run.start()
    assert run.outputs == {"a.out": "a(url=http://x)"}


def test_ten_thousand_tasks_succeed_each_once() -> None:
    run = Run(a_plan(a_fan(10_000)))
    assert run.start().status is RunStatus.SUCCEEDED
    assert len(run.events_of("ended")) == 10_000


# Pipelines in pipelines


def nested() -> Run:
    """before, then a pipeline of two tasks of which one is a pipeline itself, then after."""
    inner = a_dag(a_task("deep", parameters=from_outside("x")), out="deep")
    middle = a_dag(
        a_task("first", parameters=from_outside("x")),
        a_task("second", "first", dag="inner", parameters={"x": TaskOutput("first", "out")}),
        out="second",
    )
    root = [
        a_task("before"),
        a_task("loop", "before", dag="middle", parameters={"x": TaskOutput("before", "out")}),
        a_task("after", "loop"),
    ]
    return Run(a_plan(root, middle=middle, inner=inner))


def test_pipelines_in_pipelines_pass_values_in_and_out() -> None:
    run = nested()
    run.start()
    assert run.outputs == {"after.out": "after(loop=loop/second/deep(x=loop/first(x=before())))"}


def test_a_nested_pipeline_is_unfolded_when_its_upstream_tasks_have_succeeded() -> None:
    run = nested()
    run.start()
    order = [event.task for event in run.events if event.kind in ("unfolded", "decided")]
    assert order == ["", "before", "loop", "loop/first", "loop/second", "loop/second/deep", "after"]


def test_a_pipeline_task_succeeds_after_everything_inside_it() -> None:
    run = nested()
    run.start()
    assert succeeded(run) == ["before", "loop/first", "loop/second/deep", "loop/second", "loop", "after"]


def test_a_pipeline_task_without_tasks_succeeds() -> None:
    run = Run(a_plan([a_task("empty", dag="nothing"), a_task("after", "empty")], nothing=a_dag()))
    assert run.start().status is RunStatus.SUCCEEDED


def test_a_failure_inside_a_pipeline_fails_the_run() -> None:
    run = nested()
    run.script = scripted({"loop/second/deep": [Behavior(1, FAILED)]})
    assert (run.start().status, run.state.why.split(":")[0]) == (RunStatus.FAILED, "task loop/second/deep failed")


# Interruptions


def test_an_interrupted_task_is_retried_and_has_the_same_output() -> None:
    run = Run(a_plan(a_diamond()), scripted({"left": [Behavior(3, TAKEN), Behavior(1, TAKEN)]}))
    run.start()
    assert run.causes("left") == ["interrupted", "interrupted", "succeeded"]
    assert run.outputs == {"bottom.out": "bottom(left=left(top=top()),right=right(top=top()))"}


def test_a_success_during_a_notice_counts() -> None:
    pool = a_pool(max_lifetime=5.0, max_nodes=1)
    run = Run(a_plan([a_task("a")], a_config(pool, policy={"spot": "require"})), always(Behavior(8.0)))
    run.start()
    assert (run.causes("a"), len(run.events_of("notice"))) == (["succeeded"], 1)


def test_an_exit_with_0_and_no_outputs_after_a_notice_is_an_interruption() -> None:
    half = Signals(exit_code=0, outputs_complete=False, noticed=True)
    run = Run(a_plan([a_task("a")]), scripted({"a": [Behavior(1, half)]}))
    run.start()
    assert run.causes("a") == ["interrupted", "succeeded"]


def test_an_exit_with_0_and_no_outputs_on_a_living_node_is_a_failure() -> None:
    half = Signals(exit_code=0, outputs_complete=False, missing_outputs=("model",))
    run = Run(a_plan([a_task("a")]), scripted({"a": [Behavior(1, half)]}))
    assert (run.start().status, run.causes("a")) == (RunStatus.FAILED, ["failed"])


def test_nodes_that_the_supply_takes_interrupt_their_attempts() -> None:
    pool = a_pool(simulate={"interrupt_every": 20.0}, max_nodes=1)
    run = Run(
        a_plan([a_task("a")], a_config(pool, ON_DEMAND, policy={"spot": "prefer"})), always(Behavior(60.0)), seed=3
    )
    run.start()
    assert set(run.causes("a")[:-1]) == {"interrupted"}
    assert run.causes("a")[-1] == "succeeded"


def test_the_fallback_moves_the_rest_of_the_task_to_on_demand() -> None:
    config = a_config(policy={"spot": "prefer", "fall_back_after": 2})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Behavior(1, TAKEN)] * 3}))
    run.start()
    assert run.pools("a") == ["spot", "spot", "on-demand", "on-demand"]


def test_without_a_policy_a_task_runs_on_any_pool_that_fits() -> None:
    run = Run(a_plan([a_task("a")], a_config()))
    run.start()
    assert run.pools("a") == ["spot"]


# Failures


def test_a_failed_task_fails_the_run_with_its_name() -> None:
    run = Run(a_plan(a_chain(3)), scripted({"t1": [Behavior(1, FAILED)]}))
    run.start()
    assert (run.state.status, run.state.why) == (
        RunStatus.FAILED,
        "task t1 failed: no retry is left (errors.retries is 0)",
    )


def test_no_task_starts_after_a_failure() -> None:
    run = Run(
        a_plan([a_task("a"), a_task("b"), a_task("c", "b")]), scripted({"a": [Behavior(1, FAILED)], "b": [Behavior(5)]})
    )
    run.start()
    assert run.state.tasks["c"].attempts == []


def test_running_tasks_end_by_themselves_after_a_failure() -> None:
    run = Run(a_plan([a_task("a"), a_task("b")]), scripted({"a": [Behavior(1, FAILED)], "b": [Behavior(60)]}))
    run.start()
    assert run.causes("b") == ["succeeded"]


def test_pending_attempts_are_withdrawn_after_a_failure() -> None:
    run = Run(a_plan(a_fan(3), ONE_AT_A_TIME), scripted({"t0": [Behavior(1, FAILED)]}))
    run.start()
    assert (run.causes("t1"), run.pools("t1")) == (["cancelled"], [None])


def test_no_task_starts_in_the_turn_in_which_another_task_fails_at_its_start() -> None:
    cannot_start = a_task("t0", condition=read_condition("inputs.parameter_values['nowhere'] == '1'"))
    run = Run(a_plan([cannot_start, a_task("s9"), a_task("t1")]))
    run.start()
    assert run.state.status is RunStatus.FAILED
    assert [task.attempts for task in run.state.tasks.values()] == [[], [], []]


def test_a_started_task_is_retried_after_an_interruption_although_another_task_failed() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Behavior(1, FAILED)], "t1": [Behavior(9, TAKEN)]}))
    run.start()
    assert (run.state.status, run.causes("t1")) == (RunStatus.FAILED, ["interrupted", "succeeded"])


def test_a_task_in_backoff_counts_as_started_when_another_task_fails() -> None:
    script = scripted({"t0": [Behavior(1, TAKEN)], "t1": [Behavior(1.5, FAILED)], "t2": [Behavior(500)]})
    run = Run(a_plan(a_fan(3)), script)
    run.start()
    assert run.causes("t0") == ["interrupted", "succeeded"]
    assert run.state.status is RunStatus.FAILED


def test_retries_are_counted_per_task() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1}})
    run = Run(a_plan(a_fan(2), config), scripted({"t0": [Behavior(1, FAILED)], "t1": [Behavior(1, FAILED)]}))
    assert run.start().status is RunStatus.SUCCEEDED


def test_retries_wait_for_their_backoff() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "30s"}})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Behavior(1, FAILED)]}))
    run.start()
    ended, again = run.events_of("ended")[0], run.events_of("placed")[1]
    assert again.at - ended.at == 30.0


def test_the_time_scale_divides_the_backoff_and_says_both() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "30s"}})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Behavior(1, FAILED)]}), scale=10.0)
    run.start()
    decided = run.events_of("decided")[0]
    assert (data_of(decided)["due"] - decided.at, data_of(decided)["wait"]) == (3.0, 30.0)


def test_of_several_failures_the_first_is_the_reason() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Behavior(5, FAILED)], "t1": [Behavior(1, FAILED)]}))
    run.start()
    assert run.state.why.startswith("task t1 failed")


# Earlier results


def test_an_earlier_result_is_used_instead_of_running() -> None:
    run = Run(a_plan(a_chain(2)))
    run.world.cache("t0", parameters={"out": "cached"}, artifacts={})
    run.start()
    assert (run.outputs, run.state.tasks["t0"].attempts) == ({"t1.out": "t1(t0=cached)"}, [])
    assert run.state.tasks["t0"].cached_from == ("old", "t0")


# What only the engine's loop can get wrong


def test_the_decisions_about_an_end_are_in_the_same_append_as_the_end() -> None:
    batches: list[list[str]] = []
    run = Run(a_plan(a_chain(2)), observers=[lambda _state, events: batches.append([event.kind for event in events])])
    run.start()
    assert ["ended", "decided", "placed", "bound"] in batches
    assert ["ended", "decided", "finished"] in batches


def test_every_effect_follows_the_commit_of_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(a_plan(a_diamond()), scripted({"left": [Behavior(1, TAKEN)]}))
    perform, performed = Engine._perform, list[Event]()

    def check(engine: Engine, event: Event) -> None:
        assert event in run.events
        performed.append(event)
        perform(engine, event)

    monkeypatch.setattr(Engine, "_perform", check)
    run.start()
    assert len(performed) > 20


def test_observers_see_every_event_once_in_order() -> None:
    observed: list[Event] = []
    run = Run(a_plan(a_diamond()), observers=[lambda _state, events: observed.extend(events)])
    run.start()
    assert observed == run.events


def test_a_task_gets_its_constants() -> None:
    run = Run(a_plan([a_task("a", parameters=constants(lr=0.1, name="x"))]), always(Behavior(1, SUCCEEDED)))
    run.start()
    assert run.outputs == {"a.out": "a(lr=0.1,name=x)"}


def test_statuses_of_tasks_when_a_run_fails() -> None:
    run = Run(a_plan([a_task("a"), a_task("b"), a_task("c", "b")]), scripted({"a": [Behavior(1, FAILED)]}))
    run.start()
    statuses = {path: task.status for path, task in run.state.tasks.items()}
    assert statuses == {"a": TaskStatus.FAILED, "b": TaskStatus.SUCCEEDED, "c": TaskStatus.READY}


def test_nothing_is_committed_after_an_error() -> None:
    run = Run(a_plan(a_chain(2)))
    run.journal = CrashingJournal(crash_on="ended")
    with pytest.raises(Crash):
        run.start()
    assert run.events_of("ended")
    assert not [event for event in run.events_of("node") if data_of(event)["state"] == "gone"]
