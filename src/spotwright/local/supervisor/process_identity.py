"""Identify processes beyond reused pids, and decide by a claim file which process may run an attempt.

On a busy machine pids are reused within seconds. A process is identified by its pid, its start time (``/proc/PID/stat``, field
22, in clock ticks since the boot) and the boot id; signals go through a pidfd. An attempt belongs to the first process that
links its claim to ``claim`` in the attempt's directory: a shim that is about to run it, or an engine that fences it. All other
processes of a run are found by marks in their environment: the run's folder, because run names are not unique on a machine.

The fork server imports this module, so it uses only the standard library.
"""

# Plain system calls: after a fork every page that pathlib touches is copied, a millisecond in all.
# ruff: noqa: PTH108, PTH110, PTH208

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import stat as stat_module
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = [
    "FOLDER",
    "ProcessIdentity",
    "Stat",
    "boot_id",
    "children",
    "claim",
    "environ",
    "kill_child",
    "marks",
    "mine",
    "open_process",
    "pids",
    "read",
    "read_claim",
    "read_identity",
    "stat",
    "write",
]

FOLDER = "_SPOTWRIGHT_FOLDER"
"""The environment variable that names the run's folder in every process of the run."""

_LARGEST_CLAIM = 1 << 20  # bytes: the order of a container has the paths of its inputs

_DEAD = frozenset("ZX")  # a zombie has ended, and stays if pid 1 does not reap


class ProcessIdentity(NamedTuple):
    """Identifies one process of one boot of this machine."""

    pid: int
    starttime: int
    boot_id: str


class Stat(NamedTuple):
    """Fields of ``/proc/PID/stat``; see proc(5)."""

    state: str
    parent: int
    session: int
    starttime: int


def read(path: str) -> bytes:
    """Read a small file. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer blocks
    try:
        content = b""
        while part := os.read(descriptor, 1 << 16):
            content += part
        return content
    finally:
        os.close(descriptor)


def write(path: str, content: bytes) -> None:
    """Create or replace a file. Raises ``OSError``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)


def overwrite(path: str, content: bytes, offset: int) -> None:
    """Write into an existing file from an offset on. Raises ``OSError``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while content:
            written = os.pwrite(descriptor, content, offset)
            content, offset = content[written:], offset + written
    finally:
        os.close(descriptor)


@functools.cache
def boot_id() -> str:
    """The random id of this boot of the kernel."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def stat(pid: int) -> Stat | None:
    """State, parent, session and start time of a process; ``None`` for an unknown pid."""
    try:
        text = read(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the process name before it may contain blanks and parentheses
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def mine() -> ProcessIdentity:
    """The identity of this process."""
    own = stat(os.getpid())
    if own is None:
        raise OSError("/proc is not mounted, so processes cannot be identified")
    return ProcessIdentity(os.getpid(), own.starttime, boot_id())


def read_identity(data: Mapping[str, Any]) -> ProcessIdentity:
    """The process that a file names. Raises ``ValueError`` without one."""
    pid, starttime, boot = (data.get(name) for name in ProcessIdentity._fields)
    if not (isinstance(pid, int) and 0 < pid < 1 << 31 and isinstance(starttime, int) and isinstance(boot, str)):
        raise ValueError("expected the pid, the start time and the boot id of a process")
    return ProcessIdentity(pid, starttime, boot)


def open_process(identity: ProcessIdentity) -> int | None:
    """Open a pidfd of exactly this process; ``None`` if it has ended. The caller closes it."""
    if identity.boot_id != boot_id():
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return None
    current = stat(identity.pid)  # read after opening: if the pid was reused before, the start time differs
    if current is None or current.starttime != identity.starttime or current.state in _DEAD:
        os.close(descriptor)
        return None
    return descriptor


def pids() -> Iterator[int]:
    """The pids of all processes at this moment."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def children(pid: int) -> list[int]:
    """The children of a process, including zombies."""
    pids_of_children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            pids_of_children.extend(map(int, read(f"/proc/{pid}/task/{thread}/children").split()))
    except FileNotFoundError:
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return pids_of_children


def kill_child(child: int) -> bool:
    """Kill a child that was not waited for; ``False`` if it runs as another user, which forbids it."""
    try:
        os.kill(child, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _children_by_scan(parent: int) -> list[int]:
    return [pid for pid in pids() if (seen := stat(pid)) is not None and seen.parent == parent]


def environ(pid: int) -> frozenset[bytes]:
    """The environment, as ``NAME=value``, with which a process was executed; empty if it may not be read.

    A process that was forked and has not executed a program shows the environment of its parent.
    """
    try:
        return frozenset(read(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return frozenset()


def marks(run: str, folder: str | os.PathLike[str]) -> dict[str, str]:
    """The environment variables that mark the processes of a run; ``folder`` is the run's folder."""
    return {"SPOTWRIGHT_RUN": run, FOLDER: os.path.realpath(folder)}


def claim(directory: str | os.PathLike[str], content: dict[str, Any], room: int = 0) -> bool:
    """Claim the attempt of a directory for good; ``False`` if another process has claimed it before.

    The content becomes the file's first line (see :func:`as_line`), atomically; ``room`` bytes behind it are reserved. Raises
    ``OSError`` if the directory cannot be written or does not support hard links.
    """
    temporary = f"{directory}/claim.{os.getpid()}"
    try:
        write(temporary, as_line(content) + b" " * room)
        os.link(temporary, f"{directory}/claim")
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    return True


def as_line(content: dict[str, Any]) -> bytes:
    """The line of a claim in its file."""
    return json.dumps(content).encode() + b"\n"


def read_claim(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the claim of an attempt. Raises ``OSError`` or ``ValueError`` if it cannot be read."""
    path = f"{directory}/claim"
    status = os.lstat(path)
    if not stat_module.S_ISREG(status.st_mode) or status.st_size > _LARGEST_CLAIM:
        raise ValueError(f"{path}: expected a file of at most {_LARGEST_CLAIM:,} bytes")
    content = json.loads(read(path).partition(b"\n")[0])
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object")
    return content
