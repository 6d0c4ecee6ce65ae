"""Cancel a run: ask the engine that drives it, or end the attempts that a dead engine has left."""

from __future__ import annotations

import time

from spotwright.engine.events import RunStatus
from spotwright.engine.state import RunState
from spotwright.errors import InputError
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.runs import bodies
from spotwright.runs.resume import cancel_dead

__all__ = ["cancel"]

_POLL = 0.2  # seconds between two reads of a run that is ending


def cancel(folder: RunFolder, timeout: float = 60.0) -> RunState:
    """Cancel a run, driven by an engine or not, and wait until it has ended. Returns its last state.

    Raises :class:`InputError` if it has ended already, or does not end within ``timeout`` seconds.
    """
    if folder.kfp.exists():
        raise InputError(f"run {folder.name} runs on Kubeflow Pipelines: end it with: spotwright cancel {folder.name}")
    journal = Journal.open(folder.journal)
    try:
        lease = journal.lease()
        if lease is None or not bodies.is_alive(lease.holder):
            return cancel_dead(folder)
        journal.request("cancel", time.time())
        bodies.wake(lease.holder)
    finally:
        journal.close()
    return _wait_for_end(folder, timeout)


def _wait_for_end(folder: RunFolder, timeout: float) -> RunState:
    deadline = time.monotonic() + timeout
    reader = RunReader(folder, bodies.is_alive)
    while time.monotonic() < deadline:
        if not reader.is_driven:
            return reader.state if reader.state.status is not RunStatus.RUNNING else cancel_dead(folder)
        time.sleep(_POLL)
        reader.refresh()
    raise InputError(
        f"run {folder.name} has not ended within {timeout:g}s after the request to cancel it; see 'spotwright show {folder.name}'"
    )
