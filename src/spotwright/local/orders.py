"""What the engine says about an attempt and what it hears back: the words between the loop and real processes.

The directory of an attempt holds, by these names: ``claim`` (who may run it, written once for all time), ``exit.jsonl`` (the
claim again and the exit record: there, nothing of the attempt lives any more), ``log.txt`` (standard output and error),
``work`` (the current directory of the user's code), ``out`` (what the executor writes) and ``progress``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

__all__ = [
    "CLAIM",
    "EXIT",
    "LOG",
    "OUT",
    "PROGRESS",
    "WORK",
    "Ended",
    "Environment",
    "ExitRecord",
    "Ordered",
    "StartFailed",
    "StartOrder",
    "Started",
    "read_exit",
]

CLAIM = "claim"
EXIT = "exit.jsonl"
LOG = "log.txt"
OUT = "out"
PROGRESS = "progress"
WORK = "work"


@dataclass(frozen=True, slots=True)
class Environment:
    """The Python an attempt runs in. Without packages it is the interpreter itself, which can import KFP's runtime.

    ``index_urls`` are pip's ``--index-url`` (the first) and ``--extra-index-url`` (the others), as KFP writes them.
    """

    packages: tuple[str, ...] = ()  # what ``pip install`` is given: requirements, paths, options
    index_urls: tuple[str, ...] = ()  # may hold credentials: never shown
    trusted_hosts: tuple[str, ...] = ()
    python: str = ""  # empty: the interpreter that runs the engine


@dataclass(frozen=True, slots=True)
class StartOrder:
    """One attempt to start. ``key`` is the engine's name for it, unique among all orders of one engine.

    ``env`` is laid over the engine's own environment; SPOTWRIGHT_RUN, _TASK and _ATTEMPT are added where they are missing.
    ``executor_input`` is KFP's ExecutorInput as JSON data; its paths are absolute.

    With a ``command`` that is executed and there is no ``module``; where it is the client of a ``container``, that says its
    program and the container's name (see :mod:`.containers`), and what is settled before (see :mod:`.images`).
    """

    key: str
    directory: str  # absolute, and there already
    run: str
    task: str
    attempt: int
    epoch: int  # of the engine: a later engine has a higher one
    module: str = ""  # the component's source
    function: str = ""
    executor_input: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    container: Mapping[str, Any] | None = None
    environment: Environment = field(default_factory=Environment)
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None  # seconds of its own; then SIGTERM, and SIGKILL after ``grace``
    grace: float = 30.0
    memory_limit: int | None = None  # bytes
    mask: tuple[bytes, ...] = ()  # secrets that must not reach the log
    mounts: tuple[Mapping[str, Any], ...] = ()  # as .mounts.enter takes them
    fetches: tuple[tuple[str, ...], ...] = ()  # command lines that bring inputs here, to be executed before all that
    files: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # texts by name, of folders to be made for a container
    hold: bool = False  # stop before the user's code until somebody lets it go on: see :mod:`.syscalls`


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order to end that reached the attempt: ``term`` or ``kill``, at a Unix time."""

    what: str
    at: float


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How an attempt ended, written by its shim in one atomic step after everything the attempt had started was gone.

    Times are Unix seconds; ``seconds`` and ``cpu_seconds`` are durations, ``max_rss`` bytes (of the largest process).
    Exactly one of ``exit_code`` and ``signal`` is set, neither when ``start_error`` says why nothing could be run.
    """

    started_at: float
    ended_at: float
    seconds: float  # by the monotonic clock
    exit_code: int | None = None
    signal: int | None = None
    max_rss: int = 0
    cpu_seconds: float = 0.0
    timed_out: bool = False  # its own ``timeout`` passed
    ordered: tuple[Ordered, ...] = ()
    oom_kills: int | None = None  # in its own cgroup; None: it had none
    machine_oom_kills: int = 0  # on the whole machine while it ran: a hint only
    start_error: str = ""
    epoch: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what the shim wrote. Raises ``TypeError`` or ``ValueError`` for anything else."""
        return cls(**{**data, "ordered": tuple(Ordered(what, at) for what, at in data.get("ordered", ()))})


@dataclass(frozen=True, slots=True)
class Started:
    """The attempt's shim runs. The pair of pid and start time (``/proc/PID/stat``, field 22) names it until a reboot."""

    key: str
    pid: int
    starttime: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt's shim has ended and nothing of the attempt lives. Without a record nothing is known of its end."""

    key: str
    record: ExitRecord | None


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The attempt never ran, though :class:`Started` may have come before.

    ``reason`` is for people: one or more lines without credentials.

    ``ours``: the fork server was lost before it could start the attempt, which is no fault of the user's code or packages.
    """

    key: str
    reason: str
    ours: bool = False


def read_exit(directory: str | Path) -> ExitRecord | None:
    """The exit record of an attempt's directory; ``None`` where there is none that can be read."""
    try:
        return ExitRecord.from_json(json.loads(Path(directory, EXIT).read_bytes().partition(b"\n")[2]))
    except (OSError, ValueError, TypeError):
        return None
