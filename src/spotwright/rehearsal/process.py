"""The subprocess of the Python API, which reads a request from standard input and writes one JSON line per message.

The lines are ``{"line": TEXT}`` for progress, ``{"error": TEXT, "kind": KIND}`` for wrong input, and finally
``{"text": TEXT, "report": DATA}``. A rehearsal needs a separate process, because it uses signals, threads and children.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spotwright.errors import SpotwrightError
from spotwright.kfp.compiled import Compiled
from spotwright.rehearsal.report import as_json, as_text, keep_report, outcome_text
from spotwright.rehearsal.session import RehearsalOptions, run_rehearsal
from spotwright.rehearsal.verdict import PointOutcome
from spotwright.runs.subprocess_rpc import exit_code_of, refusal

__all__ = ["main"]


def main() -> int:
    """Perform the request. Exit code 0 if there is any verdict; 2 for wrong input."""
    try:
        rehearsal = run_rehearsal(_options(json.loads(sys.stdin.read())), _write_progress)
        keep_report(rehearsal)
    except SpotwrightError as error:
        _write(**refusal(error))
        return 2
    _write(text=as_text(rehearsal), report=as_json(rehearsal))
    return 0


def _options(request: dict[str, Any]) -> RehearsalOptions:
    for name in ("pipeline", "folder", "config", "state"):
        request[name] = Path(request[name]) if isinstance(request[name], str) else request[name]
    for name in ("command", "outputs", "keep"):
        request[name] = tuple(request[name])
    compiled = request.pop("compiled")
    return RehearsalOptions(**request, compiled=Compiled.from_data(compiled) if compiled is not None else None)


def _write_progress(message: str | PointOutcome) -> None:
    _write(line=message if isinstance(message, str) else outcome_text(message))


def _write(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
