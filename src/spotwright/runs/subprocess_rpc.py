"""Call a module of this package in another process: a request on its standard input, JSON lines as answers.

The Python API is the caller, an engine or a rehearsal the process. An error about the request is raised again in the caller,
with the same type.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from typing import Any

from spotwright.errors import InputError, PipelineError, SpotwrightError, StateError
from spotwright.interrupts import forget_handled_interrupt, interrupts_held, release_interrupts
from spotwright.runs.bodies import require_platform

__all__ = ["answers", "ask", "exit_code_of", "refusal", "stop"]

_KINDS: Mapping[str, type[SpotwrightError]] = {"state": StateError, "pipeline": PipelineError, "input": InputError}


def ask(module: str, request: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Start a module as a process and send it the request over a private pipe.

    The process has its own session, out of reach of the terminal's Ctrl-C: the caller calls :func:`stop`. Raises
    :class:`UnsupportedPlatform` on platforms that cannot run attempts, :class:`InputError` for arguments that are not JSON.
    """
    require_platform()
    try:
        text = json.dumps(request)
    except TypeError as error:
        raise InputError(f"arguments: {error}; a parameter is a string, number, boolean, list or mapping") from error
    process: subprocess.Popen[str] | None = None
    try:
        with interrupts_held():
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        if process.stdin is not None:
            with process.stdin as pipe:
                pipe.write(text)
    except KeyboardInterrupt:
        if process is not None:
            stop(process)
        raise
    return process


def stop(process: subprocess.Popen[str]) -> None:
    """Stop the process as Ctrl-C does, and wait for its end."""
    process.send_signal(signal.SIGINT)
    process.wait()


def exit_code_of(execute: Callable[[], int]) -> int:
    """Execute the request in the process that :func:`ask` has started. 130 if it is stopped before a run has begun."""
    try:
        release_interrupts()
        return execute()
    except KeyboardInterrupt:
        forget_handled_interrupt()
        return 130


def answers(process: subprocess.Popen[str]) -> Generator[dict[str, Any]]:
    """The answers of the process until it ends. Raises the error with which it refused the request."""
    if process.stdout is None:
        raise ValueError("the process was started without pipes")
    with process.stdout as lines:
        for line in lines:
            answer = json.loads(line)
            if "error" in answer:
                process.wait()
                raise _KINDS[answer["kind"]](answer["error"])
            yield answer


def refusal(error: SpotwrightError) -> dict[str, str]:
    """The answer that makes :func:`answers` raise this error."""
    kind = next((kind for kind, error_type in _KINDS.items() if isinstance(error, error_type)), "input")
    return {"error": str(error), "kind": kind}
