"""The journal of a run: appends, the lease and its fence, readers, and files that are damaged or cannot be written."""

from __future__ import annotations

import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.events import an_event, data_of
from tests.records.children import Foreign, in_a_child

from spotwright.engine.events import Event
from spotwright.engine.ports import Holder
from spotwright.errors import Fenced, RunBusy, StateError
from spotwright.records.journal import FORMAT, Journal, _Connection

ME: Holder = {"pid": 1, "starttime": 2, "boot_id": "b"}
NOBODY: Holder = {"pid": 99, "starttime": 9, "boot_id": "b"}


def dead(_lease: Holder) -> bool:
    return False


def alive(_lease: Holder) -> bool:
    return True


def holder_of(journal: Journal) -> Holder | None:
    lease = journal.lease()
    return None if lease is None else lease.holder


def note(text: str, at: float = 1.5) -> Event:
    return an_event("note", at, data={"text": text})


def texts(journal: Journal) -> list[str]:
    return [data_of(event)["text"] for _, event in journal.events()]


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every journal that a test opened is closed after it."""
    opened: list[Journal] = []
    begin = Journal.__init__

    def init(journal: Journal, *given: Any, **named: Any) -> None:
        begin(journal, *given, **named)
        opened.append(journal)

    monkeypatch.setattr(Journal, "__init__", init)
    yield
    for journal in opened:
        journal.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run = tmp_path / "run-1"
    run.mkdir()
    return run / "journal.db"


@pytest.fixture
def journal(path: Path) -> Journal:
    made = Journal.create(path)
    made.take(ME, dead)
    return made


# Events


def test_events_are_read_back_unchanged(journal: Journal) -> None:
    events = [
        an_event(
            "ended",
            1_800_000_000.123456,
            "loop/train-3",
            2,
            {"signals": {"exit_code": 1}, "parameters": {"x": [1, None]}},
        ),
        an_event("node", 2.0, data={"node": "n", "pool": "p", "state": "gone", "why": "é\n\ud800 ☃"}),
        an_event("completed", 3.0, "t", 0, {"parameters": {"big": 2**70, "float": 0.1}}),
    ]
    journal.append(events)
    assert [event for _, event in journal.events()] == events


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda j: st.lists(j) | st.dictionaries(st.text(), j)
    )
)
def test_any_json_is_read_back_unchanged(value: object) -> None:
    journal = Journal(sqlite3.connect(":memory:", isolation_level=None, factory=_Connection), Path("memory"))
    journal._db.executescript(
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL, kind TEXT, task TEXT, attempt INT, data TEXT)"
    )
    journal._db.executescript(
        "CREATE TABLE lease (one INTEGER, epoch INTEGER, owner TEXT); INSERT INTO lease VALUES (1, 0, '')"
    )
    journal.append([an_event("completed", 0.0, "t", 0, {"parameters": {"value": value}})])
    assert [data_of(event) for _, event in journal.events()] == [{"parameters": {"value": value}}]
    journal.close()


def test_events_keep_their_order_over_appends(journal: Journal) -> None:
    for number in range(5):
        journal.append([note(f"{number}a"), note(f"{number}b")])
    assert texts(journal) == [f"{number}{letter}" for number in range(5) for letter in "ab"]


def test_events_can_be_read_from_a_sequence_number_on(journal: Journal) -> None:
    journal.append([note(text) for text in "abcd"])
    assert [(seq, data_of(event)["text"]) for seq, event in journal.events(after=2)] == [(3, "c"), (4, "d")]


def test_events_of_one_task_are_read_with_those_of_the_tasks_inside_it_and_of_none(journal: Journal) -> None:
    tasks = ["", "train", "train/step", "trainer", "score", "train"]
    journal.append([an_event("progress", float(at), task, 1, {"value": 0.5}) for at, task in enumerate(tasks)])
    assert [number for number, _ in journal.events(only_of="train")] == [1, 2, 3, 6]
    assert [number for number, _ in journal.events(2, only_of="train")] == [3, 6]


def test_an_append_is_all_or_nothing(journal: Journal) -> None:
    with pytest.raises(TypeError):
        journal.append([note("a"), an_event("note", 0.0, data={"text": object()})])
    assert texts(journal) == []


def test_events_remain_after_closing(path: Path, journal: Journal) -> None:
    journal.append([note("a")])
    journal.close()
    assert texts(Journal.read(path)) == ["a"]


def test_every_commit_is_synced_to_disk(journal: Journal) -> None:
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# The lease


def test_every_engine_has_an_epoch_of_its_own(path: Path, journal: Journal) -> None:
    assert (journal.epoch, Journal.open(path).take(NOBODY, dead)) == (1, 2)


def test_a_living_engine_keeps_its_run(path: Path, journal: Journal) -> None:
    with pytest.raises(RunBusy, match=r"run run-1 is driven by another engine \(process 1\)"):
        Journal.open(path).take(NOBODY, alive)


def test_a_refused_lease_changes_nothing(path: Path, journal: Journal) -> None:
    with pytest.raises(RunBusy):
        Journal.open(path).take(NOBODY, alive)
    journal.append([note("still mine")])
    assert holder_of(journal) == ME


def test_an_engine_whose_run_was_taken_writes_nothing_more(path: Path, journal: Journal) -> None:
    Journal.open(path).take(NOBODY, dead)
    with pytest.raises(Fenced, match="run run-1 was taken over by another engine"):
        journal.append([note("too late")])
    assert texts(journal) == []


def test_a_journal_without_a_lease_cannot_be_written(path: Path, journal: Journal) -> None:
    with pytest.raises(Fenced):
        Journal.open(path).append([note("a")])


def test_a_lease_that_was_given_up_is_free(path: Path, journal: Journal) -> None:
    journal.give_up()
    assert holder_of(journal) is None
    assert Journal.open(path).take(NOBODY, alive) == 2


def test_an_engine_whose_run_was_taken_cannot_give_it_up(path: Path, journal: Journal) -> None:
    Journal.open(path).take(NOBODY, dead)
    journal.give_up()
    assert holder_of(journal) == NOBODY


@pytest.mark.slow
def test_one_of_many_engines_gets_the_lease(path: Path, journal: Journal) -> None:
    """Eight processes try to take a lease whose holder is dead; the next holder is alive."""
    journal.close()
    program = textwrap.dedent(f"""
        import os, sys
        from pathlib import Path
        from spotwright.errors import RunBusy
        from spotwright.records.journal import _Connection, Journal
        journal = Journal.open(Path({str(path)!r}))
        sys.stdin.readline()
        try:
            journal.take({{"pid": os.getpid()}}, lambda held: held["pid"] != 1)
            print("mine")
        except RunBusy:
            print("busy")
    """)
    racers = [_python(program) for _ in range(8)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sorted(racer.communicate(timeout=600)[0].strip() for racer in racers) == ["busy"] * 7 + ["mine"]


def _python(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Readers


def test_readers_see_what_is_committed_while_the_engine_writes(path: Path, journal: Journal) -> None:
    reader = Journal.read(path)
    counts = []
    for number in range(3):
        journal.append([note(str(number))])
        counts.append(len(texts(reader)))
    assert counts == [1, 2, 3]


def test_a_reader_in_the_middle_of_reading_does_not_stop_the_engine(path: Path, journal: Journal) -> None:
    journal.append([note(text) for text in "abc"])
    reading = Journal.read(path).events()
    next(reading)
    journal.append([note("d")])
    assert [data_of(event)["text"] for _, event in reading] == ["b", "c"]


def test_a_reader_cannot_write(path: Path, journal: Journal) -> None:
    with pytest.raises(StateError, match="cannot be written"):
        Journal.read(path).take(NOBODY, dead)


# What may be wrong with the file


def test_an_existing_journal_is_not_created_again(path: Path, journal: Journal) -> None:
    with pytest.raises(StateError, match="exists already"):
        Journal.create(path)


@pytest.mark.parametrize("opening", [Journal.open, Journal.read])
def test_a_missing_journal_is_an_error_and_not_created(path: Path, opening: Callable[[Path], Journal]) -> None:
    with pytest.raises(StateError, match="no journal"):
        opening(path)
    assert not path.exists()


@pytest.mark.parametrize("opening", [Journal.open, Journal.read])
def test_a_newer_format_is_refused(path: Path, journal: Journal, opening: Callable[[Path], Journal]) -> None:
    journal._db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    journal.close()
    with pytest.raises(
        StateError, match=r"written by a newer version of spotwright \(format 3, this one reads up to 2\): upgrade"
    ):
        opening(path)


@pytest.mark.parametrize("opening", [Journal.open, Journal.read])
@pytest.mark.parametrize("content", [b"", b"not a database, not at all, whatever the name says" * 9])
def test_another_file_is_refused(path: Path, opening: Callable[[Path], Journal], content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"is not a (journal of spotwright|database)"):
        opening(path)


def test_a_damaged_row_is_an_error(path: Path, journal: Journal) -> None:
    journal.append([note("a")])
    journal._db.execute("UPDATE events SET data = '{\"text\": '")
    with pytest.raises(StateError, match="is damaged"):
        texts(journal)


def test_a_folder_may_have_special_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a?b#c %41 é"
    folder.mkdir()
    journal = Journal.create(folder / "journal.db")
    journal.take(ME, dead)
    journal.append([note("a")])
    assert (texts(Journal.read(folder / "journal.db")), [p.name for p in tmp_path.iterdir()]) == (
        ["a"],
        ["a?b#c %41 é"],
    )


# A full disk


def test_a_full_disk_is_an_error_and_committed_events_remain(path: Path, journal: Journal) -> None:
    journal.append([note("kept")])
    journal.close()

    def work() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        writer = Journal.open(path)
        writer.take(NOBODY, dead)
        while True:
            writer.append([note("x" * 1000)])

    message = in_a_child(work)
    assert message.startswith(f"StateError: {path}: the disk is full or failing")
    assert message.endswith("free some space, then resume the run")
    kept = texts(Journal.read(path))
    assert kept[0] == "kept"
    assert len(kept) > 10


def test_a_run_goes_on_when_there_is_space_again(path: Path, journal: Journal) -> None:
    test_a_full_disk_is_an_error_and_committed_events_remain(path, journal)
    again = Journal.open(path)
    again.take(ME, dead)
    again.append([note("on")])
    assert texts(again)[-1] == "on"


def test_a_full_disk_is_an_error_when_a_journal_is_created(path: Path) -> None:
    def work() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        Journal.create(path)
        return "made"

    assert in_a_child(work).startswith(f"StateError: {path}: the disk is full or failing")


# A folder that cannot be written


def test_a_closed_journal_can_be_read_in_a_read_only_folder(path: Path, journal: Journal, foreign: Foreign) -> None:
    journal.append([note("a")])
    journal.close()
    assert foreign(lambda: ",".join(texts(Journal.read(path)))) == "a"


def test_a_journal_in_use_can_be_read_in_a_read_only_folder(path: Path, journal: Journal, foreign: Foreign) -> None:
    journal.append([note("a")])
    assert foreign(lambda: ",".join(texts(Journal.read(path)))) == "a"
    journal.close()


@pytest.mark.parametrize("left", ["-wal", "-shm"])
def test_the_journal_of_a_killed_engine_can_be_read_in_a_read_only_folder(
    path: Path, journal: Journal, tmp_path: Path, foreign: Foreign, left: str
) -> None:
    """The log beside the file holds events that are not in it yet, with or without the index that SQLite had made."""
    journal.append([note("a"), note("b")])
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in {"", "-wal", left}:
        shutil.copyfile(f"{path}{suffix}", copy / f"{path.name}{suffix}")
    journal.close()
    assert foreign(lambda: ",".join(texts(Journal.read(copy / path.name)))) == "a,b"


def test_writing_in_a_read_only_folder_is_refused_with_the_fix(path: Path, journal: Journal, foreign: Foreign) -> None:
    journal.close()

    def work() -> str:
        Journal.open(path).take(NOBODY, dead)
        return "taken"

    message = foreign(work)
    assert message.startswith(f"StateError: {path}: cannot be written")
    assert message.endswith("choose another folder with --state")


def test_creating_a_journal_in_a_read_only_folder_is_refused_with_the_fix(path: Path, foreign: Foreign) -> None:
    message = foreign(lambda: str(Journal.create(path)))
    assert message.startswith(f"StateError: {path}: cannot be written")


def test_a_folder_whose_name_is_no_utf8_keeps_its_journal(tmp_path: Path) -> None:
    """Including umlauts under the locale C: file names that Python cannot encode as text."""
    folder = tmp_path / "b\udcfcro"
    folder.mkdir()
    with closing(Journal.create(folder / "journal.db")):
        assert list(Journal.read(folder / "journal.db").events()) == []
