"""Stop, crash, fail, resume: nothing that succeeded runs again, budgets are fresh where they should be, numbers go on."""

from __future__ import annotations

import pytest
from tests.engine.builders import START, a_chain, a_config, a_dag, a_diamond, a_fan, a_plan, a_pool, a_task, constants
from tests.engine.driving import Crash, MemoryJournal, Run, decided_again
from tests.engine.world import FAILED, LOST, TAKEN, Does, World, always, scripted

from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState, RunStatus, TaskStatus
from spotwright.pipelines.spec import TaskOutput

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
    run = stopped(Run(a_plan(a_chain(3)), always(Does(10))), 15)
    run.script = always(Does(10))
    assert run.resume().status is RunStatus.SUCCEEDED
    assert [run.causes(path) for path in ("t0", "t1", "t2")] == [
        ["succeeded"],
        ["cancelled", "succeeded"],
        ["succeeded"],
    ]


def test_a_stop_spends_no_budget() -> None:
    config = a_config(policy={"spot": "require", "interruptions": {"max": 0}})
    run = stopped(Run(a_plan([a_task("a")], config), always(Does(10))), 5)
    assert run.resume().status is RunStatus.SUCCEEDED


def test_budgets_go_on_over_a_stop() -> None:
    config = a_config(policy={"spot": "require", "interruptions": {"max": 1}})
    script = scripted({"a": [Does(1, TAKEN), Does(99), Does(1, TAKEN)]})
    run = stopped(Run(a_plan([a_task("a")], config), script), 20)
    assert run.resume().status is RunStatus.FAILED


# A crash


def crashed(run: Run, on: str, *, before: bool = False) -> Run:
    """A run whose engine goes at the first append that holds an event of this kind."""
    run.journal = MemoryJournal(crash_on=on, before=before)
    with pytest.raises(Crash):
        run.start()
    return run


def test_what_ran_when_the_engine_went_is_lost_and_tried_again() -> None:
    run = crashed(Run(a_plan([a_task("a")]), always(Does(10))), "bound")
    assert run.resume().status is RunStatus.SUCCEEDED
    assert run.causes("a") == ["lost", "succeeded"]


def test_what_was_lost_with_the_engine_is_tried_again_at_once() -> None:
    config = a_config(policy={"interruptions": {"backoff": "1h"}})
    run = crashed(Run(a_plan([a_task("a")], config), always(Does(10))), "bound")
    state = run.resume(after=5)
    assert state.finished_at is not None
    assert state.finished_at - state.started_at < 60


def test_what_had_ended_when_the_engine_went_counts() -> None:
    run = crashed(Run(a_plan([a_task("a")]), always(Does(10))), "ended", before=True)
    assert run.resume().status is RunStatus.SUCCEEDED
    assert run.causes("a") == ["succeeded"]


def test_what_waited_for_a_node_when_the_engine_went_waits_again_uncharged() -> None:
    run = crashed(Run(a_plan([a_task("a")]), always(Does(10))), "placed")
    run.resume()
    assert run.causes("a") == ["succeeded"]


def test_time_without_an_engine_is_no_waiting() -> None:
    run = crashed(Run(a_plan(a_fan(2), ONE_AT_A_TIME), always(Does(100))), "placed")
    run.resume(after=10_000)
    assert run.told("moved") == []


def test_patience_goes_on_where_it_was() -> None:
    config = a_config(a_pool(max_nodes=0), policy={"spot": "require", "pending_timeout": "300s"})
    run = Run(a_plan([a_task("a")], config))
    run.world.at(100, "note", text="the engine goes 100 s later")
    crashed(run, "note")
    run.resume(after=1000)
    assert run.world.now - START == 1000 + 300


def test_a_task_is_stopped_again_after_a_crash_in_the_middle_of_stopping() -> None:
    """The first engine asked it to end and went; the second one must be able to ask again."""
    run = Run(a_plan([a_task("a")], ONE_AT_A_TIME), always(Does(500)))
    run.world.at(0.5, "stop", why="stopped by the user")
    crashed(run, "halt")
    a_world = run.a_world

    def cancelled_after_a_minute(state: RunState) -> World:
        world = a_world(state)
        world.at(60, "cancel")
        return world

    run.a_world = cancelled_after_a_minute  # type: ignore[method-assign]
    assert (run.resume().status, run.world.now - START) == (RunStatus.CANCELLED, 61)


