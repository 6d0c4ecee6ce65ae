"""Enforce memory limits: a control group for each attempt with a limit, if this user may make control groups.

On Kubernetes, exceeding a memory limit is an out-of-memory kill by the kernel; the control group's own counter proves one here.
In most containers and on machines without delegation groups cannot be made, so limits are not enforced (:func:`parent` is
``None``). The exit record then has the machine's count of such kills as a hint.

Both versions are handled: see "Control Group v2" and "Memory Resource Controller" (v1) in the kernel's documentation.
The fork server imports this module, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import process_identity

__all__ = ["Group", "machine_oom_kills", "own_group", "parent", "remove", "why_not_enforced"]

_PREFIX = "spotwright-"
_NAME = re.compile("[0-9a-f]{24}")
_TIMEOUT = 10.0  # seconds; a group is busy until the kernel has released its last process


class Group(NamedTuple):
    """The control group of an attempt, or the parent group of all of them."""

    version: int
    path: str

    def child(self, name: str) -> Group:
        """The group of that name below this one, which need not exist."""
        return Group(self.version, f"{self.path}/{_PREFIX}{name}")

    def create(self, name: str, limit: int) -> Group:
        """Make a group below this one that the kernel limits to ``limit`` bytes of memory. Raises ``OSError``."""
        group = self.child(name)
        with contextlib.suppress(FileExistsError):
            Path(group.path).mkdir()
        if self.version == 2:
            group.write("memory.max", limit)
            with contextlib.suppress(OSError):  # no swap on this machine
                group.write("memory.swap.max", 0)
            group.write("memory.oom.group", 1)
        else:
            group.write("memory.limit_in_bytes", limit)
            with contextlib.suppress(OSError):  # no swap accounting
                group.write("memory.memsw.limit_in_bytes", limit)
        return group

    def write(self, name: str, value: int) -> None:
        """Set a value of the group. Raises ``OSError``."""
        Path(self.path, name).write_text(str(value), "ascii")

    def enter(self) -> None:
        """Move the calling process, and so its future children, into the group. Raises ``OSError``."""
        self.write("cgroup.procs", 0)

    def kill(self) -> None:
        """Kill all processes of the group if the kernel can (v2 since Linux 5.14); the caller also kills them one by one."""
        with contextlib.suppress(OSError):
            self.write("cgroup.kill", 1)

    def oom_kills(self) -> int:
        """The number of out-of-memory kills in this group."""
        return _counter(f"{self.path}/{'memory.events' if self.version == 2 else 'memory.oom_control'}")


def why_not_enforced() -> str:
    """Why memory limits are not enforced on this machine, for people; empty if they are."""
    return "" if parent() is not None else "memory limits are not enforced: this user may not make control groups here"


@functools.cache
def parent() -> Group | None:
    """The group below which groups with a memory limit can be made and entered, or None. Found by trial, once per process."""
    own = _own_groups()
    for version, mount in _mounts():
        group = Path(mount + own.get(version, "/"))
        # v2 forbids processes beside groups with limits, so often only a group above our own works
        for path in (group, *group.parents):
            if not path.is_relative_to(mount):
                break
            if _is_usable(Group(version, str(path))):
                return Group(version, str(path))
    return None


def own_group(data: Sequence[Any]) -> Group:
    """The group of an attempt that a claim names by version, parent and name. Raises ``ValueError`` for any other folder.

    The claim is untrusted, and :func:`remove` removes a folder.
    """
    version, parent_path, name = data
    path = Path(os.path.normpath(parent_path))
    if not _NAME.fullmatch(name) or not any(path.is_relative_to(mount) for _, mount in _mounts()):
        raise ValueError("it names a control group that is not this attempt's")
    return Group(version, str(path)).child(name)


def remove(group: Group) -> None:
    """Remove an attempt's group after the end of its last process; leave it if it stays busy."""
    deadline = time.monotonic() + _TIMEOUT
    while True:
        try:
            Path(group.path).rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.002)
        else:
            return


def machine_oom_kills() -> int:
    """The number of out-of-memory kills since the machine booted; see ``oom_kill`` in proc_vmstat(5)."""
    return _counter("/proc/vmstat")


def _counter(path: str) -> int:
    try:
        text = b"\n" + process_identity.read(path)
    except OSError:
        return 0
    _, separator, rest = text.partition(b"\noom_kill ")
    return int(rest.split(None, 1)[0]) if separator else 0


def _is_usable(candidate: Group) -> bool:
    """Whether a child group can be made, limited and entered; tried with one that is removed at once."""
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
    """Version and mount point of each memory hierarchy, version 2 first; see proc_pid_mountinfo(5)."""
    mounts: list[tuple[int, str]] = []
    for line in _lines("/proc/self/mountinfo"):
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            mounts.append((2, mount.split()[4]))
        elif kind.startswith("cgroup ") and "memory" in kind.split()[-1].split(","):
            mounts.append((1, mount.split()[4]))
    return sorted(mounts, reverse=True)


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
        return process_identity.read(path).decode(errors="surrogateescape").splitlines()
    except OSError:
        return []
