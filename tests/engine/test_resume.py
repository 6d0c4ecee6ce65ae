"""Stop, crash, fail, resume: no task that succeeded runs again, budgets are reset where they should be, numbers go on."""

from __future__ import annotations

import pytest
from tests.engine.builders import START, a_chain, a_config, a_dag, a_diamond, a_fan, a_plan, a_pool, a_task, constants
from tests.engine.driving import Crash, CrashingJournal, Run, ScriptedWorld
from tests.engine.scripts import FAILED, LOST, TAKEN, Behavior, always, scripted
from tests.events import an_event

from spotwright.engine.decide import close_ended, decide
from spotwright.engine.events import AttemptDecided, RunStatus, TaskStatus
from spotwright.engine.fold import fold, replay
from spotwright.engine.loop import replay_decisions
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.graph import TaskOutput

ONE_AT_A_TIME = a_config(a_pool(max_nodes=1, node=None), policy={"spot": "require", "pending_timeout": "300s"})
MENDED = {"lr": 1}


def attempts(run: Run, path: str) -> int:
    return len(run.state.tasks[path].attempts)


# A stop


def stopped(run: Run, seconds: float) -> Run:
    run.world.at(seconds, "stop", why="stopped by the user")
    run.start()
    return run


def test_a_stopped_run_goes_on_where_it_was() -> None:
    run = stopped(Run(a_plan(a_chain(3)), always(Behavior(10))), 15)
    run.script = always(Behavior(10))
    assert run.resume().status is RunStatus.SUCCEEDED
    assert [run.causes(path) for path in ("t0", "t1", "t2")] == [
        ["succeeded"],
        ["cancelled", "succeeded"],
        ["succeeded"],
    ]


def test_a_stop_spends_no_budget() -> None:
    config = a_config(policy={"spot": "require", "interruptions": {"max": 0}})
    run = stopped(Run(a_plan([a_task("a")], config), always(Behavior(10))), 5)
    assert run.resume().status is RunStatus.SUCCEEDED


def test_budgets_go_on_over_a_stop() -> None:
    config = a_config(policy={"spot": "require", "interruptions": {"max": 1}})
    script = scripted({"a": [Behavior(1, TAKEN), Behavior(99), Behavior(1, TAKEN)]})
    run = stopped(Run(a_plan([a_task("a")], config), script), 20)
    assert run.resume().status is RunStatus.FAILED


# A crash


def crashed(run: Run, on: str, *, before: bool = False) -> Run:
    """A run whose engine crashes at the first append with an event of this kind."""
    run.journal = CrashingJournal(crash_on=on, before=before)
    with pytest.raises(Crash):
        run.start()
    return run


def test_an_attempt_that_ran_at_a_crash_is_lost_and_retried() -> None:
    run = crashed(Run(a_plan([a_task("a")]), always(Behavior(10))), "bound")
    assert run.resume().status is RunStatus.SUCCEEDED
    assert run.causes("a") == ["lost", "succeeded"]


def test_an_attempt_that_was_lost_with_the_engine_is_retried_without_backoff() -> None:
    config = a_config(policy={"interruptions": {"backoff": "1h"}})
    run = crashed(Run(a_plan([a_task("a")], config), always(Behavior(10))), "bound")
    state = run.resume(after=5)
    assert state.finished_at is not None
    assert state.finished_at - state.started_at < 60


def test_an_attempt_that_ended_before_the_crash_counts() -> None:
    run = crashed(Run(a_plan([a_task("a")]), always(Behavior(10))), "ended", before=True)
    assert run.resume().status is RunStatus.SUCCEEDED
    assert run.causes("a") == ["succeeded"]


def test_after_a_recovery_the_ends_of_attempts_are_decided_first_and_alone() -> None:
    run = crashed(Run(a_plan(a_fan(3)), always(Behavior(10))), "bound")
    run.now, state = run.world.now + 5, replay(run.plans, run.events)
    for event in (an_event("engine", run.now, data={"epoch": 2}), *run.a_world(state).recover(state)):
        fold(state, event)
    decided = close_ended(state, Snapshot(), run.now)
    assert [(type(event), event.task) for event in decided] == [(AttemptDecided, f"t{n}") for n in range(3)]
    for event in decided:
        fold(state, event)
    assert close_ended(state, Snapshot(), run.now) == []
    assert len(decide(state, Snapshot(), run.now)) == 3


