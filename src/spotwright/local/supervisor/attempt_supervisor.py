"""Supervise one attempt in its shim, from the claim to the exit record, and leave no processes behind.

The shim claims the attempt (only the first claim runs it), forks the user's code and waits without using the processor. All
processes of the attempt, daemons included, stay descendants of the shim, because it is a child subreaper. After the main
process has ended the shim kills the rest, and only then ``exit.jsonl`` appears, atomically. So once that file exists, all
processes of the attempt have ended. It is the claim's file under a second name, with the record as its second line, because
making a new file costs more than writing the record.

SIGTERM goes to an attempt's container through the runtime. Secrets in the log are replaced while it is written, also when a
write splits one. Runs in the fork server's interpreter, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import cgroups, custom_paths, executor_main, process_identity
from .private_folders import PrivateFolders

if TYPE_CHECKING:
    import resource


__all__ = ["KILL", "AttemptSupervisor", "ContainerTermination", "SecretRedactor"]


_RETRY_SECONDS = 0.05  # until the next request after a failed one: the container does not run yet


class ContainerTermination:
    """SIGTERM for one container. ``container`` holds the client's ``program`` and the container's ``name``.

    The attempt's client does not forward it reliably: podman's before 4.5 dies of a SIGTERM some milliseconds after the
    container's start, and docker's drops one before it. So the runtime is asked until it accepts.

    Its clients are children of this process, whose ends the caller reports with :meth:`reaped`.
    """

    def __init__(self, container: dict[str, Any]) -> None:
        self._command = [container["program"], "kill", "--signal", "TERM", container["name"]]
        self._pid = 0  # of the running client
        self.retry_at: float | None = None
        """The moment of the monotonic clock from which the caller must call :meth:`send` again; None: not at all."""

    def send(self) -> None:
        """Start the client that requests SIGTERM, without waiting for it; do nothing while one runs."""
        self.retry_at = None
        if self._pid:
            return
        quiet = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1, 2)]
        try:
            self._pid = os.posix_spawn(
                self._command[0],
                self._command,
                os.environ,
                file_actions=quiet,
                setsigmask=(),  # this process blocks the signals that it waits for
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
            )
        except OSError:  # the limit of processes
            self.retry_at = time.monotonic() + _RETRY_SECONDS

    def reaped(self, pid: int, status: int) -> None:
        """Record the end of a child of this process, with its status from wait(2)."""
        if pid == self._pid:
            self._pid = 0
            if status != 0:
                self.retry_at = time.monotonic() + _RETRY_SECONDS


_REPLACEMENT = b"***"
_MIN_LINE = 8  # bytes of a line of a multi-line secret; shorter ones ("}", "----") are ordinary text
_HEAD = 16


class SecretRedactor:
    """Replaces every occurrence of the secrets in a stream by ``***``."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        # longest first: if one secret begins with another, the longer one must be replaced as a whole
        self._secrets = sorted({part for secret in secrets for part in _parts(secret)}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)) or b"(?!)")
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Add bytes of the stream; return the redacted bytes that can be written now."""
        text = self._held + data
        redacted: list[bytes] = []
        position, open_end = 0, self._open_end(text, 0)
        for match in self._pattern.finditer(text):
            if match.start() >= open_end:
                break
            redacted += (text[position : match.start()], _REPLACEMENT)
            position = match.end()
            if position > open_end:
                open_end = self._open_end(text, position)
        redacted.append(text[position:open_end])
        self._held = text[open_end:]
        return b"".join(redacted)

    def flush(self) -> bytes:
        """The redacted rest, after the end of the stream."""
        held, self._held = self._held, b""
        return self._pattern.sub(_REPLACEMENT, held)

    def _open_end(self, text: bytes, start: int) -> int:
        """The first position from which the text may be an incomplete secret, or the text's length."""
        for position in range(max(start, len(text) - self._longest + 1), len(text)):
            head = text[position : position + _HEAD]
            for secret in self._secrets:
                # compare a short head first: slicing a secret of a megabyte at every position would take minutes
                if (
                    secret.startswith(head)
                    and len(secret) > len(text) - position
                    and secret.startswith(text[position:])
                ):
                    return position
        return len(text)


