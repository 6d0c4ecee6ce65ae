"""Cancels a run on Kubeflow Pipelines, and waits until it has ended there; somebody may follow it meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from spotwright.engine.events import Event, RunStatus
from spotwright.engine.state import RunState
from spotwright.errors import InputError
from spotwright.kubeflow.following import Pauses, followed
from spotwright.kubeflow.kfp_run import KfpRun
from spotwright.kubeflow.server import KfpServer
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.runs.bodies import is_alive

__all__ = ["cancel"]

_POLL = 0.2  # seconds between two reads of a run that somebody follows


def cancel(folder: RunFolder, run: KfpRun, *, pauses: Pauses, timeout: float = 120.0) -> RunState:
    """Cancel a run and return its last state.

    Raises :class:`InputError` for one that has ended already, or does not end within ``timeout`` seconds.
    """
    reader = RunReader(folder, is_alive)
    if _has_ended(reader):
        raise InputError(f"run {folder.name} has ended already: {reader.state.status.value}")
    server = KfpServer(run.login)
    with contextlib.closing(Journal.open(folder.journal)) as journal:
        if reader.is_driven:
            journal.request("cancel", time.time())
    server.terminate(run.run_id)
    deadline = time.monotonic() + timeout
    while reader.is_driven and time.monotonic() < deadline:
        reader.source.pause(_POLL)
        reader.refresh()
    if _has_ended(reader):
        return reader.state
    return _wait_alone(folder, run, server, deadline, pauses)


def _has_ended(reader: RunReader) -> bool:
    return reader.state.status is not RunStatus.RUNNING


def _wait_alone(folder: RunFolder, run: KfpRun, server: KfpServer, deadline: float, pauses: Pauses) -> RunState:
    """Follow the run to its end in silence: nobody else does."""

    def between(seconds: float) -> None:
        if time.monotonic() >= deadline:
            raise InputError(f"run {folder.name}: KFP has been asked to end it, and it has not ended yet")
        time.sleep(seconds)

    with followed(folder, server, run, _Silence()) as follower:
        follower.cancelled()
        follower.follow(pauses, between)
    return follower.state


class _Silence:
    """Shows nothing."""

    def join(self, state: RunState, /) -> None:
        """Show nothing."""

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Show nothing."""
