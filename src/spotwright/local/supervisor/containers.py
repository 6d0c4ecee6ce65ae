"""Containers of attempts with podman or docker: the runtime, the image and its user, the command line, the removal.

The attempt's main process is the runtime's client (``podman run``), which carries the container's output. SIGTERM goes to the
container itself, see :mod:`spotwright.local.supervisor.attempt_supervisor`. The client cannot forward SIGKILL, and a docker
container is not its child. So the process that ends an attempt also removes the container, by a name derived from the attempt:
the shim does, or the recovery if the shim was killed.

Runs in the fork server's interpreter too, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

__all__ = [
    "CALLING_USER",
    "CLIS",
    "IMAGE_USER",
    "MAPPED_USER",
    "ROOT_USER",
    "ContainerMount",
    "ContainerRun",
    "ContainerRuntime",
    "conclude",
    "container_name",
    "detect_runtime",
    "is_client_variable",
    "memory_folder",
    "own_container",
    "prepare_image",
    "run_command",
    "write_files",
]


CLIS = ("podman", "docker")
"""The clients to look for, in this order."""

# seconds; podman's commands wait for one that builds or imports an image, and a busy machine adds to that
_CLIENT_TIMEOUT = 60.0
_LIMITS = ("cpu", "memory")
_GPU = "nvidia.com/gpu"
# where podman looks for its init program (containers.conf(5), helper_binaries_dir); not every machine has it
_INIT = "catatonit"
_INIT_FOLDERS = ("/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman")
_KINDS = ("podman", "docker")
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
        if kind == "docker" and _ask_runtime(program, "--version").startswith(
            "podman"
        ):  # a package installs podman under this name
            kind = "podman"
        return (_podman if kind == "podman" else _docker)(program), ""
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return None, f"{kind} does not answer ({_reason(error)})"


def _podman(program: str) -> ContainerRuntime:
    rootless, limits = os.getuid() != 0, tuple(_LIMITS)
    if rootless:  # an ordinary user has only the control groups that were delegated
        delegated = json.loads(_ask_runtime(program, "info", "--format", "{{json .Host.CgroupControllers}}")) or ()
        limits = tuple(limit for limit in _LIMITS if limit in delegated)
    else:
        _ask_runtime(program, "ps", "--quiet")  # the fastest command that shows whether podman works
    gpus = any(_GPU in text for folder in _DEVICE_FOLDERS for text in _texts(Path(folder)))
    return ContainerRuntime(program, "podman", rootless, limits, gpus, _init())


def _docker(program: str) -> ContainerRuntime:
    info: dict[str, Any] = json.loads(_ask_runtime(program, "info", "--format", "{{json .}}"))
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


def _ask_runtime(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, timeout=_CLIENT_TIMEOUT, check=True, stdin=subprocess.DEVNULL
    ).stdout.decode(errors="replace")


def _reason(error: Exception) -> str:
    stderr = getattr(error, "stderr", None) or b""
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else str(error)


# ruff: noqa: PTH103, PTH123 (as in process_identity.py)


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


def own_container(claim: Mapping[str, Any], run_folders: Iterable[str]) -> dict[str, Any] | None:
    """The container that :func:`conclude` removes for an attempt's claim; ``None`` without a container.

    ``run_folders``: the paths by which the engine may have known the run's folder. The claim is untrusted, and conclude
    executes a program and deletes a folder. So only this machine's runtime clients count, and only names derived from the
    attempt. Raises ``ValueError`` for others.
    """
    container = claim.get("container")
    if container is None:
        return None
    attempt = [claim[field] for field in ("task", "attempt", "epoch")]
    name = container["name"]
    kind, folder = Path(container["program"]).name, container.get("folder")
    folders = ("", f"/dev/shm/{name}", f"{tempfile.gettempdir()}/{name}")  # noqa: S108
    is_own = name in {container_name(run_folder, *attempt) for run_folder in run_folders}
    if kind not in _KINDS or not is_own or folder not in folders:
        raise ValueError("it names a container that is not this attempt's")
    return {"program": shutil.which(kind) or kind, "name": name, "folder": folder, "image": ""}


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
    """The client's command line. It has the names of variables without values, which other users could read.

    The container uses the machine's network, because a node's metadata server listens on the loopback interface. Before this
    command runs, the image is pulled and the user options are added (:func:`prepare_image`). The client carries the output, so
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
    """Remove a container in any state, and return corrections of its client's exit code.

    ``container`` holds the ``program``, the ``name``, the ``image``, and the ``folder`` of files that were written for it;
    ``log`` is the attempt's log. Without an ``exit_code`` the client was killed, and the container is not inspected. The result
    has ``oom_kills`` if the kernel killed the container for its memory, ``start_error`` if it never started, and an
    ``exit_code`` if the client's is wrong. Some versions of podman do not see out-of-memory kills in control groups of
    version 1; there a SIGKILL counts as one if the machine has counted one (``machine_oom_kills``).
    """
    program, name = container["program"], container["name"]
    inspect = ("container", "inspect", "--format", "{{.State.OOMKilled}} {{.State.Status}} {{.State.ExitCode}}", name)
    oom, status, code = (*("" if exit_code is None else _ask_quietly(program, *inspect)).split(), "", "", "")[:3]
    _ask_quietly(program, "rm", "--force", "--volumes", name)
    if container.get("folder"):
        shutil.rmtree(container["folder"], ignore_errors=True)
    if exit_code in _CLIENT_FAILED and status in _NOT_STARTED:
        return {"start_error": _last_log_line(log) or "its client failed"}
    if exit_code == 0 and (status not in _ENDED or code != "0"):
        return {"exit_code": _TERMINATED}  # podman exits with 0 if SIGTERM comes before the container has started
    if exit_code == 1 and _INIT_FAILED in _last_log_line(log):
        with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as file:
            file.write(
                f"spotwright: the image {container['image']} has no such command, or it cannot be executed there\n"
            )
        return {"exit_code": _NOT_FOUND}
    return {"oom_kills": 1} if oom == "true" or (exit_code == _KILLED and machine_oom_kills) else {}


