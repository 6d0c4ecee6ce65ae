"""The container runtimes of this machine: whether podman or docker answers, and which options it supports for this user.

The differences between podman and docker, between root and ordinary users, and between machines are detected here, once per
process, so that no attempt starts with an option that its runtime refuses.
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

__all__ = ["CLIS", "ContainerRuntime", "detect_runtime"]

CLIS = ("podman", "docker")
"""The clients to look for, in this order."""

# seconds; podman's commands wait for one that builds or imports an image, and a busy machine adds to that
_CLIENT_TIMEOUT = 60.0
_LIMITS = ("cpu", "memory")
_GPU = "nvidia.com/gpu"
# where podman looks for its init program (containers.conf(5), helper_binaries_dir); not every machine has it
_INIT = "catatonit"
_INIT_FOLDERS = ("/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman")
_DEVICE_FOLDERS = ("/etc/cdi", "/var/run/cdi")  # of the Container Device Interface


class ContainerRuntime(NamedTuple):
    """A runtime whose client answers: the path of the client, and its kind, podman or docker.

    ``rootless``: root in a container is this process's user outside, as with an ordinary user's podman. ``limits`` are the
    limits that it can enforce (``cpu``, ``memory``); ``gpus``: whether containers can get NVIDIA GPUs. ``init`` is the init
    program of containers: empty for the runtime's own, ``None`` if it has none.
    """

    program: str
    kind: str
    rootless: bool = False
    limits: tuple[str, ...] = ("cpu", "memory")
    gpus: bool = False
    init: str | None = ""


@functools.lru_cache(maxsize=8)
def detect_runtime(kind: str) -> tuple[ContainerRuntime | None, str]:
    """The runtime of that kind, or None and the reason why it cannot be used. Detected once per process."""
    program = shutil.which(kind)
    if program is None:
        return None, f"{kind} is not installed"
    try:
        if kind == "docker" and _ask(program, "--version").startswith(
            "podman"
        ):  # a package installs podman under this name
            kind = "podman"
        return (_podman if kind == "podman" else _docker)(program), ""
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return None, f"{kind} does not answer ({_reason(error)})"


def _podman(program: str) -> ContainerRuntime:
    rootless, limits = os.getuid() != 0, tuple(_LIMITS)
    if rootless:  # an ordinary user has only the control groups that were delegated
        delegated = json.loads(_ask(program, "info", "--format", "{{json .Host.CgroupControllers}}")) or ()
        limits = tuple(limit for limit in _LIMITS if limit in delegated)
    else:
        _ask(program, "ps", "--quiet")  # the fastest command that shows whether podman works
    gpus = any(_GPU in text for folder in _DEVICE_FOLDERS for text in _texts(Path(folder)))
    return ContainerRuntime(program, "podman", rootless, limits, gpus, _init())


def _docker(program: str) -> ContainerRuntime:
    info: dict[str, Any] = json.loads(_ask(program, "info", "--format", "{{json .}}"))
    if info.get("ServerErrors"):
        raise ValueError(info["ServerErrors"][0])
    rootless = any("name=rootless" in option for option in info.get("SecurityOptions") or ())
    supported = {"cpu": info.get("CpuCfsQuota"), "memory": info.get("MemoryLimit")}
    gpus = "nvidia" in (info.get("Runtimes") or ())
    return ContainerRuntime(program, "docker", rootless, tuple(limit for limit in _LIMITS if supported[limit]), gpus)


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
        command, capture_output=True, timeout=_CLIENT_TIMEOUT, check=True, stdin=subprocess.DEVNULL
    ).stdout.decode(errors="replace")


def _reason(error: Exception) -> str:
    stderr = getattr(error, "stderr", None) or b""
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else str(error)
