"""The contract of a body (:mod:`spotwright.engine.ports`), tested on every world with the real engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.bodies.stages import LocalStage, SimulatedStage, Stage, plan_of
from tests.local.wheels import wheel
from tests.simulation.run import MemoryJournal

from spotwright.engine.decide import close_ended
from spotwright.engine.events import (
    AttemptBound,
    AttemptEnded,
    AttemptPlaced,
    CancelRequested,
    EngineDetached,
    EngineStarted,
    EnvironmentAsked,
    EnvironmentChanged,
    Event,
    NodeChanged,
    NoteAdded,
    NoticeGiven,
    RunCreated,
    RunMeta,
    RunStatus,
    StopRequested,
    TaskStatus,
)
from spotwright.engine.fold import fold, replay
from spotwright.engine.loop import Engine
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.ports import Backend, Outcome, Refused, TryAgain
from spotwright.engine.state import RunState, TaskState
from spotwright.local import backend as local_world
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse


@pytest.fixture(params=["local", "simulation"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made: Stage = LocalStage(tmp_path) if request.param == "local" else SimulatedStage()
    yield made
    made.close()


@dataclass
class Session:
    """A run on a stage, driven by one engine after another. ``around`` wraps every world."""

    stage: Stage
    tasks: Mapping[str, str]
    around: Callable[[Backend], Backend] = lambda world: world
    policy: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.plan, self.journal = plan_of(self.tasks, self.packages, **self.policy), MemoryJournal()
        self.state = RunState([self.plan])
        self._begin([RunCreated(self.stage.clock(), meta=RunMeta(run="contract"))])

    def _begin(self, facts: Sequence[Event]) -> None:
        self.world = self.around(self.stage.open(self.plan, self.state, self.tasks))
        clock, epoch = self.stage.clock, self.state.epoch + 1
        started = EngineStarted(clock(), epoch=epoch, environments=True)
        if not facts:
            self._take([*self.world.recover(self.state), started])
            self._take(close_ended(self.state, Snapshot(), clock()))
        self.world.begin(self.state)
        self.engine = Engine(self.state, self.journal, self.world, clock)
        self._until = self.engine.turn([*facts, started] if facts else [])

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            fold(self.state, event)
        self.journal.append(events)

    def drive(self, until: Callable[[RunState], bool], *facts: Event) -> Session:
        """Let the engine work until a condition holds."""
        deadline = time.monotonic() + 120
        if facts:
            self._until = self.engine.turn(facts)
        while not until(self.state):
            assert not self.engine.ended, f"the run is {self.state.status}"
            assert time.monotonic() < deadline, "it does not come"
            soon = self.stage.clock() + 0.2
            self._until = self.engine.turn(self.world.wait(min(soon, self._until or soon)))
        return self

    def drive_until_it_runs(self, name: str = "a") -> Session:
        """Drive until the code of a task's first attempt executes."""
        return self.drive(lambda state: state.tasks[name].status is TaskStatus.RUNNING and self.stage.has_started(name))

    def finish(self) -> Session:
        self.drive(lambda state: state.status is not RunStatus.RUNNING)
        self.engine.close()
        return self

    def resume(self) -> Session:
        """Let another engine take up the run, from the journal alone."""
        self.state = replay([self.plan], self.journal.events)
        self._begin(())
        return self

    def task(self, name: str = "a") -> TaskState:
        return self.state.tasks[name]

    def of(self, kind: type[Event], task: str = "") -> list[Any]:
        return [event for event in self.journal.events if isinstance(event, kind) and event.task == task]


def has_ended(number: int = 1, name: str = "a") -> Callable[[RunState], bool]:
    return lambda state: (
        len(state.tasks[name].attempts) >= number and not state.tasks[name].attempts[number - 1].is_live
    )


# Start and end


@pytest.mark.parametrize(("does", "cause"), [("succeeds", Cause.SUCCEEDED), ("fails", Cause.FAILED)])
def test_an_attempt_that_is_started_ends_once_with_its_exit_code(stage: Stage, does: str, cause: Cause) -> None:
    session = Session(stage, {"a": does}).drive(has_ended())
    (end,) = [event for event in session.of(AttemptEnded, "a") if event.attempt == 1]
    assert (end.signals.exit_code, end.settled) == (0 if does == "succeeds" else 3, False)
    assert session.task().attempts[0].cause is cause
    session.finish()


def test_an_attempt_starts_on_the_node_that_it_was_bound_to(stage: Stage) -> None:
    session = Session(stage, {"a": "succeeds"}).finish()
    (bound,) = session.of(AttemptBound, "a")
    ready = [event for event in session.of(NodeChanged) if event.state == "ready"]
    assert (bound.node, bound.pool) in {(event.node, event.pool) for event in ready}