def test_a_crash_while_cancelling_can_be_finished_by_cancelling() -> None:
    run = Run(a_plan([a_task("a")]), always(Does(500)))
    run.world.at(60, "cancel")
    crashed(run, "cancel")
    assert run.resume(afresh=False).status is RunStatus.CANCELLED


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("append", range(1, 12))
def test_a_crash_at_any_append_changes_no_output(append: int, before: bool) -> None:
    script = scripted({"left": [Does(3, TAKEN)], "right": [Does(5)]})
    run = Run(a_plan(a_diamond()), script)
    assert run.start_with_crashes([(append, before)]).status is RunStatus.SUCCEEDED
    assert run.outputs == {"bottom.out": "bottom(left=left(top=top()),right=right(top=top()))"}
    for task in run.state.tasks.values():
        assert [str(attempt.cause) for attempt in task.attempts].count("succeeded") == 1


def test_nodes_of_different_engines_have_different_names() -> None:
    run = crashed(Run(a_plan(a_chain(2)), always(Does(10))), "ended")
    run.resume()
    assert set(run.state.nodes) == {"spot-1", "spot-2"}


def test_a_run_that_crashed_replays_from_its_journal() -> None:
    run = crashed(Run(a_plan(a_diamond()), scripted({"left": [Does(3, TAKEN)]})), "ended")
    run.resume()
    assert decided_again(run.plans, run.events, run.answers) == run.events


# A failure


def test_only_what_did_not_succeed_runs_when_a_failed_run_is_resumed() -> None:
    run = Run(a_plan(a_chain(3)), scripted({"t1": [Does(1, FAILED)]}))
    run.start()
    assert run.resume().status is RunStatus.SUCCEEDED
    assert [attempts(run, path) for path in ("t0", "t1", "t2")] == [1, 2, 1]


def test_a_failed_run_is_resumed_with_fresh_budgets() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1}})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Does(1, FAILED)] * 3}))
    assert run.start().status is RunStatus.FAILED
    assert run.resume().status is RunStatus.SUCCEEDED
    assert run.state.tasks["a"].spent.errors == 1


def test_attempts_keep_their_numbers_over_a_resume() -> None:
    run = Run(a_plan([a_task("a")]), scripted({"a": [Does(1, FAILED)]}))
    run.start()
    run.resume()
    assert [attempt.number for attempt in run.state.tasks["a"].attempts] == [1, 2]


def test_a_resumed_task_begins_at_the_top_of_the_ladder() -> None:
    config = a_config(policy={"spot": "prefer", "fall_back_after": 1})
    run = Run(a_plan([a_task("a")], config), scripted({"a": [Does(1, TAKEN), Does(1, FAILED)]}))
    run.start()
    run.resume()
    assert run.pools("a") == ["spot", "on-demand", "spot"]


def test_a_cancelled_run_can_be_resumed() -> None:
    run = Run(a_plan(a_chain(2)), always(Does(10)))
    run.world.at(5, "cancel")
    run.start()
    assert run.resume().status is RunStatus.SUCCEEDED


def test_a_run_that_failed_and_crashed_begins_afresh() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Does(1, FAILED)], "t1": [Does(100)]}))
    crashed(run, "ended")
    assert run.resume().status is RunStatus.SUCCEEDED
    assert (run.causes("t0"), run.causes("t1")) == (["failed", "succeeded"], ["lost", "succeeded"])


def test_what_waited_for_a_node_is_withdrawn_when_a_run_begins_afresh() -> None:
    run = crashed(Run(a_plan(a_fan(2), ONE_AT_A_TIME), always(Does(10))), "bound")
    run.resume(afresh=True)
    assert run.causes("t1") == ["cancelled", "succeeded"]


# Mended code


def test_a_task_whose_code_changed_runs_again_with_what_follows_it() -> None:
    run = Run(a_plan(a_diamond()), scripted({"bottom": [Does(1, FAILED)]}))
    run.start()
    mended = a_plan([a_task("top"), a_task("left", "top", parameters=constants(**MENDED)), *a_diamond()[2:]])
    run.resume(mended=mended, again=["left"])
    assert [attempts(run, path) for path in ("top", "left", "right", "bottom")] == [1, 2, 1, 2]
    assert run.outputs == {"bottom.out": "bottom(left=left(lr=1),right=right(top=top()))"}


def test_what_follows_is_found_without_being_named() -> None:
    run = Run(a_plan([*a_chain(4), a_task("bad")]), scripted({"bad": [Does(9, FAILED)]}))
    run.start()
    run.resume(mended=a_plan([*a_chain(4), a_task("bad")]), again=["t1"])
    assert [attempts(run, f"t{n}") for n in range(4)] == [1, 2, 2, 2]


def test_a_new_task_runs() -> None:
    run = Run(a_plan(a_chain(2)), scripted({"t1": [Does(1, FAILED)]}))
    run.start()
    run.resume(mended=a_plan([*a_chain(2), a_task("new", "t0")]))
    assert run.causes("new") == ["succeeded"]


def test_a_task_that_follows_a_new_task_runs_again() -> None:
    run = Run(a_plan([a_task("a"), a_task("bad")]), scripted({"bad": [Does(1, FAILED)]}))
    run.start()
    run.resume(mended=a_plan([a_task("new"), a_task("a", "new"), a_task("bad")]))
    assert run.outputs["a.out"] == "a(new=new())"


