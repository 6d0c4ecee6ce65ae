"""Orders and events of attempt processes: the types between the local backend and :mod:`spotwright.local.attempt_processes`.

The directory of an attempt holds, by these names: ``claim`` (the process that may run it, written once), ``exit.jsonl`` (the
claim again and the exit record; once it exists, no process of the attempt is alive), ``log.txt`` (standard output and error),
``work`` (the current directory of the user's code), ``out`` (the executor's output) and ``progress``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from spotwright.frozen import Frozen
from spotwright.regular_files import read_regular

__all__ = [
    "CLAIM",
    "EXIT",
    "LOG",
    "OUT",
    "PROGRESS",
    "WORK",
    "EndOrder",
    "Ended",
    "ExitRecord",
    "PrivateFolderSettings",
    "PythonEnvironment",
    "StartFailed",
    "StartOrder",
    "Started",
    "read_exit",
]


class PythonEnvironment(NamedTuple):
    """The Python environment of an attempt. Without packages it is the interpreter itself, which can import KFP's runtime.

    ``index_urls`` are pip's ``--index-url`` (the first) and ``--extra-index-url`` (the others), as KFP writes them.
    """

    packages: tuple[str, ...] = ()  # arguments of ``pip install``: requirements, paths, options
    index_urls: tuple[str, ...] = ()  # may hold credentials, so they are never printed
    trusted_hosts: tuple[str, ...] = ()
    python: str = ""  # empty: the interpreter that runs the engine


CLAIM = "claim"
EXIT = "exit.jsonl"
_LARGEST_EXIT = 1 << 21  # bytes: a claim and a record
LOG = "log.txt"
OUT = "out"
PROGRESS = "progress"
WORK = "work"


class PrivateFolderSettings(NamedTuple):
    """Absolute paths of this machine below private folders that an attempt sees.

    Writes to the run's ``own`` files and to paths that the user ``named`` reach the machine. Writes to ``readable`` folders
    stay in the attempt; readable files are read-only.
    """

    own: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    everything: bool = False  # writes to the rest of the machine stay in the attempt too

    @property
    def data(self) -> dict[str, Any]:
        """The argument of ``supervisor.mounting.private_folders.PrivateFolders.prepare``."""
        return {"shared": [*self.own, *self.named], "readable": [*self.readable], "everything": self.everything}


@dataclass(frozen=True, slots=True)
class StartOrder:
    """An attempt to start. ``key`` identifies it among all orders of one engine.

    ``env`` is added to the engine's own environment, and so are SPOTWRIGHT_RUN, _TASK and _ATTEMPT if they are missing.
    ``executor_input`` is KFP's ExecutorInput as JSON data with absolute paths.

    A ``command`` is executed instead of a ``module``. If it is the client of a ``container``, that mapping has the fields that
    :mod:`~spotwright.local.supervisor.containers` and its sibling ``images`` read.
    """

    key: str
    directory: str  # absolute; exists
    run: str
    task: str
    attempt: int
    epoch: int  # of the engine; a later engine has a higher epoch
    module: str = ""  # the component's source
    function: str = ""
    executor_input: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    container: Mapping[str, Any] | None = None
    environment: PythonEnvironment = field(default_factory=PythonEnvironment)
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None  # seconds of execution; then SIGTERM, and SIGKILL after ``grace`` seconds
    grace: float = 30.0
    memory_limit: int | None = None  # bytes
    secrets: tuple[bytes, ...] = ()  # redacted in the log
    mounts: tuple[Mapping[str, Any], ...] = ()  # arguments of supervisor.mounting.mounts.enter
    fetches: tuple[tuple[str, ...], ...] = ()  # command lines that download inputs; executed first
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # for a container: texts by folder and name
    private: PrivateFolderSettings | None = None  # None: the attempt sees the machine's temporary folders and home
    hold: bool = False  # stop before the user's code, for a tracer: see supervisor.kernel
    host: str = ""  # host name of the attempt, which also gets its own boot id; empty: this machine's


class EndOrder(NamedTuple):
    """A delivered end order: ``what`` is ``term`` or ``kill``; ``at`` is a Unix time."""

    what: str
    at: float


class ExitRecord(NamedTuple):
    """The end of an attempt, written atomically by its shim after all processes of the attempt have ended.

    ``started_at`` and ``ended_at`` are Unix times, ``seconds`` and ``cpu_seconds`` durations, ``max_rss`` is in bytes (of the
    largest process). Exactly one of ``exit_code`` and ``signal`` is set; neither if ``start_error`` says why none ran.
    """

    started_at: float
    ended_at: float
    seconds: float  # by the monotonic clock
    exit_code: int | None = None
    signal: int | None = None
    max_rss: int = 0
    cpu_seconds: float = 0.0
    timed_out: bool = False  # the order's ``timeout`` has passed
    ordered: tuple[EndOrder, ...] = ()
    oom_kills: int | None = None  # in the attempt's control group; None: it had no group
    machine_oom_kills: int = 0  # on the whole machine while the attempt ran: a hint only
    start_error: str = ""
    epoch: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Decode a shim's record. Raises ``TypeError`` or ``ValueError`` for other data."""
        return cls(**{**data, "ordered": tuple(EndOrder(what, at) for what, at in data.get("ordered", ()))})


class Started(Frozen):
    """The attempt's shim runs. Pid and start time (``/proc/PID/stat``, field 22) identify it until a reboot."""

    key: str
    pid: int
    starttime: int


class Ended(Frozen):
    """All processes of the attempt have ended. Without a ``record`` the way is unknown."""

    key: str
    record: ExitRecord | None


class StartFailed(Frozen):
    """The attempt never ran, although :class:`Started` may have come before.

    ``reason`` is for people: one or more lines without credentials. ``ours``: Spotwright's fork server or shim was lost
    before the attempt began, so the user's code and packages are not at fault.
    """

    key: str
    reason: str
    ours: bool = False


def read_exit(directory: str | Path) -> ExitRecord | None:
    """The exit record in an attempt's directory; ``None`` if it is missing or unreadable."""
    try:
        return ExitRecord.from_json(json.loads(read_regular(Path(directory, EXIT), _LARGEST_EXIT).partition(b"\n")[2]))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
