"""Columns that were loaded once, with the deltas of every look since, equal a fresh load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, a_body, a_config, a_fan, a_loop, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.random_runs import runs
from tests.engine.scripts import FAILED, Behavior, always, scripted
from tests.page.folded import follow
from tests.page.workload_runs import Workload, workloads

from spotwright.engine.events import Event
from spotwright.page.columns import RunColumns

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def cut(events: Sequence[Event], sizes: Sequence[int]) -> Iterator[Sequence[Event]]:
    """The events in looks of these sizes, again and again."""
    rest = iter(events)
    for size in cycle(sizes):
        look = list(islice(rest, size))
        if not look:
            return
        yield look


@given(runs(), SIZES, st.integers(0, 3))
def test_columns_and_deltas_equal_a_fresh_load(run: Run, sizes: list[int], first: int) -> None:
    run.start()
    assert follow(run.plans, cut(run.events, sizes), first)[2] == 0


@given(runs(), st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4), SIZES)
def test_also_of_a_run_whose_engines_crash(run: Run, crashes: list[tuple[int, bool]], sizes: list[int]) -> None:
    run.start_with_crashes(crashes)
    follow(run.plans, cut(run.events, sizes))


@given(runs(), st.integers(0, 80), st.sampled_from(["cancel", "stop"]), SIZES)
def test_also_of_a_run_that_is_stopped_and_resumed(run: Run, seconds: int, kind: str, sizes: list[int]) -> None:
    run.world.at(seconds, kind, **({"why": "stopped by the user"} if kind == "stop" else {}))
    run.start()
    run.resume(afresh=True)
    follow(run.plans, cut(run.events, sizes))


@given(runs())
def test_also_event_by_event(run: Run) -> None:
    run.start()
    follow(run.plans, [[event] for event in run.events])


@given(workloads(), SIZES)
def test_also_of_a_workload_whose_orchestrator_makes_the_attempts(workload: Workload, sizes: list[int]) -> None:
    assert follow(workload.plans, cut(workload.events, sizes))[2] == 0


def test_a_failure_reaches_the_tasks_of_its_scope_and_the_exit_handlers() -> None:
    tasks = [a_task("a"), a_task("b", "a"), a_task("c", "b"), a_task("end", "a", "c", after_all=True)]
    run = Run(a_plan(tasks), scripted({"a": [Behavior(1.0, FAILED)] * 9}))
    run.start()
    browser, _, _ = follow(run.plans, [[event] for event in run.events])
    assert {row["path"]: row["status"] for row in browser.rows("tasks")}["end"] == "succeeded"


def test_a_notice_reaches_the_attempts_that_it_names() -> None:
    pool = a_pool(notice=10.0, simulate={"interrupt_every": 20.0})
    run = Run(a_plan(a_fan(6), a_config(pool, ON_DEMAND, policy={"spot": "prefer"})), always(Behavior(60.0)), seed=4)
    run.start()
    browser, _, _ = follow(run.plans, [[event] for event in run.events])
    assert any(row["noticed"] is not None for row in browser.rows("attempts"))


def test_a_withdrawn_notice_reaches_the_attempts_on_its_node() -> None:
    workload = Workload()
    for what in ("adopt", "bind", "notice", "withdraw"):
        workload.step(what, 2, 1)
    looks = [[event] for event in workload.events]
    noticed, spared = follow(workload.plans, looks[:-1])[0], follow(workload.plans, looks)[0]
    assert noticed.rows("attempts")[0]["noticed"] is not None
    assert spared.rows("attempts")[0]["noticed"] is spared.rows("nodes")[0]["noticed"] is None


def test_tasks_that_a_resume_retires_and_brings_back_number_the_rows_anew() -> None:
    body = a_body(a_task("x"), out="x")
    plan = a_plan([a_task("a"), a_loop("l", "a", items=[1, 2])], body=body)
    run = Run(plan, scripted({"l/x-1": [Behavior(1.0, FAILED)] * 9}))
    run.start()
    run.script = always(Behavior())
    run.resume(again=["a"])
    resumed = [event.kind for event in run.events].index("reset")
    looks = [run.events[:resumed], *([event] for event in run.events[resumed:])]
    browser, state, resets = follow(run.plans, looks)
    assert resets == 2  # the reset, and the loop that opens again
    assert not state.retired
    assert {row["path"]: row["attempts"] for row in browser.rows("tasks")} == {"a": 2, "l": 0, "l/x-0": 2, "l/x-1": 2}


def test_a_look_without_a_change_says_so() -> None:
    run = Run(a_plan([a_task("a")]))
    run.start()
    columns = RunColumns(run.state)
    assert columns.update(run.state, []) == (None, None, None)
    assert columns.update(run.state, run.events[-1:]) == (None, None, None)
