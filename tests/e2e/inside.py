"""Helpers for the components of these tests. The file is copied into every component, so it imports the standard library only.

``PLAYGROUND`` is a folder outside the run that a test shares with its components: the ledger, locks and files to wait for.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

__all__ = [
    "PLAYGROUND",
    "alone",
    "attempt",
    "hold",
    "note",
    "progress",
    "raise_file",
    "say",
    "the_time_of",
    "until",
    "until_noticed",
    "when_told",
    "work_and_hold",
]

PLAYGROUND = Path(os.environ.get("PLAYGROUND", "."))
PATIENCE = 300.0


def attempt() -> int:
    """The number of the attempt this is."""
    return int(os.environ["SPOTWRIGHT_ATTEMPT"])


def note(what: str, **facts: Any) -> None:
    """Append a line to the ledger, in one write."""
    line = {"what": what, "task": os.environ["SPOTWRIGHT_TASK"], "attempt": attempt(), "pid": os.getpid()}
    ledger = os.open(PLAYGROUND / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(ledger, (json.dumps({**line, "at": time.monotonic(), **facts}) + "\n").encode())
    os.close(ledger)


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the task's lock, which one process at a time can hold; note that in the ledger, and fail if the lock is held.

    Whatever this process starts holds it too, so a child that outlives its attempt is found as well.
    """
    name = os.environ["SPOTWRIGHT_TASK"].replace("/", "+")
    lock = os.open(PLAYGROUND / f"lock-{name}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("overlap")
        sys.exit("another attempt of this task is alive")
    note("start")
    yield
    note("done")


def until(name: str) -> None:
    """Wait until a file of the playground is there."""
    deadline = time.monotonic() + PATIENCE
    while not (PLAYGROUND / name).exists():
        if time.monotonic() > deadline:
            sys.exit(f"{name} never came")
        time.sleep(0.005)


def raise_file(name: str) -> None:
    """Make a file of the playground."""
    (PLAYGROUND / name).touch()


def hold() -> NoReturn:
    """Do nothing until this process is ended."""
    while True:
        signal.pause()


def progress(value: float) -> None:
    """Report progress."""
    Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(value))


def work_and_hold() -> NoReturn:
    """Report growing progress, so that a node to be reclaimed at a share of the work is reclaimed; then wait for the end."""
    _work(lambda: False)
    hold()


def until_noticed() -> None:
    """Report growing progress until it leads to a notice."""
    path = Path(os.environ["SPOTWRIGHT_NOTICE_FILE"])
    _work(path.exists)
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def _work(enough: Callable[[], bool]) -> None:
    for number in range(100):
        if enough():
            return
        progress(number / 100)
        time.sleep(0.002)


def when_told(code: int) -> None:
    """End with this code when SIGTERM comes, and note it."""

    def end(_number: int, _frame: object) -> None:
        note("told")
        sys.exit(code)

    signal.signal(signal.SIGTERM, end)


def the_time_of(pid: int) -> int:
    """When a process started, in clock ticks: with its pid, its identity."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
