"""The whole error tree, drawn by what the caller should do.

::

    SpotwrightError               catch this to show one message instead of a traceback
    ├── InputError                exit 2: the user's input is wrong; the message names the place and the fix
    │   ├── ConfigError           spotwright.yaml: file, line, field, what was expected
    │   ├── PipelineError         the pipeline file, its arguments, or a construct that is not supported
    │   └── UnknownRun            no such run, task or attempt in the state folder
    ├── StateError                exit 2 before a run has begun, 1 after: the state folder cannot be used (read-only, full, newer)
    │   └── RunBusy               another engine drives this run; wait for it or cancel it
    └── Fenced                    exit 1: another engine has taken this run over; this one must stop at once
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "Fenced",
    "InputError",
    "PipelineError",
    "RunBusy",
    "SpotwrightError",
    "StateError",
    "UnknownRun",
]


class SpotwrightError(Exception):
    """Base of every error this package raises on purpose; ``str()`` is one or two lines for the user.

    ``begun`` is set by whoever drives a run: the error came after its first event, so the command line ends with 1, not 2.
    """

    begun: bool = False


class InputError(SpotwrightError):
    """The user's input is wrong; nothing was started. The command line ends with exit code 2."""


class ConfigError(InputError):
    """A configuration value is wrong. The message starts with ``file:line: field:`` where they are known."""


class PipelineError(InputError):
    """A pipeline cannot be loaded or run as it is; the message names the file or task and the fix.

    ``task`` is the path of a task whose place in the user's file the message does not say yet.
    """

    task: str = ""


class UnknownRun(InputError):
    """The run, task or attempt that was asked for is not in the state folder."""


class StateError(SpotwrightError):
    """The state folder cannot be used: read-only, full, or written by a newer version."""


class RunBusy(StateError):
    """Another engine drives this run right now."""


class Fenced(SpotwrightError):
    """Another engine has taken over the run; whoever sees this must stop and write nothing more."""
