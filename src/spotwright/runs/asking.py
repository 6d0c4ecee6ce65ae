"""A process of our own that is asked for one thing: the request on its standard input, a line of JSON for all it has to say.

The Python API is one side of it, an engine or a rehearsal the other. What is wrong with a request is raised here as the error
that it was there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from typing import Any

from spotwright.errors import InputError, PipelineError, SpotwrightError, StateError

__all__ = ["answers", "ask", "refusal"]

_KINDS: Mapping[str, type[SpotwrightError]] = {"state": StateError, "pipeline": PipelineError, "input": InputError}


def ask(module: str, request: Mapping[str, Any], *, apart: bool = False) -> subprocess.Popen[str]:
    """Start a module as a process and hand it the request where nobody else can read it. ``apart``: Ctrl-C is not for it.

    Raises :class:`InputError` for arguments that are no JSON.
    """
    try:
        text = json.dumps(request)
    except TypeError as error:
        raise InputError(f"arguments: {error}; a parameter is a string, number, boolean, list or mapping") from error
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=apart,
    )
    if process.stdin is not None:
        with process.stdin as given:
            given.write(text)
    return process


def answers(process: subprocess.Popen[str]) -> Generator[dict[str, Any]]:
    """What the process says, until it ends. Raises what it refused the request with."""
    if process.stdout is None:
        raise ValueError("the process was started without pipes")
    with process.stdout as lines:
        for line in lines:
            said = json.loads(line)
            if "error" in said:
                process.wait()
                raise _KINDS[said["kind"]](said["error"])
            yield said


def refusal(error: SpotwrightError) -> dict[str, str]:
    """What the process says of an error, for :func:`answers` to raise."""
    kind = next((kind for kind, known in _KINDS.items() if isinstance(error, known)), "input")
    return {"error": str(error), "kind": kind}
