"""Signals as JSON and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.engine.signals import read_signals, write_signals
from spotwright.errors import StateError
from spotwright.model.attempts import Signals

MAYBE_TEXT = st.text(max_size=5)
SIGNALS = st.builds(
    Signals,
    exit_code=st.one_of(st.none(), st.integers(0, 255)),
    signal=st.one_of(st.none(), st.integers(1, 31)),
    outputs_complete=st.one_of(st.none(), st.booleans()),
    missing_outputs=st.lists(MAYBE_TEXT, max_size=3).map(tuple),
    noticed=st.booleans(),
    node_gone=st.booleans(),
    heard=st.booleans(),
    timed_out=st.booleans(),
    oom_kills=st.integers(0, 3),
    cancelled=st.booleans(),
    moved=MAYBE_TEXT,
    start_error=MAYBE_TEXT,
    spot=st.one_of(st.none(), st.booleans()),
)


@given(SIGNALS)
def test_what_is_written_is_read_again(signals: Signals) -> None:
    written = json.loads(json.dumps(write_signals(signals)))
    assert read_signals({"signals": written}) == signals


def test_only_what_was_seen_is_written() -> None:
    assert write_signals(Signals(exit_code=1, noticed=True)) == {"exit_code": 1, "noticed": True}


def test_an_end_without_signals_is_one_of_which_nothing_was_seen() -> None:
    assert read_signals({}) == Signals()


def test_signals_of_a_newer_version_are_refused() -> None:
    with pytest.raises(StateError, match="signals of a newer version: mood"):
        read_signals({"signals": {"mood": "bad"}})
