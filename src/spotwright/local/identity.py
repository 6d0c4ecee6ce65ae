"""Who a process is, so that an order can never reach another one that was given its pid later; and who may run an attempt.

Pids come round within seconds on a busy machine. A process is named by its pid, its start time (``/proc/PID/stat``, field
22, in clock ticks since the boot) and the boot's id; signals go through a pidfd. An attempt is run by whoever first links
its claim to ``claim`` in the attempt's directory: a shim that is about to run it, or an engine that fences it off.

Read by the fork server too, so it imports nothing outside the standard library.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "Identity",
    "Stat",
    "boot_id",
    "children",
    "claim",
    "environ",
    "mine",
    "open_process",
    "pids",
    "read_claim",
    "stat",
]

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


@functools.cache
def boot_id() -> str:
    """The id the kernel drew when it booted."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def stat(pid: int) -> Stat | None:
    """What the kernel says of a process; ``None`` when there is none of that pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
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
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 (names only, often)


def children(pid: int) -> list[int]:
    """The living and dead children of a process that nobody has waited for."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found.extend(map(int, (thread / "children").read_bytes().split()))
    except FileNotFoundError:
        if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
            return _children_by_scan(pid)  # a kernel without CONFIG_PROC_CHILDREN
    return found


def _children_by_scan(parent: int) -> list[int]:
    return [pid for pid in pids() if (seen := stat(pid)) is not None and seen.parent == parent]


def environ(pid: int) -> frozenset[bytes]:
    """``NAME=value`` of everything a process was given when it was executed; empty when it may not be read.

    A process that was forked and never executed shows what its parent was given.
    """
    try:
        return frozenset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return frozenset()


def claim(directory: str | Path, content: dict[str, Any]) -> bool:
    """Take the attempt of a directory for good; ``False`` when somebody has taken it before.

    The content appears whole or not at all. Raises ``OSError`` where the directory cannot be written or knows no hard links.
    """
    temporary = Path(directory, f"claim.{os.getpid()}")
    temporary.write_text(json.dumps(content), "utf-8")
    try:
        Path(directory, "claim").hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def read_claim(directory: str | Path) -> dict[str, Any]:
    """Who has taken the attempt; raises ``OSError`` or ``ValueError`` where that cannot be read."""
    content = json.loads(Path(directory, "claim").read_bytes())
    if not isinstance(content, dict):
        raise ValueError(f"{directory}/claim: expected a JSON object")
    return content
