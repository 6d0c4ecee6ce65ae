"""The command of a container component as a process: what an attempt's main process becomes instead of Python code.

Runs inside the fork server's interpreter, so it imports nothing outside the standard library.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

__all__ = ["become"]

_CANNOT_BE_RUN, _NOT_FOUND = 126, 127  # the exit codes of a shell
_OURS = ("_KFP_RUNTIME",)  # what the fork server's own environment has for the SDK


def become(command: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Execute a command in the place of this process, with ``env`` laid over the environment. Never returns."""
    environment = {name: value for name, value in os.environ.items() if name not in _OURS} | dict(env)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what it executes would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 (the user's own command)
    except (OSError, ValueError) as error:
        print(f"spotwright: {command[0]}: {_why(error)}", file=sys.stderr)  # noqa: T201
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_BE_RUN)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return "its arguments are too long for this machine; pass a large value as an artifact"
    return str(error.strerror if isinstance(error, OSError) else error)