def test_closing_gives_the_nodes_back_and_leaves_nothing_alive(stage: Stage) -> None:
    session = Session(stage, {"a": "runs"}).drive_until_it_runs()
    session.engine.close()
    assert stage.has_ended("a")
    assert all(node.gone_at is not None for node in session.state.nodes.values())


def test_waiting_ends_at_its_moment_when_nothing_happens(stage: Stage) -> None:
    session = Session(stage, {"a": "runs"}).drive_until_it_runs()
    moment = stage.clock() + 0.3
    assert session.world.wait(moment) == []
    assert moment <= stage.clock() < moment + 60
    session.engine.close()


# Halt and kill


def test_a_halted_attempt_ends_as_cancelled(stage: Stage) -> None:
    session = Session(stage, {"a": "runs"}).drive_until_it_runs()
    session.drive(has_ended(), CancelRequested(stage.clock())).finish()
    assert (session.task().last.cause, session.state.status) == (Cause.CANCELLED, RunStatus.CANCELLED)


def test_an_attempt_that_ignores_being_halted_is_ended_after_its_grace_period(stage: Stage) -> None:
    session = Session(stage, {"a": "ignores SIGTERM"}).drive_until_it_runs()
    asked = stage.clock()
    session.drive(has_ended(), StopRequested(asked, why="stop")).finish()
    assert session.state.status is RunStatus.STOPPED
    assert stage.clock() - asked < 300  # by itself it would run for ten minutes


def test_kill_ends_halted_attempts_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_world, "HALT_GRACE", 600.0)  # else it ends soon without that
    session = Session(stage, {"a": "ignores SIGTERM"}, policy={"grace_period": "20m"}).drive_until_it_runs()
    session.drive(lambda state: state.tasks["a"].last.halted, StopRequested(stage.clock(), why="stop"))
    before = stage.clock()
    session.world.kill()
    session.drive(has_ended()).finish()
    assert stage.clock() - before < 300


def test_an_attempt_that_waits_for_a_node_is_cancelled_without_having_run(stage: Stage) -> None:
    session = Session(stage, {f"t{number}": "runs" for number in range(40)})
    session.drive(lambda state: any(task.status is TaskStatus.PENDING for task in state.tasks.values()))
    session.drive(lambda _: True, CancelRequested(stage.clock()))
    session.finish()
    never_ran = [task for task in session.state.tasks.values() if task.attempts and task.last.bound_at is None]
    assert never_ran
    assert {task.last.cause for task in never_ran} == {Cause.CANCELLED}


# Interruptions and moves


def test_a_node_that_is_taken_with_notice_is_announced_first(stage: Stage) -> None:
    session = Session(stage, {"a": "runs"}).drive_until_it_runs()
    stage.take("a", 0.5)
    session.drive(has_ended())
    (notice,) = session.of(NoticeGiven)
    assert notice.attempts == (("a", 1),)
    assert (session.task().attempts[0].cause, session.task().spent) == (Cause.INTERRUPTED, BudgetUse(interruptions=1))
    session.engine.close()


def test_a_node_that_goes_without_notice_ends_its_attempt_as_interrupted(stage: Stage) -> None:
    session = Session(stage, {"a": "ignores SIGTERM"}).drive_until_it_runs()
    stage.take("a", 0.0)
    session.drive(has_ended())
    assert session.of(NoticeGiven) == []
    assert (session.task().attempts[0].cause, session.task().spent) == (Cause.INTERRUPTED, BudgetUse(interruptions=1))
    session.engine.close()


def test_an_attempt_that_is_drained_is_disrupted_and_spends_no_budget(stage: Stage) -> None:
    session = Session(stage, {"a": "runs"}).drive_until_it_runs()
    stage.drain("a")
    session.drive(has_ended())
    first = session.task().attempts[0]
    assert first.ended is not None
    assert first.ended.signals.moved == "drained"
    assert (first.cause, session.task().spent) == (Cause.DISRUPTED, BudgetUse(moves=1))
    session.drive(lambda state: len(state.tasks["a"].attempts) == 2)
    assert session.task().attempts[1].first == first.rung
    session.engine.close()


# Python environments


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The requirement of a package that is installed without a network, into a cache of the test's own."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"littlepackage @ {wheel(tmp_path / 'wheels').as_uri()}"


@pytest.mark.slow
def test_an_environment_is_ready_before_an_attempt_is_placed_and_shared_by_tasks(stage: Stage, package: str) -> None:
    session = Session(stage, {"a": "succeeds", "b": "succeeds"}, packages=[package]).finish()
    assert session.state.status is RunStatus.SUCCEEDED
    for name in ("a", "b"):
        assert len(session.of(EnvironmentAsked, name)) == 1
        *_, ready = session.of(EnvironmentChanged, name)
        (placed,) = session.of(AttemptPlaced, name)
        assert ready.state == "ready"
        assert ready.at <= placed.at
    logs = {event.log for name in ("a", "b") for event in session.of(EnvironmentChanged, name) if event.log}
    assert len(logs) <= 1


