"""Who a process is, so that an order can never reach another one that was given its pid later; and who may run an attempt.

Pids come round within seconds on a busy machine. A process is named by its pid, its start time (``/proc/PID/stat``, field
22, in clock ticks since the boot) and the boot's id; signals go through a pidfd. An attempt is run by whoever first links
its claim to ``claim`` in the attempt's directory: a shim that is about to run it, or an engine that fences it off. Whatever
else comes of a run is known by its marks: names of runs are not unique on a machine, their folders are.

Read by the fork server too, so it imports nothing outside the standard library.
"""

# System calls as they are: after a fork every page that pathlib touches is copied, a millisecond in all.
# ruff: noqa: PTH108, PTH110, PTH208

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = [
    "FOLDER",
    "Identity",
    "Stat",
    "boot_id",
    "children",
    "claim",
    "environ",
    "killed",
    "marks",
    "mine",
    "open_process",
    "pids",
    "read",
    "read_claim",
    "stat",
    "write",
]

FOLDER = "_SPOTWRIGHT_FOLDER"
"""The variable that tells of every process which run it came of."""

_DEAD = frozenset("ZX")  # a zombie has ended; where pid 1 does not reap, it stays one for ever


class Identity(NamedTuple):
    """One process of one boot of this machine."""

    pid: int
    starttime: int
    boot_id: str


class Stat(NamedTuple):
    """The part of ``/proc/PID/stat`` that is looked at; see proc(5)."""

    state: str
    parent: int
    session: int
    starttime: int


def read(path: str) -> bytes:
    """The content of a small file. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(descriptor, 1 << 16):
            content += part
        return content
    finally:
        os.close(descriptor)


def write(path: str, content: bytes) -> None:
    """Write a file whole. Raises ``OSError``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)


def overwrite(path: str, content: bytes, place: int) -> None:
    """Write over a file that is there, from a place on. Raises ``OSError``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while content:
            written = os.pwrite(descriptor, content, place)
            content, place = content[written:], place + written
    finally:
        os.close(descriptor)


@functools.cache
def boot_id() -> str:
    """The id the kernel drew when it booted."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def stat(pid: int) -> Stat | None:
    """What the kernel says of a process; ``None`` when there is none of that pid."""
    try:
        text = read(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before may hold blanks and parentheses
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def mine() -> Identity:
    """This process."""
    seen = stat(os.getpid())
    if seen is None:
        raise OSError("/proc is not mounted: processes cannot be told apart")
    return Identity(os.getpid(), seen.starttime, boot_id())


def open_process(who: Identity) -> int | None:
    """A pidfd of exactly this process; ``None`` when it has ended. The caller closes it."""
    if who.boot_id != boot_id():
        return None
    try:
        descriptor = os.pidfd_open(who.pid)
    except OSError:
        return None
    seen = stat(who.pid)  # read after opening: had the pid been given away before, the start time would tell
    if seen is None or seen.starttime != who.starttime or seen.state in _DEAD:
        os.close(descriptor)
        return None
    return descriptor


def pids() -> Iterator[int]:
    """Every process there is, this moment."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def children(pid: int) -> list[int]:
    """The living and dead children of a process that nobody has waited for."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found.extend(map(int, read(f"/proc/{pid}/task/{thread}/children").split()))
    except FileNotFoundError:
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return found


def killed(child: int) -> bool:
    """Kill a child that nobody has waited for; ``False`` for one that has become another user's, which cannot be."""
    try:
        os.kill(child, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _children_by_scan(parent: int) -> list[int]:
    return [pid for pid in pids() if (seen := stat(pid)) is not None and seen.parent == parent]


def environ(pid: int) -> frozenset[bytes]:
    """``NAME=value`` of everything a process was given when it was executed; empty when it may not be read.

    A process that was forked and never executed shows what its parent was given.
    """
    try:
        return frozenset(read(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return frozenset()


def marks(run: str, folder: str | os.PathLike[str]) -> dict[str, str]:
    """The environment by which the processes of a run are found; ``folder`` is the run's."""
    return {"SPOTWRIGHT_RUN": run, FOLDER: os.path.realpath(folder)}


def claim(directory: str | os.PathLike[str], content: dict[str, Any], room: int = 0) -> bool:
    """Take the attempt of a directory for good; ``False`` when somebody has taken it before.

    The content is the file's first line (see :func:`as_line`), and appears whole or not at all; ``room`` bytes are kept behind
    it for later. Raises ``OSError`` where the directory cannot be written or knows no hard links.
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
    """A claim as it is written."""
    return json.dumps(content).encode() + b"\n"


def read_claim(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Who has taken the attempt; raises ``OSError`` or ``ValueError`` where that cannot be read."""
    content = json.loads(read(f"{directory}/claim").partition(b"\n")[0])
    if not isinstance(content, dict):
        raise ValueError(f"{directory}/claim: expected a JSON object")
    return content