def test_a_pending_attempt_waits_again_after_a_crash_and_charges_no_budget() -> None:
    run = crashed(Run(a_plan([a_task("a")]), always(Behavior(10))), "placed")
    run.resume()
    assert run.causes("a") == ["succeeded"]


def test_time_without_an_engine_does_not_count_as_waiting() -> None:
    run = crashed(Run(a_plan(a_fan(2), ONE_AT_A_TIME), always(Behavior(100))), "placed")
    run.resume(after=10_000)
    assert run.events_of("moved") == []


def test_after_a_crash_the_rest_of_pending_timeout_counts() -> None:
    config = a_config(a_pool(max_nodes=0), policy={"spot": "require", "pending_timeout": "300s"})
    run = Run(a_plan([a_task("a")], config))
    run.world.at(100, "note", text="the engine goes 100 s later")
    crashed(run, "note")
    run.resume(after=1000)
    assert run.world.now - START == 1000 + 300


def test_a_task_is_stopped_again_after_a_crash_in_the_middle_of_stopping() -> None:
    """The first engine halted the task and crashed; the second one must be able to halt it again."""
    run = Run(a_plan([a_task("a")], ONE_AT_A_TIME), always(Behavior(500)))
    run.world.at(0.5, "stop", why="stopped by the user")
    crashed(run, "halt")
    a_world = run.a_world

    def cancelled_after_a_minute(state: RunState) -> ScriptedWorld:
        world = a_world(state)
        world.at(60, "cancel")
        return world

    run.a_world = cancelled_after_a_minute  # type: ignore[method-assign]
    assert (run.resume().status, run.world.now - START) == (RunStatus.CANCELLED, 61)


def test_a_crash_while_cancelling_can_be_finished_by_cancelling() -> None:
    run = Run(a_plan([a_task("a")]), always(Behavior(500)))
    run.world.at(60, "cancel")
    crashed(run, "cancel")
    assert run.resume(afresh=False).status is RunStatus.CANCELLED


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("append", range(1, 12))
def test_a_crash_at_any_append_changes_no_output(append: int, before: bool) -> None:
    script = scripted({"left": [Behavior(3, TAKEN)], "right": [Behavior(5)]})
    run = Run(a_plan(a_diamond()), script)
    assert run.start_with_crashes([(append, before)]).status is RunStatus.SUCCEEDED
    assert run.outputs == {"bottom.out": "bottom(left=left(top=top()),right=right(top=top()))"}
    for task in run.state.tasks.values():
        assert [str(attempt.cause) for attempt in task.attempts].count("succeeded") == 1


def test_nodes_of_different_engines_have_different_names() -> None:
    run = crashed(Run(a_plan(a_chain(2)), always(Behavior(10))), "ended")
    run.resume()
    assert set(run.state.nodes) == {"spot-1", "spot-2"}


def test_a_run_that_crashed_replays_from_its_journal() -> None:
    run = crashed(Run(a_plan(a_diamond()), scripted({"left": [Behavior(3, TAKEN)]})), "ended")
    run.resume()
    replay_decisions(run.plans, run.events)


# A failure


def test_a_resumed_run_runs_only_tasks_that_did_not_succeed() -> None:
    run = Run(a_plan(a_chain(3)), scripted({"t1": [Behavior(1, FAILED)]}))
    run.start()
    assert run.resume().status is RunStatus.SUCCEEDED
    assert [attempts(run, path) for path in ("t0", "t1", "t2")] == [1, 2, 1]


def test_a_failed_run_is_resumed_with_fresh_budgets() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1}})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Behavior(1, FAILED)] * 3}))
    assert run.start().status is RunStatus.FAILED
    assert run.resume().status is RunStatus.SUCCEEDED
    assert run.state.tasks["a"].spent.errors == 1


def test_attempts_keep_their_numbers_over_a_resume() -> None:
    run = Run(a_plan([a_task("a")]), scripted({"a": [Behavior(1, FAILED)]}))
    run.start()
    run.resume()
    assert [attempt.number for attempt in run.state.tasks["a"].attempts] == [1, 2]


