"""The clients of container engines on this machine: whether one answers, and what it can do for whoever calls it.

What differs between podman and docker, between root and everybody else, and between machines is found out here, once per
process, so that an attempt is never started with an option that its engine would refuse.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["CLIS", "Engine", "answering"]

CLIS = ("podman", "docker")
"""The clients that are looked for, in this order."""

_ANSWERS_WITHIN = 10.0
_LIMITS = ("cpu", "memory")
_GPU = "nvidia.com/gpu"
# where podman looks for its init (containers.conf(5), helper_binaries_dir), which it has not on every machine
_INIT = "catatonit"
_INIT_FOLDERS = ("/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman")
_DEVICE_FOLDERS = ("/etc/cdi", "/var/run/cdi")  # of the Container Device Interface


class Engine(NamedTuple):
    """A client that answers: the path of its program, and which of the two it is.

    ``rootless``: root in a container is this process's user outside, as with an ordinary user's podman. ``limits`` are the
    limits that it can keep (``cpu``, ``memory``), ``gpus`` whether it can hand over GPUs of NVIDIA. ``init`` is the program
    that is a container's first process, ``None`` where it has none.
    """

    program: str
    kind: str
    rootless: bool = False
    limits: tuple[str, ...] = ("cpu", "memory")
    gpus: bool = False
    init: str | None = ""


@functools.lru_cache(maxsize=8)
def answering(kind: str) -> tuple[Engine | None, str]:
    """A client, where it is installed and answers; else why not, in a few words. Asked once per process."""
    program = shutil.which(kind)
    if program is None:
        return None, f"{kind} is not installed"
    try:
        if kind == "docker" and _ask(program, "--version").startswith("podman"):  # a package has it under this name too
            kind = "podman"
        return (_podman if kind == "podman" else _docker)(program), ""
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return None, f"{kind} does not answer ({_why(error)})"


def _podman(program: str) -> Engine:
    rootless, limits = os.getuid() != 0, tuple(_LIMITS)
    if rootless:  # an ordinary user has the control groups that somebody gave away
        found = json.loads(_ask(program, "info", "--format", "{{json .Host.CgroupControllers}}")) or ()
        limits = tuple(limit for limit in _LIMITS if limit in found)
    else:
        _ask(program, "ps", "--quiet")  # the quickest question
    gpus = any(_GPU in text for folder in _DEVICE_FOLDERS for text in _texts(Path(folder)))
    return Engine(program, "podman", rootless, limits, gpus, _init())


def _docker(program: str) -> Engine:
    found: dict[str, Any] = json.loads(_ask(program, "info", "--format", "{{json .}}"))
    if found.get("ServerErrors"):
        raise ValueError(found["ServerErrors"][0])
    rootless = any("name=rootless" in option for option in found.get("SecurityOptions") or ())
    kept = {"cpu": found.get("CpuCfsQuota"), "memory": found.get("MemoryLimit")}
    gpus = "nvidia" in (found.get("Runtimes") or ())
    return Engine(program, "docker", rootless, tuple(limit for limit in _LIMITS if kept[limit]), gpus)


def _init() -> str | None:
    for folder in _INIT_FOLDERS:
        if os.access(f"{folder}/{_INIT}", os.X_OK):
            return f"{folder}/{_INIT}"
    return shutil.which(_INIT)


def _texts(folder: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            yield path.read_text("utf-8", "replace")


def _ask(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, timeout=_ANSWERS_WITHIN, check=True, stdin=subprocess.DEVNULL
    ).stdout.decode(errors="replace")


def _why(error: Exception) -> str:
    said = getattr(error, "stderr", None) or b""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else str(error)
