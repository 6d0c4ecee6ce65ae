"""The machine of a local run: whether it can run attempts, which resources are in use, and its clock.

This module can be imported on every platform. Commands that run attempts call it first, so that the user gets one message with
the alternatives, not an error about a missing system call.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from spotwright.errors import UnsupportedPlatform
from spotwright.local.supervisor import process_identity

__all__ = [
    "allow_descriptors",
    "environments_in_use",
    "handles",
    "require_linux",
    "run_folders_in_use",
    "steady_clock",
    "writes",
]


_DESCRIPTORS = 65536  # each shim takes two of the engine's and one of its fork server's
_NAMES = {"darwin": "macOS", "win32": "Windows"}
_WAYS_OUT = (
    "use a container, made with the Dockerfile of Spotwright's repository, or WSL 2 on Windows; the README shows how. "
    "Here work: runs, show, logs, report, compile, place, unplace and explain"
)


def require_linux() -> None:
    """Raise :class:`UnsupportedPlatform` if attempts cannot run safely here: they need pidfds, so Linux 5.3 or newer."""
    if sys.platform != "linux":
        platform = _NAMES.get(sys.platform, sys.platform)
        raise UnsupportedPlatform(f"runs on this machine need Linux, and this is {platform}: {_WAYS_OUT}")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except AttributeError as error:
        raise UnsupportedPlatform(
            "runs on this machine need pidfds, and this Python was built without os.pidfd_open: use another Python"
        ) from error
    except OSError as error:
        raise UnsupportedPlatform(
            f"runs on this machine need Linux 5.3 or newer with pidfds, and this is {os.uname().release}"
        ) from error


def allow_descriptors() -> None:
    """Raise the soft limit of open files as far as useful; attempts inherit it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_folders_in_use() -> frozenset[Path]:
    """The folders of runs with a live process whose environment this user may read."""
    mark = f"{process_identity.FOLDER}=".encode()
    environments = (process_identity.environ(pid) for pid in process_identity.pids())
    marks = {variable for variables in environments for variable in variables if variable.startswith(mark)}
    return frozenset(Path(os.fsdecode(each.removeprefix(mark))) for each in marks)


def writes(pid: int, path: Path) -> bool:
    """Whether a process has this file open for writing, by ``/proc/PID/fdinfo``; see proc(5).

    False if this user may not know.
    """
    try:
        wanted = path.stat()
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208  # the numbers alone
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), wanted):  # noqa: PTH116
                    flags = _field(f"/proc/{pid}/fdinfo/{name}", b"flags:")
                    if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                        return True
    except OSError:
        return False
    return False


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles a signal that would end it by default; see ``SigCgt`` in proc(5)."""
    try:
        return bool(int(_field(f"/proc/{pid}/status", b"SigCgt:"), 16) >> (number - 1) & 1)
    except OSError:
        return False


def _field(path: str, name: bytes) -> bytes:
    """The value of a field in a file of ``/proc``. Raises :class:`OSError` for a missing one."""
    for line in process_identity.read(path).splitlines():
        if line.startswith(name):
            return line.removeprefix(name).strip()
    raise OSError(f"{path} has no {name!r}")


def environments_in_use(cache: Path) -> frozenset[str]:
    """The names of the environments below this folder whose interpreter runs, or which are being built."""
    folder = os.fsencode(cache) + b"/"
    words = (word for pid in process_identity.pids() for word in _command(pid) if word.startswith(folder))
    return frozenset(os.fsdecode(word.removeprefix(folder).partition(b"/")[0]) for word in words)


def _command(pid: int) -> list[bytes]:
    try:
        return process_identity.read(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return []


def steady_clock() -> Callable[[], float]:
    """A clock of Unix time that never goes back: the wall clock at this call, continued by the monotonic clock."""
    wall, start = time.time(), time.monotonic()
    return lambda: wall + time.monotonic() - start