def test_a_resumed_task_begins_at_the_first_rung() -> None:
    config = a_config(policy={"spot": "prefer", "fall_back_after": 1})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Behavior(1, TAKEN), Behavior(1, FAILED)]}))
    run.start()
    run.resume()
    assert run.pools("a") == ["spot", "on-demand", "spot"]


def test_a_cancelled_run_can_be_resumed() -> None:
    run = Run(a_plan(a_chain(2)), always(Behavior(10)))
    run.world.at(5, "cancel")
    run.start()
    assert run.resume().status is RunStatus.SUCCEEDED


def test_a_run_that_failed_and_crashed_is_reset() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Behavior(1, FAILED)], "t1": [Behavior(100)]}))
    crashed(run, "ended")
    assert run.resume().status is RunStatus.SUCCEEDED
    assert (run.causes("t0"), run.causes("t1")) == (["failed", "succeeded"], ["lost", "succeeded"])


def test_a_reset_withdraws_pending_attempts() -> None:
    run = crashed(Run(a_plan(a_fan(2), ONE_AT_A_TIME), always(Behavior(10))), "bound")
    run.resume(afresh=True)
    assert run.causes("t1") == ["cancelled", "succeeded"]


# Mended code


def test_a_task_with_changed_code_runs_again_with_its_downstream_tasks() -> None:
    run = Run(a_plan(a_diamond()), scripted({"bottom": [Behavior(1, FAILED)]}))
    run.start()
    mended = a_plan([a_task("top"), a_task("left", "top", parameters=constants(**MENDED)), *a_diamond()[2:]])
    run.resume(changed=mended, again=["left"])
    assert [attempts(run, path) for path in ("top", "left", "right", "bottom")] == [1, 2, 1, 2]
    assert run.outputs == {"bottom.out": "bottom(left=left(lr=1),right=right(top=top()))"}


def test_downstream_tasks_run_again_without_being_named() -> None:
    run = Run(a_plan([*a_chain(4), a_task("bad")]), scripted({"bad": [Behavior(9, FAILED)]}))
    run.start()
    run.resume(changed=a_plan([*a_chain(4), a_task("bad")]), again=["t1"])
    assert [attempts(run, f"t{n}") for n in range(4)] == [1, 2, 2, 2]


def test_a_new_task_runs() -> None:
    run = Run(a_plan(a_chain(2)), scripted({"t1": [Behavior(1, FAILED)]}))
    run.start()
    run.resume(changed=a_plan([*a_chain(2), a_task("new", "t0")]))
    assert run.causes("new") == ["succeeded"]


def test_a_task_that_follows_a_new_task_runs_again() -> None:
    run = Run(a_plan([a_task("a"), a_task("bad")]), scripted({"bad": [Behavior(1, FAILED)]}))
    run.start()
    run.resume(changed=a_plan([a_task("new"), a_task("a", "new"), a_task("bad")]))
    assert run.outputs["a.out"] == "a(new=new())"


def test_a_task_that_was_removed_is_only_in_the_account() -> None:
    run = Run(a_plan([a_task("a"), a_task("gone"), a_task("bad")]), scripted({"bad": [Behavior(1, FAILED)]}))
    run.start()
    run.resume(changed=a_plan([a_task("a"), a_task("bad")]))
    assert set(run.state.tasks) == {"a", "bad"}
    assert [str(attempt.cause) for attempt in run.state.retired["gone"].attempts] == ["succeeded"]


def test_a_task_that_was_removed_and_added_again_runs_again() -> None:
    run = Run(a_plan([a_task("a"), a_task("b")]), scripted({"a": [Behavior(1, FAILED)] * 2}))
    run.start()
    run.resume(changed=a_plan([a_task("a")]))
    run.resume(changed=a_plan([a_task("a"), a_task("b")]))
    assert run.causes("b") == ["succeeded", "succeeded"]


def test_a_run_that_succeeded_can_be_resumed_with_changed_code() -> None:
    run = Run(a_plan(a_chain(2)))
    run.start()
    mended = a_plan([a_task("t0"), a_task("t1", "t0", parameters=constants(**MENDED))])
    run.resume(changed=mended, again=["t1"])
    assert (run.outputs, attempts(run, "t0")) == ({"t1.out": "t1(lr=1)"}, 1)


