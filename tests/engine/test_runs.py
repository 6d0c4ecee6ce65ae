"""Whole runs on virtual time, driven by the real loop: order, outputs, failures, cancelling."""

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
from tests.engine.driving import Run
from tests.engine.world import DONE, FAILED, TAKEN, Does, always, scripted

from spotwright.engine.events import Event
from spotwright.engine.state import RunStatus, TaskStatus
from spotwright.model.attempts import Signals
from spotwright.pipelines.conditions import read_condition
from spotwright.pipelines.spec import TaskOutput

ONE_AT_A_TIME = a_config(a_pool(max_nodes=1, node=None), policy={"spot": "require", "pending_timeout": "1d"})


def succeeded(run: Run) -> list[str]:
    """The tasks in the order in which they succeeded."""
    return [event.task for event in run.events if event.data.get("then") == "succeed" or event.kind == "completed"]


# Order and values


def test_a_pipeline_without_tasks_succeeds() -> None:
    assert Run(a_plan([])).start().status is RunStatus.SUCCEEDED


def test_a_chain_runs_link_by_link() -> None:
    run = Run(a_plan(a_chain(5)))
    run.start()
    assert succeeded(run) == ["t0", "t1", "t2", "t3", "t4"]


def test_each_link_gets_what_the_one_before_gave() -> None:
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
    bound = {event.task: event.at for event in run.told("bound")}
    assert bound["left"] == bound["right"]


def test_independent_tasks_run_as_there_is_room() -> None:
    run = Run(a_plan(a_fan(6), ONE_AT_A_TIME), always(Does(10.0)))
    run.start()
    assert [event.at - START for event in run.told("bound")] == [2, 12, 22, 32, 42, 52]


def test_a_pipeline_says_its_outputs() -> None:
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
    assert len(run.told("ended")) == 10_000


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


def test_a_pipeline_is_unfolded_only_when_its_turn_comes() -> None:
    run = nested()
    run.start()
    told = [event.task for event in run.events if event.kind in ("unfolded", "decided")]
    assert told == ["", "before", "loop", "loop/first", "loop/second", "loop/second/deep", "after"]


def test_a_pipeline_task_succeeds_after_everything_inside_it() -> None:
    run = nested()
    run.start()
    assert succeeded(run) == ["before", "loop/first", "loop/second/deep", "loop/second", "loop", "after"]


def test_a_pipeline_task_without_tasks_succeeds() -> None:
    run = Run(a_plan([a_task("empty", dag="nothing"), a_task("after", "empty")], nothing=a_dag()))
    assert run.start().status is RunStatus.SUCCEEDED


def test_a_failure_inside_a_pipeline_fails_the_run() -> None:
    run = nested()
    run.script = scripted({"loop/second/deep": [Does(1, FAILED)]})
    run.world.script = run.script
    assert (run.start().status, run.state.why.split(":")[0]) == (RunStatus.FAILED, "task loop/second/deep failed")


# Interruptions


def test_an_interrupted_task_is_tried_again_and_gives_the_same() -> None:
    run = Run(a_plan(a_diamond()), scripted({"left": [Does(3, TAKEN), Does(1, TAKEN)]}))
    run.start()
    assert run.causes("left") == ["interrupted", "interrupted", "succeeded"]
    assert run.outputs == {"bottom.out": "bottom(left=left(top=top()),right=right(top=top()))"}


def test_a_success_while_a_notice_was_running_counts() -> None:
    pool = a_pool(lifetime=5.0, max_nodes=1)
    run = Run(a_plan([a_task("a")], a_config(pool, policy={"spot": "require"})), always(Does(8.0)))
    run.start()
    assert (run.causes("a"), len(run.told("notice"))) == (["succeeded"], 1)


def test_an_exit_with_0_and_no_outputs_after_a_notice_is_an_interruption() -> None:
    half = Signals(exit_code=0, outputs_complete=False, noticed=True)
    run = Run(a_plan([a_task("a")]), scripted({"a": [Does(1, half)]}))
    run.start()
    assert run.causes("a") == ["interrupted", "succeeded"]


def test_an_exit_with_0_and_no_outputs_on_a_living_node_is_a_failure() -> None:
    half = Signals(exit_code=0, outputs_complete=False, missing_outputs=("model",))
    run = Run(a_plan([a_task("a")]), scripted({"a": [Does(1, half)]}))
    assert (run.start().status, run.causes("a")) == (RunStatus.FAILED, ["failed"])


def test_nodes_that_the_supply_takes_interrupt_what_runs_on_them() -> None:
    pool = a_pool(simulate={"taken_every": 20.0}, max_nodes=1)
    run = Run(a_plan([a_task("a")], a_config(pool, ON_DEMAND, policy={"spot": "prefer"})), always(Does(60.0)), seed=3)
    run.start()
    assert set(run.causes("a")[:-1]) == {"interrupted"}
    assert run.causes("a")[-1] == "succeeded"


