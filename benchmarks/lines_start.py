"""How long a user waits before anything happens: imports, help, and the first attempt after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import HERE, SPOTWRIGHT, Bench, wait_until
from results import Judged, Row

__all__ = ["resume", "start"]


def start(bench: Bench) -> Iterator[Row]:
    """``import spotwright`` and ``spotwright --help`` as whole processes, beside the bare interpreter."""
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "import spotwright"],
        "help": [*SPOTWRIGHT, "--help"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(12):
        for name, command in commands.items():
            taken = bench.run(command).seconds * 1000
            if number:  # the first is the warm-up
                seconds[name].append(taken)
    bare = ("bare interpreter", seconds["bare"])
    yield Row("start", "import spotwright", seconds["import"], "ms", Judged.VALUE, 40, *bare, best=True)
    yield Row("start", "spotwright --help", seconds["help"], "ms", Judged.VALUE, 100, *bare, best=True)


def resume(bench: Bench) -> Iterator[Row]:
    """From the start of ``spotwright resume`` after a kill -9 to the first process of a new attempt."""
    for what, file in (("compiled pipeline", bench.compiled / "waiting.yaml"), (".py file", HERE / "waiting.py")):
        seconds = [_resume_once(bench, file) for _ in range(bench.times(5, 2))]
        yield Row("resume", f"resume after kill -9, {what}: first new attempt", seconds, "s", Judged.VALUE, 1.0)


def _resume_once(bench: Bench, file: Path) -> float:
    state = bench.new_folder("state")
    config = ["--config", bench.folder / "spotwright.yaml"]
    first = bench.start([*SPOTWRIGHT, "run", file, "--arg", "seconds=60", "--state", state, *config])
    wait_until("the start of four tasks", lambda: _claims(state, 1) == 4)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    begun = time.perf_counter()
    second = bench.start([*SPOTWRIGHT, "resume", "last", "--state", state])
    try:
        wait_until("the first new attempt", lambda: _claims(state, 2))
        return time.perf_counter() - begun
    finally:
        _stop(second)


def _claims(state: Path, number: int) -> int:
    """How many attempts of this number have a process."""
    return len(list(state.glob(f"runs/*/tasks/*/attempt-{number}/claim")))


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)
