"""What the tracer observed of one attempt: file operations, stray files, the answer to SIGTERM, and connections.

The answer to SIGTERM is read where the signal arrives: ``/proc/PID/status`` shows then whether the process ignores it, has a
handler for it, or ends. A signal that the process blocks never arrives: it stays pending, which is read before the notice ends.
Source: proc_pid_status(5), fields SigIgn, SigCgt, SigBlk and ShdPnd; signal(7), "Signal mask and pending signals".
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

    ``source`` is the old name of a file that was renamed, if it lies in the same area; ``truncates``: the file was emptied.
    ``appends``: it was opened so that each write goes to its end.
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
        """Whether what the file held before is gone, and nothing whole is in its place."""
        return self.truncates or self.call is FileCall.REMOVE


class OnSigterm(StrEnum):
    """What a process does when SIGTERM arrives."""

    IGNORES = "ignores"
    BLOCKS = "blocks"  # by its signal mask, so that the signal stays pending
    HANDLES = "handles"  # a function of its own, which may end the process or not
    ENDS = "ends"  # the default


NO_ANSWER = frozenset({OnSigterm.IGNORES, OnSigterm.BLOCKS})
"""Whatever the process does, it hears nothing of the signal."""


@dataclass(frozen=True, slots=True)
class Untold:
    """The command of a ``program`` that handles SIGTERM and never got it, and of the ``launcher`` that got it in its place."""

    program: str
    launcher: str


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """The observations of one attempt.

    ``stray_files`` were written outside of the watched folders and not removed; ``failure`` says why the attempt could not be
    traced; ``on_sigterm`` has every process that SIGTERM reached; ``untold`` are the programs that handle SIGTERM and never
    got it, because the process that started them did not pass it on; ``connections`` are addresses with ports; ``mapped`` are
    area and path of the watched files that a writable memory map shows; ``loads`` are the files of earlier attempts that it
    read, by their paths in the folders that outlive an attempt, ``None`` if not all were seen; ``progress_at`` are the
    moments of its first and its last report of progress; ``reads`` are samples of how often an undisturbed attempt had read;
    ``ranks`` are the ranks that its processes had; ``waited`` is how many seconds the attempt waited for a processor, and
    ``own_seconds`` how long it took without them, of which ``own_begin`` before its work began (``None``: not known);
    ``used`` are samples of an undisturbed attempt: its age, how long it had waited and how long it had computed.
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
    """The answer to signal ``number`` of the process that the text of a ``/proc/PID/status`` describes."""
    if _has(status, "SigIgn", number):
        return OnSigterm.IGNORES
    return OnSigterm.HANDLES if _has(status, "SigCgt", number) else OnSigterm.ENDS


def _has(status: str, field: str, number: int) -> bool:
    """Whether a set of signals in the text of a ``/proc/PID/status`` has this one."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return bool(int(fields[field], 16) >> (number - 1) & 1)


def read_on_sigterm(process: int, number: int) -> OnSigterm | None:
    """The answer to a signal of a process of this machine; None if it has ended."""
    try:
        return on_sigterm(Path(f"/proc/{process}/status").read_text("utf-8", "replace"), number)
    except OSError:
        return None


def read_blocked(process: int, number: int) -> bool:
    """Whether a signal that was sent to a process of this machine waits because the process blocks it."""
    try:
        status = Path(f"/proc/{process}/status").read_text("utf-8", "replace")
    except OSError:
        return False
    return _has(status, "SigBlk", number) and (_has(status, "ShdPnd", number) or _has(status, "SigPnd", number))