def _last_log_line(log: str) -> str:
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


def _ask_quietly(*command: str) -> str:
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


# ruff: noqa: PTH101, PTH118 (as in process_identity.py)


IMAGE_USER, MAPPED_USER, CALLING_USER, ROOT_USER = "image", "mapped", "calling", "root"
"""The user modes described above; :func:`spotwright.local.container_attempt.user_mode` chooses one."""

_CANNOT_START = 125  # exit code of a client that could not start a container
_MAPS_SINCE = (4, 3)  # version of podman
_OPTIONS_AT = 2  # index after the program and `run`


def prepare_image(container: Mapping[str, Any], command: Sequence[str]) -> list[str]:
    """Pull the image if needed, and return the client's command line with the options for the container's user.

    Reads from ``container``: ``program``, ``name``, ``image``, ``pull`` (Kubernetes' imagePullPolicy), ``user_mode`` (one of
    those above), ``user``, ``group`` and ``non_root`` (the security context), ``home``, the folders that the user writes
    to (``folders`` of the attempt, ``shared`` with other tasks), and ``library``: a path that Python programs in the container
    import from, after the image's own ``PYTHONPATH``. On failure the process prints the reason and exits as its client would.
    """
    image = _Image(container)
    named_user = image.ensure_present()
    options = [*_user_options(image, named_user), *_python_path(image)]
    return [*command[:_OPTIONS_AT], *options, *command[_OPTIONS_AT:]]


def _python_path(image: _Image) -> list[str]:
    """The option for ``PYTHONPATH``, which keeps what the image sets."""
    library = image.container.get("library")
    if not library:
        return []
    own = next((entry.partition("=")[2] for entry in image.env if entry.startswith("PYTHONPATH=")), "")
    return ["--env", f"PYTHONPATH={own}:{library}" if own else f"PYTHONPATH={library}"]


def _user_options(image: _Image, named_user: str) -> list[str]:
    container = image.container
    if container["user_mode"] == CALLING_USER:
        return ["--user", f"{os.getuid()}:{os.getgid()}", "--env", f"HOME={container['home']}"]
    is_requested = container["user"] is not None or container["group"] is not None
    uid, gid = image.numeric_ids(named_user)
    uid = uid if container["user"] is None else container["user"]
    gid = gid if container["group"] is None else container["group"]
    if container["non_root"] and uid == 0:
        _refuse(
            f"the image {container['image']} runs as root, which its task forbids (run_as_non_root): set run_as_user"
        )
    user = ["--user", f"{uid}:{gid}"]
    if container["user_mode"] == IMAGE_USER:
        if uid != 0:
            try:
                _make_owner(container, uid)
            except OSError as error:
                _refuse(
                    f"user {uid} of the image {container['image']} cannot become the owner of {error.filename}: {error.strerror}"
                )
        return user if is_requested else []
    if uid != 0 and container["user_mode"] == MAPPED_USER and image.client_version() >= _MAPS_SINCE:
        # the group cannot be root, which is mapped already
        return ["--userns", f"keep-id:uid={uid},gid={gid or uid}", *user]
    return ["--user", "0:0"] if uid != 0 else (user if is_requested else [])


