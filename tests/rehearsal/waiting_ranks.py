"""Two ranks that wait, below their launcher and below a process that waits for it, as below the main process of an attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.project import eventually

from spotwright.rehearsal.ranks import rank_processes
from spotwright.rehearsal.syscall_tracer import process_tree

__all__ = ["WAITS", "waiting_ranks"]

WAITS = "import time; time.sleep(600)"
_WRAPPER = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


@contextmanager
def waiting_ranks(*launcher: str) -> Iterator[int]:
    """The process that waits for this launcher, once both ranks run. At the end it is killed with all below it."""
    with subprocess.Popen([sys.executable, "-c", _WRAPPER, *launcher]) as process:
        try:
            eventually(lambda: len(rank_processes(process.pid)) == 2)
            yield process.pid
        finally:
            for each in list(process_tree(process.pid)):
                os.kill(each, signal.SIGKILL)
