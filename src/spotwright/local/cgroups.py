"""Memory limits that kill: a control group per attempt that asks for one, where this machine lets us make groups.

Exceeding a Kubernetes memory limit is an out-of-memory kill by the kernel, and its cause is found from the group's own
counter. Where no group can be made (most containers, machines without delegation) limits are not enforced here, which
:func:`available` says in words; an exit record then carries the machine's own count of such kills as a hint.

Both versions are handled: see "Control Group v2" and "Memory Resource Controller" (v1) in the kernel's documentation.
Read by the fork server too, so it imports nothing outside the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path
from typing import NamedTuple

from . import identity

__all__ = ["Group", "available", "machine_oom_kills", "parent", "remove"]

_PREFIX = "spotwright-"
_PATIENCE = 1.0  # seconds; a group counts as busy until the kernel has buried its last process


class Group(NamedTuple):
    """A group of one attempt, or the group under which they are made."""

    version: int
    path: str

    def child(self, name: str) -> Group:
        """The group of that name below this one, whether it is there or not."""
        return Group(self.version, f"{self.path}/{_PREFIX}{name}")

    def create(self, name: str, limit: int) -> Group:
        """A group below this one in which more than ``limit`` bytes is an out-of-memory kill. Raises ``OSError``."""
        made = self.child(name)
        with contextlib.suppress(FileExistsError):
            Path(made.path).mkdir()
        if self.version == 2:
            made.write("memory.max", limit)
            with contextlib.suppress(OSError):  # no swap on this machine
                made.write("memory.swap.max", 0)
            made.write("memory.oom.group", 1)
        else:
            made.write("memory.limit_in_bytes", limit)
            with contextlib.suppress(OSError):  # no swap accounting
                made.write("memory.memsw.limit_in_bytes", limit)
        return made

    def write(self, name: str, value: int) -> None:
        """Set one of the group's values. Raises ``OSError``."""
        Path(self.path, name).write_text(str(value), "ascii")

    def enter(self) -> None:
        """Move the calling process into the group; what it starts from now on is there too. Raises ``OSError``."""
        self.write("cgroup.procs", 0)

    def kill(self) -> None:
        """Kill everything in it, where the kernel can (v2 from 5.14 on); whoever calls also kills one by one."""
        with contextlib.suppress(OSError):
            self.write("cgroup.kill", 1)

    def oom_kills(self) -> int:
        """How often the kernel killed in this group for want of memory."""
        return _counter(f"{self.path}/{'memory.events' if self.version == 2 else 'memory.oom_control'}")


def available() -> str:
    """One sentence for people: how memory limits are enforced here, or that they are not."""
    found = parent()
    if found is None:
        return "memory limits are not enforced: this user may not make control groups here"
    return f"memory limits are enforced by control groups (version {found.version}) under {found.path}"


@functools.cache
def parent() -> Group | None:
    """The group under which groups with a memory limit can be made and entered; found by trying, once a process."""
    own = _own_groups()
    for version, mount in _mounts():
        group = Path(mount + own.get(version, "/"))
        # v2 forbids processes beside groups with limits, so a group above our own is often the one that works
        for path in (group, *group.parents):
            if not path.is_relative_to(mount):
                break
            if _works(Group(version, str(path))):
                return Group(version, str(path))
    return None


def remove(group: Group) -> None:
    """Remove an attempt's group after its last process has gone; leaves it where it cannot be removed."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        try:
            Path(group.path).rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.002)
        else:
            return


def machine_oom_kills() -> int:
    """How often the kernel killed for want of memory since the machine booted; see ``oom_kill`` in proc_vmstat(5)."""
    return _counter("/proc/vmstat")


def _counter(path: str) -> int:
    try:
        text = b"\n" + identity.read(path)
    except OSError:
        return 0
    _, found, rest = text.partition(b"\noom_kill ")
    return int(rest.split(None, 1)[0]) if found else 0


def _works(candidate: Group) -> bool:
    """Whether a child can be given a limit and a process can be moved in: tried with a child that is gone again at once."""
    if not os.access(f"{candidate.path}/cgroup.procs", os.W_OK):
        return False
    try:
        trial = candidate.create(f"trial-{os.getpid()}", 1 << 40)
    except OSError:
        with contextlib.suppress(OSError):
            Path(candidate.path, f"{_PREFIX}trial-{os.getpid()}").rmdir()
        return False
    remove(trial)
    return True


def _mounts() -> list[tuple[int, str]]:
    """Where memory hierarchies are mounted, version 2 first; see proc_pid_mountinfo(5)."""
    found: list[tuple[int, str]] = []
    for line in _lines("/proc/self/mountinfo"):
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            found.append((2, mount.split()[4]))
        elif kind.startswith("cgroup ") and "memory" in kind.split()[-1].split(","):
            found.append((1, mount.split()[4]))
    return sorted(found, reverse=True)


def _own_groups() -> dict[int, str]:
    """This process's group in each hierarchy, by version; see cgroups(7)."""
    own: dict[int, str] = {}
    for line in _lines("/proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            own[2] = path
        elif "memory" in controllers.split(","):
            own[1] = path
    return own


def _lines(path: str) -> list[str]:
    try:
        return identity.read(path).decode(errors="surrogateescape").splitlines()
    except OSError:
        return []