def test_a_task_that_is_gone_is_no_part_of_the_run_but_of_its_account() -> None:
    run = Run(a_plan([a_task("a"), a_task("gone"), a_task("bad")]), scripted({"bad": [Does(1, FAILED)]}))
    run.start()
    run.resume(mended=a_plan([a_task("a"), a_task("bad")]))
    assert set(run.state.tasks) == {"a", "bad"}
    assert [str(attempt.cause) for attempt in run.state.retired["gone"].attempts] == ["succeeded"]


def test_a_task_that_was_gone_and_comes_back_runs_again() -> None:
    run = Run(a_plan([a_task("a"), a_task("b")]), scripted({"a": [Does(1, FAILED)] * 2}))
    run.start()
    run.resume(mended=a_plan([a_task("a")]))
    run.resume(mended=a_plan([a_task("a"), a_task("b")]))
    assert run.causes("b") == ["succeeded", "succeeded"]


def test_a_run_that_succeeded_can_be_resumed_with_mended_code() -> None:
    run = Run(a_plan(a_chain(2)))
    run.start()
    mended = a_plan([a_task("t0"), a_task("t1", "t0", parameters=constants(**MENDED))])
    run.resume(mended=mended, again=["t1"])
    assert (run.outputs, attempts(run, "t0")) == ({"t1.out": "t1(lr=1)"}, 1)


def test_the_pools_of_the_mended_plan_count() -> None:
    run = Run(a_plan([a_task("a")], a_config(a_pool("old"), policy={"spot": "require"})), always(Does(1, FAILED)))
    run.start()
    run.script = always(Does(1))
    run.resume(mended=a_plan([a_task("a")], a_config(a_pool("new"), policy={"spot": "require"})))
    assert run.pools("a") == ["old", "new"]


def test_two_resumes_in_a_row_with_mended_code_run_it_once_each() -> None:
    run = Run(a_plan([a_task("a"), a_task("bad")]), scripted({"bad": [Does(1, FAILED)] * 2}))
    run.start()
    run.resume(mended=a_plan([a_task("a", parameters=constants(v=2)), a_task("bad")]), again=["a"])
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
    run = Run(a_nested_plan(), scripted({"bad": [Does(30, FAILED)]}))
    run.start()
    return run


def counts(run: Run) -> dict[str, int]:
    return {path: len(task.attempts) for path, task in run.state.tasks.items()}


def test_a_kept_pipeline_keeps_its_tasks() -> None:
    run = nested_run()
    run.resume()
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 1, "loop/b": 1, "after": 1, "bad": 2}
    assert run.state.tasks["loop/b"].status is TaskStatus.SUCCEEDED


def test_a_change_inside_a_pipeline_runs_that_and_what_follows_inside_and_outside() -> None:
    run = nested_run()
    run.resume(mended=a_nested_plan(2), again=["loop/a"])
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 2, "loop/b": 2, "after": 2, "bad": 2}
    assert run.outputs["after.out"] == "after(loop=loop/b(a=loop/a(v=2)))"


def test_a_change_before_a_pipeline_runs_everything_inside_it() -> None:
    run = nested_run()
    run.resume(mended=a_nested_plan(first=2), again=["first"])
    assert counts(run) == {"first": 2, "loop": 0, "loop/a": 2, "loop/b": 2, "after": 2, "bad": 2}


def test_a_new_task_inside_a_pipeline_runs_alone_with_what_follows_the_pipeline() -> None:
    run = nested_run()
    run.resume(mended=a_nested_plan(extra=True))
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 1, "loop/b": 1, "loop/c": 1, "after": 2, "bad": 2}


def test_a_pipeline_that_was_under_way_goes_on_inside() -> None:
    run = Run(a_nested_plan(), scripted({"loop/b": [Does(1, FAILED)]}))
    run.start()
    run.resume()
    assert counts(run) == {"first": 1, "loop": 0, "loop/a": 1, "loop/b": 2, "after": 1, "bad": 1}


def test_a_pipeline_whose_input_changed_while_it_was_under_way_begins_again() -> None:
    run = Run(a_nested_plan(), scripted({"loop/b": [Does(1, FAILED)]}))
    run.start()
    run.resume(mended=a_nested_plan(first=2), again=["first"])
    assert counts(run) == {"first": 2, "loop": 0, "loop/a": 2, "loop/b": 2, "after": 1, "bad": 1}


def test_an_attempt_that_was_lost_is_an_interruption() -> None:
    run = Run(a_plan([a_task("a")]), scripted({"a": [Does(1, LOST)]}))
    run.start()
    assert run.state.tasks["a"].spent.interruptions == 1
