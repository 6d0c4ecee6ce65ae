"""The engine's process behind the Python API: a request on standard input, one JSON line for everything there is to say.

Lines are ``{"run": NAME}`` once the run has begun, ``{"line": TEXT}`` for progress where the request asks for it, and
``{"error": TEXT, "kind": KIND}`` for what was wrong before it began. A reader that goes away does not stop the run.
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
from spotwright.pipelines.compiled import Compiled
from spotwright.runs.asking import refusal
from spotwright.runs.engine import prepare, start
from spotwright.runs.options import RunOptions
from spotwright.runs.reading import find_run
from spotwright.runs.resume import resume
from spotwright.views.progress import PlainProgress

__all__ = ["main"]


class _Lines:
    """A text stream whose every line becomes a JSON line; closed for good when nobody reads any more."""

    def __init__(self) -> None:
        self._open = True

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self.say(line=line)
        return len(text)

    def flush(self) -> None:
        """Every line is flushed when it is said."""

    def say(self, **said: Any) -> None:
        """Say one thing."""
        if not self._open:
            return
        try:
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self._open = False
            nowhere = os.open(os.devnull, os.O_WRONLY)  # what is still buffered goes there when this process ends
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def main() -> int:
    """Do what the request says. Exit code 0 when the run was driven to an end, whatever the end; 2 for wrong input."""
    request = json.loads(sys.stdin.read())
    out = _Lines()
    begun: list[str] = []

    def tell_name(state: RunState, _events: Sequence[Event]) -> None:
        if not begun:
            begun.append(state.meta["run"])
            out.say(run=begun[0])

    observers = (tell_name, PlainProgress(out)) if request["progress"] else (tell_name,)
    try:
        if "resume" in request:
            folder = find_run(Path(request["state"]), request["resume"])
            out.say(run=folder.name)
            resume(folder, lambda text: out.say(line=text), observers, mended=not request["as_compiled"])
        else:
            start(prepare(Compiled.from_data(request["compiled"]), RunOptions.from_data(request["options"])), observers)
    except SpotwrightError as error:
        out.say(**({"line": f"the run stopped: {error}"} if begun else refusal(error)))
        return 1 if begun else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
