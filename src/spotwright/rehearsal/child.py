"""The rehearsal's process behind the Python API: a request on standard input, one JSON line for everything there is to say.

Lines are ``{"line": TEXT}`` for progress, ``{"error": TEXT, "kind": KIND}`` for wrong input, and last
``{"text": TEXT, "found": DATA}``. A process of its own, because a rehearsal takes signals, threads and children for itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spotwright.errors import SpotwrightError
from spotwright.pipelines.compiled import Compiled
from spotwright.rehearsal.opening import Options, perform
from spotwright.rehearsal.report import as_json, as_text, point_text
from spotwright.rehearsal.verdict import Outcome
from spotwright.runs.asking import refusal

__all__ = ["main"]


def main() -> int:
    """Do what the request says. Exit code 0 when there is a verdict, whatever it is; 2 for wrong input."""
    try:
        found = perform(_options(json.loads(sys.stdin.read())), _tell)
    except SpotwrightError as error:
        _say(**refusal(error))
        return 2
    _say(text=as_text(found), found=as_json(found))
    return 0


def _options(request: dict[str, Any]) -> Options:
    for name in ("pipeline", "folder", "config", "state"):
        request[name] = Path(request[name]) if request[name] is not None else None
    for name in ("command", "outputs", "keep"):
        request[name] = tuple(request[name])
    compiled = request.pop("compiled")
    return Options(**request, compiled=Compiled.from_data(compiled) if compiled is not None else None)


def _tell(said: str | Outcome) -> None:
    _say(line=said if isinstance(said, str) else point_text(said))


def _say(**said: Any) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
