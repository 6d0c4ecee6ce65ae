"""How long a whole run may take (``active_deadline_seconds`` of the pipeline), on virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.engine.builders import START, a_config, a_dag, a_plan, a_pool, a_task
from tests.engine.driving import Crash, Run, decided_again
from tests.engine.world import FAILED, Does, always, scripted

from spotwright.engine.plan import Plan
from spotwright.engine.state import RunStatus, TaskStatus
from spotwright.pipelines.spec import Dag, Loop, TaskSpec

OVER = "the run has taken longer than the 100s that its pipeline allows"


def limited(root: Dag | Sequence[TaskSpec], seconds: float = 100.0, **dags: Dag) -> Plan:
    plan = a_plan(root, a_config(a_pool(), policy={"spot": "require"}), None, **dags)
    return replace(plan, pipeline=replace(plan.pipeline, active_deadline=seconds))


def statuses(run: Run) -> dict[str, str]:
    return {path: task.status.value for path, task in run.state.tasks.items()}


def test_a_run_that_ends_in_time_is_left_alone() -> None:
    run = Run(limited([a_task("a"), a_task("b", "a")]), always(Does(20)))
    assert run.start().status is RunStatus.SUCCEEDED
    assert not run.told("expired")


def test_at_the_end_of_its_time_what_runs_is_stopped_and_fails_and_nothing_begins() -> None:
    run = Run(
        limited([a_task("a"), a_task("long"), a_task("b", "long")]), scripted({"a": [Does(10)], "long": [Does(1000)]})
    )
    run.start()
    assert (run.state.status, statuses(run)) == (
        RunStatus.FAILED,
        {"a": "succeeded", "long": "failed", "b": "waiting"},
    )
    assert run.causes("long") == ["cancelled"]
    assert run.state.why.startswith(OVER)
    assert run.told("expired")[0].at == START + 100
    assert run.told("finished")[0].at < START + 200


def test_exit_tasks_run_after_it_with_what_is_inside_them() -> None:
    inner = a_dag(a_task("x"), a_task("y", "x"), out="y")
    exits = replace(a_task("exit", dag="inner"), after=("long",), after_all=True)
    run = Run(limited([a_task("long"), exits], inner=inner), scripted({"long": [Does(1000)], "exit/x": [Does(300)]}))
    run.start()
    assert statuses(run) == {"long": "failed", "exit": "succeeded", "exit/x": "succeeded", "exit/y": "succeeded"}
    assert run.state.status is RunStatus.FAILED


def test_a_task_that_waits_for_its_next_attempt_fails_at_once() -> None:
    plan = limited([a_task("a")])
    config = a_config(a_pool(), policy={"spot": "require", "errors": {"retries": 5, "backoff": "1h"}})
    run = Run(replace(plan, config=config), always(Does(10, FAILED)))
    run.start()
    assert (run.causes("a"), run.state.tasks["a"].status) == (["failed"], TaskStatus.FAILED)
    assert run.told("finished")[0].at == START + 100


def test_a_task_that_waits_for_a_node_fails_at_once() -> None:
    pool = a_pool(max_nodes=1, node=None)
    plan = limited([a_task("a"), a_task("b")])
    config = a_config(pool, policy={"spot": "require", "pending_timeout": "1d"})
    run = Run(replace(plan, config=config), always(Does(1000)))
    run.start()
    assert statuses(run) == {"a": "failed", "b": "failed"}


def test_a_loop_opens_no_further_iterations() -> None:
    loop = replace(a_task("loop", dag="inner"), loop=Loop("item", raw=(1, 2, 3), limit=1))
    run = Run(limited([loop], inner=a_dag(a_task("x"))), always(Does(70)))
    run.start()
    assert statuses(run) == {"loop": "failed", "loop/x-0": "succeeded", "loop/x-1": "failed"}


def test_it_does_not_depend_on_the_time_scale() -> None:
    run = Run(limited([a_task("a")]), always(Does(60)), scale=10.0)
    assert run.start().status is RunStatus.SUCCEEDED


def test_a_resumed_run_has_all_of_its_time_again() -> None:
    does = {1: Does(1000), 2: Does(90)}
    run = Run(limited([a_task("a")]), lambda _path, number: does[number])
    assert run.start().status is RunStatus.FAILED
    assert run.resume(after=10_000).status is RunStatus.SUCCEEDED


def test_the_time_in_which_no_engine_was_there_does_not_count() -> None:
    run = Run(limited([a_task("a"), a_task("b", "a")]), always(Does(40)))
    run.journal.crash_on = "decided"
    with pytest.raises(Crash):
        run.start()
    assert run.resume(after=10_000).status is RunStatus.SUCCEEDED


def test_a_journal_that_holds_it_decides_the_same_again() -> None:
    exits = replace(a_task("exit"), after=("long",), after_all=True)
    run = Run(
        limited([a_task("long"), a_task("beside"), exits]), scripted({"long": [Does(1000)], "beside": [Does(150)]})
    )
    run.start()
    assert decided_again(run.plans, run.events, run.answers) == run.events