class _Image:
    """The image of a container, queried through the client."""

    def __init__(self, container: Mapping[str, Any]) -> None:
        self.container = container
        self._program, self._image = container["program"], container["image"]
        self.env: list[str] = []
        """The variables that the image sets, ``NAME=VALUE``; known once the image is present."""

    def ensure_present(self) -> str:
        """Pull the image as its policy says. Returns the user that the image names; empty for none."""
        policy = self.container["pull"]
        user = None if policy == "Always" else self._named_user()
        if user is not None:
            return user
        if policy == "Never":
            _refuse(f"the image {self._image} is not on this machine, and its imagePullPolicy is Never")
        print(f"spotwright: pulling {self._image}", file=sys.stderr, flush=True)  # noqa: T201
        done = subprocess.run(
            [self._program, "pull", "--quiet", self._image], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        message = done.stderr.decode(errors="replace")
        print(message, end="", file=sys.stderr)  # noqa: T201
        user = self._named_user() if done.returncode == 0 else None
        if user is None:
            _refuse(f"the image {self._image} cannot be pulled: {_last_line_of_error(message)}")
        return user

    def _named_user(self) -> str | None:
        answer = self._ask("image", "inspect", "--format", "{{.Config.User}}\n{{json .Config.Env}}", self._image)
        if answer is None:
            return None
        user, _, env = answer.partition("\n")
        with contextlib.suppress(ValueError):  # an image of another tool may have none
            self.env = json.loads(env) or []
        return user if user != "<no value>" else ""  # some versions print that for an image without a user

    def numeric_ids(self, named_user: str) -> tuple[int, int]:
        """User and group id of an image's user (``1000``, ``1000:100``, ``jovyan``, ``jovyan:users``); root for none."""
        user, _, group = named_user.strip().partition(":")
        uid, gid = user or "0", group or "0"
        if not user.isdigit() and user:
            entry = self._entries("passwd").get(user)
            if entry is None:
                _refuse(f"the image {self._image} runs as {user}, who is not in its /etc/passwd")
            uid, gid = entry[2], group or entry[3]
        if not gid.isdigit():
            gid = self._entries("group").get(gid, ["", "", "0"])[2]
        return int(uid), int(gid)

    def _entries(self, file: str) -> dict[str, list[str]]:
        """The lines of a file in the image's /etc by first field, read through a container with the attempt's name."""
        name = self.container["name"]
        self._ask("create", "--name", name, "--pull", "never", "--entrypoint", "none", self._image)
        archive_bytes = subprocess.run(
            [self._program, "cp", f"{name}:/etc/{file}", "-"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).stdout
        self._ask("rm", "--force", name)
        with (
            contextlib.suppress(tarfile.TarError, KeyError),
            tarfile.open(fileobj=io.BytesIO(archive_bytes)) as archive,
        ):
            member = archive.extractfile(file)
            lines = member.read().decode(errors="replace").splitlines() if member is not None else ()
            return {line.split(":")[0]: line.split(":") for line in lines if line.count(":") >= 3}
        return {}

    def client_version(self) -> tuple[int, ...]:
        """The client's major and minor version."""
        return tuple(int(part) for part in re.findall(r"\d+", self._ask("--version") or "0")[:2])

    def _ask(self, *arguments: str) -> str | None:
        """The client's output; None if it fails. The reason is printed later, when the client runs the container."""
        done = subprocess.run([self._program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stdout.decode(errors="replace").rstrip() if done.returncode == 0 else None


def _make_owner(container: Mapping[str, Any], uid: int) -> None:
    """Make a user the owner of the attempt's folders. Folders shared with other tasks become world-writable."""
    for folder in container["folders"]:
        os.chown(folder, uid, -1)
    for folder in container["shared"]:
        os.chmod(folder, 0o777)  # noqa: S103 (tasks that share it may run as different users)
    for folder, _, files in os.walk(container["folder"]) if container["folder"] else ():
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, uid, -1)


def _last_line_of_error(message: str) -> str:
    lines = message.strip().splitlines() or ["the client gives no reason"]
    return lines[-1].strip().removeprefix("Error: ")


def _refuse(reason: str) -> NoReturn:
    print(f"spotwright: {reason}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(_CANNOT_START)
