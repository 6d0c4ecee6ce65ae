"""How long a user waits before anything happens: imports, help, the first attempt after a crash; and for the whole demo."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import HERE, SPOTWRIGHT, Bench, stop, wait_until
from results import Judged, Row

__all__ = ["demo", "resume", "start"]


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


def demo(bench: Bench) -> Iterator[Row]:
    """``make demo`` to its end, with three interruptions and the boots of its simulated nodes."""
    script = HERE.parent / "examples" / "iris" / "demo.py"
    state = {"SPOTWRIGHT_STATE": str(bench.new_folder("state"))}
    seconds = [bench.run([sys.executable, script, "--cache", "off"], env=state).seconds for _ in range(bench.times(3))]
    yield Row("demo", "make demo", seconds, "s", Judged.VALUE, 60)


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
        stop(second)


def _claims(state: Path, number: int) -> int:
    """How many attempts of this number have a process."""
    return len(list(state.glob(f"runs/*/tasks/*/attempt-{number}/claim")))
