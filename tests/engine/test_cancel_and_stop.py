"""Cancels and stops on virtual time, also of attempts that take their time to end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.engine.builders import ON_DEMAND, START, a_config, a_fan, a_plan, a_pool, a_task
from tests.engine.driving import Run, ScriptedWorld
from tests.engine.scripts import FAILED, Behavior, always, scripted

from spotwright.engine.events import AttemptHalted, Event, RunStatus
from spotwright.engine.state import RunState
from spotwright.model.attempts import Signals

ONE_AT_A_TIME = a_config(a_pool(max_nodes=1, node=None), policy={"spot": "require", "pending_timeout": "1d"})


@pytest.mark.parametrize(("kind", "status"), [("cancel", RunStatus.CANCELLED), ("stop", RunStatus.STOPPED)])
def test_a_run_can_be_ended_from_outside(kind: str, status: RunStatus) -> None:
    run = Run(a_plan(a_fan(3)), always(Behavior(500)))
    run.world.at(60, kind, **({"why": "stopped by the user"} if kind == "stop" else {}))
    run.start()
    assert (run.state.status, run.world.now - START) == (status, 61.0)


def test_cancelling_ends_running_and_pending_attempts_and_starts_no_task() -> None:
    run = Run(a_plan([*a_fan(2), a_task("after", "t1")], ONE_AT_A_TIME), always(Behavior(500)))
    run.world.at(60, "cancel")
    run.start()
    assert [run.causes(path) for path in ("t0", "t1", "after")] == [["cancelled"], ["cancelled"], []]


def test_a_success_during_a_cancel_is_cancelled() -> None:
    run = Run(a_plan([a_task("a")]), always(Behavior(60, Signals(exit_code=0, outputs_complete=True, cancelled=True))))
    run.world.at(61.5, "cancel")
    run.start()
    assert (run.state.status, run.causes("a")) == (RunStatus.CANCELLED, ["cancelled"])


def test_a_stop_ends_a_backoff() -> None:
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "1h"}})
    run = Run(a_plan([a_task("a")], config), always(Behavior(1, FAILED)))
    run.world.at(60, "stop", why="stopped by the user")
    run.start()
    assert (run.state.status, run.world.now - START) == (RunStatus.STOPPED, 60.0)


def test_an_attempt_is_halted_once() -> None:
    run = Run(a_plan(a_fan(2)), scripted({"t0": [Behavior(500)], "t1": [Behavior(60.5)]}))
    run.world.at(60, "cancel")
    run.start()
    assert sorted(event.task for event in run.events_of("halt")) == ["t0", "t1"]


def test_the_engine_sleeps_while_a_halted_attempt_ends() -> None:
    """While one attempt takes its time to end, the backoff of another one ends and means nothing."""
    config = a_config(policy={"spot": "prefer", "errors": {"retries": 1, "backoff": "60s"}})
    run = Run(a_plan(a_fan(2), config), scripted({"t0": [Behavior(1, FAILED)], "t1": [Behavior(500)]}))
    run.world.at(62.5, "stop", why="stopped by the user")
    waits: list[float | None] = []
    wait = run.world.wait
    run.world.wait = lambda until: (waits.append(until), wait(until))[1]  # type: ignore[method-assign, func-returns-value]
    run.start()
    assert (run.state.status, waits[-1]) == (RunStatus.STOPPED, None)


class WithdrawsLate(ScriptedWorld):
    """Takes attempts that are to be stopped out of the queue only 100 s later."""

    def on_decisions(self, state: RunState, decisions: Sequence[Event]) -> list[Event]:
        halts = [event for event in decisions if isinstance(event, AttemptHalted)]
        if halts:
            self.cluster.agenda.at(self.now + 100, lambda at: self._withdraw(state, halts, at))
        return super().on_decisions(state, [event for event in decisions if event not in halts])

    def _withdraw(self, state: RunState, halts: Sequence[Event], at: float) -> None:
        self._facts += self._queue.on_decisions(state, halts, at)


def test_a_halted_attempt_has_no_timer() -> None:
    """The world takes longer to withdraw an attempt than that may wait: it is not called unschedulable."""
    tasks = {"t0": {"spot": "never"}, "t1": {"spot": "require"}}
    config = a_config(a_pool(max_nodes=0), ON_DEMAND, policy={"pending_timeout": "60s"}, tasks=tasks)
    run = Run(a_plan(a_fan(2), config), scripted({"t0": [Behavior(30, FAILED)]}))
    run.world_type = WithdrawsLate
    run.world = run.a_world(run.state)
    run.start()
    assert (run.causes("t1"), run.world.now - START) == (["cancelled"], 132)