def test_the_pools_of_the_newest_plan_count() -> None:
    run = Run(a_plan([a_task("a")], a_config(a_pool("old"), policy={"spot": "require"})), always(Behavior(1, FAILED)))
    run.start()
    run.script = always(Behavior(1))
    run.resume(changed=a_plan([a_task("a")], a_config(a_pool("new"), policy={"spot": "require"})))
    assert run.pools("a") == ["old", "new"]


def test_two_resumes_with_changed_code_run_it_once_each() -> None:
    run = Run(a_plan([a_task("a"), a_task("bad")]), scripted({"bad": [Behavior(1, FAILED)] * 2}))
    run.start()
    run.resume(changed=a_plan([a_task("a", parameters=constants(v=2)), a_task("bad")]), again=["a"])
    run.resume()
    assert (attempts(run, "a"), run.outputs["a.out"]) == (2, "a(v=2)")


# Pipelines in pipelines


def a_nested_plan(value: int = 1, *, extra: bool = False, first: int = 1) -> Plan:
    inside = [a_task("a", parameters=constants(v=value)), a_task("b", "a")]
    if extra:
        inside.append(a_task("c", "b"))
    root = [
        a_task("first", parameters=constants(v=first)),
        a_task("loop", "first", dag="inner", parameters={"x": TaskOutput("first", "out")}),
        a_task("after", "loop"),
        a_task("bad"),
    ]
    return a_plan(root, inner=a_dag(*inside, out="c" if extra else "b"))


def nested_run() -> Run:
    run = Run(a_nested_plan(), scripted({"bad": [Behavior(30, FAILED)]}))
    run.start()
    return run


def counts(run: Run) -> dict[str, int]:
    return {path: len(task.attempts) for path, task in run.state.tasks.items()}


def test_an_unchanged_nested_pipeline_keeps_its_tasks() -> None:
    run = nested_run()
    run.resume()
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 1, "loop/b": 1, "after": 1, "bad": 2}
    assert run.state.tasks["loop/b"].status is TaskStatus.SUCCEEDED


def test_a_change_inside_a_nested_pipeline_runs_that_task_and_downstream_tasks_inside_and_outside() -> None:
    run = nested_run()
    run.resume(changed=a_nested_plan(2), again=["loop/a"])
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 2, "loop/b": 2, "after": 2, "bad": 2}
    assert run.outputs["after.out"] == "after(loop=loop/b(a=loop/a(v=2)))"


def test_a_change_before_a_pipeline_runs_everything_inside_it() -> None:
    run = nested_run()
    run.resume(changed=a_nested_plan(first=2), again=["first"])
    assert counts(run) == {"first": 2, "loop": 0, "loop/a": 2, "loop/b": 2, "after": 2, "bad": 2}


def test_a_new_task_inside_a_nested_pipeline_runs_with_the_tasks_downstream_of_the_pipeline() -> None:
    run = nested_run()
    run.resume(changed=a_nested_plan(extra=True))
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 1, "loop/b": 1, "loop/c": 1, "after": 2, "bad": 2}


def test_an_open_nested_pipeline_goes_on_inside() -> None:
    run = Run(a_nested_plan(), scripted({"loop/b": [Behavior(1, FAILED)]}))
    run.start()
    run.resume()
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 1, "loop/b": 2, "after": 1, "bad": 1}


def test_an_open_nested_pipeline_with_a_changed_input_starts_again() -> None:
    run = Run(a_nested_plan(), scripted({"loop/b": [Behavior(1, FAILED)]}))
    run.start()
    run.resume(changed=a_nested_plan(first=2), again=["first"])
    assert counts(run) == {"first": 2, "loop": 0, "loop/a": 2, "loop/b": 2, "after": 1, "bad": 1}


def test_an_attempt_that_was_lost_is_an_interruption() -> None:
    run = Run(a_plan([a_task("a")]), scripted({"a": [Behavior(1, LOST)]}))
    run.start()
    assert run.state.tasks["a"].spent.interruptions == 1
