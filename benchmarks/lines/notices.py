"""The lines about notices: how soon a program knows that its node goes, and what the agent that tells it costs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import HERE, SPOTWRIGHT, Bench, wait_until
from results import Judged, Row

__all__ = ["notice"]

_CLOUDS = {"aks": "Azure, asked every second", "gke": "Google, which answers at once", "eks": "AWS, asked every 5 s"}


def notice(bench: Bench) -> Iterator[Row]:
    """From the provider's notice to the callback, the slowest of many; under 1 s plus the provider's own polling minimum."""
    for provider, what in _CLOUDS.items():
        done = bench.run([sys.executable, HERE / "noticing.py", provider, str(bench.times(20, 5)), "RESULT"]).result
        limit = 1.0 + done["interval"]
        text = f"notice to callback, slowest of {len(done['seconds'])}: {what}"
        yield Row("notice", text, [max(done["seconds"])], "s", Judged.VALUE, limit)
    spent, size = _agent(bench)
    yield Row("notice", "the node agent's processor time in 5 s without a notice", [spent * 1000], "ms")
    yield Row("notice", "the node agent's memory", [size], "MB")


def _agent(bench: Bench) -> tuple[float, float]:
    """Processor time in seconds and resident size in MB of an agent that reads a file and has nobody to tell."""
    file = bench.folder / "no-notice.json"
    process = bench.start([*SPOTWRIGHT, "node-agent", "--provider", "local", "--file", file, "--listen", "127.0.0.1:0"])
    try:
        wait_until("the agent's start", lambda: _rss(process.pid) > 15)
        time.sleep(1.0)  # what it does after the start is no waiting
        before = _processor_time(process.pid)
        time.sleep(5.0)
        return _processor_time(process.pid) - before, _rss(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> float:
    lines = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0
