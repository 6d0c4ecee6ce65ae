"""The engine's process behind the Python API, which reads a request from standard input and answers with JSON lines.

Lines are ``{"run": NAME}`` once the run has begun, ``{"line": TEXT}`` for progress if the request asks for it, and
``{"error": TEXT, "kind": KIND}`` for an error before the run began. The run survives its reader.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spotwright.engine.events import Event
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError
from spotwright.kfp.compiled import Compiled
from spotwright.records.state_folder import StateFolder
from spotwright.runs.resume import resume
from spotwright.runs.run_options import PlanOptions, RunOptions
from spotwright.runs.runner import prepare, start
from spotwright.runs.subprocess_rpc import exit_code_of, refusal
from spotwright.views.run_progress import PlainProgress

__all__ = ["main"]


class _Lines:
    """A text stream that writes every line as a JSON line, until its reader has closed the pipe."""

    def __init__(self) -> None:
        self._open = True

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self.send(line=line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: every line is flushed when it is written."""

    def send(self, **message: Any) -> None:
        """Write one JSON line."""
        if not self._open:
            return
        try:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self._open = False
            nowhere = os.open(os.devnull, os.O_WRONLY)  # the buffer is flushed there when this process ends
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def main() -> int:
    """Execute the request. Exit code 0 if the run ended in any way, 1 after an error in the run, 2 for wrong input."""
    request = json.loads(sys.stdin.read())
    out = _Lines()
    names: list[str] = []

    def send_name(state: RunState, _events: Sequence[Event]) -> None:
        if not names:
            names.append(state.meta.run)
            out.send(run=names[0])

    observers = (send_name, PlainProgress(out)) if request["progress"] else (send_name,)
    try:
        if "resume" in request:
            folder = StateFolder.existing(Path(request["state"])).find(request["resume"])
            out.send(run=folder.name)
            resume(folder, lambda text: out.send(line=text), observers, reread=not request["as_compiled"])
        else:
            planning = PlanOptions.from_data(request["planning"])
            running = RunOptions.from_data(request["running"])
            start(prepare(Compiled.from_data(request["compiled"]), planning, running), observers)
    except SpotwrightError as error:
        out.send(**({"line": f"the run stopped: {error}"} if names else refusal(error)))
        return 1 if names else 2
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
