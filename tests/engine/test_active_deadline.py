"""The time limit of a whole run (``active_deadline_seconds`` of the pipeline), on virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.engine.builders import START, a_config, a_dag, a_plan, a_pool, a_task
from tests.engine.driving import Crash, Run
from tests.engine.scripts import FAILED, Behavior, always, scripted

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.plan import Plan
from spotwright.graph import Dag, Loop, TaskSpec

OVER = "the run took longer than the 100s that its pipeline allows"


def limited(root: Dag | Sequence[TaskSpec], seconds: float = 100.0, **dags: Dag) -> Plan:
    plan = a_plan(root, a_config(a_pool(), policy={"spot": "require"}), None, **dags)
    return replace(plan, graph=replace(plan.graph, active_deadline=seconds))


def statuses(run: Run) -> dict[str, str]:
    return {path: task.status.value for path, task in run.state.tasks.items()}


def test_a_run_that_ends_before_its_active_deadline_succeeds() -> None:
    run = Run(limited([a_task("a"), a_task("b", "a")]), always(Behavior(20)))
    assert run.start().status is RunStatus.SUCCEEDED
    assert not run.events_of("expired")


def test_at_the_active_deadline_running_tasks_are_stopped_and_fail_and_no_task_starts() -> None:
    run = Run(
        limited([a_task("a"), a_task("long"), a_task("b", "long")]),
        scripted({"a": [Behavior(10)], "long": [Behavior(1000)]}),
    )
    run.start()
    assert (run.state.status, statuses(run)) == (
        RunStatus.FAILED,
        {"a": "succeeded", "long": "failed", "b": "waiting"},
    )
    assert run.causes("long") == ["cancelled"]
    assert run.state.why.startswith(OVER)
    assert run.events_of("expired")[0].at == START + 100
    assert run.events_of("finished")[0].at < START + 200


def test_exit_tasks_and_tasks_inside_them_run_after_the_active_deadline() -> None:
    inner = a_dag(a_task("x"), a_task("y", "x"), out="y")
    exits = replace(a_task("exit", dag="inner"), after=("long",), after_all=True)
    run = Run(
        limited([a_task("long"), exits], inner=inner), scripted({"long": [Behavior(1000)], "exit/x": [Behavior(300)]})
    )
    run.start()
    assert statuses(run) == {"long": "failed", "exit": "succeeded", "exit/x": "succeeded", "exit/y": "succeeded"}
    assert run.state.status is RunStatus.FAILED


def test_a_task_in_backoff_fails_at_the_active_deadline() -> None:
    plan = limited([a_task("a")])
    config = a_config(a_pool(), policy={"spot": "require", "errors": {"retries": 5, "backoff": "1h"}})
    run = Run(replace(plan, config=config), always(Behavior(10, FAILED)))
    run.start()
    assert (run.causes("a"), run.state.tasks["a"].status) == (["failed"], TaskStatus.FAILED)
    assert run.events_of("finished")[0].at == START + 100


def test_a_pending_task_fails_at_the_active_deadline() -> None:
    pool = a_pool(max_nodes=1, node=None)
    plan = limited([a_task("a"), a_task("b")])
    config = a_config(pool, policy={"spot": "require", "pending_timeout": "1d"})
    run = Run(replace(plan, config=config), always(Behavior(1000)))
    run.start()
    assert statuses(run) == {"a": "failed", "b": "failed"}


def test_a_loop_opens_no_iteration_after_the_active_deadline() -> None:
    loop = replace(a_task("loop", dag="inner"), loop=Loop("item", raw=(1, 2, 3), limit=1))
    run = Run(limited([loop], inner=a_dag(a_task("x"))), always(Behavior(70)))
    run.start()
    assert statuses(run) == {"loop": "failed", "loop/x-0": "succeeded", "loop/x-1": "failed"}


def test_the_active_deadline_does_not_depend_on_the_time_scale() -> None:
    run = Run(limited([a_task("a")]), always(Behavior(60)), scale=10.0)
    assert run.start().status is RunStatus.SUCCEEDED


def test_a_reset_run_gets_a_new_active_deadline() -> None:
    does = {1: Behavior(1000), 2: Behavior(90)}
    run = Run(limited([a_task("a")]), lambda _path, number: does[number])
    assert run.start().status is RunStatus.FAILED
    assert run.resume(after=10_000).status is RunStatus.SUCCEEDED


def test_time_without_an_engine_does_not_count_towards_the_active_deadline() -> None:
    run = Run(limited([a_task("a"), a_task("b", "a")]), always(Behavior(40)))
    run.journal.crash_on = "decided"
    with pytest.raises(Crash):
        run.start()
    assert run.resume(after=10_000).status is RunStatus.SUCCEEDED


def test_a_run_that_expired_replays_from_its_journal() -> None:
    exits = replace(a_task("exit"), after=("long",), after_all=True)
    run = Run(
        limited([a_task("long"), a_task("beside"), exits]),
        scripted({"long": [Behavior(1000)], "beside": [Behavior(150)]}),
    )
    run.start()
    replay_decisions(run.plans, run.events)
