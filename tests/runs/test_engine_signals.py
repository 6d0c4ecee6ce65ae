"""Signals and requests to an engine on this machine, also requests that come before the engine waits for them."""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spotwright.engine.events import CancelRequested, EngineDetached, Event, StopRequested
from spotwright.records.journal import Journal
from spotwright.records.state_folder import RunFolder
from spotwright.runs.runner import EngineSignals, leased

Waiting = tuple[Journal, EngineSignals, selectors.BaseSelector]


def clock() -> float:
    return 5.0


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    Journal.create(folder.journal).close()
    return folder


@pytest.fixture
def engine(folder: RunFolder) -> Iterator[Waiting]:
    with (
        leased(folder) as journal,
        selectors.DefaultSelector() as selector,
        EngineSignals(selector, journal, clock) as signals,
    ):
        signals.facts()
        yield journal, signals, selector


def test_a_request_before_the_engine_waits_ends_no_process_and_is_not_lost(folder: RunFolder) -> None:
    with leased(folder) as journal, selectors.DefaultSelector() as selector:
        with closing(Journal.open(folder.journal)) as other:
            other.request("cancel", 1.0)
        os.kill(os.getpid(), signal.SIGUSR1)
        with EngineSignals(selector, journal, clock) as signals:
            assert selector.select(0)
            assert signals.facts() == [CancelRequested(5.0)]
        os.kill(os.getpid(), signal.SIGUSR1)  # and one after the engine's end


@pytest.mark.parametrize(("kind", "fact"), [("cancel", CancelRequested), ("detach", EngineDetached)])
def test_a_request_wakes_the_engine(engine: Waiting, kind: str, fact: type[Event]) -> None:
    journal, signals, selector = engine
    journal.request(kind, 1.0)
    assert not selector.select(0)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert selector.select(5)
    assert [type(each) for each in signals.facts()] == [fact]


def test_the_first_stop_is_a_fact_and_the_second_one_kills(engine: Waiting) -> None:
    _, signals, _ = engine
    kills: list[str] = []
    signals.kill = lambda: kills.append("killed")
    os.kill(os.getpid(), signal.SIGTERM)
    assert signals.facts() == [StopRequested(5.0, why="stopped by SIGTERM")]
    os.kill(os.getpid(), signal.SIGTERM)
    assert (signals.facts(), kills) == ([], ["killed"])


def test_handlers_are_restored_and_the_lease_is_given_back_after_an_error(folder: RunFolder) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with (
        pytest.raises(ZeroDivisionError),
        leased(folder) as journal,
        selectors.DefaultSelector() as selector,
        EngineSignals(selector, journal, clock),
    ):
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before
    with closing(Journal.read(folder.journal)) as reader:
        assert reader.lease() is None
