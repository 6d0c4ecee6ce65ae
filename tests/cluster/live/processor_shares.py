"""Shares of the processors, as Kubernetes gives them to pods: control groups whose processes count together, with a weight.

A kubelet gives a container ``cpu.shares`` of 1024 for each CPU that it requests, and 2 where it requests none; on control groups
of version 2 their ``cpu.weight`` (KEP-2254, "cgroup v2").
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.machine.processes import Processes
from testbed.settings import Settings

__all__ = ["BEST_EFFORT", "Busy", "busy_beside", "can_share"]

BEST_EFFORT = 2
"""The shares of a pod that requests no CPU."""

_CONTROLLER, _CONTROL_PLANE = 204, 1024  # shares: the request in the chart's values, and a whole CPU
_ALL = 16_384  # shares of all groups of a test together, so that what else runs on this machine takes little of them
_TRIES = 100  # to remove a group
_WEIGHTS = ("cpu.shares", "cpu.weight")
_V1, _V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
_BUSY = """\
import os, sys, time
parent, until = os.getppid(), time.monotonic() + float(sys.argv[1])
while os.getppid() == parent and time.monotonic() < until:
    sum(range(100000))
"""

Busy = Mapping[str, tuple[int, int]]
"""Groups of processes that never pause, by name: the shares of a group and how many processes it has."""


def _root() -> Path:
    return _V1 if (_V1 / "cpu.shares").exists() else _V2


def can_share() -> bool:
    """Whether groups with weights can be made here."""
    root = _root()
    if root == _V2 and not _has_cpu(root / "cgroup.subtree_control"):
        return False
    return os.geteuid() == 0 and os.access(root, os.W_OK)


def _has_cpu(file: Path) -> bool:
    return file.exists() and "cpu" in file.read_text(encoding="ascii").split()


@contextmanager
def busy_beside(settings: Settings, controller: Sequence[int], busy: Busy, *, seconds: float = 120.0) -> Iterator[None]:
    """Let busy processes run beside a controller, given by its processes, and the control plane of a bed, each with its shares.

    They end by themselves after so many seconds. All other processes of the bed have the shares of a whole CPU each, as system
    daemons have on a node, and its pods together half as much as all groups here: else nothing of a workload would get on.
    """
    processes = Processes(settings)
    known = {name: processes.pid(name) for name in processes.names()}
    members = {name: (_CONTROL_PLANE, _in_no_group(_tree(pid))) for name, pid in known.items() if pid is not None}
    members |= {
        "controller": (_CONTROLLER, [pid for each in controller for pid in _tree(each)]),
        "test": (_CONTROL_PLANE, [os.getpid()]),
    }
    loops = {name: [_start(seconds) for _ in range(count)] for name, (_, count) in busy.items()}
    members |= {name: (busy[name][0], [each.pid for each in started]) for name, started in loops.items()}
    above, pods = _root() / f"spotwright-{uuid.uuid4().hex[:8]}", _root() / settings.name
    weights = {pods / name: (pods / name).read_text(encoding="ascii") for name in _WEIGHTS if (pods / name).exists()}
    try:
        _made(above, _ALL)
        _weigh(pods, _ALL // 2)
        for name, (shares, pids) in members.items():
            _made(above / name, shares)
            _move(above / name, pids)
        yield
    finally:
        for file, text in weights.items():
            file.write_text(text, encoding="ascii")
        for each in (each for started in loops.values() for each in started):
            each.kill()
            each.wait()
        for group in [*above.glob("*/"), above]:
            _remove(group)


def _start(seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _BUSY, str(seconds)], start_new_session=True)


def _made(group: Path, shares: int) -> None:
    group.mkdir()
    _weigh(group, shares)
    if group.parent == _V2:
        (group / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")


def _weigh(group: Path, shares: int) -> None:
    """Give a group so many shares, if it is there."""
    if (group / "cpu.shares").exists():
        (group / "cpu.shares").write_text(str(shares), encoding="ascii")
    elif (group / "cpu.weight").exists():
        (group / "cpu.weight").write_text(str(1 + (shares - 2) * 9999 // 262_142), encoding="ascii")


def _move(group: Path, pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid), encoding="ascii")


def _remove(group: Path) -> None:
    """Move the processes of a group back, and remove it. Those of a node start others meanwhile."""
    for _ in range(_TRIES):
        _move(_root(), [int(pid) for pid in (group / "cgroup.procs").read_text(encoding="ascii").split()])
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.02)
    group.rmdir()


def _tree(pid: int) -> list[int]:
    """A process and those that it has started."""
    began = [each for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()]
    return [pid, *(found for each in began for found in _tree(int(each)))]


def _in_no_group(pids: Sequence[int]) -> list[int]:
    """Those that are in no group of their own for processors: a container's are, by its kubelet."""
    return [pid for pid in pids if _group_of(pid) == "/"]


def _group_of(pid: int) -> str:
    """The control group of a process for processors; empty for one that has ended (cgroups(7), "/proc/pid/cgroup")."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, names, path = line.split(":", 2)
            if "cpu" in names.split(",") or (not names and _root() == _V2):
                return path
    return ""
