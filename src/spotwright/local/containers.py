"""Containers through podman or docker: one that answers, the command line of an attempt, and the end of what it started.

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
import functools
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

__all__ = [
    "CLIS",
    "Engine",
    "Mount",
    "Run",
    "answering",
    "conclude",
    "container_name",
    "in_memory",
    "run_command",
    "write",
]

CLIS = ("podman", "docker")
"""The clients that are looked for, in this order."""

_ANSWERS_WITHIN = 10.0
_REMOVED_WITHIN = 8.0
_FAILED_ITSELF = 125  # what `podman run` and `docker run` end with when the container was never started
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


class Engine(NamedTuple):
    """A client that answers: the path of its program, and which of the two it is."""

    program: str
    kind: str


class Mount(NamedTuple):
    """A file or folder of this machine that is seen at another place; without a source an empty folder in memory."""

    source: str
    target: str
    read_only: bool = False
    size: int | None = None


@functools.lru_cache(maxsize=8)
def answering(kind: str) -> tuple[Engine | None, str]:
    """A client, where it is installed and answers; else why not, in a few words. Asked once per process."""
    program = shutil.which(kind)
    if program is None:
        return None, f"{kind} is not installed"
    try:
        done = subprocess.run(
            [program, "ps", "--quiet"],
            capture_output=True,
            timeout=_ANSWERS_WITHIN,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{kind} does not answer ({error})"
    if done.returncode == 0:
        return Engine(program, kind), ""
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    return None, f"{kind} does not answer ({said[-1].strip()})"


def container_name(folder: str, task: str, attempt: int, epoch: int) -> str:
    """The name of an attempt's container: the same for whoever asks, and nobody else's."""
    text = json.dumps([folder, task, attempt, epoch])
    return f"spotwright-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


class Run(NamedTuple):
    """What is run. ``memory`` is bytes; ``pull`` is Kubernetes' imagePullPolicy; no ``command`` is the image's own."""

    name: str
    image: str
    command: Sequence[str]
    args: Sequence[str]
    env: Mapping[str, str]
    mounts: Sequence[Mount] = ()
    memory: int | None = None
    pull: str = ""


def run_command(engine: Engine, run: Run) -> list[str]:
    """The client's command line. Values of the environment are not on it, where other users could read them, only its names.

    The network is the machine's, because a node's metadata server listens on the loopback. The user is this process's, to whom
    the run's files belong.
    """
    line = [engine.program, "run", "--name", run.name, "--init", "--network", "host", "--security-opt", "label=disable"]
    line += ["--user", f"{os.getuid()}:{os.getgid()}"]
    if engine.kind == "podman" and os.getuid() != 0:
        line += ["--userns", "keep-id"]
    if run.pull:
        line += ["--pull", {"Always": "always", "Never": "never"}.get(run.pull, "missing")]
    if run.memory is not None:
        line += ["--memory", f"{run.memory}b", "--memory-swap", f"{run.memory}b"]
    for mount in run.mounts:
        line += ["--mount", _as_option(mount)]
    for variable, value in run.env.items():
        line += ["--env", f"{variable}={value}" if _is_clients_own(variable) else variable]
    if run.command:
        line += ["--entrypoint", run.command[0]]
    return [*line, run.image, *run.command[1:], *run.args]


def _as_option(mount: Mount) -> str:
    """Options of ``--mount`` are one line of CSV."""
    if not mount.source:
        limit = [f"tmpfs-size={mount.size}"] if mount.size is not None else []
        return ",".join(["type=tmpfs", f"target={mount.target}", *limit])
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}", *(["readonly"] * mount.read_only)]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _is_clients_own(variable: str) -> bool:
    return variable.upper() in _CLIENTS_OWN_EXACTLY or variable.startswith(_CLIENTS_OWN)


def conclude(container: Mapping[str, Any], exit_code: int | None = None) -> dict[str, Any]:
    """Remove a container, whatever its state, and say what the exit code of its client does not.

    ``container`` holds the ``program``, the ``name``, and the ``folder`` of files that were written for it. The answer has
    ``oom_kills`` where the kernel killed it for its memory, and ``start_error`` where it never began.
    """
    program, name = container["program"], container["name"]
    said = _ask(program, "container", "inspect", "--format", "{{.State.OOMKilled}} {{.State.Status}}", name)
    oom, _, status = said.partition(" ")
    _ask(program, "rm", "--force", "--volumes", name)
    if container.get("folder"):
        shutil.rmtree(container["folder"], ignore_errors=True)
    if exit_code == _FAILED_ITSELF and status in ("", "created", "configured", "initialized"):
        return {"start_error": "the container could not be started; its log says why"}
    return {"oom_kills": 1} if oom == "true" else {}


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
            timeout=_REMOVED_WITHIN,
            check=False,
            preexec_fn=_listen,
        )
        return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
    return ""


def _listen() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
