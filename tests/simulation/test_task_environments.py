"""Python environments are prepared before attempts are placed: no node, no attempt and no budget while packages are installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.engine.builders import CODE, ON_DEMAND, START, a_config, a_plan, a_pool, a_task
from tests.engine.driving import Crash, CrashingJournal, Run, ScriptedWorld
from tests.engine.scripts import FAILED, TAKEN, Behavior, scripted

from spotwright.engine.events import EnvironmentAsked, EnvironmentChanged, Event, RunStatus, TaskStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.ports import Outcome, Refused
from spotwright.engine.state import RunState
from spotwright.graph import TaskSpec
from spotwright.views.account import account

BUILD = 30.0
PANDAS, TORCH = (replace(CODE, packages=(package,)) for package in ("pandas", "torch"))
WHY = "no package index has pandas"


class Building(ScriptedWorld):
    """A world in which each environment is built once in 30 s; those in ``broken`` cannot be built."""

    built: set[object]
    broken: set[object]
    builds: list[str]
    refused = ""

    def on_decisions(self, state: RunState, decisions: Sequence[Event]) -> list[Event]:
        asked = [event for event in decisions if isinstance(event, EnvironmentAsked)]
        answers = [
            EnvironmentChanged(
                event.at, event.task, state="ready" if self._key(state, event) in self.built else "building"
            )
            for event in asked
        ]
        others = [event for event in decisions if not isinstance(event, EnvironmentAsked)]
        return [*answers, *super().on_decisions(state, others)]

    def prepare(self, state: RunState, event: EnvironmentAsked) -> Outcome:
        if event.task not in state.preparing:
            return None
        if self.refused:
            return Refused(self.refused)
        self.builds.append(event.task)
        self.schedule(self.now + BUILD, lambda at: self._ended(state, event, at))
        return None

    def _ended(self, state: RunState, event: EnvironmentAsked, at: float) -> Event:
        key = self._key(state, event)
        if key in self.broken:
            return EnvironmentChanged(at, event.task, state="failed", why=WHY, last_lines=("ERROR: no pandas",))
        self.built.add(key)
        return EnvironmentChanged(at, event.task, state="ready")

    @staticmethod
    def _key(state: RunState, event: EnvironmentAsked) -> object:
        executor = state.tasks[event.task].plan.spec.executor
        return executor.environment if executor is not None else None


def a_run(
    *tasks: TaskSpec,
    script: object = None,
    broken: Sequence[object] = (),
    policy: dict[str, object] | None = None,
    deadline: float | None = None,
) -> Run:
    config = a_config(a_pool(simulate={"boot": 0.0}), ON_DEMAND, policy={"spot": "prefer", **(policy or {})})
    plan = a_plan(list(tasks), config)
    if deadline is not None:
        plan.graph = replace(plan.graph, active_deadline=deadline)
    run = Run(plan, world_type=Building, environments=True, **({"script": script} if script else {}))  # type: ignore[arg-type]
    return with_builds(run, broken=broken)


def with_builds(run: Run, built: set[object] | None = None, broken: Sequence[object] = ()) -> Run:
    world = run.world
    assert isinstance(world, Building)
    world.built, world.broken, world.builds = built or set(), set(broken), []
    return run


def test_an_attempt_is_placed_once_its_environment_is_ready() -> None:
    run = a_run(a_task("a", requests={"cpu": 1}))
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.events_of("prepare") == []  # it has no packages

    run = a_run(replace(a_task("a"), executor=PANDAS))
    state = run.start()
    (placed,), (bound,) = run.events_of("placed"), run.events_of("bound")
    environment = state.tasks["a"].environment
    assert environment is not None
    assert (environment.began_at, environment.ended_at) == (START, START + BUILD)
    assert placed.at == bound.at == START + BUILD


def test_no_node_is_requested_nor_paid_while_an_environment_is_built() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS))
    state = run.start()
    assert {node.booted_at for node in state.nodes.values()} == {START + BUILD}
    (attempt,) = account(state).attempts_by_start
    assert float(attempt.seconds) == pytest.approx(Behavior().seconds)


def test_tasks_with_the_same_packages_ask_once_under_an_engine_and_later_attempts_ask_not_again() -> None:
    first, second = (replace(a_task("a"), executor=PANDAS), replace(a_task("b", "a"), executor=PANDAS))
    run = a_run(
        first,
        second,
        script=scripted({"a": [Behavior(1.0, TAKEN)], "b": [Behavior(1.0, FAILED)]}),
        policy={"errors": {"retries": 1, "backoff": "10s"}},
    )
    assert run.start().status is RunStatus.SUCCEEDED
    assert [event.task for event in run.events_of("prepare")] == ["a"]
    assert (run.causes("a"), run.causes("b")) == (["interrupted", "succeeded"], ["failed", "succeeded"])


def test_an_environment_that_cannot_be_built_fails_its_task_without_an_attempt_or_a_retry() -> None:
    run = a_run(
        replace(a_task("a"), executor=PANDAS),
        a_task("b", "a"),
        broken=[PANDAS.environment],
        policy={"errors": {"retries": 5, "backoff": "1s"}},
    )
    state = run.start()
    task = state.tasks["a"]
    assert (state.status, task.status, task.attempts) == (RunStatus.FAILED, TaskStatus.FAILED, [])
    assert task.why == f"its Python environment cannot be built: {WHY}"
    assert (state.nodes, len(run.events_of("prepare"))) == ({}, 1)
    assert task.environment is not None
    assert task.environment.last_lines == ("ERROR: no pandas",)


def test_a_build_that_cannot_be_started_fails_its_task_with_the_reason() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS))
    run.world.refused = "no more processes"  # type: ignore[attr-defined]
    assert run.start().tasks["a"].why == "its Python environment cannot be built: no more processes"


def test_a_resume_after_a_failed_build_builds_again() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS), broken=[PANDAS.environment])
    assert run.start().status is RunStatus.FAILED
    made = run.a_world

    def mended(state: RunState) -> ScriptedWorld:
        world = made(state)
        assert isinstance(world, Building)
        world.built, world.broken, world.builds = set(), set(), []
        return world

    run.a_world = mended  # type: ignore[method-assign]
    assert run.resume().status is RunStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("kind", "before"), [("prepare", False), ("placed", True), ("placed", False), ("bound", False), ("ended", True)]
)
def test_after_a_crash_of_the_engine_the_next_one_asks_again_and_the_run_goes_on(kind: str, before: bool) -> None:
    tasks = (
        replace(a_task("a"), executor=PANDAS),
        replace(a_task("b"), executor=TORCH),
        replace(a_task("c", "a"), executor=TORCH),
    )
    run = a_run(*tasks)
    made, built = run.a_world, set[object]()

    def a_world(state: RunState) -> ScriptedWorld:
        world = made(state)
        assert isinstance(world, Building)
        world.built, world.broken, world.builds = built, set(), []
        return world

    run.a_world = a_world  # type: ignore[method-assign]
    run.world = a_world(run.state)
    run.journal = CrashingJournal(crash_on=kind, before=before)
    with pytest.raises(Crash):
        run.start()
    run.resume()
    assert run.state.status is RunStatus.SUCCEEDED
    assert {path: task.spent.errors for path, task in run.state.tasks.items()} == {"a": 0, "b": 0, "c": 0}
    replay_decisions(run.plans, run.events)


def test_a_build_that_finished_without_its_engine_counts_and_keeps_its_begin() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS))
    made = run.a_world

    def a_world(state: RunState) -> ScriptedWorld:
        world = made(state)
        assert isinstance(world, Building)
        world.built, world.broken, world.builds = {PANDAS.environment}, set(), []
        return world

    run.a_world = a_world  # type: ignore[method-assign]
    run.journal = CrashingJournal(crash_on="prepare")
    with pytest.raises(Crash):
        run.start()
    state = run.resume(after=100.0)
    environment = state.tasks["a"].environment
    assert (state.status, run.world.builds) == (RunStatus.SUCCEEDED, [])  # type: ignore[attr-defined]
    assert environment is not None
    assert (environment.began_at, environment.ended_at) == (START, START + 100.0)


def test_a_cancelled_run_does_not_wait_for_its_builds() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS))
    run.world.at(5.0, "cancel")
    state = run.start()
    assert (state.status, state.finished_at) == (RunStatus.CANCELLED, START + 5.0)


def test_a_run_whose_time_is_over_fails_the_tasks_that_wait_for_an_environment() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS), deadline=10.0)
    state = run.start()
    assert (state.status, state.tasks["a"].status, state.finished_at) == (
        RunStatus.FAILED,
        TaskStatus.FAILED,
        START + 10.0,
    )


def test_after_a_failure_a_task_whose_environment_is_built_does_not_start_any_more() -> None:
    run = a_run(
        a_task("fails"), replace(a_task("a"), executor=PANDAS), script=scripted({"fails": [Behavior(1.0, FAILED)]})
    )
    state = run.start()
    assert (state.status, state.tasks["a"].attempts) == (RunStatus.FAILED, [])
    assert state.finished_at is not None
    assert state.finished_at < START + BUILD


def test_an_exit_handler_waits_for_its_environment_and_runs_after_a_failure() -> None:
    handler = replace(a_task("handler"), executor=PANDAS, after=("fails",), after_all=True)
    run = a_run(a_task("fails"), handler, script=scripted({"fails": [Behavior(1.0, FAILED)]}))
    state = run.start()
    assert (state.status, run.causes("handler")) == (RunStatus.FAILED, ["succeeded"])


def test_an_engine_whose_body_prepares_nothing_places_at_once() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS))
    run.environments = False
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.events_of("prepare") == run.events_of("environment") == []


def test_a_replay_of_the_journal_decides_the_same() -> None:
    run = a_run(replace(a_task("a"), executor=PANDAS), replace(a_task("b"), executor=TORCH), broken=[TORCH.environment])
    run.start()
    replay_decisions(run.plans, run.events)
