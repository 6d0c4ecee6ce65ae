"""Find out what is in use on this machine: runs with live processes, and Python environments.

Attempts outlive an engine that was killed, so a lease alone does not show that nothing of a run is alive. Every process of a run
has the run's folder in its environment, and a process of a Python environment was started from the environment's folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from spotwright.local.supervisor import process_identity

__all__ = ["environments_in_use", "run_folders_in_use"]


def run_folders_in_use() -> frozenset[Path]:
    """The folders of runs with a live process, as far as this user may read the environment of processes."""
    mark = f"{process_identity.FOLDER}=".encode()
    environments = (process_identity.environ(pid) for pid in process_identity.pids())
    marks = {variable for variables in environments for variable in variables if variable.startswith(mark)}
    return frozenset(Path(os.fsdecode(each.removeprefix(mark))) for each in marks)


def environments_in_use(cache: Path) -> frozenset[str]:
    """The names of the environments below this folder whose interpreter runs, or which are being built."""
    folder = os.fsencode(cache) + b"/"
    words = (word for pid in process_identity.pids() for word in _command(pid) if word.startswith(folder))
    return frozenset(os.fsdecode(word.removeprefix(folder).partition(b"/")[0]) for word in words)


def _command(pid: int) -> list[bytes]:
    try:
        return process_identity.read(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return []
