"""What the engine itself costs: memory, processor time a task, the fold of a long journal, simulated runs; nothing while idle."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import HERE, SPOTWRIGHT, Bench, BenchmarkError, processor_time, stop, terminal, wait_until
from results import Judged, Row

__all__ = ["decisions", "fold", "idle", "memory", "simulation"]

_MEMORY = 120.0  # MB


def memory(bench: Bench) -> Iterator[Row]:
    """The engine's largest resident size, of the whole command, for small and large pipelines."""
    many = bench.times(10_000, 2_000)
    pipelines = {
        "a .py file of 5 tasks": HERE / "small.py",
        "200 static tasks": bench.grown(200),
        f"{many:,} static tasks, written as the SDK would": bench.grown(many),
        f"a loop of {many:,} iterations": bench.loop(many),
    }
    for what, file in pipelines.items():
        yield Row("memory", f"{what}: the engine's peak", [_peak(bench, file)], "MB", Judged.VALUE, _MEMORY)


def _peak(bench: Bench, file: Path) -> float:
    state = bench.new_folder("state")
    command = [
        *SPOTWRIGHT,
        "run",
        file,
        "--state",
        state,
        "--cache",
        "off",
        "--config",
        bench.folder / "spotwright.yaml",
    ]
    process = bench.start(command)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, _high_water_mark(process.pid))
        time.sleep(0.01)
    if process.returncode != 0:
        raise BenchmarkError(f"{file.name}: spotwright run ended with {process.returncode}")
    return peak


def _high_water_mark(pid: int) -> float:
    """VmHWM in MB; zero once the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def decisions(bench: Bench) -> Iterator[Row]:
    """Processor time a task of plan, fold, decisions, supply and journal, at 10,000 tasks and at 200."""
    for what, chained in (("independent, room for 20", False), ("a chain", True)):
        few, many = bench.grown(200, chain=chained), bench.grown(bench.times(10_000, 4_000), chain=chained)
        small: list[float] = []
        large: list[float] = []
        for _ in range(bench.times(3)):
            small += _engine_time(bench, few, "5")
            large += _engine_time(bench, many, "1")
        yield Row(
            "engine", f"{what}: engine time a task at {many.stem.rpartition('-')[2]}", large, "ms", Judged.RATIO, 1.3,
            "at 200", small,
        )  # fmt: skip

    few, many = bench.loop(200), bench.loop(10_000)
    small, large = [], []
    for _ in range(bench.times(3)):
        small += _engine_time(bench, few, "5")
        large += _engine_time(bench, many, "1")
    yield Row(
        "engine", "a loop, room for 20: engine time an iteration at 10000", large, "ms", Judged.RATIO, 1.3, "at 200", small,
    )  # fmt: skip


def _engine_time(bench: Bench, file: Path, count: str) -> list[float]:
    command = [sys.executable, HERE / "simulated.py", "journal", file, bench.new_folder("state"), "RESULT", count]
    done = bench.run(command)
    return [run["spent"] * 1000 / run["tasks"] for run in done.result["runs"]]


def fold(bench: Bench) -> Iterator[Row]:
    """A journal of 100,000 events, read and folded in a new process."""
    file, state = bench.grown(8_400), bench.new_folder("state")
    command = [sys.executable, HERE / "simulated.py", "journal", file, state, "RESULT", "1", "taken"]
    made = bench.run(command).result["runs"][0]
    if made["events"] < 100_000:
        raise BenchmarkError(f"the journal holds only {made['events']} events")
    command = [sys.executable, HERE / "fold.py", made["folder"], "RESULT"]
    seconds = [bench.run(command).result["seconds"] for _ in range(bench.times(7, 3))]
    yield Row("fold", f"{made['events']:,} events read and folded", seconds, "s", Judged.VALUE, 0.6, best=True)


def simulation(bench: Bench) -> Iterator[Row]:
    """Runs of 20 tasks that compete for spot nodes, which are taken again and again."""
    count = 200
    for what, file in (("independent", bench.grown(20)), ("a chain", bench.grown(20, chain=True))):
        command = [sys.executable, HERE / "simulated.py", "compete", file, str(count), "RESULT"]
        done = [bench.run(command).result for _ in range(bench.times(3))]
        interrupted = done[0]["causes"]["interrupted"]
        yield Row(
            "simulation", f"{count} runs of 20 tasks ({what}) on one core, {interrupted:,} interruptions",
            [each["spent"] for each in done], "s", Judged.VALUE, 10.0, best=True,
        )  # fmt: skip


def idle(bench: Bench) -> Iterator[Row]:
    """The engine's processor time while tasks sleep, with plain lines and with the live display of a terminal."""
    what = "the engine's processor time in 5 s in which tasks sleep"
    yield Row("idle", what, [_idle_time(bench, None) * 1000], "ms", Judged.VALUE, 50)
    with terminal() as opened:
        spent = _idle_time(bench, opened)
    yield Row("idle", f"{what}, on a terminal", [spent * 1000], "ms", Judged.VALUE, 50)


def _idle_time(bench: Bench, output: int | None) -> float:
    file, state = bench.compiled / "waiting.yaml", bench.new_folder("state")
    process = bench.start([*SPOTWRIGHT, "run", file, "--arg", "seconds=8", "--state", state], output)
    try:
        wait_until("the start of four tasks", lambda: len(list(state.glob("runs/*/tasks/*/attempt-1/claim"))) == 4)
        time.sleep(1.0)  # what it does after the start is no idling
        before = processor_time(process.pid)
        time.sleep(5.0)
        spent = processor_time(process.pid) - before
    finally:
        stop(process)
    return spent
