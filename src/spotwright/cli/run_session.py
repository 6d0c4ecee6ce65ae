"""The rest of ``run`` and ``resume`` once the run has a name: drive it, show progress, print the summary, return the exit code.

Separate from :mod:`spotwright.cli.run` so that the fork server boots while these imports load.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from spotwright.cli import FAILED, STOPPED, SUCCEEDED, say
from spotwright.engine.events import Event, RunStatus
from spotwright.engine.loop import Observer
from spotwright.engine.state import RunState
from spotwright.kfp.compiled import Compiled
from spotwright.records.state_folder import RunFolder
from spotwright.runs import bodies
from spotwright.runs.run_options import PlanOptions, RunOptions
from spotwright.runs.runner import prepare, start
from spotwright.views.run_progress import make_progress

__all__ = ["begin", "go_on"]

_CODES = {
    RunStatus.SUCCEEDED: SUCCEEDED,
    RunStatus.FAILED: FAILED,
    RunStatus.CANCELLED: STOPPED,
    RunStatus.STOPPED: STOPPED,
}


def begin(
    compiled: Compiled,
    planning: PlanOptions,
    running: RunOptions,
    server: bodies.EarlyServer,
    *,
    as_json: bool,
    fails_late: bool,
) -> int:
    """Start a run with its progress on the terminal. ``fails_late``: exit with 1 after a missed deadline."""
    prepared = prepare(compiled, planning, running)
    with _shown(as_json=as_json) as observers:
        folder, state = start(prepared, observers, bodies.local_hooks(server))
    return _finish(folder, state, as_json=as_json, fails_late=fails_late)


def go_on(folder: RunFolder, server: bodies.EarlyServer, *, reread: bool, as_json: bool, fails_late: bool) -> int:
    """Resume a run with its progress on the terminal. ``fails_late`` as for :func:`begin`."""
    from spotwright.runs.resume import resume

    out = sys.stderr if as_json else sys.stdout
    with _shown(as_json=as_json) as observers:
        hooks = bodies.local_hooks(server)
        resumption = resume(folder, lambda text: say(text, file=out), observers, hooks, reread=reread)
    if resumption.nothing_to_do:
        say(f"run {folder.name} has succeeded already: nothing to do", file=out)
    return _finish(folder, resumption.state, as_json=as_json, fails_late=fails_late)


@contextmanager
def _shown(*, as_json: bool) -> Iterator[Sequence[Observer]]:
    """The progress display, on the error output where standard output is for JSON."""
    stream: TextIO = sys.stderr if as_json else sys.stdout
    with make_progress(stream) as progress:
        yield progress, _import_summary


def _import_summary(_state: RunState, _events: Sequence[Event]) -> None:
    """Import the run's final views while the first tasks run, when the engine is idle."""
    from spotwright.views import run_json, run_text  # noqa: F401


def _finish(folder: RunFolder, state: RunState, *, as_json: bool, fails_late: bool) -> int:
    from spotwright.views.run_deadline import run_deadline
    from spotwright.views.run_json import run_view
    from spotwright.views.run_text import summary_text

    if as_json:
        say(json.dumps(run_view(state, folder.name, time.time())))
    else:
        say(summary_text(state, folder.name, time.time()))
    if state.detached:
        say(
            f"the engine left the run, and its attempts go on; take it up with: spotwright resume {folder.name}",
            err=True,
        )
        return STOPPED
    if state.status is RunStatus.STOPPED:
        say(f"stopped; go on with: spotwright resume {folder.name}", err=True)
    code = _CODES.get(state.status, FAILED)
    deadline = run_deadline(state) if fails_late and code == SUCCEEDED else None
    return FAILED if deadline is not None and deadline.missed else code