@pytest.mark.slow
def test_the_next_engine_asks_again_for_environments_that_were_not_ready(stage: Stage, package: str) -> None:
    session = Session(stage, {"a": "succeeds"}, packages=[package])
    session.drive(lambda state: state.detached, EngineDetached(stage.clock(), why="rolled out"))
    session.engine.close()
    session.resume().finish()
    assert (session.state.status, session.task().spent) == (RunStatus.SUCCEEDED, BudgetUse())
    assert session.task().attempts[-1].cause is Cause.SUCCEEDED


# Effects that fail


class _Faulty:
    """A world whose first starts have these outcomes."""

    def __init__(self, world: Backend, outcomes: list[Outcome], tried: list[float]) -> None:
        self._world, self._outcomes, self._tried = world, outcomes, tried

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def start(self, state: RunState, event: AttemptBound) -> Outcome:
        self._tried.append(event.attempt)
        return self._outcomes.pop(0) if self._outcomes else self._world.start(state, event)


def faulty(stage: Stage, *outcomes: Outcome) -> tuple[Session, list[float]]:
    tried: list[float] = []
    return Session(stage, {"a": "succeeds"}, lambda world: _Faulty(world, list(outcomes), tried)), tried


def test_a_start_that_fails_for_a_while_is_tried_again(stage: Stage) -> None:
    session, tried = faulty(stage, TryAgain(0.05, "the API server is busy"), TryAgain(0.05, "still"))
    session.finish()
    assert (tried, len(session.task().attempts), session.state.status) == ([1, 1, 1], 1, RunStatus.SUCCEEDED)


def test_a_start_that_is_refused_is_a_start_up_error_with_its_reason(stage: Stage) -> None:
    session, tried = faulty(stage, Refused("the image has no such name"))
    session.finish()
    first = session.task().attempts[0]
    assert (first.cause, first.cause_why) == (Cause.START_UP, "the image has no such name")
    assert (session.task().spent, tried) == (BudgetUse(errors=1), [1, 2])


def test_a_effect_that_fails_for_too_long_counts_as_refused(stage: Stage) -> None:
    session, _ = faulty(stage, TryAgain(1e6, "no quota"))
    session.finish()
    assert session.task().attempts[0].cause_why == "no quota (for 600s)"


def test_tidying_up_that_is_refused_is_a_note_and_ends_no_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(stage, {"a": "succeeds"})
    monkeypatch.setattr(session.world, "cleanup", lambda _state, _event: Refused("the disk is full"))
    session.finish()
    assert session.state.status is RunStatus.SUCCEEDED
    assert [note.text for note in session.of(NoteAdded)] == [
        "attempt 1 of a: what it left could not be tidied up: the disk is full"
    ]


# Engines follow each other


def test_after_a_detach_attempts_go_on_and_their_results_count(stage: Stage) -> None:
    session = Session(stage, {"a": "waits for leave to finish"}).drive_until_it_runs()
    session.drive(lambda state: state.detached, EngineDetached(stage.clock(), why="rolled out"))
    session.engine.close()
    assert session.state.status is RunStatus.RUNNING
    assert not stage.has_ended("a")
    stage.let_finish("a")
    stage.pass_time(lambda: stage.has_ended("a"))
    session.resume().finish()
    (end,) = session.of(AttemptEnded, "a")
    assert (end.signals.exit_code, end.settled) == (0, True)
    assert (session.state.status, len(session.task().attempts)) == (RunStatus.SUCCEEDED, 1)


def test_an_attempt_that_is_live_when_the_next_engine_comes_ends_exactly_once(stage: Stage) -> None:
    session = Session(stage, {"a": "runs"}).drive_until_it_runs()
    session.drive(lambda state: state.detached, EngineDetached(stage.clock(), why="rolled out"))
    session.engine.close()
    session.resume()
    session.drive(lambda _: True, CancelRequested(stage.clock())).finish()
    ends = [event.attempt for event in session.of(AttemptEnded, "a")]
    assert sorted(set(ends)) == ends
    assert session.task().attempts[0].cause in (Cause.LOST, Cause.CANCELLED)
    assert stage.has_ended("a")


def test_pending_attempts_wait_again_under_the_next_engine(stage: Stage) -> None:
    session = Session(stage, {f"t{number}": "runs" for number in range(40)})
    session.drive(lambda state: any(task.status is TaskStatus.PENDING for task in state.tasks.values()))
    session.drive(lambda state: state.detached, EngineDetached(stage.clock(), why="rolled out"))
    waiting = [path for path, task in session.state.tasks.items() if task.status is TaskStatus.PENDING]
    session.engine.close()
    session.resume()
    assert waiting
    assert all(session.task(path).attempts[0].cause is not Cause.LOST for path in waiting)
    session.drive(lambda _: True, CancelRequested(stage.clock())).finish()
    assert session.state.status is RunStatus.CANCELLED
