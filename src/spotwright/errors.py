"""The error tree, ordered by what the caller should do.

::

    SpotwrightError               catch this to show one message instead of a traceback
    ├── InputError                exit 2: the user's input is wrong; the message names file, field and fix
    │   ├── ConfigError           spotwright.yaml: file, line, field, what was expected
    │   ├── PipelineError         the pipeline file, its arguments, or an unsupported construct
    │   │   └── PipelineNotFound  the file defines no pipeline of that name
    │   └── UnknownRun            no such run, task or attempt in the state folder
    ├── StateError                exit 2 before a run has begun, 1 after: the state folder cannot be used (read-only, full, newer)
    │   └── RunBusy               another engine drives this run; wait for it or cancel it
    ├── UnsupportedPlatform       exit 2: this machine cannot run attempts; the message names the ways out
    └── Fenced                    exit 1: another engine drives this run now; this one must stop at once without another write
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "Fenced",
    "InputError",
    "PipelineError",
    "PipelineNotFound",
    "RunBusy",
    "SpotwrightError",
    "StateError",
    "UnknownRun",
    "UnsupportedPlatform",
]


class SpotwrightError(Exception):
    """Base of every error that this package raises on purpose; ``str()`` is one or two lines for the user.

    The engine sets ``after_start`` if the error came after the first event of a run: the command line then exits with 1, not 2.
    """

    after_start: bool = False

    def _render_traceback_(self) -> list[str]:
        """The error's sentence for a notebook. Source: IPython, ``InteractiveShell.showtraceback``."""
        return [f"{type(self).__name__}: {self}"]


class InputError(SpotwrightError):
    """The user's input is wrong, and no work was started. The command line exits with 2."""


class ConfigError(InputError):
    """A configuration value is wrong. The message starts with ``file:line: field:`` if they are known."""


class PipelineError(InputError):
    """A pipeline cannot be loaded or run as it is; the message names the file or task and the fix.

    ``task`` is the path of the task that the error is about, if the message lacks its line in the user's file, which a caller
    that knows the file adds.
    """

    task: str = ""


class PipelineNotFound(PipelineError):
    """The readable file defines no pipeline, or none of the requested name, at its top level."""


class UnknownRun(InputError):
    """The requested run, task or attempt is not in the state folder."""


class StateError(SpotwrightError):
    """The state folder cannot be used: read-only, full, or written by a newer version."""


class RunBusy(StateError):
    """Another engine drives this run now: wait for it, or cancel it."""


class UnsupportedPlatform(SpotwrightError):
    """Attempts cannot run on this machine: they need Linux."""


class Fenced(SpotwrightError):
    """Another engine drives this run now; the engine that gets this error must stop without another write."""
