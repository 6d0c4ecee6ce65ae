"""Columns that were loaded once, with the deltas of every look since, are what would be loaded now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.driving import Run
from tests.engine.random_runs import runs
from tests.page.folded import follow

from spotwright.engine.events import Event

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
