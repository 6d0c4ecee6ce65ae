"""Build the command line of an attempt's container, and remove the container after the attempt.

The attempt's main process is the runtime's client (``podman run``), which carries the container's output. SIGTERM goes to the
container itself, see :mod:`.termination`. The client cannot forward SIGKILL, and a docker container is not its child. So the
process that ends an attempt also removes the container, by a name derived from the attempt: the shim does, or the recovery if
the shim was killed.

Runs in the fork server's interpreter too, so it uses only the standard library.
"""

# ruff: noqa: PTH103, PTH123 (as in process_identity.py)

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

from .container_runtimes import ContainerRuntime

__all__ = [
    "ContainerMount",
    "ContainerRun",
    "conclude",
    "container_name",
    "is_client_variable",
    "memory_folder",
    "run_command",
    "write_files",
]

_CLIENT_TIMEOUT = 60.0  # seconds, for the reason in container_runtimes.py
# exit codes of `podman run` and `docker run` if the client, or the OCI runtime, failed
_CLIENT_FAILED = (125, 126)
_NOT_FOUND = 127
_KILLED = 128 + signal.SIGKILL
_TERMINATED = 128 + signal.SIGTERM
_ENDED = ("exited", "stopped")
_NOT_STARTED = ("", "created", "configured", "initialized")
_INIT_FAILED = "(catatonit:"  # begins the message of podman's init program if it cannot execute the command
_TAIL = 2048
_CLIENT_PREFIXES = (
    "DOCKER_",
    "CONTAINER",
    "XDG_",
    "LD_",
    "PODMAN_",
    "REGISTRY_",
    "STORAGE_",
    "BUILDAH_",
)  # prefixes of variables that the client reads itself
_CLIENT_VARIABLES = frozenset({"PATH", "HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "GODEBUG"})


class ContainerMount(NamedTuple):
    """A bind mount of a file or folder; with an empty source an empty folder in memory of at most ``size`` bytes."""

    source: str
    target: str
    read_only: bool = False
    size: int | None = None


def container_name(folder: str, task: str, attempt: int, epoch: int) -> str:
    """The unique name of an attempt's container, derived from the attempt."""
    text = json.dumps([folder, task, attempt, epoch])
    return f"spotwright-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


class ContainerRun(NamedTuple):
    """One container to run. ``memory`` is in bytes, ``cpu`` in millicores; an empty ``command`` means the image's own."""

    name: str
    image: str
    command: Sequence[str]
    args: Sequence[str]
    env: Mapping[str, str]
    mounts: Sequence[ContainerMount] = ()
    memory: int | None = None
    cpu: int | None = None
    gpus: bool = False


def run_command(runtime: ContainerRuntime, run: ContainerRun) -> list[str]:
    """The client's command line. It has the names of variables but not their values, which other users could read there.

    The container uses the machine's network, because a node's metadata server listens on the loopback interface. Before this
    command runs, the image is pulled and the user options are added (see :mod:`.images`). The client carries the output, so
    the runtime stores no log.
    """
    line = [runtime.program, "run", "--name", run.name, "--pull", "never", "--log-driver", "none"]
    line += ["--network", "host", "--security-opt", "label=disable"]
    if runtime.init is not None:
        line += ["--init", *(["--init-path", runtime.init] if runtime.init else [])]
    if runtime.kind == "podman":
        line += ["--stop-timeout", "0"]  # removal means SIGKILL at once
    line += _limits(runtime, run)
    for mount in run.mounts:
        line += ["--mount", _mount_option(mount)]
    for variable, value in run.env.items():
        line += ["--env", f"{variable}={value}" if is_client_variable(variable) else variable]
    if run.command:
        line += ["--entrypoint", run.command[0]]
    return [*line, run.image, *run.command[1:], *run.args]


def _limits(runtime: ContainerRuntime, run: ContainerRun) -> list[str]:
    """The limits that the runtime supports. A CPU limit above the machine's CPUs is omitted: docker refuses it."""
    line = []
    if run.memory is not None and "memory" in runtime.limits:
        line += ["--memory", f"{run.memory}b", "--memory-swap", f"{run.memory}b"]
    if run.cpu is not None and "cpu" in runtime.limits and run.cpu < 1000 * (os.cpu_count() or 1):
        line += ["--cpus", f"{run.cpu / 1000:g}"]
    if run.gpus and runtime.gpus:
        line += ["--device", "nvidia.com/gpu=all"] if runtime.kind == "podman" else ["--gpus", "all"]
    return line


def _mount_option(mount: ContainerMount) -> str:
    """The value of ``--mount``, which is one line of CSV."""
    if not mount.source:
        limit = [f"tmpfs-size={mount.size}"] if mount.size is not None else []
        return ",".join(["type=tmpfs", f"target={mount.target}", *limit])
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}", *(["readonly"] * mount.read_only)]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def is_client_variable(variable: str) -> bool:
    """Whether the client itself reads a variable; its value for the container is given on the command line."""
    return variable.upper() in _CLIENT_VARIABLES or variable.startswith(_CLIENT_PREFIXES)


def conclude(
    container: Mapping[str, Any], exit_code: int | None = None, log: str = "", machine_oom_kills: int = 0
) -> dict[str, Any]:
    """Remove a container in any state, and return corrections of what its client's exit code says.

    ``container`` holds the ``program``, the ``name``, the ``image``, and the ``folder`` of files that were written for it;
    ``log`` is the attempt's log. Without an ``exit_code`` the client was killed, and the container is not inspected. The result
    has ``oom_kills`` if the kernel killed the container for its memory, ``start_error`` if it never started, and an
    ``exit_code`` if the client's is wrong. Some versions of podman do not see out-of-memory kills in control groups of
    version 1; there a SIGKILL counts as one if the machine has counted one (``machine_oom_kills``).
    """
    program, name = container["program"], container["name"]
    inspect = ("container", "inspect", "--format", "{{.State.OOMKilled}} {{.State.Status}} {{.State.ExitCode}}", name)
    oom, status, code = (*("" if exit_code is None else _ask(program, *inspect)).split(), "", "", "")[:3]
    _ask(program, "rm", "--force", "--volumes", name)
    if container.get("folder"):
        shutil.rmtree(container["folder"], ignore_errors=True)
    if exit_code in _CLIENT_FAILED and status in _NOT_STARTED:
        return {"start_error": _last_line(log) or "its client failed"}
    if exit_code == 0 and (status not in _ENDED or code != "0"):
        return {"exit_code": _TERMINATED}  # podman exits with 0 if SIGTERM comes before the container has started
    if exit_code == 1 and _INIT_FAILED in _last_line(log):
        with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as file:
            file.write(
                f"spotwright: the image {container['image']} has no such command, or it cannot be executed there\n"
            )
        return {"exit_code": _NOT_FOUND}
    return {"oom_kills": 1} if oom == "true" or (exit_code == _KILLED and machine_oom_kills) else {}


def _last_line(log: str) -> str:
    """The last line of the log with a message of the client."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    messages = [line.strip() for line in lines if line.strip() and "run --help" not in line]
    return messages[-1].removeprefix("Error: ").removeprefix("spotwright: ")[:300] if messages else ""


def memory_folder(name: str) -> str:
    """A folder for a container's files, which may be secrets: in memory if this machine has ``/dev/shm``."""
    return f"{'/dev/shm' if os.access('/dev/shm', os.W_OK) else tempfile.gettempdir()}/{name}"  # noqa: S108


def write_files(folders: Mapping[str, Mapping[str, str]]) -> None:
    """Write texts by folder and file name, readable by this user only. Raises ``OSError``."""
    for folder, files in folders.items():
        os.makedirs(folder, mode=0o700)
        for name, text in files.items():
            descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)


def _ask(*command: str) -> str:
    """The client's output; empty if it fails or hangs. The client runs without the shim's blocked signals."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_CLIENT_TIMEOUT,
            check=False,
            preexec_fn=_unblock_signals,
        )
        return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
    return ""


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
