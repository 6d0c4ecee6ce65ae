"""``make bench``: speed and size of this checkout, beside ``kfp.local`` in the same run; exit code 1 if a target is missed.

Every figure is a median of several runs, with the smallest and the largest beside it; the smallest itself for the start of
programs, the fold and the step from task to task, where whatever else the machine does can only add. ``kfp.local`` and ours
take turns, so that a machine whose speed wanders is fair to both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import Bench, BenchmarkError
from lines import checkpoint, deadlines, engine, linting, manifests, notices, reading, start, tasks
from results import Row, as_text

_LINES: Mapping[str, Callable[[Bench], Iterator[Row]]] = {
    "start": start.start,
    "chain": tasks.chain,
    "independent": tasks.independent,
    "sleep": tasks.sleep,
    "fork": tasks.fork,
    "loop": tasks.loop,
    "packages": tasks.packages,
    "resume": start.resume,
    "demo": start.demo,
    "idle": engine.idle,
    "engine": engine.decisions,
    "fold": engine.fold,
    "follow": reading.follow,
    "simulation": engine.simulation,
    "memory": engine.memory,
    "checkpoint": checkpoint.checkpoint,
    "notice": notices.notice,
    "manifests": manifests.manifests,
    "lint": linting.lint,
    "deadlines": deadlines.deadlines,
}


def main() -> int:
    """Measure what was asked for. Exit code 1 when a target is missed, 2 when something cannot be measured."""
    options = _options()
    out = sys.stderr if options.json else sys.stdout
    rows: list[Row] = []
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", file=out)
    print("Simulated nodes boot in no time and hold 20 tasks: waiting for them is not overhead.", file=out)
    with (
        tempfile.TemporaryDirectory(prefix="spotwright-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="spotwright-bench-", dir=_memory()) as memory,
    ):
        bench = Bench(Path(folder), Path(memory), quick=options.quick, full=options.full)
        try:
            for name in options.only or _LINES:
                for row in _LINES[name](bench):
                    rows.append(row)
                    print(as_text(row), file=out, flush=True)
        except BenchmarkError as error:
            print(f"cannot be measured: {error}", file=sys.stderr)
            return 2
    if options.json:
        print(json.dumps([row.as_json() for row in rows]))
    missed = sum(not row.passed for row in rows)
    print(f"{missed} of {len(rows)} lines missed their target" if missed else "every target was reached", file=out)
    return 1 if missed else 0


def _memory() -> str | None:
    """A folder in memory; the usual one if this machine has none."""
    place = "/dev/shm"  # noqa: S108 (a folder of its own is made in it)
    return place if os.access(place, os.W_OK) else None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(_LINES), action="append", help="measure this line (may be given again)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller runs")
    parser.add_argument("--full", action="store_true", help="also kfp.local with use_venv=True: minutes, and a network")
    parser.add_argument("--json", action="store_true", help="every sample as JSON on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
