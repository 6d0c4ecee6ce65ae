"""What reading a run costs while another process drives it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import HERE, SPOTWRIGHT, Bench, processor_time, stop, terminal, wait_until
from results import Judged, Row

__all__ = ["follow"]

_RATE = 10  # tasks of the followed run that end in a second


def follow(bench: Bench) -> Iterator[Row]:
    """Processor time of ``--follow`` on a run of 2,000 tasks, beside a follower that folds the run anew at each look."""
    state, recorded = bench.new_folder("state"), bench.new_folder("recorded")
    command = [sys.executable, HERE / "simulated.py", "journal", bench.grown(2_000), recorded, "RESULT", "1", "taken"]
    made = bench.run(command).result["runs"][0]
    copy = state / "runs" / "played"
    engine = bench.start([sys.executable, HERE / "following.py", "play", made["folder"], copy, str(_RATE)])
    logs: list[float] = []
    shows: list[float] = []
    anew: list[float] = []
    try:
        wait_until("the first half of the run", (copy / "journal.db").exists)
        for _ in range(bench.times(3)):
            logs.append(_share_of_a_core(bench, [*SPOTWRIGHT, "logs", "played", "--follow", "--state", state]))
            anew.append(_share_of_a_core(bench, [sys.executable, HERE / "following.py", "again", copy]))
            with terminal() as opened:
                show = [*SPOTWRIGHT, "show", "played", "--follow", "--state", state]
                shows.append(_share_of_a_core(bench, show, opened))
    finally:
        stop(engine)
    what = f"a run of 2,000 tasks, {_RATE} of them a second: share of a core"
    yield Row("follow", f"logs --follow of {what}", logs, "%", Judged.VALUE, 2.0)
    yield Row("follow", "the same, by folding the run anew at each look", logs, "%", Judged.RATIO, 0.1, "anew", anew)
    yield Row("follow", "show --follow of that run, on a terminal", shows, "%", Judged.VALUE, 2.0)


def _share_of_a_core(bench: Bench, command: Sequence[str | Path], output: int | None = None) -> float:
    """Percent of a core that a process uses for five seconds, once it has begun."""
    process = bench.start(command, output)
    try:
        time.sleep(3.0)  # the start, which reads the first half
        before, begun = processor_time(process.pid), time.perf_counter()
        time.sleep(5.0)
        return (processor_time(process.pid) - before) / (time.perf_counter() - begun) * 100
    finally:
        stop(process)
