"""Loops, conditions and exit handlers on virtual time: when they open, how they end, and how they are resumed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.builders import a_body, a_config, a_dag, a_loop, a_plan, a_pool, a_task, when
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, TAKEN, Behavior, scripted
from tests.events import data_of

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.plan import Plan
from spotwright.graph import Dag, DagInput, FinalStatus, OneOf, TaskOutput

BODY = a_body(a_task("a"), a_task("b", "a"), out="b")
WIDE = a_config(a_pool(max_nodes=20), policy={"spot": "require", "interruptions": {"max": 3}})


def looped(*items: Any, limit: int = 0, **more: Any) -> Plan:
    return a_plan([a_loop("l", items=items, limit=limit), a_task("end", "l")], WIDE, body=BODY, **more)


def attempts(run: Run) -> dict[str, int]:
    return {path: len(task.attempts) for path, task in run.state.tasks.items() if task.plan.spec.dag is None}


def test_an_iteration_has_its_number_in_the_paths_of_its_tasks() -> None:
    run = Run(looped("x", "y"))
    run.start()
    assert list(run.state.tasks) == ["l", "end", "l/a-0", "l/b-0", "l/a-1", "l/b-1"]


def test_a_loop_gives_the_outputs_of_its_iterations_in_order() -> None:
    run = Run(looped("x", "y"), scripted({"l/a-0": [Behavior(9)]}))
    run.start()
    assert run.outputs == {"end.out": "end(l=['l/b-0(a=l/a-0(item=x))', 'l/b-1(a=l/a-1(item=y))'])"}


def test_one_event_unfolds_a_loop_and_holds_its_items() -> None:
    run = Run(looped(1, {"deep": [2]}))
    run.start()
    assert [(event.task, dict(data_of(event))) for event in run.events_of("unfolded")] == [
        ("", {}),
        ("l", {"items": [1, {"deep": [2]}]}),
    ]


def test_a_limit_opens_the_next_iteration_when_one_has_ended() -> None:
    open_counts: list[int] = []

    def look(state: Any, _events: object) -> None:
        loop = state.tasks["l"].loop if "l" in state.tasks else None
        open_counts.append(loop.open if loop is not None else 0)

    run = Run(looped(1, 2, 3, 4, 5, limit=2), observers=[look])
    assert run.start().status is RunStatus.SUCCEEDED
    assert max(open_counts) == 2
    assert attempts(run)["l/b-4"] == 1


def test_a_loop_over_nothing_succeeds_with_empty_outputs() -> None:
    run = Run(looped())
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.outputs == {"end.out": "end(l=[])"}


def test_a_loop_over_a_value_that_is_no_list_fails_with_its_reason() -> None:
    loop = a_task("l", "a", dag="body", parameters={"items": TaskOutput("a", "out")}, loop=a_loop("l").loop)
    object.__setattr__(loop.loop, "items", "items")
    run = Run(a_plan([a_task("a"), loop], WIDE, body=BODY))
    assert run.start().status is RunStatus.FAILED
    assert run.state.why == "task l failed: items is neither a list nor a mapping, but the string 'a()'"


def test_after_a_failure_open_iterations_end_and_no_further_one_opens() -> None:
    script = scripted({"l/a-0": [Behavior(1, FAILED)], "l/a-1": [Behavior(9)]})
    run = Run(looped(1, 2, 3, limit=2), script)
    assert run.start().status is RunStatus.FAILED
    assert (run.causes("l/b-1"), "l/a-2" in run.state.tasks) == (["succeeded"], False)
    assert run.state.tasks["l"].why == "l/a-0 failed: no retry is left (errors.retries is 0)"


def test_interruptions_in_a_loop_are_counted_for_each_iteration() -> None:
    script = scripted({f"l/a-{n}": [Behavior(1, TAKEN)] * 3 for n in range(3)})
    run = Run(looped(1, 2, 3), script)
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.causes("l/a-2") == [*["interrupted"] * 3, "succeeded"]


def test_a_policy_by_path_counts_for_one_iteration() -> None:
    config = a_config(a_pool(max_nodes=9), policy={"spot": "require"}, tasks={"l/a-1": {"errors": {"retries": 1}}})
    plan = a_plan([a_loop("l")], config, body=BODY)
    run = Run(plan, scripted({f"l/a-{n}": [Behavior(1, FAILED)] for n in range(3)}))
    run.start()
    assert [attempts(run)[f"l/a-{n}"] for n in range(3)] == [1, 2, 1]


def test_a_policy_by_the_path_in_the_pipeline_counts_for_every_iteration() -> None:
    config = a_config(a_pool(max_nodes=9), policy={"spot": "require"}, tasks={"l/a": {"errors": {"retries": 1}}})
    run = Run(a_plan([a_loop("l")], config, body=BODY), scripted({f"l/a-{n}": [Behavior(1, FAILED)] for n in range(3)}))
    assert run.start().status is RunStatus.SUCCEEDED


def test_a_resumed_loop_runs_only_iterations_that_did_not_succeed() -> None:
    run = Run(looped(1, 2, 3, 4, limit=2), scripted({"l/b-2": [Behavior(1, FAILED)]}))
    run.start()
    done = {path for path in run.state.tasks if "succeeded" in run.causes(path)}
    run.script = scripted({})
    assert run.resume().status is RunStatus.SUCCEEDED
    counts = attempts(run)
    assert {counts[path] for path in done} == {1}
    assert counts["l/b-2"] == 2
    replay_decisions(run.plans, run.events)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("append", range(1, 16))
def test_a_crash_at_any_append_changes_nothing_in_a_loop(append: int, before: bool) -> None:
    run = Run(looped("x", "y", "z", limit=2), scripted({"l/a-1": [Behavior(3, TAKEN)]}))
    assert run.start_with_crashes([(append, before)]).status is RunStatus.SUCCEEDED
    assert run.outputs["end.out"].count("item=") == 3
    for path, task in run.state.tasks.items():
        assert run.causes(path).count("succeeded") == (task.plan.spec.dag is None)


def test_a_loop_in_a_loop_gives_lists_of_lists() -> None:
    outer = a_dag(a_loop("in", items=(7, 8), dag="inner"))
    outer = Dag("outer", tasks=outer.tasks, parameter_outputs={"out": TaskOutput("in", "out")})
    run = Run(a_plan([a_loop("l", items=(1, 2), dag="outer")], WIDE, outer=outer, inner=a_body(a_task("a"), out="a")))
    run.start()
    assert run.state.tasks["l/in-1/a-0"].status is TaskStatus.SUCCEEDED
    assert run.outputs["l.out"] == [
        ["l/in-0/a-0(item=7)", "l/in-0/a-1(item=8)"],
        ["l/in-1/a-0(item=7)", "l/in-1/a-1(item=8)"],
    ]


# Conditions


def test_tasks_downstream_of_a_skipped_task_are_skipped_and_the_run_succeeds() -> None:
    run = Run(a_plan([a_task("no", **when("x == 1", x=2)), a_task("b", "no"), a_task("c", "b"), a_task("d")]))
    assert run.start().status is RunStatus.SUCCEEDED
    why = {event.task: data_of(event)["why"] for event in run.events_of("skipped")}
    assert why == {
        "no": "its condition does not hold: x == 1",
        "b": "it follows no, which was skipped",
        "c": "it follows b, which was skipped",
    }


def test_a_condition_that_cannot_be_evaluated_fails_the_task() -> None:
    run = Run(a_plan([a_task("bad", **when("x == 1", x="text"))]))
    assert run.start().status is RunStatus.FAILED
    assert run.state.why == "task bad failed: 'text' and 1 cannot be compared"


def test_one_of_takes_the_output_of_the_branch_that_ran() -> None:
    either = OneOf((TaskOutput("yes", "out"), TaskOutput("no", "out")))
    dag = Dag(
        "root",
        tasks={"yes": a_task("yes", **when("x == 1", x=2)), "no": a_task("no", **when("x == 2", x=2))},
        parameter_outputs={"either": either},
    )
    run = Run(a_plan(dag))
    run.start()
    assert run.outputs == {"either": "no(x=2)"}


def test_a_skipped_task_stays_skipped_when_the_run_is_resumed() -> None:
    tasks = [a_task("no", **when("x == 1", x=2)), a_task("after", "no"), a_task("bad")]
    run = Run(a_plan(tasks), scripted({"bad": [Behavior(1, FAILED)]}))
    run.start()
    assert run.resume().status is RunStatus.SUCCEEDED
    assert [run.state.tasks[path].status for path in ("no", "after")] == [TaskStatus.SKIPPED] * 2


# After a failure


def guarded(*inside: str, **more: Any) -> Plan:
    tasks = [
        a_task("group", dag="dag"),
        a_task("exit", "group", after_all=True, parameters={"status": FinalStatus("group")}),
        *more.get("others", ()),
    ]
    return a_plan(tasks, WIDE, dag=a_dag(*(a_task(name) for name in inside)))


def test_an_exit_handler_runs_after_a_failure_and_the_run_has_failed() -> None:
    run = Run(guarded("bad"), scripted({"group/bad": [Behavior(1, FAILED)]}))
    assert run.start().status is RunStatus.FAILED
    assert run.state.why == "task group/bad failed: no retry is left (errors.retries is 0)"
    assert "'state': 'FAILED'" in run.state.tasks["exit"].parameters["out"]


def test_an_exit_handler_waits_until_everything_in_its_group_has_ended() -> None:
    run = Run(guarded("bad", "slow"), scripted({"group/bad": [Behavior(1, FAILED)], "group/slow": [Behavior(50)]}))
    run.start()
    ended = max(event.at for event in run.events_of("ended") if event.task == "group/slow")
    assert next(event.at for event in run.events_of("placed") if event.task == "exit") >= ended


def test_an_exit_handler_runs_when_its_group_never_started() -> None:
    tasks = [a_task("bad"), a_task("group", "bad", dag="dag"), a_task("exit", "group", after_all=True, parameters={})]
    run = Run(a_plan(tasks, WIDE, dag=a_dag(a_task("x"))), scripted({"bad": [Behavior(1, FAILED)]}))
    assert run.start().status is RunStatus.FAILED
    assert run.causes("exit") == ["succeeded"]


def test_a_failed_exit_handler_fails_the_run() -> None:
    run = Run(guarded("good"), scripted({"exit": [Behavior(1, FAILED)]}))
    assert run.start().status is RunStatus.FAILED
    assert run.state.why == "task exit failed: no retry is left (errors.retries is 0)"


def test_tasks_of_other_dags_go_on_after_a_failure() -> None:
    other = a_task("other", dag="chain")
    tasks = [a_task("bad"), other]
    chain = a_dag(a_task("x"), a_task("y", "x"))
    run = Run(a_plan(tasks, WIDE, chain=chain), scripted({"bad": [Behavior(1, FAILED)], "other/x": [Behavior(5)]}))
    assert run.start().status is RunStatus.FAILED
    assert run.causes("other/y") == ["succeeded"]


def test_an_exit_handler_that_is_interrupted_is_tried_again() -> None:
    run = Run(guarded("bad"), scripted({"group/bad": [Behavior(1, FAILED)], "exit": [Behavior(1, TAKEN), Behavior(1)]}))
    run.start()
    assert run.causes("exit") == ["interrupted", "succeeded"]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("append", range(1, 10))
def test_a_crash_at_any_append_changes_nothing_around_an_exit_handler(append: int, before: bool) -> None:
    run = Run(guarded("bad", "good"), scripted({"group/bad": [Behavior(1, FAILED)], "group/good": [Behavior(3)]}))
    run.start_with_crashes([(append, before)])
    if run.state.status is RunStatus.FAILED:
        assert run.causes("exit").count("succeeded") == 1
    replay_decisions(run.plans, run.events)


def test_a_field_of_an_item_is_read_from_a_mapping_or_its_json_text() -> None:
    body = a_dag(a_task("a", parameters={"v": DagInput("item", ("k", 1))}))
    run = Run(a_plan([a_loop("l", items=({"k": [1, 2]}, '{"k": [3, 4]}'))], WIDE, body=body))
    run.start()
    assert [run.state.tasks[f"l/a-{n}"].parameters["out"] for n in range(2)] == ["l/a-0(v=2)", "l/a-1(v=4)"]


@pytest.mark.parametrize("item", [{"other": 1}, 3, "no JSON", "[" * 100_000, [1]])
def test_an_item_without_the_field_fails_its_task_with_the_name_of_the_field(item: Any) -> None:
    body = a_dag(a_task("a", parameters={"v": DagInput("item", ("k",))}))
    run = Run(a_plan([a_loop("l", items=({"k": 1}, item))], WIDE, body=body))
    run.start()
    assert run.state.tasks["l/a-0"].status is TaskStatus.SUCCEEDED
    failed = run.state.tasks["l/a-1"]
    assert (failed.status, failed.attempts) == (TaskStatus.FAILED, [])
    assert failed.why.startswith(("item has no field 'k'", "item is neither a list nor a mapping"))
    replay_decisions(run.plans, run.events)
