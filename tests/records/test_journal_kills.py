"""``kill -9`` at any moment: every event whose append has returned is in the journal, in order, without a gap."""

from __future__ import annotations

import os
import random
import select
import signal
import struct
import time
from pathlib import Path

import pytest
from tests.events import an_event

from spotwright.records.journal import Journal

KILLS = 150


def write_until_killed(path: Path, first: int, acknowledge: int) -> None:
    """Append one to three events at a time, forever, and print after each append the last number."""
    journal = Journal.open(path)
    journal.take({"pid": os.getpid()}, lambda _held: False)
    number = first
    while True:
        batch = [
            an_event("note", float(number + n), data={"text": "x" * (number % 700)}) for n in range(number % 3 + 1)
        ]
        journal.append(batch)
        number += len(batch)
        os.write(acknowledge, struct.pack("<q", number))


def a_writer(path: Path, first: int) -> tuple[int, int]:
    """A child that writes; its process and the pipe of its acknowledgements."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_until_killed(path, first, send)
        finally:
            os._exit(1)
    os.close(send)
    return child, receive


def acknowledged(receive: int) -> int | None:
    """The last number that a writer acknowledged before it was killed; ``None`` without any."""
    acknowledged = b""
    while piece := os.read(receive, 65536):
        acknowledged += piece
    os.close(receive)
    whole = len(acknowledged) // 8
    return struct.unpack("<q", acknowledged[8 * whole - 8 : 8 * whole])[0] if whole else None


@pytest.mark.long
@pytest.mark.slow
def test_no_acknowledged_event_is_lost_and_the_rest_has_no_gap(tmp_path: Path) -> None:
    """150 engines one after another, each killed at a random moment, most of them in the middle of an append."""
    path = tmp_path / "journal.db"
    Journal.create(path).close()
    draw = random.Random(7)  # noqa: S311  # the same moments every time
    written = said_in_all = 0
    for _ in range(KILLS):
        child, receive = a_writer(path, written)
        assert select.select([receive], [], [], 120)[0], "a writer wrote nothing for 120 s"
        time.sleep(draw.random() * 0.01)  # the moment of the kill, not a wait for anything
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        last = acknowledged(receive)
        reader = Journal.read(path)
        numbers = [round(event.at) for _, event in reader.events()]
        reader.close()
        assert numbers == list(range(len(numbers)))
        assert last is None or len(numbers) >= last
        assert len(numbers) <= (last or written) + 3  # at most the append that was not acknowledged any more
        written, said_in_all = len(numbers), max(said_in_all, last or 0)
    assert said_in_all > KILLS


def test_the_journal_of_a_killed_engine_can_be_taken_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal.create(path).close()
    child, receive = a_writer(path, 0)
    assert select.select([receive], [], [], 120)[0]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(receive)
    journal = Journal.open(path)
    assert journal.take({"pid": os.getpid()}, lambda held: held["pid"] != child) == 2
    journal.close()
