"""Attempts of the examples under the real torchrun, with steps that a test can interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.torch.training_scripts import PROJECT

from spotwright.checkpoint.save_log import SaveLog
from spotwright.checkpoint.store import open_store
from spotwright.rehearsal.syscall_tracer import process_tree

STEPS = 48
PATIENCE = 240.0

SLOWLY = """
import runpy, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
register_optimizer_step_post_hook(lambda *_: time.sleep(0.1))
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs an example with steps that a test can interrupt."""


class Attempt:
    """An example under torchrun, by default with two ranks."""

    def __init__(self, folder: Path, script: Path, pids: set[int], ranks: int = 2, **variables: str) -> None:
        self.folder, self._pids = folder, pids
        for old in (folder / "progress", *folder.glob("notice-*")):
            old.unlink(missing_ok=True)
        (folder / "slowly.py").write_text(SLOWLY)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOTWRIGHT_")}
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "torch.distributed.run",
                    "--nproc-per-node",
                    str(ranks),
                    "slowly.py",
                    str(script),
                ],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={
                    **kept,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), kept.get("PYTHONPATH", "")]),
                    "SPOTWRIGHT_CHECKPOINT": str(folder / "place"),
                    "SPOTWRIGHT_PROGRESS_FILE": str(folder / "progress"),
                    "SPOTWRIGHT_NOTICE_FILE": str(folder / "notice-{rank}"),
                    **variables,
                },
            )
        pids.add(self.process.pid)

    def steps(self) -> int:
        """The number of steps that are done, as the ranks have reported; -1 before their first report."""
        try:
            return round(float((self.folder / "progress").read_text().partition(" ")[0]) * STEPS)
        except (FileNotFoundError, ValueError):
            return -1

    def until(self, steps: int) -> None:
        """Wait until so many steps are done."""
        end = time.monotonic() + PATIENCE
        while self.steps() < steps:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.01)
        self._pids |= set(process_tree(self.process.pid))

    def newest_save(self) -> int:
        """The number of the newest commit; -1 without one."""
        entry = next(SaveLog(open_store(self.folder / "place")).saves(), None)
        return -1 if entry is None else entry.number

    def until_saved_after(self, number: int) -> None:
        """Wait for a commit that is newer than this one."""
        end = time.monotonic() + PATIENCE
        while self.newest_save() <= number:
            assert time.monotonic() < end, self.log()
            time.sleep(0.01)

    def notice(self, rank: int, seconds: float) -> None:
        """Notify the node of a rank that it will be reclaimed."""
        new = self.folder / "new"
        new.write_text(json.dumps({"goes_at": time.time() + seconds, "why": "taken"}))
        new.rename(self.folder / f"notice-{rank}")

    def kill(self) -> None:
        """End torchrun and its ranks with SIGKILL."""
        for each in process_tree(self.process.pid):
            os.kill(each, signal.SIGKILL)
        assert self.end() == -signal.SIGKILL

    def end(self) -> int:
        """Return the exit code of torchrun."""
        return self.process.wait(PATIENCE)

    def first_step(self) -> int:
        """The step with which this attempt has begun, as it says."""
        (line,) = [line for line in self.log().splitlines() if line.startswith("begins with step ")]
        return int(line.removeprefix("begins with step "))

    def log(self) -> str:
        """The output of torchrun and the ranks."""
        return (self.folder / "log").read_text(errors="replace")


def finished(folder: Path, script: Path, pids: set[int], begins_with: Sequence[int], ranks: int = 2) -> bytes:
    """Return the weights of an attempt that begins with one of these steps and runs to the end."""
    attempt = Attempt(folder, script, pids, ranks)
    assert attempt.end() == 0, attempt.log()
    assert attempt.first_step() in begins_with
    return (folder / "weights.pt").read_bytes()
