"""A run of many tasks that goes on, and two ways to follow it.

``following.py play RECORDED COPY TASKS_A_SECOND``: plays the second half of a recorded run into a copy of it, as the engine that
holds its lease: events in transactions of their own, and a line in the log of the attempt for each.

``following.py again COPY``: follows the logs without a memory, as a reader would that folds the journal anew at each look and
opens the log of every attempt.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from spotwright.engine.events import Event
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader, list_logs
from spotwright.records.state_folder import RunFolder
from spotwright.runs.bodies import is_alive, this_process

_LOOK = 0.2  # seconds between two looks of a follower


def play(recorded: str, copy: str, tasks_a_second: str) -> None:
    """Play the run. Every tenth of a second, so many events as the rate asks for."""
    source, folder = RunFolder(Path(recorded)), RunFolder(Path(copy))
    folder.path.mkdir(parents=True)
    shutil.copyfile(source.plan(1), folder.plan(1))
    with closing(Journal.read(source.journal)) as whole:
        events = [event for _, event in whole.events()]
    tasks = len({event.task for event in events if event.task})
    beside = folder.path / "journal.new"
    with closing(Journal.create(beside)) as journal:
        journal.take(this_process(), is_alive)
        _append(journal, folder, events[: len(events) // 2])
    beside.rename(folder.journal)
    with closing(Journal.open(folder.journal)) as journal:
        journal.epoch = 1
        size = max(1, round(len(events) / tasks * float(tasks_a_second) / 10))
        rest = iter(events[len(events) // 2 : -50])
        while part := list(islice(rest, size)):
            _append(journal, folder, part)
            time.sleep(0.1)
    time.sleep(3600)  # whoever started this has had enough before


def _append(journal: Journal, folder: RunFolder, events: Sequence[Event]) -> None:
    journal.append(events)
    for event in events:
        if event.attempt:
            log = folder.log(event.task, event.attempt)
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as file:
                file.write(f"{event.kind} of attempt {event.attempt}\n")


def again(copy: str) -> None:
    """Follow the run without a memory, until the process is ended."""
    positions: dict[Path, int] = {}
    while True:
        for log in list_logs(RunReader(RunFolder(Path(copy)), is_alive)):
            with suppress(FileNotFoundError), log.path.open("rb") as file:
                file.seek(positions.get(log.path, 0))
                text = file.read()
                positions[log.path] = file.tell()
                sys.stdout.write(text.decode())
        time.sleep(_LOOK)


if __name__ == "__main__":
    {"play": play, "again": again}[sys.argv[1]](*sys.argv[2:])
