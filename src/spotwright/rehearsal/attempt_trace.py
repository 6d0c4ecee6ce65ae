"""The tracer's observations of one attempt: file operations, stray files, the answer to SIGTERM, and connections.

The answer to SIGTERM is read when the signal arrives: ``/proc/PID/status`` then shows whether the process ignores it, handles
it, or ends. A blocked signal never arrives but stays pending, which is read before the notice ends. Source: proc_pid_status(5),
fields SigIgn, SigCgt, SigBlk and ShdPnd; signal(7), "Signal mask and pending signals".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from spotwright.local.supervisor.kernel import FileCall

__all__ = [
    "NO_ANSWER",
    "AttemptTrace",
    "FileOperation",
    "OnSigterm",
    "Untold",
    "on_sigterm",
    "read_blocked",
    "read_on_sigterm",
]


@dataclass(frozen=True, slots=True)
class FileOperation:
    """One change of a file, ``at`` seconds after the attempt began. ``path`` is relative to the folder watched as ``area``.

    ``source`` is the old name of a renamed file, if it lies in the same area; ``truncates``: the file was emptied; ``appends``:
    it was opened for appending.
    """

    call: FileCall
    area: str
    path: str
    at: float
    source: str = ""
    truncates: bool = False
    appends: bool = False

    @property
    def takes_away(self) -> bool:
        """Whether the file's previous content is gone without a whole replacement."""
        return self.truncates or self.call is FileCall.REMOVE


class OnSigterm(StrEnum):
    """A process's reaction to SIGTERM."""

    IGNORES = "ignores"
    BLOCKS = "blocks"  # by its signal mask, so that the signal stays pending
    HANDLES = "handles"  # a handler, which may end the process or not
    ENDS = "ends"  # the default


NO_ANSWER = frozenset({OnSigterm.IGNORES, OnSigterm.BLOCKS})
"""The answers with which the signal never reaches the code of the process."""


@dataclass(frozen=True, slots=True)
class Untold:
    """The command of a ``program`` that handles SIGTERM but never got it, and of the ``launcher`` that got it instead."""

    program: str
    launcher: str


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """The observations of one attempt.

    ``stray_files`` were written outside the watched folders and not removed; ``failure`` says why tracing failed;
    ``on_sigterm`` has every process that SIGTERM reached; ``untold`` are the programs that handle SIGTERM but never received
    it, because their launcher did not pass it on; ``connections`` are addresses with ports; ``mapped`` are area and path of the
    watched files with a writable memory map; ``loads`` are the files of earlier attempts that it read, by path in the
    persistent folders (``None`` if some reads were missed); ``progress_at`` are the times of its first and last progress
    report; ``reads`` are samples of an undisturbed attempt's number of reads; ``ranks`` are the ranks of its processes;
    ``waited`` is its seconds of waiting for a processor, and ``own_seconds`` its duration without them, of which ``own_begin``
    passed before its work began (``None``: unknown); ``used`` are samples of an undisturbed attempt: its age, its wait and its
    computing time so far.
    """

    operations: tuple[FileOperation, ...] = ()
    stray_files: tuple[str, ...] = ()
    failure: str = ""
    on_sigterm: tuple[OnSigterm, ...] = ()
    connections: tuple[str, ...] = ()
    mapped: tuple[tuple[str, str], ...] = ()
    loads: tuple[str, ...] | None = ()
    untold: tuple[Untold, ...] = ()
    progress_at: tuple[float, ...] = ()
    reads: tuple[tuple[float, int], ...] = ()
    ranks: tuple[int, ...] = ()
    waited: float = 0.0
    own_seconds: float | None = None
    own_begin: float | None = None
    used: tuple[tuple[float, float, float], ...] = ()


def on_sigterm(status: str, number: int) -> OnSigterm:
    """Read a process's answer to signal ``number`` from the text of its ``/proc/PID/status``."""
    if _has(status, "SigIgn", number):
        return OnSigterm.IGNORES
    return OnSigterm.HANDLES if _has(status, "SigCgt", number) else OnSigterm.ENDS


def _has(status: str, field: str, number: int) -> bool:
    """Whether a set of signals in the text of a ``/proc/PID/status`` contains this one."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return bool(int(fields[field], 16) >> (number - 1) & 1)


def read_on_sigterm(process: int, number: int) -> OnSigterm | None:
    """Read the answer of a local process to a signal; None if it has ended."""
    try:
        return on_sigterm(Path(f"/proc/{process}/status").read_text("utf-8", "replace"), number)
    except OSError:
        return None


def read_blocked(process: int, number: int) -> bool:
    """Whether a signal sent to a local process is pending because the process blocks it."""
    try:
        status = Path(f"/proc/{process}/status").read_text("utf-8", "replace")
    except OSError:
        return False
    return _has(status, "SigBlk", number) and (_has(status, "ShdPnd", number) or _has(status, "SigPnd", number))