def _parts(secret: bytes) -> list[bytes]:
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) == 1:
        return lines if lines[0] else []
    return [line for line in lines if len(line) >= _MIN_LINE]


# ruff: noqa: PTH101, PTH102, PTH103, PTH104 (system calls as they are, for the reason in process_identity.py)


KILL = signal.SIGUSR1
"""The signal to a shim that the node of its attempt is gone."""

_EXIT_SIZE = 2048  # bytes reserved behind the claim, so that the record can be written to a full disk
_WALL = 0x40000000  # __WALL of wait(2): includes children that were cloned with a signal other than SIGCHLD
_UNKILLABLE_TIMEOUT = 10.0  # seconds for processes that run as another user to end by themselves
_FAILED = 1 << 8  # exit code 1, as wait(2) gives it
_PUMP_TIMEOUT = 2.0  # seconds for the last log lines if a process that we may not kill keeps the pipe open


class AttemptSupervisor:
    """Runs one attempt, from its claim to its exit record.

    The order is the JSON object that the engine sent, see :mod:`spotwright.local.attempt_processes`.

    ``next_signal`` waits for the next signal that concerns the attempt (SIGCHLD, SIGTERM, :data:`KILL`), until a moment of
    the monotonic clock; it returns ``None`` if that passes first.
    """

    def __init__(
        self,
        order: dict[str, Any],
        next_signal: Callable[[float | None], int | None],
        private_folders: PrivateFolders,
    ) -> None:
        self._order, self._next_signal, self._private_folders = order, next_signal, private_folders
        self._directory: str = order["directory"]
        self._group: cgroups.Group | None = None
        self._main = 0
        self._status: int | None = None  # of the main process, as wait(2) gives it
        self._ordered: list[tuple[str, float]] = []
        self._timed_out = False
        self._deadline: float | None = None
        self._pump: threading.Thread | None = None
        self._termination: ContainerTermination | None = None  # of an attempt that runs in a container
        self._is_started = False  # then the start has closed every descriptor that it had opened
        self._unkillable: set[int] = set()  # processes that run as another user
        self._claim_line = b""
        self._max_rss, self._cpu = 0, 0.0  # of all processes that have ended: KiB, seconds

    @property
    def shim_is_reusable(self) -> bool:
        """After the end: whether the attempt has left the shim unchanged, so that it can run another one."""
        is_plain = self._order["container"] is None and not self._order["mounts"] and not self._unkillable
        return is_plain and self._is_started and (self._pump is None or not self._pump.is_alive())

    def run(self) -> dict[str, Any] | None:
        """Run the attempt to its end, write its record and return it; ``None`` if another process has claimed the attempt."""
        if not self._claim():
            return None
        oom_before = cgroups.machine_oom_kills()
        started_at, started = time.time(), time.monotonic()
        record: dict[str, Any] = {"started_at": started_at, "epoch": self._order["epoch"]}
        try:
            self._start()
        except OSError as error:  # a full disk or the limit of processes: the attempt never ran
            record["start_error"] = str(error)
        else:
            self._supervise(started)
            self._take_artifacts(started)
        ended = time.monotonic()
        from_container = self._conclude_container(oom_before)
        self._kill_below()
        self._remove_scratch()
        if self._pump is not None:
            self._pump.join(_PUMP_TIMEOUT)
        record |= (
            (self._exit_status() if "start_error" not in from_container else {})
            | {
                "ended_at": time.time(),
                "seconds": ended - started,
                "max_rss": self._max_rss * 1024,
                "cpu_seconds": self._cpu,
                "timed_out": self._timed_out,
                "ordered": self._ordered,
                "oom_kills": None if self._group is None else self._group.oom_kills(),
                "machine_oom_kills": cgroups.machine_oom_kills() - oom_before,
            }
            | from_container
        )
        self._write(record)
        if self._group is not None:
            cgroups.remove(self._group)
        return record

    def _claim(self) -> bool:
        own = process_identity.mine()
        content = {name: self._order[name] for name in ("folder", "run", "task", "attempt", "epoch")}
        content |= {"by": "shim", "pid": own.pid, "starttime": own.starttime, "boot_id": own.boot_id}
        content |= {name: self._order[name] for name in ("group", "container")}
        self._claim_line = process_identity.as_line(content)
        return process_identity.claim(self._directory, content, _EXIT_SIZE)

    def _start(self) -> None:
        """Fork the main process in its own process group, after every step that can fail."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{self._directory}/work")
        log = os.open(f"{self._directory}/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._group = self._make_group()
        _write_all(log, "".join(f"spotwright: {problem}\n" for problem in self._private_folders.problems).encode())
        reading, output = (None, log) if not self._order["secrets"] else os.pipe()
        if self._order["component"]:
            executor_main.precompile(self._order["component"])
        self._fork(self._order, output)
        if reading is not None:
            redactor = SecretRedactor(text.encode("latin-1") for text in self._order["secrets"])
            pump = threading.Thread(target=_pump, args=(reading, log, redactor), daemon=True)
            try:
                pump.start()
            except RuntimeError as error:  # threads count towards the limit of processes
                raise OSError(str(error)) from error
            self._pump = pump
        self._is_started = True

    def _fork(self, order: dict[str, Any], output: int) -> None:
        """Fork a main process, which writes into ``output``; it is closed here."""
        shim = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            executor_main.run_forked(
                order, parent=shim, output=output, group=self._group, private_folders=self._private_folders
            )
        with contextlib.suppress(OSError):  # it has done this itself, or has ended
            os.setpgid(self._main, self._main)
        os.close(output)

    def _take_artifacts(self, started: float) -> None:
        """Copy a command's files at custom paths in another process with the same view; a component does it itself.

        A signal or the attempt's timeout ends it like the command.
        """
        is_due = self._order["command"] and self._status == 0 and not self._timed_out
        if not is_due or not custom_paths.custom_paths(self._directory):
            return
        self._status = _FAILED
        with contextlib.suppress(OSError):  # a full disk or the limit of processes: then artifacts are missing
            log = os.open(f"{self._directory}/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._fork({**self._order, "ended": True, "hold": False, "fetches": [], "files": {}}, log)
            self._status = None
            self._supervise(started)

    def _make_group(self) -> cgroups.Group | None:
        if self._order["group"] is None:
            return None
        with contextlib.suppress(OSError):  # the hierarchy has become unusable since the engine's probe: no limit then
            version, parent, name = self._order["group"]
            return cgroups.Group(version, parent).create(name, self._order["memory_limit"])
        return None

    def _supervise(self, started: float) -> None:
        """Wait for the end of the main process; forward end orders and enforce the timeout."""
        if self._order["timeout"] is not None:
            self._deadline = started + self._order["timeout"]
        while not self._reap():
            retry_at = self._termination.retry_at if self._termination is not None else None
            moments = [moment for moment in (self._deadline, retry_at) if moment is not None]
            number = self._next_signal(min(moments, default=None))
            if number is None and self._termination is not None and retry_at == min(moments):
                self._termination.send()
            elif number is None:
                self._handle_timeout()
            elif number == signal.SIGTERM:
                self._ordered.append(("term", time.time()))
                self._terminate()
            elif number == KILL:
                self._ordered.append(("kill", time.time()))
                self._signal_group(signal.SIGKILL)

    def _handle_timeout(self) -> None:
        if self._timed_out:
            self._deadline = None
            self._signal_group(signal.SIGKILL)
        else:
            self._timed_out = True
            self._deadline = time.monotonic() + self._order["grace"]
            self._terminate()

    def _terminate(self) -> None:
        """SIGTERM to the attempt: to its container once the main process has executed the client, else to its processes."""
        if self._order["container"] is None or not self._main_has_executed():
            self._signal_group(signal.SIGTERM)
            return
        if self._termination is None:
            # few attempts need this module; imported at the top it would slow every fork

            self._termination = ContainerTermination(self._order["container"])
        self._termination.send()

    def _main_has_executed(self) -> bool:
        """Whether the main process, a fork of this one, has executed another program."""
        with contextlib.suppress(OSError):
            return process_identity.read(f"/proc/{self._main}/cmdline") != process_identity.read("/proc/self/cmdline")
        return True

    def _signal_group(self, number: int) -> None:
        # the main process was not waited for, so its pid and its process group are not reused
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._main, number)
        if number == signal.SIGKILL:
            os.kill(self._main, number)

    def _reap(self) -> bool:
        """Wait for every ended descendant; return whether the main process has ended."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG | _WALL)
                if pid == 0:
                    break
                self._count(used)
                if pid == self._main:
                    self._status = status
                elif self._termination is not None:
                    self._termination.reaped(pid, status)
        return self._status is not None

    def _count(self, used: resource.struct_rusage) -> None:
        """Add the resource usage of an ended process and of the children that it waited for."""
        self._max_rss = max(self._max_rss, used.ru_maxrss)
        self._cpu += used.ru_utime + used.ru_stime

    def _kill_below(self) -> None:
        """Kill all remaining descendants, generation by generation: the children of a killed process become ours."""
        if self._group is not None:
            self._group.kill()
        shim = os.getpid()
        while left := [pid for pid in process_identity.children(shim) if pid not in self._unkillable]:
            killed = [pid for pid in left if process_identity.kill_child(pid)]
            for pid in killed:
                with contextlib.suppress(ChildProcessError):
                    self._count(os.wait4(pid, _WALL)[2])
            if not killed:
                self._await_unkillable(left)

    def _await_unkillable(self, pids: list[int]) -> None:
        """Wait until a process that we may not kill ends by itself; after the timeout log the rest and ignore them."""
        deadline = time.monotonic() + _UNKILLABLE_TIMEOUT
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                if os.wait4(-1, os.WNOHANG | _WALL)[0]:
                    return
            time.sleep(0.02)
        self._unkillable.update(pids)
        with contextlib.suppress(OSError):  # the record, which follows, matters more than this line
            log = os.open(f"{self._directory}/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _write_all(
                log, f"spotwright: processes of another user are left behind: {' '.join(map(str, pids))}\n".encode()
            )
            os.close(log)

    def _conclude_container(self, oom_before: int) -> dict[str, Any]:
        """End the container whose client the main process was; it is not our descendant."""
        if self._order["container"] is None:
            return {}
        from . import containers  # few attempts need this module; imported at the top it would slow every fork

        code, log = self._exit_status().get("exit_code"), f"{self._directory}/log.txt"
        return containers.conclude(self._order["container"], code, log, cgroups.machine_oom_kills() - oom_before)

    def _remove_scratch(self) -> None:
        """Remove the content of the attempt's empty-folder mounts, which may be large."""
        if self._order["mounts"] or self._private_folders.problems:
            import shutil  # few attempts need this module; imported at the top it would slow every fork

            shutil.rmtree(f"{self._directory}/scratch", ignore_errors=True)

    def _exit_status(self) -> dict[str, Any]:
        if self._status is None:
            return {}
        if os.WIFSIGNALED(self._status):
            return {"signal": os.WTERMSIG(self._status)}
        return {"exit_code": os.WEXITSTATUS(self._status)}

    def _write(self, record: dict[str, Any]) -> None:
        text = json.dumps(record).encode().ljust(_EXIT_SIZE)
        try:
            self._publish(text)
        except PermissionError:  # the attempt has changed the permissions of its own directory
            for path, rights in ((self._directory, 0o700), (f"{self._directory}/claim", 0o600)):
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(path, rights)
            self._publish(text)

    def _publish(self, text: bytes) -> None:
        claim, name = f"{self._directory}/claim", f"{self._directory}/exit.jsonl"
        try:
            process_identity.overwrite(claim, text, len(self._claim_line))  # into the reserved bytes
        except FileNotFoundError:  # the attempt has removed its directory
            os.makedirs(self._directory, exist_ok=True)
            process_identity.write(claim, self._claim_line + text)
        try:
            os.link(claim, name)
        except OSError:  # no inode left (tmpfs counts names), or the attempt has made a file of that name
            os.rename(claim, name)


def _pump(reading: int, log: int, redactor: SecretRedactor) -> None:
    """Copy the attempt's output into its log with secrets redacted, until every writer of the pipe has ended."""
    while data := os.read(reading, 65536):
        _write_all(log, redactor.feed(data))
    _write_all(log, redactor.flush())
    os.close(reading)
    os.close(log)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError:  # a full disk: the attempt continues, and its output is dropped
            return
