"""Every event survives encoding as a journal's row, with every signal of the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.events import data_of

from spotwright.engine import events as environment_events
from spotwright.engine import fold
from spotwright.engine.event_codec import EVENT_TYPES, Row, UnknownEvent, decode, encode
from spotwright.engine.events import (
    AttemptAdopted,
    AttemptDecided,
    AttemptEnded,
    AttemptHalted,
    AttemptKept,
    AttemptMoved,
    AttemptPlaced,
    EnvironmentChanged,
    Event,
    MarketKnown,
    NoticeGiven,
    PlanExtended,
    RunCreated,
    RunFinished,
    RunMeta,
    RunReset,
    RunStatus,
    TaskCached,
)
from spotwright.errors import StateError
from spotwright.model.attempts import Cause, ContainerEnd, Signals, StatusCondition
from spotwright.scheduling.budgets import FollowUp

TEXT = st.text(max_size=5)
CONDITION = st.builds(StatusCondition, type=TEXT, status=TEXT, reason=TEXT, message=TEXT)
CONTAINER = st.builds(
    ContainerEnd,
    name=TEXT,
    exit_code=st.one_of(st.none(), st.integers(0, 255)),
    signal=st.one_of(st.none(), st.integers(1, 31)),
    reason=TEXT,
    message=TEXT,
    waiting=TEXT,
)
FLAG, MAYBE = st.booleans(), st.one_of(st.none(), st.booleans())
FEW: Any = {"max_size": 3}
SIGNAL_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "exit_code": st.one_of(st.none(), st.integers(0, 255)),
    "signal": st.one_of(st.none(), st.integers(1, 31)),
    "outputs_complete": MAYBE,
    "missing_outputs": st.lists(TEXT, **FEW).map(tuple),
    "progress": st.one_of(st.none(), st.floats(0, 1)),
    "accepted_by_kfp": FLAG,
    "accepted_by_controller": FLAG,
    "noticed": FLAG,
    "node_gone": FLAG,
    "node_restarted": TEXT,
    "heard": FLAG,
    "timed_out": FLAG,
    "oom_kills": st.integers(0, 3),
    "cancelled": FLAG,
    "moved": TEXT,
    "start_error": TEXT,
    "phase": TEXT,
    "reason": TEXT,
    "message": TEXT,
    "conditions": st.lists(CONDITION, **FEW).map(tuple),
    "containers": st.lists(CONTAINER, **FEW).map(tuple),
    "node_conditions": st.lists(CONDITION, **FEW).map(tuple),
    "node_taints": st.lists(TEXT, **FEW).map(tuple),
    "node_events": st.lists(CONDITION, **FEW).map(tuple),
    "pod_deleted": FLAG,
    "spot": MAYBE,
}
SIGNALS = st.builds(Signals, **SIGNAL_FIELDS)
SAMPLES: tuple[Event, ...] = (
    RunCreated(1.0, meta=RunMeta(run="r", arguments={"rows": 3}, seed=7, time_scale=2.0, source="p.py")),
    TaskCached(1.0, "a", run="before", of_task="b", parameters={"x": 1}),
    AttemptPlaced(1.0, "a", 1, rung=0, pools=("spot", "other"), until=9.5, why="cheapest"),
    AttemptMoved(1.0, "a", 1, rung=1, pools=("on-demand",), why="no node"),
    AttemptAdopted(1.0, "a", 1, key="uid/0", template="b", pod="p", rung=1, pools=("spot", "other")),
    PlanExtended(1.0, version=2),
    AttemptHalted(1.0, "a", 1, why="to on-demand", moves=True),
    AttemptKept(1.0, "a", 1, until=9.5, why="slack"),
    MarketKnown(1.0, pools={"spot": (1.0, 2.5, 0.5, 1.0)}, runs=2),
    NoticeGiven(1.0, node="n", goes_at=31.0, attempts=(("a", 1), ("b", 2)), why="preempted"),
    RunReset(1.0, version=2, again=("a",), arguments={}),
    EnvironmentChanged(1.0, "a", state="building", packages=("pandas>=2",), log="0a.log"),
    EnvironmentChanged(1.0, "a", state="failed", why="no network", last_lines=("ERROR: no network",)),
    RunFinished(1.0, status=RunStatus.FAILED, why="task a failed"),
    AttemptDecided(
        1.0,
        "a",
        1,
        cause=Cause.OUT_OF_MEMORY,
        why="w",
        then=FollowUp.RETRY,
        following="again",
        rung=0,
        due=2.0,
        wait=1.0,
    ),
)


def through_json(event: Event) -> Event:
    row = encode(event)
    return decode(Row(*row[:4], json.loads(json.dumps(row.data))))


def test_every_signal_of_the_model_is_drawn_here() -> None:
    assert SIGNAL_FIELDS.keys() == set(Signals._fields)


@given(SIGNALS)
def test_every_signal_of_an_end_survives_encoding(signals: Signals) -> None:
    event = AttemptEnded(1.0, "a", 1, signals=signals, seconds=2.5, progress=0.5, settled=True)
    assert through_json(event) == event


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.kind)
def test_every_event_survives_encoding(event: Event) -> None:
    assert through_json(event) == event


def test_every_event_class_is_listed_and_folded() -> None:
    classes = {
        value
        for module in (environment_events, environment_events, environment_events, environment_events)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Event) and value is not Event
    }
    assert set(EVENT_TYPES) == classes == set(fold._HANDLERS)
    assert len({kind.kind for kind in EVENT_TYPES}) == len(EVENT_TYPES)


def test_a_field_of_earlier_first_events_is_read_and_not_written_any_more() -> None:
    row = Row(1.0, "created", "", 0, {"run": "r", "explicit_config": "/home/user/spotwright.yaml"})
    event = decode(row)
    assert event == RunCreated(1.0, meta=RunMeta(run="r"))
    assert "explicit_config" not in encode(event).data


def test_only_observed_signals_are_written() -> None:
    signals = Signals(exit_code=1, noticed=True, conditions=(StatusCondition("DisruptionTarget"),))
    assert data_of(AttemptEnded(1.0, "a", 1, signals=signals)) == {
        "signals": {"exit_code": 1, "noticed": True, "conditions": [{"type": "DisruptionTarget"}]}
    }


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("invented", {}, "an event of the unknown kind 'invented'"),
        ("note", {"text": "x", "mood": 1}, "an event 'note' with the unknown field 'mood'"),
        ("created", {"mood": 1}, "an event 'created' with the unknown field 'mood'"),
        ("ended", {"signals": {"mood": "bad"}}, "unknown signals mood"),
        (
            "ended",
            {"signals": {"conditions": [{"type": "Ready", "mood": 1}]}},
            "a StatusCondition with the unknown field 'mood'",
        ),
    ],
)
def test_kinds_and_fields_of_newer_versions_are_refused(kind: str, data: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownEvent, match=message):
        decode(Row(1.0, kind, "a", 1, data))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("finished", {"status": "exploded"}),
        ("decided", {"cause": "bored", "why": "", "then": "retry", "next": ""}),
        ("bound", {}),
        ("notice", {"node": "n", "goes_at": 1.0, "attempts": [1]}),
    ],
)
def test_an_invalid_row_is_refused(kind: str, data: dict[str, Any]) -> None:
    with pytest.raises(StateError, match=f"an event '{kind}' of a that cannot be read"):
        decode(Row(1.0, kind, "a", 1, data))
