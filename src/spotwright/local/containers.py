"""Containers through podman or docker: the command line of an attempt, and the end of what it started.

An attempt's main process is then the client (``podman run``), whose output is the container's and which passes SIGTERM on.
SIGKILL it cannot pass on, and with docker the container is nobody's child here. So whoever ends an attempt for good also
asks for the removal of its container, by a name that follows from the attempt: the shim, and where that was killed, the
recovery.

Runs inside the fork server's interpreter too, so it imports nothing outside the standard library.
"""

# ruff: noqa: PTH103, PTH123 (as in identity.py)

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .clients import Engine

__all__ = ["Mount", "Run", "conclude", "container_name", "in_memory", "is_clients_own", "run_command", "write"]

_ANSWERS_WITHIN = 30.0  # seconds, of a client on a busy machine
# what `podman run` and `docker run` end with where they, or the program that makes containers, failed themselves
_FAILED_ITSELF = (125, 126)
_NOT_FOUND = 127
_KILLED = 128 + signal.SIGKILL
_TOLD_TO_END = 128 + signal.SIGTERM
_ENDED = ("exited", "stopped")
_NOT_BEGUN = ("", "created", "configured", "initialized")
_INIT_CANNOT = (
    "(catatonit:"  # how the init of podman begins the line in which it says that it cannot execute the command
)
_TAIL = 2048
_CLIENTS_OWN = (
    "DOCKER_",
    "CONTAINER",
    "XDG_",
    "LD_",
    "PODMAN_",
    "REGISTRY_",
    "STORAGE_",
    "BUILDAH_",
)  # variables that the client reads itself
_CLIENTS_OWN_EXACTLY = frozenset({"PATH", "HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "GODEBUG"})


class Mount(NamedTuple):
    """A file or folder of this machine that is seen at another place; without a source an empty folder in memory."""

    source: str
    target: str
    read_only: bool = False
    size: int | None = None


def container_name(folder: str, task: str, attempt: int, epoch: int) -> str:
    """The name of an attempt's container: the same for whoever asks, and nobody else's."""
    text = json.dumps([folder, task, attempt, epoch])
    return f"spotwright-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


class Run(NamedTuple):
    """What is run. ``memory`` is bytes, ``cpu`` millicores; no ``command`` is the image's own."""

    name: str
    image: str
    command: Sequence[str]
    args: Sequence[str]
    env: Mapping[str, str]
    mounts: Sequence[Mount] = ()
    memory: int | None = None
    cpu: int | None = None
    gpus: bool = False


def run_command(engine: Engine, run: Run) -> list[str]:
    """The client's command line. Values of the environment are not on it, where other users could read them, only its names.

    The network is the machine's, because a node's metadata server listens on the loopback. The image is there when this is
    executed, and as whom it runs was added (see :mod:`.images`). The client carries the output, so the engine keeps none.
    """
    line = [engine.program, "run", "--name", run.name, "--pull", "never", "--log-driver", "none"]
    line += ["--network", "host", "--security-opt", "label=disable"]
    if engine.init is not None:
        line += ["--init", *(["--init-path", engine.init] if engine.init else [])]
    if engine.kind == "podman":
        line += ["--stop-timeout", "0"]  # whoever removes it means SIGKILL
    line += _limits(engine, run)
    for mount in run.mounts:
        line += ["--mount", _as_option(mount)]
    for variable, value in run.env.items():
        line += ["--env", f"{variable}={value}" if is_clients_own(variable) else variable]
    if run.command:
        line += ["--entrypoint", run.command[0]]
    return [*line, run.image, *run.command[1:], *run.args]


def _limits(engine: Engine, run: Run) -> list[str]:
    """Those that the engine can keep. More processors than there are docker refuses, and they are no limit."""
    line = []
    if run.memory is not None and "memory" in engine.limits:
        line += ["--memory", f"{run.memory}b", "--memory-swap", f"{run.memory}b"]
    if run.cpu is not None and "cpu" in engine.limits and run.cpu < 1000 * (os.cpu_count() or 1):
        line += ["--cpus", f"{run.cpu / 1000:g}"]
    if run.gpus and engine.gpus:
        line += ["--device", "nvidia.com/gpu=all"] if engine.kind == "podman" else ["--gpus", "all"]
    return line


def _as_option(mount: Mount) -> str:
    """Options of ``--mount`` are one line of CSV."""
    if not mount.source:
        limit = [f"tmpfs-size={mount.size}"] if mount.size is not None else []
        return ",".join(["type=tmpfs", f"target={mount.target}", *limit])
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}", *(["readonly"] * mount.read_only)]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def is_clients_own(variable: str) -> bool:
    """Whether the client itself reads a variable: it stands with its value on the command line, and the client has its own."""
    return variable.upper() in _CLIENTS_OWN_EXACTLY or variable.startswith(_CLIENTS_OWN)


def conclude(
    container: Mapping[str, Any], exit_code: int | None = None, log: str = "", machine_oom_kills: int = 0
) -> dict[str, Any]:
    """Remove a container, whatever its state, and say what the exit code of its client does not.

    ``container`` holds the ``program``, the ``name``, the ``image``, and the ``folder`` of files that were written for it;
    ``log`` is the attempt's; without an ``exit_code`` the client was killed, and nothing is asked. The answer has ``oom_kills``
    where the kernel killed it for its memory, ``start_error`` where it never began, and another ``exit_code`` where its client
    has not told the truth. Not every podman sees kills for memory in control groups of version 1: there a SIGKILL beside a
    kill that the machine has counted (``machine_oom_kills``) is one.
    """
    program, name = container["program"], container["name"]
    question = ("container", "inspect", "--format", "{{.State.OOMKilled}} {{.State.Status}} {{.State.ExitCode}}", name)
    oom, status, code = (*("" if exit_code is None else _ask(program, *question)).split(), "", "", "")[:3]
    _ask(program, "rm", "--force", "--volumes", name)
    if container.get("folder"):
        shutil.rmtree(container["folder"], ignore_errors=True)
    if exit_code in _FAILED_ITSELF and status in _NOT_BEGUN:
        return {"start_error": _last_line(log) or "its client failed"}
    if exit_code == 0 and (status not in _ENDED or code != "0"):
        return {
            "exit_code": _TOLD_TO_END
        }  # podman's client ends with 0 when SIGTERM comes before the container has begun
    if exit_code == 1 and _INIT_CANNOT in _last_line(log):
        with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as file:
            file.write(
                f"spotwright: the image {container['image']} has no such command, or it cannot be executed there\n"
            )
        return {"exit_code": _NOT_FOUND}
    return {"oom_kills": 1} if oom == "true" or (exit_code == _KILLED and machine_oom_kills) else {}


def _last_line(log: str) -> str:
    """The last line in which the client says something of what went wrong."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    found = [line.strip() for line in lines if line.strip() and "run --help" not in line]
    return found[-1].removeprefix("Error: ").removeprefix("spotwright: ")[:300] if found else ""


def in_memory(name: str) -> str:
    """A folder for the files of a container, in memory where this machine has such a place: they may be secrets."""
    return f"{'/dev/shm' if os.access('/dev/shm', os.W_OK) else tempfile.gettempdir()}/{name}"  # noqa: S108


def write(folders: Mapping[str, Mapping[str, str]]) -> None:
    """Write files, folder by folder, for nobody else to read. Raises ``OSError``."""
    for folder, files in folders.items():
        os.makedirs(folder, mode=0o700)
        for name, text in files.items():
            descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)


def _ask(*command: str) -> str:
    """What the client says; nothing where it fails or hangs. It hears the signals that a shim holds back."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWERS_WITHIN,
            check=False,
            preexec_fn=_listen,
        )
        return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
    return ""


def _listen() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
