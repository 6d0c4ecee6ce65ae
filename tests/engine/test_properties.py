"""Promises that hold for any pipeline, any ends of attempts, any supply and any crash."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import a_body, a_config, a_dag, a_loop, a_plan, a_pool, a_task, when
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, LOST, MOVED, SUCCEEDED, TAKEN, Behavior, scripted
from tests.events import data_of

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.plan import Plan
from spotwright.graph import TaskSpec
from spotwright.model.attempts import Signals
from spotwright.model.pools import Trace
from spotwright.scheduling.budgets import MAX_MOVES

HALF = Signals(exit_code=0, outputs_complete=False)
OOM = Signals(exit_code=137, oom_kills=1)
ENDS = st.sampled_from([SUCCEEDED, FAILED, TAKEN, TAKEN, LOST, MOVED, HALF, OOM, Signals(timed_out=True, signal=9)])
DOES = st.builds(Behavior, st.sampled_from([0.5, 1.0, 7.0, 40.0]), ENDS, st.integers(0, 3))
PLACES = st.builds(
    lambda boot, taken, notice, most, lifetime: {
        "simulate": {"boot": boot, "taken_every": taken}, "notice": notice, "max_nodes": most, "lifetime": lifetime,
    },
    st.sampled_from([0.0, 2.0]), st.sampled_from([None, 5.0, 60.0]), st.sampled_from([0.0, 10.0]), st.integers(0, 3),
    st.sampled_from([None, 30.0]),
)  # fmt: skip
POLICIES = st.fixed_dictionaries(
    {
        "interruptions": st.fixed_dictionaries({"max": st.integers(0, 4)}),
        "errors": st.fixed_dictionaries({"retries": st.integers(0, 2)}),
        "pending_timeout": st.sampled_from(["5s", "60s"]),
    },
    optional={"spot": st.sampled_from(["require", "prefer"])},
)


@st.composite
def graphs(draw: st.DrawFn, depth: int = 1) -> tuple[list[TaskSpec], dict[str, Any]]:
    """Tasks that follow some of those before them; a few are pipelines."""
    tasks: list[TaskSpec] = []
    dags: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 5))):
        after = [task.name for task in tasks if draw(st.integers(0, 2)) == 0]
        kind = draw(st.sampled_from(["task"] * 6 + ["pipeline", "loop", "branch", "exit"] if depth else ["task"]))
        if kind in ("pipeline", "loop"):
            inside, _ = draw(graphs(depth=0))
            dags[f"dag-{number}"] = (a_dag if kind == "pipeline" else a_body)(*inside, out=inside[-1].name)
        tasks.append(draw(a_task_of(kind, f"t{number}", after, f"dag-{number}")))
    return tasks, dags


@st.composite
def a_task_of(draw: st.DrawFn, kind: str, name: str, after: list[str], dag: str) -> TaskSpec:
    if kind == "loop":
        items = draw(st.lists(st.integers(0, 3), max_size=3))
        return a_loop(name, *after, items=items, limit=draw(st.integers(0, 2)), dag=dag)
    if kind == "branch":
        return a_task(name, *after, **when("x == 1", x=draw(st.integers(1, 2))))
    return a_task(name, *after, dag=dag if kind == "pipeline" else None, after_all=kind == "exit" and bool(after))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    spot = a_pool(**draw(PLACES))
    on_demand = a_pool("on-demand", spot=False, max_nodes=draw(st.integers(0, 2)))
    tasks, dags = draw(graphs())
    return a_plan(tasks, a_config(spot, on_demand, policy=draw(POLICIES)), **dags)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    endings = draw(st.dictionaries(st.sampled_from([f"t{n}" for n in range(5)]), st.lists(DOES, max_size=6)))
    traces = draw(st.one_of(st.just({}), st.builds(lambda c: {"spot": Trace(15.0, tuple(c))}, COUNTS)))
    return Run(
        draw(plans()),
        scripted(endings),
        seed=draw(st.integers(0, 3)),
        scale=draw(st.sampled_from([1.0, 60.0])),
        traces=traces,
    )


COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(runs())
def test_every_run_ends_and_says_why(run: Run) -> None:
    run.start()
    assert run.state.status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    assert (run.state.status is RunStatus.SUCCEEDED) == (not run.state.failed)
    assert run.state.why or run.state.status is RunStatus.SUCCEEDED


@given(runs())
def test_budgets_hold(run: Run) -> None:
    run.start()
    for task in run.state.tasks.values():
        policy = task.plan.policy
        causes = Counter(attempt.cause for attempt in task.attempts)
        assert sum(n for cause, n in causes.items() if cause and cause.is_interruption) <= policy.max_interruptions + 1
        assert sum(n for cause, n in causes.items() if cause and cause.is_error) <= policy.retries + 1
        assert sum(n for cause, n in causes.items() if str(cause) == "disrupted") <= MAX_MOVES + 1


@given(runs())
def test_a_task_that_succeeded_never_runs_again(run: Run) -> None:
    run.start()
    done: set[str] = set()
    for event in run.events:
        assert not (event.kind in ("placed", "bound") and event.task in done)
        if data_of(event).get("then") == "succeed":
            assert event.task not in done
            done.add(event.task)


@given(runs())
def test_a_task_has_one_live_attempt_at_most_and_it_is_the_last(run: Run) -> None:
    run.start()
    live: dict[str, int] = {}
    for event in run.events:
        if event.kind == "placed":
            assert event.task not in live
            live[event.task] = event.attempt
        elif event.kind == "bound":
            assert live[event.task] == event.attempt
        elif event.kind == "decided":
            assert live.pop(event.task) == event.attempt
    assert live == {}


@given(runs())
def test_attempts_run_only_on_pools_that_the_policy_allows(run: Run) -> None:
    run.start()
    for task in run.state.tasks.values():
        interruptions = 0
        for attempt in task.attempts:
            if attempt.pool is not None and task.plan.policy.spot == "require":
                assert attempt.pool == "spot"
            if attempt.pool is not None and task.plan.policy.spot == "prefer":
                assert attempt.pool == "on-demand" or interruptions < task.plan.policy.fall_back_after
            interruptions += attempt.cause is not None and attempt.cause.is_interruption


@given(runs())
def test_every_attempt_that_ran_had_a_node_that_was_ready(run: Run) -> None:
    run.start()
    for task in run.state.tasks.values():
        for attempt in task.attempts:
            if attempt.node is None:
                continue
            node = run.state.nodes[attempt.node]
            assert attempt.bound_at is not None
            assert node.ready_at is not None
            assert node.ready_at <= attempt.bound_at
            assert node.noticed_at is None or attempt.bound_at <= node.noticed_at


@given(runs())
def test_no_task_runs_before_its_upstream_tasks(run: Run) -> None:
    run.start()
    done: set[str] = set()
    over: set[str] = set()
    for event in run.events:
        if event.kind == "placed":
            task = run.state.tasks[event.task]
            ended = done | over if task.plan.spec.after_all else done
            before = {task.scope.place.child(name) for name in task.plan.spec.after}
            assert before <= ended or (task.plan.spec.after_all and task.scope.failed)
        elif event.kind == "completed" or data_of(event).get("then") == "succeed":
            done.add(event.task)
        elif event.kind in ("skipped", "failed") or data_of(event).get("then") == "fail":
            over.add(event.task)


@given(runs())
def test_any_run_replays_from_its_journal(run: Run) -> None:
    run.start()
    replay_decisions(run.plans, run.events)


@given(plans(), st.integers(0, 3), st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4))
def test_outputs_do_not_depend_on_interruptions_and_crashes(
    plan: Plan, seed: int, crashes: list[tuple[int, bool]]
) -> None:
    """A run that succeeds has the outputs of the undisturbed run, and each task succeeded exactly once."""
    quiet = Run(Plan(plan.graph, a_config()))
    quiet.start()
    run = Run(plan, seed=seed)
    run.start_with_crashes(crashes)
    if run.state.status is RunStatus.SUCCEEDED:
        assert run.outputs == quiet.outputs
        for path, task in run.state.tasks.items():
            ran = task.plan.spec.dag is None and task.status is TaskStatus.SUCCEEDED
            assert run.causes(path).count("succeeded") == ran


@given(runs(), st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4))
def test_a_crashed_run_can_always_be_resumed_to_an_end(run: Run, crashes: list[tuple[int, bool]]) -> None:
    run.start_with_crashes(crashes)
    assert run.state.status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
    replay_decisions(run.plans, run.events)


@given(runs(), st.integers(0, 80), st.sampled_from(["cancel", "stop"]))
def test_a_stopped_run_has_no_live_attempt_and_can_be_resumed(run: Run, seconds: int, kind: str) -> None:
    run.world.at(seconds, kind, **({"why": "stopped by the user"} if kind == "stop" else {}))
    run.start()
    assert not run.state.under_way
    assert run.world.left_running == []
    before = {path for path, task in run.state.tasks.items() if "succeeded" in run.causes(path) and task.attempts}
    before -= _after_a_failure(run)  # what they follow is tried again, and so are they
    counts = {path: len(run.state.tasks[path].attempts) for path in before}
    if run.state.status is not RunStatus.SUCCEEDED:
        run.resume()
    assert {path: len(run.state.tasks[path].attempts) for path in before} == counts


def _after_a_failure(run: Run) -> set[str]:
    """Exit handlers downstream of a task that did not succeed, and their downstream tasks."""
    blocked: set[str] = set()
    for path, task in run.state.tasks.items():
        upstream = [task.scope.place.child(name) for name in task.plan.spec.after]
        if any(run.state.tasks[each].status is not TaskStatus.SUCCEEDED or each in blocked for each in upstream):
            blocked.add(path)
    return blocked
