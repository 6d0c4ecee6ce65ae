"""Decisions are incremental: the cost of a task does not grow with the number of tasks.

Counted in lines of code that are executed, not in seconds, so that a busy machine changes nothing. The seconds are in the
benchmark.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Self

import pytest
from tests.engine.builders import ON_DEMAND, a_chain, a_config, a_fan, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, TAKEN, Behavior, Script, always, scripted

import spotwright
from spotwright.engine.events import RunStatus
from spotwright.engine.fold import replay

HERE = spotwright.__path__[0]
ROOM_FOR_20 = a_config(
    a_pool(max_nodes=5), ON_DEMAND, policy={"spot": "prefer", "pending_timeout": "1d", "fall_back_after": 10}
)
KINDS = {"independent": a_fan, "chain": a_chain}


class Lines:
    """Counts the lines of this package that are executed inside it."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(HERE) else None

    def _line(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        self.count += event == "line"
        return self._line


def cost(kind: str, tasks: int, script: Script) -> float:
    """Lines a task, from the first event to the end of the run."""
    graph = [a_task(t.name, *t.after, requests={"cpu": 1000}) for t in KINDS[kind](tasks)]
    plan = a_plan(graph, ROOM_FOR_20)
    plan.unfold("")
    run = Run(plan, script)
    with Lines() as lines:
        run.start()
    assert run.state.status is RunStatus.SUCCEEDED
    return lines.count / tasks


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_of_a_task_is_the_same_among_a_thousand_as_among_fifty(kind: str) -> None:
    assert cost(kind, 1000, always(Behavior())) < 1.1 * cost(kind, 50, always(Behavior()))


def test_the_cost_of_an_interruption_does_not_grow_with_the_number_of_tasks() -> None:
    def script(_path: str, number: int) -> Behavior:
        return Behavior(1.0, TAKEN) if number == 1 else Behavior(1.0)

    assert cost("independent", 600, script) < 1.1 * cost("independent", 60, script)


def test_turns_after_a_failure_do_not_visit_tasks_that_will_never_start() -> None:
    """Downstream of one task a thousand became ready when it ended; none of them is looked at in the turns that follow."""

    def lines(width: int) -> int:
        config = a_config(a_pool(max_nodes=9, node=None), policy={"spot": "require", "pending_timeout": "1d"})
        slow = [a_task(f"slow{n}") for n in range(5)]
        graph = [a_task("bad"), a_task("top"), *slow, *(a_task(f"t{n}", "top") for n in range(width))]
        script = scripted(
            {"bad": [Behavior(1, FAILED)], "top": [Behavior(2)], **{f"slow{n}": [Behavior(5 + n)] for n in range(5)}}
        )
        run = Run(a_plan(graph, config), script)
        run.plan.unfold("")
        with Lines() as counted:
            run.start()
        return counted.count

    base, more = lines(10), lines(1010)
    assert (more - base) / 1000 < 50  # unfolding each, making it ready and, when the bad one fails, unready, once


def test_the_cost_of_folding_an_event_is_constant() -> None:
    def lines(tasks: int) -> float:
        run = Run(a_plan(a_fan(tasks), ROOM_FOR_20))
        run.start()
        with Lines() as counted:
            replay(run.plans, run.events)
        return counted.count / len(run.events)

    assert lines(1000) < 1.1 * lines(50)
