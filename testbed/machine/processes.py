"""Starts, finds and stops the background processes of a cluster.

Each has a name, a log and a file with its process id and start time, so that an id which the kernel has reused is never
signalled. All carry a mark in their environment, which finds processes whose file is lost, for example after an interrupted
start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from testbed.errors import TestbedError
from testbed.settings import Settings

__all__ = ["MARK", "Processes", "ended_by_sigterm", "marked_pids", "run", "wait_until"]

MARK = "SPOTWRIGHT_TESTBED"
"""Environment variable with the folder of the cluster to which a process belongs."""

_CHILDREN: list[subprocess.Popen[bytes]] = []
"""What this process started. The clusters outlive it, and Python warns of a child that is forgotten while it runs."""

_END_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL
_POLL = 0.05  # seconds


def run(command: Sequence[str | Path], *, text: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return its output; a failure is a :class:`TestbedError` with the output."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, input=text, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode != 0:
        raise TestbedError(f"`{' '.join(words)}` failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> float:
    """Wait until a condition holds, and return the seconds that it took; ``what`` names it in the error."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            raise TestbedError(f"timed out after {seconds:.0f} s: {what}")
        time.sleep(_POLL)
    return time.monotonic() - started


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the block like an exception, so that everything it began ends with it: builds, and the cluster."""

    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Processes:
    """The background processes of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.folder / "run"

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        namespace: str | None = None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> int:
        """Start a process in a new session, in a network namespace if one is named; return its id."""
        words = [str(word) for word in command]
        if namespace is not None:  # nsenter executes the command in its own place, so the id is the command's
            words = ["nsenter", f"--net=/run/netns/{namespace}", *words]
        self._folder.mkdir(parents=True, exist_ok=True)
        log = log or self.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                cwd="/",
                env={**os.environ, MARK: str(self._settings.folder), **(environment or {})},
            )
        _CHILDREN.append(process)
        self._file(name).write_text(f"{process.pid} {_start_time(process.pid)}")
        return process.pid

    def log(self, name: str) -> Path:
        """The log of a process."""
        return self._settings.folder / "log" / f"{name}.log"

    def pid(self, name: str) -> int | None:
        """The id of a running process, or None."""
        try:
            pid, start = self._file(name).read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if _start_time(int(pid)) == start else None

    def names(self) -> list[str]:
        """The names of all processes that were started and not ended."""
        return sorted(path.stem for path in self._folder.glob("*.pid"))

    def end(self, name: str, *, kill: bool = False) -> None:
        """Stop a process: SIGTERM, then SIGKILL after ten seconds, or SIGKILL at once. Does nothing if it does not run."""
        pid = self.pid(name)
        if pid is not None:
            end_process(pid, kill=kill)
        self.forget(name)

    def forget(self, name: str) -> None:
        """Take a process that ends well out of the list."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.pid"


def end_process(pid: int, *, kill: bool = False) -> None:
    """End a process and wait until it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number in (signal.SIGKILL,) if kill else (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(descriptor, number)
            ends = time.monotonic() + _END_TIMEOUT
            while time.monotonic() < ends:
                if _start_time(pid) == "":
                    return
                time.sleep(_POLL)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def marked_pids(folder: Path) -> Iterator[int]:
    """The processes with the mark of a cluster, without this one."""
    mark = f"{MARK}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to the kernel
            continue
        pid = int(path.parent.name)
        if mark in variables and pid != os.getpid():
            yield pid


def _start_time(pid: int) -> str:
    """When a process started, in ticks since boot; empty if it has ended. A child of ours is reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    if fields[0] not in ("Z", "X"):
        return fields[19]
    for process in [child for child in _CHILDREN if child.pid == pid and child.poll() is not None]:
        _CHILDREN.remove(process)
    return ""