def test_the_fallback_moves_the_rest_of_the_task_to_on_demand() -> None:
    config = a_config(policy={"spot": "prefer", "fall_back_after": 2})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Does(1, TAKEN)] * 3}))
    run.start()
    assert run.pools("a") == ["spot", "spot", "on-demand", "on-demand"]


def test_without_a_policy_a_task_goes_where_it_fits() -> None:
    run = Run(a_plan([a_task("a")], a_config()))
    run.start()
    assert run.pools("a") == ["spot"]


# Failures


def test_a_failed_task_fails_the_run_and_says_which() -> None:
    run = Run(a_plan(a_chain(3)), scripted({"t1": [Does(1, FAILED)]}))
    run.start()
    assert (run.state.status, run.state.why) == (
        RunStatus.FAILED,
        "task t1 failed: failed, and errors.retries is 0",
    )


def test_nothing_new_starts_after_a_failure() -> None:
    run = Run(a_plan([a_task("a"), a_task("b"), a_task("c", "b")]), scripted({"a": [Does(1, FAILED)], "b": [Does(5)]}))
    run.start()
    assert run.state.tasks["c"].attempts == []


def test_what_runs_may_end_after_a_failure() -> None:
    run = Run(a_plan([a_task("a"), a_task("b")]), scripted({"a": [Does(1, FAILED)], "b": [Does(60)]}))
    run.start()
    assert run.causes("b") == ["succeeded"]


def test_what_waits_for_a_node_is_withdrawn_after_a_failure() -> None:
    run = Run(a_plan(a_fan(3), ONE_AT_A_TIME), scripted({"t0": [Does(1, FAILED)]}))
    run.start()
    assert (run.causes("t1"), run.pools("t1")) == (["cancelled"], [None])


def test_nothing_begins_in_the_moment_in_which_another_task_fails_at_its_start() -> None:
    cannot_start = a_task("t0", condition=read_condition("inputs.parameter_values['nowhere'] == '1'"))
    run = Run(a_plan([cannot_start, a_task("s9"), a_task("t1")]))
    run.start()
    assert run.state.status is RunStatus.FAILED
    assert [task.attempts for task in run.state.tasks.values()] == [[], [], []]


def test_what_has_begun_comes_to_its_end_after_a_failure_also_over_an_interruption() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Does(1, FAILED)], "t1": [Does(9, TAKEN)]}))
    run.start()
    assert (run.state.status, run.causes("t1")) == (RunStatus.FAILED, ["interrupted", "succeeded"])


def test_a_task_that_waits_before_its_next_attempt_has_begun() -> None:
    script = scripted({"t0": [Does(1, TAKEN)], "t1": [Does(1.5, FAILED)], "t2": [Does(500)]})
    run = Run(a_plan(a_fan(3)), script)
    run.start()
    assert run.causes("t0") == ["interrupted", "succeeded"]
    assert run.state.status is RunStatus.FAILED


def test_retries_are_counted_per_task() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1}})
    run = Run(a_plan(a_fan(2), config), scripted({"t0": [Does(1, FAILED)], "t1": [Does(1, FAILED)]}))
    assert run.start().status is RunStatus.SUCCEEDED


def test_retries_wait_for_their_backoff() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "30s"}})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Does(1, FAILED)]}))
    run.start()
    ended, again = run.told("ended")[0], run.told("placed")[1]
    assert again.at - ended.at == 30.0


def test_the_time_scale_divides_the_backoff_and_says_both() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "30s"}})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Does(1, FAILED)]}), scale=10.0)
    run.start()
    decided = run.told("decided")[0]
    assert (decided.data["due"] - decided.at, decided.data["wait"]) == (3.0, 30.0)


def test_of_several_failures_the_first_is_the_reason() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Does(5, FAILED)], "t1": [Does(1, FAILED)]}))
    run.start()
    assert run.state.why.startswith("task t1 failed")


# Cancelling and stopping


@pytest.mark.parametrize(("kind", "status"), [("cancel", RunStatus.CANCELLED), ("stop", RunStatus.STOPPED)])
def test_a_run_can_be_ended_from_outside(kind: str, status: RunStatus) -> None:
    run = Run(a_plan(a_fan(3)), always(Does(500)))
    run.world.at(60, kind, why="stopped by the user")
    run.start()
    assert (run.state.status, run.world.now - START) == (status, 61.0)


def test_cancelling_ends_what_runs_what_waits_and_what_is_to_come() -> None:
    run = Run(a_plan([*a_fan(2), a_task("after", "t1")], ONE_AT_A_TIME), always(Does(500)))
    run.world.at(60, "cancel")
    run.start()
    assert [run.causes(path) for path in ("t0", "t1", "after")] == [["cancelled"], ["cancelled"], []]


