"""Large loops in views: what goes well shares a line, what goes wrong does not."""

from __future__ import annotations

import pytest
from tests.engine.builders import a_body, a_config, a_loop, a_plan, a_pool, a_task, when
from tests.engine.driving import Run
from tests.engine.scripts import FAILED, TAKEN, Behavior, scripted

from spotwright.engine.events import Event
from spotwright.engine.state import RunState
from spotwright.views.narration import Narrator
from spotwright.views.run_json import run_view
from spotwright.views.run_rows import attempt_rows
from spotwright.views.run_text import show_text

ROOM = a_config(a_pool(max_nodes=200), policy={"spot": "require"})


def looped(count: int, **endings: list[Behavior]) -> tuple[Run, list[str]]:
    """A loop that has been driven to its end, and what was told meanwhile."""
    narrator, told = Narrator(), list[str]()

    def listen(state: RunState, events: list[Event]) -> None:
        told.extend(sentence.text for sentence in narrator.narrate(state, events))

    plan = a_plan([a_loop("l", items=range(count))], ROOM, body=a_body(a_task("a"), out="a"))
    run = Run(plan, scripted({f"l/a-{name[1:]}": does for name, does in endings.items()}), observers=[listen])  # type: ignore[list-item]
    run.start()
    return run, told


def test_a_large_loop_has_a_line_for_each_tenth_and_for_each_trouble() -> None:
    _, told = looped(100, _7=[Behavior(1, TAKEN), Behavior(5)])
    about = [text for text in told if text.startswith("l")]
    assert about[0] == "l: 100 iterations"
    assert [text for text in about if "of 100 iterations done" in text][-1] == "l: 100 of 100 iterations done"
    assert [text.partition(":")[0] for text in about if "interrupted" in text] == ["l/a-7"]
    assert len(about) < 16


def test_a_small_loop_has_lines_for_every_task() -> None:
    _, told = looped(3)
    assert sum(text.startswith("l/a-2: ") for text in told) >= 2


def test_iterations_that_succeeded_at_once_share_a_row() -> None:
    run, _ = looped(30, _7=[Behavior(1, TAKEN), Behavior(1)], _9=[Behavior(1, FAILED)])
    rows = attempt_rows(run_view(run.state, "r")).rows
    assert [row[0] for row in rows if row[0]] == ["l", "l/a (28 iterations)", "l/a-7", "l/a-9"]


def test_the_tasks_of_a_loop_stand_below_it_before_the_tasks_that_follow() -> None:
    tasks = [a_loop("l", items=range(2)), a_task("beside")]
    run = Run(a_plan(tasks, ROOM, body=a_body(a_task("a"), a_task("b", "a"), out="b")), scripted({}))
    run.start()
    rows = attempt_rows(run_view(run.state, "r")).rows
    assert [row[0] for row in rows] == ["l", "l/a-0", "l/b-0", "l/a-1", "l/b-1", "beside"]


@pytest.mark.parametrize("count", [2, 30])
def test_a_run_with_skipped_tasks_reads_well(count: int) -> None:
    body = a_body(a_task("a"), out="a")
    run = Run(
        a_plan(
            [a_task("no", **when("x == 1", x=2)), a_task("then", "no"), a_loop("l", items=range(count))],
            ROOM,
            body=body,
        )
    )
    run.start()
    text = show_text(run_view(run.state, "r"))
    assert "skipped" in text
    assert "What waits" not in text


def test_a_failure_inside_a_loop_is_shown_for_its_task_and_not_again_for_the_loop() -> None:
    run, _ = looped(3, _1=[Behavior(1, FAILED)])
    assert run.state.tasks["l"].why.startswith("l/a-1 failed: ")
    told = show_text(run_view(run.state, "r")).partition("Why attempts ended")[2]
    assert "l/a-1 attempt 1" in told
    assert "\n  l: " not in told
