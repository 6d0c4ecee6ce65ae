"""Execute a container component's command in place of the attempt's main process.

Runs in the fork server's interpreter, so it uses only the standard library.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

__all__ = ["exec_command"]

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # the exit codes of a shell
_FORK_SERVER_ONLY = ("_KFP_RUNTIME",)  # variables that only the fork server needs, for the SDK


def exec_command(command: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command, with ``env`` added to the environment. Never returns."""
    environment = {name: value for name, value in os.environ.items() if name not in _FORK_SERVER_ONLY} | dict(env)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the command would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 (the user's own command)
    except (OSError, ValueError) as error:
        print(f"spotwright: {command[0]}: {_reason(error)}", file=sys.stderr)  # noqa: T201
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return "its arguments are too long for this machine; pass a large value as an artifact"
    return str(error.strerror if isinstance(error, OSError) else error)