def test_a_success_that_comes_while_cancelling_is_cancelled() -> None:
    run = Run(a_plan([a_task("a")]), always(Does(60, Signals(exit_code=0, outputs_complete=True, cancelled=True))))
    run.world.at(61.5, "cancel")
    run.start()
    assert (run.state.status, run.causes("a")) == (RunStatus.CANCELLED, ["cancelled"])


def test_a_stop_ends_what_waits_for_its_backoff() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "1h"}})
    run = Run(a_plan([a_task("a")], config), always(Does(1, FAILED)))
    run.world.at(60, "stop", why="stopped by the user")
    run.start()
    assert (run.state.status, run.world.now - START) == (RunStatus.STOPPED, 60.0)


def test_what_is_asked_to_end_is_asked_once() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Does(500)], "t1": [Does(60.5)]}))
    run.world.at(60, "cancel")
    run.start()
    assert sorted(event.task for event in run.told("halt")) == ["t0", "t1"]


def test_a_halt_that_takes_long_keeps_nobody_awake() -> None:
    """While one attempt takes its time to end, the backoff of another one ends and means nothing."""
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "60s"}})
    run = Run(a_plan(a_fan(2), config), scripted({"t0": [Does(1, FAILED)], "t1": [Does(500)]}))
    run.world.at(62.5, "stop", why="stopped by the user")
    waits: list[float | None] = []
    wait = run.world.wait
    run.world.wait = lambda until: (waits.append(until), wait(until))[1]  # type: ignore[method-assign, func-returns-value]
    run.start()
    assert (run.state.status, waits[-1]) == (RunStatus.STOPPED, None)


def test_what_was_asked_to_end_waits_for_no_timeout_any_more() -> None:
    """The world takes longer to withdraw an attempt than that may wait: it is not called unschedulable."""
    tasks = {"t0": {"spot": "never"}, "t1": {"spot": "require"}}
    config = a_config(a_pool(max_nodes=0), ON_DEMAND, policy={"pending_timeout": "60s"}, tasks=tasks)
    run = Run(a_plan(a_fan(2), config), scripted({"t0": [Does(30, FAILED)]}))
    give_up = run.world._give_up
    run.world._give_up = lambda key: run.world._at(run.world.now + 100, lambda: give_up(key))  # type: ignore[method-assign]
    run.world._halt = lambda key: None  # type: ignore[method-assign]
    run.start()
    assert (run.causes("t1"), run.world.now - START) == (["cancelled"], 132)


# Earlier results


def test_an_earlier_result_is_used_instead_of_running() -> None:
    run = Run(a_plan(a_chain(2)))
    run.world.results["t0"] = {"parameters": {"out": "cached"}, "artifacts": {}, "run": "old", "task": "t0"}
    run.start()
    assert (run.outputs, run.state.tasks["t0"].attempts) == ({"t1.out": "t1(t0=cached)"}, [])
    assert run.state.tasks["t0"].cached_from == ("old", "t0")


# What only the engine's loop can get wrong


def test_what_an_end_leads_to_is_in_the_same_append_as_the_end() -> None:
    batches: list[list[str]] = []
    run = Run(a_plan(a_chain(2)), observers=[lambda _state, events: batches.append([event.kind for event in events])])
    run.start()
    assert ["ended", "decided", "placed", "bound"] in batches
    assert ["ended", "decided", "finished"] in batches


def test_nothing_is_performed_that_is_not_in_the_journal() -> None:
    run = Run(a_plan(a_diamond()), scripted({"left": [Does(1, TAKEN)]}))
    perform, seen = run.world.perform, list[Event]()

    def check(state: object, event: Event) -> None:
        assert event in run.events
        seen.append(event)
        perform(run.state, event)

    run.world.perform = check  # type: ignore[method-assign]
    run.start()
    assert len(seen) > 20


def test_observers_see_every_event_once_in_order() -> None:
    told: list[Event] = []
    run = Run(a_plan(a_diamond()), observers=[lambda _state, events: told.extend(events)])
    run.start()
    assert told == run.events


def test_a_task_is_known_by_its_constants() -> None:
    run = Run(a_plan([a_task("a", parameters=constants(lr=0.1, name="x"))]), always(Does(1, DONE)))
    run.start()
    assert run.outputs == {"a.out": "a(lr=0.1,name=x)"}


def test_statuses_stand_where_they_stand_when_a_run_fails() -> None:
    run = Run(a_plan([a_task("a"), a_task("b"), a_task("c", "b")]), scripted({"a": [Does(1, FAILED)]}))
    run.start()
    said = {path: task.status for path, task in run.state.tasks.items()}
    assert said == {"a": TaskStatus.FAILED, "b": TaskStatus.SUCCEEDED, "c": TaskStatus.READY}
