"""What the pages are measured on: many small runs, a run of 10,000 tasks, a run that goes on, a long log.

``python -m benchmarks.pages.inputs play RECORDED COPY RATE TOLD`` goes on with a run as the engine that holds its lease: from the
moment on when a twentieth of its tasks had ended, so many ends of tasks a second, in twenty transactions a second at most. The
file TOLD gets a line for each: how many tasks have succeeded, and when that was committed, in Unix seconds.

``python -m benchmarks.pages.inputs write LOG RATE`` appends so many lines a second to a log.

Both go on until they are ended.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.page.made_runs import KINDS, Kind, make_run
from tests.simulation.simulated_attempts import TaskWork

from spotwright.engine.events import AttemptDecided, Event
from spotwright.model.attempts import Cause
from spotwright.records.journal import Journal
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.runs.bodies import is_alive, this_process

__all__ = ["LIVE", "Playing", "long_log", "made", "many_runs", "playing", "writing"]

_ROOT = Path(__file__).resolve().parents[2]
_STEPS = 20  # transactions a second at most

LIVE = TaskWork(60.0, spread=0.5)
"""The work of each task of a replayed run: they end one after the other, on nodes that are not reclaimed."""


def made(state: Path, name: str, kind: Kind) -> Path:
    """The folder of a made run that began some hours ago."""
    make_run(state, name, kind, start=time.time() - 86_400.0)
    return StateFolder.open(state).run(name).path


def many_runs(state: Path, count: int) -> None:
    """So many runs of nine tasks, one folder copied under new names, each some seconds older than the next."""
    first = made(state, "run-00000", KINDS["ordinary"])
    for number in range(1, count):
        folder = first.with_name(f"run-{number:05d}")
        folder.mkdir()
        for path in first.iterdir():
            if path.is_file():
                shutil.copyfile(path, folder / path.name)


def long_log(path: Path, size: int) -> int:
    """Write a log of about so many bytes; returns how many lines it has. One line in 50,000 says ``needle``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = 0
    with path.open("w") as file:
        while file.tell() < size:
            piece = range(lines, lines + 10_000)
            file.writelines(_line(number) for number in piece)
            lines += len(piece)
    return lines


def _line(number: int) -> str:
    rest = "needle" if number % 50_000 == 49_999 else f"loss {1 / (number + 1):.6f} accuracy {number % 997 / 997:.4f}"
    return f"step {number:9d} of epoch {number // 5000:4d}: {rest}, 128 examples in 0.231 s, learning rate 0.00030\n"


class Playing:
    """A process that continues a run, with its reports."""

    def __init__(self, process: subprocess.Popen[bytes], told: Path) -> None:
        self._process, self._told = process, told

    def committed(self) -> dict[int, float]:
        """When that many tasks had succeeded, by number."""
        lines = (line.split() for line in self._told.read_text().splitlines())
        return {int(count): float(at) for count, at in (line for line in lines if len(line) == 2)}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Pause commits during the block."""
        hold = _hold(self._told)
        hold.touch()
        time.sleep(1.0)  # what is under way is committed, and told
        try:
            yield
        finally:
            hold.unlink()


@contextmanager
def playing(recorded: Path, copy: Path, rate: float, told: Path) -> Iterator[Playing]:
    """Continue a run, until the end of ``with``. At its beginning a twentieth of its tasks has ended."""
    command = [sys.executable, "-m", "benchmarks.pages.inputs", "play", str(recorded), str(copy), str(rate), str(told)]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while not told.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the run cannot be played")
            time.sleep(0.01)
        yield Playing(process, told)
    finally:
        process.kill()
        process.wait()


@contextmanager
def writing(log: Path, rate: int) -> Iterator[None]:
    """Append lines to a log, until the end of ``with``."""
    command = [sys.executable, "-m", "benchmarks.pages.inputs", "write", str(log), str(rate)]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _play(recorded: str, copy: str, rate: str, told: str) -> None:
    source, folder = RunFolder(Path(recorded)), RunFolder(Path(copy))
    folder.path.mkdir(parents=True)
    for path in source.path.iterdir():
        if path.is_file() and not path.name.startswith("journal"):
            shutil.copyfile(path, folder.path / path.name)
    with closing(Journal.read(source.journal)) as whole:
        events = [event for _, event in whole.events()][:-50]  # the run does not end
    ends = [number for number, event in enumerate(events) if _succeeds(event)]
    cut = ends[len(ends) // 20]
    first, rest = events[:cut], events[cut:]
    beside = folder.path / "journal.new"
    with closing(Journal.create(beside)) as journal:
        journal.take(this_process(), is_alive)
        journal.append(first)
    succeeded = sum(map(_succeeds, first))
    beside.rename(folder.journal)
    with closing(Journal.open(folder.journal)) as journal, Path(told).open("w", buffering=1) as tell:
        journal.epoch = 1
        begun, sent = time.monotonic(), 0
        for part in _parts(rest, max(1, round(float(rate) / _STEPS))):
            while (wait := begun + sent / float(rate) - time.monotonic()) > 0 or _hold(Path(told)).exists():
                time.sleep(max(wait, 0.05))
            journal.append(part)
            ended = sum(map(_succeeds, part))
            succeeded, sent = succeeded + ended, sent + ended
            tell.write(f"{succeeded} {time.time()}\n")
    time.sleep(3600)


def _hold(told: Path) -> Path:
    """While this file exists, the run pauses."""
    return told.with_name(f"{told.name}.hold")


def _succeeds(event: Event) -> bool:
    return isinstance(event, AttemptDecided) and event.cause is Cause.SUCCEEDED


def _parts(events: list[Event], ends: int) -> Iterator[list[Event]]:
    """The events in pieces, each with so many ends of tasks."""
    part: list[Event] = []
    found = 0
    for event in events:
        part.append(event)
        found += _succeeds(event)
        if found == ends:
            yield part
            part, found = [], 0
    if part:
        yield part


def _write(log: str, rate: str) -> None:
    size = max(1, int(rate) // _STEPS)
    number, begun = 0, time.monotonic()
    with Path(log).open("ab", buffering=0) as file:
        while True:
            file.write("".join(_line(each) for each in range(number, number + size)).encode())
            number += size
            time.sleep(max(0.0, begun + number / int(rate) - time.monotonic()))


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    {"play": _play, "write": _write}[sys.argv[1]](*sys.argv[2:])
