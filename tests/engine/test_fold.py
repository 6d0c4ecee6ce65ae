"""Events into state: what does not fit is refused, and what views read is there."""

from __future__ import annotations

import pytest
from tests.engine.builders import START, a_chain, a_config, a_plan, a_pool, a_task
from tests.engine.driving import Run
from tests.engine.world import TAKEN, Does, scripted

from spotwright.engine.events import DECISIONS, Event
from spotwright.engine.fold import _HANDLERS, fold, replay
from spotwright.engine.state import RunState
from spotwright.errors import StateError


def a_state() -> RunState:
    """One task, placed."""
    state = RunState([a_plan([a_task("a")])])
    for event in (
        Event("created", START, data={"time_scale": 2.0}),
        Event("engine", START, data={"epoch": 1}),
        Event("unfolded", START),
        placed(1),
    ):
        fold(state, event)
    return state


def placed(number: int) -> Event:
    return Event("placed", START, "a", number, {"rung": 0, "pools": ["spot"], "until": None})


def ended(number: int = 1, **data: object) -> Event:
    return Event("ended", START + 5, "a", number, {"signals": {}, **data})


def bound(number: int = 1) -> Event:
    return Event("bound", START + 2, "a", number, {"node": "spot-1", "pool": "spot"})


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event("invented", START), "unknown kind 'invented'"),
        (
            Event("bound", START, "b", 1, {"node": "n", "pool": "spot"}),
            r"event 5 of the journal \(bound of b, attempt 1\)",
        ),
        (Event("bound", START, "a", 2, {"node": "n", "pool": "spot"}), "does not fit"),
        (Event("bound", START, "a", 1, {}), "does not fit"),
        (Event("notice", START, data={"node": "unknown", "attempts": []}), "does not fit"),
        (Event("finished", START, data={"status": "exploded"}), "does not fit"),
        (placed(2), "the last of which may live"),
        (placed(7), "has 1 attempts"),
    ],
)
def test_an_event_that_does_not_fit_is_refused(event: Event, said: str) -> None:
    with pytest.raises(StateError, match=said):
        fold(a_state(), event)


def test_an_attempt_ends_once() -> None:
    state = a_state()
    for event in (bound(), ended()):
        fold(state, event)
    with pytest.raises(StateError, match="it has ended before"):
        fold(state, ended())


@pytest.mark.parametrize("facts", [[bound()], [bound(), ended()]])
def test_a_run_does_not_begin_afresh_over_an_attempt_that_is_not_closed(facts: list[Event]) -> None:
    state = a_state()
    for event in facts:
        fold(state, event)
    with pytest.raises(StateError, match="attempt 1 of a has not been closed"):
        fold(state, Event("reset", START + 9, data={}))


def test_every_decision_has_a_handler() -> None:
    assert _HANDLERS.keys() > DECISIONS


def test_every_kind_of_the_table_has_a_handler() -> None:
    import spotwright.engine.events as documented

    table = (documented.__doc__ or "").split("=\n")[2]
    kinds = [line.split()[0] for line in table.splitlines() if line and not line.startswith("=")]
    assert sorted(kinds) == sorted(_HANDLERS)


def test_progress_of_an_attempt_is_its_last_and_its_first() -> None:
    state = a_state()
    for event in (bound(), *(Event("progress", START + 3, "a", 1, {"value": value}) for value in (0.2, 0.7))):
        fold(state, event)
    attempt = state.tasks["a"].last
    assert (attempt.first_progress, attempt.progress) == (0.2, 0.7)


def test_the_last_progress_may_come_with_the_end() -> None:
    state = a_state()
    for event in (bound(), ended(progress=0.9, first_progress=0.1)):
        fold(state, event)
    attempt = state.tasks["a"].last
    assert (attempt.first_progress, attempt.progress) == (0.1, 0.9)


def test_a_notice_is_noted_at_the_attempts_it_is_about() -> None:
    run = Run(
        a_plan([a_task("a")], a_config(a_pool(lifetime=20.0), policy={"spot": "require"})), scripted({"a": [Does(60)]})
    )
    run.start()
    attempt = run.state.tasks["a"].attempts[0]
    assert (attempt.noticed_at, attempt.goes_at) == (START + 22, START + 32)


def test_nodes_are_known_from_boot_to_end() -> None:
    run = Run(
        a_plan([a_task("a")], a_config(a_pool(lifetime=20.0), policy={"spot": "require"})), scripted({"a": [Does(60)]})
    )
    run.start()
    node = run.state.nodes["spot-1"]
    told = (node.booted_at, node.ready_at, node.noticed_at, node.gone_at, node.state, node.why)
    assert told == (START, START + 2, START + 22, START + 32, "gone", "at the end of its lifetime of 20s")


def test_a_run_knows_how_long_it_took() -> None:
    run = Run(a_plan(a_chain(2)), scripted({"t0": [Does(1, TAKEN)]}))
    run.start()
    assert (run.state.started_at, run.state.finished_at) == (START, START + 6)


def test_what_is_under_way_is_known_at_every_moment() -> None:
    told = []
    run = Run(
        a_plan(a_chain(2)), observers=[lambda state, _events: told.append((list(state.under_way), dict(state.holding)))]
    )
    run.start()
    assert (["t0"], {"spot": 1}) in told
    assert told[-1] == ([], {"spot": 0})


def test_a_state_without_events_is_a_run_that_has_not_begun() -> None:
    assert replay([a_plan([])], []).unfolded is False
