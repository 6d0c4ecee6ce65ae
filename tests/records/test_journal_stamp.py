"""When a journal's files show that it is unchanged."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

from spotwright.records.journal import Journal, journal_stamp


def aged(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_a_journal_that_was_just_written_has_no_stamp(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    journal.write_bytes(b"one")
    aged(journal, -600)  # whatever time passes until the next line
    assert journal_stamp(journal) is None


def test_the_stamp_stays_until_the_journal_or_its_log_is_written(tmp_path: Path) -> None:
    journal, log = tmp_path / "journal.db", tmp_path / "journal.db-wal"
    journal.write_bytes(b"one")
    aged(journal, 600)
    first = journal_stamp(journal)
    assert first is not None
    assert journal_stamp(journal) == first
    log.write_bytes(b"two")
    aged(log, 500)
    second = journal_stamp(journal)
    assert second not in (None, first)
    aged(log, 400)  # written over from the beginning: as large as before
    assert journal_stamp(journal) not in (None, first, second)


def test_a_journal_that_is_not_there_has_a_stamp_until_it_is_made(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    before = journal_stamp(journal)
    journal.touch()
    aged(journal, 600)
    assert journal_stamp(journal) != before


def test_reading_changes_no_stamp(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    Journal.create(journal).close()
    os.utime(journal, (1_700_000_000,) * 2)
    before = journal_stamp(journal)
    with closing(Journal.read(journal)) as reading:
        list(reading.events())
    assert before is not None
    assert journal_stamp(journal) == before
