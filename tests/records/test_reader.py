"""A reader folds each event once, and always has the state of a fold from the start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.building import Of, step
from tests.e2e.inside import attempt, say, work_and_hold
from tests.e2e.project import AT_WORK, a_project

from spotwright.engine.events import Event
from spotwright.engine.ports import Holder
from spotwright.errors import StateError
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader, follow_logs, list_logs
from spotwright.records.state_folder import RunFolder
from spotwright.views.run_json import run_view


def interrupted_once(number: int) -> int:
    say(f"attempt {attempt()}")
    if attempt() == 1:
        work_and_hold()
    return number + 1


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """A run of two tasks, each interrupted once."""
    with a_project(tmp_path_factory.mktemp("project")) as project:
        project.config(AT_WORK.format(notice="0s", grace="1s"))
        one = step(interrupted_once, {"number": 1})
        two = step(interrupted_once, {"number": Of("one")})
        assert project.run(project.pipeline({"one": one, "two": two})).code == 0
        yield RunFolder(project.state / "runs" / "r")


class GrowingRun:
    """A copy of a recorded run whose journal grows step by step."""

    def __init__(self, recorded: RunFolder, folder: Path) -> None:
        self.folder = RunFolder(folder)
        shutil.copytree(recorded.path, folder, ignore=shutil.ignore_patterns("journal.db*"))
        with closing(Journal.read(recorded.journal)) as journal:
            self.events = [event for _, event in journal.events()]
        Journal.create(self.folder.journal).close()

    def grow(self, events: list[Event]) -> None:
        with closing(Journal.open(self.folder.journal)) as journal:
            journal.append(events)


@pytest.fixture
def growing(recorded: RunFolder, tmp_path: Path) -> GrowingRun:
    return GrowingRun(recorded, tmp_path / "r")


def never(_lease: Holder) -> bool:
    return False


def test_a_reader_that_refreshes_after_every_event_has_the_state_of_a_fold_from_the_start(
    growing: GrowingRun,
) -> None:
    growing.grow(growing.events[:1])
    reader = RunReader(growing.folder, never)
    for number, event in enumerate(growing.events[1:], start=2):
        growing.grow([event])
        assert reader.refresh() == [event]
        whole = RunReader(growing.folder, never)
        assert run_view(reader.state, "r") == run_view(whole.state, "r"), f"after {number} events"
    assert reader.state.events == len(growing.events)
    assert reader.state.status.value == "succeeded"


def test_a_refresh_reads_no_event_twice(growing: GrowingRun) -> None:
    growing.grow(growing.events)
    reader = RunReader(growing.folder, never)
    assert reader.refresh() == []
    assert reader.state.events == len(growing.events)


def test_a_run_that_was_deleted_and_started_again_is_read_from_its_start(growing: GrowingRun) -> None:
    growing.grow(growing.events)
    reader = RunReader(growing.folder, never)
    for file in growing.folder.path.glob("journal.db*"):
        file.unlink()
    first_plan = growing.folder.plan(1)
    first_plan.write_bytes(first_plan.read_bytes())
    Journal.create(growing.folder.journal).close()
    growing.grow(growing.events[:2])
    assert reader.refresh() == growing.events[:2]
    assert reader.state.status.value == "running"


def test_an_event_that_does_not_fit_is_an_error_with_its_number(growing: GrowingRun) -> None:
    growing.grow(growing.events)
    reader = RunReader(growing.folder, never)
    growing.grow([next(event for event in growing.events if event.task == "one")])
    with pytest.raises(StateError, match=f"event {len(growing.events) + 1} of the journal"):
        reader.refresh()


def test_a_run_is_driven_while_the_holder_of_its_lease_is_alive(growing: GrowingRun) -> None:
    growing.grow(growing.events[:2])
    with closing(Journal.open(growing.folder.journal)) as journal:
        journal.take({"pid": 7}, never)
    asked: list[Holder] = []
    alive = [True, False]

    def is_alive(lease: Holder) -> bool:
        asked.append(lease)
        return alive[len(asked) - 1]

    reader = RunReader(growing.folder, is_alive)
    first = (reader.is_driven, reader.now is not None)
    reader.refresh()
    second = (reader.is_driven, reader.now is not None)
    assert (first, second) == ((True, True), (False, False))
    assert asked == [{"pid": 7}, {"pid": 7}]


def test_liveness_is_not_checked_for_a_run_without_a_holder(recorded: RunFolder) -> None:
    def refuse(_lease: Holder) -> bool:
        raise AssertionError("nobody holds the lease")

    assert not RunReader(recorded, refuse).is_driven


def test_a_follower_prints_every_log_once_and_whole(growing: GrowingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends while it is followed. Every log is printed once and whole, also that of an attempt between two looks."""
    growing.grow(growing.events[:2])
    with closing(Journal.open(growing.folder.journal)) as journal:
        journal.take({"pid": 7}, never)
    reader = RunReader(growing.folder, lambda _: True)
    expected = {
        ("one", 1): "attempt 1\n",
        ("one", 2): "attempt 2\n",
        ("two", 1): "attempt 1\n",
        ("two", 2): "attempt 2\n",
    }
    rest = growing.events[2:]
    pauses: list[float] = []

    def grow_instead_of_sleeping(seconds: float) -> None:
        pauses.append(seconds)
        with closing(Journal.open(growing.folder.journal)) as journal:
            journal.epoch = 1
            journal.append(rest[:7])
        del rest[:7]

    monkeypatch.setattr("spotwright.records.stored_plan.time.sleep", grow_instead_of_sleeping)
    pieces = list(follow_logs(reader))
    assert {(log.task, log.attempt): text for log, text in pieces} == expected
    assert len(pieces) == len(expected)
    assert len(pauses) > 2
    assert [(log.task, log.attempt) for log in list_logs(reader)] == list(expected)
