"""Promises that hold for any pipeline, any ends of attempts, any supply and any crash."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import a_config
from tests.engine.driving import Run
from tests.engine.random_runs import plans, runs
from tests.events import data_of

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.plan import Plan
from spotwright.scheduling.budgets import MAX_MOVES


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
