"""Fold: events that do not fit are refused, and the state has what views read."""

from __future__ import annotations

import pytest
from tests.engine.builders import START, a_chain, a_config, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.scripts import TAKEN, Behavior, scripted
from tests.events import an_event

from spotwright.engine.events import Event
from spotwright.engine.fold import fold, replay
from spotwright.engine.state import RunState
from spotwright.errors import StateError


def a_state() -> RunState:
    """One task, placed."""
    state = RunState([a_plan([a_task("a")])])
    for event in (
        an_event("created", START, data={"time_scale": 2.0}),
        an_event("engine", START, data={"epoch": 1}),
        an_event("unfolded", START),
        placed(1),
    ):
        fold(state, event)
    return state


def placed(number: int) -> Event:
    return an_event("placed", START, "a", number, {"rung": 0, "pools": ["spot"], "until": None})


def ended(number: int = 1, **data: object) -> Event:
    return an_event("ended", START + 5, "a", number, {"signals": {}, **data})


def bound(number: int = 1) -> Event:
    return an_event("bound", START + 2, "a", number, {"node": "spot-1", "pool": "spot"})


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            an_event("bound", START, "b", 1, {"node": "n", "pool": "spot"}),
            r"event 5 of the journal \(bound of b, attempt 1\)",
        ),
        (an_event("bound", START, "a", 2, {"node": "n", "pool": "spot"}), "does not fit"),
        (an_event("notice", START, data={"node": "unknown", "attempts": [], "goes_at": 1.0}), "does not fit"),
        (placed(2), "the last of which may live"),
        (placed(7), "has 1 attempts"),
    ],
)
def test_an_event_that_does_not_fit_is_refused(event: Event, message: str) -> None:
    with pytest.raises(StateError, match=message):
        fold(a_state(), event)


def test_an_attempt_ends_once() -> None:
    state = a_state()
    for event in (bound(), ended()):
        fold(state, event)
    with pytest.raises(StateError, match="the attempt has ended already"):
        fold(state, ended())


@pytest.mark.parametrize("facts", [[bound()], [bound(), ended()]])
def test_a_reset_with_an_open_attempt_is_refused(facts: list[Event]) -> None:
    state = a_state()
    for event in facts:
        fold(state, event)
    with pytest.raises(StateError, match="attempt 1 of a has not been closed"):
        fold(state, an_event("reset", START + 9, data={}))


def test_an_attempt_keeps_its_first_and_its_last_progress() -> None:
    state = a_state()
    for event in (bound(), *(an_event("progress", START + 3, "a", 1, {"value": value}) for value in (0.2, 0.7))):
        fold(state, event)
    attempt = state.tasks["a"].last
    assert (attempt.first_progress, attempt.progress) == (0.2, 0.7)


def test_the_last_progress_may_come_with_the_end() -> None:
    state = a_state()
    for event in (bound(), ended(progress=0.9, first_progress=0.1)):
        fold(state, event)
    attempt = state.tasks["a"].last
    assert (attempt.first_progress, attempt.progress) == (0.1, 0.9)


def test_a_notice_is_recorded_at_its_attempts() -> None:
    run = Run(
        a_plan([a_task("a")], a_config(a_pool(max_lifetime=20.0), policy={"spot": "require"})),
        scripted({"a": [Behavior(60)]}),
    )
    run.start()
    attempt = run.state.tasks["a"].attempts[0]
    assert (attempt.noticed_at, attempt.goes_at) == (START + 22, START + 32)


def test_a_node_has_the_moments_of_its_boot_readiness_notice_and_end() -> None:
    run = Run(
        a_plan([a_task("a")], a_config(a_pool(max_lifetime=20.0), policy={"spot": "require"})),
        scripted({"a": [Behavior(60)]}),
    )
    run.start()
    node = run.state.nodes["spot-1"]
    moments = (node.booted_at, node.ready_at, node.noticed_at, node.gone_at, node.state, node.why)
    assert moments == (START, START + 2, START + 22, START + 32, "gone", "at the end of its lifetime of 20s")


def test_a_run_has_the_moments_of_its_start_and_end() -> None:
    run = Run(a_plan(a_chain(2)), scripted({"t0": [Behavior(1, TAKEN)]}))
    run.start()
    assert (run.state.started_at, run.state.finished_at) == (START, START + 6)


def test_the_state_counts_attempts_under_way_and_nodes_held() -> None:
    observed = []
    run = Run(
        a_plan(a_chain(2)),
        observers=[lambda state, _events: observed.append((list(state.under_way), dict(state.holding)))],
    )
    run.start()
    assert (["t0"], {"spot": 1}) in observed
    assert observed[-1] == ([], {"spot": 0})


def test_a_state_without_events_is_not_unfolded() -> None:
    assert replay([a_plan([])], []).unfolded is False
